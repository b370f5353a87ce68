/* The NEON kernel set with products of int8, four to a lane.
 *
 * SPDX-License-Identifier: MIT */
#include "neon.h"
#include "neon_dotprod.h"
#include "required_features.h"

ATTN_DEFINE_INT8_TABLE(neon_dotprod, 8);
ATTN_DEFINE_KERNELS(neon, neon_dotprod, 12, ATTN_NEON_PACK, NULL, NULL, &int8_kernels_neon_dotprod);
