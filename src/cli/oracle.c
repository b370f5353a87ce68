/* Attention in double precision, one row at a time, written from the formula.
 *
 * SPDX-License-Identifier: MIT */
#include "oracle.h"

#include <math.h>

static const float *row_of(const attn_input *t, int64_t b, int64_t h, int64_t token) {
    return (const float *)t->data + b * t->stride_batch + h * t->stride_head +
           token * t->stride_token;
}

/* n_chain and n_merge of the bound, from the number of keys up to the last visible one. */
static void summation_lengths(const attn_problem *p, int64_t keys, int64_t n, double *n_chain,
                              double *n_merge) {
    int64_t span = 512, tile = 512;
    for (int64_t octave = 8192; octave <= keys / 2; octave *= 2)
        span *= 2;
    if (keys >= 8192)
        span *= 2;
    while (tile > 64 && tile * p->qk_dim * 4 > 512 * 1024)
        tile /= 2;
    *n_chain = (double)(n < span ? n : span);
    *n_merge = ceil((double)keys / (double)tile);
}

void oracle_attend(const attn_problem *p, int64_t b, int64_t h, int64_t i, struct oracle_row *row) {
    const int64_t g = h / (p->q_heads / p->kv_heads);
    const int64_t kv_len = p->kv_len ? p->kv_len[b] : p->kv_cap;
    const double scale = p->scale ? *p->scale : (double)(float)(1.0 / sqrt((double)p->qk_dim));
    int64_t offset = 0;
    if (p->align == ATTN_ALIGN_BOTTOM_RIGHT)
        offset = kv_len - p->q_len;
    if (p->align == ATTN_ALIGN_EXPLICIT)
        offset = p->offset[b];

    /* Scores, in row->weights for now; hidden places keep NaN out of everything by never entering
     * a sum, not by a weight of 0. */
    int64_t end = kv_len;
    if (p->causal && offset + i + 1 < end)
        end = offset + i + 1 > 0 ? offset + i + 1 : 0;
    const float *q = p->q_len ? row_of(&p->q, b, h, i) : NULL;
    double max = -INFINITY, min = INFINITY, abs_products = 0;
    for (int64_t j = 0; j < end; j++) {
        const float *k = row_of(&p->k, b, g, j);
        double dot = 0, abs_dot = 0;
        for (int64_t c = 0; c < p->qk_dim; c++) {
            dot += (double)q[c] * k[c];
            abs_dot += fabs((double)q[c] * k[c]);
        }
        const double s = scale * dot;
        row->weights[j] = s;
        max = s > max || isnan(s) ? s : max;
        min = s < min && s > -INFINITY ? s : min;
        if (isfinite(s))
            abs_products = fmax(abs_products, fabs(scale) * abs_dot);
        if (isnan(max))
            max = NAN;
    }
    for (int64_t j = end; j < p->kv_cap; j++)
        row->weights[j] = 0;
    row->visible = end;

    double sum = 0;
    for (int64_t j = 0; j < end; j++) {
        const double s = row->weights[j];
        row->weights[j] = max == -INFINITY ? 0 : exp(s - max);
        sum += row->weights[j];
    }
    for (int64_t c = 0; c < p->v_dim; c++)
        row->out[c] = row->out_bound[c] = 0;
    row->lse = -INFINITY, row->lse_bound = row->weight_factor = 0;
    if (max == -INFINITY)
        return;

    row->lse = max + log(sum);
    for (int64_t j = 0; j < end; j++)
        row->weights[j] /= sum;

    const double u = 0x1p-24;
    double n_chain, n_merge;
    summation_lengths(p, end, end, &n_chain, &n_merge);
    const double spread = fmin(max - min, 88);
    const double t =
        (double)(p->qk_dim + 2) * u * abs_products + u * (2 * spread + n_chain + 8 * n_merge + 16);
    row->weight_factor = expm1(2 * t);
    row->lse_bound = t + 4 * u * (fabs(max) + log((double)end) + 1);
    for (int64_t c = 0; c < p->v_dim; c++) {
        double out = 0, magnitude = 0, largest = 0;
        for (int64_t j = 0; j < end; j++) {
            const double v = row_of(&p->v, b, g, j)[c];
            out += row->weights[j] * v;
            magnitude += row->weights[j] * fabs(v);
            largest = fmax(largest, fabs(v));
        }
        row->out[c] = out;
        row->out_bound[c] = row->weight_factor * magnitude + (double)end * 0x1p-125 * (1 + largest);
    }
}

int oracle_agrees(float got, double want, double bound) {
    if (isnan(want))
        return isnan(got);
    if (isinf(want))
        return isnan(got) || (double)got == want;
    return fabs((double)got - want) <= bound;
}
