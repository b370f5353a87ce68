/* Loops that a core runs as fast as it can with one instruction set: the denominators of every
 * figure.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_LOOPS_H
#define ATTN_LOOPS_H

#include <stddef.h>

struct loops {
    const char *isa;
    size_t lanes; /* floats in a register */
    /* Each executes multiply-adds on registers alone and returns how many operations they were;
     * *sink keeps the compiler from dropping them. The dot products are null in a set that has no
     * such instruction; where there is one, ask limits_has() whether this CPU has it too. */
    double (*multiply_add)(size_t rounds, float *sink);
    double (*dot_bf16)(size_t rounds, float *sink);
    double (*dot_i8)(size_t rounds, float *sink);
    /* Reads n floats once, in order, prefetching `ahead` floats before use (0: not at all). A rest
     * of less than 8 registers stays unread. */
    float (*read)(const float *data, size_t n, size_t ahead);
};

#define ATTN_ISA(isa) extern const struct loops attn_loops_##isa;
#include "isa.def"
#undef ATTN_ISA

#endif
