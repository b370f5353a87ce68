/* attn explain additive: attention by a hidden layer instead of a product.
 *
 *     score(q, k) = w . tanh(W1 q + W2 k)        (Bahdanau, Cho and Bengio, 2014)
 *
 * SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "dispatch.h"
#include "explain.h"
#include "memory.h"
#include "normal.h"
#include "svg.h"
#include "timing.h"

enum { TOKENS = 64, DIM = 64, HIDDEN = 64, RANK_TOKENS = 48, RANK_DIM = 8, REPEATS = 9 };

/* A hidden layer of so many units; w1 and w2 are [HIDDEN][d]. */
struct layer {
    const float *w1, *w2, *w;
};

/* y[n][HIDDEN] = x[n][d] W^T */
static void product(int n, int d, const float *x, const float *weights, float *y) {
    for (int i = 0; i < n; i++) {
        for (int u = 0; u < HIDDEN; u++) {
            float sum = 0;
            for (int c = 0; c < d; c++)
                sum += x[i * d + c] * weights[u * d + c];
            y[i * HIDDEN + u] = sum;
        }
    }
}

/* That of libc, and that of the kernels, which is vectorised: softcap 1. */
static void tanh_plain(float *x, size_t n, float cap) {
    (void)cap;
    for (size_t i = 0; i < n; i++)
        x[i] = tanhf(x[i]);
}
typedef void tanh_of(float *x, size_t n, float cap);

/* scores[n][n]. W1 q and W2 k are products of matrices, made once for each token; the tanh of their
 * sum has to be taken for each pair. */
static void additive_scores(int n, int d, const struct layer *layer, const float *q, const float *k,
                            tanh_of *tanh_each, float *hidden, float *scores) {
    float *a = hidden, *b = hidden + n * HIDDEN;
    product(n, d, q, layer->w1, a);
    product(n, d, k, layer->w2, b);
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j++) {
            float h[HIDDEN], sum = 0;
            for (int u = 0; u < HIDDEN; u++)
                h[u] = a[i * HIDDEN + u] + b[j * HIDDEN + u];
            tanh_each(h, HIDDEN, 1);
            for (int u = 0; u < HIDDEN; u++)
                sum += layer->w[u] * h[u];
            scores[i * n + j] = sum;
        }
    }
}

/* The formula as it stands, in double precision, for one pair. */
static double additive_score(int d, const struct layer *layer, const float *q, const float *k) {
    double score = 0;
    for (int u = 0; u < HIDDEN; u++) {
        double sum = 0;
        for (int c = 0; c < d; c++)
            sum += (double)layer->w1[u * d + c] * (double)q[c] +
                   (double)layer->w2[u * d + c] * (double)k[c];
        score += (double)layer->w[u] * tanh(sum);
    }
    return score;
}

static void dot_scores(int n, int d, const float *q, const float *k, float *scores) {
    const float scale = (float)(1 / sqrt(d));
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j++) {
            float sum = 0;
            for (int c = 0; c < d; c++)
                sum += q[i * d + c] * k[j * d + c];
            scores[i * n + j] = scale * sum;
        }
    }
}

/* The numerical rank of scores[n][n], by elimination with the largest pivot: how many pivots are
 * above 1e-5 of the first. */
static int rank_of(int n, const float *scores) {
    double a[RANK_TOKENS][RANK_TOKENS], first = 0;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            a[i][j] = (double)scores[i * n + j];
    for (int step = 0; step < n; step++) {
        int row = step, column = step;
        for (int i = step; i < n; i++)
            for (int j = step; j < n; j++)
                if (fabs(a[i][j]) > fabs(a[row][column]))
                    row = i, column = j;
        const double pivot = a[row][column];
        first = step ? first : fabs(pivot);
        if (fabs(pivot) <= 1e-5 * first)
            return step;
        for (int j = 0; j < n; j++) {
            const double t = a[step][j];
            a[step][j] = a[row][j], a[row][j] = t;
        }
        for (int i = 0; i < n; i++) {
            const double t = a[i][step];
            a[i][step] = a[i][column], a[i][column] = t;
        }
        for (int i = step + 1; i < n; i++)
            for (int j = n - 1; j >= step; j--)
                a[i][j] -= a[i][step] / pivot * a[step][j];
    }
    return n;
}

/* ---- Measuring ------------------------------------------------------------------------------- */

struct arena {
    float *q, *k, *v, *out, *w1, *w2, *w, *hidden, *scores;
};

static int arena_make(struct arena *a) {
    float **const parts[] = {&a->q,  &a->k, &a->v,      &a->out,   &a->w1,
                             &a->w2, &a->w, &a->hidden, &a->scores};
    const size_t sizes[] = {TOKENS * DIM, TOKENS * DIM,        TOKENS * DIM,
                            TOKENS * DIM, HIDDEN * DIM,        HIDDEN * DIM,
                            HIDDEN,       2 * TOKENS * HIDDEN, TOKENS * TOKENS};
    struct normal random = {3};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        *parts[i] = cli_allocate(sizes[i], sizeof(float));
        if (!*parts[i])
            return cli_fail(-1, "not enough memory");
        normal_fill(&random, *parts[i], sizes[i]);
    }
    /* Sums of variance 1/2 each, where tanh is curved but not flat. */
    for (int i = 0; i < HIDDEN * DIM; i++)
        a->w1[i] *= (float)(1 / sqrt(2.0 * DIM)), a->w2[i] *= (float)(1 / sqrt(2.0 * DIM));
    for (int u = 0; u < HIDDEN; u++)
        a->w[u] *= (float)(1 / sqrt(HIDDEN));
    return 0;
}

static void arena_free(struct arena *a) {
    free(a->q), free(a->k), free(a->v), free(a->out), free(a->w1), free(a->w2), free(a->w);
    free(a->hidden), free(a->scores);
}

/* Seconds, the best of some; the largest error of the additive scores. */
enum { ADDITIVE, ADDITIVE_FAST, DOT, LIBRARY, WAYS };
struct measured {
    double seconds[WAYS], error;
    int rank_dot, rank_additive;
};

static double additive_error(const struct arena *a, const struct layer *layer) {
    double worst = 0;
    for (int pair = 0; pair < TOKENS * TOKENS; pair += 101) {
        const float *q = a->q + pair / TOKENS * DIM, *k = a->k + pair % TOKENS * DIM;
        worst =
            explain_worse(worst, fabs((double)a->scores[pair] - additive_score(DIM, layer, q, k)));
    }
    return worst;
}

static attn_status run(int way, const struct arena *a, const struct layer *layer,
                       const attn_problem *p, void *workspace, size_t size) {
    if (way == LIBRARY)
        return attn_forward(p, workspace, size, NULL);
    if (way == DOT)
        dot_scores(TOKENS, DIM, a->q, a->k, a->scores);
    else
        additive_scores(TOKENS, DIM, layer, a->q, a->k,
                        way == ADDITIVE ? tanh_plain : attn_kernels_in_use()->softcap, a->hidden,
                        a->scores);
    return ATTN_OK;
}

static int measure(const struct arena *a, struct measured *m) {
    const struct layer layer = {a->w1, a->w2, a->w};
    const attn_problem p =
        attn_problem_bhld(1, 1, 1, TOKENS, TOKENS, DIM, DIM, a->q, a->k, a->v, a->out);
    size_t size;
    attn_status status = attn_workspace_size(&p, 1, &size);
    void *workspace = status == ATTN_OK ? cli_allocate(size, 1) : NULL;
    if (!workspace)
        return cli_fail(-1, "%s", attn_status_string(status ? status : ATTN_ERROR_MEMORY));
    *m = (struct measured){.seconds = {INFINITY, INFINITY, INFINITY, INFINITY}};
    for (int i = 0; i < REPEATS * WAYS && status == ATTN_OK; i++) {
        const int way = i % WAYS;
        for (int n = way < DOT ? 1 : REPEATS; n > 0 && status == ATTN_OK; n--) {
            const double start = timing_now();
            status = run(way, a, &layer, &p, workspace, size);
            m->seconds[way] = fmin(m->seconds[way], timing_now() - start);
        }
        if (way < DOT)
            m->error = explain_worse(m->error, additive_error(a, &layer));
    }
    free(workspace);
    if (status != ATTN_OK)
        return cli_fail(-1, "%s", attn_status_string(status));

    dot_scores(RANK_TOKENS, RANK_DIM, a->q, a->k, a->scores);
    m->rank_dot = rank_of(RANK_TOKENS, a->scores);
    additive_scores(RANK_TOKENS, RANK_DIM, &layer, a->q, a->k, tanh_plain, a->hidden, a->scores);
    m->rank_additive = rank_of(RANK_TOKENS, a->scores);
    return 0;
}

static const char *const names[WAYS] = {
    "w . tanh(W1 q + W2 k), plain C",
    "the same, tanh in vectors",
    "q . k / sqrt(d_k), plain C",
    "the whole attention, this library",
};

static int draw(const struct report *r, const struct measured *m) {
    static const char *const colours[] = {SVG_ORANGE, SVG_ORANGE, SVG_GREEN, SVG_BLUE};
    struct svg svg;
    char title[128];
    snprintf(title, sizeof title, "Scores of %d x %d tokens, %d features: microseconds, one thread",
             TOKENS, TOKENS, DIM);
    svg_open(&svg, r->pictures, "additive", 700, 265, title);
    for (int i = 0; i < WAYS; i++) {
        const double y = 48 + 52 * i, width = 560 * m->seconds[i] / m->seconds[ADDITIVE];
        svg_text(&svg, 16, y + 12, SVG_LEFT, SVG_INK, "%s", names[i]);
        svg_rectangle(&svg, 16, y + 19, width, 20, colours[i]);
        svg_text(&svg, 16 + width + 6, y + 34, SVG_LEFT, SVG_INK, "%.0f", m->seconds[i] * 1e6);
    }
    return svg_close(&svg);
}

int explain_additive(struct report *r) {
    static const struct report_column columns[] = {
        {"work", "scores of all pairs", REPORT_TEXT, 36, 0},
        {"parameters", "parameters", REPORT_FIXED, 10, 0},
        {"per_pair", "multiply-adds and tanh a pair", REPORT_TEXT, 30, 0},
        {"us", "us", REPORT_FIXED, 8, 0},
        {0},
    };
    struct arena arena = {0};
    struct measured m;
    const int failed = arena_make(&arena) || measure(&arena, &m);
    arena_free(&arena);
    if (failed)
        return -1;
    report_lesson(r, "additive", "a hidden layer instead of a product");
    report_say(
        r,
        "Attention began with scores w . tanh(W1 q + W2 k), a hidden layer of %d units for each "
        "pair of query and key. W1 q and W2 k are made once for each token, but the tanh of "
        "their sum belongs to the pair. %d queries, %d keys, d_k = %d, the best of %d runs:",
        HIDDEN, TOKENS, TOKENS, DIM, REPEATS);
    report_table(r, "work", columns);
    const char *const per_pair[WAYS] = {"64 and 64 tanh", "64 and 64 tanh", "64", "128 and an exp"};
    const double parameters = 2 * HIDDEN * DIM + HIDDEN;
    for (int i = 0; i < WAYS; i++)
        report_row(r, (const char *[]){names[i], per_pair[i]},
                   (double[]){i < DOT ? parameters : 0, m.seconds[i] * 1e6});
    report_end_table(r);
    const double times_dot = m.seconds[ADDITIVE] / m.seconds[DOT];
    const double times_library = m.seconds[ADDITIVE_FAST] / m.seconds[LIBRARY];
    report_value(r, "additive_error", m.error);
    report_value(r, "additive_over_dot", times_dot);
    report_value(r, "vectorised_additive_over_library", times_library);
    report_say(r,
               "Why one is a product of matrices: with %d features the %d x %d scores q . k have "
               "rank %d, they are the product of a %d x %d and a %d x %d matrix, and every trick "
               "for such products (blocks in registers, wide multiply-adds) applies. The "
               "additive scores of the same vectors have rank %d: no such factors exist.",
               RANK_DIM, RANK_TOKENS, RANK_TOKENS, m.rank_dot, RANK_TOKENS, RANK_DIM, RANK_DIM,
               RANK_TOKENS, m.rank_additive);
    report_value(r, "rank_tokens", RANK_TOKENS);
    report_value(r, "rank_dim", RANK_DIM);
    report_value(r, "rank_dot", m.rank_dot);
    report_value(r, "rank_additive", m.rank_additive);
    if (r->pictures && draw(r, &m))
        return -1;
    report_conclude(
        r, m.error < 1e-5 && m.rank_dot == RANK_DIM && m.rank_additive > 2 * RANK_DIM,
        "additive scores cost %.0f parameters and here %.0f times the time of dot products, both "
        "in "
        "plain C; with tanh in vectors still %.0f times that of the whole attention by "
        "this library. What they have, scores that cannot exceed the sum of |w| whatever "
        "d_k is, 1/sqrt(d_k) comes close to for one multiplication.",
        parameters, times_dot, times_library);
    return 0;
}
