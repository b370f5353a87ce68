/* Keys and values that are needed after a tile: its kernels ask for them while they compute, and what
 * they leave is asked for between blocks of rows.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_UPCOMING_H
#define ATTN_UPCOMING_H

#include "kernels.h"
#include "storage.h"
#include "visible.h"

/* Keys of a batch and head, and their values. */
struct attn_tokens {
    int64_t batch, kv_head;
    struct attn_key_range keys;
};

/* Of one side: the tokens that have not been asked for. */
struct attn_upcoming {
    enum attn_side side;
    int64_t n;                 /* tokens in all */
    struct attn_tokens tokens; /* those that are not among `lines` yet */
    int64_t lines_per_token;
    struct attn_later lines; /* the next ones, which lie at one stride */
};

/* Keys or values, at least one. */
void attn_upcoming_begin(const struct attn_checked *problem, enum attn_side side,
                         const struct attn_tokens *tokens, struct attn_upcoming *upcoming);

/* Lines for a kernel to ask for. */
struct attn_later *attn_upcoming_lines(const struct attn_checked *problem,
                                       struct attn_upcoming *upcoming);

/* Asks for what kernels have left of the share of both sides that falls to the first `done` rows of
 * n_rows. */
void attn_upcoming_share(const struct attn_checked *problem, struct attn_upcoming upcoming[2],
                         int64_t done, int64_t n_rows);

#endif
