/* Which keys a mask shows, as bits.
 *
 * SPDX-License-Identifier: MIT */
#include <math.h>

#include "avx2.h"
#include "unroll.h"
#include "vec.h"

static inline uint64_t word_of_bool(const uint8_t *mask) {
    uint64_t hidden = 0;
    UNROLL
    for (int i = 0; i < 64; i += 32) {
        const __m256i x = _mm256_loadu_si256((const __m256i *)(mask + i));
        const __m256i is_zero = _mm256_cmpeq_epi8(x, _mm256_setzero_si256());
        hidden |= (uint64_t)(uint32_t)_mm256_movemask_epi8(is_zero) << i;
    }
    return ~hidden;
}

static inline uint64_t word_of_bias(const float *bias) {
    const vf hidden = vf_set1(-INFINITY);
    uint64_t word = 0;
    UNROLL
    for (int i = 0; i < 64; i += VF_LANES) {
        const vf shown = _mm256_cmp_ps(vf_load(bias + i), hidden, _CMP_NEQ_UQ);
        word |= (uint64_t)(uint32_t)_mm256_movemask_ps(shown) << i;
    }
    return word;
}

#include "mask_bits.h"

void attn_bits_of_bool_f32_avx2(const uint8_t *mask, size_t n_keys, uint64_t *bits) {
    bits_of_bool(mask, n_keys, bits);
}

void attn_bits_of_bias_f32_avx2(const float *bias, size_t n_keys, uint64_t *bits) {
    bits_of_bias(bias, n_keys, bits);
}
