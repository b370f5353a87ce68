/* The fused softmax of a tile's rows.
 *
 * SPDX-License-Identifier: MIT */
#include <math.h>

#include "exp_scalar.h"
#include "scalar.h"

static float softmax_row(float *s, struct attn_visible see, float *m, float *l) {
    float m_new = *m;
    for (int32_t j = see.begin; j < see.end; j++)
        if (sees(see, j))
            m_new = s[j] > m_new ? s[j] : m_new;
    const float z = m_new == -INFINITY ? 0 : m_new;

    float sum = 0;
    for (int32_t j = see.begin; j < see.end; j++)
        if (sees(see, j)) {
            s[j] = exp_scalar(s[j] - z);
            sum += s[j];
        }
    const float factor = m_new == *m ? 1 : exp_scalar(*m - z);
    *m = m_new;
    *l = *l * factor + sum;
    return factor;
}

void attn_softmax_rows_f32_scalar(float *scores, size_t score_stride, size_t n_rows,
                                  const struct attn_visible *visible, float *m, float *l,
                                  float *factor) {
    for (size_t r = 0; r < n_rows; r++) {
        factor[r] = 1;
        if (visible[r].begin < visible[r].end)
            factor[r] = softmax_row(scores + r * score_stride, visible[r], &m[r], &l[r]);
    }
}
