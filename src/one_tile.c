/* Calls whose keys are one tile, of f32 that can be used where it lies: all there is of attention
 * without spans and states. Nothing is rescaled or merged, and rows become outputs while their sums are
 * in registers. The bits are those of attention.c, whose bookkeeping would take longer than the
 * arithmetic of a short call.
 *
 * SPDX-License-Identifier: MIT */
#include "one_tile.h"

#include "finish.h"
#include "integers.h"
#include "tile.h"

/* Scratch: packed keys, scores of a block, and sums that kernels may use on their way. */
struct scratch {
    float *packed, *scores, *sums;
};

/* Out, and lse if asked for, of a block of rows on the tile. */
static void attend_block(const struct attn_job *job, const struct scratch *w,
                         const struct attn_rows *block, const struct attn_tile *tile) {
    const struct attn_kernels *kernels = job->kernels;
    const attn_problem *p = &job->c->p;
    const size_t n = (size_t)block->n, stride = job->plan->score_stride;
    const size_t dim = (size_t)p->qk_dim, v_dim = (size_t)p->v_dim;
    const float *q[ATTN_ROW_BLOCK];
    float *out[ATTN_ROW_BLOCK], m[ATTN_ROW_BLOCK], l[ATTN_ROW_BLOCK], factor[ATTN_ROW_BLOCK];
    struct attn_visible visible[ATTN_ROW_BLOCK];
    attn_find_outputs(job, block, out);
    const struct attn_key_range keys = attn_tile_see_ranges(job, block, tile, visible);
    if (keys.begin >= keys.end) {
        for (size_t r = 0; r < n; r++)
            l[r] = 0, m[r] = 0;
        attn_fill_unseen(n, l, p->v_dim, out);
    } else {
        const int64_t begin = keys.begin & -ATTN_SCORE_PAD;
        const size_t n_keys = (size_t)(keys.end - begin);
        float *const scores = w->scores + begin;
        attn_find_queries(job, block, q);
        if (tile->is_packed)
            kernels->qk_packed(q, n, w->packed + begin * p->qk_dim, n_keys, dim, job->c->scale,
                               scores, stride, NULL);
        else
            kernels->qk_strided(q, n, tile->keys + begin * tile->key_stride, tile->key_stride,
                                n_keys, dim, job->c->scale, scores, stride);
        kernels->softmax_rows(w->scores, stride, n, visible, m, l, NULL);
        const bool all_saw = kernels->finish_factors(n, l, factor);
        const struct attn_ending ending = {.finish = factor, .out = out};
        kernels->pv_ending(w->scores, stride, visible, n, tile->values, tile->value_stride, v_dim,
                           NULL, w->sums, job->plan->v_stride, &ending, NULL);
        if (!all_saw)
            attn_fill_unseen(n, l, p->v_dim, out);
    }
    if (p->lse.data) {
        const struct attn_state state = {w->sums, m, l};
        attn_write_lse(job, block, &state);
    }
}

void attn_attend_one_tile(void *arg, size_t index, size_t worker) {
    const struct attn_job *job = arg;
    const struct attn_plan *plan = job->plan;
    const attn_problem *p = &job->c->p;
    const struct attn_rows rows = attn_plan_rows(job->c, plan, (int64_t)index);
    float *const base = job->workers + worker * plan->worker_floats;
    const struct scratch w = {base, base + plan->packed_floats,
                              base + plan->packed_floats + plan->score_floats};
    const struct attn_tile tile = {
        .end = rows.keys.end,
        .keys = (const float *)p->k.data + rows.batch * p->k.stride_batch +
                rows.kv_head * p->k.stride_head,
        .values = (const float *)p->v.data + rows.batch * p->v.stride_batch +
                  rows.kv_head * p->v.stride_head,
        .key_stride = p->k.stride_token,
        .value_stride = p->v.stride_token,
        .is_packed = attn_packs(job, &rows),
    };
    if (tile.is_packed && rows.keys.begin < rows.keys.end)
        job->kernels->pack_keys(tile.keys, tile.key_stride, 0, (size_t)tile.end, (size_t)p->qk_dim,
                                w.packed);
    for (int64_t r = 0; r < rows.n;) {
        const struct attn_rows block = attn_row_block(job, &rows, r);
        attend_block(job, &w, &block, &tile);
        r += block.n;
    }
}
