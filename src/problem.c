/* Checks the arguments of a call, completely and before anything is written.
 *
 * SPDX-License-Identifier: MIT */
#include "problem.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
static attn_status
fail(struct attn_sentence sentence, attn_status status, const char *format, ...) {
    if (sentence.buffer && sentence.size) {
        va_list args;
        va_start(args, format);
        vsnprintf(sentence.buffer, sentence.size, format, args);
        va_end(args);
    }
    return status;
}

/* An axis of a tensor; the last one is contiguous. */
struct axis {
    const char *name;
    int64_t size, stride;
};

/* Every address of the tensor must be within PTRDIFF_MAX bytes of its base. */
static bool extent_fits(const struct axis *axes, int n_axes, int64_t features) {
    int64_t reach = features;
    for (int i = 0; i < n_axes; i++) {
        if (axes[i].size <= 1)
            continue;
        int64_t length = axes[i].stride;
        if (length == INT64_MIN)
            return false;
        length = length < 0 ? -length : length;
        int64_t part;
        if (__builtin_mul_overflow(length, axes[i].size - 1, &part) ||
            __builtin_add_overflow(reach, part, &reach))
            return false;
    }
    return reach <= PTRDIFF_MAX / (int64_t)sizeof(float);
}

static attn_status check_tensor(const char *name, const void *data, attn_type type,
                                const struct axis axes[3], int64_t features, bool with_data,
                                struct attn_sentence say) {
    if (type != ATTN_F32)
        return fail(say, ATTN_ERROR_TYPE, "%s.type is %d; this version supports ATTN_F32 (0) only",
                    name, (int)type);
    for (int i = 0; i < 3; i++)
        if (axes[i].size == 0)
            return ATTN_OK;
    if (features == 0)
        return ATTN_OK;
    if (with_data && !data)
        return fail(say, ATTN_ERROR_NULL, "%s.data is null, but the tensor is not empty", name);
    if (!extent_fits(axes, 3, features))
        return fail(say, ATTN_ERROR_OVERFLOW,
                    "%s reaches beyond the address space: [%" PRId64 ", %" PRId64 ", %" PRId64
                    ", %" PRId64 "] with strides %" PRId64 ", %" PRId64 ", %" PRId64,
                    name, axes[0].size, axes[1].size, axes[2].size, features, axes[0].stride,
                    axes[1].stride, axes[2].stride);
    return ATTN_OK;
}

/* Rows of an output that share an element would be written by several tasks. */
static attn_status check_rows_apart(const char *name, const struct axis axes[3], int64_t features,
                                    struct attn_sentence say) {
    for (int i = 0; i < 3; i++)
        if (axes[i].size == 0)
            return ATTN_OK;
    for (int i = 0; i < 3; i++)
        if (axes[i].size > 1 && axes[i].stride < features && axes[i].stride > -features)
            return fail(say, ATTN_ERROR_STRIDE,
                        "%s.stride of %s is %" PRId64 ": its rows of %" PRId64
                        " elements would share memory",
                        name, axes[i].name, axes[i].stride, features);
    return ATTN_OK;
}

static attn_status check_sizes(const attn_problem *p, struct attn_sentence say) {
    const struct axis sizes[] = {
        {"batch", p->batch, 0}, {"q_heads", p->q_heads, 0}, {"kv_heads", p->kv_heads, 0},
        {"q_len", p->q_len, 0}, {"kv_cap", p->kv_cap, 0},   {"qk_dim", p->qk_dim, 0},
        {"v_dim", p->v_dim, 0},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (sizes[i].size < 0)
            return fail(say, ATTN_ERROR_SIZE, "%s is %" PRId64 "; a size cannot be negative",
                        sizes[i].name, sizes[i].size);
    if (p->qk_dim == 0)
        return fail(say, ATTN_ERROR_SIZE, "qk_dim is 0; it must be at least 1");
    if (p->kv_heads == 0 && p->q_heads > 0)
        return fail(say, ATTN_ERROR_SIZE, "kv_heads is 0, but q_heads is %" PRId64, p->q_heads);
    if (p->q_heads > 0 && p->q_heads % p->kv_heads != 0)
        return fail(say, ATTN_ERROR_HEADS,
                    "q_heads %" PRId64 " is not a multiple of kv_heads %" PRId64, p->q_heads,
                    p->kv_heads);
    /* The workspace and the task list count rows and features. */
    int64_t product = p->batch;
    if (__builtin_mul_overflow(product, p->q_heads, &product) ||
        __builtin_mul_overflow(product, p->q_len, &product) || product > INT64_MAX / 2 ||
        p->qk_dim > INT32_MAX || p->v_dim > INT32_MAX)
        return fail(say, ATTN_ERROR_OVERFLOW,
                    "batch %" PRId64 ", q_heads %" PRId64 ", q_len %" PRId64 ", qk_dim %" PRId64
                    ", v_dim %" PRId64 ": too large to index",
                    p->batch, p->q_heads, p->q_len, p->qk_dim, p->v_dim);
    return ATTN_OK;
}

static attn_status check_tensors(const attn_problem *p, bool with_data, struct attn_sentence say) {
#define AXES(t, heads, tokens)                                                                     \
    {                                                                                              \
        {"batch", p->batch, (t).stride_batch}, {"heads", heads, (t).stride_head}, {                \
            "tokens", tokens, (t).stride_token                                                     \
        }                                                                                          \
    }
    const struct axis q[3] = AXES(p->q, p->q_heads, p->q_len);
    const struct axis k[3] = AXES(p->k, p->kv_heads, p->kv_cap);
    const struct axis v[3] = AXES(p->v, p->kv_heads, p->kv_cap);
    const struct axis out[3] = AXES(p->out, p->q_heads, p->q_len);
    const struct axis lse[3] = AXES(p->lse, p->q_heads, p->q_len);
    const struct axis weights[3] = AXES(p->weights, p->q_heads, p->q_len);
#undef AXES
    attn_status status;
    if ((status = check_tensor("q", p->q.data, p->q.type, q, p->qk_dim, with_data, say)) ||
        (status = check_tensor("k", p->k.data, p->k.type, k, p->qk_dim, with_data, say)) ||
        (status = check_tensor("v", p->v.data, p->v.type, v, p->v_dim, with_data, say)))
        return status;
    const struct {
        const char *name;
        const attn_output *t;
        const struct axis *axes;
        int64_t features;
        bool required;
    } outputs[] = {{"out", &p->out, out, p->v_dim, with_data},
                   {"lse", &p->lse, lse, 1, false},
                   {"weights", &p->weights, weights, p->kv_cap, false}};
    for (size_t i = 0; i < sizeof outputs / sizeof outputs[0]; i++) {
        if (!outputs[i].t->data && !outputs[i].required)
            continue;
        if ((status =
                 check_tensor(outputs[i].name, outputs[i].t->data, outputs[i].t->type,
                              outputs[i].axes, outputs[i].features, outputs[i].required, say)) ||
            (status = check_rows_apart(outputs[i].name, outputs[i].axes, outputs[i].features, say)))
            return status;
    }
    return ATTN_OK;
}

static attn_status check_parameters(const struct attn_checked *c, struct attn_sentence say) {
    const attn_problem *p = &c->p;
    if (p->scale && !isfinite(*p->scale))
        return fail(say, ATTN_ERROR_PARAMETER, "scale is %g; it must be finite", (double)*p->scale);
    if (p->causal != 0 && p->causal != 1)
        return fail(say, ATTN_ERROR_PARAMETER, "causal is %d; it is 0 or 1", (int)p->causal);
    if ((int)p->align < ATTN_ALIGN_UNSET || (int)p->align > ATTN_ALIGN_EXPLICIT)
        return fail(say, ATTN_ERROR_PARAMETER, "align is %d; see attn_align", (int)p->align);
    if (p->align == ATTN_ALIGN_EXPLICIT && !p->offset && p->batch > 0)
        return fail(say, ATTN_ERROR_NULL, "align is ATTN_ALIGN_EXPLICIT, but offset is null");
    if (p->align != ATTN_ALIGN_EXPLICIT && p->offset)
        return fail(say, ATTN_ERROR_ALIGNMENT,
                    "offset is given, but align is %d, not ATTN_ALIGN_EXPLICIT", (int)p->align);
    for (int64_t b = 0; b < p->batch && !c->no_output; b++) {
        const int64_t keys = attn_key_count(c, b);
        if (keys < 0 || keys > p->kv_cap)
            return fail(say, ATTN_ERROR_KV_LEN,
                        "kv_len[%" PRId64 "] is %" PRId64 "; it must be in 0 .. kv_cap = %" PRId64,
                        b, keys, p->kv_cap);
        if (p->causal && p->align == ATTN_ALIGN_UNSET && keys != p->q_len)
            return fail(say, ATTN_ERROR_ALIGNMENT,
                        "causal with q_len %" PRId64 " and %" PRId64 " keys in batch %" PRId64
                        ": pick an alignment (top-left, bottom-right or explicit offsets)",
                        p->q_len, keys, b);
        if (p->align == ATTN_ALIGN_EXPLICIT &&
            (p->offset[b] > INT64_C(1) << 62 || p->offset[b] < -(INT64_C(1) << 62)))
            return fail(say, ATTN_ERROR_OVERFLOW,
                        "offset[%" PRId64 "] is %" PRId64 "; its magnitude may be at most 2^62", b,
                        p->offset[b]);
    }
    return ATTN_OK;
}

/* The stride of an axis of size 1 may be anything: nobody may compute with it. */
#define DROP_UNUSED_STRIDES(t, heads, tokens)                                                      \
    do {                                                                                           \
        (t).stride_batch = p->batch > 1 ? (t).stride_batch : 0;                                    \
        (t).stride_head = (heads) > 1 ? (t).stride_head : 0;                                       \
        (t).stride_token = (tokens) > 1 ? (t).stride_token : 0;                                    \
    } while (0)

static void drop_unused_strides(attn_problem *p) {
    DROP_UNUSED_STRIDES(p->q, p->q_heads, p->q_len);
    DROP_UNUSED_STRIDES(p->k, p->kv_heads, p->kv_cap);
    DROP_UNUSED_STRIDES(p->v, p->kv_heads, p->kv_cap);
    DROP_UNUSED_STRIDES(p->out, p->q_heads, p->q_len);
    DROP_UNUSED_STRIDES(p->lse, p->q_heads, p->q_len);
    DROP_UNUSED_STRIDES(p->weights, p->q_heads, p->q_len);
}

attn_status attn_problem_check(const attn_problem *problem, bool with_data,
                               struct attn_checked *checked, struct attn_sentence say) {
    if (!problem)
        return fail(say, ATTN_ERROR_NULL, "problem is null");
    const size_t size = problem->struct_size;
    enum { LARGEST = 4096 }; /* of any later version; a struct never initialised is rarely below */
    if (size < sizeof *problem || size > LARGEST)
        return fail(say, ATTN_ERROR_STRUCT_SIZE,
                    "struct_size is %zu; this library knows %zu: start from attn_problem_init()",
                    size, sizeof *problem);
    /* A larger one comes from a newer header: fine as long as what we do not know is at its
     * default, which is zero. */
    for (size_t i = sizeof *problem; i < size; i++)
        if (((const unsigned char *)problem)[i])
            return fail(say, ATTN_ERROR_STRUCT_SIZE,
                        "struct_size is %zu, and byte %zu asks for something newer than this "
                        "library, which knows %zu bytes",
                        size, i, sizeof *problem);

    checked->p = *problem;
    const attn_problem *p = &checked->p;
    checked->no_output = !p->batch || !p->q_heads || !p->q_len || !p->v_dim;
    attn_status status;
    if ((status = check_sizes(p, say)) || (status = check_tensors(p, with_data, say)) ||
        (status = check_parameters(checked, say)))
        return status;
    drop_unused_strides(&checked->p);
    checked->group = p->q_heads ? p->q_heads / p->kv_heads : 1;
    checked->scale = p->scale ? *p->scale : (float)(1.0 / sqrt((double)p->qk_dim));
    return ATTN_OK;
}
