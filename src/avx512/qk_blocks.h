/* Scores of a tile of query rows: scale * (q . k), 64 keys at a time against packed keys. On the
 * lanes of lanes.h.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_AVX512_QK_BLOCKS_H
#define ATTN_AVX512_QK_BLOCKS_H

#include "vec.h"

#include "transpose.h"

#include "qk_broadcast.h"
#include "qk_few_rows.h"
#include "qk_transposed.h"

enum { PANEL = MAX_BLOCK_VECTORS * VF_LANES };

#define BLOCK(M, N)                                                                                \
    NEVER_INLINE void block_##M##x##N(const float *const *q, const float *keys, size_t dim,        \
                                      float scale, float *scores, size_t score_stride,             \
                                      struct attn_later *later) {                                  \
        qk_block(M, N, PANEL, q, keys, dim, scale, scores, score_stride, later);                   \
    }
#define NAME(M, N) block_##M##x##N,
UP_TO_12(BLOCK, 1)
UP_TO_12(BLOCK, 2)
UP_TO_8(BLOCK, 3)
UP_TO_6(BLOCK, 4)

static inline void qk_packed(const float *const *q, size_t n_rows, const void *packed,
                             size_t n_keys, size_t dim, float scale, float *scores,
                             size_t score_stride, struct attn_later *later) {
    static qk_function *const blocks[MAX_BLOCK_VECTORS][MAX_BLOCK_ROWS] = {
        {UP_TO_12(NAME, 1)}, {UP_TO_12(NAME, 2)}, {UP_TO_8(NAME, 3)}, {UP_TO_6(NAME, 4)}};
    static const size_t most_rows[MAX_BLOCK_VECTORS] = {12, 12, 8, 6};
    qk_panels(blocks, most_rows, PANEL, q, n_rows, packed, n_keys, dim, scale, scores, score_stride,
              later);
}

#endif
