/* paged/ISA/TYPE/block-N: a decode step over a cache in pages of N keys, in no order, as a ratio to the
 *     same call over a contiguous cache, the two interleaved. 32 heads on 8.
 * paged-mha/ISA/TYPE/block-N: 16 heads on 16.
 * decode/ISA/TYPE/16384-gqa, .../16384-mha: the contiguous call against reading its keys and values.
 * decode-cached/ISA/TYPE/...: the same code over as many keys as a second-level cache holds, against
 *     reading as much memory as decode/ does: how fast its arithmetic alone would let it be.
 *
 * SPDX-License-Identifier: MIT */
#include <stdlib.h>

#include "bench.h"
#include "cli/memory.h"

static const struct shape grouped = {"paged", 1, 32, 8, 1, 16384, 128, 0};
static const struct shape single = {"paged-mha", 1, 16, 16, 1, 16384, 128, 0};

/* What a row of the table is about; about.number is the length of a page. */
struct paged_case {
    const struct shape *shape;
    attn_type type;
};

/* Elements, and where a token of a head is. A contiguous cache is a single page of all tokens. */
struct cache {
    char *data;
    float *scales;
};

static void cache_free(struct cache *cache) {
    free(cache->data);
    free(cache->scales);
}

static size_t bytes_of(attn_type type) { return type == ATTN_F32 ? 4 : type == ATTN_I8 ? 1 : 2; }

/* Any order that is no order: every page once. */
static int32_t *shuffled(int64_t n) {
    int32_t *table = malloc((size_t)n * sizeof *table);
    uint64_t s = 88172645463325252u;
    for (int64_t i = 0; table && i < n; i++) {
        s ^= s << 13, s ^= s >> 7, s ^= s << 17;
        const int64_t j = (int64_t)(s % (uint64_t)(i + 1));
        table[i] = table[j];
        table[j] = (int32_t)i;
    }
    return table;
}

/* Moves k or v of a problem into a cache of this type, in the pages of the problem or in one. */
static int move(attn_problem *p, attn_input *tensor, attn_scales *scales, attn_type type,
                struct cache *cache) {
    const attn_pages one = {NULL, 1, p->kv_cap, 1};
    const attn_pages *pages = p->pages.table ? &p->pages : &one;
    const int64_t heads = p->kv_heads, dim = p->qk_dim, length = pages->page_len;
    const size_t tokens = (size_t)(pages->n_pages * length * heads);
    int64_t *slots = malloc((size_t)p->kv_cap * sizeof *slots);
    cache->data = cli_allocate(tokens * (size_t)dim, bytes_of(type));
    cache->scales = cli_allocate(tokens, sizeof *cache->scales);
    attn_status status = ATTN_ERROR_MEMORY;
    if (cache->data && cache->scales && slots) {
        for (int64_t j = 0; j < p->kv_cap; j++)
            slots[j] = (pages->table ? pages->table[j / length] * length : 0) + j % length;
        const attn_cache to = {.data = cache->data,
                               .type = type,
                               .stride_page = heads * length * dim,
                               .stride_head = length * dim,
                               .stride_token = dim,
                               .n_pages = pages->n_pages,
                               .page_len = length,
                               .scales = type == ATTN_I8 ? cache->scales : NULL,
                               .scale_stride_page = heads * length,
                               .scale_stride_head = length,
                               .scale_stride_token = 1};
        status = attn_append(tensor, p->kv_cap, heads, dim, slots, &to);
        *tensor = (attn_input){to.data, type, to.stride_page, to.stride_head, dim};
        if (type == ATTN_I8)
            *scales = (attn_scales){to.scales, 0, heads * length, length, 1};
    }
    free(slots);
    return status == ATTN_OK ? 0 : -1;
}

/* A call over such a cache; table: null, or that of its pages. Returns 0, or -1. */
static int make_call(struct workload *w, const struct paged_case *c, const int32_t *table,
                     int64_t page_len, struct cache *k, struct cache *v) {
    attn_problem *p = &w->problem;
    if (workload_make(w, c->shape))
        return -1;
    const int64_t n_pages = (p->kv_cap + page_len - 1) / page_len;
    if (table)
        p->pages = (attn_pages){table, n_pages, page_len, n_pages};
    return move(p, &p->k, &p->k_scales, c->type, k) || move(p, &p->v, &p->v_scales, c->type, v) ? -1
                                                                                                : 0;
}

static void measure_paged(gbench_state *state, const void *arg) {
    const struct bench_case *about = arg;
    const struct paged_case *c = about->row;
    struct workload plain = {0}, paged = {0};
    struct cache caches[4] = {{0}};
    int32_t *table = shuffled((c->shape->keys + about->number - 1) / about->number);
    if (!table || make_call(&plain, c, NULL, about->number, &caches[0], &caches[1]) ||
        make_call(&paged, c, table, about->number, &caches[2], &caches[3])) {
        gbench_fail(state, "not enough memory");
    } else if (bench_use(state, about) == 0 && bench_prepare(state, &plain, NULL) == 0 &&
               bench_prepare(state, &paged, NULL) == 0) {
        const struct work work = workload_work(&paged), other = workload_work(&plain);
        bench_measure_cost(state, &work, &other, MEASURE_CPU, "time of the contiguous call", 1);
    }
    workload_free(&plain);
    workload_free(&paged);
    for (int i = 0; i < 4; i++)
        cache_free(&caches[i]);
    free(table);
}

static size_t floats_of(const struct workload *w, attn_type type) {
    return w->kv_size * bytes_of(type) / sizeof(float);
}

/* A decode step over c's keys, or those of one head that stay in cache, against reading those of c. */
static void measure_step(gbench_state *state, const struct bench_case *about, int is_cached) {
    const struct paged_case *c = about->row;
    const struct shape *shape = c->shape;
    const struct shape few = {"cached",   1, shape->q_heads / shape->kv_heads, 1, 1, 512,
                              shape->dim, 0};
    const struct paged_case of_few = {&few, c->type};
    struct workload w = {0}, small = {0};
    struct cache k = {0}, v = {0}, small_k = {0}, small_v = {0};
    struct workload *const timed = is_cached ? &small : &w;
    if (make_call(&w, c, NULL, 1, &k, &v) ||
        (is_cached && make_call(&small, &of_few, NULL, 1, &small_k, &small_v))) {
        gbench_fail(state, "not enough memory");
    } else if (bench_use(state, about) == 0 && bench_prepare(state, timed, NULL) == 0) {
        struct work work = workload_work(timed);
        const size_t floats = floats_of(&w, c->type);
        work.amount = 2 * (double)(floats_of(timed, c->type) * sizeof(float));
        struct limit limit;
        limit_read(&limit, about->loops, (const float *)(const void *)k.data, floats,
                   (const float *)(const void *)v.data, floats);
        bench_measure(state, &work, &limit, "GB/s", "streaming read", 1);
    }
    workload_free(&w);
    workload_free(&small);
    cache_free(&k);
    cache_free(&v);
    cache_free(&small_k);
    cache_free(&small_v);
}

static void measure_decode(gbench_state *state, const void *arg) { measure_step(state, arg, 0); }
static void measure_decode_cached(gbench_state *state, const void *arg) {
    measure_step(state, arg, 1);
}

void bench_add_paged(void) {
    static const struct paged_case cases[] = {
        {&grouped, ATTN_F32}, {&grouped, ATTN_F16}, {&grouped, ATTN_BF16}, {&grouped, ATTN_I8},
        {&single, ATTN_F32},  {&single, ATTN_F16},  {&single, ATTN_BF16},  {&single, ATTN_I8},
    };
    static const char *const types[] = {"f32", "f16", "bf16", "i8"};
    static const int64_t lengths[] = {16, 64, 7};
    const struct attn_kernels *const *sets = bench_kernel_sets();
    for (size_t i = 0; sets[i]; i++)
        for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
            const char *type = types[cases[c].type];
            struct bench_case about = bench_case_of(sets[i], &cases[c]);
            for (size_t n = 0; n < sizeof lengths / sizeof lengths[0]; n++) {
                about.number = lengths[n];
                bench_add(i == 0 && c < 4 && n == 0 ? BENCH_QUICK : BENCH_ALL, measure_paged, about,
                          "%s/%s/%s/block-%d", cases[c].shape->name, sets[i]->name, type,
                          (int)lengths[n]);
            }
            const char *shape = cases[c].shape == &grouped ? "16384-gqa" : "16384-mha";
            bench_add(BENCH_ALL, measure_decode, about, "decode/%s/%s/%s", sets[i]->name, type,
                      shape);
            bench_add(BENCH_ALL, measure_decode_cached, about, "decode-cached/%s/%s/%s",
                      sets[i]->name, type, shape);
        }
}
