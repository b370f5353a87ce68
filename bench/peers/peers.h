/* What the comparison asks of another library: to compute the same attention, in each of the ways
 * that it has for it, from the same inputs, in this process.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_PEERS_H
#define ATTN_PEERS_H

#include <stddef.h>
#include <stdint.h>

struct shape {
    char name[32];
    int64_t batch, q_heads, kv_heads, q_len, keys, dim;
    int causal; /* the last row sees the last key */
};

/* How keys and values are stored: as their caller has them, or in the type that a cache of half the
 * size or less has, which each library converts them to beforehand. */
enum cache { CACHE_F32, CACHE_F16, CACHE_I8 };

/* Contiguous f32 [batch, heads, length, features]. */
struct inputs {
    struct shape shape;
    enum cache cache;
    float *q, *k, *v;
};

static inline size_t q_size(const struct shape *s) {
    return (size_t)(s->batch * s->q_heads * s->q_len * s->dim);
}
static inline size_t kv_size(const struct shape *s) {
    return (size_t)(s->batch * s->kv_heads * s->keys * s->dim);
}

/* How many keys row i sees. */
static inline int64_t keys_of_row(const struct shape *s, int64_t i) {
    return s->causal ? s->keys - s->q_len + i + 1 : s->keys;
}

/* One way of one library. */
struct way {
    const char *name;
    double
        tolerance; /* of its outputs; what is less exact than f32 is listed, but does not count */
    int counts;
    void *state;
    int (*run)(void *state); /* not 0: it failed */
    /* The result of the last run as [batch, heads, length, features]. */
    void (*fetch)(const void *state, const struct shape *s, float *out);
    void (*close)(void *state);
};

enum { MOST_WAYS = 4, VERSION_SIZE = 256 };

struct peer {
    const char *name;
    /* Loads the library from below folder. Null, and its version, or why it cannot be used. */
    const char *(*open)(const char *folder, char version[VERSION_SIZE]);
    /* The ways that fit the shape; how many. */
    int (*ways)(const struct inputs *in, struct way ways[MOST_WAYS]);
};

extern const struct peer peer_onnxruntime, peer_ggml, peer_openblas;

/* Memory that is there, aligned to a cache line and touched; ends the program otherwise. */
void *room(size_t bytes);

/* n floats of the standard normal distribution. */
float *normal_floats(size_t n, uint64_t seed);

/* n floats as f16, to be freed, and back. */
uint16_t *halves_of(const float *x, size_t n);
void floats_of(const uint16_t *x, size_t n, float *out);

/* [batch, length, heads, features] from [batch, heads, length, features], tokens from first on,
 * each head `times` times. */
float *tokens_first(const float *x, int64_t batch, int64_t heads, int64_t length, int64_t dim,
                    int64_t first, int64_t times);
/* And back into out. */
void heads_first(const float *x, const struct shape *s, float *out);

/* The path of the first file that matches a pattern below folder, or null. */
const char *find_file(const char *folder, const char *pattern, char path[4096]);

/* Softmax of each row over the keys it sees, zeros behind, as a compiler vectorises it. */
void softmax_by_hand(float *scores, const struct shape *s);

#endif
