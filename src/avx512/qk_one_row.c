/* Scores of a single query row from f32 keys where they lie, by vectors of 8 keys: turning keys is
 * most of the work then, and three ports turn half as wide vectors where two turn whole ones. A score
 * is the same chain in a lane of either.
 *
 * SPDX-License-Identifier: MIT */
#include "avx512.h"

#include "avx2/vec.h"

#include "avx2/transpose.h"

#include "qk_few_rows.h"

void attn_qk_one_row_f32_avx512(const float *const *q, const struct attn_stored *keys, size_t first,
                                size_t n_keys, size_t dim, float scale, float *scores,
                                size_t score_stride) {
    strided_keys(1, ATTN_F32, q, keys, first, n_keys, dim, scale, scores, score_stride);
}
