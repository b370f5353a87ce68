/* The 8-lane vector operations that the shared row kernels are written in.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_AVX2_VEC_H
#define ATTN_AVX2_VEC_H

#if !defined(__AVX2__) || !defined(__FMA__)
#error "compile src/avx2 with the flags of its flags.mk"
#endif

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "unroll.h"

typedef __m256 vf;
typedef __m256 vm; /* all bits of a lane set or clear */
enum { VF_LANES = 8 };

/* Vectors that go through the exponential together; the registers allow it. */
#define SOFTMAX_VECTORS 2

/* The widest register block: 6 rows of 2 vectors, 12 + 2 + 1 of 16 registers. */
#define MAX_BLOCK_VECTORS 2

/* Rows that meet keys as they are transposed: 8 sums, 4 keys and what transposing takes. */
#define MAX_STRIDED_ROWS 8

/* Up to so many rows meet two vectors of keys at once, by the keys' type, or four: their chains of
 * multiply-adds are too few to fill the latency. */
enum {
    PAIRED_ROWS_F32 = 5,
    PAIRED_ROWS_HALVES = 5,
    PAIRED_ROWS_I8 = 3,
    QUAD_ROWS_F32 = 1,
    QUAD_ROWS_HALVES = 2
};

/* Up to so many rows read so many vectors of values at once: memory likes whole rows. */
#define WIDE_ROWS 2
#define WIDE_VECTORS 4

/* Lanes i with begin <= first + i < end. */
static inline vm vm_range(int32_t first, int32_t begin, int32_t end) {
    const __m256i j =
        _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(first));
    return _mm256_castsi256_ps(_mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(begin), j),
                                                   _mm256_cmpgt_epi32(_mm256_set1_epi32(end), j)));
}

/* Lanes i whose bit first + i is set; first is a multiple of 8. */
static inline vm vm_bits(const uint64_t *bits, int32_t first) {
    const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i word = _mm256_set1_epi32((int)(bits[first / 64] >> first % 64 & 0xff));
    return _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(word, lane), lane));
}

static inline vf vf_set1(float x) { return _mm256_set1_ps(x); }
static inline vf vf_load(const float *p) { return _mm256_loadu_ps(p); }
static inline void vf_store(float *p, vf x) { _mm256_storeu_ps(p, x); }
/* A macro: gcc 12 takes a function that only prefetches for one without effect, and drops it. */
#define vf_prefetch(p) _mm_prefetch((const char *)(p), _MM_HINT_T0)
/* The same, no further than into the second-level cache. */
#define vf_prefetch_far(p) _mm_prefetch((const char *)(p), _MM_HINT_T1)

/* Masked loads are avoided: an emulator may read, and fault on, the lanes that the mask hides. */

/* The first n < 4 lanes, others 0. */
static inline __m128 load_fewer_than_4(const float *p, size_t n) {
    __m128 x = _mm_setzero_ps();
    if (n >= 2)
        x = _mm_loadl_pi(x, (const __m64 *)p);
    if (n & 1) {
        const __m128 last = _mm_load_ss(p + n - 1);
        x = n == 1 ? last : _mm_movelh_ps(x, last);
    }
    return x;
}
/* The first n < 8 lanes, others 0. */
static inline vf vf_load_first(const float *p, size_t n) {
    if (n < 4)
        return _mm256_zextps128_ps256(load_fewer_than_4(p, n));
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)),
                                load_fewer_than_4(p + 4, n - 4), 1);
}
static inline void store_fewer_than_4(float *p, __m128 x, size_t n) {
    if (n >= 2) {
        _mm_storel_pi((__m64 *)p, x);
        x = _mm_movehl_ps(x, x);
    }
    if (n & 1)
        _mm_store_ss(p + n - 1, x);
}
/* Without a mask: no load is served from a masked store before it is in the cache. */
static inline void vf_store_first(float *p, vf x, size_t n) {
    if (n < 4) {
        store_fewer_than_4(p, _mm256_castps256_ps128(x), n);
        return;
    }
    _mm_storeu_ps(p, _mm256_castps256_ps128(x));
    store_fewer_than_4(p + 4, _mm256_extractf128_ps(x, 1), n - 4);
}

/* The last n <= 8 elements of a row, which begin at p, in lanes of which only these two functions
 * know. A row of at least 8 elements is read from 8 before its end, where elements before p take
 * lanes that are not stored. A short row, of n elements altogether, is read in two overlapping
 * halves, whose common elements are computed twice, to the same bits. */
static inline vf vf_load_last(const float *p, size_t n, int short_row) {
    if (!short_row)
        return _mm256_loadu_ps(p + n - VF_LANES);
    __m128 low, high;
    if (n >= 4) {
        low = _mm_loadu_ps(p), high = _mm_loadu_ps(p + n - 4);
    } else if (n >= 2) {
        low = _mm_loadl_pi(_mm_setzero_ps(), (const __m64 *)p);
        high = _mm_loadl_pi(_mm_setzero_ps(), (const __m64 *)(p + n - 2));
    } else {
        low = high = _mm_load_ss(p);
    }
    return _mm256_insertf128_ps(_mm256_castps128_ps256(low), high, 1);
}
static inline void vf_store_last(float *p, vf x, size_t n, int short_row) {
    if (n == VF_LANES) {
        _mm256_storeu_ps(p, x);
        return;
    }
    if (!short_row) {
        const vm last = vm_range(0, VF_LANES - (int32_t)n, VF_LANES);
        _mm256_maskstore_ps(p + n - VF_LANES, _mm256_castps_si256(last), x);
        return;
    }
    const __m128 low = _mm256_castps256_ps128(x), high = _mm256_extractf128_ps(x, 1);
    if (n >= 4) {
        _mm_storeu_ps(p, low), _mm_storeu_ps(p + n - 4, high);
    } else if (n >= 2) {
        _mm_storel_pi((__m64 *)p, low);
        _mm_storel_pi((__m64 *)(p + n - 2), high);
    } else {
        _mm_store_ss(p, low);
    }
}

static inline vf vf_add(vf a, vf b) { return _mm256_add_ps(a, b); }
static inline vf vf_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
static inline vf vf_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
static inline vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
static inline vf vf_fnma(vf a, vf b, vf c) { return _mm256_fnmadd_ps(a, b, c); }

/* The larger; a NaN in a is ignored: the instruction returns its second operand then. */
static inline vf vf_max_number(vf a, vf b) { return _mm256_max_ps(a, b); }

/* x between -limit and limit; a NaN stays one. */
static inline vf vf_clamp(vf x, float limit) {
    return _mm256_max_ps(_mm256_set1_ps(-limit), _mm256_min_ps(_mm256_set1_ps(limit), x));
}

/* 1 / x, rounded once. */
static inline vf vf_reciprocal(vf x) { return _mm256_div_ps(_mm256_set1_ps(1), x); }

static inline vf vf_divide(vf a, vf b) { return _mm256_div_ps(a, b); }

/* |first - i| in lane i, rounded once. */
static inline vf vf_distances(int32_t first) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cvtepi32_ps(_mm256_abs_epi32(_mm256_sub_epi32(_mm256_set1_epi32(first), lane)));
}

/* Whether each lane is below the limit, which a NaN is not. */
static inline int vf_all_below(vf x, float limit) {
    return _mm256_movemask_ps(_mm256_cmp_ps(x, _mm256_set1_ps(limit), _CMP_LT_OQ)) == 0xff;
}

static inline vm vf_equal(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
static inline vf vf_select(vm m, vf a, vf b) { return _mm256_blendv_ps(b, a, m); }

/* 2^n where magic_n = n + 0x1.8000fep+23: the low bits hold n + 127, the exponent of 2^n. */
static inline vf vf_pow2(vf magic_n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(magic_n), 23));
}

/* p * 2^n, or 0 where x < least. A product, not an addition to p's exponent, so that a NaN stays one.
 * Both factors are 0 below `least`, where a product could be subnormal, which takes a CPU long. */
static inline vf vf_pow2_scale(vf p, vf magic_n, vf x, vf least) {
    const vm normal = _mm256_cmp_ps(x, least, _CMP_NLT_UQ);
    return _mm256_mul_ps(_mm256_and_ps(normal, p), _mm256_and_ps(normal, vf_pow2(magic_n)));
}

static inline float vf_first(vf x) { return _mm256_cvtss_f32(x); }

/* A fixed tree: the upper half onto the lower half, three times. */
static inline float vf_reduce_add(vf x) {
    __m128 z = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    z = _mm_add_ps(z, _mm_movehl_ps(z, z));
    return _mm_cvtss_f32(_mm_add_ss(z, _mm_movehdup_ps(z)));
}
static inline float vf_reduce_max(vf x) {
    __m128 z = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    z = _mm_max_ps(z, _mm_movehl_ps(z, z));
    return _mm_cvtss_f32(_mm_max_ss(z, _mm_movehdup_ps(z)));
}

/* The same of VF_LANES vectors at once, that of x[i] in lane i: with each step twice as many of them
 * share a register. */
#define REDUCE_EACH(op, x, all)                                                                    \
    do {                                                                                           \
        vf two[4], four[2];                                                                        \
        UNROLL                                                                                     \
        for (int i = 0; i < 4; i++)                                                                \
            two[i] = op(_mm256_permute2f128_ps(x[i], x[i + 4], 0x20),                              \
                        _mm256_permute2f128_ps(x[i], x[i + 4], 0x31));                             \
        UNROLL                                                                                     \
        for (int i = 0; i < 2; i++)                                                                \
            four[i] = op(_mm256_shuffle_ps(two[2 * i], two[2 * i + 1], 0x44),                      \
                         _mm256_shuffle_ps(two[2 * i], two[2 * i + 1], 0xee));                     \
        all = op(_mm256_shuffle_ps(four[0], four[1], 0x88),                                        \
                 _mm256_shuffle_ps(four[0], four[1], 0xdd));                                       \
    } while (0)
static inline vf vf_reduce_add_each(const vf *x) {
    vf all;
    REDUCE_EACH(_mm256_add_ps, x, all);
    return all;
}
static inline vf vf_reduce_max_each(const vf *x) {
    vf all;
    REDUCE_EACH(_mm256_max_ps, x, all);
    return all;
}
#undef REDUCE_EACH

/* A vector of a storage type, exactly, and f32 rounded to one. */
static inline vf vf_load_f16(const uint16_t *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}
static inline vf vf_load_bf16(const uint16_t *p) {
    const __m256i x = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(x, 16));
}
static inline vf vf_load_i8(const int8_t *p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}

/* Element i of each lane of storage (see struct attn_stored_keys), as these do. */
static inline vf vf_bf16_of_lanes(vf lanes, size_t i) {
    const __m256i x = _mm256_castps_si256(lanes);
    return _mm256_castsi256_ps(i ? _mm256_and_si256(x, _mm256_set1_epi32((int)0xffff0000))
                                 : _mm256_slli_epi32(x, 16));
}
static inline vf vf_i8_of_lanes(vf lanes, size_t i) {
    __m256i x = _mm256_castps_si256(lanes);
    if (i < 3)
        x = _mm256_slli_epi32(x, 24 - 8 * (int)i);
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(x, 24));
}

static inline void vf_store_f16(uint16_t *p, vf x) {
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
static inline void vf_store_bf16(uint16_t *p, vf x) {
    const __m256i bits = _mm256_castps_si256(x), high = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    const __m256i half_unit = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, half_unit), 16);
    const __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256i result = _mm256_blendv_epi8(rounded, quiet, is_nan);
    const __m256i packed = _mm256_packus_epi32(result, result); /* in each half */
    _mm_storeu_si128((__m128i *)p, _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 8)));
}

#endif
