/* A block of rows on a tile of keys: which of its keys they see, and their scores.
 *
 * SPDX-License-Identifier: MIT */
#include "tile.h"

#include "integers.h"
#include "storage.h"
#include "tile_int8.h"
#include "tile_stored.h"

/* ---- The tile -------------------------------------------------------------------------------- */

/* Keys and values that are made f32 at a time, into the first-level cache, and how far ahead they
 * are asked for: small steps, so that memory has something to do all the time. */
enum { KEY_CHUNK = ATTN_PACK_STEP, VALUE_CHUNK = 32, AHEAD = 64 };

void attn_products_of(const struct attn_checked *c, const struct attn_kernels *kernels,
                      struct attn_products *products) {
    const struct attn_dot_kernels *dot = kernels->dot;
    const attn_problem *p = &c->p;
    products->is_int8 = attn_tile_is_int8(c, kernels);
    products->is_dot = dot && p->q.type == dot->type && p->k.type == dot->type;
    if (products->is_dot) {
        products->dim = ceil_div(p->qk_dim, (int64_t)dot->per_lane);
        products->pack_keys = dot->pack_keys;
        products->qk_packed = dot->qk_packed, products->qk_strided = dot->qk_strided;
    } else {
        products->dim = p->qk_dim;
        products->pack_keys = kernels->pack_keys;
        products->qk_packed = kernels->qk_packed, products->qk_strided = kernels->qk_strided;
    }
}

/* The products of the values' type, or null. */
static const struct attn_dot_kernels *value_products(const struct attn_job *job) {
    const struct attn_dot_kernels *dot = job->kernels->dot;
    return dot && job->c->p.v.type == dot->type ? dot : NULL;
}

size_t attn_tile_least_packed_rows(const struct attn_job *job) {
    const struct attn_kernels *kernels = job->kernels;
    const attn_problem *p = &job->c->p;
    const struct attn_pack_rows *rows = &kernels->pack_rows;
    bool waits_anyway = false; /* for keys that have to be copied before rows can meet them */
    if (job->products.is_int8)
        rows = &kernels->int8->pack_rows;
    else if (job->products.is_dot)
        rows = &kernels->dot->pack_rows;
    else if (p->k.type == ATTN_F32 && !p->past_cap && !p->pages.table)
        rows = &kernels->pack_rows;
    else if (attn_tile_qk_stored(job))
        rows = p->k.type == ATTN_I8 ? &kernels->stored->pack_rows_i8 : &kernels->stored->pack_rows;
    else
        waits_anyway = true;
    if (job->c->key_cap <= ATTN_SCORE_PAD)
        return rows->of_few_keys;
    return job->plan->keys_from_memory && !waits_anyway ? rows->from_memory : rows->from_cache;
}

/* Where a run of keys can be used as it lies, its place and stride. */
static void use_keys(const struct attn_job *job, const struct attn_run *run,
                     struct attn_tile *tile) {
    const attn_problem *p = &job->c->p;
    if (attn_is_f32(job->c, ATTN_KEYS)) {
        tile->keys = (const float *)run->at, tile->key_stride = run->stride;
    } else if (job->products.is_dot && attn_are_lanes(p->k.type, run->at, run->stride, p->qk_dim)) {
        tile->keys = (const float *)run->at;
        tile->key_stride = run->stride / (int64_t)job->kernels->dot->per_lane;
    }
}

/* More rows than pv_tile asks for values for, and fewer than are worth packed keys, whose kernels ask for
 * both. */
static bool waits_for_values(const struct attn_job *job, const struct attn_rows *rows) {
    return job->plan->keys_from_memory && job->kernels->stored && rows->n > ATTN_ROWS_THAT_ASK &&
           !attn_packs(job, rows);
}

void attn_tile_begin(const struct attn_job *job, const struct attn_rows *rows, int64_t begin,
                     int64_t end, int64_t next_end, struct attn_tile *tile) {
    tile->begin = begin, tile->end = end, tile->next_end = next_end;
    tile->batch = rows->batch, tile->kv_head = rows->kv_head;
    tile->keys = tile->values = NULL;
    tile->key_stride = tile->value_stride = 0;
    tile->waits = waits_for_values(job, rows);
    tile->is_ready = tile->is_packed = false;
    tile->upcoming = NULL;
    const struct attn_run keys =
        attn_run_of(job->c, ATTN_KEYS, rows->batch, rows->kv_head, begin, end);
    const struct attn_run values =
        attn_run_of(job->c, ATTN_VALUES, rows->batch, rows->kv_head, begin, end);
    if (keys.n == end - begin)
        use_keys(job, &keys, tile);
    const bool is_copied = job->plan->copies_values && attn_packs(job, rows);
    if (attn_is_f32(job->c, ATTN_VALUES) && values.n == end - begin && !is_copied)
        tile->values = (const float *)values.at, tile->value_stride = values.stride;
}

static struct attn_later *to_ask_for(const struct attn_job *job, const struct attn_tile *tile,
                                     enum attn_side side) {
    return tile->upcoming ? attn_upcoming_lines(job->c, &tile->upcoming[side]) : NULL;
}

void attn_tile_ask(const struct attn_job *job, const struct attn_tile *tile, enum attn_side side,
                   int64_t from, int64_t to, int64_t end) {
    attn_prefetch(job->c, side, tile->batch, tile->kv_head,
                  tile->begin + at_most(from + AHEAD, end), tile->begin + at_most(to + AHEAD, end));
}

/* Keys of columns [from, to) as rows of f32 or lanes. Those that follow, below `end`, are asked
 * for. */
static void lay_out_keys(const struct attn_job *job, const struct attn_scratch *w,
                         const struct attn_tile *tile, int64_t from, int64_t to, int64_t end) {
    const struct attn_products *products = &job->products;
    attn_tile_ask(job, tile, ATTN_KEYS, from, to, end);
    if (products->is_dot)
        attn_copy_lanes(job->c, tile->batch, tile->kv_head, tile->begin + from, tile->begin + to,
                        w->widened, products->dim);
    else
        attn_widen_tokens(job->c, job->kernels, ATTN_KEYS, tile->batch, tile->kv_head,
                          tile->begin + from, tile->begin + to, w->widened, products->dim);
}

/* Values of columns [from, to) the same way. Lanes hold columns from `from` on. */
static void lay_out_values(const struct attn_job *job, const struct attn_scratch *w,
                           const struct attn_tile *tile, int64_t from, int64_t to, int64_t end) {
    const struct attn_dot_kernels *dot = value_products(job);
    const int64_t stride = (int64_t)job->plan->v_stride;
    attn_tile_ask(job, tile, ATTN_VALUES, from, to, end);
    if (dot)
        attn_interleave_values(job->c, dot, tile->batch, tile->kv_head, tile->begin + from,
                               tile->begin + to, w->widened, stride);
    else
        attn_widen_tokens(job->c, job->kernels, ATTN_VALUES, tile->batch, tile->kv_head,
                          tile->begin + from, tile->begin + to, w->widened, stride);
}

void attn_tile_make_ready(const struct attn_job *job, const struct attn_scratch *w,
                          const struct attn_rows *rows, struct attn_tile *tile) {
    const struct attn_products *products = &job->products;
    const size_t dim = (size_t)products->dim;
    const int64_t n = tile->end - tile->begin;
    tile->is_ready = true;
    if (!attn_packs(job, rows))
        return;
    tile->is_packed = true;
    if (products->is_int8) {
        attn_tile_pack_int8(job, w, tile);
    } else if (tile->keys) {
        products->pack_keys(tile->keys, tile->key_stride, 0, (size_t)n, dim, w->packed);
    } else {
        for (int64_t j = 0; j < n; j += KEY_CHUNK) {
            const int64_t to = at_most(j + KEY_CHUNK, n);
            lay_out_keys(job, w, tile, j, to, n);
            products->pack_keys(w->widened, products->dim, (size_t)j, (size_t)(to - j), dim,
                                w->packed);
        }
    }
    if (!tile->values) {
        tile->value_stride = (int64_t)job->plan->v_stride;
        lay_out_values(job, w, tile, 0, n, n);
        tile->values = w->widened;
    }
}

/* ---- What the rows see ----------------------------------------------------------------------- */

/* The columns that rows which see certain keys may see before the mask is looked at. */
static struct attn_key_range columns_of(const struct attn_tile *tile, struct attn_key_range keys) {
    const struct attn_key_range here = attn_range_clip(keys, tile->begin, tile->end);
    return here.begin < here.end
               ? (struct attn_key_range){here.begin - tile->begin, here.end - tile->begin}
               : (struct attn_key_range){0, 0};
}
static struct attn_key_range columns_of_row(const struct attn_job *job,
                                            const struct attn_rows *block,
                                            const struct attn_tile *tile, int64_t r) {
    return columns_of(tile, attn_visible_keys(job->c, block->batch, attn_query_of(job, block, r)));
}

/* Written where it stays, as every such struct here: a copy would wait for what was just stored. */
static inline void see_columns(struct attn_visible *see, int32_t begin, int32_t end) {
    see->begin = begin, see->end = end;
    see->lifted = 0, see->alike = 0, see->bits = NULL;
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

/* The columns that any of n rows sees. */
static struct attn_key_range columns_of_any(const struct attn_visible *visible, int64_t n) {
    struct attn_key_range any = {INT32_MAX, 0};
    for (int64_t r = 0; r < n; r++)
        if (visible[r].begin < visible[r].end) {
            any.begin = at_most(any.begin, visible[r].begin);
            any.end = at_least(any.end, visible[r].end);
        }
    return any;
}

struct attn_key_range attn_tile_see_ranges(const struct attn_job *job,
                                           const struct attn_rows *block,
                                           const struct attn_tile *tile,
                                           struct attn_visible *visible) {
    /* Both ends of a row's range grow with the row: where the first and the last agree, all do. Not
     * so where both are empty: a window may pass over the tile between them. */
    struct attn_key_range first = columns_of(tile, block->keys), last = first;
    if (!job->c->same_keys) {
        first = columns_of_row(job, block, tile, 0);
        last = columns_of_row(job, block, tile, block->n - 1);
    }
    if (job->c->same_keys ||
        (first.end > 0 && first.begin == last.begin && first.end == last.end)) {
        for (int64_t r = 0; r < block->n; r++)
            see_columns(&visible[r], (int32_t)first.begin, (int32_t)first.end);
        visible[0].alike = (int32_t)block->n;
        return first;
    }
    for (int64_t r = 0; r < block->n; r++) {
        const struct attn_key_range columns = columns_of_row(job, block, tile, r);
        see_columns(&visible[r], (int32_t)columns.begin, (int32_t)columns.end);
    }
    return columns_of_any(visible, block->n);
}

void attn_tile_see(const struct attn_job *job, const struct attn_scratch *w,
                   const struct attn_rows *block, const struct attn_tile *tile,
                   struct attn_sight *sight) {
    struct attn_key_range any = attn_tile_see_ranges(job, block, tile, sight->visible);
    if (job->c->p.mask.type != ATTN_MASK_NONE && any.begin < any.end) {
        sight->visible[0].alike = 0;
        see_mask(job, w, block, tile, any.end, sight);
        any = columns_of_any(sight->visible, block->n);
    }
    sight->begin = any.begin, sight->end = any.end;
}

/* ---- Scores ---------------------------------------------------------------------------------- */

void attn_find_queries(const struct attn_job *job, const struct attn_rows *block, const float **q) {
    ATTN_FIND_ROWS(const float, job, block, &job->c->p.q, q);
}

/* The block's queries, as rows of f32 or lanes. */
static void load_queries(const struct attn_job *job, const struct attn_scratch *w,
                         const struct attn_rows *block, const float **q) {
    const attn_input *t = &job->c->p.q;
    const int64_t dim = job->products.dim;
    if (t->type == ATTN_F32) {
        attn_find_queries(job, block, q);
        return;
    }
    struct attn_places place = attn_first_place_in(job, block, t);
    for (int64_t r = 0; r < block->n; r++, attn_next_place(&place)) {
        float *copy = w->queries + r * dim;
        q[r] = job->products.is_dot
                   ? attn_query_lanes(t, place.at, job->c->p.qk_dim, copy)
                   : attn_widen_query(t, job->kernels, place.at, job->c->p.qk_dim, copy);
    }
}

void attn_tile_scores(const struct attn_job *job, const struct attn_scratch *w,
                      const struct attn_rows *block, const struct attn_tile *tile, int64_t begin,
                      int64_t end) {
    const struct attn_products *products = &job->products;
    if (products->is_int8) {
        attn_tile_scores_int8(job, w, block, tile, begin, end);
        return;
    }
    const float *q[ATTN_ROW_BLOCK];
    load_queries(job, w, block, q);
    const size_t n_rows = (size_t)block->n, dim = (size_t)products->dim;
    const size_t stride = job->plan->score_stride;
    const float scale = job->c->scale;
    if (tile->is_packed) {
        products->qk_packed(q, n_rows, w->packed + begin * products->dim, (size_t)(end - begin),
                            dim, scale, w->scores + begin, stride,
                            to_ask_for(job, tile, ATTN_KEYS));
    } else if (tile->keys) {
        products->qk_strided(q, n_rows, tile->keys + begin * tile->key_stride, tile->key_stride,
                             (size_t)(end - begin), dim, scale, w->scores + begin, stride);
    } else {
        attn_qk_stored *const qk_stored = products->is_dot ? NULL : attn_tile_qk_stored(job);
        for (int64_t j = begin, to; j < end; j = to) {
            struct attn_piece pieces[ATTN_TILE_PIECES];
            struct attn_stored keys;
            const int64_t n =
                qk_stored ? attn_tile_stored_keys(job, tile, j, end, pieces, &keys) : 0;
            to = at_most(j + at_least(n, KEY_CHUNK), end);
            if (n > 0) {
                qk_stored(q, n_rows, &keys, (size_t)n, dim, scale, w->scores + j, stride);
                continue;
            }
            lay_out_keys(job, w, tile, j, to, end);
            products->qk_strided(q, n_rows, w->widened, products->dim, (size_t)(to - j), dim, scale,
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
    if (!p->alibi && !has_bias)
        return;
    struct attn_row row = attn_first_row(job, block);
    for (int64_t r = 0; r < block->n; r++, attn_next_row(job, &row)) {
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

const float attn_factors_one[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
_Static_assert(sizeof attn_factors_one == ATTN_ROW_BLOCK * sizeof *attn_factors_one,
               "a factor for each row");

void attn_see_part(const struct attn_visible *see, int64_t from, int64_t to,
                   struct attn_visible *part) {
    const int64_t begin = at_least(see->begin, from), end = at_most(see->end, to);
    const bool is_seen = begin < end;
    part->begin = is_seen ? (int32_t)(begin - from) : 0;
    part->end = is_seen ? (int32_t)(end - from) : 0;
    part->lifted = is_seen ? (int32_t)(at_least(see->lifted, from) - from) : 0;
    part->alike = see->alike;
    part->bits = is_seen && see->bits ? see->bits + from / 64 : NULL;
}

void attn_tile_values(const struct attn_job *job, const struct attn_scratch *w,
                      const struct attn_rows *block, const struct attn_tile *tile,
                      const struct attn_sight *sight, const float *factor, float *acc) {
    const size_t n_rows = (size_t)block->n, v_dim = (size_t)job->c->p.v_dim;
    const size_t stride = job->plan->score_stride, acc_stride = job->plan->v_stride;
    const struct attn_dot_kernels *dot = value_products(job);
    const int64_t per_lane = dot ? (int64_t)dot->per_lane : 1;
    attn_pv_tile *const pv_tile = dot ? dot->pv_tile : job->kernels->pv_tile;
    if (!dot && (!tile->values || tile->waits) &&
        attn_tile_stored_values(job, w, block, tile, sight, factor, acc))
        return;
    if (dot)
        dot->narrow_weights(w->scores, stride, n_rows, sight->visible);
    if (tile->values) {
        pv_tile(w->scores, stride, sight->visible, n_rows, tile->values, tile->value_stride, v_dim,
                factor, acc, acc_stride, to_ask_for(job, tile, ATTN_VALUES));
        return;
    }
    /* Bits are cut between words only. */
    const int64_t chunk = job->c->p.mask.type == ATTN_MASK_NONE ? VALUE_CHUNK : 64;
    for (int64_t j = sight->begin / chunk * chunk; j < sight->end; j += chunk) {
        const int64_t to = at_most(j + chunk, sight->end);
        struct attn_visible part[ATTN_ROW_BLOCK];
        for (size_t r = 0; r < n_rows; r++)
            attn_see_part(&sight->visible[r], j, to, &part[r]);
        lay_out_values(job, w, tile, j, to, sight->end);
        pv_tile(w->scores + j / per_lane, stride, part, n_rows, w->widened, (int64_t)acc_stride,
                v_dim, factor, acc, acc_stride, NULL);
        factor = attn_factors_one;
    }
}

bool attn_tile_can_end(const struct attn_job *job, const struct attn_tile *tile) {
    return tile->values && !tile->waits && !value_products(job);
}

void attn_tile_end_values(const struct attn_job *job, const struct attn_scratch *w,
                          const struct attn_rows *block, const struct attn_tile *tile,
                          const struct attn_sight *sight, const float *factor, float *acc,
                          const struct attn_ending *ending) {
    job->kernels->pv_ending(w->scores, job->plan->score_stride, sight->visible, (size_t)block->n,
                            tile->values, tile->value_stride, (size_t)job->c->p.v_dim, factor, acc,
                            job->plan->v_stride, ending, to_ask_for(job, tile, ATTN_VALUES));
}
