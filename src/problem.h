/* The checked problem: what every later step may rely on. All errors of a call are found here.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_PROBLEM_H
#define ATTN_PROBLEM_H

#include <stdbool.h>

#include "attn.h"

struct attn_checked {
    attn_problem p;      /* as given, of this version's size; strides of axes of size 1 are 0 */
    int64_t group;       /* query heads per key/value head */
    int64_t key_cap;     /* past_cap + kv_cap */
    int64_t left, right; /* the window; below 0: unbounded */
    float scale;         /* given or 1/sqrt(qk_dim) */
    bool no_output;      /* batch, q_heads, q_len or v_dim is 0: nothing to write */
    bool same_keys;      /* all query rows of a batch see the same keys, masks aside */
};

/* Where a sentence about the error goes; buffer may be null. */
struct attn_sentence {
    char *buffer;
    size_t size;
};

/* Fills *checked from problem, or says what is wrong, where sentence is not null. with_data: null
 * tensors are an error where they are not empty. */
attn_status attn_problem_check(const attn_problem *problem, bool with_data,
                               struct attn_checked *checked, const struct attn_sentence *sentence);

/* The checked gradient of a checked problem, likewise of this version's size. */
attn_status attn_gradient_check(const struct attn_checked *problem, const attn_gradient *gradient,
                                bool with_data, attn_gradient *checked);

/* What attn_merge() was given. */
struct attn_merge_arguments {
    int64_t batch, heads, q_len, v_dim;
    size_t n;
    const attn_partial *parts;
    const attn_output *out, *lse;
};
attn_status attn_merge_check(const struct attn_merge_arguments *arguments);

/* What attn_append() was given. */
struct attn_append_arguments {
    const attn_input *tokens;
    int64_t n, heads, dim;
    const int64_t *slots;
    const attn_cache *cache;
};
attn_status attn_append_check(const struct attn_append_arguments *arguments);

/* Keys of batch b that lie in past_k. */
static inline int64_t attn_past_len(const struct attn_checked *c, int64_t b) {
    return c->p.past_len ? c->p.past_len[b] : c->p.past_cap;
}

/* Keys in use in batch b, past ones included. */
static inline int64_t attn_key_count(const struct attn_checked *c, int64_t b) {
    return c->p.kv_len ? c->p.kv_len[b] : attn_past_len(c, b) + c->p.kv_cap;
}

/* Query rows of batch b, and the token that the first of them is. */
static inline int64_t attn_query_count(const struct attn_checked *c, int64_t b) {
    return c->p.cu_q ? c->p.cu_q[b + 1] - c->p.cu_q[b] : c->p.q_len;
}
static inline int64_t attn_query_first(const struct attn_checked *c, int64_t b) {
    return c->p.cu_q ? c->p.cu_q[b] : 0;
}

#endif
