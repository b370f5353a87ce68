/* The bits of a row are a function of that row's inputs alone (CONTRACT 4), and what is hidden does
 * not exist (CONTRACT 3): compared bit for bit, on every kernel set.
 *
 * A source problem is computed once. Then its rows are computed again inside other problems: alone
 * or among other rows, in another batch and head, with other strides and capacity, with what the
 * row does not see replaced by NaN and infinity, by one or several workers, in any order of tasks.
 *
 * SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "half.h"
#include "plan.h"

/* Contiguous [batch, heads, length, features], with results. */
struct source {
    struct shape s;
    int64_t offset; /* causal from here, or -1: not causal */
    float *q, *k, *v, *out, *lse, *weights;
};

static float *new_floats(int64_t n, struct rng *rng) {
    float *x = malloc((size_t)(n + 1) * sizeof(float));
    cr_assert(x != NULL);
    for (int64_t i = 0; i < n; i++)
        x[i] = rng ? rng_normal(rng) : NAN;
    return x;
}

static struct source source_make(struct shape s, int64_t offset, struct rng *rng) {
    const int64_t rows = s.batch * s.q_heads * s.q_len, keys = s.batch * s.kv_heads * s.kv_cap;
    const struct source source = {.s = s,
                                  .offset = offset,
                                  .q = new_floats(rows * s.qk_dim, rng),
                                  .k = new_floats(keys * s.qk_dim, rng),
                                  .v = new_floats(keys * s.v_dim, rng),
                                  .out = new_floats(rows * s.v_dim, NULL),
                                  .lse = new_floats(rows, NULL),
                                  .weights = new_floats(rows * s.kv_cap, NULL)};
    return source;
}

static void source_free(struct source *s) {
    free(s->q), free(s->k), free(s->v), free(s->out), free(s->lse), free(s->weights);
}

static void source_run(struct source *source) {
    const struct shape s = source->s;
    int64_t offset[MAX_BATCH];
    for (int64_t b = 0; b < s.batch; b++)
        offset[b] = source->offset;
    attn_problem p = attn_problem_bhld(s.batch, s.q_heads, s.kv_heads, s.q_len, s.kv_cap, s.qk_dim,
                                       s.v_dim, source->q, source->k, source->v, source->out);
    if (source->offset >= 0)
        p.causal = 1, p.align = ATTN_ALIGN_EXPLICIT, p.offset = offset;
    p.lse = (attn_output){source->lse, ATTN_F32, s.q_heads * s.q_len, s.q_len, 1};
    p.weights = (attn_output){source->weights, ATTN_F32, s.q_heads * s.q_len * s.kv_cap,
                              s.q_len * s.kv_cap, s.kv_cap};
    cr_assert(attn_forward_alloc(&p, NULL) == ATTN_OK);
}

/* ---- One row inside another problem ---------------------------------------------------------- */

/* What a kernel must not meet: NaN, infinities, and what is merely large. */
static float poison(struct rng *rng) {
    const float values[] = {NAN, INFINITY, -INFINITY, 3e38f, -NAN, 1e10f};
    return values[rng_below(rng, 6)];
}

/* Runs on the threads of OpenMP where there are any, else in reverse order. */
static attn_executor *pick_executor(struct rng *rng, struct reverse_executor *reverse,
                                    attn_executor *openmp) {
    const size_t workers[] = {2, 3, 4, 7, 64};
    *reverse = reverse_executor(workers[rng_below(rng, 5)]);
    *openmp = reverse->base;
#ifdef ATTN_HAVE_OPENMP
    if (rng_below(rng, 4) == 0) {
        *openmp = attn_openmp_executor(4);
        return openmp;
    }
#endif
    return rng_below(rng, 3) ? &reverse->base : NULL;
}

static void try_row(const struct source *source, int64_t b, int64_t h, int64_t i, int64_t max_rows,
                    struct rng *rng) {
    const struct shape from = source->s;
    const int64_t g = h / (from.q_heads / from.kv_heads);
    int64_t visible = from.kv_cap;
    if (source->offset >= 0 && source->offset + i + 1 < visible)
        visible = source->offset + i + 1;

    struct shape to = {1 + rng_below(rng, 2),
                       0,
                       1 + rng_below(rng, 2),
                       1 + rng_below(rng, max_rows),
                       visible + rng_below(rng, 2) * rng_below(rng, 140),
                       from.qk_dim,
                       from.v_dim};
    to.q_heads = to.kv_heads * (1 + rng_below(rng, 3));
    const struct layouts layouts = {.q = (enum layout)rng_below(rng, N_LAYOUTS),
                                    .k = (enum layout)rng_below(rng, N_LAYOUTS),
                                    .v = (enum layout)rng_below(rng, N_LAYOUTS),
                                    .out = (enum layout)rng_below(rng, N_LAYOUTS),
                                    .side = rng_below(rng, 2) ? AT_END : AT_START,
                                    .lse = rng_below(rng, 2),
                                    .weights = rng_below(rng, 4) == 0};
    const int64_t b2 = rng_below(rng, to.batch), h2 = rng_below(rng, to.q_heads);
    const int64_t i2 = rng_below(rng, to.q_len), g2 = h2 / (to.q_heads / to.kv_heads);

    struct trial t;
    trial_place(&t, to, layouts);
    trial_fill(&t, KIND_NORMAL, rng);
    attn_problem *p = &t.p;
    memcpy(in_at_mutable(&p->q, b2, h2, i2),
           source->q + ((b * from.q_heads + h) * from.q_len + i) * from.qk_dim,
           (size_t)from.qk_dim * sizeof(float));
    for (int64_t j = 0; j < to.kv_cap; j++) {
        const int64_t at = (b * from.kv_heads + g) * from.kv_cap + j;
        float *k = in_at_mutable(&p->k, b2, g2, j), *v = in_at_mutable(&p->v, b2, g2, j);
        for (int64_t c = 0; c < from.qk_dim; c++)
            k[c] = j < visible ? source->k[at * from.qk_dim + c] : poison(rng);
        for (int64_t c = 0; c < from.v_dim; c++)
            v[c] = j < visible ? source->v[at * from.v_dim + c] : poison(rng);
    }
    /* Hidden by kv_len, or by causality, or by either. */
    const bool is_causal = to.kv_cap > visible ? rng_below(rng, 3) > 0 : rng_below(rng, 2);
    for (int64_t k = 0; k < to.batch; k++) {
        t.kv_len[k] = rng_below(rng, to.kv_cap + 1);
        t.offset[k] = rng_below(rng, to.kv_cap + 1);
    }
    t.kv_len[b2] = is_causal ? visible + rng_below(rng, to.kv_cap - visible + 1) : visible;
    p->kv_len = t.kv_len;
    if (is_causal && i2 == to.q_len - 1 && t.kv_len[b2] == visible) {
        p->causal = 1, p->align = ATTN_ALIGN_BOTTOM_RIGHT;
    } else if (is_causal) {
        p->causal = 1, p->align = ATTN_ALIGN_EXPLICIT, p->offset = t.offset;
        t.offset[b2] = visible - 1 - i2;
    }

    struct reverse_executor reverse;
    attn_executor openmp;
    attn_executor *executor = pick_executor(rng, &reverse, &openmp);
    trial_context(&t, "a row of another problem");
    trial_run(&t, executor);

    const int64_t row = (b * from.q_heads + h) * from.q_len + i;
    const char *by = executor ? executor == &openmp ? "OpenMP" : "reversed tasks" : "one thread";
    int64_t at =
        first_difference(out_at(&p->out, b2, h2, i2), source->out + row * from.v_dim, from.v_dim);
    CHECK(at < 0,
          "row (%" PRId64 ",%" PRId64 ",%" PRId64 "), seeing %" PRId64 " keys, placed at (%" PRId64
          ",%" PRId64 ",%" PRId64 "), by %s with %zu workers: feature %" PRId64 " is %a, was %a",
          b, h, i, visible, b2, h2, i2, by, executor ? executor->n_workers : 1, at,
          (double)out_at(&p->out, b2, h2, i2)[at], (double)source->out[row * from.v_dim + at]);
    if (p->lse.data)
        CHECK(same_bits(*out_at(&p->lse, b2, h2, i2), source->lse[row]), "lse is %a, was %a",
              (double)*out_at(&p->lse, b2, h2, i2), (double)source->lse[row]);
    if (p->weights.data) {
        at = first_difference(out_at(&p->weights, b2, h2, i2), source->weights + row * from.kv_cap,
                              visible);
        CHECK(at < 0, "weight %" PRId64 " differs", at);
    }
}

/* FAULTS B7, B10, C5, M10, N1. */
Test(invariance, rows_elsewhere, .timeout = 1200) {
    static const struct {
        struct shape shape;
        int64_t offset, max_rows, repeat;
    } sources[] = {
        {{2, 4, 2, 70, 70, 24, 20}, 0, 30, 2},
        {{2, 4, 2, 30, 70, 13, 35}, -1, 30, 2},
        {{1, 2, 1, 12, 525, 16, 9}, 505, 30, 4},  /* the first span ends at 512 */
        {{1, 2, 2, 9, 1100, 8, 17}, 1020, 26, 4}, /* and the second at 1024 */
        {{1, 2, 1, 3, 1300, 33, 8}, -1, 26, 4},
        {{1, 2, 1, 10, 4200, 8, 8}, 4090, 26, 2},  /* spans begin to grow at 4096, */
        {{1, 2, 1, 10, 8300, 4, 8}, 8187, 26, 2},  /* 8192 */
        {{1, 1, 1, 4, 17000, 3, 5}, 16382, 26, 1}, /* and 16384 */
        {{1, 2, 1, 8, 700, 600, 8}, 508, 26, 1},   /* tiles of 128 keys */
        {{1, 1, 1, 6, 300, 2100, 520}, 125, 26, 1} /* tiles of 64 */
    };
    FOR_EACH_ISA(isa) {
        for (size_t k = 0; k < sizeof sources / sizeof *sources; k++) {
            struct rng rng = {300 + k};
            struct shape s = sources[k].shape;
            if (check_quick())
                s.v_dim = s.v_dim / 4 + 1, s.q_heads = s.kv_heads;
            struct source source = source_make(s, sources[k].offset, &rng);
            source_run(&source);
            for (int64_t repeat = 0; repeat < (check_quick() ? 1 : sources[k].repeat); repeat++)
                for (int64_t b = 0; b < s.batch; b++)
                    for (int64_t h = 0; h < s.q_heads; h++)
                        for (int64_t i = check_quick() ? rng_below(&rng, 9) : 0; i < s.q_len;
                             i += check_quick() ? 1 + rng_below(&rng, 12) : 1)
                            try_row(&source, b, h, i, check_quick() ? 10 : sources[k].max_rows,
                                    &rng);
            source_free(&source);
        }
    }
}

/* Row counts beside every packing threshold and block: row 0 among 1 .. 30, and a prefill that
 * makes several tasks, by workers of any number. */
Test(invariance, any_number_of_rows_and_workers) {
    FOR_EACH_ISA(isa) {
        struct rng rng = {41};
        const int64_t most = check_quick() ? 60 : 800;
        const struct shape s = {1, 1, 1, most, 900, 20, 19};
        struct source source = source_make(s, 60, &rng);
        source_run(&source);
        for (int64_t rows = 1; rows <= most; rows += rows >= 30 ? 257 : check_quick() ? 3 : 1) {
            struct trial t;
            trial_place(&t, (struct shape){1, 1, 1, rows, 900, 20, 19},
                        (struct layouts){.side = AT_END});
            memcpy(t.q.data, source.q, t.q.n * sizeof(float));
            memcpy(t.k.data, source.k, t.k.n * sizeof(float));
            memcpy(t.v.data, source.v, t.v.n * sizeof(float));
            t.offset[0] = 60;
            t.p.causal = 1, t.p.align = ATTN_ALIGN_EXPLICIT, t.p.offset = t.offset;
            for (size_t workers = 0; workers <= 17; workers += rows < 30 ? 4 : 3) {
                struct reverse_executor e = reverse_executor(workers ? workers : 1);
                trial_context(&t, "first rows of a prefill");
                trial_run(&t, workers ? &e.base : NULL);
                const int64_t at = first_difference(t.out.data, source.out, rows * 19);
                CHECK(at < 0, "%zu workers, %" PRId64 " tasks: row %" PRId64 " differs", workers,
                      e.tasks, at / 19);
            }
        }
        source_free(&source);
    }
}

/* Decoding token by token, with a cache that is NaN beyond what is filled, gives the bits of the
 * prefill. */
Test(invariance, decoding_is_prefill, .timeout = 600) {
    enum { DIM = 9, HEADS = 2, KV_HEADS = 1 };
    const int64_t length = check_quick() ? 524 : 1100;
    FOR_EACH_ISA(isa) {
        struct rng rng = {42};
        struct source source =
            source_make((struct shape){1, HEADS, KV_HEADS, length, length, DIM, DIM}, 0, &rng);
        source_run(&source);
        struct trial t;
        trial_place(&t, (struct shape){1, HEADS, KV_HEADS, 1, length, DIM, DIM},
                    (struct layouts){.k = BLHD, .v = BLHD, .lse = true});
        size_t size;
        cr_assert(attn_workspace_size(&t.p, 3, &size) == ATTN_OK);
        void *workspace = guarded(SLOT_WORKSPACE, size, AT_END);
        t.p.causal = 1, t.p.align = ATTN_ALIGN_BOTTOM_RIGHT, t.p.kv_len = t.kv_len;
        for (int64_t n = 0; n < length; n++) {
            const bool is_skipped = check_quick() && n % 16 != 3 && n < 510;
            for (int64_t h = 0; h < HEADS; h++)
                memcpy(in_at_mutable(&t.p.q, 0, h, 0), source.q + (h * length + n) * DIM,
                       DIM * sizeof(float));
            for (int64_t h = 0; h < KV_HEADS; h++) {
                memcpy(in_at_mutable(&t.p.k, 0, h, n), source.k + (h * length + n) * DIM,
                       DIM * sizeof(float));
                memcpy(in_at_mutable(&t.p.v, 0, h, n), source.v + (h * length + n) * DIM,
                       DIM * sizeof(float));
            }
            if (is_skipped)
                continue;
            t.kv_len[0] = n + 1;
            trial_context(&t, "decoding");
            struct reverse_executor e = reverse_executor(3);
            CHECK(attn_forward(&t.p, workspace, size, n % 2 ? &e.base : NULL) == ATTN_OK, "failed");
            for (int64_t h = 0; h < HEADS; h++)
                CHECK(first_difference(out_at(&t.p.out, 0, h, 0),
                                       source.out + (h * length + n) * DIM, DIM) < 0 &&
                          same_bits(*out_at(&t.p.lse, 0, h, 0), source.lse[h * length + n]),
                      "token %" PRId64 " head %" PRId64 " differs from the prefill", n, h);
        }
        source_free(&source);
    }
}

/* FAULTS C1, C2, C4, C5, C6, A13: whatever lies in hidden keys and values, together or in one of
 * the two only, no bit changes. */
Test(invariance, poison_in_hidden_places, .timeout = 600) {
    FOR_EACH_ISA(isa) {
        struct rng rng = {43};
        for (int64_t n = 0; n < check_count(300); n++) {
            struct shape s = {1 + rng_below(&rng, 3),   0,
                              1 + rng_below(&rng, 2),   1 + rng_below(&rng, 30),
                              1 + rng_below(&rng, 150), 1 + rng_below(&rng, 40),
                              1 + rng_below(&rng, 40)};
            s.q_heads = s.kv_heads * (1 + rng_below(&rng, 3));
            if (check_quick())
                s.q_len = (s.q_len + 3) / 4, s.qk_dim = (s.qk_dim + 1) / 2, s.v_dim = s.qk_dim + 1;
            if (n % 20 == 0)
                s.kv_cap += 500;
            const struct layouts layouts = {.k = (enum layout)rng_below(&rng, N_LAYOUTS),
                                            .v = (enum layout)rng_below(&rng, N_LAYOUTS),
                                            .lse = true,
                                            .weights = true,
                                            .side = n % 2 ? AT_END : AT_START};
            struct trial t;
            trial_place(&t, s, layouts);
            trial_fill(&t, KIND_NORMAL, &rng);
            const bool is_causal = n % 3 > 0;
            for (int64_t b = 0; b < s.batch; b++) {
                t.kv_len[b] = rng_below(&rng, s.kv_cap + 1);
                t.offset[b] = rng_below(&rng, s.kv_cap + 1) - 3;
            }
            t.p.kv_len = n % 3 != 1 ? t.kv_len : NULL;
            if (is_causal)
                t.p.causal = 1, t.p.align = ATTN_ALIGN_EXPLICIT, t.p.offset = t.offset;
            trial_context(&t, "clean");
            trial_run(&t, NULL);
            const struct stored outputs[3] = {t.out, t.lse, t.weights};
            float *clean[3];
            for (int k = 0; k < 3; k++) {
                clean[k] = malloc(outputs[k].n * sizeof(float) + 1);
                cr_assert(clean[k] != NULL);
                memcpy(clean[k], outputs[k].data, outputs[k].n * sizeof(float));
                for (size_t at = 0; at < outputs[k].n; at++)
                    CHECK(k == 1 || isfinite(clean[k][at]), "output %d at %zu is not finite", k,
                          at);
            }
            for (int where = 1; where <= 3; where++) { /* keys, values, both */
                for (int64_t b = 0; b < s.batch; b++) {
                    int64_t end = t.p.kv_len ? t.kv_len[b] : s.kv_cap;
                    if (is_causal && t.offset[b] + s.q_len < end)
                        end = t.offset[b] + s.q_len; /* hidden from the last row, so from all */
                    for (int64_t j = end < 0 ? 0 : end; j < s.kv_cap; j++)
                        for (int64_t g = 0; g < s.kv_heads; g++) {
                            for (int64_t c = 0; c < s.qk_dim; c++)
                                in_at_mutable(&t.p.k, b, g, j)[c] = where & 1 ? poison(&rng) : 0;
                            for (int64_t c = 0; c < s.v_dim; c++)
                                in_at_mutable(&t.p.v, b, g, j)[c] = where & 2 ? poison(&rng) : 0;
                        }
                }
                trial_context(&t, where == 1   ? "poison in keys"
                                  : where == 2 ? "poison in values"
                                               : "poison in keys and values");
                trial_run(&t, NULL);
                for (int k = 0; k < 3; k++) {
                    const int64_t at =
                        first_difference(clean[k], outputs[k].data, (int64_t)outputs[k].n);
                    CHECK(at < 0, "output %d (out, lse, weights) differs at %" PRId64, k, at);
                }
            }
            for (int k = 0; k < 3; k++)
                free(clean[k]);
        }
    }
}

/* A later key, NaN in turn in each place, must not reach any earlier row: the law of causality. */
Test(invariance, poison_in_the_future) {
    const int64_t length = check_quick() ? 30 : 75;
    FOR_EACH_ISA(isa) {
        struct rng rng = {44};
        struct source source = source_make((struct shape){1, 1, 1, length, length, 9, 21}, 0, &rng);
        source_run(&source);
        float *out = source.out;
        for (int64_t j = 0; j < length; j++) {
            float *poisoned = new_floats(length * 21, NULL);
            source.out = poisoned;
            float *k = source.k + j * 9, *v = source.v + j * 21;
            const float was_k = k[4], was_v = v[j % 21];
            if (j % 3) /* an infinite key may give a logit of -inf, which is no harm to anyone */
                k[4] = NAN;
            else
                v[j % 21] = j % 2 ? NAN : INFINITY;
            source_run(&source);
            check_context("%s: key or value %" PRId64 " of %" PRId64 " poisoned", isa, j, length);
            const int64_t at = first_difference(out, poisoned, j * 21);
            CHECK(at < 0, "row %" PRId64 " changed", at / 21);
            bool changed = false;
            for (int64_t c = 0; c < 21; c++)
                changed |= !isfinite(poisoned[j * 21 + c]);
            CHECK(changed, "row %" PRId64 " sees it and is finite", j);
            k[4] = was_k, v[j % 21] = was_v;
            free(poisoned);
        }
        source.out = out;
        source_free(&source);
    }
}

/* Every 512 keys up to 4096, then eight for each doubling: a function of the index alone. */
Test(invariance, spans) {
    int64_t end = 0;
    for (int64_t index = 0; index < 200; index++) {
        const struct attn_key_range span = attn_span(index);
        CHECK(span.begin == end && span.end > span.begin, "span %" PRId64 " leaves a gap", index);
        CHECK(attn_span_of(span.begin) == index && attn_span_of(span.end - 1) == index,
              "span %" PRId64 " is not that of its keys", index);
        const int64_t want = span.begin < 8192 ? 512 : (span.end - span.begin);
        CHECK(span.end - span.begin == want, "span %" PRId64, index);
        CHECK(span.begin < 4096 || (span.end - span.begin) * 16 > span.begin,
              "span %" PRId64 " is shorter than a sixteenth of what is before it", index);
        end = span.end;
    }
    CHECK(attn_span_of(16384) == 24, "16 K keys are %" PRId64 " spans", attn_span_of(16384));
}

/* ---- bf16, which some sets multiply as it is, two features or two keys at a time ------------- */

enum { STORED_HEADS = 4, STORED_KV = 2, STORED_ROWS = 61 };

static void random_halves(uint16_t *x, int64_t n, struct rng *rng) {
    for (int64_t i = 0; i < n; i++)
        x[i] = bf16_of_float(rng_normal(rng));
}

/* All rows at once, by one worker and by three, and each row alone, where everything from its own
 * position on is NaN: pairs of keys begin and end anywhere in a row's range or its mask. */
static void stored_rows_alone(const char *isa, int64_t keys, int64_t dim, int64_t gap, int masked,
                              int64_t left, struct rng *rng) {
    const int64_t stride = dim + gap, n_q = STORED_HEADS * STORED_ROWS * dim;
    const int64_t n_kv = STORED_KV * keys * stride, mask_row = (keys + 7) / 8;
    uint16_t *const halves = malloc((size_t)(n_q + 4 * n_kv) * sizeof *halves);
    uint8_t *const mask = malloc((size_t)(STORED_ROWS * mask_row));
    float *const outs = calloc((size_t)(3 * n_q), sizeof *outs);
    const size_t size = 4 << 20;
    char *const workspace = malloc(size);
    cr_assert(halves && mask && outs && workspace);
    uint16_t *const k = halves + n_q, *const v = k + n_kv, *const late_k = v + n_kv;
    uint16_t *const late_v = late_k + n_kv;
    random_halves(halves, n_q + 2 * n_kv, rng);
    for (int64_t i = 0; i < STORED_ROWS * mask_row; i++)
        mask[i] = (uint8_t)(rng_next(rng) | rng_next(rng));
    const int64_t window[2] = {left, -1};
    attn_problem p = attn_problem_bhld(1, STORED_HEADS, STORED_KV, STORED_ROWS, keys, dim, dim,
                                       NULL, NULL, NULL, outs);
    p.q.type = p.k.type = p.v.type = ATTN_BF16;
    p.q.data = halves, p.k.data = k, p.v.data = v;
    p.k.stride_token = p.v.stride_token = stride;
    p.k.stride_head = p.v.stride_head = keys * stride;
    p.causal = 1, p.align = ATTN_ALIGN_BOTTOM_RIGHT, p.window = window;
    if (masked)
        p.mask = (attn_mask){
            .data = mask, .type = ATTN_MASK_BITS, .stride_query = mask_row, .n_keys = keys};
    check_context("%s: %" PRId64 " keys of %" PRId64 ", gap %" PRId64 ", mask %d, left %" PRId64,
                  isa, keys, dim, gap, masked, left);
    cr_assert(attn_forward(&p, workspace, size, NULL) == ATTN_OK);
    struct reverse_executor e = reverse_executor(3);
    p.out.data = outs + n_q;
    cr_assert(attn_forward(&p, workspace, size, &e.base) == ATTN_OK);
    CHECK(first_difference(outs, outs + n_q, n_q) < 0, "three workers");

    memset(late_k, 0xff, (size_t)(2 * n_kv) * sizeof *late_k);
    attn_problem one = p;
    one.q_len = 1;
    one.k.data = late_k, one.v.data = late_v;
    for (int64_t i = 0; i < STORED_ROWS; i++) {
        const int64_t kv_len = keys - STORED_ROWS + i + 1;
        for (int64_t g = 0; g < STORED_KV; g++) {
            const size_t bytes = (size_t)(kv_len * stride) * sizeof *k;
            memcpy(late_k + g * keys * stride, k + g * keys * stride, bytes);
            memcpy(late_v + g * keys * stride, v + g * keys * stride, bytes);
        }
        one.kv_len = &kv_len;
        one.q.data = halves + i * dim;
        one.out.data = outs + 2 * n_q + i * dim;
        one.mask.data = masked ? mask + i * mask_row : NULL;
        cr_assert(attn_forward(&one, workspace, size, NULL) == ATTN_OK);
        for (int64_t h = 0; h < STORED_HEADS; h++) {
            const int64_t at = (h * STORED_ROWS + i) * dim;
            CHECK(first_difference(outs + at, outs + 2 * n_q + at, dim) < 0,
                  "row %" PRId64 " of head %" PRId64 " alone", i, h);
        }
    }
    free(halves), free(mask), free(outs), free(workspace);
}

Test(invariance, decoding_is_prefill_in_bf16, .timeout = 600) {
    const int64_t dims[] = {1, 3, 8, 17, 64, 70}, lengths[] = {61, 130, 575, 1100};
    FOR_EACH_ISA(isa) {
        struct rng rng = {77};
        for (size_t d = 0; d < sizeof dims / sizeof *dims; d++)
            for (int64_t n = 0; n < (check_quick() ? 2 : 4); n++)
                for (int kind = 0; kind < 4; kind++)
                    stored_rows_alone(isa, lengths[n], dims[d], (n + kind) % 3, kind / 2,
                                      kind % 2 ? 20 + rng_below(&rng, 100) : -1, &rng);
    }
}
