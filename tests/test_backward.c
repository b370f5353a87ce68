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

static void against_oracle(uint64_t part) {
    for (int64_t n = (int64_t)part; n < check_count(3000); n += 4) {
        struct trial t;
        struct gradient_trial g;
        make(&t, &g, 1 + (uint64_t)n, true);
        struct oracle_gradient o;
        cr_assert(oracle_differentiate(&t.p, &g.g, &o) == 0);
        FOR_EACH_ISA(isa) {
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
