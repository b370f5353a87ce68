/* The kernels of the AVX-512 set.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_AVX512_H
#define ATTN_AVX512_H

#include "kernel_set.h"

ATTN_DECLARE_KERNELS(avx512)
ATTN_DECLARE_STORED_KERNELS(avx512)

/* From which rows on sets with these kernels pack keys: f32, halves, int8. */
#define ATTN_AVX512_PACK_F32                                                                       \
    { 13, 17, 27 }
#define ATTN_AVX512_PACK_HALF                                                                      \
    { 17, 17, 33 }
#define ATTN_AVX512_PACK_I8                                                                        \
    { 17, 17, 21 }

/* The block of a single row (strided_function of qk_few_rows.h) of qk_strided and qk_f32. */
void attn_qk_one_row_f32_avx512(const float *const *q, const struct attn_stored *keys, size_t first,
                                size_t n_keys, size_t dim, float scale, float *scores,
                                size_t score_stride);

#endif
