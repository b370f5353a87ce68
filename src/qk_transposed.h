/* Keys turned, four features at a time, into vectors of one feature of several keys, and packed into
 * panels for many query rows. For instruction sets that broadcast queries from memory; on the
 * vectors of vec.h and the transpose_keys of transpose.h, which are included before this. What is
 * called a feature here is a lane of lanes.h.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_QK_TRANSPOSED_H
#define ATTN_QK_TRANSPOSED_H

#include <stdint.h>

#include "prefetch_ahead.h"
#include "unroll.h"

/* ---- Asking for keys that come next ------------------------------------------------------------ */

enum { LINE = ATTN_LINE_BYTES / sizeof(float) };

/* Keys without gaps are one run of lines in the order in which they lie, and the hardware runs ahead of
 * it. Keys with gaps are a run for each of their lines, from key to key. */
struct lines_ahead {
    uintptr_t line;         /* may leave the keys */
    size_t left, runs_left; /* lines of this run; runs after it */
    size_t run;             /* lines of each */
    uintptr_t step, back;   /* bytes to the next line of a run; from the last one to the next run */
    uintptr_t far;          /* see prefetch_lines */
    int is_sparse;          /* a run has no room in the first level */
};

/* Whether lines lie between keys that hold nothing of them. */
static inline int has_gaps(int64_t stride, size_t dim) {
    return stride < (int64_t)dim || stride > (int64_t)((dim + LINE - 1) / LINE * LINE);
}

/* far: see prefetch_lines. */
static inline struct lines_ahead lines_ahead(const float *next, int64_t stride, size_t n_next,
                                             size_t dim, uintptr_t far) {
    const uintptr_t step = (uintptr_t)stride * sizeof(float);
    const size_t lines = (dim + LINE - 1) / LINE;
    struct lines_ahead ahead = {.line = (uintptr_t)next, .step = ATTN_LINE_BYTES};
    if (n_next == 0)
        return ahead;
    if (has_gaps(stride, dim)) {
        ahead.left = ahead.run = n_next, ahead.runs_left = lines - 1;
        ahead.step = step, ahead.back = ATTN_LINE_BYTES - (n_next - 1) * step;
        ahead.is_sparse = step % ATTN_SPARSE_BYTES == 0;
    } else {
        ahead.left = (n_next - 1) * step / ATTN_LINE_BYTES + lines;
        ahead.far = far;
    }
    return ahead;
}

/* n lines, and one line in four of what comes `far` bytes after them; sparse ones into the second
 * level. */
#define prefetch_lines(ahead, n)                                                                   \
    do {                                                                                           \
        if ((ahead).left >= (n) && (ahead).step == ATTN_LINE_BYTES) {                              \
            UNROLL                                                                                 \
            for (size_t i_ = 0; i_ < (n); i_++)                                                    \
                vf_prefetch((ahead).line + ATTN_LINE_BYTES * i_);                                  \
            UNROLL                                                                                 \
            for (size_t i_ = 0; i_ < (n); i_ += 4)                                                 \
                vf_prefetch_far((ahead).line + (ahead).far + ATTN_LINE_BYTES * i_);                \
            (ahead).line += ATTN_LINE_BYTES * (n);                                                 \
            (ahead).left -= (n);                                                                   \
            break;                                                                                 \
        }                                                                                          \
        for (size_t i_ = 0; i_ < (n) && (ahead).left > 0; i_++) {                                  \
            if ((ahead).is_sparse)                                                                 \
                vf_prefetch_far((ahead).line);                                                     \
            else                                                                                   \
                vf_prefetch((ahead).line);                                                         \
            (ahead).left--;                                                                        \
            if ((ahead).left > 0) {                                                                \
                (ahead).line += (ahead).step;                                                      \
            } else if ((ahead).runs_left > 0) {                                                    \
                (ahead).line += (ahead).back;                                                      \
                (ahead).left = (ahead).run;                                                        \
                (ahead).runs_left--;                                                               \
            }                                                                                      \
        }                                                                                          \
    } while (0)

/* ---- Packing --------------------------------------------------------------------------------- */

/* Packed keys are panels of `panel` keys, [feature][panel], also where the last has fewer keys. */
static inline void pack_panels(const size_t panel, const float *keys, int64_t stride, size_t first,
                               size_t n_keys, size_t dim, float *packed) {
    const struct key_steps steps = key_steps(stride);
    for (size_t j = 0; j < n_keys; j += VF_LANES) {
        const size_t n = n_keys - j < VF_LANES ? n_keys - j : VF_LANES;
        float *to = packed + (first + j) / panel * panel * dim + (first + j) % panel;
        const float *from = keys + (int64_t)j * stride;
        vf x[4];
        size_t c = 0;
        if (n == VF_LANES) {
            for (; c + 4 <= dim; c += 4) {
                transpose_keys(from + c, steps, VF_LANES, 4, x);
                UNROLL
                for (size_t f = 0; f < 4; f++)
                    vf_store(to + (c + f) * panel, x[f]);
            }
        }
        for (; c < dim; c += 4) {
            const size_t features = dim - c < 4 ? dim - c : 4;
            transpose_keys(from + c, steps, n, features, x);
            for (size_t f = 0; f < features; f++)
                vf_store(to + (c + f) * panel, x[f]);
        }
    }
}

#endif
