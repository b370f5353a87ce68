/* The outputs for those who look inside: attention weights, and scores at a stage. They cost the
 * product of queries and keys once more: the same bits as before, and now that the final m and l of
 * each row are known, its weights are exp(s - m) / l.
 *
 * SPDX-License-Identifier: MIT */
#include "inspect.h"

#include <math.h>
#include <string.h>

#include "tile.h"

static bool is_visible(struct attn_visible see, int64_t j) {
    return j >= see.begin && j < see.end && (!see.bits || see.bits[j / 64] >> (j % 64) & 1);
}

/* The first n columns of the scores; where sight is not null, -inf where it hides. */
static void write_scores(const struct attn_job *job, const struct attn_scratch *w,
                         const struct attn_rows *block, const struct attn_tile *tile,
                         const struct attn_sight *sight, int64_t n) {
    struct attn_row row = attn_first_row(job, block);
    for (int64_t r = 0; r < block->n; r++, attn_next_row(job, &row)) {
        const float *scores = w->scores + r * (int64_t)job->plan->score_stride;
        float *out = attn_output_row(job, &job->c->p.scores, &row) + tile->begin;
        for (int64_t j = 0; j < n; j++)
            out[j] = !sight || is_visible(sight->visible[r], j) ? scores[j] : -INFINITY;
    }
}

/* The rows' outputs were filled with what hidden places get. */
static void write_weights(const struct attn_job *job, const struct attn_scratch *w,
                          const struct attn_rows *block, const struct attn_tile *tile,
                          struct attn_sight *sight, struct attn_state state) {
    float m[ATTN_ROW_BLOCK], l[ATTN_ROW_BLOCK] = {0}, factor[ATTN_ROW_BLOCK];
    memcpy(m, state.m, (size_t)block->n * sizeof *m); /* which no score exceeds: none is lifted */
    job->kernels->softmax_rows(w->scores, job->plan->score_stride, (size_t)block->n, sight->visible,
                               m, l, factor);
    struct attn_row row = attn_first_row(job, block);
    for (int64_t r = 0; r < block->n; r++, attn_next_row(job, &row)) {
        const struct attn_visible see = sight->visible[r];
        if (see.begin >= see.end)
            continue;
        const float *weights = w->scores + r * (int64_t)job->plan->score_stride;
        float *out = attn_output_row(job, &job->c->p.weights, &row) + tile->begin;
        const float factor_of_row = state.l[r] == 0 ? 0 : 1 / state.l[r];
        if (!see.bits) {
            float *const from = out + see.begin;
            job->kernels->scale_rows(1, weights + see.begin, 0, &factor_of_row,
                                     (size_t)(see.end - see.begin), &from);
        }
        for (int64_t j = see.begin; see.bits && j < see.end; j++)
            if (is_visible(see, j))
                out[j] = weights[j] * factor_of_row;
    }
}

static void inspect_block(const struct attn_job *job, const struct attn_scratch *w,
                          const struct attn_rows *block, const struct attn_tile *tile,
                          struct attn_state state) {
    const attn_problem *p = &job->c->p;
    const int64_t n = tile->end - tile->begin;
    struct attn_sight sight;
    attn_tile_see(job, w, block, tile, &sight);
    const bool sees = sight.begin < sight.end;
    if (!sees && !p->scores.data)
        return;
    const int64_t begin = p->scores.data ? 0 : sight.begin / ATTN_SCORE_PAD * ATTN_SCORE_PAD;
    const int64_t end = p->scores.data ? n : sight.end;
    attn_tile_scores(job, w, block, tile, begin, end);
    if (p->scores.data && p->scores_at == ATTN_SCORES_SCALED)
        write_scores(job, w, block, tile, NULL, n);
    attn_tile_cap(job, w, block, begin, end);
    if (p->scores.data && p->scores_at == ATTN_SCORES_CAPPED)
        write_scores(job, w, block, tile, NULL, n);
    if (sees) { /* of the mask only that part was looked at */
        const int64_t from = sight.begin / ATTN_SCORE_PAD * ATTN_SCORE_PAD;
        attn_tile_bias(job, w, block, tile, &sight, from, sight.end);
    }
    if (p->scores.data && p->scores_at == ATTN_SCORES_BIASED)
        write_scores(job, w, block, tile, &sight, n);
    if (p->weights.data && sees)
        write_weights(job, w, block, tile, &sight, state);
}

/* What places get that no key fills: 0, but -inf where biased scores go on behind the last key. */
static void fill(const struct attn_job *job, const struct attn_rows *rows, const attn_output *t,
                 float value) {
    struct attn_row row = attn_first_row(job, rows);
    for (int64_t r = 0; t->data && r < rows->n; r++, attn_next_row(job, &row)) {
        float *out = attn_output_row(job, t, &row);
        for (int64_t j = 0; j < job->c->key_cap; j++)
            out[j] = value;
    }
}

void attn_inspect(const struct attn_job *job, const struct attn_scratch *w,
                  const struct attn_rows *rows, struct attn_state state) {
    const attn_problem *p = &job->c->p;
    fill(job, rows, &p->weights, 0);
    fill(job, rows, &p->scores, p->scores_at == ATTN_SCORES_BIASED ? -INFINITY : 0);
    const int64_t tile_keys = job->plan->tile_keys;
    struct attn_key_range keys = {0, attn_key_count(job->c, rows->batch)};
    if (!p->scores.data)
        keys = rows->keys;
    keys.begin = keys.begin / tile_keys * tile_keys;
    for (int64_t begin = keys.begin; begin < keys.end; begin += tile_keys) {
        const int64_t end = begin + tile_keys < keys.end ? begin + tile_keys : keys.end;
        struct attn_tile tile;
        attn_tile_begin(job, rows, begin, end, end, &tile);
        attn_tile_make_ready(job, w, rows, &tile);
        for (int64_t r = 0; r < rows->n;) {
            const struct attn_rows block = attn_row_block(job, rows, r);
            inspect_block(job, w, &block, &tile, attn_state_of_row(job, state, r));
            r += block.n;
        }
    }
}
