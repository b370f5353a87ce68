/* Each micro-kernel of each kernel set against its definition in kernels.h, and against the scalar
 * set.
 *
 * qk and pv are chains of fused multiply-adds in a stated order, so that every vector set must give
 * the bits of the same chain written with fmaf(); the scalar set those of the chain with two
 * roundings. Where exp is involved, results agree within a formula. Every buffer lies against an
 * inaccessible page, in turn at its end and at its start.
 *
 * SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { MAX_ROWS = 40, MAX_KEYS = 640 };
#define U 0x1p-24

static bool is_scalar(const struct attn_kernels *set) { return strcmp(set->name, "scalar") == 0; }

/* One link of a chain. The volatile product keeps a compiler from fusing what must round twice. */
static float chain_link(const struct attn_kernels *set, float a, float b, float sum) {
    if (!is_scalar(set))
        return fmaf(a, b, sum);
    volatile float product = a * b;
    return sum + product;
}

/* Two chains of n links differ by at most this: each errs by (n + 1) u of the sum of magnitudes, to
 * first order; 2^-148 for each link where products underflow. */
static double chain_tolerance(size_t n, double magnitudes) {
    return 2.01 * (double)(n + 1) * U * magnitudes + (double)(n + 1) * 0x1p-148;
}

static size_t padded(size_t n_keys) {
    return (n_keys + ATTN_SCORE_PAD - 1) / ATTN_SCORE_PAD * ATTN_SCORE_PAD;
}

static void fill(float *x, size_t n, enum kind kind, struct rng *rng) {
    for (size_t i = 0; i < n; i++)
        x[i] = kind == KIND_EQUAL      ? 0.75f
               : kind == KIND_DENORMAL ? rng_normal(rng) * 0x1p-130f
                                       : rng_normal(rng);
    if (kind == KIND_ONE_HUGE)
        x[rng_below(rng, (int64_t)n)] = 1e18f;
    if (kind == KIND_NAN)
        x[rng_below(rng, (int64_t)n)] = NAN;
    if (kind == KIND_MINUS_INF_KEYS)
        x[rng_below(rng, (int64_t)n)] = -INFINITY;
}

/* ---- Which keys a row sees ------------------------------------------------------------------- */

static bool sees(struct attn_visible see, int32_t j) {
    return j >= see.begin && j < see.end && (!see.bits || see.bits[j / 64] >> j % 64 & 1);
}

static struct attn_visible any_range(struct rng *rng, size_t keys) {
    const int32_t begin = (int32_t)rng_below(rng, (int64_t)keys + 1);
    const int32_t end = (int32_t)rng_below(rng, (int64_t)keys + 1);
    return (struct attn_visible){rng_below(rng, 2) ? 0 : begin, end, 0, 0, NULL};
}

/* A word of bits: sparse, dense, in long runs, none or all. */
static uint64_t any_word(struct rng *rng, int kind) {
    const uint64_t x = rng_next(rng), y = rng_next(rng) & rng_next(rng) & rng_next(rng);
    const uint64_t run = ~UINT64_C(0) << x % 64;
    return kind == 0   ? x
           : kind == 1 ? y
           : kind == 2 ? ~y
           : kind == 3 ? (x >> 63 ? run : ~run)
           : kind == 4 ? 0
                       : ~UINT64_C(0);
}

/* Gives most rows bits, some of them those of the row before, or equal ones elsewhere. Outside its
 * range the bits of a row say nothing. */
static void add_bits(struct attn_visible *visible, size_t rows, size_t keys, enum side side,
                     struct rng *rng) {
    const size_t words = (keys + 63) / 64;
    uint64_t *bits = guarded(SLOT_OTHER + 8, rows * words * sizeof *bits, side);
    const bool grouped = rng_below(rng, 2);
    for (size_t r = 0; r < rows; r++, bits += words) {
        const int64_t way = rng_below(rng, 8);
        const int kind = (int)rng_below(rng, 6);
        const bool copies = grouped && r > 0 && visible[r - 1].bits && way < 6;
        for (size_t i = 0; i < words; i++)
            bits[i] = copies ? visible[r - 1].bits[i] : any_word(rng, kind);
        if (copies)
            visible[r] = visible[r - 1];
        if (copies && way == 0)
            for (size_t i = 0; i < words; i++) /* a difference, perhaps outside the range */
                bits[i] ^= UINT64_C(1) << rng_below(rng, 64);
        visible[r].bits = way == 7 ? NULL : copies && way > 2 ? visible[r - 1].bits : bits;
        visible[r].lifted = 0;
    }
}

/* ---- qk -------------------------------------------------------------------------------------- */

struct qk_case {
    size_t rows, keys, dim;
    int64_t stride;   /* of keys; may be negative or 0 */
    size_t score_gap; /* columns beyond the padding */
    enum side side;
    enum kind kind;
};

static void qk_run(const struct attn_kernels *set, bool is_packed, const float *const *q,
                   const struct qk_case *c, const float *keys, size_t rows, float scale,
                   float *scores) {
    const size_t stride = padded(c->keys) + c->score_gap;
    if (!is_packed) {
        set->qk_strided(q, rows, keys, c->stride, c->keys, c->dim, scale, scores, stride);
        return;
    }
    const size_t packed_floats = padded(c->keys) * c->dim;
    float *packed = guarded_floats(SLOT_OTHER + 2, packed_floats, c->side);
    set->pack_keys(keys, c->stride, 0, c->keys, c->dim, packed);
    set->qk_packed(q, rows, packed, c->keys, c->dim, scale, scores, stride, NULL);
}

static void qk_try(const struct attn_kernels *set, const struct qk_case *c, struct rng *rng) {
    check_context("qk %s: rows %zu keys %zu dim %zu key stride %" PRId64 " gap %zu side %d kind %d",
                  set->name, c->rows, c->keys, c->dim, c->stride, c->score_gap, (int)c->side,
                  (int)c->kind);
    const size_t width = padded(c->keys) + c->score_gap;
    const size_t n_scores = (c->rows - 1) * width + padded(c->keys);
    const float scale = 0.37f;

    /* Queries in reverse order, so that rows are no neighbours of equal stride. */
    float *q_data = guarded_floats(SLOT_Q, c->rows * c->dim, c->side);
    const float *q[MAX_ROWS];
    fill(q_data, c->rows * c->dim, c->kind, rng);
    for (size_t r = 0; r < c->rows; r++)
        q[r] = q_data + (c->rows - 1 - r) * c->dim;

    const int64_t reach = c->stride * (int64_t)(c->keys - 1);
    const size_t extent = (size_t)(reach < 0 ? -reach : reach) + c->dim;
    float *k_data = guarded_floats(SLOT_K, extent, c->side);
    float *keys = reach < 0 ? k_data - reach : k_data;
    for (size_t j = 0; j < c->keys; j++)
        fill(keys + (int64_t)j * c->stride, c->dim, j == c->keys / 2 ? c->kind : KIND_NORMAL, rng);

    float *strided = guarded_floats(SLOT_OTHER, n_scores, c->side);
    float *other = guarded_floats(SLOT_OTHER + 1, n_scores, c->side);
    qk_run(set, false, q, c, keys, c->rows, scale, strided);
    qk_run(set, true, q, c, keys, c->rows, scale, other);

    for (size_t r = 0; r < c->rows; r++) {
        for (size_t j = 0; j < c->keys; j++) {
            const float *k = keys + (int64_t)j * c->stride;
            float dot = 0;
            double exact = 0, magnitudes = 0;
            for (size_t f = 0; f < c->dim; f++) {
                dot = chain_link(set, q[r][f], k[f], dot);
                exact += (double)q[r][f] * k[f];
                magnitudes += fabs((double)q[r][f] * k[f]);
            }
            const float want = scale * dot, got = strided[r * width + j];
            CHECK(same_bits(got, want), "qk_strided row %zu key %zu: %a, the chain gives %a", r, j,
                  (double)got, (double)want);
            CHECK(same_bits(got, other[r * width + j]), "row %zu key %zu: strided %a, packed %a", r,
                  j, (double)got, (double)other[r * width + j]);
            const double error = fabs((double)got - (double)scale * exact);
            CHECK(!isfinite(exact) || error <= chain_tolerance(c->dim + 1, scale * magnitudes),
                  "row %zu key %zu is off by %g", r, j, error);
        }
        for (size_t j = padded(c->keys); r + 1 < c->rows && j < width; j++)
            CHECK(bits_of(strided[r * width + j]) == UINT32_MAX &&
                      bits_of(other[r * width + j]) == UINT32_MAX,
                  "row %zu: column %zu, beyond the padding, was written", r, j);
    }

    /* Packed keys, read from a later key on. */
    if (c->keys > ATTN_SCORE_PAD) {
        const size_t j = (c->keys - 1) / ATTN_SCORE_PAD * ATTN_SCORE_PAD;
        float *packed = guarded_floats(SLOT_OTHER + 2, padded(c->keys) * c->dim, c->side);
        set->pack_keys(keys, c->stride, 0, c->keys, c->dim, packed);
        set->qk_packed(q, 1, packed + j * c->dim, c->keys - j, c->dim, scale, other, width, NULL);
        const int64_t at = first_difference(other, strided + j, (int64_t)(c->keys - j));
        CHECK(at < 0, "packed keys from %zu on differ at %" PRId64, j, at);
    }

    /* The bits of a row do not depend on the rows around it. */
    for (int is_packed = 0; is_packed < 2; is_packed++)
        for (size_t r = 0; r < c->rows && c->rows > 1; r += 1 + c->rows / 7) {
            qk_run(set, is_packed, q + r, c, keys, 1, scale, other);
            const int64_t at = first_difference(other, strided + r * width, (int64_t)c->keys);
            CHECK(at < 0, "row %zu alone (packed %d) differs at key %" PRId64, r, is_packed, at);
        }
}

/* Sizes one at a time, sizes beside the tiles' own, and random ones. */
#define SIZES_BESIDE 63, 64, 65, 127, 128, 129
static const size_t long_sizes[] = {SIZES_BESIDE, 255, 256, 257, 511, 512};

Test(kernels, qk) {
    const struct attn_kernels *sets[8];
    const size_t n_sets = check_kernel_sets(sets);
    struct rng rng = {1};
    for (size_t s = 0; s < n_sets; s++) {
        for (size_t n = 1; n <= 33; n++)
            for (int side = 0; side < 2; side++) {
                const enum kind kind = (enum kind)(n % N_KINDS);
                const struct qk_case by_rows = {n, 37, 19, 19, 0, side, kind};
                const struct qk_case by_keys = {13, n, 21, 24, 64, side, kind};
                const struct qk_case by_dim = {5, 35, n, -(int64_t)n, 0, side, kind};
                qk_try(sets[s], &by_rows, &rng);
                qk_try(sets[s], &by_keys, &rng);
                qk_try(sets[s], &by_dim, &rng);
            }
        for (size_t i = 0; i < sizeof long_sizes / sizeof *long_sizes; i++) {
            const size_t n = long_sizes[i];
            if (check_quick() && n > 129 && n != 257)
                continue;
            const struct qk_case by_keys = {
                check_quick() ? 3 : 25, n, 17, 17, 0, i % 2, KIND_NORMAL};
            const struct qk_case by_dim = {6, 40, n, (int64_t)n + 1, 64, i % 2, KIND_NORMAL};
            const struct qk_case one_key = {9, 33, n, 0, 0, i % 2, KIND_NORMAL};
            qk_try(sets[s], &by_keys, &rng);
            qk_try(sets[s], &by_dim, &rng);
            qk_try(sets[s], &one_key, &rng);
        }
        for (int64_t i = check_count(300); i-- > 0;) {
            const size_t dim = (size_t)(1 + rng_below(&rng, 80));
            const struct qk_case c = {(size_t)(1 + rng_below(&rng, 30)),
                                      (size_t)(1 + rng_below(&rng, 150)),
                                      dim,
                                      (int64_t)dim + rng_below(&rng, 9),
                                      64 * (size_t)(i % 2),
                                      (enum side)(i / 2 % 2),
                                      (enum kind)rng_below(&rng, N_KINDS)};
            qk_try(sets[s], &c, &rng);
        }
    }
}

/* ---- softmax --------------------------------------------------------------------------------- */

/* A state to start from, and what a row of scores holds. */
struct softmax_case {
    size_t rows, keys;
    enum side side;
    bool unaligned; /* scores start one float beside a vector boundary */
    bool has_past;
};

/* One unit in the last place of the float nearest to x, x >= 2^-126. */
static double ulp_of(double x) {
    int exponent;
    frexp(x, &exponent);
    return ldexp(1, exponent - 24);
}

/* A weight or factor as it is without lifting. */
static float unlifted(float x, bool is_lifted) { return is_lifted ? x / ATTN_LIFT : x; }

/* Where a row is lifted, by its weights before that. */
static int32_t lifted_by_definition(const float *after, struct attn_visible see, float factor) {
    if (see.bits || factor >= ATTN_LIFT_BELOW)
        return 0;
    int32_t most = see.begin;
    while (most < see.end && unlifted(after[most], most < see.lifted) < ATTN_LIFT_BELOW)
        most++;
    most -= most % ATTN_LIFT_COLUMNS;
    for (int32_t j = see.begin; j < most; j++)
        if (after[j] != 0)
            return most;
    return 0;
}

/* exp as all sets must compute it: within 1 ULP down to the last normal result, +0 below. */
static bool is_exp(float got, float x) {
    if (isnan(x))
        return isnan(got);
    if (x < ATTN_EXP_LAST_NORMAL)
        return bits_of(got) == 0;
    const double exact = exp((double)x);
    return fabs((double)got - exact) <= ulp_of(exact);
}

static void softmax_check_row(const float *before, const float *after, struct attn_visible see,
                              const float *past, const float *state, float factor) {
    if (see.begin >= see.end) {
        CHECK(same_bits(past[0], state[0]) && same_bits(past[1], state[1]) && factor == 1 &&
                  see.lifted == 0,
              "a row that sees nothing changed: m %a -> %a, l %a -> %a, factor %a", (double)past[0],
              (double)state[0], (double)past[1], (double)state[1], (double)factor);
        return;
    }
    float max = past[0];
    for (int32_t j = see.begin; j < see.end; j++)
        max = sees(see, j) && before[j] > max ? before[j] : max;
    CHECK(state[0] == max, "m is %a, want %a", (double)state[0], (double)max);
    const float z = max == -INFINITY ? 0 : max;
    factor = unlifted(factor, see.lifted > 0);
    const int32_t lifted = lifted_by_definition(after, see, factor);
    CHECK(see.lifted == lifted, "lifted before %d, want %d", (int)see.lifted, (int)lifted);
    CHECK(max == past[0] ? factor == 1 : is_exp(factor, past[0] - z), "factor is %a, m %a -> %a",
          (double)factor, (double)past[0], (double)max);
    double sum = 0;
    for (int32_t j = see.begin; j < see.end; j++) {
        if (!sees(see, j))
            continue;
        const float weight = unlifted(after[j], j < see.lifted);
        CHECK(is_exp(weight, before[j] - z), "exp at %d: exp(%a) is %a", (int)j,
              (double)(before[j] - z), (double)weight);
        sum += weight;
    }
    const double l = (double)past[1] * factor + sum;
    if (isnan(l))
        CHECK(isnan(state[1]), "l is %a, want NaN", (double)state[1]);
    else
        CHECK(fabs((double)state[1] - l) <= chain_tolerance((size_t)(see.end - see.begin) + 1, l),
              "l is %.9g, want %.9g", (double)state[1], l);
}

/* Without factors the state is begun, whatever m and l hold, to the same bits. */
static void softmax_try_begun(const struct attn_kernels *set, const struct softmax_case *c,
                              struct attn_visible *visible, const float *before, float *scores,
                              float *m, float *l) {
    const size_t width = padded(c->keys), n = c->rows * width;
    static float after[MAX_ROWS * MAX_KEYS];
    float want[MAX_ROWS][2];
    int32_t lifted[MAX_ROWS];
    memcpy(after, scores, n * sizeof(float));
    memcpy(scores, before, n * sizeof(float));
    for (size_t r = 0; r < c->rows; r++) {
        want[r][0] = m[r], want[r][1] = l[r], lifted[r] = visible[r].lifted;
        m[r] = l[r] = NAN;
    }
    set->softmax_rows(scores, width, c->rows, visible, m, l, NULL);
    for (size_t r = 0; r < c->rows; r++) {
        CHECK(same_bits(m[r], want[r][0]) && same_bits(l[r], want[r][1]) &&
                  visible[r].lifted == lifted[r],
              "row %zu begun: m %a l %a lifted %d, want %a %a %d", r, (double)m[r], (double)l[r],
              (int)visible[r].lifted, (double)want[r][0], (double)want[r][1], (int)lifted[r]);
        for (size_t j = 0; j < width; j++)
            CHECK(!sees(visible[r], (int32_t)j) ||
                      same_bits(scores[r * width + j], after[r * width + j]),
                  "row %zu begun differs at %zu", r, j);
    }
}

static void softmax_try(const struct attn_kernels *set, const struct softmax_case *c,
                        struct attn_visible *visible, struct rng *rng) {
    check_context("softmax %s: rows %zu keys %zu side %d unaligned %d past %d, row 0 sees %d..%d",
                  set->name, c->rows, c->keys, (int)c->side, c->unaligned, c->has_past,
                  (int)visible[0].begin, (int)visible[0].end);
    const size_t width = padded(c->keys), n = c->rows * width;
    static float before[MAX_ROWS * MAX_KEYS];
    float *scores = guarded_floats(SLOT_OTHER, n + c->unaligned, c->side);
    float *alone = guarded_floats(SLOT_OTHER + 1, 2 * (width + 64) + 1, c->side);
    float *m = guarded_floats(SLOT_OTHER + 2, c->rows, c->side);
    float *l = guarded_floats(SLOT_OTHER + 3, c->rows, c->side);
    float *factor = guarded_floats(SLOT_OTHER + 4, c->rows, c->side);
    float past[MAX_ROWS][2];
    scores += c->unaligned && c->side == AT_START;
    const float spread = rng_below(rng, 3) ? 3 : 60;
    const float slope = rng_below(rng, 2) ? 0 : (float)rng_uniform(rng); /* see kernels.h: lifted */
    for (size_t r = 0; r < c->rows; r++) {
        for (size_t j = 0; j < width; j++) {
            /* Hidden places hold what must not count: NaN, or the largest score of all. */
            scores[r * width + j] = sees(visible[r], (int32_t)j)
                                        ? spread * rng_normal(rng) + slope * (float)j
                                    : j % 2 ? NAN
                                            : INFINITY;
        }
        past[r][0] = m[r] = c->has_past ? 2 * rng_normal(rng) : -INFINITY;
        past[r][1] = l[r] = c->has_past ? 1 + (float)rng_uniform(rng) : 0;
    }
    memcpy(before, scores, n * sizeof(float));
    set->softmax_rows(scores, width, c->rows, visible, m, l, factor);
    for (size_t r = 0; r < c->rows; r++) {
        const float state[2] = {m[r], l[r]};
        softmax_check_row(before + r * width, scores + r * width, visible[r], past[r], state,
                          factor[r]);
    }

    /* The same bits alone, and where the row starts 64 hidden columns further on: a lane is the
     * key's index modulo the vector length. */
    for (size_t r = 0; r < c->rows; r += 1 + c->rows / 5)
        for (int shift = 0; shift <= 64; shift += 64) {
            struct attn_visible see = {visible[r].begin + shift, visible[r].end + shift, 0, 0,
                                       NULL};
            uint64_t bits[MAX_KEYS / 64 + 1] = {0};
            if (visible[r].bits) {
                memcpy(bits + shift / 64, visible[r].bits, (c->keys + 63) / 64 * sizeof *bits);
                see.bits = bits;
            }
            memset(alone, 0xff, (width + 64) * sizeof(float));
            memcpy(alone + shift, before + r * width, width * sizeof(float));
            float state[2] = {past[r][0], past[r][1]}, f = NAN;
            set->softmax_rows(alone, width + 64, 1, &see, &state[0], &state[1], &f);
            CHECK(same_bits(state[0], m[r]) && same_bits(state[1], l[r]) && same_bits(f, factor[r]),
                  "row %zu alone, shifted by %d: m %a l %a factor %a, with others %a %a %a", r,
                  shift, (double)state[0], (double)state[1], (double)f, (double)m[r], (double)l[r],
                  (double)factor[r]);
            CHECK(see.lifted == (visible[r].lifted ? visible[r].lifted + shift : 0),
                  "row %zu alone, shifted by %d: lifted before %d, with others %d", r, shift,
                  (int)see.lifted, (int)visible[r].lifted);
            for (int32_t j = see.begin; j < see.end; j++)
                CHECK(!sees(see, j) || same_bits(alone[j], scores[r * width + (size_t)(j - shift)]),
                      "row %zu alone, shifted by %d, differs at %d", r, shift, (int)j);
        }

    /* The same bits, but for lifting, where scores of -inf do what bits did. */
    for (size_t r = 0; r < c->rows; r++) {
        struct attn_visible see = visible[r];
        if (!see.bits)
            continue;
        memcpy(alone, before + r * width, width * sizeof(float));
        for (int32_t j = see.begin; j < see.end; j++)
            if (!sees(see, j))
                alone[j] = -INFINITY;
        see.bits = NULL;
        float state[2] = {past[r][0], past[r][1]}, f = NAN;
        set->softmax_rows(alone, width, 1, &see, &state[0], &state[1], &f);
        f = unlifted(f, see.lifted > 0);
        CHECK(same_bits(state[0], m[r]) && same_bits(state[1], l[r]) && same_bits(f, factor[r]),
              "row %zu with -inf: m %a l %a factor %a, with bits %a %a %a", r, (double)state[0],
              (double)state[1], (double)f, (double)m[r], (double)l[r], (double)factor[r]);
        for (int32_t j = see.begin; j < see.end; j++)
            CHECK(!sees(visible[r], j) ||
                      same_bits(unlifted(alone[j], j < see.lifted), scores[r * width + (size_t)j]),
                  "row %zu with -inf differs at %d", r, (int)j);
    }

    if (!c->has_past)
        softmax_try_begun(set, c, visible, before, scores, m, l);
}

Test(kernels, softmax) {
    const struct attn_kernels *sets[8];
    const size_t n_sets = check_kernel_sets(sets);
    struct rng rng = {2};
    for (size_t s = 0; s < n_sets; s++) {
        struct attn_visible visible[MAX_ROWS];
        /* All ranges of a small tile. */
        const int32_t tile = check_quick() ? 19 : 40;
        for (int32_t begin = 0; begin <= tile; begin++)
            for (int32_t end = 0; end <= tile; end += 1) {
                const struct softmax_case c = {1, (size_t)tile, end % 2, begin % 3 == 0, end % 3};
                visible[0] = (struct attn_visible){begin, end, 0, 0, NULL};
                softmax_try(sets[s], &c, visible, &rng);
            }
        for (size_t n = 1; n <= 33; n++) {
            const struct softmax_case by_rows = {n, 70, n % 2, n % 3 == 0, n % 5 != 0};
            for (size_t r = 0; r < n; r++)
                visible[r] = any_range(&rng, 70);
            softmax_try(sets[s], &by_rows, visible, &rng);
            add_bits(visible, n, 70, n % 2, &rng);
            softmax_try(sets[s], &by_rows, visible, &rng);
        }
        for (size_t i = 0; i < sizeof long_sizes / sizeof *long_sizes; i++) {
            const struct softmax_case c = {7, long_sizes[i], i % 2, i % 3 == 0, i % 2};
            for (size_t r = 0; r < 7; r++)
                visible[r] = r ? any_range(&rng, long_sizes[i])
                               : (struct attn_visible){0, (int32_t)long_sizes[i], 0, 0, NULL};
            softmax_try(sets[s], &c, visible, &rng);
            add_bits(visible, 7, long_sizes[i], i % 2, &rng);
            softmax_try(sets[s], &c, visible, &rng);
        }
        for (int64_t i = check_count(500); i-- > 0;) {
            const struct softmax_case c = {(size_t)(1 + rng_below(&rng, 25)),
                                           (size_t)(1 + rng_below(&rng, 600)), i % 2, i / 2 % 2,
                                           i / 4 % 2};
            for (size_t r = 0; r < c.rows; r++)
                visible[r] = any_range(&rng, c.keys);
            if (i % 3)
                add_bits(visible, c.rows, c.keys, i % 2, &rng);
            softmax_try(sets[s], &c, visible, &rng);
            if (i % 4)
                continue;
            /* Rows that are known to be alike, until some are lifted. */
            for (size_t r = 0; r < c.rows; r++)
                visible[r] = (struct attn_visible){i % 5 == 0, (int32_t)c.keys, 0, 0, NULL};
            visible[0].alike = (int32_t)c.rows;
            softmax_try(sets[s], &c, visible, &rng);
            for (size_t r = 0; r < c.rows; r++)
                CHECK(!visible[r].lifted || !visible[0].alike, "row %zu is lifted, yet alike", r);
        }
    }
}

/* FAULTS D3 (one NaN at every index), D4 (+inf), D6 (-inf only), A4 (a first tile without keys). */
Test(kernels, softmax_of_special_scores) {
    const struct attn_kernels *sets[8];
    const size_t n_sets = check_kernel_sets(sets);
    for (size_t s = 0; s < n_sets; s++)
        for (int32_t keys = 1; keys <= (check_quick() ? 20 : 70); keys++)
            for (int32_t at = 0; at < keys; at++) {
                struct attn_visible see = {0, keys, 0, 0, NULL};
                float scores[128], m, l, factor;
                const float special[] = {NAN, -NAN, INFINITY, -INFINITY};
                for (int i = 0; i < 4; i++) {
                    check_context("%s: %d scores, %f at %d", sets[s]->name, (int)keys,
                                  (double)special[i], (int)at);
                    for (int32_t j = 0; j < 128; j++)
                        scores[j] = -0.125f * (float)j;
                    scores[at] = special[i];
                    m = -INFINITY, l = 0;
                    sets[s]->softmax_rows(scores, 128, 1, &see, &m, &l, &factor);
                    if (i < 3)
                        CHECK(isnan(l), "l is %f, want NaN", (double)l);
                    else
                        CHECK(scores[at] == 0 && isfinite(l) && (keys > 1) == (l > 0),
                              "weight of -inf is %f, l %f", (double)scores[at], (double)l);
                    if (i < 2)
                        CHECK(isnan(scores[at]), "the NaN became %f", (double)scores[at]);
                    for (int32_t j = 0; i != 2 && j < keys; j++)
                        CHECK(j == at || scores[j] > 0, "NaN spread to %d", (int)j);
                }
                check_context("%s: %d scores of -inf", sets[s]->name, (int)keys);
                for (int32_t j = 0; j < 128; j++)
                    scores[j] = j < keys ? -INFINITY : NAN;
                m = -INFINITY, l = 0;
                sets[s]->softmax_rows(scores, 128, 1, &see, &m, &l, &factor);
                CHECK(m == -INFINITY && bits_of(l) == 0 && factor == 1, "m %f l %f factor %f",
                      (double)m, (double)l, (double)factor);
                for (int32_t j = 0; j < keys; j++)
                    CHECK(bits_of(scores[j]) == 0, "weight %d is %f", (int)j, (double)scores[j]);
            }
}

/* ---- pv -------------------------------------------------------------------------------------- */

struct pv_case {
    size_t rows, keys, dim;
    int64_t stride;
    size_t acc_gap;
    enum side side;
    bool has_factor;
    enum kind kind;
};

/* The same bits where the tile comes in two pieces. */
static void pv_in_pieces(const struct attn_kernels *set, const struct pv_case *c,
                         const struct attn_visible *visible, const float *weights,
                         const float *values, const float *factor, const float *before,
                         const float *want, struct rng *rng) {
    const size_t width = padded(c->keys), acc_stride = c->dim + c->acc_gap;
    const size_t n_acc = (c->rows - 1) * acc_stride + c->dim;
    const int32_t cut = (int32_t)rng_below(rng, (int64_t)c->keys);
    float *acc = guarded_floats(SLOT_OTHER + 4, n_acc, c->side), keep[MAX_ROWS];
    struct attn_visible piece[MAX_ROWS];
    memcpy(acc, before, n_acc * sizeof(float));
    for (size_t r = 0; r < c->rows; r++) {
        keep[r] = 1;
        piece[r] = visible[r];
        piece[r].end = visible[r].end < cut ? visible[r].end : cut;
    }
    set->pv_tile(weights, width, piece, c->rows, values, c->stride, c->dim, factor, acc, acc_stride,
                 NULL);
    for (size_t r = 0; r < c->rows; r++) {
        const struct attn_visible see = visible[r];
        piece[r] = (struct attn_visible){see.begin > cut ? see.begin - cut : 0, see.end - cut,
                                         see.lifted - cut, 0, NULL};
    }
    set->pv_tile(weights + cut, width, piece, c->rows, values + cut * c->stride, c->stride, c->dim,
                 keep, acc, acc_stride, NULL);
    for (size_t r = 0; r < c->rows; r++) {
        const int64_t at =
            first_difference(acc + r * acc_stride, want + r * acc_stride, (int64_t)c->dim);
        CHECK(at < 0, "row %zu differs in two pieces, cut at %d, at feature %" PRId64, r, (int)cut,
              at);
    }
}

/* The same sums where they end elsewhere, alone or joined to those of earlier keys. */
static void pv_with_ending(const struct attn_kernels *set, const struct pv_case *c,
                           const struct attn_visible *visible, const float *weights,
                           const float *values, const float *factor, const float *before,
                           const float *sums, struct rng *rng) {
    const size_t acc_stride = c->dim + c->acc_gap, n_acc = (c->rows - 1) * acc_stride + c->dim;
    float *acc = guarded_floats(SLOT_OTHER + 4, n_acc, c->side);
    float *past = guarded_floats(SLOT_OTHER + 5, n_acc, c->side);
    float *to = guarded_floats(SLOT_OTHER + 6, c->rows * c->dim, c->side);
    float keep[MAX_ROWS], add[MAX_ROWS], finish[MAX_ROWS], *out[MAX_ROWS];
    const bool has_past = rng_below(rng, 2);
    memcpy(acc, before, n_acc * sizeof(float));
    for (size_t r = 0; r < c->rows; r++) {
        keep[r] = (float)rng_uniform(rng), add[r] = (float)rng_uniform(rng);
        finish[r] = (float)rng_uniform(rng);
        out[r] = to + (c->rows - 1 - r) * c->dim;
        for (size_t f = 0; f < c->dim; f++)
            past[r * acc_stride + f] = rng_normal(rng);
    }
    const struct attn_ending ending = {has_past ? past : NULL, keep, add, finish, out};
    set->pv_ending(weights, padded(c->keys), visible, c->rows, values, c->stride, c->dim, factor,
                   acc, acc_stride, &ending, NULL);
    for (size_t r = 0; r < c->rows; r++)
        for (size_t f = 0; f < c->dim; f++) {
            float want = sums[r * acc_stride + f];
            if (has_past)
                want = chain_link(set, past[r * acc_stride + f], keep[r], want * add[r]);
            want *= finish[r];
            CHECK(same_bits(out[r][f], want), "row %zu feature %zu ends as %a, want %a (past %d)",
                  r, f, (double)out[r][f], (double)want, has_past);
        }
}

static void pv_try(const struct attn_kernels *set, const struct pv_case *c,
                   const struct attn_visible *visible, struct rng *rng) {
    check_context("pv %s: rows %zu keys %zu dim %zu value stride %" PRId64
                  " side %d factor %d kind %d, row 0 sees %d..%d",
                  set->name, c->rows, c->keys, c->dim, c->stride, (int)c->side, c->has_factor,
                  (int)c->kind, (int)visible[0].begin, (int)visible[0].end);
    const size_t width = padded(c->keys), acc_stride = c->dim + c->acc_gap;
    const size_t n_acc = (c->rows - 1) * acc_stride + c->dim;
    const size_t n_values = (size_t)llabs(c->stride) * (c->keys - 1) + c->dim;
    static float before[MAX_ROWS * 700];
    float *weights = guarded_floats(SLOT_OTHER, c->rows * width, c->side);
    float *acc = guarded_floats(SLOT_OTHER + 1, n_acc, c->side);
    float *alone = guarded_floats(SLOT_OTHER + 2, c->dim, c->side);
    float *factors = guarded_floats(SLOT_OTHER + 3, c->rows, c->side);
    float *v_data = guarded_floats(SLOT_V, n_values, c->side);
    float *values = c->stride < 0 ? v_data + (n_values - c->dim) : v_data;

    /* A value that no row sees is NaN; a weight that the row does not see is NaN too. */
    for (size_t j = 0; j < c->keys; j++) {
        bool is_seen = false;
        for (size_t r = 0; r < c->rows; r++)
            is_seen |= sees(visible[r], (int32_t)j);
        if (is_seen || c->stride == 0)
            fill(values + (int64_t)j * c->stride, c->dim, j % 7 == 3 ? c->kind : KIND_NORMAL, rng);
    }
    bool is_any_masked = false;
    for (size_t r = 0; r < c->rows; r++) {
        is_any_masked |= visible[r].bits != NULL;
        factors[r] = (float)rng_uniform(rng);
        for (int32_t j = visible[r].begin; j < visible[r].end; j++)
            weights[r * width + (size_t)j] = !sees(visible[r], j) ? NAN
                                             : j % 5 == 4         ? 0
                                             : j < visible[r].lifted
                                                 ? (float)rng_uniform(rng) * 0x1p-60f * ATTN_LIFT
                                                 : (float)rng_uniform(rng);
        for (size_t f = 0; c->has_factor && f < c->dim; f++)
            acc[r * acc_stride + f] = rng_normal(rng);
    }
    memcpy(before, acc, n_acc * sizeof(float));
    const float *factor = c->has_factor ? factors : NULL;
    set->pv_tile(weights, width, visible, c->rows, values, c->stride, c->dim, factor, acc,
                 acc_stride, NULL);

    for (size_t r = 0; r < c->rows; r++) {
        const float *a = acc + r * acc_stride;
        for (size_t f = 0; f < c->dim; f++) {
            float want = -0.0f;
            if (factor)
                want = before[r * acc_stride + f] * factor[r];
            const struct attn_visible see = visible[r];
            for (int32_t j = see.begin; j <= see.end; j++) {
                if (j > see.begin && j == see.lifted)
                    want *= 1 / ATTN_LIFT;
                if (sees(see, j))
                    want = chain_link(set, weights[r * width + (size_t)j],
                                      values[j * c->stride + (int64_t)f], want);
            }
            CHECK(same_bits(a[f], want),
                  "row %zu (%d..%d, lifted before %d) feature %zu: %a, the chain gives %a", r,
                  (int)see.begin, (int)see.end, (int)see.lifted, f, (double)a[f], (double)want);
        }
        for (size_t f = c->dim; r + 1 < c->rows && f < acc_stride; f++)
            CHECK(bits_of(a[f]) == UINT32_MAX, "row %zu: gap at %zu was written", r, f);
    }
    for (size_t r = 0; r < c->rows && c->rows > 1; r += 1 + c->rows / 5) {
        memcpy(alone, before + r * acc_stride, c->dim * sizeof(float));
        set->pv_tile(weights + r * width, width, visible + r, 1, values, c->stride, c->dim,
                     factor ? factor + r : NULL, alone, acc_stride, NULL);
        const int64_t at = first_difference(alone, acc + r * acc_stride, (int64_t)c->dim);
        CHECK(at < 0, "row %zu alone differs at feature %" PRId64, r, at);
    }
    pv_with_ending(set, c, visible, weights, values, factor, before, acc, rng);
    if (!is_any_masked)
        pv_in_pieces(set, c, visible, weights, values, factor, before, acc, rng);
}

Test(kernels, pv) {
    const struct attn_kernels *sets[8];
    const size_t n_sets = check_kernel_sets(sets);
    struct rng rng = {3};
    for (size_t s = 0; s < n_sets; s++) {
        struct attn_visible visible[MAX_ROWS];
        const int32_t tile = check_quick() ? 9 : 20;
        for (int32_t begin = 0; begin <= tile; begin++)
            for (int32_t end = 0; end <= tile; end++) {
                const struct pv_case c = {3, (size_t)tile, 21,        21,
                                          0, end % 2,      begin % 2, KIND_NORMAL};
                visible[0] = (struct attn_visible){begin, end, 0, 0, NULL};
                visible[1] = (struct attn_visible){0, tile, 0, 0, NULL};
                visible[2] = (struct attn_visible){end / 2, begin, 0, 0, NULL};
                pv_try(sets[s], &c, visible, &rng);
                /* Alone, so that values outside its range are NaN. */
                const struct pv_case one = {1, (size_t)tile, 17,      19,
                                            0, begin % 2,    end % 2, KIND_NORMAL};
                pv_try(sets[s], &one, visible, &rng);
            }
        for (size_t n = 1; n <= 33; n++)
            for (int side = 0; side < 2; side++) {
                const enum kind kind = (enum kind)(n % N_KINDS);
                const struct pv_case by_rows = {n, 37, 19, 22, 3, side, n % 3, kind};
                const struct pv_case by_keys = {13, n, 21, -21, 0, side, n % 3, kind};
                const struct pv_case by_dim = {5, 35, n, (int64_t)n, 0, side, n % 3, kind};
                const struct pv_case *cases[] = {&by_rows, &by_keys, &by_dim};
                for (int i = 0; i < 3; i++) {
                    for (size_t r = 0; r < cases[i]->rows; r++)
                        visible[r] = any_range(&rng, cases[i]->keys);
                    pv_try(sets[s], cases[i], visible, &rng);
                }
            }
        /* Rows that see the same, as most do. */
        for (size_t n = 1; n <= 20; n += check_quick() ? 3 : 1)
            for (size_t i = 0; i < 3; i++) {
                const size_t dims[] = {15, 64, 150};
                const struct pv_case alike = {n, 100,   dims[i], (int64_t)dims[i] + 1,
                                              i, n % 2, i % 2,   KIND_NORMAL};
                visible[0] = any_range(&rng, alike.keys);
                for (size_t r = 1; r < n; r++)
                    visible[r] = visible[0];
                pv_try(sets[s], &alike, visible, &rng);
            }
        /* Rows that begin alike and end one after the other, as causal ones do; the first of them may
         * see nothing. */
        for (size_t n = 2; n <= 26; n += check_quick() ? 5 : 1)
            for (size_t i = 0; i < 9; i++) {
                const size_t dims[] = {15, 64, 150}, dim = dims[i % 3];
                const struct pv_case causal = {n, 60,    dim,   (int64_t)dim + 1,
                                               i, n % 2, i % 2, (enum kind)(i % N_KINDS)};
                const int32_t begin = i < 3 ? 0 : (int32_t)rng_below(&rng, 60);
                const int32_t end = (int32_t)rng_below(&rng, 60), group = 1 + (int32_t)i / 3;
                for (size_t r = 0; r < n; r++) {
                    const int32_t past = end + (int32_t)r / group;
                    visible[r] = (struct attn_visible){begin, past < 60 ? past : 60, 0, 0, NULL};
                }
                pv_try(sets[s], &causal, visible, &rng);
            }
        for (size_t i = 0; i < sizeof long_sizes / sizeof *long_sizes; i++) {
            const size_t n = long_sizes[i];
            const struct pv_case by_keys = {
                check_quick() ? 3 : 25, n, 18, 18, 0, i % 2, i % 3, KIND_NORMAL};
            const struct pv_case by_dim = {6, 40, n, (int64_t)n + 1, 5, i % 2, i % 3, KIND_NORMAL};
            for (size_t r = 0; r < 25; r++)
                visible[r] = any_range(&rng, n);
            pv_try(sets[s], &by_keys, visible, &rng);
            for (size_t r = 0; r < 6; r++)
                visible[r] = any_range(&rng, 40);
            pv_try(sets[s], &by_dim, visible, &rng);
        }
        for (int64_t i = check_count(300); i-- > 0;) {
            const size_t dim = (size_t)(1 + rng_below(&rng, 80));
            const struct pv_case c = {(size_t)(1 + rng_below(&rng, 30)),
                                      (size_t)(1 + rng_below(&rng, 150)),
                                      dim,
                                      i % 11 ? (int64_t)dim + rng_below(&rng, 9) : 0,
                                      (size_t)rng_below(&rng, 9),
                                      i % 2,
                                      i / 2 % 2,
                                      (enum kind)rng_below(&rng, N_KINDS)};
            for (size_t r = 0; r < c.rows; r++)
                visible[r] = any_range(&rng, c.keys);
            pv_try(sets[s], &c, visible, &rng);
        }
    }
}

/* Lifted rows: alone, in blocks that return at one column or at several, and beside rows that are
 * not lifted or see other keys. */
Test(kernels, pv_of_lifted_rows) {
    const struct attn_kernels *sets[8];
    const size_t n_sets = check_kernel_sets(sets);
    struct rng rng = {6};
    for (size_t s = 0; s < n_sets; s++) {
        struct attn_visible visible[MAX_ROWS];
        for (int64_t i = 0; i < 71 + check_count(600); i++) {
            const size_t dim = i < 70 ? (size_t)i + 1 : (size_t)(1 + rng_below(&rng, 80));
            const struct pv_case c = {(size_t)(1 + rng_below(&rng, 30)),
                                      (size_t)(1 + rng_below(&rng, i % 4 ? 150 : 600)),
                                      dim,
                                      (i % 5 ? 1 : -1) * (int64_t)(dim + rng_below(&rng, 9)),
                                      (size_t)rng_below(&rng, 9),
                                      i % 2,
                                      i / 2 % 2,
                                      i % 3 ? KIND_NORMAL : (enum kind)rng_below(&rng, N_KINDS)};
            const struct attn_visible all = {0, (int32_t)c.keys, 0, 0, NULL};
            const int64_t ways = rng_below(&rng, 3);
            const int32_t same = (int32_t)rng_below(&rng, (int64_t)c.keys + 1);
            for (size_t r = 0; r < c.rows; r++) {
                visible[r] = ways ? all : any_range(&rng, c.keys);
                visible[r].lifted =
                    ways == 1 ? same : (int32_t)rng_below(&rng, (int64_t)c.keys + 1);
                if (ways == 2 && rng_below(&rng, 3) == 0)
                    visible[r].lifted = 0;
            }
            pv_try(sets[s], &c, visible, &rng);
        }
    }
}

/* Rows with bits: alone, so that what is hidden from it is NaN, and in tiles where neighbours see the
 * same, other keys, or have no bits. */
Test(kernels, pv_of_masked_rows) {
    const struct attn_kernels *sets[8];
    const size_t n_sets = check_kernel_sets(sets);
    struct rng rng = {5};
    for (size_t s = 0; s < n_sets; s++) {
        struct attn_visible visible[MAX_ROWS];
        for (int64_t i = 0; i < 71 + check_count(400); i++) {
            const size_t dim = i < 70 ? (size_t)i + 1 : i % 3 ? 128 : (size_t)(1 + i % 150);
            const int64_t gap = rng_below(&rng, 9);
            struct pv_case c = {(size_t)(1 + rng_below(&rng, 25)),
                                (size_t)(1 + rng_below(&rng, i % 4 ? 150 : 600)),
                                dim,
                                (i % 5 ? 1 : -1) * ((int64_t)dim + gap),
                                (size_t)rng_below(&rng, 9),
                                i % 2,
                                i / 2 % 2,
                                i % 3 ? KIND_NORMAL : (enum kind)rng_below(&rng, N_KINDS)};
            for (size_t r = 0; r < c.rows; r++)
                visible[r] = rng_below(&rng, 3)
                                 ? (struct attn_visible){0, (int32_t)c.keys, 0, 0, NULL}
                                 : any_range(&rng, c.keys);
            add_bits(visible, c.rows, c.keys, i % 2, &rng);
            pv_try(sets[s], &c, visible, &rng);
            c.rows = 1;
            pv_try(sets[s], &c, visible, &rng);
        }
    }
}

/* A value that one row sees and its neighbour does not: NaN must stay with the row that sees it
 * (CONTRACT 3, FAULTS C2 and C4). */
Test(kernels, pv_hidden_beside_visible) {
    const struct attn_kernels *sets[8];
    const size_t n_sets = check_kernel_sets(sets);
    for (size_t s = 0; s < n_sets; s++)
        for (int32_t rows = 1; rows <= 26; rows++)
            for (int32_t poisoned = 0; poisoned < rows; poisoned += 1 + (check_quick() ? 5 : 0)) {
                check_context("%s: causal tile of %d rows, value %d is NaN", sets[s]->name,
                              (int)rows, (int)poisoned);
                enum { DIM = 35 };
                static float weights[26 * 64], values[26 * DIM], acc[26 * DIM];
                struct attn_visible visible[26];
                for (int32_t r = 0; r < rows; r++)
                    visible[r] = (struct attn_visible){0, r + 1, 0, 0, NULL};
                for (int i = 0; i < 26 * 64; i++)
                    weights[i] = i % 64 <= i / 64 ? 0.5f : 0; /* hidden: also a weight of 0 */
                for (int i = 0; i < 26 * DIM; i++)
                    values[i] = i / DIM == poisoned ? NAN : 1;
                sets[s]->pv_tile(weights, 64, visible, (size_t)rows, values, DIM, DIM, NULL, acc,
                                 DIM, NULL);
                for (int32_t r = 0; r < rows; r++)
                    for (int c = 0; c < DIM; c++)
                        CHECK(r >= poisoned ? isnan(acc[r * DIM + c])
                                            : acc[r * DIM + c] == 0.5f * (float)(r + 1),
                              "row %d feature %d is %f", (int)r, c, (double)acc[r * DIM + c]);
            }
}

/* ---- merge and scale ------------------------------------------------------------------------- */

enum { MERGE_DIM = 40 };

static void merge_try(const struct attn_kernels *set, size_t rows, size_t dim, size_t gap,
                      enum side side, struct rng *rng) {
    check_context("merge %s: rows %zu dim %zu gap %zu side %d", set->name, rows, dim, gap,
                  (int)side);
    const size_t stride = dim + gap, n = (rows - 1) * stride + dim;
    float *acc_a = guarded_floats(SLOT_OTHER, n, side);
    float *acc_b = guarded_floats(SLOT_OTHER + 1, n, side);
    float *m_a = guarded_floats(SLOT_OTHER + 2, rows, side);
    float *l_a = guarded_floats(SLOT_OTHER + 3, rows, side);
    float *m_b = guarded_floats(SLOT_OTHER + 4, rows, side);
    float *l_b = guarded_floats(SLOT_OTHER + 5, rows, side);
    float *alone = guarded_floats(SLOT_OTHER + 6, dim, side);
    float *before = malloc((n + 2 * rows) * sizeof(float));
    cr_assert(before != NULL);
    for (size_t r = 0; r < rows; r++) {
        for (size_t c = 0; c < dim; c++) {
            acc_a[r * stride + c] = rng_normal(rng);
            acc_b[r * stride + c] = c % 9 == 5 ? -0.0f : rng_normal(rng);
        }
        m_a[r] = 4 * rng_normal(rng), l_a[r] = 1 + (float)rng_uniform(rng);
        m_b[r] = r % 5 == 4 ? -INFINITY : 4 * rng_normal(rng);
        l_b[r] = r % 5 == 4 ? 0 : 1 + (float)rng_uniform(rng);
        if (r % 7 == 3)
            m_b[r] = m_a[r] + 200; /* what came before vanishes */
    }
    memcpy(before, acc_a, n * sizeof(float));
    memcpy(before + n, m_a, rows * sizeof(float));
    memcpy(before + n + rows, l_a, rows * sizeof(float));
    set->merge_rows(rows, dim, acc_a, m_a, l_a, acc_b, m_b, l_b, stride);
    for (size_t r = 0; r < rows; r++) {
        const float was_m = before[n + r], was_l = before[n + rows + r];
        const double max = was_m > m_b[r] ? was_m : m_b[r];
        const double e_a = exp((double)(float)(was_m - (float)max));
        const double e_b = exp((double)(float)(m_b[r] - (float)max));
        CHECK((double)m_a[r] == max, "row %zu: m %a, want %a", r, (double)m_a[r], max);
        const double l = was_l * e_a + l_b[r] * e_b;
        CHECK(fabs(l_a[r] - l) <= chain_tolerance(3, l) + 0x1p-125, "row %zu: l %.9g, want %.9g", r,
              (double)l_a[r], l);
        for (size_t c = 0; c < dim; c++) {
            const double a = before[r * stride + c] * e_a, b = acc_b[r * stride + c] * e_b;
            CHECK(fabs(acc_a[r * stride + c] - (a + b)) <=
                      chain_tolerance(3, fabs(a) + fabs(b)) + 0x1p-124,
                  "row %zu feature %zu: %.9g, want %.9g", r, c, (double)acc_a[r * stride + c],
                  a + b);
        }
        memcpy(alone, before + r * stride, dim * sizeof(float));
        float m = was_m, sum = was_l;
        set->merge_rows(1, dim, alone, &m, &sum, acc_b + r * stride, m_b + r, l_b + r, stride);
        CHECK(first_difference(alone, acc_a + r * stride, (int64_t)dim) < 0 &&
                  same_bits(sum, l_a[r]) && same_bits(m, m_a[r]),
              "row %zu alone has other bits", r);
        for (size_t c = dim; r + 1 < rows && c < stride; c++)
            CHECK(bits_of(acc_a[r * stride + c]) == UINT32_MAX, "a gap was written");
    }
    free(before);

    const float f = (float)rng_uniform(rng);
    float *scaled = guarded_floats(SLOT_OTHER + 7, dim, side);
    set->scale_rows(1, acc_b, 0, &f, dim, (float *const[]){scaled});
    for (size_t c = 0; c < dim; c++)
        CHECK(same_bits(scaled[c], acc_b[c] * f), "scale_rows at %zu: %a, want %a", c,
              (double)scaled[c], (double)(acc_b[c] * f));
}

/* The state of no key changes nothing, on either side, to the bit (FAULTS M1). */
static void merge_with_nothing(const struct attn_kernels *set, size_t dim, float m, float l) {
    check_context("merge %s with nothing: dim %zu m %f l %f", set->name, dim, (double)m, (double)l);
    float state[MERGE_DIM], nothing[MERGE_DIM], left[MERGE_DIM], right[MERGE_DIM];
    for (size_t c = 0; c < dim; c++) {
        const float values[] = {-0.0f, 0.0f, 1.5f, -2e-40f, 3e38f, -7.25f, 0x1p-149f};
        state[c] = left[c] = m == -INFINITY ? -0.0f : values[c % 7];
        nothing[c] = right[c] = -0.0f;
    }
    float m_left = m, l_left = l, m_right = -INFINITY, l_right = 0;
    const float no_m = -INFINITY, no_l = 0;
    set->merge_rows(1, dim, left, &m_left, &l_left, nothing, &no_m, &no_l, MERGE_DIM);
    set->merge_rows(1, dim, right, &m_right, &l_right, state, &m, &l, MERGE_DIM);
    for (size_t c = 0; c < dim; c++)
        CHECK(bits_of(left[c]) == bits_of(state[c]) && bits_of(right[c]) == bits_of(state[c]),
              "feature %zu: %a became %a on the left, %a on the right", c, (double)state[c],
              (double)left[c], (double)right[c]);
    CHECK(bits_of(m_left) == bits_of(m) && bits_of(l_left) == bits_of(l), "left m %a l %a",
          (double)m_left, (double)l_left);
    CHECK(bits_of(m_right) == bits_of(m) && bits_of(l_right) == bits_of(l), "right m %a l %a",
          (double)m_right, (double)l_right);
}

Test(kernels, finish_factors) {
    static const float others[] = {0, -0.0f, NAN, -1};
    const struct attn_kernels *sets[8];
    const size_t n_sets = check_kernel_sets(sets);
    struct rng rng = {14};
    for (size_t s = 0; s < n_sets; s++)
        for (size_t n = 1; n <= 33; n++)
            for (size_t i = 0; i <= sizeof others / sizeof *others; i++) {
                const bool has_other = i < sizeof others / sizeof *others;
                const size_t at = (size_t)rng_below(&rng, (int64_t)n);
                float *l = guarded_floats(SLOT_OTHER, n, n % 2);
                float *factor = guarded_floats(SLOT_OTHER + 1, n, n % 2);
                check_context("finish_factors %s: %zu rows", sets[s]->name, n);
                for (size_t r = 0; r < n; r++)
                    l[r] = 1 + (float)rng_uniform(&rng);
                if (has_other)
                    l[at] = others[i];
                CHECK(sets[s]->finish_factors(n, l, factor) == !has_other,
                      "says the same with l %a in row %zu", (double)l[at], at);
                for (size_t r = 0; r < n; r++)
                    CHECK((has_other && r == at) || same_bits(factor[r], 1 / l[r]),
                          "row %zu: %a for l %a", r, (double)factor[r], (double)l[r]);
            }
}

Test(kernels, merge_and_scale) {
    const struct attn_kernels *sets[8];
    const size_t n_sets = check_kernel_sets(sets);
    struct rng rng = {4};
    for (size_t s = 0; s < n_sets; s++) {
        for (size_t n = 1; n <= 33; n++) {
            merge_try(sets[s], n, 19, n % 3, n % 2, &rng);
            merge_try(sets[s], 7, n, n % 3, n % 2, &rng);
            const float maxima[] = {-INFINITY, -3e38f, -1, 0, 17, 3e38f};
            for (size_t i = 0; i < sizeof maxima / sizeof *maxima; i++)
                merge_with_nothing(sets[s], n, maxima[i], i ? 1.25f : 0);
        }
        for (size_t i = 0; i < sizeof long_sizes / sizeof *long_sizes; i++)
            merge_try(sets[s], 5, long_sizes[i], i, i % 2, &rng);
    }
}
