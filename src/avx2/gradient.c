/* The gradient's own steps: weights and their gradient from scores, and what turns a tile.
 *
 * SPDX-License-Identifier: MIT */
#include "avx2.h"
#include "vec.h"

#include "transpose.h"

#include "gradient_row.h"
#include "transpose_scratch.h"

float attn_dot_f32_avx2(const float *a, const float *b, size_t n) { return dot_row(a, b, n); }

void attn_gradient_rows_f32_avx2(float *scores, float *dweights, const float *capped, size_t stride,
                                 size_t n_rows, const struct attn_visible *visible,
                                 const float *lse, const float *delta, float cap) {
    gradient_rows(scores, dweights, capped, stride, n_rows, visible, lse, delta, cap);
}

void attn_softmax_gradient_f32_avx2(const float *w, const float *dw, float delta, size_t n,
                                    float *ds) {
    softmax_gradient(w, dw, delta, n, ds);
}

void attn_transpose_f32_avx2(const float *x, size_t stride, size_t n_rows, size_t n_columns,
                             float *out, size_t out_stride) {
    transpose_scratch(x, stride, n_rows, n_columns, out, out_stride);
}
