/* Keys turned, four features at a time, into vectors of one feature of several keys, and packed into
 * panels for many query rows. For instruction sets that broadcast queries from memory; on the
 * vectors of vec.h and the transpose_keys of transpose.h, which are included before this. What is
 * called a feature here is a lane of lanes.h.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_QK_TRANSPOSED_H
#define ATTN_QK_TRANSPOSED_H

#include <stdint.h>

#include "unroll.h"

/* The vector of keys that comes next, of which n_next are there, is asked for while another one is
 * worked on. */
enum { LINE = 64 / sizeof(float) };

/* Line by line of all its keys, a quarter of them with each four features: more streams than hardware
 * prefetchers follow, so that all depends on this. Used for one row only. */
#define prefetch_column(next, stride, c)                                                           \
    do {                                                                                           \
        const float *line = (next) + (int64_t)((c) / 4 % 4 * (VF_LANES / 4)) * (stride);           \
        UNROLL                                                                                     \
        for (int64_t i = 0; i < VF_LANES / 4; i++)                                                 \
            vf_prefetch(line + i * (stride) + (c) / LINE * LINE);                                  \
    } while (0)

/* Key by key, in the order in which they lie: a stream on which the hardware runs ahead. As many
 * lines for each four features as have all asked for when the vector is done. */
struct lines_ahead {
    const float *line, *key_end;
    int64_t to_next_key; /* from the end of a key's last line */
    size_t keys_left, key_length;
};

static inline struct lines_ahead lines_ahead(const float *next, int64_t stride, size_t n_next,
                                             size_t dim) {
    const size_t length = (dim + LINE - 1) / LINE * LINE;
    return (struct lines_ahead){next, next + length, stride - (int64_t)length, n_next, length};
}

#define prefetch_lines(ahead)                                                                      \
    do {                                                                                           \
        for (int i = 0; i < VF_LANES / 4 && (ahead).keys_left; i++) {                              \
            vf_prefetch((ahead).line);                                                             \
            (ahead).line += LINE;                                                                  \
            if ((ahead).line == (ahead).key_end) {                                                 \
                (ahead).line += (ahead).to_next_key;                                               \
                (ahead).key_end = (ahead).line + (ahead).key_length;                               \
                (ahead).keys_left--;                                                               \
            }                                                                                      \
        }                                                                                          \
    } while (0)

/* ---- Packing --------------------------------------------------------------------------------- */

/* Packed keys are panels of `panel` keys, [feature][panel], also where the last has fewer keys. */
static inline void pack_panels(const size_t panel, const float *keys, int64_t stride, size_t first,
                               size_t n_keys, size_t dim, float *packed) {
    for (size_t j = 0; j < n_keys; j += VF_LANES) {
        const size_t n = n_keys - j < VF_LANES ? n_keys - j : VF_LANES;
        float *to = packed + (first + j) / panel * panel * dim + (first + j) % panel;
        const float *from = keys + (int64_t)j * stride;
        vf x[4];
        size_t c = 0;
        if (n == VF_LANES) {
            for (; c + 4 <= dim; c += 4) {
                transpose_keys(from + c, stride, VF_LANES, 4, x);
                UNROLL
                for (size_t f = 0; f < 4; f++)
                    vf_store(to + (c + f) * panel, x[f]);
            }
        }
        for (; c < dim; c += 4) {
            const size_t features = dim - c < 4 ? dim - c : 4;
            transpose_keys(from + c, stride, n, features, x);
            for (size_t f = 0; f < features; f++)
                vf_store(to + (c + f) * panel, x[f]);
        }
    }
}

#endif
