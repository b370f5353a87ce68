/* The algorithm: tiled online softmax over fixed spans of keys.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_ATTENTION_H
#define ATTN_ATTENTION_H

#include "kernels.h"
#include "plan.h"
#include "problem.h"

/* Computes every output of a checked problem that has any. workspace: plan->workspace_bytes. */
void attn_attend(const struct attn_checked *problem, const struct attn_plan *plan,
                 const struct attn_kernels *kernels, void *workspace, attn_executor *executor);

#endif
