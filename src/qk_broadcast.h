/* A register block of scores, for instruction sets that broadcast one operand from memory; on the
 * vectors of vec.h. What is called a feature here is a lane of lanes.h.
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

#include "lanes.h"
#include "later.h"
#include "row_blocks.h"
#include "unroll.h"

/* One feature, c of the queries: its vectors of keys times the feature of each row. */
ALWAYS_INLINE void qk_feature(const int M, const int N, const float *const *row, size_t c,
                              const float *keys, vf acc[][MAX_BLOCK_VECTORS]) {
    vf key[MAX_BLOCK_VECTORS];
    UNROLL
    for (int v = 0; v < N; v++)
        key[v] = vf_load(keys + v * VF_LANES);
    UNROLL
    for (int r = 0; r < M; r++) {
        const vf x = vf_set1(row[r][c]);
        UNROLL
        for (int v = 0; v < N; v++)
            acc[r][v] = LANE_MULTIPLY_ADD(x, key[v], acc[r][v]);
    }
}

/* keys: [feature][panel] with panel a multiple of the vector length, aligned to it. */
ALWAYS_INLINE void qk_block(const int M, const int N, const size_t panel, const float *const *q,
                            const float *keys, size_t dim, float scale, float *scores,
                            size_t score_stride, struct attn_later *later) {
    struct asking asking = later_of_turns(later, dim / UNROLLED_STEPS, q[0]);
    const float *row[MAX_BLOCK_ROWS];
    vf acc[MAX_BLOCK_ROWS][MAX_BLOCK_VECTORS];
    UNROLL
    for (int r = 0; r < M; r++) {
        row[r] = q[r];
        UNROLL
        for (int v = 0; v < N; v++)
            acc[r][v] = vf_set1(0.0f);
    }
    size_t c = 0;
    for (; c + UNROLLED_STEPS <= dim; c += UNROLLED_STEPS) {
        ask_later(&asking);
        UNROLL
        for (size_t u = 0; u < UNROLLED_STEPS; u++)
            qk_feature(M, N, row, c + u, keys + (c + u) * panel, acc);
    }
    for (; c < dim; c++)
        qk_feature(M, N, row, c, keys + c * panel, acc);
    UNROLL
    for (int r = 0; r < M; r++) {
        UNROLL
        for (int v = 0; v < N; v++)
            vf_store(scores + (size_t)r * score_stride + v * VF_LANES,
                     vf_mul(acc[r][v], vf_set1(scale)));
    }
}

typedef void qk_function(const float *const *q, const float *keys, size_t dim, float scale,
                         float *scores, size_t score_stride, struct attn_later *later);

/* All rows of a tile against packed keys: panels outside, so that one stays in the first-level
 * cache while all rows use it. blocks[v - 1][m - 1]: m rows, at most most_rows[v - 1], by v
 * vectors. */
static inline void qk_panels(qk_function *const (*blocks)[MAX_BLOCK_ROWS], const size_t *most_rows,
                             const size_t panel, const float *const *q, size_t n_rows,
                             const float *packed, size_t n_keys, size_t dim, float scale,
                             float *scores, size_t score_stride, struct attn_later *later) {
    for (size_t j = 0; j < n_keys; j += panel) {
        const size_t left = n_keys - j < panel ? n_keys - j : panel;
        const size_t v = (left + VF_LANES - 1) / VF_LANES - 1;
        for (size_t r = 0; r < n_rows;) {
            const size_t n = next_block(n_rows - r, most_rows[v]);
            blocks[v][n - 1](q + r, packed + j * dim, dim, scale, scores + r * score_stride + j,
                             score_stride, later);
            r += n;
        }
    }
}

#endif
