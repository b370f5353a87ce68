/* The NEON kernel set with products of bf16.
 *
 * SPDX-License-Identifier: MIT */
#include "neon.h"
#include "neon_bf16.h"
#include "required_features.h"

ATTN_DEFINE_DOT_KERNELS(neon, neon_bf16, ATTN_BF16, 2, 8);
ATTN_DEFINE_KERNELS(neon, neon_bf16, 12, ATTN_NEON_PACK, NULL, &dot_kernels_neon_bf16, NULL);
