/* A trial's gradient in guarded memory, and its comparison with the oracle.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_TEST_GRADIENT_H
#define ATTN_TEST_GRADIENT_H

#include "check.h"
#include "cli/oracle_gradient.h"

struct gradient_form {
    enum layout dout, dq, dk, dv;
    attn_type dout_type, dq_type, dk_type, dv_type;
    bool no_dq, no_dk, no_dv, no_dsinks;
    enum side side;
};

struct gradient_trial {
    attn_gradient g;
    struct placed dout, dq, dk, dv, lse;
};

struct gradient_form gradient_form_random(struct rng *rng);

/* Places the gradient of a filled trial, whose lse is replaced, with dout random. */
void gradient_place(struct gradient_trial *g, struct trial *t, struct gradient_form form,
                    struct rng *rng);

/* dout of rows that see nothing becomes poison. */
void gradient_poison(const struct gradient_trial *g, const struct trial *t, struct rng *rng);

/* Runs the problem forward, then back, with a workspace of exactly the size asked for, and checks
 * that only the rows of results were written. */
void gradient_run(struct gradient_trial *g, struct trial *t, attn_executor *executor);

/* Every result within the bound of attn.h. Returns the largest error as a share of the bound. */
double gradient_compare(const struct gradient_trial *g, const struct trial *t,
                        const struct oracle_gradient *oracle);

/* The bits of all results, in order. */
uint64_t gradient_bits(const struct gradient_trial *g, const struct trial *t);

#endif
