/* Weighted values of other types than f32, as they are stored, for a few rows: the blocks of
 * pv_broadcast.h.
 *
 * Include after pv_broadcast.h. A set says by UP_TO_STORED which blocks there are, each on whole
 * vectors, and by STORED_ROWS, an initialiser, how many rows they have for each count of vectors.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_PV_STORED_H
#define ATTN_PV_STORED_H

#include "pv_broadcast.h"

static inline struct pv_operands stored_operands(const float *weights, size_t weight_stride,
                                                 const struct attn_stored *values, size_t bytes,
                                                 const float *factor, float *acc,
                                                 size_t acc_stride) {
    return (struct pv_operands){.weights = weights,
                                .weight_stride = weight_stride,
                                .values = values->at,
                                .value_stride = values->stride * (int64_t)bytes,
                                .scales = values->scales,
                                .scale_stride = values->scale_stride,
                                .group = values->group,
                                .factor = factor,
                                .acc = acc,
                                .acc_stride = acc_stride};
}

#endif
