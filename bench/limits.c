/* The limits of one instruction set: compiled once for each, with its flags, its name in ISA, and
 * contraction on, so that acc * a + b is one instruction where there is one.
 *
 * SPDX-License-Identifier: MIT */
#include "limits.h"

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
 * registers. */
enum { LANES = WIDTH / sizeof(float), CHAINS = 12 };

/* acc = acc * a[k] + b[k], with two a and b in turn and a value of its own in every lane, so that
 * about half of all bits change with every operation, as they do with real numbers. A loop whose
 * values settle draws less power, and on a CPU that adapts its clock to that it reports a peak that
 * no real computation at that width can have. */
static double multiply_add(size_t rounds, float *sink) {
    vector acc[CHAINS], a[2], b[2];
    for (size_t i = 0; i < LANES; i++) {
        a[0][i] = 0.7310f + 0.013f * (float)i, a[1][i] = -0.8370f + 0.011f * (float)i;
        b[0][i] = -1.3710f + 0.170f * (float)i, b[1][i] = 1.7390f - 0.190f * (float)i;
    }
    UNROLL
    for (int i = 0; i < CHAINS; i++)
        acc[i] = b[0] * (float)i; /* all different, or the compiler would compute one of them */
    for (size_t n = 0; n < rounds; n++) {
        UNROLL
        for (int k = 0; k < 2; k++) {
            UNROLL
            for (int i = 0; i < CHAINS; i++)
                acc[i] = acc[i] * a[k] + b[k];
        }
        __asm__ volatile("" ::: "memory"); /* keeps rounds apart */
    }
    UNROLL
    for (int i = 0; i < CHAINS; i++)
        *sink += acc[i][0];
    return 2.0 * 2 * CHAINS * LANES * (double)rounds;
}

static float read_once(const float *data, size_t n, size_t ahead) {
    vector sum[4] = {0};
    for (size_t i = 0; i + 4 * LANES <= n; i += 4 * LANES) {
        if (ahead) {
            UNROLL
            for (size_t line = 0; line < 4 * LANES; line += 16)
                __builtin_prefetch(data + i + ahead + line, 0, 3);
        }
        UNROLL
        for (size_t k = 0; k < 4; k++) {
            vector x;
            memcpy(&x, data + i + k * LANES, sizeof x);
            sum[k] += x;
        }
    }
    return sum[0][0] + sum[1][0] + sum[2][0] + sum[3][0];
}

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
const struct limits JOIN(limits_, ISA) = {TEXT(ISA), multiply_add, read_once};
