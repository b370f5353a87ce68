/* Lanes that are pairs of bf16, for lanes.h.
 *
 * BFDOT adds the two products of a lane, then that to the lane of the sum, both rounded to odd;
 * subnormal inputs are 0, and so are subnormal results. A product of two bf16 has 16 significant
 * bits and is exact.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_NEON_BF16_PAIRS_H
#define ATTN_NEON_BF16_PAIRS_H

#include "vec.h"

static inline bfloat16x8_t pairs(vf x) { return vreinterpretq_bf16_f32(x); }

static inline vf dot_pairs(vf a, vf b, vf acc) { return vbfdotq_f32(acc, pairs(a), pairs(b)); }

/* The first of a pair is the lower half. */
static inline vf show_of_pairs(vf x, unsigned bits) {
    const uint32_t mask = (bits & 1 ? 0xffffu : 0) | (bits & 2 ? 0xffff0000u : 0);
    return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(x), vdupq_n_u32(mask)));
}

#define LANE_KEYS 2
#define LANE_MULTIPLY_ADD(a, b, acc) dot_pairs(a, b, acc)
#define LANE_SHOW(x, bits) show_of_pairs(x, bits)
#define LANE_MULTIPLY_ADD_BY(acc, x, w, lane) vbfdotq_laneq_f32(acc, pairs(x), pairs(w), lane)
#define LANE_ASSEMBLY_BY(acc, x, w, lane) "bfdot %" acc ".4s, %" x ".8h, %" w ".2h[" lane "]"

#endif
