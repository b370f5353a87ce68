/* Compares what the library computed with the oracle, row by row.
 *
 * SPDX-License-Identifier: MIT */
#include "judge.h"

#include <math.h>
#include <stdlib.h>

#include "cli.h"

int judge_allocate(const attn_problem *problem, struct oracle_row *row) {
    row->out = cli_allocate((size_t)problem->v_dim, sizeof *row->out);
    row->out_bound = cli_allocate((size_t)problem->v_dim, sizeof *row->out_bound);
    row->weights = cli_allocate((size_t)problem->kv_cap, sizeof *row->weights);
    if (row->out && row->out_bound && row->weights)
        return 0;
    judge_free(row);
    return -1;
}

void judge_free(struct oracle_row *row) {
    free(row->out);
    free(row->out_bound);
    free(row->weights);
}

static void compare(float got, double want, double bound, double *worst,
                    struct judgement *judgement) {
    judgement->values++;
    if (!oracle_agrees(got, want, bound))
        judgement->failures++;
    if (!isfinite(want))
        return;
    const double error = isnan(got) ? INFINITY : fabs((double)got - want);
    *worst = fmax(*worst, error);
    if (error > 0)
        judgement->worst_ratio = fmax(judgement->worst_ratio, error / bound);
}

static const float *row_of(const attn_output *t, int64_t b, int64_t h, int64_t i) {
    return (const float *)t->data + b * t->stride_batch + h * t->stride_head + i * t->stride_token;
}

void judge_row(const attn_problem *p, int64_t b, int64_t h, int64_t i, const struct oracle_row *row,
               struct judgement *judgement) {
    const float *out = row_of(&p->out, b, h, i);
    for (int64_t c = 0; c < p->v_dim; c++)
        compare(out[c], row->out[c], row->out_bound[c], &judgement->worst_out, judgement);
    if (p->lse.data)
        compare(*row_of(&p->lse, b, h, i), row->lse, row->lse_bound, &judgement->worst_lse,
                judgement);
    if (p->weights.data) {
        const float *weights = row_of(&p->weights, b, h, i);
        for (int64_t j = 0; j < p->kv_cap; j++) {
            /* A key of weight 0 adds nothing to the bound, also where the factor is infinite. A key
             * that the row does not see has weight exactly 0. */
            const double want = row->weights[j];
            const double bound = j >= row->visible ? 0
                                 : want > 0        ? row->weight_factor * want + 0x1p-125
                                                   : 0x1p-125;
            compare(weights[j], want, bound, &judgement->worst_weight, judgement);
        }
    }
}
