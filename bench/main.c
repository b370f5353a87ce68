/* Runs the benchmarks: says what is measured where, then a table with a row for each.
 *
 *     make bench                                     the quick set
 *     make bench BENCH_ARGS='--benchmark_filter=avx512.*decode'
 *     build/bench/attn_bench --all --seconds=1       the whole set; see also --help
 *
 * SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "built.h" /* written by the Makefile */
#include "cli/machine.h"
#include "options.h"

static void show_help(void) {
    puts("usage: attn_bench [--all] [--isa=NAME] [--seconds=S] [Google Benchmark's flags]\n"
         "\n"
         "  --all         the whole set (also with a filter); otherwise the quick one\n"
         "  --isa=NAME    this kernel set only; otherwise all that can run, but for scalar\n"
         "  --seconds=S   for each measurement, 2 unless given\n"
         "\n"
         "  --benchmark_filter=REGEX      --benchmark_list_tests\n"
         "  --benchmark_out=FILE          --benchmark_out_format=json|csv\n"
         "  --benchmark_repetitions=N     --benchmark_format=console|json|csv");
}

/* Takes our own options out of argv. Returns the new argc, or -1 after complaining. */
static int take_options(int argc, char **argv) {
    int kept = 1;
    for (int i = 1; i < argc; i++) {
        char *end;
        if (strcmp(argv[i], "--all") == 0) {
            bench_options.all = 1;
        } else if (strncmp(argv[i], "--isa=", 6) == 0) {
            bench_options.isa = argv[i] + 6;
        } else if (strncmp(argv[i], "--seconds=", 10) == 0) {
            bench_options.seconds = strtod(argv[i] + 10, &end);
            if (end == argv[i] + 10 || *end || !(bench_options.seconds >= 0)) {
                fprintf(stderr, "attn_bench: %s: not a number of seconds\n", argv[i]);
                return -1;
            }
        } else {
            argv[kept++] = argv[i];
        }
    }
    argv[kept] = NULL;
    if (gbench_has_filter(kept, argv))
        bench_options.all = 1;
    return kept;
}

/* ---- The table ------------------------------------------------------------------------------- */

static void print_time(double seconds) {
    const double ns = seconds * 1e9;
    if (ns < 1e4)
        printf("%9.1f ns", ns);
    else if (ns < 1e8)
        printf("%9.1f us", ns * 1e-3);
    else
        printf("%9.1f ms", ns * 1e-6);
}

static void print_heading(void) {
    static int printed;
    if (!printed++)
        printf("%-40s %12s %7s  [  10 %%   90 %%]  %-23s of\n", "name", "a call", "ratio",
               "  rate of limit");
}

static void print_row(const struct gbench_row *row) {
    char name[128];
    print_heading();
    snprintf(name, sizeof name, "%s%s%s", row->name, *row->aggregate ? " " : "", row->aggregate);
    printf("%-40s ", name);
    if (*row->error) {
        printf("FAILED: %s\n", row->error);
        return;
    }
    print_time(row->seconds);
    printf(" %7.3f  [%6.3f %6.3f]  ", row->counter(row, "ratio"), row->counter(row, "ratio_p10"),
           row->counter(row, "ratio_p90"));
    static const char *const units[][2] = {
        {"GFLOP/s", "limit_GFLOP/s"}, {"GB/s", "limit_GB/s"}, {"Gop/s", "limit_Gop/s"}};
    int width = 0;
    for (size_t u = 0; u < sizeof units / sizeof units[0]; u++)
        if (row->counter(row, units[u][1]) > 0)
            width = printf("%6.1f of %5.1f %-7s", row->counter(row, units[u][0]),
                           row->counter(row, units[u][1]), units[u][0]);
    printf("%*s %s\n", 23 - width, "", row->label);
    fflush(stdout);
}

/* ---- The run --------------------------------------------------------------------------------- */

static void say(int plain, const char *key, const char *value) {
    if (plain)
        printf("%-9s %s\n", key, value);
    gbench_add_context(key, value);
}

int main(int argc, char **argv) {
    char command[1024] = "attn_bench", seconds[32];
    for (int i = 1; i < argc; i++) {
        const size_t length = strlen(command);
        snprintf(command + length, sizeof command - length, " %s", argv[i]);
        if (strcmp(argv[i], "--help") == 0) {
            show_help();
            return 0;
        }
    }
    argc = take_options(argc, argv);
    if (argc < 0)
        return 2;
    if (!bench_kernel_sets()[0]) {
        char usable[128];
        fprintf(stderr, "attn_bench: --isa=%s: unknown or cannot run here, expected one of %s\n",
                bench_options.isa, machine_usable(usable, sizeof usable));
        return 2;
    }

    /* Something that parses the output must not find this in it. */
    int plain = 1;
    for (int i = 1; i < argc; i++)
        plain &= strncmp(argv[i], "--benchmark_format", 18) != 0 &&
                 strncmp(argv[i], "--benchmark_list_tests", 22) != 0;
    snprintf(seconds, sizeof seconds, "%g", bench_options.seconds);
    say(plain, "machine", machine_cpu_name());
    say(plain, "compiler", BUILT_COMPILER);
    say(plain, "flags", BUILT_FLAGS);
    say(plain, "commit", BUILT_COMMIT);
    say(plain, "seconds", seconds);
    say(plain, "command", command);
    if (plain)
        printf("\n");

    bench_add_limits();
    bench_add_attention();
    bench_add_backward();
    bench_add_modifiers();
    bench_add_paged();
    bench_add_kernels();
    bench_add_calls();
    bench_add_threads();
    const int failed = gbench_run(argc, argv, print_row);
    if (failed > 0)
        fprintf(stderr, "attn_bench: %d failed\n", failed);
    return failed < 0 ? 2 : failed > 0;
}
