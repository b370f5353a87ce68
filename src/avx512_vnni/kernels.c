/* The AVX-512 kernel set with products of int8.
 *
 * SPDX-License-Identifier: MIT */
#include "avx512.h"
#include "avx512_vnni.h"
#include "required_features.h"

ATTN_DEFINE_INT8_TABLE(avx512_vnni, 9);
ATTN_DEFINE_STORED_KERNELS(avx512, ATTN_AVX512_PACK_HALF, ATTN_AVX512_PACK_I8);
ATTN_DEFINE_KERNELS(avx512, avx512_vnni, 18, ATTN_AVX512_PACK_F32, &stored_kernels_avx512, NULL,
                    &int8_kernels_avx512_vnni);
