/* Weighted values where bits say which keys a row sees, on top of a kernel for ranges.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_PV_MASKED_H
#define ATTN_PV_MASKED_H

#include "kernels.h"

/* pv_tile where no row has bits. */
typedef void pv_ranges_function(const float *weights, size_t weight_stride,
                                const struct attn_visible *visible, size_t n_rows,
                                const float *values, int64_t value_stride, size_t v_dim,
                                const float *factor, float *acc, size_t acc_stride);

/* The first run of visible keys in [begin, end); begin = end where there is none. */
static inline struct attn_visible first_run(const uint64_t *bits, int32_t begin, int32_t end) {
    int32_t stop;
    for (uint64_t word; begin < end; begin = (begin | 63) + 1) {
        word = bits[begin / 64] >> begin % 64;
        if (word != 0) {
            begin += __builtin_ctzll(word);
            break;
        }
    }
    for (stop = begin; stop < end; stop = (stop | 63) + 1) {
        const uint64_t hidden = ~bits[stop / 64] >> stop % 64;
        if (hidden != 0) {
            stop += __builtin_ctzll(hidden);
            break;
        }
    }
    const struct attn_visible run = {begin < end ? begin : end, stop < end ? stop : end, NULL};
    return run;
}

static inline void pv_visible(pv_ranges_function *ranges, const float *weights,
                              size_t weight_stride, const struct attn_visible *visible,
                              size_t n_rows, const float *values, int64_t value_stride,
                              size_t v_dim, const float *factor, float *acc, size_t acc_stride) {
    for (size_t r = 0, n; r < n_rows; r += n) {
        n = 0;
        while (r + n < n_rows && !visible[r + n].bits)
            n++;
        const float *w = weights + r * weight_stride;
        const float *f = factor ? factor + r : NULL;
        float *a = acc + r * acc_stride;
        if (n > 0) {
            ranges(w, weight_stride, visible + r, n, values, value_stride, v_dim, f, a, acc_stride);
            continue;
        }
        n = 1;
        const float keep = 1;
        struct attn_visible run = {0, visible[r].begin, NULL};
        do {
            run = first_run(visible[r].bits, run.end, visible[r].end);
            ranges(w, weight_stride, &run, 1, values, value_stride, v_dim, f, a, acc_stride);
            f = &keep;
        } while (run.end < visible[r].end);
    }
}

#endif
