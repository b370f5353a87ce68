/* The NEON kernel set.
 *
 * SPDX-License-Identifier: MIT */
#include "neon.h"
#include "required_features.h"

ATTN_DEFINE_KERNELS(neon, neon, 12, ATTN_NEON_PACK, NULL, NULL, NULL);
