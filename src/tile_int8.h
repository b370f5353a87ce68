/* The int8 keys of a tile, for kernel sets that multiply them as they are stored.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_TILE_INT8_H
#define ATTN_TILE_INT8_H

#include "tile.h"

/* Whether a call's keys are int8 and are multiplied so. */
bool attn_tile_is_int8(const struct attn_checked *problem, const struct attn_kernels *kernels);

/* Packs the tile's keys. */
void attn_tile_pack_int8(const struct attn_job *job, const struct attn_scratch *w,
                         const struct attn_tile *tile);

/* attn_tile_scores() for such keys. */
void attn_tile_scores_int8(const struct attn_job *job, const struct attn_scratch *w,
                           const struct attn_rows *block, const struct attn_tile *tile,
                           int64_t begin, int64_t end);

#endif
