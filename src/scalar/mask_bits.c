/* Which keys a mask shows, as bits.
 *
 * SPDX-License-Identifier: MIT */
#include <math.h>

#include "scalar.h"

void attn_bits_of_bool_f32_scalar(const uint8_t *mask, size_t n_keys, uint64_t *bits) {
    for (size_t j = 0; j < n_keys; j++) {
        if (j % 64 == 0)
            bits[j / 64] = 0;
        bits[j / 64] |= (uint64_t)(mask[j] != 0) << j % 64;
    }
}

void attn_bits_of_bias_f32_scalar(const float *bias, size_t n_keys, uint64_t *bits) {
    for (size_t j = 0; j < n_keys; j++) {
        if (j % 64 == 0)
            bits[j / 64] = 0;
        bits[j / 64] |= (uint64_t)(bias[j] != -INFINITY) << j % 64;
    }
}
