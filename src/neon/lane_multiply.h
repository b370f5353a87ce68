/* The multiply-add of a vector of lanes with one lane of another vector, for the blocks of this set:
 * see lanes.h.
 *
 *     LANE_MULTIPLY_ADD_BY(acc, x, w, lane)     acc + x times lane `lane` of w
 *     LANE_ASSEMBLY_BY(acc, x, w, lane)         the same, of the operands with those numbers
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_NEON_LANE_MULTIPLY_H
#define ATTN_NEON_LANE_MULTIPLY_H

#ifndef LANE_MULTIPLY_ADD_BY
#define LANE_MULTIPLY_ADD_BY(acc, x, w, lane) vfmaq_laneq_f32(acc, x, w, lane)
#define LANE_ASSEMBLY_BY(acc, x, w, lane) "fmla %" acc ".4s, %" x ".4s, %" w ".s[" lane "]"
#endif

#include "lanes.h"

#endif
