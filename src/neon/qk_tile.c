/* Scores of a tile from packed keys.
 *
 * SPDX-License-Identifier: MIT */
#include "neon.h"
#include "qk_packed.h"

void attn_qk_packed_f32_neon(const float *const *q, size_t n_rows, const void *packed,
                             size_t n_keys, size_t dim, float scale, float *scores,
                             size_t score_stride, struct attn_later *later) {
    (void)later;
    qk_packed(q, n_rows, packed, n_keys, dim, scale, scores, score_stride);
}
