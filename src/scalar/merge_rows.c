/* Merges the states of two key ranges, and scales finished rows.
 *
 * SPDX-License-Identifier: MIT */
#include "exp_scalar.h"
#include "scalar.h"

void attn_merge_factors_f32_scalar(size_t n_rows, float *m_a, float *l_a, const float *m_b,
                                   const float *l_b, float *e_a, float *e_b) {
    for (size_t r = 0; r < n_rows; r++) {
        const float m = m_a[r] > m_b[r] ? m_a[r] : m_b[r];
        const float z = m == -INFINITY ? 0 : m;
        e_a[r] = exp_scalar(m_a[r] - z), e_b[r] = exp_scalar(m_b[r] - z);
        m_a[r] = m;
        l_a[r] = l_a[r] * e_a[r] + l_b[r] * e_b[r];
    }
}

void attn_merge_rows_f32_scalar(size_t n_rows, size_t v_dim, float *acc_a, float *m_a, float *l_a,
                                const float *acc_b, const float *m_b, const float *l_b,
                                size_t acc_stride) {
    for (size_t r = 0; r < n_rows; r++) {
        float e_a, e_b, *a = acc_a + r * acc_stride;
        const float *b = acc_b + r * acc_stride;
        attn_merge_factors_f32_scalar(1, &m_a[r], &l_a[r], &m_b[r], &l_b[r], &e_a, &e_b);
        for (size_t c = 0; c < v_dim; c++)
            a[c] = a[c] * e_a + b[c] * e_b;
    }
}

void attn_scale_rows_f32_scalar(size_t n_rows, const float *x, size_t x_stride, const float *factor,
                                size_t n, float *const *out) {
    for (size_t r = 0; r < n_rows; r++)
        for (size_t c = 0; c < n; c++)
            out[r][c] = x[r * x_stride + c] * factor[r];
}

bool attn_finish_factors_f32_scalar(size_t n_rows, const float *l, float *factor) {
    bool all_above = true;
    for (size_t r = 0; r < n_rows; r++) {
        factor[r] = 1 / l[r];
        all_above &= l[r] > 0;
    }
    return all_above;
}
