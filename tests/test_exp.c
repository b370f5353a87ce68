/* exp(x), x <= 0, of each kernel set against exp() in double precision, through softmax_rows: a row
 * whose running maximum is 0 becomes exp of itself.
 *
 * Every 1009th float of [-104, 0] and every float where something happens (the end of the normal
 * results, the largest and smallest arguments, each change of the power of two); all floats of
 * [-104, 0] and all NaNs with EXHAUSTIVE=1.
 *
 * SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdlib.h>

#include "check.h"

enum { CHUNK = 512 };
#define FIRST_NEGATIVE UINT32_C(0x80000000)
#define BITS_OF_MINUS_104 UINT32_C(0xc2d00000)

static bool is_exhaustive(void) {
    const char *all = getenv("EXHAUSTIVE");
    return all && *all && *all != '0';
}

/* x[i] becomes exp(x[i]). */
static void exp_row(const struct attn_kernels *set, float *x, int32_t n) {
    struct attn_visible see = {0, n, 0, 0, NULL};
    float m = 0, l = 0, factor;
    set->softmax_rows(x, CHUNK, 1, &see, &m, &l, &factor);
}

struct worst {
    double ulp;
    float x, got;
    int64_t tried, failures;
};

static void judge(float x, float got, struct worst *worst) {
    worst->tried++;
    bool right;
    if (isnan(x)) {
        right = isnan(got);
    } else if (x < ATTN_EXP_LAST_NORMAL) {
        right = bits_of(got) == 0;
    } else {
        /* The unit in the last place of the binade that exp(x) is in, at least 2^-126 * 2^-23. */
        const double exact = exp((double)x);
        union {
            double value;
            uint64_t bits;
        } unit = {exact};
        unit.bits &= UINT64_C(0x7ff0000000000000);
        const double ulp = fabs((double)got - exact) / (unit.value * 0x1p-23);
        right = ulp <= 1;
        if (!(ulp <= worst->ulp))
            worst->ulp = ulp, worst->x = x, worst->got = got;
    }
    if (!right && worst->failures++ < 3)
        check_fail("exp(%a) is %a, want %a", (double)x, (double)got, exp((double)x));
}

/* The floats with bits first, first + step, ... up to last. */
static void try_range(const struct attn_kernels *set, uint32_t first, uint32_t last, uint32_t step,
                      struct worst *worst) {
    float x[CHUNK], y[CHUNK];
    for (uint64_t bits = first; bits <= last;) {
        int32_t n = 0;
        for (; n < CHUNK && bits <= last; n++, bits += step)
            x[n] = y[n] = float_of((uint32_t)bits);
        exp_row(set, y, n);
        for (int32_t i = 0; i < n; i++)
            judge(x[i], y[i], worst);
    }
}

static void try_around(const struct attn_kernels *set, float x, uint32_t distance,
                       struct worst *worst) {
    const uint32_t bits = bits_of(x);
    const uint32_t first = bits - FIRST_NEGATIVE < distance ? FIRST_NEGATIVE : bits - distance;
    try_range(set, first, bits + distance, 1, worst);
}

Test(exp, within_one_ulp, .timeout = 3600) {
    const struct attn_kernels *sets[8];
    const size_t n_sets = check_kernel_sets(sets);
    const uint32_t step = is_exhaustive() ? 1 : check_quick() ? 20011 : 1009;
    for (size_t s = 0; s < n_sets; s++) {
        struct worst worst = {0};
        check_context("%s", sets[s]->name);
        try_range(sets[s], FIRST_NEGATIVE, BITS_OF_MINUS_104, step, &worst);
        const uint32_t dense = check_quick() ? 64 : 4096;
        try_around(sets[s], -0.0f, dense, &worst);
        try_around(sets[s], -0x1p-24f, dense, &worst);
        try_around(sets[s], ATTN_EXP_LAST_NORMAL, dense, &worst);
        for (int n = 0; n <= 150; n++) /* where the nearest power of two changes, and at it */
            for (int half = 0; half < 2; half++)
                try_around(sets[s], (float)(-0.6931471805599453 * (n + 0.5 * half)), 64, &worst);
        const float far[] = {-104,     -127,     -128,   -1000,    -65536,
                             -0x1p23f, -0x1p31f, -3e38f, -INFINITY};
        for (size_t i = 0; i < sizeof far / sizeof *far; i++)
            try_range(sets[s], bits_of(far[i]), bits_of(far[i]), 1, &worst);
        check_say("exp %s: %.4f ULP at most, at %a (got %a), %lld floats, every %u%s",
                  sets[s]->name, worst.ulp, (double)worst.x, (double)worst.got,
                  (long long)worst.tried, step, step == 1 ? "" : "th (EXHAUSTIVE=1 tries all)");
        CHECK(worst.failures == 0, "%lld results are wrong", (long long)worst.failures);

        float zeros[CHUNK] = {0.0f, -0.0f};
        exp_row(sets[s], zeros, 2);
        CHECK(zeros[0] == 1 && zeros[1] == 1, "exp(0) is %a, exp(-0) is %a", (double)zeros[0],
              (double)zeros[1]);
    }
}

/* NaN of either sign and any payload, signalling ones included. */
Test(exp, nan_stays_nan, .timeout = 3600) {
    const struct attn_kernels *sets[8];
    const size_t n_sets = check_kernel_sets(sets);
    const uint32_t step = is_exhaustive() ? 1 : 1009;
    for (size_t s = 0; s < n_sets; s++) {
        struct worst worst = {0};
        check_context("%s", sets[s]->name);
        for (uint32_t sign = 0; sign < 2; sign++) {
            const uint32_t infinity = sign << 31 | UINT32_C(0x7f800000);
            try_range(sets[s], infinity + 1, infinity + 64, 1, &worst);
            try_range(sets[s], infinity + 1, infinity + UINT32_C(0x7fffff), step, &worst);
            try_range(sets[s], infinity + UINT32_C(0x7fff00), infinity + UINT32_C(0x7fffff), 1,
                      &worst);
        }
        CHECK(worst.failures == 0, "%lld of %lld are no NaN", (long long)worst.failures,
              (long long)worst.tried);
    }
}

/* The bits of exp(x) are the same in every lane and in every tail (FAULTS D2). */
Test(exp, same_in_every_lane) {
    const struct attn_kernels *sets[8];
    const size_t n_sets = check_kernel_sets(sets);
    struct rng rng = {5};
    for (size_t s = 0; s < n_sets; s++)
        for (int64_t i = check_count(200); i-- > 0;) {
            const float x = i % 5 == 0 ? ATTN_EXP_LAST_NORMAL + (float)rng_below(&rng, 5) * 0x1p-17f
                            : i % 5 == 1 ? NAN
                                         : -104 * (float)rng_uniform(&rng);
            float alone[CHUNK] = {x};
            exp_row(sets[s], alone, 1);
            for (int32_t n = 1; n <= 70; n++) {
                check_context("%s: exp(%a) in a row of %d", sets[s]->name, (double)x, (int)n);
                const int32_t at = (int32_t)rng_below(&rng, n);
                float row[CHUNK];
                for (int32_t j = 0; j < CHUNK; j++)
                    row[j] = j == at ? x : -1 - (float)j;
                exp_row(sets[s], row, n);
                CHECK(same_bits(row[at], alone[0]), "at %d: %a, alone %a", (int)at, (double)row[at],
                      (double)alone[0]);
            }
        }
}
