/* attn bench: what this machine can do on one core, and how much of it attention reaches.
 *
 * SPDX-License-Identifier: MIT */
#define _XOPEN_SOURCE 700
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attn.h"
#include "cli.h"
#include "limits/measure.h"
#include "machine.h"
#include "workload.h"

static const char help[] =
    "usage: attn bench [--json] [--isa NAME] [--quick]\n"
    "\n"
    "Measures what one core can do (multiply-adds on registers, reading memory in order), then\n"
    "attention on one thread as a fraction of that. Each burst of calls stands between two bursts\n"
    "of the limit, so that a moving clock counts for both; the ratio is the median over the\n"
    "bursts, with the values that 10 % and 90 % of them are below. Only visible pairs of row and\n"
    "key count as operations. Takes about half a minute.\n"
    "\n"
    "  --isa NAME  this kernel set only; otherwise all that can run here, but for scalar (which\n"
    "              computes smaller shapes)\n"
    "  --quick     a few seconds, smaller shapes: to see that it works, not for figures\n"
    "  --json      for programs\n";

/* ---- What is measured ------------------------------------------------------------------------ */

static const struct {
    struct shape shape, small;
} rows[] = {
#define ROW(h, g, l, n, d, causal, l_small, n_small)                                               \
    {                                                                                              \
        {"", 1, h, g, l, n, d, causal}, { "", 1, h, g, l_small, n_small, d, causal }               \
    }
    ROW(8, 8, 2048, 2048, 128, 0, 160, 160), ROW(8, 8, 2048, 2048, 128, 1, 160, 160),
    ROW(8, 8, 1536, 1536, 64, 0, 160, 160),  ROW(8, 8, 1536, 1536, 64, 1, 160, 160),
    ROW(8, 8, 128, 128, 64, 0, 128, 128),    ROW(8, 8, 64, 64, 64, 0, 64, 64),
    ROW(8, 8, 16, 16, 64, 0, 16, 16),        ROW(32, 8, 16, 4096, 128, 0, 16, 512),
    ROW(32, 8, 1, 16384, 128, 0, 1, 1024),   ROW(16, 16, 1, 16384, 128, 0, 1, 1024),
#undef ROW
};
enum { N_ROWS = sizeof rows / sizeof rows[0], NAME_SIZE = 64 };

static const char *shape_name(const struct shape *s, char name[NAME_SIZE]) {
    char on[24] = "";
    if (s->kv_heads != s->q_heads)
        snprintf(on, sizeof on, " on %d", (int)s->kv_heads);
    snprintf(name, NAME_SIZE, "%d heads%s, %d x %d, d %d%s", (int)s->q_heads, on, (int)s->q_len,
             (int)s->keys, (int)s->dim, s->causal ? ", causal" : "");
    return name;
}

/* A first- and a second-level cache, and beyond. */
static const struct {
    size_t kib, small_kib;
} reads[] = {{16, 16}, {256, 256}, {128 << 10, 16 << 10}};
enum { N_READS = sizeof reads / sizeof reads[0], MAX_SETS = 16 };

struct run {
    int json, small;
    struct measure_settings limits, attention;
    const struct loops *sets[MAX_SETS];
    int n_sets;
    int done, total; /* measurements, for the progress line */
    int listed;      /* of the JSON list that is being written */
};

/* ---- Printing -------------------------------------------------------------------------------- */

enum { PROGRESS_WIDTH = 70 };

/* On a terminal, a line on stderr that says what is being measured, until the next thing is
 * printed. */
static void progress(struct run *run, const char *isa, const char *name) {
    run->done++;
    if (!isatty(STDERR_FILENO))
        return;
    char text[256];
    snprintf(text, sizeof text, "%d of %d: %s, %s", run->done, run->total, isa, name);
    fprintf(stderr, "\r%-*.*s", PROGRESS_WIDTH, PROGRESS_WIDTH, text);
    fflush(stderr);
}

static void end_progress(void) {
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r%*s\r", PROGRESS_WIDTH, "");
}

static const char *compiler(void) {
#if defined(__clang__)
    static char version[48];
    snprintf(version, sizeof version, "clang %d.%d.%d", __clang_major__, __clang_minor__,
             __clang_patchlevel__);
    return version;
#elif defined(__GNUC__)
    return "gcc " __VERSION__;
#else
    return "unknown compiler";
#endif
}

/* None of the texts that are printed needs escapes, except what the CPU calls itself. */
static void json_text(const char *text) {
    putchar('"');
    for (; *text; text++)
        putchar((unsigned char)*text < ' ' || *text == '"' || *text == '\\' ? '?' : *text);
    putchar('"');
}

static void show_limit(struct run *run, const char *name, const struct loops *set, double rate,
                       const char *unit) {
    end_progress();
    if (run->json)
        printf("%s\n    {\"isa\": \"%s\", \"name\": \"%s\", \"unit\": \"%s\", \"value\": %.1f}",
               run->listed++ ? "," : "", set->isa, name, unit, rate * 1e-9);
    else
        printf("  %-11s  %-20s  %8.1f %s\n", set->isa, name, rate * 1e-9, unit);
    fflush(stdout);
}

static void show_attention(struct run *run, const char *name, const struct shape *s,
                           const struct loops *set, const struct workload *w,
                           const struct measured *m) {
    const char *unit = workload_reads(w) ? "GB/s" : "GFLOP/s";
    end_progress();
    if (run->json) {
        printf("%s\n    {\"isa\": \"%s\", \"name\": \"%s\", \"q_heads\": %" PRId64
               ", \"kv_heads\": %" PRId64 ", \"q_len\": %" PRId64 ", \"keys\": %" PRId64
               ", \"dim\": %" PRId64 ", \"causal\": %d,\n",
               run->listed++ ? "," : "", set->isa, name, s->q_heads, s->kv_heads, s->q_len, s->keys,
               s->dim, s->causal);
        printf("     \"seconds\": %.4e, \"unit\": \"%s\", \"rate\": %.2f, \"limit\": %.2f, "
               "\"ratio\": %.4f, \"ratio_p10\": %.4f, \"ratio_p90\": %.4f, \"bursts\": %d}",
               m->seconds, unit, m->rate * 1e-9, m->limit * 1e-9, m->ratio, m->low, m->high,
               m->bursts);
    } else {
        printf("  %-11s  %-36s  %9.1f us  %6.1f of %6.1f %-7s  %5.3f [%5.3f %5.3f]\n", set->isa,
               name, m->seconds * 1e6, m->rate * 1e-9, m->limit * 1e-9, unit, m->ratio, m->low,
               m->high);
    }
    fflush(stdout);
}

/* ---- Measuring ------------------------------------------------------------------------------- */

static int measure_limits(struct run *run) {
    const size_t most = run->small ? reads[N_READS - 1].small_kib : reads[N_READS - 1].kib;
    float *data = workload_floats(most * 1024 / sizeof(float));
    if (!data)
        return cli_fail(-1, "not enough memory for %zu KiB", most);
    for (int i = 0; i < run->n_sets; i++) {
        const struct loops *set = run->sets[i];
        struct limit limit;
        progress(run, set->isa, "multiply-add");
        limit_multiply_add(&limit, set);
        show_limit(run, "multiply-add f32", set, measure_limit(&limit, &run->limits), "GFLOP/s");
        if (loops_have_dot_bf16(set)) {
            limit_dot_bf16(&limit, set);
            show_limit(run, "dot product bf16", set, measure_limit(&limit, &run->limits),
                       "GFLOP/s");
        }
        if (loops_have_dot_i8(set)) {
            limit_dot_i8(&limit, set);
            show_limit(run, "dot product int8", set, measure_limit(&limit, &run->limits), "Gop/s");
        }
        for (int r = 0; r < N_READS; r++) {
            const size_t kib = run->small ? reads[r].small_kib : reads[r].kib;
            char name[NAME_SIZE];
            snprintf(name, sizeof name, kib < 1024 ? "read %zu KiB" : "read %zu MiB",
                     kib < 1024 ? kib : kib / 1024);
            progress(run, set->isa, name);
            limit_read(&limit, set, data, kib * 1024 / sizeof(float), data, 0);
            show_limit(run, name, set, measure_limit(&limit, &run->limits), "GB/s");
        }
    }
    free(data);
    return 0;
}

static int measure_row(struct run *run, const struct shape *shape) {
    struct workload w;
    char name[NAME_SIZE];
    shape_name(shape, name);
    int result = workload_make(&w, shape);
    if (result)
        cli_fail(-1, "not enough memory for %s", name);
    for (int i = 0; i < run->n_sets && result == 0; i++) {
        const struct loops *set = run->sets[i];
        progress(run, set->isa, name);
        attn_status status = attn_set_isa(set->isa);
        if (status == ATTN_OK)
            status = workload_ready(&w, NULL);
        if (status != ATTN_OK) {
            end_progress();
            result = cli_fail(-1, "%s: %s", name, attn_status_string(status));
            break;
        }
        const int64_t wrong = workload_check(&w);
        if (wrong) {
            end_progress();
            result = wrong < 0 ? cli_fail(-1, "not enough memory")
                               : cli_fail(-1, "%s on %s: %" PRId64 " values are beyond the bound",
                                          name, set->isa, wrong);
            break;
        }
        struct limit limit;
        struct measured measured;
        const struct work work = workload_work(&w);
        workload_limit(&w, set, &limit);
        measure(&work, &limit, &run->attention, &measured);
        show_attention(run, name, shape, set, &w, &measured);
    }
    workload_free(&w);
    return result;
}

static int run_all(struct run *run) {
    if (run->json) {
        printf("{\n  \"version\": \"%s\",\n  \"cpu\": ", attn_version());
        json_text(machine_cpu_name());
        printf(",\n  \"compiler\": ");
        json_text(compiler());
        printf(",\n  \"quick\": %s,\n  \"limits\": [", run->small ? "true" : "false");
    } else {
        printf("libattn %s, compiled by %s, on %s\n\n", attn_version(), compiler(),
               machine_cpu_name());
        if (run->small)
            printf("Smaller shapes: these figures say little about others.\n\n");
        printf("Limits of one core\n\n");
    }
    if (measure_limits(run))
        return -1;

    run->listed = 0;
    if (run->json) {
        printf("\n  ],\n  \"attention\": [");
    } else {
        printf("\nAttention on one thread, of the limit just before and after\n\n");
        printf("  %-11s  %-36s  %12s  %-24s  ratio [ 10 %%  90 %%]\n", "kernels", "work", "a call",
               "  rate of  limit");
    }
    for (int r = 0; r < N_ROWS; r++)
        if (measure_row(run, run->small ? &rows[r].small : &rows[r].shape))
            return -1;
    if (run->json)
        printf("\n  ]\n}\n");
    return 0;
}

int cmd_bench(int argc, char **argv) {
    static struct run run;
    const char *isa = NULL;
    int done, quick = 0;
    const struct cli_option options[] = {
        {"--isa", &isa, NULL},
        {"--json", NULL, &run.json},
        {"--quick", NULL, &quick},
        {NULL, NULL, NULL},
    };
    const int status = cli_parse(argc, argv, options, NULL, help, &done);
    if (status != CLI_DONE || done)
        return status;
    const char *chosen = machine_select(isa);
    if (!chosen)
        return CLI_FAILED;
    const char *asked = getenv("ATTN_ISA");
    const int one = isa || (asked && *asked);
    int by_name = 0; /* after scalar: sets that are the same ones here, in f32 */
    for (const char *const *name = attn_isa_list(); *name && run.n_sets < MAX_SETS; name++) {
        const int is_scalar = strcmp(*name, "scalar") == 0;
        if (one ? strcmp(*name, chosen) == 0
                : !by_name && (!is_scalar || strcmp(chosen, "scalar") == 0))
            run.sets[run.n_sets++] = loops_of(*name);
        by_name |= is_scalar;
    }

    run.small = quick || strcmp(chosen, "scalar") == 0;
    run.limits = run.attention = measure_defaults;
    run.limits.seconds = quick ? 0.01 : 0.4;
    run.attention.seconds = quick ? 0.02 : 1;
    run.attention.min_bursts = quick ? 3 : 7;
    run.total = run.n_sets * (1 + N_READS + N_ROWS);
    return run_all(&run) ? CLI_FAILED : CLI_DONE;
}
