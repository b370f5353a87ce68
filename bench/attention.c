/* attn/ISA/f32/SHAPE, attn/ISA/bf16/SHAPE: whole calls on one thread, against multiply-adds or, for a single row, against
 *     reading the same keys and values.
 * length/ISA/dD/L: the same over lengths, 8 heads, for the picture.
 * rows/ISA/4096/N: N query rows against 4096 keys, 32 heads on 8; the time is that of one row.
 * one-more-row/ISA/4096/N: rows a second of N rows, as a multiple of those of N - 1.
 *
 * SPDX-License-Identifier: MIT */
#include "bench.h"

static void whole_call(gbench_state *state, const struct bench_case *about,
                       const struct shape *shape, attn_type type, double calls) {
    struct workload w;
    const int failed = workload_make(&w, shape);
    if (!failed && type == ATTN_BF16)
        workload_to_bf16(&w);
    if (failed) {
        gbench_fail(state, "not enough memory");
    } else if (bench_use(state, about) == 0 && bench_prepare(state, &w, NULL) == 0) {
        const struct work work = workload_work(&w);
        struct limit limit;
        workload_limit(&w, about->loops, &limit);
        const int reads = workload_reads(&w);
        bench_measure(state, &work, &limit, reads ? "GB/s" : "GFLOP/s",
                      reads ? "streaming read" : "multiply-adds", calls);
        gbench_set_counter(state, "flops", workload_flops(&w));
        gbench_set_counter(state, "flops_per_byte", workload_flops(&w) / workload_bytes(&w));
    }
    workload_free(&w);
}

static void attention(gbench_state *state, const void *arg) {
    const struct bench_case *about = arg;
    whole_call(state, about, about->row, ATTN_F32, 1);
}

static void attention_bf16(gbench_state *state, const void *arg) {
    const struct bench_case *about = arg;
    whole_call(state, about, about->row, ATTN_BF16, 1);
}

static void length(gbench_state *state, const void *arg) {
    const struct bench_case *about = arg;
    struct shape shape = *(const struct shape *)about->row;
    shape.q_len = shape.keys = about->number;
    whole_call(state, about, &shape, ATTN_F32, 1);
}

static struct shape rows_shape(int64_t n) {
    return (struct shape){"rows", 1, 32, 8, n, 4096, 128, 0};
}

/* Also a single row against multiply-adds, so that the ratios compare. */
static void few_rows(gbench_state *state, const void *arg) {
    const struct bench_case *about = arg;
    const struct shape shape = rows_shape(about->number);
    struct workload w;
    if (workload_make(&w, &shape)) {
        gbench_fail(state, "not enough memory");
    } else if (bench_use(state, about) == 0 && bench_prepare(state, &w, NULL) == 0) {
        struct work work = workload_work(&w);
        work.amount = workload_flops(&w);
        struct limit limit;
        limit_multiply_add(&limit, about->loops);
        bench_measure(state, &work, &limit, "GFLOP/s", "multiply-adds; time of one row",
                      (double)about->number);
    }
    workload_free(&w);
}

static void one_more_row(gbench_state *state, const void *arg) {
    const struct bench_case *about = arg;
    const struct shape shape = rows_shape(about->number), one_less = rows_shape(about->number - 1);
    struct workload w, other;
    const int made = workload_make(&w, &shape) == 0;
    if (workload_make(&other, &one_less) || !made) {
        gbench_fail(state, "not enough memory");
    } else if (bench_use(state, about) == 0 && bench_prepare(state, &w, NULL) == 0 &&
               bench_prepare(state, &other, NULL) == 0) {
        struct work work = workload_work(&w), of_other = workload_work(&other);
        work.amount = (double)about->number;
        of_other.amount = (double)about->number - 1;
        struct limit limit;
        limit_work(&limit, &of_other);
        bench_measure(state, &work, &limit, "", "of one row less; time of a row",
                      (double)about->number);
    }
    workload_free(&w);
    workload_free(&other);
}

void bench_add_attention(void) {
    static const struct {
        enum bench_set set;
        struct shape shape;
    } shapes[] = {
#define SHAPE(set, name, q_heads, kv_heads, q_len, keys, dim, causal)                              \
    {set, {name, 1, q_heads, kv_heads, q_len, keys, dim, causal}},
#include "shapes.def"
#undef SHAPE
    };
    static const struct shape lengths[] = {
        {"d64", 1, 8, 8, 0, 0, 64, 0},
        {"d128", 1, 8, 8, 0, 0, 128, 0},
    };
    static const int64_t counts[] = {1, 2, 3, 4, 8, 16, 32, 64};
    const struct attn_kernels *const *sets = bench_kernel_sets();
    for (size_t i = 0; sets[i]; i++)
        for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
            bench_add(shapes[s].set, attention, bench_case_of(sets[i], &shapes[s].shape),
                      "attn/%s/f32/%s", sets[i]->name, shapes[s].shape.name);
    /* Those of sets that make f32 of bf16 are there to compare with. */
    const struct attn_kernels *const *of_bf16[] = {bench_bf16_sets(), sets};
    for (size_t n = 0; n < 2; n++)
        for (const struct attn_kernels *const *set = of_bf16[n]; *set; set++)
            for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
                if (n == 0 || !(*set)->dot)
                    bench_add(n == 0 ? shapes[s].set : BENCH_ALL, attention_bf16,
                              bench_case_of(*set, &shapes[s].shape), "attn/%s/bf16/%s",
                              (*set)->name, shapes[s].shape.name);
    for (size_t i = 0; sets[i]; i++)
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
            struct bench_case about = bench_case_of(sets[i], NULL);
            about.number = counts[c];
            bench_add(BENCH_ALL, few_rows, about, "rows/%s/4096/%d", sets[i]->name, (int)counts[c]);
        }
    for (size_t i = 0; sets[i]; i++)
        for (int64_t n = 2; n <= 64; n++) {
            struct bench_case about = bench_case_of(sets[i], NULL);
            about.number = n;
            bench_add(BENCH_ALL, one_more_row, about, "one-more-row/%s/4096/%d", sets[i]->name,
                      (int)n);
        }
    for (size_t i = 0; sets[i]; i++)
        for (size_t s = 0; s < sizeof lengths / sizeof lengths[0]; s++)
            for (int64_t n = 16; n <= 4096; n *= 2) {
                struct bench_case about = bench_case_of(sets[i], &lengths[s]);
                about.number = n;
                bench_add(BENCH_ALL, length, about, "length/%s/%s/%d", sets[i]->name,
                          lengths[s].name, (int)n);
            }
}
