/* Bounds scores smoothly: cap * tanh(s / cap).
 *
 * SPDX-License-Identifier: MIT */
#include "avx2.h"
#include "scalar/scalar.h"

void attn_softcap_f32_avx2(float *scores, size_t n_keys, float cap) {
    attn_softcap_f32_scalar(scores, n_keys, cap);
}
