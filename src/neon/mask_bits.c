/* Which keys a mask shows, as bits.
 *
 * SPDX-License-Identifier: MIT */
#include "neon.h"
#include "scalar/scalar.h"

void attn_bits_of_bool_f32_neon(const uint8_t *mask, size_t n_keys, uint64_t *bits) {
    attn_bits_of_bool_f32_scalar(mask, n_keys, bits);
}

void attn_bits_of_bias_f32_neon(const float *bias, size_t n_keys, uint64_t *bits) {
    attn_bits_of_bias_f32_scalar(bias, n_keys, bits);
}
