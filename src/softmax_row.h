/* The fused softmax of the rows of a tile, on the vectors of vec.h: running maximum, subtraction,
 * exponential, running sum and the factor that rescales what the row has accumulated so far
 * (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018).
 *
 * Include after vec.h. What it computes is defined at softmax_rows in kernels.h.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_SOFTMAX_ROW_H
#define ATTN_SOFTMAX_ROW_H

#include <float.h>
#include <math.h>

#include "alike.h"
#include "exp_nonpositive.h"
#include "kernels.h"
#include "row_vectors.h"

/* exp of SOFTMAX_VECTORS vectors at once; a set may have its own way to the same bits. */
#ifndef SOFTMAX_EXP
#define SOFTMAX_EXP(x) exp_nonpositive_n(SOFTMAX_VECTORS, x)
#endif

ALWAYS_INLINE void max_of_four(const float *s, vf *m) {
    UNROLL
    for (int i = 0; i < 4; i++)
        m[i] = vf_max_number(vf_load(s + i * VF_LANES), m[i]);
}

/* The maxima of the visible scores of each lane, NaN not counting; -inf if there is none. Four
 * accumulators, because a maximum has no order of arithmetic to keep. */
static inline vf visible_max(const float *s, int32_t begin, int32_t end) {
    const vf none = vf_set1(-INFINITY);
    const int32_t body = (begin + VF_LANES - 1) & -VF_LANES, body_end = end & -VF_LANES;
    vf m[4] = {none, none, none, none};
    int32_t j = begin & -VF_LANES;
    if (j < body) {
        m[0] = vf_max_number(vf_select(vm_range(j, begin, end), vf_load(s + j), none), m[0]);
        j += VF_LANES;
    }
    for (; j + 16 * VF_LANES <= body_end; j += 16 * VF_LANES) {
        UNROLL
        for (int32_t i = 0; i < 16; i += 4)
            max_of_four(s + j + i * VF_LANES, m);
    }
    for (; j + 4 * VF_LANES <= body_end; j += 4 * VF_LANES)
        max_of_four(s + j, m);
    for (; j < body_end; j += VF_LANES)
        m[0] = vf_max_number(vf_load(s + j), m[0]);
    if (j < end)
        m[1] = vf_max_number(vf_select(vm_range(j, begin, end), vf_load(s + j), none), m[1]);
    return vf_max_number(vf_max_number(m[0], m[1]), vf_max_number(m[2], m[3]));
}

/* The same where bits say which keys of the range are visible. The others become -inf on the way:
 * what follows then gives them weight 0, which adds nothing to the sum, as it does to those that a
 * range hides. */
static inline vf visible_max_of_bits(float *s, struct attn_visible see) {
    const vf none = vf_set1(-INFINITY);
    vf max = none;
    for (int32_t j = see.begin & -VF_LANES; j < see.end; j += VF_LANES) {
        vf x = vf_select(vm_bits(see.bits, j), vf_load(s + j), none);
        if (j < see.begin || j + VF_LANES > see.end)
            x = vf_select(vm_range(j, see.begin, see.end), x, none);
        vf_store(s + j, x);
        max = vf_max_number(x, max);
    }
    return max;
}

/* s = exp(s - z) of SOFTMAX_VECTORS vectors, added to *sum. */
ALWAYS_INLINE void exp_vectors(float *s, vf z, vf *sum) {
    vf x[SOFTMAX_VECTORS];
    UNROLL
    for (int i = 0; i < SOFTMAX_VECTORS; i++)
        x[i] = vf_sub(vf_load(s + i * VF_LANES), z);
    SOFTMAX_EXP(x);
    UNROLL
    for (int i = 0; i < SOFTMAX_VECTORS; i++) {
        vf_store(s + i * VF_LANES, x[i]);
        *sum = vf_add(*sum, x[i]);
    }
}

/* s = exp(s - z) where visible; returns the sum of each lane. */
NEVER_INLINE vf exponentials(float *s, int32_t begin, int32_t end, float row_z) {
    const vf z = vf_set1(row_z);
    vf sum = vf_set1(0.0f);
    int32_t j = begin & -VF_LANES;
    const int32_t body_end = end & -VF_LANES;
    /* A vector that the range cuts: hidden lanes become exp(-inf) = 0 by selection, which adds
     * nothing to their lane of the sum. */
#define SOFTMAX_CUT_VECTOR()                                                                       \
    do {                                                                                           \
        const vf x = vf_sub(vf_load(s + j), z);                                                    \
        const vf p = exp_nonpositive(vf_select(vm_range(j, begin, end), x, vf_set1(-INFINITY)));   \
        vf_store(s + j, p);                                                                        \
        sum = vf_add(sum, p);                                                                      \
        j += VF_LANES;                                                                             \
    } while (0)
    if (j < begin)
        SOFTMAX_CUT_VECTOR();
    const int32_t step = SOFTMAX_VECTORS * VF_LANES;
    for (; j + 2 * step <= body_end; j += 2 * step) {
        exp_vectors(s + j, z, &sum);
        exp_vectors(s + j + step, z, &sum);
    }
    for (; j + step <= body_end; j += step)
        exp_vectors(s + j, z, &sum);
    for (; j < body_end; j += VF_LANES) {
        const vf p = exp_nonpositive(vf_sub(vf_load(s + j), z));
        vf_store(s + j, p);
        sum = vf_add(sum, p);
    }
    if (j < end)
        SOFTMAX_CUT_VECTOR();
#undef SOFTMAX_CUT_VECTOR
    return sum;
}

/* Lifts the first weights of a row (see softmax_rows in kernels.h). Returns the column before which
 * they are lifted, or 0. What a range hides of its first and last vector has weight 0. */
NEVER_INLINE int32_t lift(float *w, int32_t begin, int32_t end) {
    const float least = 0x1p-126f; /* weight but 0, and so the least sum of weights but 0 */
    int32_t first = begin & -VF_LANES;
    for (; first + 4 * VF_LANES <= end; first += 4 * VF_LANES) {
        const vf a = vf_add(vf_load(w + first), vf_load(w + first + VF_LANES));
        const vf b = vf_add(vf_load(w + first + 2 * VF_LANES), vf_load(w + first + 3 * VF_LANES));
        if (!vf_all_below(vf_add(a, b), least))
            break;
    }
    while (first < end && vf_all_below(vf_load(w + first), least))
        first += VF_LANES;
    int32_t lifted = first;
    while (lifted < end && vf_all_below(vf_load(w + lifted), ATTN_LIFT_BELOW))
        lifted += VF_LANES;
    lifted &= -ATTN_LIFT_COLUMNS;
    if (lifted <= first)
        return 0;
    for (int32_t j = first; j < lifted; j += VF_LANES)
        vf_store(w + j, vf_mul(vf_load(w + j), vf_set1(ATTN_LIFT)));
    return lifted;
}

/* ---- What each row has one of ---------------------------------------------------------------- */

/* Rows leave a vector of maxima or of sums each, whose lanes are then brought together for as many
 * rows as a vector has lanes. Each row's single number would have to go through memory to its lane,
 * where a load of all of them waits until every store is done. */
typedef float row_lanes[VF_LANES];

/* The vectors of n rows, the last row's again where there are fewer than lanes. */
ALWAYS_INLINE void load_lanes(const row_lanes *lanes, size_t n, vf *x) {
    if (n >= VF_LANES) {
        UNROLL
        for (size_t i = 0; i < VF_LANES; i++)
            x[i] = vf_load(lanes[i]);
        return;
    }
    UNROLL
    for (size_t i = 0; i < VF_LANES; i++)
        x[i] = vf_load(lanes[i < n ? i : n - 1]);
}

/* The new maxima of rows whose scores go up to `seen`, what to subtract from their scores, and the
 * factors that follow: 0 where is_first says that there was no maximum. Where all scores so far are
 * -inf, subtracting that would make NaN of them; a number gives them weight 0. */
struct raised {
    vf m, z, factor;
};
ALWAYS_INLINE struct raised raise_maximum(int is_first, vf seen, vf old) {
    const vf new = is_first ? seen : vf_max_number(seen, old);
    const vf z = vf_max_number(new, vf_set1(-FLT_MAX));
    if (is_first)
        return (struct raised){new, z, vf_set1(0.0f)};
    const vf factor = exp_nonpositive(vf_sub(old, z));
    return (struct raised){new, z, vf_select(vf_equal(new, old), vf_set1(1.0f), factor)};
}

/* m = max(m, the largest of a row's lanes). z and factor have room for whole vectors. */
ALWAYS_INLINE void raise_maxima(size_t n_rows, const row_lanes *lanes, int is_first, float *m,
                                float *z, float *factor) {
    size_t r = 0;
    for (; r + ROWS_WORTH_A_VECTOR <= n_rows; r += VF_LANES) {
        const size_t n = n_rows - r;
        vf x[VF_LANES];
        load_lanes(lanes + r, n, x);
        const struct raised to = raise_maximum(is_first, vf_reduce_max_each(x),
                                               is_first ? vf_set1(0.0f) : load_rows(m + r, n));
        vf_store(z + r, to.z);
        vf_store(factor + r, to.factor);
        store_rows(m + r, to.m, n);
    }
    for (; r < n_rows; r++) {
        const vf seen = vf_set1(vf_reduce_max(vf_load(lanes[r])));
        const struct raised to = raise_maximum(is_first, seen, vf_set1(is_first ? 0.0f : m[r]));
        m[r] = vf_first(to.m), z[r] = vf_first(to.z), factor[r] = vf_first(to.factor);
    }
}

/* l = l * factor + the sum of a row's lanes. */
ALWAYS_INLINE void add_sums(size_t n_rows, const row_lanes *lanes, int is_first,
                            const float *factor, float *l) {
    size_t r = 0;
    for (; r + ROWS_WORTH_A_VECTOR <= n_rows; r += VF_LANES) {
        const size_t n = n_rows - r;
        vf x[VF_LANES];
        load_lanes(lanes + r, n, x);
        const vf sum = vf_reduce_add_each(x);
        store_rows(l + r, is_first ? sum : vf_fma(load_rows(l + r, n), vf_load(factor + r), sum),
                   n);
    }
    for (; r < n_rows; r++) {
        const float sum = vf_reduce_add(vf_load(lanes[r]));
        l[r] = is_first ? sum : vf_first(vf_fma(vf_set1(l[r]), vf_set1(factor[r]), vf_set1(sum)));
    }
}

/* Lifts the first weights of a row if it needs that; returns its factor. */
static inline float lift_row(float *w, struct attn_visible *see, float factor) {
    see->lifted = 0;
    if (factor >= ATTN_LIFT_BELOW || w[see->begin] >= ATTN_LIFT_BELOW || see->bits)
        return factor;
    see->lifted = lift(w, see->begin, see->end);
    return see->lifted ? factor * ATTN_LIFT : factor;
}

/* Whether the first weight of some row is so low that it may need it. */
static inline int some_first_weight_is_low(const float *w, size_t stride, size_t n_rows) {
    int is_low = 0;
    for (size_t r = 0; r < n_rows; r++)
        is_low |= !(w[r * stride] >= ATTN_LIFT_BELOW);
    return is_low;
}

/* ---- Rows that see the same keys ------------------------------------------------------------- */

/* Vectors of so many rows, of the same keys, go through the exponential side by side. */
enum { SOFTMAX_ROWS = SOFTMAX_VECTORS };

#ifndef SOFTMAX_APART

/* Whether rows may be worked on together: they see the same keys, those of whole vectors and at
 * the end of a part of one. */
static inline int rows_go_together(const struct attn_visible *visible, size_t n_rows) {
    return rows_are_alike(visible, n_rows) && visible[0].begin % VF_LANES == 0 &&
           visible[0].begin < visible[0].end;
}

/* A vector of each of such rows: the lanes before `end`, others -inf. */
ALWAYS_INLINE void load_scores(const float *scores, size_t stride, int32_t j, int32_t end, vf *x) {
    const int is_cut = end - j < VF_LANES;
    UNROLL
    for (int i = 0; i < SOFTMAX_ROWS; i++) {
        x[i] = vf_load(scores + (size_t)i * stride + j);
        if (is_cut)
            x[i] = vf_select(vm_range(j, j, end), x[i], vf_set1(-INFINITY));
    }
}
ALWAYS_INLINE void max_step(const float *scores, size_t stride, int32_t j, int32_t end, vf *max) {
    vf x[SOFTMAX_ROWS];
    load_scores(scores, stride, j, end, x);
    UNROLL
    for (int i = 0; i < SOFTMAX_ROWS; i++)
        max[i] = vf_max_number(x[i], max[i]);
}
ALWAYS_INLINE void exp_step(float *scores, size_t stride, int32_t j, int32_t end, const vf *z,
                            vf *sum) {
    vf x[SOFTMAX_ROWS];
    load_scores(scores, stride, j, end, x);
    UNROLL
    for (int i = 0; i < SOFTMAX_ROWS; i++)
        x[i] = vf_sub(x[i], z[i]);
    SOFTMAX_EXP(x);
    UNROLL
    for (int i = 0; i < SOFTMAX_ROWS; i++) {
        vf_store(scores + (size_t)i * stride + j, x[i]);
        sum[i] = vf_add(sum[i], x[i]);
    }
}

/* The maxima of such rows, and their exponentials: the vectors of the same keys one after the
 * other. */
static inline void max_of_alike(const float *scores, size_t stride, int32_t begin, int32_t end,
                                row_lanes *lanes) {
    vf max[SOFTMAX_ROWS];
    UNROLL
    for (int i = 0; i < SOFTMAX_ROWS; i++)
        max[i] = vf_set1(-INFINITY);
    int32_t j = begin;
    for (; j < (end & -VF_LANES); j += VF_LANES)
        max_step(scores, stride, j, j + VF_LANES, max);
    if (j < end)
        max_step(scores, stride, j, end, max);
    UNROLL
    for (int i = 0; i < SOFTMAX_ROWS; i++)
        vf_store(lanes[i], max[i]);
}
static inline void exp_of_alike(float *scores, size_t stride, int32_t begin, int32_t end,
                                const float *row_z, row_lanes *lanes) {
    vf z[SOFTMAX_ROWS], sum[SOFTMAX_ROWS];
    UNROLL
    for (int i = 0; i < SOFTMAX_ROWS; i++)
        z[i] = vf_set1(row_z[i]), sum[i] = vf_set1(0.0f);
    int32_t j = begin;
    for (; j < (end & -VF_LANES); j += VF_LANES)
        exp_step(scores, stride, j, j + VF_LANES, z, sum);
    if (j < end)
        exp_step(scores, stride, j, end, z, sum);
    UNROLL
    for (int i = 0; i < SOFTMAX_ROWS; i++)
        vf_store(lanes[i], sum[i]);
}

#endif

/* ---------------------------------------------------------------------------------------------- */

static inline void max_of_rows(float *scores, size_t stride, size_t n,
                               const struct attn_visible *visible, row_lanes *lanes) {
    const struct attn_visible see = visible[0];
#ifndef SOFTMAX_APART
    if (n > 1) {
        max_of_alike(scores, stride, see.begin, see.end, lanes);
        return;
    }
#endif
    (void)stride, (void)n;
    vf_store(lanes[0], see.begin >= see.end ? vf_set1(-INFINITY)
                       : see.bits           ? visible_max_of_bits(scores, see)
                                            : visible_max(scores, see.begin, see.end));
}

static inline void exp_of_rows(float *scores, size_t stride, size_t n,
                               const struct attn_visible *visible, const float *z,
                               row_lanes *lanes) {
    const struct attn_visible see = visible[0];
#ifndef SOFTMAX_APART
    if (n > 1) {
        exp_of_alike(scores, stride, see.begin, see.end, z, lanes);
        return;
    }
#endif
    (void)stride, (void)n;
    vf_store(lanes[0],
             see.begin < see.end ? exponentials(scores, see.begin, see.end, *z) : vf_set1(0.0f));
}

/* At most ATTN_ROW_BLOCK rows. First the maxima of all, then the exponentials of all: what is a chain
 * in one row has the others to overlap with. Returns whether some row is lifted. */
ALWAYS_INLINE int softmax_block(float *scores, size_t stride, size_t n_rows,
                                struct attn_visible *visible, int is_first, float *m, float *l,
                                float *factor) {
    enum { ROOM = ATTN_ROW_BLOCK + VF_LANES };
    row_lanes lanes[ATTN_ROW_BLOCK];
    float z[ROOM], f[ROOM];
#ifdef SOFTMAX_APART
    const size_t together = 1;
#else
    const size_t together = rows_go_together(visible, n_rows) ? SOFTMAX_ROWS : 1;
#endif
    for (size_t r = 0, n; r < n_rows; r += n) {
        n = n_rows - r < together ? 1 : together;
        max_of_rows(scores + r * stride, stride, n, visible + r, lanes + r);
    }
    raise_maxima(n_rows, lanes, is_first, m, z, f);
    for (size_t r = 0, n; r < n_rows; r += n) {
        n = n_rows - r < together ? 1 : together;
        exp_of_rows(scores + r * stride, stride, n, visible + r, z + r, lanes + r);
    }
    add_sums(n_rows, lanes, is_first, f, l);
    if (together > 1 && !some_first_weight_is_low(scores + visible[0].begin, stride, n_rows)) {
        for (size_t r = 0; !is_first && r < n_rows; r++)
            factor[r] = f[r];
        return 0; /* rows that go together have not been lifted before */
    }
    int some_lifted = 0;
    for (size_t r = 0; r < n_rows; r++) {
        const float of_row = lift_row(scores + r * stride, &visible[r], f[r]);
        some_lifted |= visible[r].lifted;
        if (!is_first)
            factor[r] = of_row;
    }
    return some_lifted != 0;
}
NEVER_INLINE int softmax_first(float *scores, size_t stride, size_t n_rows,
                               struct attn_visible *visible, float *m, float *l) {
    return softmax_block(scores, stride, n_rows, visible, 1, m, l, NULL);
}
NEVER_INLINE int softmax_next(float *scores, size_t stride, size_t n_rows,
                              struct attn_visible *visible, float *m, float *l, float *factor) {
    return softmax_block(scores, stride, n_rows, visible, 0, m, l, factor);
}

static inline void softmax_rows(float *scores, size_t stride, size_t n_rows,
                                struct attn_visible *visible, float *m, float *l, float *factor) {
    for (size_t r = 0; r < n_rows; r += ATTN_ROW_BLOCK) {
        const size_t n = n_rows - r < ATTN_ROW_BLOCK ? n_rows - r : ATTN_ROW_BLOCK;
        const int some_lifted =
            factor ? softmax_next(scores + r * stride, stride, n, visible + r, m + r, l + r,
                                  factor + r)
                   : softmax_first(scores + r * stride, stride, n, visible + r, m + r, l + r);
        if (some_lifted)
            visible[0].alike = 0;
    }
}

#endif
