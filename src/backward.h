/* The gradient's algorithm, on a checked and planned problem.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_BACKWARD_H
#define ATTN_BACKWARD_H

#include "backward_plan.h"

/* workspace: plan->workspace_bytes for the executor's workers. */
void attn_backward_run(const struct attn_checked *problem, const attn_gradient *gradient,
                       const struct attn_backward_plan *plan, const struct attn_kernels *kernels,
                       void *workspace, attn_executor *executor);

/* Where there is no query row or no value: zeros. */
void attn_backward_zero(const struct attn_checked *problem, const attn_gradient *gradient);

#endif
