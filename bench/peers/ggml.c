/* ggml, the library under llama.cpp: flash_attn_ext on its CPU backend, with keys and values in f32,
 * in the f16 that llama.cpp stores, and in its int8 with a scale for every 32 of them.
 *
 * The library ships without headers; the functions used are declared here.
 *
 * SPDX-License-Identifier: MIT */
#include <dlfcn.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peers.h"

enum { GGML_F32 = 0, GGML_F16 = 1, GGML_Q8_0 = 8, GGML_CPU = 0, GGML_LOG_WARN = 3 };
enum { MASK_ROW_PAD = 64 };
struct ggml_init_params {
    size_t memory;
    void *buffer;
    bool no_alloc;
};

/* name, result, parameters */
#define GGML_FUNCTIONS(F)                                                                          \
    F(ggml_log_set, void, (void (*)(int, const char *, void *), void *))                           \
    F(ggml_backend_load_all_from_path, void, (const char *))                                       \
    F(ggml_backend_init_by_type, void *, (int type, const char *params))                           \
    F(ggml_backend_get_device, void *, (void *backend))                                            \
    F(ggml_backend_dev_backend_reg, void *, (void *device))                                        \
    F(ggml_backend_reg_get_proc_address, void *, (void *registry, const char *name))               \
    F(ggml_backend_dev_description, const char *, (void *device))                                  \
    F(ggml_version, const char *, (void))                                                          \
    F(ggml_threadpool_params_init, void, (void *params, int n_threads))                            \
    F(ggml_init, void *, (struct ggml_init_params))                                                \
    F(ggml_free, void, (void *context))                                                            \
    F(ggml_new_tensor_4d, void *, (void *context, int type, int64_t, int64_t, int64_t, int64_t))   \
    F(ggml_get_data, void *, (const void *tensor))                                                 \
    F(ggml_flash_attn_ext, void *,                                                                 \
      (void *context, void *q, void *k, void *v, void *mask, float scale, float max_bias,          \
       float softcap))                                                                             \
    F(ggml_new_graph, void *, (void *context))                                                     \
    F(ggml_build_forward_expand, void, (void *graph, void *tensor))                                \
    F(ggml_fp32_to_fp16_row, void, (const float *, uint16_t *, int64_t))                           \
    F(ggml_quantize_chunk, size_t,                                                                 \
      (int type, const float *, void *, int64_t first, int64_t rows, int64_t row_length,           \
       const float *importance))                                                                   \
    F(ggml_backend_graph_compute, int, (void *backend, void *graph))

#define DECLARE(name, result, parameters) static result(*name) parameters;
GGML_FUNCTIONS(DECLARE)

static void *backend;

static void log_warnings(int level, const char *text, void *arg) {
    (void)arg;
    if (level > GGML_LOG_WARN)
        fputs(text, stderr);
}

static const char *open_ggml(const char *folder, char version[VERSION_SIZE]) {
    char path[4096];
    if (!find_file(folder, "node_modules/@node-llama-cpp/linux-x64/bins/*/libggml.v*.so", path))
        return "not installed";
    void *library = dlopen(path, RTLD_NOW);
    if (!library)
        return dlerror();
#define RESOLVE(name, result, parameters)                                                          \
    if (!(name = (result(*) parameters)dlsym(library, #name)))                                     \
        return dlerror();
    GGML_FUNCTIONS(RESOLVE)
    *strrchr(path, '/') = '\0';
    ggml_log_set(log_warnings, NULL);
    ggml_backend_load_all_from_path(path);
    backend = ggml_backend_init_by_type(GGML_CPU, NULL);
    if (!backend)
        return "it has no backend for this CPU";
    void *device = ggml_backend_get_device(backend);
    void *registry = ggml_backend_dev_backend_reg(device);
#define GET(type, name) type name = (type)ggml_backend_reg_get_proc_address(registry, #name)
    typedef void (*set_n_threads)(void *, int);
    typedef void *(*threadpool_new)(void *);
    typedef void (*set_threadpool)(void *, void *);
    GET(set_n_threads, ggml_backend_set_n_threads);
    GET(threadpool_new, ggml_threadpool_new);
    GET(set_threadpool, ggml_backend_cpu_set_threadpool);
    if (!ggml_backend_set_n_threads)
        return "it cannot be told the number of threads";
    ggml_backend_set_n_threads(backend, 1);
    if (ggml_threadpool_new && ggml_backend_cpu_set_threadpool) {
        /* Or it makes one for each call. */
        static char params[4096]; /* larger than its struct ggml_threadpool_params */
        ggml_threadpool_params_init(params, 1);
        ggml_backend_cpu_set_threadpool(backend, ggml_threadpool_new(params));
    }
    snprintf(version, VERSION_SIZE, "%s", ggml_version());
    return NULL;
}

struct flash {
    void *context, *graph, *out;
};

static int run(void *state) {
    const struct flash *f = state;
    return ggml_backend_graph_compute(backend, f->graph);
}

static void fetch(const void *state, const struct shape *s, float *out) {
    const struct flash *f = state;
    heads_first(ggml_get_data(f->out), s, out);
}

static void close_flash(void *state) {
    struct flash *f = state;
    ggml_free(f->context);
    free(f);
}

static void fill(void *tensor, int type, const float *x, size_t n) {
    if (type == GGML_Q8_0)
        ggml_quantize_chunk(type, x, ggml_get_data(tensor), 0, 1, (int64_t)n, NULL);
    else if (type == GGML_F16)
        ggml_fp32_to_fp16_row(x, ggml_get_data(tensor), (int64_t)n);
    else
        memcpy(ggml_get_data(tensor), x, n * sizeof *x);
}

/* ggml knows causality as a mask only: f16, its rows padded. */
static void *causal_mask(void *context, const struct shape *s) {
    const int64_t rows = (s->q_len + MASK_ROW_PAD - 1) / MASK_ROW_PAD * MASK_ROW_PAD;
    void *mask = ggml_new_tensor_4d(context, GGML_F16, s->keys, rows, 1, 1);
    uint16_t *at = ggml_get_data(mask);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < s->keys; j++)
            *at++ = j < keys_of_row(s, i) ? 0 : 0xfc00; /* -inf */
    return mask;
}

static struct way flash_of_type(const struct inputs *in, int type) {
    const struct shape *s = &in->shape;
    const size_t elements =
        2 * q_size(s) + 2 * kv_size(s) + (size_t)((s->q_len + MASK_ROW_PAD) * s->keys);
    struct flash *f = room(sizeof *f);
    f->context = ggml_init((struct ggml_init_params){elements * 4 + (16 << 20), NULL, false});
    void *q = ggml_new_tensor_4d(f->context, GGML_F32, s->dim, s->q_len, s->q_heads, s->batch);
    void *k = ggml_new_tensor_4d(f->context, type, s->dim, s->keys, s->kv_heads, s->batch);
    void *v = ggml_new_tensor_4d(f->context, type, s->dim, s->keys, s->kv_heads, s->batch);
    fill(q, GGML_F32, in->q, q_size(s));
    fill(k, type, in->k, kv_size(s));
    fill(v, type, in->v, kv_size(s));
    void *mask = s->causal && s->q_len > 1 ? causal_mask(f->context, s) : NULL;
    f->out = ggml_flash_attn_ext(f->context, q, k, v, mask, 1 / sqrtf((float)s->dim), 0.0f, 0.0f);
    f->graph = ggml_new_graph(f->context);
    ggml_build_forward_expand(f->graph, f->out);
    if (type == GGML_Q8_0)
        return (struct way){"q8_0", 5e-2, 1, f, run, fetch, close_flash};
    if (type == GGML_F16)
        return (struct way){"f16", 1e-2, in->cache == CACHE_F16, f, run, fetch, close_flash};
    return (struct way){"f32", 1e-4, 1, f, run, fetch, close_flash};
}

static int ways(const struct inputs *in, struct way ways[MOST_WAYS]) {
    if (in->cache != CACHE_F32) {
        ways[0] = flash_of_type(in, in->cache == CACHE_F16 ? GGML_F16 : GGML_Q8_0);
        return 1;
    }
    ways[0] = flash_of_type(in, GGML_F32);
    ways[1] = flash_of_type(in, GGML_F16);
    return 2;
}

const struct peer peer_ggml = {"ggml", open_ggml, ways};
