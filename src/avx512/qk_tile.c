/* Scores of a tile of query rows.
 *
 * SPDX-License-Identifier: MIT */
#include "avx512.h"

#include "qk_blocks.h"

void attn_pack_keys_f32_avx512(const float *keys, int64_t stride, size_t first, size_t n_keys,
                               size_t dim, void *packed) {
    pack_panels(PANEL, keys, stride, first, n_keys, dim, packed);
}

void attn_qk_packed_f32_avx512(const float *const *q, size_t n_rows, const void *packed,
                               size_t n_keys, size_t dim, float scale, float *scores,
                               size_t score_stride, struct attn_later *later) {
    qk_packed(q, n_rows, packed, n_keys, dim, scale, scores, score_stride, later);
}

DEFINE_QK_STRIDED(attn_qk_strided_f32_avx512, attn_qk_one_row_f32_avx512)
DEFINE_QK_F32(attn_qk_f32_avx512, attn_qk_one_row_f32_avx512)
