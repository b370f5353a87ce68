/* A block of rows on a tile of keys: which of its keys they see, and their scores.
 *
 * SPDX-License-Identifier: MIT */
#include "tile.h"

#include <string.h>

static int64_t at_most(int64_t a, int64_t most) { return a < most ? a : most; }
static int64_t at_least(int64_t a, int64_t least) { return a > least ? a : least; }

/* ---- The tile -------------------------------------------------------------------------------- */

static void add_piece(const struct attn_rows *rows, const attn_input *k, const attn_input *v,
                      int64_t first_token, int64_t begin, int64_t end, struct attn_tile *tile) {
    if (begin >= end)
        return;
    tile->pieces[tile->n_pieces++] = (struct attn_piece){
        .begin = begin,
        .end = end,
        .keys = attn_input_row(k, rows->batch, rows->kv_head, first_token),
        .values = attn_input_row(v, rows->batch, rows->kv_head, first_token),
        .key_stride = k->stride_token,
        .value_stride = v->stride_token,
    };
}

struct attn_tile attn_tile_of(const struct attn_job *job, const struct attn_rows *rows,
                              int64_t begin, int64_t end) {
    const attn_problem *p = &job->c->p;
    struct attn_tile tile = {.begin = begin, .end = end};
    const int64_t past = attn_past_len(job->c, rows->batch);
    add_piece(rows, &p->past_k, &p->past_v, begin, 0, at_most(past, end) - begin, &tile);
    add_piece(rows, &p->k, &p->v, at_least(begin - past, 0), at_least(past - begin, 0), end - begin,
              &tile);
    return tile;
}

void attn_tile_make_ready(const struct attn_job *job, const struct attn_scratch *w,
                          const struct attn_rows *rows, struct attn_tile *tile) {
    tile->is_ready = true;
    if ((size_t)rows->n < job->kernels->pack_min_rows)
        return;
    int64_t packed_keys = 0;
    for (int i = 0; i < tile->n_pieces; i++) {
        struct attn_piece *piece = &tile->pieces[i];
        const int64_t n = piece->end - piece->begin;
        const int64_t padded = (n + ATTN_SCORE_PAD - 1) / ATTN_SCORE_PAD * ATTN_SCORE_PAD;
        if (packed_keys + padded > job->plan->packed_keys)
            return; /* a second piece for which there is no room (see plan.c) */
        float *packed = w->packed + packed_keys * job->c->p.qk_dim;
        job->kernels->pack_keys(piece->keys, piece->key_stride, (size_t)n, (size_t)job->c->p.qk_dim,
                                packed);
        piece->packed = packed;
        packed_keys += padded;
    }
}

/* ---- What the rows see ----------------------------------------------------------------------- */

/* The columns that row r may see before the mask is looked at. */
static struct attn_visible range_in_tile(const struct attn_job *job, const struct attn_rows *block,
                                         const struct attn_tile *tile, int64_t r) {
    const struct attn_key_range keys =
        attn_range_clip(attn_visible_keys(job->c, block->batch, attn_query_of(job, block, r)),
                        tile->begin, tile->end);
    if (keys.begin >= keys.end)
        return (struct attn_visible){0, 0, NULL};
    return (struct attn_visible){(int32_t)(keys.begin - tile->begin),
                                 (int32_t)(keys.end - tile->begin), NULL};
}

/* Lets the mask hide keys of the rows. Neighbours that share a row of the mask share its bits. */
static void see_mask(const struct attn_job *job, const struct attn_scratch *w,
                     const struct attn_rows *block, const struct attn_tile *tile, int64_t n_keys,
                     struct attn_sight *sight) {
    const void *last_row = NULL;
    const uint64_t *bits = NULL;
    const float *bias = NULL;
    struct attn_row at = attn_first_row(job, block);
    for (int64_t r = 0; r < block->n; r++, attn_next_row(job, &at)) {
        const void *row = attn_mask_row(job->c, at.batch, at.head, at.query, tile->begin);
        if (row != last_row) {
            if (attn_mask_is_bias(job->c)) {
                float *copy = attn_mask_needs_copy(job->c)
                                  ? w->bias + r * (int64_t)(job->plan->bias_floats / ATTN_ROW_BLOCK)
                                  : NULL;
                bias = attn_mask_bias(job->c, row, n_keys, copy);
            }
            attn_mask_bits(job->c, job->kernels, row, bias, n_keys, sight->bits[r]);
            bits = sight->bits[r];
            last_row = row;
        }
        sight->bias[r] = bias;
        attn_see_bits(bits, &sight->visible[r]);
    }
}

void attn_tile_see(const struct attn_job *job, const struct attn_scratch *w,
                   const struct attn_rows *block, const struct attn_tile *tile,
                   struct attn_sight *sight) {
    /* Both ends of a row's range grow with the row: where the first and the last agree, all do. Not
     * so where both are empty: a window may pass over the tile between them. */
    const int64_t last = block->n - 1;
    sight->visible[0] = range_in_tile(job, block, tile, 0);
    sight->visible[last] = range_in_tile(job, block, tile, last);
    const bool is_same = sight->visible[0].end > 0 &&
                         sight->visible[0].begin == sight->visible[last].begin &&
                         sight->visible[0].end == sight->visible[last].end;
    for (int64_t r = 1; r < last; r++)
        sight->visible[r] = is_same ? sight->visible[0] : range_in_tile(job, block, tile, r);
    int32_t begin = INT32_MAX, end = 0;
    for (int64_t r = 0; r < block->n; r++)
        end = sight->visible[r].end > end ? sight->visible[r].end : end;
    if (job->c->p.mask.type != ATTN_MASK_NONE && end > 0) {
        see_mask(job, w, block, tile, end, sight);
        end = 0;
    }
    for (int64_t r = 0; r < block->n; r++) {
        const struct attn_visible see = sight->visible[r];
        if (see.begin < see.end) {
            begin = see.begin < begin ? see.begin : begin;
            end = see.end > end ? see.end : end;
        }
    }
    sight->begin = begin, sight->end = end;
}

/* ---- Scores ---------------------------------------------------------------------------------- */

void attn_tile_scores(const struct attn_job *job, const struct attn_scratch *w,
                      const struct attn_rows *block, const struct attn_tile *tile, int64_t begin,
                      int64_t end) {
    const attn_problem *p = &job->c->p;
    const float *q[ATTN_ROW_BLOCK];
    const int64_t first_token = attn_query_first(job->c, block->batch);
    struct attn_row row = attn_first_row(job, block);
    for (int64_t r = 0; r < block->n; r++, attn_next_row(job, &row))
        q[r] = attn_input_row(&p->q, row.batch, row.head, first_token + row.query);
    const size_t dim = (size_t)p->qk_dim, stride = job->plan->score_stride;
    /* The padding that the first piece leaves behind its scores is overwritten by the second. */
    for (int i = 0; i < tile->n_pieces; i++) {
        const struct attn_piece *piece = &tile->pieces[i];
        const int64_t from = at_least(begin - piece->begin, 0) / ATTN_SCORE_PAD * ATTN_SCORE_PAD;
        const int64_t to = at_most(end, piece->end) - piece->begin;
        if (from >= to)
            continue;
        const size_t n = (size_t)(to - from);
        float *scores = w->scores + piece->begin + from;
        if (piece->packed)
            job->kernels->qk_packed(q, (size_t)block->n, piece->packed + from * p->qk_dim, n, dim,
                                    job->c->scale, scores, stride);
        else
            job->kernels->qk_strided(q, (size_t)block->n, piece->keys + from * piece->key_stride,
                                     piece->key_stride, n, dim, job->c->scale, scores, stride);
    }
}

void attn_tile_cap(const struct attn_job *job, const struct attn_scratch *w,
                   const struct attn_rows *block, int64_t begin, int64_t end) {
    for (int64_t r = 0; job->c->p.softcap > 0 && r < block->n; r++)
        job->kernels->softcap(w->scores + r * (int64_t)job->plan->score_stride + begin,
                              (size_t)(end - begin), job->c->p.softcap);
}

void attn_tile_bias(const struct attn_job *job, const struct attn_scratch *w,
                    const struct attn_rows *block, const struct attn_tile *tile,
                    const struct attn_sight *sight, int64_t begin, int64_t end) {
    const attn_problem *p = &job->c->p;
    const size_t n = (size_t)(end - begin);
    const bool has_bias = attn_mask_is_bias(job->c);
    struct attn_row row = attn_first_row(job, block);
    for (int64_t r = 0; (p->alibi || has_bias) && r < block->n; r++, attn_next_row(job, &row)) {
        float *scores = w->scores + r * (int64_t)job->plan->score_stride + begin;
        if (p->alibi)
            job->kernels->alibi(scores, n, p->alibi[row.head],
                                attn_position(job->c, row.batch, row.query) -
                                    (tile->begin + begin));
        if (has_bias)
            job->kernels->add_bias(scores, n, sight->bias[r] + begin);
    }
}

/* ---- Values ---------------------------------------------------------------------------------- */

/* Bits and ranges of a row from column `first` on. */
static struct attn_visible see_from(struct attn_visible see, int32_t first, uint64_t *shifted) {
    const uint64_t *bits = see.bits;
    see.begin = see.begin > first ? see.begin - first : 0;
    see.end -= first;
    if (!bits || see.begin >= see.end)
        return (struct attn_visible){see.begin, see.end, NULL};
    for (int32_t j = see.begin & -64; j < see.end; j += 64) {
        const int32_t from = first + j;
        uint64_t word = bits[from / 64] >> (from % 64);
        if (from % 64 && from / 64 < (see.end + first - 1) / 64)
            word |= bits[from / 64 + 1] << (64 - from % 64);
        shifted[j / 64] = word;
    }
    see.bits = shifted;
    return see;
}

void attn_tile_values(const struct attn_job *job, const struct attn_scratch *w,
                      const struct attn_rows *block, const struct attn_tile *tile,
                      const struct attn_sight *sight, const float *factor, float *acc) {
    static const float keep[ATTN_ROW_BLOCK] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    const size_t n = (size_t)block->n, stride = job->plan->score_stride;
    uint64_t shifted[ATTN_ROW_BLOCK][ATTN_BIT_WORDS(ATTN_TILE_MOST)];
    for (int i = 0; i < tile->n_pieces; i++) {
        const struct attn_piece *piece = &tile->pieces[i];
        const struct attn_visible *visible = sight->visible;
        struct attn_visible here[ATTN_ROW_BLOCK];
        if (tile->n_pieces > 1) {
            for (size_t r = 0; r < n; r++) {
                here[r] = see_from(visible[r], (int32_t)piece->begin, shifted[r]);
                here[r].end = (int32_t)at_most(here[r].end, piece->end - piece->begin);
            }
            visible = here;
        }
        job->kernels->pv_tile(w->scores + piece->begin, stride, visible, n, piece->values,
                              piece->value_stride, (size_t)job->c->p.v_dim, i ? keep : factor, acc,
                              job->plan->v_stride);
    }
}
