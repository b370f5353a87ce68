/* Bounds scores smoothly: cap * tanh(s / cap).
 *
 * SPDX-License-Identifier: MIT */
#include <math.h>

#include "scalar.h"

void attn_softcap_f32_scalar(float *scores, size_t n_keys, float cap) {
    for (size_t j = 0; j < n_keys; j++)
        scores[j] = cap * tanhf(scores[j] / cap);
}
