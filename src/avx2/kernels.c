/* The AVX2 kernel set.
 *
 * SPDX-License-Identifier: MIT */
#include "avx2.h"
#include "required_features.h"

ATTN_DEFINE_STORED_KERNELS(avx2, 17, 17, 9, 13);
ATTN_DEFINE_KERNELS(avx2, 18, 9, 17, &stored_kernels_avx2);
