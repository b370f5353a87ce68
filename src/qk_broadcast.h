/* A register block of scores, for instruction sets that broadcast one operand from memory; on the
 * vectors of vec.h.
 *
 * M rows and N vectors of keys: the M * N scores stay in registers while the features pass by. Per
 * feature, N loads of keys and M broadcasts of queries serve M * N multiply-adds. A set chooses its
 * blocks so that M * N + N + 1 registers are fewer than it has, and instantiates each in a function
 * of its own, with constant M and N: then no compiler spills.
 *
 * Include after vec.h, which also gives MAX_BLOCK_VECTORS, the largest N.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_QK_BROADCAST_H
#define ATTN_QK_BROADCAST_H

#include "row_blocks.h"
#include "unroll.h"

/* keys: [feature][panel] with panel a multiple of the vector length, aligned to it. */
ALWAYS_INLINE void qk_block(const int M, const int N, const size_t panel, const float *const *q,
                            const float *keys, size_t dim, float scale, float *scores,
                            size_t score_stride) {
    const float *row[MAX_BLOCK_ROWS];
    vf acc[MAX_BLOCK_ROWS][MAX_BLOCK_VECTORS];
    UNROLL
    for (int r = 0; r < M; r++) {
        row[r] = q[r];
        UNROLL
        for (int v = 0; v < N; v++)
            acc[r][v] = vf_set1(0.0f);
    }
    for (size_t c = 0; c < dim; c++) {
        vf key[MAX_BLOCK_VECTORS];
        UNROLL
        for (int v = 0; v < N; v++)
            key[v] = vf_load(keys + c * panel + v * VF_LANES);
        UNROLL
        for (int r = 0; r < M; r++) {
            const vf x = vf_set1(row[r][c]);
            UNROLL
            for (int v = 0; v < N; v++)
                acc[r][v] = vf_fma(x, key[v], acc[r][v]);
        }
    }
    UNROLL
    for (int r = 0; r < M; r++) {
        UNROLL
        for (int v = 0; v < N; v++)
            vf_store(scores + (size_t)r * score_stride + v * VF_LANES,
                     vf_mul(acc[r][v], vf_set1(scale)));
    }
}

typedef void qk_function(const float *const *q, const float *keys, size_t dim, float scale,
                         float *scores, size_t score_stride);

#endif
