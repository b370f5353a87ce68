/* The register blocks of pv_tile.c.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_NEON_PV_BLOCK_H
#define ATTN_NEON_PV_BLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* `blocks` blocks of rows, the next one's weights, factor and acc directly behind: acc = acc *
 * factor[r], or -0 where factor is null, then the chain over n keys. */
typedef void pv_block(size_t blocks, const float *weights, size_t weight_stride,
                      const float *values, int64_t value_stride, int32_t n, size_t last,
                      const float *factor, float *acc, size_t acc_stride);

/* Columns of the next block where `left` remain, at most widest: never so many that fewer than a
 * vector would be left over. */
size_t attn_pv_columns_neon(size_t left, size_t widest);

/* The blocks for that many columns, by rows - 1. copied: values are BLOCK_COLUMNS apart. */
pv_block *const *attn_pv_blocks_neon(size_t columns, bool copied);

#endif
