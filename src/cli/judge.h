/* Compares what the library computed with the oracle, row by row.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_JUDGE_H
#define ATTN_JUDGE_H

#include "attn.h"
#include "oracle.h"

/* Errors of the rows judged so far. Start from all zero. */
struct judgement {
    /* Largest |error| where the oracle is finite, of out where that is f32. */
    double worst_out, worst_lse, worst_weight, worst_score;
    double worst_ratio;       /* largest |error| / bound */
    int64_t values, failures; /* compared, and beyond the bound */
};

/* An oracle row with room for the rows of problem. Its arithmetic is that of
 * f32. Returns 0, or -1 without memory. */
int judge_allocate(const attn_problem *problem, struct oracle_row *row);
void judge_free(struct oracle_row *row);

/* Adds row i of head h in batch b: out, and lse, weights and scores where problem has them. row is what
 * oracle_attend() says of it. */
void judge_row(const attn_problem *problem, int64_t b, int64_t h, int64_t i,
               const struct oracle_row *row, struct judgement *judgement);

#endif
