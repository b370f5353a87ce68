/* The kernels of the NEON dot product set that are its own.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_NEON_DOTPROD_H
#define ATTN_NEON_DOTPROD_H

#include "int8_kernels.h"

ATTN_DECLARE_INT8_KERNELS(neon_dotprod)

#endif
