/* Accumulates the weighted values of a tile as they are stored, 64 features at a time, 128 for up to
 * three rows.
 *
 * SPDX-License-Identifier: MIT */
#include "avx512.h"
#include "vec.h"

#define STORED_BLOCKS(X)                                                                           \
    UP_TO_6(X, 1)                                                                                  \
    UP_TO_6(X, 2)                                                                                  \
    UP_TO_6(X, 3)                                                                                  \
    UP_TO_6(X, 4)                                                                                  \
    UP_TO_3(X, 5) UP_TO_3(X, 6) UP_TO_3(X, 7) UP_TO_3(X, 8)
#define STORED_TABLE(X)                                                                            \
    {UP_TO_6(X, 1)}, {UP_TO_6(X, 2)}, {UP_TO_6(X, 3)}, {UP_TO_6(X, 4)}, {UP_TO_3(X, 5)},           \
        {UP_TO_3(X, 6)}, {UP_TO_3(X, 7)}, {                                                        \
        UP_TO_3(X, 8)                                                                              \
    }
#define STORED_MOST_ROWS 6, 6, 6, 6, 3, 3, 3, 3
#define SHORT_BLOCKS(X) UP_TO_6(X, 1)
#include "pv_stored.h"

DEFINE_PV_STORED(attn_pv_f32_avx512, ATTN_F32)
DEFINE_PV_STORED(attn_pv_f16_avx512, ATTN_F16)
DEFINE_PV_STORED(attn_pv_bf16_avx512, ATTN_BF16)
DEFINE_PV_STORED(attn_pv_i8_avx512, ATTN_I8)
