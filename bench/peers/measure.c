/* Each call of another library stands between calls of libattn, so that a clock that moves moves
 * both. Times are CPU times of the process: what else runs on the core does not count, threads that
 * a library might start do.
 *
 * SPDX-License-Identifier: MIT */
#define _POSIX_C_SOURCE 200809L
#include "measure.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

/* Short calls are repeated for that long, after one that brings their data back into the caches,
 * from where the other library has driven it. */
static const double slice_seconds = 1e-3;

static double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double wall_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds of a call, about `expected`; NAN: it failed. */
static double time_way(const struct way *w, double expected) {
    const int n = expected > slice_seconds ? 1 : (int)(slice_seconds / fmax(expected, 1e-7)) + 1;
    if (n > 1 && w->run(w->state) != 0)
        return NAN;
    const double begin = cpu_seconds();
    for (int i = 0; i < n; i++)
        if (w->run(w->state) != 0)
            return NAN;
    return (cpu_seconds() - begin) / n;
}

size_t measure(struct way *const *ways, size_t n_ways, double seconds, struct timed *timed) {
    double expected[16];
    for (size_t i = 0; i < n_ways; i++) {
        expected[i] = time_way(ways[i], 1); /* the first call may set things up */
        expected[i] = time_way(ways[i], 1);
        if (isnan(expected[i]))
            return 0;
    }
    const double start = wall_seconds();
    size_t round = 0;
    while (round < MOST_ROUNDS && (round < 3 || wall_seconds() - start < seconds)) {
        double before = time_way(ways[0], expected[0]), sum = before;
        for (size_t i = 1; i < n_ways; i++) {
            const double own = time_way(ways[i], expected[i]);
            const double after = time_way(ways[0], expected[0]);
            timed[i].seconds[round] = own;
            timed[i].ratios[round] = own / ((before + after) / 2);
            before = after;
            sum += after;
            if (isnan(own) || isnan(after))
                return 0;
        }
        timed[0].seconds[round] = sum / (double)n_ways;
        timed[0].ratios[round++] = 1;
    }
    return round;
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double quantile(double *values, size_t n, double part) {
    qsort(values, n, sizeof *values, ascending);
    return values[(size_t)(part * (double)(n - 1) + 0.5)];
}
