/* The kernels of the AVX-512 VNNI set that are its own.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_AVX512_VNNI_H
#define ATTN_AVX512_VNNI_H

#include "int8_kernels.h"

ATTN_DECLARE_INT8_KERNELS(avx512_vnni)

#endif
