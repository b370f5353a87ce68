/* The fused softmax of a tile's rows.
 *
 * SPDX-License-Identifier: MIT */
#include "neon.h"
#include "vec.h"

#include "exp4.h"

#define SOFTMAX_EXP(x) exp4_nonpositive(x)
/* Two vectors of one row are one load or store. */
#define SOFTMAX_APART
#include "softmax_row.h"

void attn_softmax_rows_f32_neon(float *scores, size_t score_stride, size_t n_rows,
                                struct attn_visible *visible, float *m, float *l, float *factor) {
    softmax_rows(scores, score_stride, n_rows, visible, m, l, factor);
}
