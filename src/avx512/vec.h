/* The 16-lane vector operations that the shared row kernels are written in.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_AVX512_VEC_H
#define ATTN_AVX512_VEC_H

#if !defined(__AVX512F__) || !defined(__AVX512BW__) || !defined(__AVX512VL__) ||                   \
    !defined(__AVX512DQ__)
#error "compile src/avx512 with the flags of its flags.mk"
#endif

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "unroll.h"

typedef __m512 vf;
typedef __mmask16 vm;
enum { VF_LANES = 16 };

/* Vectors that go through the exponential together; the registers allow it. */
#define SOFTMAX_VECTORS 4

/* The widest register block: 6 rows of 4 vectors, 24 + 4 + 1 of 32 registers. */
#define MAX_BLOCK_VECTORS 4

/* Rows that meet keys as they are transposed: 16 sums, 4 keys and what transposing takes. */
#define MAX_STRIDED_ROWS 16

/* Up to so many rows meet two vectors of keys at once, by the keys' type, or four: their chains of
 * multiply-adds are too few to fill the latency. Rows of f32 gain 5 % in cache and lose as much from
 * memory, but for the single one of qk_one_row.c. */
enum {
    PAIRED_ROWS_F32 = 0,
    PAIRED_ROWS_HALVES = 5,
    PAIRED_ROWS_I8 = 5,
    QUAD_ROWS_F32 = 0,
    QUAD_ROWS_HALVES = 0
};

/* Up to so many rows read so many vectors of values at once: memory likes whole rows. */
#define WIDE_ROWS 3
#define WIDE_VECTORS 8

/* The first n lanes; all from 16 on. */
static inline vm vm_first(size_t n) { return n >= VF_LANES ? (vm)0xffff : (vm)((1u << n) - 1); }

/* Lanes i with begin <= first + i < end, where the range meets the vector. */
static inline vm vm_range(int32_t first, int32_t begin, int32_t end) {
    const vm below_end = vm_first((size_t)(end - first));
    return begin <= first ? below_end : (vm)(below_end & ~vm_first((size_t)(begin - first)));
}

/* Lanes i whose bit first + i is set; first is a multiple of 16. */
static inline vm vm_bits(const uint64_t *bits, int32_t first) {
    return (vm)(bits[first / 64] >> first % 64);
}

static inline vf vf_set1(float x) { return _mm512_set1_ps(x); }
static inline vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void vf_store(float *p, vf x) { _mm512_storeu_ps(p, x); }
/* A macro: gcc 12 takes a function that only prefetches for one without effect, and drops it. */
#define vf_prefetch(p) _mm_prefetch((const char *)(p), _MM_HINT_T0)
/* The same, no further than into the second-level cache. */
#define vf_prefetch_far(p) _mm_prefetch((const char *)(p), _MM_HINT_T1)

/* The first n lanes, others 0; all from 16 on. */
static inline vf vf_load_first(const float *p, size_t n) {
    return _mm512_maskz_loadu_ps(vm_first(n), p);
}
static inline void vf_store_first(float *p, vf x, size_t n) {
    _mm512_mask_storeu_ps(p, vm_first(n), x);
}

/* The last n <= 16 elements of a row, which begin at p, in lanes of which only these two functions
 * know. A row of at least 16 elements is read from 16 before its end, where elements before p take
 * lanes that are not stored: a masked load takes a turn on a port that multiply-adds need. */
static inline vf vf_load_last(const float *p, size_t n, int short_row) {
    return short_row ? vf_load_first(p, n) : vf_load(p + n - VF_LANES);
}
static inline void vf_store_last(float *p, vf x, size_t n, int short_row) {
    if (short_row)
        vf_store_first(p, x, n);
    else if (n == VF_LANES) /* a load may have to wait until a masked store is done */
        vf_store(p, x);
    else
        _mm512_mask_storeu_ps(p + n - VF_LANES, (vm)~vm_first(VF_LANES - n), x);
}

static inline vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
static inline vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
static inline vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
static inline vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
static inline vf vf_fnma(vf a, vf b, vf c) { return _mm512_fnmadd_ps(a, b, c); }

/* The larger; a NaN in a is ignored: the instruction returns its second operand then. */
static inline vf vf_max_number(vf a, vf b) { return _mm512_max_ps(a, b); }

/* x between -limit and limit; a NaN stays one. */
static inline vf vf_clamp(vf x, float limit) {
    return _mm512_max_ps(_mm512_set1_ps(-limit), _mm512_min_ps(_mm512_set1_ps(limit), x));
}

/* 1 / x, rounded once. */
static inline vf vf_reciprocal(vf x) { return _mm512_div_ps(_mm512_set1_ps(1), x); }

/* a / b for b a normal number of moderate size. The division instruction takes 16 cycles; this, a
 * reciprocal to 14 bits and a quotient corrected by its own remainder, is off by 2^-28 more. */
static inline vf vf_divide(vf a, vf b) {
    const vf r = _mm512_rcp14_ps(b), q = _mm512_mul_ps(a, r);
    return _mm512_fmadd_ps(_mm512_fnmadd_ps(q, b, a), r, q);
}

/* |first - i| in lane i, rounded once. */
static inline vf vf_distances(int32_t first) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_cvtepi32_ps(_mm512_abs_epi32(_mm512_sub_epi32(_mm512_set1_epi32(first), lane)));
}

/* Whether each lane is below the limit, which a NaN is not. */
static inline int vf_all_below(vf x, float limit) {
    return _mm512_cmp_ps_mask(x, _mm512_set1_ps(limit), _CMP_LT_OQ) == 0xffff;
}

static inline vm vf_equal(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
static inline vf vf_select(vm m, vf a, vf b) { return _mm512_mask_blend_ps(m, b, a); }

/* 2^n where magic_n = n + 0x1.8000fep+23, as below. */
static inline vf vf_pow2(vf magic_n) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(magic_n), 23));
}

/* p * 2^n, or 0 where x < least, where magic_n = n + 0x1.8000fep+23 (see exp_nonpositive.h, which
 * has that difference already: the compiler computes it once). */
static inline vf vf_pow2_scale(vf p, vf magic_n, vf x, vf least) {
    return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, least, _CMP_NLT_UQ), p,
                                  _mm512_sub_ps(magic_n, _mm512_set1_ps(0x1.8000fep+23f)));
}

static inline float vf_first(vf x) { return _mm512_cvtss_f32(x); }

/* A fixed tree: the upper half onto the lower half, four times. */
static inline float vf_reduce_add(vf x) {
    const __m256 y = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 z = _mm_add_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));
    z = _mm_add_ps(z, _mm_movehl_ps(z, z));
    return _mm_cvtss_f32(_mm_add_ss(z, _mm_movehdup_ps(z)));
}
static inline float vf_reduce_max(vf x) {
    const __m256 y = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 z = _mm_max_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));
    z = _mm_max_ps(z, _mm_movehl_ps(z, z));
    return _mm_cvtss_f32(_mm_max_ss(z, _mm_movehdup_ps(z)));
}

/* The same of VF_LANES vectors at once, that of x[i] in lane i: with each step twice as many of them
 * share a register. */
#define REDUCE_EACH(op, x, all)                                                                    \
    do {                                                                                           \
        vf two[8], four[4], eight[2];                                                              \
        UNROLL                                                                                     \
        for (int i = 0; i < 8; i++) { /* x[0] and x[4], x[8] and x[12], x[1] and x[5], ... */      \
            const int a = i / 2 + i % 2 * 8;                                                       \
            two[i] = op(_mm512_shuffle_f32x4(x[a], x[a + 4], 0x44),                                \
                        _mm512_shuffle_f32x4(x[a], x[a + 4], 0xee));                               \
        }                                                                                          \
        UNROLL                                                                                     \
        for (int i = 0; i < 4; i++)                                                                \
            four[i] = op(_mm512_shuffle_f32x4(two[2 * i], two[2 * i + 1], 0x88),                   \
                         _mm512_shuffle_f32x4(two[2 * i], two[2 * i + 1], 0xdd));                  \
        UNROLL                                                                                     \
        for (int i = 0; i < 2; i++)                                                                \
            eight[i] = op(_mm512_shuffle_ps(four[2 * i], four[2 * i + 1], 0x44),                   \
                          _mm512_shuffle_ps(four[2 * i], four[2 * i + 1], 0xee));                  \
        all = op(_mm512_shuffle_ps(eight[0], eight[1], 0x88),                                      \
                 _mm512_shuffle_ps(eight[0], eight[1], 0xdd));                                     \
    } while (0)
static inline vf vf_reduce_add_each(const vf *x) {
    vf all;
    REDUCE_EACH(_mm512_add_ps, x, all);
    return all;
}
static inline vf vf_reduce_max_each(const vf *x) {
    vf all;
    REDUCE_EACH(_mm512_max_ps, x, all);
    return all;
}
#undef REDUCE_EACH

/* A vector of a storage type, exactly, and f32 rounded to one. */
static inline vf vf_load_f16(const uint16_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
static inline vf vf_load_bf16(const uint16_t *p) {
    const __m512i x = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
}
static inline vf vf_load_i8(const int8_t *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}

/* Element i of each lane of storage (see struct attn_stored_keys), as these do. */
static inline vf vf_bf16_of_lanes(vf lanes, size_t i) {
    const __m512i x = _mm512_castps_si512(lanes);
    return _mm512_castsi512_ps(i ? _mm512_and_si512(x, _mm512_set1_epi32((int)0xffff0000))
                                 : _mm512_slli_epi32(x, 16));
}
static inline vf vf_i8_of_lanes(vf lanes, size_t i) {
    __m512i x = _mm512_castps_si512(lanes);
    if (i < 3)
        x = _mm512_slli_epi32(x, 24 - 8 * (unsigned)i);
    return _mm512_cvtepi32_ps(_mm512_srai_epi32(x, 24));
}

static inline void vf_store_f16(uint16_t *p, vf x) {
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
static inline void vf_store_bf16(uint16_t *p, vf x) {
    const __m512i bits = _mm512_castps_si512(x), high = _mm512_srli_epi32(bits, 16);
    const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    const __m512i half_unit = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
    const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, half_unit), 16);
    const __m512i quiet = _mm512_or_si512(high, _mm512_set1_epi32(0x40));
    const __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    _mm256_storeu_si256((__m256i *)p,
                        _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(rounded, is_nan, quiet)));
}

#endif
