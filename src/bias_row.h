/* What is added to a row of scores, on the vectors of vec.h: the penalty of ALiBi (Press et al.,
 * "Train Short, Test Long", 2022), and a mask of floats.
 *
 * Include after vec.h. Scores may be read and written up to the next multiple of ATTN_SCORE_PAD; a
 * mask is the caller's memory, of which nothing beyond its end is read.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_BIAS_ROW_H
#define ATTN_BIAS_ROW_H

#include <stddef.h>
#include <stdint.h>

static inline void alibi_row(float *s, size_t n_keys, float slope, int64_t distance) {
    const vf slopes = vf_set1(slope);
    if (distance <= INT32_MAX && distance - (int64_t)n_keys >= -INT32_MAX) {
        for (size_t j = 0; j < n_keys; j += VF_LANES) {
            const vf d = vf_distances((int32_t)(distance - (int64_t)j));
            vf_store(s + j, vf_fnma(slopes, d, vf_load(s + j)));
        }
        return;
    }
    /* Distances of more than 31 bits: one by one, to the same bits. */
    for (size_t j = 0; j < n_keys; j++) {
        const int64_t d = distance - (int64_t)j;
        s[j] = vf_first(vf_fnma(slopes, vf_set1((float)(d < 0 ? -d : d)), vf_set1(s[j])));
    }
}

static inline void add_bias_row(float *s, size_t n_keys, const float *bias) {
    size_t j = 0;
    for (; j + VF_LANES <= n_keys; j += VF_LANES)
        vf_store(s + j, vf_add(vf_load(s + j), vf_load(bias + j)));
    if (j < n_keys)
        vf_store(s + j, vf_add(vf_load(s + j), vf_load_first(bias + j, n_keys - j)));
}

#endif
