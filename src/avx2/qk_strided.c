/* Scores of a few query rows against keys where they lie: scale * (q . k), 8 keys at a time.
 *
 * For a decode step, whose speed is that of reading the keys once: they are transposed four
 * features at a time in registers and used at once by all rows, in the order of arithmetic of
 * qk_tile.c.
 *
 * SPDX-License-Identifier: MIT */
#include "avx2.h"
#include "transpose.h"

enum { MAX_ROWS = 8 };

/* The keys of the next vector, one cache line of each: 16 rows at a stride are too many streams for
 * the hardware prefetcher. */
ALWAYS_INLINE void prefetch_keys(const float *keys, int64_t stride, size_t n_keys) {
    for (size_t j = 0; j < n_keys; j++)
        _mm_prefetch((const char *)(keys + (int64_t)j * stride), _MM_HINT_T0);
}

ALWAYS_INLINE void block(const int M, const float *const *q, const float *keys, int64_t stride,
                         size_t n_keys, size_t n_next, size_t dim, float scale, float *scores,
                         size_t score_stride) {
    const float *row[MAX_ROWS];
    __m256 acc[MAX_ROWS], key[4];
    UNROLL
    for (int r = 0; r < M; r++)
        row[r] = q[r], acc[r] = _mm256_setzero_ps();
    size_t c = 0;
    const float *next = keys + VF_LANES * stride;
    if (n_keys == VF_LANES) {
        for (; c + 4 <= dim; c += 4) {
            if (c % VF_LANES == 0)
                prefetch_keys(next + c, stride, n_next);
            transpose_8x4(keys + c, stride, VF_LANES, 4, key);
            UNROLL
            for (int f = 0; f < 4; f++) {
                UNROLL
                for (int r = 0; r < M; r++)
                    acc[r] = _mm256_fmadd_ps(_mm256_set1_ps(row[r][c + (size_t)f]), key[f], acc[r]);
            }
        }
    }
    for (; c < dim; c += 4) {
        const size_t features = dim - c < 4 ? dim - c : 4;
        transpose_8x4(keys + c, stride, n_keys, features, key);
        for (size_t f = 0; f < features; f++) {
            UNROLL
            for (int r = 0; r < M; r++)
                acc[r] = _mm256_fmadd_ps(_mm256_set1_ps(row[r][c + f]), key[f], acc[r]);
        }
    }
    UNROLL
    for (int r = 0; r < M; r++)
        _mm256_storeu_ps(scores + (size_t)r * score_stride,
                         _mm256_mul_ps(acc[r], _mm256_set1_ps(scale)));
}

typedef void block_function(const float *const *q, const float *keys, int64_t stride, size_t n_keys,
                            size_t n_next, size_t dim, float scale, float *scores,
                            size_t score_stride);
#define BLOCK(M)                                                                                   \
    NEVER_INLINE void block_##M(const float *const *q, const float *keys, int64_t stride,          \
                                size_t n_keys, size_t n_next, size_t dim, float scale,             \
                                float *scores, size_t score_stride) {                              \
        block(M, q, keys, stride, n_keys, n_next, dim, scale, scores, score_stride);               \
    }
BLOCK(1)
BLOCK(2)
BLOCK(3)
BLOCK(4)
BLOCK(5)
BLOCK(6) BLOCK(7) BLOCK(8)

    void attn_qk_strided_f32_avx2(const float *const *q, size_t n_rows, const float *keys,
                                  int64_t stride, size_t n_keys, size_t dim, float scale,
                                  float *scores, size_t score_stride) {
    static block_function *const blocks[MAX_ROWS] = {block_1, block_2, block_3, block_4,
                                                     block_5, block_6, block_7, block_8};
    for (size_t r = 0; r < n_rows; r += MAX_ROWS) {
        const size_t m = n_rows - r < MAX_ROWS ? n_rows - r : MAX_ROWS;
        for (size_t j = 0; j < n_keys; j += VF_LANES) {
            const size_t left = n_keys - j;
            const size_t n = left < VF_LANES ? left : VF_LANES;
            const size_t next = left - n < VF_LANES ? left - n : VF_LANES;
            blocks[m - 1](q + r, keys + (int64_t)j * stride, stride, n, next, dim, scale,
                          scores + r * score_stride + j, score_stride);
        }
    }
}
