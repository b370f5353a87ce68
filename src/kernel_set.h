/* The names of one set's kernels, attn_<kernel>_f32_<isa>, and its table. Each kernel is defined at
 * its field of struct attn_kernels.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_KERNEL_SET_H
#define ATTN_KERNEL_SET_H

#include "kernels.h"

#define ATTN_DECLARE_KERNELS(isa)                                                                  \
    attn_pack_keys attn_pack_keys_f32_##isa;                                                       \
    attn_qk_packed attn_qk_packed_f32_##isa;                                                       \
    attn_qk_strided attn_qk_strided_f32_##isa;                                                     \
    void attn_softcap_f32_##isa(float *scores, size_t n_keys, float cap);                          \
    void attn_alibi_f32_##isa(float *scores, size_t n_keys, float slope, int64_t distance);        \
    void attn_add_bias_f32_##isa(float *scores, size_t n_keys, const float *bias);                 \
    void attn_bits_of_bool_f32_##isa(const uint8_t *mask, size_t n_keys, uint64_t *bits);          \
    void attn_bits_of_bias_f32_##isa(const float *bias, size_t n_keys, uint64_t *bits);            \
    void attn_softmax_rows_f32_##isa(float *scores, size_t score_stride, size_t n_rows,            \
                                     struct attn_visible *visible, float *m, float *l,             \
                                     float *factor);                                               \
    attn_pv_tile attn_pv_tile_f32_##isa;                                                           \
    void attn_pv_ending_f32_##isa(const float *weights, size_t weight_stride,                      \
                                  const struct attn_visible *visible, size_t n_rows,               \
                                  const float *values, int64_t value_stride, size_t v_dim,         \
                                  const float *factor, float *acc, size_t acc_stride,              \
                                  const struct attn_ending *ending, struct attn_later *later);     \
    void attn_merge_factors_f32_##isa(size_t n_rows, float *m_a, float *l_a, const float *m_b,     \
                                      const float *l_b, float *e_a, float *e_b);                   \
    bool attn_finish_factors_f32_##isa(size_t n_rows, const float *l, float *factor);              \
    void attn_merge_rows_f32_##isa(size_t n_rows, size_t v_dim, float *acc_a, float *m_a,          \
                                   float *l_a, const float *acc_b, const float *m_b,               \
                                   const float *l_b, size_t acc_stride);                           \
    void attn_scale_rows_f32_##isa(size_t n_rows, const float *x, size_t x_stride,                 \
                                   const float *factor, size_t n, float *const *out);              \
    float attn_dot_row_f32_##isa(const float *a, const float *b, size_t n);                        \
    void attn_gradient_rows_f32_##isa(                                                             \
        float *scores, float *dweights, const float *capped, size_t stride, size_t n_rows,         \
        const struct attn_visible *visible, const float *lse, const float *delta, float cap);      \
    void attn_softmax_gradient_f32_##isa(const float *w, const float *dw, float delta, size_t n,   \
                                         float *ds);                                               \
    void attn_transpose_f32_##isa(const float *x, size_t stride, size_t n_rows, size_t n_columns,  \
                                  float *out, size_t out_stride);                                  \
    void attn_widen_f16_##isa(const uint16_t *x, int64_t stride, size_t n_rows, size_t n,          \
                              float *out, size_t out_stride);                                      \
    void attn_widen_bf16_##isa(const uint16_t *x, int64_t stride, size_t n_rows, size_t n,         \
                               float *out, size_t out_stride);                                     \
    void attn_widen_i8_##isa(const int8_t *x, int64_t stride, size_t n_rows, size_t n,             \
                             const float *scales, int64_t scale_stride, float *out,                \
                             size_t out_stride);                                                   \
    void attn_narrow_f16_##isa(const float *x, size_t n, uint16_t *out);                           \
    void attn_narrow_bf16_##isa(const float *x, size_t n, uint16_t *out);

/* The products of what is stored in other types, and their table. */
#define ATTN_DECLARE_STORED(isa, type)                                                             \
    void attn_qk_##type##_##isa(const float *const *q, size_t n_rows,                              \
                                const struct attn_stored *keys, size_t n_keys, size_t dim,         \
                                float scale, float *scores, size_t score_stride);                  \
    void attn_pv_##type##_##isa(const float *weights, size_t weight_stride,                        \
                                const struct attn_visible *visible, size_t n_rows,                 \
                                const struct attn_stored *values, size_t v_dim,                    \
                                const float *factor, float *acc, size_t acc_stride);
#define ATTN_DECLARE_STORED_KERNELS(isa)                                                           \
    ATTN_DECLARE_STORED(isa, f32)                                                                  \
    ATTN_DECLARE_STORED(isa, f16)                                                                  \
    ATTN_DECLARE_STORED(isa, bf16)                                                                 \
    ATTN_DECLARE_STORED(isa, i8)

/* pack: macros that expand to a struct attn_pack_rows in braces; of int8 the second one. */
#define ATTN_DEFINE_STORED_KERNELS(isa, pack, pack_i8)                                             \
    static const struct attn_stored_kernels stored_kernels_##isa = {                               \
        .pack_rows = pack,                                                                         \
        .pack_rows_i8 = pack_i8,                                                                   \
        .qk_f32 = attn_qk_f32_##isa,                                                               \
        .qk_f16 = attn_qk_f16_##isa,                                                               \
        .qk_bf16 = attn_qk_bf16_##isa,                                                             \
        .qk_i8 = attn_qk_i8_##isa,                                                                 \
        .pv_f32 = attn_pv_f32_##isa,                                                               \
        .pv_f16 = attn_pv_f16_##isa,                                                               \
        .pv_bf16 = attn_pv_bf16_##isa,                                                             \
        .pv_i8 = attn_pv_i8_##isa,                                                                 \
    }

/* The products of a set that has some, and their table. Packing moves lanes, whatever they hold. */
#define ATTN_DECLARE_DOT_KERNELS(isa)                                                              \
    attn_qk_packed attn_qk_packed_##isa;                                                           \
    attn_qk_strided attn_qk_strided_##isa;                                                         \
    void attn_interleave_##isa(const void *const *tokens, size_t n, float *lanes);                 \
    void attn_narrow_weights_##isa(float *weights, size_t weight_stride, size_t n_rows,            \
                                   const struct attn_visible *visible);                            \
    attn_pv_tile attn_pv_tile_##isa;

#define ATTN_DEFINE_DOT_KERNELS(base, isa, of_type, n_per_lane, min_rows)                          \
    static const struct attn_dot_kernels dot_kernels_##isa = {                                     \
        .type = of_type,                                                                           \
        .per_lane = n_per_lane,                                                                    \
        .pack_rows = {min_rows, min_rows, min_rows},                                               \
        .pack_keys = attn_pack_keys_f32_##base,                                                    \
        .qk_packed = attn_qk_packed_##isa,                                                         \
        .qk_strided = attn_qk_strided_##isa,                                                       \
        .interleave = attn_interleave_##isa,                                                       \
        .narrow_weights = attn_narrow_weights_##isa,                                               \
        .pv_tile = attn_pv_tile_##isa,                                                             \
    }

/* ATTN_REQUIRED_FEATURES comes from required_features.h, in the file that uses this. The kernels may
 * be those of another set, `base`, all of whose features this one requires too;
 * stored_kernels, dot_kernels and int8_kernels are null or the address of its products. */
#define ATTN_DEFINE_KERNELS(base, isa, rows, pack, stored_kernels, dot_kernels, int8_kernels)      \
    const struct attn_kernels attn_kernels_##isa = {                                               \
        .name = #isa,                                                                              \
        .required = ATTN_REQUIRED_FEATURES,                                                        \
        .block_rows = rows,                                                                        \
        .pack_rows = pack,                                                                         \
        .pack_keys = attn_pack_keys_f32_##base,                                                    \
        .qk_packed = attn_qk_packed_f32_##base,                                                    \
        .qk_strided = attn_qk_strided_f32_##base,                                                  \
        .softcap = attn_softcap_f32_##base,                                                        \
        .alibi = attn_alibi_f32_##base,                                                            \
        .add_bias = attn_add_bias_f32_##base,                                                      \
        .bits_of_bool = attn_bits_of_bool_f32_##base,                                              \
        .bits_of_bias = attn_bits_of_bias_f32_##base,                                              \
        .softmax_rows = attn_softmax_rows_f32_##base,                                              \
        .pv_tile = attn_pv_tile_f32_##base,                                                        \
        .pv_ending = attn_pv_ending_f32_##base,                                                    \
        .merge_factors = attn_merge_factors_f32_##base,                                            \
        .finish_factors = attn_finish_factors_f32_##base,                                          \
        .merge_rows = attn_merge_rows_f32_##base,                                                  \
        .scale_rows = attn_scale_rows_f32_##base,                                                  \
        .dot_row = attn_dot_row_f32_##base,                                                        \
        .gradient_rows = attn_gradient_rows_f32_##base,                                            \
        .softmax_gradient = attn_softmax_gradient_f32_##base,                                      \
        .transpose = attn_transpose_f32_##base,                                                    \
        .widen_f16 = attn_widen_f16_##base,                                                        \
        .widen_bf16 = attn_widen_bf16_##base,                                                      \
        .widen_i8 = attn_widen_i8_##base,                                                          \
        .narrow_f16 = attn_narrow_f16_##base,                                                      \
        .narrow_bf16 = attn_narrow_bf16_##base,                                                    \
        .stored = stored_kernels,                                                                  \
        .dot = dot_kernels,                                                                        \
        .int8 = int8_kernels,                                                                      \
    }

#endif
