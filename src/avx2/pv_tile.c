/* Accumulates the weighted values of a tile, 16 features at a time.
 *
 * SPDX-License-Identifier: MIT */
#include "avx2.h"
#include "vec.h"

#include "pv_broadcast.h"

/* A masked load costs one more operation than a plain one, so blocks whose last vector is full are
 * functions of their own. */
#define BLOCK(M, N)                                                                                \
    NEVER_INLINE void full_##M##x##N(const struct pv_operands *o, int32_t begin, int32_t end) {    \
        pv_block(M, N, 0, o, begin, end);                                                          \
    }                                                                                              \
    NEVER_INLINE void masked_##M##x##N(const struct pv_operands *o, int32_t begin, int32_t end) {  \
        pv_block(M, N, 1, o, begin, end);                                                          \
    }
#define FULL(M, N) full_##M##x##N,
#define MASKED(M, N) masked_##M##x##N,
UP_TO_12(BLOCK, 1)
UP_TO_6(BLOCK, 2)

void attn_pv_tile_f32_avx2(const float *weights, size_t weight_stride,
                           const struct attn_visible *visible, size_t n_rows, const float *values,
                           int64_t value_stride, size_t v_dim, const float *factor, float *acc,
                           size_t acc_stride) {
    /* By the vectors of features. */
    static pv_function *const full[2][MAX_BLOCK_ROWS] = {{UP_TO_12(FULL, 1)}, {UP_TO_6(FULL, 2)}};
    static pv_function *const masked[2][MAX_BLOCK_ROWS] = {{UP_TO_12(MASKED, 1)},
                                                           {UP_TO_6(MASKED, 2)}};
    static const size_t most_rows[2] = {12, 6};
    for (size_t c = 0; c < v_dim; c += 2 * VF_LANES) {
        const size_t left = v_dim - c < 2 * VF_LANES ? v_dim - c : 2 * VF_LANES;
        const size_t n = (left + VF_LANES - 1) / VF_LANES - 1;
        const struct pv_operands o = {
            .weights = weights,
            .weight_stride = weight_stride,
            .values = values + c,
            .value_stride = value_stride,
            .factor = factor,
            .acc = acc + c,
            .acc_stride = acc_stride,
            .last = left - n * VF_LANES,
        };
        pv_rows(o.last == VF_LANES ? full[n] : masked[n], most_rows[n], o, visible, n_rows);
    }
}
