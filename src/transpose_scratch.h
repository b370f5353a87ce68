/* A matrix turned in scratch, on the vectors of vec.h and the transpose_keys of transpose.h, which
 * are included before this.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_TRANSPOSE_SCRATCH_H
#define ATTN_TRANSPOSE_SCRATCH_H

#include "unroll.h"

/* See transpose in kernels.h. */
static inline void transpose_scratch(const float *x, size_t stride, size_t n_rows, size_t n_columns,
                                     float *out, size_t out_stride) {
    const struct key_steps steps = key_steps((int64_t)stride);
    for (size_t r = 0; r < n_rows; r += VF_LANES)
        for (size_t c = 0; c < n_columns; c += 4) {
            vf y[4];
            transpose_keys(x + r * stride + c, steps, VF_LANES, 4, y);
            UNROLL
            for (size_t f = 0; f < 4; f++)
                vf_store(out + (c + f) * out_stride + r, y[f]);
        }
}

#endif
