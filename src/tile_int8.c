/* The int8 keys of a tile, for kernel sets that multiply them as they are stored.
 *
 * SPDX-License-Identifier: MIT */
#include "tile_int8.h"

#include <string.h>

#include "int8_rows.h"
#include "integers.h"
#include "storage.h"

bool attn_tile_is_int8(const struct attn_checked *c, const struct attn_kernels *kernels) {
    return kernels->int8 && c->p.k.type == ATTN_I8 &&
           int8_shape_fits(c->p.qk_dim, c->p.k_scales.group);
}

/* Columns [from, to), at most ATTN_PACK_STEP of them, as rows at one stride: where they lie or,
 * where that is in several places, copied. Those that follow, below `end`, are asked for. */
static struct attn_run keys_at_one_stride(const struct attn_job *job, const struct attn_scratch *w,
                                          const struct attn_tile *tile,
                                          const struct int8_shape *shape, int64_t from, int64_t to,
                                          int64_t end) {
    attn_tile_ask(job, tile, ATTN_KEYS, from, to, end);
    const int64_t first = tile->begin + from, n = to - from;
    struct attn_run run =
        attn_run_of(job->c, ATTN_KEYS, tile->batch, tile->kv_head, first, first + n);
    if (run.n == n)
        return run;
    float *scales = w->widened;
    char *rows = (char *)(scales + (size_t)n * shape->groups);
    for (int64_t i = 0; i < n; i++) {
        run = attn_run_of(job->c, ATTN_KEYS, tile->batch, tile->kv_head, first + i, first + i + 1);
        memcpy(rows + (size_t)i * shape->dim, run.at, shape->dim);
        memcpy(scales + (size_t)i * shape->groups, run.scales, shape->groups * sizeof *scales);
    }
    return (struct attn_run){rows, (int64_t)shape->dim, n, scales, (int64_t)shape->groups};
}

static struct int8_shape shape_of(const struct attn_job *job) {
    return int8_shape_of((size_t)job->c->p.qk_dim, (size_t)job->c->p.k_scales.group);
}

void attn_tile_pack_int8(const struct attn_job *job, const struct attn_scratch *w,
                         const struct attn_tile *tile) {
    const struct int8_shape shape = shape_of(job);
    const int64_t n = tile->end - tile->begin;
    for (int64_t j = 0; j < n; j += ATTN_PACK_STEP) {
        const int64_t to = at_most(j + ATTN_PACK_STEP, n);
        const struct attn_run run = keys_at_one_stride(job, w, tile, &shape, j, to, n);
        job->kernels->int8->pack_keys((const int8_t *)run.at, run.stride, run.scales,
                                      run.scale_stride, (size_t)j, (size_t)run.n, shape.dim,
                                      shape.group, w->packed);
    }
}

/* The block's queries, widened and then quantised. */
static void quantise_block(const struct attn_job *job, const struct attn_scratch *w,
                           const struct attn_rows *block, const struct int8_shape *shape,
                           const int8_t **q) {
    const attn_problem *p = &job->c->p;
    struct attn_places place = attn_first_place_in(job, block, &p->q);
    for (int64_t r = 0; r < block->n; r++, attn_next_place(&place)) {
        const float *x = attn_widen_query(&p->q, job->kernels, place.at, p->qk_dim, w->queries);
        int8_t *to = (int8_t *)(w->quantised + (size_t)r * int8_query_words(shape));
        job->kernels->int8->quantise(x, shape->dim, shape->group, to);
        q[r] = to;
    }
}

void attn_tile_scores_int8(const struct attn_job *job, const struct attn_scratch *w,
                           const struct attn_rows *block, const struct attn_tile *tile,
                           int64_t begin, int64_t end) {
    const struct attn_int8_kernels *kernels = job->kernels->int8;
    const struct int8_shape shape = shape_of(job);
    const size_t n_rows = (size_t)block->n, stride = job->plan->score_stride;
    const float scale = job->c->scale;
    const int8_t *q[ATTN_ROW_BLOCK];
    quantise_block(job, w, block, &shape, q);
    if (tile->is_packed) {
        kernels->qk_packed(q, n_rows, w->packed + (size_t)begin * int8_key_words(&shape),
                           (size_t)(end - begin), shape.dim, shape.group, scale, w->scores + begin,
                           stride);
        return;
    }
    for (int64_t j = begin; j < end; j += ATTN_PACK_STEP) {
        const int64_t to = at_most(j + ATTN_PACK_STEP, end);
        const struct attn_run run = keys_at_one_stride(job, w, tile, &shape, j, to, end);
        kernels->qk_strided(q, n_rows, (const int8_t *)run.at, run.stride, run.scales,
                            run.scale_stride, (size_t)run.n, shape.dim, shape.group, scale,
                            w->scores + j, stride);
    }
}
