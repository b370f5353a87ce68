/* A block of rows on a tile of keys: which of its keys they see, and their scores.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_TILE_H
#define ATTN_TILE_H

#include "job.h"
#include "upcoming.h"

/* The keys [begin, end), begin a multiple of ATTN_SCORE_PAD from the start of their span. Column j
 * of the tile is key begin + j. */
struct attn_tile {
    int64_t begin, end;
    int64_t next_end; /* of the keys that come after the tile's and are needed next */
    int64_t batch, kv_head;
    const float *keys, *values; /* where they can be used as they lie, else null */
    int64_t key_stride, value_stride;
    bool waits;     /* values come from memory, for rows that do not ask for them in pv_tile */
    bool is_ready;  /* prepared for use, as far as that pays */
    bool is_packed; /* keys are in w->packed; values that cannot be used as they lie, in f32 */
    struct attn_upcoming *upcoming; /* keys and values to ask for meanwhile, or null */
};

/* What a block of rows sees of a tile. */
struct attn_sight {
    struct attn_visible visible[ATTN_ROW_BLOCK];
    int64_t begin, end;                /* columns that some row sees; begin >= end: none */
    const float *bias[ATTN_ROW_BLOCK]; /* additive mask, from column 0 on; null: none */
    uint64_t bits[ATTN_ROW_BLOCK][ATTN_BIT_WORDS(ATTN_TILE_MOST)];
};

void attn_products_of(const struct attn_checked *problem, const struct attn_kernels *kernels,
                      struct attn_products *products);

/* From how many rows of a task on its tiles are packed. */
size_t attn_tile_least_packed_rows(const struct attn_job *job);

/* The tile of keys [begin, end) for the rows of a task. */
void attn_tile_begin(const struct attn_job *job, const struct attn_rows *rows, int64_t begin,
                     int64_t end, int64_t next_end, struct attn_tile *tile);

/* Packs the tile's keys, and makes f32 of values of another type, if so many rows are worth it.
 * Before this, none of them has been read. */
void attn_tile_make_ready(const struct attn_job *job, const struct attn_scratch *w,
                          const struct attn_rows *rows, struct attn_tile *tile);

/* Asks for keys or values that come a while after columns [from, to) and below `end`. */
void attn_tile_ask(const struct attn_job *job, const struct attn_tile *tile, enum attn_side side,
                   int64_t from, int64_t to, int64_t end);

/* Which keys of the tile each row of the block sees before a mask is looked at; returned is what any
 * of them sees, begin >= end: nothing. */
struct attn_key_range attn_tile_see_ranges(const struct attn_job *job,
                                           const struct attn_rows *block,
                                           const struct attn_tile *tile,
                                           struct attn_visible *visible);

/* Which keys of the tile each row of the block sees. */
void attn_tile_see(const struct attn_job *job, const struct attn_scratch *w,
                   const struct attn_rows *block, const struct attn_tile *tile,
                   struct attn_sight *sight);

/* Where the rows of a block have their f32 queries. */
void attn_find_queries(const struct attn_job *job, const struct attn_rows *block, const float **q);

/* w->scores[r * score_stride + j] = scale * q . k for columns [begin, end), begin a multiple of
 * ATTN_SCORE_PAD. */
void attn_tile_scores(const struct attn_job *job, const struct attn_scratch *w,
                      const struct attn_rows *block, const struct attn_tile *tile, int64_t begin,
                      int64_t end);

/* The same columns of scores, after softcap. */
void attn_tile_cap(const struct attn_job *job, const struct attn_scratch *w,
                   const struct attn_rows *block, int64_t begin, int64_t end);

/* The same columns of scores, with ALiBi and the additive mask of the sight. */
void attn_tile_bias(const struct attn_job *job, const struct attn_scratch *w,
                    const struct attn_rows *block, const struct attn_tile *tile,
                    const struct attn_sight *sight, int64_t begin, int64_t end);

/* What a row sees of columns [from, to), counted from `from`, a multiple of 64 if it has bits. */
void attn_see_part(const struct attn_visible *see, int64_t from, int64_t to,
                   struct attn_visible *part);

/* A factor of 1 for each row of a block: sums go on as they are. */
extern const float attn_factors_one[ATTN_ROW_BLOCK];

/* acc = acc * factor (-0 where factor is null) + weights times values, for the keys that each row
 * sees. */
void attn_tile_values(const struct attn_job *job, const struct attn_scratch *w,
                      const struct attn_rows *block, const struct attn_tile *tile,
                      const struct attn_sight *sight, const float *factor, float *acc);

/* Whether sums of the tile can end where pv_ending of struct attn_kernels puts them. */
bool attn_tile_can_end(const struct attn_job *job, const struct attn_tile *tile);

/* The same, and then what ending says; acc means nothing afterwards. */
void attn_tile_end_values(const struct attn_job *job, const struct attn_scratch *w,
                          const struct attn_rows *block, const struct attn_tile *tile,
                          const struct attn_sight *sight, const float *factor, float *acc,
                          const struct attn_ending *ending);

#endif
