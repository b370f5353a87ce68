/* Accumulates the weighted values of a tile in bf16, two keys at a time.
 *
 * SPDX-License-Identifier: MIT */
#include "neon_bf16.h"
#include "pairs.h"

#include "pv_masked.h"
#include "pv_ranges.h"

#include "pv_lanes.h"

void attn_pv_tile_neon_bf16(const float *weights, size_t weight_stride,
                            const struct attn_visible *visible, size_t n_rows, const float *values,
                            int64_t value_stride, size_t v_dim, const float *factor, float *acc,
                            size_t acc_stride, struct attn_later *later) {
    pv_visible(pv_lane_ranges, weights, weight_stride, visible, n_rows, values, value_stride, v_dim,
               factor, acc, acc_stride, later);
}
