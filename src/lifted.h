/* Where the sums of lifted rows return to scale among the keys of a register block: see pv_tile in
 * kernels.h. The block ends there, and goes on with a factor for each row: rows that return
 * elsewhere, or were never lifted, keep theirs with a factor of 1.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_LIFTED_H
#define ATTN_LIFTED_H

#include <stddef.h>

#include "kernels.h"

/* The first column in (begin, end] at which one of n rows returns, or 0. */
static inline int32_t next_return(const struct attn_visible *visible, size_t n, int32_t begin,
                                  int32_t end) {
    int32_t at = 0;
    for (size_t r = 0; r < n; r++) {
        const int32_t lifted = visible[r].lifted;
        if (lifted > begin && lifted <= end && (at == 0 || lifted < at))
            at = lifted;
    }
    return at;
}

/* What the sums of each row are multiplied by at column `at`. */
static inline const float *factor_of_return(const struct attn_visible *visible, size_t n,
                                            int32_t at, float *factor) {
    for (size_t r = 0; r < n; r++)
        factor[r] = visible[r].lifted == at ? 1 / ATTN_LIFT : 1;
    return factor;
}

#endif
