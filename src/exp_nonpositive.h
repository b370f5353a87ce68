/* exp(x) for x <= 0, on the vectors of vec.h, SOFTMAX_VECTORS (from there) or fewer at once.
 *
 *     n = round(x / ln 2),  r = x - n ln 2 in [-ln(2)/2, ln(2)/2],  exp(x) = 2^n exp(r)
 *
 * with ln 2 in two parts, the first short enough for n * EXP_LN2_HIGH to be exact, and
 * exp(r) = 1 + r + r^2 p(r), p of degree 4: the weighted least-squares fit on Chebyshev nodes,
 * whose own error of 2^-28 is far below the rounding of the last two steps.
 *
 * Results below the smallest normal number 2^-126, that is x < ATTN_EXP_LAST_NORMAL, are +0; -inf
 * gives +0 and NaN gives NaN. Up to x = 1 there is nothing in it that needs x <= 0, and rounding may
 * leave a difference that should be 0 above it; beyond, x is outside the domain, +inf excepted, which
 * gives NaN or +inf.
 *
 * Largest error 0.9035 ULP, at -0x1.196b42p+6 (tests/test_exp.c tries every float of the range and
 * holds each set to 1).
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_EXP_NONPOSITIVE_H
#define ATTN_EXP_NONPOSITIVE_H

#include "kernels.h"
#include "unroll.h"

/* Adding it rounds to an integer and leaves n + 127, the exponent field of 2^n, in the low bits:
 * 1.5 * 2^23 is where a float's unit is 1, with room for a sign. */
#define EXP_MAGIC 0x1.8000fep+23f

#define EXP_LOG2_E 0x1.715476p+0f
#define EXP_LN2_HIGH 0x1.62e4p-1f   /* 16 bits */
#define EXP_LN2_LOW 0x1.7f7d1cp-20f /* ln 2 - EXP_LN2_HIGH */
#define EXP_P6 0x1.687bf6p-10f      /* the coefficients of 1 + r + r^2 p(r), by the power of r */
#define EXP_P5 0x1.123b9ep-7f
#define EXP_P4 0x1.555b58p-5f
#define EXP_P3 0x1.55548ep-3f
#define EXP_P2 0x1.fffff8p-2f

/* N vectors at once, step by step: one vector is a chain of a dozen dependent operations, which a
 * CPU that executes in order can only overlap if they come interleaved. */
ALWAYS_INLINE void exp_nonpositive_n(const int N, vf *x) {
    vf magic_n[SOFTMAX_VECTORS], r[SOFTMAX_VECTORS], p[SOFTMAX_VECTORS];
#define EACH                                                                                       \
    UNROLL                                                                                         \
    for (int i = 0; i < N; i++)
    EACH magic_n[i] = vf_fma(x[i], vf_set1(EXP_LOG2_E), vf_set1(EXP_MAGIC));
    EACH p[i] = vf_sub(magic_n[i], vf_set1(EXP_MAGIC)); /* n */
    EACH r[i] = vf_fnma(p[i], vf_set1(EXP_LN2_HIGH), x[i]);
    EACH r[i] = vf_fnma(p[i], vf_set1(EXP_LN2_LOW), r[i]);
    EACH p[i] = vf_fma(vf_set1(EXP_P6), r[i], vf_set1(EXP_P5));
    EACH p[i] = vf_fma(p[i], r[i], vf_set1(EXP_P4));
    EACH p[i] = vf_fma(p[i], r[i], vf_set1(EXP_P3));
    EACH p[i] = vf_fma(p[i], r[i], vf_set1(EXP_P2));
    EACH p[i] = vf_fma(p[i], r[i], vf_set1(1.0f));
    EACH p[i] = vf_fma(p[i], r[i], vf_set1(1.0f));
    EACH x[i] = vf_pow2_scale(p[i], magic_n[i], x[i], vf_set1(ATTN_EXP_LAST_NORMAL));
#undef EACH
}

static inline vf exp_nonpositive(vf x) {
    exp_nonpositive_n(1, &x);
    return x;
}

#endif
