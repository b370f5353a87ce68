/* Asks the compiler to unroll the next loop. UNROLL: completely, because its trip count is a
 * constant once the function around it is inlined, and its arrays then live in registers.
 * UNROLL_BY_4: so that counting and branching, which share ports with the multiply-adds, weigh
 * less.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_UNROLL_H
#define ATTN_UNROLL_H

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#define UNROLL_BY_4 _Pragma("clang loop unroll_count(4)")
#elif defined(__GNUC__)
#define UNROLL _Pragma("GCC unroll 64")
#define UNROLL_BY_4 _Pragma("GCC unroll 4")
#else
#define UNROLL
#define UNROLL_BY_4
#endif

#if defined(__GNUC__)
#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define NEVER_INLINE static __attribute__((noinline))
#else
#define ALWAYS_INLINE static inline
#define NEVER_INLINE static
#endif

#endif
