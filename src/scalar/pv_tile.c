/* Accumulates the weighted values of a tile.
 *
 * SPDX-License-Identifier: MIT */
#include "scalar.h"

void attn_pv_tile_f32_scalar(const float *weights, size_t weight_stride,
                             const struct attn_visible *visible, size_t n_rows, const float *values,
                             int64_t value_stride, size_t v_dim, const float *factor, float *acc,
                             size_t acc_stride, struct attn_later *later) {
    (void)later;
    for (size_t r = 0; r < n_rows; r++) {
        float *a = acc + r * acc_stride;
        for (size_t c = 0; c < v_dim; c++)
            a[c] = factor ? a[c] * factor[r] : -0.0f;
        const struct attn_visible see = visible[r];
        for (int32_t j = see.begin; j <= see.end; j++) {
            for (size_t c = 0; j > see.begin && j == see.lifted && c < v_dim; c++)
                a[c] *= 1 / ATTN_LIFT;
            if (j == see.end || !sees(see, j))
                continue;
            const float w = weights[r * weight_stride + (size_t)j];
            const float *v = values + j * value_stride;
            for (size_t c = 0; c < v_dim; c++)
                a[c] += w * v[c];
        }
    }
}

void attn_pv_ending_f32_scalar(const float *weights, size_t weight_stride,
                               const struct attn_visible *visible, size_t n_rows,
                               const float *values, int64_t value_stride, size_t v_dim,
                               const float *factor, float *acc, size_t acc_stride,
                               const struct attn_ending *ending, struct attn_later *later) {
    attn_pv_tile_f32_scalar(weights, weight_stride, visible, n_rows, values, value_stride, v_dim,
                            factor, acc, acc_stride, later);
    for (size_t r = 0; r < n_rows; r++)
        for (size_t c = 0; c < v_dim; c++) {
            float x = acc[r * acc_stride + c];
            if (ending->past)
                x = ending->past[r * acc_stride + c] * ending->keep[r] + x * ending->add[r];
            ending->out[r][c] = x * ending->finish[r];
        }
}
