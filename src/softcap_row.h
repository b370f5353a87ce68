/* cap * tanh(s / cap), on the vectors of vec.h, SOFTMAX_VECTORS (from there) at once.
 *
 * With y = 2x, n = round(y / ln 2), r = y - n ln 2 in [-ln(2)/2, ln(2)/2] and t = tanh(r / 2), the
 * addition theorem of tanh gives, because tanh(n ln(2) / 2) = (2^n - 1) / (2^n + 1),
 *
 *     tanh(x) = ((2^n - 1) + (2^n + 1) t) / ((2^n + 1) + (2^n - 1) t)
 *
 * where t = r (1/2 + r^2 (c1 + r^2 c2)): c1 and c2 are the minimax fit, relative error 2^-24.1 (by
 * iteratively reweighted least squares on Chebyshev nodes), and 1/2 is kept exact so that a tiny x
 * comes back as it is. Errors of t fade as |n| grows, and a rational function of x would have them
 * grow to 6 ULP. ln 2 is one float: what it lacks, 2^-29 n, is damped likewise.
 *
 * For |x| >= 10 n is at least 29, 2^n - 1 and 2^n + 1 are the same float, and the quotient is 1: x
 * is clamped there. Below, numerator and denominator are rounded from numbers of which the second
 * is no smaller, so that |tanh| <= 1 always, and the result stays within [-cap, cap].
 *
 * Largest error 2.5857 ULP, at 0x1.0a491ap-1 (tests/test_tanh.c tries every float and holds each
 * set to 2.6).
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_SOFTCAP_ROW_H
#define ATTN_SOFTCAP_ROW_H

#include <stdbool.h>
#include <stddef.h>

#include "exp_nonpositive.h"

/* x = to * tanh(y / 2), y being x * from. */
ALWAYS_INLINE void tanh_n(const int N, vf *x, vf from, vf to) {
    vf magic_n[SOFTMAX_VECTORS], r[SOFTMAX_VECTORS], t[SOFTMAX_VECTORS];
#define EACH                                                                                       \
    UNROLL                                                                                         \
    for (int i = 0; i < N; i++)
    EACH x[i] = vf_clamp(vf_mul(x[i], from), 20);
    EACH magic_n[i] = vf_fma(x[i], vf_set1(0x1.715476p+0f), vf_set1(EXP_MAGIC)); /* 1 / ln 2 */
    EACH t[i] = vf_sub(magic_n[i], vf_set1(EXP_MAGIC));                          /* n */
    EACH r[i] = vf_fnma(t[i], vf_set1(0x1.62e43p-1f), x[i]);                     /* ln 2 */
    EACH x[i] = vf_mul(r[i], r[i]);
    EACH t[i] = vf_fma(vf_set1(0x1.0c7f9p-8f), x[i], vf_set1(-0x1.554feap-5f));
    EACH t[i] = vf_fma(t[i], x[i], vf_set1(0.5f));
    EACH t[i] = vf_mul(t[i], r[i]);
    EACH magic_n[i] = vf_pow2(magic_n[i]);
    EACH x[i] = vf_sub(magic_n[i], vf_set1(1.0f));
    EACH r[i] = vf_add(magic_n[i], vf_set1(1.0f));
    EACH magic_n[i] = vf_fma(x[i], t[i], r[i]);
    EACH x[i] = vf_fma(r[i], t[i], x[i]);
    EACH x[i] = vf_mul(vf_divide(x[i], magic_n[i]), to);
#undef EACH
}

/* Where 1 / cap is no normal number, or twice that overflows, the scores are divided and multiplied
 * one by one: the sizes of such a cap are no use, but must not turn a 0 into NaN. */
static inline void softcap_row(float *s, size_t n_keys, float cap) {
    const bool usual = cap >= 0x1p-120f && cap <= 0x1p+120f;
    const vf from = vf_set1(usual ? 2 / cap : 2), to = vf_set1(usual ? cap : 1);
    for (size_t j = 0; !usual && j < n_keys; j++)
        s[j] /= cap;
    for (size_t j = 0; j < n_keys; j += SOFTMAX_VECTORS * VF_LANES) {
        vf x[SOFTMAX_VECTORS];
        UNROLL
        for (int i = 0; i < SOFTMAX_VECTORS; i++)
            x[i] = vf_load(s + j + i * VF_LANES);
        tanh_n(SOFTMAX_VECTORS, x, from, to);
        UNROLL
        for (int i = 0; i < SOFTMAX_VECTORS; i++)
            vf_store(s + j + i * VF_LANES, x[i]);
    }
    for (size_t j = 0; !usual && j < n_keys; j++)
        s[j] *= cap;
}

#endif
