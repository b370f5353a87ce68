/* Weights and values as pairs of bf16, each of two neighbouring keys.
 *
 * SPDX-License-Identifier: MIT */
#include "neon_bf16.h"
#include "vec.h"

#include "visible_word.h"

void attn_interleave_neon_bf16(const void *const *tokens, size_t n, float *lanes) {
    const uint16_t *even = tokens[0], *odd = tokens[1];
    const uint16x8_t zero = vdupq_n_u16(0);
    size_t c = 0;
    for (; c + 8 <= n; c += 8) {
        const uint16x8_t a = even ? vld1q_u16(even + c) : zero, b = odd ? vld1q_u16(odd + c) : zero;
        vf_store(lanes + c, vreinterpretq_f32_u16(vzip1q_u16(a, b)));
        vf_store(lanes + c + VF_LANES, vreinterpretq_f32_u16(vzip2q_u16(a, b)));
    }
    for (; c < n; c++) {
        const uint32_t pair = (even ? even[c] : 0u) | (odd ? (uint32_t)odd[c] << 16 : 0u);
        memcpy(lanes + c, &pair, sizeof pair);
    }
}

void attn_narrow_weights_neon_bf16(float *weights, size_t weight_stride, size_t n_rows,
                                   const struct attn_visible *visible) {
    const uint16x8_t bit = {1, 2, 4, 8, 16, 32, 64, 128};
    for (size_t r = 0; r < n_rows; r++) {
        const struct attn_visible see = visible[r];
        for (int32_t first = see.begin & -WORD_KEYS; first < see.end; first += WORD_KEYS) {
            const uint64_t word = visible_word(see.bits, first, see.begin, see.end);
            for (int32_t i = 0; i < WORD_KEYS; i += 8) {
                const float *w = weights + r * weight_stride + first + i;
                const uint16x8_t seen = vtstq_u16(vdupq_n_u16((uint16_t)(word >> i & 0xff)), bit);
                const bfloat16x8_t low = vcvtq_low_bf16_f32(vf_load(w));
                const bfloat16x8_t eight = vcvtq_high_bf16_f32(low, vf_load(w + VF_LANES));
                /* What is not seen becomes -0: its product with 0 is neutral in every addition. */
                const uint16x8_t lanes =
                    vbslq_u16(seen, vreinterpretq_u16_bf16(eight), vdupq_n_u16(0x8000));
                vf_store(weights + r * weight_stride + (first + i) / 2,
                         vreinterpretq_f32_u16(lanes));
            }
        }
    }
}
