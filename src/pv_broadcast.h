/* A register block of weighted values, for instruction sets that broadcast one operand from memory,
 * and the walk over a tile's rows; on the vectors of vec.h.
 *
 * M rows and N vectors of features: the M * N sums stay in registers while the keys pass by, as in
 * qk_broadcast.h. Values are read where they lie. What is called a key here is a lane of lanes.h: a
 * caller with several keys in a lane counts in lanes, begin, end and lifted of what rows see too.
 *
 * Values of other types become f32 as they are loaded, once for all rows of a block; rows of them are
 * whole vectors.
 *
 * Include after vec.h, which also gives the largest N: WIDE_VECTORS for up to WIDE_ROWS rows, else
 * MAX_BLOCK_VECTORS.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_PV_BROADCAST_H
#define ATTN_PV_BROADCAST_H

#include "alike.h"
#include "kernels.h"
#include "lanes.h"
#include "later.h"
#include "lifted.h"
#include "merge_row.h"
#include "prefetch_ahead.h"
#include "row_blocks.h"
#include "unroll.h"

/* Where a block finds its operands: weights of its first row, values and sums of its first feature
 * as well. */
struct pv_operands {
    const float *weights;
    size_t weight_stride;
    const char *values;
    int64_t value_stride;            /* bytes */
    const struct attn_piece *pieces; /* where values lie in several places */
    const float *scales;             /* of int8 values: those of key 0, for each group a float */
    int64_t scale_stride;
    size_t group, column; /* features that share one, and which the block begins with */
    uintptr_t ahead;      /* how far away the values are that are asked for meanwhile */
    const float *factor;  /* null: the sums start from -0 */
    float *acc;
    size_t acc_stride;
    size_t last;                     /* features in the last vector */
    const struct attn_visible *edge; /* not null: of keys from the end of a block's on, up to past,
                                        each row sees those before its own end */
    int32_t past;
    const struct attn_ending *ending; /* null: sums stay in acc */
    size_t row;                       /* the first one, of those that ending counts */
    struct attn_later *later;         /* what to ask for meanwhile; or null */
};

typedef void pv_function(const struct pv_operands *o, int32_t begin, int32_t end);

ALWAYS_INLINE size_t value_bytes(const attn_type type) {
    return type == ATTN_F32 ? 4 : type == ATTN_I8 ? 1 : 2;
}

/* Vector v of a value in f32: exact, of int8 the product with the scale of its features, rounded
 * once. */
ALWAYS_INLINE vf pv_value(const attn_type type, const char *value, const int v, const int is_last,
                          const int short_row, size_t last, const float *scales,
                          const size_t *scale_at) {
    const void *at = value + (size_t)v * VF_LANES * value_bytes(type);
    switch (type) {
    case ATTN_F16:
        return vf_load_f16(at);
    case ATTN_BF16:
        return vf_load_bf16(at);
    case ATTN_I8:
        return vf_mul(vf_load_i8(at), vf_set1(scales[scale_at[v]]));
    default:
        return is_last ? vf_load_last(at, last, short_row) : vf_load(at);
    }
}

/* One key: its value times the weight of each row. */
ALWAYS_INLINE void pv_key(const int M, const int N, const attn_type type, const int short_row,
                          const float *const *weight, int64_t j, const char *value,
                          const float *scales, size_t last, const size_t *scale_at, uintptr_t ahead,
                          const int asks_far, uintptr_t far, vf acc[][WIDE_VECTORS]) {
    vf x[WIDE_VECTORS];
    const size_t per_line = type == ATTN_F32 ? 1 : 64 / (VF_LANES * value_bytes(type));
    /* More rows of f32 have the values in a cache, or go by way of pv_f32. */
    if (M <= 4 || type != ATTN_F32 || asks_far) {
        UNROLL
        for (size_t v = 0; v < (size_t)N; v += per_line)
            vf_prefetch((uintptr_t)value + ahead + v * VF_LANES * value_bytes(type));
        if (asks_far) {
            UNROLL
            for (size_t v = 0; v < (size_t)N; v += 4 * per_line)
                vf_prefetch_far((uintptr_t)value + far + v * VF_LANES * value_bytes(type));
        }
    }
    if (type != ATTN_F32 && M < N) { /* weights take fewer registers than values */
        vf w[MAX_BLOCK_ROWS];
        UNROLL
        for (int r = 0; r < M; r++)
            w[r] = vf_set1(weight[r][j]);
        UNROLL
        for (int v = 0; v < N; v++) {
            const vf value_v = pv_value(type, value, v, 0, 0, last, scales, scale_at);
            UNROLL
            for (int r = 0; r < M; r++)
                acc[r][v] = LANE_MULTIPLY_ADD(w[r], value_v, acc[r][v]);
        }
        return;
    }
    UNROLL
    for (int v = 0; v < N; v++)
        x[v] = pv_value(type, value, v, v == N - 1, short_row, last, scales, scale_at);
    UNROLL
    for (int r = 0; r < M; r++) {
        const vf w = vf_set1(weight[r][j]);
        UNROLL
        for (int v = 0; v < N; v++)
            acc[r][v] = LANE_MULTIPLY_ADD(w, x[v], acc[r][v]);
    }
}

/* Values from key j on, up to key `end`, at one stride, and how far away those are that are asked for
 * meanwhile, and the lines of which the second level is (see prefetch_ahead.h). */
struct values_at {
    const char *value;
    const float *scales;
    uintptr_t ahead, far; /* may leave the values */
    int64_t end;
};

ALWAYS_INLINE struct values_at values_at(const attn_type type, const int in_pieces,
                                         const struct pv_operands *o, int64_t j, int64_t end) {
    if (!in_pieces || !o->pieces)
        return (struct values_at){o->values + j * o->value_stride,
                                  type == ATTN_I8 ? o->scales + j * o->scale_stride : NULL,
                                  o->ahead, o->ahead + FAR_AHEAD, end};
    const struct attn_piece *piece = o->pieces + j / ATTN_PACK_STEP;
    const int64_t i = j % ATTN_PACK_STEP, piece_end = j - i + ATTN_PACK_STEP;
    struct values_at at = {
        .value = piece->at + o->column * value_bytes(type) + i * o->value_stride,
        .ahead = piece[1].at ? (uintptr_t)piece[1].at - (uintptr_t)piece->at : 0,
        .end = piece_end < end ? piece_end : end,
    };
    at.far = at.ahead && piece[2].at ? (uintptr_t)piece[2].at - (uintptr_t)piece->at : 0;
    if (type == ATTN_I8) {
        at.scales = piece->scales + i * o->scale_stride;
        prefetch_scales(piece + 1, i, o->scale_stride);
    }
    return at;
}

/* Keys [begin, end) of a block. */
ALWAYS_INLINE void pv_keys(const int M, const int N, const attn_type type, const int short_row,
                           const int in_pieces, const struct pv_operands *o, int32_t begin,
                           int32_t end, vf acc[][WIDE_VECTORS]) {
    const size_t last = o->last;
    const float *weight[MAX_BLOCK_ROWS];
    UNROLL
    for (int r = 0; r < M; r++)
        weight[r] = o->weights + (size_t)r * o->weight_stride;
    const int64_t stride = o->value_stride, scale_stride = o->scale_stride;
    size_t scale_at[WIDE_VECTORS] = {0};
    if (type == ATTN_I8) {
        UNROLL
        for (int v = 0; v < N; v++)
            scale_at[v] = (o->column + (size_t)v * VF_LANES) / o->group;
    }
    /* Where values are converted, clang keeps the sums of many rows in memory for the sake of a second
     * step. */
    const int steps = type == ATTN_F32 || UNROLLED_STEPS == 1 ? UNROLLED_STEPS : M > 4 ? 1 : 2;
    /* f32 at one stride is in a cache as often as not, and then loses 2 to 5 % by it. */
    const int asks_far = in_pieces;
    /* Fewer rows ask for the values that they read. Many rows of a single vector leave no register. */
    const int asks_later = M > 4 && N > 1 && type == ATTN_F32 && !in_pieces;
    for (int64_t j = begin; j < end;) {
        const struct values_at at = values_at(type, in_pieces, o, j, end);
        const char *value = at.value;
        const float *scales = at.scales;
#define PV_KEY(u)                                                                                  \
    pv_key(M, N, type, short_row, weight, j + (u), value,                                          \
           type == ATTN_I8 ? scales + (u)*scale_stride : NULL, last, scale_at, at.ahead, asks_far, \
           at.far, acc)
        struct asking asking = {0};
        if (asks_later)
            asking = later_of_turns(o->later, j < at.end ? (size_t)(at.end - j) / (size_t)steps : 0,
                                    weight[0]);
        for (; j + steps <= at.end; j += steps) {
            if (asks_later)
                ask_later(&asking);
            UNROLL
            for (int u = 0; u < steps; u++, value += stride)
                PV_KEY(u);
            if (type == ATTN_I8)
                scales += steps * scale_stride;
        }
        for (; j < at.end; j++, value += stride) {
            PV_KEY(0);
            if (type == ATTN_I8)
                scales += scale_stride;
        }
#undef PV_KEY
    }
}

/* Keys from `begin` on, of which each row sees those before its own end: rows that differ in a few keys
 * only are cheaper in one block than each alone. Of f32 at one stride. */
ALWAYS_INLINE void pv_edge(const int M, const int N, const int short_row,
                           const struct pv_operands *o, int64_t begin, vf acc[][WIDE_VECTORS]) {
    for (int64_t j = begin; j < o->past; j++) {
        const char *value = o->values + j * o->value_stride;
        vf x[WIDE_VECTORS];
        UNROLL
        for (int v = 0; v < N; v++)
            x[v] = pv_value(ATTN_F32, value, v, v == N - 1, short_row, o->last, NULL, NULL);
        UNROLL
        for (int r = 0; r < M; r++) {
            if (j >= o->edge[r].end)
                continue;
            const vf w = vf_set1(o->weights[(size_t)r * o->weight_stride + (size_t)j]);
            UNROLL
            for (int v = 0; v < N; v++)
                acc[r][v] = LANE_MULTIPLY_ADD(w, x[v], acc[r][v]);
        }
    }
}

/* Keys [begin, end), all visible to all M rows. short_row: the whole row of values is shorter than
 * a vector (see vf_load_last). in_pieces: they may lie in pieces. */
ALWAYS_INLINE void pv_block(const int M, const int N, const attn_type type, const int short_row,
                            const int in_pieces, const struct pv_operands *o, int32_t begin,
                            int32_t end) {
    vf acc[MAX_BLOCK_ROWS][WIDE_VECTORS];
    UNROLL
    for (int r = 0; r < M; r++) {
        const float *a = o->acc + (size_t)r * o->acc_stride;
        UNROLL
        for (int v = 0; v < N; v++) {
            if (!o->factor) {
                acc[r][v] = vf_set1(-0.0f);
            } else {
                const vf past = v == N - 1 ? vf_load_last(a + v * VF_LANES, o->last, short_row)
                                           : vf_load(a + v * VF_LANES);
                acc[r][v] = vf_mul(past, vf_set1(o->factor[r]));
            }
        }
    }
    pv_keys(M, N, type, short_row, in_pieces, o, begin, end, acc);
    if (M > 1 && type == ATTN_F32 && !in_pieces && o->edge)
        pv_edge(M, N, short_row, o, end, acc);
    float *to[MAX_BLOCK_ROWS];
    UNROLL
    for (int r = 0; r < M; r++)
        to[r] = o->acc + (size_t)r * o->acc_stride;
    if (o->ending) {
        UNROLL
        for (int r = 0; r < M; r++) {
            const vf finish = vf_set1(o->ending->finish[o->row + (size_t)r]);
            to[r] = o->ending->out[o->row + (size_t)r] + o->column;
            UNROLL
            for (int v = 0; v < N; v++)
                acc[r][v] = vf_mul(acc[r][v], finish);
        }
    }
    UNROLL
    for (int r = 0; r < M; r++) {
        UNROLL
        for (int v = 0; v < N - 1; v++)
            vf_store(to[r] + v * VF_LANES, acc[r][v]);
        vf_store_last(to[r] + (N - 1) * VF_LANES, acc[r][N - 1], o->last, short_row);
    }
}

/* Keys whose values are asked for ahead, and of those in bytes. Keys that are worked on in one go where
 * so few rows that they wait for memory need several turns for all features: memory then gives whole
 * rows, at an even pace. */
enum { KEYS_AHEAD = 12, I8_KEYS_AHEAD = 48, KEYS_OF_A_TURN = 32 };
enum { ROWS_THAT_WAIT = ATTN_ROWS_THAT_ASK, STORED_ROWS_THAT_WAIT = ATTN_ROW_BLOCK };

/* How far away values are that lie so many keys ahead. Of sparse ones more than a few would push each
 * other out of the first level. */
static inline uintptr_t distance_ahead(int64_t stride, size_t keys) {
    enum { SPARSE_KEYS_AHEAD = 8 };
    return (stride % ATTN_SPARSE_BYTES == 0 ? SPARSE_KEYS_AHEAD : keys) * (uintptr_t)stride;
}

/* Those of a whole tile. They are written once and changed in place on their way to the blocks: a
 * copy would read as vectors what has just been written as numbers, and wait until it and all that
 * was stored before it is in the cache. */
static inline void pv_begin(struct pv_operands *o, const float *weights, size_t weight_stride,
                            const struct attn_stored *values, size_t bytes, const float *factor,
                            float *acc, size_t acc_stride) {
    o->weights = weights, o->weight_stride = weight_stride;
    o->values = values->at, o->value_stride = values->stride * (int64_t)bytes;
    o->pieces = values->pieces;
    o->scales = values->scales, o->scale_stride = values->scale_stride;
    o->group = values->group, o->column = 0;
    o->ahead = distance_ahead(o->value_stride, bytes == 1 ? I8_KEYS_AHEAD : KEYS_AHEAD);
    o->factor = factor;
    o->acc = acc, o->acc_stride = acc_stride;
    o->last = 0;
    o->edge = NULL, o->past = 0;
    o->ending = NULL, o->row = 0;
    o->later = NULL;
}

/* From row 0 of what o describes to row n; -n leads back. */
static inline void pv_advance(struct pv_operands *o, ptrdiff_t n) {
    o->weights += n * (ptrdiff_t)o->weight_stride;
    o->acc += n * (ptrdiff_t)o->acc_stride;
    o->factor = o->factor ? o->factor + n : NULL;
    o->row += (size_t)n;
}

/* Keys [begin, end) of n rows through one block, in parts where lifted rows return among them. */
static inline void pv_part(pv_function *block, const struct pv_operands *o,
                           const struct attn_visible *visible, size_t n, int32_t begin,
                           int32_t end) {
    int32_t at = next_return(visible, n, begin, end);
    if (at == 0) {
        block(o, begin, end);
        return;
    }
    struct pv_operands part = *o;
    float factor[MAX_BLOCK_ROWS];
    for (; at > 0; at = next_return(visible, n, begin, end)) {
        block(&part, begin, at);
        part.factor = factor_of_return(visible, n, at, factor);
        begin = at;
    }
    block(&part, begin, end);
}

/* Factors of sums that go on as they are, for rows of a block or those that wait. */
static const float pv_keep[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
_Static_assert(sizeof pv_keep >= MAX_BLOCK_ROWS * sizeof *pv_keep &&
                   sizeof pv_keep >= STORED_ROWS_THAT_WAIT * sizeof *pv_keep,
               "a factor for each row");

/* n rows that begin alike, of f32 at one stride. A key that a row does not see takes no part in its
 * arithmetic. */
static inline void pv_causal(pv_function *block, struct pv_operands *o,
                             const struct attn_visible *visible, size_t n) {
    const int32_t begin = visible[0].begin;
    int32_t end = visible[0].end, past = end;
    for (size_t r = 1; r < n; r++) {
        end = visible[r].end < end ? visible[r].end : end;
        past = visible[r].end > past ? visible[r].end : past;
    }
    o->edge = visible, o->past = past;
    block(o, begin, end > begin ? end : begin); /* some row may see nothing */
    o->edge = NULL;
}

/* n rows that see different keys, or of which some are lifted: the keys that all see go through one
 * block, and each row's own keys before and after them through a block of one row, in ascending
 * order. blocks[m - 1] is the block of m rows. */
static inline void pv_apart(pv_function *const *blocks, struct pv_operands *o,
                            const struct attn_visible *visible, size_t n) {
    struct attn_visible all = visible[0];
    for (size_t r = 1; r < n; r++) {
        all.begin = visible[r].begin > all.begin ? visible[r].begin : all.begin;
        all.end = visible[r].end < all.end ? visible[r].end : all.end;
    }
    const float *const factor = o->factor;
    if (all.begin >= all.end) {
        for (size_t r = 0; r < n; r++, pv_advance(o, 1))
            pv_part(blocks[0], o, visible + r, 1, visible[r].begin, visible[r].end);
        pv_advance(o, -(ptrdiff_t)n);
        return;
    }
    int some_before = 0;
    for (size_t r = 0; r < n; r++)
        some_before |= visible[r].begin < all.begin;
    if (some_before) {
        for (size_t r = 0; r < n; r++, pv_advance(o, 1))
            pv_part(blocks[0], o, visible + r, 1, visible[r].begin, all.begin);
        pv_advance(o, -(ptrdiff_t)n);
        o->factor = pv_keep; /* every row has been rescaled */
    }
    pv_part(blocks[n - 1], o, visible, n, all.begin, all.end);
    o->factor = pv_keep;
    for (size_t r = 0; r < n; r++, pv_advance(o, 1))
        if (all.end < visible[r].end)
            pv_part(blocks[0], o, visible + r, 1, all.end, visible[r].end);
    pv_advance(o, -(ptrdiff_t)n);
    o->factor = factor;
}

/* Keys [begin, end) of a tile's rows, all of which see them, in blocks of at most `most` rows, on the
 * features that o describes. */
static inline void pv_alike(pv_function *const *blocks, size_t most, struct pv_operands *o,
                            int32_t begin, int32_t end, size_t n_rows) {
    for (size_t r = 0, n; r < n_rows; r += n) {
        n = next_block(n_rows - r, most);
        blocks[n - 1](o, begin, end);
        pv_advance(o, (ptrdiff_t)n);
    }
    pv_advance(o, -(ptrdiff_t)n_rows);
}

/* The same of rows each of which sees keys of its own. */
static inline void pv_rows(pv_function *const *blocks, size_t most, int edges,
                           struct pv_operands *o, const struct attn_visible *visible,
                           size_t n_rows) {
    for (size_t r = 0, n; r < n_rows; r += n) {
        n = next_block(n_rows - r, most);
        if (rows_are_alike(visible + r, n))
            blocks[n - 1](o, visible[r].begin, visible[r].end);
        else if (edges && rows_begin_alike(visible + r, n))
            pv_causal(blocks[n - 1], o, visible + r, n);
        else
            pv_apart(blocks, o, visible + r, n);
        pv_advance(o, (ptrdiff_t)n);
    }
    pv_advance(o, -(ptrdiff_t)n_rows);
}

/* The blocks of a set: blocks and most_rows as in qk_panels; short_blocks for rows of values that are
 * shorter than a vector. bytes: of a value. */
struct pv_set {
    pv_function *const (*blocks)[MAX_BLOCK_ROWS];
    const size_t *most_rows;
    pv_function *const *short_blocks;
    size_t bytes;
    int edges;             /* blocks know an edge */
    size_t rows_that_wait; /* for memory, at most */
};

/* Keys [begin, end) of all rows or, where visible is not null, those that each sees, as many vectors
 * of features at a time as suit the rows: most_vectors. */
static inline void pv_columns(const struct pv_set *set, struct pv_operands *o,
                              const struct attn_visible *visible, int32_t begin, int32_t end,
                              size_t n_rows, size_t v_dim, size_t most_vectors) {
    const size_t most = most_vectors * VF_LANES;
    const char *const values = o->values;
    float *const acc = o->acc;
    for (size_t c = 0; c < v_dim; c += most) {
        const size_t left = v_dim - c < most ? v_dim - c : most;
        const size_t v = (left + VF_LANES - 1) / VF_LANES - 1;
        pv_function *const *blocks = v_dim < VF_LANES ? set->short_blocks : set->blocks[v];
        o->values = values + c * set->bytes, o->acc = acc + c;
        o->last = left - v * VF_LANES, o->column = c;
        if (visible)
            pv_rows(blocks, set->most_rows[v], set->edges, o, visible, n_rows);
        else
            pv_alike(blocks, set->most_rows[v], o, begin, end, n_rows);
    }
    o->values = values, o->acc = acc;
}

static inline size_t vectors_at_once(size_t n_rows) {
    return n_rows <= WIDE_ROWS ? WIDE_VECTORS : MAX_BLOCK_VECTORS;
}

/* Keys [begin, end) of the tile, which all rows see. */
static inline void pv_walk_alike(const struct pv_set *set, struct pv_operands *o, int32_t begin,
                                 int32_t end, size_t n_rows, size_t v_dim) {
    const size_t most = vectors_at_once(n_rows);
    if (n_rows <= set->rows_that_wait && v_dim > most * VF_LANES) {
        const struct attn_ending *const ending = o->ending;
        o->ahead = distance_ahead(o->value_stride, KEYS_OF_A_TURN);
        o->ending = NULL;
        for (; end - begin > KEYS_OF_A_TURN; begin += KEYS_OF_A_TURN) {
            pv_columns(set, o, NULL, begin, begin + KEYS_OF_A_TURN, n_rows, v_dim, most);
            o->factor = pv_keep;
        }
        o->ending = ending;
    }
    pv_columns(set, o, NULL, begin, end, n_rows, v_dim, most);
}

/* The whole tile. are_alike: its rows. */
static inline void pv_walk(const struct pv_set *set, struct pv_operands *o, int are_alike,
                           const struct attn_visible *visible, size_t n_rows, size_t v_dim) {
    if (are_alike)
        pv_walk_alike(set, o, visible->begin, visible->end, n_rows, v_dim);
    else
        pv_columns(set, o, visible, 0, 0, n_rows, v_dim, vectors_at_once(n_rows));
}

/* pv_tile of ranges, pv_ranges, for f32 or a set's lanes. */
#define DEFINE_PV_RANGES(set)                                                                      \
    static void pv_ranges(const float *weights, size_t weight_stride,                              \
                          const struct attn_visible *visible, size_t n_rows, const float *values,  \
                          int64_t value_stride, size_t v_dim, const float *factor, float *acc,     \
                          size_t acc_stride, struct attn_later *later) {                           \
        const struct attn_stored stored = {.at = values, .stride = value_stride};                  \
        struct pv_operands tile;                                                                   \
        pv_begin(&tile, weights, weight_stride, &stored, sizeof(float), factor, acc, acc_stride);  \
        tile.later = later;                                                                        \
        pv_walk(&set, &tile, rows_are_alike(visible, n_rows), visible, n_rows, v_dim);             \
    }

/* pv_ending by the same blocks: where all rows begin alike and there is no past, while their sums are in
 * registers. Waiting there for the past, which is in the second-level cache, costs more than it
 * takes to walk over the sums once more. */
#define DEFINE_PV_ENDING(name, pv_tile, set)                                                       \
    void name(const float *weights, size_t weight_stride, const struct attn_visible *visible,      \
              size_t n_rows, const float *values, int64_t value_stride, size_t v_dim,              \
              const float *factor, float *acc, size_t acc_stride,                                  \
              const struct attn_ending *ending, struct attn_later *later) {                        \
        const int are_alike = rows_are_alike(visible, n_rows);                                     \
        if (ending->past || !(are_alike || rows_begin_alike(visible, n_rows))) {                   \
            pv_tile(weights, weight_stride, visible, n_rows, values, value_stride, v_dim, factor,  \
                    acc, acc_stride, later);                                                       \
            end_rows(n_rows, v_dim, acc, acc_stride, ending);                                      \
            return;                                                                                \
        }                                                                                          \
        const struct attn_stored stored = {.at = values, .stride = value_stride};                  \
        struct pv_operands tile;                                                                   \
        pv_begin(&tile, weights, weight_stride, &stored, sizeof(float), factor, acc, acc_stride);  \
        tile.ending = ending, tile.later = later;                                                  \
        pv_walk(&set, &tile, are_alike, visible, n_rows, v_dim);                                   \
    }

#endif
