/* The AVX-512 kernel set with products of int8.
 *
 * SPDX-License-Identifier: MIT */
#include "avx512.h"
#include "avx512_vnni.h"
#include "required_features.h"

ATTN_DEFINE_INT8_TABLE(avx512_vnni, 9);
ATTN_DEFINE_STORED_KERNELS(avx512, 17, 33, 17, 25);
ATTN_DEFINE_KERNELS_ON(avx512, avx512_vnni, 18, 13, 33, &stored_kernels_avx512, NULL,
                       &int8_kernels_avx512_vnni);
