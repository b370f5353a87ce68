/* Accumulates the weighted values of a tile, 16 features at a time, 32 for up to two rows.
 *
 * SPDX-License-Identifier: MIT */
#include "avx2.h"
#include "vec.h"

#include "pv_broadcast.h"
#include "pv_masked.h"

#define BLOCK(M, N)                                                                                \
    NEVER_INLINE void block_##M##x##N(const struct pv_operands *o, int32_t begin, int32_t end) {   \
        pv_block(M, N, ATTN_F32, 0, 0, o, begin, end);                                             \
    }
#define NAME(M, N) block_##M##x##N,
UP_TO_12(BLOCK, 1)
UP_TO_6(BLOCK, 2)
UP_TO_2(BLOCK, 3)
UP_TO_2(BLOCK, 4)

/* Rows of fewer than 8 values. */
#define SHORT(M, N)                                                                                \
    NEVER_INLINE void short_##M##x##N(const struct pv_operands *o, int32_t begin, int32_t end) {   \
        pv_block(M, N, ATTN_F32, 1, 0, o, begin, end);                                             \
    }
#define SHORT_NAME(M, N) short_##M##x##N,
UP_TO_12(SHORT, 1)

static pv_function *const pv_blocks[WIDE_VECTORS][MAX_BLOCK_ROWS] = {
    {UP_TO_12(NAME, 1)}, {UP_TO_6(NAME, 2)}, {UP_TO_2(NAME, 3)}, {UP_TO_2(NAME, 4)}};
static pv_function *const pv_short_blocks[MAX_BLOCK_ROWS] = {UP_TO_12(SHORT_NAME, 1)};
static const size_t pv_most_rows[WIDE_VECTORS] = {12, 6, 2, 2};
static const struct pv_set pv_set = {pv_blocks, pv_most_rows,  pv_short_blocks, sizeof(float),
                                     1,         ROWS_THAT_WAIT};
DEFINE_PV_RANGES(pv_set)

void attn_pv_tile_f32_avx2(const float *weights, size_t weight_stride,
                           const struct attn_visible *visible, size_t n_rows, const float *values,
                           int64_t value_stride, size_t v_dim, const float *factor, float *acc,
                           size_t acc_stride, struct attn_later *later) {
    pv_visible(pv_ranges, weights, weight_stride, visible, n_rows, values, value_stride, v_dim,
               factor, acc, acc_stride, later);
}

DEFINE_PV_ENDING(attn_pv_ending_f32_avx2, attn_pv_tile_f32_avx2, pv_set)
