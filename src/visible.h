/* Which keys a query row sees, and what that means for a block of rows on a tile of keys.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_VISIBLE_H
#define ATTN_VISIBLE_H

#include "kernels.h"
#include "problem.h"

/* Keys [begin, end); begin >= end: none. */
struct attn_key_range {
    int64_t begin, end;
};

static inline struct attn_key_range attn_range_clip(struct attn_key_range r, int64_t begin,
                                                    int64_t end) {
    r.begin = r.begin > begin ? r.begin : begin;
    r.end = r.end < end ? r.end : end;
    return r;
}

/* p(i): the absolute position of query row i of batch b. */
static inline int64_t attn_position(const struct attn_checked *c, int64_t b, int64_t i) {
    switch (c->p.align) { /* it was checked */
    case ATTN_ALIGN_BOTTOM_RIGHT:
        return attn_key_count(c, b) - attn_query_count(c, b) + i;
    case ATTN_ALIGN_EXPLICIT:
        return c->p.offset[b] + i;
    default:
        return i;
    }
}

/* The keys that query row i of batch b may see as far as ranges go, that is before a mask hides
 * more of them: both ends grow with i. */
static inline struct attn_key_range attn_visible_keys(const struct attn_checked *c, int64_t b,
                                                      int64_t i) {
    struct attn_key_range keys = {0, attn_key_count(c, b)};
    if (c->p.mask.type != ATTN_MASK_NONE)
        keys = attn_range_clip(keys, 0, c->p.mask.n_keys);
    const int64_t position = attn_position(c, b, i);
    if (c->left >= 0 && position > c->left)
        keys.begin = position - c->left;
    const int64_t ahead = c->p.causal ? 0 : c->right;
    if (ahead >= 0 && position < keys.end - ahead) /* no sum of large numbers, which overflows */
        keys.end = position + ahead + 1 < keys.end ? position + ahead + 1 : keys.end;
    return keys;
}

/* The keys that some query row of first .. last may see so. */
static inline struct attn_key_range attn_visible_to_rows(const struct attn_checked *c, int64_t b,
                                                         int64_t first, int64_t last) {
    struct attn_key_range some = attn_visible_keys(c, b, first);
    if (!c->same_keys)
        some.end = attn_visible_keys(c, b, last).end;
    return some;
}

/* ---- Masks ----------------------------------------------------------------------------------- */

/* Words for the bits of n keys. */
#define ATTN_BIT_WORDS(n) (((n) + 63) / 64)

/* The mask's row for query row i of head h from key `first` on; null where there is no mask. Rows
 * that share it by broadcast get the same pointer. first is a multiple of 8. */
const void *attn_mask_row(const struct attn_checked *problem, int64_t b, int64_t h, int64_t i,
                          int64_t first);

/* True if the mask is added to scores. */
static inline bool attn_mask_is_bias(const struct attn_checked *c) {
    return c->p.mask.type == ATTN_MASK_F32 || c->p.mask.type == ATTN_MASK_F16;
}

/* True if an additive mask's rows have to be copied to be read as contiguous f32. */
static inline bool attn_mask_needs_copy(const struct attn_checked *c) {
    return c->p.mask.type == ATTN_MASK_F16 ||
           (c->p.mask.type == ATTN_MASK_F32 && c->p.mask.stride_key != 1);
}

/* The first n elements of an additive mask's row as contiguous f32: the row itself or, where
 * attn_mask_needs_copy(), `copy` with its elements. */
const float *attn_mask_bias(const struct attn_checked *problem, const void *row, int64_t n,
                            float *copy);

/* Which of the row's first n keys the mask shows; n bits, 0 up to the end of the last word. bias:
 * what attn_mask_bias() gave, if the mask is additive. */
void attn_mask_bits(const struct attn_checked *problem, const struct attn_kernels *kernels,
                    const void *row, const float *bias, int64_t n, uint64_t *bits);

/* Narrows [see->begin, see->end) to the first and last key that bits show, and keeps bits only if
 * they hide a key between those. */
void attn_see_bits(const uint64_t *bits, struct attn_visible *see);

#endif
