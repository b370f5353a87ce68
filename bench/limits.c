/* limit/ISA/...: what one core can do, each next to the set's own multiply-adds.
 *
 * SPDX-License-Identifier: MIT */
#include <stdlib.h>

#include "bench.h"

/* Against itself: what is left is the noise of the method. */
static void multiply_add(gbench_state *state, const void *arg) {
    const struct bench_case *about = arg;
    struct limit limit;
    limit_multiply_add(&limit, about->loops);
    const struct work work = limit.ways[0];
    bench_measure(state, &work, &limit, "GFLOP/s", "multiply-adds", 1);
}

static void dot_bf16(gbench_state *state, const void *arg) {
    const struct bench_case *about = arg;
    struct limit dot, limit;
    limit_dot_bf16(&dot, about->loops);
    limit_multiply_add(&limit, about->loops);
    bench_measure(state, &dot.ways[0], &limit, "GFLOP/s", "f32 multiply-adds", 1);
}

static void dot_i8(gbench_state *state, const void *arg) {
    const struct bench_case *about = arg;
    struct limit dot, limit;
    limit_dot_i8(&dot, about->loops);
    limit_multiply_add(&limit, about->loops);
    bench_measure(state, &dot.ways[0], &limit, "Gop/s", "f32 multiply-adds", 1);
}

/* The plain loop against the best of it and the two that prefetch. */
static void read_memory(gbench_state *state, const void *arg) {
    const struct bench_case *about = arg;
    const size_t n = (size_t)about->number / sizeof(float);
    float *data = workload_floats(n);
    if (!data) {
        gbench_fail(state, "not enough memory");
        return;
    }
    struct limit limit;
    limit_read(&limit, about->loops, data, n, data, 0);
    bench_measure(state, &limit.ways[0], &limit, "GB/s", "the best loop, for a plain one", 1);
    free(data);
}

void bench_add_limits(void) {
    for (const struct attn_kernels *const *set = bench_kernel_sets(); *set; set++) {
        struct bench_case about = bench_case_of(*set, NULL);
        const char *isa = (*set)->name;
        bench_add(BENCH_QUICK, multiply_add, about, "limit/%s/multiply-add", isa);
        if (loops_have_dot_bf16(about.loops))
            bench_add(BENCH_QUICK, dot_bf16, about, "limit/%s/dot-bf16", isa);
        if (loops_have_dot_i8(about.loops))
            bench_add(BENCH_QUICK, dot_i8, about, "limit/%s/dot-i8", isa);
        static const struct {
            const char *name;
            int64_t bytes;
            enum bench_set set;
        } reads[] = {{"16KiB", 16 << 10, BENCH_ALL},
                     {"256KiB", 256 << 10, BENCH_ALL},
                     {"128MiB", 128 << 20, BENCH_QUICK}};
        for (size_t i = 0; i < sizeof reads / sizeof reads[0]; i++) {
            about.number = reads[i].bytes;
            bench_add(reads[i].set, read_memory, about, "limit/%s/read-%s", isa, reads[i].name);
        }
    }
}
