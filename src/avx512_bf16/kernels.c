/* The AVX-512 kernel set with products of bf16.
 *
 * SPDX-License-Identifier: MIT */
#include "avx512.h"
#include "avx512_bf16.h"
#include "required_features.h"

ATTN_DEFINE_DOT_KERNELS(avx512, avx512_bf16, ATTN_BF16, 2, 9);
ATTN_DEFINE_STORED_KERNELS(avx512, ATTN_AVX512_PACK_HALF, ATTN_AVX512_PACK_I8);
ATTN_DEFINE_KERNELS(avx512, avx512_bf16, 18, ATTN_AVX512_PACK_F32, &stored_kernels_avx512,
                    &dot_kernels_avx512_bf16, NULL);
