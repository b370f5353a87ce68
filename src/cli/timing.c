/* How long a call takes and how much work it is.
 *
 * SPDX-License-Identifier: MIT */
#define _XOPEN_SOURCE 700
#include "timing.h"

#include <stdlib.h>
#include <time.h>

#include "cli.h"

double timing_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

attn_status timing_median(const attn_problem *problem, void *workspace, size_t workspace_size,
                          attn_executor *executor, int64_t min_runs, int64_t max_runs,
                          double seconds, double *median) {
    size_t runs = 0, room = 0;
    double *durations = NULL;
    const double start = timing_now();
    double before = start;
    while ((int64_t)runs < max_runs && ((int64_t)runs < min_runs || before - start < seconds)) {
        if (runs == room) {
            room = room ? 2 * room : 1024;
            double *grown = realloc(durations, room * sizeof *durations);
            if (!grown) {
                free(durations);
                return ATTN_ERROR_MEMORY;
            }
            durations = grown;
            before = timing_now();
        }
        const attn_status status = attn_forward(problem, workspace, workspace_size, executor);
        if (status != ATTN_OK) {
            free(durations);
            return status;
        }
        const double after = timing_now();
        durations[runs++] = after - before;
        before = after;
    }
    qsort(durations, runs, sizeof *durations, compare);
    *median =
        runs % 2 ? durations[runs / 2] : 0.5 * (durations[runs / 2 - 1] + durations[runs / 2]);
    free(durations);
    return ATTN_OK;
}

double timing_flops(const attn_problem *p) {
    if (p->batch == 0 || p->q_len == 0 || p->q_heads == 0)
        return 0;
    double pairs = 0;
    for (int64_t b = 0; b < p->batch; b++) {
        const int64_t kv_len = p->kv_len ? p->kv_len[b] : p->kv_cap;
        const int64_t offset = p->align == ATTN_ALIGN_BOTTOM_RIGHT ? kv_len - p->q_len
                               : p->align == ATTN_ALIGN_EXPLICIT   ? p->offset[b]
                                                                   : 0;
        for (int64_t i = 0; i < p->q_len; i++) {
            const int64_t seen = p->causal && offset + i + 1 < kv_len ? offset + i + 1 : kv_len;
            pairs += seen > 0 ? (double)seen : 0;
        }
    }
    return 2.0 * (double)(p->qk_dim + p->v_dim) * (double)p->q_heads * pairs;
}
