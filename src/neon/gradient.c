/* The gradient's own steps: weights and their gradient from scores, and what turns a tile.
 *
 * SPDX-License-Identifier: MIT */
#include "neon.h"
#include "vec.h"

#include "exp4.h"
#include "transpose.h"

#define SOFTMAX_EXP(x) exp4_nonpositive(x)
#include "gradient_row.h"

float attn_dot_f32_neon(const float *a, const float *b, size_t n) { return dot_row(a, b, n); }

void attn_gradient_rows_f32_neon(float *scores, float *dweights, const float *capped, size_t stride,
                                 size_t n_rows, const struct attn_visible *visible,
                                 const float *lse, const float *delta, float cap) {
    gradient_rows(scores, dweights, capped, stride, n_rows, visible, lse, delta, cap);
}

void attn_softmax_gradient_f32_neon(const float *w, const float *dw, float delta, size_t n,
                                    float *ds) {
    softmax_gradient(w, dw, delta, n, ds);
}

void attn_transpose_f32_neon(const float *x, size_t stride, size_t n_rows, size_t n_columns,
                             float *out, size_t out_stride) {
    for (size_t r = 0; r < n_rows; r += VF_LANES)
        for (size_t c = 0; c < n_columns; c += VF_LANES) {
            vf y[VF_LANES];
            UNROLL
            for (size_t i = 0; i < VF_LANES; i++)
                y[i] = vf_load(x + (r + i) * stride + c);
            transpose_4x4(y);
            UNROLL
            for (size_t i = 0; i < VF_LANES; i++)
                vf_store(out + (c + i) * out_stride + r, y[i]);
        }
}
