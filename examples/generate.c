/* A generation loop: token by token into a growing cache, each attended when it comes, with the
 * cache in f32, bf16 and int8. What that does to the result, and to the speed.
 *
 * SPDX-License-Identifier: MIT */
#define _XOPEN_SOURCE 700
#include <attn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { Q_HEADS = 32, KV_HEADS = 8, DIM = 128, GROUP = 32, PROMPT = 4032, STEPS = 64 };
enum { CAPACITY = PROMPT + STEPS, TOKEN = KV_HEADS * DIM, SCALES = DIM / GROUP };

static float k[CAPACITY][KV_HEADS][DIM],
    v[CAPACITY][KV_HEADS][DIM]; /* what a model would compute */
static float q[STEPS][Q_HEADS][DIM];
static float out[STEPS][Q_HEADS][DIM], exact[STEPS][Q_HEADS][DIM];

static void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static void fill(float *x, size_t n) {
    for (size_t i = 0; i < n; i++)
        x[i] = 2 * ((float)rand() / (float)RAND_MAX) - 1;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* An empty cache [KV_HEADS, CAPACITY, DIM] of one sequence: the keys of a head lie together. */
static attn_cache make_cache(attn_type type, size_t element) {
    attn_cache c = {.type = type,
                    .stride_head = CAPACITY * DIM,
                    .stride_token = DIM,
                    .n_pages = 1,
                    .page_len = CAPACITY};
    c.data = malloc(CAPACITY * TOKEN * element);
    if (type == ATTN_I8) {
        c.scale_group = GROUP;
        c.scale_stride_head = CAPACITY * SCALES, c.scale_stride_token = SCALES;
        c.scales = malloc(sizeof(float) * CAPACITY * KV_HEADS * SCALES);
    }
    if (!c.data || (type == ATTN_I8 && !c.scales))
        fail("not enough memory");
    return c;
}

/* Tokens [first, first + n) of k or v. */
static void append(const attn_cache *cache, const float *x, int64_t first, int64_t n) {
    int64_t slots[PROMPT];
    for (int64_t i = 0; i < n; i++)
        slots[i] = first + i;
    const attn_input tokens = {
        .data = x + first * TOKEN, .stride_token = TOKEN, .stride_head = DIM};
    if (attn_append(&tokens, n, KV_HEADS, DIM, slots, cache) != ATTN_OK)
        fail("attn_append() failed");
}

static attn_input as_input(const attn_cache *c) {
    return (attn_input){.data = c->data,
                        .type = c->type,
                        .stride_head = c->stride_head,
                        .stride_token = c->stride_token};
}

static attn_scales scales_of(const attn_cache *c) {
    return (attn_scales){.data = c->scales,
                         .group = c->scale_group,
                         .stride_head = c->scale_stride_head,
                         .stride_token = c->scale_stride_token};
}

/* Appends the prompt, then generates. Returns the seconds of the steps. */
static double generate(attn_type type, size_t element) {
    const attn_cache keys = make_cache(type, element), values = make_cache(type, element);
    append(&keys, &k[0][0][0], 0, PROMPT);
    append(&values, &v[0][0][0], 0, PROMPT);

    int64_t kv_len = PROMPT;
    attn_problem p = attn_problem_init();
    p.batch = 1, p.q_heads = Q_HEADS, p.kv_heads = KV_HEADS, p.qk_dim = p.v_dim = DIM;
    p.q_len = 1, p.kv_cap = CAPACITY, p.kv_len = &kv_len;
    p.causal = 1, p.align = ATTN_ALIGN_BOTTOM_RIGHT;
    p.q.stride_head = p.out.stride_head = DIM;
    p.k = as_input(&keys), p.k_scales = scales_of(&keys);
    p.v = as_input(&values), p.v_scales = scales_of(&values);

    /* One workspace serves all steps, because it is sized by the capacity. */
    size_t size;
    if (attn_workspace_size(&p, 1, &size) != ATTN_OK)
        fail("attn_workspace_size() failed");
    void *workspace = malloc(size);

    const double start = now();
    for (int64_t step = 0; step < STEPS; step++) {
        append(&keys, &k[0][0][0], PROMPT + step, 1);
        append(&values, &v[0][0][0], PROMPT + step, 1);
        kv_len = PROMPT + step + 1;
        p.q.data = q[step], p.out.data = out[step];
        if (!workspace || attn_forward(&p, workspace, size, NULL) != ATTN_OK)
            fail("attn_forward() failed");
    }
    const double seconds = now() - start;
    free(workspace);
    free(keys.data), free(values.data);
    free(keys.scales), free(values.scales);
    return seconds;
}

int main(void) {
    static const struct {
        const char *name;
        attn_type type;
        size_t element;
        double bits;       /* of an element, its share of a scale counted */
        double most_error; /* of an output: see below */
    } caches[] = {{"f32", ATTN_F32, sizeof(float), 32, 0},
                  {"bf16", ATTN_BF16, sizeof(uint16_t), 16, 2e-3},
                  {"int8", ATTN_I8, sizeof(int8_t), 8 + 32.0 / GROUP, 2e-3}};
    fill(&k[0][0][0], sizeof k / sizeof(float));
    fill(&v[0][0][0], sizeof v / sizeof(float));
    fill(&q[0][0][0], sizeof q / sizeof(float));
    printf("%d tokens after a prompt of %d, %d heads on %d of %d features, one layer, one thread, "
           "%s\n",
           STEPS, PROMPT, Q_HEADS, KV_HEADS, DIM, attn_isa());
    int failed = 0;
    for (size_t n = 0; n < sizeof caches / sizeof caches[0]; n++) {
        const double seconds = generate(caches[n].type, caches[n].element);
        double worst = 0;
        for (int64_t i = 0; i < (int64_t)STEPS * Q_HEADS * DIM; i++) {
            const float got = (&out[0][0][0])[i];
            if (n == 0)
                (&exact[0][0][0])[i] = got;
            worst = fmax(worst, fabs((double)got - (&exact[0][0][0])[i]));
        }
        /* Thousands of roundings average out: what is left of half a unit of a value in [-1, 1],
         * 2^-9 of bf16 and 1/254 of int8, is far below it. */
        failed |= !(worst <= caches[n].most_error);
        printf("%-5s cache of %5.1f MiB: %6.0f tokens/s, largest difference from f32 %.1e\n",
               caches[n].name, 2.0 * CAPACITY * TOKEN * caches[n].bits / 8 / (1 << 20),
               STEPS / seconds, worst);
    }
    return failed;
}
