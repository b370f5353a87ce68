/* Random numbers of the standard normal distribution, the same every time.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_NORMAL_H
#define ATTN_NORMAL_H

#include <stddef.h>
#include <stdint.h>

struct normal {
    uint64_t state; /* not 0; small seeds will do */
};

void normal_fill(struct normal *random, float *x, size_t n);

#endif
