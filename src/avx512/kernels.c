/* The AVX-512 kernel set.
 *
 * SPDX-License-Identifier: MIT */
#include "avx512.h"
#include "required_features.h"

const struct attn_kernels attn_kernels_avx512 = {
    .name = "avx512",
    .required = ATTN_REQUIRED_FEATURES,
    .pack_min_rows = 9,
    .pack_keys = attn_pack_keys_f32_avx512,
    .qk_packed = attn_qk_packed_f32_avx512,
    .qk_strided = attn_qk_strided_f32_avx512,
    .softmax_rows = attn_softmax_rows_f32_avx512,
    .pv_tile = attn_pv_tile_f32_avx512,
    .merge_rows = attn_merge_rows_f32_avx512,
    .scale_row = attn_scale_row_f32_avx512,
};
