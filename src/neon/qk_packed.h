/* Scores of a tile from packed keys: scale * (q . k), up to 5 rows by 16 keys at a time. On the lanes
 * of lanes.h.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_NEON_QK_PACKED_H
#define ATTN_NEON_QK_PACKED_H

#include "block.h"

/* `panels` panels against `blocks` blocks of rows, in one function, which saves the registers of its
 * caller once. */
typedef void qk_blocks(const float *const *q, size_t blocks, const float *panel, size_t panels,
                       size_t dim, float scale, float *scores, size_t score_stride);

ALWAYS_INLINE void qk_body(const float *const *q, const float *panel, size_t dim, float scale,
                           float *scores, size_t score_stride, int rows, int vectors) {
    vf acc[BLOCK_ACC];
    const float *a[BLOCK_ROWS];
    UNROLL
    for (int i = 0; i < rows * vectors; i++)
        acc[i] = vf_set1(0);
    UNROLL
    for (int r = 0; r < rows; r++)
        a[r] = q[r];
    block_multiply(a, panel, BLOCK_COLUMNS, dim, rows, vectors, true, 0, acc);
    UNROLL
    for (int i = 0; i < rows * vectors; i++)
        acc[i] = vf_mul(acc[i], vf_set1(scale));
    if (BLOCK_IS_4X4(rows, vectors, true)) {
        block_store_4x4(scores, score_stride, acc);
        return;
    }
    UNROLL
    for (int i = 0; i < rows * vectors; i++) {
        vf_store(scores + i % vectors * VF_LANES, acc[i]);
        if (i % vectors == vectors - 1)
            BLOCK_NEXT_ROW(scores, score_stride);
    }
}

#define QK_BLOCK(rows, vectors)                                                                    \
    static void qk_##rows##x##vectors(const float *const *q, size_t blocks, const float *panel,    \
                                      size_t panels, size_t dim, float scale, float *scores,       \
                                      size_t score_stride) {                                       \
        for (; panels > 0; panels--, panel += BLOCK_COLUMNS * dim, scores += BLOCK_COLUMNS)        \
            for (size_t i = 0; i < blocks; i++)                                                    \
                qk_body(q + i * rows, panel, dim, scale, scores + i * rows * score_stride,         \
                        score_stride, rows, vectors);                                              \
    }
#define QK_BLOCKS(vectors)                                                                         \
    QK_BLOCK(1, vectors)                                                                           \
    QK_BLOCK(2, vectors)                                                                           \
    QK_BLOCK(3, vectors)                                                                           \
    QK_BLOCK(4, vectors)                                                                           \
    QK_BLOCK(5, vectors)
QK_BLOCKS(1)
QK_BLOCKS(2)
QK_BLOCKS(3)
QK_BLOCKS(4)

static qk_blocks *const qk_of_size[BLOCK_VECTORS][BLOCK_ROWS] = {
    {qk_1x1, qk_2x1, qk_3x1, qk_4x1, qk_5x1},
    {qk_1x2, qk_2x2, qk_3x2, qk_4x2, qk_5x2},
    {qk_1x3, qk_2x3, qk_3x3, qk_4x3, qk_5x3},
    {qk_1x4, qk_2x4, qk_3x4, qk_4x4, qk_5x4},
};

static inline void qk_packed(const float *const *q, size_t n_rows, const void *packed,
                             size_t n_keys, size_t dim, float scale, float *scores,
                             size_t score_stride) {
    const struct block_rows few = block_rows(n_rows, BLOCK_ROWS);
    const size_t larger_rows = few.larger * (few.rows + 1);
    const float *panel = packed;
    for (size_t j = 0, panels, n; j < n_keys; j += panels * BLOCK_COLUMNS) {
        n = n_keys - j < BLOCK_COLUMNS ? n_keys - j : BLOCK_COLUMNS;
        /* Two sizes of blocks take turns, so that a panel is read from the first-level cache. */
        panels = n < BLOCK_COLUMNS || few.larger > 0 ? 1 : (n_keys - j) / BLOCK_COLUMNS;
        qk_blocks *const *of_size = qk_of_size[(n - 1) / VF_LANES];
        if (few.larger > 0)
            of_size[few.rows](q, few.larger, panel, panels, dim, scale, scores + j, score_stride);
        of_size[few.rows - 1](q + larger_rows, few.smaller, panel, panels, dim, scale,
                              scores + larger_rows * score_stride + j, score_stride);
        panel += panels * BLOCK_COLUMNS * dim;
    }
}

#endif
