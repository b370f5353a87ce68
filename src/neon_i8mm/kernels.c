/* The NEON kernel set with products of int8, in matrices.
 *
 * SPDX-License-Identifier: MIT */
#include "neon.h"
#include "neon_i8mm.h"
#include "required_features.h"

ATTN_DEFINE_INT8_TABLE(neon_i8mm, 8);
ATTN_DEFINE_KERNELS(neon, neon_i8mm, 12, ATTN_NEON_PACK, NULL, NULL, &int8_kernels_neon_i8mm);
