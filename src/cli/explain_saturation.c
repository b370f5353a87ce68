/* attn explain saturation: what the softmax makes of scores that grow with the number of features.
 *
 * SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdlib.h>

#include "explain.h"
#include "memory.h"
#include "normal.h"
#include "svg.h"

enum { SMALLEST = 4, LARGEST = 1024, SIZES = 5, ROWS = 256, KEYS = 64 };

/* Means over the rows. */
struct spread {
    double largest, entropy;
};

static struct spread spread_of(const float *weights) {
    struct spread s = {0, 0};
    for (int i = 0; i < ROWS; i++) {
        float largest = 0;
        for (int j = 0; j < KEYS; j++)
            largest = fmaxf(largest, weights[i * KEYS + j]);
        s.largest += (double)largest / ROWS;
        s.entropy += shares_entropy(weights + i * KEYS, KEYS) / ROWS;
    }
    return s;
}

struct measured {
    double dim[SIZES];
    double largest[2][SIZES], entropy[2][SIZES]; /* scaled, not scaled */
};

static int measure(struct measured *m) {
    float *q = cli_allocate((size_t)ROWS * LARGEST, sizeof *q);
    float *k = cli_allocate((size_t)KEYS * LARGEST, sizeof *k);
    float *v = cli_allocate(KEYS, sizeof *v), *out = cli_allocate(ROWS, sizeof *out);
    float *weights = cli_allocate((size_t)ROWS * KEYS, sizeof *weights);
    int failed = !q || !k || !v || !out || !weights ? cli_fail(-1, "not enough memory") : 0;
    struct normal random = {2};
    if (!failed)
        normal_fill(&random, v, KEYS);
    for (int i = 0, d = SMALLEST; d <= LARGEST && !failed; d *= 4, i++) {
        const float one = 1;
        normal_fill(&random, q, (size_t)ROWS * (size_t)d);
        normal_fill(&random, k, (size_t)KEYS * (size_t)d);
        attn_problem p = attn_problem_bhld(1, 1, 1, ROWS, KEYS, d, 1, q, k, v, out);
        p.weights.data = weights;
        m->dim[i] = d;
        for (int unscaled = 0; unscaled < 2 && !failed; unscaled++) {
            p.scale = unscaled ? &one : NULL;
            failed = explain_attend(&p);
            const struct spread s = failed ? (struct spread){0, 0} : spread_of(weights);
            m->largest[unscaled][i] = s.largest, m->entropy[unscaled][i] = s.entropy;
        }
    }
    free(q), free(k), free(v), free(out), free(weights);
    return failed;
}

static int draw(const struct report *r, const struct measured *m) {
    struct svg svg;
    svg_open(&svg, r->pictures, "saturation", 760, 430,
             "Without 1/sqrt(d_k) one key takes all the weight");
    struct svg_chart chart = {
        .svg = &svg,
        .x = 70,
        .y = 72,
        .width = 500,
        .height = 290,
        .across = {"d_k, features of a head", SMALLEST, LARGEST, 4, 4},
        .up = {"largest of 64 weights, mean", 0, 1, 0, 0.2},
    };
    svg_chart_axes(&chart);
    const double ends[] = {SMALLEST, LARGEST}, equal[] = {1.0 / KEYS, 1.0 / KEYS};
    svg_chart_curve(&chart, "not scaled", SVG_ORANGE, SIZES, m->dim, m->largest[1], NULL, 1);
    svg_chart_curve(&chart, "scaled", SVG_BLUE, SIZES, m->dim, m->largest[0], NULL, 1);
    svg_chart_curve(&chart, "all equal: 1/64", SVG_INK, 2, ends, equal, NULL, 0);
    return svg_close(&svg);
}

int explain_saturation(struct report *r) {
    static const struct report_column columns[] = {
        {"d_k", "d_k", REPORT_FIXED, 6, 0},
        {"largest_scaled", "largest", REPORT_FIXED, 9, 3},
        {"entropy_scaled", "entropy", REPORT_FIXED, 8, 3},
        {"keys_scaled", "keys", REPORT_FIXED, 6, 1},
        {"largest_unscaled", "not scaled", REPORT_FIXED, 11, 3},
        {"entropy_unscaled", "entropy", REPORT_FIXED, 8, 3},
        {"keys_unscaled", "keys", REPORT_FIXED, 6, 1},
        {0},
    };
    struct measured m;
    if (measure(&m))
        return -1;
    report_lesson(r, "saturation", "what the softmax makes of scores that grow");
    report_say(r,
               "%d queries over %d keys of independent features: the largest weight of a row, its "
               "entropy (at most ln %d = %.2f) and exp(entropy), the number of equal weights "
               "that would be spread as widely; means over the rows.",
               ROWS, KEYS, KEYS, log(KEYS));
    double low = INFINITY, high = 0;
    report_table(r, "sizes", columns);
    for (int i = 0; i < SIZES; i++) {
        low = fmin(low, m.entropy[0][i]), high = fmax(high, m.entropy[0][i]);
        report_row(r, NULL,
                   (double[]){m.dim[i], m.largest[0][i], m.entropy[0][i], exp(m.entropy[0][i]),
                              m.largest[1][i], m.entropy[1][i], exp(m.entropy[1][i])});
    }
    report_end_table(r);
    if (r->pictures && draw(r, &m))
        return -1;
    const int last = SIZES - 1;
    report_conclude(r,
                    high - low < 0.15 * high && m.largest[1][last] > 0.9 &&
                        m.entropy[1][last] < 0.1 * m.entropy[0][last],
                    "with the scale the entropy stays between %.2f and %.2f whatever d_k is; "
                    "without it the largest of %d weights goes from %.2f to %.2f: the softmax has "
                    "become a maximum, and the other keys are not read any more.",
                    low, high, KEYS, m.largest[1][0], m.largest[1][last]);
    return 0;
}
