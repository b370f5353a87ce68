/* The NEON kernel set with products of int8, four to a lane.
 *
 * SPDX-License-Identifier: MIT */
#include "neon.h"
#include "neon_dotprod.h"
#include "required_features.h"

ATTN_DEFINE_INT8_TABLE(neon_dotprod, 8);
ATTN_DEFINE_KERNELS_ON(neon, neon_dotprod, 12, 8, 15, NULL, NULL, &int8_kernels_neon_dotprod);
