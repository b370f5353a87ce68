/* Turns 8 keys into vectors of one feature of 8 keys, four features at a time.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_AVX2_TRANSPOSE_H
#define ATTN_AVX2_TRANSPOSE_H

#include "key_places.h"
#include "unroll.h"
#include "vec.h"

/* Four features of keys first and first + 4, one key in each 128-bit lane. The insert comes
 * straight from memory, which keeps it off the ports that shuffle. Only the first n_keys keys
 * and the first n_features (1 to 4) features are read; others become 0. */
ALWAYS_INLINE __m256 load_key_pair(const float *keys, struct key_steps steps, size_t first,
                                   size_t n_keys, size_t n_features) {
    __m128 part[2];
    UNROLL
    for (size_t i = 0; i < 2; i++) {
        const size_t j = first + 4 * i;
        part[i] = _mm_setzero_ps();
        if (j < n_keys) {
            const float *key = key_at(keys, steps, j);
            if (n_features == 4)
                part[i] = _mm_loadu_ps(key);
            else
                part[i] = _mm_setr_ps(key[0], n_features > 1 ? key[1] : 0,
                                      n_features > 2 ? key[2] : 0, 0);
        }
    }
    return _mm256_insertf128_ps(_mm256_castps128_ps256(part[0]), part[1], 1);
}

/* out[f] = feature f of keys 0 .. 7, f < 4: a 4 x 4 transposition in each 128-bit lane. By VSHUFPS,
 * which newer cores do on two ports, not by VUNPCKLPS, for which they have one. */
ALWAYS_INLINE void transpose_keys(const float *keys, struct key_steps steps, size_t n_keys,
                                  size_t n_features, __m256 out[4]) {
    const __m256 a = load_key_pair(keys, steps, 0, n_keys, n_features);
    const __m256 b = load_key_pair(keys, steps, 1, n_keys, n_features);
    const __m256 c = load_key_pair(keys, steps, 2, n_keys, n_features);
    const __m256 d = load_key_pair(keys, steps, 3, n_keys, n_features);
    const __m256 ab_low = _mm256_shuffle_ps(a, b, 0x44), ab_high = _mm256_shuffle_ps(a, b, 0xee);
    const __m256 cd_low = _mm256_shuffle_ps(c, d, 0x44), cd_high = _mm256_shuffle_ps(c, d, 0xee);
    out[0] = _mm256_shuffle_ps(ab_low, cd_low, 0x88);
    out[1] = _mm256_shuffle_ps(ab_low, cd_low, 0xdd);
    out[2] = _mm256_shuffle_ps(ab_high, cd_high, 0x88);
    out[3] = _mm256_shuffle_ps(ab_high, cd_high, 0xdd);
}

/* The same of 4 lanes of two halves each: out[f * 8 + j] = half f of key j, f < 8. */
ALWAYS_INLINE void transpose_halves(const float *keys, struct key_steps steps, size_t n_keys,
                                    uint16_t *out) {
    const __m256i a = _mm256_castps_si256(load_key_pair(keys, steps, 0, n_keys, 4));
    const __m256i b = _mm256_castps_si256(load_key_pair(keys, steps, 1, n_keys, 4));
    const __m256i c = _mm256_castps_si256(load_key_pair(keys, steps, 2, n_keys, 4));
    const __m256i d = _mm256_castps_si256(load_key_pair(keys, steps, 3, n_keys, 4));
    const __m256i ab_low = _mm256_unpacklo_epi16(a, b), ab_high = _mm256_unpackhi_epi16(a, b);
    const __m256i cd_low = _mm256_unpacklo_epi16(c, d), cd_high = _mm256_unpackhi_epi16(c, d);
    const __m256i x[4] = {
        _mm256_unpacklo_epi32(ab_low, cd_low), _mm256_unpackhi_epi32(ab_low, cd_low),
        _mm256_unpacklo_epi32(ab_high, cd_high), _mm256_unpackhi_epi32(ab_high, cd_high)};
    UNROLL
    for (int i = 0; i < 4; i++) /* quarters: keys 0 .. 3 of two features, then keys 4 .. 7 */
        _mm256_storeu_si256((__m256i *)(out + 16 * i), _mm256_permute4x64_epi64(x[i], 0xd8));
}

#endif
