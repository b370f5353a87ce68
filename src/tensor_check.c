/* What is wrong with a tensor, in a sentence; and structs of other versions.
 *
 * SPDX-License-Identifier: MIT */
#include "tensor_check.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

attn_status attn_fail(struct attn_sentence sentence, attn_status status, const char *format, ...) {
    if (sentence.buffer && sentence.size) {
        va_list args;
        va_start(args, format);
        vsnprintf(sentence.buffer, sentence.size, format, args);
        va_end(args);
    }
    return status;
}

attn_status attn_fail_type(const char *name, attn_type type, attn_type last,
                           struct attn_sentence say) {
    return attn_fail(say, ATTN_ERROR_TYPE, "%s.type is %d; it may be %s", name, (int)type,
                     last == ATTN_F32 ? "ATTN_F32 (0)"
                     : last == ATTN_BF16
                         ? "ATTN_F32 (0), ATTN_F16 (1) or ATTN_BF16 (2)"
                         : "ATTN_F32 (0), ATTN_F16 (1), ATTN_BF16 (2) or ATTN_I8 (3)");
}

static bool has_rows(const struct attn_extents *e) { return e->batch && e->heads && e->tokens; }

attn_status attn_fail_tensor(const char *name, const void *data, const struct attn_extents *e,
                             int64_t stride_batch, int64_t stride_head, int64_t stride_token,
                             int64_t features, bool with_data, struct attn_sentence say) {
    if (!has_rows(e) || features == 0)
        return ATTN_OK;
    if (with_data && !data)
        return attn_fail(say, ATTN_ERROR_NULL, "%s.data is null, but the tensor is not empty",
                         name);
    return attn_fail(say, ATTN_ERROR_OVERFLOW,
                     "%s reaches beyond the address space: [%" PRId64 ", %" PRId64 ", %" PRId64
                     ", %" PRId64 "] with strides %" PRId64 ", %" PRId64 ", %" PRId64,
                     name, e->batch, e->heads, e->tokens, features, stride_batch, stride_head,
                     stride_token);
}

static ATTN_COLD attn_status fail_rows(const char *name, const char *axis, int64_t stride,
                                       int64_t features, struct attn_sentence say) {
    return attn_fail(say, ATTN_ERROR_STRIDE,
                     "%s.stride of %s is %" PRId64 ": its rows of %" PRId64
                     " elements would share memory",
                     name, axis, stride, features);
}

/* Whether the rows along an axis share an element. */
static bool is_shared(int64_t size, int64_t stride, int64_t features) {
    return size > 1 && stride < features && stride > -features;
}

attn_status attn_check_written(const char *name, const attn_output *t, const struct attn_extents *e,
                               int64_t features, bool is_required, struct attn_sentence say) {
    const attn_status status = ATTN_CHECK_TENSOR(name, t, e, features, is_required, say);
    if (status)
        return status;
    if (is_shared(e->batch, t->stride_batch, features) && has_rows(e))
        return fail_rows(name, "batch", t->stride_batch, features, say);
    if (is_shared(e->heads, t->stride_head, features) && has_rows(e))
        return fail_rows(name, "heads", t->stride_head, features, say);
    if (is_shared(e->tokens, t->stride_token, features) && has_rows(e))
        return fail_rows(name, "tokens", t->stride_token, features, say);
    return ATTN_OK;
}

static ATTN_COLD attn_status take_other_version(void *to, size_t known, const void *given,
                                                size_t size, size_t least,
                                                struct attn_sentence say) {
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
                             struct attn_sentence say) {
    size_t size;
    memcpy(&size, given, sizeof size);
    if (size != known)
        return take_other_version(to, known, given, size, least, say);
    memcpy(to, given, known);
    return ATTN_OK;
}
