/* Merges the states of two key ranges, and scales a finished row, 8 features at a time.
 *
 * SPDX-License-Identifier: MIT */
#include "avx2.h"
#include "vec.h"

#include "merge_row.h"

void attn_merge_rows_f32_avx2(size_t n_rows, size_t v_dim, float *acc_a, float *m_a, float *l_a,
                              const float *acc_b, const float *m_b, const float *l_b,
                              size_t acc_stride) {
    for (size_t r = 0; r < n_rows; r++)
        merge_row(v_dim, acc_a + r * acc_stride, &m_a[r], &l_a[r], acc_b + r * acc_stride, m_b[r],
                  l_b[r]);
}

void attn_scale_row_f32_avx2(const float *x, float factor, size_t n, float *out) {
    scale_row(x, factor, n, out);
}
