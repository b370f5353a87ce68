/* threads/N/SHAPE: how many times faster a call is on N OpenMP threads than on one, the two
 *     interleaved, by the clock on the wall; so on a machine that others use, N is out of reach.
 * threads/N/read: the same of reading memory.
 * threads/N/SHAPE/read: a decode step on N threads against reading its keys and values on them.
 *
 * With the best kernel set (or that of --isa), for 2, 4, 8, ... threads up to the CPUs that this
 * process may use.
 *
 * SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>

#include "bench.h"

#ifdef ATTN_HAVE_OPENMP
#include <omp.h>

static const struct shape shapes[] = {
    {"prefill-2048-d128", 1, 8, 8, 2048, 2048, 128, 1},
    {"decode-16384-gqa", 1, 32, 8, 1, 16384, 128, 0},
    {"decode-16384-mha", 1, 16, 16, 1, 16384, 128, 0},
    {"tiny-64", 1, 8, 8, 64, 64, 64, 0},
};

static void scaling(gbench_state *state, const void *arg) {
    const struct bench_case *about = arg;
    const size_t n_threads = (size_t)about->number;
    attn_executor executor = attn_openmp_executor(n_threads);
    struct workload alone, together;
    const int made = workload_make(&alone, about->row) == 0;
    if (workload_make(&together, about->row) || !made) {
        gbench_fail(state, "not enough memory");
    } else if (bench_use(state, about) == 0 && bench_prepare(state, &alone, NULL) == 0 &&
               bench_prepare(state, &together, &executor) == 0) {
        const struct work work = workload_work(&together), other = workload_work(&alone);
        /* As a rate, so that more is better: one call each. */
        const struct work one = {work.call, work.arg, 1}, other_one = {other.call, other.arg, 1};
        struct limit limit;
        struct measured measured;
        struct measure_settings settings = bench_settings();
        settings.clock = MEASURE_WALL;
        limit_work(&limit, &other_one);
        measure(&one, &limit, &settings, &measured);
        bench_report(state, &measured, "", "speed of one thread", 1);
    }
    workload_free(&alone);
    workload_free(&together);
}

/* ---- Reading on several threads -------------------------------------------------------------- */

enum { READ_BYTES = 128 << 20, READ_PIECE = (1 << 20) / sizeof(float) };

/* Two buffers of n floats, cut into pieces. */
struct reading {
    const struct loops *loops;
    const float *data[2];
    size_t n, ahead;
    attn_executor *executor; /* null: this thread */
};

static size_t pieces(const struct reading *r) { return (r->n + READ_PIECE - 1) / READ_PIECE; }

static void read_piece(void *arg, size_t index, size_t worker) {
    const struct reading *r = arg;
    const size_t begin = index / 2 * READ_PIECE, left = r->n - begin;
    static float sinks[64][16]; /* a cache line each */
    sinks[worker % 64][0] +=
        r->loops->read(r->data[index % 2] + begin, left < READ_PIECE ? left : READ_PIECE, r->ahead);
}

static void read_pieces(void *arg) {
    struct reading *r = arg;
    if (r->executor)
        r->executor->run(r->executor, 2 * pieces(r), read_piece, r);
    else
        for (size_t i = 0; i < 2 * pieces(r); i++)
            read_piece(r, i, 0);
}

static void read_scaling(gbench_state *state, const void *arg) {
    const struct bench_case *about = arg;
    attn_executor executor = attn_openmp_executor((size_t)about->number);
    const size_t n = READ_BYTES / sizeof(float);
    float *data = workload_floats(n);
    if (!data) {
        gbench_fail(state, "not enough memory");
        return;
    }
    struct reading together = {about->loops, {data, data + n / 2}, n / 2, 512, &executor};
    struct reading alone = together;
    alone.executor = NULL;
    const struct work work = {read_pieces, &together, READ_BYTES};
    const struct work other = {read_pieces, &alone, READ_BYTES};
    struct limit limit;
    struct measured measured;
    struct measure_settings settings = bench_settings();
    settings.clock = MEASURE_WALL;
    limit_work(&limit, &other);
    measure(&work, &limit, &settings, &measured);
    bench_report(state, &measured, "GB/s", "speed of one thread", 1);
    free(data);
}

static void decode_of_read(gbench_state *state, const void *arg) {
    const struct bench_case *about = arg;
    attn_executor executor = attn_openmp_executor((size_t)about->number);
    struct workload w;
    if (workload_make(&w, about->row)) {
        gbench_fail(state, "not enough memory");
    } else if (bench_use(state, about) == 0 && bench_prepare(state, &w, &executor) == 0) {
        const struct work work = workload_work(&w);
        struct reading plain = {about->loops, {w.k, w.v}, w.kv_size, 0, &executor};
        struct reading prefetched = plain;
        prefetched.ahead = 512;
        struct limit limit = {.n_ways = 2, .best = 1};
        limit.ways[0] = (struct work){read_pieces, &plain, work.amount};
        limit.ways[1] = (struct work){read_pieces, &prefetched, work.amount};
        struct measured measured;
        struct measure_settings settings = bench_settings();
        settings.clock = MEASURE_WALL;
        measure(&work, &limit, &settings, &measured);
        bench_report(state, &measured, "GB/s", "streaming read by all threads", 1);
    }
    workload_free(&w);
}

void bench_add_threads(void) {
    const struct attn_kernels *best = bench_kernel_sets()[0];
    for (int n = 2; n <= omp_get_num_procs(); n *= 2) {
        struct bench_case about = bench_case_of(best, NULL);
        about.number = n;
        bench_add(BENCH_ALL, read_scaling, about, "threads/%d/read", n);
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
            about.row = &shapes[i];
            bench_add(i == 0 ? BENCH_QUICK : BENCH_ALL, scaling, about, "threads/%d/%s", n,
                      shapes[i].name);
            if (shapes[i].q_len == 1)
                bench_add(BENCH_ALL, decode_of_read, about, "threads/%d/%s/read", n,
                          shapes[i].name);
        }
    }
}
#else
void bench_add_threads(void) {}
#endif
