/* Weighted values of a tile as they are stored, for a few rows: the register blocks of
 * pv_broadcast.h on whole vectors of other types than f32.
 *
 * Include after vec.h and these three, which say what blocks there are:
 *
 *     STORED_BLOCKS(X)    X(M, N) for each
 *     STORED_TABLE(X)     the same as an initialiser, a row for each N
 *     STORED_MOST_ROWS    the most rows for each N, as an initialiser
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_PV_STORED_H
#define ATTN_PV_STORED_H

#include "pv_broadcast.h"

#define STORED_BLOCK(M, N, type)                                                                   \
    NEVER_INLINE void block_##M##x##N##_##type(const struct pv_operands *o, int32_t begin,         \
                                               int32_t end) {                                      \
        pv_block(M, N, type, 0, o, begin, end);                                                    \
    }
#define BLOCK_ATTN_F16(M, N) STORED_BLOCK(M, N, ATTN_F16)
#define BLOCK_ATTN_BF16(M, N) STORED_BLOCK(M, N, ATTN_BF16)
#define BLOCK_ATTN_I8(M, N) STORED_BLOCK(M, N, ATTN_I8)
#define NAME_ATTN_F16(M, N) block_##M##x##N##_ATTN_F16,
#define NAME_ATTN_BF16(M, N) block_##M##x##N##_ATTN_BF16,
#define NAME_ATTN_I8(M, N) block_##M##x##N##_ATTN_I8,

/* A kernel of struct attn_stored_kernels. */
#define DEFINE_PV_STORED(name, type)                                                               \
    STORED_BLOCKS(BLOCK_##type)                                                                    \
    void name(const float *weights, size_t weight_stride, const struct attn_visible *visible,      \
              size_t n_rows, const struct attn_stored *values, size_t v_dim, const float *factor,  \
              float *acc, size_t acc_stride) {                                                     \
        static pv_function *const blocks[WIDE_VECTORS][MAX_BLOCK_ROWS] = {                         \
            STORED_TABLE(NAME_##type)};                                                            \
        static const size_t most_rows[WIDE_VECTORS] = {STORED_MOST_ROWS};                          \
        const size_t bytes = value_bytes(type);                                                    \
        const struct pv_operands tile =                                                            \
            pv_operands_of(weights, weight_stride, values, bytes, factor, acc, acc_stride);        \
        pv_columns(blocks, most_rows, NULL, bytes, tile, visible, n_rows, v_dim);                  \
    }

#endif
