/* Scores of a few rows from keys where they lie, which are turned in registers and used at once by
 * all rows: a decode step is as fast as the keys can be read once. Keys of other types are turned as
 * 32-bit lanes, and a lane's features become f32 one after the other.
 *
 * For instruction sets that broadcast queries from memory; on the vectors of vec.h and the
 * transpositions of transpose.h, which are included before this. vec.h gives MAX_STRIDED_ROWS, 8 or
 * 16, and the rows that meet two or four vectors of keys at once (PAIRED_ROWS_..., QUAD_ROWS_...).
 * What is called a feature of f32 here is a lane of lanes.h.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_QK_FEW_ROWS_H
#define ATTN_QK_FEW_ROWS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels.h"
#include "lanes.h"
#include "prefetch_ahead.h"
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
ALWAYS_INLINE void turn_keys(const attn_type type, const float *lanes, struct key_steps steps,
                             size_t n_keys, size_t n_lanes, struct turned_keys *x) {
    if (type != ATTN_F16) {
        transpose_keys(lanes, steps, n_keys, type == ATTN_F32 ? n_lanes : 4, x->lane);
        return;
    }
    transpose_halves(lanes, steps, n_keys, x->half);
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

/* Vectors of keys in a row that are met at once, and what is asked for meanwhile. */
enum { MAX_KEY_VECTORS = 4, MAX_STREAMS = 2 };
struct key_vectors {
    const float *lanes[MAX_KEY_VECTORS];
    int64_t stride;                       /* lanes */
    size_t n_keys;                        /* of the last vector; others are full */
    const float *scales[MAX_KEY_VECTORS]; /* of int8, one for each group_lanes lanes */
    int64_t scale_stride;
    size_t group_lanes;
    struct lines_ahead ahead[MAX_STREAMS];
};

/* A stream is all of them, or what lies in one piece. */
ALWAYS_INLINE int streams(const int V, const int in_pieces) {
    return in_pieces && V * VF_LANES > ATTN_PACK_STEP ? V * VF_LANES / ATTN_PACK_STEP : 1;
}

/* M rows against V vectors of keys, in the order of arithmetic of qk_broadcast.h. Where V is more
 * than 1, all are full. n_lanes: of a key. */
ALWAYS_INLINE void strided_block(const int M, const int V, const attn_type type,
                                 const int in_pieces, const float *const *q,
                                 const struct key_vectors *keys, size_t n_lanes, float scale,
                                 float *scores, size_t score_stride) {
    const struct key_steps steps = key_steps(keys->stride);
    const size_t n_keys = keys->n_keys;
    const float *lanes[MAX_KEY_VECTORS], *scales[MAX_KEY_VECTORS], *row[MAX_STRIDED_ROWS];
    vf acc[MAX_KEY_VECTORS][MAX_STRIDED_ROWS], key_scale[MAX_KEY_VECTORS];
    UNROLL
    for (int v = 0; v < V; v++) {
        lanes[v] = keys->lanes[v], scales[v] = keys->scales[v], key_scale[v] = vf_set1(0.0f);
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
#define ROWS_OF_FEATURE(x, v, f)                                                                   \
    do {                                                                                           \
        const vf key = feature(type, &(x), f);                                                     \
        UNROLL                                                                                     \
        for (int r = 0; r < M; r++)                                                                \
            acc[v][r] =                                                                            \
                LANE_MULTIPLY_ADD(vf_set1(row[r][c * per_lane(type) + (f)]), key, acc[v][r]);      \
    } while (0)
    if (n_keys == VF_LANES) {
        struct lines_ahead ahead[MAX_STREAMS];
        UNROLL
        for (int i = 0; i < streams(V, in_pieces); i++)
            ahead[i] = keys->ahead[i];
        for (; c + 4 <= n_lanes; c += 4) {
            NEXT_GROUP(c);
            UNROLL
            for (int i = 0; i < streams(V, in_pieces); i++)
                prefetch_lines(ahead[i], (size_t)(V * VF_LANES / streams(V, in_pieces) / 4));
            /* Two vectors at a time, the chains of both in turn; more would need more registers. */
            const int T = V % 2 ? 1 : 2;
            UNROLL
            for (int v = 0; v < V; v += T) {
                struct turned_keys x[2];
                UNROLL
                for (int i = 0; i < T; i++) {
                    turn_keys(type, lanes[v + i], steps, VF_LANES, 4, &x[i]);
                    lanes[v + i] += 4;
                    KEEP_IN_REGISTER(lanes[v + i]);
                    x[i].scale = key_scale[v + i];
                }
                UNROLL
                for (size_t f = 0; f < 4 * per_lane(type); f++) {
                    UNROLL
                    for (int i = 0; i < T; i++)
                        ROWS_OF_FEATURE(x[i], v + i, f);
                }
            }
        }
    }
    for (; (type == ATTN_F32 || M == 1) && c < n_lanes; c += 4) {
        const size_t features = (n_lanes - c < 4 ? n_lanes - c : 4) * per_lane(type);
        NEXT_GROUP(c);
        UNROLL
        for (int v = 0; v < V; v++) {
            struct turned_keys x;
            turn_keys(type, lanes[v], steps, n_keys, features, &x);
            lanes[v] += 4;
            x.scale = key_scale[v];
            if (type == ATTN_F32) {
                for (size_t f = 0; f < features; f++)
                    ROWS_OF_FEATURE(x, v, f);
            } else {
                UNROLL
                for (size_t f = 0; f < 4 * per_lane(type); f++)
                    ROWS_OF_FEATURE(x, v, f);
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

/* Key j. */
ALWAYS_INLINE const float *lanes_of_key(const int in_pieces, const struct attn_stored *keys,
                                        int64_t stride, size_t j) {
    const char *at = keys->at;
    if (in_pieces && keys->pieces) {
        at = keys->pieces[j / ATTN_PACK_STEP].at;
        j %= ATTN_PACK_STEP;
    }
    return (const float *)(const void *)at + (int64_t)j * stride;
}

ALWAYS_INLINE const float *scales_of_key(const int in_pieces, const struct attn_stored *keys,
                                         size_t j) {
    const float *scales = keys->scales;
    if (in_pieces && keys->pieces) {
        scales = keys->pieces[j / ATTN_PACK_STEP].scales;
        j %= ATTN_PACK_STEP;
    }
    return scales + (int64_t)j * keys->scale_stride;
}

/* The keys to ask for while n keys from key j on, of n_keys, are worked on: as many, which come
 * at_once keys later, and where as many come after those. */
ALWAYS_INLINE struct lines_ahead keys_ahead(const int in_pieces, const struct attn_stored *keys,
                                            int64_t stride, size_t j, size_t n, size_t at_once,
                                            size_t n_keys, size_t n_lanes) {
    const size_t next = j + at_once, left = next < n_keys ? n_keys - next : 0;
    size_t n_next = left < n ? left : n;
    uintptr_t far = FAR_AHEAD;
    if (in_pieces && keys->pieces) { /* there are more pieces than n_keys tells */
        const uintptr_t at = (uintptr_t)keys->pieces[next / ATTN_PACK_STEP].at;
        const uintptr_t later = (uintptr_t)keys->pieces[(next + at_once) / ATTN_PACK_STEP].at;
        n_next = at ? n : 0;
        far = at && later ? later - at : 0;
    }
    const float *at = n_next ? lanes_of_key(in_pieces, keys, stride, next) : NULL;
    return lines_ahead(at, stride, n_next, n_lanes, far);
}

/* V vectors of keys from key j on, of n_keys keys. */
ALWAYS_INLINE struct key_vectors vectors_of_keys(const int V, const attn_type type,
                                                 const int in_pieces,
                                                 const struct attn_stored *keys, size_t j,
                                                 size_t n_keys, size_t n_lanes) {
    const size_t left = n_keys - j, at_once = (size_t)V * VF_LANES;
    const size_t of_stream = at_once / (size_t)streams(V, in_pieces);
    struct key_vectors x = {
        .stride = keys->stride / (int64_t)per_lane(type),
        .n_keys = left < VF_LANES ? left : VF_LANES,
        .scale_stride = keys->scale_stride,
        .group_lanes = keys->group / 4,
    };
    UNROLL
    for (int v = 0; v < V; v++) {
        const size_t first = j + (size_t)v * VF_LANES;
        x.lanes[v] = lanes_of_key(in_pieces, keys, x.stride, first);
        if (type == ATTN_I8)
            x.scales[v] = scales_of_key(in_pieces, keys, first);
    }
    if (type == ATTN_I8 && in_pieces && keys->pieces)
        for (size_t i = j; i < j + at_once; i += ATTN_PACK_STEP)
            prefetch_scales(keys->pieces + i / ATTN_PACK_STEP + 1, (int64_t)(i % ATTN_PACK_STEP),
                            keys->scale_stride);
    x.ahead[0] = keys_ahead(in_pieces, keys, x.stride, j, of_stream, at_once, n_keys, n_lanes);
    if (streams(V, in_pieces) == 2)
        x.ahead[1] = keys_ahead(in_pieces, keys, x.stride, j + of_stream, of_stream, at_once,
                                n_keys, n_lanes);
    return x;
}

typedef void strided_function(const float *const *q, const struct attn_stored *keys, size_t first,
                              size_t n_keys, size_t n_lanes, float scale, float *scores,
                              size_t score_stride);

/* M rows against keys first .. n_keys - 1. Of types but f32 only a single row takes the last ones,
 * where they fill no vector. */
ALWAYS_INLINE void strided_walk(const int M, const attn_type type, const int in_pieces,
                                const float *const *q, const struct attn_stored *keys, size_t first,
                                size_t n_keys, size_t n_lanes, float scale, float *scores,
                                size_t score_stride) {
    size_t j = first;
#define STRIDED_VECTORS(V)                                                                         \
    for (; j + V * VF_LANES <= n_keys; j += V * VF_LANES) {                                        \
        struct key_vectors x = vectors_of_keys(V, type, in_pieces, keys, j, n_keys, n_lanes);      \
        x.n_keys = VF_LANES; /* a constant from here on */                                         \
        strided_block(M, V, type, in_pieces, q, &x, n_lanes, scale, scores + j, score_stride);     \
    }
    /* More than 16 keys with gaps share too few sets of the first-level cache. */
    const int is_dense = !has_gaps(keys->stride / (int64_t)per_lane(type), n_lanes);
    if (M <= (type == ATTN_F32  ? QUAD_ROWS_F32
              : type == ATTN_I8 ? 0
                                : QUAD_ROWS_HALVES) &&
        is_dense && (!in_pieces || 4 * VF_LANES <= MAX_STREAMS * ATTN_PACK_STEP))
        STRIDED_VECTORS(4)
    if ((2 * VF_LANES <= 16 || is_dense) && M <= (type == ATTN_F32  ? PAIRED_ROWS_F32
                                                  : type == ATTN_I8 ? PAIRED_ROWS_I8
                                                                    : PAIRED_ROWS_HALVES))
        STRIDED_VECTORS(2)
    STRIDED_VECTORS(1)
#undef STRIDED_VECTORS
    if (j < n_keys && (M == 1 || type == ATTN_F32)) {
        const struct key_vectors x = vectors_of_keys(1, type, in_pieces, keys, j, n_keys, n_lanes);
        strided_block(M, 1, type, in_pieces, q, &x, n_lanes, scale, scores + j, score_stride);
    }
}

/* A single row takes a second stream only where it needs one: so many keys at once leave it few
 * registers. */
ALWAYS_INLINE void strided_keys(const int M, const attn_type type, const float *const *q,
                                const struct attn_stored *keys, size_t first, size_t n_keys,
                                size_t n_lanes, float scale, float *scores, size_t score_stride) {
    if (M == 1 && !keys->pieces)
        strided_walk(M, type, 0, q, keys, first, n_keys, n_lanes, scale, scores, score_stride);
    else
        strided_walk(M, type, 1, q, keys, first, n_keys, n_lanes, scale, scores, score_stride);
}

#if MAX_STRIDED_ROWS == 16
#define FROM_2_STRIDED FROM_2_TO_16
#else
#define FROM_2_STRIDED FROM_2_TO_8
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

/* qk_strided of f32, or of a set's lanes; one_row is its block of a single row. */
#define DEFINE_QK_STRIDED(name, one_row)                                                           \
    FROM_2_STRIDED(STRIDED_BLOCK, ATTN_F32)                                                        \
    void name(const float *const *q, size_t n_rows, const float *keys, int64_t stride,             \
              size_t n_keys, size_t dim, float scale, float *scores, size_t score_stride) {        \
        static strided_function *const blocks[] = {one_row,                                        \
                                                   FROM_2_STRIDED(STRIDED_NAME, ATTN_F32)};        \
        const struct attn_stored stored = {.at = keys, .stride = stride};                          \
        strided_rows(blocks, ATTN_F32, q, n_rows, &stored, n_keys, dim, scale, scores,             \
                     score_stride);                                                                \
    }

/* qk_f32 of struct attn_stored_kernels, from the blocks of qk_strided. */
#define DEFINE_QK_F32(name, one_row)                                                               \
    void name(const float *const *q, size_t n_rows, const struct attn_stored *keys, size_t n_keys, \
              size_t dim, float scale, float *scores, size_t score_stride) {                       \
        static strided_function *const blocks[] = {one_row,                                        \
                                                   FROM_2_STRIDED(STRIDED_NAME, ATTN_F32)};        \
        strided_rows(blocks, ATTN_F32, q, n_rows, keys, n_keys, dim, scale, scores, score_stride); \
    }

/* The others. */
#define DEFINE_QK_STORED(name, type)                                                               \
    STRIDED_BLOCK(1, type)                                                                         \
    FROM_2_STRIDED(STRIDED_BLOCK, type)                                                            \
    void name(const float *const *q, size_t n_rows, const struct attn_stored *keys, size_t n_keys, \
              size_t dim, float scale, float *scores, size_t score_stride) {                       \
        static strided_function *const blocks[] = {strided_1_##type,                               \
                                                   FROM_2_STRIDED(STRIDED_NAME, type)};            \
        strided_rows(blocks, type, q, n_rows, keys, n_keys, dim / per_lane(type), scale, scores,   \
                     score_stride);                                                                \
    }

#endif
