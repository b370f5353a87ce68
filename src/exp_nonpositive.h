/* exp(x) for x <= 0, on the vectors of vec.h.
 *
 *     n = round(x / ln 2),  r = x - n ln 2 in [-ln(2)/2, ln(2)/2],  exp(x) = 2^n exp(r)
 *
 * with ln 2 in two parts, the first short enough for n * LN2_HIGH to be exact, and
 * exp(r) = 1 + r + r^2 p(r), p of degree 4: the weighted least-squares fit on Chebyshev nodes,
 * whose own error of 2^-28 is far below the rounding of the last two steps.
 *
 * Results below the smallest normal number 2^-126, that is x < ATTN_EXP_LAST_NORMAL, are +0; -inf
 * gives +0 and NaN gives NaN. x > 0 is outside the domain, +inf excepted, which gives NaN or +inf.
 *
 * Largest error 0.89 ULP (tests/test_exp.c holds it to 1, over every float of the range).
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_EXP_NONPOSITIVE_H
#define ATTN_EXP_NONPOSITIVE_H

#include "kernels.h"

/* Adding it rounds to an integer and leaves n + 127, the exponent field of 2^n, in the low bits:
 * 1.5 * 2^23 is where a float's unit is 1, with room for a sign. */
#define EXP_MAGIC 0x1.8000fep+23f

static inline vf exp_nonpositive(vf x) {
    const vf magic_n = vf_fma(x, vf_set1(0x1.715476p+0f), vf_set1(EXP_MAGIC)); /* log2(e) */
    const vf n = vf_sub(magic_n, vf_set1(EXP_MAGIC));
    vf r = vf_fnma(n, vf_set1(0x1.62e4p-1f), x); /* LN2_HIGH: 16 bits */
    r = vf_fnma(n, vf_set1(0x1.7f7d1cp-20f), r); /* ln 2 - LN2_HIGH */
    vf p = vf_fma(vf_set1(0x1.687bf6p-10f), r, vf_set1(0x1.123b9ep-7f));
    p = vf_fma(p, r, vf_set1(0x1.555b58p-5f));
    p = vf_fma(p, r, vf_set1(0x1.55548ep-3f));
    p = vf_fma(p, r, vf_set1(0x1.fffff8p-2f));
    p = vf_fma(p, r, vf_set1(1.0f));
    p = vf_fma(p, r, vf_set1(1.0f));
    const vm not_normal = vf_less(x, vf_set1(ATTN_EXP_LAST_NORMAL));
    return vf_zero_where(not_normal, vf_pow2_scale(p, magic_n));
}

#endif
