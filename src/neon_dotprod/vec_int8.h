/* The 4-lane vector operations on integers that products of int8 are written in: sdot, which adds
 * four products to each lane, one of its operands a lane of a vector.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_NEON_DOTPROD_VEC_INT8_H
#define ATTN_NEON_DOTPROD_VEC_INT8_H

#if !defined(__ARM_FEATURE_DOTPROD)
#error "compile src/neon_dotprod with the flags of its flags.mk"
#endif

#include "int8_lanes.h"

#define INT8_SLOTS(M) (M)

ALWAYS_INLINE void vq_load_rows(const int M, const int8_t *const *row, size_t c, vq *x) {
    UNROLL
    for (int r = 0; r < M; r++)
        x[r] = vld1q_s8(row[r] + c);
}

#define INT8_ADD(M, N, first, key, lane)                                                           \
    do {                                                                                           \
        UNROLL                                                                                     \
        for (int r = 0; r < (M); r++) {                                                            \
            UNROLL                                                                                 \
            for (int u = 0; u < (N); u++)                                                          \
                sum[r][(first) + u] = vdotq_laneq_s32(sum[r][(first) + u],                         \
                                                      vreinterpretq_s8_s32((key)[u]), x[r], lane); \
        }                                                                                          \
    } while (0)

#define vi_settle(M, N, sum) (void)0

/* out[l] = lane l, four features, of four keys. */
ALWAYS_INLINE void vi_turn_quads(const int8_t *keys, int64_t stride, size_t n_keys, size_t n,
                                 vi out[4]) {
    vf x[4];
    UNROLL
    for (size_t i = 0; i < 4; i++)
        x[i] = vreinterpretq_f32_s8(load_quad(keys, stride, i, n_keys, n));
    transpose_4x4(x);
    UNROLL
    for (size_t i = 0; i < 4; i++)
        out[i] = vreinterpretq_s32_f32(x[i]);
}

#endif
