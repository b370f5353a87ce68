/* backward/ISA/SHAPE: attn_backward() on one thread, against multiply-adds.
 * backward-cost/ISA/SHAPE: its time as a multiple of the forward call's.
 * backward-cut/ISA/SHAPE: cut for four workers, whose tasks this thread runs one after the other; a
 * single head then takes two passes.
 *
 * SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdlib.h>

#include "bench.h"
#include "cli/memory.h"

struct backward {
    struct workload forward;
    attn_gradient gradient;
    float *dout, *dq, *dk, *dv, *lse;
    attn_executor *executor;
    void *workspace;
    size_t workspace_size;
};

static void run_in_turn(attn_executor *self, size_t n_tasks, attn_task task, void *arg) {
    for (size_t i = 0; i < n_tasks; i++)
        task(arg, i, i % self->n_workers);
}

static attn_output like(const attn_input *t, float *data) {
    return (attn_output){data, ATTN_F32, t->stride_batch, t->stride_head, t->stride_token};
}

static int make(struct backward *b, const struct shape *shape, attn_executor *executor) {
    *b = (struct backward){.gradient = attn_gradient_init(), .executor = executor};
    if (workload_make(&b->forward, shape))
        return -1;
    attn_problem *p = &b->forward.problem;
    b->dout = workload_floats(b->forward.q_size);
    b->dq = workload_floats(b->forward.q_size);
    b->dk = workload_floats(b->forward.kv_size);
    b->dv = workload_floats(b->forward.kv_size);
    b->lse = workload_floats((size_t)(p->batch * p->q_heads * p->q_len));
    if (!b->dout || !b->dq || !b->dk || !b->dv || !b->lse)
        return -1;
    p->lse.data = b->lse;
    b->gradient.dout = p->q, b->gradient.dout.data = b->dout;
    b->gradient.dq = like(&p->q, b->dq);
    b->gradient.dk = like(&p->k, b->dk);
    b->gradient.dv = like(&p->v, b->dv);
    if (attn_backward_workspace_size(p, &b->gradient, executor ? executor->n_workers : 1,
                                     &b->workspace_size))
        return -1;
    b->workspace = cli_allocate(b->workspace_size, 1);
    return b->workspace ? 0 : -1;
}

static void release(struct backward *b) {
    free(b->dout), free(b->dq), free(b->dk), free(b->dv), free(b->lse), free(b->workspace);
    workload_free(&b->forward);
}

static void call(void *arg) {
    struct backward *b = arg;
    attn_backward(&b->forward.problem, &b->gradient, b->workspace, b->workspace_size, b->executor);
}

/* ---- Whether it is right --------------------------------------------------------------------- */

static double product(const float *a, const float *b, int64_t n) {
    double sum = 0;
    for (int64_t c = 0; c < n; c++)
        sum += (double)a[c] * (double)b[c];
    return sum;
}

/* Adds what row i of head h and key j have to do with each other to the sums that are not null. */
static void add_pair(const struct backward *b, int64_t h, int64_t i, int64_t j, double *dq,
                     double *dk, double *dv) {
    const attn_problem *p = &b->forward.problem;
    const int64_t d = p->qk_dim, key = h / (p->q_heads / p->kv_heads) * p->kv_cap + j;
    const int64_t row = h * p->q_len + i;
    if (p->causal && j > i + p->kv_cap - p->q_len)
        return;
    const float *q = b->forward.q + row * d, *k = b->forward.k + key * d;
    const float *dout = b->dout + row * d, *v = b->forward.v + key * d;
    const double weight = exp(product(q, k, d) / sqrt((double)d) - (double)b->lse[row]);
    const double ds = weight * (product(dout, v, d) - product(dout, b->forward.out + row * d, d));
    for (int64_t c = 0; c < d; c++) {
        if (dq)
            dq[c] += ds * k[c] / sqrt((double)d);
        if (dk)
            dk[c] += ds * q[c] / sqrt((double)d);
        if (dv)
            dv[c] += weight * dout[c];
    }
}

enum { MOST_DIM = 128, PLACES = 5 };

/* Rows and keys from all over, recomputed from the formula with the forward call's lse, which has
 * been held against the oracle. */
static int check(gbench_state *state, struct backward *b) {
    const attn_problem *p = &b->forward.problem;
    const int64_t d = p->qk_dim, group = p->q_heads / p->kv_heads;
    call(b);
    int result = 0;
    for (int64_t k = 0; k < PLACES && !result; k++) {
        double sums[3][MOST_DIM] = {{0}};
        float want[3][MOST_DIM];
        const int64_t h = k % p->q_heads, i = (p->q_len - 1) * k / (PLACES - 1);
        const int64_t g = k % p->kv_heads, j = (p->kv_cap - 1) * k / (PLACES - 1);
        for (int64_t n = 0; n < p->kv_cap; n++)
            add_pair(b, h, i, n, sums[0], NULL, NULL);
        for (int64_t n = 0; n < group * p->q_len; n++)
            add_pair(b, g * group + n / p->q_len, n % p->q_len, j, NULL, sums[1], sums[2]);
        for (int64_t c = 0; c < 3 * d; c++)
            want[c / d][c % d] = (float)sums[c / d][c % d];
        const size_t n = (size_t)d;
        const float tolerance = 1e-4f;
        result = bench_close(state, "dq", b->dq + (h * p->q_len + i) * d, want[0], n, tolerance) ||
                 bench_close(state, "dk", b->dk + (g * p->kv_cap + j) * d, want[1], n, tolerance) ||
                 bench_close(state, "dv", b->dv + (g * p->kv_cap + j) * d, want[2], n, tolerance);
    }
    return result;
}

/* ---- Timing ---------------------------------------------------------------------------------- */

enum way { ALONE, COST, CUT, WAYS };

static void backward(gbench_state *state, const void *arg) {
    const struct bench_case *about = arg;
    attn_executor in_turn = {sizeof in_turn, 4, run_in_turn};
    struct backward b;
    if (make(&b, about->row, about->number == CUT ? &in_turn : NULL)) {
        gbench_fail(state, "not enough memory");
    } else if (bench_use(state, about) == 0 && bench_prepare(state, &b.forward, NULL) == 0 &&
               check(state, &b) == 0) {
        /* Five products where the forward call has two. */
        const struct work work = {call, &b, 2.5 * workload_flops(&b.forward)};
        if (about->number == COST) {
            const struct work other = workload_work(&b.forward);
            bench_measure_cost(state, &work, &other, MEASURE_CPU, "time of the forward call", 1);
        } else {
            struct limit limit;
            limit_multiply_add(&limit, about->loops);
            bench_measure(state, &work, &limit, "GFLOP/s", "multiply-adds", 1);
        }
    }
    release(&b);
}

void bench_add_backward(void) {
    static const struct {
        enum bench_set set;
        struct shape shape;
    } shapes[] = {
        {BENCH_QUICK, {"full-2048-d128", 1, 8, 8, 2048, 2048, 128, 0}},
        {BENCH_ALL, {"one-head-2048-d128", 1, 1, 1, 2048, 2048, 128, 0}},
        {BENCH_ALL, {"causal-1536-d64", 1, 8, 8, 1536, 1536, 64, 1}},
        {BENCH_ALL, {"gqa-causal-1024-d128", 1, 8, 2, 1024, 1024, 128, 1}},
        {BENCH_ALL, {"tiny-64", 1, 8, 8, 64, 64, 64, 0}},
    };
    static const char *const names[] = {"backward/%s/%s", "backward-cost/%s/%s",
                                        "backward-cut/%s/%s"};
    const struct attn_kernels *const *sets = bench_kernel_sets();
    for (size_t i = 0; sets[i]; i++)
        for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
            for (int way = ALONE; way < WAYS; way++) {
                struct bench_case about = bench_case_of(sets[i], &shapes[s].shape);
                about.number = way;
                bench_add(i == 0 && way != CUT ? shapes[s].set : BENCH_ALL, backward, about,
                          names[way], sets[i]->name, shapes[s].shape.name);
            }
}
