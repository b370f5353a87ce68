/* Turns 16 keys into vectors of one feature of 16 keys, four features at a time.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_AVX512_TRANSPOSE_H
#define ATTN_AVX512_TRANSPOSE_H

#include "key_places.h"
#include "unroll.h"
#include "vec.h"

/* Four features of keys first, first + 4, first + 8 and first + 12, one key in each 128-bit lane.
 * The inserts into halves come straight from memory, which keeps them off the one port that shuffles;
 * a chain of four would all stay off it, but takes longer. Only the first n_keys keys and the first
 * n_features (1 to 4) features are read; others become 0. */
ALWAYS_INLINE __m512 load_key_quarter(const float *keys, struct key_steps steps, size_t first,
                                      size_t n_keys, size_t n_features) {
    const __mmask8 features = (__mmask8)((1u << n_features) - 1);
    __m128 part[4];
    UNROLL
    for (size_t i = 0; i < 4; i++) {
        const size_t j = first + 4 * i;
        if (n_features == 4)
            part[i] = j < n_keys ? _mm_loadu_ps(key_at(keys, steps, j)) : _mm_setzero_ps();
        else
            part[i] = j < n_keys ? _mm_maskz_loadu_ps(features, key_at(keys, steps, j))
                                 : _mm_setzero_ps();
    }
    const __m256 low = _mm256_insertf128_ps(_mm256_castps128_ps256(part[0]), part[1], 1);
    const __m256 high = _mm256_insertf128_ps(_mm256_castps128_ps256(part[2]), part[3], 1);
    return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
}

/* out[f] = feature f of keys 0 .. 15, f < 4: a 4 x 4 transposition in each 128-bit lane. */
ALWAYS_INLINE void transpose_keys(const float *keys, struct key_steps steps, size_t n_keys,
                                  size_t n_features, __m512 out[4]) {
    const __m512 a = load_key_quarter(keys, steps, 0, n_keys, n_features);
    const __m512 b = load_key_quarter(keys, steps, 1, n_keys, n_features);
    const __m512 c = load_key_quarter(keys, steps, 2, n_keys, n_features);
    const __m512 d = load_key_quarter(keys, steps, 3, n_keys, n_features);
    const __m512d ab_low = _mm512_castps_pd(_mm512_unpacklo_ps(a, b));
    const __m512d ab_high = _mm512_castps_pd(_mm512_unpackhi_ps(a, b));
    const __m512d cd_low = _mm512_castps_pd(_mm512_unpacklo_ps(c, d));
    const __m512d cd_high = _mm512_castps_pd(_mm512_unpackhi_ps(c, d));
    out[0] = _mm512_castpd_ps(_mm512_unpacklo_pd(ab_low, cd_low));
    out[1] = _mm512_castpd_ps(_mm512_unpackhi_pd(ab_low, cd_low));
    out[2] = _mm512_castpd_ps(_mm512_unpacklo_pd(ab_high, cd_high));
    out[3] = _mm512_castpd_ps(_mm512_unpackhi_pd(ab_high, cd_high));
}

/* The same of 4 lanes of two halves each: out[f * 16 + j] = half f of key j, f < 8. Halves of two
 * keys meet in an unpacking, those of all 16 in a permutation of such pairs. */
ALWAYS_INLINE void transpose_halves(const float *keys, struct key_steps steps, size_t n_keys,
                                    uint16_t *out) {
    const __m512i a = _mm512_castps_si512(load_key_quarter(keys, steps, 0, n_keys, 4));
    const __m512i b = _mm512_castps_si512(load_key_quarter(keys, steps, 1, n_keys, 4));
    const __m512i c = _mm512_castps_si512(load_key_quarter(keys, steps, 2, n_keys, 4));
    const __m512i d = _mm512_castps_si512(load_key_quarter(keys, steps, 3, n_keys, 4));
    const __m512i ab_low = _mm512_unpacklo_epi16(a, b), ab_high = _mm512_unpackhi_epi16(a, b);
    const __m512i cd_low = _mm512_unpacklo_epi16(c, d), cd_high = _mm512_unpackhi_epi16(c, d);
    const __m512i even =
        _mm512_setr_epi32(0, 16, 4, 20, 8, 24, 12, 28, 1, 17, 5, 21, 9, 25, 13, 29);
    const __m512i odd =
        _mm512_setr_epi32(2, 18, 6, 22, 10, 26, 14, 30, 3, 19, 7, 23, 11, 27, 15, 31);
    _mm512_storeu_si512(out, _mm512_permutex2var_epi32(ab_low, even, cd_low));
    _mm512_storeu_si512(out + 32, _mm512_permutex2var_epi32(ab_low, odd, cd_low));
    _mm512_storeu_si512(out + 64, _mm512_permutex2var_epi32(ab_high, even, cd_high));
    _mm512_storeu_si512(out + 96, _mm512_permutex2var_epi32(ab_high, odd, cd_high));
}

#endif
