/* The keys and values of a tile that a few rows meet where they lie, without a copy in f32.
 *
 * SPDX-License-Identifier: MIT */
#include "tile_stored.h"

#include "integers.h"

typedef void pv_stored(const float *weights, size_t weight_stride,
                       const struct attn_visible *visible, size_t n_rows,
                       const struct attn_stored *values, size_t v_dim, const float *factor,
                       float *acc, size_t acc_stride);

/* Features that share a scale of int8. */
static int64_t group_of(int64_t group, int64_t dim) {
    return group > 0 && group < dim ? group : dim;
}

static struct attn_stored stored_of(const struct attn_run *run, int64_t group) {
    return (struct attn_stored){run->at,           run->stride,   run->scales,
                                run->scale_stride, (size_t)group, NULL};
}

/* ---- Pieces ---------------------------------------------------------------------------------- */

static struct attn_run run_from(const struct attn_job *job, const struct attn_tile *tile,
                                enum attn_side side, int64_t from, int64_t end) {
    return attn_run_of(job->c, side, tile->batch, tile->kv_head, tile->begin + from,
                       tile->begin + end);
}

/* Columns [from, end) as pieces, from a multiple of ATTN_PACK_STEP, with the strides of the run in
 * which they begin. Returns their number, or 0 if a piece would be cut or has other strides. */
static int64_t list_pieces(const struct attn_job *job, const struct attn_tile *tile,
                           enum attn_side side, int64_t from, int64_t end,
                           const struct attn_run *first, struct attn_piece *pieces) {
    const int64_t bytes = attn_type_bytes(side == ATTN_KEYS ? job->c->p.k.type : job->c->p.v.type);
    int64_t n = 0;
    for (int64_t j = from, to; j < end; j = to) {
        const struct attn_run run = run_from(job, tile, side, j, end);
        to = j + run.n;
        if ((to < end && run.n % ATTN_PACK_STEP) || run.stride != first->stride ||
            run.scale_stride != first->scale_stride ||
            (side == ATTN_KEYS &&
             !attn_are_lanes(job->c->p.k.type, run.at, run.stride, job->c->p.qk_dim)))
            return 0;
        for (int64_t i = 0; i < run.n; i += ATTN_PACK_STEP)
            pieces[n++] =
                (struct attn_piece){run.at + i * run.stride * bytes,
                                    run.scales ? run.scales + i * run.scale_stride : NULL};
    }
    return n;
}

/* The places of what is needed after the n pieces of a list. */
static void add_following(const struct attn_job *job, const struct attn_tile *tile,
                          enum attn_side side, int64_t from, int64_t end,
                          struct attn_piece *pieces) {
    for (int64_t i = 0; i < ATTN_PIECES_AHEAD; i++, from += ATTN_PACK_STEP) {
        struct attn_run run = {0};
        if (from < end)
            run = run_from(job, tile, side, from, end);
        pieces[i] = (struct attn_piece){run.at, run.scales};
    }
}

/* ---- Keys ------------------------------------------------------------------------------------ */

attn_qk_stored *attn_tile_qk_stored(const struct attn_job *job) {
    const attn_problem *p = &job->c->p;
    const struct attn_stored_kernels *stored = job->kernels->stored;
    const int64_t four_lanes = 4 * (int64_t)sizeof(float) / attn_type_bytes(p->k.type);
    if (!stored || (p->k.type != ATTN_F32 && p->qk_dim % four_lanes))
        return NULL;
    switch (p->k.type) {
    case ATTN_F32:
        return stored->qk_f32;
    case ATTN_F16:
        return stored->qk_f16;
    case ATTN_BF16:
        return stored->qk_bf16;
    case ATTN_I8:
        return group_of(p->k_scales.group, p->qk_dim) % four_lanes ? NULL : stored->qk_i8;
    default:
        return NULL;
    }
}

int64_t attn_tile_stored_keys(const struct attn_job *job, const struct attn_tile *tile,
                              int64_t from, int64_t end, struct attn_piece *pieces,
                              struct attn_stored *keys) {
    const attn_problem *p = &job->c->p;
    const struct attn_run run = run_from(job, tile, ATTN_KEYS, from, end);
    const int64_t n = run.n == end - from ? run.n : run.n / ATTN_PACK_STEP * ATTN_PACK_STEP;
    if (n == 0 || !attn_are_lanes(p->k.type, run.at, run.stride, p->qk_dim))
        return 0;
    *keys = stored_of(&run, group_of(p->k_scales.group, p->qk_dim));
    if (n == end - from) /* they ask for each other */
        return n;
    const int64_t n_pieces = list_pieces(job, tile, ATTN_KEYS, from, end, &run, pieces);
    if (n_pieces > 0) {
        add_following(job, tile, ATTN_VALUES, from, end, pieces + n_pieces);
        keys->pieces = pieces;
        return end - from;
    }
    attn_tile_ask(job, tile, ATTN_KEYS, from, from + n, end);
    return n;
}

/* ---- Values ---------------------------------------------------------------------------------- */

/* The kernel for values of this type and shape, or null. */
static pv_stored *pv_of(const struct attn_job *job) {
    const attn_problem *p = &job->c->p;
    const struct attn_stored_kernels *stored = job->kernels->stored;
    if (!stored || (p->v.type != ATTN_F32 && p->v_dim % ATTN_STORED_STEP))
        return NULL;
    switch (p->v.type) {
    case ATTN_F32:
        return stored->pv_f32;
    case ATTN_F16:
        return stored->pv_f16;
    case ATTN_BF16:
        return stored->pv_bf16;
    case ATTN_I8:
        return group_of(p->v_scales.group, p->v_dim) % ATTN_STORED_STEP ? NULL : stored->pv_i8;
    default:
        return NULL;
    }
}

bool attn_tile_stored_values(const struct attn_job *job, const struct attn_scratch *w,
                             const struct attn_rows *block, const struct attn_tile *tile,
                             const struct attn_sight *sight, const float *factor, float *acc) {
    const attn_problem *p = &job->c->p;
    pv_stored *const pv = pv_of(job);
    bool possible = pv != NULL;
    for (int64_t r = 0; r < block->n; r++)
        possible = possible && !sight->visible[r].bits;
    if (!possible)
        return false;
    const int64_t begin = sight->begin / ATTN_PACK_STEP * ATTN_PACK_STEP,
                  group = group_of(p->v_scales.group, p->v_dim);
    struct attn_piece pieces[ATTN_TILE_PIECES];
    const struct attn_run all = run_from(job, tile, ATTN_VALUES, begin, sight->end);
    if (all.n < sight->end - begin) {
        const int64_t first = begin / ATTN_PACK_STEP;
        const int64_t n_pieces =
            list_pieces(job, tile, ATTN_VALUES, begin, sight->end, &all, pieces + first);
        if (n_pieces > 0) {
            add_following(job, tile, ATTN_KEYS, sight->end, tile->next_end - tile->begin,
                          pieces + first + n_pieces);
            struct attn_stored values = stored_of(&all, group);
            values.pieces = pieces;
            pv(w->scores, job->plan->score_stride, sight->visible, (size_t)block->n, &values,
               (size_t)p->v_dim, factor, acc, job->plan->v_stride);
            return true;
        }
        if (p->v.type == ATTN_F32)
            return false;
    }
    for (int64_t j = sight->begin, to; j < sight->end; j = to) {
        const struct attn_run run = run_from(job, tile, ATTN_VALUES, j, sight->end);
        const struct attn_stored values = stored_of(&run, group);
        struct attn_visible piece[ATTN_ROW_BLOCK];
        to = j + run.n;
        if (to < sight->end)
            attn_tile_ask(job, tile, ATTN_VALUES, j, to, sight->end);
        for (int64_t r = 0; r < block->n; r++)
            attn_see_part(&sight->visible[r], j, to, &piece[r]);
        pv(w->scores + j, job->plan->score_stride, piece, (size_t)block->n, &values,
           (size_t)p->v_dim, factor, acc, job->plan->v_stride);
        factor = attn_factors_one;
    }
    return true;
}
