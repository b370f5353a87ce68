/* Scores of queries that were quantised to int8 with keys that are stored so: in a group of
 * features that share scales the products are summed in integers, which is exact in any order, and
 *
 *     score = scale * chain over the groups g of (sum_g * q_scale_g) * k_scale_g, from 0
 *
 * On vec.h and vec_int8.h, which are included before this and give:
 *
 *     vi_turn_quads   16 features of VF_LANES keys as four vectors
 *     vi_turn_scales  up to four scales of VF_LANES keys as vectors of one scale each
 *     INT8_SLOTS(M)   sums that M rows take for each vector of keys, at least M
 *     vi_start        what the sum over a group begins with
 *     vq_load_rows    16 features of each row
 *     INT8_ADD        adds the products with one of the four vectors to the sums: of N vectors of
 *                     keys from `first` on
 *     vi_settle       puts the sums in order: sum[r] for row r
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_QK_INT8_H
#define ATTN_QK_INT8_H

#include "int8_rows.h"
#include "quantise_row.h"
#include "row_blocks.h"
#include "unroll.h"

/* Packed keys lie in panels of so many, whatever their number. */
enum { INT8_PANEL = MAX_BLOCK_VECTORS * VF_LANES };
enum { INT8_MAX_SLOTS = INT8_SLOTS(MAX_BLOCK_ROWS) };

/* ---- What is common -------------------------------------------------------------------------- */

/* A scale that is no finite number makes the score NaN, as it makes NaN of the key's zeros. */
static inline vf finite_or_nan(vf scales) { return vf_add(scales, vf_sub(scales, scales)); }

/* Scales first to first + n - 1 (at most 4) of n_keys keys, at most `vectors` vectors of them:
 * out[g * out_stride + j]. */
NEVER_INLINE void turn_scales(const float *scales, int64_t stride, size_t n_keys, size_t vectors,
                              size_t n, float *out, size_t out_stride) {
    for (size_t v = 0; v < vectors && v * VF_LANES < n_keys; v++) {
        vf x[4];
        vi_turn_scales(scales + (int64_t)(v * VF_LANES) * stride, stride, n_keys - v * VF_LANES, n,
                       x);
        for (size_t g = 0; g < n; g++)
            vf_store(out + g * out_stride + v * VF_LANES, finite_or_nan(x[g]));
    }
}

/* Adds group g to the scores: key_scales are those of the group. */
ALWAYS_INLINE void add_group(const int M, const int N, const struct int8_shape *s, size_t g,
                             const int8_t *const *row, const float *key_scales,
                             vi sum[][MAX_BLOCK_VECTORS], float scale, float *scores,
                             size_t score_stride) {
    UNROLL
    for (int r = 0; r < M; r++) {
        const vf q_scale = vf_set1(int8_query_scales(s, row[r])[g]);
        UNROLL
        for (int v = 0; v < N; v++) {
            float *to = scores + (size_t)r * score_stride + v * VF_LANES;
            const vf before = g == 0 ? vf_set1(0) : vf_load(to);
            const vf x = vf_fma(vf_mul(vf_of_vi(sum[r][v]), q_scale),
                                vf_load(key_scales + v * VF_LANES), before);
            vf_store(to, g + 1 == s->groups ? vf_mul(x, vf_set1(scale)) : x);
        }
    }
}

ALWAYS_INLINE void start_group(const int M, const int N, const struct int8_shape *s, size_t g,
                               const int8_t *const *row, vi sum[][MAX_BLOCK_VECTORS]) {
    UNROLL
    for (int r = 0; r < INT8_SLOTS(M); r++) {
        UNROLL
        for (int v = 0; v < N; v++)
            sum[r][v] = vi_start(int8_query_sums(s, row[r])[g]);
    }
}

/* ---- Packing --------------------------------------------------------------------------------- */

static inline void pack_int8(const size_t panel, const int8_t *keys, int64_t stride,
                             const float *scales, int64_t scale_stride, size_t first, size_t n_keys,
                             const struct int8_shape *s, int32_t *packed) {
    for (size_t j = 0; j < n_keys; j += VF_LANES) {
        const size_t n = n_keys - j < VF_LANES ? n_keys - j : VF_LANES;
        int32_t *to =
            packed + (first + j) / panel * panel * int8_key_words(s) + (first + j) % panel;
        const int8_t *from = keys + (int64_t)j * stride;
        vi x[4];
        for (size_t i = 0; i < s->quads; i++, to += 4 * panel) {
            const size_t left = s->dim - i * INT8_QUAD;
            if (n == VF_LANES && left >= INT8_QUAD)
                vi_turn_quads(from + i * INT8_QUAD, stride, VF_LANES, INT8_QUAD, x);
            else
                vi_turn_quads(from + i * INT8_QUAD, stride, n, left < INT8_QUAD ? left : INT8_QUAD,
                              x);
            UNROLL
            for (size_t l = 0; l < 4; l++)
                vi_store(to + l * panel, x[l]);
        }
        for (size_t g = 0; g < s->groups; g += 4)
            turn_scales(scales + (int64_t)j * scale_stride + g, scale_stride, n, 1,
                        s->groups - g < 4 ? s->groups - g : 4, (float *)(void *)(to + g * panel),
                        panel);
    }
}

/* Where fewer rows than slots are there, the last one fills them. */
ALWAYS_INLINE void take_rows(const int M, const int8_t *const *q, const int8_t **row) {
    UNROLL
    for (int r = 0; r < INT8_SLOTS(M); r++)
        row[r] = q[r < M ? r : M - 1];
}

/* ---- Packed keys ----------------------------------------------------------------------------- */

/* Macros, because a lane is a constant of the instruction. */
#define ADD_PACKED(lane)                                                                           \
    do {                                                                                           \
        UNROLL                                                                                     \
        for (int v = 0; v < N; v++)                                                                \
            key[v] = vi_load(keys + (i * 4 + (lane)) * panel + (size_t)v * VF_LANES);              \
        INT8_ADD(INT8_SLOTS(M), N, 0, key, lane);                                                  \
    } while (0)

/* M rows against N vectors of a panel of packed keys. */
ALWAYS_INLINE void packed_int8_block(const int M, const int N, const size_t panel,
                                     const int8_t *const *q, const int32_t *keys,
                                     const struct int8_shape *s, float scale, float *scores,
                                     size_t score_stride) {
    const int8_t *row[INT8_MAX_SLOTS];
    vi sum[INT8_MAX_SLOTS][MAX_BLOCK_VECTORS], key[MAX_BLOCK_VECTORS];
    vq x[INT8_MAX_SLOTS];
    take_rows(M, q, row);
    const float *key_scales = (const float *)(const void *)(keys + s->quads * 4 * panel);
    for (size_t g = 0, i = 0; g < s->groups; g++) {
        start_group(M, N, s, g, row, sum);
        for (const size_t end = int8_group_end(s, g); i < end; i++) {
            vq_load_rows(INT8_SLOTS(M), row, i * INT8_QUAD, x);
            ADD_PACKED(0);
            ADD_PACKED(1);
            ADD_PACKED(2);
            ADD_PACKED(3);
        }
        vi_settle(M, N, sum);
        add_group(M, N, s, g, row, key_scales + g * panel, sum, scale, scores, score_stride);
    }
}

typedef void packed_int8_function(const int8_t *const *q, const int32_t *keys,
                                  const struct int8_shape *s, float scale, float *scores,
                                  size_t score_stride);

/* All rows of a tile against packed keys, as qk_panels() of qk_broadcast.h does it. */
static inline void packed_int8_rows(packed_int8_function *const (*blocks)[MAX_BLOCK_ROWS],
                                    const size_t *most_rows, const size_t panel,
                                    const int8_t *const *q, size_t n_rows, const int32_t *packed,
                                    size_t n_keys, const struct int8_shape *s, float scale,
                                    float *scores, size_t score_stride) {
    for (size_t j = 0; j < n_keys; j += panel) {
        const size_t left = n_keys - j < panel ? n_keys - j : panel;
        const size_t v = (left + VF_LANES - 1) / VF_LANES - 1;
        for (size_t r = 0; r < n_rows;) {
            const size_t n = next_block(n_rows - r, most_rows[v]);
            blocks[v][n - 1](q + r, packed + j * int8_key_words(s), s, scale,
                             scores + r * score_stride + j, score_stride);
            r += n;
        }
    }
}

/* ---- Keys where they lie --------------------------------------------------------------------- */

#define ADD_TURNED()                                                                               \
    do {                                                                                           \
        INT8_ADD(INT8_SLOTS(M), 1, v, key + 0, 0);                                                 \
        INT8_ADD(INT8_SLOTS(M), 1, v, key + 1, 1);                                                 \
        INT8_ADD(INT8_SLOTS(M), 1, v, key + 2, 2);                                                 \
        INT8_ADD(INT8_SLOTS(M), 1, v, key + 3, 3);                                                 \
    } while (0)

/* M rows against up to N vectors of keys, n_keys in all, each turned and used at once. */
ALWAYS_INLINE void strided_int8_block(const int M, const int N, const int8_t *const *q,
                                      const int8_t *keys, int64_t stride, const float *scales,
                                      int64_t scale_stride, size_t n_keys,
                                      const struct int8_shape *s, float scale, float *scores,
                                      size_t score_stride) {
    const int8_t *row[INT8_MAX_SLOTS];
    float key_scales[4 * MAX_BLOCK_VECTORS * VF_LANES];
    vi sum[INT8_MAX_SLOTS][MAX_BLOCK_VECTORS], key[4];
    vq x[INT8_MAX_SLOTS];
    const size_t whole = n_keys == (size_t)N * VF_LANES ? s->dim / INT8_QUAD : 0;
    take_rows(M, q, row);
    for (size_t g = 0, i = 0; g < s->groups; g++) {
        if (g % 4 == 0)
            turn_scales(scales + g, scale_stride, n_keys, (size_t)N,
                        s->groups - g < 4 ? s->groups - g : 4, key_scales, (size_t)N * VF_LANES);
        start_group(M, N, s, g, row, sum);
        const size_t end = int8_group_end(s, g), full = end < whole ? end : whole;
        for (; i < full; i++) {
            vq_load_rows(INT8_SLOTS(M), row, i * INT8_QUAD, x);
            UNROLL
            for (int v = 0; v < N; v++) {
                const size_t j = (size_t)v * VF_LANES;
                vi_turn_quads(keys + (int64_t)j * stride + i * INT8_QUAD, stride, VF_LANES,
                              INT8_QUAD, key);
                ADD_TURNED();
            }
        }
        for (; i < end; i++) {
            const size_t left = s->dim - i * INT8_QUAD;
            vq_load_rows(INT8_SLOTS(M), row, i * INT8_QUAD, x);
            UNROLL
            for (int v = 0; v < N; v++) {
                const size_t j = (size_t)v * VF_LANES;
                vi_turn_quads(keys + (int64_t)j * stride + i * INT8_QUAD, stride,
                              j < n_keys ? n_keys - j : 0, left < INT8_QUAD ? left : INT8_QUAD,
                              key);
                ADD_TURNED();
            }
        }
        vi_settle(M, N, sum);
        add_group(M, N, s, g, row, key_scales + g % 4 * (size_t)N * VF_LANES, sum, scale, scores,
                  score_stride);
    }
}

typedef void strided_int8_function(const int8_t *const *q, const int8_t *keys, int64_t stride,
                                   const float *scales, int64_t scale_stride, size_t n_keys,
                                   const struct int8_shape *s, float scale, float *scores,
                                   size_t score_stride);

/* blocks[m - 1]: m rows, at most `most`, against `step` keys. */
static inline void strided_int8_rows(strided_int8_function *const *blocks, const size_t most,
                                     const size_t step, const int8_t *const *q, size_t n_rows,
                                     const int8_t *keys, int64_t stride, const float *scales,
                                     int64_t scale_stride, size_t n_keys,
                                     const struct int8_shape *s, float scale, float *scores,
                                     size_t score_stride) {
    for (size_t r = 0, m; r < n_rows; r += m) {
        m = next_block(n_rows - r, most);
        for (size_t j = 0; j < n_keys; j += step)
            blocks[m - 1](q + r, keys + (int64_t)j * stride, stride,
                          scales + (int64_t)j * scale_stride, scale_stride,
                          n_keys - j < step ? n_keys - j : step, s, scale,
                          scores + r * score_stride + j, score_stride);
    }
}

/* ---- A set's kernels ------------------------------------------------------------------------- */

/* Blocks of constant size, each a function of its own, and their names in a table. */
#define INT8_PACKED(M, N)                                                                          \
    NEVER_INLINE void packed_##M##x##N(const int8_t *const *q, const int32_t *keys,                \
                                       const struct int8_shape *s, float scale, float *scores,     \
                                       size_t score_stride) {                                      \
        packed_int8_block(M, N, INT8_PANEL, q, keys, s, scale, scores, score_stride);              \
    }
#define INT8_PACKED_NAME(M, N) packed_##M##x##N,

#define INT8_STRIDED(M, N)                                                                         \
    NEVER_INLINE void strided_##M##x##N(const int8_t *const *q, const int8_t *keys,                \
                                        int64_t stride, const float *scales, int64_t scale_stride, \
                                        size_t n_keys, const struct int8_shape *s, float scale,    \
                                        float *scores, size_t score_stride) {                      \
        strided_int8_block(M, N, q, keys, stride, scales, scale_stride, n_keys, s, scale, scores,  \
                           score_stride);                                                          \
    }
#define INT8_STRIDED_NAME(M, N) strided_##M##x##N,

/* From the tables packed_blocks and most_rows, and strided_blocks of strided_vectors vectors. */
#define ATTN_DEFINE_INT8_KERNELS(isa)                                                              \
    void attn_quantise_i8_##isa(const float *x, size_t dim, size_t group, int8_t *row) {           \
        quantise_row(x, dim, group, row);                                                          \
    }                                                                                              \
    void attn_pack_keys_i8_##isa(const int8_t *keys, int64_t stride, const float *scales,          \
                                 int64_t scale_stride, size_t first, size_t n_keys, size_t dim,    \
                                 size_t group, void *packed) {                                     \
        const struct int8_shape s = int8_shape_of(dim, group);                                     \
        pack_int8(INT8_PANEL, keys, stride, scales, scale_stride, first, n_keys, &s, packed);      \
    }                                                                                              \
    void attn_qk_packed_i8_##isa(const int8_t *const *q, size_t n_rows, const void *packed,        \
                                 size_t n_keys, size_t dim, size_t group, float scale,             \
                                 float *scores, size_t score_stride) {                             \
        const struct int8_shape s = int8_shape_of(dim, group);                                     \
        packed_int8_rows(packed_blocks, most_rows, INT8_PANEL, q, n_rows, packed, n_keys, &s,      \
                         scale, scores, score_stride);                                             \
    }                                                                                              \
    void attn_qk_strided_i8_##isa(const int8_t *const *q, size_t n_rows, const int8_t *keys,       \
                                  int64_t stride, const float *scales, int64_t scale_stride,       \
                                  size_t n_keys, size_t dim, size_t group, float scale,            \
                                  float *scores, size_t score_stride) {                            \
        const struct int8_shape s = int8_shape_of(dim, group);                                     \
        strided_int8_rows(strided_blocks, sizeof strided_blocks / sizeof *strided_blocks,          \
                          strided_vectors * VF_LANES, q, n_rows, keys, stride, scales,             \
                          scale_stride, n_keys, &s, scale, scores, score_stride);                  \
    }

#endif
