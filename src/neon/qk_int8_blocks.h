/* The register blocks of the sets for products of int8.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_NEON_QK_INT8_BLOCKS_H
#define ATTN_NEON_QK_INT8_BLOCKS_H

UP_TO_4(INT8_PACKED, 1)
UP_TO_4(INT8_PACKED, 2)
UP_TO_4(INT8_PACKED, 3)
UP_TO_4(INT8_PACKED, 4)
static packed_int8_function *const packed_blocks[MAX_BLOCK_VECTORS][MAX_BLOCK_ROWS] = {
    {UP_TO_4(INT8_PACKED_NAME, 1)},
    {UP_TO_4(INT8_PACKED_NAME, 2)},
    {UP_TO_4(INT8_PACKED_NAME, 3)},
    {UP_TO_4(INT8_PACKED_NAME, 4)}};
static const size_t most_rows[MAX_BLOCK_VECTORS] = {4, 4, 4, 4};

UP_TO_4(INT8_STRIDED, 4)
enum { strided_vectors = 4 };
static strided_int8_function *const strided_blocks[] = {UP_TO_4(INT8_STRIDED_NAME, 4)};

#endif
