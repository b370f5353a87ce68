/* Faults of public attention kernels, listed in tests/FAULTS.txt: fully masked rows and mask
 * sentinels (A), and masks of every type, stride and broadcast (G).
 *
 * SPDX-License-Identifier: MIT */
#include <float.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/oracle.h"
#include "faults.h"

/* ---- A: rows that see nothing, -inf, sentinels ----------------------------------------------- */

Test(faults, A1_all_false_row) {
    struct rng rng = {1};
    FOR_EACH_ISA(isa) FOR_EACH_MASK(type) {
        struct trial t;
        place_masked(&t, (struct shape){1, 1, 1, 2, 4, 8, 8}, type, &rng);
        for (int64_t j = 0; j < 4; j++) {
            mask_pair(&t, 0, j, j ? -INFINITY : 0);
            mask_pair(&t, 1, j, -INFINITY);
        }
        trial_context(&t, "A1");
        trial_run(&t, NULL);
        CHECK(first_difference(out_at(&t.p.out, 0, 0, 0), t.v.data, 8) < 0, "row 0 is not V[0]");
        expect_empty(&t, 1);
    }
}

/* Whatever the keys and values hold, few keys or many, one task or several. */
Test(faults, A2_all_false_mask) {
    struct rng rng = {2};
    FOR_EACH_ISA(isa) FOR_EACH_MASK(type) {
        const int64_t lengths[] = {1, 3, 64, 700};
        for (int n = 0; n < 4; n++)
            for (int is_nan = 0; is_nan < 2; is_nan++) {
                struct trial t;
                place_masked(&t, (struct shape){1, 1, 1, 3, lengths[n], 4, 4}, type, &rng);
                for (int64_t i = 0; i < 3; i++)
                    for (int64_t j = 0; j < lengths[n]; j++)
                        mask_pair(&t, i, j, -INFINITY);
                for (size_t k = 0; is_nan && k < t.k.n; k++)
                    t.k.data[k] = k % 2 ? NAN : INFINITY, t.v.data[k] = NAN;
                trial_context(&t, "A2");
                struct reverse_executor e = reverse_executor(4);
                trial_run(&t, n % 2 ? &e.base : NULL);
                for (int64_t i = 0; i < 3; i++)
                    expect_empty(&t, i);
                for (size_t k = 0; k < t.weights.n; k++)
                    CHECK(bits_of(t.weights.data[k]) == 0, "weight %zu", k);
            }
    }
}

Test(faults, A3_first_tile_hidden) {
    struct rng rng = {3};
    FOR_EACH_ISA(isa) {
        /* A window of ten keys, drawn by a mask: most rows see nothing of their first tiles. */
        struct trial t;
        const int64_t n = check_quick() ? 520 : 640;
        place_masked(&t, (struct shape){1, 1, 1, n, n, 4, 4}, ATTN_MASK_F32, &rng);
        struct stored *const ones[] = {&t.q, &t.k, &t.v};
        for (int k = 0; k < 3; k++)
            for (size_t at = 0; at < ones[k]->n; at++)
                ones[k]->data[at] = 1;
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++)
                mask_pair(&t, i, j, j > i || j <= i - 10 ? -INFINITY : 0);
        trial_context(&t, "A3, as reported");
        trial_run(&t, NULL);
        for (size_t k = 0; k < t.out.n; k++)
            CHECK(fabsf(t.out.data[k] - 1) <= FLT_EPSILON, "output %zu is %.9g", k,
                  (double)t.out.data[k]);
    }
    FOR_EACH_MASK(type) {
        const int64_t hidden[] = {64, 128, 512, 513, 1023};
        for (int k = 0; k < 5; k++)
            for (int64_t rows = 1; rows <= 14; rows += 13) {
                struct trial t;
                place_masked(&t, (struct shape){1, 1, 1, rows, 1024, 4, 4}, type, &rng);
                for (int64_t i = 0; i < rows; i++)
                    for (int64_t j = 0; j < hidden[k]; j++)
                        mask_pair(&t, i, j, -INFINITY);
                trial_on_every_isa(&t);
            }
    }
}

/* With V the identity the output is the weights; visible in one tile only, of 512 and of 64 keys. */
Test(faults, A4_one_tile_visible) {
    struct rng rng = {4};
    FOR_EACH_MASK(type)
    for (int wide = 0; wide < 2; wide++) {
        const int64_t tile = wide ? 64 : check_quick() ? 128 : 512, keys = 3 * tile;
        for (int64_t shown = 0; shown < 3; shown++) {
            struct trial t;
            const int64_t rows = shown == 1 ? 14 : 1;
            place_masked(&t, (struct shape){1, 1, 1, rows, keys, wide ? 2100 : 3, keys}, type,
                         &rng);
            for (int64_t j = 0; j < keys; j++) {
                for (int64_t c = 0; c < keys; c++)
                    in_at_mutable(&t.p.v, 0, 0, j)[c] = c == j;
                for (int64_t i = 0; i < rows; i++)
                    mask_pair(&t, i, j, j / tile == shown ? 0 : -INFINITY);
            }
            FOR_EACH_ISA(isa) {
                trial_context(&t, "A4");
                trial_run(&t, NULL);
                for (int64_t i = 0; i < rows; i++) {
                    double sum = 0;
                    for (int64_t j = 0; j < keys; j++) {
                        const float p = out_at(&t.p.out, 0, 0, i)[j];
                        sum += p;
                        CHECK(j / tile == shown ? p > 0 : p == 0, "key %" PRId64 " has %g", j,
                              (double)p);
                    }
                    CHECK(fabs(sum - 1) < 1e-5, "weights sum to %.9g", sum);
                }
            }
        }
    }
}

/* Tiles wholly in the future of some rows, in the past of others' windows, or both. */
Test(faults, A5_future_tiles, .timeout = 600) {
    const int64_t lengths[] = {13, 25, 513, 769, 1025, 1537, 4200};
    struct rng rng = {5};
    for (int n = 0; n < (check_quick() ? 3 : 7); n++)
        for (int windowed = 0; windowed < (lengths[n] < 4000 ? 2 : 1); windowed++) {
            struct trial t;
            trial_place(&t, (struct shape){1, 1, 1, lengths[n], lengths[n], 8, 8},
                        (struct layouts){.lse = true});
            trial_fill(&t, KIND_NORMAL, &rng);
            t.p.causal = 1, t.window[0] = 70, t.window[1] = -1;
            t.p.window = windowed ? t.window : NULL;
            trial_on_every_isa(&t);
        }
}

/* The mean of V, 2.5, or inf times 0 were the answers of others. */
Test(faults, A6_causal_and_mask_hide_all) {
    FOR_EACH_ISA(isa) FOR_EACH_MASK(type) {
        const float firsts[] = {1, INFINITY, -INFINITY, NAN};
        for (int n = 0; n < 4; n++) {
            struct rng rng = {6};
            struct trial t;
            place_masked(&t, (struct shape){1, 1, 1, 1, 4, 2, 1}, type, &rng);
            const float v[4] = {firsts[n], 2, 3, 4};
            memcpy(t.v.data, v, sizeof v);
            t.p.causal = 1, t.p.align = ATTN_ALIGN_TOP_LEFT;
            mask_pair(&t, 0, 0, -INFINITY);
            trial_context(&t, "A6");
            trial_run(&t, NULL);
            expect_empty(&t, 0);
        }
    }
}

Test(faults, A8_hidden_key_beats_no_sentinel) {
    FOR_EACH_ISA(isa) FOR_EACH_MASK(type) {
        struct rng rng = {8};
        struct trial t;
        place_masked(&t, (struct shape){1, 1, 1, 1, 2, 1, 1}, type, &rng);
        t.q.data[0] = -20000, t.k.data[0] = 1, t.k.data[1] = 0;
        t.v.data[0] = 1, t.v.data[1] = 100;
        mask_pair(&t, 0, 1, -INFINITY);
        t.p.scale = &one;
        trial_context(&t, "A8");
        trial_run(&t, NULL);
        CHECK(t.out.data[0] == 1, "%g", (double)t.out.data[0]);
        t.q.data[0] = -3e38f; /* lower than any sentinel */
        trial_run(&t, NULL);
        CHECK(t.out.data[0] == 1, "%g", (double)t.out.data[0]);
    }
}

Test(faults, A9_causal_mask_and_flag) {
    for (int64_t n = 1; n <= 200; n += check_quick() ? 23 : 1) {
        struct trial t;
        struct rng rng = {(uint64_t)n};
        place_masked(&t, (struct shape){1, 1, 1, n, n, 16, 4}, ATTN_MASK_BOOL, &rng);
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = i + 1; j < n; j++)
                mask_pair(&t, i, j, -INFINITY);
        float *both = malloc(t.out.n * sizeof(float));
        cr_assert(both != NULL);
        const attn_mask mask = t.p.mask, none = {0};
        FOR_EACH_ISA(isa) {
            t.p.causal = 1, t.p.mask = mask;
            trial_context(&t, "A9");
            trial_run(&t, NULL);
            memcpy(both, t.out.data, t.out.n * sizeof(float));
            for (size_t k = 0; k < t.out.n; k++)
                CHECK(isfinite(both[k]), "output %zu is %g", k, (double)both[k]);
            t.p.causal = 0;
            trial_run(&t, NULL);
            CHECK(first_difference(both, t.out.data, (int64_t)t.out.n) < 0, "the mask alone");
            t.p.causal = 1, t.p.mask = none;
            trial_run(&t, NULL);
            CHECK(first_difference(both, t.out.data, (int64_t)t.out.n) < 0, "the flag alone");
        }
        free(both);
    }
}

/* Masks of the lowest number of their type: finite, so softmax of what is left of the scores; and
 * where the sum with the score is -inf, a row of visible scores of -inf. */
Test(faults, A10_lowest_number_masks) {
    struct rng rng = {10};
    struct trial t;
    place_masked(&t, (struct shape){1, 1, 1, 1, 4, 1, 4}, ATTN_MASK_F16, &rng);
    t.q.data[0] = 1, t.p.scale = &one;
    const float logits[4] = {-32, -31, -33, -32};
    memcpy(t.k.data, logits, sizeof logits);
    for (int64_t j = 0; j < 4; j++)
        mask_pair(&t, 0, j, -65504);
    trial_on_every_isa(&t);
    FOR_EACH_ISA(isa) {
        trial_context(&t, "A10 a");
        trial_run(&t, NULL);
        double sum = 0;
        for (int j = 0; j < 4; j++)
            sum += exp(logits[j] + 31);
        for (int j = 0; j < 4; j++)
            CHECK(fabs(t.weights.data[j] - exp(logits[j] + 31) / sum) < 1e-2, "weight %d is %g", j,
                  (double)t.weights.data[j]);
    }

    place_masked(&t, (struct shape){1, 1, 1, 1, 4, 1, 4}, ATTN_MASK_F32, &rng);
    t.q.data[0] = -2e31f, t.p.scale = &one;
    for (int64_t j = 0; j < 4; j++) {
        t.k.data[j] = 1;
        mask_pair(&t, 0, j, -FLT_MAX);
    }
    FOR_EACH_ISA(isa) {
        trial_context(&t, "A10 b: the sum is -inf");
        trial_run(&t, NULL);
        expect_empty(&t, 0);
    }
    t.q.data[0] = -1; /* now it is -FLT_MAX for all keys: equal, finite */
    FOR_EACH_ISA(isa) {
        trial_context(&t, "A10 b: the sum is the lowest number");
        trial_run(&t, NULL);
        for (int j = 0; j < 4; j++)
            CHECK(t.weights.data[j] == 0.25f, "weight %d is %g", j, (double)t.weights.data[j]);
    }
    const float steep = 1e38f; /* c: two of them, mask and ALiBi */
    t.p.alibi = &steep, t.p.align = ATTN_ALIGN_EXPLICIT, t.p.offset = t.offset, t.offset[0] = 9;
    FOR_EACH_ISA(isa) {
        trial_context(&t, "A10 c");
        trial_run(&t, NULL);
        expect_empty(&t, 0);
    }
}

Test(faults, A14_cross_attention_padding) {
    struct rng rng = {14};
    FOR_EACH_MASK(type) {
        struct trial t;
        place_masked(&t, (struct shape){2, 4, 4, 8, 16, 128, 128}, type, &rng);
        for (int64_t h = 0; h < 4; h++)
            for (int64_t i = 0; i < 8; i++)
                for (int64_t j = 0; j < 16; j++)
                    if (i == 7 || j >= 7) /* padding: one query, 9 keys */
                        mask_set(&t, 0, h, i, j, -INFINITY);
        trial_on_every_isa(&t);
        expect_empty(&t, 7);
        for (size_t k = 0; k < t.out.n; k++)
            CHECK(isfinite(t.out.data[k]), "output %zu", k);
    }
}

/* ---- C, D, M: masks beside other things ------------------------------------------------------ */

Test(faults, C4_nan_under_a_mask) {
    struct rng rng = {34};
    FOR_EACH_ISA(isa) FOR_EACH_MASK(type) {
        float clean[8];
        for (int poisoned = 0; poisoned < 2; poisoned++) {
            struct trial t;
            rng.state = 4;
            place_masked(&t, (struct shape){1, 1, 1, 2, 2, 4, 4}, type, &rng);
            for (int64_t c = 0; c < 4; c++) {
                in_at_mutable(&t.p.k, 0, 0, 1)[c] = poisoned ? NAN : 0;
                in_at_mutable(&t.p.v, 0, 0, 1)[c] = poisoned ? NAN : 0;
            }
            for (int64_t i = 0; i < 2; i++)
                mask_pair(&t, i, 1, -INFINITY);
            trial_context(&t, "C4");
            trial_run(&t, NULL);
            if (!poisoned)
                memcpy(clean, t.out.data, sizeof clean);
            CHECK(first_difference(clean, t.out.data, 8) < 0, "NaN comes through");
        }
    }
    /* NaN in the mask itself, where causality, the window or kv_len hides. */
    FOR_EACH_ISA(isa) {
        struct trial t;
        rng.state = 5;
        place_masked(&t, (struct shape){1, 1, 1, 70, 90, 4, 4}, ATTN_MASK_F32, &rng);
        t.p.causal = 1, t.p.align = ATTN_ALIGN_TOP_LEFT, t.p.window = t.window;
        t.window[0] = 20, t.window[1] = -1;
        t.kv_len[0] = 60, t.p.kv_len = t.kv_len;
        trial_context(&t, "C4, clean");
        trial_run(&t, NULL);
        float *clean = malloc(t.out.n * sizeof(float));
        cr_assert(clean != NULL);
        memcpy(clean, t.out.data, t.out.n * sizeof(float));
        for (int64_t i = 0; i < 70; i++)
            for (int64_t j = 0; j < 90; j++)
                if (j > i || j < i - 20 || j >= 60)
                    mask_pair(&t, i, j, NAN);
        trial_context(&t, "C4, NaN in the mask");
        trial_run(&t, NULL);
        CHECK(first_difference(clean, t.out.data, (int64_t)t.out.n) < 0, "NaN comes through");
        free(clean);
    }
}

/* The scale is of the product alone; a mask of numbers is added, once. */
Test(faults, D8_scale_leaves_the_mask_alone) {
    FOR_EACH_ISA(isa) for (int half = 0; half < 2; half++) {
        struct rng rng = {48};
        struct trial t;
        place_masked(&t, (struct shape){1, 1, 1, 1, 2, 1, 1}, half ? ATTN_MASK_F16 : ATTN_MASK_F32,
                     &rng);
        const float scale = 0.125f;
        t.q.data[0] = 0, t.v.data[0] = 0, t.v.data[1] = 1, t.p.scale = &scale;
        mask_pair(&t, 0, 1, -4);
        trial_context(&t, "D8");
        trial_run(&t, NULL);
        CHECK(fabsf(t.out.data[0] - 0.017986f) < 1e-6f, "%g", (double)t.out.data[0]);
    }
}

/* Scale, softcap, mask, in this order. */
Test(faults, M4_softcap_before_mask) {
    FOR_EACH_ISA(isa) FOR_EACH_MASK(type) {
        struct rng rng = {94};
        struct trial t;
        place_masked(&t, (struct shape){1, 1, 1, 1, 2, 1, 1}, type, &rng);
        t.q.data[0] = 0, t.v.data[0] = 0, t.v.data[1] = 1, t.p.softcap = 1;
        mask_pair(&t, 0, 1, -INFINITY);
        trial_context(&t, "M4");
        trial_run(&t, NULL);
        CHECK(t.out.data[0] == 0, "%g", (double)t.out.data[0]);
        if (type != ATTN_MASK_F32 && type != ATTN_MASK_F16)
            continue;
        mask_pair(&t, 0, 1, -5); /* not capped */
        trial_run(&t, NULL);
        CHECK(fabs(t.out.data[0] - 1 / (1 + exp(5))) < 1e-8, "%g", (double)t.out.data[0]);
    }
}

/* ---- G: strides, layouts, broadcast ---------------------------------------------------------- */

/* Each form against the oracle, at both ends of memory, for few rows and many. */
static void try_form(struct mask_form form, int64_t batch, int64_t q_len, int64_t keys) {
    for (int side = AT_END; side <= AT_START; side++) {
        struct trial t;
        struct rng rng = {60};
        trial_place(&t, (struct shape){batch, 2, 1, q_len, keys, 5, 6},
                    (struct layouts){.lse = true, .weights = true});
        trial_fill(&t, KIND_NORMAL, &rng);
        form.side = (enum side)side, form.n_keys = keys;
        trial_add_mask(&t, form);
        for (int64_t b = 0; b < (form.no_batch ? 1 : batch); b++)
            for (int64_t h = 0; h < (form.no_head ? 1 : 2); h++)
                for (int64_t i = 0; i < (form.no_query ? 1 : q_len); i++)
                    for (int64_t j = 0; j < (form.no_key ? 1 : keys); j++)
                        mask_set(&t, b, h, i, j, rng_below(&rng, 3) ? rng_normal(&rng) : -INFINITY);
        trial_on_every_isa(&t);
    }
}

Test(faults, G4_mask_of_one_column) {
    for (attn_mask_type type = ATTN_MASK_BOOL; type <= ATTN_MASK_F16; type++)
        for (int64_t keys = 1; keys <= 70; keys += check_quick() ? 23 : 8)
            try_form((struct mask_form){.type = type, .no_batch = 1, .no_head = 1, .no_key = 1}, 1,
                     5, keys);
}

Test(faults, G6_mask_batch_broadcast) {
    FOR_EACH_MASK(type) {
        try_form((struct mask_form){.type = type, .no_batch = 1, .no_head = 1}, 3, 4, 33);
        try_form((struct mask_form){.type = type, .no_head = 1, .no_query = 1}, 3, 4, 33);
        try_form((struct mask_form){.type = type, .no_batch = 1, .no_query = 1}, 3, 13, 70);
        try_form((struct mask_form){.type = type, .no_batch = 1}, 3, 4, 33);
    }
}

Test(faults, G7_mask_of_one_row) {
    FOR_EACH_MASK(type) {
        try_form((struct mask_form){.type = type, .no_query = 1}, 1, 5, 33);
        try_form((struct mask_form){.type = type, .no_query = 1}, 2, 40, 600);
        const bool has_one_bit_for_all = type == ATTN_MASK_BITS; /* bits have no stride_key */
        try_form((struct mask_form){.type = type,
                                    .no_batch = 1,
                                    .no_head = 1,
                                    .no_query = 1,
                                    .no_key = !has_one_bit_for_all},
                 2, 5, 33);
    }
}

Test(faults, G8_mask_strides) {
    FOR_EACH_MASK(type)
    for (enum mask_layout layout = MASK_PLAIN; layout < N_MASK_LAYOUTS; layout++) {
        try_form((struct mask_form){.type = type, .layout = layout}, 2, 7, 33);
        try_form((struct mask_form){.type = type, .layout = layout, .no_head = 1}, 2, 30, 130);
        try_form((struct mask_form){.type = type, .layout = layout}, 1, 2, 1100);
    }
}

/* Bytes are true or false, numbers are added. */
Test(faults, G10_bool_or_number) {
    FOR_EACH_ISA(isa) {
        const float q[1] = {0}, k[4] = {0},
                    v[16] = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1};
        const uint8_t bytes[4] = {0, 1, 0xff, 0x80};
        float out[4];
        attn_problem p = attn_problem_bhld(1, 1, 1, 1, 4, 1, 4, q, k, v, out);
        p.mask = (attn_mask){bytes, ATTN_MASK_BOOL, 0, 0, 0, 1, 4};
        check_context("%s: G10, bytes", isa);
        forward(&p);
        for (int j = 0; j < 4; j++)
            CHECK(fabsf(out[j] - (j ? 1 / 3.0f : 0)) < 1e-6f, "weight %d is %g", j, (double)out[j]);
        const float numbers[4] = {0, 1, 1, 0};
        p.mask = (attn_mask){numbers, ATTN_MASK_F32, 0, 0, 0, 1, 4};
        check_context("%s: G10, numbers", isa);
        forward(&p);
        for (int j = 0; j < 4; j++)
            CHECK(fabs(out[j] - exp(numbers[j]) / (2 + 2 * exp(1))) < 1e-6, "weight %d is %g", j,
                  (double)out[j]);
    }
}

/* On every path: few rows and many, one span and several, split or not, each type. */
Test(faults, G11_mask_hides_the_dominant_key) {
    struct rng rng = {71};
    FOR_EACH_MASK(type)
    for (int64_t rows = 1; rows <= 40; rows += check_quick() ? 13 : rows < 16 ? 1 : 12)
        for (int64_t keys = 20; keys <= (check_quick() ? 800 : 1400); keys += 690) {
            struct trial t;
            const int64_t dominant = keys - 7;
            place_masked(&t, (struct shape){1, 2, 1, rows, keys, 4, 3}, type, &rng);
            for (int64_t at = 0; at < 2 * rows; at++)
                *in_at_mutable(&t.p.q, 0, at / rows, at % rows) = 1;
            *in_at_mutable(&t.p.k, 0, 0, dominant) = 1000;
            in_at_mutable(&t.p.v, 0, 0, dominant)[1] = 1e6f;
            for (int64_t i = 0; i < rows; i++)
                mask_pair(&t, i, dominant, -INFINITY);
            struct reference r = reference_make(&t);
            FOR_EACH_ISA(isa)
            for (int split = 0; split < 2; split++) {
                struct reverse_executor e = reverse_executor(5);
                trial_context(&t, "G11");
                trial_run(&t, split ? &e.base : NULL);
                trial_compare(&t, &r);
                for (size_t k = 0; k < t.out.n; k++)
                    CHECK(fabsf(t.out.data[k]) < 10, "output %zu is %g", k, (double)t.out.data[k]);
            }
            reference_free(&r);
        }
}

Test(faults, G12_per_head_bias) {
    FOR_EACH_ISA(isa) for (int half = 0; half < 2; half++) {
        struct rng rng = {72};
        struct trial t;
        place_masked(&t, (struct shape){1, 8, 8, 1, 1, 64, 64},
                     half ? ATTN_MASK_F16 : ATTN_MASK_F32, &rng);
        t.p.scale = &one;
        for (int64_t h = 0; h < 8; h++)
            mask_set(&t, 0, h, 0, 0, -5.5f + 10.7f * (float)h / 7);
        trial_context(&t, "G12");
        trial_run(&t, NULL);
        CHECK(first_difference(t.out.data, t.v.data, 8 * 64) < 0, "not V");
    }
}
