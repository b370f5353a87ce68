/* The outputs for those who look inside: attention weights, and scores at a stage.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_INSPECT_H
#define ATTN_INSPECT_H

#include "job.h"

/* Writes weights and scores, as far as they are asked for, of the rows of a task, whose complete
 * states are given (m and l, sinks included). */
void attn_inspect(const struct attn_job *job, const struct attn_scratch *w,
                  const struct attn_rows *rows, struct attn_state state);

#endif
