/* The AVX-512 kernel set.
 *
 * SPDX-License-Identifier: MIT */
#include "avx512.h"
#include "required_features.h"

ATTN_DEFINE_STORED_KERNELS(avx512, ATTN_AVX512_PACK_HALF, ATTN_AVX512_PACK_I8);
ATTN_DEFINE_KERNELS(avx512, avx512, 18, ATTN_AVX512_PACK_F32, &stored_kernels_avx512, NULL, NULL);
