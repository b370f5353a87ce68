/* How rows lie for products of int8: quantised queries, and keys with their scales.
 *
 * Features go sixteen at a time, a `quad`: four 32-bit lanes of four features. Groups of features
 * that share a scale are whole quads, but for the last one, which the end of the row may cut.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_INT8_ROWS_H
#define ATTN_INT8_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { INT8_QUAD = 16 };

/* Sums of products of int8, at most 2^14 each, are exact in 32 bits up to this many features. */
enum { INT8_GROUP_MOST = 1 << 16 };

/* dim features in groups of `group`, the last one perhaps fewer. */
struct int8_shape {
    size_t dim, group;
    size_t quads, groups, group_quads;
};

/* group as in attn_scales: 0 is the whole row. */
static inline bool int8_shape_fits(int64_t dim, int64_t group) {
    const bool is_whole = group == 0 || group >= dim;
    return is_whole ? dim <= INT8_GROUP_MOST : group % INT8_QUAD == 0 && group <= INT8_GROUP_MOST;
}

static inline struct int8_shape int8_shape_of(size_t dim, size_t group) {
    struct int8_shape s = {.dim = dim, .quads = (dim + INT8_QUAD - 1) / INT8_QUAD};
    s.group = group == 0 || group >= dim ? s.quads * INT8_QUAD : group;
    s.groups = (dim + s.group - 1) / s.group;
    s.group_quads = s.group / INT8_QUAD;
    return s;
}

/* The first quad behind group g. */
static inline size_t int8_group_end(const struct int8_shape *s, size_t g) {
    return g + 1 < s->groups ? (g + 1) * s->group_quads : s->quads;
}

/* A quantised row, in 32-bit words: its integers, 0 behind the last; then the scale of each group;
 * then the sum of each group's integers. */
static inline size_t int8_query_words(const struct int8_shape *s) {
    return s->quads * (INT8_QUAD / 4) + 2 * s->groups;
}
static inline const float *int8_query_scales(const struct int8_shape *s, const int8_t *row) {
    return (const float *)(const void *)(row + s->quads * INT8_QUAD);
}
static inline const int32_t *int8_query_sums(const struct int8_shape *s, const int8_t *row) {
    return (const int32_t *)(const void *)(row + s->quads * INT8_QUAD) + s->groups;
}

/* A packed key, in 32-bit words: its integers and scales. Nowhere do they lie together: a panel of
 * keys is [quad][lane][key], then [group][key]. */
static inline size_t int8_key_words(const struct int8_shape *s) {
    return s->quads * (INT8_QUAD / 4) + s->groups;
}

#endif
