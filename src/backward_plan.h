/* How the gradient of a problem is cut into tiles and tasks, and where each has its scratch. No bit
 * of the result depends on any of it: sums are chains that tiles only interrupt.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_BACKWARD_PLAN_H
#define ATTN_BACKWARD_PLAN_H

#include "kernels.h"
#include "problem.h"
#include "visible.h"

/* Keys whose scores are computed, turned into gradients and used before the next ones: a word of
 * bits. */
#define ATTN_KEY_BLOCK 64

/* Keys and query rows of a tile, at most. */
#define ATTN_BACKWARD_KEYS 512
#define ATTN_BACKWARD_ROWS 256

struct attn_backward_plan {
    int64_t tile_keys, tile_rows; /* multiples of 64 */
    int64_t key_tiles, row_tiles; /* of one batch and head, at most */
    bool single_pass; /* a task for each batch and key/value head does it all, where all is wanted;
                         else one for each tile of keys, and then one for each tile of rows */
    bool dq_in_place; /* dq is summed where it goes */
    int64_t dq_rows;  /* that a task sums elsewhere, at most */

    /* Floats. */
    size_t q_stride, v_stride;
    size_t packed_q, packed_dout, key_copy, value_copy, q_copy, dout_copy, dk, dv, dq;
    size_t block; /* scores of a block of keys: a row of tile_rows for each */
    size_t capped, bias, turned;
    size_t worker_floats;
    size_t workspace_bytes;
};

/* ATTN_ERROR_OVERFLOW if the workspace would not fit in the address space. */
attn_status attn_backward_plan_make(const struct attn_checked *problem,
                                    const attn_gradient *gradient, size_t n_workers,
                                    struct attn_backward_plan *plan);

#endif
