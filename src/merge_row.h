/* Merging the states of two key ranges of one row, on the vectors of vec.h.
 *
 * Include after vec.h. What it computes is defined at merge_rows in kernels.h.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_MERGE_ROW_H
#define ATTN_MERGE_ROW_H

#include <float.h>
#include <stddef.h>

#include "exp_nonpositive.h"
#include "kernels.h"
#include "row_vectors.h"

static inline void merge_factors(size_t n_rows, float *m_a, float *l_a, const float *m_b,
                                 const float *l_b, float *e_a, float *e_b) {
    for (size_t r = 0; r < n_rows; r += VF_LANES) {
        const size_t n = n_rows - r;
        const vf a = load_rows(m_a + r, n), b = load_rows(m_b + r, n), m = vf_max_number(a, b);
        const vf z = vf_max_number(m, vf_set1(-FLT_MAX)); /* exp(-inf - z) is 0 then, too */
        const vf of_a = exp_nonpositive(vf_sub(a, z)), of_b = exp_nonpositive(vf_sub(b, z));
        const vf added = vf_mul(load_rows(l_b + r, n), of_b);
        store_rows(l_a + r, vf_fma(load_rows(l_a + r, n), of_a, added), n);
        store_rows(m_a + r, m, n);
        store_rows(e_a + r, of_a, n);
        store_rows(e_b + r, of_b, n);
    }
}

static inline bool finish_factors(size_t n_rows, const float *l, float *factor) {
    bool all_above = true;
    size_t r = 0;
    for (; r + ROWS_WORTH_A_VECTOR <= n_rows; r += VF_LANES) {
        const size_t n = n_rows - r;
        vf x = load_rows(l + r, n);
        if (n < VF_LANES)
            x = vf_select(vm_range(0, 0, (int32_t)n), x, vf_set1(1.0f));
        all_above &= vf_all_below(vf_sub(vf_set1(0.0f), x), 0) != 0;
        store_rows(factor + r, vf_reciprocal(x), n);
    }
    for (; r < n_rows; r++) {
        factor[r] = 1 / l[r];
        all_above &= l[r] > 0;
    }
    return all_above;
}

/* out = finish * (past * keep + x * add): sums of one row, the earlier and the later ones. out may be
 * either of them. */
static inline void join_row(size_t v_dim, const float *past, float row_keep, const float *x,
                            float row_add, float row_finish, float *out) {
    const vf keep = vf_set1(row_keep), add = vf_set1(row_add), finish = vf_set1(row_finish);
    size_t c = 0;
    for (; c + VF_LANES <= v_dim; c += VF_LANES) {
        const vf sum = vf_fma(vf_load(past + c), keep, vf_mul(vf_load(x + c), add));
        vf_store(out + c, vf_mul(sum, finish));
    }
    if (c < v_dim) {
        const size_t left = v_dim - c;
        const vf sum =
            vf_fma(vf_load_first(past + c, left), keep, vf_mul(vf_load_first(x + c, left), add));
        vf_store_first(out + c, vf_mul(sum, finish), left);
    }
}

static inline void merge_rows(size_t n_rows, size_t v_dim, float *acc_a, float *m_a, float *l_a,
                              const float *acc_b, const float *m_b, const float *l_b,
                              size_t acc_stride) {
    float e_a[ATTN_ROW_BLOCK], e_b[ATTN_ROW_BLOCK];
    for (size_t first = 0, n; first < n_rows; first += n) {
        n = n_rows - first < ATTN_ROW_BLOCK ? n_rows - first : ATTN_ROW_BLOCK;
        merge_factors(n, m_a + first, l_a + first, m_b + first, l_b + first, e_a, e_b);
        for (size_t i = 0, r = first; i < n; i++, r++)
            join_row(v_dim, acc_a + r * acc_stride, e_a[i], acc_b + r * acc_stride, e_b[i], 1,
                     acc_a + r * acc_stride);
    }
}

static inline void scale_row(const float *x, float factor, size_t n, float *out) {
    enum { VECTORS = 4, STEP = VECTORS * VF_LANES };
    for (; n >= STEP; n -= STEP, x += STEP, out += STEP) {
        vf y[VECTORS];
        UNROLL
        for (int v = 0; v < VECTORS; v++)
            y[v] = vf_mul(vf_load(x + v * VF_LANES), vf_set1(factor));
        UNROLL
        for (int v = 0; v < VECTORS; v++)
            vf_store(out + v * VF_LANES, y[v]);
    }
    size_t c = 0;
    for (; c + VF_LANES <= n; c += VF_LANES)
        vf_store(out + c, vf_mul(vf_load(x + c), vf_set1(factor)));
    if (c < n)
        vf_store_first(out + c, vf_mul(vf_load_first(x + c, n - c), vf_set1(factor)), n - c);
}

static inline void scale_rows(size_t n_rows, const float *x, size_t x_stride, const float *factor,
                              size_t n, float *const *out) {
    for (size_t r = 0; r < n_rows; r++)
        scale_row(x + r * x_stride, factor[r], n, out[r]);
}

/* What an ending says of rows of acc. */
static inline void end_rows(size_t n_rows, size_t v_dim, float *acc, size_t acc_stride,
                            const struct attn_ending *ending) {
    if (!ending->past) {
        scale_rows(n_rows, acc, acc_stride, ending->finish, v_dim, ending->out);
        return;
    }
    for (size_t r = 0; r < n_rows; r++)
        join_row(v_dim, ending->past + r * acc_stride, ending->keep[r], acc + r * acc_stride,
                 ending->add[r], ending->finish[r], ending->out[r]);
}

#endif
