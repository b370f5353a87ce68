/* The register block of 4 rows by 4 vectors, which nearly all work goes through: the algorithm's
 * blocks of 12 rows are three of it.
 *
 * 16 accumulators, 8 registers of scalars (8 k of each of the 4 rows) and two sets of 4 vectors are
 * all 32 registers: vectors are loaded a step before their use, which a CPU that executes in order
 * would otherwise wait for. 8 k take 12 load instructions for 128 multiplies.
 *
 * Compilers spill, move loads and address each load on its own, when all registers are taken: hence
 * assembly and fixed registers, v0 to v15 for the accumulators, v16 to v23 for the scalars, v24 to
 * v31 for the vectors. Two pointers step through b in turn, because the next address comes late
 * from a load of 4 registers.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_NEON_BLOCK_4X4_H
#define ATTN_NEON_BLOCK_4X4_H

#include "lane_multiply.h"
#include "unroll.h"
#include "vec.h"

#define BLOCK_IS_4X4(rows, vectors, whole) ((rows) == 4 && (vectors) == 4 && (whole))

/* ---- One instruction each, and 4 multiply-adds of a row --------------------------------------- */

#define BLOCK_LOAD_4(x, first, last, p, step)                                                      \
    __asm__ volatile("ld1 {" first ".4s-" last ".4s}, [%4], %5"                                    \
                     : "=w"(x##0), "=w"(x##1), "=w"(x##2), "=w"(x##3), "+r"(p)                     \
                     : "r"(step)                                                                   \
                     : "memory")

#define BLOCK_LOAD_2(w, first, last, p)                                                            \
    __asm__ volatile("ld1 {" first ".4s-" last ".4s}, [%2], #32"                                   \
                     : "=w"(w##0), "=w"(w##1), "+r"(p)                                             \
                     :                                                                             \
                     : "memory")

#define BLOCK_ROW(c, x, w, lane)                                                                   \
    __asm__ volatile(                                                                              \
        LANE_ASSEMBLY_BY("0", "4", "8", #lane) "\n\t" LANE_ASSEMBLY_BY(                            \
            "1", "5", "8",                                                                         \
            #lane) "\n\t" LANE_ASSEMBLY_BY("2", "6", "8",                                          \
                                           #lane) "\n\t" LANE_ASSEMBLY_BY("3", "7", "8", #lane)    \
        : "+w"(c##0), "+w"(c##1), "+w"(c##2), "+w"(c##3)                                           \
        : "w"(x##0), "w"(x##1), "w"(x##2), "w"(x##3), "w"(w))

#define BLOCK_4_ROWS(x, half, lane)                                                                \
    do {                                                                                           \
        BLOCK_ROW(c0, x, w0##half, lane);                                                          \
        BLOCK_ROW(c1, x, w1##half, lane);                                                          \
        BLOCK_ROW(c2, x, w2##half, lane);                                                          \
        BLOCK_ROW(c3, x, w3##half, lane);                                                          \
    } while (0)

/* ---- The block -------------------------------------------------------------------------------- */

#define BLOCK_4X4_REGISTERS(acc)                                                                   \
    register vf c00 __asm__("v0") = acc[0], c01 __asm__("v1") = acc[1];                            \
    register vf c02 __asm__("v2") = acc[2], c03 __asm__("v3") = acc[3];                            \
    register vf c10 __asm__("v4") = acc[4], c11 __asm__("v5") = acc[5];                            \
    register vf c12 __asm__("v6") = acc[6], c13 __asm__("v7") = acc[7];                            \
    register vf c20 __asm__("v8") = acc[8], c21 __asm__("v9") = acc[9];                            \
    register vf c22 __asm__("v10") = acc[10], c23 __asm__("v11") = acc[11];                        \
    register vf c30 __asm__("v12") = acc[12], c31 __asm__("v13") = acc[13];                        \
    register vf c32 __asm__("v14") = acc[14], c33 __asm__("v15") = acc[15]

/* Row r of the block goes to p + r * stride. */
#define BLOCK_STORE_4(c, first, last, p, step)                                                     \
    __asm__ volatile("st1 {" first ".4s-" last ".4s}, [%0], %1"                                    \
                     : "+r"(p)                                                                     \
                     : "r"(step), "w"(c##0), "w"(c##1), "w"(c##2), "w"(c##3)                       \
                     : "memory")

ALWAYS_INLINE void block_store_4x4(float *p, size_t stride, const vf *acc) {
    BLOCK_4X4_REGISTERS(acc);
    const size_t step = stride * sizeof *p;
    BLOCK_STORE_4(c0, "v0", "v3", p, step);
    BLOCK_STORE_4(c1, "v4", "v7", p, step);
    BLOCK_STORE_4(c2, "v8", "v11", p, step);
    BLOCK_STORE_4(c3, "v12", "v15", p, step);
}

#define BLOCK_LOAD_Y() BLOCK_LOAD_4(y, "v28", "v31", odd, step)
#define BLOCK_LOAD_X() BLOCK_LOAD_4(x, "v24", "v27", even, step)

/* Continues the chains in acc over 8 * eights more k, eights > 0; a[r] and *b move on by as many. */
ALWAYS_INLINE void block_multiply_4x4(const float **a, const float **b, int64_t stride,
                                      size_t eights, vf *acc) {
    register vf x0 __asm__("v24"), x1 __asm__("v25"), x2 __asm__("v26"), x3 __asm__("v27");
    register vf y0 __asm__("v28"), y1 __asm__("v29"), y2 __asm__("v30"), y3 __asm__("v31");
    register vf w00 __asm__("v16"), w01 __asm__("v17"), w10 __asm__("v18"), w11 __asm__("v19");
    register vf w20 __asm__("v20"), w21 __asm__("v21"), w30 __asm__("v22"), w31 __asm__("v23");
    BLOCK_4X4_REGISTERS(acc);
    const float *even = *b, *odd = *b + stride;
    const float *a0 = a[0], *a1 = a[1], *a2 = a[2], *a3 = a[3];
    const int64_t step = 2 * stride * (int64_t)sizeof(float);
    BLOCK_LOAD_X();
    BLOCK_LOAD_2(w0, "v16", "v17", a0);
    BLOCK_LOAD_2(w1, "v18", "v19", a1);
    BLOCK_LOAD_2(w2, "v20", "v21", a2);
    BLOCK_LOAD_2(w3, "v22", "v23", a3);
    for (;;) {
        BLOCK_LOAD_Y();
        BLOCK_4_ROWS(x, 0, 0);
        BLOCK_LOAD_X();
        BLOCK_4_ROWS(y, 0, 1);
        BLOCK_LOAD_Y();
        BLOCK_4_ROWS(x, 0, 2);
        BLOCK_LOAD_X();
        BLOCK_4_ROWS(y, 0, 3);
        BLOCK_LOAD_Y();
        BLOCK_4_ROWS(x, 1, 0);
        BLOCK_LOAD_X();
        BLOCK_4_ROWS(y, 1, 1);
        BLOCK_LOAD_Y();
        BLOCK_4_ROWS(x, 1, 2);
        if (--eights == 0)
            break;
        BLOCK_LOAD_X();
        BLOCK_ROW(c0, y, w01, 3);
        BLOCK_LOAD_2(w0, "v16", "v17", a0);
        BLOCK_ROW(c1, y, w11, 3);
        BLOCK_LOAD_2(w1, "v18", "v19", a1);
        BLOCK_ROW(c2, y, w21, 3);
        BLOCK_LOAD_2(w2, "v20", "v21", a2);
        BLOCK_ROW(c3, y, w31, 3);
        BLOCK_LOAD_2(w3, "v22", "v23", a3);
    }
    BLOCK_4_ROWS(y, 1, 3);
    acc[0] = c00, acc[1] = c01, acc[2] = c02, acc[3] = c03;
    acc[4] = c10, acc[5] = c11, acc[6] = c12, acc[7] = c13;
    acc[8] = c20, acc[9] = c21, acc[10] = c22, acc[11] = c23;
    acc[12] = c30, acc[13] = c31, acc[14] = c32, acc[15] = c33;
    *b = even;
    a[0] = a0, a[1] = a1, a[2] = a2, a[3] = a3;
}

#endif
