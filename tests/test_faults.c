/* Faults of public attention kernels, listed in tests/FAULTS.txt: positions and windows (B), leaks
 * (C), numerics (D), heads and dims (K), ragged batches (L), splits, sinks, softcap and ALiBi (M),
 * tasks (N). Those of masks and of memory are in test_faults_masks.c and test_faults_memory.c.
 *
 * SPDX-License-Identifier: MIT */
#include <float.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/oracle.h"
#include "faults.h"

/* ---- B: positions ---------------------------------------------------------------------------- */

/* All scores equal: the weights say which keys a row sees. */
static void place_equal(struct trial *t, struct shape s, int64_t past_cap) {
    struct rng rng = {1};
    trial_place(t, s, (struct layouts){.lse = true, .weights = true, .past_cap = past_cap});
    trial_fill(t, KIND_NORMAL, &rng);
    for (size_t k = 0; k < t->q.n; k++)
        t->q.data[k] = 0;
}

/* Row i of batch b sees keys [first, last]. */
static void expect_keys(const struct trial *t, int64_t b, int64_t i, int64_t first, int64_t last) {
    for (int64_t j = 0; j < t->p.past_cap + t->p.kv_cap; j++) {
        const float want = j >= first && j <= last ? 1 / (float)(last - first + 1) : 0;
        const float got = out_at(&t->p.weights, b, 0, i)[j];
        CHECK(fabsf(got - want) <= 1e-6f && (want > 0 || got == 0),
              "batch %" PRId64 " row %" PRId64 ": key %" PRId64 " has %g, want %g", b, i, j,
              (double)got, (double)want);
    }
}

Test(faults, B4_window_of_ragged_lengths) {
    FOR_EACH_ISA(isa) {
        struct trial t;
        place_equal(&t, (struct shape){2, 1, 1, 1, 9, 2, 3}, 0);
        t.kv_len[0] = 3, t.kv_len[1] = 9, t.p.kv_len = t.kv_len;
        t.window[0] = 3, t.window[1] = 0, t.p.window = t.window;
        t.p.align = ATTN_ALIGN_BOTTOM_RIGHT;
        for (int causal = 0; causal < 2; causal++) {
            t.p.causal = causal;
            trial_context(&t, "B4");
            trial_run(&t, NULL);
            expect_keys(&t, 0, 0, 0, 2);
            expect_keys(&t, 1, 0, 5, 8);
        }
    }
}

Test(faults, B6_new_tokens_after_a_past) {
    FOR_EACH_ISA(isa) for (int explicit = 0; explicit < 2; explicit ++) {
        struct trial t;
        place_equal(&t, (struct shape){1, 1, 1, 3, 3, 2, 3}, 3);
        t.p.causal = 1;
        t.p.align = explicit ? ATTN_ALIGN_EXPLICIT : ATTN_ALIGN_BOTTOM_RIGHT;
        t.offset[0] = 3, t.p.offset = explicit ? t.offset : NULL;
        trial_context(&t, "B6");
        trial_run(&t, NULL);
        for (int64_t i = 0; i < 3; i++)
            expect_keys(&t, 0, i, 0, 3 + i);
    }
}

/* The current key is distance 0. */
Test(faults, B8_window_counts_itself) {
    const int64_t widths[] = {1, 2, 3, 63, 64, 65, 511, 512, 513};
    const int64_t n = check_quick() ? 150 : 1536;
    FOR_EACH_ISA(isa) for (int w = 0; w < (check_quick() ? 6 : 9); w++) {
        struct trial t;
        place_equal(&t, (struct shape){1, 1, 1, n, n, 1, 1}, 0);
        t.window[0] = widths[w] - 1, t.window[1] = -1;
        t.p.window = t.window, t.p.causal = 1;
        trial_context(&t, "B8");
        trial_run(&t, NULL);
        for (int64_t i = 0; i < n; i += i < 10 ? 1 : 7)
            expect_keys(&t, 0, i, i < widths[w] ? 0 : i + 1 - widths[w], i);
        /* Both ways, not causal. */
        t.p.causal = 0, t.window[1] = 2;
        trial_context(&t, "B8, both ways");
        trial_run(&t, NULL);
        for (int64_t i = 0; i < n; i += i < 10 ? 1 : 7)
            expect_keys(&t, 0, i, i < widths[w] ? 0 : i + 1 - widths[w], i + 2 < n ? i + 2 : n - 1);
    }
}

/* Row 0 does not know how many rows come after it. */
Test(faults, B10_later_rows) {
    const int64_t pasts[] = {0, 1, 63, 64, 65, 511, 512};
    FOR_EACH_ISA(isa) for (int n = 0; n < 7; n++) {
        float first[9];
        for (int64_t rows = 1; rows <= 30; rows += rows < 14 ? 1 : 8) {
            struct rng rng = {(uint64_t)n};
            struct trial t;
            trial_place(&t, (struct shape){1, 1, 1, rows, 30, 7, 9},
                        (struct layouts){.past_cap = pasts[n]});
            trial_fill(&t, KIND_NORMAL, &rng);
            struct rng keys = {77};
            for (size_t k = 0; k < t.k.n; k++)
                t.k.data[k] = rng_normal(&keys), t.v.data[k] = rng_normal(&keys);
            for (size_t k = 0; k < t.past_k.n; k++)
                t.past_k.data[k] = rng_normal(&keys);
            for (size_t k = 0; k < t.past_v.n; k++)
                t.past_v.data[k] = rng_normal(&keys);
            for (int c = 0; c < 7; c++)
                t.q.data[c] = 0.25f * (float)c - 1;
            t.offset[0] = pasts[n];
            t.p.causal = 1, t.p.align = ATTN_ALIGN_EXPLICIT, t.p.offset = t.offset;
            trial_context(&t, "B10");
            trial_run(&t, NULL);
            if (rows == 1)
                memcpy(first, t.out.data, sizeof first);
            CHECK(first_difference(first, t.out.data, 9) < 0, "row 0 among %" PRId64 " differs",
                  rows);
        }
    }
}

/* ---- C: leaks -------------------------------------------------------------------------------- */

Test(faults, C1_nan_beyond_kv_len) {
    struct rng rng = {31};
    FOR_EACH_ISA(isa) {
        float clean[2 * 3 * 64];
        for (int poisoned = 0; poisoned < 2; poisoned++) {
            struct trial t;
            rng.state = 31;
            trial_place(&t, (struct shape){2, 1, 1, 3, 3, 64, 64}, (struct layouts){.lse = false});
            trial_fill(&t, KIND_NORMAL, &rng);
            t.kv_len[0] = 1, t.kv_len[1] = 3, t.p.kv_len = t.kv_len;
            for (int64_t j = 1; j < 3; j++)
                for (int64_t c = 0; c < 64; c++) {
                    in_at_mutable(&t.p.k, 0, 0, j)[c] = poisoned ? NAN : 0;
                    in_at_mutable(&t.p.v, 0, 0, j)[c] = poisoned ? NAN : 0;
                }
            trial_context(&t, "C1");
            trial_run(&t, NULL);
            if (!poisoned)
                memcpy(clean, t.out.data, sizeof clean);
            CHECK(first_difference(clean, t.out.data, 2 * 3 * 64) < 0, "NaN comes through");
        }
    }
}

/* One new token after pasts of 3 and 7, in caches of NaN. */
Test(faults, C9_separate_past) {
    struct rng rng = {39};
    struct trial t;
    trial_place(&t, (struct shape){2, 4, 2, 1, 1, 16, 16},
                (struct layouts){.past_cap = 8, .lse = true, .weights = true});
    trial_fill(&t, KIND_NORMAL, &rng);
    t.past_len[0] = 3, t.past_len[1] = 7, t.p.past_len = t.past_len;
    for (int64_t b = 0; b < 2; b++)
        for (int64_t g = 0; g < 2; g++)
            for (int64_t j = t.past_len[b]; j < 8; j++)
                for (int64_t c = 0; c < 16; c++) {
                    in_at_mutable(&t.p.past_k, b, g, j)[c] = NAN;
                    in_at_mutable(&t.p.past_v, b, g, j)[c] = NAN;
                }
    t.p.causal = 1, t.p.align = ATTN_ALIGN_BOTTOM_RIGHT;
    trial_on_every_isa(&t);
    for (size_t k = 0; k < t.out.n; k++)
        CHECK(isfinite(t.out.data[k]), "output %zu", k);
}

/* ---- D: numerics ----------------------------------------------------------------------------- */

/* A weight below the smallest normal number is 0, in a vector, in its tail and in every set. */
Test(faults, D2_weights_that_underflow) {
    const float logits[] = {-88, -100, -104, -0x1.5d589ep+6f, -0x1.5d58a2p+6f, -1e30f};
    FOR_EACH_ISA(isa) for (int64_t keys = 2; keys <= 70; keys += 1 + check_quick() * 12) {
        for (int64_t at = 1; at < keys; at++) {
            struct trial t;
            struct rng rng = {42};
            trial_place(&t, (struct shape){1, 1, 1, 1, keys, 1, 1},
                        (struct layouts){.weights = true});
            trial_fill(&t, KIND_NORMAL, &rng);
            t.q.data[0] = 1, t.p.scale = &one;
            const int which = (int)((at + keys) % 6);
            for (int64_t j = 0; j < keys; j++)
                t.k.data[j] = j == 0 ? 0 : j == at ? logits[which] : -200;
            trial_context(&t, "D2");
            trial_run(&t, NULL);
            for (int64_t j = 0; j < keys; j++) {
                const bool is_normal = j == at && which == 3;
                CHECK(j == 0      ? t.weights.data[j] == 1
                      : is_normal ? t.weights.data[j] >= FLT_MIN && t.weights.data[j] < 2 * FLT_MIN
                                  : bits_of(t.weights.data[j]) == 0,
                      "weight %" PRId64 " of logit %g is %g", j, (double)t.k.data[j],
                      (double)t.weights.data[j]);
            }
        }
    }
}

/* NaN and +inf among the scores, at any place and from any source: never a plausible row. */
static void expect_nan_row(const struct trial *t, int64_t at) {
    for (int64_t c = 0; c < t->p.v_dim; c++)
        CHECK(isnan(t->out.data[c]), "at %" PRId64 ": out[%" PRId64 "] is %g", at, c,
              (double)t->out.data[c]);
    CHECK(isnan(t->lse.data[0]), "at %" PRId64 ": lse is %g", at, (double)t->lse.data[0]);
}

Test(faults, D3_nan_at_any_index) {
    FOR_EACH_ISA(isa) for (int64_t keys = 1; keys <= 70; keys += check_quick() ? 16 : 1) {
        for (int64_t at = 0; at < keys; at++)
            for (int from_mask = 0; from_mask < 2; from_mask++) {
                struct trial t;
                struct rng rng = {43};
                if (from_mask)
                    place_masked(&t, (struct shape){1, 1, 1, 1, keys, 2, 3}, ATTN_MASK_F32, &rng);
                else
                    trial_place(&t, (struct shape){1, 1, 1, 1, keys, 2, 3},
                                (struct layouts){.lse = true});
                trial_fill(&t, KIND_NORMAL, &rng);
                if (from_mask)
                    mask_pair(&t, 0, at, at % 2 ? NAN : -NAN);
                else
                    *in_at_mutable(&t.p.k, 0, 0, at) = at % 2 ? NAN : -NAN;
                trial_context(&t, "D3");
                trial_run(&t, NULL);
                expect_nan_row(&t, at);
            }
    }
}

Test(faults, D4_plus_infinity) {
    FOR_EACH_ISA(isa) for (int64_t keys = 1; keys <= 600; keys += keys < 70 ? 1 : 265) {
        for (int which = 0; which < 5; which++) {
            struct trial t;
            struct rng rng = {44};
            const int64_t at = rng_below(&rng, keys), other = rng_below(&rng, keys);
            place_masked(&t, (struct shape){1, 1, 1, 1, keys, 2, 3}, ATTN_MASK_F32, &rng);
            t.q.data[0] = 1;
            float *const key = in_at_mutable(&t.p.k, 0, 0, at);
            switch (which) {
            case 0:
                *key = INFINITY;
                break;
            case 1: /* two of them */
                *key = *in_at_mutable(&t.p.k, 0, 0, other) = INFINITY;
                break;
            case 2: /* all of them */
                for (int64_t j = 0; j < keys; j++)
                    *in_at_mutable(&t.p.k, 0, 0, j) = INFINITY;
                break;
            case 3:
                mask_pair(&t, 0, at, INFINITY);
                break;
            default:
                t.sinks[0] = INFINITY, t.p.sinks = t.sinks;
            }
            trial_context(&t, "D4");
            struct reverse_executor e = reverse_executor(3);
            trial_run(&t, which % 2 ? &e.base : NULL);
            expect_nan_row(&t, at);
        }
    }
    /* Under a softcap an infinite product is the cap. */
    FOR_EACH_ISA(isa) {
        struct trial t;
        struct rng rng = {45};
        place_masked(&t, (struct shape){1, 1, 1, 1, 3, 1, 1}, ATTN_MASK_F32, &rng);
        const float keys[3] = {INFINITY, 0, -INFINITY};
        memcpy(t.k.data, keys, sizeof keys);
        t.q.data[0] = 1, t.p.softcap = 2;
        trial_context(&t, "D4, softcap");
        trial_run(&t, NULL);
        const double sum = exp(2) + 1 + exp(-2);
        for (int j = 0; j < 3; j++)
            CHECK(fabs(t.weights.data[j] - exp(2 - 2 * j) / sum) < 1e-6, "weight %d is %g", j,
                  (double)t.weights.data[j]);
    }
}

/* ---- K: heads and dims ----------------------------------------------------------------------- */

Test(faults, K8_value_dim_is_its_own) {
    const struct shape shapes[] = {{8, 4, 1, 1, 36, 32, 24},
                                   {1, 2, 1, 3, 40, 576, 512},
                                   {1, 2, 1, 20, 40, 576, 512},
                                   {1, 2, 2, 5, 40, 8, 70},
                                   {1, 2, 1, 5, 40, 70, 1}};
    for (int n = 0; n < 5; n++) {
        struct trial t;
        struct rng rng = {88};
        trial_place(&t, shapes[n], (struct layouts){.lse = true});
        trial_fill(&t, KIND_NORMAL, &rng);
        trial_on_every_isa(&t);
    }
}

/* ---- L: empty sequences in a ragged batch ---------------------------------------------------- */

Test(faults, L3_empty_keys_in_a_ragged_batch) {
    const int64_t lengths[][3] = {{3, 0, 2}, {0, 0, 0}, {0, 5, 0}, {5, 5, 0}};
    const int64_t rows[][4] = {{0, 2, 4, 6}, {0, 0, 3, 6}, {0, 6, 6, 6}, {0, 0, 0, 6}};
    for (int n = 0; n < 4; n++)
        for (int m = 0; m < 4; m++)
            for (int causal = 0; causal < 2; causal++) {
                struct trial t;
                struct rng rng = {103};
                trial_place(&t, (struct shape){3, 2, 1, 6, 5, 8, 8},
                            (struct layouts){.out = m % 2 ? PADDED : BLHD,
                                             .lse = true,
                                             .weights = true,
                                             .is_ragged = true});
                trial_fill(&t, KIND_NORMAL, &rng);
                memcpy(t.kv_len, lengths[n], sizeof lengths[n]);
                memcpy(t.cu_q, rows[m], sizeof rows[m]);
                t.p.kv_len = t.kv_len;
                t.p.causal = causal, t.p.align = ATTN_ALIGN_BOTTOM_RIGHT;
                trial_poison(&t, &rng);
                trial_on_every_isa(&t);
                trial_check_gaps(&t);
                for (int64_t b = 0; b < 3; b++)
                    for (int64_t i = 0; i < oracle_rows(&t.p, b) && t.kv_len[b] == 0; i++)
                        for (int64_t c = 0; c < 8; c++)
                            CHECK(bits_of(row_of(&t.p, &t.p.out, b, 1, i)[c]) == 0,
                                  "sequence %" PRId64 " row %" PRId64, b, i);
            }
}

/* ---- M: splits, sinks, softcap, ALiBi -------------------------------------------------------- */

/* The bits of one worker, whatever the number of workers, hence of splits. */
static void expect_unsplit(struct trial *t, const char *what) {
    FOR_EACH_ISA(isa) {
        trial_context(t, what);
        trial_run(t, NULL);
        float *out = malloc(t->out.n * sizeof(float)), *lse = malloc(t->lse.n * sizeof(float));
        cr_assert(out && lse);
        memcpy(out, t->out.data, t->out.n * sizeof(float));
        memcpy(lse, t->lse.data, t->lse.n * sizeof(float));
        for (size_t workers = 2; workers <= 8; workers++) {
            struct reverse_executor e = reverse_executor(workers);
            trial_run(t, &e.base);
            CHECK(first_difference(out, t->out.data, (int64_t)t->out.n) < 0 &&
                      first_difference(lse, t->lse.data, (int64_t)t->lse.n) < 0,
                  "%zu workers, %" PRId64 " tasks: other bits", workers, e.tasks);
        }
        free(out), free(lse);
    }
}

Test(faults, M1_empty_splits) {
    const int64_t keys = check_quick() ? 1100 : 2600;
    for (int which = 0; which < 5; which++)
        for (int64_t rows = 1; rows <= 9; rows += 8) {
            struct trial t;
            struct rng rng = {111};
            place_masked(&t, (struct shape){1, 2, 1, rows, keys, 5, 6}, ATTN_MASK_BITS, &rng);
            const attn_mask none = {0};
            t.kv_len[0] = which == 0 ? 0 : keys;
            t.p.kv_len = t.kv_len;
            t.p.align = ATTN_ALIGN_BOTTOM_RIGHT;
            if (which == 1) { /* a window over the last keys only */
                t.p.mask = none;
                t.window[0] = 3, t.window[1] = 0, t.p.window = t.window;
            }
            for (int64_t i = 0; i < rows && which > 1; i++)
                for (int64_t j = 0; j < keys; j++) {
                    const bool is_last = j >= keys - 20, is_middle = j / 512 == 1;
                    mask_pair(&t, i, j,
                              (which == 2   ? is_last
                               : which == 3 ? is_middle
                                            : false)
                                  ? 0
                                  : -INFINITY);
                }
            t.sinks[0] = t.sinks[1] = 0.5f;
            for (int sink = 0; sink < 2; sink++) {
                t.p.sinks = sink ? t.sinks : NULL;
                expect_unsplit(&t, "M1");
                trial_on_every_isa(&t);
                if (which == 0 || which == 4)
                    CHECK(t.out.data[0] == 0 && t.lse.data[0] == (sink ? 0.5f : -INFINITY),
                          "out %g lse %g", (double)t.out.data[0], (double)t.lse.data[0]);
            }
        }
}

Test(faults, M5_softcap_value) {
    FOR_EACH_ISA(isa) {
        struct trial t;
        struct rng rng = {115};
        trial_place(&t, (struct shape){1, 1, 1, 1, 2, 1, 1},
                    (struct layouts){.lse = true, .weights = true, .scores = true});
        trial_fill(&t, KIND_NORMAL, &rng);
        t.q.data[0] = 60, t.k.data[0] = 1, t.k.data[1] = 0;
        t.p.scale = &one, t.p.softcap = 30, t.p.scores_at = ATTN_SCORES_CAPPED;
        trial_context(&t, "M5");
        trial_run(&t, NULL);
        CHECK(fabsf(t.scores.data[0] - 28.920827f) < 1e-5f && t.scores.data[1] == 0, "%g %g",
              (double)t.scores.data[0], (double)t.scores.data[1]);
        /* Caps whose reciprocal is not a normal number. */
        const float caps[] = {1e-45f, 1e-40f, FLT_MIN, 1e-30f, 1e30f, 3e38f, FLT_MAX};
        const float scores[] = {0, 5, -5, 1e-30f};
        for (int n = 0; n < 7; n++)
            for (int m = 0; m < 4; m++) {
                t.q.data[0] = scores[m], t.p.softcap = caps[n];
                trial_context(&t, "M5, extreme caps");
                trial_run(&t, NULL);
                const double want = caps[n] * tanh((double)scores[m] / caps[n]);
                /* A quotient that underflows is off by half the smallest number, times the cap. */
                CHECK(fabs(t.scores.data[0] - want) <= 1e-5 * fabs(want) + caps[n] * 0x1p-149,
                      "cap %g of %g is %g, want %g", (double)caps[n], (double)scores[m],
                      (double)t.scores.data[0], want);
                CHECK(t.scores.data[1] == 0 && isfinite(t.out.data[0]), "cap %g of 0 is %g, out %g",
                      (double)caps[n], (double)t.scores.data[1], (double)t.out.data[0]);
            }
    }
}

Test(faults, M6_sink_counts_once) {
    FOR_EACH_ISA(isa) {
        /* a: no keys at all. */
        struct trial t;
        struct rng rng = {116};
        trial_place(&t, (struct shape){1, 1, 1, 2, 0, 4, 4}, (struct layouts){.lse = true});
        trial_fill(&t, KIND_NORMAL, &rng);
        t.p.sinks = t.sinks, t.sinks[0] = 0;
        trial_context(&t, "M6 a");
        trial_run(&t, NULL);
        for (int k = 0; k < 8; k++)
            CHECK(bits_of(t.out.data[k]) == 0, "output %d is %g", k, (double)t.out.data[k]);
        CHECK(t.lse.data[0] == 0 && t.lse.data[1] == 0, "lse %g", (double)t.lse.data[0]);
        /* All scores 0 and a sink of 0: one key more, of value 0. */
        for (int64_t keys = 1; keys <= 1100; keys = keys * 2 + 1) {
            place_equal(&t, (struct shape){1, 1, 1, 1, keys, 1, 1}, 0);
            for (int64_t j = 0; j < keys; j++)
                t.v.data[j] = 1;
            t.p.sinks = t.sinks, t.sinks[0] = 0;
            trial_context(&t, "M6, equal scores");
            trial_run(&t, NULL);
            CHECK(fabs(t.out.data[0] - (double)keys / (double)(keys + 1)) < 1e-5, "%g",
                  (double)t.out.data[0]);
        }
    }
    /* b, c: any number of splits, the first of them empty, with and without softcap. */
    for (int capped = 0; capped < 2; capped++) {
        struct trial t;
        struct rng rng = {117};
        trial_place(&t, (struct shape){1, 2, 1, 1, check_quick() ? 1100 : 2100, 6, 6},
                    (struct layouts){.lse = true});
        trial_fill(&t, KIND_NORMAL, &rng);
        t.p.sinks = t.sinks, t.sinks[1] = 3, t.p.softcap = capped ? 2 : 0;
        expect_unsplit(&t, "M6 c");
        trial_on_every_isa(&t);
        t.p.window = t.window, t.window[0] = 700, t.window[1] = -1;
        t.p.align = ATTN_ALIGN_BOTTOM_RIGHT;
        expect_unsplit(&t, "M6 b");
        trial_on_every_isa(&t);
    }
}

/* Head by head, whatever their number, by distance, in decoding as in a prefill. */
static void try_slopes(int64_t heads, const float *slopes) {
    enum { N = 70 };
    FOR_EACH_ISA(isa) {
        struct trial t;
        struct rng rng = {118};
        trial_place(&t, (struct shape){1, heads, heads, N, N, 4, 4},
                    (struct layouts){.lse = true, .scores = true});
        trial_fill(&t, KIND_NORMAL, &rng);
        float *q = malloc(t.q.n * sizeof(float)), *out = malloc(t.out.n * sizeof(float));
        cr_assert(q && out);
        memcpy(q, t.q.data, t.q.n * sizeof(float));
        t.p.alibi = slopes, t.p.causal = 1, t.p.scores_at = ATTN_SCORES_BIASED;
        memset(t.q.data, 0, t.q.n * sizeof(float));
        trial_context(&t, "M8, M9");
        trial_run(&t, NULL);
        for (int64_t h = 0; h < heads; h++)
            for (int64_t i = 0; i < N; i++)
                for (int64_t j = 0; j <= i; j++)
                    CHECK(out_at(&t.p.scores, 0, h, i)[j] == -slopes[h] * (float)(i - j),
                          "head %" PRId64 ", %" PRId64 " keys back: %g", h, i - j,
                          (double)out_at(&t.p.scores, 0, h, i)[j]);
        memcpy(t.q.data, q, t.q.n * sizeof(float));
        trial_run(&t, NULL);
        memcpy(out, t.out.data, t.out.n * sizeof(float));
        attn_problem p = t.p; /* the last row again, as a decode step */
        p.q_len = 1, p.align = ATTN_ALIGN_BOTTOM_RIGHT;
        p.q.data = in_at(&t.p.q, 0, 0, N - 1);
        p.scores.data = NULL;
        forward(&p);
        for (int64_t h = 0; h < heads; h++)
            CHECK(first_difference(out + (h * N + N - 1) * 4, out_at(&p.out, 0, h, 0), 4) < 0,
                  "head %" PRId64 ": decoding differs from the prefill", h);
        free(q), free(out);
    }
}

Test(faults, M8_alibi_slopes) {
    float slopes[12];
    for (int h = 0; h < 12; h++)
        slopes[h] = h < 8 ? ldexpf(1, -1 - h) : exp2f(-0.5f - (float)(h - 8));
    try_slopes(12, slopes);
}

Test(faults, M9_slopes_of_48_heads) {
    float slopes[48];
    for (int h = 0; h < 48; h++)
        slopes[h] = exp2f(-8.0f * (float)(h + 1) / 48);
    try_slopes(48, slopes);
}

/* Distances of any size, either way: no overflow, no NaN. */
Test(faults, M8_far_positions) {
    const int64_t offsets[] = {INT64_C(1) << 62,    -(INT64_C(1) << 62), INT64_C(1) << 31,
                               -(INT64_C(1) << 31), INT32_MAX,           100000007};
    FOR_EACH_ISA(isa) for (int n = 0; n < 6; n++) {
        struct trial t;
        struct rng rng = {119};
        trial_place(&t, (struct shape){1, 1, 1, 3, 40, 4, 4},
                    (struct layouts){.lse = true, .weights = true});
        trial_fill(&t, KIND_NORMAL, &rng);
        const float slope = 0.25f;
        t.offset[0] = offsets[n];
        t.p.alibi = &slope, t.p.align = ATTN_ALIGN_EXPLICIT, t.p.offset = t.offset;
        trial_context(&t, "M8, far");
        trial_run(&t, NULL);
        for (int64_t i = 0; i < 3; i++) {
            double sum = 0, want = 0;
            for (int64_t j = 0; j < 40; j++)
                sum += out_at(&t.p.weights, 0, 0, i)[j];
            CHECK(fabs(sum - 1) < 1e-5, "weights sum to %g", sum);
            want = -0.25 * fabs((double)offsets[n]);
            CHECK(fabs(*out_at(&t.p.lse, 0, 0, i) - want) <= 1e-6 * fabs(want) + 50, "lse %g",
                  (double)*out_at(&t.p.lse, 0, 0, i));
        }
    }
}

Test(faults, M10_ragged_lengths_in_splits) {
    const int64_t lengths[3] = {5, 77, 1};
    for (int wide = 0; wide < 2; wide++) {
        struct trial t;
        struct rng rng = {120};
        trial_place(&t, (struct shape){3, 4, 2, 1, wide ? 1300 : 80, 8, 8},
                    (struct layouts){.lse = true});
        trial_fill(&t, KIND_NORMAL, &rng);
        memcpy(t.kv_len, lengths, sizeof lengths);
        if (wide)
            t.kv_len[0] = 1300, t.kv_len[1] = 513;
        t.p.kv_len = t.kv_len;
        trial_poison(&t, &rng);
        expect_unsplit(&t, "M10");
        trial_on_every_isa(&t);
    }
}

/* ---- N: tasks -------------------------------------------------------------------------------- */

/* One KV head and one row, and yet work for eight threads. */
Test(faults, N5_enough_tasks) {
    const struct shape shapes[] = {{1, 32, 1, 1, 8192, 2, 2},  {1, 8, 8, 1, 4096, 2, 2},
                                   {1, 1, 1, 1, 8192, 2, 2},   {8, 1, 1, 1, 600, 2, 2},
                                   {1, 1, 1, 2000, 200, 2, 2}, {1, 32, 1, 64, 64, 2, 2}};
    for (int n = 0; n < 6; n++) {
        struct trial t;
        struct rng rng = {125};
        trial_place(&t, shapes[n], (struct layouts){.side = AT_END});
        trial_fill(&t, KIND_NORMAL, &rng);
        struct reverse_executor e = reverse_executor(8);
        trial_context(&t, "N5");
        trial_run(&t, &e.base);
        CHECK(e.tasks >= 8, "%" PRId64 " tasks for 8 workers", e.tasks);
    }
}
