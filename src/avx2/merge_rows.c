/* Merges the states of two key ranges, and scales finished rows.
 *
 * SPDX-License-Identifier: MIT */
#include "avx2.h"
#include "vec.h"

#include "merge_row.h"

void attn_merge_rows_f32_avx2(size_t n_rows, size_t v_dim, float *acc_a, float *m_a, float *l_a,
                              const float *acc_b, const float *m_b, const float *l_b,
                              size_t acc_stride) {
    merge_rows(n_rows, v_dim, acc_a, m_a, l_a, acc_b, m_b, l_b, acc_stride);
}

void attn_scale_rows_f32_avx2(size_t n_rows, const float *x, size_t x_stride, const float *factor,
                              size_t n, float *const *out) {
    scale_rows(n_rows, x, x_stride, factor, n, out);
}

void attn_merge_factors_f32_avx2(size_t n_rows, float *m_a, float *l_a, const float *m_b,
                                 const float *l_b, float *e_a, float *e_b) {
    merge_factors(n_rows, m_a, l_a, m_b, l_b, e_a, e_b);
}

bool attn_finish_factors_f32_avx2(size_t n_rows, const float *l, float *factor) {
    return finish_factors(n_rows, l, factor);
}
