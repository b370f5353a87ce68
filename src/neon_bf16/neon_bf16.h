/* The kernels of the NEON set with products of bf16.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_NEON_BF16_H
#define ATTN_NEON_BF16_H

#include "kernel_set.h"

ATTN_DECLARE_DOT_KERNELS(neon_bf16)

#endif
