/* What the steps of the algorithm share: the job of a call, the scratch of a worker, the states of
 * rows, and the way from a row of a task to its query and its outputs.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_JOB_H
#define ATTN_JOB_H

#include "kernels.h"
#include "plan.h"
#include "problem.h"

/* (acc, m, l) of some rows: acc + r * v_stride, m[r], l[r]. The state of no key is acc -0,
 * m -inf, l 0. */
struct attn_state {
    float *acc, *m, *l;
};

/* How scores are computed: on features, or on lanes of several where q and k are of the type that
 * the set has products of. */
struct attn_products {
    int64_t dim; /* of a row of q or k, in floats or lanes */
    bool is_dot;
    bool is_int8; /* keys are int8 and multiplied so: none of what follows is used */
    attn_pack_keys *pack_keys;
    attn_qk_packed *qk_packed;
    attn_qk_strided *qk_strided;
};

struct attn_job {
    const struct attn_checked *c;
    const struct attn_plan *plan;
    const struct attn_kernels *kernels;
    struct attn_products products;
    size_t least_packed_rows; /* for which a tile is packed */
    bool in_order;            /* one worker runs all tasks, presumably one after the other */
    float *workers;           /* scratch, worker_floats for each */
    float *states;            /* where split: a state for each row task and span */
};

/* What one worker works in. */
struct attn_scratch {
    float *packed, *scores, *bias;
    float *widened;         /* keys or values that are not stored as f32 at one stride */
    float *queries;         /* a block of them, where they are not f32 */
    float *quantised;       /* a block of queries in int8 */
    struct attn_state run;  /* of all keys so far */
    struct attn_state span; /* of one span */
};

static inline struct attn_state attn_state_at(const struct attn_job *job, float *base) {
    const size_t rows = job->plan->state_rows;
    const struct attn_state s = {base, base + rows * job->plan->v_stride,
                                 base + rows * (job->plan->v_stride + 1)};
    return s;
}

static inline struct attn_state attn_state_of_row(const struct attn_job *job, struct attn_state s,
                                                  int64_t r) {
    const struct attn_state at = {s.acc + r * (int64_t)job->plan->v_stride, s.m + r, s.l + r};
    return at;
}

static inline struct attn_scratch attn_scratch_of(const struct attn_job *job, size_t worker) {
    const struct attn_plan *plan = job->plan;
    float *base = job->workers + worker * plan->worker_floats;
    struct attn_scratch w = {.packed = base, .scores = base + plan->packed_floats};
    w.bias = w.scores + plan->score_floats;
    w.widened = w.bias + plan->bias_floats;
    w.queries = w.widened + plan->widened_floats;
    w.quantised = w.queries + plan->query_floats;
    float *states = w.quantised + plan->quantised_floats;
    w.run = attn_state_at(job, states);
    w.span = attn_state_at(job, states + plan->state_floats);
    return w;
}

/* Whether a tile is packed for the rows of a task. */
static inline bool attn_packs(const struct attn_job *job, const struct attn_rows *rows) {
    return (size_t)rows->n >= job->least_packed_rows;
}

/* The query row that row r of a task or block stands for. */
static inline int64_t attn_query_of(const struct attn_job *job, const struct attn_rows *rows,
                                    int64_t r) {
    return job->c->group == 1 ? rows->first + r : (rows->first + r) / job->c->group;
}

/* The rows of a task or block, one after the other, without a division for each. */
struct attn_row {
    int64_t batch, head, query;
    int64_t past_group; /* the first head of the next group */
};

static inline struct attn_row attn_first_row(const struct attn_job *job,
                                             const struct attn_rows *rows) {
    const int64_t query = attn_query_of(job, rows, 0), group = job->c->group;
    const struct attn_row row = {
        .batch = rows->batch,
        .head = rows->kv_head * group + rows->first - query * group,
        .query = query,
        .past_group = (rows->kv_head + 1) * group,
    };
    return row;
}

static inline void attn_next_row(const struct attn_job *job, struct attn_row *row) {
    if (++row->head == row->past_group)
        row->head -= job->c->group, row->query++;
}

/* Fewer rows than this do not keep the multiply-adds busy. */
enum { ATTN_FEWEST_ROWS = 4 };

/* The next block of a task's rows, from its row r on: block_rows of them, with what is left over
 * in a block of its own or, where that is very little, in two halves. Also in two halves where keys
 * are not packed: what the first block waits for and what the second computes are then in balance. */
static inline struct attn_rows attn_row_block(const struct attn_job *job,
                                              const struct attn_rows *rows, int64_t r) {
    const int64_t left = rows->n - r, most = (int64_t)job->kernels->block_rows;
    const int64_t halves = most + (attn_packs(job, rows) ? ATTN_FEWEST_ROWS : most);
    struct attn_rows block = *rows;
    block.first += r;
    block.n = left <= most ? left : left < halves ? (left + 1) / 2 : most;
    if (!job->c->same_keys)
        block.keys = attn_visible_to_rows(job->c, block.batch, attn_query_of(job, &block, 0),
                                          attn_query_of(job, &block, block.n - 1));
    return block;
}

/* The elements that the rows of a block have their parts of a tensor of query rows begin with, one
 * after the other. */
struct attn_places {
    int64_t at;         /* of this row */
    int64_t left;       /* rows of this token, this one counted */
    int64_t step, turn; /* to the next row; where that is of the next token, if heads differ */
    int64_t group;
};

static inline struct attn_places attn_first_place(const struct attn_job *job,
                                                  const struct attn_rows *block,
                                                  int64_t stride_batch, int64_t stride_head,
                                                  int64_t stride_token) {
    const struct attn_row first = attn_first_row(job, block);
    const int64_t token = attn_query_first(job->c, block->batch) + first.query;
    const int64_t group = job->c->group;
    struct attn_places places;
    places.at = first.batch * stride_batch + first.head * stride_head + token * stride_token;
    places.group = group;
    places.left = group == 1 ? INT64_MAX : first.past_group - first.head;
    places.step = group == 1 ? stride_token : stride_head;
    places.turn = stride_token - (group - 1) * stride_head;
    return places;
}

static inline void attn_next_place(struct attn_places *places) {
    if (--places->left == 0) {
        places->at += places->turn;
        places->left = places->group;
    } else {
        places->at += places->step;
    }
}

/* The first of them in an input or output. */
#define attn_first_place_in(job, block, t)                                                         \
    attn_first_place(job, block, (t)->stride_batch, (t)->stride_head, (t)->stride_token)

/* Where all rows of a block begin in an f32 tensor t, as pointers to `type`. */
#define ATTN_FIND_ROWS(type, job, block, t, rows)                                                  \
    do {                                                                                           \
        struct attn_places place_ = attn_first_place_in(job, block, t);                            \
        type *at_ = (type *)(t)->data + place_.at;                                                 \
        for (int64_t r_ = 0; place_.group == 1 && r_ < (block)->n; r_++, at_ += place_.step)       \
            (rows)[r_] = at_;                                                                      \
        for (int64_t r_ = 0; place_.group != 1 && r_ < (block)->n; r_++, attn_next_place(&place_)) \
            (rows)[r_] = (type *)(t)->data + place_.at;                                            \
    } while (0)

/* The element that a row's part of an output begins with. */
static inline int64_t attn_output_at(const struct attn_job *job, const attn_output *t,
                                     const struct attn_row *row) {
    const int64_t token = attn_query_first(job->c, row->batch) + row->query;
    return row->batch * t->stride_batch + row->head * t->stride_head + token * t->stride_token;
}

/* Where a row has its part of an f32 output. */
static inline float *attn_output_row(const struct attn_job *job, const attn_output *t,
                                     const struct attn_row *row) {
    return (float *)t->data + attn_output_at(job, t, row);
}

#endif
