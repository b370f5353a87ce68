/* Turned tiles of the gradient, a row for each key and a column for each query row: what is shared
 * by all steps, which pairs see each other, and what stands between product and exponential.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_TURNED_H
#define ATTN_TURNED_H

#include "backward_plan.h"

struct backward_job {
    const struct attn_checked *c;
    const attn_gradient *g;
    const struct attn_backward_plan *plan;
    const struct attn_kernels *kernels;
    float *workers; /* scratch, worker_floats for each */
};

/* What one worker works in. */
struct backward_scratch {
    float *packed_q, *packed_dout;
    float *key_copy, *value_copy, *q_copy, *dout_copy; /* f32 of another type */
    float *dk, *dv, *dq;
    float *scores, *dweights, *capped; /* a block of keys: S^T, then P^T; dP^T, then dS^T */
    float *bias, *bias_turned;         /* of a block, as in the mask and as in a tile */
    float *turned;                     /* dS, a row for each query row of the tile */
    float *lse, *delta, *ones, *out_copy;
};

struct backward_scratch attn_backward_scratch_of(const struct backward_job *job, size_t worker);

/* Query rows [first, first + n) of one head. */
struct turned_rows {
    int64_t batch, head;
    int64_t first, n;
    const float *q, *dout;
    int64_t q_stride, dout_stride;
};

/* The element that row i of a batch begins with, in a tensor with a query axis. */
static inline int64_t backward_query_at(const struct attn_checked *c, int64_t stride_batch,
                                        int64_t stride_head, int64_t stride_token, int64_t b,
                                        int64_t h, int64_t i) {
    return b * stride_batch + h * stride_head + (attn_query_first(c, b) + i) * stride_token;
}

static inline const float *backward_lse(const struct backward_job *job, int64_t b, int64_t h,
                                        int64_t token) {
    const attn_output *t = &job->c->p.lse;
    return (const float *)t->data + b * t->stride_batch + h * t->stride_head +
           token * t->stride_token;
}

static inline attn_input backward_out(const attn_problem *p) {
    return (attn_input){p->out.data, p->out.type, p->out.stride_batch, p->out.stride_head,
                        p->out.stride_token};
}

/* What each query row sees of a tile of keys. */
struct turned_sight {
    struct attn_visible visible[ATTN_BACKWARD_ROWS];
    uint64_t bits[ATTN_BACKWARD_ROWS][ATTN_BIT_WORDS(ATTN_BACKWARD_KEYS)];
    bool is_full; /* every row sees every key */
};

/* Which query rows each key of a block is seen by. */
struct turned_columns {
    struct attn_visible visible[ATTN_KEY_BLOCK];
    uint64_t bits[ATTN_KEY_BLOCK][ATTN_BIT_WORDS(ATTN_BACKWARD_ROWS)];
    int64_t begin, end; /* columns that some key is seen by */
};

/* False if no row sees any of the keys [begin, end). A row with an lse of -inf sees nothing. */
bool attn_turned_see(const struct backward_job *job, const struct backward_scratch *w,
                     const struct turned_rows *rows, int64_t begin, int64_t end,
                     struct turned_sight *sight);

/* The same for columns, on the tile's keys [from, from + n), from a multiple of 64. */
bool attn_turned_see_columns(const struct turned_sight *sight, int64_t n_rows, int64_t from,
                             int64_t n, struct turned_columns *columns);

/* Softcap, ALiBi and the additive mask on w->scores: rows are keys [key, key + n), columns query rows
 * [begin, end). Keeps the capped scores in w->capped. */
void attn_turned_modify(const struct backward_job *job, const struct backward_scratch *w,
                        const struct turned_rows *rows, int64_t key, int64_t n, int64_t begin,
                        int64_t end);

#endif
