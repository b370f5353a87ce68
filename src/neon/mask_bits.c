/* Which keys a mask shows, as bits.
 *
 * SPDX-License-Identifier: MIT */
#include <math.h>

#include "neon.h"
#include "unroll.h"
#include "vec.h"

/* Bit i of the word where byte i of the 64 in x is all ones: each keeps the bit of its place in a
 * group of eight, and three rounds of pairwise sums make a byte of each group. */
static inline uint64_t word_of_bytes(const uint8x16_t x[4]) {
    const uint8x16_t place = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    const uint8x16_t low = vpaddq_u8(vandq_u8(x[0], place), vandq_u8(x[1], place));
    const uint8x16_t high = vpaddq_u8(vandq_u8(x[2], place), vandq_u8(x[3], place));
    const uint8x16_t sum = vpaddq_u8(low, high);
    return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(sum, sum)), 0);
}

static inline uint64_t word_of_bool(const uint8_t *mask) {
    uint8x16_t x[4];
    UNROLL
    for (int i = 0; i < 4; i++) {
        x[i] = vld1q_u8(mask + 16 * i);
        x[i] = vtstq_u8(x[i], x[i]);
    }
    return word_of_bytes(x);
}

static inline uint64_t word_of_bias(const float *bias) {
    const vf hidden = vf_set1(-INFINITY);
    uint8x16_t x[4];
    UNROLL
    for (int i = 0; i < 4; i++) {
        const float *p = bias + 16 * i;
        const uint16x8_t a = vcombine_u16(vmovn_u32(vceqq_f32(vf_load(p), hidden)),
                                          vmovn_u32(vceqq_f32(vf_load(p + 4), hidden)));
        const uint16x8_t b = vcombine_u16(vmovn_u32(vceqq_f32(vf_load(p + 8), hidden)),
                                          vmovn_u32(vceqq_f32(vf_load(p + 12), hidden)));
        x[i] = vmvnq_u8(vcombine_u8(vmovn_u16(a), vmovn_u16(b)));
    }
    return word_of_bytes(x);
}

#include "mask_bits.h"

void attn_bits_of_bool_f32_neon(const uint8_t *mask, size_t n_keys, uint64_t *bits) {
    bits_of_bool(mask, n_keys, bits);
}

void attn_bits_of_bias_f32_neon(const float *bias, size_t n_keys, uint64_t *bits) {
    bits_of_bias(bias, n_keys, bits);
}
