/* The gradient's own steps: weights and their gradient from scores, and what turns a tile.
 *
 * SPDX-License-Identifier: MIT */
#include "exp_scalar.h"
#include "scalar.h"

float attn_dot_f32_scalar(const float *a, const float *b, size_t n) {
    float sum = 0;
    for (size_t c = 0; c < n; c++)
        sum += a[c] * b[c];
    return sum;
}

void attn_gradient_rows_f32_scalar(float *scores, float *dweights, const float *capped,
                                   size_t stride, size_t n_rows, const struct attn_visible *visible,
                                   const float *lse, const float *delta, float cap) {
    for (size_t r = 0; r < n_rows; r++)
        for (int32_t i = visible[r].begin; i < visible[r].end; i++) {
            if (!sees(visible[r], i))
                continue;
            const size_t at = r * stride + (size_t)i;
            scores[at] = exp_scalar(scores[at] - lse[i]);
            dweights[at] = scores[at] * (dweights[at] - delta[i]);
            if (capped) {
                const float t = capped[at] / cap;
                dweights[at] *= 1 - t * t;
            }
        }
}

void attn_softmax_gradient_f32_scalar(const float *w, const float *dw, float delta, size_t n,
                                      float *ds) {
    for (size_t j = 0; j < n; j++)
        ds[j] = w[j] * (dw[j] - delta);
}

void attn_transpose_f32_scalar(const float *x, size_t stride, size_t n_rows, size_t n_columns,
                               float *out, size_t out_stride) {
    for (size_t r = 0; r < n_rows; r++)
        for (size_t c = 0; c < n_columns; c++)
            out[c * out_stride + r] = x[r * stride + c];
}
