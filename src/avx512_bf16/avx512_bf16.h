/* The kernels of the AVX-512 set with products of bf16.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_AVX512_BF16_H
#define ATTN_AVX512_BF16_H

#include "kernel_set.h"

ATTN_DECLARE_DOT_KERNELS(avx512_bf16)

#endif
