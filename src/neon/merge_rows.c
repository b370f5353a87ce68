/* Merges the states of two key ranges, and scales a finished row.
 *
 * SPDX-License-Identifier: MIT */
#include "neon.h"
#include "vec.h"

#include "merge_row.h"

void attn_merge_rows_f32_neon(size_t n_rows, size_t v_dim, float *acc_a, float *m_a, float *l_a,
                              const float *acc_b, const float *m_b, const float *l_b,
                              size_t acc_stride) {
    merge_rows(n_rows, v_dim, acc_a, m_a, l_a, acc_b, m_b, l_b, acc_stride);
}

void attn_scale_row_f32_neon(const float *x, float factor, size_t n, float *out) {
    enum { VECTORS = 4, STEP = VECTORS * VF_LANES };
    for (; n >= STEP; n -= STEP, x += STEP, out += STEP) {
        vf y[VECTORS];
        UNROLL
        for (int v = 0; v < VECTORS; v++)
            y[v] = vf_mul(vf_load(x + v * VF_LANES), vf_set1(factor));
        UNROLL
        for (int v = 0; v < VECTORS; v++)
            vf_store(out + v * VF_LANES, y[v]);
    }
    if (n > 0)
        scale_row(x, factor, n, out);
}
