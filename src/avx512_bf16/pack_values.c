/* Weights and values as pairs of bf16, each of two neighbouring keys.
 *
 * SPDX-License-Identifier: MIT */
#include "avx512_bf16.h"
#include "vec.h"

#include "visible_word.h"

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

void attn_narrow_weights_avx512_bf16(float *weights, size_t weight_stride, size_t n_rows,
                                     const struct attn_visible *visible) {
    for (size_t r = 0; r < n_rows; r++) {
        const struct attn_visible see = visible[r];
        for (int32_t first = see.begin & -WORD_KEYS; first < see.end; first += WORD_KEYS) {
            const uint64_t word = visible_word(see.bits, first, see.begin, see.end);
            for (int32_t i = 0; i < WORD_KEYS; i += 32) {
                const __mmask32 seen = (__mmask32)(word >> i);
                float *w = weights + r * weight_stride + first + i;
                const __m512i pairs = (__m512i)_mm512_cvtne2ps_pbh(vf_load(w + 16), vf_load(w));
                /* What is not seen becomes -0: its product with 0 is neutral in every addition. */
                _mm512_storeu_si512(
                    weights + r * weight_stride + (first + i) / 2,
                    _mm512_mask_blend_epi16(seen, _mm512_set1_epi16(INT16_MIN), pairs));
            }
        }
    }
}
