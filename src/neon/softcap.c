/* Bounds scores smoothly: cap * tanh(s / cap).
 *
 * SPDX-License-Identifier: MIT */
#include "neon.h"
#include "scalar/scalar.h"

void attn_softcap_f32_neon(float *scores, size_t n_keys, float cap) {
    attn_softcap_f32_scalar(scores, n_keys, cap);
}
