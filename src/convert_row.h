/* Rows of the storage types to and from f32, on the vectors of vec.h: vf_load_f16 and the like
 * there convert one vector, the rest of a row goes through half.h, to the same bits.
 *
 * Include after vec.h. What it computes is defined at widen_f16 and narrow_f16 in kernels.h.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_CONVERT_ROW_H
#define ATTN_CONVERT_ROW_H

#include <stddef.h>
#include <stdint.h>

#include "half.h"

static inline void widen_row_f16(const uint16_t *x, size_t n, float *out) {
    size_t c = 0;
    for (; c + VF_LANES <= n; c += VF_LANES)
        vf_store(out + c, vf_load_f16(x + c));
    for (; c < n; c++)
        out[c] = float_of_f16(x[c]);
}

static inline void widen_row_bf16(const uint16_t *x, size_t n, float *out) {
    size_t c = 0;
    for (; c + VF_LANES <= n; c += VF_LANES)
        vf_store(out + c, vf_load_bf16(x + c));
    for (; c < n; c++)
        out[c] = float_of_bf16(x[c]);
}

static inline void widen_row_i8(const int8_t *x, size_t n, float scale, float *out) {
    const vf scales = vf_set1(scale);
    size_t c = 0;
    for (; c + VF_LANES <= n; c += VF_LANES)
        vf_store(out + c, vf_mul(vf_load_i8(x + c), scales));
    for (; c < n; c++)
        out[c] = (float)x[c] * scale;
}

static inline void narrow_row_f16(const float *x, size_t n, uint16_t *out) {
    size_t c = 0;
    for (; c + VF_LANES <= n; c += VF_LANES)
        vf_store_f16(out + c, vf_load(x + c));
    for (; c < n; c++)
        out[c] = f16_of_float(x[c]);
}

static inline void narrow_row_bf16(const float *x, size_t n, uint16_t *out) {
    size_t c = 0;
    for (; c + VF_LANES <= n; c += VF_LANES)
        vf_store_bf16(out + c, vf_load(x + c));
    for (; c < n; c++)
        out[c] = bf16_of_float(x[c]);
}

static inline void widen_rows_f16(const uint16_t *x, int64_t stride, size_t n_rows, size_t n,
                                  float *out, size_t out_stride) {
    for (size_t r = 0; r < n_rows; r++)
        widen_row_f16(x + (int64_t)r * stride, n, out + r * out_stride);
}

static inline void widen_rows_bf16(const uint16_t *x, int64_t stride, size_t n_rows, size_t n,
                                   float *out, size_t out_stride) {
    for (size_t r = 0; r < n_rows; r++)
        widen_row_bf16(x + (int64_t)r * stride, n, out + r * out_stride);
}

static inline void widen_rows_i8(const int8_t *x, int64_t stride, size_t n_rows, size_t n,
                                 const float *scales, int64_t scale_stride, float *out,
                                 size_t out_stride) {
    for (size_t r = 0; r < n_rows; r++)
        widen_row_i8(x + (int64_t)r * stride, n, scales[(int64_t)r * scale_stride],
                     out + r * out_stride);
}

#endif
