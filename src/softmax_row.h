/* The fused softmax of the rows of a tile, on the vectors of vec.h: running maximum, subtraction,
 * exponential, running sum and the factor that rescales what the row has accumulated so far
 * (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018).
 *
 * Include after vec.h. What it computes is defined at softmax_rows in kernels.h.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_SOFTMAX_ROW_H
#define ATTN_SOFTMAX_ROW_H

#include <math.h>

#include "exp_nonpositive.h"
#include "kernels.h"

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

/* The new maximum of a row that sees scores up to `seen`, and what follows from it: the factor is
 * returned, *z is what to subtract from the scores. */
static inline float raise_maximum(float seen, float *m, float *z) {
    const float old = *m;
    *m = seen > old ? seen : old;
    /* Where all scores so far are -inf, subtracting -inf would make NaN of them; subtracting 0
     * gives them weight 0. */
    *z = *m == -INFINITY ? 0.0f : *m;
    /* The first tile of a span starts from -inf, and most later ones keep the maximum: the two
     * values of exp that need no computing. */
    if (*m == old)
        return 1;
    return old == -INFINITY ? 0 : vf_first(exp_nonpositive(vf_set1(old - *z)));
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

/* The new sum of a row and, where it is needed, its first weights lifted. */
static inline void add_weights(float *w, float sum, struct attn_visible *see, float *l,
                               float *factor) {
    *l = vf_first(vf_fma(vf_set1(*l), vf_set1(*factor), vf_set1(sum)));
    if (*factor < ATTN_LIFT_BELOW && w[see->begin] < ATTN_LIFT_BELOW && !see->bits) {
        see->lifted = lift(w, see->begin, see->end);
        *factor *= see->lifted ? ATTN_LIFT : 1;
    }
}

/* A row's maximum and its sum are chains across the lanes, longer than a CPU can look ahead. So a
 * few rows are worked on together, while their scores are in the first-level cache: */
enum { SOFTMAX_ROWS = SOFTMAX_VECTORS };

#ifndef SOFTMAX_APART

/* Whether so many rows see the same keys, those of whole vectors and at the end of a part of one. */
static inline int rows_are_alike(const struct attn_visible *visible) {
    int alike = visible[0].begin % VF_LANES == 0 && visible[0].begin < visible[0].end;
    for (int i = 0; i < SOFTMAX_ROWS; i++)
        alike &= visible[i].begin == visible[0].begin && visible[i].end == visible[0].end &&
                 !visible[i].bits;
    return alike;
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

/* Rows that are alike: the vectors of the same keys one after the other. */
static inline void softmax_alike(float *scores, size_t stride, struct attn_visible *visible,
                                 float *m, float *l, float *factor) {
    const int32_t begin = visible[0].begin, end = visible[0].end, body_end = end & -VF_LANES;
    vf part[SOFTMAX_ROWS], z[SOFTMAX_ROWS];
    float reduced[SOFTMAX_ROWS];
    int32_t j = begin;
    UNROLL
    for (int i = 0; i < SOFTMAX_ROWS; i++)
        part[i] = vf_set1(-INFINITY);
    for (; j < body_end; j += VF_LANES)
        max_step(scores, stride, j, j + VF_LANES, part);
    if (j < end)
        max_step(scores, stride, j, end, part);
    SOFTMAX_REDUCE_MAX(part, reduced);
    UNROLL
    for (int i = 0; i < SOFTMAX_ROWS; i++) {
        float row_z;
        factor[i] = raise_maximum(reduced[i], &m[i], &row_z);
        z[i] = vf_set1(row_z);
        part[i] = vf_set1(0.0f);
    }
    for (j = begin; j < body_end; j += VF_LANES)
        exp_step(scores, stride, j, j + VF_LANES, z, part);
    if (j < end)
        exp_step(scores, stride, j, end, z, part);
    SOFTMAX_REDUCE_ADD(part, reduced);
    UNROLL
    for (int i = 0; i < SOFTMAX_ROWS; i++)
        add_weights(scores + (size_t)i * stride, reduced[i], &visible[i], &l[i], &factor[i]);
}

#endif

/* Others: first the maxima of all, then the exponentials of all. */
static inline void softmax_each(float *scores, size_t stride, size_t n_rows,
                                struct attn_visible *visible, float *m, float *l, float *factor) {
    float z[SOFTMAX_ROWS];
    for (size_t i = 0; i < n_rows; i++) {
        float *s = scores + i * stride;
        const struct attn_visible see = visible[i];
        factor[i] = 1;
        if (see.begin < see.end)
            factor[i] = raise_maximum(see.bits ? visible_max_of_bits(s, see)
                                               : visible_max(s, see.begin, see.end),
                                      &m[i], &z[i]);
    }
    for (size_t i = 0; i < n_rows; i++) {
        float *s = scores + i * stride;
        const struct attn_visible see = visible[i];
        if (see.begin < see.end)
            add_weights(s, exponentials(s, see.begin, see.end, z[i]), &visible[i], &l[i],
                        &factor[i]);
    }
}

static inline void softmax_rows(float *scores, size_t score_stride, size_t n_rows,
                                struct attn_visible *visible, float *m, float *l, float *factor) {
    for (size_t r = 0; r < n_rows; r++)
        visible[r].lifted = 0;
    for (size_t r = 0; r < n_rows; r += SOFTMAX_ROWS) {
        float *s = scores + r * score_stride;
        const size_t n = n_rows - r < SOFTMAX_ROWS ? n_rows - r : SOFTMAX_ROWS;
#ifndef SOFTMAX_APART
        if (n == SOFTMAX_ROWS && rows_are_alike(visible + r)) {
            softmax_alike(s, score_stride, visible + r, m + r, l + r, factor + r);
            continue;
        }
#endif
        softmax_each(s, score_stride, n, visible + r, m + r, l + r, factor + r);
    }
}

#endif
