/* Keys turned, four features at a time, into vectors of one feature of several keys: into packed
 * panels for many query rows, or straight into the scores of a few. For instruction sets that
 * broadcast queries from memory; on the vectors of vec.h and the transpose_keys of transpose.h,
 * which are included before this. What is called a feature here is a
 * lane of lanes.h.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_QK_TRANSPOSED_H
#define ATTN_QK_TRANSPOSED_H

#include <stdint.h>

#include "lanes.h"
#include "row_blocks.h"
#include "unroll.h"

/* Where a cache line of features begins, asks for that line of each of the next n_next keys: a
 * vector of keys is too many streams for the hardware to prefetch. */
#define prefetch_line(keys, stride, n_next, c)                                                     \
    do {                                                                                           \
        if ((c) % (64 / sizeof(float)) == 0)                                                       \
            for (size_t line = 0; line < (n_next); line++)                                         \
                vf_prefetch((keys) + (int64_t)(VF_LANES + line) * (stride));                       \
    } while (0)

/* ---- Packing --------------------------------------------------------------------------------- */

/* Packed keys are panels of `panel` keys, [feature][panel], also where the last has fewer keys. */
static inline void pack_panels(const size_t panel, const float *keys, int64_t stride, size_t first,
                               size_t n_keys, size_t dim, float *packed) {
    for (size_t j = 0; j < n_keys; j += VF_LANES) {
        const size_t n = n_keys - j < VF_LANES ? n_keys - j : VF_LANES;
        float *to = packed + (first + j) / panel * panel * dim + (first + j) % panel;
        const float *from = keys + (int64_t)j * stride;
        vf x[4];
        size_t c = 0;
        if (n == VF_LANES) {
            const size_t next = n_keys - j - n < VF_LANES ? n_keys - j - n : VF_LANES;
            for (; c + 4 <= dim; c += 4) {
                prefetch_line(from + c, stride, next, c);
                transpose_keys(from + c, stride, VF_LANES, 4, x);
                UNROLL
                for (size_t f = 0; f < 4; f++)
                    vf_store(to + (c + f) * panel, x[f]);
            }
        }
        for (; c < dim; c += 4) {
            const size_t features = dim - c < 4 ? dim - c : 4;
            transpose_keys(from + c, stride, n, features, x);
            for (size_t f = 0; f < features; f++)
                vf_store(to + (c + f) * panel, x[f]);
        }
    }
}

/* ---- Scores of a few rows -------------------------------------------------------------------- */

enum { MAX_STRIDED_ROWS = 8 };

/* M rows against one vector of keys, of which n_keys are there; n_next come after them. A decode
 * step is as fast as the keys can be read once: they are transposed in registers and used at once
 * by all rows, in the order of arithmetic of qk_broadcast.h. */
ALWAYS_INLINE void strided_block(const int M, const float *const *q, const float *keys,
                                 int64_t stride, size_t n_keys, size_t n_next, size_t dim,
                                 float scale, float *scores, size_t score_stride) {
    const float *row[MAX_STRIDED_ROWS];
    vf acc[MAX_STRIDED_ROWS], key[4];
    UNROLL
    for (int r = 0; r < M; r++)
        row[r] = q[r], acc[r] = vf_set1(0.0f);
    size_t c = 0;
    if (n_keys == VF_LANES) {
        for (; c + 4 <= dim; c += 4) {
            prefetch_line(keys + c, stride, n_next, c);
            transpose_keys(keys + c, stride, VF_LANES, 4, key);
            UNROLL
            for (size_t f = 0; f < 4; f++) {
                UNROLL
                for (int r = 0; r < M; r++)
                    acc[r] = LANE_MULTIPLY_ADD(vf_set1(row[r][c + f]), key[f], acc[r]);
            }
        }
    }
    for (; c < dim; c += 4) {
        const size_t features = dim - c < 4 ? dim - c : 4;
        transpose_keys(keys + c, stride, n_keys, features, key);
        for (size_t f = 0; f < features; f++) {
            UNROLL
            for (int r = 0; r < M; r++)
                acc[r] = LANE_MULTIPLY_ADD(vf_set1(row[r][c + f]), key[f], acc[r]);
        }
    }
    UNROLL
    for (int r = 0; r < M; r++)
        vf_store(scores + (size_t)r * score_stride, vf_mul(acc[r], vf_set1(scale)));
}

typedef void strided_function(const float *const *q, const float *keys, int64_t stride,
                              size_t n_keys, size_t n_next, size_t dim, float scale, float *scores,
                              size_t score_stride);

/* Blocks of 1 to MAX_STRIDED_ROWS rows, each a function of its own with a constant M. */
#define STRIDED_BLOCK(M)                                                                           \
    NEVER_INLINE void strided_##M(const float *const *q, const float *keys, int64_t stride,        \
                                  size_t n_keys, size_t n_next, size_t dim, float scale,           \
                                  float *scores, size_t score_stride) {                            \
        strided_block(M, q, keys, stride, n_keys, n_next, dim, scale, scores, score_stride);       \
    }
STRIDED_BLOCK(1)
STRIDED_BLOCK(2)
STRIDED_BLOCK(3)
STRIDED_BLOCK(4)
STRIDED_BLOCK(5)
STRIDED_BLOCK(6)
STRIDED_BLOCK(7)
STRIDED_BLOCK(8)
#undef STRIDED_BLOCK

static inline void strided_rows(const float *const *q, size_t n_rows, const float *keys,
                                int64_t stride, size_t n_keys, size_t dim, float scale,
                                float *scores, size_t score_stride) {
    static strided_function *const blocks[MAX_STRIDED_ROWS] = {
        strided_1, strided_2, strided_3, strided_4, strided_5, strided_6, strided_7, strided_8};
    for (size_t r = 0; r < n_rows; r += MAX_STRIDED_ROWS) {
        const size_t m = n_rows - r < MAX_STRIDED_ROWS ? n_rows - r : MAX_STRIDED_ROWS;
        for (size_t j = 0; j < n_keys; j += VF_LANES) {
            const size_t left = n_keys - j;
            const size_t n = left < VF_LANES ? left : VF_LANES;
            const size_t next = left - n < VF_LANES ? left - n : VF_LANES;
            blocks[m - 1](q + r, keys + (int64_t)j * stride, stride, n, next, dim, scale,
                          scores + r * score_stride + j, score_stride);
        }
    }
}

#endif
