/* The AVX2 kernel set.
 *
 * SPDX-License-Identifier: MIT */
#include "avx2.h"
#include "required_features.h"

#define PACK_F32                                                                                   \
    { 9, 17, 17 }
#define PACK_HALF                                                                                  \
    { 17, 17, 17 }
#define PACK_I8                                                                                    \
    { 9, 9, 13 }
ATTN_DEFINE_STORED_KERNELS(avx2, PACK_HALF, PACK_I8);
ATTN_DEFINE_KERNELS(avx2, avx2, 18, PACK_F32, &stored_kernels_avx2, NULL, NULL);
