/* Storage types: conversions against arithmetic in double, calls against the f32 call over what the
 * stored numbers stand for, pages against a cache in one piece, and attn_append.
 *
 * SPDX-License-Identifier: MIT */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "cli/oracle.h"
#include "half.h"

enum { MAX_SETS = 16 };

/* ---- Conversions ----------------------------------------------------------------------------- */

static void widen(const struct attn_kernels *set, attn_type type, const uint16_t *x, int64_t stride,
                  size_t n_rows, size_t n, float *out, size_t out_stride) {
    if (type == ATTN_F16)
        set->widen_f16(x, stride, n_rows, n, out, out_stride);
    else
        set->widen_bf16(x, stride, n_rows, n, out, out_stride);
}

static void narrow(const struct attn_kernels *set, attn_type type, const float *x, size_t n,
                   uint16_t *out) {
    if (type == ATTN_F16)
        set->narrow_f16(x, n, out);
    else
        set->narrow_bf16(x, n, out);
}

static float plain_widen(attn_type type, uint16_t x) {
    return type == ATTN_F16 ? float_of_f16(x) : float_of_bf16(x);
}
static uint16_t plain_narrow(attn_type type, float x) {
    return type == ATTN_F16 ? f16_of_float(x) : bf16_of_float(x);
}

static bool same_half(uint16_t a, uint16_t b, attn_type type) {
    return a == b || (isnan(plain_widen(type, a)) && isnan(plain_widen(type, b)));
}

/* All 65536 numbers of both types. */
Test(types, widening_is_exact) {
    const struct attn_kernels *sets[MAX_SETS];
    const size_t n_sets = check_kernel_sets(sets);
    static uint16_t all[65536];
    static float out[65536];
    for (int i = 0; i < 65536; i++)
        all[i] = (uint16_t)i;
    for (attn_type type = ATTN_F16; type <= ATTN_BF16; type = (attn_type)(type + 1))
        for (size_t s = 0; s < n_sets; s++) {
            check_context("%s type %d", sets[s]->name, (int)type);
            widen(sets[s], type, all, 256, 256, 256, out, 256);
            for (int i = 0; i < 65536; i++) {
                const double want = oracle_load(type, all, i);
                CHECK(same_bits(out[i], (float)want), "%04x is %a, want %a", (unsigned)i,
                      (double)out[i], want);
                CHECK(same_bits(plain_widen(type, all[i]), (float)want), "plain C: %04x",
                      (unsigned)i);
            }
        }
}

/* Narrows n numbers on every set, in plain C, and in double. */
static void check_narrowing(attn_type type, const float *x, size_t n) {
    const struct attn_kernels *sets[MAX_SETS];
    const size_t n_sets = check_kernel_sets(sets);
    static uint16_t out[1024];
    static float want[1024];
    cr_assert(n <= 1024);
    for (size_t i = 0; i < n; i++)
        want[i] = rounded_to(type, x[i]);
    for (size_t s = 0; s < n_sets; s++) {
        narrow(sets[s], type, x, n, out);
        for (size_t i = 0; i < n; i++) {
            const float got = plain_widen(type, out[i]);
            CHECK(same_bits(got, want[i]), "%s, type %d: %a gives %a, want %a", sets[s]->name,
                  (int)type, (double)x[i], (double)got, (double)want[i]);
            CHECK(same_half(out[i], plain_narrow(type, x[i]), type), "%s, type %d: %a and plain C",
                  sets[s]->name, (int)type, (double)x[i]);
        }
    }
}

/* Every boundary between two neighbours, and its own neighbours, of both signs; NaN of every kind;
 * numbers of all magnitudes. */
Test(types, narrowing_rounds_to_nearest_even) {
    check_context("boundaries");
    float x[1024];
    for (attn_type type = ATTN_F16; type <= ATTN_BF16; type = (attn_type)(type + 1)) {
        const int infinity = type == ATTN_F16 ? 0x7c00 : 0x7f80;
        size_t n = 0;
        for (int i = 0; i < infinity; i += check_quick() ? 7 : 1) {
            const float low = plain_widen(type, (uint16_t)i);
            const float high = i + 1 < infinity ? plain_widen(type, (uint16_t)(i + 1)) : INFINITY;
            /* Beside the largest the next one would be a power of two. */
            const double step = high == INFINITY
                                    ? (double)low - plain_widen(type, (uint16_t)(i - 1))
                                    : (double)high - low;
            const float middle = (float)(low + step / 2), near[] = {low, middle};
            for (int k = 0; k < 2; k++)
                for (int sign = -1; sign <= 1; sign += 2) {
                    x[n++] = (float)sign * near[k];
                    x[n++] = (float)sign * nextafterf(near[k], 0);
                    x[n++] = (float)sign * nextafterf(near[k], INFINITY);
                }
            if (n + 12 > 1024)
                check_narrowing(type, x, n), n = 0;
        }
        check_narrowing(type, x, n);
        const float special[] = {0,
                                 -0.0f,
                                 INFINITY,
                                 -INFINITY,
                                 NAN,
                                 -NAN,
                                 float_of(0x7f800001), /* payloads that would be cut off */
                                 float_of(0xff800001),
                                 float_of(0x7f801000),
                                 float_of(0x7fffffff),
                                 float_of(0xffffffff),
                                 FLT_MAX,
                                 -FLT_MAX,
                                 FLT_MIN,
                                 FLT_TRUE_MIN,
                                 -FLT_TRUE_MIN,
                                 65504,
                                 65519.996f,
                                 65520,
                                 -65519.996f,
                                 -65520,
                                 70000,
                                 0x1p-24f,
                                 0x1p-25f,
                                 0x1.000002p-25f,
                                 0x1.8p-24f,
                                 float_of(0x3e89ccd5),
                                 float_of(0x3f808000),
                                 float_of(0x3f818000),
                                 float_of(0x7f7fffff)};
        for (size_t lane = 0; lane < 16; lane++) {
            for (size_t i = 0; i < lane; i++)
                x[i] = 1;
            memcpy(x + lane, special, sizeof special);
            check_narrowing(type, x, lane + sizeof special / sizeof *special);
        }
        struct rng rng = {5};
        for (int64_t k = 0; k < check_count(400); k++) {
            for (int i = 0; i < 1024; i++)
                x[i] = float_of((uint32_t)rng_next(&rng));
            check_narrowing(type, x, 1024);
        }
    }
    static const struct {
        float x;
        uint16_t f16;
    } known[] = {{65504, 0x7bff},   {65519.996f, 0x7bff}, {65520, 0x7c00}, {-65520, 0xfc00},
                 {0x1p-25f, 0},     {0x1.000002p-25f, 1}, {1, 0x3c00},     {-0.0f, 0x8000},
                 {0x1p-14f, 0x400}, {0x1.ff8p-15f, 0x3ff}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        CHECK(f16_of_float(known[i].x) == known[i].f16, "%a", (double)known[i].x);
}

/* The product of every int8 and scales of all magnitudes, NaN among them, rounded once. */
Test(types, int8_is_the_rounded_product) {
    const struct attn_kernels *sets[MAX_SETS];
    const size_t n_sets = check_kernel_sets(sets);
    int8_t all[256];
    float out[256];
    for (int i = 0; i < 256; i++)
        all[i] = (int8_t)(i - 128);
    struct rng rng = {6};
    for (int64_t n = 0; n < check_count(3000); n++) {
        const float scale = n == 0   ? NAN
                            : n == 1 ? 0
                            : n == 2 ? 0x1p-149f
                            : n == 3 ? INFINITY
                                     : float_of((uint32_t)rng_next(&rng));
        for (size_t s = 0; s < n_sets; s++) {
            check_context("%s: scale %a", sets[s]->name, (double)scale);
            sets[s]->widen_i8(all, 1, 1, 256, &scale, 1, out, 1);
            for (int i = 0; i < 256; i++)
                CHECK(same_bits(out[i], (float)(all[i] * (double)scale)), "%d gives %a", all[i],
                      (double)out[i]);
        }
    }
}

/* Any count, rows at any stride, against guard pages; nothing else is written. */
Test(types, conversions_of_every_size) {
    const struct attn_kernels *sets[MAX_SETS];
    const size_t n_sets = check_kernel_sets(sets);
    struct rng rng = {7};
    for (size_t n = 0; n <= 40; n++)
        for (int64_t stride = -(int64_t)n - 3; stride <= (int64_t)n + 3; stride += (int64_t)n + 3)
            for (enum side side = AT_END; side <= AT_START; side++)
                for (size_t s = 0; s < n_sets; s++) {
                    enum { ROWS = 3 };
                    const size_t reach = (size_t)llabs(stride) * (ROWS - 1) + n, gap = 2;
                    const size_t written = (ROWS - 1) * (n + gap) + n;
                    uint16_t *halves = guarded(SLOT_OTHER, reach * 2, side);
                    int8_t *bytes = guarded(SLOT_OTHER + 1, reach, side);
                    float *out = guarded_floats(SLOT_OTHER + 2, written, side);
                    float *scales = guarded_floats(SLOT_OTHER + 3, 2 * (ROWS - 1) + 1, side);
                    uint16_t *narrowed = guarded(SLOT_OTHER + 4, n * 2, side);
                    const int64_t first = stride < 0 ? -stride * (ROWS - 1) : 0;
                    for (size_t i = 0; i < reach; i++) {
                        halves[i] = (uint16_t)(rng_next(&rng) & 0xbbff);
                        bytes[i] = (int8_t)rng_next(&rng);
                    }
                    for (int r = 0; r < ROWS; r++)
                        scales[2 * r] = rng_normal(&rng);
                    check_context("%s: %zu at stride %d, side %d", sets[s]->name, n, (int)stride,
                                  (int)side);
                    for (attn_type type = ATTN_F16; type <= ATTN_I8; type = (attn_type)(type + 1)) {
                        memset(out, 0xff, written * sizeof *out);
                        if (type == ATTN_I8)
                            sets[s]->widen_i8(bytes + first, stride, ROWS, n, scales, 2, out,
                                              n + gap);
                        else
                            widen(sets[s], type, halves + first, stride, ROWS, n, out, n + gap);
                        for (size_t i = 0; i < written; i++) {
                            const size_t r = i / (n + gap), c = i % (n + gap);
                            const int64_t at = first + (int64_t)r * stride + (int64_t)c;
                            if (c >= n)
                                CHECK(bits_of(out[i]) == UINT32_MAX, "a gap was written");
                            else if (type == ATTN_I8)
                                CHECK(same_bits(out[i], (float)bytes[at] * scales[2 * r]),
                                      "i8 row %zu column %zu", r, c);
                            else
                                CHECK(same_bits(out[i], plain_widen(type, halves[at])),
                                      "type %d row %zu column %zu", (int)type, r, c);
                        }
                    }
                    for (size_t i = 0; i < n; i++)
                        out[i] = rng_normal(&rng);
                    for (attn_type type = ATTN_F16; type <= ATTN_BF16;
                         type = (attn_type)(type + 1)) {
                        float *in = guarded_floats(SLOT_OTHER + 5, n, side);
                        for (size_t i = 0; i < n; i++)
                            in[i] = rng_normal(&rng);
                        narrow(sets[s], type, in, n, narrowed);
                        for (size_t i = 0; i < n; i++)
                            CHECK(narrowed[i] == plain_narrow(type, in[i]), "narrow %zu", i);
                    }
                }
}

/* ---- The f32 call over the same numbers ------------------------------------------------------ */

/* The f32 tensor that an input of a trial is, as bf16 at the same strides. */
static attn_input in_bf16(const struct stored *s, attn_input input, void **copy) {
    uint16_t *to = *copy = malloc(s->n * sizeof *to + 1);
    cr_assert(to, "no memory");
    for (size_t i = 0; i < s->n; i++)
        to[i] = bf16_of_float(s->data[i]);
    if (input.data)
        input.data = to + ((const float *)input.data - s->data);
    input.type = ATTN_BF16;
    return input;
}

/* The int8 keys of a stored trial, or those of its past, without gaps and in one piece; what no row
 * may look at is poison. */
static attn_input in_int8(const struct trial *t, bool of_past, attn_scales *scales, void **copy) {
    const attn_problem *p = &t->p;
    const int64_t cap = of_past ? p->past_cap : p->kv_cap, dim = p->qk_dim;
    const int64_t groups = p->k_scales.group ? (dim - 1) / p->k_scales.group + 1 : 1;
    const int64_t n = p->batch * p->kv_heads * cap;
    float *to_scales = *copy =
        malloc((size_t)n * ((size_t)groups * sizeof(float) + (size_t)dim) + 1);
    cr_assert(*copy, "no memory");
    int8_t *to = (int8_t *)(to_scales + n * groups);
    memset(*copy, 0xff, (size_t)n * ((size_t)groups * sizeof(float) + (size_t)dim));
    for (int64_t b = 0; b < p->batch; b++) {
        const int64_t n_past = p->past_cap && p->past_len ? p->past_len[b] : p->past_cap;
        const int64_t first = of_past ? 0 : n_past;
        const int64_t last = of_past ? n_past : oracle_key_count(p, b);
        for (int64_t g = 0; g < p->kv_heads; g++)
            for (int64_t j = first; j < last; j++) {
                if (p->pages.table) {
                    const int64_t page =
                        p->pages.table[b * p->pages.stride_batch + j / p->pages.page_len];
                    if (page < 0 || page >= p->pages.n_pages)
                        continue;
                }
                const struct place from = key_place(p, b, g, j);
                const int64_t at = (b * p->kv_heads + g) * cap + j - first;
                memcpy(to + at * dim, from.at, (size_t)dim);
                memcpy(to_scales + at * groups, from.scales, (size_t)groups * sizeof(float));
            }
    }
    const int64_t head = cap * groups, batch = head * p->kv_heads;
    *scales = (attn_scales){to_scales, p->k_scales.group, batch, head, groups};
    return (attn_input){to, ATTN_I8, p->kv_heads * cap * dim, cap * dim, dim};
}

/* Runs the f32 problem that a stored trial is. A set that multiplies bf16 as it is has the bits of
 * another bf16 problem instead: without pages, at other strides; likewise int8 keys. */
static void run_plain(const struct trial *t, struct trial *plain, const char *isa) {
    const attn_problem f32 = plain->p;
    void *copies[N_STORED] = {NULL};
    const int arithmetic = oracle_arithmetic(&t->p, isa);
    if (arithmetic & ORACLE_PAIRED_SCORES) {
        plain->p.q = in_bf16(&t->q, f32.q, &copies[STORED_Q]);
        plain->p.k = in_bf16(&t->k, f32.k, &copies[STORED_K]);
        plain->p.past_k = in_bf16(&t->past_k, f32.past_k, &copies[STORED_PAST_K]);
    }
    if (arithmetic & ORACLE_PAIRED_VALUES) {
        plain->p.v = in_bf16(&t->v, f32.v, &copies[STORED_V]);
        plain->p.past_v = in_bf16(&t->past_v, f32.past_v, &copies[STORED_PAST_V]);
    }
    if (arithmetic & ORACLE_INT8_SCORES) {
        plain->p.k = in_int8(t, false, &plain->p.k_scales, &copies[STORED_K]);
        plain->p.past_k = in_int8(t, true, &plain->p.past_k_scales, &copies[STORED_PAST_K]);
    }
    trial_run(plain, NULL);
    plain->p = f32;
    for (int i = 0; i < N_STORED; i++)
        free(copies[i]);
}

/* Runs a stored trial, with an executor, and the f32 problem in the other bank; out is what f32
 * gives, rounded. */
static void same_as_plain(struct trial *t, const char *what) {
    struct trial plain;
    guarded_use_bank(1);
    trial_plain(t,
                (struct layouts){.lse = t->p.lse.data != NULL,
                                 .weights = t->p.weights.data != NULL,
                                 .scores = t->p.scores.data != NULL},
                &plain);
    guarded_use_bank(0);
    FOR_EACH_ISA(isa) {
        trial_context(t, what);
        struct reverse_executor e = reverse_executor(4);
        trial_run(t, t->p.qk_dim % 2 ? &e.base : NULL);
        trial_check_gaps(t);
        guarded_use_bank(1);
        run_plain(t, &plain, isa);
        guarded_use_bank(0);
        for (size_t i = 0; i < plain.out.n; i++)
            plain.out.data[i] = rounded_to(t->p.out.type, plain.out.data[i]);
        trial_same_bits(t, &plain, what);
    }
}

Test(types, stored_gives_the_bits_of_f32, .timeout = 3600) {
    for (int64_t n = 0; n < check_count(600); n++) {
        struct rng rng = {UINT64_C(7000000) + (uint64_t)n};
        struct trial t;
        trial_random(&t, &rng, check_quick() ? 15000 : 150000);
        if (n % 2)
            trial_poison(&t, &rng);
        trial_store(&t, storage_random(&t, &rng), &rng);
        char what[64];
        snprintf(what, sizeof what, "stored or f32, number %d", (int)n);
        same_as_plain(&t, what);
    }
}

/* Pages of 1 to 70 tokens, and larger ones beside the tiles, for all types of k and v, with one row,
 * as many as are packed, and more. */
Test(types, pages_are_one_cache, .timeout = 3600) {
    const int64_t larger[] = {128, 255, 256, 257, 511, 512, 513, 1024, 5000};
    const int64_t rows[] = {1, 3, 7, 16, 40};
    struct rng rng = {8};
    for (int64_t n = 1; n <= 79; n += check_quick() ? 9 : 1)
        for (int kind = 0; kind < 8; kind++) {
            const struct shape s = {2,
                                    4,
                                    2,
                                    rows[(n + kind) % 5],
                                    n > 70 || kind == 0 ? 1100 : 60 + rng_below(&rng, 150),
                                    1 + rng_below(&rng, 20),
                                    1 + rng_below(&rng, 20)};
            struct trial t;
            trial_place(&t, s, (struct layouts){.lse = true, .weights = kind % 2 == 0});
            trial_fill(&t, KIND_NORMAL, &rng);
            t.p.kv_len = t.kv_len;
            t.p.causal = kind / 2 % 2, t.p.align = ATTN_ALIGN_BOTTOM_RIGHT;
            t.window[0] = 5, t.window[1] = -1;
            t.p.window = kind / 4 ? t.window : NULL;
            for (int b = 0; b < 2; b++)
                t.kv_len[b] = rng_below(&rng, s.kv_cap + 1);
            const struct storage how = {.q = (attn_type)(n % 3),
                                        .k = (attn_type)(kind % 4),
                                        .v = (attn_type)((kind + n) % 4),
                                        .page_len = n <= 70 ? n : larger[n - 71],
                                        .pages = kind % 2 ? BHLD : BLHD};
            trial_store(&t, how, &rng);
            same_as_plain(&t, "in pages or in one piece");
        }
}

/* Sequences that share pages, as those with one prompt do: one table for both, stride 0. */
Test(types, shared_pages) {
    struct rng rng = {9};
    struct trial t;
    trial_place(&t, (struct shape){2, 2, 1, 3, 40, 8, 8},
                (struct layouts){.k = SHARED_HEADS, .v = SHARED_HEADS, .lse = true});
    trial_fill(&t, KIND_NORMAL, &rng);
    trial_store(&t, (struct storage){.k = ATTN_BF16, .v = ATTN_I8, .page_len = 16}, &rng);
    same_as_plain(&t, "pages of their own");
    t.p.pages.stride_batch = 0;
    same_as_plain(&t, "shared pages");
}

/* The seam between past and new at every key, for every type. */
Test(types, keys_in_two_pieces, .timeout = 3600) {
    struct rng rng = {10};
    for (attn_type type = ATTN_F32; type <= ATTN_I8; type = (attn_type)(type + 1))
        for (int64_t seam = 0; seam <= 70; seam += check_quick() ? 9 : 1) {
            const int64_t keys = seam % 8 ? 70 : 600;
            struct trial t, whole;
            trial_place(&t, (struct shape){1, 4, 2, 1 + seam % 20, keys - seam, 17, 9},
                        (struct layouts){.lse = true, .past_cap = seam, .past_k = PADDED});
            trial_fill(&t, KIND_NORMAL, &rng);
            t.p.causal = 1, t.p.align = ATTN_ALIGN_BOTTOM_RIGHT;
            const struct storage how = {.q = ATTN_F16,
                                        .k = type,
                                        .v = (attn_type)((type + seam) % 4),
                                        .k_group = 5,
                                        .out = ATTN_BF16};
            trial_store(&t, how, &rng);
            same_as_plain(&t, "past and new, or f32");
            /* And as one piece, byte for byte. */
            guarded_use_bank(1);
            trial_place(&whole, (struct shape){1, 4, 2, t.p.q_len, keys, 17, 9},
                        (struct layouts){.lse = true, .k = BLHD, .v = PADDED});
            trial_fill(&whole, KIND_NORMAL, &rng);
            whole.p.causal = 1, whole.p.align = ATTN_ALIGN_BOTTOM_RIGHT;
            trial_store(&whole, how, &rng);
            whole.p.q = t.p.q;
            for (int64_t g = 0; g < 2; g++)
                for (int64_t j = 0; j < keys; j++) {
                    const struct place to[2] = {key_place(&whole.p, 0, g, j),
                                                value_place(&whole.p, 0, g, j)};
                    const struct place from[2] = {key_place(&t.p, 0, g, j),
                                                  value_place(&t.p, 0, g, j)};
                    memcpy(to[0].at, from[0].at, 17 * type_width(how.k));
                    memcpy(to[1].at, from[1].at, 9 * type_width(how.v));
                    if (how.k == ATTN_I8)
                        memcpy(to[0].scales, from[0].scales, 4 * sizeof(float));
                    if (how.v == ATTN_I8)
                        memcpy(to[1].scales, from[1].scales, sizeof(float));
                }
            guarded_use_bank(0);
            FOR_EACH_ISA(isa) {
                trial_context(&t, "in two pieces");
                trial_run(&t, NULL);
                guarded_use_bank(1);
                trial_context(&whole, "in one piece");
                trial_run(&whole, NULL);
                guarded_use_bank(0);
                trial_same_bits(&t, &whole, "two pieces or one");
            }
        }
}

/* A workspace that was asked for with one mix of types is enough for that mix, however long. */
Test(types, workspace_of_types) {
    for (int mix = 0; mix < 2 * 4 * 4 * 3 * 3; mix++) {
        const int64_t dim = mix % 2 ? 1024 : 128;
        attn_problem p = attn_problem_bhld(1, 8, 2, 64, 4096, dim, dim, NULL, NULL, NULL, NULL);
        float scale = 0;
        p.k.type = (attn_type)(mix / 2 % 4), p.v.type = (attn_type)(mix / 8 % 4);
        p.q.type = (attn_type)(mix / 32 % 3), p.out.type = (attn_type)(mix / 96);
        p.k_scales.data = p.v_scales.data = &scale;
        check_context("dim %d q %d k %d v %d out %d", (int)dim, (int)p.q.type, (int)p.k.type,
                      (int)p.v.type, (int)p.out.type);
        size_t before = 0;
        for (p.q_len = 1; p.q_len <= 4096; p.q_len *= 4) {
            size_t size;
            CHECK(attn_workspace_size(&p, 1, &size) == ATTN_OK && size >= before, "shrinks");
            CHECK(size <= (size_t)3 << 19, "%zu bytes", size);
            before = size;
        }
    }
}

/* Nor do strides have a say. */
Test(types, workspace_of_strides) {
    for (int64_t dim = 8; dim <= 1024; dim *= 2)
        for (int64_t q_len = 1; q_len <= 1024; q_len *= 8) {
            attn_problem p =
                attn_problem_bhld(1, 8, 8, q_len, 4096, dim, dim, NULL, NULL, NULL, NULL);
            size_t dense, sparse;
            cr_assert_eq(attn_workspace_size(&p, 1, &dense), ATTN_OK);
            p.k.stride_head = p.v.stride_head = dim;
            p.k.stride_token = p.v.stride_token = 8 * dim;
            cr_assert_eq(attn_workspace_size(&p, 1, &sparse), ATTN_OK);
            check_context("%d rows of %d features", (int)q_len, (int)dim);
            CHECK(dense == sparse, "%zu bytes, and %zu", dense, sparse);
        }
}

/* ---- attn_append ----------------------------------------------------------------------------- */

/* A cache in guarded memory. */
struct cache {
    attn_cache c;
    size_t bytes, n_scales;
};

static struct cache cache_make(attn_type type, int64_t n_pages, int64_t page_len, int64_t heads,
                               int64_t dim, int64_t group, int gap, enum side side) {
    const int64_t n = group ? (dim + group - 1) / group : 1, row = dim + gap, scales = n + gap;
    struct cache cache = {.c = {.type = type,
                                .stride_page = heads * page_len * row,
                                .stride_head = row,
                                .stride_token = heads * row,
                                .n_pages = n_pages,
                                .page_len = page_len,
                                .scale_group = group,
                                .scale_stride_page = heads * page_len * scales,
                                .scale_stride_head = page_len * scales,
                                .scale_stride_token = scales}};
    cache.bytes = (size_t)(n_pages * heads * page_len * row - gap) * type_width(type);
    cache.n_scales = (size_t)(n_pages * heads * page_len * scales - gap);
    cache.c.data = guarded(SLOT_OTHER, cache.bytes, side);
    if (type == ATTN_I8)
        cache.c.scales = guarded_floats(SLOT_OTHER + 1, cache.n_scales, side);
    return cache;
}

/* Element c of a row of a cache, as f32. */
static double element(const attn_cache *c, int64_t slot, int64_t h, int64_t i) {
    const int64_t page = slot / c->page_len, token = slot % c->page_len;
    const int64_t at = page * c->stride_page + h * c->stride_head + token * c->stride_token + i;
    if (c->type != ATTN_I8)
        return oracle_load(c->type, c->data, at);
    const float scale =
        c->scales[page * c->scale_stride_page + h * c->scale_stride_head +
                  token * c->scale_stride_token + (c->scale_group ? i / c->scale_group : 0)];
    return ((int8_t *)c->data)[at] * (double)scale;
}

static double largest_of(const float *x, int64_t dim, int64_t group, int64_t i) {
    double largest = 0;
    for (int64_t c = 0; c < dim; c++)
        if (!group || c / group == i / group)
            largest = fmax(largest, fabsf(x[c]));
    return largest;
}

/* Every type into every type, groups that do not divide the dim, slots in any order, some of them
 * skipped, between guard pages. What no slot names stays as it was. */
Test(types, append) {
    const int64_t groups[] = {0, 1, 7, 32, 64, 1000};
    struct rng rng = {11};
    for (int64_t n = 0; n < check_count(400); n++) {
        const attn_type from = (attn_type)(n % 3), to = (attn_type)(n / 3 % 4);
        const int64_t heads = 1 + rng_below(&rng, 3), dim = 1 + rng_below(&rng, 80), tokens = 9;
        const int64_t group = groups[rng_below(&rng, 6)], n_pages = 3, page_len = 5;
        const enum side side = n % 2 ? AT_END : AT_START;
        struct cache cache =
            cache_make(to, n_pages, page_len, heads, dim, group, (int)(n % 3), side);
        const size_t width = type_width(from);
        char *data = guarded(SLOT_OTHER + 2, (size_t)(tokens * heads * dim) * width, side);
        float *x = guarded_floats(SLOT_OTHER + 3, (size_t)(tokens * heads * dim), AT_END);
        for (int64_t i = 0; i < tokens * heads * dim; i++) {
            x[i] = rounded_to(from, ldexpf(rng_normal(&rng), (int)rng_below(&rng, 10) - 5));
            const uint16_t half = plain_narrow(from, x[i]);
            memcpy(data + (size_t)i * width, from == ATTN_F32 ? (void *)&x[i] : (void *)&half,
                   width);
        }
        int64_t slots[9], order[15];
        for (int64_t i = 0; i < 15; i++) {
            const int64_t at = rng_below(&rng, i + 1);
            order[i] = order[at], order[at] = i;
        }
        for (int i = 0; i < 9; i++)
            slots[i] = rng_below(&rng, 4) ? order[i] : i % 2 ? -1 : INT64_MIN;
        const attn_input input = {data, from, 0, dim, heads * dim};
        check_context("number %d: type %d to %d, dim %d, group %d", (int)n, (int)from, (int)to,
                      (int)dim, (int)group);
        const attn_status status = attn_append(&input, tokens, heads, dim, slots, &cache.c);
        CHECK(status == ATTN_OK, "%s", attn_status_string(status));
        for (int64_t slot = 0; slot < n_pages * page_len; slot++) {
            int64_t token = -1;
            for (int i = 0; i < 9; i++)
                token = slots[i] == slot ? i : token;
            for (int64_t h = 0; h < heads; h++)
                for (int64_t c = 0; c < dim; c++) {
                    const double got = element(&cache.c, slot, h, c);
                    if (token < 0) {
                        CHECK(isnan(got), "slot %d was written", (int)slot);
                        continue;
                    }
                    const float *row = x + (token * heads + h) * dim;
                    if (to != ATTN_I8) {
                        CHECK(same_bits((float)got, rounded_to(to, row[c])), "%a becomes %a",
                              (double)row[c], got);
                        continue;
                    }
                    const double scale = largest_of(row, dim, group, c) / 127;
                    CHECK(fabs(got - row[c]) <= scale / 2 * (1 + 0x1p-20),
                          "%a becomes %a, scale %a", (double)row[c], got, scale);
                }
        }
        /* Gaps. */
        const int64_t row = cache.c.stride_head;
        for (size_t i = 0; i < cache.bytes; i++)
            CHECK((int64_t)(i / type_width(to)) % row < dim || ((uint8_t *)cache.c.data)[i] == 0xff,
                  "a gap of the cache was written");
    }
}

/* Groups that have no scale of their own: zeros, tiny ones, the largest floats, NaN and infinities;
 * the neighbours of such a group are as without it. */
Test(types, append_of_special_groups) {
    enum { DIM = 12, GROUP = 4 };
    const float specials[] = {0,
                              -0.0f,
                              FLT_TRUE_MIN,
                              126 * 0x1p-126f,
                              127 * 0x1p-126f,
                              FLT_MAX,
                              -FLT_MAX,
                              0x1.fffffcp127f,
                              INFINITY,
                              -INFINITY,
                              NAN,
                              -NAN,
                              0x1p-120f,
                              1e38f};
    for (size_t n = 0; n < sizeof specials / sizeof *specials; n++)
        for (int at = 0; at < GROUP; at++) {
            const float x = specials[n];
            float row[DIM] = {1, -2, 3, 4, 0, 0, 0, 0, 5, 6, -7, 8};
            row[GROUP + at] = x;
            row[GROUP + (at + 1) % GROUP] = -x / 3;
            int8_t data[DIM];
            float scales[DIM / GROUP];
            const int64_t slot = 0;
            const attn_input input = {row, ATTN_F32, 0, DIM, DIM};
            const attn_cache cache = {.data = data,
                                      .type = ATTN_I8,
                                      .n_pages = 1,
                                      .page_len = 1,
                                      .scales = scales,
                                      .scale_group = GROUP};
            check_context("%a at %d", (double)x, at);
            CHECK(attn_append(&input, 1, 1, DIM, &slot, &cache) == ATTN_OK, "fails");
            CHECK(scales[0] == 4.0f / 127 && scales[2] == 8.0f / 127, "the neighbours' scales");
            CHECK(data[0] == 32 && data[1] == -64 && data[2] == 95 && data[3] == 127 &&
                      data[11] == 127,
                  "the neighbours");
            if (!isfinite(x)) {
                CHECK(isnan(scales[1]), "scale %a", (double)scales[1]);
                continue;
            }
            if (fabsf(x) < 127 * 0x1p-126f) {
                for (int c = GROUP; c < 2 * GROUP; c++)
                    CHECK(data[c] == 0 && scales[1] == 0, "not zero");
                continue;
            }
            CHECK(scales[1] >= FLT_MIN && isfinite(scales[1]), "scale %a", (double)scales[1]);
            for (int c = GROUP; c < 2 * GROUP; c++) {
                const float back = data[c] * scales[1];
                CHECK(isfinite(back) &&
                          fabs((double)back - row[c]) <= scales[1] * 0.5 * (1 + 0x1p-20),
                      "%a becomes %a", (double)row[c], (double)back);
            }
            CHECK(data[GROUP + at] == (x > 0 ? 127 : -127), "the largest is %d", data[GROUP + at]);
        }
}

/* Where scale is 1: integers stay, halves go to the even neighbour, and what is beside a half does
 * not. */
Test(types, append_rounds_to_nearest_even) {
    const float x[] = {127,   0.5f, 1.5f,  2.5f,       125.5f,      126.5f,       -0.5f,
                       -1.5f, -126, -2.5f, -127,       0.49999997f, -0.50000006f, 1.4999999f,
                       0,     3,    -0.0f, 126.49999f, -126.49999f, 0x1p-149f};
    const int8_t want[] = {127,  0, 2,  2, 126, 126, 0, -2,  -126, -2,
                           -127, 0, -1, 1, 0,   3,   0, 126, -126, 0};
    enum { DIM = sizeof x / sizeof *x };
    int8_t data[DIM];
    float scale;
    const int64_t slot = 0;
    const attn_input input = {x, ATTN_F32, 0, DIM, DIM};
    const attn_cache cache = {
        .data = data, .type = ATTN_I8, .n_pages = 1, .page_len = 1, .scales = &scale};
    CHECK(attn_append(&input, 1, 1, DIM, &slot, &cache) == ATTN_OK, "fails");
    CHECK(scale == 1, "scale %a", (double)scale);
    for (int c = 0; c < DIM; c++)
        CHECK(data[c] == want[c], "%a becomes %d, want %d", (double)x[c], data[c], want[c]);
}

/* Token by token into a cache of each type, in pages or not, each token attended when it comes: the
 * bits of all at once. */
Test(types, append_then_attend) {
    enum { TOKENS = 40, HEADS = 2, DIM = 20, PAGE = 8, PAGES = 2 * TOKENS / PAGE };
    struct rng rng = {12};
    static float q[TOKENS * 4 * DIM], k[TOKENS * HEADS * DIM], v[TOKENS * HEADS * DIM];
    static float whole[TOKENS * 4 * DIM], step[TOKENS * 4 * DIM];
    static char data[2][PAGES * PAGE * HEADS * DIM * 4];
    static float scales[2][PAGES * PAGE * HEADS * 3];
    for (int i = 0; i < TOKENS * HEADS * DIM; i++)
        k[i] = rng_normal(&rng), v[i] = rng_normal(&rng);
    for (int i = 0; i < TOKENS * 4 * DIM; i++)
        q[i] = rng_normal(&rng);
    for (int n = 0; n < 8; n++) {
        const attn_type type = (attn_type)(n % 4);
        const bool is_paged = n / 4;
        const int64_t page_len = is_paged ? PAGE : TOKENS;
        int32_t table[TOKENS / PAGE];
        for (int i = 0; i < TOKENS / PAGE; i++)
            table[i] = (i * 7 + 3) % PAGES;
        attn_cache caches[2];
        attn_problem p = attn_problem_init();
        for (int i = 0; i < 2; i++) {
            memset(data[i], 0xff, sizeof data[i]);
            memset(scales[i], 0xff, sizeof scales[i]);
            caches[i] = (attn_cache){.data = data[i],
                                     .type = type,
                                     .stride_page = page_len * HEADS * DIM,
                                     .stride_head = page_len * DIM,
                                     .stride_token = DIM,
                                     .n_pages = is_paged ? PAGES : 1,
                                     .page_len = page_len,
                                     .scales = type == ATTN_I8 ? scales[i] : NULL,
                                     .scale_group = 8,
                                     .scale_stride_page = page_len * HEADS * 3,
                                     .scale_stride_head = page_len * 3,
                                     .scale_stride_token = 3};
        }
        p.batch = 1, p.q_heads = 4, p.kv_heads = HEADS, p.kv_cap = TOKENS;
        p.qk_dim = p.v_dim = DIM;
        p.k = (attn_input){data[0], type, page_len * HEADS * DIM, page_len * DIM, DIM};
        p.v = (attn_input){data[1], type, page_len * HEADS * DIM, page_len * DIM, DIM};
        p.k_scales = (attn_scales){scales[0], 8, page_len * HEADS * 3, page_len * 3, 3};
        p.v_scales = (attn_scales){scales[1], 8, page_len * HEADS * 3, page_len * 3, 3};
        if (is_paged)
            p.pages = (attn_pages){table, 0, PAGE, PAGES};
        int64_t kv_len = 0;
        p.kv_len = &kv_len;
        p.causal = 1, p.align = ATTN_ALIGN_BOTTOM_RIGHT;
        FOR_EACH_ISA(isa) {
            check_context("%s type %d%s", isa, (int)type, is_paged ? " in pages" : "");
            for (int64_t i = 0; i < TOKENS; i++) {
                const int64_t slot = is_paged ? table[i / PAGE] * (int64_t)PAGE + i % PAGE : i;
                const float *const tokens[2] = {k + i * HEADS * DIM, v + i * HEADS * DIM};
                for (int c = 0; c < 2; c++) {
                    const attn_input token = {tokens[c], ATTN_F32, 0, DIM, HEADS * DIM};
                    CHECK(attn_append(&token, 1, HEADS, DIM, &slot, &caches[c]) == ATTN_OK,
                          "append");
                }
                kv_len = i + 1;
                p.q_len = 1;
                p.q = (attn_input){q + i * 4 * DIM, ATTN_F32, 0, DIM, 4 * DIM};
                p.out = (attn_output){step + i * 4 * DIM, ATTN_F32, 0, DIM, 4 * DIM};
                CHECK(attn_forward_alloc(&p, NULL) == ATTN_OK, "forward");
            }
            p.q_len = TOKENS;
            p.q.data = q, p.out.data = whole;
            CHECK(attn_forward_alloc(&p, NULL) == ATTN_OK, "forward");
            CHECK(first_difference(whole, step, TOKENS * 4 * DIM) < 0, "other bits at %d",
                  (int)first_difference(whole, step, TOKENS * 4 * DIM));
        }
    }
}
