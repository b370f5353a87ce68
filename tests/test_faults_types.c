/* Faults seen in public attention kernels, with other storage types than f32, paged caches and
 * appending: see faults.h.
 *
 * SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/oracle.h"
#include "faults.h"
#include "half.h"

/* One head of one batch, whose tensors are all of one type (int8: k and v) and contiguous. */
enum { ROOM = 1 << 17 };
static union {
    float f32[ROOM];
    uint16_t half[ROOM];
    int8_t i8[ROOM];
} memory[4];
static float scales[2][ROOM / 8];

static attn_problem problem_of(attn_type type, int64_t q_len, int64_t keys, int64_t dim,
                               int64_t v_dim) {
    attn_problem p = attn_problem_bhld(1, 1, 1, q_len, keys, dim, v_dim, memory[0].f32,
                                       memory[1].f32, memory[2].f32, memory[3].f32);
    p.q.type = p.k.type = p.v.type = p.out.type = type;
    p.scale = &one;
    return p;
}

static void put(const attn_input *t, int64_t at, float x) {
    if (t->type == ATTN_F32)
        ((float *)(uintptr_t)t->data)[at] = x;
    else
        ((uint16_t *)(uintptr_t)t->data)[at] =
            t->type == ATTN_F16 ? f16_of_float(x) : bf16_of_float(x);
}

static double out_of(const attn_problem *p, int64_t at) {
    return oracle_load(p->out.type, p->out.data, at);
}

#define FOR_EACH_FLOAT(type)                                                                       \
    for (attn_type type = ATTN_F32; type <= ATTN_BF16; type = (attn_type)(type + 1))

/* ---- E: half precision ----------------------------------------------------------------------- */

/* The last of 33 features is no half-precision product. */
Test(faults, E2_tail_in_f32) {
    const float scale = 1.0f / 256;
    FOR_EACH_FLOAT(type)
    FOR_EACH_ISA(isa)
    for (int64_t dim = 1; dim <= 70; dim++) {
        attn_problem p = problem_of(type, 1, 2, dim, 1);
        memset(memory, 0, sizeof memory[0] * 3);
        p.scale = &scale;
        put(&p.q, dim - 1, 256);
        put(&p.k, dim - 1, 256);
        put(&p.v, 0, 1), put(&p.v, 1, 5);
        check_context("%s type %d dim %d", isa, (int)type, (int)dim);
        forward(&p);
        CHECK(out_of(&p, 0) == 1, "%g", out_of(&p, 0));
    }
}

/* A dot product of 73728 is beyond f16. */
Test(faults, E3_scores_beyond_f16) {
    FOR_EACH_FLOAT(type)
    FOR_EACH_ISA(isa)
    for (int64_t keys = 1; keys <= 40; keys++)
        for (int64_t rows = 1; rows <= 20; rows += 19) {
            attn_problem p = problem_of(type, rows, keys, 512, 5);
            for (int64_t i = 0; i < rows * 512; i++)
                put(&p.q, i, 12);
            for (int64_t i = 0; i < keys * 512; i++)
                put(&p.k, i, 12);
            for (int64_t i = 0; i < keys * 5; i++)
                put(&p.v, i, 3);
            check_context("%s type %d, %d keys, %d rows", isa, (int)type, (int)keys, (int)rows);
            forward(&p);
            for (int64_t i = 0; i < rows * 5; i++)
                CHECK(fabs(out_of(&p, i) - 3) <= 3e-6, "%g", out_of(&p, i));
        }
}

/* Scores spread over 0 .. 60 keep the precision of f32: the bound of attn.h, which has no term for
 * f16 inputs, and for bf16 as well. */
Test(faults, E4_scores_and_weights_in_f32) {
    struct rng rng = {21};
    for (attn_type type = ATTN_F16; type <= ATTN_BF16; type = (attn_type)(type + 1)) {
        struct trial t;
        trial_place(&t, (struct shape){1, 2, 1, 3, 2048, 64, 32},
                    (struct layouts){.lse = true, .weights = true});
        trial_fill(&t, KIND_NORMAL, &rng);
        for (int64_t i = 0; i < 2 * 3 * 64; i++)
            t.q.data[i] = i % 64 ? 0 : 8;
        for (int64_t j = 0; j < 2048; j++)
            t.k.data[64 * j] = (float)(60 * rng_uniform(&rng));
        t.scale = 0.125f, t.p.scale = &t.scale;
        trial_store(&t, (struct storage){.q = type, .k = type, .v = type}, &rng);
        trial_on_every_isa(&t);
    }
}

Test(faults, E6_rounding_of_bf16) {
    static const struct {
        uint32_t v;
        uint16_t out;
    } cases[] = {{0x3e89ccd5, 0x3e8a}, {0x3f808000, 0x3f80}, {0x3f818000, 0x3f82},
                 {0x7f7fffff, 0x7f80}, {0xbf808001, 0xbf81}, {0x80000001, 0x8000}};
    FOR_EACH_ISA(isa)
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++)
        for (int64_t v_dim = 1; v_dim <= 40; v_dim++) {
            attn_problem p = problem_of(ATTN_F32, 1, 1, 3, v_dim);
            memset(memory, 0, sizeof memory[0] * 2);
            for (int64_t c = 0; c < v_dim; c++)
                put(&p.v, c, float_of(cases[n].v));
            p.out.type = ATTN_BF16;
            check_context("%s %08x, %d values", isa, (unsigned)cases[n].v, (int)v_dim);
            forward(&p);
            for (int64_t c = 0; c < v_dim; c++) /* -0 may become +0 */
                CHECK(memory[3].half[c] == cases[n].out ||
                          (cases[n].out == 0x8000 && !memory[3].half[c]),
                      "%04x, want %04x", (unsigned)memory[3].half[c], (unsigned)cases[n].out);
        }
}

/* 70000 becomes infinity, appended or as a result. */
Test(faults, E7_beyond_the_largest_f16) {
    const float x[] = {70000, -70000, 65520, 65519.996f, 65504, -65504};
    const uint16_t want[] = {0x7c00, 0xfc00, 0x7c00, 0x7bff, 0x7bff, 0xfbff};
    uint16_t cache[6];
    const int64_t slot = 0;
    const attn_input tokens = {x, ATTN_F32, 0, 6, 6};
    const attn_cache c = {.data = cache, .type = ATTN_F16, .n_pages = 1, .page_len = 1};
    check_context("append");
    CHECK(attn_append(&tokens, 1, 1, 6, &slot, &c) == ATTN_OK, "fails");
    CHECK(memcmp(cache, want, sizeof want) == 0, "other halves");
    FOR_EACH_ISA(isa)
    for (int64_t v_dim = 1; v_dim <= 40; v_dim++) {
        attn_problem p = problem_of(ATTN_F32, 1, 1, 1, v_dim);
        memset(memory, 0, sizeof memory[0] * 2);
        for (int64_t i = 0; i < v_dim; i++)
            put(&p.v, i, x[i % 6]);
        p.out.type = ATTN_F16;
        check_context("%s, %d values", isa, (int)v_dim);
        forward(&p);
        for (int64_t i = 0; i < v_dim; i++)
            CHECK(memory[3].half[i] == want[i % 6], "value %d is %04x", (int)i,
                  (unsigned)memory[3].half[i]);
    }
}

/* Every number of columns, each with a value of its own. */
Test(faults, E8_columns_of_a_tail) {
    FOR_EACH_FLOAT(type)
    FOR_EACH_ISA(isa)
    for (int64_t v_dim = 1; v_dim <= 71; v_dim++)
        for (int64_t rows = 1; rows <= 13; rows += 12) {
            attn_problem p = problem_of(type, rows, v_dim, 1, v_dim);
            memset(memory, 0, sizeof memory[0] * 3);
            for (int64_t j = 0; j < v_dim; j++)
                put(&p.v, j * v_dim + j,
                    (float)(v_dim * (1 + j % 7))); /* one key has this column */
            check_context("%s type %d v_dim %d", isa, (int)type, (int)v_dim);
            forward(&p);
            for (int64_t i = 0; i < rows * v_dim; i++)
                CHECK(fabs(out_of(&p, i) / (double)(1 + i % v_dim % 7) - 1) <= 0.01,
                      "column %d is %g", (int)(i % v_dim), out_of(&p, i));
        }
}

/* ---- F: int8 keys and values ----------------------------------------------------------------- */

/* A row of a cache of one page, in groups, and how far it is from x in units of the scale. */
static double round_trip(const float *x, int64_t dim, int64_t group, float *back) {
    static int8_t data[512];
    static float scale[512];
    const int64_t slot = 0;
    const attn_input tokens = {x, ATTN_F32, 0, dim, dim};
    const attn_cache cache = {.data = data,
                              .type = ATTN_I8,
                              .n_pages = 1,
                              .page_len = 1,
                              .scales = scale,
                              .scale_group = group};
    CHECK(attn_append(&tokens, 1, 1, dim, &slot, &cache) == ATTN_OK, "fails");
    double worst = 0;
    for (int64_t c = 0; c < dim; c++) {
        const float s = scale[group ? c / group : 0];
        back[c] = data[c] * s;
        const double error = fabs((double)back[c] - x[c]);
        worst = fmax(worst, s > 0 ? error / s : error > 0 ? INFINITY : 0);
    }
    return worst;
}

Test(faults, F1_largest_at_any_index) {
    const int64_t groups[] = {0, 16, 32, 5};
    for (int64_t n = 16; n <= 67; n++)
        for (int64_t i = 0; i < n; i++)
            for (int k = 0; k < 8; k++) {
                float x[67] = {0}, back[67];
                x[i] = k % 2 ? -100 : 100;
                check_context("%g at %d of %d, group %d", (double)x[i], (int)i, (int)n,
                              (int)groups[k / 2]);
                const double worst = round_trip(x, n, groups[k / 2], back);
                CHECK(worst <= 0.5, "%g units", worst);
                CHECK(fabsf(back[i] - x[i]) < 1e-5f, "comes back as %g", (double)back[i]);
            }
}

Test(faults, F2_constant_rows) {
    const float constants[] = {0, 100, -3.5f, 1e-30f, 3e38f, 0x1p-126f * 127, 0.1f};
    for (size_t n = 0; n < sizeof constants / sizeof *constants; n++)
        for (int64_t dim = 1; dim <= 67; dim++) {
            float x[67], back[67];
            for (int64_t c = 0; c < dim; c++)
                x[c] = c % 2 && n == 6 ? nextafterf(constants[n], 1) : constants[n];
            check_context("%g, %d times", (double)constants[n], (int)dim);
            round_trip(x, dim, 0, back);
            for (int64_t c = 0; c < dim; c++)
                CHECK(fabsf(back[c] - x[c]) <= 1e-3f * fabsf(x[c]), "comes back as %g",
                      (double)back[c]);
        }
    /* Attention over such keys, all equal, is finite: the mean of the values. */
    FOR_EACH_ISA(isa)
    for (size_t n = 0; n < 4; n++) {
        attn_problem p = problem_of(ATTN_F32, 3, 40, 8, 4);
        memset(memory, 0, sizeof memory);
        for (int64_t i = 0; i < 3 * 8; i++)
            put(&p.q, i, 0.5f);
        float row[8];
        for (int c = 0; c < 8; c++)
            row[c] = constants[n];
        for (int64_t j = 0; j < 40; j++) {
            const attn_input token = {row, ATTN_F32, 0, 8, 8};
            const attn_cache cache = {.data = memory[1].i8,
                                      .type = ATTN_I8,
                                      .stride_token = 8,
                                      .n_pages = 1,
                                      .page_len = 40,
                                      .scales = scales[0],
                                      .scale_stride_token = 1};
            CHECK(attn_append(&token, 1, 1, 8, &j, &cache) == ATTN_OK, "fails");
            for (int c = 0; c < 4; c++)
                put(&p.v, 4 * j + c, (float)j);
        }
        p.k.type = ATTN_I8;
        p.k_scales = (attn_scales){scales[0], 0, 0, 0, 1};
        check_context("%s: keys of %g", isa, (double)constants[n]);
        forward(&p);
        for (int i = 0; i < 12; i++)
            CHECK(fabs(out_of(&p, i) - 19.5) <= 1e-4, "%g", out_of(&p, i));
    }
}

/* Pairs of products that 16 bits cannot hold: 32 times 127 * 127, and 127 * -128. */
Test(faults, F3_no_saturation) {
    const struct { int q, k; } cases[] = {{127, 127}, {127, -128}, {-128, -128}};
    FOR_EACH_FLOAT(type)
    FOR_EACH_ISA(isa)
    for (size_t n = 0; n < 3; n++)
        for (int64_t rows = 1; rows <= 20; rows += 19)
            for (int64_t dim = 32; dim <= 256; dim *= 2) {
                static float scores[20 * 17];
                attn_problem p = problem_of(type, rows, 17, dim, 1);
                p.k.type = ATTN_I8;
                scales[0][0] = 1, p.k_scales = (attn_scales){scales[0], 0, 0, 0, 0};
                p.scores = (attn_output){scores, ATTN_F32, 0, 0, 17};
                for (int64_t i = 0; i < rows * dim; i++)
                    put(&p.q, i, (float)cases[n].q);
                memset(memory[1].i8, cases[n].k, (size_t)(17 * dim));
                memset(&memory[2], 0, sizeof memory[2]);
                check_context("%s type %d: %d * %d, dim %d, %d rows", isa, (int)type, cases[n].q,
                              cases[n].k, (int)dim, (int)rows);
                forward(&p);
                for (int64_t i = 0; i < rows * 17; i++)
                    CHECK(scores[i] == (float)((int64_t)cases[n].q * cases[n].k * dim), "%.9g",
                          (double)scores[i]);
            }
}

/* One cache and query on every set. */
Test(faults, F5_every_set_agrees) {
    struct rng rng = {22};
    const int64_t dims[] = {64, 80, 128};
    for (int n = 0; n < 12; n++) {
        struct trial t;
        trial_place(&t, (struct shape){1, 4, 2, n / 3 % 2 ? 1 : 20, 300, dims[n % 3], dims[n % 3]},
                    (struct layouts){.lse = true});
        trial_fill(&t, KIND_NORMAL, &rng);
        trial_store(&t, (struct storage){.k = ATTN_I8, .v = ATTN_I8, .k_group = n < 6 ? 0 : 32},
                    &rng);
        /* Sets that round queries to int8 agree among themselves. */
        float first[2][4 * 20 * 128];
        bool is_first[2] = {true, true};
        FOR_EACH_ISA(isa) {
            const int kind = oracle_arithmetic(&t.p, isa) != 0;
            trial_context(&t, "every set");
            trial_run(&t, NULL);
            for (size_t i = 0; i < t.out.n; i++)
                CHECK(is_first[kind] || fabsf(t.out.data[i] - first[kind][i]) <= 1e-5f,
                      "%zu: %g, %g", i, (double)t.out.data[i], (double)first[kind][i]);
            if (is_first[kind])
                memcpy(first[kind], t.out.data, t.out.n * sizeof(float));
            is_first[kind] = false;
        }
        trial_on_every_isa(&t);
    }
}

/* The type, group and scales of k are not those of v. */
Test(faults, F6_types_of_keys_and_values) {
    struct rng rng = {23};
    for (int n = 0; n < 16; n++)
        for (int64_t rows = 1; rows <= 20; rows += 19) {
            struct trial t;
            trial_place(&t, (struct shape){2, 4, 2, rows, 100, 24, 40},
                        (struct layouts){.lse = true});
            trial_fill(&t, KIND_NORMAL, &rng);
            const struct storage how = {.k = (attn_type)(n % 4),
                                        .v = (attn_type)(n / 4),
                                        .k_group = 8,
                                        .v_group = 20,
                                        .scales = BLHD};
            trial_store(&t, how, &rng);
            trial_on_every_isa(&t);
        }
}

/* Three tokens of one sequence, then a batch of four in the same memory, as in fresh memory. */
Test(faults, F7_growing_batch) {
    struct rng rng = {24};
    enum { DIM = 20, CAP = 3, GROUPS = 3 };
    float tokens[4 * CAP * DIM], fresh[4 * DIM], used[4 * DIM], q[4 * DIM];
    static int8_t data[2][4 * CAP * DIM];
    static float of[2][4 * CAP * GROUPS];
    for (int i = 0; i < 4 * CAP * DIM; i++)
        tokens[i] = rng_normal(&rng);
    for (int i = 0; i < 4 * DIM; i++)
        q[i] = rng_normal(&rng);
    memset(data, 0xff, sizeof data);
    memset(of, 0xff, sizeof of);
    for (int n = 0; n < 3; n++) { /* one sequence in the first, then four in the first and second */
        const int at = n == 2, batch = n == 0 ? 1 : 4;
        const attn_input input = {tokens, ATTN_F32, 0, DIM, DIM};
        const attn_cache cache = {.data = data[at],
                                  .type = ATTN_I8,
                                  .stride_page = CAP * DIM,
                                  .stride_token = DIM,
                                  .n_pages = batch,
                                  .page_len = CAP,
                                  .scales = of[at],
                                  .scale_group = 8,
                                  .scale_stride_page = CAP * GROUPS,
                                  .scale_stride_token = GROUPS};
        int64_t slots[4 * CAP];
        for (int i = 0; i < 4 * CAP; i++)
            slots[i] = i;
        CHECK(attn_append(&input, batch * CAP, 1, DIM, slots, &cache) == ATTN_OK, "fails");
        attn_problem p =
            attn_problem_bhld(batch, 1, 1, 1, CAP, DIM, DIM, q, NULL, NULL, at ? fresh : used);
        p.k = p.v = (attn_input){data[at], ATTN_I8, CAP * DIM, 0, DIM};
        p.k_scales = p.v_scales = (attn_scales){of[at], 8, CAP * GROUPS, 0, GROUPS};
        forward(&p);
    }
    CHECK(memcmp(data[0], data[1], sizeof data[0]) == 0 && memcmp(of[0], of[1], sizeof of[0]) == 0,
          "other caches");
    CHECK(first_difference(fresh, used, 4 * DIM) < 0, "other results");
}

/* Key counts, heads in a group and rows that reach every path. */
Test(faults, F9_any_path, .timeout = 3600) {
    struct rng rng = {25};
    const int64_t groups[] = {1, 2, 6, 8}, rows[] = {1, 2, 8, 33};
    for (int64_t n = 0; n < check_count(160); n++) {
        struct trial t;
        const int64_t group = groups[n % 4];
        trial_place(&t,
                    (struct shape){1, 2 * group, 2, rows[n / 4 % 4], 1 + rng_below(&rng, 300),
                                   1 + rng_below(&rng, 40), 1 + rng_below(&rng, 40)},
                    (struct layouts){.lse = true});
        trial_fill(&t, n % 3 ? KIND_NORMAL : KIND_ONE_HUGE, &rng);
        trial_store(&t, (struct storage){.k = ATTN_I8, .v = n % 2 ? ATTN_I8 : ATTN_F32}, &rng);
        trial_on_every_isa(&t);
    }
}

/* Dims that no block divides, the cache ending at a page that must not be touched. */
Test(faults, F11_odd_dims_at_guard_pages) {
    struct rng rng = {26};
    const int64_t dims[] = {1, 31, 33, 40, 72, 80, 100, 127};
    for (int n = 0; n < 16; n++) {
        const int64_t dim = dims[n / 2], groups = (dim + 31) / 32;
        const enum side side = n % 2 ? AT_END : AT_START;
        int8_t *data = guarded(SLOT_OTHER, (size_t)(3 * dim), side);
        float *of = guarded_floats(SLOT_OTHER + 1, (size_t)(3 * groups), side);
        float *x = guarded_floats(SLOT_OTHER + 2, (size_t)(3 * dim), side);
        for (int64_t i = 0; i < 3 * dim; i++)
            x[i] = rng_normal(&rng);
        const int64_t slots[3] = {2, 0, 1};
        const attn_input tokens = {x, ATTN_F32, 0, dim, dim};
        const attn_cache cache = {.data = data,
                                  .type = ATTN_I8,
                                  .stride_token = dim,
                                  .n_pages = 1,
                                  .page_len = 3,
                                  .scales = of,
                                  .scale_group = 32,
                                  .scale_stride_token = groups};
        check_context("dim %d side %d", (int)dim, (int)side);
        CHECK(attn_append(&tokens, 3, 1, dim, slots, &cache) == ATTN_OK, "fails");
        for (int64_t i = 0; i < 3 * dim; i++) {
            const int64_t slot = slots[i / dim], c = i % dim;
            const float scale = of[slot * groups + c / 32];
            CHECK(fabsf(data[slot * dim + c] * scale - x[i]) <= 0.501f * scale, "%g", (double)x[i]);
        }
    }
}

/* ---- C, I and L: caches and outputs ---------------------------------------------------------- */

/* Pages as long as a tile, and shorter: what follows the last key in its page may be anything. */
Test(faults, C6_rows_after_the_current_one) {
    struct rng rng = {27};
    const int64_t page_lens[] = {16, 32, 64, 512}, positions[] = {4, 8, 15, 16, 24, 62, 510};
    for (attn_type type = ATTN_F32; type <= ATTN_I8; type = (attn_type)(type + 1))
        for (int n = 0; n < 28; n++) {
            struct trial t;
            trial_place(&t, (struct shape){1, 4, 2, 1 + n % 2, 600, 16, 16},
                        (struct layouts){.lse = true});
            trial_fill(&t, KIND_NORMAL, &rng);
            t.kv_len[0] = positions[n / 4] + 1, t.p.kv_len = t.kv_len;
            t.p.causal = 1, t.p.align = ATTN_ALIGN_BOTTOM_RIGHT;
            const struct storage how = {.k = type, .v = type, .page_len = page_lens[n % 4]};
            trial_store(&t, how, &rng);
            float before[4 * 2 * 16];
            FOR_EACH_ISA(isa) {
                for (int fill = 0; fill < 4; fill++) {
                    const float anything[] = {1e3f, NAN, INFINITY, 0};
                    const int64_t end = (t.kv_len[0] + how.page_len - 1) / how.page_len;
                    for (int64_t j = t.kv_len[0]; j < end * how.page_len && j < 600; j++)
                        for (int64_t g = 0; g < 2; g++) {
                            const struct place at[2] = {key_place(&t.p, 0, g, j),
                                                        value_place(&t.p, 0, g, j)};
                            for (int k = 0; k < 2; k++)
                                for (int c = 0; c < 16; c++) {
                                    const attn_input row = {at[k].at, type, 0, 0, 0};
                                    if (type == ATTN_I8)
                                        at[k].scales[0] = anything[fill], at[k].at[c] = 99;
                                    else
                                        put(&row, c, anything[fill]);
                                }
                        }
                    trial_context(&t, "rows after the current one");
                    trial_run(&t, NULL);
                    CHECK(!fill || first_difference(before, t.out.data, (int64_t)t.out.n) < 0,
                          "what follows shows");
                    memcpy(before, t.out.data, t.out.n * sizeof(float));
                }
            }
        }
}

/* Two sequences of 3 and 7 tokens and one more each: appended to a cache that holds NaN, or as past
 * and new. */
Test(faults, C9_past_and_present) {
    struct rng rng = {28};
    enum { CAP = 8, DIM = 12, HEADS = 2 };
    static float q[2 * HEADS * DIM], past[2][2 * HEADS * 7 * DIM], now[2][2 * HEADS * DIM];
    static float present[2][2 * HEADS * CAP * DIM], out[2][2 * HEADS * DIM];
    const int64_t past_len[2] = {3, 7}, kv_len[2] = {4, 8};
    float *const all[] = {q, past[0], past[1], now[0], now[1]};
    const size_t sizes[] = {sizeof q, sizeof past[0], sizeof past[1], sizeof now[0], sizeof now[1]};
    for (int k = 0; k < 5; k++)
        for (size_t i = 0; i < sizes[k] / sizeof(float); i++)
            all[k][i] = rng_normal(&rng);
    memset(present, 0xff, sizeof present);
    for (int side = 0; side < 2; side++) {
        const attn_cache cache = {.data = present[side],
                                  .stride_page = HEADS * CAP * DIM,
                                  .stride_head = CAP * DIM,
                                  .stride_token = DIM,
                                  .n_pages = 2,
                                  .page_len = CAP};
        for (int64_t b = 0; b < 2; b++) {
            int64_t slots[7];
            for (int64_t i = 0; i < 7; i++)
                slots[i] = i < past_len[b] ? b * CAP + i : -1;
            const attn_input before = {past[side] + b * HEADS * 7 * DIM, ATTN_F32, 0, 7 * DIM, DIM};
            const attn_input one_more = {now[side] + b * HEADS * DIM, ATTN_F32, 0, DIM, 0};
            const int64_t slot = b * CAP + past_len[b];
            CHECK(attn_append(&before, 7, HEADS, DIM, slots, &cache) == ATTN_OK, "past");
            CHECK(attn_append(&one_more, 1, HEADS, DIM, &slot, &cache) == ATTN_OK, "new");
            for (int64_t h = 0; h < HEADS; h++) {
                const float *row = present[side] + (b * HEADS + h) * CAP * DIM;
                const float *old = past[side] + (b * HEADS + h) * 7 * DIM;
                CHECK(memcmp(row, old, (size_t)past_len[b] * DIM * sizeof *row) == 0 &&
                          memcmp(row + past_len[b] * DIM, now[side] + (b * HEADS + h) * DIM,
                                 DIM * sizeof *row) == 0,
                      "present is not past and new");
                for (int64_t i = kv_len[b] * DIM; i < CAP * DIM; i++)
                    CHECK(isnan(row[i]), "more was written");
            }
        }
    }
    FOR_EACH_ISA(isa) {
        attn_problem p =
            attn_problem_bhld(2, HEADS, HEADS, 1, CAP, DIM, DIM, q, present[0], present[1], out[0]);
        p.kv_len = kv_len;
        check_context("%s: a present cache", isa);
        forward(&p);
        p = attn_problem_bhld(2, HEADS, HEADS, 1, 1, DIM, DIM, q, now[0], now[1], out[1]);
        p.past_cap = 7, p.past_len = past_len;
        p.past_k = (attn_input){past[0], ATTN_F32, HEADS * 7 * DIM, 7 * DIM, DIM};
        p.past_v = p.past_k, p.past_v.data = past[1];
        check_context("%s: past and new", isa);
        forward(&p);
        CHECK(first_difference(out[0], out[1], 2 * HEADS * DIM) < 0, "other bits");
        for (int i = 0; i < 2 * HEADS * DIM; i++)
            CHECK(isfinite(out[0][i]), "not finite");
    }
}

/* States of splits are f32 whatever the output is: the exact workspace between guard pages. */
Test(faults, I3_split_with_narrow_output) {
    struct rng rng = {29};
    for (attn_type out = ATTN_F16; out <= ATTN_BF16; out = (attn_type)(out + 1)) {
        struct trial t;
        trial_place(&t, (struct shape){1, 16, 2, 1, check_quick() ? 1500 : 5131, 16, 24},
                    (struct layouts){.lse = true, .out = PADDED});
        trial_fill(&t, KIND_NORMAL, &rng);
        trial_store(&t, (struct storage){.k = ATTN_BF16, .v = ATTN_I8, .out = out}, &rng);
        struct reference r = reference_make(&t);
        FOR_EACH_ISA(isa)
        for (size_t workers = 1; workers <= 24; workers += workers < 4 ? 1 : 5) {
            struct reverse_executor e = reverse_executor(workers);
            trial_context(&t, "split");
            trial_run(&t, &e.base);
            CHECK(workers < 4 || e.tasks > 2, "no split: %d tasks", (int)e.tasks);
            trial_compare(&t, &r);
            trial_check_gaps(&t);
        }
        reference_free(&r);
    }
}

/* Token 1 is padding. */
Test(faults, L6_negative_slots_skip) {
    for (attn_type type = ATTN_F32; type <= ATTN_I8; type = (attn_type)(type + 1)) {
        enum { DIM = 5, SLOTS = 4 };
        const float x[3 * DIM] = {1, 2, 3, 4, 5, -1, -2, -3, -4, -5, 6, 7, 8, 9, 10};
        const size_t row = DIM * type_width(type);
        unsigned char *data = guarded(SLOT_OTHER, SLOTS * row, AT_END);
        float *of = guarded_floats(SLOT_OTHER + 1, SLOTS, AT_END);
        const int64_t slots[3] = {0, -1, 2};
        const attn_input tokens = {x, ATTN_F32, 0, DIM, DIM};
        const attn_cache cache = {.data = data,
                                  .type = type,
                                  .stride_page = 2 * DIM,
                                  .stride_token = DIM,
                                  .n_pages = 2,
                                  .page_len = 2,
                                  .scales = type == ATTN_I8 ? of : NULL,
                                  .scale_stride_page = 2,
                                  .scale_stride_token = 1};
        check_context("type %d", (int)type);
        CHECK(attn_append(&tokens, 3, 1, DIM, slots, &cache) == ATTN_OK, "fails");
        for (int64_t slot = 0; slot < SLOTS; slot++) {
            const bool is_named = slot == 0 || slot == 2;
            for (int64_t c = 0; c < DIM; c++) {
                const double got = type == ATTN_I8 ? (int8_t)data[slot * DIM + c] * (double)of[slot]
                                                   : oracle_load(type, data, slot * DIM + c);
                const double want = is_named ? x[slot * DIM + c] : NAN;
                CHECK(is_named ? fabs(got - want) <= 0.04 : isnan(got), "slot %d: %g", (int)slot,
                      got);
            }
            for (size_t i = 0; i < row && !is_named; i++)
                CHECK(data[(size_t)slot * row + i] == 0xff, "slot %d was written", (int)slot);
        }
    }
}
