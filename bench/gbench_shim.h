/* Google Benchmark for C: as much of it as the benchmarks here need.
 *
 * A benchmark runs once per repetition and measures itself (measure.h says why); what Google
 * Benchmark adds is names, filters, repetitions, JSON and its other flags.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_GBENCH_SHIM_H
#define ATTN_GBENCH_SHIM_H

#ifdef __cplusplus
extern "C" {
#endif

/* One run of a benchmark. */
typedef struct gbench_state gbench_state;
typedef void (*gbench_function)(gbench_state *state, const void *arg);

/* arg stays the caller's and has to last. */
void gbench_register(const char *name, gbench_function function, const void *arg);

void gbench_set_seconds(gbench_state *state, double seconds); /* of one call */
void gbench_set_counter(gbench_state *state, const char *name, double value);
void gbench_set_label(gbench_state *state, const char *label);
void gbench_fail(gbench_state *state, const char *message); /* it counts as failed */

/* Something that every output should say about this run. */
void gbench_add_context(const char *key, const char *value);

/* What a run has told. aggregate: "" or "mean", "median", ... over repetitions. */
struct gbench_row {
    const char *name, *aggregate, *label;
    const char *error; /* "" if there was none */
    double seconds;
    double (*counter)(const struct gbench_row *row, const char *name); /* 0 if there is none */
    const void *run;
};

/* Whether the arguments ask for a filter or for another display than the rows below. */
int gbench_has_filter(int argc, char **argv);

/* Parses Google Benchmark's flags, runs the benchmarks that the filter lets through, and calls row
 * after each. Returns how many failed, or -1 after complaining about an argument. */
int gbench_run(int argc, char **argv, void (*row)(const struct gbench_row *row));

#ifdef __cplusplus
}
#endif
#endif
