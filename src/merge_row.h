/* Merging the states of two key ranges of one row, on the vectors of vec.h.
 *
 * Include after vec.h. What it computes is defined at merge_rows in kernels.h.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_MERGE_ROW_H
#define ATTN_MERGE_ROW_H

#include <math.h>
#include <stddef.h>

#include "exp_nonpositive.h"

static inline void merge_row(size_t v_dim, float *acc_a, float *m_a, float *l_a, const float *acc_b,
                             float m_b, float l_b) {
    const float m = *m_a > m_b ? *m_a : m_b;
    const vf z = vf_set1(m == -INFINITY ? 0.0f : m);
    const vf e_a = exp_nonpositive(vf_sub(vf_set1(*m_a), z));
    const vf e_b = exp_nonpositive(vf_sub(vf_set1(m_b), z));
    size_t c = 0;
    for (; c + VF_LANES <= v_dim; c += VF_LANES) {
        const vf b = vf_mul(vf_load(acc_b + c), e_b);
        vf_store(acc_a + c, vf_fma(vf_load(acc_a + c), e_a, b));
    }
    if (c < v_dim) {
        const size_t left = v_dim - c;
        const vf b = vf_mul(vf_load_first(acc_b + c, left), e_b);
        vf_store_first(acc_a + c, vf_fma(vf_load_first(acc_a + c, left), e_a, b), left);
    }
    *m_a = m;
    *l_a = vf_first(vf_fma(vf_set1(*l_a), e_a, vf_mul(vf_set1(l_b), e_b)));
}

static inline void merge_rows(size_t n_rows, size_t v_dim, float *acc_a, float *m_a, float *l_a,
                              const float *acc_b, const float *m_b, const float *l_b,
                              size_t acc_stride) {
    for (size_t r = 0; r < n_rows; r++)
        merge_row(v_dim, acc_a + r * acc_stride, &m_a[r], &l_a[r], acc_b + r * acc_stride, m_b[r],
                  l_b[r]);
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

#endif
