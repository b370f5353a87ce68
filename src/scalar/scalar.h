/* The kernels of the scalar set.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_SCALAR_H
#define ATTN_SCALAR_H

#include <stdbool.h>

#include "kernel_set.h"

ATTN_DECLARE_KERNELS(scalar)

/* Whether the row sees key j of [begin, end). */
static inline bool sees(struct attn_visible row, int32_t j) {
    return !row.bits || row.bits[j / 64] >> j % 64 & 1;
}

#endif
