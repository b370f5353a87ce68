/* The NEON kernel set with products of bf16.
 *
 * SPDX-License-Identifier: MIT */
#include "neon.h"
#include "required_features.h"

ATTN_DEFINE_KERNELS_ON(neon, neon_bf16, 8, NULL, NULL);
