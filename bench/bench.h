/* What all benchmarks share: registering, measuring, reporting.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_BENCH_H
#define ATTN_BENCH_H

#include <stddef.h>
#include <stdint.h>

#include "attn.h"
#include "cli/workload.h"
#include "gbench_shim.h"
#include "kernels.h"
#include "limits/measure.h"

/* What one benchmark is about: a kernel set, and a row of the table of its file. */
struct bench_case {
    const struct attn_kernels *kernels;
    const struct loops *loops;
    const void *row;
    int64_t number; /* whatever the file uses it for */
};

enum bench_set { BENCH_QUICK, BENCH_ALL };

/* Names are format strings. quick: part of `make bench`. */
void bench_add(enum bench_set set, gbench_function function, struct bench_case about,
               const char *name, ...) __attribute__((format(printf, 4, 5)));

/* The kernel sets that this CPU can run, best first, but for scalar and those that are used only by
 * name, unless they are asked for; a null pointer ends them. */
const struct attn_kernels *const *bench_kernel_sets(void);
/* Those that multiply bf16 as it is. */
const struct attn_kernels *const *bench_bf16_sets(void);
struct bench_case bench_case_of(const struct attn_kernels *kernels, const void *row);

/* For how long and with which clock to measure. */
struct measure_settings bench_settings(void);

/* Makes the library use the set of this case. Fails the run if it cannot. */
int bench_use(gbench_state *state, const struct bench_case *about);

/* Measures work against limit and reports it. unit: that of the two rates, in units of 1e9; empty
 * to leave the rates out. of: what the ratio is a ratio of. calls: how many calls a work.call is,
 * for the time of one. */
void bench_measure(gbench_state *state, const struct work *work, const struct limit *limit,
                   const char *unit, const char *of, double calls);

/* Reports how much longer work takes than other work, named in `than`. */
void bench_measure_cost(gbench_state *state, const struct work *work, const struct work *other,
                        enum measure_clock clock, const char *than, double calls);

void bench_report(gbench_state *state, const struct measured *measured, const char *unit,
                  const char *of, double calls);

/* Fails the run unless got is within tolerance * (1 + |want|) of want everywhere. */
int bench_close(gbench_state *state, const char *what, const float *got, const float *want,
                size_t n, float tolerance);

/* Readies the workload, runs it, and compares it with the oracle. Returns 0, or -1 after failing
 * the run. */
int bench_prepare(gbench_state *state, struct workload *workload, attn_executor *executor);

/* Elements per cycle in which the core could execute two multiply-adds as wide as a register: the
 * amount of n elements, when held against limit_multiply_add(). */
double bench_elements_per_cycle(const struct bench_case *about, double n);

/* Called once each, before anything runs. */
void bench_add_limits(void);
void bench_add_attention(void);
void bench_add_backward(void);
void bench_add_modifiers(void);
void bench_add_paged(void);
void bench_add_kernels(void);
void bench_add_calls(void);
void bench_add_threads(void);

#endif
