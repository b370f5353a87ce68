/* The vector operations of AArch64 Advanced SIMD under the names that every instruction set shares.
 *
 * The headers of src/ that are written once on these names are included after this one.
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
#include <string.h>

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

/* The last n <= 4 elements of a row, which begin at p, in lanes of which only these two functions
 * know. A row of at least 4 elements is read from 4 before its end, where elements before p take
 * lanes that are not stored; a short row has n elements altogether. */
static inline vf vf_load_last(const float *p, size_t n, int short_row) {
    return short_row ? vf_load_first(p, n) : vf_load(p + n - VF_LANES);
}

static inline void vf_store_last(float *p, vf x, size_t n, int short_row) {
    if (short_row) {
        vf_store_first(p, x, n);
        return;
    }
    if (n == VF_LANES) {
        vf_store(p, x);
        return;
    }
    vst1q_lane_f32(p + n - 1, x, 3);
    if (n > 1)
        vst1q_lane_f32(p + n - 2, x, 2);
    if (n > 2)
        vst1q_lane_f32(p + n - 3, x, 1);
}

static inline vf vf_add(vf a, vf b) { return vaddq_f32(a, b); }
static inline vf vf_sub(vf a, vf b) { return vsubq_f32(a, b); }
static inline vf vf_mul(vf a, vf b) { return vmulq_f32(a, b); }

/* a * b + c and c - a * b, rounded once. */
static inline vf vf_fma(vf a, vf b, vf c) { return vfmaq_f32(c, a, b); }
static inline vf vf_fnma(vf a, vf b, vf c) { return vfmsq_f32(c, a, b); }

/* The larger one; b where a is a quiet NaN. b is never NaN. */
static inline vf vf_max_number(vf a, vf b) { return vmaxnmq_f32(a, b); }

/* x between -limit and limit; a NaN stays one. */
static inline vf vf_clamp(vf x, float limit) {
    return vmaxq_f32(vminq_f32(x, vdupq_n_f32(limit)), vdupq_n_f32(-limit));
}

/* 1 / x, rounded once. */
static inline vf vf_reciprocal(vf x) { return vdivq_f32(vdupq_n_f32(1), x); }

static inline vf vf_divide(vf a, vf b) { return vdivq_f32(a, b); }

/* |first - i| in lane i, rounded once. */
static inline vf vf_distances(int32_t first) {
    const int32x4_t lane = {0, 1, 2, 3};
    return vcvtq_f32_s32(vabdq_s32(vdupq_n_s32(first), lane));
}

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

/* Whether each lane is below the limit, which a NaN is not: the maximum is one if a lane is. */
static inline int vf_all_below(vf x, float limit) { return vmaxvq_f32(x) < limit; }

static inline vm vf_equal(vf a, vf b) { return vceqq_f32(a, b); }
static inline vf vf_select(vm m, vf a, vf b) { return vbslq_f32(m, a, b); }

/* 2^n for the magic_n of exp_nonpositive.h, whose low bits are the exponent field of 2^n. */
static inline vf vf_pow2(vf magic_n) {
    return vreinterpretq_f32_s32(vshlq_n_s32(vreinterpretq_s32_f32(magic_n), 23));
}

/* p * 2^n, or 0 where x < least (which is false for NaN). */
static inline vf vf_pow2_scale(vf p, vf magic_n, vf x, vf least) {
    const uint32x4_t scaled = vreinterpretq_u32_f32(vmulq_f32(p, vf_pow2(magic_n)));
    return vreinterpretq_f32_u32(vbicq_u32(scaled, vcltq_f32(x, least)));
}

static inline float vf_first(vf x) { return vgetq_lane_f32(x, 0); }

/* (x0 + x2) + (x1 + x3) */
static inline float vf_reduce_add(vf x) {
    return vpadds_f32(vadd_f32(vget_low_f32(x), vget_high_f32(x)));
}

static inline float vf_reduce_max(vf x) { return vmaxnmvq_f32(x); }

/* The same of VF_LANES vectors at once, that of x[i] in lane i. */
static inline vf add_halves(vf a, vf b) {
    const float64x2_t x = vreinterpretq_f64_f32(a), y = vreinterpretq_f64_f32(b);
    return vaddq_f32(vreinterpretq_f32_f64(vzip1q_f64(x, y)),
                     vreinterpretq_f32_f64(vzip2q_f64(x, y)));
}
static inline vf vf_reduce_add_each(const vf *x) {
    return vpaddq_f32(add_halves(x[0], x[1]), add_halves(x[2], x[3]));
}
static inline vf vf_reduce_max_each(const vf *x) {
    return vpmaxnmq_f32(vpmaxnmq_f32(x[0], x[1]), vpmaxnmq_f32(x[2], x[3]));
}

/* A vector of a storage type, exactly, and f32 rounded to one. */
static inline vf vf_load_f16(const uint16_t *p) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}
static inline vf vf_load_bf16(const uint16_t *p) {
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
}
static inline vf vf_load_i8(const int8_t *p) {
    uint32_t four;
    memcpy(&four, p, sizeof four);
    const int16x8_t x = vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(four)));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(x)));
}
static inline void vf_store_f16(uint16_t *p, vf x) {
    vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(x)));
}
static inline void vf_store_bf16(uint16_t *p, vf x) {
    const uint32x4_t bits = vreinterpretq_u32_f32(x), high = vshrq_n_u32(bits, 16);
    const uint32x4_t odd = vandq_u32(high, vdupq_n_u32(1));
    const uint32x4_t rounded =
        vshrq_n_u32(vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff))), 16);
    const uint32x4_t quiet = vorrq_u32(high, vdupq_n_u32(0x40));
    vst1_u16(p, vmovn_u32(vbslq_u32(vceqq_f32(x, x), rounded, quiet)));
}

#endif
