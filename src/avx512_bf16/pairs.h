/* Lanes that are pairs of bf16, for lanes.h.
 *
 * VDPBF16PS adds the product of the upper halves, then that of the lower halves, each sum rounded
 * to nearest; subnormal inputs are 0, and so are subnormal results. A product of two bf16 has 16
 * significant bits and is exact.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_AVX512_BF16_PAIRS_H
#define ATTN_AVX512_BF16_PAIRS_H

#include "vec.h"

/* The first of a pair is the lower half. */
static inline vf dot_pairs(vf a, vf b, vf acc) {
    return _mm512_dpbf16_ps(acc, (__m512bh)a, (__m512bh)b);
}

static inline vf show_of_pairs(vf x, unsigned bits) {
    const uint32_t mask = (bits & 1 ? 0xffffu : 0) | (bits & 2 ? 0xffff0000u : 0);
    return _mm512_and_ps(x, _mm512_castsi512_ps(_mm512_set1_epi32((int)mask)));
}

#define LANE_KEYS 2
#define LANE_MULTIPLY_ADD(a, b, acc) dot_pairs(a, b, acc)
#define LANE_SHOW(x, bits) show_of_pairs(x, bits)

#endif
