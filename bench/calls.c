/* call/overhead: the smallest call with all its checks, as a multiple of a plain call of a function
 *     that does nothing.
 * call/tiny/N: N query rows against N keys, one head, 64 features, in the same measure.
 * call/check, call/workspace: what attn_check() and attn_workspace_size() take.
 * call/merge/N: attn_merge() of N results, against reading them.
 *
 * All with the best kernel set (or that of --isa).
 *
 * SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdlib.h>

#include "bench.h"

/* Calls of a work.call: what calls it costs nothing then. */
enum { REPEATS = 64 };

static void nothing(void *arg) { (void)arg; }
static void (*volatile plain_function)(void *arg) = nothing;

static void plain_calls(void *arg) {
    for (int i = 0; i < REPEATS; i++)
        plain_function(arg);
}

static void forward_calls(void *arg) {
    struct workload *w = arg;
    for (int i = 0; i < REPEATS; i++)
        attn_forward(&w->problem, w->workspace, w->workspace_size, NULL);
}

static void check_calls(void *arg) {
    struct workload *w = arg;
    for (int i = 0; i < REPEATS; i++)
        measure_sink += (float)attn_check(&w->problem, NULL, 0);
}

static void workspace_calls(void *arg) {
    struct workload *w = arg;
    size_t size;
    for (int i = 0; i < REPEATS; i++)
        measure_sink += (float)attn_workspace_size(&w->problem, 1, &size);
}

struct call {
    const char *name;
    struct shape shape;
    void (*calls)(void *workload);
};
#define TINY(n)                                                                                    \
    { "tiny/" #n, {"", 1, 1, 1, n, n, 64, 0}, forward_calls }
static const struct call calls[] = {
    {"overhead", {"", 1, 1, 1, 1, 1, 8, 0}, forward_calls},
    {"check", {"", 1, 1, 1, 1, 1, 8, 0}, check_calls},
    {"workspace", {"", 1, 1, 1, 1, 1, 8, 0}, workspace_calls},
    TINY(1),
    TINY(2),
    TINY(4),
    TINY(8),
    TINY(16),
};

static void small_call(gbench_state *state, const void *arg) {
    const struct bench_case *about = arg;
    const struct call *call = about->row;
    struct workload w;
    if (workload_make(&w, &call->shape)) {
        gbench_fail(state, "not enough memory");
    } else if (bench_use(state, about) == 0 && bench_prepare(state, &w, NULL) == 0) {
        const struct work work = {call->calls, &w, 1}, other = {plain_calls, NULL, 1};
        bench_measure_cost(state, &work, &other, MEASURE_CPU, "times a plain call", REPEATS);
    }
    workload_free(&w);
}

/* ---- attn_merge() ---------------------------------------------------------------------------- */

enum { MERGE_HEADS = 32, MERGE_ROWS = 16, MERGE_DIM = 128, MERGE_MOST = 8 };

struct merge {
    size_t n;
    float *outs, *lses, *out, *lse;
    attn_partial parts[MERGE_MOST];
    attn_output to, to_lse;
};

static void merge_call(void *arg) {
    struct merge *m = arg;
    attn_merge(1, MERGE_HEADS, MERGE_ROWS, MERGE_DIM, m->n, m->parts, &m->to, &m->to_lse);
}

/* The formula in attn.h, in double, for one element. */
static double merged(const struct merge *m, size_t row, size_t c) {
    double largest = -INFINITY, sum = 0, weights = 0;
    const size_t rows = MERGE_HEADS * MERGE_ROWS;
    for (size_t p = 0; p < m->n; p++)
        largest = fmax(largest, (double)m->lses[p * rows + row]);
    for (size_t p = 0; p < m->n; p++) {
        const double w = exp((double)m->lses[p * rows + row] - largest);
        weights += w;
        sum += w * (double)m->outs[(p * rows + row) * MERGE_DIM + c];
    }
    return sum / weights;
}

static void merge_results(gbench_state *state, const void *arg) {
    const struct bench_case *about = arg;
    const size_t rows = MERGE_HEADS * MERGE_ROWS, size = rows * MERGE_DIM;
    struct merge m = {.n = (size_t)about->number};
    m.outs = workload_floats(m.n * size);
    m.lses = workload_floats(m.n * rows);
    m.out = workload_floats(size);
    m.lse = workload_floats(rows);
    if (!m.outs || !m.lses || !m.out || !m.lse) {
        gbench_fail(state, "not enough memory");
    } else if (bench_use(state, about) == 0) {
        for (size_t p = 0; p < m.n; p++) {
            m.parts[p].out =
                (attn_input){m.outs + p * size, ATTN_F32, 0, MERGE_ROWS * MERGE_DIM, MERGE_DIM};
            m.parts[p].lse = (attn_input){m.lses + p * rows, ATTN_F32, 0, MERGE_ROWS, 1};
        }
        m.to = (attn_output){m.out, ATTN_F32, 0, MERGE_ROWS * MERGE_DIM, MERGE_DIM};
        m.to_lse = (attn_output){m.lse, ATTN_F32, 0, MERGE_ROWS, 1};
        merge_call(&m);
        float got[64], want[64];
        for (size_t i = 0; i < 64; i++) {
            const size_t row = i * 7 % rows, c = i * 5 % MERGE_DIM;
            got[i] = m.out[row * MERGE_DIM + c];
            want[i] = (float)merged(&m, row, c);
        }
        if (bench_close(state, "merged", got, want, 64, 1e-5f) == 0) {
            const struct work work = {merge_call, &m, 4.0 * (double)(m.n * size)};
            struct limit limit;
            limit_read(&limit, about->loops, m.outs, m.n * size, m.outs, 0);
            bench_measure(state, &work, &limit, "GB/s", "reading the parts", 1);
        }
    }
    free(m.outs), free(m.lses), free(m.out), free(m.lse);
}

void bench_add_calls(void) {
    const struct attn_kernels *best = bench_kernel_sets()[0];
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
        bench_add(i == 0 ? BENCH_QUICK : BENCH_ALL, small_call, bench_case_of(best, &calls[i]),
                  "call/%s", calls[i].name);
    for (int64_t n = 2; n <= MERGE_MOST; n *= 2) {
        struct bench_case about = bench_case_of(best, NULL);
        about.number = n;
        bench_add(BENCH_ALL, merge_results, about, "call/merge/%d", (int)n);
    }
}
