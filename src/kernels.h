/* The micro-kernels of one instruction set: everything in libattn that may use vector instructions.
 *
 * The algorithm (attention.c) calls these on cache-sized tiles and knows no vector length; a kernel
 * blocks its tile for registers and knows no attention. Rules for all of them:
 *
 * - Any size >= 1 works; tails are the kernel's problem.
 * - Strides are in elements. Pointers need only their element's alignment. Outputs alias nothing.
 * - Nothing outside the stated extents is read or written. Rows of scores are the one exception:
 *   they are scratch, padded so that a kernel may read and write them up to the next multiple of
 *   ATTN_SCORE_PAD columns.
 * - The order of arithmetic is part of the definition, because the bits of a row must not depend on
 *   how many rows or keys a call has: where "chain" is said below, it is one fused multiply-add
 *   after the other, ascending (the scalar set rounds the product and the sum apart).
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_KERNELS_H
#define ATTN_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attn.h"

/* Scores are padded to this many columns, and tiles start at multiples of it from their span's
 * start. Every vector length divides it, so that a key's lane is its index modulo the vector length
 * whatever tile it is met in. */
#define ATTN_SCORE_PAD 64

/* Keys can be packed a multiple of this many at a time. */
#define ATTN_PACK_STEP 16

/* Below it exp() is +0 in every set: the last x whose exp(x) is a normal number. */
#define ATTN_EXP_LAST_NORMAL -0x1.5d589ep+6f

/* Where a row's maximum comes late, its first weights are near 2^-126. Sums of weighted values that
 * begin with them would be subnormal, which takes some CPUs a hundred cycles for each key. So first
 * weights below ATTN_LIFT_BELOW, up to a multiple of ATTN_LIFT_COLUMNS, are `lifted`: kept times
 * ATTN_LIFT, which is exact, until the sums are. */
#define ATTN_LIFT 0x1p+64f
#define ATTN_LIFT_BELOW 0x1p-100f
#define ATTN_LIFT_COLUMNS 16

/* The keys of a tile that one row sees: those j in [begin, end) for which bit j & 63 of
 * bits[j >> 6] is 1, all of them where bits is null. begin >= end: none. Weights of columns before
 * `lifted` have been multiplied by ATTN_LIFT: see softmax_rows. So many rows as `alike` says, counted
 * from this one, are known to see the same keys, with null bits and none of them lifted; 0 says
 * nothing. */
struct attn_visible {
    int32_t begin, end, lifted, alike;
    const uint64_t *bits;
};

/* From this many rows of queries on it pays to pack a tile of keys; below, they are read where they are.
 * Both give the same bits. A few rows are through before memory has given the keys that are packed
 * next, but can meet them one by one as they come: from there it takes more rows. */
struct attn_pack_rows {
    size_t of_few_keys; /* at most ATTN_SCORE_PAD: what is done once for them counts */
    size_t from_cache, from_memory;
};

/* Of a cache. */
#define ATTN_LINE_BYTES 64

/* Rows that lie a multiple of this apart, as those of tensors [tokens, heads, features] often do, share
 * few sets of a cache, where those that come push out those that are there. */
#define ATTN_SPARSE_BYTES 2048

/* Lines of memory that are needed later. A kernel that computes for longer than it reads may ask for
 * some of them meanwhile, the first ones first, and takes those off; or it leaves them to its caller.
 * They stand in columns of as many lines each. */
struct attn_later {
    uintptr_t at, step;   /* the next line; from there to the one after it in its column */
    uintptr_t column;     /* the first line of this column; the next column's is the line after */
    size_t left, columns; /* lines of this column, and columns after it */
    size_t lines;         /* of each of those */
};

/* What pack_keys, qk_packed and qk_strided of struct attn_kernels are. later may be null. */
typedef void attn_pack_keys(const float *keys, int64_t stride, size_t first, size_t n_keys,
                            size_t dim, void *packed);
typedef void attn_qk_packed(const float *const *q, size_t n_rows, const void *packed, size_t n_keys,
                            size_t dim, float scale, float *scores, size_t score_stride,
                            struct attn_later *later);
typedef void attn_qk_strided(const float *const *q, size_t n_rows, const float *keys,
                             int64_t stride, size_t n_keys, size_t dim, float scale, float *scores,
                             size_t score_stride);

/* And what pv_tile is. Of more rows than ATTN_ROWS_THAT_ASK it takes the values to be in a cache; then
 * only pv_f32 of struct attn_stored_kernels asks for them as it goes. */
#define ATTN_ROWS_THAT_ASK 8
typedef void attn_pv_tile(const float *weights, size_t weight_stride,
                          const struct attn_visible *visible, size_t n_rows, const float *values,
                          int64_t value_stride, size_t v_dim, const float *factor, float *acc,
                          size_t acc_stride, struct attn_later *later);

/* Products of a storage type as it is, by instructions that multiply several neighbours at once and
 * add the products up. What they multiply are 32-bit lanes, handed over as floats and read as such
 * by nobody: lane i of a row of q or of k holds its features i * per_lane and on; where lanes are
 * values, lane c of row i holds feature c of the keys i * per_lane and on, counted from column 0 of
 * the tile. Where a row of q or k has no whole number of lanes, it was copied and ends in zeros.
 *
 * A chain is one such instruction after the other, ascending; its order and rounding within a lane
 * are the CPU's. Subnormal numbers may count as 0, and results may become it. */
#define ATTN_PER_LANE_MOST 4
struct attn_dot_kernels {
    attn_type type;  /* of q and k for the scores, of v for the output */
    size_t per_lane; /* elements of a lane, at most ATTN_PER_LANE_MOST */

    struct attn_pack_rows pack_rows;

    /* As in struct attn_kernels, with dim and stride in lanes. */
    attn_pack_keys *pack_keys;
    attn_qk_packed *qk_packed;
    attn_qk_strided *qk_strided;

    /* A row of values as lanes: lane c holds element c of each of the per_lane tokens; where a token
     * is null, zeros. */
    void (*interleave)(const void *const *tokens, size_t n, float *lanes);

    /* The weights of each row, which softmax_rows has left, to lanes in place: lane i, in column i,
     * holds those of columns i * per_lane and on, rounded to nearest, ties to even. What the row
     * does not see of a lane becomes a weight that adds nothing, lanes of which it sees nothing
     * mean nothing. */
    void (*narrow_weights)(float *weights, size_t weight_stride, size_t n_rows,
                           const struct attn_visible *visible);

    /* As pv_tile in struct attn_kernels, with weights, values and value_stride in lanes. A lane of
     * which the row sees nothing adds no operation; what it does not see of another counts as 0,
     * whatever it holds, and changes no bit. */
    attn_pv_tile *pv_tile;
};

/* Products of int8 keys with queries that are rounded to int8. Rows lie as int8_rows.h says; dim and
 * group are those of int8_shape_of() there. */
struct attn_int8_kernels {
    struct attn_pack_rows pack_rows;

    /* A row of dim floats, quantised as quantise_row.h says. */
    void (*quantise)(const float *x, size_t dim, size_t group, int8_t *row);

    /* As pack_keys of struct attn_kernels: key j has its scales at scales + j * scale_stride. For
     * every multiple j of ATTN_SCORE_PAD, packed + j * int8_key_words() floats is the packed form of
     * the keys from j on. */
    void (*pack_keys)(const int8_t *keys, int64_t stride, const float *scales, int64_t scale_stride,
                      size_t first, size_t n_keys, size_t dim, size_t group, void *packed);

    /* scores[r * score_stride + j] = scale * chain over the groups g of (sum over the group's c of
     * q[r][c] * key[j][c], as an integer, converted to f32) * q_scale[r][g], rounded, times
     * key_scale[j][g], starting from 0. A key scale that is NaN or infinite makes the score NaN.
     * qk_packed may be asked for fewer keys than were packed. */
    void (*qk_packed)(const int8_t *const *q, size_t n_rows, const void *packed, size_t n_keys,
                      size_t dim, size_t group, float scale, float *scores, size_t score_stride);
    void (*qk_strided)(const int8_t *const *q, size_t n_rows, const int8_t *keys, int64_t stride,
                       const float *scales, int64_t scale_stride, size_t n_keys, size_t dim,
                       size_t group, float scale, float *scores, size_t score_stride);
};

/* Where ATTN_PACK_STEP keys or values begin that lie together, and the scales of such int8. */
struct attn_piece {
    const char *at;
    const float *scales;
};

/* Keys or values of a storage type where they lie: number j begins j * stride elements from `at` and,
 * if it is int8, has its scales at scales + j * scale_stride, one for each group features. Where
 * pieces is not null, they lie in several places: number j begins (j % ATTN_PACK_STEP) * stride
 * elements from the `at` of piece j / ATTN_PACK_STEP, and so on. After those that are to be read
 * there are ATTN_PIECES_AHEAD more in the list, which a kernel may ask for: they are needed next. */
#define ATTN_PIECES_AHEAD 4
struct attn_stored {
    const void *at;
    int64_t stride;
    const float *scales;
    int64_t scale_stride;
    size_t group;
    const struct attn_piece *pieces;
};

/* Products of a few rows with keys or values of a storage type, without a copy in f32: what widening
 * and then qk_strided or pv_tile of struct attn_kernels give, to the bit. No row has bits. Where the
 * type is not f32, keys are read as lanes of 2 halves or 4 int8, to which `at` is aligned and of
 * which stride is a multiple; dim and group are multiples of four lanes, v_dim and the group of
 * values of ATTN_STORED_STEP. */
#define ATTN_STORED_STEP 16
struct attn_stored_kernels {
    struct attn_pack_rows pack_rows, pack_rows_i8; /* of other types, and of int8 */

    void (*qk_f32)(const float *const *q, size_t n_rows, const struct attn_stored *keys,
                   size_t n_keys, size_t dim, float scale, float *scores, size_t score_stride);
    void (*qk_f16)(const float *const *q, size_t n_rows, const struct attn_stored *keys,
                   size_t n_keys, size_t dim, float scale, float *scores, size_t score_stride);
    void (*qk_bf16)(const float *const *q, size_t n_rows, const struct attn_stored *keys,
                    size_t n_keys, size_t dim, float scale, float *scores, size_t score_stride);
    void (*qk_i8)(const float *const *q, size_t n_rows, const struct attn_stored *keys,
                  size_t n_keys, size_t dim, float scale, float *scores, size_t score_stride);
    void (*pv_f32)(const float *weights, size_t weight_stride, const struct attn_visible *visible,
                   size_t n_rows, const struct attn_stored *values, size_t v_dim,
                   const float *factor, float *acc, size_t acc_stride);
    void (*pv_f16)(const float *weights, size_t weight_stride, const struct attn_visible *visible,
                   size_t n_rows, const struct attn_stored *values, size_t v_dim,
                   const float *factor, float *acc, size_t acc_stride);
    void (*pv_bf16)(const float *weights, size_t weight_stride, const struct attn_visible *visible,
                    size_t n_rows, const struct attn_stored *values, size_t v_dim,
                    const float *factor, float *acc, size_t acc_stride);
    void (*pv_i8)(const float *weights, size_t weight_stride, const struct attn_visible *visible,
                  size_t n_rows, const struct attn_stored *values, size_t v_dim,
                  const float *factor, float *acc, size_t acc_stride);
};

/* What becomes of the sums of a tile's rows, where it is the last of a span: they join those of the
 * spans before, and where there are no spans after, the row is complete. With `acc` from pv_tile,
 *     out[r][c] = finish[r] * fma(past[r][c], keep[r], acc[r][c] * add[r])
 * or finish[r] * acc[r][c] where past is null. keep and add are those of merge_factors. past has the
 * stride of acc; out[r] may be the row of past, or of acc. */
struct attn_ending {
    const float *past, *keep, *add, *finish;
    float *const *out;
};

/* The most rows of a block: those whose scores are computed, turned into weights and used before the
 * next ones, so that their scores of one tile stay in the first- or second-level cache. */
#define ATTN_ROW_BLOCK 18

struct attn_kernels {
    const char *name;  /* accepted by ATTN_ISA and attn_set_isa() */
    uint64_t required; /* CPU features, ATTN_REQUIRED_FEATURES of the file that defines this */

    /* Rows of a block, a few times those of a register block. No bit of a row depends on it. */
    size_t block_rows;

    struct attn_pack_rows pack_rows; /* of f32 that qk_strided reads where it lies */

    /* Rearranges keys[j * stride + c], j < n_keys, c < dim into the layout that qk_packed reads, as
     * the keys from number `first` on, a multiple of ATTN_PACK_STEP. Keys are packed in ascending
     * order. packed is aligned to 64 bytes and has room for dim floats for each key, their number
     * rounded up to a multiple of ATTN_SCORE_PAD. For every multiple j of ATTN_SCORE_PAD,
     * packed + j * dim floats is the packed form of the keys from j on. */
    attn_pack_keys *pack_keys;

    /* scores[r * score_stride + j] = scale * chain over c of q[r][c] * key[j][c], starting from 0,
     * the product with scale rounded once. qk_packed may be asked for fewer keys than were packed:
     * the first n_keys of them. */
    attn_qk_packed *qk_packed;
    attn_qk_strided *qk_strided;

    /* What may change scores between their product and their softmax, each on n_keys >= 1 scores
     * that lie together. */

    /* s = cap * tanh(s / cap), cap > 0: the quotient may be a product with 1 / cap, tanh is within
     * 4 ULP; +-inf gives +-cap, NaN stays NaN. */
    void (*softcap)(float *scores, size_t n_keys, float cap);

    /* s[j] += -slope * |distance - j|: the integer distance is converted to f32, rounded once. The
     * product may be fused with the sum. |distance| <= 2^63 - 2^20. */
    void (*alibi)(float *scores, size_t n_keys, float slope, int64_t distance);

    /* s[j] += bias[j] */
    void (*add_bias)(float *scores, size_t n_keys, const float *bias);

    /* Which keys a mask shows: bit j & 63 of bits[j >> 6] for j < n_keys, 0 from there to the end
     * of the last word. Bool: a byte other than 0. Bias: anything but -inf, NaN included. */
    void (*bits_of_bool)(const uint8_t *mask, size_t n_keys, uint64_t *bits);
    void (*bits_of_bias)(const float *bias, size_t n_keys, uint64_t *bits);

    /* The fused softmax of each row over the keys it sees. With s the row's scores and (m, l) its
     * running maximum and sum, taken to be (-inf, 0) where factor is null:
     *     m' = max(m, visible s), a NaN not counting; z = m', or 0 where m' = -inf
     *     f  = exp(m - z), or 1 where m' = m or the row sees no key of the tile; factor[r] = f
     *     s  = exp(s - z) in place where visible, a NaN staying NaN, so that a score of -inf has
     *          weight 0 even where all are -inf; exp as in exp_nonpositive.h
     *     l' = l * f + sum, where key j goes to lane j mod (vector length), each lane adds in
     *          ascending order from 0, and the lanes meet in a fixed tree; product and sum fused
     * Columns that a row does not see mean nothing afterwards; those in [begin, end) may be read
     * and written.
     *
     * Then the first weights are lifted where that is needed. visible[r].lifted is the last
     * multiple of ATTN_LIFT_COLUMNS before which each weight is below ATTN_LIFT_BELOW, if one of
     * those is not 0, f is below ATTN_LIFT_BELOW too and bits is null: they and factor[r] are
     * multiplied by ATTN_LIFT. Else lifted is 0. Where a row is lifted, the first one's `alike`
     * becomes 0. */
    void (*softmax_rows)(float *scores, size_t score_stride, size_t n_rows,
                         struct attn_visible *visible, float *m, float *l, float *factor);

    /* acc[r][c] = chain over the visible j of weights[r][j] * values[j][c], starting from
     * acc[r][c] * factor[r], or from -0 where factor is null (-0 is the neutral element of IEEE
     * addition). A key that the row does not see adds no operation: its value may be NaN.
     * Where begin < lifted <= end, the chain is multiplied by 1 / ATTN_LIFT before it goes on with
     * column `lifted`; bits is null then. (A tile may come in two pieces, with all columns counted
     * from the piece's first: exactly one of them has the place where a lifted row returns.) */
    attn_pv_tile *pv_tile;

    /* pv_tile, and then what ending says. Afterwards acc means nothing. */
    void (*pv_ending)(const float *weights, size_t weight_stride,
                      const struct attn_visible *visible, size_t n_rows, const float *values,
                      int64_t value_stride, size_t v_dim, const float *factor, float *acc,
                      size_t acc_stride, const struct attn_ending *ending,
                      struct attn_later *later);

    /* Merges the state b of each row into a, the keys of b coming after those of a. With
     * z = max(m_a, m_b), or 0 where that is -inf, e_a = exp(m_a - z) and e_b = exp(m_b - z):
     *     acc_a = fma(acc_a, e_a, acc_b * e_b), l_a = fma(l_a, e_a, l_b * e_b), m_a = max
     * where a NaN maximum never occurs (see softmax_rows). (acc -0, m -inf, l 0) is neutral on
     * either side, to the bit. */
    void (*merge_rows)(size_t n_rows, size_t v_dim, float *acc_a, float *m_a, float *l_a,
                       const float *acc_b, const float *m_b, const float *l_b, size_t acc_stride);

    /* The same of m and l, and the e_a and e_b of each row, for acc. */
    void (*merge_factors)(size_t n_rows, float *m_a, float *l_a, const float *m_b, const float *l_b,
                          float *e_a, float *e_b);

    /* factor[r] = 1 / l[r], what the complete sums of a row are multiplied by. Whether every l is
     * above 0: it is 0 where a row saw no key, or none above -inf, and then not to be used. */
    bool (*finish_factors)(size_t n_rows, const float *l, float *factor);

    /* out[r][c] = x[r * x_stride + c] * factor[r], c < n; out[r] may be that row of x. */
    void (*scale_rows)(size_t n_rows, const float *x, size_t x_stride, const float *factor,
                       size_t n, float *const *out);

    /* The gradient: see attn_backward() in attn.h. */

    /* The sum of a[c] * b[c], c < n, added up in lanes in an order that n alone decides. */
    float (*dot_row)(const float *a, const float *b, size_t n);

    /* The gradient of scores, for tiles that are turned: row r is a key, column i a query row. In
     * the columns that a row sees, and with s its scores and d its row of dweights,
     *     s = p = exp(s - lse[i]), d = p * (d - delta[i])
     * and, where capped is not null, d = d * (1 - (capped / cap)^2), cap > 0, capped being the
     * scores that softcap has bounded. exp as in exp_nonpositive.h, also for s - lse slightly above
     * 0. Columns that a row does not see mean nothing afterwards; lse and delta are padded as rows
     * of scores are. */
    void (*gradient_rows)(float *scores, float *dweights, const float *capped, size_t stride,
                          size_t n_rows, const struct attn_visible *visible, const float *lse,
                          const float *delta, float cap);

    /* ds[j] = w[j] * (dw[j] - delta), j < n; ds may be w or dw. */
    void (*softmax_gradient)(const float *w, const float *dw, float delta, size_t n, float *ds);

    /* out[c * out_stride + r] = x[r * stride + c]. Both are scratch: rows and columns may be read and
     * written up to the next multiple of ATTN_PACK_STEP. */
    void (*transpose)(const float *x, size_t stride, size_t n_rows, size_t n_columns, float *out,
                      size_t out_stride);

    /* Storage types, at the edges of the computation: out[r * out_stride + c] is the f32 of
     * x[r * stride + c], c < n. Exact; of int8 the product with scales[r * scale_stride], rounded
     * once. */
    void (*widen_f16)(const uint16_t *x, int64_t stride, size_t n_rows, size_t n, float *out,
                      size_t out_stride);
    void (*widen_bf16)(const uint16_t *x, int64_t stride, size_t n_rows, size_t n, float *out,
                       size_t out_stride);
    void (*widen_i8)(const int8_t *x, int64_t stride, size_t n_rows, size_t n, const float *scales,
                     int64_t scale_stride, float *out, size_t out_stride);

    /* out[c] is x[c] rounded to nearest, ties to even, c < n; overflow gives infinity, NaN stays
     * NaN (see half.h, which has the same in plain C). */
    void (*narrow_f16)(const float *x, size_t n, uint16_t *out);
    void (*narrow_bf16)(const float *x, size_t n, uint16_t *out);

    const struct attn_stored_kernels *stored; /* null: none */
    const struct attn_dot_kernels *dot;       /* null: none */
    const struct attn_int8_kernels *int8;     /* null: none */
};

/* The kernel sets, one row each in isa.def. */
#define ATTN_ISA(isa) extern const struct attn_kernels attn_kernels_##isa;
#include "isa.def"
#undef ATTN_ISA

#endif
