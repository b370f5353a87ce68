/* The gradient of attention in double precision, from the formula.
 *
 * SPDX-License-Identifier: MIT */
#include "oracle_gradient.h"

#include <math.h>
#include <stdlib.h>

#include "judge.h"
#include "oracle.h"

static const double u = 0x1p-24, least = 0x1p-125;

static int64_t query_at(const attn_problem *p, const attn_input *t, int64_t b, int64_t h,
                        int64_t i) {
    const attn_output same = {NULL, t->type, t->stride_batch, t->stride_head, t->stride_token};
    return oracle_output_at(p, &same, b, h, i);
}

static int64_t key_at(const attn_input *t, int64_t b, int64_t g, int64_t j) {
    return b * t->stride_batch + g * t->stride_head + j * t->stride_token;
}

static double element(const attn_input *t, int64_t first, int64_t c) {
    if (t->type == ATTN_F32) /* nearly always, and most of the oracle's time goes here */
        return ((const float *)t->data)[first + c];
    return oracle_load(t->type, t->data, first + c);
}

/* One row: what all its pairs share. */
struct differentiated_row {
    const attn_problem *p;
    const attn_gradient *g;
    const struct oracle_row *row;
    int64_t q, dout; /* where they begin */
    double scale, r, exp_r, expm1_r, delta;
    double delta_bound; /* E without v */
    int64_t n;
};

/* One pair: P, dS, |dP - D|, and the bounds E and S; c is the score before ALiBi and mask. */
struct pair {
    double weight, ds, distance, e, s;
};

static struct pair pair_of(const struct differentiated_row *x, int64_t v, int64_t j) {
    const attn_problem *p = x->p;
    struct pair pair = {.weight = x->row->weights[j]};
    double dp = 0, magnitude = 0;
    for (int64_t c = 0; c < p->v_dim; c++) {
        const double product = element(&x->g->dout, x->dout, c) * element(&p->v, v, c);
        dp += product;
        magnitude += fabs(product);
    }
    pair.distance = fabs(dp - x->delta);
    pair.e = x->delta_bound + (double)(p->v_dim + 4) * u * magnitude;
    pair.ds = pair.weight * (dp - x->delta);
    const double grown = x->exp_r * (pair.distance + pair.e);
    pair.s = pair.weight * (grown * (1 + 8 * u) - pair.distance);
    if (p->softcap > 0) {
        const double capped = x->row->scores[j] / p->softcap;
        const double t = log1p(x->row->weight_factor) / 2;
        pair.ds *= 1 - capped * capped;
        pair.s += pair.weight * grown * (fmin(1, 2 * t / p->softcap) + 40 * u);
    }
    return pair;
}

/* The chain that a key's bounds grow with has a length that is not known before the last row. */
struct growing {
    double *dk, *dv; /* what is multiplied by it */
    double *pairs;   /* of each key */
};

static void add_row(const struct differentiated_row *x, int64_t b, int64_t h, int64_t i,
                    struct oracle_gradient *o, const struct growing *grow) {
    const attn_problem *p = x->p;
    const int64_t g = h / (p->q_heads / p->kv_heads), d = p->qk_dim, dv = p->v_dim;
    const int64_t at = ((b * p->q_heads + h) * p->q_len + i) * d;
    double *dq = o->dq.value + at, *dq_bound = o->dq.bound + at;
    const double factor = fabs(x->scale);
    for (int64_t j = 0; j < oracle_key_count(p, b); j++) {
        if (!x->row->sees[j])
            continue;
        const int64_t key = (b * p->kv_heads + g) * p->kv_cap + j;
        const int64_t k = key_at(&p->k, b, g, j), v = key_at(&p->v, b, g, j);
        const struct pair pair = pair_of(x, v, j);
        const double tiny = least * (1 + factor) * (1 + pair.distance + pair.e);
        const double whole = pair.weight * pair.distance + pair.s;
        grow->pairs[key]++;
        const double ds = x->scale * pair.ds, s = factor * pair.s, growing = factor * u * whole;
        const double of_dq = factor * (pair.s + (double)(x->n + 3) * u * whole);
        const double of_dv = x->expm1_r * pair.weight;
        for (int64_t c = 0; c < d; c++) {
            const double kc = element(&p->k, k, c), qc = element(&p->q, x->q, c);
            dq[c] += ds * kc;
            dq_bound[c] += of_dq * fabs(kc) + tiny * (1 + fabs(kc));
            o->dk.value[key * d + c] += ds * qc;
            o->dk.bound[key * d + c] += s * fabs(qc) + tiny * (1 + fabs(qc));
            grow->dk[key * d + c] += growing * fabs(qc);
        }
        for (int64_t c = 0; c < dv; c++) {
            const double dout = element(&x->g->dout, x->dout, c);
            o->dv.value[key * dv + c] += pair.weight * dout;
            o->dv.bound[key * dv + c] += of_dv * fabs(dout) + least * (1 + fabs(dout));
            grow->dv[key * dv + c] += pair.weight * fabs(dout);
        }
    }
}

static void differentiate_row(const attn_problem *p, const attn_gradient *g, int64_t b, int64_t h,
                              int64_t i, struct oracle_row *row, struct oracle_gradient *o,
                              const struct growing *grow) {
    attn_problem capped = *p;
    capped.scores_at = ATTN_SCORES_CAPPED;
    oracle_attend(&capped, b, h, i, row);
    if (row->lse == -INFINITY || (row->visible == 0 && !isnan(row->lse)))
        return; /* out is 0, whatever dout is */
    const double t = log1p(row->weight_factor) / 2;
    struct differentiated_row x = {.p = p, .g = g, .row = row, .n = row->visible};
    x.q = query_at(p, &p->q, b, h, i);
    x.dout = query_at(p, &g->dout, b, h, i);
    x.scale = p->scale ? *p->scale : (double)(float)(1.0 / sqrt((double)p->qk_dim));
    x.r = 2 * t + 1.25 * (row->lse_bound - t);
    x.exp_r = exp(x.r), x.expm1_r = expm1(x.r);
    for (int64_t c = 0; c < p->v_dim; c++) {
        const double dout = element(&g->dout, x.dout, c), error = row->out_bound[c];
        x.delta += dout * row->out[c];
        x.delta_bound +=
            fabs(dout) * ((double)(p->v_dim + 4) * u * (fabs(row->out[c]) + error) + error);
    }
    add_row(&x, b, h, i, o, grow);
    if (p->sinks && p->sinks[h] != -INFINITY) {
        const double weight = exp((double)p->sinks[h] - row->lse);
        o->dsinks.value[h] -= weight * x.delta;
        o->dsinks.bound[h] += weight * (x.expm1_r * fabs(x.delta) + x.exp_r * x.delta_bound) +
                              u * weight * fabs(x.delta) + least * (1 + fabs(x.delta));
    }
}

static void round_part(struct oracle_part part, attn_type type, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        oracle_round(type, &part.value[i], &part.bound[i]);
}

static struct oracle_part take(double **at, int64_t n) {
    const struct oracle_part part = {*at, *at + n};
    *at += 2 * n;
    return part;
}

int oracle_differentiate(const attn_problem *p, const attn_gradient *g, int arithmetic,
                         struct oracle_gradient *o) {
    const int64_t rows = p->batch * p->q_heads * p->q_len,
                  keys = p->batch * p->kv_heads * p->kv_cap;
    const int64_t n_dq = rows * p->qk_dim, n_dk = keys * p->qk_dim, n_dv = keys * p->v_dim;
    const int64_t n = 2 * n_dq + 3 * n_dk + 3 * n_dv + 2 * p->q_heads + keys;
    struct oracle_row row;
    if (judge_allocate(p, &row))
        return -1;
    row.arithmetic = arithmetic;
    o->numbers = calloc((size_t)n + 1, sizeof *o->numbers);
    if (!o->numbers) {
        judge_free(&row);
        return -1;
    }
    double *at = o->numbers;
    o->dq = take(&at, n_dq), o->dk = take(&at, n_dk), o->dv = take(&at, n_dv);
    o->dsinks = take(&at, p->q_heads);
    const struct growing grow = {at, at + n_dk, at + n_dk + n_dv};
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->q_heads; h++)
            for (int64_t i = 0; i < oracle_rows(p, b); i++)
                differentiate_row(p, g, b, h, i, &row, o, &grow);
    judge_free(&row);
    for (int64_t i = 0; i < n_dk; i++)
        o->dk.bound[i] += (grow.pairs[i / p->qk_dim] + 3) * grow.dk[i];
    for (int64_t i = 0; i < n_dv; i++) {
        const double chain = (grow.pairs[i / p->v_dim] + 2) * u;
        o->dv.bound[i] = o->dv.bound[i] * exp(chain) + grow.dv[i] * expm1(chain);
    }
    round_part(o->dq, g->dq.type, n_dq);
    round_part(o->dk, g->dk.type, n_dk);
    round_part(o->dv, g->dv.type, n_dv);
    return 0;
}

void oracle_gradient_free(struct oracle_gradient *o) { free(o->numbers); }
