/* Times libattn next to the libraries that its user would pick instead: same inputs, same core, one
 * thread, call by call in turn, outputs compared first.
 *
 *     peers [--seconds PER_SHAPE] [--only TEXT_IN_NAME] [--core N] [--shapes FILE]
 *           [--peers FOLDER] [--table FILE] [--cache f32|f16|i8]
 *
 * SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn.h"
#include "built.h"
#include "measure.h"
#include "peers.h"

static const struct peer *const peers[] = {&peer_onnxruntime, &peer_ggml, &peer_openblas};
enum { ONNXRUNTIME, GGML, OPENBLAS, PEERS, MOST_RUN = 1 + PEERS * MOST_WAYS };

/* ---- libattn ----------------------------------------------------------------------------------- */

struct own {
    attn_problem problem;
    void *workspace;
    size_t size;
    float *out;
    void *k, *v, *scales; /* a cache that is not f32 */
};

static int run_own(void *state) {
    struct own *o = state;
    return attn_forward(&o->problem, o->workspace, o->size, NULL) != ATTN_OK;
}

static void fetch_own(const void *state, const struct shape *s, float *out) {
    memcpy(out, ((const struct own *)state)->out, q_size(s) * sizeof *out);
}

static void close_own(void *state) {
    struct own *o = state;
    free(o->workspace), free(o->out), free(o->k), free(o->v), free(o->scales), free(o);
}

/* Keys or values in a cache of another type: a page for each batch. group: of int8 features. */
static void *stored(const struct shape *s, const float *x, attn_type type, int64_t group,
                    float *scales) {
    const int64_t groups = group ? s->dim / group : 0, page = s->kv_heads * s->keys;
    void *data = room(kv_size(s) * 2);
    int64_t *slots = room((size_t)s->keys * sizeof *slots);
    const attn_cache cache = {.data = data,
                              .type = type,
                              .stride_page = page * s->dim,
                              .stride_head = s->keys * s->dim,
                              .stride_token = s->dim,
                              .n_pages = s->batch,
                              .page_len = s->keys,
                              .scales = scales,
                              .scale_group = group,
                              .scale_stride_page = page * groups,
                              .scale_stride_head = s->keys * groups,
                              .scale_stride_token = groups};
    for (int64_t b = 0; b < s->batch; b++) {
        const attn_input tokens = {x + b * page * s->dim, ATTN_F32, 0, s->keys * s->dim, s->dim};
        for (int64_t i = 0; i < s->keys; i++)
            slots[i] = b * s->keys + i;
        if (attn_append(&tokens, s->keys, s->kv_heads, s->dim, slots, &cache) != ATTN_OK) {
            fprintf(stderr, "peers: %s does not fit in a cache\n", s->name);
            exit(1);
        }
    }
    free(slots);
    return data;
}

/* int8 with a scale for 32 features, as ggml has it. */
enum { GROUP = 32 };

static void use_cache(const struct inputs *in, struct own *o) {
    const struct shape *s = &in->shape;
    attn_problem *p = &o->problem;
    const int is_i8 = in->cache == CACHE_I8;
    const int64_t group = is_i8 ? GROUP : 0, groups = (s->dim + GROUP - 1) / GROUP;
    const size_t n_scales = is_i8 ? kv_size(s) / (size_t)s->dim * (size_t)groups : 0;
    float *k_scales = o->scales = room((2 * n_scales + 1) * sizeof(float));
    p->k.type = p->v.type = is_i8 ? ATTN_I8 : ATTN_F16;
    p->k_scales = (attn_scales){.data = k_scales,
                                .group = group,
                                .stride_batch = s->kv_heads * s->keys * groups,
                                .stride_head = s->keys * groups,
                                .stride_token = groups};
    p->v_scales = p->k_scales;
    p->v_scales.data = k_scales + n_scales;
    p->k.data = o->k = stored(s, in->k, p->k.type, group, is_i8 ? k_scales : NULL);
    p->v.data = o->v = stored(s, in->v, p->v.type, group, is_i8 ? k_scales + n_scales : NULL);
}

static struct way own_way(const struct inputs *in) {
    const struct shape *s = &in->shape;
    struct own *o = room(sizeof *o);
    o->out = room(q_size(s) * sizeof *o->out);
    o->problem = attn_problem_bhld(s->batch, s->q_heads, s->kv_heads, s->q_len, s->keys, s->dim,
                                   s->dim, in->q, in->k, in->v, o->out);
    o->problem.causal = s->causal;
    o->problem.align = s->causal ? ATTN_ALIGN_BOTTOM_RIGHT : ATTN_ALIGN_UNSET;
    if (in->cache != CACHE_F32)
        use_cache(in, o);
    if (attn_workspace_size(&o->problem, 1, &o->size) != ATTN_OK) {
        fprintf(stderr, "peers: %s is no problem\n", s->name);
        exit(1);
    }
    o->workspace = room(o->size);
    return (struct way){"libattn", 0, 1, o, run_own, fetch_own, close_own};
}

static struct inputs inputs_of(const struct shape *s, enum cache cache) {
    return (struct inputs){*s, cache, normal_floats(q_size(s), 1), normal_floats(kv_size(s), 2),
                           normal_floats(kv_size(s), 3)};
}

/* ---- One shape --------------------------------------------------------------------------------- */

/* What is left of a peer at a shape: its fastest way. */
struct best {
    const char *name;
    double seconds, ratio, low, high;
};

struct result {
    size_t rounds;
    double seconds; /* libattn's */
    struct best best[PEERS];
    double listed; /* seconds of ggml's way that does not count */
};

/* The largest differences from libattn, and what was allowed; [1]: of ways that do not count. */
static double worst_difference[PEERS][2], allowed[PEERS][2];

/* The largest difference, NAN where one is. */
static double difference(const float *a, const float *b, size_t n) {
    double most = 0;
    for (size_t i = 0; i < n; i++) {
        const double d = fabs((double)a[i] - (double)b[i]);
        most = d <= most ? most : d;
    }
    return most;
}

/* Runs it once and holds its result against libattn's. */
static int agrees(const struct way *w, size_t peer, const struct shape *s, const float *expected) {
    float *out = room(q_size(s) * sizeof *out);
    int ok = w->run(w->state) == 0;
    if (ok) {
        w->fetch(w->state, s, out);
        const double d = difference(out, expected, q_size(s));
        double *worst = &worst_difference[peer][!w->counts];
        *worst = d <= *worst ? *worst : d;
        allowed[peer][!w->counts] = w->tolerance;
        ok = d <= w->tolerance;
        if (!ok)
            fprintf(stderr, "%s: %s, %s: differs by %.2g, more than %.0e\n", s->name,
                    peers[peer]->name, w->name, d, w->tolerance);
    }
    free(out);
    return ok;
}

static struct result run_shape(const struct shape *s, enum cache cache, const int is_open[PEERS],
                               double seconds, int *failures) {
    static struct timed timed[MOST_RUN];
    struct inputs in = inputs_of(s, cache);
    struct way ways[MOST_RUN], *running[MOST_RUN];
    size_t n = 1, peer_of[MOST_RUN] = {0};
    ways[0] = own_way(&in);
    running[0] = &ways[0];
    float *expected = room(q_size(s) * sizeof *expected);
    if (run_own(ways[0].state) != 0)
        exit(1);
    fetch_own(ways[0].state, s, expected);
    for (size_t p = 0; p < PEERS; p++) {
        struct way found[MOST_WAYS];
        const int n_found = is_open[p] ? peers[p]->ways(&in, found) : 0;
        for (int i = 0; i < n_found; i++) {
            if (agrees(&found[i], p, s, expected)) {
                ways[n] = found[i];
                running[n] = &ways[n];
                peer_of[n++] = p;
            } else {
                found[i].close(found[i].state);
                ++*failures;
            }
        }
    }
    struct result r = {.rounds = measure(running, n, seconds, timed)};
    if (r.rounds == 0)
        ++*failures;
    for (size_t i = 0; i < n && r.rounds > 0; i++) {
        const double median = quantile(timed[i].seconds, r.rounds, 0.5);
        const struct best b = {ways[i].name, median, quantile(timed[i].ratios, r.rounds, 0.5),
                               quantile(timed[i].ratios, r.rounds, 0.1),
                               quantile(timed[i].ratios, r.rounds, 0.9)};
        struct best *best = &r.best[peer_of[i]];
        if (i == 0)
            r.seconds = median;
        else if (!ways[i].counts)
            r.listed = median;
        else if (!best->name || b.ratio < best->ratio)
            *best = b;
    }
    for (size_t i = 0; i < n; i++)
        ways[i].close(ways[i].state);
    free(in.q), free(in.k), free(in.v), free(expected);
    return r;
}

/* ---- The table --------------------------------------------------------------------------------- */

static const char *microseconds(double seconds, char text[16]) {
    if (seconds > 0)
        snprintf(text, 16, seconds < 1e-3 ? "%.1f" : "%.0f", seconds * 1e6);
    return seconds > 0 ? text : "-";
}

static const char *ratio_text(const struct best *b, char text[32]) {
    if (b && b->name)
        snprintf(text, 32, "%.2f [%.2f %.2f]", b->ratio, b->low, b->high);
    return b && b->name ? text : "-";
}

/* ONNX Runtime's operators by their initials. */
static const char *initials(const char *name) {
    return !name                       ? ""
           : strchr(name, 'G') == name ? "gqa"
           : strchr(name, 'M') == name ? "mha"
                                       : "att";
}

struct means {
    double log_sum[2];
    int n[2];
};

static void print_row(const struct shape *s, const struct result *r, FILE *table,
                      struct means *means) {
    char us[5][16], text[2][32];
    const struct best *ort = &r->best[ONNXRUNTIME], *ggml = &r->best[GGML];
    const struct best *rival = !ort->name                                ? ggml
                               : !ggml->name || ort->ratio < ggml->ratio ? ort
                                                                         : ggml;
    const struct best *against[2] = {rival, &r->best[OPENBLAS]};
    for (int i = 0; i < 2; i++)
        if (against[i]->name)
            means->log_sum[i] += log(against[i]->ratio), means->n[i]++;
    printf("%-22s %9s %9s %-3s %9s %9s %9s   %-18s  %-18s %5zu\n", s->name,
           microseconds(r->seconds, us[0]), microseconds(ort->seconds, us[1]), initials(ort->name),
           microseconds(ggml->seconds, us[2]), microseconds(r->listed, us[3]),
           microseconds(r->best[OPENBLAS].seconds, us[4]), ratio_text(against[0], text[0]),
           ratio_text(against[1], text[1]), r->rounds);
    fflush(stdout);
    if (table) {
        fprintf(table, "%s %.2f", s->name, r->seconds * 1e6);
        for (int p = 0; p < PEERS; p++) {
            if (r->best[p].name)
                fprintf(table, " %.2f", r->seconds * r->best[p].ratio * 1e6);
            else
                fprintf(table, " -");
        }
        fprintf(table, "\n");
    }
}

static const char *cpu_name(void) {
    static char line[256];
    FILE *f = fopen("/proc/cpuinfo", "r");
    const char *name = "unknown CPU";
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "model name", 10) == 0 && strchr(line, ':')) {
            line[strcspn(line, "\n")] = '\0';
            name = strchr(line, ':') + 2;
            break;
        }
    if (f)
        fclose(f);
    return name;
}

/* To the terminal and, as comments, into the table. */
#define TELL(table, ...)                                                                           \
    do {                                                                                           \
        printf(__VA_ARGS__);                                                                       \
        if (table)                                                                                 \
            fprintf(table, "# " __VA_ARGS__);                                                      \
    } while (0)

static int usage(void) {
    fprintf(stderr, "usage: peers [--seconds PER_SHAPE] [--only TEXT_IN_NAME] [--core N]\n"
                    "             [--shapes FILE] [--peers FOLDER] [--table FILE]\n"
                    "             [--cache f32|f16|i8]\n");
    return 2;
}

int main(int argc, char **argv) {
    const char *only = "", *shapes = "bench/peers/shapes.txt", *folder = "build/peers";
    const char *table_path = NULL;
    static const char *const caches[] = {"f32", "f16", "i8"};
    enum cache cache = CACHE_F32;
    double seconds = 6;
    int core = -1;
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 == argc)
            return usage();
        if (strcmp(argv[i], "--seconds") == 0)
            seconds = atof(argv[i + 1]);
        else if (strcmp(argv[i], "--only") == 0)
            only = argv[i + 1];
        else if (strcmp(argv[i], "--core") == 0)
            core = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--shapes") == 0)
            shapes = argv[i + 1];
        else if (strcmp(argv[i], "--peers") == 0)
            folder = argv[i + 1];
        else if (strcmp(argv[i], "--table") == 0)
            table_path = argv[i + 1];
        else if (strcmp(argv[i], "--cache") == 0) {
            for (cache = CACHE_F32; strcmp(argv[i + 1], caches[cache]) != 0;)
                if (++cache > CACHE_I8)
                    return usage();
        } else
            return usage();
    }
    cpu_set_t set;
    sched_getaffinity(0, sizeof set, &set);
    for (int i = 0; core < 0 && i < CPU_SETSIZE; i++) /* the last one: the first gets interrupts */
        if (CPU_ISSET(i, &set))
            core = CPU_COUNT(&set) == 1 || i > 0 ? i : -1;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0)
        perror("peers: the core is not to be had");

    FILE *list = fopen(shapes, "r"), *table = table_path ? fopen(table_path, "w") : NULL;
    if (!list || (table_path && !table)) {
        perror(list ? table_path : shapes);
        return 1;
    }
    TELL(table, "%s, one thread on core %d; libattn's kernels: %s\n", cpu_name(), core, attn_isa());
    TELL(table, "%s, %s, commit %s\n", BUILT_COMPILER, BUILT_FLAGS, BUILT_COMMIT);
    int is_open[PEERS], n_open = 0;
    for (size_t p = 0; p < PEERS; p++) {
        char version[VERSION_SIZE];
        const char *reason = peers[p]->open(folder, version);
        is_open[p] = !reason;
        printf("%s %s%s\n", peers[p]->name, reason ? "is missing: " : "",
               reason ? reason : version);
        if (table && !reason)
            fprintf(table, "%s%s %s", n_open++ ? ", " : "# ", peers[p]->name, version);
    }
    printf(
        "\nMedians, in turn with libattn's calls, %.3g s a shape. `times` is by how much libattn "
        "is faster than\nthe better of ONNX Runtime and ggml (%s), and than OpenBLAS: the "
        "median of ratios to the calls\nbefore and after it [10 %% 90 %%].\n\n",
        seconds, caches[cache]);
    static const char *const ggml_types[] = {"ggml f32", "ggml f16", "ggml q8"};
    printf("%-22s %9s %13s %9s %9s %9s   %-18s  %-18s %5s\n", "microseconds", "libattn",
           "ONNX Runtime", ggml_types[cache], cache == CACHE_F32 ? "(f16)" : "", "OpenBLAS",
           "times, best of two", "times, OpenBLAS", "n");
    if (table)
        fprintf(table,
                "%s# in turn call by call; others: libattn's time by the median of ratios\n"
                "shape libattn ONNX-Runtime ggml OpenBLAS\n",
                n_open ? "\n" : "");

    char line[256];
    struct means means = {{0, 0}, {0, 0}};
    int failures = 0;
    while (fgets(line, sizeof line, list)) {
        struct shape s;
        long long n[6];
        if (line[0] == '#' || sscanf(line, "%31s %lld %lld %lld %lld %lld %lld %d", s.name, &n[0],
                                     &n[1], &n[2], &n[3], &n[4], &n[5], &s.causal) != 8)
            continue;
        s.batch = n[0], s.q_heads = n[1], s.kv_heads = n[2];
        s.q_len = n[3], s.keys = n[4], s.dim = n[5];
        if (!strstr(s.name, only))
            continue;
        const struct result r = run_shape(&s, cache, is_open, seconds, &failures);
        print_row(&s, &r, table, &means);
    }
    fclose(list);
    printf("%-22s %53s", "geometric mean", "");
    for (int i = 0; i < 2; i++)
        printf(means.n[i] ? "   %-17.2f" : "   -                ",
               exp(means.log_sum[i] / fmax(means.n[i], 1)));
    printf("\n\nLargest difference of an output from libattn's (allowed):\n");
    for (size_t p = 0; p < PEERS; p++)
        for (int listed = 0; listed < 2; listed++)
            if (allowed[p][listed] > 0)
                printf("    %s%s: %.1e (%.0e)\n", peers[p]->name, listed ? " in f16" : "",
                       worst_difference[p][listed], allowed[p][listed]);
    if (table && fclose(table) != 0) {
        perror(table_path);
        return 1;
    }
    return failures > 0;
}
