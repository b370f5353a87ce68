/* The kernels of the AVX-512 set.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_AVX512_H
#define ATTN_AVX512_H

#include "kernel_set.h"

ATTN_DECLARE_KERNELS(avx512)
ATTN_DECLARE_STORED_KERNELS(avx512)

#endif
