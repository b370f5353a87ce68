/* What is wrong with a tensor, in a sentence; and structs of other versions.
 *
 * SPDX-License-Identifier: MIT */
#include "tensor_check.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

attn_status attn_fail(const struct attn_sentence *say, attn_status status, const char *format,
                      ...) {
    if (say && say->buffer && say->size) {
        va_list args;
        va_start(args, format);
        vsnprintf(say->buffer, say->size, format, args);
        va_end(args);
    }
    return status;
}

attn_status attn_fail_type(const char *name, attn_type type, attn_type last,
                           const struct attn_sentence *say) {
    return attn_fail(say, ATTN_ERROR_TYPE, "%s.type is %d; it may be %s", name, (int)type,
                     last == ATTN_F32 ? "ATTN_F32 (0)"
                     : last == ATTN_BF16
                         ? "ATTN_F32 (0), ATTN_F16 (1) or ATTN_BF16 (2)"
                         : "ATTN_F32 (0), ATTN_F16 (1), ATTN_BF16 (2) or ATTN_I8 (3)");
}

/* Whether rows along an axis share an element. */
static bool is_shared(int64_t size, int64_t stride, int64_t features) {
    return size > 1 && stride < features && stride > -features;
}

bool attn_is_writable(const attn_output *t, const struct attn_extents *e, int64_t features) {
    return attn_is_within_reach(e, t->stride_batch, t->stride_head, t->stride_token, features) &&
           !is_shared(e->batch, t->stride_batch, features) &&
           !is_shared(e->heads, t->stride_head, features) &&
           !is_shared(e->tokens, t->stride_token, features);
}

static bool has_rows(const struct attn_extents *e) { return e->batch && e->heads && e->tokens; }

attn_status attn_fail_input(const char *name, const attn_input *t, const struct attn_extents *e,
                            int64_t features, attn_type last, bool with_data,
                            const struct attn_sentence *say) {
    if (!attn_is_type(t->type, last))
        return attn_fail_type(name, t->type, last, say);
    if (!has_rows(e) || features == 0)
        return ATTN_OK;
    if (with_data && !t->data)
        return attn_fail(say, ATTN_ERROR_NULL, "%s.data is null, but the tensor is not empty",
                         name);
    if (attn_is_within_reach(e, t->stride_batch, t->stride_head, t->stride_token, features))
        return ATTN_OK;
    return attn_fail(say, ATTN_ERROR_OVERFLOW,
                     "%s reaches beyond the address space: [%" PRId64 ", %" PRId64 ", %" PRId64
                     ", %" PRId64 "] with strides %" PRId64 ", %" PRId64 ", %" PRId64,
                     name, e->batch, e->heads, e->tokens, features, t->stride_batch, t->stride_head,
                     t->stride_token);
}

attn_status attn_fail_output(const char *name, const attn_output *t, const struct attn_extents *e,
                             int64_t features, attn_type last, bool is_required,
                             const struct attn_sentence *say) {
    const attn_input as_input = {t->data, t->type, t->stride_batch, t->stride_head,
                                 t->stride_token};
    const attn_status status =
        attn_fail_input(name, &as_input, e, features, last, is_required, say);
    if (status || !has_rows(e))
        return status;
    const struct {
        const char *name;
        int64_t size, stride;
    } axes[] = {{"batch", e->batch, t->stride_batch},
                {"heads", e->heads, t->stride_head},
                {"tokens", e->tokens, t->stride_token}};
    for (int i = 0; i < 3; i++)
        if (is_shared(axes[i].size, axes[i].stride, features))
            return attn_fail(say, ATTN_ERROR_STRIDE,
                             "%s.stride of %s is %" PRId64 ": its rows of %" PRId64
                             " elements would share memory",
                             name, axes[i].name, axes[i].stride, features);
    return ATTN_OK;
}

static ATTN_COLD attn_status take_other_version(void *to, size_t known, const void *given,
                                                size_t size, size_t least,
                                                const struct attn_sentence *say) {
    enum { LARGEST = 4096 }; /* of any later version; a struct never initialised is rarely below */
    if (size < least || size > LARGEST)
        return attn_fail(say, ATTN_ERROR_STRUCT_SIZE,
                         "struct_size is %zu; this library knows %zu: start from "
                         "attn_problem_init()",
                         size, known);
    for (size_t i = known; i < size; i++)
        if (((const unsigned char *)given)[i])
            return attn_fail(say, ATTN_ERROR_STRUCT_SIZE,
                             "struct_size is %zu, and byte %zu asks for something newer than this "
                             "library, which knows %zu bytes",
                             size, i, known);
    memset(to, 0, known);
    memcpy(to, given, size < known ? size : known);
    return ATTN_OK;
}

attn_status attn_take_struct(void *to, size_t known, const void *given, size_t least,
                             const struct attn_sentence *say) {
    size_t size;
    memcpy(&size, given, sizeof size);
    if (size != known)
        return take_other_version(to, known, given, size, least, say);
    memcpy(to, given, known);
    return ATTN_OK;
}
