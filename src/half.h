/* The 16-bit storage types in plain C: conversions to and from f32, without branches where that is
 * possible, so that compilers can use vectors.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_HALF_H
#define ATTN_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t half_bits_of_float(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float half_float_of_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* IEEE half to single precision, exactly: the bits moved into place are the number times 2^-112,
 * and infinities and NaN get their exponent back. */
static inline float float_of_f16(uint16_t half) {
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16, magnitude = half & 0x7fff;
    const uint32_t special = magnitude >= 0x7c00 ? 0x7f800000 : 0;
    const float x = half_float_of_bits(magnitude << 13) * 0x1p112f;
    return half_float_of_bits(half_bits_of_float(x) | sign | special);
}

/* Round to nearest, ties to even. From 65520 on infinity; NaN keeps the upper bits of its payload
 * and is quiet. */
static inline uint16_t f16_of_float(float x) {
    const uint32_t bits = half_bits_of_float(x), sign = bits >> 16 & 0x8000;
    const uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    if (magnitude >= 0x477ff000)
        return (uint16_t)(sign | 0x7c00);
    if (magnitude < 0x38800000) /* below 2^-14: in units of 2^-24, which is the unit of 0.5 to 1 */
        return (uint16_t)(sign |
                          (half_bits_of_float(half_float_of_bits(magnitude) + 0.5f) - 0x3f000000));
    return (uint16_t)(sign | (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13);
}

static inline float float_of_bf16(uint16_t half) {
    return half_float_of_bits((uint32_t)half << 16);
}

/* Round to nearest, ties to even; NaN keeps the upper bits of its payload and is quiet. */
static inline uint16_t bf16_of_float(float x) {
    const uint32_t bits = half_bits_of_float(x);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#endif
