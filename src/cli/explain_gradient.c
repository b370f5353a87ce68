/* attn explain gradient: what is left of the gradient when the softmax is saturated.
 *
 * The gradient of a softmax is ds_j = w_j (dw_j - sum_i w_i dw_i). Where one weight is nearly 1,
 * the other factor of that key is nearly 0, and every other key has a weight of nearly 0: nothing
 * is learned from such a row.
 *
 * SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdlib.h>

#include "explain.h"
#include "memory.h"
#include "normal.h"
#include "svg.h"

enum { SMALLEST = 4, SIZES = 8, LARGEST = 65536, ROWS = 64, KEYS = 64 };

/* Of the rows (for dk: of the keys) the median norm; the share of rows in which every ds is 0. */
struct norms {
    double ds, dq, dk, dead;
};

struct arena {
    float *q, *k, *dq, *dk;                                    /* [ROWS or KEYS][d_k] */
    float v[KEYS], dv[KEYS], out[ROWS], dout[ROWS], lse[ROWS]; /* a value is one number */
    float weights[ROWS * KEYS];
};

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* In double precision: squares of what f32 still holds are beyond its range. */
static double norm_of(const float *x, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

static double median(double *x, int n) {
    qsort(x, (size_t)n, sizeof *x, ascending);
    return (x[(n - 1) / 2] + x[n / 2]) / 2;
}

static double median_norm(const float *x, int n, int d) {
    double norms[ROWS > KEYS ? ROWS : KEYS];
    for (int i = 0; i < n; i++)
        norms[i] = norm_of(x + (int64_t)i * d, d);
    return median(norms, n);
}

static int measure(struct arena *a, int d, const float *scale, struct norms *norms) {
    attn_problem p = attn_problem_bhld(1, 1, 1, ROWS, KEYS, d, 1, a->q, a->k, a->v, a->out);
    p.scale = scale;
    p.lse.data = a->lse;
    p.weights.data = a->weights;
    if (explain_attend(&p))
        return -1;
    attn_gradient g = attn_gradient_init();
    g.dout = (attn_input){.data = a->dout, .stride_token = 1};
    g.dq = (attn_output){.data = a->dq, .stride_token = d};
    g.dk = (attn_output){.data = a->dk, .stride_token = d};
    g.dv = (attn_output){.data = a->dv, .stride_token = 1};
    attn_status status = attn_backward_alloc(&p, &g, NULL);

    double ds_norms[ROWS];
    int dead = 0;
    for (int i = 0; i < ROWS && status == ATTN_OK; i++) {
        float dweights[KEYS], ds[KEYS];
        for (int j = 0; j < KEYS; j++)
            dweights[j] = a->dout[i] * a->v[j];
        status = attn_softmax_backward(KEYS, a->weights + i * KEYS, dweights, ds);
        ds_norms[i] = norm_of(ds, KEYS);
        dead += ds_norms[i] == 0;
    }
    if (status != ATTN_OK)
        return cli_fail(-1, "%s", attn_status_string(status));
    *norms = (struct norms){median(ds_norms, ROWS), median_norm(a->dq, ROWS, d),
                            median_norm(a->dk, KEYS, d), (double)dead / ROWS};
    return 0;
}

struct measured {
    double dim[SIZES], ds[2][SIZES], dq[2][SIZES]; /* scaled, not scaled */
    double dead[SIZES];                            /* not scaled */
};

static int measure_all(struct report *r, struct measured *m) {
    static const struct report_column columns[] = {
        {"d_k", "d_k", REPORT_FIXED, 6, 0},
        {"ds_scaled", "|ds|", REPORT_SIGNIFICANT, 8, 3},
        {"dq_scaled", "|dq|", REPORT_SIGNIFICANT, 8, 3},
        {"dk_scaled", "|dk|", REPORT_SIGNIFICANT, 8, 3},
        {"ds_unscaled", "not scaled", REPORT_SIGNIFICANT, 11, 3},
        {"dq_unscaled", "|dq|", REPORT_SIGNIFICANT, 9, 3},
        {"dk_unscaled", "|dk|", REPORT_SIGNIFICANT, 9, 3},
        {"dead_unscaled", "rows of 0", REPORT_FIXED, 9, 2},
        {0},
    };
    struct arena *a = cli_allocate(1, sizeof *a);
    const size_t room = (size_t)LARGEST * (ROWS > KEYS ? ROWS : KEYS);
    if (!a)
        return cli_fail(-1, "not enough memory");
    a->q = cli_allocate(room, sizeof(float)), a->k = cli_allocate(room, sizeof(float));
    a->dq = cli_allocate(room, sizeof(float)), a->dk = cli_allocate(room, sizeof(float));
    int failed = !a->q || !a->k || !a->dq || !a->dk ? cli_fail(-1, "not enough memory") : 0;
    struct normal random = {4};
    if (!failed) {
        normal_fill(&random, a->v, KEYS);
        normal_fill(&random, a->dout, ROWS);
        report_table(r, "sizes", columns);
    }
    for (int i = 0, d = SMALLEST; i < SIZES && !failed; i++, d *= 4) {
        const float one = 1;
        struct norms scaled, unscaled;
        normal_fill(&random, a->q, (size_t)ROWS * (size_t)d);
        normal_fill(&random, a->k, (size_t)KEYS * (size_t)d);
        failed = measure(a, d, NULL, &scaled) || measure(a, d, &one, &unscaled) ? -1 : 0;
        if (failed)
            break;
        m->dim[i] = d, m->dead[i] = unscaled.dead;
        m->ds[0][i] = scaled.ds, m->ds[1][i] = unscaled.ds;
        m->dq[0][i] = scaled.dq, m->dq[1][i] = unscaled.dq;
        report_row(r, NULL,
                   (double[]){d, scaled.ds, scaled.dq, scaled.dk, unscaled.ds, unscaled.dq,
                              unscaled.dk, unscaled.dead});
    }
    if (!failed)
        report_end_table(r);
    free(a->q), free(a->k), free(a->dq), free(a->dk), free(a);
    return failed;
}

static int draw(const struct report *r, const struct measured *m) {
    struct svg svg;
    svg_open(&svg, r->pictures, "gradient", 760, 430,
             "Without 1/sqrt(d_k) the gradient dies in the softmax");
    struct svg_chart chart = {
        .svg = &svg,
        .x = 70,
        .y = 72,
        .width = 500,
        .height = 290,
        .across = {"d_k, features of a head", SMALLEST, LARGEST, 4, 4},
        .up = {"norm of the gradient, median of 64 rows", 1e-30, 1e5, 10, 1e5},
    };
    svg_chart_axes(&chart);
    svg_chart_curve(&chart, "ds, scaled", SVG_BLUE, SIZES, m->dim, m->ds[0], NULL, 1);
    svg_chart_curve(&chart, "dq, scaled", SVG_GREEN, SIZES, m->dim, m->dq[0], NULL, 1);
    svg_chart_curve(&chart, "ds, not scaled", SVG_ORANGE, SIZES, m->dim, m->ds[1], NULL, 1);
    svg_chart_curve(&chart, "dq, not scaled", SVG_RED, SIZES, m->dim, m->dq[1], NULL, 1);
    return svg_close(&svg);
}

int explain_gradient(struct report *r) {
    struct measured m;
    report_lesson(r, "gradient", "what a saturated softmax lets through");
    report_say(
        r,
        "The gradient of a loss passes the softmax as ds_j = w_j (dw_j - sum_i w_i dw_i). "
        "%d queries and %d keys of independent features, values and dout of variance 1: the "
        "median norm of ds and dq over the rows and of dk over the keys, and, not scaled, the "
        "share of rows in which every ds is exactly 0 in f32:",
        ROWS, KEYS);
    if (measure_all(r, &m) || (r->pictures && draw(r, &m)))
        return -1;
    double low = INFINITY, high = 0;
    for (int i = 0; i < SIZES; i++)
        low = fmin(low, m.ds[0][i]), high = fmax(high, m.ds[0][i]);
    const int last = SIZES - 1;
    report_conclude(
        r, high < 2 * low && m.ds[1][last] < 1e-12 * m.ds[1][0] && m.dead[last] > 0,
        "with the scale the gradient that passes the softmax stays between %.2f and "
        "%.2f. Without it it falls from %.1e at d_k = %d to %.1e at %d, where %.0f %% of "
        "the rows pass nothing at all: f32 ends at 1e-38, and such rows learn nothing.",
        low, high, m.ds[1][0], SMALLEST, m.ds[1][last], LARGEST, 100 * m.dead[last]);
    return 0;
}
