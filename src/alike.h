/* Whether rows of a tile see the same keys, as most do: such rows take the same way through a kernel.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_ALIKE_H
#define ATTN_ALIKE_H

#include "kernels.h"

/* Whether none of the rows has bits. */
static inline int rows_are_ranges(const struct attn_visible *visible, size_t n_rows) {
    uintptr_t bits = 0;
    for (size_t r = 0; r < n_rows; r++)
        bits |= (uintptr_t)visible[r].bits;
    return !bits;
}

/* Whether the rows see the same range of keys, and none has bits or is lifted. */
static inline int rows_are_alike(const struct attn_visible *visible, size_t n_rows) {
    const int32_t begin = visible[0].begin, end = visible[0].end;
    uintptr_t differ = 0;
    if ((int64_t)n_rows <= visible[0].alike)
        return 1;
    for (size_t r = 0; r < n_rows; r++)
        differ |= (uint32_t)(visible[r].begin ^ begin) | (uint32_t)(visible[r].end ^ end) |
                  (uint32_t)visible[r].lifted | (uintptr_t)visible[r].bits;
    return !differ;
}

/* The same, but for where the ranges end, as those of causal rows do. */
static inline int rows_begin_alike(const struct attn_visible *visible, size_t n_rows) {
    const int32_t begin = visible[0].begin;
    uintptr_t differ = 0;
    for (size_t r = 0; r < n_rows; r++)
        differ |= (uint32_t)(visible[r].begin ^ begin) | (uint32_t)visible[r].lifted |
                  (uintptr_t)visible[r].bits;
    return !differ;
}

#endif
