/* The NEON kernel set.
 *
 * SPDX-License-Identifier: MIT */
#include "neon.h"
#include "required_features.h"

const struct attn_kernels attn_kernels_neon = {
    .name = "neon",
    .required = ATTN_REQUIRED_FEATURES,
    .pack_min_rows = 8,
    .pack_keys = attn_pack_keys_f32_neon,
    .qk_packed = attn_qk_packed_f32_neon,
    .qk_strided = attn_qk_strided_f32_neon,
    .softmax_rows = attn_softmax_rows_f32_neon,
    .pv_tile = attn_pv_tile_f32_neon,
    .merge_rows = attn_merge_rows_f32_neon,
    .scale_row = attn_scale_row_f32_neon,
};
