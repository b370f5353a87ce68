/* Random problems over everything that attn.h offers, and poison in all that no row may see.
 *
 * SPDX-License-Identifier: MIT */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "cli/oracle.h"

static bool one_in(struct rng *rng, int64_t n) { return rng_below(rng, n) == 0; }
static int64_t at_most(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- Sizes ----------------------------------------------------------------------------------- */

/* Mostly few, some beside the boundaries of vectors, tiles and spans, some many. */
static int64_t random_keys(struct rng *rng) {
    const int64_t edges[] = {16, 32, 64, 128, 256, 512, 576, 1024};
    const int64_t pick = rng_below(rng, 24);
    if (pick < 17)
        return rng_below(rng, 90);
    if (pick < 21)
        return edges[rng_below(rng, 8)] - 1 + rng_below(rng, 3);
    if (pick < 23)
        return 90 + rng_below(rng, 700);
    return 1025 + rng_below(rng, one_in(rng, 4) ? 8000 : 3000);
}

static int64_t random_dim(struct rng *rng) {
    const int64_t pick = rng_below(rng, 12);
    return pick < 9    ? 1 + rng_below(rng, 40)
           : pick < 11 ? 60 + rng_below(rng, 10)
                       : 120 + rng_below(rng, 200);
}

static struct shape random_shape(struct rng *rng, int64_t keys, int64_t budget) {
    struct shape s = {.batch =
                          one_in(rng, 12) ? 1 + rng_below(rng, MAX_BATCH) : 1 + rng_below(rng, 3),
                      .kv_heads = 1 + rng_below(rng, 3),
                      .qk_dim = random_dim(rng),
                      .v_dim = random_dim(rng)};
    s.q_heads = s.kv_heads * (1 + rng_below(rng, 4));
    s.q_len = one_in(rng, 8) ? 1 : 1 + rng_below(rng, one_in(rng, 6) ? 90 : 20);
    /* Whatever is longest gives way. */
    const int64_t least = keys > 0 ? keys : 1;
    while (s.batch * s.q_heads * s.q_len * least * (s.qk_dim + s.v_dim) > budget) {
        if (s.q_len > 4)
            s.q_len = s.q_len * 2 / 3;
        else if (s.qk_dim + s.v_dim > 10)
            s.qk_dim = 1 + s.qk_dim * 2 / 3, s.v_dim = 1 + s.v_dim * 2 / 3;
        else if (s.batch > 1)
            s.batch--;
        else if (s.q_heads > s.kv_heads)
            s.q_heads -= s.kv_heads;
        else if (s.q_len > 1)
            s.q_len--;
        else
            break;
    }
    return s;
}

/* ---- Options --------------------------------------------------------------------------------- */

/* Sorted, from 0 to q_len, empty sequences among them. */
static void random_cu_q(struct trial *t, struct rng *rng) {
    const int64_t n = t->shape.batch;
    for (int64_t b = 1; b < n; b++) {
        const int64_t cut = rng_below(rng, t->shape.q_len + 1);
        int64_t at = b;
        for (; at > 1 && t->cu_q[at - 1] > cut; at--)
            t->cu_q[at] = t->cu_q[at - 1];
        t->cu_q[at] = cut;
    }
    t->cu_q[0] = 0, t->cu_q[n] = t->shape.q_len;
}

static void random_lengths(struct trial *t, struct rng *rng) {
    attn_problem *p = &t->p;
    const bool has_kv_len = one_in(rng, 2);
    if (p->past_cap > 0 && !one_in(rng, 4))
        p->past_len = t->past_len;
    for (int64_t b = 0; b < p->batch; b++) {
        t->past_len[b] = one_in(rng, 4) ? p->past_cap : rng_below(rng, p->past_cap + 1);
        const int64_t keys = (p->past_len ? t->past_len[b] : p->past_cap) + p->kv_cap;
        t->kv_len[b] = one_in(rng, 4) ? keys : rng_below(rng, keys + 1);
    }
    p->kv_len = has_kv_len ? t->kv_len : NULL;
}

static void random_positions(struct trial *t, struct rng *rng) {
    attn_problem *p = &t->p;
    p->causal = rng_below(rng, 5) < 2;
    if (rng_below(rng, 5) < 2) {
        p->window = t->window;
        for (int side = 0; side < 2; side++)
            t->window[side] = one_in(rng, 4)    ? -1
                              : one_in(rng, 20) ? INT64_MAX
                                                : rng_below(rng, one_in(rng, 2) ? 5 : 70);
    }
    if (one_in(rng, 3)) {
        p->alibi = t->alibi;
        for (int64_t h = 0; h < p->q_heads; h++)
            t->alibi[h] = one_in(rng, 8)   ? 0
                          : one_in(rng, 8) ? -0.1f
                                           : ldexpf(1, -(int)rng_below(rng, 9));
    }
    bool is_square = true;
    for (int64_t b = 0; b < p->batch; b++)
        is_square &= oracle_key_count(p, b) == oracle_rows(p, b);
    const bool matters = p->causal || p->window || p->alibi;
    p->align = (attn_align)(1 + rng_below(rng, 3));
    if ((is_square || !matters) && one_in(rng, 3))
        p->align = ATTN_ALIGN_UNSET;
    if (p->align != ATTN_ALIGN_EXPLICIT)
        return;
    p->offset = t->offset;
    const int64_t far = (INT64_C(1) << 62) - 100; /* a row alone has the offset of its position */
    for (int64_t b = 0; b < p->batch; b++)
        t->offset[b] = !p->alibi && one_in(rng, 40) ? (one_in(rng, 2) ? far : -far)
                                                    : rng_below(rng, oracle_key_count(p, b) + 4) -
                                                          rng_below(rng, at_most(p->q_len, 9) + 1);
}

static void random_parameters(struct trial *t, struct rng *rng) {
    const float scales[] = {0.3f, 1, -1, 0, 4}, caps[] = {0.5f, 2, 30, 1e-3f, 1e4f};
    const float sinks[] = {-INFINITY, -1e30f, 60, 0};
    attn_problem *p = &t->p;
    if (one_in(rng, 3))
        t->scale = scales[rng_below(rng, 5)], p->scale = &t->scale;
    if (one_in(rng, 3))
        p->softcap = caps[rng_below(rng, 5)];
    if (!one_in(rng, 3))
        return;
    p->sinks = t->sinks;
    for (int64_t h = 0; h < p->q_heads; h++)
        t->sinks[h] = one_in(rng, 4) ? sinks[rng_below(rng, 4)] : 2 * rng_normal(rng);
    if (one_in(rng, 12))
        t->sinks[rng_below(rng, p->q_heads)] = one_in(rng, 2) ? NAN : INFINITY;
}

/* ---- Masks ----------------------------------------------------------------------------------- */

static float random_bias(const struct trial *t, int64_t style, struct rng *rng) {
    const float lowest = t->p.mask.type == ATTN_MASK_F16 ? -65504 : -1e30f;
    switch (style) {
    case 0:
        return 0;
    case 1: /* what others use for -inf */
        return one_in(rng, 3) ? lowest : 0;
    default:
        return rng_normal(rng) * (style == 2 ? 2.0f : 0.001f);
    }
}

static void random_mask(struct trial *t, struct rng *rng) {
    attn_problem *p = &t->p;
    const int64_t most = p->past_cap + p->kv_cap;
    struct mask_form form = {.type = (attn_mask_type)(1 + rng_below(rng, 4)),
                             .layout = (enum mask_layout)rng_below(rng, N_MASK_LAYOUTS),
                             .no_batch = one_in(rng, 3),
                             .no_head = one_in(rng, 3),
                             .no_query = one_in(rng, 4),
                             .side = one_in(rng, 2) ? AT_END : AT_START,
                             .n_keys = most};
    form.no_key = form.type != ATTN_MASK_BITS && one_in(rng, 8);
    if (most == 0 || one_in(rng, 4))
        form.n_keys = 1 + rng_below(rng, most + 70);
    if (form.n_keys < 1)
        form.n_keys = 1;
    trial_add_mask(t, form);
    const int64_t style = rng_below(rng, 4), hidden_in_8 = rng_below(rng, 8);
    const int64_t batches = form.no_batch ? 1 : p->batch, heads = form.no_head ? 1 : p->q_heads;
    const int64_t tokens = form.no_query ? 1 : p->q_len, keys = form.no_key ? 1 : form.n_keys;
    for (int64_t b = 0; b < batches; b++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t i = 0; i < tokens; i++) {
                /* Rows that show a stretch only, or nothing, so that whole tiles are hidden. */
                const bool has_stretch = one_in(rng, 4);
                const int64_t begin = has_stretch ? rng_below(rng, keys + 1) : 0;
                const int64_t end = has_stretch ? begin + rng_below(rng, keys - begin + 1) : keys;
                for (int64_t j = 0; j < keys; j++) {
                    const bool is_hidden = j < begin || j >= end || rng_below(rng, 8) < hidden_in_8;
                    mask_set(t, b, h, i, j, is_hidden ? -INFINITY : random_bias(t, style, rng));
                }
            }
    /* A bias that makes the rows that see it NaN. */
    if (one_in(rng, 16) && batches && heads && tokens)
        mask_set(t, rng_below(rng, batches), rng_below(rng, heads), rng_below(rng, tokens),
                 rng_below(rng, keys), one_in(rng, 2) ? NAN : INFINITY);
}

/* ---- The problem ----------------------------------------------------------------------------- */

static enum layout random_layout(struct rng *rng) {
    return (enum layout)rng_below(rng, one_in(rng, 8) ? N_INPUT_LAYOUTS : N_LAYOUTS);
}

void trial_random(struct trial *t, struct rng *rng, int64_t budget) {
    const int64_t keys = random_keys(rng);
    const struct shape s = random_shape(rng, keys, budget);
    struct layouts how = {.lse = !one_in(rng, 3), .weights = one_in(rng, 3)};
    how.scores = one_in(rng, 3), how.is_ragged = one_in(rng, 4);
    how.side = one_in(rng, 2) ? AT_END : AT_START;
    how.q = random_layout(rng), how.k = random_layout(rng), how.v = random_layout(rng);
    how.past_k = random_layout(rng), how.past_v = random_layout(rng);
    how.out = (enum layout)rng_below(rng, N_LAYOUTS);
    if (one_in(rng, 3))
        how.past_cap = rng_below(rng, keys + 1);
    struct shape now = s;
    now.kv_cap = keys - how.past_cap;
    trial_place(t, now, how);
    if (how.is_ragged)
        random_cu_q(t, rng);
    trial_fill(t, one_in(rng, 6) ? (enum kind)rng_below(rng, N_KINDS) : KIND_NORMAL, rng);
    t->p.scores_at = (attn_score_stage)rng_below(rng, 3);
    random_lengths(t, rng);
    random_positions(t, rng);
    random_parameters(t, rng);
    if (one_in(rng, 2))
        random_mask(t, rng);
}

struct storage storage_random(const struct trial *t, struct rng *rng) {
    struct storage how = {.q = (attn_type)rng_below(rng, 3),
                          .k = (attn_type)rng_below(rng, 4),
                          .v = (attn_type)rng_below(rng, 4),
                          .out = (attn_type)rng_below(rng, 3),
                          .pages = (enum layout)rng_below(rng, N_LAYOUTS),
                          .scales = (enum layout)rng_below(rng, N_LAYOUTS)};
    how.k_group = one_in(rng, 3)   ? 0
                  : one_in(rng, 2) ? 16 * (1 + rng_below(rng, t->shape.qk_dim / 16 + 1))
                                   : 1 + rng_below(rng, t->shape.qk_dim + 3);
    how.v_group = one_in(rng, 3) ? 0 : 1 + rng_below(rng, t->shape.v_dim + 3);
    if (!t->p.past_cap && !one_in(rng, 3))
        how.page_len = one_in(rng, 4) ? 1 << rng_below(rng, 10) : 1 + rng_below(rng, 70);
    return how;
}

/* ---- Poison ---------------------------------------------------------------------------------- */

/* Where scores are asked for before the mask, hidden keys show in them, and f32 must not overflow
 * where the oracle does not. */
static float poison(const struct trial *t, struct rng *rng) {
    const float values[] = {NAN, INFINITY, -INFINITY, -NAN, FLT_MAX, -3e38f, 1e10f};
    return values[rng_below(rng, t->scores.data ? 4 : 7)];
}

static void poison_row(const struct trial *t, float *row, int64_t n, struct rng *rng) {
    for (int64_t c = 0; c < n; c++)
        row[c] = poison(t, rng);
}

/* A key or value is in the way of no other: strides of 0 make them share memory. */
static bool is_apart(const attn_problem *p, const attn_input *t, int64_t tokens) {
    return (p->batch <= 1 || t->stride_batch) && (p->kv_heads <= 1 || t->stride_head) &&
           (tokens <= 1 || t->stride_token);
}

static bool is_seen_by_any(const attn_problem *p, int64_t b, int64_t g, int64_t j) {
    const int64_t group = p->q_heads / p->kv_heads;
    for (int64_t h = g * group; h < (g + 1) * group; h++)
        for (int64_t i = 0; i < oracle_rows(p, b); i++)
            if (oracle_sees(p, b, h, i, j))
                return true;
    return false;
}

/* n tokens of a cache, the first of which is key `first`; from `end` on they are no keys at all. */
static void poison_cache(struct trial *t, const attn_input *k, const attn_input *v, int64_t n,
                         int64_t b, int64_t first, int64_t end, struct rng *rng) {
    const attn_problem *p = &t->p;
    for (int64_t g = 0; g < p->kv_heads; g++)
        for (int64_t token = 0; token < n; token++) {
            const int64_t j = first + token;
            if (j < end && is_seen_by_any(p, b, g, j))
                continue;
            if (is_apart(p, k, n))
                poison_row(t, in_at_mutable(k, b, g, token), p->qk_dim, rng);
            if (is_apart(p, v, n))
                poison_row(t, in_at_mutable(v, b, g, token), p->v_dim, rng);
        }
}

static void poison_queries(struct trial *t, struct rng *rng) {
    const attn_problem *p = &t->p;
    if (!p->q.stride_token || (p->q_heads > 1 && !p->q.stride_head) ||
        (p->batch > 1 && !p->q.stride_batch))
        return;
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->q_heads; h++)
            for (int64_t i = 0; i < oracle_rows(p, b); i++) {
                bool sees = false;
                for (int64_t j = 0; j < oracle_key_count(p, b) && !sees; j++)
                    sees = oracle_sees(p, b, h, i, j);
                if (!sees)
                    poison_row(t, query_of(p, b, h, i), p->qk_dim, rng);
            }
}

/* Places of the mask at which every pair that shares them is hidden by something else, or is no
 * pair at all. */
static void poison_mask(struct trial *t, struct rng *rng) {
    const attn_problem *p = &t->p;
    const struct mask_form *form = &t->mask_form;
    attn_problem open = *p;
    open.mask.type = ATTN_MASK_NONE;
    uint8_t *is_read = calloc(t->mask_bytes * 8 + 1, 1);
    cr_assert(is_read != NULL);
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t i = 0; i < oracle_rows(p, b); i++) {
            const int64_t token = p->cu_q ? p->cu_q[b] + i : i;
            for (int64_t j = 0; j < at_most(oracle_key_count(p, b), form->n_keys); j++)
                for (int64_t h = 0; h < p->q_heads && oracle_sees(&open, b, 0, i, j); h++)
                    is_read[mask_place(t, b, h, token, j)] = 1;
        }
    for (int64_t b = 0; b < (form->no_batch ? 1 : p->batch); b++)
        for (int64_t h = 0; h < (form->no_head ? 1 : p->q_heads); h++)
            for (int64_t i = 0; i < (form->no_query ? 1 : p->q_len); i++)
                for (int64_t j = 0; j < (form->no_key ? 1 : form->n_keys); j++)
                    if (!is_read[mask_place(t, b, h, i, j)])
                        mask_set(t, b, h, i, j, poison(t, rng));
    free(is_read);
}

void trial_poison(struct trial *t, struct rng *rng) {
    const attn_problem *p = &t->p;
    if (t->mask)
        poison_mask(t, rng); /* first: no pair becomes visible by it */
    for (int64_t b = 0; b < p->batch; b++) {
        const int64_t n_past = p->past_cap && p->past_len ? p->past_len[b] : p->past_cap;
        const int64_t count = oracle_key_count(p, b);
        poison_cache(t, &p->past_k, &p->past_v, p->past_cap, b, 0, at_most(n_past, count), rng);
        poison_cache(t, &p->k, &p->v, p->kv_cap, b, n_past, count, rng);
    }
    poison_queries(t, rng);
}
