/* One problem in several forms has one result, bit for bit: a mask as bytes, bits or numbers, or as
 * a flag; sequences in one ragged batch or each in its own call; keys in one piece or in two.
 *
 * SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "cli/oracle.h"

static const enum layout any_out[] = {BHLD, BLHD, PADDED, REVERSED};

/* ---- Masks ----------------------------------------------------------------------------------- */

/* Two trials with the same tensors in two banks, all outputs asked for. Leaves bank 1 in use. */
static void place_two(struct trial two[2], struct shape s, uint64_t seed) {
    for (int n = 0; n < 2; n++) {
        struct rng rng = {seed};
        guarded_use_bank(n);
        trial_place(&two[n], s, (struct layouts){.lse = true, .weights = true, .scores = true});
        trial_fill(&two[n], KIND_NORMAL, &rng);
        two[n].p.scores_at = ATTN_SCORES_BIASED;
    }
}

static void run_both(struct trial two[2], const char *what) {
    for (int n = 0; n < 2; n++) {
        guarded_use_bank(n);
        trial_context(&two[n], what);
        trial_run(&two[n], NULL);
    }
    trial_same_bits(&two[0], &two[1], what);
}

static struct shape random_shape(struct rng *rng, int64_t n) {
    return (struct shape){2,
                          4,
                          2,
                          1 + rng_below(rng, 30),
                          n % 8 ? 1 + rng_below(rng, 150) : 500 + rng_below(rng, 600),
                          1 + rng_below(rng, 20),
                          1 + rng_below(rng, 20)};
}

static struct mask_form random_form(const struct trial *t, attn_mask_type type, struct rng *rng) {
    return (struct mask_form){.type = type,
                              .layout = (enum mask_layout)rng_below(rng, N_MASK_LAYOUTS),
                              .n_keys = t->p.past_cap + t->p.kv_cap};
}

/* FAULTS G10: a mask that shows everything is no mask, whatever byte says true. */
Test(forms, mask_of_all_true) {
    struct trial two[2];
    struct rng rng = {81};
    for (int64_t n = 0; n < check_count(80); n++) {
        place_two(two, random_shape(&rng, n), (uint64_t)n);
        trial_add_mask(&two[1], random_form(&two[1], (attn_mask_type)(1 + n % 4), &rng));
        FOR_EACH_ISA(isa) { run_both(two, "all true or no mask"); }
    }
    guarded_use_bank(0);
}

/* FAULTS A9: a lower triangle as a mask, as the flag, and as both. */
Test(forms, causal_as_a_mask) {
    struct trial two[2];
    struct rng rng = {82};
    for (int64_t n = 0; n < check_count(80); n++) {
        place_two(two, random_shape(&rng, n), (uint64_t)n);
        const int64_t offset = rng_below(&rng, two[0].p.kv_cap + 1) - 2;
        for (int k = 0; k < 2; k++) {
            two[k].offset[0] = two[k].offset[1] = offset;
            two[k].p.align = ATTN_ALIGN_EXPLICIT, two[k].p.offset = two[k].offset;
        }
        two[0].p.causal = 1;
        two[1].p.causal = n / 4 % 2; /* or both */
        trial_add_mask(&two[1], random_form(&two[1], (attn_mask_type)(1 + n % 4), &rng));
        for (int64_t at = 0; at < 2 * 4 * two[1].p.q_len; at++) {
            const int64_t i = at % two[1].p.q_len, h = at / two[1].p.q_len % 4;
            for (int64_t j = 0; j < two[1].p.kv_cap; j++)
                mask_set(&two[1], at / two[1].p.q_len / 4, h, i, j, j > offset + i ? -INFINITY : 0);
        }
        FOR_EACH_ISA(isa) { run_both(two, "causal as a flag or as a mask"); }
    }
    guarded_use_bank(0);
}

/* A window and a kv_len are masks too. */
Test(forms, window_as_a_mask) {
    struct trial two[2];
    struct rng rng = {83};
    for (int64_t n = 0; n < check_count(80); n++) {
        place_two(two, random_shape(&rng, n), (uint64_t)n);
        attn_problem *p = &two[0].p;
        for (int side = 0; side < 2; side++)
            two[0].window[side] = rng_below(&rng, 70) - 1;
        for (int64_t b = 0; b < 2; b++)
            two[0].kv_len[b] = rng_below(&rng, p->kv_cap + 1);
        p->window = two[0].window, p->kv_len = two[0].kv_len;
        p->align = n % 2 ? ATTN_ALIGN_BOTTOM_RIGHT : ATTN_ALIGN_TOP_LEFT;
        trial_add_mask(&two[1], random_form(&two[1], (attn_mask_type)(1 + n % 4), &rng));
        for (int64_t at = 0; at < 2 * 4 * p->q_len; at++) {
            const int64_t i = at % p->q_len, h = at / p->q_len % 4, b = at / p->q_len / 4;
            for (int64_t j = 0; j < p->kv_cap; j++)
                mask_set(&two[1], b, h, i, j, oracle_sees(p, b, h, i, j) ? 0 : -INFINITY);
        }
        FOR_EACH_ISA(isa) { run_both(two, "a window and kv_len, or a mask"); }
    }
    guarded_use_bank(0);
}

/* Bits, bytes, and numbers of both types that are 0 or -inf. */
Test(forms, masks_of_every_type) {
    struct trial two[2];
    struct rng rng = {84};
    for (int64_t n = 0; n < check_count(120); n++) {
        place_two(two, random_shape(&rng, n), (uint64_t)n);
        const int64_t axes = rng_below(&rng, 8), seed = rng_below(&rng, 1000);
        for (int k = 0; k < 2; k++) {
            guarded_use_bank(k);
            struct mask_form form = random_form(
                &two[k], (attn_mask_type)(k ? 1 + (n + n / 4 % 4) % 4 : 1 + n % 4), &rng);
            form.no_batch = axes & 1, form.no_head = axes & 2, form.no_query = axes & 4;
            form.n_keys = 1 + seed % two[k].p.kv_cap;
            trial_add_mask(&two[k], form);
            struct rng pattern = {(uint64_t)seed};
            for (int64_t b = 0; b < (form.no_batch ? 1 : 2); b++)
                for (int64_t h = 0; h < (form.no_head ? 1 : 4); h++)
                    for (int64_t i = 0; i < (form.no_query ? 1 : two[k].p.q_len); i++)
                        for (int64_t j = 0; j < form.n_keys; j++)
                            mask_set(&two[k], b, h, i, j,
                                     rng_below(&pattern, 3) == 0 ? -INFINITY : 0);
        }
        FOR_EACH_ISA(isa) { run_both(two, "two types of mask"); }
    }
    guarded_use_bank(0);
}

/* The same in f32 and f16, for numbers that f16 holds. */
Test(forms, biases_of_both_types) {
    struct trial two[2];
    struct rng rng = {85};
    for (int64_t n = 0; n < check_count(60); n++) {
        place_two(two, random_shape(&rng, n), (uint64_t)n);
        for (int k = 0; k < 2; k++) {
            guarded_use_bank(k);
            trial_add_mask(&two[k], random_form(&two[k], k ? ATTN_MASK_F16 : ATTN_MASK_F32, &rng));
            struct rng pattern = {(uint64_t)n};
            for (int64_t at = 0; at < 8 * two[k].p.q_len; at++)
                for (int64_t j = 0; j < two[k].p.kv_cap; j++) {
                    const float x = (float)(rng_below(&pattern, 2048) - 1024);
                    const int exponent = -(int)rng_below(&pattern, 25);
                    mask_set(&two[k], at / two[k].p.q_len / 4, at / two[k].p.q_len % 4,
                             at % two[k].p.q_len, j, ldexpf(x, exponent < -24 ? -24 : exponent));
                }
        }
        FOR_EACH_ISA(isa) { run_both(two, "f32 or f16"); }
    }
    guarded_use_bank(0);
}

/* ---- Ragged batches -------------------------------------------------------------------------- */

/* Each sequence has the bits of its own call: lengths, alignment, masks and sinks its own. */
Test(forms, ragged_sequences_alone) {
    struct rng rng = {86};
    for (int64_t n = 0; n < check_count(120); n++) {
        struct trial t, alone;
        const int64_t batch = 1 + rng_below(&rng, 5);
        struct shape s = random_shape(&rng, n);
        s.batch = batch, s.q_len = rng_below(&rng, 60);
        guarded_use_bank(0);
        const struct layouts how = {.q = (enum layout)rng_below(&rng, N_LAYOUTS),
                                    .out = any_out[rng_below(&rng, 4)],
                                    .lse = true,
                                    .weights = true,
                                    .scores = true,
                                    .is_ragged = true};
        trial_place(&t, s, how);
        trial_fill(&t, KIND_NORMAL, &rng);
        attn_problem *p = &t.p;
        for (int64_t b = 1; b < batch; b++) /* from few to many rows, and none */
            t.cu_q[b] = n % 3 ? t.cu_q[b - 1] + rng_below(&rng, s.q_len - t.cu_q[b - 1] + 1)
                              : t.cu_q[b - 1];
        for (int64_t b = 0; b < batch; b++)
            t.kv_len[b] = rng_below(&rng, s.kv_cap + 1), t.offset[b] = rng_below(&rng, 20) - 5;
        p->kv_len = n % 2 ? t.kv_len : NULL;
        p->causal = n / 2 % 2;
        p->align = (attn_align)(1 + n % 3);
        p->offset = p->align == ATTN_ALIGN_EXPLICIT ? t.offset : NULL;
        p->scores_at = ATTN_SCORES_BIASED;
        if (n % 4 == 3)
            p->softcap = 3;
        if (n % 5 > 2) {
            struct mask_form form = random_form(&t, (attn_mask_type)(1 + n / 5 % 4), &rng);
            form.no_batch = n / 20 % 2;
            trial_add_mask(&t, form);
            for (int64_t at = 0; at < (form.no_batch ? 1 : batch) * 4 * s.q_len; at++)
                for (int64_t j = 0; j < s.kv_cap; j++)
                    mask_set(&t, at / s.q_len / 4, at / s.q_len % 4, at % s.q_len, j,
                             rng_below(&rng, 3) ? 0 : -INFINITY);
        }
        FOR_EACH_ISA(isa) {
            trial_context(&t, "ragged");
            struct reverse_executor e = reverse_executor(4);
            trial_run(&t, n % 3 ? NULL : &e.base);
            for (int64_t b = 0; b < batch; b++) {
                /* The same memory, as a batch of one. */
                alone = t;
                attn_problem *one = &alone.p;
                const int64_t first = t.cu_q[b];
                one->cu_q = NULL, one->batch = 1, one->q_len = t.cu_q[b + 1] - first;
                attn_input *const in[] = {&one->k, &one->v};
                for (int k = 0; k < 2; k++)
                    in[k]->data = in_at(in[k], b, 0, 0);
                one->q.data = in_at(&one->q, 0, 0, first);
                one->kv_len = p->kv_len ? p->kv_len + b : NULL;
                one->offset = p->offset ? p->offset + b : NULL;
                const int64_t size[] = {0, 1, 4, 2, 1};
                one->mask.data = (const char *)one->mask.data +
                                 size[one->mask.type] *
                                     (b * one->mask.stride_batch + first * one->mask.stride_query);
                float *results[4];
                attn_output *const to[] = {&one->out, &one->lse, &one->weights, &one->scores};
                const int64_t dims[] = {p->v_dim, 1, p->kv_cap, p->kv_cap};
                for (int k = 0; k < 4; k++) {
                    const int64_t head = one->q_len * dims[k];
                    results[k] = malloc((size_t)(p->q_heads * head + 1) * sizeof(float));
                    cr_assert(results[k] != NULL);
                    *to[k] = (attn_output){results[k], ATTN_F32, 0, head, dims[k]};
                }
                const attn_status status = attn_forward_alloc(one, NULL);
                CHECK(status == ATTN_OK, "alone: %s", attn_status_string(status));
                const attn_output *const among[] = {&p->out, &p->lse, &p->weights, &p->scores};
                for (int k = 0; k < 4; k++)
                    for (int64_t h = 0; h < p->q_heads; h++)
                        for (int64_t i = 0; i < one->q_len; i++)
                            CHECK(first_difference(row_of(p, among[k], b, h, i),
                                                   row_of(one, to[k], 0, h, i), dims[k]) < 0,
                                  "sequence %" PRId64 " alone: output %d of head %" PRId64
                                  " row %" PRId64 " differs",
                                  b, k, h, i);
                for (int k = 0; k < 4; k++)
                    free(results[k]);
            }
        }
    }
}

/* ---- Keys in two pieces ---------------------------------------------------------------------- */

/* The seam at one place: the bits of the concatenation, for few rows and for many. */
static void try_seam(struct trial *whole, int64_t seam, struct rng *rng) {
    struct trial t;
    const attn_problem *p = &whole->p;
    struct shape s = whole->shape;
    s.kv_cap -= seam;
    const int64_t room = rng_below(rng, 3) ? 0 : 1 + rng_below(rng, 70);
    struct layouts how = {.k = (enum layout)rng_below(rng, N_LAYOUTS),
                          .v = (enum layout)rng_below(rng, N_LAYOUTS),
                          .past_k = (enum layout)rng_below(rng, N_LAYOUTS),
                          .past_v = (enum layout)rng_below(rng, N_LAYOUTS),
                          .past_cap = seam + room,
                          .lse = true,
                          .weights = true,
                          .scores = true};
    guarded_use_bank(1);
    trial_place(&t, s, how); /* what is not filled below stays NaN */
    for (int64_t b = 0; b < s.batch; b++) {
        t.past_len[b] = seam;
        if (room || seam % 2)
            t.p.past_len = t.past_len;
        for (int64_t h = 0; h < s.q_heads; h++)
            for (int64_t i = 0; i < s.q_len; i++)
                memcpy(query_of(&t.p, b, h, i), query_of(p, b, h, i),
                       (size_t)s.qk_dim * sizeof(float));
    }
    t.p.causal = p->causal, t.p.align = p->align, t.p.scores_at = p->scores_at;
    t.p.softcap = p->softcap, t.p.alibi = p->alibi, t.p.sinks = p->sinks, t.p.mask = p->mask;
    for (int64_t b = 0; b < s.batch; b++)
        for (int64_t g = 0; g < s.kv_heads; g++)
            for (int64_t j = 0; j < p->kv_cap; j++) {
                memcpy(key_of(&t.p, b, g, j), key_of(p, b, g, j), (size_t)s.qk_dim * sizeof(float));
                memcpy(value_of(&t.p, b, g, j), value_of(p, b, g, j),
                       (size_t)s.v_dim * sizeof(float));
            }
    char what[64];
    snprintf(what, sizeof what, "seam at %" PRId64 " of %" PRId64, seam, p->kv_cap);
    trial_context(&t, what);
    struct reverse_executor e = reverse_executor(3);
    trial_run(&t, seam % 3 ? NULL : &e.base);
    const attn_output *const all[] = {&p->out, &p->lse, &p->weights, &p->scores};
    const attn_output *const pieces[] = {&t.p.out, &t.p.lse, &t.p.weights, &t.p.scores};
    const int64_t dims[] = {s.v_dim, 1, p->kv_cap, p->kv_cap};
    for (int k = 0; k < 4; k++)
        for (int64_t b = 0; b < s.batch; b++)
            for (int64_t h = 0; h < s.q_heads; h++)
                for (int64_t i = 0; i < s.q_len; i++)
                    CHECK(first_difference(row_of(p, all[k], b, h, i),
                                           row_of(&t.p, pieces[k], b, h, i), dims[k]) < 0,
                          "output %d of [%" PRId64 ",%" PRId64 ",%" PRId64 "] differs", k, b, h, i);
    guarded_use_bank(0);
}

static void try_seams(struct shape s, const int64_t *seams, int64_t n, uint64_t seed, bool plain) {
    struct trial whole;
    struct rng rng = {seed};
    guarded_use_bank(0);
    trial_place(&whole, s, (struct layouts){.lse = true, .weights = true, .scores = true});
    trial_fill(&whole, KIND_NORMAL, &rng);
    attn_problem *p = &whole.p;
    p->scores_at = ATTN_SCORES_BIASED;
    if (!plain) {
        p->causal = 1, p->align = ATTN_ALIGN_BOTTOM_RIGHT;
        for (int64_t h = 0; h < s.q_heads; h++)
            whole.alibi[h] = 0.01f * (float)h, whole.sinks[h] = rng_normal(&rng);
        p->alibi = whole.alibi, p->sinks = whole.sinks, p->softcap = 5;
        trial_add_mask(&whole, (struct mask_form){.type = ATTN_MASK_BITS, .n_keys = s.kv_cap});
        for (int64_t b = 0; b < s.batch; b++)
            for (int64_t h = 0; h < s.q_heads; h++)
                for (int64_t i = 0; i < s.q_len; i++)
                    for (int64_t j = 0; j < s.kv_cap; j++)
                        mask_set(&whole, b, h, i, j, rng_below(&rng, 4) ? 0 : -INFINITY);
    }
    FOR_EACH_ISA(isa) {
        trial_context(&whole, "one piece");
        trial_run(&whole, NULL);
        for (int64_t k = 0; k < n; k += check_quick() ? 3 : 1)
            if (seams[k] <= s.kv_cap)
                try_seam(&whole, seams[k], &rng);
    }
}

/* FAULTS B6, C9: beside every tile, vector and span. */
Test(forms, keys_in_two_pieces, .timeout = 600) {
    static const int64_t edges[] = {0,   1,   2,   7,   8,   15,  16,  17,  31,  32,   33,
                                    63,  64,  65,  127, 128, 129, 447, 448, 449, 511,  512,
                                    513, 575, 576, 577, 639, 700, 959, 960, 961, 1023, 1024};
    enum { N_EDGES = sizeof edges / sizeof *edges };
    int64_t every[131];
    for (int64_t k = 0; k < 131; k++)
        every[k] = k;
    for (int plain = 0; plain < 2; plain++) {
        const int64_t keys = check_quick() ? 600 : 1024;
        for (int64_t rows = 1; rows <= 27; rows += check_quick() ? 26 : rows < 4 ? 1 : 6) {
            try_seams((struct shape){1, 2, 1, rows, keys, 9, 11}, edges, N_EDGES, 91, plain);
            if (!check_quick())
                try_seams((struct shape){2, 2, 1, rows, 130, 17, 5}, every, 131, 92, plain);
        }
        if (!check_quick()) {
            try_seams((struct shape){1, 1, 1, 40, 600, 300, 8}, edges, N_EDGES, 93, plain);
            try_seams((struct shape){1, 1, 1, 3, 600, 1100, 8}, edges, N_EDGES, 94, plain);
        }
    }
}
