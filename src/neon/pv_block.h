/* Weights times values for a block of rows and columns that fits the registers. On the lanes of
 * lanes.h.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_NEON_PV_BLOCK_H
#define ATTN_NEON_PV_BLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "block.h"

/* `blocks` blocks of rows, the next one's weights, factor and acc directly behind: acc = acc *
 * factor[r], or -0 where factor is null, then the chain over n keys. */
typedef void pv_block(size_t blocks, const float *weights, size_t weight_stride,
                      const float *values, int64_t value_stride, int32_t n, size_t last,
                      const float *factor, float *acc, size_t acc_stride);

#define PV_COLUMN(v) (whole || (v) < vectors - 1 ? (size_t)(v)*VF_LANES : last)

ALWAYS_INLINE void pv_body(const float *weights, size_t weight_stride, const float *values,
                           int64_t value_stride, int32_t n, const float *factor, float *acc,
                           size_t acc_stride, int rows, int vectors, bool whole, size_t last) {
    vf x[BLOCK_ACC];
    const float *a[BLOCK_ROWS];
    if (factor) {
        const float *p = acc;
        UNROLL
        for (int i = 0; i < rows * vectors; i++) {
            x[i] = vf_mul(vf_load(p + PV_COLUMN(i % vectors)), vf_set1(factor[i / vectors]));
            if (i % vectors == vectors - 1)
                BLOCK_NEXT_ROW(p, acc_stride);
        }
    } else {
        UNROLL
        for (int i = 0; i < rows * vectors; i++)
            x[i] = vf_set1(-0.0f);
    }
    UNROLL
    for (int r = 0; r < rows; r++)
        a[r] = weights + (size_t)r * weight_stride;
    block_multiply(a, values, value_stride, (size_t)n, rows, vectors, whole, last, x);
    if (BLOCK_IS_4X4(rows, vectors, whole)) {
        block_store_4x4(acc, acc_stride, x);
        return;
    }
    UNROLL
    for (int i = 0; i < rows * vectors; i++) {
        vf_store(acc + PV_COLUMN(i % vectors), x[i]);
        if (i % vectors == vectors - 1)
            BLOCK_NEXT_ROW(acc, acc_stride);
    }
}

#define PV_BLOCK(kind, rows, vectors, stride, whole)                                               \
    static void pv_##kind##_##rows##x##vectors(                                                    \
        size_t blocks, const float *weights, size_t weight_stride, const float *values,            \
        int64_t value_stride, int32_t n, size_t last, const float *factor, float *acc,             \
        size_t acc_stride) {                                                                       \
        (void)value_stride, (void)last;                                                            \
        for (; blocks > 0; blocks--) {                                                             \
            pv_body(weights, weight_stride, values, stride, n, factor, acc, acc_stride, rows,      \
                    vectors, whole, last);                                                         \
            weights += rows * weight_stride;                                                       \
            acc += rows * acc_stride;                                                              \
            factor = factor ? factor + rows : NULL;                                                \
        }                                                                                          \
    }
#define PV_BLOCKS(kind, vectors, stride, whole)                                                    \
    PV_BLOCK(kind, 1, vectors, stride, whole)                                                      \
    PV_BLOCK(kind, 2, vectors, stride, whole)                                                      \
    PV_BLOCK(kind, 3, vectors, stride, whole)                                                      \
    PV_BLOCK(kind, 4, vectors, stride, whole)                                                      \
    PV_BLOCK(kind, 5, vectors, stride, whole)                                                      \
    static pv_block *const pv_##kind##_##vectors[BLOCK_ROWS] = {                                   \
        pv_##kind##_1x##vectors, pv_##kind##_2x##vectors, pv_##kind##_3x##vectors,                 \
        pv_##kind##_4x##vectors, pv_##kind##_5x##vectors};

PV_BLOCKS(copied, 4, BLOCK_COLUMNS, true)
PV_BLOCKS(strided, 4, value_stride, true)
PV_BLOCKS(tail, 1, value_stride, false)
PV_BLOCKS(tail, 2, value_stride, false)
PV_BLOCKS(tail, 3, value_stride, false)
PV_BLOCKS(tail, 4, value_stride, false)
PV_BLOCK(strided, 1, 8, value_stride, true)
PV_BLOCK(strided, 2, 8, value_stride, true)

static pv_block *const pv_strided_8[] = {pv_strided_1x8, pv_strided_2x8};

/* Columns of the next block where `left` remain, at most widest: never so many that fewer than a
 * vector would be left over. */
static inline size_t pv_block_columns(size_t left, size_t widest) {
    for (size_t width = widest; width >= BLOCK_COLUMNS; width /= 2)
        if (left == width || left >= width + VF_LANES)
            return width;
    return left > BLOCK_COLUMNS ? BLOCK_COLUMNS - VF_LANES : left;
}

/* The blocks for that many columns, by rows - 1. copied: values are BLOCK_COLUMNS apart. */
static inline pv_block *const *pv_blocks(size_t columns, bool copied) {
    static pv_block *const *const tails[] = {pv_tail_1, pv_tail_2, pv_tail_3, pv_tail_4};
    if (columns < BLOCK_COLUMNS)
        return tails[(columns - 1) / VF_LANES];
    if (columns == BLOCK_COLUMNS)
        return copied ? pv_copied_4 : pv_strided_4;
    return pv_strided_8;
}

#endif
