/* Bounds scores smoothly: cap * tanh(s / cap).
 *
 * SPDX-License-Identifier: MIT */
#include "avx2.h"
#include "vec.h"

#include "softcap_row.h"

void attn_softcap_f32_avx2(float *scores, size_t n_keys, float cap) {
    softcap_row(scores, n_keys, cap);
}
