/* The AVX-512 kernel set with products of bf16.
 *
 * SPDX-License-Identifier: MIT */
#include "avx512.h"
#include "required_features.h"

ATTN_DEFINE_KERNELS_ON(avx512, avx512_bf16, 9, );
