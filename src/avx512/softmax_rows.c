/* The fused softmax of a tile's rows.
 *
 * SPDX-License-Identifier: MIT */
#include "avx512.h"
#include "vec.h"

#include "softmax_row.h"

void attn_softmax_rows_f32_avx512(float *scores, size_t score_stride, size_t n_rows,
                                  struct attn_visible *visible, float *m, float *l, float *factor) {
    softmax_rows(scores, score_stride, n_rows, visible, m, l, factor);
}
