/* How a problem is cut into spans, tiles and tasks, and where each has its scratch.
 *
 * The spans and tiles decide the bits of a row and follow from key indices and feature counts
 * alone. The tasks decide who computes what when, and no bit of the result depends on them.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_PLAN_H
#define ATTN_PLAN_H

#include <stdbool.h>
#include <stddef.h>

#include "problem.h"
#include "visible.h"

/* Keys first to last of a span: every 512 keys up to 4096, then eight equal spans for each
 * doubling. Their number grows with the logarithm of the length, so that the states of all spans
 * of a decode step stay small, while every span is long enough to be worth a task. */
struct attn_key_range attn_span(int64_t index);

/* The span that holds key j. */
int64_t attn_span_of(int64_t j);

/* Keys of a tile, at most. */
#define ATTN_TILE_MOST 512

/* The rows of one task: for one batch and key/value head, row r in [first, first + n) is query row
 * r / group of query head kv_head * group + r % group. Rows of a group that see the same keys are
 * neighbours. */
struct attn_rows {
    int64_t batch, kv_head;
    int64_t first, n;
    struct attn_key_range keys; /* that some row sees, masks aside */
};

struct attn_plan {
    int64_t tile_keys; /* keys per tile: within a span, the maximum changes only between tiles */
    int64_t rows_per_task; /* multiple of ATTN_ROW_BLOCK */
    int64_t row_tasks;     /* of all batches and key/value heads, */
    int64_t pair_tasks;    /* and of one of these; 0: their numbers differ */
    bool longest_first;    /* tasks of later rows, which see more keys, come first */
    int64_t spans;         /* of the keys there is room for */
    bool keys_from_memory; /* too many of them to stay in a cache of a core */
    bool copies_values;    /* of f32 and sparse, with packed keys: they would not stay in a cache */
    bool is_one_tile;      /* of f32 where it lies, and no more asked for than out and lse */
    bool split;            /* each span of a row task is a task; merged in a second round */

    /* Floats. A state is acc[v_stride], m and l of each row. */
    size_t v_stride, state_rows, score_stride;
    size_t packed_floats, score_floats, bias_floats, widened_floats, query_floats, state_floats;
    size_t quantised_floats; /* a block of queries in int8, for sets that multiply it */
    size_t worker_floats;    /* all of these, and two states */
    size_t workspace_bytes;
};

/* ATTN_ERROR_OVERFLOW if the workspace would not fit in the address space. */
attn_status attn_plan_make(const struct attn_checked *problem, size_t n_workers,
                           struct attn_plan *plan);

struct attn_rows attn_plan_rows(const struct attn_checked *problem, const struct attn_plan *plan,
                                int64_t row_task);

#endif
