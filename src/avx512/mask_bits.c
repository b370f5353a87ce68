/* Which keys a mask shows, as bits.
 *
 * SPDX-License-Identifier: MIT */
#include <math.h>

#include "avx512.h"
#include "unroll.h"
#include "vec.h"

static inline uint64_t word_of_bool(const uint8_t *mask) {
    const __m512i x = _mm512_loadu_si512(mask);
    return _mm512_test_epi8_mask(x, x);
}

static inline uint64_t word_of_bias(const float *bias) {
    const vf hidden = vf_set1(-INFINITY);
    uint64_t word = 0;
    UNROLL
    for (int i = 0; i < 64; i += VF_LANES)
        word |= (uint64_t)_mm512_cmp_ps_mask(vf_load(bias + i), hidden, _CMP_NEQ_UQ) << i;
    return word;
}

#include "mask_bits.h"

void attn_bits_of_bool_f32_avx512(const uint8_t *mask, size_t n_keys, uint64_t *bits) {
    bits_of_bool(mask, n_keys, bits);
}

void attn_bits_of_bias_f32_avx512(const float *bias, size_t n_keys, uint64_t *bits) {
    bits_of_bias(bias, n_keys, bits);
}
