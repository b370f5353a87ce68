/* Where the keys of a vector lie: with the scales that an address may have, four distances reach keys
 * 1 to 7 from a first one, and again from key 8. A compiler left alone keeps an address for each key,
 * most of them in memory.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_KEY_PLACES_H
#define ATTN_KEY_PLACES_H

#include <stddef.h>
#include <stdint.h>

#include "unroll.h"

/* The compiler forgets how x came about, so it cannot keep sums with x in place of x. */
#if defined(__GNUC__)
#define KEEP_IN_REGISTER(x) __asm__("" : "+r"(x))
#else
#define KEEP_IN_REGISTER(x) (void)0
#endif

struct key_steps {
    int64_t one, three, five, seven; /* bytes */
};

/* stride: of keys, in lanes; of a single key any number. */
static inline struct key_steps key_steps(int64_t stride) {
    const uint64_t one = (uint64_t)stride * sizeof(float);
    struct key_steps s = {(int64_t)one, (int64_t)(3 * one), (int64_t)(5 * one), (int64_t)(7 * one)};
    KEEP_IN_REGISTER(s.one);
    KEEP_IN_REGISTER(s.three);
    KEEP_IN_REGISTER(s.five);
    KEEP_IN_REGISTER(s.seven);
    return s;
}

/* Key j from the one at `keys` on; j is a constant. */
ALWAYS_INLINE const void *key_at(const void *keys, struct key_steps s, const size_t j) {
    const char *first = (const char *)keys + (j >= 8 ? 8 * s.one : 0);
    switch (j % 8) {
    case 0:
        return first;
    case 1:
        return first + s.one;
    case 2:
        return first + 2 * s.one;
    case 3:
        return first + s.three;
    case 4:
        return first + 4 * s.one;
    case 5:
        return first + s.five;
    case 6:
        return first + 2 * s.three;
    default:
        return first + s.seven;
    }
}

#endif
