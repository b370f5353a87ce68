/* The scalar kernel set: plain loops and libm, the definition that every other set is checked
 * against.
 *
 * SPDX-License-Identifier: MIT */
#include "required_features.h"
#include "scalar.h"

const struct attn_kernels attn_kernels_scalar = {
    .name = "scalar",
    .required = ATTN_REQUIRED_FEATURES,
    .pack_min_rows = 2,
    .pack_keys = attn_pack_keys_f32_scalar,
    .qk_packed = attn_qk_packed_f32_scalar,
    .qk_strided = attn_qk_strided_f32_scalar,
    .softmax_rows = attn_softmax_rows_f32_scalar,
    .pv_tile = attn_pv_tile_f32_scalar,
    .merge_rows = attn_merge_rows_f32_scalar,
    .scale_row = attn_scale_row_f32_scalar,
};
