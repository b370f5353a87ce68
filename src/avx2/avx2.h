/* The kernels of the AVX2 set.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_AVX2_H
#define ATTN_AVX2_H

#include "kernel_set.h"

ATTN_DECLARE_KERNELS(avx2)
ATTN_DECLARE_STORED_KERNELS(avx2)

#endif
