/* The keys and values of a tile that a few rows meet where they lie, without a copy in f32.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_TILE_STORED_H
#define ATTN_TILE_STORED_H

#include "tile.h"

typedef void attn_qk_stored(const float *const *q, size_t n_rows, const struct attn_stored *keys,
                            size_t n_keys, size_t dim, float scale, float *scores,
                            size_t score_stride);

/* The kernel for keys of this type and shape, or null. */
attn_qk_stored *attn_tile_qk_stored(const struct attn_job *job);

/* Room for the pieces of a tile, and those that come after them. */
enum { ATTN_TILE_PIECES = ATTN_TILE_MOST / ATTN_PACK_STEP + ATTN_PIECES_AHEAD };

/* How many keys of columns [from, end) it can multiply where they lie, and where that is: all, if
 * they lie in pieces at one stride, or those that lie together, in whole steps unless they are the
 * last. Keys that follow are asked for. pieces: room for the list. */
int64_t attn_tile_stored_keys(const struct attn_job *job, const struct attn_tile *tile,
                              int64_t from, int64_t end, struct attn_piece *pieces,
                              struct attn_stored *keys);

/* attn_tile_values() from values where they lie. False where that is not possible: then nothing was
 * done. */
bool attn_tile_stored_values(const struct attn_job *job, const struct attn_scratch *w,
                             const struct attn_rows *block, const struct attn_tile *tile,
                             const struct attn_sight *sight, const float *factor, float *acc);

#endif
