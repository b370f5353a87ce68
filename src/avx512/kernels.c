/* The AVX-512 kernel set.
 *
 * SPDX-License-Identifier: MIT */
#include "avx512.h"
#include "required_features.h"

ATTN_DEFINE_STORED_KERNELS(avx512, 17, 33, 17, 21);
ATTN_DEFINE_KERNELS(avx512, 18, 13, 27, &stored_kernels_avx512);
