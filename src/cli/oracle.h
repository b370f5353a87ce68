/* Attention in double precision, one row at a time, written from the formula: the judge of every
 * kernel set. It shares no code with the library, only the public header.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_ORACLE_H
#define ATTN_ORACLE_H

#include "attn.h"

/* What one output row should be, and how far from it the bound in attn.h lets f32 be. The caller
 * provides the arrays. */
struct oracle_row {
    double *out;       /* [v_dim] */
    double *out_bound; /* [v_dim] largest |error| allowed */
    double *weights;   /* [kv_cap]: 0 where hidden */
    double lse;
    double lse_bound;
    double weight_factor; /* |error of weight j| <= weight_factor * weights[j] + 2^-125 */
    int64_t visible;      /* number of keys the row sees */
};

/* Row i of query head h in batch b of a valid problem (attn_check() answers ATTN_OK). */
void oracle_attend(const attn_problem *problem, int64_t b, int64_t h, int64_t i,
                   struct oracle_row *row);

/* |got - want| within bound, where NaN must meet NaN and an infinity the same infinity or NaN (an
 * overflow may reach either). */
int oracle_agrees(float got, double want, double bound);

#endif
