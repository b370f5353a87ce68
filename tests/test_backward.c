/* attn_backward(): against the gradient in double, which is held against differences of the forward
 * oracle; what is hidden, and what no bit may depend on.
 *
 * SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/judge.h"
#include "cli/oracle.h"
#include "gradient.h"

enum { BUDGET = 60000 };

/* A random problem that has a gradient: neither int8 nor pages nor two pieces. */
static void make(struct trial *t, struct gradient_trial *g, uint64_t seed, bool is_poisoned) {
    struct rng rng = {seed * UINT64_C(0x9e3779b97f4a7c15)};
    do
        trial_random(t, &rng, check_quick() ? BUDGET / 10 : BUDGET);
    while (t->p.past_cap > 0);
    struct rng poison_rng = {rng.state}, store_rng = {rng.state + 1}, own = {rng.state + 2};
    if (is_poisoned)
        trial_poison(t, &poison_rng);
    if (rng_below(&rng, 3) == 0) {
        struct storage how = storage_random(t, &store_rng);
        how.page_len = 0;
        how.k = how.k == ATTN_I8 ? ATTN_BF16 : how.k, how.v = how.v == ATTN_I8 ? ATTN_F16 : how.v;
        trial_store(t, how, &store_rng);
    }
    const struct gradient_form form = gradient_form_random(&own);
    gradient_place(g, t, form, &own);
    if (is_poisoned)
        gradient_poison(g, t, &own);
    char text[64];
    snprintf(text, sizeof text, "backward, seed %" PRIu64, seed);
    trial_context(t, text);
}

/* What the gradient should be after a forward call of this set: its out and lse are as exact as its
 * arithmetic. Computed anew where that is another one than before, -1 at first. */
static void judge_for(const char *isa, const struct trial *t, const struct gradient_trial *g,
                      int *arithmetic, struct oracle_gradient *o) {
    const int its = oracle_arithmetic(&t->p, isa);
    if (its == *arithmetic)
        return;
    if (*arithmetic >= 0)
        oracle_gradient_free(o);
    cr_assert(oracle_differentiate(&t->p, &g->g, its, o) == 0);
    *arithmetic = its;
}

static void against_oracle(uint64_t part) {
    for (int64_t n = (int64_t)part; n < check_count(3000); n += 4) {
        struct trial t;
        struct gradient_trial g;
        make(&t, &g, 1 + (uint64_t)n, true);
        struct oracle_gradient o;
        int arithmetic = -1;
        FOR_EACH_ISA(isa) {
            judge_for(isa, &t, &g, &arithmetic, &o);
            struct reverse_executor e = reverse_executor(1 + (uint64_t)n % 5);
            gradient_run(&g, &t, n % 3 ? NULL : &e.base);
            gradient_compare(&g, &t, &o);
        }
        oracle_gradient_free(&o);
    }
}

Test(backward, oracle_1, .timeout = 3600) { against_oracle(0); }
Test(backward, oracle_2, .timeout = 3600) { against_oracle(1); }
Test(backward, oracle_3, .timeout = 3600) { against_oracle(2); }
Test(backward, oracle_4, .timeout = 3600) { against_oracle(3); }

/* ---- Across tiles ---------------------------------------------------------------------------- */

/* Lengths beside and beyond tiles of rows and keys, for the dims that make them small and large. */
static const struct shape long_shapes[] = {
    {1, 2, 1, 300, 700, 16, 24}, {1, 1, 1, 257, 513, 130, 128}, {1, 1, 1, 600, 129, 64, 64},
    {2, 4, 2, 65, 63, 33, 17},   {1, 3, 1, 127, 1100, 9, 5},    {1, 1, 1, 70, 130, 1030, 40},
    {1, 2, 2, 64, 256, 96, 600}, {1, 1, 1, 1, 1025, 64, 64},
};

/* Under an emulator those that take the oracle long are left out. */
static bool is_left_out(size_t shape) {
    const struct shape *s = &long_shapes[shape];
    const int64_t n = s->q_heads * s->q_len * s->kv_cap * (s->qk_dim + s->v_dim);
    return check_quick() && n > 10000000;
}

/* One of several tiles and heads that is not left out. */
static size_t some_long_shape(void) { return check_quick() ? 4 : 0; }

enum look { PLAIN, CAUSAL, WINDOW, CAUSAL_MASK, BIAS, CAPPED, N_LOOKS };

static void make_long(struct trial *t, struct gradient_trial *g, size_t shape, enum look look,
                      attn_type dq_type, struct rng *rng) {
    const struct shape s = long_shapes[shape];
    trial_place(t, s, (struct layouts){.q = BLHD, .lse = true});
    trial_fill(t, KIND_GAUSS, rng);
    attn_problem *p = &t->p;
    p->align = ATTN_ALIGN_BOTTOM_RIGHT;
    p->causal = look == CAUSAL || look == CAUSAL_MASK;
    p->softcap = look == CAPPED ? 3 : 0;
    t->window[0] = 100, t->window[1] = 30;
    p->window = look == WINDOW ? t->window : NULL;
    p->alibi = look == BIAS ? t->alibi : NULL;
    p->sinks = look == PLAIN ? NULL : t->sinks;
    for (int64_t h = 0; h < s.q_heads; h++)
        t->alibi[h] = 0.01f * (float)(h + 1), t->sinks[h] = rng_normal(rng);
    if (look == CAUSAL_MASK || look == BIAS) {
        trial_add_mask(t, (struct mask_form){.type = look == BIAS ? ATTN_MASK_F32 : ATTN_MASK_BOOL,
                                             .no_head = true,
                                             .n_keys = s.kv_cap});
        for (int64_t i = 0; i < s.q_len; i++)
            for (int64_t j = 0; j < s.kv_cap; j++)
                mask_set(t, 0, 0, i, j,
                         rng_below(rng, 3) == 0 ? -INFINITY
                         : look == BIAS         ? rng_normal(rng)
                                                : 0);
    }
    gradient_place(g, t, (struct gradient_form){.dk = PADDED, .dv = REVERSED, .dq_type = dq_type},
                   rng);
    trial_context(t, "backward across tiles");
}

static void across_tiles(size_t first) {
    struct rng rng = {first + 3};
    double worst = 0;
    for (size_t s = first; s < sizeof long_shapes / sizeof *long_shapes; s += 2)
        for (int look = is_left_out(s) ? N_LOOKS : 0; look < N_LOOKS;
             look += check_quick() ? 3 : 1) {
            struct trial t;
            struct gradient_trial g;
            make_long(&t, &g, s, (enum look)look, look == WINDOW ? ATTN_BF16 : ATTN_F32, &rng);
            struct oracle_gradient o;
            int arithmetic = -1;
            FOR_EACH_ISA(isa) {
                judge_for(isa, &t, &g, &arithmetic, &o);
                gradient_run(&g, &t, NULL);
                worst = fmax(worst, gradient_compare(&g, &t, &o));
            }
            oracle_gradient_free(&o);
        }
    check_say("backward: the largest error is %.3f of the bound", worst);
    CHECK(worst > 1e-4, "compared nothing?");
}

Test(backward, across_tiles_1, .timeout = 3600) { across_tiles(0); }
Test(backward, across_tiles_2, .timeout = 3600) { across_tiles(1); }

/* ---- The oracle itself ----------------------------------------------------------------------- */

/* sum dout out by the forward oracle. */
static double loss(const struct trial *t, const struct gradient_trial *g, struct oracle_row *row) {
    const attn_problem *p = &t->p;
    double sum = 0;
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->q_heads; h++)
            for (int64_t i = 0; i < oracle_rows(p, b); i++) {
                oracle_attend(p, b, h, i, row);
                const attn_output same = {NULL, g->g.dout.type, g->g.dout.stride_batch,
                                          g->g.dout.stride_head, g->g.dout.stride_token};
                const int64_t at = oracle_output_at(p, &same, b, h, i);
                for (int64_t c = 0; c < p->v_dim; c++)
                    sum += oracle_load(g->g.dout.type, g->g.dout.data, at + c) * row->out[c];
            }
    return sum;
}

/* Of fourth order: what it leaves out is h^4 / 30 of the fifth derivative. x is a multiple of 2^-12,
 * so that no step rounds. */
static double difference(const struct trial *t, const struct gradient_trial *g,
                         struct oracle_row *row, float *x) {
    const float at = *x, h = 0x1p-7f;
    double f[4];
    const float steps[] = {-2, -1, 1, 2};
    for (int k = 0; k < 4; k++) {
        *x = at + steps[k] * h;
        f[k] = loss(t, g, row);
    }
    *x = at;
    return (8 * (f[2] - f[1]) - (f[3] - f[0])) / (12 * (double)h);
}

static void coarsen(const attn_input *in, int64_t batch, int64_t heads, int64_t n, int64_t dim) {
    for (int64_t b = 0; b < batch; b++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t i = 0; i < n; i++)
                for (int64_t c = 0; c < dim; c++) {
                    float *x = in_at_mutable(in, b, h, i) + c;
                    *x = roundf(*x * 0x1p+12f) * 0x1p-12f;
                }
}

Test(backward, oracle_is_a_derivative) {
    struct rng rng = {5};
    for (int look = 0; look < N_LOOKS; look++) {
        const struct shape s = {2, 4, 2, 3, 7, 5, 6};
        struct trial t;
        struct gradient_trial g;
        trial_place(&t, s, (struct layouts){.lse = true});
        trial_fill(&t, KIND_NORMAL, &rng);
        attn_problem *p = &t.p;
        p->align = ATTN_ALIGN_BOTTOM_RIGHT, p->causal = look == CAUSAL || look == CAUSAL_MASK;
        p->softcap = look == CAPPED ? 1.5f : 0, p->alibi = look == BIAS ? t.alibi : NULL;
        p->sinks = look == PLAIN ? NULL : t.sinks;
        t.window[0] = 2, t.window[1] = 1, p->window = look == WINDOW ? t.window : NULL;
        for (int64_t h = 0; h < s.q_heads; h++)
            t.alibi[h] = 0.25f, t.sinks[h] = roundf(rng_normal(&rng) * 4096) / 4096;
        if (look == CAUSAL_MASK || look == BIAS) {
            trial_add_mask(&t, (struct mask_form){.type = ATTN_MASK_F32, .n_keys = s.kv_cap - 1});
            for (int64_t b = 0; b < s.batch; b++)
                for (int64_t h = 0; h < s.q_heads; h++)
                    for (int64_t i = 0; i < s.q_len; i++)
                        for (int64_t j = 0; j < s.kv_cap - 1; j++)
                            mask_set(&t, b, h, i, j,
                                     rng_below(&rng, 3) ? rng_normal(&rng) : -INFINITY);
        }
        coarsen(&p->q, s.batch, s.q_heads, s.q_len, s.qk_dim);
        coarsen(&p->k, s.batch, s.kv_heads, s.kv_cap, s.qk_dim);
        coarsen(&p->v, s.batch, s.kv_heads, s.kv_cap, s.v_dim);
        gradient_place(&g, &t, (struct gradient_form){.dout = BLHD}, &rng);
        trial_context(&t, "differences");
        struct oracle_gradient o;
        struct oracle_row row;
        cr_assert(oracle_differentiate(p, &g.g, 0, &o) == 0 && judge_allocate(p, &row) == 0);
        for (int64_t n = 0; n < check_count(150); n++) {
            const int64_t b = rng_below(&rng, s.batch), h = rng_below(&rng, s.q_heads);
            const int64_t i = rng_below(&rng, s.q_len), j = rng_below(&rng, s.kv_cap);
            const int64_t c = rng_below(&rng, s.qk_dim), e = rng_below(&rng, s.v_dim), kv = h / 2;
            const int64_t key = (b * s.kv_heads + kv) * s.kv_cap + j;
            const double got[] = {
                difference(&t, &g, &row, in_at_mutable(&p->q, b, h, i) + c),
                difference(&t, &g, &row, in_at_mutable(&p->k, b, kv, j) + c),
                difference(&t, &g, &row, in_at_mutable(&p->v, b, kv, j) + e),
                p->sinks ? difference(&t, &g, &row, &t.sinks[h]) : 0,
            };
            const double want[] = {
                o.dq.value[((b * s.q_heads + h) * s.q_len + i) * s.qk_dim + c],
                o.dk.value[key * s.qk_dim + c],
                o.dv.value[key * s.v_dim + e],
                o.dsinks.value[h],
            };
            for (int k = 0; k < 4; k++)
                CHECK(fabs(got[k] - want[k]) <= 2e-7 * (1 + fabs(want[k])),
                      "look %d, part %d: difference %.12g, gradient %.12g", look, k, got[k],
                      want[k]);
        }
        judge_free(&row);
        oracle_gradient_free(&o);
    }
}

/* ---- What no bit depends on ------------------------------------------------------------------ */

/* One pass or two, whoever runs what when. */
Test(backward, threads, .timeout = 3600) {
    FOR_EACH_ISA(isa) {
        for (uint64_t seed = 1; seed <= (uint64_t)check_count(300); seed++) {
            struct trial t;
            struct gradient_trial g;
            make(&t, &g, 100000 + seed, false);
            gradient_run(&g, &t, NULL);
            const uint64_t alone = gradient_bits(&g, &t);
            const size_t workers[] = {2, 3, 40};
            for (int k = 0; k < 3; k++) {
                struct reverse_executor e = reverse_executor(workers[k]);
                gradient_run(&g, &t, &e.base);
                CHECK(gradient_bits(&g, &t) == alone, "other bits with %zu workers", workers[k]);
            }
        }
        struct rng rng = {17};
        for (size_t n = 0; n < (check_quick() ? 1 : 3); n++)
            for (int look = 0; look < N_LOOKS; look += check_quick() ? 3 : 1) {
                struct trial t;
                struct gradient_trial g;
                make_long(&t, &g, some_long_shape() + n, (enum look)look,
                          look % 2 ? ATTN_F16 : ATTN_F32, &rng);
                gradient_run(&g, &t, NULL);
                const uint64_t alone = gradient_bits(&g, &t);
                struct reverse_executor e = reverse_executor(3);
                gradient_run(&g, &t, &e.base);
                CHECK(gradient_bits(&g, &t) == alone, "other bits with 3 workers");
#ifdef ATTN_HAVE_OPENMP
                attn_executor threads = attn_openmp_executor(3);
                gradient_run(&g, &t, &threads);
                CHECK(gradient_bits(&g, &t) == alone, "other bits with 3 threads");
#endif
            }
    }
}

/* The part alone that is all of the bits of both. */
Test(backward, parts_alone, .timeout = 3600) {
    FOR_EACH_ISA(isa) {
        for (uint64_t seed = 1; seed <= (uint64_t)check_count(200); seed++) {
            struct trial t;
            struct gradient_trial g;
            make(&t, &g, 200000 + seed, false);
            const attn_gradient all = g.g;
            gradient_run(&g, &t, NULL);
            for (int part = 0; part < 4; part++) {
                struct gradient_trial one = g;
                one.g.dq.data = part == 0 ? all.dq.data : NULL;
                one.g.dk.data = part == 1 ? all.dk.data : NULL;
                one.g.dv.data = part == 2 ? all.dv.data : NULL;
                one.g.dsinks = part == 3 ? all.dsinks : NULL;
                const uint64_t among = gradient_bits(&one, &t);
                struct reverse_executor e = reverse_executor(2);
                gradient_run(&one, &t, seed % 2 ? NULL : &e.base);
                CHECK(gradient_bits(&one, &t) == among, "part %d has other bits alone", part);
                g.g = all;
                gradient_run(&g, &t, NULL);
            }
        }
    }
}

Test(backward, poison_changes_no_bit, .timeout = 3600) {
    FOR_EACH_ISA(isa) {
        for (uint64_t seed = 1; seed <= (uint64_t)check_count(400); seed++) {
            struct trial t;
            struct gradient_trial g;
            make(&t, &g, 300000 + seed, false);
            gradient_run(&g, &t, NULL);
            const uint64_t clean = gradient_bits(&g, &t);
            make(&t, &g, 300000 + seed, true);
            gradient_run(&g, &t, NULL);
            CHECK(gradient_bits(&g, &t) == clean, "what is hidden changes bits");
        }
    }
}

/* dq of a row is its own: other rows' queries and dout have no part in it. */
Test(backward, rows_alone) {
    FOR_EACH_ISA(isa) {
        struct rng rng = {23};
        for (int look = 0; look < N_LOOKS; look++) {
            struct trial t;
            struct gradient_trial g;
            make_long(&t, &g, some_long_shape(), (enum look)look, ATTN_F32, &rng);
            const int64_t i = rng_below(&rng, t.shape.q_len), n = t.shape.qk_dim;
            gradient_run(&g, &t, NULL);
            const size_t bytes = (size_t)n * sizeof(float);
            float before[16];
            cr_assert(n <= 16);
            memcpy(before, out_at(&g.g.dq, 0, 1, i), bytes);
            for (int64_t r = 0; r < t.shape.q_len; r++)
                if (r != i) {
                    in_at_mutable(&t.p.q, 0, 1, r)[0] += 1;
                    in_at_mutable(&g.g.dout, 0, 1, r)[0] *= 2;
                }
            gradient_run(&g, &t, NULL);
            CHECK(!memcmp(before, out_at(&g.g.dq, 0, 1, i), bytes),
                  "dq of row %" PRId64 " depends on others", i);
        }
    }
}

/* A row whose scores are all -inf has lse -inf, and gives what a row gives that a mask hides from
 * everything: nothing. */
Test(backward, scores_of_minus_inf) {
    FOR_EACH_ISA(isa) {
        struct trial t;
        struct gradient_trial g;
        struct rng rng = {37};
        const int64_t row = 70, keys = 90;
        trial_place(&t, (struct shape){1, 2, 1, 140, keys, 8, 5}, (struct layouts){.lse = true});
        trial_fill(&t, KIND_NORMAL, &rng);
        for (int64_t j = 0; j < keys; j++)
            in_at_mutable(&t.p.k, 0, 0, j)[0] = -1;
        in_at_mutable(&t.p.q, 0, 1, row)[0] = INFINITY;
        gradient_place(&g, &t, (struct gradient_form){.dk = PADDED}, &rng);
        in_at_mutable(&g.g.dout, 0, 1, row)[2] = NAN;
        check_context("scores of -inf, %s", isa);
        gradient_run(&g, &t, NULL);
        CHECK(*out_at(&t.p.lse, 0, 1, row) == -INFINITY, "the row sees more than -inf");
        for (int64_t c = 0; c < 8; c++)
            CHECK(out_at(&g.g.dq, 0, 1, row)[c] == 0, "dq[%" PRId64 "]", c);
        for (int64_t j = 0; j < keys; j++)
            CHECK(isfinite(out_at(&g.g.dk, 0, 0, j)[0]) && isfinite(out_at(&g.g.dv, 0, 0, j)[2]),
                  "key %" PRId64 " takes part in it", j);
        const uint64_t bits = gradient_bits(&g, &t);
        trial_add_mask(&t, (struct mask_form){.type = ATTN_MASK_BOOL, .n_keys = keys});
        for (int64_t j = 0; j < keys; j++)
            mask_set(&t, 0, 1, row, j, -INFINITY);
        gradient_run(&g, &t, NULL);
        CHECK(gradient_bits(&g, &t) == bits, "other bits than with the row hidden");
    }
}

/* Where there is nothing to sum, zeros. */
Test(backward, empty) {
    FOR_EACH_ISA(isa) {
        const struct shape shapes[] = {{2, 2, 1, 0, 5, 3, 4},
                                       {2, 2, 1, 3, 5, 3, 0},
                                       {2, 2, 1, 3, 0, 3, 4},
                                       {0, 2, 1, 3, 5, 3, 4},
                                       {1, 0, 1, 3, 5, 3, 4}};
        for (int k = 0; k < 5; k++) {
            struct trial t;
            struct gradient_trial g;
            struct rng rng = {29};
            trial_place(&t, shapes[k], (struct layouts){.lse = true});
            trial_fill(&t, KIND_NORMAL, &rng);
            t.sinks[0] = t.sinks[1] = 0.5f, t.p.sinks = t.sinks;
            gradient_place(&g, &t, (struct gradient_form){.dk = PADDED}, &rng);
            trial_context(&t, "nothing to sum");
            gradient_run(&g, &t, NULL);
            const struct placed *all[] = {&g.dq, &g.dk, &g.dv};
            for (int part = 0; part < 3; part++)
                for (int64_t b = 0; all[part]->n && b < all[part]->sizes[0]; b++)
                    for (int64_t h = 0; h < all[part]->sizes[1]; h++)
                        for (int64_t i = 0; i < all[part]->sizes[2]; i++) {
                            const attn_output as = {all[part]->data, ATTN_F32,
                                                    all[part]->stride_batch, all[part]->stride_head,
                                                    all[part]->stride_token};
                            for (int64_t c = 0; c < all[part]->sizes[3]; c++)
                                CHECK(out_at(&as, b, h, i)[c] == 0, "shape %d part %d", k, part);
                        }
            for (int64_t h = 0; h < shapes[k].q_heads; h++)
                CHECK(g.g.dsinks[h] == 0, "shape %d: dsinks", k);
        }
    }
}

/* ---- Errors ---------------------------------------------------------------------------------- */

Test(backward, errors) {
    float x[64] = {0}, result[64];
    const float sink[2] = {0, 0};
    int32_t table[2] = {0, 0};
    attn_problem good = attn_problem_bhld(1, 2, 1, 2, 2, 4, 4, x, x, x, x + 32);
    good.lse.data = x;
    attn_gradient fine = attn_gradient_init();
    fine.dout = (attn_input){x, ATTN_F32, 16, 8, 4};
    fine.dq = (attn_output){result, ATTN_F32, 16, 8, 4};
    fine.dk = (attn_output){result + 16, ATTN_F32, 8, 8, 4};
    fine.dv = (attn_output){result + 24, ATTN_F32, 8, 8, 4};
    size_t size;
    cr_assert(attn_backward_workspace_size(&good, &fine, 1, &size) == ATTN_OK);
    char *workspace = malloc(size);
    cr_assert(workspace != NULL);
    cr_assert(attn_backward(&good, &fine, workspace, size, NULL) == ATTN_OK);
    cr_assert(attn_backward_alloc(&good, &fine, NULL) == ATTN_OK);
    memset(result, 0xff, sizeof result);
    for (int k = 0;; k++) {
        attn_problem p = good;
        attn_gradient g = fine;
        attn_executor none = {sizeof none, 0, NULL};
        attn_executor *executor = NULL;
        attn_status want = ATTN_OK;
        size_t given = size;
        void *scratch = workspace;
        switch (k) {
        case 0:
            p.lse.data = NULL, want = ATTN_ERROR_NULL;
            break;
        case 1:
            g.dout.data = NULL, want = ATTN_ERROR_NULL;
            break;
        case 2:
            g.dsinks = result, want = ATTN_ERROR_NULL; /* of no sinks */
            break;
        case 3:
            g.struct_size = sizeof g - 8, want = ATTN_ERROR_STRUCT_SIZE;
            break;
        case 4:
            g.struct_size = 5000, want = ATTN_ERROR_STRUCT_SIZE;
            break;
        case 5:
            p.k.type = ATTN_I8, p.k_scales.data = x, want = ATTN_ERROR_TYPE;
            break;
        case 6:
            p.v.type = ATTN_I8, p.v_scales.data = x, want = ATTN_ERROR_TYPE;
            break;
        case 7:
            p.pages = (attn_pages){table, 1, 2, 1}, want = ATTN_ERROR_PAGE;
            break;
        case 8:
            p.past_cap = 1, p.past_k = p.k, p.past_v = p.v, want = ATTN_ERROR_PAST_LEN;
            break;
        case 9:
            g.dq.type = ATTN_I8, want = ATTN_ERROR_TYPE;
            break;
        case 10:
            g.dout.type = ATTN_I8, want = ATTN_ERROR_TYPE;
            break;
        case 11:
            g.dk.stride_token = 3, want = ATTN_ERROR_STRIDE;
            break;
        case 12:
            g.dv.stride_token = INT64_MIN, want = ATTN_ERROR_OVERFLOW;
            break;
        case 13:
            given--, want = ATTN_ERROR_WORKSPACE;
            break;
        case 14:
            scratch = NULL, want = ATTN_ERROR_NULL;
            break;
        case 15:
            executor = &none, want = ATTN_ERROR_EXECUTOR;
            break;
        case 16:
            p.softcap = -1, want = ATTN_ERROR_PARAMETER;
            break;
        case 17:
            g.dq.stride_head = 2, want = ATTN_ERROR_STRIDE;
            break;
        default:
            k = -1;
        }
        if (k < 0)
            break;
        check_context("error %d", k);
        const attn_status status = attn_backward(&p, &g, scratch, given, executor);
        CHECK(status == want, "answers %s", attn_status_string(status));
        for (int i = 0; i < 64; i++)
            CHECK(bits_of(result[i]) == 0xffffffff, "result[%d] was written", i);
    }
    CHECK(attn_backward(NULL, &fine, workspace, size, NULL) == ATTN_ERROR_NULL, "no problem");
    CHECK(attn_backward(&good, NULL, workspace, size, NULL) == ATTN_ERROR_NULL, "no gradient");
    CHECK(attn_backward_workspace_size(&good, &fine, 1, NULL) == ATTN_ERROR_NULL, "no size");
    CHECK(attn_backward_workspace_size(&good, &fine, 0, &size) == ATTN_ERROR_EXECUTOR, "0 workers");
    /* A later version's struct is fine as long as what is new is 0. */
    struct {
        attn_gradient g;
        int64_t more;
    } later = {fine, 0};
    later.g.struct_size = sizeof later, good.sinks = sink, later.g.dsinks = result + 32;
    CHECK(attn_backward_alloc(&good, &later.g, NULL) == ATTN_OK, "a later version");
    later.more = 1;
    CHECK(attn_backward_alloc(&good, &later.g, NULL) == ATTN_ERROR_STRUCT_SIZE, "and its news");
    free(workspace);
}

/* What the header says a worker takes. */
Test(backward, workspace) {
    for (int64_t d = 1; d <= 1024; d += 93)
        for (int type = 0; type < 3; type++)
            for (int look = 0; look < 4; look++) {
                attn_problem p = attn_problem_bhld(3, 8, 2, 100000, 100000, d, 1 + d * 5 % 1024,
                                                   NULL, NULL, NULL, NULL);
                attn_gradient g = attn_gradient_init();
                p.q.type = p.k.type = p.v.type = g.dout.type = (attn_type)type;
                p.softcap = look & 1;
                if (look & 2)
                    p.mask = (attn_mask){.type = ATTN_MASK_F16, .n_keys = 100000};
                size_t one, many;
                cr_assert(attn_backward_workspace_size(&p, &g, 1, &one) == ATTN_OK);
                cr_assert(attn_backward_workspace_size(&p, &g, 100, &many) == ATTN_OK);
                CHECK(one <= 4 << 20, "dim %" PRId64 " takes %zu bytes", d, one);
                CHECK(many <= 100 * one, "dim %" PRId64 ": %zu bytes for 100", d, many);
            }
}

/* ---- Of a softmax alone ---------------------------------------------------------------------- */

Test(backward, softmax) {
    FOR_EACH_ISA(isa) {
        struct rng rng = {31};
        for (int64_t n = 1; n < 300; n += 1 + n / 40) {
            const enum side side = n % 2 ? AT_END : AT_START;
            float *w = guarded_floats(SLOT_OTHER, (size_t)n, side);
            float *dw = guarded_floats(SLOT_OTHER + 1, (size_t)n, side);
            float *ds = guarded_floats(SLOT_OTHER + 2, (size_t)n, side);
            double total = 0, sum = 0, magnitude = 0;
            for (int64_t j = 0; j < n; j++)
                total += w[j] = expf(rng_normal(&rng)), dw[j] = rng_normal(&rng);
            for (int64_t j = 0; j < n; j++) {
                w[j] /= (float)total;
                sum += (double)w[j] * dw[j], magnitude += fabs((double)w[j] * dw[j]);
            }
            check_context("softmax_backward %s: n %" PRId64, isa, n);
            CHECK(attn_softmax_backward(n, w, dw, ds) == ATTN_OK, "no answer");
            for (int64_t j = 0; j < n; j++) {
                const double bound =
                    w[j] * 0x1p-24 * ((double)(n + 3) * magnitude + 3 * fabs((double)dw[j])) +
                    0x1p-125 * (double)(n + 1);
                CHECK(oracle_agrees(ds[j], w[j] * (dw[j] - sum), bound), "ds[%" PRId64 "]", j);
            }
            float *place = n % 3 ? w : dw;
            CHECK(attn_softmax_backward(n, w, dw, place) == ATTN_OK, "in place");
            CHECK(first_difference(place, ds, n) < 0, "other bits in place");
        }
        float x = 1;
        CHECK(attn_softmax_backward(0, NULL, NULL, NULL) == ATTN_OK, "n 0");
        CHECK(attn_softmax_backward(-1, &x, &x, &x) == ATTN_ERROR_SIZE, "n -1");
        CHECK(attn_softmax_backward(1, &x, NULL, &x) == ATTN_ERROR_NULL, "null");
    }
}
