/* The kernels of the AVX-512 set.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_AVX512_H
#define ATTN_AVX512_H

#include "kernels.h"

void attn_pack_keys_f32_avx512(const float *keys, int64_t stride, size_t n_keys, size_t dim,
                               void *packed);
void attn_qk_packed_f32_avx512(const float *const *q, size_t n_rows, const void *packed,
                               size_t n_keys, size_t dim, float scale, float *scores,
                               size_t score_stride);
void attn_qk_strided_f32_avx512(const float *const *q, size_t n_rows, const float *keys,
                                int64_t stride, size_t n_keys, size_t dim, float scale,
                                float *scores, size_t score_stride);
void attn_softmax_rows_f32_avx512(float *scores, size_t score_stride, size_t n_rows,
                                  const struct attn_visible *visible, float *m, float *l,
                                  float *factor);
void attn_pv_tile_f32_avx512(const float *weights, size_t weight_stride,
                             const struct attn_visible *visible, size_t n_rows, const float *values,
                             int64_t value_stride, size_t v_dim, const float *factor, float *acc,
                             size_t acc_stride);
void attn_merge_rows_f32_avx512(size_t n_rows, size_t v_dim, float *acc_a, float *m_a, float *l_a,
                                const float *acc_b, const float *m_b, const float *l_b,
                                size_t acc_stride);
void attn_scale_row_f32_avx512(const float *x, float factor, size_t n, float *out);

#endif
