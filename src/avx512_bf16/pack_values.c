/* Weights and values as pairs of bf16, each of two neighbouring keys.
 *
 * SPDX-License-Identifier: MIT */
#include "avx512_bf16.h"
#include "vec.h"

/* 16 features of one key; others are not read. */
static inline __m512i load_features(const uint16_t *x, size_t n) {
    return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(vm_first(n), x));
}

void attn_interleave_avx512_bf16(const void *const *tokens, size_t n, float *lanes) {
    const uint16_t *even = tokens[0], *odd = tokens[1];
    for (size_t c = 0; c < n; c += VF_LANES) {
        const __m512i a = even ? load_features(even + c, n - c) : _mm512_setzero_si512();
        const __m512i b = odd ? load_features(odd + c, n - c) : _mm512_setzero_si512();
        const __m512i pairs = _mm512_or_si512(a, _mm512_slli_epi32(b, 16));
        vf_store_first(lanes + c, _mm512_castsi512_ps(pairs), n - c);
    }
}

/* The bits of columns first to first + 31, first a multiple of 32: 1 where the row sees them. */
static inline uint32_t seen_word(struct attn_visible see, int32_t first) {
    uint32_t word = see.bits ? (uint32_t)(see.bits[first / 64] >> first % 64) : ~UINT32_C(0);
    if (see.begin > first)
        word &= ~UINT32_C(0) << (see.begin - first);
    if (see.end < first + 32)
        word &= ~(~UINT32_C(0) << (see.end - first));
    return word;
}

void attn_narrow_weights_avx512_bf16(float *weights, size_t weight_stride, size_t n_rows,
                                     const struct attn_visible *visible) {
    for (size_t r = 0; r < n_rows; r++) {
        const struct attn_visible see = visible[r];
        float *w = weights + r * weight_stride;
        for (int32_t j = see.begin & -32; j < see.end; j += 32) {
            const __m512i pairs =
                (__m512i)_mm512_cvtne2ps_pbh(vf_load(w + j + VF_LANES), vf_load(w + j));
            /* -0, whose product with 0 is the neutral element of addition. */
            const __m512i none = _mm512_set1_epi16((short)0x8000);
            _mm512_storeu_si512(w + j / 2, _mm512_mask_blend_epi16(seen_word(see, j), none, pairs));
        }
    }
}
