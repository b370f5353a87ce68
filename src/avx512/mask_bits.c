/* Which keys a mask shows, as bits.
 *
 * SPDX-License-Identifier: MIT */
#include "avx512.h"
#include "scalar/scalar.h"

void attn_bits_of_bool_f32_avx512(const uint8_t *mask, size_t n_keys, uint64_t *bits) {
    attn_bits_of_bool_f32_scalar(mask, n_keys, bits);
}

void attn_bits_of_bias_f32_avx512(const float *bias, size_t n_keys, uint64_t *bits) {
    attn_bits_of_bias_f32_scalar(bias, n_keys, bits);
}
