/* How the rows of a tile are dealt out to register blocks.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_ROW_BLOCKS_H
#define ATTN_ROW_BLOCKS_H

#include <stddef.h>

/* The most rows that any register block has. */
#define MAX_BLOCK_ROWS 12

/* Rows of the next block where `left` rows remain and a block has at most `most`: two halves are
 * faster than a full block and one with a row or two, whose chains are too few to hide the latency
 * of a multiply-add. */
static inline size_t next_block(size_t left, size_t most) {
    return left <= most ? left : left < 2 * most ? (left + 1) / 2 : most;
}

/* Lists X(1, N), X(2, N), ... for tables of blocks. */
#define UP_TO_2(X, N) X(1, N) X(2, N)
#define UP_TO_3(X, N) UP_TO_2(X, N) X(3, N)
#define UP_TO_4(X, N) UP_TO_3(X, N) X(4, N)
#define UP_TO_6(X, N) UP_TO_4(X, N) X(5, N) X(6, N)
#define FROM_2_TO_8(X, N) X(2, N) X(3, N) X(4, N) X(5, N) X(6, N) X(7, N) X(8, N)
#define FROM_2_TO_12(X, N) FROM_2_TO_8(X, N) X(9, N) X(10, N) X(11, N) X(12, N)
#define FROM_2_TO_16(X, N) FROM_2_TO_12(X, N) X(13, N) X(14, N) X(15, N) X(16, N)
#define UP_TO_8(X, N) X(1, N) FROM_2_TO_8(X, N)
#define UP_TO_12(X, N) X(1, N) FROM_2_TO_12(X, N)

#endif
