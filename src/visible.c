/* Which keys a query row sees: those in use, and with causality those up to its own position.
 *
 * SPDX-License-Identifier: MIT */
#include "visible.h"

/* The absolute position of query row 0 (the alignment was checked). */
static int64_t position_of_first_row(const struct attn_checked *c, int64_t b) {
    switch (c->p.align) {
    case ATTN_ALIGN_BOTTOM_RIGHT:
        return attn_key_count(c, b) - c->p.q_len;
    case ATTN_ALIGN_EXPLICIT:
        return c->p.offset[b];
    default:
        return 0;
    }
}

struct attn_key_range attn_visible_keys(const struct attn_checked *c, int64_t b, int64_t i) {
    struct attn_key_range keys = {0, attn_key_count(c, b)};
    if (c->p.causal)
        keys = attn_range_clip(keys, 0, position_of_first_row(c, b) + i + 1);
    return keys;
}

struct attn_key_range attn_visible_to_rows(const struct attn_checked *c, int64_t b, int64_t first,
                                           int64_t last) {
    const struct attn_key_range some = {attn_visible_keys(c, b, first).begin,
                                        attn_visible_keys(c, b, last).end};
    return some;
}
