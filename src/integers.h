/* The smaller and the larger of two 64-bit integers, by what they are used for.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_INTEGERS_H
#define ATTN_INTEGERS_H

#include <stdint.h>

static inline int64_t at_least(int64_t a, int64_t least) { return a > least ? a : least; }
static inline int64_t at_most(int64_t a, int64_t most) { return a < most ? a : most; }

#endif
