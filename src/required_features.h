/* The CPU features that this file's compiler flags let the compiler use, as a constant.
 *
 * Computed from the compiler's own macros, because the same flag enables different things in
 * different compilers (GCC's -mavx512f does not bring FMA, clang's does): a list typed by hand is
 * wrong on one of them. Included by each kernel set's kernels.c and by nothing else.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_REQUIRED_FEATURES_H
#define ATTN_REQUIRED_FEATURES_H

#include "cpu_features.h"

#define ATTN_REQUIRED_FEATURES                                                                     \
    (REQUIRED_SSE3 | REQUIRED_SSSE3 | REQUIRED_SSE41 | REQUIRED_SSE42 | REQUIRED_POPCNT |          \
     REQUIRED_AVX | REQUIRED_F16C | REQUIRED_FMA | REQUIRED_AVX2 | REQUIRED_AVX512F |              \
     REQUIRED_AVX512DQ | REQUIRED_AVX512BW | REQUIRED_AVX512VL | REQUIRED_AVX512CD |               \
     REQUIRED_AVX512_VNNI | REQUIRED_AVX512_BF16 | REQUIRED_NEON | REQUIRED_NEON_DOTPROD |         \
     REQUIRED_NEON_BF16 | REQUIRED_NEON_I8MM)

#ifdef __SSE3__
#define REQUIRED_SSE3 ATTN_CPU_HAS(SSE3)
#else
#define REQUIRED_SSE3 0
#endif
#ifdef __SSSE3__
#define REQUIRED_SSSE3 ATTN_CPU_HAS(SSSE3)
#else
#define REQUIRED_SSSE3 0
#endif
#ifdef __SSE4_1__
#define REQUIRED_SSE41 ATTN_CPU_HAS(SSE41)
#else
#define REQUIRED_SSE41 0
#endif
#ifdef __SSE4_2__ /* also CRC32, which is part of SSE4.2 */
#define REQUIRED_SSE42 ATTN_CPU_HAS(SSE42)
#else
#define REQUIRED_SSE42 0
#endif
#ifdef __POPCNT__
#define REQUIRED_POPCNT ATTN_CPU_HAS(POPCNT)
#else
#define REQUIRED_POPCNT 0
#endif
#ifdef __AVX__ /* also XSAVE, without which the AVX bit is never set */
#define REQUIRED_AVX ATTN_CPU_HAS(AVX)
#else
#define REQUIRED_AVX 0
#endif
#ifdef __F16C__
#define REQUIRED_F16C ATTN_CPU_HAS(F16C)
#else
#define REQUIRED_F16C 0
#endif
#ifdef __FMA__
#define REQUIRED_FMA ATTN_CPU_HAS(FMA)
#else
#define REQUIRED_FMA 0
#endif
#ifdef __AVX2__
#define REQUIRED_AVX2 ATTN_CPU_HAS(AVX2)
#else
#define REQUIRED_AVX2 0
#endif
#ifdef __AVX512F__
#define REQUIRED_AVX512F ATTN_CPU_HAS(AVX512F)
#else
#define REQUIRED_AVX512F 0
#endif
#ifdef __AVX512DQ__
#define REQUIRED_AVX512DQ ATTN_CPU_HAS(AVX512DQ)
#else
#define REQUIRED_AVX512DQ 0
#endif
#ifdef __AVX512BW__
#define REQUIRED_AVX512BW ATTN_CPU_HAS(AVX512BW)
#else
#define REQUIRED_AVX512BW 0
#endif
#ifdef __AVX512VL__
#define REQUIRED_AVX512VL ATTN_CPU_HAS(AVX512VL)
#else
#define REQUIRED_AVX512VL 0
#endif
#ifdef __AVX512CD__
#define REQUIRED_AVX512CD ATTN_CPU_HAS(AVX512CD)
#else
#define REQUIRED_AVX512CD 0
#endif
#ifdef __AVX512VNNI__
#define REQUIRED_AVX512_VNNI ATTN_CPU_HAS(AVX512_VNNI)
#else
#define REQUIRED_AVX512_VNNI 0
#endif
#ifdef __AVX512BF16__
#define REQUIRED_AVX512_BF16 ATTN_CPU_HAS(AVX512_BF16)
#else
#define REQUIRED_AVX512_BF16 0
#endif
#if defined(__aarch64__) && defined(__ARM_NEON)
#define REQUIRED_NEON ATTN_CPU_HAS(NEON)
#else
#define REQUIRED_NEON 0
#endif

#ifdef __ARM_FEATURE_DOTPROD
#define REQUIRED_NEON_DOTPROD ATTN_CPU_HAS(NEON_DOTPROD)
#else
#define REQUIRED_NEON_DOTPROD 0
#endif
#ifdef __ARM_FEATURE_BF16_VECTOR_ARITHMETIC
#define REQUIRED_NEON_BF16 ATTN_CPU_HAS(NEON_BF16)
#else
#define REQUIRED_NEON_BF16 0
#endif
#ifdef __ARM_FEATURE_MATMUL_INT8
#define REQUIRED_NEON_I8MM ATTN_CPU_HAS(NEON_I8MM)
#else
#define REQUIRED_NEON_I8MM 0
#endif

/* A feature that the flags enable and that nothing above asks the CPU for would be a SIGILL on some
 * machine. */
#if defined(__BMI__) || defined(__BMI2__) || defined(__LZCNT__) || defined(__MOVBE__) ||           \
    defined(__AVX512FP16__) || defined(__AVXVNNI__) || defined(__ARM_FEATURE_SVE) ||               \
    defined(__ARM_FEATURE_FP16_VECTOR_ARITHMETIC)
#error                                                                                             \
    "these flags enable a CPU feature that nobody asks the CPU for at run time. -march and -m flags do not belong in CFLAGS: kernel sets are chosen at run time. In a flags.mk: map the feature here"
#endif

#endif
