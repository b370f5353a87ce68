/* Scores of a tile of query rows in bf16.
 *
 * SPDX-License-Identifier: MIT */
#include "neon_bf16.h"
#include "pairs.h"

#include "qk_packed.h"
#include "qk_strided.h"

void attn_qk_packed_neon_bf16(const float *const *q, size_t n_rows, const void *packed,
                              size_t n_keys, size_t dim, float scale, float *scores,
                              size_t score_stride, struct attn_later *later) {
    (void)later;
    qk_packed(q, n_rows, packed, n_keys, dim, scale, scores, score_stride);
}

void attn_qk_strided_neon_bf16(const float *const *q, size_t n_rows, const float *keys,
                               int64_t stride, size_t n_keys, size_t dim, float scale,
                               float *scores, size_t score_stride) {
    strided_rows(q, n_rows, keys, stride, n_keys, dim, scale, scores, score_stride);
}
