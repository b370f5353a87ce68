/* Scores of a tile of query rows in bf16.
 *
 * SPDX-License-Identifier: MIT */
#include "avx512_bf16.h"
#include "pairs.h"

#include "qk_blocks.h"

void attn_qk_packed_avx512_bf16(const float *const *q, size_t n_rows, const void *packed,
                                size_t n_keys, size_t dim, float scale, float *scores,
                                size_t score_stride, struct attn_later *later) {
    qk_packed(q, n_rows, packed, n_keys, dim, scale, scores, score_stride, later);
}

STRIDED_BLOCK(1, ATTN_F32)
DEFINE_QK_STRIDED(attn_qk_strided_avx512_bf16, strided_1_ATTN_F32)
