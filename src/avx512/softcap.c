/* Bounds scores smoothly: cap * tanh(s / cap).
 *
 * SPDX-License-Identifier: MIT */
#include "avx512.h"
#include "vec.h"

#include "softcap_row.h"

void attn_softcap_f32_avx512(float *scores, size_t n_keys, float cap) {
    softcap_row(scores, n_keys, cap);
}
