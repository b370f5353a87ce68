/* The limits of one instruction set. Parameters: ISA, its name; VECTOR, a vector type of GCC's
 * vector extension as wide as the set's registers. CHAINS independent chains hide the latency of
 * the multiply-add.
 *
 * SPDX-License-Identifier: MIT */
#include <string.h>

#include "limits.h"
#include "unroll.h"

#define LANES (sizeof(VECTOR) / sizeof(float))
enum { CHAINS = 12 };

static double fma_rounds(size_t rounds, float *sink) {
    VECTOR acc[CHAINS], a, b;
    for (size_t i = 0; i < LANES; i++)
        a[i] = 0.999f, b[i] = 1e-3f;
    UNROLL
    for (int i = 0; i < CHAINS; i++)
        acc[i] = b * (float)i; /* all different, or the compiler would compute one of them */
    /* Contraction is on for these files alone: acc * a + b is one instruction. The barrier keeps the
     * compiler from combining rounds. */
    for (size_t n = 0; n < rounds; n++) {
        UNROLL
        for (int i = 0; i < CHAINS; i++)
            acc[i] = acc[i] * a + b;
        __asm__ volatile("" ::: "memory");
    }
    UNROLL
    for (int i = 0; i < CHAINS; i++)
        *sink += acc[i][0];
    return 2.0 * CHAINS * LANES * (double)rounds;
}

static float read_all(const float *data, size_t n, size_t ahead) {
    VECTOR sum[4] = {0};
    for (size_t i = 0; i + 4 * LANES <= n; i += 4 * LANES) {
        if (ahead)
            UNROLL
            for (size_t line = 0; line < 4 * LANES; line += 16)
                __builtin_prefetch(data + i + ahead + line, 0, 3);
        UNROLL
        for (int k = 0; k < 4; k++) {
            VECTOR x;
            memcpy(&x, data + i + (size_t)k * LANES, sizeof x);
            sum[k] += x;
        }
    }
    return sum[0][0] + sum[1][0] + sum[2][0] + sum[3][0];
}

#define JOIN(a, b) a##b
#define NAME_OF(isa) JOIN(limits_, isa)
#define TEXT_OF(isa) #isa
#define TEXT(isa) TEXT_OF(isa)
const struct limits NAME_OF(ISA) = {TEXT(ISA), fma_rounds, read_all};
