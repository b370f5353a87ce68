/* The loops of one instruction set: compiled once for each, with its flags, its name in ISA, and
 * contraction on, so that acc * a + b is one instruction where there is one.
 *
 * SPDX-License-Identifier: MIT */
#include "loops.h"

#include <string.h>

#include "unroll.h"

/* As wide as the registers that the flags allow. */
#if defined(__AVX512F__)
#define WIDTH 64
#elif defined(__AVX__)
#define WIDTH 32
#else
#define WIDTH 16
#endif
typedef float vector __attribute__((vector_size(WIDTH)));

/* 12 chains hide a latency of 4 to 5 cycles of two units, and with four constants fill 16
 * registers. 8 sums keep two loads per cycle going. */
enum { LANES = WIDTH / sizeof(float), CHAINS = 12, SUMS = 8 };

/* No name without the instruction set's: tests/check_isa_leak.sh knows functions by name. */
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define NAME(what) JOIN(attn_loop_##what##_, ISA)

/* Where the result replaces the addend (AArch64), the chain goes through the addend, or every step
 * would be a move as well. The compiler must not know the factors, or it would multiply them once
 * and only add. */
#if defined(__aarch64__)
#define STEP(acc, a, b) ((acc) + (a) * (b))
#define HIDE(x) __asm__ volatile("" : "+w"(x))
#else
#define STEP(acc, a, b) ((acc) * (a) + (b))
#define HIDE(x) (void)(x)
#endif

/* acc = acc * a[k] + b[k], with two a and b in turn and a value of its own in every lane, so that
 * about half of all bits change with every operation, as they do with real numbers. A loop whose
 * values settle draws less power, and on a CPU that adapts its clock to that it reports a peak that
 * no real computation at that width can have. */
static double NAME(multiply_add)(size_t rounds, float *sink) {
    vector acc[CHAINS], a[2], b[2];
    for (size_t i = 0; i < LANES; i++) {
        a[0][i] = 0.7310f + 0.013f * (float)i, a[1][i] = -0.8370f + 0.011f * (float)i;
        b[0][i] = -1.3710f + 0.170f * (float)i, b[1][i] = 1.7390f - 0.190f * (float)i;
    }
    UNROLL
    for (int i = 0; i < CHAINS; i++)
        acc[i] = b[0] * (float)i; /* all different, or the compiler would compute one of them */
    for (size_t n = 0; n < rounds; n++) {
        HIDE(a[0]);
        HIDE(a[1]);
        UNROLL
        for (int k = 0; k < 2; k++) {
            UNROLL
            for (int i = 0; i < CHAINS; i++)
                acc[i] = STEP(acc[i], a[k], b[k]);
        }
        __asm__ volatile("" ::: "memory"); /* keeps rounds apart */
    }
    UNROLL
    for (int i = 0; i < CHAINS; i++)
        *sink += acc[i][0];
    return 2.0 * 2 * CHAINS * LANES * (double)rounds;
}

/* Dot products of pairs of bf16 and of quadruples of bytes, added to f32 and 32-bit lanes. Written
 * as assembly: no flag has to allow the instructions, so that nothing else can use them. Two
 * products of about opposite sign in turn, so that sums stay small and their bits change. */
#if defined(__AVX512F__)
#define DOT_LOOP(what, instruction, first_a, second_a, step_a, first_b, step_b)                    \
    static double NAME(what)(size_t rounds, float *sink) {                                         \
        typedef unsigned words __attribute__((vector_size(WIDTH)));                                \
        words acc[CHAINS], a[2], b;                                                                \
        for (unsigned i = 0; i < LANES; i++) {                                                     \
            a[0][i] = (first_a) + (step_a)*i;                                                      \
            a[1][i] = (second_a) + (step_a)*i;                                                     \
            b[i] = (first_b) + (step_b)*i;                                                         \
        }                                                                                          \
        UNROLL                                                                                     \
        for (int i = 0; i < CHAINS; i++)                                                           \
            acc[i] = a[0] & 0x3f80ffff; /* as a float: finite */                                   \
        for (size_t n = 0; n < rounds; n++) {                                                      \
            UNROLL                                                                                 \
            for (int k = 0; k < 2; k++) {                                                          \
                UNROLL                                                                             \
                for (int i = 0; i < CHAINS; i++)                                                   \
                    __asm__(instruction " %2, %1, %0" : "+v"(acc[i]) : "v"(a[k]), "v"(b));         \
            }                                                                                      \
            __asm__ volatile("" ::: "memory");                                                     \
        }                                                                                          \
        UNROLL                                                                                     \
        for (int i = 0; i < CHAINS; i++)                                                           \
            *sink += (float)acc[i][0];                                                             \
        return 2.0 * 2 * CHAINS * WIDTH * (double)rounds;                                          \
    }
/* bf16: 0x3f9b is 1.211, 0xbf9b is -1.211; 32 products of a register's 64 bytes. */
DOT_LOOP(dot_bf16_bytes, "vdpbf16ps", 0x3f9b3fc5, 0xbf9bbfc5, 0x00030005, 0x3f833fa9, 0x00050003)
static double NAME(dot_bf16)(size_t rounds, float *sink) {
    return NAME(dot_bf16_bytes)(rounds, sink) / 2;
}
/* Unsigned bytes of a times signed bytes of b. */
DOT_LOOP(dot_i8, "vpdpbusd", 0x5b2fc563, 0xa4d03a9c, 0x01030507, 0x65b39a4d, 0x07050301)
#endif

static float NAME(read)(const float *data, size_t n, size_t ahead) {
    vector sum[SUMS] = {0};
    for (size_t i = 0; i + SUMS * LANES <= n; i += SUMS * LANES) {
        if (ahead) {
            UNROLL
            for (size_t line = 0; line < SUMS * LANES; line += 16)
                __builtin_prefetch(data + i + ahead + line, 0, 3);
        }
        UNROLL
        for (size_t k = 0; k < SUMS; k++) {
            vector x;
            memcpy(&x, data + i + k * LANES, sizeof x);
            sum[k] += x;
        }
    }
    float total = 0;
    UNROLL
    for (size_t k = 0; k < SUMS; k++)
        total += sum[k][0];
    return total;
}

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
const struct loops JOIN(attn_loops_, ISA) = {
    .isa = TEXT(ISA),
    .lanes = LANES,
    .multiply_add = NAME(multiply_add),
#if defined(__AVX512F__)
    .dot_bf16 = NAME(dot_bf16),
    .dot_i8 = NAME(dot_i8),
#endif
    .read = NAME(read),
};
