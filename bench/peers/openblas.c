/* OpenBLAS by hand: two matrix products and a softmax for each head.
 *
 * SPDX-License-Identifier: MIT */
#define _DEFAULT_SOURCE
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peers.h"

enum { ROW_MAJOR = 101, NO_TRANSPOSE = 111, TRANSPOSE = 112 }; /* of cblas.h */

typedef void sgemm_function(int order, int transpose_a, int transpose_b, int m, int n, int k,
                            float alpha, const float *a, int lda, const float *b, int ldb,
                            float beta, float *c, int ldc);
static sgemm_function *sgemm;

static void *load(const char *folder) {
    char path[4096];
    void *library = NULL;
    if (find_file(folder, "usr/lib/*/openblas-pthread/libopenblas.so.0", path))
        library = dlopen(path, RTLD_NOW);
    return library ? library : dlopen("libopenblas.so.0", RTLD_NOW);
}

/* The kernels that OpenBLAS should choose here, at least: it takes a CPU newer than itself for one of
 * 2004. */
static const char *least_core(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq"))
        return "SkylakeX";
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return "Haswell";
#endif
    return NULL;
}

static const char *open_openblas(const char *folder, char version[VERSION_SIZE]) {
    char path[4096];
    /* They would choose kernels for another machine. */
    unsetenv("OPENBLAS_CORETYPE"), unsetenv("OPENBLAS_L2_SIZE");
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    if (find_file(folder, "usr/lib/*/libgfortran.so.5", path))
        dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    void *library = load(folder);
    if (!library)
        return dlerror();
    char *(*core)(void) = (char *(*)(void))dlsym(library, "openblas_get_corename");
    const char *asked = "";
    if (core && strcmp(core(), "Prescott") == 0 && least_core()) {
        setenv("OPENBLAS_CORETYPE", least_core(), 1); /* read when it is loaded */
        dlclose(library);
        if (!(library = load(folder)))
            return dlerror();
        asked = ", asked for: it does not know this CPU";
        core = (char *(*)(void))dlsym(library, "openblas_get_corename");
    }
    sgemm = (sgemm_function *)dlsym(library, "cblas_sgemm");
    char *(*config)(void) = (char *(*)(void))dlsym(library, "openblas_get_config");
    void (*threads)(int) = (void (*)(int))dlsym(library, "openblas_set_num_threads");
    if (!sgemm || !config || !core || !threads)
        return dlerror();
    threads(1);
    char number[32] = "of unknown version";
    sscanf(config(), "OpenBLAS %31s", number);
    snprintf(version, VERSION_SIZE, "%s (%s%s)", number, core(), asked);
    return NULL;
}

struct by_hand {
    const struct inputs *in;
    float *scores, *out;
};

static int run(void *state) {
    const struct by_hand *h = state;
    const struct shape *s = &h->in->shape;
    const int rows = (int)s->q_len, keys = (int)s->keys, dim = (int)s->dim;
    for (int64_t i = 0; i < s->batch * s->q_heads; i++) {
        const int64_t group = s->q_heads / s->kv_heads;
        const float *q = h->in->q + i * rows * dim;
        const float *k = h->in->k + i / group * keys * dim;
        const float *v = h->in->v + i / group * keys * dim;
        sgemm(ROW_MAJOR, NO_TRANSPOSE, TRANSPOSE, rows, keys, dim, 1 / sqrtf((float)dim), q, dim, k,
              dim, 0, h->scores, keys);
        softmax_by_hand(h->scores, s);
        sgemm(ROW_MAJOR, NO_TRANSPOSE, NO_TRANSPOSE, rows, dim, keys, 1, h->scores, keys, v, dim, 0,
              h->out + i * rows * dim, dim);
    }
    return 0;
}

static void fetch(const void *state, const struct shape *s, float *out) {
    const struct by_hand *h = state;
    for (size_t i = 0; i < q_size(s); i++)
        out[i] = h->out[i];
}

static void close_by_hand(void *state) {
    struct by_hand *h = state;
    free(h->scores), free(h->out), free(h);
}

static int ways(const struct inputs *in, struct way ways[MOST_WAYS]) {
    if (in->cache != CACHE_F32)
        return 0;
    struct by_hand *h = room(sizeof *h);
    h->in = in;
    h->scores = room((size_t)(in->shape.q_len * in->shape.keys) * sizeof(float));
    h->out = room(q_size(&in->shape) * sizeof(float));
    ways[0] = (struct way){"by hand", 1e-4, 1, h, run, fetch, close_by_hand};
    return 1;
}

const struct peer peer_openblas = {"OpenBLAS", open_openblas, ways};
