/* attn explain causality: the triangle, and a test that the past does not depend on the future.
 *
 * SPDX-License-Identifier: MIT */
#include <math.h>
#include <string.h>

#include "explain.h"
#include "sentence.h"
#include "svg.h"

struct outputs {
    float causal[WORDS][V_DIM], full[WORDS][V_DIM];
};

static int attend_both(const struct sentence *s, struct outputs *o, float *weights) {
    attn_problem p = sentence_problem(s, *o->full);
    if (explain_attend(&p))
        return -1;
    p.out.data = o->causal;
    p.causal = 1;
    p.weights.data = weights;
    return explain_attend(&p);
}

/* The rows before `from` that are not the same bits, and the largest difference in them. */
static int changed_rows(float a[][V_DIM], float b[][V_DIM], int from, double *largest) {
    int rows = 0;
    *largest = 0;
    for (int i = 0; i < from; i++) {
        if (memcmp(a[i], b[i], sizeof a[i]) == 0)
            continue;
        rows++;
        for (int c = 0; c < V_DIM; c++) {
            *largest = explain_worse(*largest, fabs((double)a[i][c] - (double)b[i][c]));
        }
    }
    return rows;
}

static int draw(const struct report *r, const struct sentence *s, const float *weights,
                const int *with, const int *without) {
    const double x = 90, y = 90, cell = 46, right = x + WORDS * cell + 60;
    struct svg svg;
    svg_open(&svg, r->pictures, "causality", 900, 580,
             "Causal weights in %, and whose output changes with the future");
    svg_matrix(&svg, x, y, cell, WORDS, s->words, weights, 1);
    svg_text(&svg, x, 58, SVG_LEFT, SVG_INK, "key: no word sees those after it");
    svg_text(&svg, right, 58, SVG_LEFT, SVG_INK, "earlier words whose output changes");
    svg_text(&svg, right, 76, SVG_LEFT, SVG_INK, "when the words from this one on do:");
    for (int t = 1; t < WORDS; t++) {
        const double top = y + t * cell;
        svg_rectangle(&svg, right, top + 4, 22.0 * without[t], 16, SVG_ORANGE);
        svg_rectangle(&svg, right, top + 23, 22.0 * with[t], 16, SVG_BLUE);
        svg_text(&svg, right + 22.0 * without[t] + 6, top + 17, SVG_LEFT, SVG_ORANGE, "%d",
                 without[t]);
        svg_text(&svg, right + 22.0 * with[t] + 6, top + 36, SVG_LEFT, SVG_BLUE, "%d", with[t]);
    }
    svg_text(&svg, right, y + WORDS * cell + 20, SVG_LEFT, SVG_ORANGE, "without the mask");
    svg_text(&svg, right + 130, y + WORDS * cell + 20, SVG_LEFT, SVG_BLUE, "with it");
    return svg_close(&svg);
}

int explain_causality(struct report *r) {
    struct sentence s;
    struct outputs outputs;
    float weights[WORDS][WORDS];
    sentence_make(&s);
    if (attend_both(&s, &outputs, *weights))
        return -1;

    report_lesson(r, "causality", "a word sees itself and what was before it");
    report_say(r, "A model that writes from left to right must not see the words it has yet to "
                  "write. With causal = 1 the scores of later keys are hidden before the softmax, "
                  "so that the weights are a triangle. Rows are queries, columns keys, in %%:");
    report_matrix(r, "weights", WORDS, s.words, *weights, 1);
    report_say(r,
               "The test: from one word on, put other words in their place (\"%s\" and so on), "
               "and compare the outputs of the words before it, bit by bit.",
               "old hens lay an egg but hide that small nest");

    const struct report_column columns[] = {
        {"word", "changed from", REPORT_TEXT, 12, 0},
        {"rows_before", "words before", REPORT_FIXED, 12, 0},
        {"changed_causal", "changed", REPORT_FIXED, 8, 0},
        {"changed_full", "without mask", REPORT_FIXED, 12, 0},
        {"largest_full", "by up to", REPORT_FIXED, 8, 3},
        {0},
    };
    int with[WORDS] = {0}, without[WORDS] = {0}, before = 0, leaks = 0, leaked = 0;
    report_table(r, "tests", columns);
    for (int t = 1; t < WORDS; t++) {
        struct sentence other;
        struct outputs after;
        double ignored, largest;
        sentence_make_other(&other, t);
        if (attend_both(&other, &after, NULL))
            return -1;
        with[t] = changed_rows(outputs.causal, after.causal, t, &ignored);
        without[t] = changed_rows(outputs.full, after.full, t, &largest);
        report_row(r, &s.words[t], (double[]){t, with[t], without[t], largest});
        before += t, leaks += with[t], leaked += without[t];
    }
    report_end_table(r);
    report_value(r, "rows_compared", before);
    report_value(r, "rows_changed_causal", leaks);
    report_value(r, "rows_changed_full", leaked);
    if (r->pictures && draw(r, &s, *weights, with, without))
        return -1;
    report_conclude(
        r, leaks == 0 && leaked > 0,
        "of %d earlier outputs %d change with the mask, be it by one bit, and %d without it: "
        "the future leaks. A hidden key is never touched, rather than given a weight "
        "of 0.",
        before, leaks, leaked);
    return 0;
}
