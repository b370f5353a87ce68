/* What one call means where public libraries went wrong: rows that see nothing, special values,
 * causal alignment, heads, scale, strides beyond 32 bits and sizes of zero.
 *
 * Named after the rows of the project's list of faults in public attention kernels where one
 * applies: A fully masked rows, B alignment, C leaks, D numerics, G strides, J 64-bit indices, K
 * heads and dims, L empty arguments, M merging.
 *
 * SPDX-License-Identifier: MIT */
#define _GNU_SOURCE 1
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "check.h"

static const float one = 1;

/* Contiguous, batch 1, no workspace to care about. */
static void forward(attn_problem *p) {
    const attn_status status = attn_forward_alloc(p, NULL);
    CHECK(status == ATTN_OK, "%s", attn_status_string(status));
}

/* A12, A13, L9, M2: rows that see no key. */
Test(contract, rows_that_see_nothing) {
    FOR_EACH_ISA(isa) {
        /* A12: 4 rows, 2 keys, bottom-right. K1 is NaN at the end: row 2 must not see it. */
        struct trial t;
        struct rng rng = {1};
        trial_place(&t, (struct shape){1, 1, 1, 4, 2, 8, 8},
                    (struct layouts){.lse = true, .weights = true});
        trial_fill(&t, KIND_NORMAL, &rng);
        t.p.causal = 1, t.p.align = ATTN_ALIGN_BOTTOM_RIGHT;
        *in_at_mutable(&t.p.q, 0, 0, 1) = NAN; /* a NaN query that sees no key gives 0 too */
        trial_context(&t, "A12");
        trial_run(&t, NULL);
        for (int64_t i = 0; i < 2; i++) {
            for (int64_t c = 0; c < 8; c++)
                CHECK(bits_of(out_at(&t.p.out, 0, 0, i)[c]) == 0, "row %" PRId64 " is %f", i,
                      (double)out_at(&t.p.out, 0, 0, i)[c]);
            CHECK(*out_at(&t.p.lse, 0, 0, i) == -INFINITY, "lse");
            CHECK(out_at(&t.p.weights, 0, 0, i)[0] == 0 && out_at(&t.p.weights, 0, 0, i)[1] == 0,
                  "weights");
        }
        CHECK(first_difference(out_at(&t.p.out, 0, 0, 2), t.v.data, 8) < 0, "row 2 is not V[0]");

        /* A13: kv_len 5, 0, 2, all else NaN; the same with capacity 0. */
        trial_place(&t, (struct shape){3, 2, 1, 3, 5, 8, 9}, (struct layouts){.lse = true});
        trial_fill(&t, KIND_NORMAL, &rng);
        t.kv_len[0] = 5, t.kv_len[1] = 0, t.kv_len[2] = 2;
        t.p.kv_len = t.kv_len;
        for (int64_t j = 0; j < 5; j++)
            *in_at_mutable(&t.p.k, 1, 0, j) = *in_at_mutable(&t.p.v, 1, 0, j) = NAN;
        trial_context(&t, "A13");
        trial_run(&t, NULL);
        for (size_t k = 0; k < t.out.n; k++)
            CHECK(k / (2 * 3 * 9) == 1 ? bits_of(t.out.data[k]) == 0 : isfinite(t.out.data[k]),
                  "output %zu is %f", k, (double)t.out.data[k]);
        for (size_t k = 0; k < t.lse.n; k++)
            CHECK(k / 6 == 1 ? t.lse.data[k] == -INFINITY : isfinite(t.lse.data[k]), "lse %zu", k);

        trial_place(&t, (struct shape){2, 2, 1, 3, 0, 8, 9}, (struct layouts){.lse = true});
        trial_fill(&t, KIND_NAN, &rng);
        trial_context(&t, "no keys at all");
        for (int causal = 0; causal < 2; causal++) {
            t.p.causal = causal, t.p.align = ATTN_ALIGN_BOTTOM_RIGHT;
            struct reverse_executor e = reverse_executor(4);
            trial_run(&t, causal ? &e.base : NULL);
            for (size_t k = 0; k < t.out.n; k++)
                CHECK(bits_of(t.out.data[k]) == 0, "output %zu", k);
            for (size_t k = 0; k < t.lse.n; k++)
                CHECK(t.lse.data[k] == -INFINITY, "lse %zu", k);
        }
    }
}

/* D6, M1: all visible logits -inf, in one tile, in a whole span, and in all but one. */
Test(contract, logits_of_minus_infinity) {
    FOR_EACH_ISA(isa) {
        const int64_t lengths[] = {1, 2, 17, 64, 513, 1100};
        for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++)
            for (int finite_at = -1; finite_at < 3; finite_at++) {
                const int64_t keys = lengths[n];
                struct trial t;
                struct rng rng = {2};
                trial_place(&t, (struct shape){1, 1, 1, 2, keys, 3, 5},
                            (struct layouts){.lse = true, .weights = true});
                trial_fill(&t, KIND_NORMAL, &rng);
                *in_at_mutable(&t.p.q, 0, 0, 0) = 1;
                *in_at_mutable(&t.p.q, 0, 0, 1) = 2;
                for (int64_t j = 0; j < keys; j++)
                    *in_at_mutable(&t.p.k, 0, 0, j) = -INFINITY;
                const int64_t at = finite_at == 0 ? 0 : finite_at == 1 ? keys / 2 : keys - 1;
                if (finite_at >= 0)
                    *in_at_mutable(&t.p.k, 0, 0, at) = 0.5f;
                else /* then not even NaN in V counts */
                    *in_at_mutable(&t.p.v, 0, 0, keys / 2) = NAN;
                trial_context(&t, "-inf");
                struct reverse_executor e = reverse_executor(3);
                for (int split = 0; split < 2; split++) {
                    trial_run(&t, split ? &e.base : NULL);
                    for (int64_t i = 0; i < 2; i++) {
                        const float lse = *out_at(&t.p.lse, 0, 0, i);
                        CHECK(finite_at < 0 ? lse == -INFINITY : isfinite(lse), "lse %f",
                              (double)lse);
                        for (int64_t c = 0; c < 5; c++) {
                            const float got = out_at(&t.p.out, 0, 0, i)[c];
                            const float want = finite_at < 0 ? 0 : in_at(&t.p.v, 0, 0, at)[c];
                            CHECK(got == want, "finite logit at %d: out %f, want %f", finite_at,
                                  (double)got, (double)want);
                        }
                        for (int64_t j = 0; j < keys; j++)
                            CHECK(out_at(&t.p.weights, 0, 0, i)[j] == (finite_at >= 0 && j == at),
                                  "weight %" PRId64 " is %f", j,
                                  (double)out_at(&t.p.weights, 0, 0, i)[j]);
                    }
                }
            }
        /* D6, second half: logits of -3e38 are finite, and equal ones give the mean. */
        float q[1] = {-3e38f}, k[3] = {1, 1, 1}, v[3] = {1, 2, 6}, out[1];
        attn_problem p = attn_problem_bhld(1, 1, 1, 1, 3, 1, 1, q, k, v, out);
        p.scale = &one;
        check_context("%s: D6", isa);
        forward(&p);
        CHECK(fabsf(out[0] - 3) < 1e-6f, "mean is %f", (double)out[0]);
    }
}

/* C8, D3, D4: NaN and +inf make their row NaN, and only that row; NaN in a value only its column,
 * also where that key's logit is -inf or its weight underflows. */
Test(contract, nan_and_infinity) {
    FOR_EACH_ISA(isa) {
        struct rng rng = {3};
        for (int64_t n = 0; n < check_count(200); n++) {
            const struct shape s = {1,
                                    2,
                                    1 + n % 2,
                                    1 + rng_below(&rng, 28),
                                    n % 10 ? 1 + rng_below(&rng, 70) : 600,
                                    4,
                                    1 + n % 37};
            struct trial t;
            trial_place(&t, s, (struct layouts){.lse = true, .weights = true});
            trial_fill(&t, KIND_NORMAL, &rng);
            for (int64_t h = 0; h < 2; h++)
                for (int64_t i = 0; i < s.q_len; i++)
                    *in_at_mutable(&t.p.q, 0, h, i) = 1; /* an infinite key keeps its sign */
            trial_context(&t, "clean");
            trial_run(&t, NULL);
            float *clean = malloc(t.out.n * sizeof(float));
            cr_assert(clean != NULL);
            memcpy(clean, t.out.data, t.out.n * sizeof(float));

            const int64_t h = rng_below(&rng, 2), i = rng_below(&rng, s.q_len);
            const int64_t j = rng_below(&rng, s.kv_cap), g = h / (2 / s.kv_heads);
            const int64_t c = rng_below(&rng, s.v_dim);
            float *q = in_at_mutable(&t.p.q, 0, h, i) + 2, was = *q;

            *q = NAN;
            trial_context(&t, "C8: NaN in one query row");
            trial_run(&t, NULL);
            for (int64_t at = 0; at < (int64_t)t.out.n; at++) {
                const bool here = at / s.v_dim == h * s.q_len + i;
                CHECK(here ? isnan(t.out.data[at]) : same_bits(t.out.data[at], clean[at]),
                      "NaN in row %" PRId64 ": output %" PRId64 " is %f", i, at,
                      (double)t.out.data[at]);
            }
            CHECK(isnan(*out_at(&t.p.lse, 0, h, i)), "lse");
            for (int64_t k = 0; k < s.kv_cap; k++)
                CHECK(isnan(out_at(&t.p.weights, 0, h, i)[k]), "weight %" PRId64, k);
            *q = was;

            float *key = in_at_mutable(&t.p.k, 0, g, j), was_key = *key;
            const float bad[] = {NAN, INFINITY};
            for (int b = 0; b < 2; b++) {
                *key = bad[b];
                trial_context(&t, b ? "D4: one logit of +inf" : "D3: one NaN key");
                trial_run(&t, NULL);
                for (int64_t at = 0; at < (int64_t)t.out.n; at++) {
                    const bool sees = at / (s.v_dim * s.q_len) / (2 / s.kv_heads) == g;
                    CHECK(sees ? isnan(t.out.data[at]) : same_bits(t.out.data[at], clean[at]),
                          "key %" PRId64 ": output %" PRId64 " is %f", j, at,
                          (double)t.out.data[at]);
                }
                CHECK(isnan(*out_at(&t.p.lse, 0, h, i)), "lse");
            }

            /* A value: with its own logit, with one of -inf, with a weight that underflows. */
            float *value = in_at_mutable(&t.p.v, 0, g, j) + c, was_value = *value;
            const float logits[] = {was_key, -INFINITY, -1e5f};
            for (int b = 0; b < (s.kv_cap > 1 ? 3 : 1); b++) {
                *key = logits[b];
                *value = was_value;
                trial_run(&t, NULL);
                memcpy(clean, t.out.data, t.out.n * sizeof(float));
                *value = NAN;
                trial_context(&t, "NaN in one value");
                trial_run(&t, NULL);
                for (int64_t at = 0; at < (int64_t)t.out.n; at++) {
                    const bool sees =
                        at / (s.v_dim * s.q_len) / (2 / s.kv_heads) == g && at % s.v_dim == c;
                    CHECK(sees ? isnan(t.out.data[at]) : same_bits(t.out.data[at], clean[at]),
                          "logit %f of key %" PRId64 ": output %" PRId64 " is %f",
                          (double)logits[b], j, at, (double)t.out.data[at]);
                }
            }
            free(clean);
        }
    }
}

/* D1 and CONTRACT 3: one visible key gives V as stored, whatever its logit; D7: large logits. */
Test(contract, one_key_and_large_logits) {
    FOR_EACH_ISA(isa) {
        struct rng rng = {4};
        for (int64_t n = 0; n < (check_quick() ? 8 : 60); n++) {
            enum { D = 64, KEYS = 520 };
            static float q[D], k[KEYS * D], v[KEYS * D], out[D];
            const float huge[] = {133120, -133120, 1e18f, 3e-39f, 0, 7916.123f};
            const float x = n < 6 ? huge[n] : 1000 * rng_normal(&rng);
            for (int c = 0; c < D; c++)
                q[c] = x;
            for (int at = 0; at < KEYS * D; at++) {
                k[at] = fabsf(x);
                v[at] = at % 13 == 5 ? -0.0f : at % 13 == 6 ? 1e-40f : rng_normal(&rng);
            }
            const int64_t one_key = 1;
            attn_problem p = attn_problem_bhld(1, 1, 1, 1, KEYS, D, D, q, k, v, out);
            p.kv_len = &one_key;
            check_context("%s: D1, q = k = %g", isa, (double)x);
            forward(&p);
            for (int c = 0; c < D; c++)
                CHECK(out[c] == v[c], "feature %d is %a, V has %a", c, (double)out[c],
                      (double)v[c]);
            /* Many equal logits of any size: the mean. */
            for (int64_t keys = 2; keys <= KEYS; keys += 259) {
                p.kv_len = &keys;
                forward(&p);
                for (int c = 0; c < D; c++) {
                    double mean = 0;
                    for (int64_t j = 0; j < keys; j++)
                        mean += v[j * D + c];
                    CHECK(fabs(out[c] - mean / (double)keys) < 1e-5,
                          "%" PRId64 " equal keys: %g, want %g", keys, (double)out[c],
                          mean / (double)keys);
                }
            }
        }
        const float logits[3][5] = {
            {8, 18, 28, 38, 48}, {1000, 0, -1000, -1000, -1000}, {88.8f, 88.8f, 0, 0, 0}};
        for (int n = 0; n < 3; n++) {
            const float q[1] = {1};
            float v[25] = {0}, out[5];
            for (int j = 0; j < 5; j++)
                v[j * 6] = 1;
            attn_problem p = attn_problem_bhld(1, 1, 1, 1, 5, 1, 5, q, logits[n], v, out);
            p.scale = &one;
            check_context("%s: D7, case %d", isa, n);
            forward(&p);
            double sum = 0;
            const double max = n == 0 ? 48 : logits[n][0];
            for (int j = 0; j < 5; j++)
                sum += exp(logits[n][j] - max);
            for (int j = 0; j < 5; j++)
                CHECK(fabs(out[j] - exp(logits[n][j] - max) / sum) <= 2e-7, "weight %d is %g", j,
                      (double)out[j]);
        }
    }
}

/* B2, B3, B6, B7, C10: with K = 0 and V the identity the output row says which keys are visible. */
static void expect_visible(attn_align align, int64_t q_len, int64_t cap, int64_t batch,
                           const int64_t *kv_len, const int64_t *offset, const int64_t *want) {
    float *q = calloc((size_t)(batch * q_len), sizeof(float));
    float *k = calloc((size_t)(batch * cap), sizeof(float));
    float *v = calloc((size_t)(batch * cap * cap), sizeof(float));
    float *out = malloc((size_t)(batch * q_len * cap) * sizeof(float));
    cr_assert(q && k && v && out);
    for (int64_t b = 0; b < batch; b++)
        for (int64_t j = 0; j < cap; j++)
            v[(b * cap + j) * cap + j] = 1;
    attn_problem p = attn_problem_bhld(batch, 1, 1, q_len, cap, 1, cap, q, k, v, out);
    p.causal = 1, p.align = align, p.kv_len = kv_len, p.offset = offset;
    forward(&p);
    for (int64_t r = 0; r < batch * q_len; r++)
        for (int64_t j = 0; j < cap; j++) {
            const float weight = j < want[r] ? 1 / (float)want[r] : 0;
            CHECK(fabsf(out[r * cap + j] - weight) <= 1e-6f,
                  "align %d, row %" PRId64 ": key %" PRId64 " has %f, want %f", (int)align, r, j,
                  (double)out[r * cap + j], (double)weight);
        }
    free(q), free(k), free(v), free(out);
}

Test(contract, causal_alignment) {
    FOR_EACH_ISA(isa) {
        check_context("%s", isa);
        expect_visible(ATTN_ALIGN_TOP_LEFT, 2, 5, 1, NULL, NULL, (int64_t[]){1, 2});
        expect_visible(ATTN_ALIGN_TOP_LEFT, 5, 2, 1, NULL, NULL, (int64_t[]){1, 2, 2, 2, 2});
        expect_visible(ATTN_ALIGN_BOTTOM_RIGHT, 2, 5, 1, NULL, NULL, (int64_t[]){4, 5});
        expect_visible(ATTN_ALIGN_BOTTOM_RIGHT, 5, 2, 1, NULL, NULL, (int64_t[]){0, 0, 0, 1, 2});
        expect_visible(ATTN_ALIGN_UNSET, 3, 3, 1, NULL, NULL, (int64_t[]){1, 2, 3});
        /* B3: the offset of each batch comes from its own length. */
        expect_visible(ATTN_ALIGN_BOTTOM_RIGHT, 2, 6, 2, (int64_t[]){2, 5}, NULL,
                       (int64_t[]){1, 2, 4, 5});
        expect_visible(ATTN_ALIGN_EXPLICIT, 3, 6, 1, NULL, (int64_t[]){3}, (int64_t[]){4, 5, 6});
        expect_visible(ATTN_ALIGN_EXPLICIT, 3, 4, 2, (int64_t[]){4, 2}, (int64_t[]){-2, 9},
                       (int64_t[]){0, 0, 1, 2, 2, 2});
        /* Offsets at the end of their range must not wrap. */
        const int64_t far = INT64_C(1) << 62;
        expect_visible(ATTN_ALIGN_EXPLICIT, 2, 3, 2, NULL, (int64_t[]){far, -far},
                       (int64_t[]){3, 3, 0, 0});
        for (int64_t start = 0; start <= 130; start += check_quick() ? 13 : 1)
            for (int64_t rows = 1; rows <= 26; rows += 1 + rows / 2) {
                int64_t want[32];
                for (int64_t i = 0; i < rows; i++)
                    want[i] = start + i + 1;
                check_context("%s: B7, start %" PRId64 ", %" PRId64 " rows", isa, start, rows);
                expect_visible(ATTN_ALIGN_EXPLICIT, rows, start + rows, 1, NULL, &start, want);
            }
        /* C10: no cache, fewer rows than keys, not causal. */
        static float q[16], k[48], v[48], out[16];
        for (int j = 0; j < 48; j++)
            v[j] = j >= 16;
        attn_problem p = attn_problem_bhld(1, 1, 1, 16, 48, 1, 1, q, k, v, out);
        check_context("%s: C10", isa);
        forward(&p);
        for (int i = 0; i < 16; i++)
            CHECK(fabsf(out[i] - 2.0f / 3) < 1e-6f, "row %d is %f", i, (double)out[i]);
    }
}

/* K1, K3, K9: which key/value head a query head reads, and that all get their lse. */
Test(contract, grouped_heads) {
    const int64_t heads[][2] = {{4, 2}, {48, 2}, {40, 2}, {80, 4}, {34, 2}, {8, 2}, {7, 1}, {5, 5}};
    FOR_EACH_ISA(isa) {
        for (size_t n = 0; n < sizeof heads / sizeof *heads; n++)
            for (int64_t keys = 1; keys <= 300; keys += check_quick() && n < 5 ? 300 : 299) {
                struct trial t;
                struct rng rng = {5};
                trial_place(&t, (struct shape){2, heads[n][0], heads[n][1], 1, keys, 4, 3},
                            (struct layouts){.lse = true});
                trial_fill(&t, KIND_NORMAL, &rng);
                for (int64_t b = 0; b < 2; b++)
                    for (int64_t g = 0; g < heads[n][1]; g++)
                        for (int64_t j = 0; j < keys; j++)
                            for (int64_t c = 0; c < 3; c++)
                                in_at_mutable(&t.p.v, b, g, j)[c] = (float)(g + 10 * b);
                trial_context(&t, "K1, K3, K9");
                trial_run(&t, NULL);
                for (int64_t b = 0; b < 2; b++)
                    for (int64_t h = 0; h < heads[n][0]; h++) {
                        const float want = (float)(h / (heads[n][0] / heads[n][1]) + 10 * b);
                        CHECK(fabsf(*out_at(&t.p.out, b, h, 0) - want) < 1e-4f,
                              "head %" PRId64 " reads %f, want %f", h,
                              (double)*out_at(&t.p.out, b, h, 0), (double)want);
                        CHECK(isfinite(*out_at(&t.p.lse, b, h, 0)), "lse of head %" PRId64, h);
                    }
            }
    }
}

/* K7, K8: the default scale comes from qk_dim itself. */
Test(contract, default_scale) {
    FOR_EACH_ISA(isa) {
        float q[80], k[160], v[2] = {1, 0}, out[1];
        for (int c = 0; c < 80; c++)
            q[c] = 1, k[c] = 0.1f, k[80 + c] = 0;
        attn_problem p = attn_problem_bhld(1, 1, 1, 1, 2, 80, 1, q, k, v, out);
        check_context("%s: K7", isa);
        forward(&p);
        CHECK(fabsf(out[0] - 0.709803f) < 1e-6f, "%f", (double)out[0]);
        const float zero = 0;
        p.scale = &zero; /* given, and not "unset" */
        forward(&p);
        CHECK(out[0] == 0.5f, "scale 0 gives %f", (double)out[0]);
    }
}

/* G2: the same tensor in another layout gives the same bits, each of q, k, v and out alone; and the
 * packed form [B, L, 3, H, D] in one buffer. G3: strides of axes of size 1 are ignored. */
Test(contract, layouts) {
    static const struct shape shapes[] = {{84, 3, 3, 3, 3, 64, 64}, {1, 16, 16, 62, 62, 128, 128}};
    FOR_EACH_ISA(isa) {
        for (size_t n = 0; n < 2; n++) {
            struct shape s = shapes[n];
            if (s.batch > MAX_BATCH)
                s.batch = MAX_BATCH;
            if (check_quick() && n == 1)
                s = (struct shape){1, 3, 3, 9, 9, 16, 16};
            const int64_t rows = s.batch * s.q_heads * s.q_len;
            float *want = malloc((size_t)(rows * s.v_dim) * sizeof(float));
            cr_assert(want != NULL);
            for (int which = 0; which <= 4; which++)
                for (enum layout layout = BLHD; layout < N_LAYOUTS; layout++) {
                    struct layouts how = {.side = AT_END};
                    *(which == 1   ? &how.q
                      : which == 2 ? &how.k
                      : which == 3 ? &how.v
                                   : &how.out) = which ? layout : BHLD;
                    struct trial t;
                    struct rng rng = {6};
                    trial_place(&t, s, how);
                    trial_fill(&t, KIND_NORMAL, &rng);
                    trial_context(&t, "G2");
                    trial_run(&t, NULL);
                    if (which == 0)
                        memcpy(want, t.out.data, t.out.n * sizeof(float));
                    for (int64_t r = 0; r < rows; r++)
                        CHECK(first_difference(out_at(&t.p.out, r / s.q_len / s.q_heads,
                                                      r / s.q_len % s.q_heads, r % s.q_len),
                                               want + r * s.v_dim, s.v_dim) < 0,
                              "tensor %d in layout %d: row %" PRId64 " differs", which, (int)layout,
                              r);
                    if (which == 0)
                        break;
                }
            free(want);
        }

        enum { B = 2, L = 9, H = 3, D = 5 };
        static float qkv[B * L * 3 * H * D], out[B * L * H * D], apart[3][B * H * L * D];
        static float want[B * H * L * D];
        struct rng rng = {8};
        for (int at = 0; at < B * L * 3 * H * D; at++) {
            qkv[at] = rng_normal(&rng);
            const int c = at % D, h = at / D % H, which = at / D / H % 3, l = at / D / H / 3 % L;
            apart[which][(((at / D / H / 3 / L) * H + h) * L + l) * D + c] = qkv[at];
        }
        attn_problem p = attn_problem_bhld(B, H, H, L, L, D, D, apart[0], apart[1], apart[2], want);
        p.causal = 1;
        check_context("%s: packed QKV", isa);
        forward(&p);
        attn_input *inputs[3] = {&p.q, &p.k, &p.v};
        for (int i = 0; i < 3; i++)
            *inputs[i] = (attn_input){qkv + i * H * D, ATTN_F32, L * 3 * H * D, D, 3 * H * D};
        p.out = (attn_output){out, ATTN_F32, L * H * D, D, H * D};
        forward(&p);
        for (int at = 0; at < B * L * H * D; at++) {
            const int c = at % D, h = at / D % H, l = at / D / H % L, b = at / D / H / L;
            CHECK(same_bits(out[at], want[((b * H + h) * L + l) * D + c]), "output %d", at);
        }

        const int64_t wild[] = {INT64_C(1) << 40, -7, INT64_MAX, INT64_MIN, 0};
        for (int w = 0; w < 5; w++) {
            float q[3] = {1, 2, 3}, k[3] = {1, 0, 1}, v[2] = {5, 6}, got[2], lse, weight;
            attn_problem g3 = attn_problem_bhld(1, 1, 1, 1, 1, 3, 2, q, k, v, got);
            g3.lse.data = &lse, g3.weights.data = &weight;
            attn_input *in[3] = {&g3.q, &g3.k, &g3.v};
            attn_output *to[3] = {&g3.out, &g3.lse, &g3.weights};
            for (int i = 0; i < 3; i++) {
                in[i]->stride_batch = in[i]->stride_head = in[i]->stride_token = wild[w];
                to[i]->stride_batch = to[i]->stride_head = to[i]->stride_token = wild[w];
            }
            check_context("%s: G3, stride %" PRId64, isa, wild[w]);
            forward(&g3);
            CHECK(got[0] == 5 && got[1] == 6 && weight == 1, "%f %f weight %f", (double)got[0],
                  (double)got[1], (double)weight);
        }
    }
}

/* H2: pointers aligned to 4 bytes only, odd row strides. */
Test(contract, element_alignment) {
    FOR_EACH_ISA(isa) {
        for (int shift = 0; shift < 16; shift++) {
            enum { L = 21, D = 17 };
            static _Alignas(64) float q[L * D + 16], k[L * D + 16], v[L * D + 16];
            static _Alignas(64) float out[L * D + 16], want[L * D];
            struct rng rng = {9};
            for (int at = 0; at < L * D; at++) {
                q[shift + at] = rng_normal(&rng);
                k[15 - shift + at] = rng_normal(&rng);
                v[shift / 2 + at] = rng_normal(&rng);
            }
            attn_problem p = attn_problem_bhld(1, 1, 1, L, L, D, D, q + shift, k + 15 - shift,
                                               v + shift / 2, out + (shift * 7) % 16);
            check_context("%s: H2, shift %d", isa, shift);
            forward(&p);
            if (shift == 0)
                memcpy(want, out, sizeof want);
            CHECK(first_difference(out + (shift * 7) % 16, want, L * D) < 0, "other bits");
        }
    }
}

/* J4, J6: strides of 2^30 elements and of more than 2^31 for each tensor in turn, in memory that is
 * never touched in between; J7: 70,000 rows. */
Test(contract, strides_beyond_32_bits) {
    struct trial t;
    struct rng rng = {10};
    const struct shape s = {2, 2, 2, 2, 3, 4, 4};
    FOR_EACH_ISA(isa) {
        for (int which = 0; which < 6; which++)
            for (int axis = 0; axis < 3; axis++)
                for (int wide = check_quick(); wide < 2; wide++) {
                    const int64_t stride = wide ? (INT64_C(1) << 31) + 8 : INT64_C(1) << 30;
                    trial_place(&t, s, (struct layouts){.lse = true, .weights = true});
                    trial_fill(&t, KIND_NORMAL, &rng);
                    trial_context(&t, "J6");
                    trial_run(&t, NULL);
                    const size_t bytes = (size_t)stride * 4 + 4096;
                    char *sparse = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
                    if (sparse == MAP_FAILED) {
                        check_say("skipped: J6, no address space of %zu bytes here", bytes);
                        return;
                    }
                    attn_problem p = t.p;
                    attn_input *in = which == 0 ? &p.q : which == 1 ? &p.k : &p.v;
                    const attn_input *from = which == 0 ? &t.p.q : which == 1 ? &t.p.k : &t.p.v;
                    attn_output *to = which == 3 ? &p.out : which == 4 ? &p.lse : &p.weights;
                    const attn_output *had = which == 3   ? &t.p.out
                                             : which == 4 ? &t.p.lse
                                                          : &t.p.weights;
                    int64_t strides[3] = {64, 16, 4};
                    strides[axis] = stride;
                    const int64_t tokens = which == 1 || which == 2 ? 3 : 2;
                    const int64_t n = which == 4 ? 1 : which == 5 ? 3 : 4;
                    if (axis == 2 && tokens == 3)
                        strides[2] = stride / 2; /* 3 tokens are two strides apart */
                    if (which < 3)
                        *in = (attn_input){sparse, ATTN_F32, strides[0], strides[1], strides[2]};
                    else
                        *to = (attn_output){sparse, ATTN_F32, strides[0], strides[1], strides[2]};
                    for (int64_t b = 0; which < 3 && b < 2; b++)
                        for (int64_t h = 0; h < 2; h++)
                            for (int64_t i = 0; i < tokens; i++)
                                memcpy(in_at_mutable(in, b, h, i), in_at(from, b, h, i),
                                       (size_t)n * sizeof(float));
                    float *plain_out = malloc(t.out.n * sizeof(float));
                    cr_assert(plain_out != NULL);
                    memcpy(plain_out, t.out.data, t.out.n * sizeof(float));
                    check_context("%s: J6, tensor %d, axis %d, stride %" PRId64, isa, which, axis,
                                  strides[axis]);
                    forward(&p);
                    if (which < 3)
                        CHECK(first_difference(plain_out, t.out.data, (int64_t)t.out.n) < 0,
                              "wrong data read");
                    for (int64_t b = 0; which >= 3 && b < 2; b++)
                        for (int64_t h = 0; h < 2; h++)
                            for (int64_t i = 0; i < 2; i++)
                                CHECK(first_difference(out_at(to, b, h, i), out_at(had, b, h, i),
                                                       n) < 0,
                                      "wrong place written");
                    free(plain_out);
                    munmap(sparse, bytes);
                }
    }

    const int64_t rows = check_quick() ? 66000 : 70000;
    FOR_EACH_ISA(isa) {
        trial_place(&t, (struct shape){1, 1, 1, rows, 2, 1, 1}, (struct layouts){.lse = true});
        trial_fill(&t, KIND_NORMAL, &rng);
        trial_context(&t, "J7");
        trial_run(&t, NULL);
        for (int64_t i = check_quick() ? rows - 1000 : 0; i < rows; i++) {
            const double a = t.q.data[i] * (double)t.k.data[0],
                         b = t.q.data[i] * (double)t.k.data[1];
            const double w = 1 / (1 + exp(b - a));
            const double want = w * t.v.data[0] + (1 - w) * t.v.data[1];
            CHECK(fabs(t.out.data[i] - want) < 1e-5, "row %" PRId64 " is %f, want %f", i,
                  (double)t.out.data[i], want);
        }
    }
}

/* L1, L9: each size 0 in turn, with and without causal: no signal, and nothing written, lse
 * included, but where only the keys are missing. Empty tensors may be null. */
Test(contract, sizes_of_zero) {
    FOR_EACH_ISA(isa) {
        for (int which = 0; which < 8; which++)
            for (int causal = 0; causal < 2; causal++)
                for (int is_null = 0; is_null < 2; is_null++) {
                    float x[64] = {0}, out[64], lse[64], weights[64];
                    memset(out, 0xab, sizeof out);
                    memset(lse, 0xab, sizeof lse);
                    memset(weights, 0xab, sizeof weights);
                    attn_problem p = attn_problem_bhld(1, 2, 2, 2, 3, 4, 4, x, x, x, out);
                    int64_t *sizes[] = {&p.batch,  &p.q_heads, &p.q_len,    &p.v_dim,
                                        &p.kv_cap, &p.qk_dim,  &p.kv_heads, &p.q_heads};
                    *sizes[which] = 0;
                    if (which == 7)
                        p.kv_heads = 0;
                    p.causal = causal;
                    p.align = causal ? ATTN_ALIGN_TOP_LEFT : ATTN_ALIGN_UNSET;
                    const bool no_work = which < 4 || which == 7;
                    if (is_null && no_work)
                        p.out.data = NULL;
                    if (is_null && (which < 4 && which != 1 && which != 3))
                        p.q.data = NULL;
                    if (is_null && which == 4)
                        p.k.data = p.v.data = NULL;
                    if (is_null && which == 3)
                        p.v.data = NULL;
                    p.lse = (attn_output){lse, ATTN_F32, 4, 2, 1};
                    p.weights = (attn_output){weights, ATTN_F32, 12, 6, 3};
                    char workspace[16384], sentence[256];
                    check_context("%s: size %d is 0, causal %d, null %d", isa, which, causal,
                                  is_null);
                    const attn_status checked = attn_check(&p, sentence, sizeof sentence);
                    const attn_status status = attn_forward(&p, workspace, sizeof workspace, NULL);
                    size_t size = 1;
                    const attn_status sized = attn_workspace_size(&p, 1, &size);
                    const attn_status want = which == 5 || which == 6 ? ATTN_ERROR_SIZE : ATTN_OK;
                    CHECK(status == want && checked == want && sized == want,
                          "forward: %s; check: %s (%s); size: %s", attn_status_string(status),
                          attn_status_string(checked), sentence, attn_status_string(sized));
                    if (no_work) {
                        CHECK(attn_forward(&p, NULL, 0, NULL) == ATTN_OK, "needs a workspace");
                        struct reverse_executor e = reverse_executor(3);
                        CHECK(attn_forward(&p, NULL, 0, &e.base) == ATTN_OK, "with an executor");
                    }
                    for (int k = 0; k < 64; k++) {
                        const bool is_written = which == 4 && k < 16;
                        CHECK(is_written ? out[k] == 0 : bits_of(out[k]) == 0xabababab,
                              "out %d is %f", k, (double)out[k]);
                        CHECK(which == 4 && k < 4 ? lse[k] == -INFINITY
                                                  : bits_of(lse[k]) == 0xabababab,
                              "lse %d is %f", k, (double)lse[k]);
                        CHECK(bits_of(weights[k]) == 0xabababab, "weight %d was written", k);
                    }
                }
        /* Sizes of 0 beside sizes whose product would overflow. */
        attn_problem p = attn_problem_bhld(0, INT64_C(1) << 40, 1, INT64_C(1) << 40, 3, 4, 4, NULL,
                                           NULL, NULL, NULL);
        check_context("%s: batch 0, huge otherwise", isa);
        const attn_status status = attn_forward(&p, NULL, 0, NULL);
        CHECK(status == ATTN_OK || status == ATTN_ERROR_OVERFLOW, "%s", attn_status_string(status));
    }
}
