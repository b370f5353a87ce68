/* The 4-lane vector operations on integers that products of int8 are written in: smmla, which
 * multiplies eight features of two rows with those of two keys.
 *
 * So rows go in pairs, x[2 p] the first eight features of both and x[2 p + 1] the others; keys too,
 * as four vectors for four keys: keys 0 and 1, first features and others, then keys 2 and 3. A sum
 * holds both rows' products with two keys: sum[2 p] with keys 0 and 1, sum[2 p + 1] with 2 and 3.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_NEON_I8MM_VEC_INT8_H
#define ATTN_NEON_I8MM_VEC_INT8_H

#if !defined(__ARM_FEATURE_MATMUL_INT8)
#error "compile src/neon_i8mm with the flags of its flags.mk"
#endif

#include "int8_lanes.h"

#define INT8_SLOTS(M) (((M) + 1) / 2 * 2)

/* The first halves of a and b, and the second ones. */
static inline vi first_halves(vi a, vi b) {
    return vreinterpretq_s32_s64(vzip1q_s64(vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b)));
}
static inline vi second_halves(vi a, vi b) {
    return vreinterpretq_s32_s64(vzip2q_s64(vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b)));
}

ALWAYS_INLINE void vq_load_rows(const int M, const int8_t *const *row, size_t c, vq *x) {
    UNROLL
    for (int r = 0; r < M; r += 2) {
        const vi a = vreinterpretq_s32_s8(vld1q_s8(row[r] + c));
        const vi b = vreinterpretq_s32_s8(vld1q_s8(row[r + 1] + c));
        x[r] = vreinterpretq_s8_s32(first_halves(a, b));
        x[r + 1] = vreinterpretq_s8_s32(second_halves(a, b));
    }
}

#define INT8_ADD(M, N, first, key, lane)                                                           \
    do {                                                                                           \
        UNROLL                                                                                     \
        for (int r = (lane) / 2; r < (M); r += 2) {                                                \
            UNROLL                                                                                 \
            for (int u = 0; u < (N); u++)                                                          \
                sum[r][(first) + u] = vmmlaq_s32(sum[r][(first) + u], x[r / 2 * 2 + (lane) % 2],   \
                                                 vreinterpretq_s8_s32((key)[u]));                  \
        }                                                                                          \
    } while (0)

ALWAYS_INLINE void vi_settle(const int M, const int N, vi sum[][MAX_BLOCK_VECTORS]) {
    UNROLL
    for (int r = 0; r < M; r += 2) {
        UNROLL
        for (int v = 0; v < N; v++) {
            const vi left = sum[r][v], right = sum[r + 1][v];
            sum[r][v] = first_halves(left, right);
            sum[r + 1][v] = second_halves(left, right);
        }
    }
}

ALWAYS_INLINE void vi_turn_quads(const int8_t *keys, int64_t stride, size_t n_keys, size_t n,
                                 vi out[4]) {
    vi key[4];
    UNROLL
    for (size_t i = 0; i < 4; i++)
        key[i] = vreinterpretq_s32_s8(load_quad(keys, stride, i, n_keys, n));
    out[0] = first_halves(key[0], key[1]);
    out[1] = second_halves(key[0], key[1]);
    out[2] = first_halves(key[2], key[3]);
    out[3] = second_halves(key[2], key[3]);
}

#endif
