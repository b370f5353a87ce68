/* The AVX2 kernel set.
 *
 * SPDX-License-Identifier: MIT */
#include "avx2.h"
#include "required_features.h"

ATTN_DEFINE_KERNELS(avx2, 9);
