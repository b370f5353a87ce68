/* The 16-lane vector operations on integers that products of int8 are written in.
 *
 * The instruction multiplies unsigned by signed bytes. So a vector of keys has 128 added to each
 * byte, and a sum begins with -128 times the sum of the query's integers.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_AVX512_VNNI_VEC_INT8_H
#define ATTN_AVX512_VNNI_VEC_INT8_H

#if !defined(__AVX512VNNI__)
#error "compile src/avx512_vnni with the flags of its flags.mk"
#endif

#include <string.h>

#include "transpose.h"
#include "vec.h"

typedef __m512i vi;

static inline vi vi_set1(int32_t x) { return _mm512_set1_epi32(x); }
static inline vi vi_load(const int32_t *p) { return _mm512_loadu_si512(p); }
static inline void vi_store(int32_t *p, vi x) { _mm512_storeu_si512(p, x); }
static inline vi vi_add(vi a, vi b) { return _mm512_add_epi32(a, b); }
static inline vi vi_max(vi a, vi b) { return _mm512_max_epi32(a, b); }
static inline int32_t vi_reduce_add(vi x) { return _mm512_reduce_add_epi32(x); }
static inline int32_t vi_reduce_max(vi x) { return _mm512_reduce_max_epi32(x); }
static inline vf vf_of_vi(vi x) { return _mm512_cvtepi32_ps(x); }

/* The nearest integers, of two the even one. */
static inline vi vi_round(vf x) { return _mm512_cvtps_epi32(x); }

/* The bits of |x|. */
static inline vi vi_magnitude(vf x) {
    return _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff));
}

/* The low bytes of the lanes. */
static inline void vi_store_i8(int8_t *p, vi x) {
    _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8(x));
}

#define INT8_SLOTS(M) (M)

static inline vi vi_start(int32_t query_sum) { return _mm512_set1_epi32(-128 * query_sum); }

/* A row's features stay in memory, from where the instruction broadcasts four of them. */
typedef const int8_t *vq;
ALWAYS_INLINE void vq_load_rows(const int M, const int8_t *const *row, size_t c, vq *x) {
    UNROLL
    for (int r = 0; r < M; r++)
        x[r] = row[r] + c;
}

static inline vi vi_dot(vi sum, vi key, vq q) {
    int32_t four;
    memcpy(&four, q, sizeof four);
    return _mm512_dpbusd_epi32(sum, key, _mm512_set1_epi32(four));
}

#define INT8_ADD(M, N, first, key, lane)                                                           \
    do {                                                                                           \
        UNROLL                                                                                     \
        for (int r = 0; r < (M); r++) {                                                            \
            UNROLL                                                                                 \
            for (int u = 0; u < (N); u++)                                                          \
                sum[r][(first) + u] = vi_dot(sum[r][(first) + u], (key)[u], x[r] + 4 * (lane));    \
        }                                                                                          \
    } while (0)

#define vi_settle(M, N, sum) (void)0

/* A quad of keys first, first + 4, first + 8 and first + 12, one key in each 128-bit lane. Only the
 * first n_keys keys and the first n features (1 to 16) are read; others become 0. */
ALWAYS_INLINE __m512i load_quad_quarter(const int8_t *keys, int64_t stride, size_t first,
                                        size_t n_keys, size_t n) {
    __m128i part[4];
    UNROLL
    for (size_t i = 0; i < 4; i++) {
        const size_t j = first + 4 * i;
        const int8_t *at = keys + (int64_t)j * stride;
        part[i] = j >= n_keys ? _mm_setzero_si128()
                  : n == 16   ? _mm_loadu_si128((const __m128i *)at)
                              : _mm_maskz_loadu_epi8((__mmask16)((1u << n) - 1), at);
    }
    __m512i x = _mm512_castsi128_si512(part[0]);
    x = _mm512_inserti32x4(x, part[1], 1);
    x = _mm512_inserti32x4(x, part[2], 2);
    return _mm512_inserti32x4(x, part[3], 3);
}

/* out[l] = lane l, four features, of keys 0 .. 15: a 4 x 4 transposition in each 128-bit lane. */
ALWAYS_INLINE void vi_turn_quads(const int8_t *keys, int64_t stride, size_t n_keys, size_t n,
                                 vi out[4]) {
    const __m512i sign = _mm512_set1_epi8(-128);
    const __m512i a = load_quad_quarter(keys, stride, 0, n_keys, n);
    const __m512i b = load_quad_quarter(keys, stride, 1, n_keys, n);
    const __m512i c = load_quad_quarter(keys, stride, 2, n_keys, n);
    const __m512i d = load_quad_quarter(keys, stride, 3, n_keys, n);
    const __m512i ab_low = _mm512_unpacklo_epi32(a, b), ab_high = _mm512_unpackhi_epi32(a, b);
    const __m512i cd_low = _mm512_unpacklo_epi32(c, d), cd_high = _mm512_unpackhi_epi32(c, d);
    out[0] = _mm512_xor_si512(_mm512_unpacklo_epi64(ab_low, cd_low), sign);
    out[1] = _mm512_xor_si512(_mm512_unpackhi_epi64(ab_low, cd_low), sign);
    out[2] = _mm512_xor_si512(_mm512_unpacklo_epi64(ab_high, cd_high), sign);
    out[3] = _mm512_xor_si512(_mm512_unpackhi_epi64(ab_high, cd_high), sign);
}

/* Scales of keys 0 .. 15, n (1 to 4) of each. */
static inline void vi_turn_scales(const float *scales, int64_t stride, size_t n_keys, size_t n,
                                  vf out[4]) {
    if (n == 1 && stride == 1)
        out[0] = vf_load_first(scales, n_keys);
    else if (n == 4 && n_keys >= VF_LANES)
        transpose_keys(scales, key_steps(stride), VF_LANES, 4, out);
    else
        transpose_keys(scales, key_steps(stride), n_keys, n, out);
}

#endif
