/* A problem of a given shape over random tensors, ready to be called, checked and timed.
 *
 * SPDX-License-Identifier: MIT */
#include "workload.h"

#include <stdlib.h>
#include <string.h>

#include "judge.h"
#include "limits/loops.h"
#include "memory.h"
#include "timing.h"

float *workload_floats(size_t n) {
    float *x = cli_allocate(n, sizeof *x);
    uint64_t s = 88172645463325252u;
    for (size_t i = 0; x && i < n; i++) {
        s ^= s << 13, s ^= s >> 7, s ^= s << 17;
        x[i] = (float)((double)(s >> 11) * 0x1p-53 * 3.4 - 1.7);
    }
    return x;
}

/* The same numbers as bf16, cut off, in the same memory. */
static void cut_to_bf16(float *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        const uint16_t upper = (uint16_t)(bits >> 16);
        memcpy((char *)x + i * sizeof upper, &upper, sizeof upper);
    }
}

int workload_make(struct workload *w, const struct shape *s) {
    memset(w, 0, sizeof *w);
    w->q_size = (size_t)(s->batch * s->q_heads * s->q_len * s->dim);
    w->kv_size = (size_t)(s->batch * s->kv_heads * s->keys * s->dim);
    w->q = workload_floats(w->q_size);
    w->k = workload_floats(w->kv_size);
    w->v = workload_floats(w->kv_size);
    w->out = workload_floats(w->q_size);
    if (!w->q || !w->k || !w->v || !w->out)
        return -1;
    w->problem = attn_problem_bhld(s->batch, s->q_heads, s->kv_heads, s->q_len, s->keys, s->dim,
                                   s->dim, w->q, w->k, w->v, w->out);
    w->problem.causal = s->causal;
    if (s->causal)
        w->problem.align = ATTN_ALIGN_BOTTOM_RIGHT;
    return 0;
}

void workload_to_bf16(struct workload *w) {
    attn_problem *p = &w->problem;
    p->q.type = p->k.type = p->v.type = p->out.type = ATTN_BF16;
    cut_to_bf16(w->q, w->q_size);
    cut_to_bf16(w->k, w->kv_size);
    cut_to_bf16(w->v, w->kv_size);
}

attn_status workload_ready(struct workload *w, attn_executor *executor) {
    free(w->workspace);
    w->workspace = NULL;
    w->executor = executor;
    const attn_status status =
        attn_workspace_size(&w->problem, executor ? executor->n_workers : 1, &w->workspace_size);
    if (status != ATTN_OK)
        return status;
    w->workspace = cli_allocate(w->workspace_size, 1);
    if (!w->workspace)
        return ATTN_ERROR_MEMORY;
    return attn_forward(&w->problem, w->workspace, w->workspace_size, executor);
}

int64_t workload_check(const struct workload *w) {
    const attn_problem *p = &w->problem;
    struct oracle_row row;
    struct judgement judgement = {0};
    if (judge_allocate(p, &row))
        return -1;
    /* As many rows as take a moment, at least 3; an odd step, to meet every place in a block. */
    const int64_t rows = p->batch * p->q_heads * p->q_len;
    const double row_work = (double)p->kv_cap * (double)(p->qk_dim + p->v_dim + 20);
    const int64_t wanted = 3 + (int64_t)(1e7 / row_work);
    const int64_t step = wanted >= rows ? 1 : (rows - 1) / (wanted - 1) | 1;
    for (int64_t n = 0; n < rows; n += step) {
        const int64_t i = n % p->q_len, h = n / p->q_len % p->q_heads;
        const int64_t b = n / p->q_len / p->q_heads;
        row.arithmetic = oracle_arithmetic(p, attn_isa());
        oracle_attend(p, b, h, i, &row);
        judge_row(p, b, h, i, &row, &judgement);
    }
    judge_free(&row);
    return judgement.failures;
}

void workload_free(struct workload *w) {
    free(w->q);
    free(w->k);
    free(w->v);
    free(w->out);
    free(w->workspace);
    memset(w, 0, sizeof *w);
}

double workload_flops(const struct workload *w) { return timing_flops(&w->problem); }

static double element_bytes(const struct workload *w) {
    return w->problem.q.type == ATTN_BF16 ? 2 : 4;
}

double workload_bytes(const struct workload *w) {
    return element_bytes(w) * (2 * (double)w->q_size + 2 * (double)w->kv_size);
}

int workload_reads(const struct workload *w) { return w->problem.q_len == 1; }

static void call(void *arg) {
    struct workload *w = arg;
    attn_forward(&w->problem, w->workspace, w->workspace_size, w->executor);
}

struct work workload_work(struct workload *w) {
    const double read = 2 * element_bytes(w) * (double)w->kv_size;
    return (struct work){call, w, workload_reads(w) ? read : workload_flops(w)};
}

void workload_limit(const struct workload *w, const struct loops *loops, struct limit *limit) {
    const size_t floats = (size_t)(element_bytes(w) / 4 * (double)w->kv_size);
    if (workload_reads(w))
        limit_read(limit, loops, w->k, floats, w->v, floats);
    else if (loops_have_dot_bf16(loops) && oracle_arithmetic(&w->problem, loops->isa))
        limit_dot_bf16(limit, loops);
    else
        limit_multiply_add(limit, loops);
}
