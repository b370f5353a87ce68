/* What is added to scores: the penalty of ALiBi, and a mask of floats.
 *
 * SPDX-License-Identifier: MIT */
#include "scalar.h"

void attn_alibi_f32_scalar(float *scores, size_t n_keys, float slope, int64_t distance) {
    for (size_t j = 0; j < n_keys; j++) {
        const int64_t d = distance - (int64_t)j;
        scores[j] += -slope * (float)(d < 0 ? -d : d);
    }
}

void attn_add_bias_f32_scalar(float *scores, size_t n_keys, const float *bias) {
    for (size_t j = 0; j < n_keys; j++)
        scores[j] += bias[j];
}
