/* The lessons of attn explain. Each returns 0, or -1 after an error line if something failed that
 * is not the lesson's point (memory, a file).
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_EXPLAIN_H
#define ATTN_EXPLAIN_H

#include "attn.h"
#include "report.h"

int explain_roles(struct report *r);
int explain_steps(struct report *r);
int explain_causality(struct report *r);
int explain_variance(struct report *r);
int explain_saturation(struct report *r);
int explain_gradient(struct report *r);
int explain_additive(struct report *r);

/* The larger of two errors; NaN is larger than all. */
static inline double explain_worse(double a, double b) { return b <= a ? a : b; }

/* attn_forward_alloc() on this thread. Returns 0, or -1 after an error line. */
int explain_attend(const attn_problem *problem);

#endif
