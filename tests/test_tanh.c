/* softcap of each kernel set: tanh(x) against tanh() in double precision, through a cap of 1, which
 * makes it tanh itself; and what other caps add.
 *
 * Every 1009th float and every float where something happens (small, saturated, each change of n in
 * softcap_row.h); all floats and all NaNs with EXHAUSTIVE=1.
 *
 * SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { CHUNK = 512 };
#define SIGN UINT32_C(0x80000000)
#define INFINITE UINT32_C(0x7f800000)

/* What the contract of softcap asks for, of whatever libm the scalar set has, and what the vector
 * sets promise. */
static double most_ulp(const struct attn_kernels *set) {
    return strcmp(set->name, "scalar") == 0 ? 4 : 2.6;
}

static bool is_exhaustive(void) {
    const char *all = getenv("EXHAUSTIVE");
    return all && *all && *all != '0';
}

struct worst {
    double most, ulp;
    float x, got;
    int64_t tried, failures;
};

/* In units in the last place of the result, at least 2^-149. */
static double ulps(float got, double exact) {
    int exponent;
    frexp(exact, &exponent);
    return fabs((double)got - exact) / ldexp(1, (exponent < -125 ? -125 : exponent) - 24);
}

static void judge(float x, float got, struct worst *worst) {
    worst->tried++;
    bool right;
    if (isnan(x)) {
        right = isnan(got);
    } else {
        /* tanh(x) is x to far more than 24 bits, and tanh() is slow for many of those. */
        const double exact = fabsf(x) < 0x1p-20f ? (double)x : tanh((double)x);
        const double ulp = ulps(got, exact);
        right = ulp <= worst->most && fabsf(got) <= 1 && (!isinf(x) || got == copysignf(1, x));
        if (!(ulp <= worst->ulp))
            worst->ulp = ulp, worst->x = x, worst->got = got;
    }
    if (!right && worst->failures++ < 3)
        check_fail("tanh(%a) is %a, want %a", (double)x, (double)got, tanh((double)x));
}

/* The floats with bits first, first + step, ... up to last. */
static void try_range(const struct attn_kernels *set, uint32_t first, uint32_t last, uint32_t step,
                      struct worst *worst) {
    float x[CHUNK], y[CHUNK];
    for (uint64_t bits = first; bits <= last;) {
        size_t n = 0;
        for (; n < CHUNK && bits <= last; n++, bits += step)
            x[n] = y[n] = float_of((uint32_t)bits);
        set->softcap(y, n, 1);
        for (size_t i = 0; i < n; i++)
            judge(x[i], y[i], worst);
    }
}

static void try_around(const struct attn_kernels *set, float x, uint32_t distance,
                       struct worst *worst) {
    const uint32_t bits = bits_of(x), sign = bits & SIGN, size = bits & ~SIGN;
    const uint32_t first = size < distance ? 0 : size - distance;
    const uint32_t last = size > INFINITE - distance ? INFINITE : size + distance;
    try_range(set, sign | first, sign | last, 1, worst);
}

Test(softcap, tanh_within_some_ulp, .timeout = 7200) {
    const struct attn_kernels *sets[8];
    const size_t n_sets = check_kernel_sets(sets);
    const uint32_t step = is_exhaustive() ? 1 : check_quick() ? 20011 : 1009;
    for (size_t s = 0; s < n_sets; s++) {
        struct worst worst = {.most = most_ulp(sets[s])};
        check_context("%s", sets[s]->name);
        for (uint32_t sign = 0; sign < 2; sign++) {
            try_range(sets[s], sign << 31, sign << 31 | INFINITE, step, &worst);
            const float sides[] = {1, -1};
            const uint32_t dense = check_quick() ? 64 : 4096;
            const float points[] = {0,         0x1p-126f, 0x1p-24f,       0x1p-12f, 0.25f,
                                    0.549306f, 1,         0x1.0a491ap-1f, 8.31777f, 8.66f,
                                    9.01f,     10,        0x1p64f,        INFINITY};
            for (size_t i = 0; i < sizeof points / sizeof *points; i++)
                try_around(sets[s], sides[sign] * points[i], dense, &worst);
            for (int n = 0; n <= 62; n++) /* where n changes, and between */
                try_around(sets[s], sides[sign] * (float)(0.6931471805599453 * 0.25 * n), 64,
                           &worst);
            /* NaN of any payload, signalling ones included. */
            const uint32_t nan = sign << 31 | INFINITE;
            try_range(sets[s], nan + 1, nan + 64, 1, &worst);
            try_range(sets[s], nan + 1, nan + UINT32_C(0x7fffff), step, &worst);
        }
        check_say("tanh %s: %.4f ULP at most, at %a (got %a), %lld floats, every %u%s",
                  sets[s]->name, worst.ulp, (double)worst.x, (double)worst.got,
                  (long long)worst.tried, step, step == 1 ? "" : "th (EXHAUSTIVE=1 tries all)");
        CHECK(worst.failures == 0, "%lld results are wrong", (long long)worst.failures);
    }
}

/* cap * tanh(s / cap): on top of tanh, the quotient may be a product with 2 / cap, and the product
 * with cap is rounded. */
static void check_cap(float s, float got, float cap) {
    if (isnan(s)) {
        CHECK(isnan(got), "softcap(NaN) is %a", (double)got);
        return;
    }
    const double exact = (double)cap * tanh((double)s / cap);
    CHECK(fabsf(got) <= cap, "softcap(%a) is %a, beyond the cap", (double)s, (double)got);
    if (isinf(s))
        CHECK(got == copysignf(cap, s), "softcap(%a) is %a", (double)s, (double)got);
    /* A subnormal quotient has fewer bits. */
    else
        CHECK(fabs((double)got - exact) <= 0x1p-23 * 4.5 * fabs(exact) + 0x1p-148 * (cap + 1.),
              "softcap(%a) is %a, want %a", (double)s, (double)got, exact);
}

Test(softcap, any_cap_and_length) {
    const struct attn_kernels *sets[8];
    const size_t n_sets = check_kernel_sets(sets);
    struct rng rng = {6};
    const float caps[] = {30,        50,        1,         0.3f,      1e-3f,   0x1p-119f,
                          0x1p-121f, 0x1p-126f, 0x1p-149f, 0x1p+119f, 1.7e38f, 3.4e38f};
    for (size_t set = 0; set < n_sets; set++)
        for (size_t i = 0; i < sizeof caps / sizeof *caps; i++)
            for (size_t n = 1; n <= 513; n += n < 130 ? 1 : 127) {
                if (check_quick() && n > 20 && n % 16 != i % 16)
                    continue;
                const float cap = caps[i];
                check_context("%s: %zu scores, cap %a", sets[set]->name, n, (double)cap);
                const size_t width = (n + ATTN_SCORE_PAD - 1) / ATTN_SCORE_PAD * ATTN_SCORE_PAD;
                float *s = guarded_floats(SLOT_OTHER, width, n % 2 ? AT_START : AT_END);
                float before[576];
                for (size_t j = 0; j < n; j++) {
                    const float special[] = {NAN,   INFINITY, -INFINITY, 0,
                                             -0.0f, -NAN,     3e38f,     -3e38f};
                    const int64_t kind = rng_below(&rng, 60);
                    s[j] = kind < 8    ? special[kind]
                           : kind == 8 ? rng_normal(&rng)
                                       : 2 * rng_normal(&rng) * cap;
                }
                memcpy(before, s, n * sizeof *s);
                sets[set]->softcap(s, n, cap);
                for (size_t j = 0; j < n; j++)
                    check_cap(before[j], s[j], cap);
                /* The same bits alone: in any lane and any tail. */
                const size_t j = (size_t)rng_below(&rng, (int64_t)n);
                float alone[ATTN_SCORE_PAD] = {before[j]};
                sets[set]->softcap(alone, 1, cap);
                CHECK(same_bits(alone[0], s[j]), "at %zu: %a, alone %a", j, (double)s[j],
                      (double)alone[0]);
            }
}
