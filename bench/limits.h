/* What a core can do at best with one instruction set: the denominators of every figure.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_BENCH_LIMITS_H
#define ATTN_BENCH_LIMITS_H

#include <stddef.h>

struct limits {
    const char *isa;
    /* Executes f32 multiply-adds on registers and returns how many floating-point operations they
     * were; *sink keeps the compiler from dropping them. */
    double (*multiply_add)(size_t rounds, float *sink);
    /* Reads n floats once, in order, prefetching `ahead` floats before use (0: not at all). */
    float (*read)(const float *data, size_t n, size_t ahead);
};

#define ATTN_ISA(isa) extern const struct limits limits_##isa;
#include "isa.def"
#undef ATTN_ISA

#endif
