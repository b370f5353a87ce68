/* Times work as a fraction of what the machine can do.
 *
 * SPDX-License-Identifier: MIT */
#define _POSIX_C_SOURCE 200809L
#include "measure.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

float measure_sink;

const struct measure_settings measure_defaults = {MEASURE_CPU, 2, 2e-3, 9};

double measure_now(enum measure_clock clock) {
    struct timespec t;
    clock_gettime(clock == MEASURE_WALL ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- Limits --------------------------------------------------------------------------------- */

static const struct loops *const all_loops[] = {
#define ATTN_ISA(isa) &attn_loops_##isa,
#include "isa.def"
#undef ATTN_ISA
};

const struct loops *loops_of(const char *isa) {
    for (size_t i = 0; i < sizeof all_loops / sizeof all_loops[0]; i++)
        if (strcmp(all_loops[i]->isa, isa) == 0)
            return all_loops[i];
    return NULL;
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>

/* CPUID leaf 7 (Intel SDM vol. 2A): AVX512_VNNI is bit 11 of ECX, AVX512_BF16 bit 5 of EAX of
 * subleaf 1. That the operating system saves the registers is known from the set itself. */
int loops_have_dot_bf16(const struct loops *loops) {
    unsigned a = 0, b, c, d;
    return loops->dot_bf16 && __get_cpuid_count(7, 0, &a, &b, &c, &d) && a >= 1 &&
           __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1);
}
int loops_have_dot_i8(const struct loops *loops) {
    unsigned a, b, c = 0, d;
    return loops->dot_i8 && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (c >> 11 & 1);
}
#else
int loops_have_dot_bf16(const struct loops *loops) {
    (void)loops;
    return 0;
}
int loops_have_dot_i8(const struct loops *loops) {
    (void)loops;
    return 0;
}
#endif

/* Rounds of a call: enough for what comes before them not to count. */
enum { ROUNDS = 5000 };

static void call_multiply_add(void *arg) {
    const struct loop_call *c = arg;
    c->loops->multiply_add(ROUNDS, &measure_sink);
}
static void call_dot_bf16(void *arg) {
    const struct loop_call *c = arg;
    c->loops->dot_bf16(ROUNDS, &measure_sink);
}
static void call_dot_i8(void *arg) {
    const struct loop_call *c = arg;
    c->loops->dot_i8(ROUNDS, &measure_sink);
}
static void call_read(void *arg) {
    const struct loop_call *c = arg;
    for (int i = 0; i < 2; i++)
        measure_sink += c->loops->read(c->data[i], c->n[i], c->ahead);
}

static void limit_loop(struct limit *limit, const struct loops *loops, void (*call)(void *),
                       double (*loop)(size_t rounds, float *sink)) {
    memset(limit, 0, sizeof *limit);
    limit->calls[0].loops = loops;
    limit->n_ways = 1;
    limit->ways[0] = (struct work){call, &limit->calls[0], loop(ROUNDS, &measure_sink)};
}
void limit_multiply_add(struct limit *limit, const struct loops *loops) {
    limit_loop(limit, loops, call_multiply_add, loops->multiply_add);
}
void limit_dot_bf16(struct limit *limit, const struct loops *loops) {
    limit_loop(limit, loops, call_dot_bf16, loops->dot_bf16);
}
void limit_dot_i8(struct limit *limit, const struct loops *loops) {
    limit_loop(limit, loops, call_dot_i8, loops->dot_i8);
}

void limit_read(struct limit *limit, const struct loops *loops, const float *a, size_t n_a,
                const float *b, size_t n_b) {
    memset(limit, 0, sizeof *limit);
    limit->n_ways = LIMIT_MAX_WAYS;
    limit->best = 1;
    for (size_t i = 0; i < LIMIT_MAX_WAYS; i++) {
        limit->calls[i] = (struct loop_call){.loops = loops, .data = {a, b}, .n = {n_a, n_b}};
        limit->calls[i].ahead = 512 * i;
        limit->ways[i] = (struct work){call_read, &limit->calls[i], 4.0 * (double)(n_a + n_b)};
    }
}

void limit_work(struct limit *limit, const struct work *work) {
    memset(limit, 0, sizeof *limit);
    limit->n_ways = 1;
    limit->ways[0] = *work;
}

/* ---- Bursts --------------------------------------------------------------------------------- */

/* Seconds of a call, the mean over a burst. *calls is how many to make, and becomes how many the
 * next burst should make. */
static double burst(const struct work *work, const struct measure_settings *settings,
                    double *calls) {
    const size_t n = *calls < 1 ? 1 : (size_t)*calls;
    const double begin = measure_now(settings->clock);
    for (size_t i = 0; i < n; i++)
        work->call(work->arg);
    const double seconds = measure_now(settings->clock) - begin;
    /* A clock that did not move says that many more fit. */
    const double most = 16 * (double)n;
    *calls = seconds > 0 ? settings->burst_seconds * (double)n / seconds : most;
    *calls = *calls > most ? most : *calls;
    return seconds > 0 ? seconds / (double)n : 1e-12;
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(double *sorted, int n, double q) {
    return sorted[(int)(q * (double)(n - 1) + 0.5)];
}

/* Rates of all ways; the best of them. */
static double limit_rate(const struct limit *limit, const struct measure_settings *settings,
                         double *calls) {
    double best = 0;
    for (size_t i = 0; i < limit->n_ways; i++) {
        const double rate = limit->ways[i].amount / burst(&limit->ways[i], settings, &calls[i]);
        best = rate > best ? rate : best;
    }
    return best;
}

/* The rate of two bursts of the same amount, one after the other: amounts over times. The mean of
 * the two rates would be more than that, the more the machine's speed moved between them. */
static double over_both(double a, double b) { return 2 / (1 / a + 1 / b); }

/* Until the number of calls has settled: it grows at most 16-fold each time. */
static void warm_up(const struct work *work, const struct measure_settings *settings,
                    double *calls) {
    double last;
    do {
        last = *calls;
        burst(work, settings, calls);
    } while (*calls > 2 * last);
}
static void warm_up_limit(const struct limit *limit, const struct measure_settings *settings,
                          double *calls) {
    for (size_t i = 0; i < limit->n_ways; i++)
        warm_up(&limit->ways[i], settings, &calls[i]);
}

/* Of one measurement at a time. */
enum { MOST_BURSTS = 20000 };
static double ratios[MOST_BURSTS], times[MOST_BURSTS], limits[MOST_BURSTS];

double measure_limit(const struct limit *limit, const struct measure_settings *settings) {
    double calls[LIMIT_MAX_WAYS] = {1, 1, 1};
    warm_up_limit(limit, settings, calls);
    const double start = measure_now(settings->clock);
    int n = 0;
    do
        limits[n++] = limit_rate(limit, settings, calls);
    while (n < MOST_BURSTS &&
           (n < settings->min_bursts || measure_now(settings->clock) - start < settings->seconds));
    qsort(limits, (size_t)n, sizeof limits[0], ascending);
    return quantile(limits, n, limit->best ? 1 : 0.5);
}

void measure(const struct work *work, const struct limit *limit,
             const struct measure_settings *settings, struct measured *measured) {
    double work_calls = 1, limit_calls[LIMIT_MAX_WAYS] = {1, 1, 1};

    warm_up_limit(limit, settings, limit_calls);
    warm_up(work, settings, &work_calls);
    const double start = measure_now(settings->clock);
    double before = limit_rate(limit, settings, limit_calls);
    int n = 0;
    do {
        const double time = burst(work, settings, &work_calls);
        const double after = limit_rate(limit, settings, limit_calls);
        limits[n] = !limit->best ? over_both(before, after) : before > after ? before : after;
        times[n] = time;
        ratios[n] = work->amount / time / limits[n];
        before = after;
        n++;
    } while (n < MOST_BURSTS && (n < settings->min_bursts ||
                                 measure_now(settings->clock) - start < settings->seconds));

    qsort(ratios, (size_t)n, sizeof ratios[0], ascending);
    qsort(times, (size_t)n, sizeof times[0], ascending);
    qsort(limits, (size_t)n, sizeof limits[0], ascending);
    measured->seconds = quantile(times, n, 0.5);
    measured->rate = work->amount / measured->seconds;
    measured->limit = quantile(limits, n, 0.5);
    measured->ratio = quantile(ratios, n, 0.5);
    measured->low = quantile(ratios, n, 0.1);
    measured->high = quantile(ratios, n, 0.9);
    measured->bursts = n;
}

void measure_cost(const struct work *work, const struct work *other,
                  const struct measure_settings *settings, struct measured *measured) {
    const struct work one = {work->call, work->arg, 1}, other_one = {other->call, other->arg, 1};
    struct limit limit;
    limit_work(&limit, &other_one);
    measure(&one, &limit, settings, measured);
    const double low = measured->low;
    measured->ratio = 1 / measured->ratio;
    measured->low = 1 / measured->high;
    measured->high = 1 / low;
}
