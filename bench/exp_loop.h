/* The exponential of each kernel set by itself.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_EXP_LOOP_H
#define ATTN_EXP_LOOP_H

#include <stddef.h>

struct exp_loop {
    const char *isa;
    /* y[i] = exp(x[i]), x[i] <= 0, n a multiple of 256. */
    void (*run)(const float *x, float *y, size_t n);
};

#define ATTN_ISA(isa) extern const struct exp_loop exp_loop_##isa;
#include "isa.def"
#undef ATTN_ISA

#endif
