/* exp_nonpositive_n() of 4 vectors, the same operations in fewer instructions.
 *
 * A multiply-add of NEON overwrites its addend, so that each constant that is one has to be copied
 * first: 28 of 100 instructions of what compilers make of it, and they compete with the
 * multiply-adds for the units that CPUs have fewest of. Here one load brings 4 copies, and the
 * comparison comes before the reduction overwrites x. Registers that follow each other cannot be
 * had from compilers without moves, hence assembly.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_NEON_EXP4_H
#define ATTN_NEON_EXP4_H

#include "exp_nonpositive.h"

/* The registers of 4 vectors. */
#define EXP4_X "%0.4s", "%1.4s", "%2.4s", "%3.4s" /* x, then r */
#define EXP4_MAGIC_N "v20.4s", "v21.4s", "v22.4s", "v23.4s"
#define EXP4_EVEN "v24.4s", "v25.4s", "v26.4s", "v27.4s" /* p and the next p in turn */
#define EXP4_ODD "v28.4s", "v29.4s", "v30.4s", "v31.4s"
#define EXP4_IS_SMALL "v16.4s", "v17.4s", "v18.4s", "v19.4s" /* x < ATTN_EXP_LAST_NORMAL */
#define EXP4_SAME(c) c, c, c, c
#define EXP4_CONSTANT(c) EXP4_SAME(c ".4s")

/* An operation on each of them: d = op(a, b). */
#define EXP4(...) EXP4_(__VA_ARGS__)
#define EXP4_(op, d0, d1, d2, d3, a0, a1, a2, a3, b0, b1, b2, b3)                                  \
    op " " d0 ", " a0 ", " b0 "\n\t" op " " d1 ", " a1 ", " b1 "\n\t" op " " d2 ", " a2 ", " b2    \
       "\n\t" op " " d3 ", " a3 ", " b3 "\n\t"

/* 4 copies from an address. */
#define EXP4_LOAD(first, last, from) "ld1 {" first ".4s-" last ".4s}, [" from "]\n\t"
#define EXP4_LOAD_EVEN(from) EXP4_LOAD("v24", "v27", from)
#define EXP4_LOAD_ODD(from) EXP4_LOAD("v28", "v31", from)

#define EXP4_COPIES(c) c, c, c, c, c, c, c, c, c, c, c, c, c, c, c, c

static inline void exp4_nonpositive(vf *x) {
    static const float magic[] = {EXP4_COPIES(EXP_MAGIC)};
    static const float p5[] = {EXP4_COPIES(EXP_P5)}, p4[] = {EXP4_COPIES(EXP_P4)};
    static const float p3[] = {EXP4_COPIES(EXP_P3)}, p2[] = {EXP4_COPIES(EXP_P2)};
    static const float p1[] = {EXP4_COPIES(1.0f)};
    /* clang-format off */
    __asm__(EXP4_LOAD("v20", "v23", "%10")
            EXP4_LOAD_EVEN("%11")
            EXP4("fmla", EXP4_MAGIC_N, EXP4_X, EXP4_CONSTANT("%4"))
            EXP4("fsub", EXP4_ODD, EXP4_MAGIC_N, EXP4_CONSTANT("%5")) /* n */
            EXP4("fcmgt", EXP4_IS_SMALL, EXP4_CONSTANT("%9"), EXP4_X)
            EXP4("fmls", EXP4_X, EXP4_ODD, EXP4_CONSTANT("%6"))
            EXP4("fmls", EXP4_X, EXP4_ODD, EXP4_CONSTANT("%7"))
            EXP4_LOAD_ODD("%12")
            EXP4("fmla", EXP4_EVEN, EXP4_X, EXP4_CONSTANT("%8"))
            EXP4("fmla", EXP4_ODD, EXP4_EVEN, EXP4_X)
            EXP4_LOAD_EVEN("%13")
            EXP4("fmla", EXP4_EVEN, EXP4_ODD, EXP4_X)
            EXP4_LOAD_ODD("%14")
            EXP4("fmla", EXP4_ODD, EXP4_EVEN, EXP4_X)
            EXP4_LOAD_EVEN("%15")
            EXP4("fmla", EXP4_EVEN, EXP4_ODD, EXP4_X)
            EXP4_LOAD_ODD("%15")
            EXP4("shl", EXP4_MAGIC_N, EXP4_MAGIC_N, EXP4_SAME("#23")) /* 2^n */
            EXP4("fmla", EXP4_ODD, EXP4_EVEN, EXP4_X)
            EXP4("fmul", EXP4_X, EXP4_ODD, EXP4_MAGIC_N)
            "bic %0.16b, %0.16b, v16.16b\n\t"
            "bic %1.16b, %1.16b, v17.16b\n\t"
            "bic %2.16b, %2.16b, v18.16b\n\t"
            "bic %3.16b, %3.16b, v19.16b"
            : "+&w"(x[0]), "+&w"(x[1]), "+&w"(x[2]), "+&w"(x[3])
            : "w"(vf_set1(EXP_LOG2_E)), "w"(vf_set1(EXP_MAGIC)), "w"(vf_set1(EXP_LN2_HIGH)),
              "w"(vf_set1(EXP_LN2_LOW)), "w"(vf_set1(EXP_P6)), "w"(vf_set1(ATTN_EXP_LAST_NORMAL)),
              "r"(magic), "r"(p5), "r"(p4), "r"(p3), "r"(p2), "r"(p1)
            : "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27",
              "v28", "v29", "v30", "v31");
    /* clang-format on */
}

#endif
