/* What is added to scores: the penalty of ALiBi, and a mask of floats.
 *
 * SPDX-License-Identifier: MIT */
#include "neon.h"
#include "vec.h"

#include "bias_row.h"

void attn_alibi_f32_neon(float *scores, size_t n_keys, float slope, int64_t distance) {
    alibi_row(scores, n_keys, slope, distance);
}

void attn_add_bias_f32_neon(float *scores, size_t n_keys, const float *bias) {
    add_bias_row(scores, n_keys, bias);
}
