/* Turned tiles of the gradient: which pairs see each other, and what stands between product and
 * exponential.
 *
 * SPDX-License-Identifier: MIT */
#include "turned.h"

#include <math.h>
#include <string.h>

#include "integers.h"

enum { WORD = 64 };

struct backward_scratch attn_backward_scratch_of(const struct backward_job *job, size_t worker) {
    const struct attn_backward_plan *plan = job->plan;
    const size_t n_rows = (size_t)plan->tile_rows, n_keys = (size_t)plan->tile_keys;
    float *at = job->workers + worker * plan->worker_floats;
    struct backward_scratch w = {.packed_q = at};
    w.packed_dout = w.packed_q + plan->packed_q;
    w.key_copy = w.packed_dout + plan->packed_dout;
    w.value_copy = w.key_copy + plan->key_copy;
    w.q_copy = w.value_copy + plan->value_copy;
    w.dout_copy = w.q_copy + plan->q_copy;
    w.dk = w.dout_copy + plan->dout_copy;
    w.dv = w.dk + plan->dk;
    w.dq = w.dv + plan->dv;
    w.scores = w.dq + plan->dq;
    w.dweights = w.scores + plan->block;
    w.bias = w.dweights + plan->block;
    w.bias_turned = w.bias + plan->bias;
    w.turned = w.bias_turned + plan->bias;
    w.lse = w.turned + plan->turned;
    w.delta = w.lse + n_rows;
    w.ones = w.delta + n_rows;
    w.out_copy = w.ones + n_rows + n_keys;
    w.capped = plan->capped ? w.out_copy + plan->v_stride : NULL;
    for (size_t i = 0; i < n_rows + n_keys; i++)
        w.ones[i] = 1;
    return w;
}

/* ---- What is seen ---------------------------------------------------------------------------- */

/* Lets the mask hide keys of the rows. n_keys: up to the last key of the tile that a range shows. */
static void see_mask(const struct backward_job *job, const struct backward_scratch *w,
                     const struct turned_rows *rows, int64_t begin, int64_t n_keys,
                     struct turned_sight *sight) {
    const struct attn_checked *c = job->c;
    const bool is_bias = attn_mask_is_bias(c), needs_copy = attn_mask_needs_copy(c);
    for (int64_t i = 0; i < rows->n; i++) {
        if (sight->visible[i].begin >= sight->visible[i].end)
            continue;
        const void *row = attn_mask_row(c, rows->batch, rows->head, rows->first + i, begin);
        const float *bias =
            is_bias ? attn_mask_bias(c, row, n_keys, needs_copy ? w->bias : NULL) : NULL;
        attn_mask_bits(c, job->kernels, row, bias, n_keys, sight->bits[i]);
        attn_see_bits(sight->bits[i], &sight->visible[i]);
    }
}

bool attn_turned_see(const struct backward_job *job, const struct backward_scratch *w,
                     const struct turned_rows *rows, int64_t begin, int64_t end,
                     struct turned_sight *sight) {
    int32_t last = 0;
    sight->is_full = true;
    for (int64_t i = 0; i < rows->n; i++) {
        const struct attn_key_range keys =
            attn_range_clip(attn_visible_keys(job->c, rows->batch, rows->first + i), begin, end);
        sight->visible[i] = (struct attn_visible){0};
        if (keys.begin < keys.end && w->lse[i] != -INFINITY) {
            sight->visible[i].begin = (int32_t)(keys.begin - begin);
            sight->visible[i].end = (int32_t)(keys.end - begin);
            last = sight->visible[i].end > last ? sight->visible[i].end : last;
        }
    }
    if (job->c->p.mask.type != ATTN_MASK_NONE && last > 0)
        see_mask(job, w, rows, begin, last, sight);
    for (int64_t i = 0; i < rows->n; i++) {
        const struct attn_visible *see = &sight->visible[i];
        sight->is_full &= see->begin == 0 && see->end == end - begin && !see->bits;
    }
    return last > 0;
}

/* The keys [from, from + 64) of the tile that a row sees. */
static uint64_t word_of(struct attn_visible see, int32_t from) {
    if (see.begin >= see.end || see.begin >= from + WORD || see.end <= from)
        return 0;
    uint64_t word = see.bits ? see.bits[from / WORD] : ~UINT64_C(0);
    if (see.begin > from)
        word &= ~UINT64_C(0) << (see.begin - from);
    if (see.end < from + WORD)
        word &= ~(~UINT64_C(0) << (see.end - from));
    return word;
}

/* Turns 64 words of 64 bits: bit j of word i becomes bit i of word j. Halves of ever smaller squares
 * change places. */
static void turn_bits(uint64_t words[WORD]) {
    uint64_t low = UINT64_C(0xffffffff);
    for (int half = WORD / 2; half > 0; half /= 2, low ^= low << half)
        for (int i = 0; i < WORD; i = (i + half + 1) & ~half) {
            const uint64_t other = (words[i] >> half ^ words[i + half]) & low;
            words[i] ^= other << half;
            words[i + half] ^= other;
        }
}

bool attn_turned_see_columns(const struct turned_sight *sight, int64_t n_rows, int64_t from,
                             int64_t n, struct turned_columns *columns) {
    const struct attn_visible all = {0, (int32_t)n_rows, 0, 0, NULL};
    if (sight->is_full) {
        columns->begin = 0, columns->end = n_rows;
        for (int64_t j = 0; j < n; j++)
            columns->visible[j] = all;
        return true;
    }
    for (int64_t first = 0; first < n_rows; first += WORD) {
        uint64_t words[WORD] = {0};
        for (int64_t i = 0; i < at_most(WORD, n_rows - first); i++)
            words[i] = word_of(sight->visible[first + i], (int32_t)from);
        turn_bits(words);
        for (int64_t j = 0; j < n; j++)
            columns->bits[j][first / WORD] = words[j];
    }
    columns->begin = n_rows, columns->end = 0;
    for (int64_t j = 0; j < n; j++) {
        struct attn_visible *see = &columns->visible[j];
        *see = all;
        attn_see_bits(columns->bits[j], see);
        if (see->begin < see->end) {
            columns->begin = at_most(columns->begin, see->begin);
            columns->end = at_least(columns->end, see->end);
        }
    }
    return columns->begin < columns->end;
}

/* ---- Scores ---------------------------------------------------------------------------------- */

/* The mask of keys [key, key + n) that it covers and that are in use, turned like the scores. */
static void turn_mask(const struct backward_job *job, const struct backward_scratch *w,
                      const struct turned_rows *rows, int64_t key, int64_t n, int64_t begin,
                      int64_t end) {
    const struct attn_checked *c = job->c;
    const bool needs_copy = attn_mask_needs_copy(c);
    for (int64_t i = begin; i < end; i++) {
        float *to = w->bias + i * ATTN_KEY_BLOCK;
        const void *row = attn_mask_row(c, rows->batch, rows->head, rows->first + i, key);
        const float *bias = attn_mask_bias(c, row, n, needs_copy ? to : NULL);
        if (!needs_copy)
            memcpy(to, bias, (size_t)n * sizeof *to);
    }
    job->kernels->transpose(w->bias + begin * ATTN_KEY_BLOCK, ATTN_KEY_BLOCK, (size_t)(end - begin),
                            (size_t)n, w->bias_turned + begin, (size_t)job->plan->tile_rows);
}

void attn_turned_modify(const struct backward_job *job, const struct backward_scratch *w,
                        const struct turned_rows *rows, int64_t key, int64_t n, int64_t begin,
                        int64_t end) {
    const attn_problem *p = &job->c->p;
    const int64_t stride = job->plan->tile_rows;
    const size_t columns = (size_t)(end - begin);
    const bool is_bias = attn_mask_is_bias(job->c);
    if (is_bias)
        turn_mask(job, w, rows, key, n, begin, end);
    for (int64_t j = 0; j < n; j++) {
        float *scores = w->scores + j * stride + begin;
        if (p->softcap > 0) {
            job->kernels->softcap(scores, columns, p->softcap);
            memcpy(w->capped + j * stride + begin, scores, columns * sizeof *scores);
        }
        /* |p(i) - j| is the same from either end. */
        if (p->alibi)
            job->kernels->alibi(scores, columns, p->alibi[rows->head],
                                key + j - attn_position(job->c, rows->batch, rows->first + begin));
        if (is_bias)
            job->kernels->add_bias(scores, columns, w->bias_turned + j * stride + begin);
    }
}
