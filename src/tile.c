/* A block of rows on a tile of keys: which of its keys they see, and their scores.
 *
 * SPDX-License-Identifier: MIT */
#include "tile.h"

#include "integers.h"
#include "storage.h"
#include "tile_int8.h"

/* ---- The tile -------------------------------------------------------------------------------- */

/* Keys and values that are made f32 at a time, into the first-level cache, and how far ahead they
 * are asked for: small steps, so that memory has something to do all the time. */
enum { KEY_CHUNK = ATTN_PACK_STEP, VALUE_CHUNK = 32, AHEAD = 64 };

struct attn_tile attn_tile_of(const struct attn_job *job, const struct attn_rows *rows,
                              int64_t begin, int64_t end) {
    struct attn_tile tile = {
        .begin = begin, .end = end, .batch = rows->batch, .kv_head = rows->kv_head};
    const struct attn_run keys =
        attn_run_of(job->c, ATTN_KEYS, rows->batch, rows->kv_head, begin, end);
    const struct attn_run values =
        attn_run_of(job->c, ATTN_VALUES, rows->batch, rows->kv_head, begin, end);
    if (attn_is_f32(job->c, ATTN_KEYS) && keys.n == end - begin)
        tile.keys = (const float *)keys.at, tile.key_stride = keys.stride;
    if (attn_is_f32(job->c, ATTN_VALUES) && values.n == end - begin)
        tile.values = (const float *)values.at, tile.value_stride = values.stride;
    return tile;
}

void attn_tile_ask(const struct attn_job *job, const struct attn_tile *tile, enum attn_side side,
                   int64_t from, int64_t to, int64_t end) {
    attn_prefetch(job->c, side, tile->batch, tile->kv_head,
                  tile->begin + at_most(from + AHEAD, end), tile->begin + at_most(to + AHEAD, end));
}

/* Columns [from, to) as f32 rows. Those that follow, below `end`, are asked for. */
static void widen(const struct attn_job *job, const struct attn_tile *tile, enum attn_side side,
                  int64_t from, int64_t to, int64_t end, float *out, int64_t out_stride) {
    attn_tile_ask(job, tile, side, from, to, end);
    attn_widen_tokens(job->c, job->kernels, side, tile->batch, tile->kv_head, tile->begin + from,
                      tile->begin + to, out, out_stride);
}

void attn_tile_make_ready(const struct attn_job *job, const struct attn_scratch *w,
                          const struct attn_rows *rows, struct attn_tile *tile) {
    const attn_problem *p = &job->c->p;
    const int64_t n = tile->end - tile->begin;
    tile->is_ready = true;
    if ((size_t)rows->n < job->kernels->pack_min_rows)
        return;
    tile->is_packed = true;
    if (tile->keys) {
        job->kernels->pack_keys(tile->keys, tile->key_stride, 0, (size_t)n, (size_t)p->qk_dim,
                                w->packed);
    } else {
        for (int64_t j = 0; j < n; j += KEY_CHUNK) {
            const int64_t to = at_most(j + KEY_CHUNK, n);
            if (attn_tile_is_int8(job)) {
                attn_tile_ask(job, tile, ATTN_KEYS, j, to, n);
                attn_tile_pack_int8(job, w, tile, j, to);
                continue;
            }
            widen(job, tile, ATTN_KEYS, j, to, n, w->widened, p->qk_dim);
            job->kernels->pack_keys(w->widened, p->qk_dim, (size_t)j, (size_t)(to - j),
                                    (size_t)p->qk_dim, w->packed);
        }
    }
    if (!tile->values) {
        tile->value_stride = (int64_t)job->plan->v_stride;
        widen(job, tile, ATTN_VALUES, 0, n, n, w->widened, tile->value_stride);
        tile->values = w->widened;
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
        return (struct attn_visible){0, 0, 0, NULL};
    return (struct attn_visible){(int32_t)(keys.begin - tile->begin),
                                 (int32_t)(keys.end - tile->begin), 0, NULL};
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
        q[r] = attn_widen_query(&p->q, job->kernels, row.batch, row.head, first_token + row.query,
                                p->qk_dim, w->queries + r * p->qk_dim);
    const size_t n_rows = (size_t)block->n, dim = (size_t)p->qk_dim;
    const size_t stride = job->plan->score_stride;
    const float scale = job->c->scale;
    if (attn_tile_is_int8(job)) {
        attn_tile_scores_int8(job, w, q, n_rows, tile, begin, end);
    } else if (tile->is_packed) {
        job->kernels->qk_packed(q, n_rows, w->packed + begin * p->qk_dim, (size_t)(end - begin),
                                dim, scale, w->scores + begin, stride);
    } else if (tile->keys) {
        job->kernels->qk_strided(q, n_rows, tile->keys + begin * tile->key_stride, tile->key_stride,
                                 (size_t)(end - begin), dim, scale, w->scores + begin, stride);
    } else {
        for (int64_t j = begin; j < end; j += KEY_CHUNK) {
            const int64_t to = at_most(j + KEY_CHUNK, end);
            widen(job, tile, ATTN_KEYS, j, to, end, w->widened, p->qk_dim);
            job->kernels->qk_strided(q, n_rows, w->widened, p->qk_dim, (size_t)(to - j), dim, scale,
                                     w->scores + j, stride);
        }
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

/* What a row sees of columns [from, to), counted from `from`, a multiple of 64 if it has bits. */
static struct attn_visible see_part(struct attn_visible see, int64_t from, int64_t to) {
    const struct attn_visible part = {
        (int32_t)(at_least(see.begin, from) - from),
        (int32_t)(at_most(see.end, to) - from),
        (int32_t)(see.lifted - from),
        see.bits ? see.bits + from / 64 : NULL,
    };
    return part.begin < part.end ? part : (struct attn_visible){0, 0, 0, NULL};
}

void attn_tile_values(const struct attn_job *job, const struct attn_scratch *w,
                      const struct attn_rows *block, const struct attn_tile *tile,
                      const struct attn_sight *sight, const float *factor, float *acc) {
    static const float keep[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    _Static_assert(sizeof keep == ATTN_ROW_BLOCK * sizeof *keep, "a factor for each row");
    const size_t n_rows = (size_t)block->n, v_dim = (size_t)job->c->p.v_dim;
    const size_t stride = job->plan->score_stride, acc_stride = job->plan->v_stride;
    if (tile->values) {
        job->kernels->pv_tile(w->scores, stride, sight->visible, n_rows, tile->values,
                              tile->value_stride, v_dim, factor, acc, acc_stride);
        return;
    }
    /* Bits are cut between words only. */
    const int64_t chunk = job->c->p.mask.type == ATTN_MASK_NONE ? VALUE_CHUNK : 64;
    for (int64_t j = sight->begin / chunk * chunk; j < sight->end; j += chunk) {
        const int64_t to = at_most(j + chunk, sight->end);
        struct attn_visible part[ATTN_ROW_BLOCK];
        for (size_t r = 0; r < n_rows; r++)
            part[r] = see_part(sight->visible[r], j, to);
        widen(job, tile, ATTN_VALUES, j, to, sight->end, w->widened, (int64_t)acc_stride);
        job->kernels->pv_tile(w->scores + j, stride, part, n_rows, w->widened, (int64_t)acc_stride,
                              v_dim, factor, acc, acc_stride);
        factor = keep;
    }
}
