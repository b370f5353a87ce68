/* Scores of a few rows from keys where they are: blocks of keys are transposed on the way through
 * the registers, so that a lane is a key and each score is the same chain as in qk_packed.h. What is
 * called a feature is a lane of lanes.h.
 *
 * Per 16 keys and 4 features: 16 loads, 32 shuffles, 16 multiplies per row. More than four rows
 * leave registers for 8 keys only.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_NEON_QK_STRIDED_H
#define ATTN_NEON_QK_STRIDED_H

#include "block.h"
#include "transpose.h"

enum { STRIDED_ROWS = 7, LINE = 64 / sizeof(float) };

typedef void qk_strided_block(const float *const *q, const float *keys, int64_t stride, size_t n,
                              size_t dim, float scale, float *scores, size_t score_stride);

/* n of the keys exist; the last one stands in for those that do not, and its scores fall into the
 * padding of the row. */
ALWAYS_INLINE void qk_strided_body(const float *const *q, const float *keys, int64_t stride,
                                   size_t n, size_t dim, float scale, float *scores,
                                   size_t score_stride, int rows, int vectors) {
    const char *k[BLOCK_COLUMNS], *a[STRIDED_ROWS];
    vf acc[BLOCK_ROWS * BLOCK_VECTORS], x[VF_LANES], w[STRIDED_ROWS];
    UNROLL
    for (int i = 0; i < vectors * VF_LANES; i++)
        k[i] = (const char *)(keys + (int64_t)((size_t)i < n ? (size_t)i : n - 1) * stride);
    UNROLL
    for (int i = 0; i < rows * vectors; i++)
        acc[i] = vf_set1(0);
    UNROLL
    for (int r = 0; r < rows; r++)
        a[r] = (const char *)q[r];

    size_t c = 0, at = 0; /* a feature, and its bytes */
    for (; c + VF_LANES <= dim; c += VF_LANES, at += VF_LANES * sizeof(float)) {
        if (c % LINE == 0) {
            /* So many streams are too many for most prefetchers: ask for the next block's keys. An
             * address beyond the last key is only a hint that goes nowhere. */
            uintptr_t ahead = at + (uintptr_t)stride * (size_t)vectors * VF_LANES * sizeof(float);
            BLOCK_HOLD(ahead, "r"(at)); /* one register, not one for each key */
            UNROLL
            for (int i = 0; i < vectors * VF_LANES; i++)
                __builtin_prefetch((const void *)((uintptr_t)k[i] + ahead));
        }
        UNROLL
        for (int r = 0; r < rows; r++)
            w[r] = vf_load((const float *)(a[r] + at));
        UNROLL
        for (int v = 0; v < vectors; v++) {
            UNROLL
            for (int i = 0; i < VF_LANES; i++)
                x[i] = vf_load((const float *)(k[v * VF_LANES + i] + at));
            transpose_4x4(x);
            UNROLL
            for (int r = 0; r < rows; r++) {
                vf s = acc[r * vectors + v];
                s = LANE_MULTIPLY_ADD_BY(s, x[0], w[r], 0);
                s = LANE_MULTIPLY_ADD_BY(s, x[1], w[r], 1);
                s = LANE_MULTIPLY_ADD_BY(s, x[2], w[r], 2);
                acc[r * vectors + v] = LANE_MULTIPLY_ADD_BY(s, x[3], w[r], 3);
                BLOCK_HOLD(at, "w"(acc[r * vectors + v]));
            }
        }
    }
    for (; c < dim; c++) {
        UNROLL
        for (int v = 0; v < vectors; v++) {
            vf key = vf_set1(0);
            key = vld1q_lane_f32((const float *)k[v * VF_LANES] + c, key, 0);
            key = vld1q_lane_f32((const float *)k[v * VF_LANES + 1] + c, key, 1);
            key = vld1q_lane_f32((const float *)k[v * VF_LANES + 2] + c, key, 2);
            key = vld1q_lane_f32((const float *)k[v * VF_LANES + 3] + c, key, 3);
            UNROLL
            for (int r = 0; r < rows; r++)
                acc[r * vectors + v] =
                    LANE_MULTIPLY_ADD(vf_set1(((const float *)a[r])[c]), key, acc[r * vectors + v]);
        }
    }
    UNROLL
    for (int i = 0; i < rows * vectors; i++) {
        vf_store(scores + i % vectors * VF_LANES, vf_mul(acc[i], vf_set1(scale)));
        if (i % vectors == vectors - 1)
            BLOCK_NEXT_ROW(scores, score_stride);
    }
}

#define QK_STRIDED(rows, vectors)                                                                  \
    static void qk_strided_##rows(const float *const *q, const float *keys, int64_t stride,        \
                                  size_t n, size_t dim, float scale, float *scores,                \
                                  size_t score_stride) {                                           \
        qk_strided_body(q, keys, stride, n, dim, scale, scores, score_stride, rows, vectors);      \
    }
QK_STRIDED(1, 4)
QK_STRIDED(2, 4)
QK_STRIDED(3, 4)
QK_STRIDED(4, 4)
QK_STRIDED(5, 2)
QK_STRIDED(6, 2)
QK_STRIDED(7, 2)

static qk_strided_block *const qk_strided_blocks[STRIDED_ROWS] = {
    qk_strided_1, qk_strided_2, qk_strided_3, qk_strided_4,
    qk_strided_5, qk_strided_6, qk_strided_7,
};

static inline void strided_rows(const float *const *q, size_t n_rows, const float *keys,
                                int64_t stride, size_t n_keys, size_t dim, float scale,
                                float *scores, size_t score_stride) {
    const struct block_rows few = block_rows(n_rows, STRIDED_ROWS);
    for (size_t r = 0, i = 0, rows; r < n_rows; r += rows, i++) {
        rows = few.rows + (i < few.larger);
        const size_t step = rows <= 4 ? 4 * VF_LANES : 2 * VF_LANES;
        for (size_t j = 0; j < n_keys; j += step) {
            const size_t n = n_keys - j < step ? n_keys - j : step;
            qk_strided_blocks[rows - 1](q + r, keys + (int64_t)j * stride, stride, n, dim, scale,
                                        scores + r * score_stride + j, score_stride);
        }
    }
}

#endif
