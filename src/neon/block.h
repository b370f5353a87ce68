/* The register block that both products of attention are made of.
 *
 *     acc[r][v] = chain over k of b[k][v] * a[r][k]
 *
 * For the scores a is the queries, b a panel of packed keys and k a feature; for the output a is
 * the weights, b the values and k a key. Four k at a time: one register holds four scalars of a
 * row, taken lane by lane by the multiply. 5 rows by 4 vectors are 20 + 5 + 4 = 29 of the 32
 * registers, and 9 load instructions for 80 multiplies; a second set of vectors, to load ahead,
 * does not fit. It does at 4 by 4, which has a loop of its own in block_4x4.h. Scalars, vectors and
 * k are lanes of lanes.h.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_NEON_BLOCK_H
#define ATTN_NEON_BLOCK_H

#include <stdbool.h>

#include "block_4x4.h"
#include "lane_multiply.h"
#include "unroll.h"
#include "vec.h"

enum { BLOCK_ROWS = 5, BLOCK_VECTORS = 4, BLOCK_COLUMNS = BLOCK_VECTORS * VF_LANES };
enum { BLOCK_ACC = BLOCK_ROWS * BLOCK_VECTORS };

/* Rows in blocks as even as possible, because a block of one row waits for its loads and for its
 * few chains: `larger` blocks of rows + 1, then `smaller` blocks of rows. */
struct block_rows {
    size_t rows, larger, smaller;
};

static inline struct block_rows block_rows(size_t n, size_t most) {
    const size_t blocks = (n + most - 1) / most, rows = n / blocks, larger = n - rows * blocks;
    return (struct block_rows){rows, larger, blocks - larger};
}

/* The vectors at p, the last of them `last` elements from p: where the columns are no multiple of
 * VF_LANES it overlaps the one before, so that nothing beyond them is touched. `whole` says that it
 * does not overlap. */
ALWAYS_INLINE void block_load(const float *p, int vectors, bool whole, size_t last, vf *x) {
    if (whole && vectors == 4) {
        const float32x4x4_t four = vld1q_f32_x4(p);
        x[0] = four.val[0];
        x[1] = four.val[1];
        x[2] = four.val[2];
        x[3] = four.val[3];
        return;
    }
    UNROLL
    for (int v = 0; v < vectors - 1; v++)
        x[v] = vf_load(p + v * VF_LANES);
    x[vectors - 1] = vf_load(p + (whole ? (size_t)(vectors - 1) * VF_LANES : last));
}

/* Nothing, after which the compiler believes that address depends on on_what. */
#define BLOCK_HOLD(address, on_what) __asm__("" : "+r"(address) : on_what)

/* One address after the other, instead of one register for each row. */
#define BLOCK_NEXT_ROW(p, stride)                                                                  \
    do {                                                                                           \
        p += stride;                                                                               \
        BLOCK_HOLD(p, );                                                                           \
    } while (0)

/* Compilers like to load ahead, for which a full block has no registers left: they spill. So the
 * next addresses are made to depend on every accumulator, and no load moves up across a step. */
#define BLOCK_HOLD_ACC(p)                                                                          \
    do {                                                                                           \
        UNROLL                                                                                     \
        for (int i = 0; i < rows * vectors; i++)                                                   \
            BLOCK_HOLD(p, "w"(acc[i]));                                                            \
    } while (0)

#define BLOCK_STEP(lane)                                                                           \
    do {                                                                                           \
        block_load(b, vectors, whole, last, x);                                                    \
        BLOCK_NEXT_ROW(b, stride);                                                                 \
        UNROLL                                                                                     \
        for (int i = 0; i < rows * vectors; i++) {                                                 \
            const int r = i % rows, v = i / rows;                                                  \
            acc[r * vectors + v] = LANE_MULTIPLY_ADD_BY(acc[r * vectors + v], x[v], w[r], lane);   \
        }                                                                                          \
        if (tight)                                                                                 \
            BLOCK_HOLD_ACC(b);                                                                     \
    } while (0)

#define BLOCK_FOUR_STEPS()                                                                         \
    do {                                                                                           \
        UNROLL                                                                                     \
        for (int r = 0; r < rows; r++) {                                                           \
            if (tight)                                                                             \
                BLOCK_HOLD_ACC(a[r]);                                                              \
            w[r] = vf_load(a[r]);                                                                  \
            a[r] += 4;                                                                             \
        }                                                                                          \
        BLOCK_STEP(0);                                                                             \
        BLOCK_STEP(1);                                                                             \
        BLOCK_STEP(2);                                                                             \
        BLOCK_STEP(3);                                                                             \
    } while (0)

/* Continues the chains in acc over n more k. a[r] is where row r of a starts; b steps by stride. */
ALWAYS_INLINE void block_multiply(const float **a, const float *b, int64_t stride, size_t n,
                                  int rows, int vectors, bool whole, size_t last, vf *acc) {
    const bool tight = rows * vectors >= 4 * BLOCK_VECTORS || vectors > BLOCK_VECTORS;
    const bool full = rows >= 4 && vectors == BLOCK_VECTORS;
    vf w[BLOCK_ROWS], x[2 * BLOCK_VECTORS];
    if (BLOCK_IS_4X4(rows, vectors, whole)) {
        if (n >= 8)
            block_multiply_4x4(a, &b, stride, n / 8, acc);
        if (n & 4)
            BLOCK_FOUR_STEPS();
    } else if (full) {
        for (size_t left = n / 8; left > 0; left--) {
            BLOCK_FOUR_STEPS();
            BLOCK_FOUR_STEPS();
        }
        if (n & 4)
            BLOCK_FOUR_STEPS();
    } else {
        for (size_t left = n / 4; left > 0; left--)
            BLOCK_FOUR_STEPS();
    }
    for (size_t left = n % 4; left > 0; left--) {
        UNROLL
        for (int r = 0; r < rows; r++)
            w[r] = vld1q_dup_f32(a[r]++);
        BLOCK_STEP(0);
    }
}

#endif
