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

/* exp, the maximum and the sum of SOFTMAX_VECTORS vectors at once; a set may have its own way to the
 * same bits. */
#ifndef SOFTMAX_EXP
#define SOFTMAX_EXP(x) exp_nonpositive_n(SOFTMAX_VECTORS, x)
#endif
#ifndef SOFTMAX_REDUCE_MAX
#define SOFTMAX_REDUCE_MAX(x, out) SOFTMAX_REDUCE(vf_reduce_max, x, out)
#define SOFTMAX_REDUCE_ADD(x, out) SOFTMAX_REDUCE(vf_reduce_add, x, out)
#define SOFTMAX_REDUCE(reduce, x, out)                                                             \
    do {                                                                                           \
        UNROLL                                                                                     \
        for (int i = 0; i < SOFTMAX_VECTORS; i++)                                                  \
            (out)[i] = reduce((x)[i]);                                                             \
    } while (0)
#endif

ALWAYS_INLINE void max_of_four(const float *s, vf *m) {
    UNROLL
    for (int i = 0; i < 4; i++)
        m[i] = vf_max_number(vf_load(s + i * VF_LANES), m[i]);
}

/* The maximum of the visible scores, NaN not counting; -inf if there is none. Four accumulators,
 * because a maximum has no order of arithmetic to keep. */
static inline float visible_max(const float *s, int32_t begin, int32_t end) {
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
    return vf_reduce_max(vf_max_number(vf_max_number(m[0], m[1]), vf_max_number(m[2], m[3])));
}

/* The same where bits say which keys of the range are visible. The others become -inf on the way:
 * what follows then gives them weight 0, which adds nothing to the sum, as it does to those that a
 * range hides. */
static inline float visible_max_of_bits(float *s, struct attn_visible see) {
    const vf none = vf_set1(-INFINITY);
    vf max = none;
    for (int32_t j = see.begin & -VF_LANES; j < see.end; j += VF_LANES) {
        vf x = vf_select(vm_bits(see.bits, j), vf_load(s + j), none);
        if (j < see.begin || j + VF_LANES > see.end)
            x = vf_select(vm_range(j, see.begin, see.end), x, none);
        vf_store(s + j, x);
        max = vf_max_number(x, max);
    }
    return vf_reduce_max(max);
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

/* s = exp(s - z) where visible; returns the sum. */
static inline float exponentials(float *s, int32_t begin, int32_t end, float row_z) {
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
    return vf_reduce_add(sum);
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

/* Fewer rows than this take their steps one by one: as a vector they would have to wait until each
 * one's store of a single number is in the cache. */
enum { ROWS_WORTH_A_VECTOR = (VF_LANES + 3) / 4 };

/* The new maxima of rows that see scores up to `seen`, what to subtract from their scores, and the
 * factors that follow. Where all scores so far are -inf, subtracting that would make NaN of them; a
 * number gives them weight 0. */
struct raised {
    vf m, z, factor;
};
ALWAYS_INLINE struct raised raise_maximum(vf seen, vf old) {
    const vf new = vf_max_number(seen, old), z = vf_max_number(new, vf_set1(-FLT_MAX));
    const vf factor = exp_nonpositive(vf_sub(old, z));
    return (struct raised){new, z, vf_select(vf_equal(new, old), vf_set1(1.0f), factor)};
}

/* seen, z and factor have room for whole vectors. */
static inline void raise_maxima(size_t n_rows, const float *seen, float *m, float *z,
                                float *factor) {
    size_t r = 0;
    for (; r + ROWS_WORTH_A_VECTOR <= n_rows; r += VF_LANES) {
        const size_t n = n_rows - r;
        const struct raised to = raise_maximum(vf_load(seen + r), load_rows(m + r, n));
        vf_store(z + r, to.z);
        vf_store(factor + r, to.factor);
        store_rows(m + r, to.m, n);
    }
    for (; r < n_rows; r++) {
        const struct raised to = raise_maximum(vf_set1(seen[r]), vf_set1(m[r]));
        m[r] = vf_first(to.m), z[r] = vf_first(to.z), factor[r] = vf_first(to.factor);
    }
}

/* The new sums of rows whose weights add up to `sum`, with room for whole vectors. */
static inline void add_sums(size_t n_rows, const float *sum, const float *factor, float *l) {
    size_t r = 0;
    for (; r + ROWS_WORTH_A_VECTOR <= n_rows; r += VF_LANES) {
        const size_t n = n_rows - r;
        const vf past = load_rows(l + r, n);
        store_rows(l + r, vf_fma(past, vf_load(factor + r), vf_load(sum + r)), n);
    }
    for (; r < n_rows; r++)
        l[r] = vf_first(vf_fma(vf_set1(l[r]), vf_set1(factor[r]), vf_set1(sum[r])));
}

/* Lifts the first weights of a row if it needs that; returns its factor. */
static inline float lift_row(float *w, struct attn_visible *see, float factor) {
    see->lifted = 0;
    if (factor >= ATTN_LIFT_BELOW || w[see->begin] >= ATTN_LIFT_BELOW || see->bits)
        return factor;
    see->lifted = lift(w, see->begin, see->end);
    return see->lifted ? factor * ATTN_LIFT : factor;
}

/* ---- Rows that see the same keys ------------------------------------------------------------- */

/* A row's maximum and its sum end in a chain across the lanes. That of a few rows at once is not
 * much longer. */
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
                                float *seen) {
    vf max[SOFTMAX_ROWS];
    UNROLL
    for (int i = 0; i < SOFTMAX_ROWS; i++)
        max[i] = vf_set1(-INFINITY);
    int32_t j = begin;
    for (; j < (end & -VF_LANES); j += VF_LANES)
        max_step(scores, stride, j, j + VF_LANES, max);
    if (j < end)
        max_step(scores, stride, j, end, max);
    SOFTMAX_REDUCE_MAX(max, seen);
}
static inline void exp_of_alike(float *scores, size_t stride, int32_t begin, int32_t end,
                                const float *row_z, float *sum) {
    vf z[SOFTMAX_ROWS], part[SOFTMAX_ROWS];
    UNROLL
    for (int i = 0; i < SOFTMAX_ROWS; i++)
        z[i] = vf_set1(row_z[i]), part[i] = vf_set1(0.0f);
    int32_t j = begin;
    for (; j < (end & -VF_LANES); j += VF_LANES)
        exp_step(scores, stride, j, j + VF_LANES, z, part);
    if (j < end)
        exp_step(scores, stride, j, end, z, part);
    SOFTMAX_REDUCE_ADD(part, sum);
}

#endif

/* ---------------------------------------------------------------------------------------------- */

/* How many of the next n_rows rows are worked on together. */
static inline size_t rows_together(const struct attn_visible *visible, size_t n_rows,
                                   int all_together) {
#ifndef SOFTMAX_APART
    if (n_rows >= SOFTMAX_ROWS && (all_together || rows_go_together(visible, SOFTMAX_ROWS)))
        return SOFTMAX_ROWS;
#endif
    (void)visible, (void)n_rows, (void)all_together;
    return 1;
}

static inline void max_of_rows(float *scores, size_t stride, size_t n,
                               const struct attn_visible *visible, float *seen) {
    const struct attn_visible see = visible[0];
#ifndef SOFTMAX_APART
    if (n > 1) {
        max_of_alike(scores, stride, see.begin, see.end, seen);
        return;
    }
#endif
    (void)stride, (void)n;
    *seen = see.begin >= see.end ? -INFINITY
            : see.bits           ? visible_max_of_bits(scores, see)
                                 : visible_max(scores, see.begin, see.end);
}

static inline void exp_of_rows(float *scores, size_t stride, size_t n,
                               const struct attn_visible *visible, const float *z, float *sum) {
    const struct attn_visible see = visible[0];
#ifndef SOFTMAX_APART
    if (n > 1) {
        exp_of_alike(scores, stride, see.begin, see.end, z, sum);
        return;
    }
#endif
    (void)stride, (void)n;
    *sum = see.begin < see.end ? exponentials(scores, see.begin, see.end, *z) : 0;
}

/* At most ATTN_ROW_BLOCK rows. First the maxima of all, then the exponentials of all: what is a chain
 * in one row has the others to overlap with. */
NEVER_INLINE void softmax_block(float *scores, size_t stride, size_t n_rows,
                                struct attn_visible *visible, float *m, float *l, float *factor) {
    enum { ROOM = ATTN_ROW_BLOCK + VF_LANES };
    float seen[ROOM], z[ROOM], sum[ROOM], f[ROOM];
#ifdef SOFTMAX_APART
    const int all_together = 0;
#else
    const int all_together = rows_go_together(visible, n_rows);
#endif
    const size_t last_rows = n_rows & -(size_t)VF_LANES; /* there is room for as many as a vector */
    vf_store(seen + last_rows, vf_set1(0.0f));
    vf_store(sum + last_rows, vf_set1(0.0f));
    for (size_t r = 0, n; r < n_rows; r += n) {
        n = rows_together(visible + r, n_rows - r, all_together);
        max_of_rows(scores + r * stride, stride, n, visible + r, seen + r);
    }
    raise_maxima(n_rows, seen, m, z, f);
    for (size_t r = 0, n; r < n_rows; r += n) {
        n = rows_together(visible + r, n_rows - r, all_together);
        exp_of_rows(scores + r * stride, stride, n, visible + r, z + r, sum + r);
    }
    add_sums(n_rows, sum, f, l);
    for (size_t r = 0; r < n_rows; r++)
        factor[r] = lift_row(scores + r * stride, &visible[r], f[r]);
}

static inline void softmax_rows(float *scores, size_t stride, size_t n_rows,
                                struct attn_visible *visible, float *m, float *l, float *factor) {
    for (size_t r = 0; r < n_rows; r += ATTN_ROW_BLOCK) {
        const size_t n = n_rows - r < ATTN_ROW_BLOCK ? n_rows - r : ATTN_ROW_BLOCK;
        softmax_block(scores + r * stride, stride, n, visible + r, m + r, l + r, factor + r);
    }
}

#endif
