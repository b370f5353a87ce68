/* The kernels of the gradient, of each set, against their definitions in kernels.h.
 *
 * SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdlib.h>

#include "check.h"

#define U 0x1p-24

/* ---- dot, softmax_gradient, transpose -------------------------------------------------------- */

Test(gradient_kernels, dot) {
    const struct attn_kernels *sets[8];
    const size_t n_sets = check_kernel_sets(sets);
    struct rng rng = {1};
    for (size_t s = 0; s < n_sets; s++)
        for (size_t n = 1; n < 400; n += 1 + n / 100) {
            const enum side side = n % 2 ? AT_END : AT_START;
            float *a = guarded_floats(SLOT_OTHER, n, side);
            float *b = guarded_floats(SLOT_OTHER + 1, n, side);
            double sum = 0, magnitude = 0;
            for (size_t i = 0; i < n; i++) {
                a[i] = rng_normal(&rng), b[i] = rng_normal(&rng);
                sum += (double)a[i] * b[i], magnitude += fabs((double)a[i] * b[i]);
            }
            check_context("dot %s: n %zu", sets[s]->name, n);
            const float got = sets[s]->dot_row(a, b, n);
            CHECK(fabs(got - sum) <= 1.01 * (double)(n + 1) * U * magnitude, "%.9g, want %.9g",
                  (double)got, sum);
        }
}

Test(gradient_kernels, softmax_gradient) {
    const struct attn_kernels *sets[8];
    const size_t n_sets = check_kernel_sets(sets);
    struct rng rng = {2};
    for (size_t s = 0; s < n_sets; s++)
        for (size_t n = 1; n < 90; n++) {
            const enum side side = n % 2 ? AT_END : AT_START;
            float *w = guarded_floats(SLOT_OTHER, n, side);
            float *dw = guarded_floats(SLOT_OTHER + 1, n, side);
            float *ds = guarded_floats(SLOT_OTHER + 2, n, side);
            const float delta = rng_normal(&rng);
            for (size_t i = 0; i < n; i++)
                w[i] = rng_normal(&rng), dw[i] = rng_normal(&rng);
            check_context("softmax_gradient %s: n %zu", sets[s]->name, n);
            sets[s]->softmax_gradient(w, dw, delta, n, ds);
            for (size_t i = 0; i < n; i++) {
                const float difference = dw[i] - delta;
                CHECK(same_bits(ds[i], w[i] * difference), "ds[%zu]", i);
            }
        }
}

static size_t stepped(size_t n) {
    return (n + ATTN_PACK_STEP - 1) / ATTN_PACK_STEP * ATTN_PACK_STEP;
}

Test(gradient_kernels, transpose) {
    const struct attn_kernels *sets[8];
    const size_t n_sets = check_kernel_sets(sets);
    struct rng rng = {3};
    for (size_t s = 0; s < n_sets; s++)
        for (int k = 0; k < 300; k++) {
            const enum side side = k % 2 ? AT_END : AT_START;
            const size_t rows = 1 + (size_t)rng_below(&rng, 70);
            const size_t columns = 1 + (size_t)rng_below(&rng, 140);
            const size_t stride = stepped(columns) + (size_t)rng_below(&rng, 3);
            const size_t out_stride = stepped(rows) + (size_t)rng_below(&rng, 3);
            const size_t n = (stepped(rows) - 1) * stride + stepped(columns);
            const size_t n_out = (stepped(columns) - 1) * out_stride + stepped(rows);
            float *x = guarded_floats(SLOT_OTHER, n, side);
            float *out = guarded_floats(SLOT_OTHER + 1, n_out, side);
            for (size_t i = 0; i < n; i++)
                x[i] = rng_normal(&rng);
            check_context("transpose %s: %zu x %zu", sets[s]->name, rows, columns);
            sets[s]->transpose(x, stride, rows, columns, out, out_stride);
            for (size_t r = 0; r < rows; r++)
                for (size_t c = 0; c < columns; c++)
                    CHECK(bits_of(out[c * out_stride + r]) == bits_of(x[r * stride + c]),
                          "row %zu column %zu", r, c);
            for (size_t i = 0; i < n_out; i++)
                if (i % out_stride >= stepped(rows))
                    CHECK(bits_of(out[i]) == UINT32_MAX, "a gap was written");
        }
}

/* ---- gradient_rows --------------------------------------------------------------------------- */

enum { MOST_ROWS = 20, MOST_COLUMNS = 256 };

struct rows_case {
    size_t rows, columns, stride;
    float cap; /* 0: none */
};

/* One place of the result. The bound: p is within 1 ULP, the difference, the products and the slope
 * round once each, and 1 - t^2 errs by 5 u at most where t errs by 2 u. */
static void check_place(const struct rows_case *c, size_t at, size_t i, const float *before,
                        const float *lse, const float *delta, const float *capped, float p,
                        float d) {
    const double exact_p = exp((double)(before[at] - lse[i]));
    CHECK(fabs(p - exact_p) <= 2.01 * U * exact_p + 0x1p-125, "p at %zu: %.9g, want %.9g", at,
          (double)p, exact_p);
    const double whole = exact_p * ((double)before[c->rows * c->stride + at] - (double)delta[i]);
    const double t = c->cap > 0 ? (double)capped[at] / (double)c->cap : 0;
    CHECK(fabs(d - whole * (1 - t * t)) <= 12 * U * fabs(whole) + 0x1p-123,
          "d at %zu: %.9g, want %.9g", at, (double)d, whole * (1 - t * t));
}

static void rows_try(const struct attn_kernels *set, const struct rows_case *c, struct rng *rng) {
    check_context("gradient_rows %s: rows %zu columns %zu cap %g", set->name, c->rows, c->columns,
                  (double)c->cap);
    const size_t width = (c->columns + ATTN_SCORE_PAD - 1) / ATTN_SCORE_PAD * ATTN_SCORE_PAD;
    const size_t n = (c->rows - 1) * c->stride + width, half = c->rows * c->stride;
    const enum side side = rng_below(rng, 2) ? AT_END : AT_START;
    float *s = guarded_floats(SLOT_OTHER, n, side), *d = guarded_floats(SLOT_OTHER + 1, n, side);
    float *capped = guarded_floats(SLOT_OTHER + 2, n, side);
    float *lse = guarded_floats(SLOT_OTHER + 3, width, side);
    float *delta = guarded_floats(SLOT_OTHER + 4, width, side);
    uint64_t *bits = guarded(SLOT_OTHER + 5, c->rows * 4 * sizeof *bits, side);
    struct attn_visible see[MOST_ROWS];
    float *before = malloc(2 * half * sizeof *before);
    cr_assert(before != NULL);
    for (size_t i = 0; i < width; i++)
        lse[i] = 2 + rng_normal(rng), delta[i] = rng_normal(rng);
    for (size_t r = 0; r < c->rows; r++) {
        const int32_t begin = (int32_t)rng_below(rng, (int64_t)c->columns);
        see[r] = (struct attn_visible){begin, (int32_t)c->columns, 0, 0, NULL};
        see[r].end -= (int32_t)rng_below(rng, (int64_t)c->columns - begin + 1);
        if (rng_below(rng, 3) == 0) {
            see[r].bits = bits + r * 4;
            for (size_t i = 0; i < 4; i++)
                bits[r * 4 + i] = rng_next(rng) | rng_next(rng);
        }
        for (size_t i = 0; i < width; i++) {
            const size_t at = r * c->stride + i;
            const float drop = rng_below(rng, 9) ? 6 : rng_below(rng, 2) ? 90 : 87;
            s[at] = lse[i] - drop * (float)rng_uniform(rng) + 1e-6f * (float)i;
            d[at] = rng_normal(rng);
            capped[at] = (c->cap > 0 ? c->cap : 1) * (2 * (float)rng_uniform(rng) - 1);
            before[at] = s[at], before[half + at] = d[at];
        }
    }
    set->gradient_rows(s, d, c->cap > 0 ? capped : NULL, c->stride, c->rows, see, lse, delta,
                       c->cap);
    for (size_t r = 0; r < c->rows; r++)
        for (int32_t i = see[r].begin; i < see[r].end; i++)
            if (!see[r].bits || see[r].bits[i / 64] >> i % 64 & 1) {
                const size_t at = r * c->stride + (size_t)i;
                check_place(c, at, (size_t)i, before, lse, delta, capped, s[at], d[at]);
            }
    for (size_t at = 0; at < n; at++)
        if (at % c->stride >= width)
            CHECK(bits_of(s[at]) == UINT32_MAX && bits_of(d[at]) == UINT32_MAX,
                  "a gap was written");
    free(before);
}

Test(gradient_kernels, rows) {
    const struct attn_kernels *sets[8];
    const size_t n_sets = check_kernel_sets(sets);
    const float caps[] = {0, 0, 2, 30, 1e-3f, 1e-39f, 0x1p+124f};
    struct rng rng = {4};
    for (size_t s = 0; s < n_sets; s++)
        for (size_t columns = 1; columns <= MOST_COLUMNS; columns += 1 + columns / 30)
            for (size_t k = 0; k < sizeof caps / sizeof *caps; k++) {
                const struct rows_case c = {1 + (size_t)rng_below(&rng, MOST_ROWS), columns,
                                            MOST_COLUMNS + (size_t)rng_below(&rng, 4), caps[k]};
                rows_try(sets[s], &c, &rng);
            }
}

/* NaN stays NaN, where it is, and only there. */
Test(gradient_kernels, nan) {
    const struct attn_kernels *sets[8];
    const size_t n_sets = check_kernel_sets(sets);
    for (size_t s = 0; s < n_sets; s++)
        for (int at = 0; at < 64; at += 7) {
            float x[64] = {0}, d[64] = {0}, lse[64] = {0}, delta[64] = {0};
            const struct attn_visible see = {0, 64, 0, 0, NULL};
            x[at] = NAN;
            sets[s]->gradient_rows(x, d, NULL, 64, 1, &see, lse, delta, 0);
            for (int i = 0; i < 64; i++)
                CHECK(isnan(x[i]) == (i == at) && isnan(d[i]) == (i == at), "%s: NaN at %d, %d",
                      sets[s]->name, at, i);
        }
}

/* The difference of a score and its row's lse may round above 0, where exp keeps its ULP. */
Test(gradient_kernels, exp_above_zero) {
    const struct attn_kernels *sets[8];
    const size_t n_sets = check_kernel_sets(sets);
    for (size_t s = 0; s < n_sets; s++) {
        const float zero[64] = {0};
        const struct attn_visible see = {0, 64, 0, 0, NULL};
        const uint32_t last = bits_of(1), step = check_quick() ? 100003 : 1009;
        for (uint32_t first = 0; first <= last; first += 64 * step) {
            float x[64], d[64] = {0}, given[64];
            for (uint32_t i = 0; i < 64; i++)
                given[i] = x[i] = first + i * step <= last ? float_of(first + i * step) : 1;
            sets[s]->gradient_rows(x, d, NULL, 64, 1, &see, zero, zero, 0);
            for (int i = 0; i < 64; i++) {
                const double exact = exp((double)given[i]);
                CHECK(fabs(x[i] - exact) <= (exact < 2 ? 2 : 4) * U, "%s: exp(%a) is %a",
                      sets[s]->name, (double)given[i], (double)x[i]);
            }
        }
    }
}
