/* Weighted values where bits say which keys a row sees, on the vectors of vec.h and on top of the
 * set's kernel for ranges.
 *
 * A hidden key adds no operation, so that its value may be NaN; visible keys come in ascending
 * order, whichever of three ways they take:
 *
 *  - Rows without bits: the kernel for ranges, as if there were no others.
 *  - Neighbours that see the same keys (heads of a group share their query's mask), in runs that
 *    are long enough: the kernel for ranges, run by run.
 *  - All others: each row alone, key by key. A word of bits at a time, so that its values are in
 *    the first-level cache when the next row comes, and up to 8 vectors of features at once: fewer
 *    chains would wait for each other.
 *
 * Keys count one by one, also where lanes hold several (lanes.h): a lane of which a row sees some
 * keys takes part, those that it does not see as 0.
 *
 * Include after vec.h.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_PV_MASKED_H
#define ATTN_PV_MASKED_H

#include <stdbool.h>

#include "alike.h"
#include "kernels.h"
#include "lanes.h"
#include "unroll.h"
#include "visible_word.h"

enum { MASKED_VECTORS = 8, MAX_SAME_ROWS = 64, LONG_RUN = 16 };
#define LANE_BITS ((UINT64_C(1) << LANE_KEYS) - 1)

/* One row: its weights, bits and factor, and values and sums of the first feature of a block. */
struct masked_row {
    const float *weights;
    const uint64_t *bits;
    const float *factor; /* null: the sums start from -0 */
    float *acc;
    const float *values;
    int64_t value_stride;
    size_t last; /* features in the last vector */
};

/* ---- A row alone ----------------------------------------------------------------------------- */

ALWAYS_INLINE void masked_block(const int N, const int short_row, const struct masked_row *o,
                                int32_t begin, int32_t end) {
    vf acc[MASKED_VECTORS];
    UNROLL
    for (int v = 0; v < N; v++) {
        acc[v] = vf_set1(-0.0f);
        if (o->factor) {
            const float *a = o->acc + v * VF_LANES;
            acc[v] = vf_mul(v == N - 1 ? vf_load_last(a, o->last, short_row) : vf_load(a),
                            vf_set1(*o->factor));
        }
    }
    for (int32_t first = begin & -WORD_KEYS; first < end; first += WORD_KEYS) {
        const float *weights = o->weights + first / LANE_KEYS;
        const float *values = o->values + first / LANE_KEYS * o->value_stride;
        uint64_t word = visible_word(o->bits, first, begin, end);
        while (word) {
            const int lane = __builtin_ctzll(word) / LANE_KEYS;
            const uint64_t lane_bits = LANE_BITS << lane * LANE_KEYS;
            const unsigned show = (unsigned)((word & lane_bits) >> lane * LANE_KEYS);
            const float *value = values + lane * o->value_stride;
            const vf w = vf_set1(weights[lane]);
            word &= LANE_KEYS == 1 ? word - 1 : ~lane_bits;
            UNROLL
            for (int v = 0; v < N; v++) {
                const vf x = v == N - 1 ? vf_load_last(value + v * VF_LANES, o->last, short_row)
                                        : vf_load(value + v * VF_LANES);
                acc[v] = LANE_MULTIPLY_ADD(w, LANE_SHOW(x, show), acc[v]);
            }
        }
    }
    UNROLL
    for (int v = 0; v < N - 1; v++)
        vf_store(o->acc + v * VF_LANES, acc[v]);
    vf_store_last(o->acc + (N - 1) * VF_LANES, acc[N - 1], o->last, short_row);
}

typedef void masked_function(const struct masked_row *o, int32_t begin, int32_t end);

#define MASKED_BLOCK(N)                                                                            \
    NEVER_INLINE void masked_##N(const struct masked_row *o, int32_t begin, int32_t end) {         \
        masked_block(N, 0, o, begin, end);                                                         \
    }
MASKED_BLOCK(1)
MASKED_BLOCK(2)
MASKED_BLOCK(3)
MASKED_BLOCK(4)
MASKED_BLOCK(5)
MASKED_BLOCK(6)
MASKED_BLOCK(7)
MASKED_BLOCK(8)
#undef MASKED_BLOCK

/* Rows of values that are shorter than a vector. */
NEVER_INLINE void masked_short(const struct masked_row *o, int32_t begin, int32_t end) {
    masked_block(1, 1, o, begin, end);
}

/* n rows, each of which has bits and a range that is not empty. */
static inline void masked_rows(const float *weights, size_t weight_stride,
                               const struct attn_visible *visible, size_t n, const float *values,
                               int64_t value_stride, size_t v_dim, const float *factor, float *acc,
                               size_t acc_stride) {
    static masked_function *const blocks[MASKED_VECTORS] = {masked_1, masked_2, masked_3, masked_4,
                                                            masked_5, masked_6, masked_7, masked_8};
    static const float keep = 1;
    int32_t begin = visible[0].begin, end = visible[0].end;
    for (size_t r = 1; r < n; r++) {
        begin = visible[r].begin < begin ? visible[r].begin : begin;
        end = visible[r].end > end ? visible[r].end : end;
    }
    const int32_t step = n == 1 ? (end | (WORD_KEYS - 1)) + 1 : WORD_KEYS;
    const size_t most = MASKED_VECTORS * VF_LANES;
    for (size_t c = 0; c < v_dim; c += most) {
        const size_t left = v_dim - c < most ? v_dim - c : most;
        const size_t v = (left + VF_LANES - 1) / VF_LANES - 1;
        masked_function *const block = v_dim < VF_LANES ? masked_short : blocks[v];
        struct masked_row row = {
            .values = values + c, .value_stride = value_stride, .last = left - v * VF_LANES};
        for (int32_t first = begin & -WORD_KEYS; first < end; first += step)
            for (size_t r = 0; r < n; r++) {
                const struct attn_visible see = visible[r];
                const int32_t from = see.begin > first ? see.begin : first;
                const int32_t to = see.end < first + step ? see.end : first + step;
                if (from >= to)
                    continue;
                row.weights = weights + r * weight_stride;
                row.bits = see.bits;
                row.factor = see.begin < first ? &keep : factor ? factor + r : NULL;
                row.acc = acc + r * acc_stride + c;
                block(&row, from, to);
            }
    }
}

/* ---- Rows that see the same ------------------------------------------------------------------ */

static inline bool is_masked(struct attn_visible see) { return see.bits && see.begin < see.end; }

/* How many of n rows see what the first does, which is masked. */
static inline size_t count_same(const struct attn_visible *visible, size_t n) {
    const struct attn_visible a = visible[0];
    for (size_t r = 1; r < n; r++) {
        const struct attn_visible b = visible[r];
        if (!b.bits || a.begin != b.begin || a.end != b.end)
            return r;
        for (int32_t j = a.begin & -WORD_KEYS; j < a.end && a.bits != b.bits; j += WORD_KEYS)
            if (visible_word(a.bits, j, a.begin, a.end) != visible_word(b.bits, j, b.begin, b.end))
                return r;
    }
    return n;
}

/* Whether visible keys come in runs of at least LONG_RUN on average; also where there are none. */
static inline bool has_long_runs(struct attn_visible see) {
    int visible = 0, runs = 0;
    uint64_t before = 0; /* the last key of the word before, as bit 0 */
    for (int32_t j = see.begin & -WORD_KEYS; j < see.end; j += WORD_KEYS) {
        const uint64_t word = visible_word(see.bits, j, see.begin, see.end);
        visible += __builtin_popcountll(word);
        runs += __builtin_popcountll(word & ~(word << 1 | before));
        before = word >> (WORD_KEYS - 1);
    }
    return visible >= LONG_RUN * runs;
}

/* The first key of [j, end) whose bit in bits ^ flip is set, or end. */
static inline int32_t next_key(const uint64_t *bits, uint64_t flip, int32_t j, int32_t end) {
    while (j < end) {
        const uint64_t word = (bits[j / WORD_KEYS] ^ flip) >> j % WORD_KEYS;
        if (word) {
            j += __builtin_ctzll(word);
            break;
        }
        j = (j | (WORD_KEYS - 1)) + 1;
    }
    return j < end ? j : end;
}

/* n <= MAX_SAME_ROWS rows that see the same keys, run by run. */
static inline void run_by_run(attn_pv_tile *ranges, const float *weights, size_t weight_stride,
                              struct attn_visible see, size_t n, const float *values,
                              int64_t value_stride, size_t v_dim, const float *factor, float *acc,
                              size_t acc_stride, struct attn_later *later) {
    struct attn_visible run[MAX_SAME_ROWS];
    float keep[MAX_SAME_ROWS];
    int32_t j = see.begin;
    do { /* once at least: the sums must be rescaled, or begin */
        j = next_key(see.bits, 0, j, see.end);
        const int32_t end = next_key(see.bits, ~UINT64_C(0), j, see.end);
        for (size_t r = 0; r < n; r++)
            run[r] = (struct attn_visible){j, end, 0, 0, NULL}, keep[r] = 1;
        ranges(weights, weight_stride, run, n, values, value_stride, v_dim, factor, acc, acc_stride,
               later);
        factor = keep;
        j = next_key(see.bits, 0, end, see.end);
    } while (j < see.end);
}

/* ---- All rows of a tile ---------------------------------------------------------------------- */

/* ranges: pv_tile where no row has bits. */
static inline void pv_visible(attn_pv_tile *ranges, const float *weights, size_t weight_stride,
                              const struct attn_visible *visible, size_t n_rows,
                              const float *values, int64_t value_stride, size_t v_dim,
                              const float *factor, float *acc, size_t acc_stride,
                              struct attn_later *later) {
    if (rows_are_ranges(visible, n_rows)) {
        ranges(weights, weight_stride, visible, n_rows, values, value_stride, v_dim, factor, acc,
               acc_stride, later);
        return;
    }
    for (size_t r = 0, n; r < n_rows; r += n) {
        const float *w = weights + r * weight_stride, *f = factor ? factor + r : NULL;
        const struct attn_visible *see = visible + r;
        float *a = acc + r * acc_stride;
        for (n = 0; r + n < n_rows && !is_masked(see[n]);)
            n++;
        if (n > 0) {
            ranges(w, weight_stride, see, n, values, value_stride, v_dim, f, a, acc_stride, later);
            continue;
        }
        const size_t left = n_rows - r;
        n = count_same(see, left < MAX_SAME_ROWS ? left : MAX_SAME_ROWS);
        if (n > 1 && has_long_runs(see[0])) {
            run_by_run(ranges, w, weight_stride, see[0], n, values, value_stride, v_dim, f, a,
                       acc_stride, later);
            continue;
        }
        /* Up to the next row that one of the other two ways is for. */
        while (n < left && is_masked(see[n]) &&
               !(n + 1 < left && count_same(see + n, 2) == 2 && has_long_runs(see[n])))
            n++;
        masked_rows(w, weight_stride, see, n, values, value_stride, v_dim, f, a, acc_stride);
    }
}

#endif
