/* Scores of a few query rows from keys as they are stored.
 *
 * SPDX-License-Identifier: MIT */
#include "avx512.h"
#include "vec.h"

#include "transpose.h"

#include "qk_few_rows.h"

DEFINE_QK_STORED(attn_qk_f16_avx512, ATTN_F16)
DEFINE_QK_STORED(attn_qk_bf16_avx512, ATTN_BF16)
DEFINE_QK_STORED(attn_qk_i8_avx512, ATTN_I8)
