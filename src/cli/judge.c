/* Compares what the library computed with the oracle, row by row.
 *
 * SPDX-License-Identifier: MIT */
#include "judge.h"

#include <math.h>
#include <stdlib.h>

#include "cli.h"
#include "memory.h"

int judge_allocate(const attn_problem *problem, struct oracle_row *row) {
    const size_t features = (size_t)problem->v_dim;
    const size_t keys = (size_t)(problem->past_cap + problem->kv_cap);
    row->arithmetic = 0;
    row->out = cli_allocate(features, sizeof *row->out);
    row->out_bound = cli_allocate(features, sizeof *row->out_bound);
    row->weights = cli_allocate(keys, sizeof *row->weights);
    row->scores = cli_allocate(keys, sizeof *row->scores);
    row->scores_bound = cli_allocate(keys, sizeof *row->scores_bound);
    row->sees = cli_allocate(keys, sizeof *row->sees);
    if (row->out && row->out_bound && row->weights && row->scores && row->scores_bound && row->sees)
        return 0;
    judge_free(row);
    return -1;
}

void judge_free(struct oracle_row *row) {
    free(row->out);
    free(row->out_bound);
    free(row->weights);
    free(row->scores);
    free(row->scores_bound);
    free(row->sees);
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

void judge_row(const attn_problem *p, int64_t b, int64_t h, int64_t i, const struct oracle_row *row,
               struct judgement *judgement) {
    const int64_t keys = p->past_cap + p->kv_cap;
    const int64_t out = oracle_output_at(p, &p->out, b, h, i);
    /* The worst of an out that is rounded to 16 bits would be that rounding, always. */
    struct judgement of_out = *judgement;
    for (int64_t c = 0; c < p->v_dim; c++)
        compare((float)oracle_load(p->out.type, p->out.data, out + c), row->out[c],
                row->out_bound[c], &of_out.worst_out, &of_out);
    judgement->values = of_out.values, judgement->failures = of_out.failures;
    if (p->out.type == ATTN_F32)
        *judgement = of_out;
    if (p->lse.data) {
        const float *lse = (const float *)p->lse.data + oracle_output_at(p, &p->lse, b, h, i);
        compare(*lse, row->lse, row->lse_bound, &judgement->worst_lse, judgement);
    }
    if (p->weights.data) {
        const float *got =
            (const float *)p->weights.data + oracle_output_at(p, &p->weights, b, h, i);
        for (int64_t j = 0; j < keys; j++) {
            /* A key of weight 0 adds nothing to the bound, also where the factor is infinite. A key
             * that the row does not see has weight exactly 0. */
            const double want = row->weights[j];
            const double bound = !row->sees[j] ? 0
                                 : want > 0    ? row->weight_factor * want + 0x1p-125
                                               : 0x1p-125;
            compare(got[j], want, bound, &judgement->worst_weight, judgement);
        }
    }
    if (p->scores.data) {
        const float *got = (const float *)p->scores.data + oracle_output_at(p, &p->scores, b, h, i);
        for (int64_t j = 0; j < keys; j++)
            compare(got[j], row->scores[j], row->scores_bound[j], &judgement->worst_score,
                    judgement);
    }
}
