/* The storage types, at the edges of the computation.
 *
 * SPDX-License-Identifier: MIT */
#include "half.h"
#include "scalar.h"

void attn_widen_f16_scalar(const uint16_t *x, int64_t stride, size_t n_rows, size_t n, float *out,
                           size_t out_stride) {
    for (size_t r = 0; r < n_rows; r++)
        for (size_t c = 0; c < n; c++)
            out[r * out_stride + c] = float_of_f16(x[(int64_t)r * stride + (int64_t)c]);
}

void attn_widen_bf16_scalar(const uint16_t *x, int64_t stride, size_t n_rows, size_t n, float *out,
                            size_t out_stride) {
    for (size_t r = 0; r < n_rows; r++)
        for (size_t c = 0; c < n; c++)
            out[r * out_stride + c] = float_of_bf16(x[(int64_t)r * stride + (int64_t)c]);
}

void attn_widen_i8_scalar(const int8_t *x, int64_t stride, size_t n_rows, size_t n,
                          const float *scales, int64_t scale_stride, float *out,
                          size_t out_stride) {
    for (size_t r = 0; r < n_rows; r++)
        for (size_t c = 0; c < n; c++)
            out[r * out_stride + c] =
                (float)x[(int64_t)r * stride + (int64_t)c] * scales[(int64_t)r * scale_stride];
}

void attn_narrow_f16_scalar(const float *x, size_t n, uint16_t *out) {
    for (size_t c = 0; c < n; c++)
        out[c] = f16_of_float(x[c]);
}

void attn_narrow_bf16_scalar(const float *x, size_t n, uint16_t *out) {
    for (size_t c = 0; c < n; c++)
        out[c] = bf16_of_float(x[c]);
}
