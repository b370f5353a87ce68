/* Seeded random problems over everything that attn.h offers, with poison in all that no row sees:
 * each within its bound of the oracle on every kernel set, and on a part of them the laws of
 * CONTRACT 3 and 4: what is hidden changes no bit, and a row alone has the bits it has among others.
 *
 * N=100000 in the environment does more, SEED=n begins elsewhere: each problem has a seed of its
 * own, printed where it fails, so that SEED=<that> N=1 repeats it.
 *
 * SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "cli/oracle.h"

enum { PARTS = 4, BUDGET = 150000 };

static int64_t environment(const char *name, int64_t otherwise) {
    const char *text = getenv(name);
    return text && *text ? strtoll(text, NULL, 10) : otherwise;
}

static int64_t count(int64_t full) { return environment("N", check_count(full)); }
static uint64_t first_seed(void) { return (uint64_t)environment("SEED", 1); }

static void make(struct trial *t, uint64_t seed, bool is_poisoned) {
    struct rng rng = {seed * UINT64_C(0x9e3779b97f4a7c15)};
    trial_random(t, &rng, check_quick() ? BUDGET / 10 : BUDGET);
    if (is_poisoned)
        trial_poison(t, &rng);
}

/* The same, stored in other types and in pages: the same ones, but elsewhere, where poisoned. */
static void make_stored(struct trial *t, uint64_t seed, bool is_poisoned) {
    struct rng rng = {seed ^ UINT64_C(0x5851f42d4c957f2d)};
    make(t, seed, is_poisoned);
    const struct storage how = storage_random(t, &rng);
    rng.state += is_poisoned;
    trial_store(t, how, &rng);
}

typedef void maker(struct trial *t, uint64_t seed, bool is_poisoned);

static void name_it(const struct trial *t, uint64_t seed, const char *what) {
    char text[96];
    snprintf(text, sizeof text, "SEED=%" PRIu64 " N=1, %s", seed, what);
    trial_context(t, text);
}

/* ---- Against the oracle ---------------------------------------------------------------------- */

static void against_oracle(maker *make_one, uint64_t seed) {
    struct trial t;
    make_one(&t, seed, true);
    struct reference r = reference_make(&t);
    FOR_EACH_ISA(isa) {
        struct reverse_executor e = reverse_executor(1 + seed % 5);
        name_it(&t, seed, "against the oracle");
        trial_run(&t, seed % 3 ? NULL : &e.base);
        trial_compare(&t, &r);
        trial_check_gaps(&t);
    }
    reference_free(&r);
}

/* Parts, so that they can run at the same time. */
static void part(uint64_t k) {
    for (int64_t n = (int64_t)k; n < count(6000); n += PARTS)
        against_oracle(make, first_seed() + (uint64_t)n);
}
static void stored_part(uint64_t k) {
    for (int64_t n = (int64_t)k; n < count(1200); n += 2)
        against_oracle(make_stored, first_seed() + 3000000 + (uint64_t)n);
}

Test(random, oracle_1, .timeout = 3600) { part(0); }
Test(random, oracle_2, .timeout = 3600) { part(1); }
Test(random, oracle_3, .timeout = 3600) { part(2); }
Test(random, oracle_4, .timeout = 3600) { part(3); }
Test(random, stored_1, .timeout = 3600) { stored_part(0); }
Test(random, stored_2, .timeout = 3600) { stored_part(1); }

/* ---- A row alone ----------------------------------------------------------------------------- */

static void copy_inputs(const attn_problem *p, attn_problem *q, int64_t b, int64_t h, int64_t i,
                        int64_t used) {
    const int64_t g = h / (p->q_heads / p->kv_heads);
    memcpy(query_of(q, 0, 0, 0), query_of(p, b, h, i), (size_t)p->qk_dim * sizeof(float));
    for (int64_t j = 0; j < used; j++) {
        memcpy(key_of(q, 0, 0, j), key_of(p, b, g, j), (size_t)p->qk_dim * sizeof(float));
        memcpy(value_of(q, 0, 0, j), value_of(p, b, g, j), (size_t)p->v_dim * sizeof(float));
    }
}

static void copy_place(attn_type type, struct place to, struct place from, int64_t n,
                       int64_t group) {
    memcpy(to.at, from.at, (size_t)n * type_width(type));
    if (type == ATTN_I8)
        memcpy(to.scales, from.scales, (size_t)(group ? (n - 1) / group + 1 : 1) * sizeof(float));
}

/* Of the keys, which may be in pages that nobody sees and that are not there, those that are seen. */
static void copy_stored_inputs(const attn_problem *p, attn_problem *q, int64_t b, int64_t h,
                               int64_t i, int64_t used) {
    const int64_t g = h / (p->q_heads / p->kv_heads), width = (int64_t)type_width(p->q.type);
    const int64_t token = p->cu_q ? p->cu_q[b] + i : i;
    const int64_t at =
        (p->cu_q ? 0 : b * p->q.stride_batch) + h * p->q.stride_head + token * p->q.stride_token;
    memcpy((char *)(uintptr_t)q->q.data, (const char *)p->q.data + at * width,
           (size_t)(p->qk_dim * width));
    for (int64_t j = 0; j < used; j++)
        if (oracle_sees(p, b, h, i, j)) {
            copy_place(p->k.type, key_place(q, 0, 0, j), key_place(p, b, g, j), p->qk_dim,
                       p->k_scales.group);
            copy_place(p->v.type, value_place(q, 0, 0, j), value_place(p, b, g, j), p->v_dim,
                       p->v_scales.group);
        }
}

/* Copies what one row reads into a problem of that row alone, which lies otherwise in memory, has
 * another seam, capacity and key count, and is NaN or infinite wherever the row does not see. */
static void place_row(const struct trial *from, struct trial *to, int64_t b, int64_t h, int64_t i,
                      struct rng *rng) {
    const attn_problem *p = &from->p;
    const int64_t count = oracle_key_count(p, b);
    const bool is_stored = from->is_stored;
    int64_t used = 0;
    for (int64_t j = 0; j < count; j++)
        if (oracle_sees(p, b, h, i, j))
            used = j + 1;
    used += rng_below(rng, count - used + 1);
    const int64_t room = used + rng_below(rng, 3) * rng_below(rng, 40);
    struct layouts how = {.lse = true, .weights = true, .scores = true, .is_ragged = i % 2};
    how.q = (enum layout)rng_below(rng, N_LAYOUTS), how.k = (enum layout)rng_below(rng, N_LAYOUTS);
    how.v = (enum layout)rng_below(rng, N_LAYOUTS),
    how.out = (enum layout)rng_below(rng, N_LAYOUTS);
    how.side = rng_below(rng, 2) ? AT_END : AT_START;
    how.past_k = (enum layout)rng_below(rng, N_LAYOUTS), how.past_v = BLHD;
    struct storage storage = from->storage;
    storage.page_len = rng_below(rng, 2) ? 1 + rng_below(rng, 70) : 0;
    storage.pages = (enum layout)rng_below(rng, N_LAYOUTS);
    const bool has_seam = rng_below(rng, 2) && !(is_stored && storage.page_len);
    const int64_t seam = has_seam ? rng_below(rng, used + 1) : 0;
    how.past_cap = seam ? seam + rng_below(rng, 5) : 0;
    guarded_use_bank(1);
    trial_place(to, (struct shape){1, 1, 1, 1, room - seam, p->qk_dim, p->v_dim}, how);
    attn_problem *q = &to->p;
    to->kv_len[0] = used, to->past_len[0] = seam;
    to->offset[0] = oracle_position(p, b, i);
    q->kv_len = to->kv_len, q->past_len = how.past_cap ? to->past_len : NULL;
    q->causal = p->causal, q->window = p->window, q->softcap = p->softcap, q->scale = p->scale;
    q->align = ATTN_ALIGN_EXPLICIT, q->offset = to->offset;
    q->alibi = p->alibi ? p->alibi + h : NULL, q->sinks = p->sinks ? p->sinks + h : NULL;
    q->scores_at = ATTN_SCORES_BIASED;
    if (p->mask.type) {
        struct mask_form form = from->mask_form;
        form.no_batch = form.no_head = rng_below(rng, 2);
        form.layout = (enum mask_layout)rng_below(rng, N_MASK_LAYOUTS);
        trial_add_mask(to, form);
        for (int64_t j = 0; j < form.n_keys; j++) {
            const int64_t at = mask_place(from, b, h, p->cu_q ? p->cu_q[b] + i : i, j);
            const int64_t place = mask_place(to, 0, 0, 0, j);
            const size_t size = form.type == ATTN_MASK_F32 ? 4 : form.type == ATTN_MASK_F16 ? 2 : 1;
            if (form.type == ATTN_MASK_BITS)
                mask_set(to, 0, 0, 0, j, from->mask[at / 8] >> at % 8 & 1 ? 0 : -INFINITY);
            else
                memcpy(to->mask + place * (int64_t)size, from->mask + at * (int64_t)size, size);
        }
    }
    if (!is_stored)
        copy_inputs(p, q, b, h, i, used);
    trial_poison(to, rng); /* the rest is NaN already */
    if (is_stored) {
        trial_store(to, storage, rng);
        copy_stored_inputs(p, q, b, h, i, used);
    }
    guarded_use_bank(0);
}

static void compare_with_row(const struct trial *t, const struct trial *alone, int64_t b, int64_t h,
                             int64_t i) {
    const attn_problem *p = &t->p, *q = &alone->p;
    const struct {
        const char *name;
        const attn_output *among, *alone;
        int64_t n;
    } outputs[] = {{"out", &p->out, &q->out, p->v_dim},
                   {"lse", &p->lse, &q->lse, 1},
                   {"weights", &p->weights, &q->weights, alone->kv_len[0]},
                   {"scores", &p->scores, &q->scores,
                    p->scores_at == ATTN_SCORES_BIASED ? alone->kv_len[0] : 0}};
    for (size_t k = 0; k < sizeof outputs / sizeof *outputs; k++) {
        if (!outputs[k].among->data || outputs[k].n == 0)
            continue;
        for (int64_t at = 0; at < outputs[k].n; at++) {
            const float x = output_of(p, outputs[k].among, b, h, i, at);
            const float y = output_of(q, outputs[k].alone, 0, 0, 0, at);
            CHECK(same_bits(x, y),
                  "%s[%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "] is %a, alone %a",
                  outputs[k].name, b, h, i, at, (double)x, (double)y);
        }
    }
}

/* FAULTS B10, N1: rows of random problems, computed by one thread, by four workers in reverse order
 * and each row alone. */
static void rows_alone(maker *make_one, int64_t n_trials, uint64_t from) {
    for (int64_t n = 0; n < n_trials; n++) {
        const uint64_t seed = first_seed() + from + (uint64_t)n;
        struct trial t, same, alone;
        make_one(&t, seed, true);
        guarded_use_bank(1);
        make_one(&same, seed, true);
        guarded_use_bank(0);
        struct rng rng = {seed};
        FOR_EACH_ISA(isa) {
            name_it(&t, seed, "rows alone");
            trial_run(&t, NULL);
            guarded_use_bank(1);
            make_one(&same, seed, true);
            struct reverse_executor e = reverse_executor(4);
            trial_run(&same, &e.base);
            guarded_use_bank(0);
            if (!trial_same_bits(&t, &same, "by 1 and by 4 workers"))
                break;
            const attn_problem *p = &t.p;
            for (int64_t b = 0; b < p->batch; b++)
                for (int64_t h = rng_below(&rng, p->q_heads); h < p->q_heads; h += 3)
                    for (int64_t i = rng_below(&rng, 3); i < oracle_rows(p, b);
                         i += 1 + rng_below(&rng, 6)) {
                        place_row(&t, &alone, b, h, i, &rng);
                        guarded_use_bank(1);
                        name_it(&alone, seed, "a row alone");
                        struct reverse_executor e2 = reverse_executor(3);
                        trial_run(&alone, i % 3 ? NULL : &e2.base);
                        guarded_use_bank(0);
                        compare_with_row(&t, &alone, b, h, i);
                    }
        }
    }
}

Test(random, rows_alone, .timeout = 3600) { rows_alone(make, count(240), 1000000); }
Test(random, stored_rows_alone, .timeout = 3600) { rows_alone(make_stored, count(160), 4000000); }

/* FAULTS C: the same problem with and without poison in all that no row sees. */
static void poison(maker *make_one, int64_t n_trials, uint64_t from) {
    for (int64_t n = 0; n < n_trials; n++) {
        const uint64_t seed = first_seed() + from + (uint64_t)n;
        struct trial clean, poisoned;
        make_one(&clean, seed, false);
        guarded_use_bank(1);
        make_one(&poisoned, seed, true);
        guarded_use_bank(0);
        FOR_EACH_ISA(isa) {
            name_it(&clean, seed, "clean");
            trial_run(&clean, NULL);
            guarded_use_bank(1);
            name_it(&poisoned, seed, "poisoned");
            trial_run(&poisoned, NULL);
            guarded_use_bank(0);
            if (!trial_same_bits(&clean, &poisoned, "clean or poisoned"))
                break;
        }
    }
}

Test(random, poison, .timeout = 3600) { poison(make, count(600), 2000000); }
Test(random, stored_poison, .timeout = 3600) { poison(make_stored, count(400), 5000000); }
