/* Accumulates the weighted values of a tile as they are stored, in the blocks of pv_blocks.h for up
 * to 6 rows.
 *
 * SPDX-License-Identifier: MIT */
#include "avx512.h"
#include "vec.h"

#include "pv_stored.h"

#define DEFINE_PV_STORED(name, type)                                                               \
    UP_TO_6(BLOCK_##type, 1)                                                                       \
    UP_TO_6(BLOCK_##type, 2)                                                                       \
    UP_TO_6(BLOCK_##type, 3)                                                                       \
    UP_TO_6(BLOCK_##type, 4)                                                                       \
    UP_TO_3(BLOCK_##type, 5)                                                                       \
    UP_TO_3(BLOCK_##type, 6)                                                                       \
    UP_TO_3(BLOCK_##type, 7)                                                                       \
    UP_TO_3(BLOCK_##type, 8)                                                                       \
    void name(const float *weights, size_t weight_stride, const struct attn_visible *visible,      \
              size_t n_rows, const struct attn_stored *values, size_t v_dim, const float *factor,  \
              float *acc, size_t acc_stride) {                                                     \
        static pv_function *const blocks[WIDE_VECTORS][MAX_BLOCK_ROWS] = {                         \
            {UP_TO_6(NAME_##type, 1)}, {UP_TO_6(NAME_##type, 2)}, {UP_TO_6(NAME_##type, 3)},       \
            {UP_TO_6(NAME_##type, 4)}, {UP_TO_3(NAME_##type, 5)}, {UP_TO_3(NAME_##type, 6)},       \
            {UP_TO_3(NAME_##type, 7)}, {UP_TO_3(NAME_##type, 8)}};                                 \
        static const size_t most_rows[WIDE_VECTORS] = {6, 6, 6, 6, 3, 3, 3, 3};                    \
        pv_columns(blocks, most_rows, NULL, value_bytes(type),                                     \
                   stored_operands(weights, weight_stride, values, value_bytes(type), factor, acc, \
                                   acc_stride),                                                    \
                   visible, n_rows, v_dim);                                                        \
    }

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

DEFINE_PV_STORED(attn_pv_f16_avx512, ATTN_F16)
DEFINE_PV_STORED(attn_pv_bf16_avx512, ATTN_BF16)
DEFINE_PV_STORED(attn_pv_i8_avx512, ATTN_I8)
