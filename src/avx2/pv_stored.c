/* Accumulates the weighted values of a tile as they are stored, 16 features at a time, 32 for up to
 * two rows.
 *
 * SPDX-License-Identifier: MIT */
#include "avx2.h"
#include "vec.h"

#define STORED_BLOCKS(X) UP_TO_6(X, 1) UP_TO_6(X, 2) UP_TO_2(X, 3) UP_TO_2(X, 4)
#define STORED_TABLE(X)                                                                            \
    {UP_TO_6(X, 1)}, {UP_TO_6(X, 2)}, {UP_TO_2(X, 3)}, { UP_TO_2(X, 4) }
#define STORED_MOST_ROWS 6, 6, 2, 2
#define SHORT_BLOCKS(X) UP_TO_6(X, 1)
#include "pv_stored.h"

DEFINE_PV_STORED(attn_pv_f32_avx2, ATTN_F32)
DEFINE_PV_STORED(attn_pv_f16_avx2, ATTN_F16)
DEFINE_PV_STORED(attn_pv_bf16_avx2, ATTN_BF16)
DEFINE_PV_STORED(attn_pv_i8_avx2, ATTN_I8)
