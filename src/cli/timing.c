/* How long a call takes and how much work it is.
 *
 * SPDX-License-Identifier: MIT */
#define _XOPEN_SOURCE 700
#include "timing.h"

#include <math.h>
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

/* Whether the mask shows key j to row i. */
static int mask_shows(const attn_mask *m, int64_t b, int64_t h, int64_t i, int64_t j) {
    const int64_t row = b * m->stride_batch + h * m->stride_head + i * m->stride_query;
    const int64_t at = row + j * m->stride_key;
    switch (m->type) {
    case ATTN_MASK_BOOL:
        return ((const unsigned char *)m->data)[at] != 0;
    case ATTN_MASK_F32:
        return ((const float *)m->data)[at] != -INFINITY;
    case ATTN_MASK_F16:
        return ((const uint16_t *)m->data)[at] != 0xfc00;
    case ATTN_MASK_BITS:
        return ((const unsigned char *)m->data)[row + (j >> 3)] >> (j & 7) & 1;
    default:
        return 1;
    }
}

/* Keys in [from, to) that the mask shows to row i, the sum over all query heads. */
static double masked_pairs(const attn_problem *p, int64_t b, int64_t i, int64_t from, int64_t to) {
    if (p->mask.type == ATTN_MASK_NONE)
        return (double)(to - from) * (double)p->q_heads;
    const int64_t end = to < p->mask.n_keys ? to : p->mask.n_keys;
    const int64_t heads = p->mask.stride_head ? p->q_heads : 1; /* else they see the same */
    int64_t pairs = 0;
    for (int64_t h = 0; h < heads; h++)
        for (int64_t j = from; j < end; j++)
            pairs += mask_shows(&p->mask, b, h, i, j);
    return (double)pairs * (double)(p->q_heads / heads);
}

double timing_flops(const attn_problem *p) {
    if (p->batch == 0 || p->q_len == 0 || p->q_heads == 0)
        return 0;
    const int64_t far = INT64_C(1) << 62; /* beyond every position, and the sum of two fits */
    const int64_t left = !p->window || p->window[0] < 0 || p->window[0] > far ? far : p->window[0];
    const int64_t right = !p->window || p->window[1] < 0 || p->window[1] > far ? far : p->window[1];
    double pairs = 0;
    for (int64_t b = 0; b < p->batch; b++) {
        const int64_t past = p->past_len ? p->past_len[b] : p->past_cap;
        const int64_t keys = p->kv_len ? p->kv_len[b] : past + p->kv_cap;
        const int64_t first = p->cu_q ? p->cu_q[b] : 0;
        const int64_t rows = p->cu_q ? p->cu_q[b + 1] - first : p->q_len;
        const int64_t offset = p->align == ATTN_ALIGN_BOTTOM_RIGHT ? keys - rows
                               : p->align == ATTN_ALIGN_EXPLICIT   ? p->offset[b]
                                                                   : 0;
        for (int64_t i = 0; i < rows; i++) {
            const int64_t position = offset + i;
            const int64_t reach = p->causal ? 0 : right;
            const int64_t from = position > left ? position - left : 0;
            const int64_t to = position < keys - 1 - reach ? position + reach + 1 : keys;
            if (from < to)
                pairs += masked_pairs(p, b, first + i, from, to);
        }
    }
    return 2.0 * (double)(p->qk_dim + p->v_dim) * pairs;
}
