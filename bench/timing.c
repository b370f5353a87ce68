/* Times attention as a fraction of what the machine can do: each call stands between two
 * measurements of the limit in the same process, because a shared machine's clock moves.
 *
 *     taskset -c 1 build/bench/timing [ISA...]          all but scalar unless named
 *     WORK="d 128" taskset -c 1 build/bench/timing      only works whose name has that in it
 *
 * SPDX-License-Identifier: MIT */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "attn.h"
#include "limits.h"

struct work {
    const char *name;
    int64_t q_heads, kv_heads, q_len, keys, dim;
    int causal;
    int streams; /* bound by reading keys and values, not by multiply-adds */
};

static const struct work works[] = {
    {"full, 8 heads, L 2048, d 128", 8, 8, 2048, 2048, 128, 0, 0},
    {"full, 8 heads, L 1536, d 64", 8, 8, 1536, 1536, 64, 0, 0},
    {"causal, 8 heads, L 1536, d 64", 8, 8, 1536, 1536, 64, 1, 0},
    {"full, 8 heads, L 128, d 64", 8, 8, 128, 128, 64, 0, 0},
    {"full, 8 heads, L 64, d 64", 8, 8, 64, 64, 64, 0, 0},
    {"full, 8 heads, L 16, d 64", 8, 8, 16, 16, 64, 0, 0},
    {"decode, 32 heads on 8, 16384 keys, d 128", 32, 8, 1, 16384, 128, 0, 1},
    {"decode, 16 heads on 16, 16384 keys, d 128", 16, 16, 1, 16384, 128, 0, 1},
};

static float sink;

/* Of this thread alone: what else runs on its core does not count. */
static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static float *random_floats(size_t n) {
    float *x = aligned_alloc(64, (n * sizeof *x + 4095) / 64 * 64);
    uint64_t s = 88172645463325252u;
    for (size_t i = 0; x && i < n; i++) {
        s ^= s << 13, s ^= s >> 7, s ^= s << 17;
        x[i] = (float)((double)(s >> 11) * 0x1p-53 * 3.4 - 1.7);
    }
    if (!x)
        exit(1);
    return x;
}

/* Operations per second of multiply-adds alone, over about 2 ms: so short that the clock is still
 * that of the call before or after it. */
static double multiply_add_rate(const struct limits *limits) {
    const double begin = seconds();
    double operations = 0;
    do
        operations += limits->multiply_add(5000, &sink);
    while (seconds() - begin < 2e-3);
    return operations / (seconds() - begin);
}

/* Bytes per second of reading both buffers once; the better of a plain and a prefetched loop. */
static double read_rate(const struct limits *limits, const float *a, const float *b, size_t n) {
    double best = 0;
    for (size_t ahead = 0; ahead <= 1024; ahead += 512) {
        const double begin = seconds();
        sink += limits->read(a, n, ahead) + limits->read(b, n, ahead);
        const double rate = 8.0 * (double)n / (seconds() - begin);
        best = rate > best ? rate : best;
    }
    return best;
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void time_work(const struct work *w, const struct limits *limits) {
    const size_t q_size = (size_t)(w->q_heads * w->q_len * w->dim);
    const size_t kv_size = (size_t)(w->kv_heads * w->keys * w->dim);
    float *q = random_floats(q_size), *k = random_floats(kv_size), *v = random_floats(kv_size);
    float *out = random_floats(q_size);
    attn_problem p = attn_problem_bhld(1, w->q_heads, w->kv_heads, w->q_len, w->keys, w->dim,
                                       w->dim, q, k, v, out);
    p.causal = w->causal;
    size_t size = 0;
    if (attn_workspace_size(&p, 1, &size) != ATTN_OK)
        exit(1);
    void *workspace = malloc(size);

    double pairs = (double)(w->q_len * w->keys);
    if (w->causal)
        pairs = (double)w->q_len * (double)(w->q_len + 1) / 2;
    const double flops = 4.0 * (double)(w->q_heads * w->dim) * pairs;
    const double amount = w->streams ? 8.0 * (double)kv_size : flops;

    enum { MOST = 4000 };
    static double ratios[MOST];
    double rates = 0, limit = 0, peaks = 0;
    int n = 0, calls = 1;
    const double start = seconds();
    while (n < MOST && (n < 9 || seconds() - start < 3)) {
        const double before =
            w->streams ? read_rate(limits, k, v, kv_size) : multiply_add_rate(limits);
        const double begin = seconds();
        for (int i = 0; i < calls; i++)
            if (attn_forward(&p, workspace, size, NULL) != ATTN_OK)
                exit(1);
        const double time = seconds() - begin, rate = amount * calls / time;
        calls = (int)fmax(1, 2e-3 * calls / time);
        const double after =
            w->streams ? read_rate(limits, k, v, kv_size) : multiply_add_rate(limits);
        limit = w->streams ? fmax(before, after) : (before + after) / 2;
        if (n++ > 0) {
            ratios[n - 2] = rate / limit;
            rates += rate, peaks += limit;
        }
    }
    n--;
    qsort(ratios, (size_t)n, sizeof ratios[0], ascending);
    printf("%-7s %-42s %5.3f  [%5.3f %5.3f]  %7.1f of %6.1f G%s\n", attn_isa(), w->name,
           ratios[n / 2], ratios[n / 10], ratios[n * 9 / 10], rates / n / 1e9, peaks / n / 1e9,
           w->streams ? "B/s" : "FLOP/s");
    fflush(stdout);
    free(q), free(k), free(v), free(out), free(workspace);
}

static const struct limits *const all_limits[] = {
#define ATTN_ISA(isa) &limits_##isa,
#include "isa.def"
#undef ATTN_ISA
};

int main(int argc, char **argv) {
    const char *only = getenv("WORK");
    printf(
        "ISA     work                                       ratio  [ 10 %%  90 %%]   mean rate\n");
    for (const char *const *isa = attn_isa_list(); *isa; isa++) {
        int wanted = argc == 1 && strcmp(*isa, "scalar") != 0;
        for (int i = 1; i < argc; i++)
            wanted |= strcmp(argv[i], *isa) == 0;
        if (!wanted || attn_set_isa(*isa) != ATTN_OK)
            continue;
        for (size_t l = 0; l < sizeof all_limits / sizeof all_limits[0]; l++)
            if (strcmp(all_limits[l]->isa, *isa) == 0)
                for (size_t i = 0; i < sizeof works / sizeof works[0]; i++)
                    if (!only || strstr(works[i].name, only))
                        time_work(&works[i], all_limits[l]);
    }
    return sink == 12345.0f; /* never: the reads and multiply-adds have to be kept */
}
