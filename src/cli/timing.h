/* How long a call takes and how much work it is.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_TIMING_H
#define ATTN_TIMING_H

#include "attn.h"

/* Seconds of a clock that only goes forward. */
double timing_now(void);

/* Calls attn_forward() until both min_runs calls and the given seconds are over, but no more than
 * max_runs calls, and stores the median duration. Not counted: warming up, which is the caller's.
 */
attn_status timing_median(const attn_problem *problem, void *workspace, size_t workspace_size,
                          attn_executor *executor, int64_t min_runs, int64_t max_runs,
                          double seconds, double *median);

/* Floating-point operations of a valid problem: 2 * (qk_dim + v_dim) for each visible pair of row
 * and key. */
double timing_flops(const attn_problem *problem);

#endif
