/* Arithmetic of 64-bit integers: bounds, and quotients of numbers that are not negative.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_INTEGERS_H
#define ATTN_INTEGERS_H

#include <stdint.h>

static inline int64_t at_least(int64_t a, int64_t least) { return a > least ? a : least; }
static inline int64_t at_most(int64_t a, int64_t most) { return a < most ? a : most; }

/* a / b. A division takes as long as a dozen other instructions, and what is divided here is mostly
 * less than b, or b is 1. */
static inline int64_t quotient(int64_t a, int64_t b) { return a < b ? 0 : b == 1 ? a : a / b; }
static inline int64_t ceil_div(int64_t a, int64_t b) {
    return a <= b ? a > 0 : quotient(a - 1, b) + 1;
}

/* The next multiple of a power of two; a itself if it is one. */
static inline int64_t round_up(int64_t a, int64_t power) { return (a + power - 1) & -power; }

#endif
