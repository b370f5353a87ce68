/* Random numbers of the standard normal distribution, the same every time.
 *
 * Marsaglia's polar method: (u, v) uniform in the unit disc without its centre, r = u^2 + v^2; then
 * u f and v f with f = sqrt(-2 log(r) / r) are independent and normal.
 *
 * SPDX-License-Identifier: MIT */
#include "normal.h"

#include <math.h>

/* Uniform in [-1, 1): xorshift64*. */
static double uniform(uint64_t *s) {
    *s ^= *s >> 12, *s ^= *s << 25, *s ^= *s >> 27;
    return (double)((*s * 0x2545f4914f6cdd1du) >> 11) * 0x1p-52 - 1;
}

void normal_fill(struct normal *random, float *x, size_t n) {
    for (size_t i = 0; i < n; i += 2) {
        double u, v, r;
        do {
            u = uniform(&random->state), v = uniform(&random->state);
            r = u * u + v * v;
        } while (r >= 1 || r == 0);
        const double f = sqrt(-2 * log(r) / r);
        x[i] = (float)(u * f);
        if (i + 1 < n)
            x[i + 1] = (float)(v * f);
    }
}
