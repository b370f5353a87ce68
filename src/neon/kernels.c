/* The NEON kernel set.
 *
 * SPDX-License-Identifier: MIT */
#include "neon.h"
#include "required_features.h"

ATTN_DEFINE_KERNELS(neon, 12, 8, 15, NULL);
