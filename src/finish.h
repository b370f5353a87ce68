/* From complete sums of a block of rows to its outputs.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_FINISH_H
#define ATTN_FINISH_H

#include "job.h"

/* Makes the state of the rows that of no key. */
void attn_set_unseen(const struct attn_job *job, int64_t n_rows, const struct attn_state *state);

/* Where the rows of a block have their f32 outputs, and where they have their sums. */
void attn_find_outputs(const struct attn_job *job, const struct attn_rows *block, float **out);
void attn_find_sums(const struct attn_job *job, const struct attn_rows *block,
                    const struct attn_state *state, float **out);

/* The outputs of those of n rows that saw no key, or none above -inf, and of those that met a NaN. */
void attn_fill_unseen(size_t n, const float *l, int64_t v_dim, float *const *out);

void attn_write_lse(const struct attn_job *job, const struct attn_rows *block,
                    const struct attn_state *state);

/* Merges the sinks into the complete state of a block, and writes its out and lse. sinks: room for a
 * state of the block. */
void attn_finish_block(const struct attn_job *job, const struct attn_rows *block,
                       const struct attn_state *state, const struct attn_state *sinks);

#endif
