/* Cuts the gradient of a problem into tiles and tasks, and lays out the workspace.
 *
 * SPDX-License-Identifier: MIT */
#include "backward_plan.h"

#include "integers.h"

/* The keys and values of a tile are at most this many bytes, as f32, and its queries and dout this
 * many: then all that a task works in stays in a second-level cache. */
enum { KEY_BYTES = 256 * 1024, ROW_BYTES = 128 * 1024 };

/* Products of a pass over all pairs: scores and weights' gradient, and dq, or dk and dv, or all. */
enum { ALL_PRODUCTS = 5, TWO_PASS_PRODUCTS = 7 };

/* Tokens of a tile: a multiple of 64 of which each has so many features, not more than there are. */
static int64_t tile_tokens(int64_t features, int64_t bytes, int64_t most, int64_t there) {
    int64_t n = most;
    while (n > 64 && n * features * (int64_t)sizeof(float) > bytes)
        n /= 2;
    return at_most(n, round_up(at_least(at_most(there, most), 1), 64));
}

/* The most query rows that a batch has. */
static int64_t longest(const struct attn_checked *c) {
    int64_t rows = c->p.cu_q ? 0 : c->p.q_len;
    for (int64_t b = 0; c->p.cu_q && b < c->p.batch; b++)
        rows = at_least(rows, attn_query_count(c, b));
    return rows;
}

/* A task for each key/value head leaves workers idle where there are few heads. Two passes compute
 * scores twice but have tasks enough. */
static bool is_single_pass(const struct attn_checked *c, int64_t n_workers) {
    const int64_t tasks = c->p.batch * c->p.kv_heads, workers = at_most(n_workers, 1 << 20);
    if (workers == 1)
        return true;
    if (tasks > workers * 8)
        return true;
    const int64_t rounds = ceil_div(tasks, workers);
    return rounds * workers * ALL_PRODUCTS <= tasks * TWO_PASS_PRODUCTS;
}

attn_status attn_backward_plan_make(const struct attn_checked *c, const attn_gradient *g,
                                    size_t n_workers, struct attn_backward_plan *plan) {
    if (n_workers > INT32_MAX)
        return ATTN_ERROR_OVERFLOW;
    const attn_problem *p = &c->p;
    const int64_t features = p->qk_dim + p->v_dim, rows = longest(c);
    *plan = (struct attn_backward_plan){
        .tile_keys = tile_tokens(features, KEY_BYTES, ATTN_BACKWARD_KEYS, p->kv_cap),
        .tile_rows = tile_tokens(features, ROW_BYTES, ATTN_BACKWARD_ROWS, rows),
        .single_pass = is_single_pass(c, (int64_t)n_workers),
        .dq_in_place = g->dq.type == ATTN_F32 && g->dq.stride_token >= 0,
        .q_stride = (size_t)round_up(p->qk_dim, 16),
        .v_stride = (size_t)round_up(p->v_dim, 16),
    };
    plan->key_tiles = ceil_div(p->kv_cap, plan->tile_keys);
    plan->row_tiles = ceil_div(rows, plan->tile_rows);
    plan->dq_rows = plan->dq_in_place ? 0 : plan->single_pass ? rows * c->group : plan->tile_rows;

    const size_t n_keys = (size_t)plan->tile_keys, n_rows = (size_t)plan->tile_rows;
    const bool has_bias = attn_mask_is_bias(c);
    plan->packed_q = n_rows * (size_t)p->qk_dim;
    plan->packed_dout = n_rows * (size_t)p->v_dim;
    plan->key_copy = p->k.type == ATTN_F32 ? 0 : n_keys * plan->q_stride;
    plan->value_copy = p->v.type == ATTN_F32 ? 0 : n_keys * plan->v_stride;
    plan->q_copy = p->q.type == ATTN_F32 ? 0 : n_rows * plan->q_stride;
    plan->dout_copy = g->dout.type == ATTN_F32 ? 0 : n_rows * plan->v_stride;
    plan->dk = n_keys * plan->q_stride;
    plan->dv = n_keys * plan->v_stride;
    plan->block = ATTN_KEY_BLOCK * n_rows;
    plan->capped = p->softcap > 0 ? plan->block : 0;
    plan->bias = has_bias ? plan->block : 0;
    plan->turned = n_rows * n_keys;
    const size_t fixed = plan->packed_q + plan->packed_dout + plan->key_copy + plan->value_copy +
                         plan->q_copy + plan->dout_copy + plan->dk + plan->dv + 2 * plan->block +
                         plan->capped + 2 * plan->bias + plan->turned + n_keys + 3 * n_rows +
                         plan->v_stride;
    size_t floats;
    if (__builtin_mul_overflow((size_t)plan->dq_rows, plan->q_stride, &plan->dq) ||
        __builtin_add_overflow(fixed, plan->dq, &plan->worker_floats) ||
        __builtin_mul_overflow(plan->worker_floats, n_workers, &floats) ||
        floats > (PTRDIFF_MAX - 64) / sizeof(float))
        return ATTN_ERROR_OVERFLOW;
    plan->workspace_bytes = floats * sizeof(float) + 64;
    return ATTN_OK;
}
