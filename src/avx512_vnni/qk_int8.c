/* Scores of queries and int8 keys, 64 packed keys or 16 in place at a time.
 *
 * SPDX-License-Identifier: MIT */
#include "avx512_vnni.h"
#include "vec_int8.h"

#include "qk_int8.h"

UP_TO_12(INT8_PACKED, 1)
UP_TO_12(INT8_PACKED, 2)
UP_TO_8(INT8_PACKED, 3)
UP_TO_6(INT8_PACKED, 4)
static packed_int8_function *const packed_blocks[MAX_BLOCK_VECTORS][MAX_BLOCK_ROWS] = {
    {UP_TO_12(INT8_PACKED_NAME, 1)},
    {UP_TO_12(INT8_PACKED_NAME, 2)},
    {UP_TO_8(INT8_PACKED_NAME, 3)},
    {UP_TO_6(INT8_PACKED_NAME, 4)}};
static const size_t most_rows[MAX_BLOCK_VECTORS] = {12, 12, 8, 6};

UP_TO_8(INT8_STRIDED, 1)
enum { strided_vectors = 1 };
static strided_int8_function *const strided_blocks[] = {UP_TO_8(INT8_STRIDED_NAME, 1)};

ATTN_DEFINE_INT8_KERNELS(avx512_vnni)
