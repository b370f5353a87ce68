/* The elementwise steps of the gradient, and the dot product they need, on the vectors of vec.h.
 *
 * Include after vec.h. What it computes is defined at gradient_rows, softmax_gradient and dot in
 * kernels.h.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_GRADIENT_ROW_H
#define ATTN_GRADIENT_ROW_H

#include "exp_nonpositive.h"
#include "kernels.h"

/* exp of SOFTMAX_VECTORS vectors at once; a set may have its own way to the same bits. */
#ifndef SOFTMAX_EXP
#define SOFTMAX_EXP(x) exp_nonpositive_n(SOFTMAX_VECTORS, x)
#endif

enum { GRADIENT_STEP = SOFTMAX_VECTORS * VF_LANES };

/* Columns [begin, end) and, because rows are padded, those around them up to a whole step. */
static inline void gradient_row(float *s, float *d, int32_t begin, int32_t end, const float *lse,
                                const float *delta) {
    for (int32_t i = begin & -GRADIENT_STEP; i < end; i += GRADIENT_STEP) {
        vf p[SOFTMAX_VECTORS];
        UNROLL
        for (int v = 0; v < SOFTMAX_VECTORS; v++)
            p[v] = vf_sub(vf_load(s + i + v * VF_LANES), vf_load(lse + i + v * VF_LANES));
        SOFTMAX_EXP(p);
        UNROLL
        for (int v = 0; v < SOFTMAX_VECTORS; v++) {
            const int32_t at = i + v * VF_LANES;
            vf_store(s + at, p[v]);
            vf_store(d + at, vf_mul(p[v], vf_sub(vf_load(d + at), vf_load(delta + at))));
        }
    }
}

/* The slope of softcap, 1 - t^2 for t = capped / cap. Where 1 / cap is no normal number the
 * quotients are computed one by one: see softcap_row.h. */
static inline void softcap_slope_row(float *d, const float *capped, int32_t begin, int32_t end,
                                     float cap) {
    if (!(cap >= 0x1p-120f && cap <= 0x1p+120f)) {
        for (int32_t i = begin; i < end; i++) {
            const vf t = vf_set1(capped[i] / cap);
            d[i] = vf_first(vf_mul(vf_set1(d[i]), vf_fnma(t, t, vf_set1(1.0f))));
        }
        return;
    }
    const vf from = vf_set1(1 / cap);
    for (int32_t i = begin & -VF_LANES; i < end; i += VF_LANES) {
        const vf t = vf_mul(vf_load(capped + i), from);
        vf_store(d + i, vf_mul(vf_load(d + i), vf_fnma(t, t, vf_set1(1.0f))));
    }
}

static inline void gradient_rows(float *scores, float *dweights, const float *capped, size_t stride,
                                 size_t n_rows, const struct attn_visible *visible,
                                 const float *lse, const float *delta, float cap) {
    for (size_t r = 0; r < n_rows; r++) {
        const struct attn_visible see = visible[r];
        float *d = dweights + r * stride;
        gradient_row(scores + r * stride, d, see.begin, see.end, lse, delta);
        if (capped)
            softcap_slope_row(d, capped + r * stride, see.begin, see.end, cap);
    }
}

static inline void softmax_gradient(const float *w, const float *dw, float row_delta, size_t n,
                                    float *ds) {
    const vf delta = vf_set1(row_delta);
    size_t j = 0;
    for (; j + VF_LANES <= n; j += VF_LANES)
        vf_store(ds + j, vf_mul(vf_load(w + j), vf_sub(vf_load(dw + j), delta)));
    if (j < n) {
        const vf rest = vf_sub(vf_load_first(dw + j, n - j), delta);
        vf_store_first(ds + j, vf_mul(vf_load_first(w + j, n - j), rest), n - j);
    }
}

/* Four sums, so that none waits for its own last addition. */
static inline float dot_row(const float *a, const float *b, size_t n) {
    enum { SUMS = 4 };
    vf sum[SUMS] = {vf_set1(0.0f), vf_set1(0.0f), vf_set1(0.0f), vf_set1(0.0f)};
    size_t c = 0;
    for (; c + SUMS * VF_LANES <= n; c += SUMS * VF_LANES) {
        UNROLL
        for (size_t v = 0; v < SUMS; v++)
            sum[v] = vf_fma(vf_load(a + c + v * VF_LANES), vf_load(b + c + v * VF_LANES), sum[v]);
    }
    for (; c + VF_LANES <= n; c += VF_LANES)
        sum[0] = vf_fma(vf_load(a + c), vf_load(b + c), sum[0]);
    if (c < n)
        sum[1] = vf_fma(vf_load_first(a + c, n - c), vf_load_first(b + c, n - c), sum[1]);
    return vf_reduce_add(vf_add(vf_add(sum[0], sum[1]), vf_add(sum[2], sum[3])));
}

#endif
