/* Weights times values, added to the accumulators of a tile's rows.
 *
 * Columns go outside and blocks of up to 5 rows inside. With many rows, 16 columns of up to 256
 * keys are first copied together: values of many heads lie so far apart that they fall into few
 * sets of the first-level cache. A few rows read them where they are, in wider blocks: they need
 * the chains. What is called a key is a lane of lanes.h.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_NEON_PV_RANGES_H
#define ATTN_NEON_PV_RANGES_H

#include "block.h"
#include "lifted.h"
#include "pv_block.h"

enum { COPY_MIN_ROWS = 16, COPY_KEYS = 256 };

static const float pv_one[BLOCK_ROWS] = {1.0f, 1.0f, 1.0f, 1.0f, 1.0f};

/* Keys [begin, end) of `rows` rows through one block, in parts where lifted rows return among them.
 * Values and weights start at key 0. */
static void pv_part(pv_block *block, size_t rows, const struct attn_visible *visible, int32_t begin,
                    int32_t end, const float *weights, size_t weight_stride, const float *values,
                    int64_t value_stride, size_t last, const float *factor, float *acc,
                    size_t acc_stride) {
    float own_factor[BLOCK_ROWS];
    for (int32_t at; (at = next_return(visible, rows, begin, end)) > 0; begin = at) {
        block(1, weights + begin, weight_stride, values + begin * value_stride, value_stride,
              at - begin, last, factor, acc, acc_stride);
        factor = factor_of_return(visible, rows, at, own_factor);
    }
    block(1, weights + begin, weight_stride, values + begin * value_stride, value_stride,
          end - begin, last, factor, acc, acc_stride);
}

/* A block of rows over the keys [first, end), whose values and weights start at those of first. The
 * keys that all rows see go through the block; those before and after, through each row alone. */
static void pv_rows(pv_block *const *blocks, size_t rows, const struct attn_visible *visible,
                    int32_t first, int32_t end, const float *weights, size_t weight_stride,
                    const float *values, int64_t value_stride, size_t last, const float *factor,
                    float *acc, size_t acc_stride) {
    struct attn_visible own[BLOCK_ROWS], common = {.end = end - first},
                                         any = {.begin = end - first};
    for (size_t r = 0; r < rows; r++) {
        own[r].begin = visible[r].begin > first ? visible[r].begin - first : 0;
        own[r].end = (visible[r].end < end ? visible[r].end : end) - first;
        own[r].lifted = visible[r].lifted - first;
        common.begin = own[r].begin > common.begin ? own[r].begin : common.begin;
        common.end = own[r].end < common.end ? own[r].end : common.end;
        any.begin = own[r].begin < any.begin ? own[r].begin : any.begin;
        any.end = own[r].end > any.end ? own[r].end : any.end;
    }
    if (common.begin >= common.end) /* all that a row sees counts as before */
        common.begin = common.end = end - first;

    if (any.begin < common.begin) {
        blocks[rows - 1](1, weights, weight_stride, values, value_stride, 0, last, factor, acc,
                         acc_stride);
        factor = pv_one;
        for (size_t r = 0; r < rows; r++) {
            const int32_t stop = own[r].end < common.begin ? own[r].end : common.begin;
            if (own[r].begin < stop)
                pv_part(blocks[0], 1, own + r, own[r].begin, stop, weights + r * weight_stride,
                        weight_stride, values, value_stride, last, pv_one, acc + r * acc_stride,
                        acc_stride);
        }
    }
    if (factor != pv_one || common.begin < common.end)
        pv_part(blocks[rows - 1], rows, own, common.begin, common.end, weights, weight_stride,
                values, value_stride, last, factor, acc, acc_stride);
    for (size_t r = 0; r < rows && any.end > common.end; r++)
        if (own[r].end > common.end)
            pv_part(blocks[0], 1, own + r, common.end, own[r].end, weights + r * weight_stride,
                    weight_stride, values, value_stride, last, pv_one, acc + r * acc_stride,
                    acc_stride);
}

/* Fewer columns than a vector has lanes. */
static void pv_narrow(const float *weights, size_t weight_stride,
                      const struct attn_visible *visible, size_t n_rows, const float *values,
                      int64_t value_stride, size_t v_dim, const float *factor, float *acc,
                      size_t acc_stride) {
    for (size_t r = 0; r < n_rows; r++) {
        vf x = vf_set1(-0.0f);
        if (factor)
            x = vf_mul(vf_load_first(acc + r * acc_stride, v_dim), vf_set1(factor[r]));
        const struct attn_visible see = visible[r];
        for (int32_t j = see.begin; j <= see.end; j++) {
            if (j > see.begin && j == see.lifted)
                x = vf_mul(x, vf_set1(1 / ATTN_LIFT));
            if (j < see.end)
                x = LANE_MULTIPLY_ADD(vf_set1(weights[r * weight_stride + (size_t)j]),
                                      vf_load_first(values + j * value_stride, v_dim), x);
        }
        vf_store_first(acc + r * acc_stride, x, v_dim);
    }
}

/* Columns of n keys, to a distance of BLOCK_COLUMNS. */
static void copy_columns(const float *values, int64_t stride, int32_t n, size_t columns,
                         float *out) {
    if (columns == BLOCK_COLUMNS) {
        for (; n >= 4; n -= 4) {
            UNROLL
            for (int i = 0; i < 4; i++) {
                vst1q_f32_x4(out, vld1q_f32_x4(values));
                BLOCK_NEXT_ROW(values, stride);
                BLOCK_NEXT_ROW(out, BLOCK_COLUMNS);
            }
        }
    }
    for (; n > 0; n--, values += stride, out += BLOCK_COLUMNS) {
        for (size_t c = 0; c + VF_LANES < columns; c += VF_LANES)
            vf_store(out + c, vf_load(values + c));
        vf_store(out + columns - VF_LANES, vf_load(values + columns - VF_LANES));
    }
}

static void pv_ranges(const float *weights, size_t weight_stride,
                      const struct attn_visible *visible, size_t n_rows, const float *values,
                      int64_t value_stride, size_t v_dim, const float *factor, float *acc,
                      size_t acc_stride, struct attn_later *later) {
    (void)later;
    if (v_dim < VF_LANES) {
        pv_narrow(weights, weight_stride, visible, n_rows, values, value_stride, v_dim, factor, acc,
                  acc_stride);
        return;
    }
    int32_t begin = INT32_MAX, end = 0; /* what any row sees */
    bool same = true;                   /* all rows see that, and none is lifted */
    for (size_t r = 0; r < n_rows; r++) {
        same = same && visible[r].begin == visible[0].begin && visible[r].end == visible[0].end &&
               visible[r].lifted <= 0;
        if (visible[r].begin < visible[r].end) {
            begin = visible[r].begin < begin ? visible[r].begin : begin;
            end = visible[r].end > end ? visible[r].end : end;
        }
    }
    if (begin > end)
        begin = end;

    _Alignas(64) float copy[COPY_KEYS * BLOCK_COLUMNS];
    const struct block_rows few = block_rows(n_rows, BLOCK_ROWS);
    const size_t larger_rows = few.larger * (few.rows + 1);
    const bool copied = n_rows >= COPY_MIN_ROWS;
    const size_t widest = n_rows <= 2 ? 2 * BLOCK_COLUMNS : BLOCK_COLUMNS;
    for (size_t c = 0, columns; c < v_dim; c += columns) {
        columns = pv_block_columns(v_dim - c, widest);
        pv_block *const *blocks = pv_blocks(columns, copied);
        int32_t first = begin, stop;
        do {
            const float *from = values + first * value_stride + c;
            int64_t stride = value_stride;
            stop = end;
            if (copied) {
                stop = end - first < COPY_KEYS ? end : first + COPY_KEYS;
                copy_columns(from, stride, stop - first, columns, copy);
                from = copy;
                stride = BLOCK_COLUMNS;
            }
            for (size_t r = 0, n = 1, rows; r < n_rows; r += n * rows) {
                rows = r < larger_rows ? few.rows + 1 : few.rows;
                const float *w = weights + r * weight_stride + first;
                const float *f = first > begin ? pv_one : factor ? factor + r : NULL;
                float *out = acc + r * acc_stride + c;
                if (same) {
                    n = f == pv_one ? 1 : r < larger_rows ? few.larger : few.smaller;
                    blocks[rows - 1](n, w, weight_stride, from, stride, stop - first,
                                     columns - VF_LANES, f, out, acc_stride);
                } else {
                    pv_rows(blocks, rows, visible + r, first, stop, w, weight_stride, from, stride,
                            columns - VF_LANES, f, out, acc_stride);
                }
            }
            first = stop;
        } while (first < end);
    }
}

#endif
