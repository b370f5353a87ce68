/* The storage types, at the edges of the computation.
 *
 * SPDX-License-Identifier: MIT */
#include "avx2.h"
#include "vec.h"

#include "convert_row.h"

void attn_widen_f16_avx2(const uint16_t *x, int64_t stride, size_t n_rows, size_t n, float *out,
                         size_t out_stride) {
    widen_rows_f16(x, stride, n_rows, n, out, out_stride);
}

void attn_widen_bf16_avx2(const uint16_t *x, int64_t stride, size_t n_rows, size_t n, float *out,
                          size_t out_stride) {
    widen_rows_bf16(x, stride, n_rows, n, out, out_stride);
}

void attn_widen_i8_avx2(const int8_t *x, int64_t stride, size_t n_rows, size_t n,
                        const float *scales, int64_t scale_stride, float *out, size_t out_stride) {
    widen_rows_i8(x, stride, n_rows, n, scales, scale_stride, out, out_stride);
}

void attn_narrow_f16_avx2(const float *x, size_t n, uint16_t *out) { narrow_row_f16(x, n, out); }

void attn_narrow_bf16_avx2(const float *x, size_t n, uint16_t *out) { narrow_row_bf16(x, n, out); }
