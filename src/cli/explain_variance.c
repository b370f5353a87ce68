/* attn explain variance: the variance of q . k is the number of features.
 *
 * Where the features of q and k are independent with mean 0 and variance 1, so is each product of
 * two of them, and the variance of a sum of independent terms is the sum of theirs: q . k has mean
 * 0 and variance d_k, q . k / sqrt(d_k) has variance 1.
 *
 * SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "explain.h"
#include "memory.h"
#include "normal.h"
#include "shipped.h"
#include "svg.h"
#include "tensors.h"

enum { SMALLEST = 4, LARGEST = 1024, SIZES = 9, PAIRS = 4096 };

/* Mean and variance of a sample, with their standard errors: sqrt(variance / n), and from the
 * fourth moment m4 sqrt((m4 - variance^2) / n). */
struct moments {
    double mean, mean_error, variance, variance_error;
};

static struct moments moments_of(const float *x, int64_t n) {
    double sum = 0, second = 0, fourth = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i];
    const double mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++) {
        const double square = ((double)x[i] - mean) * ((double)x[i] - mean);
        second += square, fourth += square * square;
    }
    const double m2 = second / (double)n, m4 = fourth / (double)n;
    return (struct moments){mean, sqrt(m2 / (double)n), second / (double)(n - 1),
                            sqrt((m4 - m2 * m2) / (double)n)};
}

/* Scores before and after scaling, of problems whose other sizes and strides are set. */
static int both_scores(attn_problem p, float *raw, float *scaled) {
    const float one = 1;
    p.scores = p.weights;
    p.scores.data = scaled;
    if (explain_attend(&p))
        return -1;
    p.scale = &one;
    p.scores.data = raw;
    return explain_attend(&p);
}

/* ---- Independent components ------------------------------------------------------------------ */

struct measured {
    double dim[SIZES], raw[SIZES], raw_error[SIZES], scaled[SIZES], scaled_error[SIZES];
};

/* PAIRS problems of one query and one key, so that no two scores have a vector in common. */
static int measure(struct report *r, struct measured *m, double *farthest) {
    const struct report_column columns[] = {
        {"d_k", "d_k", REPORT_FIXED, 6, 0},
        {"mean", "mean q.k", REPORT_FIXED, 9, 3},
        {"mean_error", "+-", REPORT_FIXED, 6, 3},
        {"variance", "variance", REPORT_FIXED, 9, 2},
        {"variance_error", "+-", REPORT_FIXED, 6, 2},
        {"errors_from_d_k", "errors off", REPORT_FIXED, 10, 2},
        {"scaled_variance", "var. scaled", REPORT_FIXED, 11, 4},
        {"scaled_variance_error", "+-", REPORT_FIXED, 6, 4},
        {0},
    };
    const size_t room = (size_t)PAIRS * LARGEST;
    float *q = cli_allocate(room, sizeof *q), *k = cli_allocate(room, sizeof *k);
    float *v = cli_allocate(PAIRS, sizeof *v), *out = cli_allocate(PAIRS, sizeof *out);
    float *raw = cli_allocate(PAIRS, sizeof *raw), *scaled = cli_allocate(PAIRS, sizeof *scaled);
    int failed = !q || !k || !v || !out || !raw || !scaled ? cli_fail(-1, "not enough memory") : 0;
    struct normal random = {1};
    *farthest = 0;
    if (!failed) {
        normal_fill(&random, v, PAIRS);
        report_table(r, "sizes", columns);
    }
    for (int i = 0, d = SMALLEST; d <= LARGEST && !failed; d *= 2, i++) {
        normal_fill(&random, q, (size_t)PAIRS * (size_t)d);
        normal_fill(&random, k, (size_t)PAIRS * (size_t)d);
        failed = both_scores(attn_problem_bhld(PAIRS, 1, 1, 1, 1, d, 1, q, k, v, out), raw, scaled);
        if (failed)
            break;
        const struct moments a = moments_of(raw, PAIRS), b = moments_of(scaled, PAIRS);
        const double off = (a.variance - d) / a.variance_error;
        *farthest = fmax(*farthest, fmax(fabs(off), fabs(a.mean / a.mean_error)));
        m->dim[i] = d, m->raw[i] = a.variance, m->raw_error[i] = a.variance_error;
        m->scaled[i] = b.variance, m->scaled_error[i] = b.variance_error;
        report_row(r, NULL,
                   (double[]){d, a.mean, a.mean_error, a.variance, a.variance_error, off,
                              b.variance, b.variance_error});
    }
    if (!failed)
        report_end_table(r);
    free(q), free(k), free(v), free(out), free(raw), free(scaled);
    return failed;
}

/* ---- A real model ---------------------------------------------------------------------------- */

/* What the spread of the scores of one head consists of. */
struct head {
    struct moments score;      /* of q . k over all pairs */
    double q_square, k_square; /* mean square of a feature */
    double independent;        /* the variance if features were independent with mean 0, each with
                                  its own mean square: sum_c E[q_c^2] E[k_c^2] */
    double levels;             /* the part of the variance that a whole query or key has in common:
                                  variance of the means of rows, plus that of columns */
};

static struct head head_of(const float *q, const float *k, const float *raw, int64_t n, int64_t d) {
    struct head h = {.score = moments_of(raw, n * n)};
    for (int64_t c = 0; c < d; c++) {
        double q_sum = 0, k_sum = 0;
        for (int64_t i = 0; i < n; i++) {
            q_sum += (double)q[i * d + c] * (double)q[i * d + c];
            k_sum += (double)k[i * d + c] * (double)k[i * d + c];
        }
        h.independent += q_sum / (double)n * (k_sum / (double)n);
        h.q_square += q_sum / (double)(n * d), h.k_square += k_sum / (double)(n * d);
    }
    for (int64_t i = 0; i < n; i++) {
        double row = 0, column = 0;
        for (int64_t j = 0; j < n; j++)
            row += (double)raw[i * n + j], column += (double)raw[j * n + i];
        row = row / (double)n - h.score.mean, column = column / (double)n - h.score.mean;
        h.levels += (row * row + column * column) / (double)n;
    }
    return h;
}

/* Means over the heads. */
struct model {
    int64_t dim;
    double variance, independent, levels, q_square, k_square, worst_mean;
};

static void show_model(struct report *r, const attn_problem *p, const float *raw,
                       const float *scaled) {
    static const struct report_column columns[] = {
        {"head", "head", REPORT_FIXED, 4, 0},
        {"mean", "mean q.k", REPORT_FIXED, 9, 2},
        {"sd", "sd q.k", REPORT_FIXED, 7, 2},
        {"sd_scaled", "sd scaled", REPORT_FIXED, 9, 3},
        {"q_square", "mean q^2", REPORT_FIXED, 9, 2},
        {"k_square", "mean k^2", REPORT_FIXED, 9, 2},
        {"sd_independent", "sd if independent", REPORT_FIXED, 18, 2},
        {"share_levels", "of variance, levels", REPORT_FIXED, 20, 2},
        {0},
    };
    const int64_t n = p->q_len, d = p->qk_dim, pairs = n * n;
    const double heads = (double)p->q_heads;
    struct model m = {.dim = d};
    report_say(r,
               "A real model, the text recogniser of attn demo: %" PRId64 " heads, %" PRId64
               " x %" PRId64 " pairs each, d_k = %" PRId64 ", sqrt(d_k) = %.2f:",
               p->q_heads, n, n, d, sqrt((double)d));
    report_table(r, "real_heads", columns);
    for (int64_t i = 0; i < p->q_heads; i++) {
        const struct head h =
            head_of((const float *)p->q.data + i * p->q.stride_head,
                    (const float *)p->k.data + i * p->k.stride_head, raw + i * pairs, n, d);
        const struct moments s = moments_of(scaled + i * pairs, pairs);
        report_row(r, NULL,
                   (double[]){(double)i, h.score.mean, sqrt(h.score.variance), sqrt(s.variance),
                              h.q_square, h.k_square, sqrt(h.independent),
                              h.levels / h.score.variance});
        m.variance += h.score.variance / heads, m.independent += h.independent / heads;
        m.levels += h.levels / heads;
        m.q_square += h.q_square / heads, m.k_square += h.k_square / heads;
        m.worst_mean = fmax(m.worst_mean, fabs(h.score.mean));
    }
    report_end_table(r);
    report_value(r, "real_d_k", (double)d);
    report_value(r, "real_sd", sqrt(m.variance));
    report_value(r, "real_sd_independent", sqrt(m.independent));
    report_value(r, "real_share_levels", m.levels / m.variance);
    report_say(
        r,
        "Their spread, %.2f, is near sqrt(d_k), but not for the reason above. The features' "
        "mean squares are %.2f and %.2f and not 1: independent, they would give %.2f. They "
        "are not independent: what they have in common adds the rest. Nor is the mean 0 (it "
        "is up to %.2f), and %.0f %% of the variance are levels that a whole query or a "
        "whole key has in common; the former shift a row of scores, which changes no weight. "
        "The scale is right for a model at its start; training then moves q and k as it "
        "needs.",
        sqrt(m.variance), m.q_square, m.k_square, sqrt(m.independent), m.worst_mean,
        100 * m.levels / m.variance);
}

static int real_model(struct report *r) {
    static const struct tensor_layout plain_layout = {0, 0, 0};
    char folder[2048], paths[3][2100];
    if (shipped_find(SHIPPED_LONG, "this lesson needs them", folder, sizeof folder))
        return -1;
    for (int i = 0; i < 3; i++)
        snprintf(paths[i], sizeof paths[i], "%s/%c.npy", folder, "qkv"[i]);
    struct tensors t = {.q_path = paths[0], .k_path = paths[1], .v_path = paths[2]};
    attn_problem p;
    if (tensors_read(&t, 0, 0) || tensors_problem(&t, &plain_layout, &p)) {
        tensors_free(&t);
        return -1;
    }
    const int64_t pairs = p.q_len * p.kv_cap;
    const size_t room = (size_t)(p.q_heads * pairs);
    float *raw = cli_allocate(room, sizeof *raw), *scaled = cli_allocate(room, sizeof *scaled);
    float *out = cli_allocate((size_t)(p.q_heads * p.q_len * p.v_dim), sizeof *out);
    int failed = !raw || !scaled || !out ? cli_fail(-1, "not enough memory") : 0;
    p.out.data = out;
    p.weights.stride_token = p.kv_cap, p.weights.stride_head = pairs;
    failed = failed || both_scores(p, raw, scaled) ? -1 : 0;
    if (!failed)
        show_model(r, &p, raw, scaled);
    free(raw), free(scaled), free(out);
    tensors_free(&t);
    return failed;
}

/* ---- The lesson ------------------------------------------------------------------------------ */

static int draw(const struct report *r, const struct measured *m) {
    struct svg svg;
    svg_open(&svg, r->pictures, "variance", 760, 430,
             "The variance of q . k is d_k; divided by sqrt(d_k) it is 1");
    struct svg_chart chart = {
        .svg = &svg,
        .x = 70,
        .y = 72,
        .width = 500,
        .height = 290,
        .across = {"d_k, features of a head", SMALLEST, LARGEST, 2, 4},
        .up = {"variance of the scores (standard errors are smaller than the dots)", 0.25, 4096, 4,
               4},
    };
    svg_chart_axes(&chart);
    const double ends[] = {SMALLEST, LARGEST}, ones[] = {1, 1};
    svg_chart_curve(&chart, "d_k", SVG_INK, 2, ends, ends, NULL, 0);
    svg_chart_curve(&chart, "1", SVG_INK, 2, ends, ones, NULL, 0);
    svg_chart_curve(&chart, "q . k", SVG_ORANGE, SIZES, m->dim, m->raw, m->raw_error, 1);
    svg_chart_curve(&chart, "q . k / sqrt(d_k)", SVG_BLUE, SIZES, m->dim, m->scaled,
                    m->scaled_error, 1);
    return svg_close(&svg);
}

int explain_variance(struct report *r) {
    struct measured m;
    double farthest;
    report_lesson(r, "variance", "why scores are divided by sqrt(d_k)");
    report_say(r,
               "q and k of independent features with mean 0 and variance 1. Their product has "
               "mean 0, and each feature adds 1 to its variance. Measured on %d independent pairs, "
               "with standard errors; \"errors off\" is (variance - d_k) in standard errors:",
               PAIRS);
    if (measure(r, &m, &farthest) || real_model(r) || (r->pictures && draw(r, &m)))
        return -1;
    report_conclude(r, farthest <= 3,
                    "for d_k from %d to %d mean and variance are 0 and d_k within %.1f standard "
                    "errors: scores grow like sqrt(d_k), and 1/sqrt(d_k) brings them back to "
                    "variance 1 (%.3f and %.3f at the two ends).",
                    SMALLEST, LARGEST, farthest, m.scaled[0], m.scaled[SIZES - 1]);
    return 0;
}
