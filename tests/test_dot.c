/* Kernels that multiply pairs of bf16 as they are, against one instruction after the other in plain
 * C, to the bit: each element's place, order and rounding, what is not seen, and nothing beyond.
 *
 * SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "cpu_features.h"
#include "dispatch.h"
#include "half.h"

enum { MAX_ROWS = 24, MAX_KEYS = 200 };

/* ---- One instruction ------------------------------------------------------------------------- */

/* Subnormal numbers count as 0, with their sign, on both machines. */
static float flushed(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x; }

/* a + b, rounded to odd: towards 0, and then the last bit is 1 unless the sum is exact. */
static float add_to_odd(float a, float b) {
    const double x = a, y = b, sum = x + y;
    if (!isfinite(sum) || sum == 0)
        return (float)sum;
    const double part = sum - x, rest = (x - (sum - part)) + (y - part); /* sum + rest is exact */
    float near = (float)sum;
    if ((double)near == sum && rest == 0)
        return near;
    const double beyond = ((double)near - sum) - rest; /* its sign is that of near - exact */
    uint32_t bits = bits_of(near);
    if (sum > 0 ? beyond > 0 : beyond < 0)
        bits--;
    return float_of(bits | 1);
}

static bool is_to_odd(const struct attn_kernels *set) {
    return strcmp(set->name, "neon_bf16") == 0;
}

/* sum + the products of two pairs, the lower half of a lane first. VDPBF16PS (Intel SDM): the upper
 * product, then the lower, each sum rounded to nearest. BFDOT (Arm ARM, FPCR.EBF 0): the two
 * products are added up first, and both sums rounded to odd. The products are exact. */
static float dot(const struct attn_kernels *set, const uint16_t a[2], const uint16_t b[2],
                 float sum) {
    float x[2], y[2];
    for (int i = 0; i < 2; i++)
        x[i] = flushed(float_of_bf16(a[i])), y[i] = flushed(float_of_bf16(b[i]));
    sum = flushed(sum);
    if (is_to_odd(set)) {
        const float both = flushed(add_to_odd(flushed(x[0] * y[0]), flushed(x[1] * y[1])));
        return flushed(add_to_odd(sum, both));
    }
    return flushed(fmaf(x[0], y[0], flushed(fmaf(x[1], y[1], sum))));
}

static size_t bf16_sets(const struct attn_kernels **sets) {
    const size_t n = attn_kernels_usable(attn_cpu_features(), sets);
    size_t wanted = 0;
    for (size_t i = 0; i < n; i++)
        if (sets[i]->dot && sets[i]->dot->type == ATTN_BF16)
            sets[wanted++] = sets[i];
    if (wanted == 0)
        check_say("skipped: no kernel set that multiplies bf16 can run here");
    return wanted;
}

/* Numbers of all magnitudes, zeros, subnormal ones. */
static uint16_t random_bf16(struct rng *rng) {
    const float x = rng_normal(rng);
    switch (rng_below(rng, 24)) {
    case 0:
        return (uint16_t)(rng_below(rng, 2) << 15);
    case 1: /* subnormal */
        return (uint16_t)((rng_below(rng, 2) << 15) | rng_below(rng, 128));
    case 2:
        return bf16_of_float(x * 0x1p40f);
    case 3:
        return bf16_of_float(x * 0x1p-70f);
    default:
        return bf16_of_float(x);
    }
}

static size_t padded(size_t keys) {
    return (keys + ATTN_SCORE_PAD - 1) / ATTN_SCORE_PAD * ATTN_SCORE_PAD;
}

static const uint16_t *halves(const float *lanes) { return (const uint16_t *)(const void *)lanes; }

/* ---- Scores ---------------------------------------------------------------------------------- */

static void qk_try(const struct attn_kernels *set, size_t rows, size_t keys, size_t dim, size_t gap,
                   enum side side, struct rng *rng) {
    check_context("qk %s: %zu rows, %zu keys, %zu lanes, gap %zu, side %d", set->name, rows, keys,
                  dim, gap, (int)side);
    const size_t stride = dim + gap, width = padded(keys);
    const float *q[MAX_ROWS];
    float *k = guarded_floats(SLOT_K, (keys - 1) * stride + dim, side);
    uint16_t *k_halves = (uint16_t *)(void *)k;
    for (size_t j = 0; j < keys; j++)
        for (size_t c = 0; c < 2 * dim; c++)
            k_halves[2 * j * stride + c] = random_bf16(rng);
    float *q_data = guarded_floats(SLOT_Q, rows * dim, side);
    for (size_t c = 0; c < 2 * rows * dim; c++)
        ((uint16_t *)(void *)q_data)[c] = random_bf16(rng);
    for (size_t r = 0; r < rows; r++)
        q[r] = q_data + r * dim;
    float *packed = aligned_alloc(64, width * dim * sizeof *packed + 64);
    float *scores = guarded_floats(SLOT_SCORES, rows * width, side);
    float *strided = guarded_floats(SLOT_OTHER, rows * width, side);
    cr_assert(packed);
    set->dot->pack_keys(k, (int64_t)stride, 0, keys, dim, packed);
    set->dot->qk_packed(q, rows, packed, keys, dim, 0.3f, scores, width, NULL);
    set->dot->qk_strided(q, rows, k, (int64_t)stride, keys, dim, 0.3f, strided, width);
    for (size_t r = 0; r < rows; r++)
        for (size_t j = 0; j < keys; j++) {
            float sum = 0;
            for (size_t c = 0; c < dim; c++)
                sum = dot(set, halves(q[r] + c), halves(k + j * stride + c), sum);
            const float want = sum * 0.3f;
            CHECK(same_bits(scores[r * width + j], want), "row %zu key %zu: %a, want %a", r, j,
                  (double)scores[r * width + j], (double)want);
            CHECK(same_bits(strided[r * width + j], want), "strided, row %zu key %zu: %a, want %a",
                  r, j, (double)strided[r * width + j], (double)want);
        }
    free(packed);
}

Test(dot, scores) {
    const struct attn_kernels *sets[ATTN_MAX_ISAS];
    const size_t n_sets = bf16_sets(sets);
    struct rng rng = {1};
    const size_t step = check_quick() ? 5 : 1;
    for (size_t s = 0; s < n_sets; s++)
        for (enum side side = AT_END; side <= AT_START; side++) {
            for (size_t rows = 1; rows <= 16; rows++)
                for (size_t keys = 1; keys <= 70; keys += 23)
                    qk_try(sets[s], rows, keys, 1 + (rows + keys) % 9, rows % 3, side, &rng);
            for (size_t keys = 1; keys <= 150; keys += step)
                qk_try(sets[s], 1 + keys % 12, keys, 5, keys % 2, side, &rng);
            for (size_t dim = 1; dim <= 40; dim += step)
                qk_try(sets[s], 1 + dim % 12, 1 + dim % 67, dim, 0, side, &rng);
        }
}

/* ---- Weights and values ---------------------------------------------------------------------- */

Test(dot, interleave) {
    const struct attn_kernels *sets[ATTN_MAX_ISAS];
    const size_t n_sets = bf16_sets(sets);
    struct rng rng = {2};
    for (size_t s = 0; s < n_sets; s++)
        for (size_t n = 1; n <= 80; n++)
            for (int which = 0; which < 4; which++)
                for (enum side side = AT_END; side <= AT_START; side++) {
                    check_context("%s: %zu features, tokens %d", sets[s]->name, n, which);
                    const void *tokens[2];
                    uint16_t *x[2];
                    for (int i = 0; i < 2; i++) {
                        x[i] = guarded((enum slot)(SLOT_OTHER + i), n * 2, side);
                        for (size_t c = 0; c < n; c++)
                            x[i][c] = (uint16_t)rng_next(&rng);
                        tokens[i] = which >> i & 1 ? NULL : x[i];
                    }
                    float *lanes = guarded_floats(SLOT_OTHER + 2, n, side);
                    sets[s]->dot->interleave(tokens, n, lanes);
                    for (size_t c = 0; c < n; c++)
                        for (int i = 0; i < 2; i++)
                            CHECK(halves(lanes + c)[i] == (tokens[i] ? x[i][c] : 0),
                                  "feature %zu of token %d", c, i);
                }
}

struct pv_case {
    size_t rows, keys, dim, gap;
    enum side side;
    bool has_factor;
    int kind; /* of what is seen: 0 the same range, 1 ranges, 2 causal, 3 bits, 4 the same bits */
};

static bool sees(struct attn_visible see, int32_t j) {
    return j >= see.begin && j < see.end && (!see.bits || see.bits[j / 64] >> (j % 64) & 1);
}

static void see_some(const struct pv_case *c, struct attn_visible *visible,
                     uint64_t bits[][MAX_KEYS / 64 + 1], struct rng *rng) {
    const int32_t keys = (int32_t)c->keys, begin = (int32_t)rng_below(rng, keys);
    const int32_t end = begin + 1 + (int32_t)rng_below(rng, keys - begin);
    const uint64_t density = rng_next(rng) % 3;
    for (size_t r = 0; r < c->rows; r++) {
        visible[r] = (struct attn_visible){begin, end, 0, 0, NULL};
        if (c->kind == 1) {
            visible[r].begin = (int32_t)rng_below(rng, keys);
            visible[r].end =
                visible[r].begin + (int32_t)rng_below(rng, keys - visible[r].begin + 1);
        }
        if (c->kind == 2) {
            visible[r].begin = 0;
            visible[r].end = begin + (int32_t)r < keys ? begin + (int32_t)r : keys;
        }
        for (size_t i = 0; i <= MAX_KEYS / 64; i++) {
            const uint64_t dense = rng_next(rng), sparse = dense & rng_next(rng) & rng_next(rng);
            bits[r][i] = c->kind == 4 && r > 0 ? bits[0][i]
                         : density == 0        ? dense
                         : density == 1        ? sparse
                                               : ~sparse;
        }
        if (c->kind >= 3)
            visible[r].bits = bits[r];
        /* Lifted before a multiple of 16 that the range has. */
        const int32_t lifted = (int32_t)rng_below(rng, visible[r].end + 1) / 16 * 16;
        if (c->kind < 3 && lifted > visible[r].begin && rng_below(rng, 2))
            visible[r].lifted = lifted;
    }
}

static void pv_try(const struct attn_kernels *set, const struct pv_case *c, struct rng *rng) {
    struct attn_visible visible[MAX_ROWS];
    static uint64_t bits[MAX_ROWS][MAX_KEYS / 64 + 1];
    see_some(c, visible, bits, rng);
    check_context(
        "pv %s: %zu rows, %zu keys, %zu values, gap %zu, side %d, factor %d, kind %d, row "
        "0 sees %d..%d",
        set->name, c->rows, c->keys, c->dim, c->gap, (int)c->side, c->has_factor, c->kind,
        (int)visible[0].begin, (int)visible[0].end);
    const size_t width = padded(c->keys), pairs = (c->keys + 1) / 2, stride = c->dim + c->gap;
    const size_t acc_stride = c->dim + 1, n_acc = (c->rows - 1) * acc_stride + c->dim;
    float *weights = guarded_floats(SLOT_WEIGHTS, c->rows * width, c->side);
    float *values = guarded_floats(SLOT_V, (pairs - 1) * stride + c->dim, c->side);
    float *acc = guarded_floats(SLOT_OUT, n_acc, c->side);
    float *factors = guarded_floats(SLOT_OTHER, c->rows, c->side);
    float *alone = guarded_floats(SLOT_OTHER + 1, c->dim, c->side);
    static float before[MAX_ROWS * 300], plain[MAX_ROWS * MAX_KEYS];

    /* Values that no row sees, and weights that the row does not see, are NaN. A lane of a token that
     * is not there is anything. */
    for (size_t j = 0; j < 2 * pairs; j++) {
        bool is_seen = false;
        for (size_t r = 0; r < c->rows; r++)
            is_seen |= sees(visible[r], (int32_t)j);
        for (size_t f = 0; f < c->dim; f++)
            ((uint16_t *)(void *)(values + j / 2 * stride + f))[j % 2] =
                is_seen ? random_bf16(rng) : 0x7fc1;
    }
    for (size_t r = 0; r < c->rows; r++) {
        factors[r] = (float)rng_uniform(rng);
        for (int32_t j = visible[r].begin; j < visible[r].end; j++)
            plain[r * MAX_KEYS + (size_t)j] = weights[r * width + (size_t)j] =
                !sees(visible[r], j) ? NAN
                : j % 5 == 4         ? 0
                                     : (float)rng_uniform(rng);
        for (size_t f = 0; c->has_factor && f < c->dim; f++)
            acc[r * acc_stride + f] = rng_normal(rng);
    }
    memcpy(before, acc, n_acc * sizeof *acc);
    const float *factor = c->has_factor ? factors : NULL;
    set->dot->narrow_weights(weights, width, c->rows, visible);
    set->dot->pv_tile(weights, width, visible, c->rows, values, (int64_t)stride, c->dim, factor,
                      acc, acc_stride, NULL);
    for (size_t r = 0; r < c->rows; r++) {
        const struct attn_visible see = visible[r];
        for (size_t f = 0; f < c->dim; f++) {
            float want = factor ? before[r * acc_stride + f] * factor[r] : -0.0f;
            for (int32_t i = see.begin / 2; i <= (see.end + 1) / 2; i++) {
                if (2 * i > see.begin && 2 * i == see.lifted)
                    want *= 1 / ATTN_LIFT;
                uint16_t w[2] = {0x8000, 0x8000}, v[2] = {0, 0};
                for (int32_t k = 0; k < 2; k++)
                    if (sees(see, 2 * i + k)) {
                        w[k] = bf16_of_float(plain[r * MAX_KEYS + (size_t)(2 * i + k)]);
                        v[k] = halves(values + (size_t)i * stride + f)[k];
                    }
                if (sees(see, 2 * i) || sees(see, 2 * i + 1))
                    want = dot(set, w, v, want);
            }
            CHECK(same_bits(acc[r * acc_stride + f], want),
                  "row %zu (%d..%d, lifted before %d) feature %zu: %a, want %a", r, (int)see.begin,
                  (int)see.end, (int)see.lifted, f, (double)acc[r * acc_stride + f], (double)want);
        }
        CHECK(r + 1 == c->rows || bits_of(acc[r * acc_stride + c->dim]) == UINT32_MAX,
              "row %zu: the gap was written", r);
        memcpy(alone, before + r * acc_stride, c->dim * sizeof *alone);
        set->dot->pv_tile(weights + r * width, width, visible + r, 1, values, (int64_t)stride,
                          c->dim, factor ? factor + r : NULL, alone, acc_stride, NULL);
        const int64_t at = first_difference(alone, acc + r * acc_stride, (int64_t)c->dim);
        CHECK(at < 0, "row %zu alone differs at feature %" PRId64, r, at);
    }
}

Test(dot, weighted_values) {
    const struct attn_kernels *sets[ATTN_MAX_ISAS];
    const size_t n_sets = bf16_sets(sets);
    struct rng rng = {3};
    for (size_t s = 0; s < n_sets; s++)
        for (int64_t n = 0; n < check_count(6000); n++) {
            struct pv_case c = {.rows = 1 + (size_t)rng_below(&rng, 3),
                                .keys = 1 + (size_t)rng_below(&rng, MAX_KEYS - 1),
                                .dim = 1 + (size_t)rng_below(&rng, 24),
                                .gap = (size_t)rng_below(&rng, 3),
                                .side = n % 2 ? AT_END : AT_START,
                                .has_factor = rng_below(&rng, 2),
                                .kind = (int)rng_below(&rng, 5)};
            switch (n % 3) {
            case 0:
                c.rows = 1 + (size_t)rng_below(&rng, MAX_ROWS);
                break;
            case 1:
                c.dim = 1 + (size_t)rng_below(&rng, 150);
                break;
            }
            pv_try(sets[s], &c, &rng);
        }
}

/* Weights become bf16 as bf16_of_float() has it, but for subnormal ones, which do not occur. */
Test(dot, narrow_weights) {
    const struct attn_kernels *sets[ATTN_MAX_ISAS];
    const size_t n_sets = bf16_sets(sets);
    struct rng rng = {4};
    for (size_t s = 0; s < n_sets; s++)
        for (int64_t n = 0; n < check_count(1000); n++) {
            float weights[128], before[128];
            for (int j = 0; j < 128; j++) {
                do
                    before[j] = weights[j] = float_of((uint32_t)rng_next(&rng));
                while (fabsf(before[j]) < 0x1p-126f && before[j] != 0);
            }
            const struct attn_visible see = {(int32_t)rng_below(&rng, 60),
                                             (int32_t)(60 + rng_below(&rng, 69)), 0, 0, NULL};
            check_context("%s: %d..%d", sets[s]->name, (int)see.begin, (int)see.end);
            sets[s]->dot->narrow_weights(weights, 128, 1, &see);
            for (int32_t j = see.begin / 2 * 2; j < (see.end + 1) / 2 * 2; j++) {
                const uint16_t want = sees(see, j) ? bf16_of_float(before[j]) : 0x8000;
                const uint16_t got = halves(weights)[j];
                CHECK(got == want || (isnan(before[j]) && isnan(float_of_bf16(got))),
                      "%a: %04x, want %04x", (double)before[j], got, want);
            }
        }
}
