/* Scores of a few rows from keys where they lie, which are turned in registers and used at once by
 * all rows: a decode step is as fast as the keys can be read once. Keys of other types are turned as
 * 32-bit lanes, and a lane's features become f32 one after the other.
 *
 * For instruction sets that broadcast queries from memory; on the vectors of vec.h and the
 * transpositions of transpose.h, which are included before this. vec.h gives MAX_STRIDED_ROWS, 8 or
 * 12, the rows that meet two vectors of keys at once (PAIRED_ROWS_...), and which way the keys that
 * come next are asked for then. What is called a feature of f32 here is a lane of lanes.h.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_QK_FEW_ROWS_H
#define ATTN_QK_FEW_ROWS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels.h"
#include "lanes.h"
#include "pieces.h"
#include "qk_transposed.h"
#include "row_blocks.h"
#include "unroll.h"

/* ---- Four lanes of a vector of keys ---------------------------------------------------------- */

enum { HALVES = 8 }; /* in four lanes */

struct turned_keys {
    vf lane[4];
    uint16_t half[HALVES * VF_LANES]; /* of f16: its conversion wants them together, in memory */
    vf scale;                         /* of int8 */
};

/* Features of a lane. */
ALWAYS_INLINE size_t per_lane(const attn_type type) {
    return type == ATTN_F32 ? 1 : type == ATTN_I8 ? 4 : 2;
}

/* Only the first n_keys keys and the first n_lanes lanes are read; all four if not f32. */
ALWAYS_INLINE void turn_keys(const attn_type type, const float *lanes, int64_t stride,
                             size_t n_keys, size_t n_lanes, struct turned_keys *x) {
    if (type != ATTN_F16) {
        transpose_keys(lanes, stride, n_keys, type == ATTN_F32 ? n_lanes : 4, x->lane);
        return;
    }
    transpose_halves(lanes, stride, n_keys, x->half);
#if defined(__GNUC__)
    /* Loads by a conversion take no turn on the port that shuffles; extracting would. */
    __asm__("" : "+m"(x->half));
#endif
}

/* Feature i of all keys in f32: exact, of int8 the product with its scale, rounded once. */
ALWAYS_INLINE vf feature(const attn_type type, const struct turned_keys *x, const size_t i) {
    switch (type) {
    case ATTN_F16:
        return vf_load_f16(x->half + i * VF_LANES);
    case ATTN_BF16:
        return vf_bf16_of_lanes(x->lane[i / 2], i % 2);
    case ATTN_I8:
        return vf_mul(vf_i8_of_lanes(x->lane[i / 4], i % 4), x->scale);
    default:
        return x->lane[i];
    }
}

/* The scales of n_keys keys, 0 for others. */
static inline vf scales_of_keys(const float *scales, int64_t stride, size_t n_keys) {
    float x[VF_LANES] = {0};
    if (stride == 1 && n_keys == VF_LANES)
        return vf_load(scales);
    for (size_t i = 0; i < n_keys; i++)
        x[i] = scales[(int64_t)i * stride];
    return vf_load(x);
}

/* ---- A block of rows ------------------------------------------------------------------------- */

/* A vector of keys, of which n_keys are there, and the one that is asked for meanwhile. */
struct key_vector {
    const float *lanes, *next;
    int64_t stride; /* lanes */
    size_t n_keys, n_next;
    const float *scales; /* of int8, one for each group_lanes lanes */
    int64_t scale_stride;
    size_t group_lanes;
};

/* M rows against V vectors of keys, in the order of arithmetic of qk_broadcast.h. Where V is 2, both
 * are full. n_lanes: of a key. */
ALWAYS_INLINE void strided_block(const int M, const int V, const attn_type type,
                                 const int by_column, const float *const *q,
                                 const struct key_vector *keys, size_t n_lanes, float scale,
                                 float *scores, size_t score_stride) {
    const int64_t stride = keys->stride;
    const size_t n_keys = keys->n_keys;
    const float *lanes[2], *scales[2], *row[MAX_STRIDED_ROWS];
    vf acc[2][MAX_STRIDED_ROWS], key_scale[2];
    UNROLL
    for (int v = 0; v < V; v++) {
        lanes[v] = keys[v].lanes, scales[v] = keys[v].scales, key_scale[v] = vf_set1(0.0f);
        UNROLL
        for (int r = 0; r < M; r++)
            acc[v][r] = vf_set1(0.0f);
    }
    UNROLL
    for (int r = 0; r < M; r++)
        row[r] = q[r];
    size_t c = 0, group_end = 0;
#define NEXT_GROUP(c)                                                                              \
    do {                                                                                           \
        if (type == ATTN_I8 && (c) == group_end) {                                                 \
            UNROLL                                                                                 \
            for (int v = 0; v < V; v++)                                                            \
                key_scale[v] = scales_of_keys(scales[v]++, keys->scale_stride, n_keys);            \
            group_end += keys->group_lanes;                                                        \
        }                                                                                          \
    } while (0)
#define ROWS_OF_FEATURE(v, f)                                                                      \
    do {                                                                                           \
        const vf key = feature(type, &x, f);                                                       \
        UNROLL                                                                                     \
        for (int r = 0; r < M; r++)                                                                \
            acc[v][r] =                                                                            \
                LANE_MULTIPLY_ADD(vf_set1(row[r][c * per_lane(type) + (f)]), key, acc[v][r]);      \
    } while (0)
    if (n_keys == VF_LANES) {
        struct lines_ahead ahead[2];
        UNROLL
        for (int v = 0; v < V; v++)
            ahead[v] = lines_ahead(keys[v].next, stride, keys[v].n_next, n_lanes);
        for (; c + 4 <= n_lanes; c += 4) {
            NEXT_GROUP(c);
            UNROLL
            for (int v = 0; v < V; v++) {
                struct turned_keys x;
                if (by_column)
                    prefetch_column(keys[v].next, stride, c);
                else
                    prefetch_lines(ahead[v]);
                turn_keys(type, lanes[v] + c, stride, VF_LANES, 4, &x);
                x.scale = key_scale[v];
                UNROLL
                for (size_t f = 0; f < 4 * per_lane(type); f++)
                    ROWS_OF_FEATURE(v, f);
            }
        }
    }
    for (; (type == ATTN_F32 || M == 1) && c < n_lanes; c += 4) {
        const size_t features = (n_lanes - c < 4 ? n_lanes - c : 4) * per_lane(type);
        NEXT_GROUP(c);
        UNROLL
        for (int v = 0; v < V; v++) {
            struct turned_keys x;
            turn_keys(type, lanes[v] + c, stride, n_keys, features, &x);
            x.scale = key_scale[v];
            if (type == ATTN_F32) {
                for (size_t f = 0; f < features; f++)
                    ROWS_OF_FEATURE(v, f);
            } else {
                UNROLL
                for (size_t f = 0; f < 4 * per_lane(type); f++)
                    ROWS_OF_FEATURE(v, f);
            }
        }
    }
#undef NEXT_GROUP
#undef ROWS_OF_FEATURE
    UNROLL
    for (int v = 0; v < V; v++) {
        UNROLL
        for (int r = 0; r < M; r++)
            vf_store(scores + (size_t)r * score_stride + v * VF_LANES,
                     vf_mul(acc[v][r], vf_set1(scale)));
    }
}

/* The vector of keys from key j on, of n_keys keys, where V of them are met at once. */
ALWAYS_INLINE struct key_vector vector_of_keys(const int M, const int V, const attn_type type,
                                               const struct attn_stored *keys, size_t j,
                                               size_t n_keys) {
    const size_t left = n_keys - j, n = left < VF_LANES ? left : VF_LANES;
    struct key_vector x = {
        .stride = keys->stride / (int64_t)per_lane(type),
        .n_keys = n,
        .scale_stride = keys->scale_stride,
        .group_lanes = keys->group / 4,
    };
    if (keys->pieces) {
        const struct attn_piece *piece = keys->pieces + j / ATTN_PACK_STEP;
        const int64_t i = (int64_t)(j % ATTN_PACK_STEP);
        x.lanes = (const float *)(const void *)piece->at + i * x.stride;
        const struct attn_piece *next = piece + (V * VF_LANES > ATTN_PACK_STEP ? V : 1);
        x.next = x.lanes;
        if (piece[1].at && next->at) {
            x.next = (const float *)(const void *)next->at + i * x.stride;
            x.n_next = VF_LANES;
        }
        if (i == 0)
            prefetch_start(piece + 2, ATTN_PACK_STEP * x.stride * (int64_t)sizeof(float));
        if (type == ATTN_I8) {
            x.scales = piece->scales + i * x.scale_stride;
            prefetch_scales(piece + 1, i, x.scale_stride);
        }
    } else {
        x.lanes = (const float *)keys->at + (int64_t)j * x.stride;
        const size_t ahead = (size_t)V * VF_LANES, after = left > ahead ? left - ahead : 0;
        x.n_next = after < VF_LANES ? after : VF_LANES;
        x.next = x.n_next ? x.lanes + (int64_t)ahead * x.stride : x.lanes;
        if (M > 2 && type == ATTN_F32 && left >= 3 * VF_LANES) {
            const struct attn_piece later = {(const char *)(x.lanes + 2 * VF_LANES * x.stride),
                                             NULL};
            prefetch_start(&later, VF_LANES * x.stride * (int64_t)sizeof(float));
        }
        if (type == ATTN_I8)
            x.scales = keys->scales + (int64_t)j * x.scale_stride;
    }
    return x;
}

typedef void strided_function(const float *const *q, const struct attn_stored *keys, size_t first,
                              size_t n_keys, size_t n_lanes, float scale, float *scores,
                              size_t score_stride);

/* M rows against keys first .. n_keys - 1. Of types but f32 only a single row takes the last ones,
 * where they fill no vector. */
ALWAYS_INLINE void strided_keys(const int M, const attn_type type, const float *const *q,
                                const struct attn_stored *keys, size_t first, size_t n_keys,
                                size_t n_lanes, float scale, float *scores, size_t score_stride) {
    size_t j = first;
#define STRIDED_VECTORS(V, by_column)                                                              \
    for (; j + V * VF_LANES <= n_keys; j += V * VF_LANES) {                                        \
        struct key_vector x[V];                                                                    \
        UNROLL                                                                                     \
        for (int v = 0; v < V; v++) {                                                              \
            x[v] = vector_of_keys(M, V, type, keys, j + (size_t)v * VF_LANES, n_keys);             \
            x[v].n_keys = VF_LANES; /* a constant from here on */                                  \
        }                                                                                          \
        strided_block(M, V, type, by_column, q, x, n_lanes, scale, scores + j, score_stride);      \
    }
    const int is_paired = M <= (type == ATTN_F32  ? PAIRED_ROWS_F32
                                : type == ATTN_I8 ? PAIRED_ROWS_I8
                                                  : PAIRED_ROWS_HALVES);
    /* Keys of int8 have few lines, and those of a piece lie together: both are streams as they are. */
    if (M == 1 && type != ATTN_I8 && !keys->pieces) {
        if (is_paired)
            STRIDED_VECTORS(2, PAIRS_BY_COLUMN)
        STRIDED_VECTORS(1, 1)
    } else {
        if (is_paired)
            STRIDED_VECTORS(2, 0)
        STRIDED_VECTORS(1, 0)
    }
#undef STRIDED_VECTORS
    if (j < n_keys && (M == 1 || type == ATTN_F32)) {
        const struct key_vector x = vector_of_keys(M, 1, type, keys, j, n_keys);
        strided_block(M, 1, type, 0, q, &x, n_lanes, scale, scores + j, score_stride);
    }
}

#if MAX_STRIDED_ROWS == 12
#define UP_TO_STRIDED UP_TO_12
#else
#define UP_TO_STRIDED UP_TO_8
#endif

/* Blocks of 1 to MAX_STRIDED_ROWS rows of a type, each a function of its own with a constant M. */
#define STRIDED_BLOCK(M, type)                                                                     \
    NEVER_INLINE void strided_##M##_##type(const float *const *q, const struct attn_stored *keys,  \
                                           size_t first, size_t n_keys, size_t n_lanes,            \
                                           float scale, float *scores, size_t score_stride) {      \
        strided_keys(M, type, q, keys, first, n_keys, n_lanes, scale, scores, score_stride);       \
    }
#define STRIDED_NAME(M, type) strided_##M##_##type,

/* All rows and keys, by such blocks; the last keys, where they fill no vector, row by row but for
 * f32. */
ALWAYS_INLINE void strided_rows(strided_function *const *blocks, const attn_type type,
                                const float *const *q, size_t n_rows,
                                const struct attn_stored *keys, size_t n_keys, size_t n_lanes,
                                float scale, float *scores, size_t score_stride) {
    const size_t whole = n_keys / VF_LANES * VF_LANES;
    for (size_t r = 0, m; r < n_rows; r += m) {
        m = next_block(n_rows - r, MAX_STRIDED_ROWS);
        blocks[m - 1](q + r, keys, 0, n_keys, n_lanes, scale, scores + r * score_stride,
                      score_stride);
        for (size_t i = 0; type != ATTN_F32 && m > 1 && whole < n_keys && i < m; i++)
            blocks[0](q + r + i, keys, whole, n_keys, n_lanes, scale,
                      scores + (r + i) * score_stride, score_stride);
    }
}

/* qk_strided of f32, or of a set's lanes. */
#define DEFINE_QK_STRIDED(name)                                                                    \
    UP_TO_STRIDED(STRIDED_BLOCK, ATTN_F32)                                                         \
    void name(const float *const *q, size_t n_rows, const float *keys, int64_t stride,             \
              size_t n_keys, size_t dim, float scale, float *scores, size_t score_stride) {        \
        static strided_function *const blocks[] = {UP_TO_STRIDED(STRIDED_NAME, ATTN_F32)};         \
        const struct attn_stored stored = {.at = keys, .stride = stride};                          \
        strided_rows(blocks, ATTN_F32, q, n_rows, &stored, n_keys, dim, scale, scores,             \
                     score_stride);                                                                \
    }

/* qk_f32 of struct attn_stored_kernels, from the blocks of qk_strided. */
#define DEFINE_QK_F32(name)                                                                        \
    void name(const float *const *q, size_t n_rows, const struct attn_stored *keys, size_t n_keys, \
              size_t dim, float scale, float *scores, size_t score_stride) {                       \
        static strided_function *const blocks[] = {UP_TO_STRIDED(STRIDED_NAME, ATTN_F32)};         \
        strided_rows(blocks, ATTN_F32, q, n_rows, keys, n_keys, dim, scale, scores, score_stride); \
    }

/* The others. */
#define DEFINE_QK_STORED(name, type)                                                               \
    UP_TO_STRIDED(STRIDED_BLOCK, type)                                                             \
    void name(const float *const *q, size_t n_rows, const struct attn_stored *keys, size_t n_keys, \
              size_t dim, float scale, float *scores, size_t score_stride) {                       \
        static strided_function *const blocks[] = {UP_TO_STRIDED(STRIDED_NAME, type)};             \
        strided_rows(blocks, type, q, n_rows, keys, n_keys, dim / per_lane(type), scale, scores,   \
                     score_stride);                                                                \
    }

#endif
