/* Faults of public attention kernels, listed in tests/FAULTS.txt: what is read and written beyond
 * its extents (H), workspaces too small (I), and indices that need more than 32 bits (J).
 *
 * SPDX-License-Identifier: MIT */
#define _GNU_SOURCE 1
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cli/oracle.h"
#include "faults.h"

/* ---- H: beyond the end ----------------------------------------------------------------------- */

/* Masks of every type against inaccessible pages, any number of keys, few rows and many. */
Test(faults, H1_masks_at_guard_pages) {
    FOR_EACH_ISA(isa)
    FOR_EACH_MASK(type)
    for (int64_t keys = 1; keys <= 70; keys += check_quick() ? 11 : 1)
        for (int64_t rows = 1; rows <= 13; rows += 6) {
            struct trial t;
            struct rng rng = {(uint64_t)keys};
            trial_place(&t, (struct shape){1, 1, 1, rows, keys, 2, 3},
                        (struct layouts){.side = keys % 2 ? AT_END : AT_START, .weights = true});
            trial_fill(&t, KIND_NORMAL, &rng);
            trial_add_mask(&t, (struct mask_form){.type = type,
                                                  .n_keys = keys,
                                                  .no_query = keys % 3 == 0,
                                                  .side = rows % 2 ? AT_END : AT_START});
            for (int64_t j = 0; j < keys; j += 3)
                mask_pair(&t, 0, j, -INFINITY);
            trial_context(&t, "H1");
            trial_run(&t, NULL);
            for (size_t k = 0; k < t.out.n; k++)
                CHECK(isfinite(t.out.data[k]), "output %zu is %g", k, (double)t.out.data[k]);
        }
}

/* Elements from the key count on are not read: they need not even be there. */
Test(faults, H1_mask_ends_at_the_key_count) {
    const size_t sizes[] = {0, 1, 4, 2, 1};
    FOR_EACH_ISA(isa)
    FOR_EACH_MASK(type)
    for (int64_t count = 1; count <= 700; count += count < 140 ? 1 + check_quick() * 10 : 93)
        for (int64_t rows = 1; rows <= 14; rows += 13) {
            struct trial t;
            struct rng rng = {(uint64_t)count};
            trial_place(&t, (struct shape){1, 1, 1, rows, count + 200, 2, 3},
                        (struct layouts){.weights = true, .scores = true});
            trial_fill(&t, KIND_NORMAL, &rng);
            const size_t bytes =
                type == ATTN_MASK_BITS ? (size_t)(count + 7) / 8 : (size_t)count * sizes[type];
            uint8_t *mask = guarded(SLOT_MASK, bytes, AT_END);
            memset(mask, 0, bytes);
            memset(mask, 1, 1); /* key 0 is shown, or has a bias near 0 */
            t.p.mask = (attn_mask){
                .data = mask, .type = type, .stride_key = type != ATTN_MASK_BITS, .n_keys = 1000};
            t.kv_len[0] = count, t.p.kv_len = t.kv_len;
            t.p.scores_at = ATTN_SCORES_BIASED;
            trial_context(&t, "H1, the key count ends the mask");
            trial_run(&t, NULL);
            CHECK(isfinite(t.out.data[0]), "out is %g", (double)t.out.data[0]);
        }
}

/* H2: whatever the alignment of a mask beyond its element's. */
Test(faults, H2_mask_alignment) {
    const size_t sizes[] = {0, 1, 4, 2, 1};
    FOR_EACH_ISA(isa) FOR_EACH_MASK(type) {
        enum { KEYS = 133, ROWS = 5 };
        static _Alignas(64) uint8_t memory[64 + ROWS * (KEYS + 1) * 4];
        float want[ROWS * 3];
        for (size_t shift = 0; shift < 64; shift += sizes[type]) {
            struct trial t;
            struct rng rng = {9};
            place_masked(&t, (struct shape){1, 1, 1, ROWS, KEYS, 2, 3}, type, &rng);
            for (int64_t at = 0; at < ROWS * KEYS; at++)
                mask_set(&t, 0, 0, at / KEYS, at % KEYS, rng_below(&rng, 3) ? 0.5f : -INFINITY);
            memcpy(memory + shift, t.mask, t.mask_bytes);
            t.p.mask.data = memory + shift;
            trial_context(&t, "H2");
            trial_run(&t, NULL);
            if (shift == 0)
                memcpy(want, t.out.data, sizeof want);
            CHECK(first_difference(want, t.out.data, ROWS * 3) < 0, "shift %zu: other bits", shift);
        }
    }
}

/* H3: many rows of few features, guard pages around output and workspace, run after run. */
Test(faults, H3_small_head_many_rows) {
    enum { BATCH = 12, HEADS = 3, KEYS = 17, DIM = 8 };
    const int64_t rows = check_quick() ? 70 : 1030;
    struct rng rng = {83};
    const size_t n = (size_t)(BATCH * HEADS * rows * DIM);
    FOR_EACH_ISA(isa) for (int side = AT_END; side <= AT_START; side++) {
        float *q = guarded_floats(SLOT_Q, n, (enum side)side);
        float *out = guarded_floats(SLOT_OUT, n, (enum side)side);
        float *k = guarded_floats(SLOT_K, BATCH * HEADS * KEYS * DIM, (enum side)side);
        float *v = guarded_floats(SLOT_V, BATCH * HEADS * KEYS * DIM, (enum side)side);
        for (size_t at = 0; at < n; at++)
            q[at] = rng_normal(&rng);
        for (size_t at = 0; at < BATCH * HEADS * KEYS * DIM; at++)
            k[at] = rng_normal(&rng), v[at] = rng_normal(&rng);
        const attn_problem p =
            attn_problem_bhld(BATCH, HEADS, HEADS, rows, KEYS, DIM, DIM, q, k, v, out);
        check_context("%s: H3", isa);
        for (size_t workers = 1; workers <= 8; workers += 7) {
            size_t size;
            cr_assert(attn_workspace_size(&p, workers, &size) == ATTN_OK);
            void *workspace = guarded(SLOT_WORKSPACE, size, (enum side)side);
            struct reverse_executor e = reverse_executor(workers);
            CHECK(attn_forward(&p, workspace, size, &e.base) == ATTN_OK, "fails");
        }
        for (size_t at = 0; at < n; at++)
            CHECK(isfinite(out[at]), "output %zu is %g", at, (double)out[at]);
    }
}

/* ---- I: workspaces --------------------------------------------------------------------------- */

/* Exactly the size asked for, against inaccessible pages, with everything that needs scratch. */
static void try_workspace(struct shape s, int64_t past_cap, size_t workers) {
    struct trial t;
    struct rng rng = {workers};
    trial_place(&t, s,
                (struct layouts){.lse = true,
                                 .weights = true,
                                 .scores = true,
                                 .past_cap = past_cap,
                                 .side = workers % 2 ? AT_END : AT_START});
    trial_fill(&t, KIND_NORMAL, &rng);
    trial_add_mask(&t, (struct mask_form){.type = workers % 2 ? ATTN_MASK_F16 : ATTN_MASK_F32,
                                          .layout = MASK_TRANSPOSED,
                                          .n_keys = s.kv_cap + past_cap});
    t.p.softcap = 5, t.p.sinks = t.sinks;
    trial_context(&t, "exact workspace");
    trial_run(&t, NULL);
    float *out = malloc(t.out.n * sizeof(float));
    cr_assert(out != NULL);
    memcpy(out, t.out.data, t.out.n * sizeof(float));
    struct reverse_executor e = reverse_executor(workers);
    trial_run(&t, &e.base);
    CHECK(first_difference(out, t.out.data, (int64_t)t.out.n) < 0, "%zu workers: other bits",
          workers);
    for (size_t k = 0; k < t.out.n; k++)
        CHECK(isfinite(out[k]), "output %zu is %g", k, (double)out[k]);
    free(out);
}

Test(faults, I1_workspace_with_options) {
    FOR_EACH_ISA(isa) for (size_t workers = 1; workers <= 64; workers += workers < 9 ? 1 : 11) {
        if (check_quick() && workers % 4)
            continue;
        try_workspace((struct shape){1, 2, 1, 1, 2048, 8, 8}, 0, workers);
        try_workspace((struct shape){1, 2, 1, 1, 3000, 8, 8}, 1097, workers);
        try_workspace((struct shape){1, 2, 1, 60, 300, 8, 8}, 77, workers);
    }
}

Test(faults, I5_value_dim_in_the_workspace) {
    FOR_EACH_ISA(isa) for (size_t workers = 1; workers <= 7; workers += 3) {
        try_workspace((struct shape){1, 2, 1, 3, 600, 64, 128}, 9, workers);
        try_workspace((struct shape){1, 2, 1, 3, 600, 576, 512}, 9, workers);
        try_workspace((struct shape){1, 1, 1, 14, 90, 2100, 3}, 70, workers);
        try_workspace((struct shape){1, 1, 1, 14, 90, 3, 2100}, 70, workers);
    }
}

Test(faults, I6_speculative_decoding) {
    FOR_EACH_ISA(isa) for (int64_t batch = 1; batch <= 4; batch += 3) {
        try_workspace((struct shape){batch, 4, 2, 8, check_quick() ? 600 : 2048, 8, 8}, 0, 8);
        try_workspace((struct shape){batch, 4, 2, 8, 600, 8, 8}, 600, 16);
    }
}

/* Ragged: the workspace is that of the whole, whoever has the rows. */
Test(faults, I6_ragged_workspace) {
    FOR_EACH_ISA(isa)
    for (size_t workers = 1; workers <= 9; workers += 4)
        for (int n = 0; n < 4; n++) {
            struct trial t;
            struct rng rng = {86};
            trial_place(&t, (struct shape){4, 2, 1, 50, 700, 8, 8},
                        (struct layouts){.lse = true, .is_ragged = true});
            trial_fill(&t, KIND_NORMAL, &rng);
            const int64_t cuts[][5] = {
                {0, 50, 50, 50, 50}, {0, 0, 0, 0, 50}, {0, 1, 2, 3, 50}, {0, 25, 25, 26, 50}};
            memcpy(t.cu_q, cuts[n], sizeof cuts[n]);
            trial_context(&t, "I6, ragged");
            struct reverse_executor e = reverse_executor(workers);
            trial_run(&t, &e.base);
            for (size_t k = 0; k < t.out.n; k++)
                CHECK(isfinite(t.out.data[k]), "output %zu", k);
        }
}

/* ---- J: beyond 32 bits ----------------------------------------------------------------------- */

static char *sparse_map(size_t bytes, const char *what) {
    char *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map != MAP_FAILED)
        return map;
    check_say("skipped: %s, no address space of %zu bytes here", what, bytes);
    return NULL;
}

/* Masks whose rows, heads or keys are 2^30 + 1 elements apart. */
Test(faults, J2_mask_beyond_32_bits) {
    const size_t sizes[] = {0, 1, 4, 2, 1};
    const int64_t stride = (INT64_C(1) << 30) + 1;
    FOR_EACH_MASK(type)
    for (int axis = 0; axis < 4; axis++) {
        if (axis == 3 && type == ATTN_MASK_BITS)
            continue;
        struct trial t;
        struct rng rng = {72};
        trial_place(&t, (struct shape){4, 4, 1, 4, 4, 2, 3}, (struct layouts){.weights = true});
        trial_fill(&t, KIND_NORMAL, &rng);
        const size_t bytes = (size_t)(3 * stride) * sizes[type] + 4096;
        char *map = sparse_map(bytes, "J2");
        if (!map)
            return;
        attn_mask *m = &t.p.mask;
        *m = (attn_mask){map, type, 256, 64, 16, type == ATTN_MASK_BITS ? 0 : 1, 4};
        *(axis == 0   ? &m->stride_batch
          : axis == 1 ? &m->stride_head
          : axis == 2 ? &m->stride_query
                      : &m->stride_key) = stride;
        t.mask = (uint8_t *)map; /* of which nothing is to be looked at as a whole */
        for (int64_t at = 0; at < 256; at++)
            mask_set(&t, at / 64, at / 16 % 4, at / 4 % 4, at % 4,
                     rng_below(&rng, 3) ? 0.25f * (float)rng_below(&rng, 9) : -INFINITY);
        trial_on_every_isa(&t);
        munmap(map, bytes);
    }
}

/* One key far out is visible: its number has more than 15 or 16 bits. */
Test(faults, J3_far_key) {
    const int64_t cases[][2] = {{33000, 32900}, {65600, 65540}};
    for (int n = 0; n < (check_quick() ? 1 : 2); n++)
        for (int how = ATTN_MASK_NONE; how <= ATTN_MASK_BITS; how++) { /* none: by a window */
            const int64_t keys = cases[n][0], at = cases[n][1];
            struct trial t;
            struct rng rng = {73};
            trial_place(&t, (struct shape){1, 1, 1, 1, keys, 8, 8}, (struct layouts){.lse = true});
            trial_fill(&t, KIND_NORMAL, &rng);
            if (how == ATTN_MASK_NONE) {
                t.window[0] = t.window[1] = 0, t.p.window = t.window;
                t.offset[0] = at, t.p.align = ATTN_ALIGN_EXPLICIT, t.p.offset = t.offset;
            } else {
                trial_add_mask(&t, (struct mask_form){.type = (attn_mask_type)how, .n_keys = keys});
                for (int64_t j = 0; j < keys; j++)
                    mask_pair(&t, 0, j, j == at ? 0 : -INFINITY);
            }
            FOR_EACH_ISA(isa) for (int split = 0; split < 2; split++) {
                struct reverse_executor e = reverse_executor(4);
                trial_context(&t, "J3");
                trial_run(&t, split ? &e.base : NULL);
                CHECK(first_difference(t.out.data, in_at(&t.p.v, 0, 0, at), 8) < 0, "not V[%d]",
                      (int)at);
            }
        }
}

/* The past and the scores, each axis in turn more than 2^31 elements wide. */
Test(faults, J6_wide_strides_of_past_and_scores) {
    const int64_t stride = (INT64_C(1) << 31) + 8;
    const size_t bytes = (size_t)(stride + 4096) * sizeof(float);
    FOR_EACH_ISA(isa) for (int which = 0; which < 4; which++) for (int axis = 0; axis < 3; axis++) {
        struct trial t;
        struct rng rng = {76};
        const struct shape s = {2, 2, 2, 2, 3, 4, 4};
        trial_place(&t, s,
                    (struct layouts){.past_cap = 2, .scores = true, .weights = true, .lse = true});
        trial_fill(&t, KIND_NORMAL, &rng);
        trial_context(&t, "J6");
        trial_run(&t, NULL);
        char *map = sparse_map(bytes, "J6");
        if (!map)
            return;
        int64_t strides[3] = {64, 16, 8};
        strides[axis] = stride;
        attn_problem p = t.p;
        float *plain = malloc(t.out.n * sizeof(float));
        cr_assert(plain != NULL);
        memcpy(plain, t.out.data, t.out.n * sizeof(float));
        if (which < 2) {
            attn_input *to = which ? &p.past_v : &p.past_k;
            const attn_input *from = which ? &t.p.past_v : &t.p.past_k;
            *to = (attn_input){map, ATTN_F32, strides[0], strides[1], strides[2]};
            for (int64_t at = 0; at < 8; at++)
                memcpy(in_at_mutable(to, at / 4, at / 2 % 2, at % 2),
                       in_at(from, at / 4, at / 2 % 2, at % 2), 4 * sizeof(float));
            forward(&p);
            CHECK(first_difference(plain, t.out.data, (int64_t)t.out.n) < 0,
                  "tensor %d axis %d: wrong data read", which, axis);
        } else {
            attn_output *to = which == 2 ? &p.scores : &p.weights;
            const attn_output *had = which == 2 ? &t.p.scores : &t.p.weights;
            *to = (attn_output){map, ATTN_F32, strides[0], strides[1], strides[2]};
            forward(&p);
            for (int64_t at = 0; at < 8; at++)
                CHECK(first_difference(out_at(to, at / 4, at / 2 % 2, at % 2),
                                       out_at(had, at / 4, at / 2 % 2, at % 2), 5) < 0,
                      "output %d axis %d: wrong place written", which, axis);
        }
        free(plain);
        munmap(map, bytes);
    }
}
