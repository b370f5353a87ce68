/* Rows whose first weights are lifted (see kernels.h), because ALiBi puts their maximum last: the
 * bits of a row stay its own, and all that holds for other rows holds for them.
 *
 * SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

/* Slopes for which rows of some hundred keys are lifted, in columns from few to most. */
enum { HEADS = 3, DIM = 5, V_DIM = 21, MOST_KEYS = 600, MOST_ROWS = 26 };
static const float slopes[HEADS] = {1, 0.5f, 0.3f};

/* Causal rows, the last `rows` of `keys` positions. */
struct steep {
    int64_t rows, keys;
    float q[HEADS][MOST_ROWS][DIM], k[MOST_KEYS][DIM], v[MOST_KEYS][V_DIM];
    float out[HEADS][MOST_ROWS][V_DIM];
};

static void steep_make(struct steep *s, int64_t rows, int64_t keys, struct rng *rng) {
    s->rows = rows, s->keys = keys;
    for (int64_t i = 0; i < HEADS * MOST_ROWS * DIM; i++)
        (&s->q[0][0][0])[i] = rng_normal(rng);
    for (int64_t i = 0; i < MOST_KEYS * DIM; i++)
        (&s->k[0][0])[i] = rng_normal(rng);
    for (int64_t i = 0; i < MOST_KEYS * V_DIM; i++)
        (&s->v[0][0])[i] = rng_normal(rng);
}

/* Rows first, first + 1, ... of s as a trial, with so many keys in the past. */
static void steep_place(struct trial *t, const struct steep *s, int64_t first, int64_t rows,
                        int64_t past, struct layouts layouts) {
    const struct shape shape = {1, HEADS, 1, rows, s->keys - past, DIM, V_DIM};
    layouts.past_cap = past;
    trial_place(t, shape, layouts);
    memcpy(t->alibi, slopes, sizeof slopes);
    t->offset[0] = s->keys - s->rows + first;
    t->p.alibi = t->alibi;
    t->p.causal = 1, t->p.align = ATTN_ALIGN_EXPLICIT, t->p.offset = t->offset;
    for (int64_t j = 0; j < s->keys; j++) {
        memcpy(key_of(&t->p, 0, 0, j), s->k[j], sizeof s->k[j]);
        memcpy(value_of(&t->p, 0, 0, j), s->v[j], sizeof s->v[j]);
    }
    for (int64_t h = 0; h < HEADS; h++)
        for (int64_t i = 0; i < rows; i++)
            memcpy(query_of(&t->p, 0, h, i), s->q[h][first + i], sizeof s->q[h][i]);
}

static void steep_run(struct steep *s) {
    struct trial t;
    steep_place(&t, s, 0, s->rows, 0, (struct layouts){.side = AT_END});
    trial_run(&t, NULL);
    for (int64_t h = 0; h < HEADS; h++)
        for (int64_t i = 0; i < s->rows; i++)
            memcpy(s->out[h][i], out_at(&t.p.out, 0, h, i), sizeof s->out[h][i]);
}

static void steep_compare(const struct trial *t, const struct steep *s, int64_t first,
                          const char *what) {
    for (int64_t h = 0; h < HEADS; h++)
        for (int64_t i = 0; i < t->shape.q_len; i++) {
            const float *got = out_at(&t->p.out, 0, h, i), *want = s->out[h][first + i];
            const int64_t at = first_difference(got, want, V_DIM);
            CHECK(at < 0, "%s: head %" PRId64 " row %" PRId64 " feature %" PRId64 " is %a, was %a",
                  what, h, first + i, at, (double)got[at], (double)want[at]);
        }
}

static enum layout any_layout(struct rng *rng) { return (enum layout)rng_below(rng, N_LAYOUTS); }

/* Rows alone, in blocks, with several workers, at any strides, and with the seam between past and
 * new keys at every place among those that are lifted. */
Test(lifted, rows_elsewhere, .timeout = 600) {
    static struct steep s;
    static const int64_t lengths[] = {130, 300, 600};
    FOR_EACH_ISA(isa) {
        struct rng rng = {61};
        for (int n = 0; n < 3; n++) {
            steep_make(&s, MOST_ROWS, lengths[n], &rng);
            steep_run(&s);
            for (int64_t past = 0; past <= 130; past += check_quick() ? 7 : 1) {
                const int64_t rows = 1 + rng_below(&rng, MOST_ROWS);
                const int64_t first = rng_below(&rng, MOST_ROWS - rows + 1);
                const struct layouts layouts = {.q = any_layout(&rng),
                                                .k = any_layout(&rng),
                                                .v = any_layout(&rng),
                                                .past_k = any_layout(&rng),
                                                .past_v = any_layout(&rng),
                                                .side = past % 2 ? AT_END : AT_START};
                struct reverse_executor four = reverse_executor(4);
                struct trial t;
                steep_place(&t, &s, first, rows, past, layouts);
                trial_context(&t, "steep rows past a seam");
                trial_run(&t, rng_below(&rng, 2) ? &four.base : NULL);
                steep_compare(&t, &s, first, "among others");
                steep_place(&t, &s, past % MOST_ROWS, 1, past, layouts);
                trial_context(&t, "a steep row past a seam");
                trial_run(&t, NULL);
                steep_compare(&t, &s, past % MOST_ROWS, "alone");
            }
        }
    }
}

/* Values are not hidden by weights however small: NaN and infinity in any of them reach the output,
 * in their own column only. */
Test(lifted, special_values) {
    static struct steep s;
    FOR_EACH_ISA(isa) {
        struct rng rng = {62};
        steep_make(&s, 2, 300, &rng);
        steep_run(&s);
        for (int64_t j = 0; j < 300; j += check_quick() ? 5 : 1) {
            const int64_t feature = j % V_DIM;
            struct trial t;
            steep_place(&t, &s, 0, 2, j % 3 ? 0 : 150, (struct layouts){.side = AT_END});
            value_of(&t.p, 0, 0, j)[feature] = j % 2 ? NAN : INFINITY;
            trial_context(&t, "a special value");
            trial_run(&t, NULL);
            for (int64_t h = 0; h < HEADS; h++)
                for (int64_t i = j == 299; i < 2; i++)
                    for (int64_t c = 0; c < V_DIM; c++) {
                        const float got = out_at(&t.p.out, 0, h, i)[c];
                        CHECK(c == feature ? !isfinite(got) : same_bits(got, s.out[h][i][c]),
                              "value %" PRId64 ": head %" PRId64 " row %" PRId64 " feature %" PRId64
                              " is %a",
                              j, h, i, c, (double)got);
                    }
        }
    }
}

/* The largest values under lifted weights overflow nothing, and the smallest lose no more than
 * others do: the bound of attn.h. */
Test(lifted, oracle) {
    static struct steep s;
    struct rng rng = {63};
    for (int64_t n = 0; n < check_count(20); n++) {
        const float factors[] = {1, 1e37f, 1e-30f, 1e-20f};
        steep_make(&s, MOST_ROWS, 100 + rng_below(&rng, 501), &rng);
        for (int64_t i = 0; i < MOST_KEYS * V_DIM; i++)
            (&s.v[0][0])[i] *= factors[n % 4];
        struct trial t;
        steep_place(&t, &s, 0, MOST_ROWS, n % 3 ? 0 : rng_below(&rng, s.keys),
                    (struct layouts){.side = AT_END, .weights = true, .lse = true});
        if (n % 5 == 4)
            t.p.causal = 0;
        trial_on_every_isa(&t);
    }
}

/* A row that sees one key gives its value exactly, whatever ALiBi takes off its score. */
Test(lifted, one_key) {
    static struct steep s;
    FOR_EACH_ISA(isa) {
        struct rng rng = {64};
        steep_make(&s, MOST_ROWS, 400, &rng);
        for (int64_t ahead = 0; ahead < 300; ahead += 23) {
            struct trial t;
            steep_place(&t, &s, 0, MOST_ROWS, 0, (struct layouts){.side = AT_END});
            t.kv_len[0] = 1;
            t.p.kv_len = t.kv_len;
            t.offset[0] = ahead;
            const float values[] = {3.4e38f, -3.4e38f, 1e-40f, 0, 1};
            for (int64_t c = 0; c < V_DIM; c++)
                value_of(&t.p, 0, 0, 0)[c] = values[c % 5];
            trial_context(&t, "one visible key");
            trial_run(&t, NULL);
            for (int64_t h = 0; h < HEADS; h++)
                for (int64_t i = 0; i < MOST_ROWS; i++)
                    for (int64_t c = 0; c < V_DIM; c++)
                        CHECK(out_at(&t.p.out, 0, h, i)[c] == values[c % 5],
                              "head %" PRId64 " row %" PRId64 " feature %" PRId64 " is %a", h, i, c,
                              (double)out_at(&t.p.out, 0, h, i)[c]);
        }
    }
}
