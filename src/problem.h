/* The checked problem: what every later step may rely on. All errors of a call are found here.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_PROBLEM_H
#define ATTN_PROBLEM_H

#include <stdbool.h>

#include "attn.h"

struct attn_checked {
    attn_problem p; /* as given, of this version's size */
    int64_t group;  /* query heads per key/value head */
    float scale;    /* given or 1/sqrt(qk_dim) */
    bool no_output; /* batch, q_heads, q_len or v_dim is 0: nothing to write */
};

/* Where a sentence about the error goes; buffer may be null. */
struct attn_sentence {
    char *buffer;
    size_t size;
};

/* Fills *checked from problem, or says what is wrong. with_data: null tensors are an error where
 * they are not empty. */
attn_status attn_problem_check(const attn_problem *problem, bool with_data,
                               struct attn_checked *checked, struct attn_sentence sentence);

/* Keys in use in batch b. */
static inline int64_t attn_key_count(const struct attn_checked *c, int64_t b) {
    return c->p.kv_len ? c->p.kv_len[b] : c->p.kv_cap;
}

#endif
