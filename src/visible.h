/* Which keys a query row sees, and what that means for a tile of rows and keys.
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

/* The keys that query row i of batch b may see: both ends grow with i. */
struct attn_key_range attn_visible_keys(const struct attn_checked *problem, int64_t b, int64_t i);

/* The keys that some query row of first .. last sees. */
struct attn_key_range attn_visible_to_rows(const struct attn_checked *problem, int64_t b,
                                           int64_t first, int64_t last);

static inline struct attn_key_range attn_range_clip(struct attn_key_range r, int64_t begin,
                                                    int64_t end) {
    r.begin = r.begin > begin ? r.begin : begin;
    r.end = r.end < end ? r.end : end;
    return r;
}

#endif
