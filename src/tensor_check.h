/* What is checked of a single tensor: its type, that it is there, how far its strides reach and, of
 * an output, that its rows lie apart.
 *
 * Where all is well this takes a few instructions for each tensor, and is inlined. What to say of
 * something wrong is found in functions of their own, away from the path of a good call.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_TENSOR_CHECK_H
#define ATTN_TENSOR_CHECK_H

#include "problem.h"

#if defined(__GNUC__)
#define ATTN_COLD __attribute__((cold, noinline))
#define ATTN_SAYS(text, values) __attribute__((format(printf, text, values)))
#else
#define ATTN_COLD
#define ATTN_SAYS(text, values)
#endif

/* Writes the sentence, where say is not null, and answers status. */
ATTN_COLD ATTN_SAYS(3, 4) attn_status
    attn_fail(const struct attn_sentence *say, attn_status status, const char *format, ...);

/* Sizes of the three axes that have strides; the features are contiguous. */
struct attn_extents {
    int64_t batch, heads, tokens;
};

/* Of the query side, where a ragged batch has one of all its tokens, and of the cache, which has
 * pages for batches if it is paged. */
static inline struct attn_extents attn_query_extents(const attn_problem *p) {
    return (struct attn_extents){p->cu_q && p->batch > 0 ? 1 : p->batch, p->q_heads, p->q_len};
}
static inline struct attn_extents attn_cache_extents(const attn_problem *p) {
    if (p->pages.table)
        return (struct attn_extents){p->pages.n_pages, p->kv_heads, p->pages.page_len};
    return (struct attn_extents){p->batch, p->kv_heads, p->kv_cap};
}

/* ---- What is wrong --------------------------------------------------------------------------- */

/* For what the checks below find: the sentence and the error; or ATTN_OK, for a tensor without an
 * element may be null, and its strides anything. */
ATTN_COLD attn_status attn_fail_type(const char *name, attn_type type, attn_type last,
                                     const struct attn_sentence *say);
ATTN_COLD attn_status attn_fail_input(const char *name, const attn_input *t,
                                      const struct attn_extents *e, int64_t features,
                                      attn_type last, bool with_data,
                                      const struct attn_sentence *say);
ATTN_COLD attn_status attn_fail_output(const char *name, const attn_output *t,
                                       const struct attn_extents *e, int64_t features,
                                       attn_type last, bool is_required,
                                       const struct attn_sentence *say);

/* ---- Checks ---------------------------------------------------------------------------------- */

/* last: the last type, in the order of attn_type, that the tensor may have. */
static inline bool attn_is_type(attn_type type, attn_type last) {
    return (unsigned)type <= (unsigned)last;
}
static inline attn_status attn_check_type(const char *name, attn_type type, attn_type last,
                                          const struct attn_sentence *say) {
    return attn_is_type(type, last) ? ATTN_OK : attn_fail_type(name, type, last, say);
}

/* Adds what an axis reaches, in elements; false if that overflows. */
static inline bool attn_add_axis(int64_t size, int64_t stride, uint64_t *reach) {
    if (size <= 1)
        return true;
    const uint64_t length = stride < 0 ? 0 - (uint64_t)stride : (uint64_t)stride;
    uint64_t part;
    return !__builtin_mul_overflow(length, (uint64_t)size - 1, &part) &&
           !__builtin_add_overflow(*reach, part, reach);
}

/* Every address of a tensor must be within PTRDIFF_MAX bytes of its base. */
static inline bool attn_is_near(uint64_t reach) { return reach <= PTRDIFF_MAX / sizeof(float); }
static inline bool attn_is_within_reach(const struct attn_extents *e, int64_t stride_batch,
                                        int64_t stride_head, int64_t stride_token,
                                        int64_t features) {
    uint64_t reach = (uint64_t)features;
    return attn_add_axis(e->batch, stride_batch, &reach) &&
           attn_add_axis(e->heads, stride_head, &reach) &&
           attn_add_axis(e->tokens, stride_token, &reach) && attn_is_near(reach);
}

static inline bool attn_is_good_input(const attn_input *t, const struct attn_extents *e,
                                      int64_t features, attn_type last, bool with_data) {
    return attn_is_type(t->type, last) && (t->data || !with_data) &&
           attn_is_within_reach(e, t->stride_batch, t->stride_head, t->stride_token, features);
}
static inline attn_status attn_check_input(const char *name, const attn_input *t,
                                           const struct attn_extents *e, int64_t features,
                                           attn_type last, bool with_data,
                                           const struct attn_sentence *say) {
    return attn_is_good_input(t, e, features, last, with_data)
               ? ATTN_OK
               : attn_fail_input(name, t, e, features, last, with_data, say);
}

/* Whether an output is within reach and no two of its rows share an element, which several tasks
 * would then write. */
bool attn_is_writable(const attn_output *t, const struct attn_extents *e, int64_t features);

/* An output that is not required may be null, and its strides then anything. */
static inline attn_status attn_check_output(const char *name, const attn_output *t,
                                            const struct attn_extents *e, int64_t features,
                                            attn_type last, bool is_required,
                                            const struct attn_sentence *say) {
    const bool is_good =
        attn_is_type(t->type, last) && (t->data ? attn_is_writable(t, e, features) : !is_required);
    return is_good ? ATTN_OK : attn_fail_output(name, t, e, features, last, is_required, say);
}

/* ---- Copies ---------------------------------------------------------------------------------- */

/* Copies a caller's struct, which begins with its size, if this library understands it: if it is of
 * a version not before the first, of `least` bytes, and everything that is unknown here is at its
 * default, 0. What an earlier version does not have becomes 0. known: the size of this version. */
attn_status attn_take_struct(void *to, size_t known, const void *given, size_t least,
                             const struct attn_sentence *say);

/* The stride of an axis of size 1 may be anything: nobody may compute with it. It becomes 0, by a
 * bitwise and with all ones for an axis that is used and 0 for one that is not. */
static inline int64_t attn_if_used(int64_t size) { return -(int64_t)(size > 1); }
static inline struct attn_extents attn_used_axes(struct attn_extents e) {
    return (struct attn_extents){attn_if_used(e.batch), attn_if_used(e.heads),
                                 attn_if_used(e.tokens)};
}
#define ATTN_DROP_UNUSED_STRIDES(t, used)                                                          \
    ((void)((t)->stride_batch &= (used).batch, (t)->stride_head &= (used).heads,                   \
            (t)->stride_token &= (used).tokens))

#endif
