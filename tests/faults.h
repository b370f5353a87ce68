/* What the tests of faults seen in public attention kernels share. tests/FAULTS.txt says which test
 * stands for which fault.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_FAULTS_H
#define ATTN_FAULTS_H

#include <math.h>

#include "check.h"

static const float one = 1;

/* Runs a problem of a few contiguous arrays. */
static inline void forward(const attn_problem *p) {
    char sentence[256];
    const attn_status status = attn_forward_alloc(p, NULL);
    if (status != ATTN_OK)
        attn_check(p, sentence, sizeof sentence);
    CHECK(status == ATTN_OK, "%s: %s", attn_status_string(status), sentence);
}

#define FOR_EACH_MASK(type)                                                                        \
    for (attn_mask_type type = ATTN_MASK_BOOL; type <= ATTN_MASK_BITS;                             \
         type = (attn_mask_type)(type + 1))

/* A trial with lse and weights, filled, and with a mask of that type that shows everything. */
static inline void place_masked(struct trial *t, struct shape s, attn_mask_type type,
                                struct rng *rng) {
    trial_place(t, s, (struct layouts){.lse = true, .weights = true});
    trial_fill(t, KIND_NORMAL, rng);
    trial_add_mask(t, (struct mask_form){.type = type, .n_keys = s.kv_cap});
}

/* Hides or shows key j from row i of every head and batch. */
static inline void mask_pair(struct trial *t, int64_t i, int64_t j, float x) {
    for (int64_t b = 0; b < t->p.batch; b++)
        for (int64_t h = 0; h < t->p.q_heads; h++)
            mask_set(t, b, h, i, j, x);
}

/* Row i of head 0 of batch 0 is 0, its lse -inf. */
static inline void expect_empty(const struct trial *t, int64_t i) {
    for (int64_t c = 0; c < t->p.v_dim; c++)
        CHECK(bits_of(out_at(&t->p.out, 0, 0, i)[c]) == 0, "row %d is %f, want 0", (int)i,
              (double)out_at(&t->p.out, 0, 0, i)[c]);
    CHECK(*out_at(&t->p.lse, 0, 0, i) == -INFINITY, "lse of row %d is %f", (int)i,
          (double)*out_at(&t->p.lse, 0, 0, i));
}

#endif
