/* Memory, layouts and inputs of the comparison.
 *
 * SPDX-License-Identifier: MIT */
#define _DEFAULT_SOURCE
#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "half.h"
#include "peers.h"

void *room(size_t bytes) {
    void *p = aligned_alloc(64, (bytes + 127) / 64 * 64);
    if (!p) {
        perror("peers");
        exit(1);
    }
    memset(p, 0, bytes);
    return p;
}

float *tokens_first(const float *x, int64_t batch, int64_t heads, int64_t length, int64_t dim,
                    int64_t first, int64_t times) {
    const int64_t tokens = length - first;
    const size_t size = (size_t)(batch * tokens * heads * times * dim) * sizeof *x;
    float *y = room(size), *to = y;
    for (int64_t b = 0; b < batch; b++)
        for (int64_t t = first; t < length; t++)
            for (int64_t h = 0; h < heads * times; h++, to += dim)
                memcpy(to, x + ((b * heads + h / times) * length + t) * dim,
                       (size_t)dim * sizeof *x);
    return y;
}

uint16_t *halves_of(const float *x, size_t n) {
    uint16_t *halves = room(n * sizeof *halves);
    for (size_t i = 0; i < n; i++)
        halves[i] = f16_of_float(x[i]);
    return halves;
}

void floats_of(const uint16_t *x, size_t n, float *out) {
    for (size_t i = 0; i < n; i++)
        out[i] = float_of_f16(x[i]);
}

void heads_first(const float *x, const struct shape *s, float *out) {
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t t = 0; t < s->q_len; t++)
            for (int64_t h = 0; h < s->q_heads; h++, x += s->dim)
                memcpy(out + ((b * s->q_heads + h) * s->q_len + t) * s->dim, x,
                       (size_t)s->dim * sizeof *x);
}

const char *find_file(const char *folder, const char *pattern, char path[4096]) {
    glob_t found;
    snprintf(path, 4096, "%s/%s", folder, pattern);
    const int status = glob(path, 0, NULL, &found);
    if (status == 0)
        snprintf(path, 4096, "%s", found.gl_pathv[0]);
    globfree(&found);
    return status == 0 ? path : NULL;
}

static double uniform(uint64_t *state) { /* in (0, 1]: xorshift64* */
    *state ^= *state >> 12, *state ^= *state << 25, *state ^= *state >> 27;
    return (double)((*state * 0x2545f4914f6cdd1dull >> 11) + 1) * 0x1p-53;
}

float *normal_floats(size_t n, uint64_t seed) {
    float *x = room(n * sizeof *x);
    uint64_t state = seed * 0x9e3779b97f4a7c15ull;
    for (size_t i = 0; i < n; i += 2) { /* Box and Muller */
        const double radius = sqrt(-2 * log(uniform(&state)));
        const double angle = 6.283185307179586 * uniform(&state);
        x[i] = (float)(radius * cos(angle));
        if (i + 1 < n)
            x[i + 1] = (float)(radius * sin(angle));
    }
    return x;
}
