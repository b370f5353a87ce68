/* Accumulates the weighted values of a tile.
 *
 * SPDX-License-Identifier: MIT */
#include "avx512.h"

#include "pv_blocks.h"
#include "pv_masked.h"

void attn_pv_tile_f32_avx512(const float *weights, size_t weight_stride,
                             const struct attn_visible *visible, size_t n_rows, const float *values,
                             int64_t value_stride, size_t v_dim, const float *factor, float *acc,
                             size_t acc_stride, struct attn_later *later) {
    pv_visible(pv_ranges, weights, weight_stride, visible, n_rows, values, value_stride, v_dim,
               factor, acc, acc_stride, later);
}

DEFINE_PV_ENDING(attn_pv_ending_f32_avx512, attn_pv_tile_f32_avx512, pv_set)
