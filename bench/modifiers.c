/* modifier/ISA/NAME: the time of a call with a mask, a bias, a window, ... as a ratio to the same
 * call without, the two interleaved.
 * tokens-first/ISA/SHAPE: a call on tensors [tokens, heads, features], as a ratio to that on [heads,
 * tokens, features].
 *
 * SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "cli/memory.h"

struct modifier {
    const char *name;
    struct shape shape;
    /* Changes a plain problem; what it allocates goes to *data. Returns 0, or -1. */
    int (*apply)(attn_problem *problem, void **data);
    enum bench_set set;
};

static int mask_bool(attn_problem *p, void **data) {
    const size_t size = (size_t)(p->q_len * p->kv_cap);
    *data = cli_allocate(size, 1);
    if (!*data)
        return -1;
    memset(*data, 1, size);
    p->mask = (attn_mask){*data, ATTN_MASK_BOOL, 0, 0, p->kv_cap, 1, p->kv_cap};
    return 0;
}

static int mask_f32(attn_problem *p, void **data) {
    *data = workload_floats((size_t)(p->q_len * p->kv_cap));
    p->mask = (attn_mask){*data, ATTN_MASK_F32, 0, 0, p->kv_cap, 1, p->kv_cap};
    return *data ? 0 : -1;
}

static int softcap(attn_problem *p, void **data) {
    (void)data;
    p->softcap = 30;
    return 0;
}

static int alibi(attn_problem *p, void **data) {
    float *slopes = *data = malloc((size_t)p->q_heads * sizeof *slopes);
    if (!slopes)
        return -1;
    for (int64_t h = 0; h < p->q_heads; h++)
        slopes[h] = 1 / (float)(2 << h);
    p->alibi = slopes;
    p->align = ATTN_ALIGN_TOP_LEFT;
    return 0;
}

static int sinks(attn_problem *p, void **data) {
    float *logits = *data = malloc((size_t)p->q_heads * sizeof *logits);
    if (!logits)
        return -1;
    for (int64_t h = 0; h < p->q_heads; h++)
        logits[h] = 0.5f * (float)h;
    p->sinks = logits;
    return 0;
}

static int causal(attn_problem *p, void **data) {
    (void)data;
    p->causal = 1;
    p->align = ATTN_ALIGN_TOP_LEFT;
    return 0;
}

static int window(attn_problem *p, void **data) {
    static const int64_t left_right[] = {255, 0};
    (void)data;
    p->window = left_right;
    p->align = ATTN_ALIGN_TOP_LEFT;
    return 0;
}

static int lse(attn_problem *p, void **data) {
    p->lse.data = *data = malloc((size_t)(p->q_heads * p->q_len) * sizeof(float));
    return *data ? 0 : -1;
}

static int weights(attn_problem *p, void **data) {
    p->weights.data = *data = workload_floats((size_t)(p->q_heads * p->q_len * p->kv_cap));
    return *data ? 0 : -1;
}

/* All tensors [tokens, heads, features], as projections leave them; heads lie 2 KiB and more apart. */
static int tokens_first(attn_problem *p, void **data) {
    (void)data;
    p->q.stride_head = p->out.stride_head = p->k.stride_head = p->qk_dim;
    p->v.stride_head = p->v_dim;
    p->q.stride_token = p->out.stride_token = p->q_heads * p->qk_dim;
    p->k.stride_token = p->kv_heads * p->qk_dim;
    p->v.stride_token = p->kv_heads * p->v_dim;
    return 0;
}

#define MIDDLE                                                                                     \
    { "", 1, 8, 8, 1536, 1536, 64, 0 }
#define LONG                                                                                       \
    { "", 1, 1, 1, 8192, 8192, 64, 0 }
#define PREFILL                                                                                    \
    { "", 1, 8, 8, 2048, 2048, 128, 0 }
#define CHUNK                                                                                      \
    { "", 1, 32, 8, 16, 4096, 128, 1 }
#define DECODE                                                                                     \
    { "", 1, 32, 8, 1, 4096, 128, 0 }
static const struct modifier modifiers[] = {
    {"mask-bool", MIDDLE, mask_bool, BENCH_QUICK}, {"mask-f32", MIDDLE, mask_f32, BENCH_QUICK},
    {"softcap", MIDDLE, softcap, BENCH_QUICK},     {"alibi", MIDDLE, alibi, BENCH_QUICK},
    {"sinks", MIDDLE, sinks, BENCH_QUICK},         {"causal", MIDDLE, causal, BENCH_QUICK},
    {"window-255-0", LONG, window, BENCH_QUICK},   {"lse", MIDDLE, lse, BENCH_ALL},
    {"weights", MIDDLE, weights, BENCH_ALL},
};
static const struct modifier tokens_first_calls[] = {
    {"full-2048-d128", PREFILL, tokens_first, BENCH_ALL},
    {"chunk-16-on-4096", CHUNK, tokens_first, BENCH_ALL},
    {"decode-4096-gqa", DECODE, tokens_first, BENCH_ALL},
};

static void modified_call(gbench_state *state, const void *arg) {
    const struct bench_case *about = arg;
    const struct modifier *modifier = about->row;
    struct workload plain, modified;
    void *data = NULL;
    const int made = workload_make(&plain, &modifier->shape) == 0;
    if (workload_make(&modified, &modifier->shape) || !made ||
        modifier->apply(&modified.problem, &data)) {
        gbench_fail(state, "not enough memory");
    } else if (bench_use(state, about) == 0 && bench_prepare(state, &plain, NULL) == 0 &&
               bench_prepare(state, &modified, NULL) == 0) {
        const struct work work = workload_work(&modified), other = workload_work(&plain);
        bench_measure_cost(state, &work, &other, MEASURE_CPU, "time of the plain call", 1);
        gbench_set_counter(state, "pairs", workload_flops(&modified) / workload_flops(&plain));
    }
    workload_free(&plain);
    workload_free(&modified);
    free(data);
}

static void add_all(const char *kind, const struct modifier *all, size_t n) {
    const struct attn_kernels *const *sets = bench_kernel_sets();
    for (size_t i = 0; sets[i]; i++)
        for (size_t m = 0; m < n; m++)
            bench_add(i == 0 ? all[m].set : BENCH_ALL, modified_call,
                      bench_case_of(sets[i], &all[m]), "%s/%s/%s", kind, sets[i]->name,
                      all[m].name);
}

void bench_add_modifiers(void) {
    add_all("modifier", modifiers, sizeof modifiers / sizeof modifiers[0]);
    add_all("tokens-first", tokens_first_calls,
            sizeof tokens_first_calls / sizeof tokens_first_calls[0]);
}
