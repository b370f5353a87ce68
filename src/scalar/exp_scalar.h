/* exp(x), x <= 0, by libm, with the one rule that all sets share for results below 2^-126: +0.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_EXP_SCALAR_H
#define ATTN_EXP_SCALAR_H

#include <math.h>

#include "kernels.h"

static inline float exp_scalar(float x) { return x < ATTN_EXP_LAST_NORMAL ? 0 : expf(x); }

#endif
