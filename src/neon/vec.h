/* The vector operations of AArch64 Advanced SIMD under the names that every instruction set shares.
 *
 * exp_nonpositive.h, softmax_row.h and merge_row.h are written once on these names; a file of this
 * folder includes this header before them.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_NEON_VEC_H
#define ATTN_NEON_VEC_H

#if !defined(__aarch64__) || !defined(__ARM_NEON)
#error "src/neon needs AArch64 with Advanced SIMD"
#endif

#include <arm_neon.h>
#include <stddef.h>
#include <stdint.h>

typedef float32x4_t vf;
typedef uint32x4_t vm; /* a mask: each lane all ones or all zeros */

enum { VF_LANES = 4 };

/* Vectors that go through the exponential together; the registers allow it. */
#define SOFTMAX_VECTORS 4

static inline vf vf_set1(float x) { return vdupq_n_f32(x); }
static inline vf vf_load(const float *p) { return vld1q_f32(p); }
static inline void vf_store(float *p, vf x) { vst1q_f32(p, x); }

/* The first n of p, 1 <= n < VF_LANES, and zeros; nothing beyond them is read. */
static inline vf vf_load_first(const float *p, size_t n) {
    vf x = vld1q_lane_f32(p, vdupq_n_f32(0), 0);
    if (n > 1)
        x = vld1q_lane_f32(p + 1, x, 1);
    if (n > 2)
        x = vld1q_lane_f32(p + 2, x, 2);
    return x;
}

static inline void vf_store_first(float *p, vf x, size_t n) {
    vst1q_lane_f32(p, x, 0);
    if (n > 1)
        vst1q_lane_f32(p + 1, x, 1);
    if (n > 2)
        vst1q_lane_f32(p + 2, x, 2);
}

static inline vf vf_add(vf a, vf b) { return vaddq_f32(a, b); }
static inline vf vf_sub(vf a, vf b) { return vsubq_f32(a, b); }
static inline vf vf_mul(vf a, vf b) { return vmulq_f32(a, b); }

/* a * b + c and c - a * b, rounded once. */
static inline vf vf_fma(vf a, vf b, vf c) { return vfmaq_f32(c, a, b); }
static inline vf vf_fnma(vf a, vf b, vf c) { return vfmsq_f32(c, a, b); }

/* The larger one; b where a is a quiet NaN. b is never NaN. */
static inline vf vf_max_number(vf a, vf b) { return vmaxnmq_f32(a, b); }

/* The lanes i with begin <= first + i < end. */
static inline vm vm_range(int32_t first, int32_t begin, int32_t end) {
    const int32x4_t lane = {0, 1, 2, 3};
    int32x4_t i = vaddq_s32(vdupq_n_s32(first), lane);
    return vandq_u32(vcgeq_s32(i, vdupq_n_s32(begin)), vcltq_s32(i, vdupq_n_s32(end)));
}

/* The lanes i whose bit first + i is set; first is a multiple of 4. */
static inline vm vm_bits(const uint64_t *bits, int32_t first) {
    const uint32x4_t lane = {1, 2, 4, 8};
    return vtstq_u32(vdupq_n_u32((uint32_t)(bits[first / 64] >> first % 64)), lane);
}

static inline vf vf_select(vm m, vf a, vf b) { return vbslq_f32(m, a, b); }

/* p * 2^n, or 0 where x < least (which is false for NaN), for the magic_n of exp_nonpositive.h,
 * whose low bits are the exponent field of 2^n. */
static inline vf vf_pow2_scale(vf p, vf magic_n, vf x, vf least) {
    const vf power = vreinterpretq_f32_s32(vshlq_n_s32(vreinterpretq_s32_f32(magic_n), 23));
    const uint32x4_t scaled = vreinterpretq_u32_f32(vmulq_f32(p, power));
    return vreinterpretq_f32_u32(vbicq_u32(scaled, vcltq_f32(x, least)));
}

static inline float vf_first(vf x) { return vgetq_lane_f32(x, 0); }

/* (x0 + x2) + (x1 + x3) */
static inline float vf_reduce_add(vf x) {
    return vpadds_f32(vadd_f32(vget_low_f32(x), vget_high_f32(x)));
}

static inline float vf_reduce_max(vf x) { return vmaxnmvq_f32(x); }

#endif
