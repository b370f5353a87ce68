/* The 4-lane vector operations on integers that the sets for products of int8 share.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_NEON_INT8_LANES_H
#define ATTN_NEON_INT8_LANES_H

#include "transpose.h"
#include "unroll.h"
#include "vec.h"

typedef int32x4_t vi;
typedef int8x16_t vq;

/* The widest register block: 4 rows of 4 vectors, 16 + 4 + 4 of 32 registers. */
#define MAX_BLOCK_VECTORS 4

static inline vi vi_set1(int32_t x) { return vdupq_n_s32(x); }
static inline vi vi_load(const int32_t *p) { return vld1q_s32(p); }
static inline void vi_store(int32_t *p, vi x) { vst1q_s32(p, x); }
static inline vi vi_add(vi a, vi b) { return vaddq_s32(a, b); }
static inline vi vi_max(vi a, vi b) { return vmaxq_s32(a, b); }
static inline int32_t vi_reduce_add(vi x) { return vaddvq_s32(x); }
static inline int32_t vi_reduce_max(vi x) { return vmaxvq_s32(x); }
static inline vf vf_of_vi(vi x) { return vcvtq_f32_s32(x); }

/* The nearest integers, of two the even one. */
static inline vi vi_round(vf x) { return vcvtnq_s32_f32(x); }

/* The bits of |x|. */
static inline vi vi_magnitude(vf x) { return vreinterpretq_s32_f32(vabsq_f32(x)); }

/* The low bytes of the lanes. */
static inline void vi_store_i8(int8_t *p, vi x) {
    const int16x4_t narrow = vmovn_s32(x);
    const int8x8_t bytes = vmovn_s16(vcombine_s16(narrow, narrow));
    vst1_lane_s32((int32_t *)(void *)p, vreinterpret_s32_s8(bytes), 0);
}

/* A sum needs no correction. */
static inline vi vi_start(int32_t query_sum) {
    (void)query_sum;
    return vdupq_n_s32(0);
}

/* The first n features (1 to 16) of key i, others 0; 0 if there is no such key. */
ALWAYS_INLINE int8x16_t load_quad(const int8_t *keys, int64_t stride, size_t i, size_t n_keys,
                                  size_t n) {
    int8_t part[16] = {0};
    if (i >= n_keys)
        return vdupq_n_s8(0);
    if (n == 16)
        return vld1q_s8(keys + (int64_t)i * stride);
    memcpy(part, keys + (int64_t)i * stride, n);
    return vld1q_s8(part);
}

/* Scales of up to four keys, n (1 to 4) of each. */
static inline void vi_turn_scales(const float *scales, int64_t stride, size_t n_keys, size_t n,
                                  vf out[4]) {
    for (size_t i = 0; i < 4; i++) {
        const float *at = scales + (int64_t)i * stride;
        out[i] = i >= n_keys ? vf_set1(0) : n == 4 ? vf_load(at) : vf_load_first(at, n);
    }
    transpose_4x4(out);
}

#endif
