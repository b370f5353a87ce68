/* The kernels of the NEON set.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_NEON_H
#define ATTN_NEON_H

#include "kernel_set.h"

ATTN_DECLARE_KERNELS(neon)

/* From which rows on sets with these kernels pack keys. */
#define ATTN_NEON_PACK                                                                             \
    { 8, 8, 15 }

#endif
