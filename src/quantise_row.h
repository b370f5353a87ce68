/* A row of queries quantised to int8, for products with int8 keys. For each group of features
 *
 *     scale = max |x| / 127
 *     i_c   = x_c * (127 / max |x|), rounded to nearest, ties to even
 *
 * where both quotients and the product are rounded once: |i_c| <= 127 and
 * |x_c - scale * i_c| <= scale / 2 * (1 + 2^-13). A group that holds a NaN or an infinity gets the
 * scale NaN; one whose largest magnitude is below 127 * 2^-126 the scale 0; both are zeros.
 *
 * Include after vec.h and vec_int8.h.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_QUANTISE_ROW_H
#define ATTN_QUANTISE_ROW_H

#include <math.h>
#include <string.h>

#include "int8_rows.h"

/* The largest magnitude, as bits: those of a NaN are above an infinity's, and those above all
 * others. */
static inline uint32_t largest_magnitude(const float *x, size_t n) {
    vi largest = vi_set1(0);
    size_t c = 0;
    for (; c + VF_LANES <= n; c += VF_LANES)
        largest = vi_max(largest, vi_magnitude(vf_load(x + c)));
    if (c < n)
        largest = vi_max(largest, vi_magnitude(vf_load_first(x + c, n - c)));
    return (uint32_t)vi_reduce_max(largest);
}

/* Integers of n features; returns their sum. */
static inline int32_t quantise_group(const float *x, size_t n, float inverse, int8_t *out) {
    const vf inverses = vf_set1(inverse);
    vi sum = vi_set1(0);
    size_t c = 0;
    for (; c < n; c += VF_LANES) {
        const vf y = c + VF_LANES <= n ? vf_load(x + c) : vf_load_first(x + c, n - c);
        const vi i = vi_round(vf_mul(y, inverses));
        sum = vi_add(sum, i);
        vi_store_i8(out + c, i);
    }
    return vi_reduce_add(sum);
}

static inline void quantise_row(const float *x, size_t dim, size_t group, int8_t *row) {
    const struct int8_shape s = int8_shape_of(dim, group);
    float *scales = (float *)(void *)(row + s.quads * INT8_QUAD);
    int32_t *sums = (int32_t *)(void *)(scales + s.groups);
    memset(row + (s.quads - 1) * INT8_QUAD, 0, INT8_QUAD);
    for (size_t g = 0; g < s.groups; g++) {
        const size_t c = g * s.group, n = dim - c < s.group ? dim - c : s.group;
        const uint32_t bits = largest_magnitude(x + c, n);
        float largest;
        memcpy(&largest, &bits, sizeof largest);
        if (largest >= 127 * 0x1p-126f && largest < INFINITY) {
            scales[g] = largest / 127;
            sums[g] = quantise_group(x + c, n, 127 / largest, row + c);
        } else {
            scales[g] = largest < 1 ? 0 : NAN; /* NaN is not below 1 */
            sums[g] = 0;
            memset(row + c, 0, n);
        }
    }
}

#endif
