/* Accumulates the weighted values of a tile, 64 features at a time, 128 for up to three rows. On the lanes of lanes.h.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_AVX512_PV_BLOCKS_H
#define ATTN_AVX512_PV_BLOCKS_H

#include "vec.h"

#include "pv_broadcast.h"

#define BLOCK(M, N)                                                                                \
    NEVER_INLINE void block_##M##x##N(const struct pv_operands *o, int32_t begin, int32_t end) {   \
        pv_block(M, N, ATTN_F32, 0, 0, o, begin, end);                                             \
    }
#define NAME(M, N) block_##M##x##N,
UP_TO_12(BLOCK, 1)
UP_TO_12(BLOCK, 2)
UP_TO_8(BLOCK, 3)
UP_TO_6(BLOCK, 4)
UP_TO_3(BLOCK, 5)
UP_TO_3(BLOCK, 6)
UP_TO_3(BLOCK, 7)
UP_TO_3(BLOCK, 8)

/* Rows of fewer than 16 values. */
#define SHORT(M, N)                                                                                \
    NEVER_INLINE void short_##M##x##N(const struct pv_operands *o, int32_t begin, int32_t end) {   \
        pv_block(M, N, ATTN_F32, 1, 0, o, begin, end);                                             \
    }
#define SHORT_NAME(M, N) short_##M##x##N,
UP_TO_12(SHORT, 1)

static pv_function *const pv_blocks[WIDE_VECTORS][MAX_BLOCK_ROWS] = {
    {UP_TO_12(NAME, 1)}, {UP_TO_12(NAME, 2)}, {UP_TO_8(NAME, 3)}, {UP_TO_6(NAME, 4)},
    {UP_TO_3(NAME, 5)},  {UP_TO_3(NAME, 6)},  {UP_TO_3(NAME, 7)}, {UP_TO_3(NAME, 8)}};
static pv_function *const pv_short_blocks[MAX_BLOCK_ROWS] = {UP_TO_12(SHORT_NAME, 1)};
static const size_t pv_most_rows[WIDE_VECTORS] = {12, 12, 8, 6, 3, 3, 3, 3};
static const struct pv_set pv_set = {pv_blocks, pv_most_rows,  pv_short_blocks, sizeof(float),
                                     1,         ROWS_THAT_WAIT};
DEFINE_PV_RANGES(pv_set)

#endif
