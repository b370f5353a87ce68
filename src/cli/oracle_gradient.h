/* The gradient of attention in double precision, from the formula: the judge of attn_backward(). It
 * shares no code with the library, only the public header.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_ORACLE_GRADIENT_H
#define ATTN_ORACLE_GRADIENT_H

#include "attn.h"

/* A part of the gradient, contiguous, and how far from it the bound in attn.h lets f32 be. */
struct oracle_part {
    double *value, *bound;
};

/* dq [batch, q_heads, q_len, qk_dim], a ragged batch's rows counted from its own first; dk and dv
 * [batch, kv_heads, kv_cap, features]; dsinks [q_heads]. */
struct oracle_gradient {
    struct oracle_part dq, dk, dv, dsinks;
    double *numbers; /* all of them */
};

/* The gradient of a problem that attn_backward() accepts; only dout and the types are read of
 * `gradient`, and neither out nor lse of the problem.
 * arithmetic: that of the set that computed them, see oracle_arithmetic(). Returns 0, or -1 without memory. */
int oracle_differentiate(const attn_problem *problem, const attn_gradient *gradient, int arithmetic,
                         struct oracle_gradient *o);
void oracle_gradient_free(struct oracle_gradient *oracle);

#endif
