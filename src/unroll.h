/* Asks the compiler to unroll the next loop completely: its trip count is a constant once the
 * function around it is inlined, and its arrays then live in registers.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_UNROLL_H
#define ATTN_UNROLL_H

#if defined(__SANITIZE_ADDRESS__) /* instrumented, unrolled loops take minutes to compile */
#define UNROLL
#elif defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#elif defined(__GNUC__)
#define UNROLL _Pragma("GCC unroll 64")
#else
#define UNROLL
#endif

/* Steps of a register block's inner loop per turn: its counters and pointers advance once for all
 * of them. Integer additions may otherwise be dealt to the ports that multiply-adds need. */
enum { UNROLLED_STEPS = 4 };

#if defined(__GNUC__)
#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define NEVER_INLINE static __attribute__((noinline))
#else
#define ALWAYS_INLINE static inline
#define NEVER_INLINE static
#endif

#endif
