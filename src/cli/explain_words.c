/* attn explain roles and steps: attention among the words of a sentence.
 *
 * SPDX-License-Identifier: MIT */
#include <math.h>
#include <string.h>

#include "explain.h"
#include "sentence.h"
#include "svg.h"

static int largest(const float *weights, int except) {
    int best = -1;
    for (int j = 0; j < WORDS; j++)
        if (j != except && (best < 0 || weights[j] > weights[best]))
            best = j;
    return best;
}

static int draw_roles(const struct report *r, const struct sentence *s, const float *weights) {
    struct svg svg;
    svg_open(&svg, r->pictures, "roles", 580, 560, "What each word's query finds, weights in %");
    svg_matrix(&svg, 90, 90, 46, WORDS, s->words, weights, 0);
    svg_text(&svg, 90, 58, SVG_LEFT, SVG_INK, "key, value: the word that is found");
    svg_text(&svg, 16, 58, SVG_LEFT, SVG_INK, "query");
    return svg_close(&svg);
}

/* ---- Roles ----------------------------------------------------------------------------------- */

/* What remains of weights and outputs when V is replaced. */
struct replaced {
    int same;      /* the weights, to the bit, when fox and apple tell each other's value */
    int exchanged; /* and then "it" hears of an animal as much as it did of a thing */
    double unit;   /* where values are unit vectors, how far the output is from the weights */
};

static int replace_values(struct report *r, const struct sentence *s, float out[][V_DIM],
                          float weights[][WORDS], struct replaced *replaced) {
    struct sentence swapped = *s;
    float swapped_out[WORDS][V_DIM], swapped_weights[WORDS][WORDS];
    memcpy(swapped.v[WORD_FOX], s->v[WORD_APPLE], sizeof s->v[0]);
    memcpy(swapped.v[WORD_APPLE], s->v[WORD_FOX], sizeof s->v[0]);
    attn_problem p_swapped = sentence_problem(&swapped, *swapped_out);
    p_swapped.weights.data = swapped_weights;
    float unit[WORDS][WORDS] = {{0}}, named[WORDS][WORDS];
    for (int j = 0; j < WORDS; j++)
        unit[j][j] = 1;
    const attn_problem p_named =
        attn_problem_bhld(1, 1, 1, WORDS, WORDS, QK_DIM, WORDS, *s->q, *s->k, *unit, *named);
    if (explain_attend(&p_swapped) || explain_attend(&p_named))
        return -1;

    const float *it = out[WORD_IT], *other = swapped_out[WORD_IT];
    replaced->same = memcmp(weights, swapped_weights, sizeof swapped_weights) == 0;
    replaced->exchanged = fabsf(it[V_THING] - other[V_ANIMAL]) < 1e-6f;
    replaced->unit = 0;
    for (int i = 0; i < WORDS; i++)
        for (int j = 0; j < WORDS; j++)
            replaced->unit =
                explain_worse(replaced->unit, fabs((double)named[i][j] - (double)weights[i][j]));
    report_say(r,
               "Replacing V changes what is told, not who is found. With the values of \"fox\" and "
               "\"apple\" exchanged all %d weights %s to the last bit, while \"it\" turns from "
               "(animal %.3f, thing %.3f) to (animal %.3f, thing %.3f). With unit vectors for "
               "values the output is the row of weights itself: they differ by at most %.1e.",
               WORDS * WORDS, replaced->same ? "stay the same" : "DO NOT STAY THE SAME",
               (double)it[V_ANIMAL], (double)it[V_THING], (double)other[V_ANIMAL],
               (double)other[V_THING], replaced->unit);
    report_value(r, "weights_differ_when_v_changes", !replaced->same);
    report_value(r, "unit_values_minus_weights", replaced->unit);
    return 0;
}

int explain_roles(struct report *r) {
    struct sentence s;
    struct replaced replaced;
    float out[WORDS][V_DIM], weights[WORDS][WORDS];
    sentence_make(&s);
    attn_problem p = sentence_problem(&s, *out);
    p.weights.data = weights;
    if (explain_attend(&p))
        return -1;

    report_lesson(r, "roles", "each word asks, is found, and tells");
    report_say(r,
               "A word is one vector x, here of %d numbers. Three linear maps make three vectors "
               "of it: the query q = Wq x says what the word looks for, the key k = Wk x what it "
               "is found by, the value v = Wv x what it tells. How well q of one word matches k "
               "of another is their dot product; the matches become weights that add up to "
               "100 %%, and the word receives the values of all others, mixed by weight.",
               X_DIM);
    const struct report_column columns[] = {
        {"query", "query", REPORT_TEXT, 6, 0},         {"finds", "finds", REPORT_TEXT, 6, 0},
        {"weight", "weight", REPORT_FIXED, 7, 3},      {"then", "then", REPORT_TEXT, 6, 0},
        {"weight_then", "weight", REPORT_FIXED, 7, 3}, {"animal", "animal", REPORT_FIXED, 8, 3},
        {"thing", "thing", REPORT_FIXED, 8, 3},        {"quality", "quality", REPORT_FIXED, 8, 3},
        {"action", "action", REPORT_FIXED, 8, 3},      {0},
    };
    double worst_sum = 0;
    report_table(r, "words", columns);
    for (int i = 0; i < WORDS; i++) {
        const int a = largest(weights[i], -1), b = largest(weights[i], a);
        double sum = 0;
        for (int j = 0; j < WORDS; j++)
            sum += (double)weights[i][j];
        worst_sum = explain_worse(worst_sum, fabs(sum - 1));
        report_row(r, (const char *[]){s.words[i], s.words[a], s.words[b]},
                   (double[]){weights[i][a], weights[i][b], out[i][V_ANIMAL], out[i][V_THING],
                              out[i][V_QUALITY], out[i][V_ACTION]});
    }
    report_end_table(r);
    report_value(r, "worst_row_sum_error", worst_sum);

    if (replace_values(r, &s, out, weights, &replaced))
        return -1;
    if (r->pictures && draw_roles(r, &s, *weights))
        return -1;
    const int found = largest(weights[WORD_IT], -1);
    report_conclude(r,
                    replaced.same && replaced.exchanged && replaced.unit < 1e-6 &&
                        worst_sum < 1e-6 && found == WORD_APPLE,
                    "q and k decide where to look, v what is seen there: \"it\" finds \"%s\" with "
                    "%.1f %% of its weight, whatever the values are.",
                    s.words[found], 100 * (double)weights[WORD_IT][found]);
    return 0;
}

/* ---- Steps ----------------------------------------------------------------------------------- */

struct row {
    float raw[WORDS], scaled[WORDS], weights[WORDS], out[V_DIM], ignored[V_DIM];
};

/* The row of "it": a problem of one query. */
static int attend_row(const struct sentence *s, struct row *row) {
    const float one = 1;
    attn_problem p =
        attn_problem_bhld(1, 1, 1, 1, WORDS, QK_DIM, V_DIM, s->q[WORD_IT], *s->k, *s->v, row->out);
    attn_problem unscaled = p;
    p.weights.data = row->weights;
    p.scores = p.weights;
    p.scores.data = row->scaled;
    unscaled.out.data = row->ignored;
    unscaled.scale = &one;
    unscaled.scores = p.scores;
    unscaled.scores.data = row->raw;
    return explain_attend(&p) || explain_attend(&unscaled) ? -1 : 0;
}

static int draw_steps(const struct report *r, const struct sentence *s, const struct row *row) {
    static const char *const titles[] = {"1 score q . k", "2 scaled", "3 weight, %"};
    const float *const columns[] = {row->raw, row->scaled, row->weights};
    struct svg svg;
    svg_open(&svg, r->pictures, "steps", 640, 350, "How \"it\" arrives at its weights");
    for (int c = 0; c < 3; c++) {
        const double left = 80 + 185 * c, factor = c == 2 ? 100 : 1;
        float low = 0, high = 0;
        for (int j = 0; j < WORDS; j++) {
            low = fminf(low, columns[c][j]);
            high = fmaxf(high, columns[c][j]);
        }
        const double unit = 120 / (double)(high - low), zero = left - (double)low * unit;
        svg_text(&svg, left, 62, SVG_LEFT, SVG_INK, "%s", titles[c]);
        for (int j = 0; j < WORDS; j++) {
            const double y = 76 + 25 * j, value = (double)columns[c][j];
            if (c == 0)
                svg_text(&svg, left - 12, y + 15, SVG_RIGHT, SVG_INK, "%s", s->words[j]);
            svg_rectangle(&svg, zero + fmin(value, 0) * unit, y, fabs(value) * unit, 20,
                          c == 2 ? SVG_ORANGE : SVG_BLUE);
            svg_text(&svg, zero + fmax(value, 0) * unit + 5, y + 15, SVG_LEFT, SVG_INK, "%.1f",
                     factor * value);
        }
        svg_line(&svg, zero, 72, zero, 76 + 25 * WORDS, SVG_INK, 1);
    }
    return svg_close(&svg);
}

int explain_steps(struct report *r) {
    struct sentence s;
    struct row row;
    sentence_make(&s);
    if (attend_row(&s, &row))
        return -1;

    report_lesson(r, "steps", "one row from scores to output");
    report_say(r,
               "The query of \"it\" meets all %d keys. 1: the score q . k. 2: times 1/sqrt(d_k) = "
               "1/sqrt(%d) = %.4f. 3: softmax, that is exp (of the difference to the largest, "
               "which changes no quotient and cannot overflow) divided by the sum of all. 4: the "
               "values, mixed by weight.",
               WORDS, QK_DIM, 1 / sqrt(QK_DIM));
    float top = row.scaled[0];
    for (int j = 1; j < WORDS; j++)
        top = fmaxf(top, row.scaled[j]);
    const struct report_column columns[] = {
        {"key", "key", REPORT_TEXT, 6, 0},          {"score", "1 score", REPORT_FIXED, 8, 3},
        {"scaled", "2 scaled", REPORT_FIXED, 8, 3}, {"exp", "exp", REPORT_FIXED, 7, 4},
        {"weight", "3 weight", REPORT_SHARE, 9, 1}, {"animal", "v animal", REPORT_FIXED, 9, 1},
        {"thing", "thing", REPORT_FIXED, 7, 1},     {"quality", "quality", REPORT_FIXED, 7, 1},
        {"action", "action", REPORT_FIXED, 7, 1},   {0},
    };
    double sum = 0, by_hand[V_DIM] = {0}, worst = 0;
    report_table(r, "keys", columns);
    for (int j = 0; j < WORDS; j++) {
        const float *v = s.v[j];
        sum += (double)row.weights[j];
        for (int c = 0; c < V_DIM; c++)
            by_hand[c] += (double)row.weights[j] * (double)v[c];
        report_row(r, &s.words[j],
                   (double[]){row.raw[j], row.scaled[j], exp((double)(row.scaled[j] - top)),
                              row.weights[j], v[V_ANIMAL], v[V_THING], v[V_QUALITY], v[V_ACTION]});
    }
    report_end_table(r);
    for (int c = 0; c < V_DIM; c++)
        worst = explain_worse(worst, fabs(by_hand[c] - (double)row.out[c]));
    report_value(r, "weight_sum", sum);
    report_value(r, "by_hand_minus_out", worst);
    if (r->pictures && draw_steps(r, &s, &row))
        return -1;
    report_conclude(r, fabs(sum - 1) < 1e-6 && worst < 1e-6,
                    "4 output: animal %.4f, thing %.4f, quality %.4f, action %.4f. The weights add "
                    "up to 1 within %.1e, and mixing the values by hand gives the output within "
                    "%.1e.",
                    (double)row.out[V_ANIMAL], (double)row.out[V_THING], (double)row.out[V_QUALITY],
                    (double)row.out[V_ACTION], fabs(sum - 1), worst);
    return 0;
}
