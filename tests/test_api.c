/* attn_forward() against attention in double precision: a grid over every parameter, random
 * problems, and how far typical results are from exact ones.
 *
 * Every output of every problem must be within the bound that attn.h proves. All tensors and the
 * workspace lie against inaccessible pages, outputs start as NaN, inputs must not change.
 *
 * SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

/* ---- Grid ------------------------------------------------------------------------------------ */

/* What is tried beside a shape. */
struct options {
    enum kind kind;
    enum layout layout; /* of all four tensors, one further on for each */
    bool lse, weights;
    int causal; /* 0, or 1 + an attn_align */
    bool kv_len, scale;
};

static void try_shape(struct shape shape, struct options o, uint64_t seed) {
    struct rng rng = {seed};
    struct trial t;
    const struct layouts layouts = {.q = o.layout % N_LAYOUTS,
                                    .k = (o.layout + 1) % N_INPUT_LAYOUTS,
                                    .v = (o.layout + 2) % N_INPUT_LAYOUTS,
                                    .out = (o.layout + 3) % N_LAYOUTS,
                                    .side = rng_below(&rng, 2) ? AT_END : AT_START,
                                    .lse = o.lse,
                                    .weights = o.weights};
    trial_place(&t, shape, layouts);
    trial_fill(&t, o.kind, &rng);
    for (int64_t b = 0; b < shape.batch; b++) {
        t.kv_len[b] = rng_below(&rng, shape.kv_cap + 1);
        t.offset[b] = rng_below(&rng, shape.kv_cap + 9) - 4;
    }
    if (o.kv_len)
        t.p.kv_len = t.kv_len;
    if (o.scale) {
        t.scale = 0.3f * rng_normal(&rng);
        t.p.scale = &t.scale;
    }
    if (o.causal) {
        t.p.causal = 1;
        t.p.align = (attn_align)(o.causal - 1);
        t.p.offset = t.p.align == ATTN_ALIGN_EXPLICIT ? t.offset : NULL;
    }
    trial_on_every_isa(&t);
}

/* Options that change with n, so that a sweep over one size meets all of them. */
static struct options varied(int64_t n) {
    const struct options o = {.kind = (enum kind)(n % N_KINDS),
                              .layout = (enum layout)(n / 2 % N_LAYOUTS),
                              .lse = n % 2,
                              .weights = n % 3 == 0,
                              .causal = n % 5 < 2 ? 0 : 1 + (int)(n % 5 - 1),
                              .kv_len = n % 4 == 1,
                              .scale = n % 7 == 2};
    return o;
}

static const struct options plain = {.lse = true};

/* FAULTS H1, K5, K8: every size of each axis, dims that differ, and lengths beside the tiles. */
Test(api, every_size, .timeout = 600) {
    uint64_t seed = 100;
    for (int64_t n = 0; n <= 33; n++)
        for (int64_t causal = 0; causal < 4; causal++) {
            if (check_quick() && causal != n % 4)
                continue;
            struct options o = varied(n + causal);
            o.causal = causal ? 1 + (int)causal : 0;
            try_shape((struct shape){2, 2, 1, n, 20, 9, 5}, o, seed++);
        }
    for (int64_t n = 0; n <= 70; n++) {
        try_shape((struct shape){1, 2, 2, 3, n, 17, 18}, varied(n), seed++);
        try_shape((struct shape){2, 3, 1, 1, n, 8, 33}, varied(n + 1), seed++);
    }
    const int64_t lengths[] = {127,  128,  129,  511,  512,  513,  575,  1023,
                               1024, 1025, 1151, 4095, 4096, 4097, 4608, 4609};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        if (check_quick() && i % 3 != 0)
            continue;
        try_shape((struct shape){1, 2, 1, 1, lengths[i], 8, 8}, plain, seed++);
        struct options o = varied((int64_t)i);
        o.causal = 1 + ATTN_ALIGN_BOTTOM_RIGHT;
        try_shape((struct shape){1, 1, 1, check_quick() ? 2 : 17, lengths[i], 5, 3}, o, seed++);
    }
    for (int64_t n = 1; n <= 33; n++) {
        try_shape((struct shape){1, 2, 1, 3, 70, n, n}, varied(n), seed++);
        try_shape((struct shape){1, 1, 1, 2, 21, n, 34 - n}, varied(n + 2), seed++);
    }
    const int64_t dims[][2] = {{64, 64},   {128, 128}, {80, 80},  {96, 128},  {128, 96},
                               {576, 512}, {1, 300},   {300, 1},  {256, 256}, {257, 63},
                               {63, 257},  {1024, 16}, {16, 1024}};
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
        for (int64_t rows = 1; rows <= (check_quick() ? 1 : 12); rows += 11)
            try_shape(
                (struct shape){1, 2, 1, rows, check_quick() ? 17 : 67, dims[i][0], dims[i][1]},
                varied((int64_t)i + rows), seed++);
    try_shape((struct shape){8, 4, 1, 1, 36, 32, 24}, plain, seed++); /* K8 */
    const int64_t few = check_quick() ? 1 : 5;
    try_shape((struct shape){1, few, 1, few, 140 * few, 576, 512 / 6 * few}, varied(9), seed++);
    try_shape((struct shape){1, 1, 1, few, 70 * few, 2100, 40}, varied(3), seed++);
}

Test(api, heads_batches_and_layouts, .timeout = 600) {
    uint64_t seed = 200;
    const int64_t heads[][2] = {{1, 1}, {2, 2},  {4, 2},  {8, 1},  {6, 3},
                                {5, 5}, {48, 2}, {40, 2}, {80, 4}, {34, 2}};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        for (int64_t batch = 1; batch <= 3; batch++)
            for (int64_t rows = 1; rows <= 5; rows += 4)
                try_shape((struct shape){batch, heads[i][0], heads[i][1], rows, 19, 8, 7},
                          varied((int64_t)i + batch + rows), seed++);
    for (int64_t layout = 0; layout < N_LAYOUTS; layout++)
        for (int64_t kind = 0; kind < N_KINDS; kind++)
            for (int64_t causal = 0; causal < 5; causal++) {
                struct options o = {.kind = (enum kind)kind, .layout = (enum layout)layout};
                o.lse = o.weights = (layout + kind) % 2;
                o.causal = causal > 1 ? (int)causal : 0;
                o.kv_len = kind % 2;
                try_shape((struct shape){2, 4, 2, 6, 23, 10, 11}, o, seed++);
            }
    /* Causal without an alignment, where it does not matter. */
    struct options square = plain;
    square.causal = 1 + ATTN_ALIGN_UNSET;
    for (int64_t n = 0; n <= 70; n += 7)
        try_shape((struct shape){2, 2, 1, n, n, 6, 6}, square, seed++);
}

/* Random problems; N= for more, SEED= to begin elsewhere. */
Test(api, random_problems, .timeout = 36000) {
    const char *n_text = getenv("N"), *seed_text = getenv("SEED");
    const int64_t n = n_text && *n_text ? atoll(n_text) : check_count(1500);
    const uint64_t first = seed_text ? strtoull(seed_text, NULL, 0) : 1;
    for (uint64_t seed = first; seed < first + (uint64_t)n; seed++) {
        struct rng rng = {seed * UINT64_C(0x2545f4914f6cdd1d)};
        struct shape s = {1 + rng_below(&rng, 3), 1,
                          1 + rng_below(&rng, 3), rng_below(&rng, 40),
                          rng_below(&rng, 140),   1 + rng_below(&rng, 70),
                          1 + rng_below(&rng, 70)};
        s.q_heads = s.kv_heads * (1 + rng_below(&rng, 5));
        if (check_quick())
            s.qk_dim = 1 + s.qk_dim / 3, s.v_dim = 1 + s.v_dim / 3, s.q_len /= 3, s.kv_cap /= 2;
        if (rng_below(&rng, 12) == 0) { /* long, or wide, and small otherwise */
            s.batch = s.kv_heads = 1, s.q_heads = 1 + rng_below(&rng, 3);
            s.q_len = 1 + rng_below(&rng, 5);
            if (rng_below(&rng, 2))
                s.kv_cap = 400 + rng_below(&rng, check_count(5000)), s.qk_dim = s.v_dim = 8;
            else
                s.qk_dim = 1 + rng_below(&rng, 600), s.v_dim = 1 + rng_below(&rng, 600);
        }
        const struct options o = {
            .kind = (enum kind)(rng_below(&rng, 2) ? rng_below(&rng, N_KINDS) : KIND_NORMAL),
            .layout = (enum layout)rng_below(&rng, N_LAYOUTS),
            .lse = rng_below(&rng, 2),
            .weights = rng_below(&rng, 3) == 0,
            .causal = rng_below(&rng, 2) ? 2 + (int)rng_below(&rng, 3) : 0,
            .kv_len = rng_below(&rng, 2),
            .scale = rng_below(&rng, 3) == 0};
        try_shape(s, o, seed);
    }
    check_say("random problems: seeds %" PRIu64 " .. %" PRIu64 " (SEED= and N= for others)", first,
              first + (uint64_t)n - 1);
}

/* ---- Accuracy -------------------------------------------------------------------------------- */

/* Bars for inputs drawn from N(0, 1), d <= 128, up to 4096 keys. */
#define BAR_ANY 3e-6
#define BAR_FROM_256_KEYS 1.5e-6

Test(api, typical_error, .timeout = 3600) {
    /* rows = heads * q_len; the oracle's time is what limits them. */
    static const struct {
        int64_t heads, q_len, keys, dim;
    } shapes[] = {
        {100, 200, 1, 64},   {100, 100, 2, 128},  {100, 200, 16, 64},  {100, 200, 64, 64},
        {50, 200, 100, 128}, {50, 200, 255, 32},  {50, 200, 256, 32},  {60, 100, 300, 64},
        {40, 100, 512, 64},  {20, 100, 512, 128}, {15, 100, 1000, 64}, {8, 100, 1024, 128},
        {4, 100, 2048, 64},  {3, 100, 3000, 16},  {2, 100, 4096, 128}, {5, 100, 4096, 16}};
    const size_t n_shapes = sizeof shapes / sizeof *shapes;
    double worst[2][ATTN_SCORE_PAD] = {{0}}; /* below and from 256 keys, by kernel set */
    int64_t rows[2] = {0, 0};
    struct rng rng = {7};
    for (size_t i = 0; i < n_shapes; i++) {
        const int64_t heads = check_quick() ? (shapes[i].heads + 39) / 40 : shapes[i].heads;
        const int64_t q_len = check_quick() ? shapes[i].q_len / 10 : shapes[i].q_len;
        if (check_quick() && (i % 3 == 1 || shapes[i].keys > 2048))
            continue;
        const struct shape s = {
            1, heads, heads, q_len, shapes[i].keys, shapes[i].dim, shapes[i].dim};
        struct trial t;
        trial_place(&t, s, (struct layouts){.side = AT_END});
        trial_fill(&t, KIND_GAUSS, &rng);
        struct reference r = reference_make(&t);
        const int from_256 = s.kv_cap >= 256;
        rows[from_256] += heads * q_len;
        size_t set = 0;
        FOR_EACH_ISA(isa) {
            trial_context(&t, "typical error");
            trial_run(&t, NULL);
            trial_compare(&t, &r);
            const float *out = t.p.out.data;
            double error = 0;
            for (int64_t k = 0; k < r.n * s.v_dim; k++)
                error = fmax(error, fabs(out[k] - r.out[k]));
            worst[from_256][set] = fmax(worst[from_256][set], error);
            CHECK(error <= (from_256 ? BAR_FROM_256_KEYS : BAR_ANY), "error %g", error);
            set++;
        }
        reference_free(&r);
    }
    size_t set = 0;
    FOR_EACH_ISA(isa) {
        check_say("typical error %s: %.3g below 256 keys (%" PRId64
                  " rows), %.3g from 256 to 4096 keys (%" PRId64 " rows)%s",
                  isa, worst[0][set], rows[0], worst[1][set], rows[1],
                  check_quick() ? "; ATTN_TEST_QUICK skipped most rows" : "");
        set++;
    }
    CHECK(check_quick() || rows[0] + rows[1] >= 100000, "only %" PRId64 " rows", rows[0] + rows[1]);
}

/* ---- Workspace ------------------------------------------------------------------------------- */

/* FAULTS I1, I5, I6, J4: exactly the size asked for, for any number of workers and any alignment;
 * and a worker's share is at most 1.5 MiB for dims up to 1024 and does not grow with the lengths.
 */
Test(api, workspace) {
    for (size_t workers = 1; workers <= 64; workers += check_quick() ? 21 : 1) {
        const int64_t cases[][4] = {
            {1, 1, 2048, 64}, {1, 1, 4097, 128}, {4, 8, 700, 40}, {1, 70, 600, 16}};
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            struct trial t;
            const int64_t keys = check_quick() ? 520 : cases[i][2];
            const int64_t rows = check_quick() ? (cases[i][1] + 3) / 4 : cases[i][1];
            const int64_t dim = check_quick() ? cases[i][3] / 8 : cases[i][3];
            const struct shape s = {cases[i][0], 4, 2, rows, keys, 8, dim};
            struct rng rng = {workers};
            trial_place(&t, s, (struct layouts){.lse = true, .side = workers % 2});
            trial_fill(&t, KIND_NORMAL, &rng);
            trial_context(&t, "workers");
            trial_run(&t, NULL);
            const float first = out_at(&t.p.out, 0, 0, 0)[0];
            struct reverse_executor e = reverse_executor(workers);
            trial_run(&t, &e.base);
            CHECK(same_bits(first, out_at(&t.p.out, 0, 0, 0)[0]), "%zu workers: other bits",
                  workers);
            for (size_t k = 0; k < t.out.n; k++)
                CHECK(!isnan(t.out.data[k]), "%zu workers: output %zu not written", workers, k);
        }
    }
    struct trial t;
    struct rng rng = {11};
    trial_place(&t, (struct shape){1, 2, 1, check_quick() ? 3 : 30, 700, 20, 12},
                (struct layouts){.side = AT_END});
    trial_fill(&t, KIND_NORMAL, &rng);
    struct reference r = reference_make(&t);
    FOR_EACH_ISA(isa) {
        size_t size;
        cr_assert(attn_workspace_size(&t.p, 1, &size) == ATTN_OK);
        for (size_t shift = 0; shift < 64; shift += check_quick() ? 21 : 1) {
            trial_context(&t, "workspace of any alignment");
            char *workspace = guarded(SLOT_WORKSPACE, size + shift, AT_END);
            CHECK(attn_forward(&t.p, workspace, size, NULL) == ATTN_OK, "shift %zu", shift);
            trial_compare(&t, &r);
        }
    }
    reference_free(&r);

    /* One workspace, asked for with the longest chunk, serves the shorter ones and any kv_len. */
    size_t before = 0;
    for (int64_t q_len = 1; q_len <= 1000; q_len++) {
        attn_problem p = attn_problem_bhld(1, 32, 8, q_len, 512, 128, 128, NULL, NULL, NULL, NULL);
        size_t size;
        cr_assert(attn_workspace_size(&p, 1, &size) == ATTN_OK);
        check_context("workspace for q_len %" PRId64, q_len);
        CHECK(size >= before, "%zu bytes, %zu for one row less", size, before);
        before = size;
    }

    for (int64_t dim = 1; dim <= 1024; dim += dim < 32 ? 1 : 31)
        for (int64_t other = 0; other < 2; other++) {
            size_t sizes[3];
            const int64_t lengths[] = {INT64_C(1) << 40, 1000000, 4096};
            for (int i = 0; i < 3; i++) {
                attn_problem p = attn_problem_bhld(1, 8, 8, lengths[i], lengths[i], dim,
                                                   other ? 1024 : dim, NULL, NULL, NULL, NULL);
                size_t one, nine;
                cr_assert(attn_workspace_size(&p, 1, &one) == ATTN_OK &&
                          attn_workspace_size(&p, 9, &nine) == ATTN_OK);
                sizes[i] = nine - one;
                check_context("workspace of length %" PRId64 ", dim %" PRId64, lengths[i], dim);
                CHECK(one <= 3 << 19, "%zu bytes for one worker", one);
                CHECK(sizes[i] <= (size_t)8 * 3 << 19, "%zu bytes for 8 workers", sizes[i]);
            }
            CHECK(sizes[1] == sizes[0] && sizes[2] <= sizes[0], "grows with the length");
        }
}
