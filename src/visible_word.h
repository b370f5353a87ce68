/* Which of 64 keys a row sees, as one word.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_VISIBLE_WORD_H
#define ATTN_VISIBLE_WORD_H

#include <stdint.h>

enum { WORD_KEYS = 64 };

/* The bits of keys first to first + 63, first a multiple of 64, all 1 where bits is null; those
 * outside the range are 0. */
static inline uint64_t visible_word(const uint64_t *bits, int32_t first, int32_t begin,
                                    int32_t end) {
    uint64_t word = bits ? bits[first / WORD_KEYS] : ~UINT64_C(0);
    if (begin > first)
        word &= ~UINT64_C(0) << (begin - first);
    if (end < first + WORD_KEYS)
        word &= ~(~UINT64_C(0) << (end - first));
    return word;
}

#endif
