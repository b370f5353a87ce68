/* Scores of a tile of query rows: scale * (q . k), 16 keys at a time against packed keys.
 *
 * SPDX-License-Identifier: MIT */
#include "avx2.h"
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
UP_TO_6(BLOCK, 2)

void attn_pack_keys_f32_avx2(const float *keys, int64_t stride, size_t first, size_t n_keys,
                             size_t dim, void *packed) {
    pack_panels(PANEL, keys, stride, first, n_keys, dim, packed);
}

void attn_qk_packed_f32_avx2(const float *const *q, size_t n_rows, const void *packed,
                             size_t n_keys, size_t dim, float scale, float *scores,
                             size_t score_stride, struct attn_later *later) {
    static qk_function *const blocks[MAX_BLOCK_VECTORS][MAX_BLOCK_ROWS] = {{UP_TO_12(NAME, 1)},
                                                                           {UP_TO_6(NAME, 2)}};
    static const size_t most_rows[MAX_BLOCK_VECTORS] = {12, 6};
    qk_panels(blocks, most_rows, PANEL, q, n_rows, packed, n_keys, dim, scale, scores, score_stride,
              later);
}

STRIDED_BLOCK(1, ATTN_F32)
DEFINE_QK_STRIDED(attn_qk_strided_f32_avx2, strided_1_ATTN_F32)
DEFINE_QK_F32(attn_qk_f32_avx2, strided_1_ATTN_F32)
