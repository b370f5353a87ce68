/* What the products of attention are made of: 32-bit lanes, in vectors of vec.h.
 *
 * A lane is one f32, or 2 bf16 or 4 int8 that one instruction multiplies with those of another lane
 * and adds up. So packing, blocks and loops are the same for all of them: dim / 2 or dim / 4 lanes
 * for dim features, and lanes of 2 or 4 keys each. Only the multiply-add is another one, and which
 * keys of a lane show. A set for such a type defines, before it includes this:
 *
 *     LANE_KEYS                        keys of a lane, where weights meet values
 *     LANE_MULTIPLY_ADD(a, b, acc)     acc + the products of a and b
 *     LANE_SHOW(x, bits)               x with key i of each lane 0 where bit i of bits is 0
 *
 * and a lane travels as a float that no one looks into.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_LANES_H
#define ATTN_LANES_H

#ifndef LANE_KEYS
#define LANE_KEYS 1
#define LANE_MULTIPLY_ADD(a, b, acc) vf_fma(a, b, acc)
#define LANE_SHOW(x, bits) ((void)(bits), (x))
#endif

#endif
