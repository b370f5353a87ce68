/* The names of one set's kernels on int8, attn_<kernel>_i8_<isa>, and their table. Each kernel is
 * defined at its field of struct attn_int8_kernels.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_INT8_KERNELS_H
#define ATTN_INT8_KERNELS_H

#include "kernels.h"

#define ATTN_DECLARE_INT8_KERNELS(isa)                                                             \
    void attn_quantise_i8_##isa(const float *x, size_t dim, size_t group, int8_t *row);            \
    void attn_pack_keys_i8_##isa(const int8_t *keys, int64_t stride, const float *scales,          \
                                 int64_t scale_stride, size_t first, size_t n_keys, size_t dim,    \
                                 size_t group, void *packed);                                      \
    void attn_qk_packed_i8_##isa(const int8_t *const *q, size_t n_rows, const void *packed,        \
                                 size_t n_keys, size_t dim, size_t group, float scale,             \
                                 float *scores, size_t score_stride);                              \
    void attn_qk_strided_i8_##isa(const int8_t *const *q, size_t n_rows, const int8_t *keys,       \
                                  int64_t stride, const float *scales, int64_t scale_stride,       \
                                  size_t n_keys, size_t dim, size_t group, float scale,            \
                                  float *scores, size_t score_stride);

#define ATTN_DEFINE_INT8_TABLE(isa, min_rows)                                                      \
    static const struct attn_int8_kernels int8_kernels_##isa = {                                   \
        .pack_rows = {min_rows, min_rows, min_rows},                                               \
        .quantise = attn_quantise_i8_##isa,                                                        \
        .pack_keys = attn_pack_keys_i8_##isa,                                                      \
        .qk_packed = attn_qk_packed_i8_##isa,                                                      \
        .qk_strided = attn_qk_strided_i8_##isa,                                                    \
    }

#endif
