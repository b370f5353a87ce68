/* Four keys by four features, transposed in registers.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_NEON_TRANSPOSE_H
#define ATTN_NEON_TRANSPOSE_H

#include "vec.h"

/* In: x[i] is four features of key i. Out: x[f] is feature f of four keys. */
static inline void transpose_4x4(vf x[4]) {
    const float64x2_t even01 = vreinterpretq_f64_f32(vtrn1q_f32(x[0], x[1]));
    const float64x2_t odd01 = vreinterpretq_f64_f32(vtrn2q_f32(x[0], x[1]));
    const float64x2_t even23 = vreinterpretq_f64_f32(vtrn1q_f32(x[2], x[3]));
    const float64x2_t odd23 = vreinterpretq_f64_f32(vtrn2q_f32(x[2], x[3]));
    x[0] = vreinterpretq_f32_f64(vtrn1q_f64(even01, even23));
    x[1] = vreinterpretq_f32_f64(vtrn1q_f64(odd01, odd23));
    x[2] = vreinterpretq_f32_f64(vtrn2q_f64(even01, even23));
    x[3] = vreinterpretq_f32_f64(vtrn2q_f64(odd01, odd23));
}

#endif
