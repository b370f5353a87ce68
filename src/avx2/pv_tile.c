/* Accumulates the weighted values of a tile, 16 features at a time.
 *
 * SPDX-License-Identifier: MIT */
#include "avx2.h"
#include "vec.h"

#include "pv_broadcast.h"

#define BLOCK(M, N)                                                                                \
    NEVER_INLINE void block_##M##x##N(const struct pv_operands *o, int32_t begin, int32_t end) {   \
        pv_block(M, N, 0, o, begin, end);                                                          \
    }
#define SHORT(M, N)                                                                                \
    NEVER_INLINE void short_##M##x##N(const struct pv_operands *o, int32_t begin, int32_t end) {   \
        pv_block(M, N, 1, o, begin, end);                                                          \
    }
#define BLOCK_NAME(M, N) block_##M##x##N,
#define SHORT_NAME(M, N) short_##M##x##N,
UP_TO_12(SHORT, 1)
UP_TO_12(BLOCK, 1)
UP_TO_6(BLOCK, 2)

void attn_pv_tile_f32_avx2(const float *weights, size_t weight_stride,
                           const struct attn_visible *visible, size_t n_rows, const float *values,
                           int64_t value_stride, size_t v_dim, const float *factor, float *acc,
                           size_t acc_stride) {
    /* By the vectors of features; [0] for rows that do not fill one. */
    static pv_function *const blocks[3][MAX_BLOCK_ROWS] = {
        {UP_TO_12(SHORT_NAME, 1)}, {UP_TO_12(BLOCK_NAME, 1)}, {UP_TO_6(BLOCK_NAME, 2)}};
    static const size_t most_rows[3] = {12, 12, 6};
    for (size_t c = 0; c < v_dim; c += 2 * VF_LANES) {
        const size_t left = v_dim - c < 2 * VF_LANES ? v_dim - c : 2 * VF_LANES;
        const size_t vectors = (left + VF_LANES - 1) / VF_LANES;
        const struct pv_operands o = {
            .weights = weights,
            .weight_stride = weight_stride,
            .values = values + c,
            .value_stride = value_stride,
            .factor = factor,
            .acc = acc + c,
            .acc_stride = acc_stride,
            .last = left - (vectors - 1) * VF_LANES,
        };
        const size_t row = v_dim < VF_LANES ? 0 : vectors;
        pv_rows(blocks[row], most_rows[row], o, visible, n_rows);
    }
}
