/* Where a key or value is stored, and how it becomes f32: past and new keys, pages, storage types.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_STORAGE_H
#define ATTN_STORAGE_H

#include "kernels.h"
#include "problem.h"

/* The two tensors of a cache. */
enum attn_side { ATTN_KEYS, ATTN_VALUES };

/* Consecutive tokens of one head that lie at one stride. */
struct attn_run {
    const char *at;      /* the first token */
    int64_t stride;      /* elements */
    int64_t n;           /* tokens, at least 1 */
    const float *scales; /* of an int8 cache: those of the first token */
    int64_t scale_stride;
};

static inline int64_t attn_type_bytes(attn_type type) {
    return type == ATTN_F32 ? 4 : type == ATTN_I8 ? 1 : 2;
}

/* The longest run of keys or values from key j on, below `end`, for batch b and key/value head h.
 * Nothing is read but the table of pages. */
struct attn_run attn_run_of(const struct attn_checked *problem, enum attn_side side, int64_t b,
                            int64_t h, int64_t j, int64_t end);

/* How many tokens at a stride a second-level cache can keep, if they are sparse. */
static inline int64_t attn_tokens_that_stay(const struct attn_checked *c, enum attn_side side,
                                            int64_t stride) {
    enum { SPREAD_BYTES = 1 << 20 }; /* that sparse rows may extend over */
    const int64_t width = attn_type_bytes(side == ATTN_KEYS ? c->p.k.type : c->p.v.type);
    const int64_t row = (side == ATTN_KEYS ? c->p.qk_dim : c->p.v_dim) * width;
    const int64_t apart = (stride < 0 ? -stride : stride) * width;
    return apart % ATTN_SPARSE_BYTES == 0 && apart >= 2 * row ? SPREAD_BYTES / apart : INT64_MAX;
}

/* True if the keys or values are f32, so that a run of them can be used where it lies. */
static inline bool attn_is_f32(const struct attn_checked *c, enum attn_side side) {
    return (side == ATTN_KEYS ? c->p.k.type : c->p.v.type) == ATTN_F32;
}

/* Asks for keys or values [j, end), which are needed soon. */
void attn_prefetch(const struct attn_checked *problem, enum attn_side side, int64_t b, int64_t h,
                   int64_t j, int64_t end);

/* Keys or values [j, end) as f32: out[(i - j) * out_stride + c]. */
void attn_widen_tokens(const struct attn_checked *problem, const struct attn_kernels *kernels,
                       enum attn_side side, int64_t b, int64_t h, int64_t j, int64_t end,
                       float *out, int64_t out_stride);

/* Keys [j, end) as lanes of several features (see struct attn_dot_kernels), the last of which may
 * have zeros: lanes[(i - j) * lane_stride + c]. */
void attn_copy_lanes(const struct attn_checked *problem, int64_t b, int64_t h, int64_t j,
                     int64_t end, float *lanes, int64_t lane_stride);

/* Whether rows of n elements at a stride can be used as lanes where they lie. */
bool attn_are_lanes(attn_type type, const void *at, int64_t stride, int64_t n);

/* The same for the row of q that begins with element `at`: the row itself or, where it cannot be used
 * where it lies, copy. */
const float *attn_query_lanes(const attn_input *q, int64_t at, int64_t n, float *copy);

/* Values [j, end) as lanes of several keys, j a multiple of per_lane: row i of lanes, at
 * i * lane_stride, holds the keys j + i * per_lane and on. */
void attn_interleave_values(const struct attn_checked *problem, const struct attn_dot_kernels *dot,
                            int64_t b, int64_t h, int64_t j, int64_t end, float *lanes,
                            int64_t lane_stride);

/* n elements of q from element `at` on as f32: where they are or, stored otherwise, in copy. */
const float *attn_widen_query(const attn_input *q, const struct attn_kernels *kernels, int64_t at,
                              int64_t n, float *copy);

/* A row of out from n floats, to the type of out. */
void attn_narrow_row(attn_type type, const struct attn_kernels *kernels, const float *x, int64_t n,
                     void *out);

#endif
