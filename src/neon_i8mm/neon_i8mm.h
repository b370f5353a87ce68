/* The kernels of the NEON int8 matrix set that are its own.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_NEON_I8MM_H
#define ATTN_NEON_I8MM_H

#include "int8_kernels.h"

ATTN_DECLARE_INT8_KERNELS(neon_i8mm)

#endif
