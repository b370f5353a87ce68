/* Weights times values, added to the accumulators of a tile's rows.
 *
 * SPDX-License-Identifier: MIT */
#include "neon.h"
#include "pv_ranges.h"

#include "merge_row.h"
#include "pv_masked.h"

void attn_pv_tile_f32_neon(const float *weights, size_t weight_stride,
                           const struct attn_visible *visible, size_t n_rows, const float *values,
                           int64_t value_stride, size_t v_dim, const float *factor, float *acc,
                           size_t acc_stride, struct attn_later *later) {
    pv_visible(pv_ranges, weights, weight_stride, visible, n_rows, values, value_stride, v_dim,
               factor, acc, acc_stride, later);
}

void attn_pv_ending_f32_neon(const float *weights, size_t weight_stride,
                             const struct attn_visible *visible, size_t n_rows, const float *values,
                             int64_t value_stride, size_t v_dim, const float *factor, float *acc,
                             size_t acc_stride, const struct attn_ending *ending,
                             struct attn_later *later) {
    attn_pv_tile_f32_neon(weights, weight_stride, visible, n_rows, values, value_stride, v_dim,
                          factor, acc, acc_stride, later);
    end_rows(n_rows, v_dim, acc, acc_stride, ending);
}
