/* Weighted values of a tile as they are stored, for a few rows: the register blocks of
 * pv_broadcast.h on values that may lie in pieces, and on whole vectors of other types than f32.
 *
 * Include after vec.h and these three, which say what blocks there are:
 *
 *     STORED_BLOCKS(X)    X(M, N) for each
 *     STORED_TABLE(X)     the same as an initialiser, a row for each N
 *     STORED_MOST_ROWS    the most rows for each N, as an initialiser
 *     SHORT_BLOCKS(X)     those for rows of f32 that are shorter than a vector, N being 1
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_PV_STORED_H
#define ATTN_PV_STORED_H

#include "pv_broadcast.h"

#define STORED_BLOCK(M, N, type, kind, short_row)                                                  \
    NEVER_INLINE void kind##_##M##x##N##_##type(const struct pv_operands *o, int32_t begin,        \
                                                int32_t end) {                                     \
        pv_block(M, N, type, short_row, 1, o, begin, end);                                         \
    }
#define BLOCK_ATTN_F32(M, N) STORED_BLOCK(M, N, ATTN_F32, block, 0)
#define BLOCK_ATTN_F16(M, N) STORED_BLOCK(M, N, ATTN_F16, block, 0)
#define BLOCK_ATTN_BF16(M, N) STORED_BLOCK(M, N, ATTN_BF16, block, 0)
#define BLOCK_ATTN_I8(M, N) STORED_BLOCK(M, N, ATTN_I8, block, 0)
#define NAME_ATTN_F32(M, N) block_##M##x##N##_ATTN_F32,
#define NAME_ATTN_F16(M, N) block_##M##x##N##_ATTN_F16,
#define NAME_ATTN_BF16(M, N) block_##M##x##N##_ATTN_BF16,
#define NAME_ATTN_I8(M, N) block_##M##x##N##_ATTN_I8,

#define SHORT_BLOCK(M, N) STORED_BLOCK(M, N, ATTN_F32, short, 1)
#define SHORT_NAME(M, N) short_##M##x##N##_ATTN_F32,
SHORT_BLOCKS(SHORT_BLOCK)
static pv_function *const pv_short_stored[MAX_BLOCK_ROWS] = {SHORT_BLOCKS(SHORT_NAME)};

/* A kernel of struct attn_stored_kernels. */
#define DEFINE_PV_STORED(name, type)                                                               \
    STORED_BLOCKS(BLOCK_##type)                                                                    \
    void name(const float *weights, size_t weight_stride, const struct attn_visible *visible,      \
              size_t n_rows, const struct attn_stored *values, size_t v_dim, const float *factor,  \
              float *acc, size_t acc_stride) {                                                     \
        static pv_function *const blocks[WIDE_VECTORS][MAX_BLOCK_ROWS] = {                         \
            STORED_TABLE(NAME_##type)};                                                            \
        static const size_t most_rows[WIDE_VECTORS] = {STORED_MOST_ROWS};                          \
        static const struct pv_set set = {blocks,                                                  \
                                          most_rows,                                               \
                                          pv_short_stored,                                         \
                                          type == ATTN_F32  ? 4                                    \
                                          : type == ATTN_I8 ? 1                                    \
                                                            : 2,                                   \
                                          0,                                                       \
                                          type == ATTN_I8 ? ROWS_THAT_WAIT                         \
                                                          : STORED_ROWS_THAT_WAIT};                \
        struct pv_operands tile;                                                                   \
        pv_begin(&tile, weights, weight_stride, values, set.bytes, factor, acc, acc_stride);       \
        pv_walk(&set, &tile, rows_are_alike(visible, n_rows), visible, n_rows, v_dim);             \
    }

#endif
