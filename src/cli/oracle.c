/* Attention in double precision, one row at a time, written from the formula.
 *
 * SPDX-License-Identifier: MIT */
#include "oracle.h"

#include <math.h>
#include <string.h>

/* ---- Where things are ------------------------------------------------------------------------ */

static int64_t past_len(const attn_problem *p, int64_t b) {
    return p->past_cap > 0 && p->past_len ? p->past_len[b] : p->past_cap;
}

/* Row i of the batch on the token axis that q and the outputs have, and the mask's query axis. */
static int64_t token_of(const attn_problem *p, int64_t b, int64_t i) {
    return p->cu_q ? p->cu_q[b] + i : i;
}

int64_t oracle_rows(const attn_problem *p, int64_t b) {
    return p->cu_q ? p->cu_q[b + 1] - p->cu_q[b] : p->q_len;
}

int64_t oracle_key_count(const attn_problem *p, int64_t b) {
    return p->kv_len ? p->kv_len[b] : past_len(p, b) + p->kv_cap;
}

int64_t oracle_position(const attn_problem *p, int64_t b, int64_t i) {
    if (p->align == ATTN_ALIGN_BOTTOM_RIGHT)
        return oracle_key_count(p, b) - oracle_rows(p, b) + i;
    if (p->align == ATTN_ALIGN_EXPLICIT)
        return p->offset[b] + i;
    return i;
}

int64_t oracle_output_at(const attn_problem *p, const attn_output *t, int64_t b, int64_t h,
                         int64_t i) {
    return (p->cu_q ? 0 : b * t->stride_batch) + h * t->stride_head +
           token_of(p, b, i) * t->stride_token;
}

/* ---- Storage types --------------------------------------------------------------------------- */

static double half(uint16_t bits) {
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const double magnitude = exponent == 31 ? fraction ? NAN : INFINITY
                             : exponent     ? ldexp(1024 + fraction, exponent - 25)
                                            : ldexp(fraction, -24);
    return bits >> 15 ? -magnitude : magnitude;
}

static double brain(uint16_t bits) {
    const uint32_t wide = (uint32_t)bits << 16;
    float x;
    memcpy(&x, &wide, sizeof x);
    return x;
}

double oracle_load(attn_type type, const void *data, int64_t at) {
    switch (type) {
    case ATTN_F16:
        return half(((const uint16_t *)data)[at]);
    case ATTN_BF16:
        return brain(((const uint16_t *)data)[at]);
    default:
        return ((const float *)data)[at];
    }
}

/* The features of one token and head. */
struct row {
    attn_type type;
    const void *data;
    int64_t first;
    const float *scales; /* of int8 */
    int64_t group;
};

static double feature(const struct row *r, int64_t c) {
    if (r->type != ATTN_I8)
        return oracle_load(r->type, r->data, r->first + c);
    const double scale = r->scales[r->group ? c / r->group : 0];
    return ((const int8_t *)r->data)[r->first + c] * scale;
}

/* n of them at once, from `first` on: most of the oracle's time goes here. */
enum { BLOCK = 64 };
static void features(const struct row *r, int64_t first, int64_t n, double *x) {
    if (r->type == ATTN_F32) {
        const float *from = (const float *)r->data + r->first + first;
        for (int64_t c = 0; c < n; c++)
            x[c] = from[c];
    } else {
        for (int64_t c = 0; c < n; c++)
            x[c] = feature(r, first + c);
    }
}
static int64_t block_length(int64_t first, int64_t end) {
    return end - first < BLOCK ? end - first : BLOCK;
}

static struct row input_row(const attn_input *t, const attn_scales *s, int64_t b, int64_t h,
                            int64_t token) {
    struct row r = {.type = t->type, .data = t->data};
    r.first = b * t->stride_batch + h * t->stride_head + token * t->stride_token;
    if (t->type == ATTN_I8) {
        r.scales = s->data + b * s->stride_batch + h * s->stride_head + token * s->stride_token;
        r.group = s->group;
    }
    return r;
}

static struct row query_row(const attn_problem *p, int64_t b, int64_t h, int64_t i) {
    return input_row(&p->q, NULL, p->cu_q ? 0 : b, h, token_of(p, b, i));
}

/* A key or value of head g, of k and v: in a page, or in the row of its batch. */
static struct row present_row(const attn_problem *p, const attn_input *t, const attn_scales *s,
                              int64_t b, int64_t g, int64_t token) {
    const attn_pages *pages = &p->pages;
    if (!pages->table)
        return input_row(t, s, b, g, token);
    const int64_t page = pages->table[b * pages->stride_batch + token / pages->page_len];
    return input_row(t, s, page, g, token % pages->page_len);
}

/* Key j, or its value, for query head h: of the past, or of k and v. */
static struct row key_row(const attn_problem *p, int64_t b, int64_t h, int64_t j) {
    const int64_t g = h / (p->q_heads / p->kv_heads), n_past = past_len(p, b);
    return j < n_past ? input_row(&p->past_k, &p->past_k_scales, b, g, j)
                      : present_row(p, &p->k, &p->k_scales, b, g, j - n_past);
}
static struct row value_row(const attn_problem *p, int64_t b, int64_t h, int64_t j) {
    const int64_t g = h / (p->q_heads / p->kv_heads), n_past = past_len(p, b);
    return j < n_past ? input_row(&p->past_v, &p->past_v_scales, b, g, j)
                      : present_row(p, &p->v, &p->v_scales, b, g, j - n_past);
}

/* ---- Masks ----------------------------------------------------------------------------------- */

/* What the mask adds to the score: -inf hides, and so does false; true adds nothing. */
static double mask_at(const attn_problem *p, int64_t b, int64_t h, int64_t i, int64_t j) {
    const attn_mask *m = &p->mask;
    if (m->type == ATTN_MASK_NONE)
        return 0;
    if (j >= m->n_keys)
        return -INFINITY;
    const int64_t row =
        b * m->stride_batch + h * m->stride_head + token_of(p, b, i) * m->stride_query;
    if (m->type == ATTN_MASK_BITS) {
        const uint8_t byte = ((const uint8_t *)m->data)[row + (j >> 3)];
        return byte >> (j & 7) & 1 ? 0 : -INFINITY;
    }
    const int64_t at = row + j * m->stride_key;
    if (m->type == ATTN_MASK_BOOL)
        return ((const uint8_t *)m->data)[at] ? 0 : -INFINITY;
    if (m->type == ATTN_MASK_F32)
        return ((const float *)m->data)[at];
    return half(((const uint16_t *)m->data)[at]);
}

int oracle_sees(const attn_problem *p, int64_t b, int64_t h, int64_t i, int64_t j) {
    if (j >= oracle_key_count(p, b))
        return 0;
    const int64_t ahead = j - oracle_position(p, b, i);
    if (p->causal && ahead > 0)
        return 0;
    if (p->window && p->window[0] >= 0 && -ahead > p->window[0])
        return 0;
    if (p->window && p->window[1] >= 0 && ahead > p->window[1])
        return 0;
    return mask_at(p, b, h, i, j) != -INFINITY; /* NaN is seen */
}

/* ---- Scores ---------------------------------------------------------------------------------- */

/* Whether the groups that share a scale are such that int8 keys are multiplied as they are. */
static int has_int8_groups(const attn_problem *p) {
    const int64_t group =
        p->k_scales.group > 0 && p->k_scales.group < p->qk_dim ? p->k_scales.group : 0;
    return group % 16 == 0 && (group > 0 ? group : p->qk_dim) <= 65536;
}

int oracle_arithmetic(const attn_problem *p, const char *isa) {
    static const char *const int8_sets[] = {"avx512_vnni", "neon_dotprod", "neon_i8mm"};
    for (int i = 0; i < 3; i++)
        if (strcmp(isa, int8_sets[i]) == 0)
            return p->k.type == ATTN_I8 && has_int8_groups(p) ? ORACLE_INT8_SCORES : 0;
    const int to_odd = strcmp(isa, "neon_bf16") == 0;
    int arithmetic = 0;
    if (!to_odd && strcmp(isa, "avx512_bf16") != 0)
        return 0;
    if (p->q.type == ATTN_BF16 && p->k.type == ATTN_BF16)
        arithmetic |= ORACLE_PAIRED_SCORES;
    if (p->v.type == ATTN_BF16)
        arithmetic |= ORACLE_PAIRED_VALUES;
    return arithmetic && to_odd ? arithmetic | ORACLE_TO_ODD : arithmetic;
}

/* The score of one pair at each stage, and the magnitudes that its error is made of. */
struct score {
    double scaled, capped, biased;
    double products; /* |scale| sum |q k| */
    double terms;    /* |score before| + |ALiBi| + |mask| */
    double flushed;  /* F of the bound: what subnormal numbers that count as 0 may cost, in pairs */
    double rounded;  /* Q of the bound */
};

/* Q of the bound: what it costs that q is rounded to int8, in groups as k has them. */
static double rounding_of_query(const attn_problem *p, const struct row *q, const struct row *k) {
    const int64_t group = p->k_scales.group ? p->k_scales.group : p->qk_dim;
    double sum = 0;
    for (int64_t first = 0; first < p->qk_dim; first += group) {
        double largest = 0, of_key = 0;
        for (int64_t c = first; c < p->qk_dim && c < first + group; c++) {
            largest = fmax(largest, fabs(feature(q, c)));
            of_key += fabs(feature(k, c));
        }
        sum += (largest / 252 + 0x1p-119) * of_key;
    }
    return sum;
}

static struct score score_of(const attn_problem *p, int arithmetic, int64_t b, int64_t h, int64_t i,
                             int64_t j) {
    const double scale = p->scale ? *p->scale : (double)(float)(1.0 / sqrt((double)p->qk_dim));
    const struct row q = query_row(p, b, h, i), k = key_row(p, b, h, j);
    double dot = 0, abs_dot = 0, flushed = 0;
    for (int64_t first = 0; first < p->qk_dim; first += BLOCK) {
        const int64_t n = block_length(first, p->qk_dim);
        double x[BLOCK], y[BLOCK];
        features(&q, first, n, x);
        features(&k, first, n, y);
        for (int64_t c = 0; c < n; c++) {
            const double product = x[c] * y[c];
            dot += product;
            abs_dot += fabs(product);
        }
        for (int64_t c = 0; arithmetic & ORACLE_PAIRED_SCORES && c < n; c++)
            flushed += 0x1p-126 * (fabs(x[c]) + fabs(y[c]) + 2);
    }
    struct score s = {
        .scaled = scale * dot, .products = fabs(scale) * abs_dot, .flushed = fabs(scale) * flushed};
    if (arithmetic & ORACLE_INT8_SCORES)
        s.rounded = fabs(scale) * rounding_of_query(p, &q, &k);
    s.capped = p->softcap > 0 ? p->softcap * tanh(s.scaled / p->softcap) : s.scaled;
    double alibi = 0, mask = 0;
    if (p->alibi)
        alibi = -(double)p->alibi[h] * fabs((double)(oracle_position(p, b, i) - j));
    if (p->mask.type != ATTN_MASK_NONE)
        mask = mask_at(p, b, h, i, j);
    s.biased = s.capped + alibi + mask;
    const int is_biased =
        p->alibi || p->mask.type == ATTN_MASK_F32 || p->mask.type == ATTN_MASK_F16;
    s.terms = is_biased ? fabs(s.capped) + fabs(alibi) + fabs(mask) : 0;
    return s;
}

static const double u = 0x1p-24;

/* Roundings of a score, in u of its products. */
static double score_roundings(const attn_problem *p, int arithmetic) {
    const int is_odd = arithmetic & ORACLE_PAIRED_SCORES && arithmetic & ORACLE_TO_ODD;
    return (double)(p->qk_dim + 2) + (p->k.type == ATTN_I8) + (is_odd ? 2 : 0);
}

/* What attn_problem.scores should hold below the key count, and its bound. The last term of the
 * bound is for products and quotients that f32 cannot hold in full because they are subnormal. */
static void report_score(const attn_problem *p, int arithmetic, const struct score *s, int is_seen,
                         double *score, double *bound) {
    const double scale = p->scale ? fabs((double)*p->scale) : 1;
    *score = s->scaled;
    *bound = score_roundings(p, arithmetic) * u * s->products +
             (double)(p->qk_dim + 2) * 0x1p-149 * (1 + scale + p->softcap);
    if (arithmetic & ORACLE_PAIRED_SCORES)
        *bound += s->flushed;
    *bound += s->rounded;
    if (p->scores_at == ATTN_SCORES_SCALED)
        return;
    *score = s->capped;
    if (p->softcap > 0)
        *bound = fmin(*bound, 2 * p->softcap) + 16 * u * fabs(s->capped);
    if (p->scores_at == ATTN_SCORES_CAPPED)
        return;
    *score = is_seen ? s->biased : -INFINITY;
    *bound += 4 * u * s->terms;
}

/* ---- The row --------------------------------------------------------------------------------- */

/* Maxima over the visible keys of a finite score: A, B, C, F and Q of the bound. */
struct magnitudes {
    double products, terms, capped, flushed, rounded;
};

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
    *n_merge = ceil((double)keys / (double)tile) + (p->sinks != NULL);
}

/* t of the bound. min and max are those of the visible finite scores, the sink counted in max. */
static double exponent_error(const attn_problem *p, int arithmetic, const struct magnitudes *m,
                             double min, double max, int64_t keys, int64_t n) {
    double n_chain, n_merge;
    summation_lengths(p, keys, n, &n_chain, &n_merge);
    if (arithmetic & ORACLE_PAIRED_VALUES && arithmetic & ORACLE_TO_ODD)
        n_chain = 2 * n_chain + 2;
    const double spread = min <= max ? fmin(max - min, 88) : 0;
    const double flushed = arithmetic & ORACLE_PAIRED_SCORES ? m->flushed : 0;
    return score_roundings(p, arithmetic) * u * m->products + flushed + m->rounded +
           u * (16 * m->capped + 4 * m->terms + 2 * spread + n_chain + 8 * n_merge + 16);
}

/* Half a unit in the last place of the largest number that may be rounded. Beyond the last number
 * infinity is right, near it anything is. */
void oracle_round(attn_type type, double *out, double *bound) {
    if (type == ATTN_F32 || !isfinite(*out))
        return;
    const int is_f16 = type == ATTN_F16, digits = is_f16 ? 11 : 8;
    const double too_large = is_f16 ? 65520 : 0x1.ffp127, most = fabs(*out) + *bound;
    if (fabs(*out) - *bound >= too_large)
        *out = copysign(INFINITY, *out);
    int exponent;
    frexp(most, &exponent);
    if (exponent < (is_f16 ? -13 : -125))
        exponent = is_f16 ? -13 : -125;
    *bound = most < too_large ? *bound + ldexp(1, exponent - digits - 1) : INFINITY;
}

/* The features of a block from the weights, key by key. */
static void weighted_values(const attn_problem *p, int64_t b, int64_t h, int64_t key_count,
                            int64_t first, int is_nan, struct oracle_row *row) {
    const int64_t n = block_length(first, p->v_dim);
    double *out = row->out + first, *bound = row->out_bound + first;
    double value[BLOCK], magnitude[BLOCK] = {0}, largest[BLOCK] = {0};
    for (int64_t c = 0; c < n; c++)
        out[c] = is_nan ? NAN : 0;
    for (int64_t j = 0; j < key_count; j++) {
        if (!row->sees[j])
            continue;
        const struct row values = value_row(p, b, h, j);
        const double weight = row->weights[j];
        features(&values, first, n, value);
        for (int64_t c = 0; c < n; c++) {
            const double size = fabs(value[c]);
            out[c] += weight * value[c];
            magnitude[c] += weight * size;
            largest[c] = size > largest[c] ? size : largest[c];
        }
    }
    for (int64_t c = 0; c < n; c++) {
        bound[c] = (magnitude[c] > 0 ? row->weight_factor * magnitude[c] : 0) +
                   (double)row->visible * 0x1p-125 * (1 + largest[c]);
        if (p->v.type == ATTN_I8)
            bound[c] += u * magnitude[c];
        if (row->arithmetic & ORACLE_PAIRED_VALUES)
            bound[c] += (magnitude[c] > 0 ? 0x1p-8 * (1 + row->weight_factor) * magnitude[c] : 0) +
                        (double)row->visible * 0x1p-124;
        oracle_round(p->out.type, &out[c], &bound[c]);
    }
}

void oracle_attend(const attn_problem *p, int64_t b, int64_t h, int64_t i, struct oracle_row *row) {
    const int64_t keys = p->past_cap + p->kv_cap, key_count = oracle_key_count(p, b);
    const double sink = p->sinks ? p->sinks[h] : -INFINITY;
    for (int64_t c = 0; c < p->v_dim; c++)
        row->out[c] = row->out_bound[c] = 0;
    for (int64_t j = 0; j < keys; j++) {
        row->weights[j] = row->sees[j] = 0;
        row->scores[j] = p->scores_at == ATTN_SCORES_BIASED ? -INFINITY : 0;
        row->scores_bound[j] = 0;
    }
    row->weight_factor = row->lse_bound = 0;
    row->visible = 0;

    /* Scores, of visible keys in row->weights for now. Hidden places keep NaN out of everything by
     * never entering a maximum or a sum, not by a weight of 0. */
    double min = INFINITY, max = -INFINITY;
    int64_t last = -1;
    struct magnitudes largest = {0, 0, 0, 0, 0};
    for (int64_t j = 0; j < key_count; j++) {
        row->sees[j] = (unsigned char)oracle_sees(p, b, h, i, j);
        if (p->pages.table && !row->sees[j] && !p->scores.data)
            continue; /* it may have no page */
        const struct score s = score_of(p, row->arithmetic, b, h, i, j);
        report_score(p, row->arithmetic, &s, row->sees[j], &row->scores[j], &row->scores_bound[j]);
        if (!row->sees[j])
            continue;
        row->weights[j] = s.biased;
        row->visible++;
        last = j;
        max = isnan(max) || isnan(s.biased) ? NAN : fmax(max, s.biased);
        if (!isfinite(s.biased))
            continue;
        min = fmin(min, s.biased);
        if (isfinite(s.products)) /* an infinite one under a softcap is exactly the cap */
            largest.products = fmax(largest.products, s.products);
        if (isfinite(s.flushed))
            largest.flushed = fmax(largest.flushed, s.flushed);
        if (isfinite(s.rounded))
            largest.rounded = fmax(largest.rounded, s.rounded);
        largest.terms = fmax(largest.terms, s.terms);
        largest.capped = fmax(largest.capped, p->softcap > 0 ? fabs(s.capped) : 0);
    }

    /* No key, or none above -inf: before everything but a sink that is no number. */
    const int is_empty = max == -INFINITY && sink < INFINITY;
    max = isnan(max) || isnan(sink) ? NAN : fmax(max, sink);
    double sum = max == -INFINITY ? 0 : exp(sink - max);
    for (int64_t j = 0; j < key_count; j++)
        if (row->sees[j]) {
            row->weights[j] = is_empty ? 0 : exp(row->weights[j] - max);
            sum += row->weights[j];
        }
    const double t = exponent_error(p, row->arithmetic, &largest, min, max, last + 1, row->visible);
    row->weight_factor = expm1(2 * t);
    row->lse = max == -INFINITY ? -INFINITY : max + log(sum);
    if (isfinite(row->lse))
        row->lse_bound = t + 4 * u * (fabs(max) + log((double)row->visible + 1) + 1);
    if (is_empty)
        return;

    for (int64_t j = 0; j < key_count; j++)
        if (row->sees[j])
            row->weights[j] /= sum;
    for (int64_t first = 0; first < p->v_dim; first += BLOCK)
        weighted_values(p, b, h, key_count, first, isnan(sum), row);
}

int oracle_agrees(float got, double want, double bound) {
    if (isnan(want))
        return isnan(got);
    if (isinf(want))
        return isnan(got) || (double)got == want;
    return fabs((double)got - want) <= bound;
}
