/* The fused softmax of a tile's rows, 8 keys at a time.
 *
 * SPDX-License-Identifier: MIT */
#include "avx2.h"
#include "vec.h"

#include "softmax_row.h"

void attn_softmax_rows_f32_avx2(float *scores, size_t score_stride, size_t n_rows,
                                const struct attn_visible *visible, float *m, float *l,
                                float *factor) {
    for (size_t r = 0; r < n_rows; r++) {
        const struct attn_visible see = visible[r];
        factor[r] = 1;
        if (see.begin < see.end)
            factor[r] = softmax_row(scores + r * score_stride, see.begin, see.end, &m[r], &l[r]);
    }
}
