/* A mask turned into bits, a word of 64 keys at a time.
 *
 * Include after word_of_bool() and word_of_bias(), which turn 64 keys into a word. A mask is the
 * caller's memory, of which nothing beyond its end is read, not even by a masked load (see
 * avx2/vec.h): the last keys are copied first.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_MASK_BITS_H
#define ATTN_MASK_BITS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

static inline void bits_of_bool(const uint8_t *mask, size_t n_keys, uint64_t *bits) {
    for (; n_keys >= 64; n_keys -= 64, mask += 64)
        *bits++ = word_of_bool(mask);
    if (n_keys > 0) {
        uint8_t last[64] = {0};
        for (size_t j = 0; j < n_keys; j++)
            last[j] = mask[j];
        *bits = word_of_bool(last);
    }
}

static inline void bits_of_bias(const float *bias, size_t n_keys, uint64_t *bits) {
    for (; n_keys >= 64; n_keys -= 64, bias += 64)
        *bits++ = word_of_bias(bias);
    if (n_keys > 0) {
        float last[64];
        for (size_t j = 0; j < 64; j++)
            last[j] = -INFINITY;
        /* A loop of its own: a choice in the loop above compilers turn into masked loads. */
        for (size_t j = 0; j < n_keys; j++)
            last[j] = bias[j];
        *bits = word_of_bias(last);
    }
}

#endif
