/* What all benchmarks share: registering, measuring, reporting.
 *
 * SPDX-License-Identifier: MIT */
#include "bench.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu_features.h"
#include "dispatch.h"
#include "options.h"

struct bench_options bench_options = {.seconds = 2};

/* What runs are given to remember, kept until the end. */
static struct node {
    struct node *next;
    char name[96];
    struct bench_case about;
} * nodes;

void bench_add(enum bench_set set, gbench_function function, struct bench_case about,
               const char *name, ...) {
    if (set != BENCH_QUICK && !bench_options.all)
        return;
    struct node *node = malloc(sizeof *node);
    if (!node)
        abort();
    node->next = nodes;
    nodes = node;
    node->about = about;
    va_list arguments;
    va_start(arguments, name);
    vsnprintf(node->name, sizeof node->name, name, arguments);
    va_end(arguments);
    gbench_register(node->name, function, &node->about);
}

const struct attn_kernels *const *bench_kernel_sets(void) {
    static const struct attn_kernels *usable[ATTN_MAX_ISAS], *sets[ATTN_MAX_ISAS + 1];
    if (!sets[0]) {
        const size_t n = attn_kernels_usable(attn_cpu_features(), usable);
        size_t wanted = 0;
        int by_name = 0; /* sets that share the kernels of others, but for one type */
        for (size_t i = 0; i < n; i++) {
            if (bench_options.isa ? strcmp(usable[i]->name, bench_options.isa) == 0
                                  : n == 1 || (usable[i] != &attn_kernels_scalar && !by_name))
                sets[wanted++] = usable[i];
            by_name |= usable[i] == &attn_kernels_scalar;
        }
    }
    return sets;
}

const struct attn_kernels *const *bench_bf16_sets(void) {
    static const struct attn_kernels *usable[ATTN_MAX_ISAS], *sets[ATTN_MAX_ISAS + 1];
    if (!sets[0]) {
        const size_t n = attn_kernels_usable(attn_cpu_features(), usable);
        size_t wanted = 0;
        for (size_t i = 0; i < n; i++)
            if ((!bench_options.isa || strcmp(usable[i]->name, bench_options.isa) == 0) &&
                usable[i]->dot && usable[i]->dot->type == ATTN_BF16)
                sets[wanted++] = usable[i];
    }
    return sets;
}

struct bench_case bench_case_of(const struct attn_kernels *kernels, const void *row) {
    return (struct bench_case){kernels, loops_of(kernels->name), row, 0};
}

struct measure_settings bench_settings(void) {
    struct measure_settings settings = measure_defaults;
    settings.seconds = bench_options.seconds;
    if (bench_options.seconds < 0.5)
        settings.min_bursts = 3;
    return settings;
}

int bench_use(gbench_state *state, const struct bench_case *about) {
    if (attn_set_isa(about->kernels->name) == ATTN_OK)
        return 0;
    gbench_fail(state, "the kernel set cannot be used");
    return -1;
}

void bench_report(gbench_state *state, const struct measured *m, const char *unit, const char *of,
                  double calls) {
    gbench_set_seconds(state, m->seconds / calls);
    gbench_set_counter(state, "ratio", m->ratio);
    gbench_set_counter(state, "ratio_p10", m->low);
    gbench_set_counter(state, "ratio_p90", m->high);
    gbench_set_counter(state, "bursts", m->bursts);
    if (*unit) {
        char name[32];
        gbench_set_counter(state, unit, m->rate * 1e-9);
        snprintf(name, sizeof name, "limit_%s", unit);
        gbench_set_counter(state, name, m->limit * 1e-9);
    }
    gbench_set_label(state, of);
}

void bench_measure(gbench_state *state, const struct work *work, const struct limit *limit,
                   const char *unit, const char *of, double calls) {
    const struct measure_settings settings = bench_settings();
    struct measured measured;
    measure(work, limit, &settings, &measured);
    bench_report(state, &measured, unit, of, calls);
}

void bench_measure_cost(gbench_state *state, const struct work *work, const struct work *other,
                        enum measure_clock clock, const char *than, double calls) {
    struct measure_settings settings = bench_settings();
    settings.clock = clock;
    struct measured measured;
    measure_cost(work, other, &settings, &measured);
    bench_report(state, &measured, "", than, calls);
}

int bench_close(gbench_state *state, const char *what, const float *got, const float *want,
                size_t n, float tolerance) {
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(got[i] - want[i]) <= tolerance * (1 + fabsf(want[i])))) {
            char text[160];
            snprintf(text, sizeof text, "wrong: %s[%zu] is %g, want %g", what, i, (double)got[i],
                     (double)want[i]);
            gbench_fail(state, text);
            return -1;
        }
    return 0;
}

int bench_prepare(gbench_state *state, struct workload *w, attn_executor *executor) {
    const attn_status status = workload_ready(w, executor);
    char text[96] = "";
    if (status != ATTN_OK) {
        snprintf(text, sizeof text, "%s", attn_status_string(status));
    } else {
        const int64_t wrong = workload_check(w);
        if (wrong)
            snprintf(text, sizeof text, "wrong: %lld values are beyond their bound",
                     (long long)wrong);
    }
    if (*text)
        gbench_fail(state, text);
    return *text ? -1 : 0;
}

double bench_elements_per_cycle(const struct bench_case *about, double n) {
    const double operations_per_cycle = 2.0 * 2 * (double)about->loops->lanes;
    return n * operations_per_cycle;
}
