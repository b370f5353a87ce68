/* Bounds scores smoothly: cap * tanh(s / cap).
 *
 * SPDX-License-Identifier: MIT */
#include "neon.h"
#include "vec.h"

#include "softcap_row.h"

void attn_softcap_f32_neon(float *scores, size_t n_keys, float cap) {
    softcap_row(scores, n_keys, cap);
}
