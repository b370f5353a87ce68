/* Scores of a few rows from keys where they are.
 *
 * SPDX-License-Identifier: MIT */
#include "qk_strided.h"
#include "neon.h"

void attn_qk_strided_f32_neon(const float *const *q, size_t n_rows, const float *keys,
                              int64_t stride, size_t n_keys, size_t dim, float scale, float *scores,
                              size_t score_stride) {
    strided_rows(q, n_rows, keys, stride, n_keys, dim, scale, scores, score_stride);
}
