/* attn_merge: results over parts of the keys become the result over all of them.
 *
 * SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "cli/oracle.h"

enum { MOST_PARTS = 9, B = 2, H = 3, L = 5 };

/* Attention over all keys of a trial, and over each of n stretches of them. */
struct parts {
    int64_t n, v_dim;
    float *out[MOST_PARTS], *lse[MOST_PARTS];
    attn_partial part[MOST_PARTS];
};

static attn_input as_input(const attn_output *t) {
    return (attn_input){t->data, t->type, t->stride_batch, t->stride_head, t->stride_token};
}

static attn_output contiguous(float *data, int64_t dim) {
    return (attn_output){data, ATTN_F32, H * L * dim, L * dim, dim};
}

static void parts_make(const struct trial *t, int64_t n, const int64_t *cuts, struct parts *parts) {
    *parts = (struct parts){.n = n, .v_dim = t->p.v_dim};
    for (int64_t k = 0; k < n; k++) {
        parts->out[k] = malloc((size_t)(B * H * L * t->p.v_dim + 1) * sizeof(float));
        parts->lse[k] = malloc(B * H * L * sizeof(float));
        cr_assert(parts->out[k] && parts->lse[k]);
        attn_problem p = t->p;
        p.k.data = in_at(&p.k, 0, 0, cuts[k]);
        p.v.data = in_at(&p.v, 0, 0, cuts[k]);
        p.kv_cap = cuts[k + 1] - cuts[k];
        p.out = contiguous(parts->out[k], p.v_dim);
        p.lse = contiguous(parts->lse[k], 1);
        p.sinks = k + 1 == n ? p.sinks : NULL; /* in one part only */
        cr_assert(attn_forward_alloc(&p, NULL) == ATTN_OK);
        parts->part[k] = (attn_partial){as_input(&p.out), as_input(&p.lse)};
    }
}

static void parts_free(struct parts *parts) {
    for (int64_t k = 0; k < parts->n; k++)
        free(parts->out[k]), free(parts->lse[k]);
}

/* Within the bound of attn_merge() and those of the parts, which are below that of the whole: its
 * chains are longer. Written into t's outputs, of any layout. */
static void expect_whole(struct trial *t, struct parts *parts) {
    struct reference r = reference_make(t);
    memset(t->out.data, 0xff, t->out.n * sizeof(float));
    memset(t->lse.data, 0xff, t->lse.n * sizeof(float));
    const attn_status status =
        attn_merge(B, H, L, t->p.v_dim, (size_t)parts->n, parts->part, &t->p.out, &t->p.lse);
    CHECK(status == ATTN_OK, "%s", attn_status_string(status));
    trial_check_gaps(t);
    struct oracle_row *row = r.rows;
    for (int64_t at = 0; at < B * H * L; at++, row++) {
        const int64_t b = at / H / L, h = at / L % H, i = at % L;
        double largest = 0;
        for (int64_t k = 0; k < parts->n; k++)
            if (isfinite(parts->lse[k][at]))
                largest = fmax(largest, fabs(parts->lse[k][at]));
        const double merge = expm1(2 * 0x1p-24 * (2 * largest + 8 * (double)parts->n + 16));
        for (int64_t c = 0; c < t->p.v_dim; c++) {
            double magnitude = 0; /* sum of weights times |values| */
            for (int64_t j = 0; j < t->p.kv_cap; j++)
                magnitude = fmax(magnitude, fabs(in_at(&t->p.v, b, h, j)[c]));
            const float got = out_at(&t->p.out, b, h, i)[c];
            CHECK(oracle_agrees(got, row->out[c], 2 * row->out_bound[c] + merge * magnitude),
                  "%" PRId64 " parts: out[%" PRId64 ",%" PRId64 "] is %.9g, want %.9g", parts->n,
                  at, c, (double)got, row->out[c]);
        }
        const float lse = *out_at(&t->p.lse, b, h, i);
        CHECK(oracle_agrees(lse, row->lse, 2 * row->lse_bound + merge),
              "%" PRId64 " parts: lse[%" PRId64 "] is %.9g, want %.9g", parts->n, at, (double)lse,
              row->lse);
    }
    reference_free(&r);
}

Test(merge, parts_of_the_keys) {
    FOR_EACH_ISA(isa) {
        struct rng rng = {71};
        for (int64_t n = 1; n <= MOST_PARTS; n++)
            for (int64_t repeat = 0; repeat < check_count(20); repeat++) {
                const int64_t keys = 1 + rng_below(&rng, repeat % 8 ? 90 : 1100);
                struct trial t;
                trial_place(&t, (struct shape){B, H, H, L, keys, 9, 1 + rng_below(&rng, 40)},
                            (struct layouts){.k = (enum layout)rng_below(&rng, N_LAYOUTS),
                                             .v = (enum layout)rng_below(&rng, N_LAYOUTS),
                                             .out = (enum layout)rng_below(&rng, N_LAYOUTS),
                                             .lse = true});
                trial_fill(&t, repeat % 3 ? KIND_NORMAL : KIND_MINUS_INF_KEYS, &rng);
                for (int64_t h = 0; h < H; h++)
                    t.sinks[h] = rng_normal(&rng);
                t.p.sinks = repeat % 4 ? NULL : t.sinks;
                t.scale = repeat % 5 ? 1 : 30; /* or far apart */
                t.p.scale = &t.scale;
                int64_t cuts[MOST_PARTS + 1] = {0};
                for (int64_t k = 1; k <= n; k++) /* some parts are empty */
                    cuts[k] = k == n ? keys : cuts[k - 1] + rng_below(&rng, keys - cuts[k - 1] + 1);
                trial_context(&t, "merging");
                struct parts parts;
                parts_make(&t, n, cuts, &parts);
                expect_whole(&t, &parts);
                parts_free(&parts);
            }
    }
}

/* In place, without lse, and one by one: the same bits as all at once. */
Test(merge, in_place) {
    FOR_EACH_ISA(isa) {
        struct rng rng = {72};
        struct trial t;
        trial_place(&t, (struct shape){B, H, H, L, 200, 9, 21}, (struct layouts){.lse = true});
        trial_fill(&t, KIND_NORMAL, &rng);
        const int64_t cuts[] = {0, 64, 70, 200};
        struct parts parts;
        parts_make(&t, 3, cuts, &parts);
        enum { N_OUT = B * H * L * 21, N_LSE = B * H * L };
        static float out[N_OUT], lse[N_LSE], alone[N_OUT];
        const attn_output to = contiguous(out, 21), to_lse = contiguous(lse, 1);
        const attn_output to_alone = contiguous(alone, 21);
        check_context("%s: in place", isa);
        CHECK(attn_merge(B, H, L, 21, 3, parts.part, &to, &to_lse) == ATTN_OK, "fails");
        CHECK(attn_merge(B, H, L, 21, 3, parts.part, &to_alone, NULL) == ATTN_OK, "without lse");
        CHECK(first_difference(out, alone, N_OUT) < 0, "lse or not changes out");
        const attn_output first = contiguous(parts.out[0], 21);
        const attn_output first_lse = contiguous(parts.lse[0], 1);
        CHECK(attn_merge(B, H, L, 21, 3, parts.part, &first, &first_lse) == ATTN_OK, "in place");
        CHECK(first_difference(out, parts.out[0], N_OUT) < 0 &&
                  first_difference(lse, parts.lse[0], N_LSE) < 0,
              "other bits in place");
        /* One state is itself. */
        CHECK(attn_merge(B, H, L, 21, 1, parts.part + 1, &to, &to_lse) == ATTN_OK, "one part");
        CHECK(first_difference(out, parts.out[1], N_OUT) < 0 &&
                  first_difference(lse, parts.lse[1], N_LSE) < 0,
              "one part changes");
        parts_free(&parts);
    }
}

static void merge_rows(size_t n, int64_t dim, const float (*outs)[4], const float *lses, float *out,
                       float *lse) {
    attn_partial parts[MOST_PARTS];
    for (size_t k = 0; k < n; k++)
        parts[k] = (attn_partial){{outs[k], ATTN_F32, 0, 0, 0}, {&lses[k], ATTN_F32, 0, 0, 0}};
    const attn_output to = {out, ATTN_F32, 0, 0, 0}, to_lse = {lse, ATTN_F32, 0, 0, 0};
    CHECK(attn_merge(1, 1, 1, dim, n, parts, &to, &to_lse) == ATTN_OK, "fails");
}

/* FAULTS M1: nothing merged with nothing is nothing; (0, -inf) is neutral wherever it stands; NaN
 * makes its row NaN; and no difference of lse overflows. */
Test(merge, special_states) {
    const float none = -INFINITY;
    FOR_EACH_ISA(isa) {
        float out[4], lse;
        check_context("%s: empty parts", isa);
        for (size_t n = 1; n <= MOST_PARTS; n++) {
            const float outs[MOST_PARTS][4] = {{0}};
            float lses[MOST_PARTS];
            for (size_t k = 0; k < n; k++)
                lses[k] = none;
            merge_rows(n, 4, outs, lses, out, &lse);
            for (int c = 0; c < 4; c++)
                CHECK(out[c] == 0, "%zu empty parts: out %f", n, (double)out[c]);
            CHECK(lse == none, "%zu empty parts: lse %f", n, (double)lse);

            for (size_t at = 0; at < n; at++) {
                float some[MOST_PARTS][4] = {{0}};
                const float row[4] = {1.5f, -1e-40f, 3e38f, -7};
                memcpy(some[at], row, sizeof row);
                lses[at] = -123.456f;
                merge_rows(n, 4, (const float(*)[4])some, lses, out, &lse);
                CHECK(memcmp(out, row, sizeof row) == 0 && lse == lses[at],
                      "%zu parts, all but %zu empty: %a %a %a %a, lse %a", n, at, (double)out[0],
                      (double)out[1], (double)out[2], (double)out[3], (double)lse);
                lses[at] = NAN;
                merge_rows(n, 4, (const float(*)[4])some, lses, out, &lse);
                for (int c = 0; c < 4; c++)
                    CHECK(isnan(out[c]), "lse %zu of %zu is NaN: out %f", at, n, (double)out[c]);
                CHECK(isnan(lse), "lse %zu of %zu is NaN: lse %f", at, n, (double)lse);
                lses[at] = none;
            }
        }
        check_context("%s: lse far apart", isa);
        const float outs[3][4] = {{1}, {2}, {3}};
        const float lses[][3] = {{-3e38f, 3e38f, -3e38f}, {1e30f, -1e30f, 1e30f}, {0, -200, -90}};
        const float want[] = {2, 2, 1};
        for (int n = 0; n < 3; n++) {
            merge_rows(3, 1, outs, lses[n], out, &lse);
            CHECK(out[0] == want[n], "case %d: %g", n, (double)out[0]);
            CHECK(isfinite(lse), "case %d: lse %g", n, (double)lse);
        }
        const float inf_outs[2][4] = {{1}, {INFINITY}};
        const float inf_lses[2] = {0, 0};
        merge_rows(2, 1, inf_outs, inf_lses, out, &lse);
        CHECK(out[0] == INFINITY, "an infinite part gives %g", (double)out[0]);
    }
}

/* Guard pages around everything, rows of any stride, dims of every tail. */
Test(merge, nothing_beyond) {
    FOR_EACH_ISA(isa) {
        for (int64_t dim = 1; dim <= (check_quick() ? 20 : 70); dim++)
            for (int side = AT_END; side <= AT_START; side++) {
                float *out[2], *lse[2], *to, *to_lse;
                for (int k = 0; k < 2; k++) {
                    out[k] = guarded_floats(SLOT_OTHER + k, (size_t)(2 * dim), (enum side)side);
                    lse[k] = guarded_floats(SLOT_OTHER + 2 + k, 2, (enum side)side);
                    for (int64_t c = 0; c < 2 * dim; c++)
                        out[k][c] = (float)(c + k);
                    lse[k][0] = 1, lse[k][1] = 2;
                }
                to = guarded_floats(SLOT_OUT, (size_t)(2 * dim), (enum side)side);
                to_lse = guarded_floats(SLOT_LSE, 2, (enum side)side);
                attn_partial parts[2];
                for (int k = 0; k < 2; k++)
                    parts[k] =
                        (attn_partial){{out[k], ATTN_F32, 0, 0, dim}, {lse[k], ATTN_F32, 0, 0, 1}};
                /* Written in reverse. */
                const attn_output reversed = {to + dim, ATTN_F32, 0, 0, -dim};
                const attn_output lse_reversed = {to_lse + 1, ATTN_F32, 0, 0, -1};
                check_context("%s: dim %" PRId64 ", side %d", isa, dim, side);
                CHECK(attn_merge(1, 1, 2, dim, 2, parts, &reversed, &lse_reversed) == ATTN_OK,
                      "fails");
                for (int64_t i = 0; i < 2; i++)
                    for (int64_t c = 0; c < dim; c++)
                        CHECK(fabsf(to[(1 - i) * dim + c] - ((float)(i * dim + c) + 0.5f)) < 1e-4f,
                              "row %" PRId64 " feature %" PRId64 " is %f", i, c,
                              (double)to[(1 - i) * dim + c]);
            }
    }
}

Test(merge, errors) {
    float x[64], y[64], lse[8];
    memset(y, 0xab, sizeof y);
    memset(lse, 0xab, sizeof lse);
    const attn_partial good = {{x, ATTN_F32, 0, 8, 4}, {x, ATTN_F32, 0, 2, 1}};
    const attn_output to = {y, ATTN_F32, 0, 8, 4}, to_lse = {lse, ATTN_F32, 0, 2, 1};
    const int64_t huge = INT64_C(1) << 61;
    attn_partial null_out = good, null_lse = good, f16 = good, lse_type = good, far = good;
    null_out.out.data = NULL, null_lse.lse.data = NULL;
    f16.out.type = ATTN_F16, lse_type.lse.type = ATTN_BF16, far.out.stride_head = huge;
    attn_output no_data = to, type = to, overlap = to, beyond = to, lse_null = to_lse;
    attn_output lse_overlap = to_lse, lse_f16 = to_lse;
    no_data.data = NULL, type.type = ATTN_I8, overlap.stride_token = 3, beyond.stride_head = -huge;
    lse_null.data = NULL, lse_overlap.stride_head = 0, lse_f16.type = ATTN_F16;
    const struct {
        const char *what;
        int64_t batch, heads, q_len, v_dim;
        size_t n;
        const attn_partial *parts;
        const attn_output *out, *lse;
        attn_status status;
    } cases[] = {
        {"batch < 0", -1, 2, 2, 4, 1, &good, &to, &to_lse, ATTN_ERROR_SIZE},
        {"heads < 0", 1, -2, 2, 4, 1, &good, &to, &to_lse, ATTN_ERROR_SIZE},
        {"q_len < 0", 1, 2, INT64_MIN, 4, 1, &good, &to, &to_lse, ATTN_ERROR_SIZE},
        {"v_dim < 0", 1, 2, 2, -4, 1, &good, &to, &to_lse, ATTN_ERROR_SIZE},
        {"no parts", 1, 2, 2, 4, 0, &good, &to, &to_lse, ATTN_ERROR_SIZE},
        {"parts null", 1, 2, 2, 4, 1, NULL, &to, &to_lse, ATTN_ERROR_NULL},
        {"out null", 1, 2, 2, 4, 1, &good, NULL, &to_lse, ATTN_ERROR_NULL},
        {"out without data", 1, 2, 2, 4, 1, &good, &no_data, &to_lse, ATTN_ERROR_NULL},
        {"lse without data", 1, 2, 2, 4, 1, &good, &to, &lse_null, ATTN_ERROR_NULL},
        {"part without out", 1, 2, 2, 4, 1, &null_out, &to, &to_lse, ATTN_ERROR_NULL},
        {"part without lse", 1, 2, 2, 4, 1, &null_lse, &to, &to_lse, ATTN_ERROR_NULL},
        {"part of f16", 1, 2, 2, 4, 1, &f16, &to, &to_lse, ATTN_ERROR_TYPE},
        {"part with lse of bf16", 1, 2, 2, 4, 1, &lse_type, &to, &to_lse, ATTN_ERROR_TYPE},
        {"out of i8", 1, 2, 2, 4, 1, &good, &type, &to_lse, ATTN_ERROR_TYPE},
        {"lse of f16", 1, 2, 2, 4, 1, &good, &to, &lse_f16, ATTN_ERROR_TYPE},
        {"part far away", 1, 2, 2, 4, 1, &far, &to, &to_lse, ATTN_ERROR_OVERFLOW},
        {"out far away", 1, 2, 2, 4, 1, &good, &beyond, &to_lse, ATTN_ERROR_OVERFLOW},
        {"out's rows overlap", 1, 2, 2, 4, 1, &good, &overlap, &to_lse, ATTN_ERROR_STRIDE},
        {"lse's rows overlap", 1, 2, 2, 4, 1, &good, &to, &lse_overlap, ATTN_ERROR_STRIDE},
        {"batch 0", 0, 2, 2, 4, 1, &good, &to, &to_lse, ATTN_OK},
        {"heads 0", 1, 0, 2, 4, 1, &good, &to, &to_lse, ATTN_OK},
        {"q_len 0", 1, 2, 0, 4, 1, &good, &to, &to_lse, ATTN_OK},
        {"v_dim 0", 1, 2, 2, 0, 1, &good, &to, &to_lse, ATTN_OK},
    };
    memset(x, 0, sizeof x);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        check_context("%s", cases[k].what);
        const attn_status status =
            attn_merge(cases[k].batch, cases[k].heads, cases[k].q_len, cases[k].v_dim, cases[k].n,
                       cases[k].parts, cases[k].out, cases[k].lse);
        CHECK(status == cases[k].status, "%s, want %s", attn_status_string(status),
              attn_status_string(cases[k].status));
        for (size_t at = 0; at < sizeof y; at++)
            CHECK(((unsigned char *)y)[at] == 0xab, "something was written");
        for (size_t at = 0; at < sizeof lse; at++)
            CHECK(((unsigned char *)lse)[at] == 0xab, "something was written to lse");
    }
}
