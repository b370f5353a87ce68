/* ONNX Runtime: its three operators for attention, each where it fits.
 *
 *     Attention            of ONNX itself; causal with fewer rows than keys as a constant mask
 *     MultiHeadAttention   of com.microsoft; heads of a group are repeated beforehand
 *     GroupQueryAttention  of com.microsoft; always causal; the cache is one buffer for past and
 *                          present, as in a decoding loop, so that it is never copied
 *
 * A cache in f16 is a model all in f16; it has none in int8.
 *
 * The library ships without headers. Its interface is a table of functions whose order never
 * changes, of which the few used are named here by their place.
 *
 * SPDX-License-Identifier: MIT */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "onnx_model.h"
#include "peers.h"

enum { API_VERSION = 13, OPSET = 23, LOG_ERRORS = 3, OPTIMIZE_ALL = 99 };

struct api_base {
    void *const *(*get_api)(uint32_t version);
    const char *(*get_version)(void);
};

/* name, place in the table, parameters; all return a status that is null if all went well */
#define ORT_FUNCTIONS(F)                                                                           \
    F(CreateEnv, 3, (int log_level, const char *id, void **env))                                   \
    F(DisableTelemetryEvents, 6, (void *env))                                                      \
    F(CreateSessionFromArray, 8,                                                                   \
      (void *env, const void *model, size_t size, void *options, void **session))                  \
    F(CreateSessionOptions, 10, (void **options))                                                  \
    F(SetSessionGraphOptimizationLevel, 23, (void *options, int level))                            \
    F(SetIntraOpNumThreads, 24, (void *options, int n))                                            \
    F(SetInterOpNumThreads, 25, (void *options, int n))                                            \
    F(CreateTensorWithDataAsOrtValue, 49,                                                          \
      (void *memory, void *data, size_t size, const int64_t *dims, size_t rank, int type,          \
       void **value))                                                                              \
    F(CreateCpuMemoryInfo, 69, (int allocator, int kind, void **memory))                           \
    F(RunWithBinding, 133, (void *session, const void *options, void *binding))                    \
    F(CreateIoBinding, 134, (void *session, void **binding))                                       \
    F(BindInput, 136, (void *binding, const char *name, void *value))                              \
    F(BindOutput, 137, (void *binding, const char *name, void *value))
enum { GET_ERROR_MESSAGE = 2, RELEASE_STATUS = 93, RELEASE_SESSION = 95, RELEASE_VALUE = 96 };
enum { RELEASE_BINDING = 135 };

static void *const *api;
#define DECLARE(name, place, parameters) static void *(*name)parameters;
ORT_FUNCTIONS(DECLARE)

static void *env, *options, *memory;

static void release(int place, void *object) {
    if (object)
        ((void (*)(void *))api[place])(object);
}

/* 0, or 1 with a line on stderr. */
static int failed(const char *what, void *status) {
    if (!status)
        return 0;
    const char *(*message)(void *) = (const char *(*)(void *))api[GET_ERROR_MESSAGE];
    fprintf(stderr, "ONNX Runtime: %s: %s\n", what, message(status));
    release(RELEASE_STATUS, status);
    return 1;
}
#define FAILED(name, ...) failed(#name, name(__VA_ARGS__))

static const char *open_onnxruntime(const char *folder, char version[VERSION_SIZE]) {
    char path[4096];
    if (!find_file(folder, "node_modules/onnxruntime-node/bin/napi-v*/linux/x64/libonnxruntime.so*",
                   path))
        return "not installed";
    void *library = dlopen(path, RTLD_NOW);
    if (!library)
        return dlerror();
    const struct api_base *(*get_base)(void) =
        (const struct api_base *(*)(void))dlsym(library, "OrtGetApiBase");
    if (!get_base || !(api = get_base()->get_api(API_VERSION)))
        return "it does not offer the interface of version 1.13";
#define RESOLVE(name, place, parameters) name = (void *(*)parameters)api[place];
    ORT_FUNCTIONS(RESOLVE)
    if (FAILED(CreateEnv, LOG_ERRORS, "attn", &env) || FAILED(DisableTelemetryEvents, env) ||
        FAILED(CreateSessionOptions, &options) || FAILED(SetIntraOpNumThreads, options, 1) ||
        FAILED(SetInterOpNumThreads, options, 1) ||
        FAILED(SetSessionGraphOptimizationLevel, options, OPTIMIZE_ALL) ||
        FAILED(CreateCpuMemoryInfo, 0, 0, &memory))
        return "it does not start";
    snprintf(version, VERSION_SIZE, "%s", get_base()->get_version());
    return NULL;
}

/* ---- A session that computes one node ---------------------------------------------------------- */

enum { MOST_TENSORS = 10, MOST_BUFFERS = 8 };

struct session {
    struct onnx_model model;
    struct onnx_message bytes;
    struct {
        struct onnx_tensor tensor;
        void *data, *value;
        size_t size;
        int is_output;
    } bound[MOST_TENSORS];
    int n_bound, n_buffers;
    void *buffers[MOST_BUFFERS]; /* that are its own */
    void *session, *binding;
    enum onnx_type type; /* of q, k, v and out */
    void *out;
    int out_has_tokens_first;
};

static size_t size_of(const struct onnx_tensor *t) {
    size_t size = t->type == ONNX_F16 ? 2 : 4;
    for (int i = 0; i < t->rank; i++)
        size *= (size_t)t->dims[i];
    return size;
}

static void bind(struct session *o, struct onnx_tensor t, void *data, int is_output) {
    if (is_output)
        onnx_output(&o->model, &t);
    else
        onnx_input(&o->model, &t);
    o->bound[o->n_bound].tensor = t;
    o->bound[o->n_bound].data = data;
    o->bound[o->n_bound].size = size_of(&t);
    o->bound[o->n_bound++].is_output = is_output;
}

/* Memory that goes with the session. */
static void *own(struct session *o, void *buffer) { return o->buffers[o->n_buffers++] = buffer; }

/* n floats in the session's type, with the session's lifetime. */
static void *in_type(struct session *o, const float *x, size_t n) {
    if (o->type == ONNX_F16)
        return own(o, halves_of(x, n));
    return own(o, memcpy(room(n * sizeof *x), x, n * sizeof *x));
}

/* The same of floats that are the session's own. */
static void *own_in_type(struct session *o, float *x, size_t n) {
    if (o->type == ONNX_F32)
        return own(o, x);
    void *halves = in_type(o, x, n);
    free(x);
    return halves;
}

static struct onnx_tensor rank4(const struct session *o, const char *name, int64_t a, int64_t b,
                                int64_t c, int64_t d) {
    return (struct onnx_tensor){name, o->type, 4, {a, b, c, d}};
}

static struct onnx_tensor rank3(const struct session *o, const char *name, int64_t a, int64_t b,
                                int64_t c) {
    return (struct onnx_tensor){name, o->type, 3, {a, b, c, 0}};
}

static int start(struct session *o) {
    o->bytes = onnx_finish(&o->model, OPSET);
    if (FAILED(CreateSessionFromArray, env, o->bytes.data, o->bytes.size, options, &o->session) ||
        FAILED(CreateIoBinding, o->session, &o->binding))
        return 1;
    for (int i = 0; i < o->n_bound; i++) {
        const struct onnx_tensor *t = &o->bound[i].tensor;
        if (FAILED(CreateTensorWithDataAsOrtValue, memory, o->bound[i].data, o->bound[i].size,
                   t->dims, (size_t)t->rank, t->type, &o->bound[i].value) ||
            (o->bound[i].is_output ? FAILED(BindOutput, o->binding, t->name, o->bound[i].value)
                                   : FAILED(BindInput, o->binding, t->name, o->bound[i].value)))
            return 1;
    }
    return 0;
}

static int run(void *state) {
    const struct session *o = state;
    return FAILED(RunWithBinding, o->session, NULL, o->binding);
}

static void fetch(const void *state, const struct shape *s, float *out) {
    const struct session *o = state;
    float *x = o->out;
    if (o->type == ONNX_F16)
        floats_of(o->out, q_size(s), x = room(q_size(s) * sizeof *x));
    if (o->out_has_tokens_first)
        heads_first(x, s, out);
    else
        memcpy(out, x, q_size(s) * sizeof *out);
    if (x != o->out)
        free(x);
}

static void close_session(void *state) {
    struct session *o = state;
    release(RELEASE_BINDING, o->binding);
    for (int i = 0; i < o->n_bound; i++)
        release(RELEASE_VALUE, o->bound[i].value);
    release(RELEASE_SESSION, o->session);
    for (int i = 0; i < o->n_buffers; i++)
        free(o->buffers[i]);
    free(o->bytes.data);
    free(o);
}

static struct session *new_session(const struct inputs *in) {
    struct session *o = room(sizeof *o);
    memset(o, 0, sizeof *o);
    o->type = in->cache == CACHE_F16 ? ONNX_F16 : ONNX_F32;
    o->out = own(o, room(q_size(&in->shape) * sizeof(float)));
    return o;
}

/* ---- The operators ----------------------------------------------------------------------------- */

static struct session *attention(const struct inputs *in) {
    const struct shape *s = &in->shape;
    struct session *o = new_session(in);
    onnx_node(&o->model, "Attention", "");
    bind(o, rank4(o, "q", s->batch, s->q_heads, s->q_len, s->dim), in_type(o, in->q, q_size(s)), 0);
    bind(o, rank4(o, "k", s->batch, s->kv_heads, s->keys, s->dim), in_type(o, in->k, kv_size(s)),
         0);
    bind(o, rank4(o, "v", s->batch, s->kv_heads, s->keys, s->dim), in_type(o, in->v, kv_size(s)),
         0);
    const int is_causal = s->causal && s->q_len > 1;
    if (is_causal && s->q_len < s->keys) { /* is_causal is aligned to the first key */
        const size_t size = (size_t)(s->q_len * s->keys) * sizeof(float);
        float *mask = room(size);
        for (int64_t i = 0; i < s->q_len; i++)
            for (int64_t j = 0; j < s->keys; j++)
                mask[i * s->keys + j] = j < keys_of_row(s, i) ? 0 : -3e38f;
        onnx_constant(&o->model,
                      &(struct onnx_tensor){"mask", ONNX_F32, 2, {s->q_len, s->keys, 0, 0}}, mask,
                      size);
        free(mask);
    }
    onnx_int(&o->model, "is_causal", is_causal && s->q_len == s->keys);
    bind(o, rank4(o, "out", s->batch, s->q_heads, s->q_len, s->dim), o->out, 1);
    return o;
}

static struct session *multi_head_attention(const struct inputs *in) {
    const struct shape *s = &in->shape;
    const int64_t group = s->q_heads / s->kv_heads, width = s->q_heads * s->dim;
    if (s->causal && s->q_len > 1 && s->q_len < s->keys)
        return NULL;
    struct session *o = new_session(in);
    onnx_node(&o->model, "MultiHeadAttention", "com.microsoft");
    onnx_int(&o->model, "num_heads", s->q_heads);
    onnx_float(&o->model, "scale", 1 / sqrtf((float)s->dim));
    if (s->causal && s->q_len > 1)
        onnx_int(&o->model, "unidirectional", 1);
    const size_t n_kv = kv_size(s) * (size_t)group;
    void *q = own_in_type(o, tokens_first(in->q, s->batch, s->q_heads, s->q_len, s->dim, 0, 1),
                          q_size(s));
    void *k =
        own_in_type(o, tokens_first(in->k, s->batch, s->kv_heads, s->keys, s->dim, 0, group), n_kv);
    void *v =
        own_in_type(o, tokens_first(in->v, s->batch, s->kv_heads, s->keys, s->dim, 0, group), n_kv);
    bind(o, rank3(o, "q", s->batch, s->q_len, width), q, 0);
    bind(o, rank3(o, "k", s->batch, s->keys, width), k, 0);
    bind(o, rank3(o, "v", s->batch, s->keys, width), v, 0);
    bind(o, rank3(o, "out", s->batch, s->q_len, width), o->out, 1);
    o->out_has_tokens_first = 1;
    return o;
}

static struct session *group_query_attention(const struct inputs *in) {
    const struct shape *s = &in->shape;
    if (!s->causal && s->q_len > 1)
        return NULL;
    struct session *o = new_session(in);
    const int64_t kv_width = s->kv_heads * s->dim, first = s->keys - s->q_len;
    onnx_node(&o->model, "GroupQueryAttention", "com.microsoft");
    onnx_int(&o->model, "num_heads", s->q_heads);
    onnx_int(&o->model, "kv_num_heads", s->kv_heads);
    onnx_float(&o->model, "scale", 1 / sqrtf((float)s->dim));
    /* The last q_len tokens come as new ones, and are written to the cache, where they are. */
    const size_t n_new = (size_t)(s->batch * s->q_len * kv_width);
    void *q = own_in_type(o, tokens_first(in->q, s->batch, s->q_heads, s->q_len, s->dim, 0, 1),
                          q_size(s));
    void *k = own_in_type(o, tokens_first(in->k, s->batch, s->kv_heads, s->keys, s->dim, first, 1),
                          n_new);
    void *v = own_in_type(o, tokens_first(in->v, s->batch, s->kv_heads, s->keys, s->dim, first, 1),
                          n_new);
    void *k_cache = in_type(o, in->k, kv_size(s)), *v_cache = in_type(o, in->v, kv_size(s));
    int32_t *last_token = own(o, room((size_t)(s->batch + 1) * sizeof(int32_t)));
    int32_t *n_tokens = last_token + s->batch;
    for (int64_t b = 0; b < s->batch; b++)
        last_token[b] = (int32_t)s->keys - 1;
    *n_tokens = (int32_t)s->keys;
    bind(o, rank3(o, "q", s->batch, s->q_len, s->q_heads * s->dim), q, 0);
    bind(o, rank3(o, "k", s->batch, s->q_len, kv_width), k, 0);
    bind(o, rank3(o, "v", s->batch, s->q_len, kv_width), v, 0);
    bind(o, rank4(o, "past_k", s->batch, s->kv_heads, s->keys, s->dim), k_cache, 0);
    bind(o, rank4(o, "past_v", s->batch, s->kv_heads, s->keys, s->dim), v_cache, 0);
    bind(o, (struct onnx_tensor){"last_token", ONNX_I32, 1, {s->batch, 0, 0, 0}}, last_token, 0);
    bind(o, (struct onnx_tensor){"n_tokens", ONNX_I32, 1, {1, 0, 0, 0}}, n_tokens, 0);
    bind(o, rank3(o, "out", s->batch, s->q_len, s->q_heads * s->dim), o->out, 1);
    bind(o, rank4(o, "present_k", s->batch, s->kv_heads, s->keys, s->dim), k_cache, 1);
    bind(o, rank4(o, "present_v", s->batch, s->kv_heads, s->keys, s->dim), v_cache, 1);
    o->out_has_tokens_first = 1;
    return o;
}

static int ways(const struct inputs *in, struct way ways[MOST_WAYS]) {
    static const struct {
        const char *name;
        struct session *(*make)(const struct inputs *);
    } operators[] = {{"Attention", attention},
                     {"MultiHeadAttention", multi_head_attention},
                     {"GroupQueryAttention", group_query_attention}};
    if (in->cache == CACHE_I8)
        return 0;
    int n = 0;
    for (size_t i = 0; i < sizeof operators / sizeof operators[0]; i++) {
        struct session *o = operators[i].make(in);
        if (o && start(o) == 0)
            ways[n++] = (struct way){
                operators[i].name, in->cache == CACHE_F32 ? 1e-4 : 2e-2, 1, o, run, fetch,
                close_session};
        else if (o)
            close_session(o);
    }
    return n;
}

const struct peer peer_onnxruntime = {"ONNX Runtime", open_onnxruntime, ways};
