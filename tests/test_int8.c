/* Products of int8: each kernel against its definition written in plain C, which it must meet to
 * the bit, because sums of integers have no order; and whole calls, whose bits do not depend on
 * where the keys lie.
 *
 * SPDX-License-Identifier: MIT */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "cpu_features.h"
#include "dispatch.h"
#include "int8_rows.h"

enum { MAX_SETS = 8, MAX_ROWS = 30, MAX_KEYS = 150, MAX_DIM = 600, MAX_GROUPS = MAX_DIM / 16 + 1 };

static size_t int8_sets(const struct attn_kernels **sets) {
    const struct attn_kernels *all[ATTN_MAX_ISAS];
    const size_t n = attn_kernels_usable(attn_cpu_features(), all);
    size_t n_sets = 0;
    for (size_t i = 0; i < n; i++)
        if (all[i]->int8)
            sets[n_sets++] = all[i];
    return n_sets;
}

/* ---- The definition -------------------------------------------------------------------------- */

/* A row of queries, quantised. */
struct plain_row {
    int8_t x[MAX_DIM];
    float scales[MAX_GROUPS];
    int32_t sums[MAX_GROUPS];
};

static struct plain_row plain_quantise(const float *x, size_t dim, size_t group) {
    struct plain_row row = {{0}, {0}, {0}};
    const size_t width = group ? group : dim;
    for (size_t c = 0; c < dim; c++) {
        const size_t g = c / width;
        float largest = 0;
        for (size_t i = g * width; i < dim && i < (g + 1) * width; i++)
            largest = isfinite(x[i]) && !isnan(largest) ? fmaxf(largest, fabsf(x[i])) : NAN;
        if (isnan(largest) || largest < 127 * FLT_MIN) {
            row.scales[g] = isnan(largest) ? NAN : 0;
            continue;
        }
        const volatile float inverse = 127 / largest, product = x[c] * inverse;
        row.scales[g] = largest / 127;
        row.x[c] = (int8_t)nearbyintf(product);
        row.sums[g] += row.x[c];
    }
    return row;
}

static float plain_score(const struct plain_row *q, const int8_t *key, const float *scales,
                         size_t dim, size_t group, float scale) {
    const size_t width = group ? group : dim;
    float score = 0;
    for (size_t c = 0, g = 0; c < dim; c += width, g++) {
        int64_t sum = 0;
        for (size_t i = c; i < dim && i < c + width; i++)
            sum += q->x[i] * key[i];
        const volatile float of_query = (float)sum * q->scales[g];
        score = fmaf(of_query, isfinite(scales[g]) ? scales[g] : NAN, score);
    }
    return scale * score;
}

/* ---- Quantising ------------------------------------------------------------------------------ */

static void try_quantising(const struct attn_kernels *set, const float *x, size_t dim,
                           size_t group) {
    const struct int8_shape s = int8_shape_of(dim, group);
    const struct plain_row want = plain_quantise(x, dim, group);
    int8_t *got = guarded(SLOT_OTHER, int8_query_words(&s) * 4, AT_END);
    set->int8->quantise(x, dim, s.group, got);
    for (size_t c = 0; c < s.quads * INT8_QUAD; c++)
        CHECK(got[c] == (c < dim ? want.x[c] : 0), "feature %zu is %d, want %d", c, got[c],
              c < dim ? want.x[c] : 0);
    for (size_t g = 0; g < s.groups; g++) {
        CHECK(same_bits(int8_query_scales(&s, got)[g], want.scales[g]), "scale %zu is %a, want %a",
              g, (double)int8_query_scales(&s, got)[g], (double)want.scales[g]);
        CHECK(int8_query_sums(&s, got)[g] == want.sums[g], "sum %zu is %d, want %d", g,
              (int)int8_query_sums(&s, got)[g], (int)want.sums[g]);
    }
    /* Off by no more than the bound says: a largest magnitude of m is off by m / 252 + 2^-119. */
    for (size_t c = 0; c < dim; c++) {
        const size_t g = c / s.group;
        double largest = 0;
        for (size_t i = g * s.group; i < dim && i < (g + 1) * s.group; i++)
            largest = fmax(largest, fabs((double)x[i]));
        const double error = fabs((double)got[c] * want.scales[g] - x[c]);
        CHECK(isnan(want.scales[g]) || error <= largest / 252 + 0x1p-119, "%zu is off by %g", c,
              error);
    }
}

Test(int8, quantises_queries) {
    const struct attn_kernels *sets[MAX_SETS];
    const size_t n_sets = int8_sets(sets);
    const size_t groups[] = {0, 16, 32, 48, 64};
    struct rng rng = {41};
    for (size_t s = 0; s < n_sets; s++)
        for (int64_t n = 0; n < check_count(3000); n++) {
            const size_t dim = (size_t)(1 + rng_below(&rng, 200)), group = groups[n % 5];
            float *x = guarded_floats(SLOT_Q, dim, (enum side)(n & 1));
            const int kind = (int)rng_below(&rng, 8);
            const float size = kind == 0   ? 0x1p-119f
                               : kind == 1 ? 0x1p-130f
                               : kind == 2 ? 0x1p125f
                                           : 1;
            for (size_t c = 0; c < dim; c++)
                x[c] = kind == 3 ? (float)(rng_below(&rng, 509) - 254) / 2 /* ties */
                                 : rng_normal(&rng) * size;
            if (kind == 3)
                x[rng_below(&rng, (int64_t)dim)] = 127;
            if (kind >= 4 && kind < 7)
                x[rng_below(&rng, (int64_t)dim)] = kind == 4   ? NAN
                                                   : kind == 5 ? -INFINITY
                                                               : FLT_MAX;
            check_context("%s: dim %zu group %zu kind %d, number %d", sets[s]->name, dim, group,
                          kind, (int)n);
            try_quantising(sets[s], x, dim, group);
        }
}

/* ---- Scores ---------------------------------------------------------------------------------- */

struct qk_case {
    size_t rows, keys, dim, group;
    int64_t stride, scale_gap; /* the scales of a key are followed by so many others */
    enum side side;
    bool extreme; /* integers of the largest magnitude only */
};

/* The first of some scales is NaN, of some infinite. */
static void fill_scales(float *scales, size_t n, size_t j, struct rng *rng) {
    for (size_t g = 0; g < n; g++)
        scales[g] = rng_normal(rng) * 0.01f;
    if (j % 7 == 3)
        scales[(size_t)rng_below(rng, (int64_t)n)] = j % 2 ? NAN : INFINITY;
}

static void try_scores(const struct attn_kernels *set, const struct qk_case *c, struct rng *rng) {
    check_context("%s: rows %zu keys %zu dim %zu group %zu stride %d side %d extreme %d", set->name,
                  c->rows, c->keys, c->dim, c->group, (int)c->stride, (int)c->side, c->extreme);
    const struct int8_shape s = int8_shape_of(c->dim, c->group);
    const size_t width = (c->keys + ATTN_SCORE_PAD - 1) / ATTN_SCORE_PAD * ATTN_SCORE_PAD;
    const float scale = 0.37f;

    static struct plain_row plain[MAX_ROWS];
    const int8_t *q[MAX_ROWS];
    float *x = guarded_floats(SLOT_Q, c->dim, c->side);
    int8_t *rows = guarded(SLOT_OTHER, c->rows * int8_query_words(&s) * 4, c->side);
    for (size_t r = 0; r < c->rows; r++) {
        for (size_t i = 0; i < c->dim; i++)
            x[i] = c->extreme ? (r % 2 ? -3.f : 3.f) : rng_normal(rng);
        if (r % 5 == 4)
            x[rng_below(rng, (int64_t)c->dim)] = NAN;
        int8_t *row = rows + (c->rows - 1 - r) * int8_query_words(&s) * 4;
        set->int8->quantise(x, c->dim, s.group, row);
        plain[r] = plain_quantise(x, c->dim, c->group);
        q[r] = row;
    }

    const int64_t reach = c->stride * (int64_t)(c->keys - 1);
    int8_t *keys = guarded(SLOT_K, (size_t)llabs(reach) + c->dim, c->side);
    keys -= reach < 0 ? reach : 0;
    const size_t scale_stride = s.groups + (size_t)c->scale_gap;
    float *scales = guarded_floats(SLOT_K_SCALES, scale_stride * (c->keys - 1) + s.groups, c->side);
    for (size_t j = 0; j < c->keys; j++) {
        fill_scales(scales + j * scale_stride, s.groups, j, rng);
        for (size_t i = 0; i < c->dim; i++)
            keys[(int64_t)j * c->stride + (int64_t)i] =
                (int8_t)(c->extreme ? -128 : rng_below(rng, 256) - 128);
    }

    /* Packed sixteen at a time, and in one piece. */
    float *scores[3];
    for (size_t i = 0; i < 3; i++)
        scores[i] = guarded_floats(SLOT_OTHER + 1 + i, c->rows * width, c->side);
    set->int8->qk_strided(q, c->rows, keys, c->stride, scales, (int64_t)scale_stride, c->keys,
                          c->dim, s.group, scale, scores[0], width);
    int32_t *packed = guarded(SLOT_OTHER + 4, width * int8_key_words(&s) * 4, AT_END);
    for (size_t way = 0; way < 2; way++) {
        const size_t step = way ? c->keys : ATTN_PACK_STEP;
        memset(packed, 0x55, width * int8_key_words(&s) * 4);
        for (size_t j = 0; j < c->keys; j += step)
            set->int8->pack_keys(keys + (int64_t)j * c->stride, c->stride,
                                 scales + j * scale_stride, (int64_t)scale_stride, j,
                                 c->keys - j < step ? c->keys - j : step, c->dim, s.group, packed);
        set->int8->qk_packed(q, c->rows, packed, c->keys, c->dim, s.group, scale, scores[1 + way],
                             width);
    }
    for (size_t r = 0; r < c->rows; r++)
        for (size_t j = 0; j < c->keys; j++) {
            const float want = plain_score(&plain[r], keys + (int64_t)j * c->stride,
                                           scales + j * scale_stride, c->dim, c->group, scale);
            for (int way = 0; way < 3; way++)
                CHECK(same_bits(scores[way][r * width + j], want),
                      "way %d row %zu key %zu is %a, want %a", way, r, j,
                      (double)scores[way][r * width + j], (double)want);
        }

    /* A row alone, and packed keys from a later one on, fewer than were packed. */
    const size_t r = (size_t)rng_below(rng, (int64_t)c->rows);
    const size_t from = (c->keys - 1) / ATTN_SCORE_PAD * ATTN_SCORE_PAD;
    const size_t n = 1 + (size_t)rng_below(rng, (int64_t)(c->keys - from));
    set->int8->qk_strided(q + r, 1, keys, c->stride, scales, (int64_t)scale_stride, c->keys, c->dim,
                          s.group, scale, scores[1], width);
    set->int8->qk_packed(q + r, 1, packed + from * int8_key_words(&s), n, c->dim, s.group, scale,
                         scores[2] + from, width);
    CHECK(first_difference(scores[1], scores[0] + r * width, (int64_t)c->keys) < 0, "alone");
    CHECK(first_difference(scores[2] + from, scores[0] + r * width + from, (int64_t)n) < 0,
          "packed, alone");
}

Test(int8, scores_to_the_bit, .timeout = 3600) {
    const struct attn_kernels *sets[MAX_SETS];
    const size_t n_sets = int8_sets(sets);
    const size_t groups[] = {0, 16, 32, 48, 64};
    struct rng rng = {42};
    for (size_t s = 0; s < n_sets; s++) {
        for (size_t n = 1; n <= 40; n++) {
            const enum side side = (enum side)(n & 1);
            const size_t group = groups[n % 5], rows = n < MAX_ROWS ? n : MAX_ROWS;
            const struct qk_case by_rows = {rows, 37, 70, group, 70, 0, side, n % 7 == 0};
            const struct qk_case by_keys = {3, n, 96, group, -100, 2, side, false};
            const struct qk_case by_dim = {5, 35, n, group, (int64_t)n, 0, side, n % 2 == 0};
            const struct qk_case one_key = {2, n, 64, 64, 0, 0, side, false};
            try_scores(sets[s], &by_rows, &rng);
            try_scores(sets[s], &by_keys, &rng);
            try_scores(sets[s], &by_dim, &rng);
            try_scores(sets[s], &one_key, &rng);
        }
        for (int64_t n = 0; n < check_count(400); n++) {
            const size_t dim = (size_t)(1 + rng_below(&rng, n % 8 ? 130 : MAX_DIM));
            const struct qk_case c = {(size_t)(1 + rng_below(&rng, MAX_ROWS)),
                                      (size_t)(1 + rng_below(&rng, MAX_KEYS)),
                                      dim,
                                      groups[n % 5],
                                      (int64_t)dim + rng_below(&rng, 9),
                                      rng_below(&rng, 3),
                                      (enum side)(n / 2 % 2),
                                      n % 16 == 0};
            try_scores(sets[s], &c, &rng);
        }
    }
}

/* The longest group, all integers at their largest. */
Test(int8, longest_group_is_exact) {
    const struct attn_kernels *sets[MAX_SETS];
    const size_t n_sets = int8_sets(sets), dim = INT8_GROUP_MOST;
    const struct int8_shape s = int8_shape_of(dim, 0);
    int8_t *keys = guarded(SLOT_K, dim, AT_END), *row = guarded(SLOT_Q, dim + 8, AT_END);
    float *x = guarded_floats(SLOT_OTHER, dim, AT_END);
    const float scale_of_key = 1;
    float scores[ATTN_SCORE_PAD];
    for (size_t i = 0; i < n_sets; i++)
        for (int sign = -1; sign <= 1; sign += 2) {
            for (size_t c = 0; c < dim; c++)
                x[c] = 127, keys[c] = (int8_t)(sign < 0 ? -128 : 127);
            const int8_t *q = row;
            sets[i]->int8->quantise(x, dim, s.group, row);
            sets[i]->int8->qk_strided(&q, 1, keys, 0, &scale_of_key, 0, 1, dim, s.group, 1, scores,
                                      ATTN_SCORE_PAD);
            check_context("%s: sign %d", sets[i]->name, sign);
            CHECK(scores[0] == (float)dim * 127 * (sign < 0 ? -128.f : 127.f), "%a",
                  (double)scores[0]);
        }
}

/* ---- Whole calls ----------------------------------------------------------------------------- */

/* Packed keys carry their scales, and queries are there twice: a worker still takes no more. */
Test(int8, workspace_of_groups) {
    for (int64_t dim = 1; dim <= 1024; dim += dim < 40 ? 1 : 123)
        for (int64_t group = 0; group <= 48; group += 16) {
            const float scale = 1;
            attn_problem p = attn_problem_bhld(1, 8, 2, 64, 4096, dim, dim, NULL, NULL, NULL, NULL);
            p.q.type = ATTN_F16, p.k.type = p.v.type = ATTN_I8;
            p.k_scales = (attn_scales){&scale, group, 0, 0, 0};
            p.v_scales = (attn_scales){&scale, 0, 0, 0, 0};
            size_t size, before = 0;
            check_context("dim %d group %d", (int)dim, (int)group);
            for (p.q_len = 1; p.q_len <= 4096; p.q_len *= 4, before = size)
                CHECK(attn_workspace_size(&p, 1, &size) == ATTN_OK && size >= before &&
                          size <= (size_t)3 << 19,
                      "%zu bytes for %d rows", size, (int)p.q_len);
        }
}

/* A scale that is NaN or infinite makes a NaN of the rows that see its key, and of no others. */
Test(int8, scales_that_are_no_numbers) {
    enum { ROWS = 20, KEYS = 40, DIM = 48 };
    static float q[ROWS * DIM], v[KEYS * DIM], out[ROWS * DIM], scales[KEYS * 3];
    static int8_t k[KEYS * DIM];
    const int64_t first = 17; /* the key of that scale */
    struct rng rng = {43};
    for (size_t i = 0; i < ROWS * DIM; i++)
        q[i] = rng_normal(&rng);
    for (size_t i = 0; i < KEYS * DIM; i++)
        k[i] = (int8_t)(rng_below(&rng, 256) - 128), v[i] = rng_normal(&rng);
    FOR_EACH_ISA(isa)
    for (int way = 0; way < 4; way++)
        for (int64_t rows = 1; rows <= ROWS; rows += ROWS - 1) {
            for (size_t i = 0; i < KEYS * 3; i++)
                scales[i] = 0.01f;
            scales[first * 3 + way % 3] = way % 2 ? NAN : INFINITY;
            k[first * DIM + 16 * (way % 3)] = 0;
            attn_problem p = attn_problem_bhld(1, 1, 1, rows, KEYS, DIM, DIM, q, NULL, v, out);
            p.k.data = k, p.k.type = ATTN_I8;
            p.k_scales = (attn_scales){scales, 16, 0, 0, 3};
            const int64_t offset = first - (rows > 1 ? ROWS / 2 : 1 - way % 2);
            p.causal = 1, p.align = ATTN_ALIGN_EXPLICIT, p.offset = &offset;
            check_context("%s: way %d, %d rows", isa, way, (int)rows);
            CHECK(attn_forward_alloc(&p, NULL) == ATTN_OK, "no answer");
            for (int64_t i = 0; i < rows * DIM; i++)
                CHECK(isnan(out[i]) == (offset + i / DIM >= first), "row %d is %g", (int)(i / DIM),
                      (double)out[i]);
        }
}
