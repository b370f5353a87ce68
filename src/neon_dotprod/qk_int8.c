/* Scores of queries and int8 keys, up to 4 rows by 16 keys at a time.
 *
 * SPDX-License-Identifier: MIT */
#include "neon_dotprod.h"
#include "vec_int8.h"

#include "qk_int8.h"
#include "qk_int8_blocks.h"

ATTN_DEFINE_INT8_KERNELS(neon_dotprod)
