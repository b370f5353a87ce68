/* Checks the arguments of a call, completely and before anything is written.
 *
 * SPDX-License-Identifier: MIT */
#include "problem.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "visible.h"

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

/* Sets of element types that a tensor may have. */
enum {
    F32_ONLY = 1 << ATTN_F32,
    FLOATS = F32_ONLY | 1 << ATTN_F16 | 1 << ATTN_BF16,
    ANY_TYPE = FLOATS | 1 << ATTN_I8,
};

static attn_status check_type(const char *name, attn_type type, unsigned types,
                              struct attn_sentence say) {
    if ((int)type >= ATTN_F32 && (int)type <= ATTN_I8 && types >> (int)type & 1)
        return ATTN_OK;
    return fail(say, ATTN_ERROR_TYPE, "%s.type is %d; it may be %s", name, (int)type,
                types == F32_ONLY ? "ATTN_F32 (0)"
                : types == FLOATS ? "ATTN_F32 (0), ATTN_F16 (1) or ATTN_BF16 (2)"
                                  : "ATTN_F32 (0), ATTN_F16 (1), ATTN_BF16 (2) or ATTN_I8 (3)");
}

static attn_status check_tensor(const char *name, const void *data, const struct axis axes[3],
                                int64_t features, bool with_data, struct attn_sentence say) {
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
        {"batch", p->batch, 0}, {"q_heads", p->q_heads, 0},   {"kv_heads", p->kv_heads, 0},
        {"q_len", p->q_len, 0}, {"kv_cap", p->kv_cap, 0},     {"qk_dim", p->qk_dim, 0},
        {"v_dim", p->v_dim, 0}, {"past_cap", p->past_cap, 0},
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
        p->qk_dim > INT32_MAX || p->v_dim > INT32_MAX ||
        __builtin_add_overflow(p->past_cap, p->kv_cap, &product))
        return fail(say, ATTN_ERROR_OVERFLOW,
                    "batch %" PRId64 ", q_heads %" PRId64 ", q_len %" PRId64 ", kv_cap %" PRId64
                    ", past_cap %" PRId64 ", qk_dim %" PRId64 ", v_dim %" PRId64
                    ": too large to index",
                    p->batch, p->q_heads, p->q_len, p->kv_cap, p->past_cap, p->qk_dim, p->v_dim);
    return ATTN_OK;
}

/* Sizes of the three axes that have strides. */
struct extents {
    int64_t batch, heads, tokens;
};

#define AXES(t, e)                                                                                 \
    {                                                                                              \
        {"batch", (e).batch, (t).stride_batch}, {"heads", (e).heads, (t).stride_head}, {           \
            "tokens", (e).tokens, (t).stride_token                                                 \
        }                                                                                          \
    }

/* Extents of the query side, where a ragged batch has one of all its tokens, and of the cache,
 * which has pages for batches if it is paged. */
static struct extents query_extents(const attn_problem *p) {
    return (struct extents){p->cu_q && p->batch > 0 ? 1 : p->batch, p->q_heads, p->q_len};
}
static struct extents cache_extents(const attn_problem *p) {
    return (struct extents){p->pages.table ? p->pages.n_pages : p->batch, p->kv_heads,
                            p->pages.table ? p->pages.page_len : p->kv_cap};
}
static struct extents past_extents(const attn_problem *p) {
    return (struct extents){p->batch, p->kv_heads, p->past_cap};
}

static attn_status check_input(const char *name, const attn_input *t, struct extents e,
                               int64_t features, unsigned types, bool with_data,
                               struct attn_sentence say) {
    const struct axis axes[3] = AXES(*t, e);
    const attn_status status = check_type(name, t->type, types, say);
    return status ? status : check_tensor(name, t->data, axes, features, with_data, say);
}

static attn_status check_scales(const char *name, const attn_input *t, const attn_scales *s,
                                struct extents e, int64_t features, bool with_data,
                                struct attn_sentence say) {
    if (t->type != ATTN_I8)
        return ATTN_OK;
    if (s->group < 0)
        return fail(say, ATTN_ERROR_SIZE, "%s.group is %" PRId64 "; it cannot be negative", name,
                    s->group);
    const struct axis axes[3] = AXES(*s, e);
    const int64_t n = s->group ? features / s->group + 1 : 1;
    return check_tensor(name, s->data, axes, n, with_data && features, say);
}

static attn_status check_inputs(const struct attn_checked *c, bool with_data,
                                struct attn_sentence say) {
    const attn_problem *p = &c->p;
    const int64_t d = p->qk_dim, dv = p->v_dim;
    const struct extents query = query_extents(p), cache = cache_extents(p);
    attn_status status;
    if ((status = check_input("q", &p->q, query, d, FLOATS, with_data, say)) ||
        (status = check_input("k", &p->k, cache, d, ANY_TYPE, with_data, say)) ||
        (status = check_input("v", &p->v, cache, dv, ANY_TYPE, with_data, say)) ||
        (status = check_scales("k_scales", &p->k, &p->k_scales, cache, d, with_data, say)) ||
        (status = check_scales("v_scales", &p->v, &p->v_scales, cache, dv, with_data, say)) ||
        !p->past_cap)
        return status;
    const struct extents past = past_extents(p);
    if ((status = check_input("past_k", &p->past_k, past, d, ANY_TYPE, with_data, say)) ||
        (status = check_input("past_v", &p->past_v, past, dv, ANY_TYPE, with_data, say)) ||
        (status = check_scales("past_k_scales", &p->past_k, &p->past_k_scales, past, d, with_data,
                               say)) ||
        (status = check_scales("past_v_scales", &p->past_v, &p->past_v_scales, past, dv, with_data,
                               say)))
        return status;
    if (p->past_k.type != p->k.type || p->past_v.type != p->v.type ||
        (p->k.type == ATTN_I8 && p->past_k_scales.group != p->k_scales.group) ||
        (p->v.type == ATTN_I8 && p->past_v_scales.group != p->v_scales.group))
        return fail(say, ATTN_ERROR_TYPE,
                    "past_k and past_v must have the types (%d, %d) and groups of k and v (%d, %d)",
                    (int)p->past_k.type, (int)p->past_v.type, (int)p->k.type, (int)p->v.type);
    return ATTN_OK;
}

static attn_status check_output(const char *name, const attn_output *t, struct extents e,
                                int64_t features, unsigned types, bool is_required,
                                struct attn_sentence say) {
    attn_status status = check_type(name, t->type, types, say);
    if (status != ATTN_OK || (!t->data && !is_required))
        return status;
    const struct axis axes[3] = AXES(*t, e);
    status = check_tensor(name, t->data, axes, features, is_required, say);
    return status ? status : check_rows_apart(name, axes, features, say);
}

static attn_status check_outputs(const struct attn_checked *c, bool with_data,
                                 struct attn_sentence say) {
    const attn_problem *p = &c->p;
    const struct extents e = query_extents(p);
    attn_status status;
    if ((status = check_output("out", &p->out, e, p->v_dim, FLOATS, with_data, say)) ||
        (status = check_output("lse", &p->lse, e, 1, F32_ONLY, false, say)) ||
        (status = check_output("weights", &p->weights, e, c->key_cap, F32_ONLY, false, say)))
        return status;
    return check_output("scores", &p->scores, e, c->key_cap, F32_ONLY, false, say);
}

static attn_status check_pages(const struct attn_checked *c, struct attn_sentence say) {
    const attn_pages *pages = &c->p.pages;
    if (!pages->table)
        return ATTN_OK;
    if (c->p.past_cap)
        return fail(say, ATTN_ERROR_PAGE, "pages and past_cap %" PRId64 " exclude each other",
                    c->p.past_cap);
    if (pages->page_len < 1 || pages->n_pages < 0 || pages->n_pages > INT32_MAX)
        return fail(say, ATTN_ERROR_PAGE, "pages.page_len is %" PRId64 ", n_pages %" PRId64,
                    pages->page_len, pages->n_pages);
    const int64_t per_batch = c->p.kv_cap / pages->page_len + 1;
    const struct axis batches = {"batch", c->p.batch, pages->stride_batch};
    if (!extent_fits(&batches, 1, per_batch))
        return fail(say, ATTN_ERROR_OVERFLOW, "pages.table reaches beyond the address space");
    return ATTN_OK;
}

static attn_status check_mask(const struct attn_checked *c, bool with_data,
                              struct attn_sentence say) {
    const attn_mask *mask = &c->p.mask;
    if ((int)mask->type < ATTN_MASK_NONE || (int)mask->type > ATTN_MASK_BITS)
        return fail(say, ATTN_ERROR_PARAMETER, "mask.type is %d; see attn_mask_type",
                    (int)mask->type);
    if (mask->type == ATTN_MASK_NONE)
        return mask->data ? fail(say, ATTN_ERROR_MASK,
                                 "mask.data is given, but mask.type is ATTN_MASK_NONE")
                          : ATTN_OK;
    if (mask->n_keys < 0 || (mask->n_keys == 0 && c->key_cap > 0))
        return fail(say, ATTN_ERROR_MASK,
                    "mask.n_keys is %" PRId64 "; it is the number of keys the mask covers, such as "
                    "%" PRId64,
                    mask->n_keys, c->key_cap);
    if (mask->type == ATTN_MASK_BITS && mask->stride_key)
        return fail(say, ATTN_ERROR_MASK,
                    "mask.stride_key is %" PRId64 "; packed bits have none, leave it 0",
                    mask->stride_key);
    if (c->no_output || c->key_cap == 0)
        return ATTN_OK;
    if (with_data && !mask->data)
        return fail(say, ATTN_ERROR_NULL, "mask.data is null, but mask.type is %d",
                    (int)mask->type);
    const int64_t keys = mask->n_keys < c->key_cap ? mask->n_keys : c->key_cap;
    const bool is_bits = mask->type == ATTN_MASK_BITS;
    const struct axis axes[] = {{"batch", c->p.batch, mask->stride_batch},
                                {"heads", c->p.q_heads, mask->stride_head},
                                {"queries", c->p.q_len, mask->stride_query},
                                {"keys", is_bits ? 1 : keys, mask->stride_key}};
    if (!extent_fits(axes, 4, is_bits ? (keys + 7) / 8 : 1))
        return fail(say, ATTN_ERROR_OVERFLOW,
                    "mask reaches beyond the address space with strides %" PRId64 ", %" PRId64
                    ", %" PRId64 ", %" PRId64,
                    mask->stride_batch, mask->stride_head, mask->stride_query, mask->stride_key);
    return ATTN_OK;
}

static attn_status check_cu_q(const attn_problem *p, struct attn_sentence say) {
    for (int64_t b = 0; b <= p->batch; b++) {
        const int64_t least = b ? p->cu_q[b - 1] : 0;
        const int64_t most = b ? p->q_len : 0;
        if (p->cu_q[b] < least || p->cu_q[b] > most || (b == p->batch && p->cu_q[b] != p->q_len))
            return fail(say, ATTN_ERROR_CU_Q,
                        "cu_q[%" PRId64 "] is %" PRId64 "; it must rise from 0 to q_len = %" PRId64,
                        b, p->cu_q[b], p->q_len);
    }
    return ATTN_OK;
}

static attn_status check_numbers(const attn_problem *p, struct attn_sentence say) {
    if (p->scale && !isfinite(*p->scale))
        return fail(say, ATTN_ERROR_PARAMETER, "scale is %g; it must be finite", (double)*p->scale);
    if (!isfinite(p->softcap) || p->softcap < 0)
        return fail(say, ATTN_ERROR_PARAMETER, "softcap is %g; it must be finite and not negative",
                    (double)p->softcap);
    if (p->causal != 0 && p->causal != 1)
        return fail(say, ATTN_ERROR_PARAMETER, "causal is %d; it is 0 or 1", (int)p->causal);
    if (p->window && (p->window[0] < -1 || p->window[1] < -1))
        return fail(say, ATTN_ERROR_PARAMETER,
                    "window is %" PRId64 ", %" PRId64 "; each is -1 (unbounded) or a distance",
                    p->window[0], p->window[1]);
    if ((int)p->align < ATTN_ALIGN_UNSET || (int)p->align > ATTN_ALIGN_EXPLICIT)
        return fail(say, ATTN_ERROR_PARAMETER, "align is %d; see attn_align", (int)p->align);
    if ((int)p->scores_at < ATTN_SCORES_SCALED || (int)p->scores_at > ATTN_SCORES_BIASED)
        return fail(say, ATTN_ERROR_PARAMETER, "scores_at is %d; see attn_score_stage",
                    (int)p->scores_at);
    for (int64_t h = 0; p->alibi && h < p->q_heads; h++)
        if (!isfinite(p->alibi[h]))
            return fail(say, ATTN_ERROR_PARAMETER, "alibi[%" PRId64 "] is %g; it must be finite", h,
                        (double)p->alibi[h]);
    if (p->align == ATTN_ALIGN_EXPLICIT && !p->offset && p->batch > 0)
        return fail(say, ATTN_ERROR_NULL, "align is ATTN_ALIGN_EXPLICIT, but offset is null");
    if (p->align != ATTN_ALIGN_EXPLICIT && p->offset)
        return fail(say, ATTN_ERROR_ALIGNMENT,
                    "offset is given, but align is %d, not ATTN_ALIGN_EXPLICIT", (int)p->align);
    return ATTN_OK;
}

/* The pages that some row of batch b sees: those of the keys in use, before a mask is looked at. */
static attn_status check_table(const struct attn_checked *c, int64_t b, struct attn_sentence say) {
    const attn_pages *pages = &c->p.pages;
    const int64_t rows = attn_query_count(c, b);
    if (!pages->table || rows == 0)
        return ATTN_OK;
    struct attn_key_range seen = attn_visible_to_rows(c, b, 0, rows - 1);
    if (c->p.scores.data)
        seen = (struct attn_key_range){0, attn_key_count(c, b)};
    for (int64_t j = seen.begin; j < seen.end; j += pages->page_len - j % pages->page_len) {
        const int64_t i = j / pages->page_len;
        const int32_t page = pages->table[b * pages->stride_batch + i];
        if (page < 0 || page >= pages->n_pages)
            return fail(say, ATTN_ERROR_PAGE,
                        "pages.table[%" PRId64 "][%" PRId64 "] is %d; there are %" PRId64 " pages",
                        b, i, (int)page, pages->n_pages);
    }
    return ATTN_OK;
}

/* What each batch has of its own; where none has, the first speaks for all. */
static attn_status check_batches(const struct attn_checked *c, struct attn_sentence say) {
    const attn_problem *p = &c->p;
    const char *const needs = p->causal ? "causal" : p->alibi ? "alibi" : "a window";
    const bool has_positions = p->causal || p->alibi || c->left >= 0 || c->right >= 0;
    const bool differ = p->past_len || p->kv_len || p->offset || p->cu_q || p->pages.table;
    const int64_t batches = c->no_output ? 0 : differ || p->batch == 0 ? p->batch : 1;
    for (int64_t b = 0; b < batches; b++) {
        const int64_t past = attn_past_len(c, b);
        if (past < 0 || past > p->past_cap)
            return fail(say, ATTN_ERROR_PAST_LEN,
                        "past_len[%" PRId64 "] is %" PRId64
                        "; it must be in 0 .. past_cap = %" PRId64,
                        b, past, p->past_cap);
        const int64_t keys = attn_key_count(c, b), rows = attn_query_count(c, b);
        if (keys < 0 || keys > past + p->kv_cap)
            return fail(say, ATTN_ERROR_KV_LEN,
                        "kv_len[%" PRId64 "] is %" PRId64 "; it must be in 0 .. %s = %" PRId64, b,
                        keys, p->past_cap ? "past_len + kv_cap" : "kv_cap", past + p->kv_cap);
        if (has_positions && p->align == ATTN_ALIGN_UNSET && rows > 0 && keys != rows)
            return fail(say, ATTN_ERROR_ALIGNMENT,
                        "%s with %" PRId64 " query rows and %" PRId64 " keys in batch %" PRId64
                        ": pick an alignment (top-left, bottom-right or explicit offsets)",
                        needs, rows, keys, b);
        if (p->align == ATTN_ALIGN_EXPLICIT &&
            (p->offset[b] > INT64_C(1) << 62 || p->offset[b] < -(INT64_C(1) << 62)))
            return fail(say, ATTN_ERROR_OVERFLOW,
                        "offset[%" PRId64 "] is %" PRId64 "; its magnitude may be at most 2^62", b,
                        p->offset[b]);
        const attn_status status = check_table(c, b, say);
        if (status != ATTN_OK)
            return status;
    }
    return ATTN_OK;
}

/* The stride of an axis of size 1 may be anything: nobody may compute with it. */
#define DROP_UNUSED_STRIDES(t, e)                                                                  \
    do {                                                                                           \
        (t).stride_batch = (e).batch > 1 ? (t).stride_batch : 0;                                   \
        (t).stride_head = (e).heads > 1 ? (t).stride_head : 0;                                     \
        (t).stride_token = (e).tokens > 1 ? (t).stride_token : 0;                                  \
    } while (0)

static void drop_unused_strides(attn_problem *p) {
    const struct extents query = query_extents(p), cache = cache_extents(p);
    DROP_UNUSED_STRIDES(p->q, query);
    DROP_UNUSED_STRIDES(p->k, cache);
    DROP_UNUSED_STRIDES(p->v, cache);
    DROP_UNUSED_STRIDES(p->k_scales, cache);
    DROP_UNUSED_STRIDES(p->v_scales, cache);
    if (p->past_cap) {
        const struct extents past = past_extents(p);
        DROP_UNUSED_STRIDES(p->past_k, past);
        DROP_UNUSED_STRIDES(p->past_v, past);
        DROP_UNUSED_STRIDES(p->past_k_scales, past);
        DROP_UNUSED_STRIDES(p->past_v_scales, past);
    }
    DROP_UNUSED_STRIDES(p->out, query);
    DROP_UNUSED_STRIDES(p->lse, query);
    DROP_UNUSED_STRIDES(p->weights, query);
    DROP_UNUSED_STRIDES(p->scores, query);
    p->pages.stride_batch = p->batch > 1 ? p->pages.stride_batch : 0;
    p->mask.stride_batch = p->batch > 1 ? p->mask.stride_batch : 0;
    p->mask.stride_head = p->q_heads > 1 ? p->mask.stride_head : 0;
    p->mask.stride_query = p->q_len > 1 ? p->mask.stride_query : 0;
}

/* Whether a caller's struct, which begins with its size, is one that this library understands: of a
 * version not before the first, and with everything that is unknown here at its default, 0. */
static attn_status check_struct(const void *given, size_t known, size_t smallest,
                                struct attn_sentence say) {
    enum { LARGEST = 4096 }; /* of any later version; a struct never initialised is rarely below */
    size_t size;
    memcpy(&size, given, sizeof size);
    if (size < smallest || size > LARGEST)
        return fail(say, ATTN_ERROR_STRUCT_SIZE,
                    "struct_size is %zu; this library knows %zu: start from attn_problem_init()",
                    size, known);
    for (size_t i = known; i < size; i++)
        if (((const unsigned char *)given)[i])
            return fail(say, ATTN_ERROR_STRUCT_SIZE,
                        "struct_size is %zu, and byte %zu asks for something newer than this "
                        "library, which knows %zu bytes",
                        size, i, known);
    return ATTN_OK;
}

/* What an earlier version does not have becomes 0. */
static void copy_struct(void *to, size_t known, const void *given) {
    size_t size;
    memcpy(&size, given, sizeof size);
    size = size < known ? size : known;
    memcpy(to, given, size);
    if (size < known)
        memset((char *)to + size, 0, known - size);
}

attn_status attn_problem_check(const attn_problem *problem, bool with_data,
                               struct attn_checked *checked, struct attn_sentence say) {
    if (!problem)
        return fail(say, ATTN_ERROR_NULL, "problem is null");
    enum { SMALLEST = offsetof(attn_problem, mask) }; /* version 0.1 ended here */
    attn_status status = check_struct(problem, sizeof *problem, SMALLEST, say);
    if (status != ATTN_OK)
        return status;

    struct attn_checked *c = checked;
    copy_struct(&c->p, sizeof c->p, problem);
    const attn_problem *p = &c->p;
    c->no_output = !p->batch || !p->q_heads || !p->q_len || !p->v_dim;
    if ((status = check_sizes(p, say)))
        return status;
    c->key_cap = p->past_cap + p->kv_cap;
    if ((status = check_pages(c, say)) || (status = check_inputs(c, with_data, say)) ||
        (status = check_outputs(c, with_data, say)) || (status = check_mask(c, with_data, say)) ||
        (status = check_numbers(p, say)) || (p->cu_q && (status = check_cu_q(p, say))))
        return status;
    c->left = p->window ? p->window[0] : -1;
    c->right = p->window ? p->window[1] : -1;
    c->same_keys = !p->causal && c->left < 0 && c->right < 0;
    if ((status = check_batches(c, say)))
        return status;
    drop_unused_strides(&c->p);
    c->group = p->q_heads ? p->q_heads / p->kv_heads : 1;
    c->scale = p->scale ? *p->scale : (float)(1.0 / sqrt((double)p->qk_dim));
    return ATTN_OK;
}

attn_status attn_gradient_check(const struct attn_checked *c, const attn_gradient *gradient,
                                bool with_data, attn_gradient *g) {
    const struct attn_sentence none = {0};
    const attn_problem *p = &c->p;
    if (!gradient)
        return ATTN_ERROR_NULL;
    attn_status status = check_struct(gradient, sizeof *g, sizeof *g, none);
    if (status != ATTN_OK)
        return status;
    copy_struct(g, sizeof *g, gradient);
    if (p->k.type == ATTN_I8 || p->v.type == ATTN_I8)
        return ATTN_ERROR_TYPE;
    if (p->pages.table)
        return ATTN_ERROR_PAGE;
    if (p->past_cap)
        return ATTN_ERROR_PAST_LEN;
    if (with_data && ((!p->lse.data && !c->no_output) || (g->dsinks && !p->sinks)))
        return ATTN_ERROR_NULL;
    const struct extents query = query_extents(p), cache = cache_extents(p);
    if ((status = check_input("dout", &g->dout, query, p->v_dim, FLOATS, with_data, none)) ||
        (status = check_output("dq", &g->dq, query, p->qk_dim, FLOATS, false, none)) ||
        (status = check_output("dk", &g->dk, cache, p->qk_dim, FLOATS, false, none)) ||
        (status = check_output("dv", &g->dv, cache, p->v_dim, FLOATS, false, none)))
        return status;
    DROP_UNUSED_STRIDES(g->dout, query);
    DROP_UNUSED_STRIDES(g->dq, query);
    DROP_UNUSED_STRIDES(g->dk, cache);
    DROP_UNUSED_STRIDES(g->dv, cache);
    return ATTN_OK;
}

attn_status attn_merge_check(const struct attn_merge_arguments *a) {
    const struct attn_sentence none = {0};
    if (a->batch < 0 || a->heads < 0 || a->q_len < 0 || a->v_dim < 0 || a->n < 1)
        return ATTN_ERROR_SIZE;
    if (!a->batch || !a->heads || !a->q_len || !a->v_dim)
        return ATTN_OK; /* nothing is read or written, whatever the pointers are */
    if (!a->parts || !a->out)
        return ATTN_ERROR_NULL;
    const struct extents e = {a->batch, a->heads, a->q_len};
    attn_status status;
    for (size_t p = 0; p < a->n; p++)
        if ((status = check_input("out", &a->parts[p].out, e, a->v_dim, F32_ONLY, true, none)) ||
            (status = check_input("lse", &a->parts[p].lse, e, 1, F32_ONLY, true, none)))
            return status;
    if ((status = check_output("out", a->out, e, a->v_dim, F32_ONLY, true, none)) || !a->lse)
        return status;
    return check_output("lse", a->lse, e, 1, F32_ONLY, true, none);
}

attn_status attn_append_check(const struct attn_append_arguments *a) {
    const struct attn_sentence none = {0};
    if (a->n < 0 || a->heads < 0 || a->dim < 0)
        return ATTN_ERROR_SIZE;
    if (!a->tokens || !a->cache || (!a->slots && a->n > 0))
        return ATTN_ERROR_NULL;
    const attn_cache *cache = a->cache;
    if (cache->n_pages < 0 || cache->page_len < 1 || cache->scale_group < 0)
        return ATTN_ERROR_SIZE;
    const struct axis tokens[3] = {{"batch", 1, 0},
                                   {"heads", a->heads, a->tokens->stride_head},
                                   {"tokens", a->n, a->tokens->stride_token}};
    const struct axis places[3] = {{"pages", cache->n_pages, cache->stride_page},
                                   {"heads", a->heads, cache->stride_head},
                                   {"tokens", cache->page_len, cache->stride_token}};
    const struct axis scales[3] = {{"pages", cache->n_pages, cache->scale_stride_page},
                                   {"heads", a->heads, cache->scale_stride_head},
                                   {"tokens", cache->page_len, cache->scale_stride_token}};
    const int64_t groups = cache->scale_group && a->dim ? (a->dim - 1) / cache->scale_group + 1 : 1;
    const bool is_i8 = cache->type == ATTN_I8;
    attn_status status;
    if ((status = check_type("tokens", a->tokens->type, FLOATS, none)) ||
        (status = check_type("cache", cache->type, ANY_TYPE, none)) ||
        (status = check_tensor("tokens", a->tokens->data, tokens, a->dim, true, none)) ||
        (status = check_tensor("cache", cache->data, places, a->dim, true, none)) ||
        (status = check_rows_apart("cache", places, a->dim, none)))
        return status;
    if (is_i8 && a->dim &&
        ((status = check_tensor("scales", cache->scales, scales, groups, true, none)) ||
         (status = check_rows_apart("scales", scales, groups, none))))
        return status;
    for (int64_t i = 0; i < a->n; i++)
        if (a->slots[i] >= 0 && a->slots[i] / cache->page_len >= cache->n_pages)
            return ATTN_ERROR_PAGE;
    return ATTN_OK;
}
