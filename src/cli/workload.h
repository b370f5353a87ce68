/* A problem of a given shape over random tensors, ready to be called, checked and timed.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_WORKLOAD_H
#define ATTN_WORKLOAD_H

#include "attn.h"
#include "limits/measure.h"

struct shape {
    const char *name;
    int64_t batch, q_heads, kv_heads, q_len, keys, dim;
    int causal; /* the last row sees the last key */
};

struct workload {
    attn_problem problem;   /* may be changed before workload_ready() */
    float *q, *k, *v, *out; /* where the tensors are, of whatever type */
    size_t q_size, kv_size; /* elements */
    void *workspace;
    size_t workspace_size;
    attn_executor *executor;
};

/* Floats of [-1.7, 1.7], the same every time; as cli_allocate() gives them. */
float *workload_floats(size_t n);

/* Allocates tensors and fills them. Returns 0, or -1 without memory; to be freed in both cases. */
int workload_make(struct workload *workload, const struct shape *shape);

/* Makes bf16 of the tensors of a new workload. */
void workload_to_bf16(struct workload *workload);

/* Allocates the workspace of the problem as it is now, for executor (null: this thread alone), and
 * runs it once. */
attn_status workload_ready(struct workload *workload, attn_executor *executor);

/* Compares rows from all over the output with the oracle. Returns how many values are beyond the
 * bound that attn.h states, -1 without memory. */
int64_t workload_check(const struct workload *workload);

void workload_free(struct workload *workload);

/* Operations that a call has to do, and bytes that it has to touch at least: every tensor once. */
double workload_flops(const struct workload *workload);
double workload_bytes(const struct workload *workload);

/* One call as work, its amount in operations or, for a single row, in bytes of keys and values; and
 * the limit that belongs to it: reading, or multiply-adds of the kind that the set of these loops uses. */
int workload_reads(const struct workload *workload);
struct work workload_work(struct workload *workload);
void workload_limit(const struct workload *workload, const struct loops *loops,
                    struct limit *limit);

#endif
