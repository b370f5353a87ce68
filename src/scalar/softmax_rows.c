/* The fused softmax of a tile's rows.
 *
 * SPDX-License-Identifier: MIT */
#include <math.h>

#include "exp_scalar.h"
#include "scalar.h"

/* Lifts the first weights of a row; returns the column before which they are, or 0. */
static int32_t lift(float *w, int32_t begin, int32_t end) {
    int32_t lifted = begin;
    while (lifted < end && w[lifted] < ATTN_LIFT_BELOW)
        lifted++;
    lifted = lifted / ATTN_LIFT_COLUMNS * ATTN_LIFT_COLUMNS;
    bool is_needed = false;
    for (int32_t j = begin; j < lifted; j++) {
        is_needed |= w[j] != 0;
        w[j] *= ATTN_LIFT;
    }
    return is_needed ? lifted : 0;
}

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
                                  struct attn_visible *visible, float *m, float *l, float *factor) {
    for (size_t r = 0; r < n_rows; r++) {
        struct attn_visible *see = &visible[r];
        float *s = scores + r * score_stride, f = 1;
        see->lifted = 0;
        if (!factor)
            m[r] = -INFINITY, l[r] = 0;
        if (see->begin < see->end)
            f = softmax_row(s, *see, &m[r], &l[r]);
        if (f < ATTN_LIFT_BELOW && !see->bits)
            see->lifted = lift(s, see->begin, see->end);
        if (see->lifted > 0)
            visible[0].alike = 0;
        if (factor)
            factor[r] = see->lifted > 0 ? f * ATTN_LIFT : f;
    }
}
