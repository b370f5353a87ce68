/* Attention in double precision, one row at a time, written from the formula: the judge of every
 * kernel set. It shares no code with the library, only the public header. What is stored in another
 * type than f32 counts as the number it stands for, int8 as the exact product with its scale.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_ORACLE_H
#define ATTN_ORACLE_H

#include "attn.h"

/* How a kernel set multiplies a problem's numbers, as far as the bound depends on it. */
enum {
    ORACLE_PAIRED_SCORES = 1, /* the bound of scores that are products of pairs of bf16 */
    ORACLE_PAIRED_VALUES = 2, /* of weights and values that are */
    ORACLE_TO_ODD = 4,        /* their sums are rounded to odd */
    ORACLE_INT8_SCORES = 8    /* of scores with queries that are rounded to int8 */
};
int oracle_arithmetic(const attn_problem *problem, const char *isa);

/* What one output row should be, and how far from it the bound in attn.h lets f32 be. The caller
 * provides the arrays; keys are numbered as in attn.h, those of past_k first. */
struct oracle_row {
    int arithmetic;       /* given: oracle_arithmetic() of the set that is to be judged */
    double *out;          /* [v_dim] */
    double *out_bound;    /* [v_dim] largest |error| allowed */
    double *weights;      /* [past_cap + kv_cap]: 0 where hidden */
    double *scores;       /* [past_cap + kv_cap], at scores_at */
    double *scores_bound; /* [past_cap + kv_cap] */
    unsigned char *sees;  /* [past_cap + kv_cap]: 1 where visible */
    double lse;
    double lse_bound;
    double weight_factor; /* |error of weight j| <= weight_factor * weights[j] + 2^-125 */
    int64_t visible;      /* number of keys the row sees */
};

/* The number of query rows of batch b: of its own sequence where the batch is ragged. */
int64_t oracle_rows(const attn_problem *problem, int64_t b);

/* The number of keys that batch b has, hidden ones among them. */
int64_t oracle_key_count(const attn_problem *problem, int64_t b);

/* The position of row i of batch b among the keys, p(i) in attn.h. */
int64_t oracle_position(const attn_problem *problem, int64_t b, int64_t i);

/* Whether row i of head h in batch b sees key j. */
int oracle_sees(const attn_problem *problem, int64_t b, int64_t h, int64_t i, int64_t j);

/* Row i of query head h in batch b of a valid problem (attn_check() answers ATTN_OK). In a ragged
 * batch i counts the rows of that sequence, from 0. */
void oracle_attend(const attn_problem *problem, int64_t b, int64_t h, int64_t i,
                   struct oracle_row *row);

/* Where that row is in out, lse, weights or scores: its first element, counted from data. */
int64_t oracle_output_at(const attn_problem *problem, const attn_output *output, int64_t b,
                         int64_t h, int64_t i);

/* Element `at` of a tensor of that type, not int8. Exact. */
double oracle_load(attn_type type, const void *data, int64_t at);

/* What rounding to a type does to a result and adds to its bound. */
void oracle_round(attn_type type, double *out, double *bound);

/* |got - want| within bound, where NaN must meet NaN and an infinity the same infinity or NaN (an
 * overflow may reach either). */
int oracle_agrees(float got, double want, double bound);

#endif
