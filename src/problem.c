/* Checks the arguments of a call, completely and before anything is written.
 *
 * SPDX-License-Identifier: MIT */
#include "problem.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>

#include "tensor_check.h"
#include "visible.h"

static ATTN_COLD attn_status fail_negative(const attn_problem *p, const struct attn_sentence *say) {
    const struct {
        const char *name;
        int64_t size;
    } sizes[] = {
        {"batch", p->batch}, {"q_heads", p->q_heads},   {"kv_heads", p->kv_heads},
        {"q_len", p->q_len}, {"kv_cap", p->kv_cap},     {"qk_dim", p->qk_dim},
        {"v_dim", p->v_dim}, {"past_cap", p->past_cap},
    };
    size_t i = 0;
    while (sizes[i].size >= 0)
        i++;
    return attn_fail(say, ATTN_ERROR_SIZE, "%s is %" PRId64 "; a size cannot be negative",
                     sizes[i].name, sizes[i].size);
}

/* Also sets what follows from the sizes. */
static attn_status check_sizes(struct attn_checked *c, const struct attn_sentence *say) {
    const attn_problem *p = &c->p;
    /* The sign of a bitwise or: whether any of them is negative. */
    if ((p->batch | p->q_heads | p->kv_heads | p->q_len | p->kv_cap | p->qk_dim | p->v_dim |
         p->past_cap) < 0)
        return fail_negative(p, say);
    if (p->qk_dim == 0)
        return attn_fail(say, ATTN_ERROR_SIZE, "qk_dim is 0; it must be at least 1");
    if (p->kv_heads == 0 && p->q_heads > 0)
        return attn_fail(say, ATTN_ERROR_SIZE, "kv_heads is 0, but q_heads is %" PRId64,
                         p->q_heads);
    c->group = p->q_heads == p->kv_heads || p->q_heads == 0 ? 1 : p->q_heads / p->kv_heads;
    if (p->q_heads > 0 && c->group * p->kv_heads != p->q_heads)
        return attn_fail(say, ATTN_ERROR_HEADS,
                         "q_heads %" PRId64 " is not a multiple of kv_heads %" PRId64, p->q_heads,
                         p->kv_heads);
    /* The workspace and the task list count rows and features. */
    int64_t rows;
    if (__builtin_mul_overflow(p->batch, p->q_heads, &rows) ||
        __builtin_mul_overflow(rows, p->q_len, &rows) || rows > INT64_MAX / 2 ||
        (p->qk_dim | p->v_dim) > INT32_MAX ||
        __builtin_add_overflow(p->past_cap, p->kv_cap, &c->key_cap))
        return attn_fail(
            say, ATTN_ERROR_OVERFLOW,
            "batch %" PRId64 ", q_heads %" PRId64 ", q_len %" PRId64 ", kv_cap %" PRId64
            ", past_cap %" PRId64 ", qk_dim %" PRId64 ", v_dim %" PRId64 ": too large to index",
            p->batch, p->q_heads, p->q_len, p->kv_cap, p->past_cap, p->qk_dim, p->v_dim);
    c->no_output = rows == 0 || p->v_dim == 0;
    return ATTN_OK;
}

static inline attn_status check_scales(const char *name, const attn_input *t, const attn_scales *s,
                                       const struct attn_extents *e, int64_t features,
                                       bool with_data, const struct attn_sentence *say) {
    if (t->type != ATTN_I8)
        return ATTN_OK;
    if (s->group < 0)
        return attn_fail(say, ATTN_ERROR_SIZE, "%s.group is %" PRId64 "; it cannot be negative",
                         name, s->group);
    const int64_t n = s->group ? features / s->group + 1 : 1;
    const attn_input scales = {s->data, ATTN_F32, s->stride_batch, s->stride_head, s->stride_token};
    return attn_check_input(name, &scales, e, n, ATTN_F32, with_data && features, say);
}

static struct attn_extents past_extents(const attn_problem *p) {
    return (struct attn_extents){p->batch, p->kv_heads, p->past_cap};
}

static attn_status check_past(const attn_problem *p, bool with_data,
                              const struct attn_sentence *say) {
    const struct attn_extents past = past_extents(p);
    const int64_t d = p->qk_dim, dv = p->v_dim;
    attn_status status;
    if ((status = attn_check_input("past_k", &p->past_k, &past, d, ATTN_I8, with_data, say)) ||
        (status = attn_check_input("past_v", &p->past_v, &past, dv, ATTN_I8, with_data, say)) ||
        (status = check_scales("past_k_scales", &p->past_k, &p->past_k_scales, &past, d, with_data,
                               say)) ||
        (status = check_scales("past_v_scales", &p->past_v, &p->past_v_scales, &past, dv, with_data,
                               say)))
        return status;
    if (p->past_k.type != p->k.type || p->past_v.type != p->v.type ||
        (p->k.type == ATTN_I8 && p->past_k_scales.group != p->k_scales.group) ||
        (p->v.type == ATTN_I8 && p->past_v_scales.group != p->v_scales.group))
        return attn_fail(
            say, ATTN_ERROR_TYPE,
            "past_k and past_v must have the types (%d, %d) and groups of k and v (%d, %d)",
            (int)p->past_k.type, (int)p->past_v.type, (int)p->k.type, (int)p->v.type);
    return ATTN_OK;
}

static attn_status check_inputs(const attn_problem *p, const struct attn_extents *query,
                                const struct attn_extents *cache, bool with_data,
                                const struct attn_sentence *say) {
    const int64_t d = p->qk_dim, dv = p->v_dim;
    attn_status status;
    if ((status = attn_check_input("q", &p->q, query, d, ATTN_BF16, with_data, say)) ||
        (status = attn_check_input("k", &p->k, cache, d, ATTN_I8, with_data, say)) ||
        (status = attn_check_input("v", &p->v, cache, dv, ATTN_I8, with_data, say)) ||
        (status = check_scales("k_scales", &p->k, &p->k_scales, cache, d, with_data, say)) ||
        (status = check_scales("v_scales", &p->v, &p->v_scales, cache, dv, with_data, say)))
        return status;
    return p->past_cap ? check_past(p, with_data, say) : ATTN_OK;
}

static attn_status check_outputs(const struct attn_checked *c, const struct attn_extents *query,
                                 bool with_data, const struct attn_sentence *say) {
    const attn_problem *p = &c->p;
    const int64_t keys = c->key_cap;
    attn_status status;
    if ((status = attn_check_output("out", &p->out, query, p->v_dim, ATTN_BF16, with_data, say)) ||
        (status = attn_check_output("lse", &p->lse, query, 1, ATTN_F32, false, say)) ||
        (status = attn_check_output("weights", &p->weights, query, keys, ATTN_F32, false, say)))
        return status;
    return attn_check_output("scores", &p->scores, query, keys, ATTN_F32, false, say);
}

static attn_status check_pages(const struct attn_checked *c, const struct attn_sentence *say) {
    const attn_pages *pages = &c->p.pages;
    if (!pages->table)
        return ATTN_OK;
    if (c->p.past_cap)
        return attn_fail(say, ATTN_ERROR_PAGE, "pages and past_cap %" PRId64 " exclude each other",
                         c->p.past_cap);
    if (pages->page_len < 1 || pages->n_pages < 0 || pages->n_pages > INT32_MAX)
        return attn_fail(say, ATTN_ERROR_PAGE, "pages.page_len is %" PRId64 ", n_pages %" PRId64,
                         pages->page_len, pages->n_pages);
    const int64_t per_batch = c->p.kv_cap / pages->page_len + 1;
    uint64_t reach = (uint64_t)per_batch;
    if (!attn_add_axis(c->p.batch, pages->stride_batch, &reach) || !attn_is_near(reach))
        return attn_fail(say, ATTN_ERROR_OVERFLOW, "pages.table reaches beyond the address space");
    return ATTN_OK;
}

static attn_status check_mask(const struct attn_checked *c, bool with_data,
                              const struct attn_sentence *say) {
    const attn_mask *mask = &c->p.mask;
    if ((int)mask->type < ATTN_MASK_NONE || (int)mask->type > ATTN_MASK_BITS)
        return attn_fail(say, ATTN_ERROR_PARAMETER, "mask.type is %d; see attn_mask_type",
                         (int)mask->type);
    if (mask->type == ATTN_MASK_NONE)
        return mask->data ? attn_fail(say, ATTN_ERROR_MASK,
                                      "mask.data is given, but mask.type is ATTN_MASK_NONE")
                          : ATTN_OK;
    if (mask->n_keys < 0 || (mask->n_keys == 0 && c->key_cap > 0))
        return attn_fail(say, ATTN_ERROR_MASK,
                         "mask.n_keys is %" PRId64
                         "; it is the number of keys the mask covers, such as "
                         "%" PRId64,
                         mask->n_keys, c->key_cap);
    if (mask->type == ATTN_MASK_BITS && mask->stride_key)
        return attn_fail(say, ATTN_ERROR_MASK,
                         "mask.stride_key is %" PRId64 "; packed bits have none, leave it 0",
                         mask->stride_key);
    if (c->no_output || c->key_cap == 0)
        return ATTN_OK;
    if (with_data && !mask->data)
        return attn_fail(say, ATTN_ERROR_NULL, "mask.data is null, but mask.type is %d",
                         (int)mask->type);
    const int64_t keys = mask->n_keys < c->key_cap ? mask->n_keys : c->key_cap;
    const bool is_bits = mask->type == ATTN_MASK_BITS;
    uint64_t reach = is_bits ? ((uint64_t)keys + 7) / 8 : 1;
    if (!attn_add_axis(c->p.batch, mask->stride_batch, &reach) ||
        !attn_add_axis(c->p.q_heads, mask->stride_head, &reach) ||
        !attn_add_axis(c->p.q_len, mask->stride_query, &reach) ||
        !attn_add_axis(is_bits ? 1 : keys, mask->stride_key, &reach) || !attn_is_near(reach))
        return attn_fail(say, ATTN_ERROR_OVERFLOW,
                         "mask reaches beyond the address space with strides %" PRId64 ", %" PRId64
                         ", %" PRId64 ", %" PRId64,
                         mask->stride_batch, mask->stride_head, mask->stride_query,
                         mask->stride_key);
    return ATTN_OK;
}

static attn_status check_cu_q(const attn_problem *p, const struct attn_sentence *say) {
    for (int64_t b = 0; b <= p->batch; b++) {
        const int64_t least = b ? p->cu_q[b - 1] : 0;
        const int64_t most = b ? p->q_len : 0;
        if (p->cu_q[b] < least || p->cu_q[b] > most || (b == p->batch && p->cu_q[b] != p->q_len))
            return attn_fail(say, ATTN_ERROR_CU_Q,
                             "cu_q[%" PRId64 "] is %" PRId64
                             "; it must rise from 0 to q_len = %" PRId64,
                             b, p->cu_q[b], p->q_len);
    }
    return ATTN_OK;
}

static attn_status check_numbers(const attn_problem *p, const struct attn_sentence *say) {
    if (p->scale && !isfinite(*p->scale))
        return attn_fail(say, ATTN_ERROR_PARAMETER, "scale is %g; it must be finite",
                         (double)*p->scale);
    if (!(p->softcap >= 0 && p->softcap < INFINITY))
        return attn_fail(say, ATTN_ERROR_PARAMETER,
                         "softcap is %g; it must be finite and not negative", (double)p->softcap);
    if (p->causal != 0 && p->causal != 1)
        return attn_fail(say, ATTN_ERROR_PARAMETER, "causal is %d; it is 0 or 1", (int)p->causal);
    if (p->window && (p->window[0] < -1 || p->window[1] < -1))
        return attn_fail(say, ATTN_ERROR_PARAMETER,
                         "window is %" PRId64 ", %" PRId64 "; each is -1 (unbounded) or a distance",
                         p->window[0], p->window[1]);
    if ((int)p->align < ATTN_ALIGN_UNSET || (int)p->align > ATTN_ALIGN_EXPLICIT)
        return attn_fail(say, ATTN_ERROR_PARAMETER, "align is %d; see attn_align", (int)p->align);
    if ((int)p->scores_at < ATTN_SCORES_SCALED || (int)p->scores_at > ATTN_SCORES_BIASED)
        return attn_fail(say, ATTN_ERROR_PARAMETER, "scores_at is %d; see attn_score_stage",
                         (int)p->scores_at);
    for (int64_t h = 0; p->alibi && h < p->q_heads; h++)
        if (!isfinite(p->alibi[h]))
            return attn_fail(say, ATTN_ERROR_PARAMETER,
                             "alibi[%" PRId64 "] is %g; it must be finite", h, (double)p->alibi[h]);
    if (p->align == ATTN_ALIGN_EXPLICIT) {
        if (!p->offset && p->batch > 0)
            return attn_fail(say, ATTN_ERROR_NULL,
                             "align is ATTN_ALIGN_EXPLICIT, but offset is null");
    } else if (p->offset)
        return attn_fail(say, ATTN_ERROR_ALIGNMENT,
                         "offset is given, but align is %d, not ATTN_ALIGN_EXPLICIT",
                         (int)p->align);
    return ATTN_OK;
}

/* The pages that some row of batch b sees: those of the keys in use, before a mask is looked at. */
static attn_status check_table(const struct attn_checked *c, int64_t b,
                               const struct attn_sentence *say) {
    const attn_pages *pages = &c->p.pages;
    const int64_t rows = attn_query_count(c, b);
    if (rows == 0)
        return ATTN_OK;
    struct attn_key_range seen = attn_visible_to_rows(c, b, 0, rows - 1);
    if (c->p.scores.data)
        seen = (struct attn_key_range){0, attn_key_count(c, b)};
    for (int64_t j = seen.begin; j < seen.end; j += pages->page_len - j % pages->page_len) {
        const int64_t i = j / pages->page_len;
        const int32_t page = pages->table[b * pages->stride_batch + i];
        if (page < 0 || page >= pages->n_pages)
            return attn_fail(say, ATTN_ERROR_PAGE,
                             "pages.table[%" PRId64 "][%" PRId64 "] is %d; there are %" PRId64
                             " pages",
                             b, i, (int)page, pages->n_pages);
    }
    return ATTN_OK;
}

/* Whether positions among the keys matter in batch b and nobody said where query row 0 stands. */
static attn_status check_alignment(const struct attn_checked *c, int64_t b,
                                   const struct attn_sentence *say) {
    const int64_t rows = attn_query_count(c, b), keys = attn_key_count(c, b);
    if (rows == 0 || rows == keys)
        return ATTN_OK;
    return attn_fail(say, ATTN_ERROR_ALIGNMENT,
                     "%s with %" PRId64 " query rows and %" PRId64 " keys in batch %" PRId64
                     ": pick an alignment (top-left, bottom-right or explicit offsets)",
                     c->p.causal  ? "causal"
                     : c->p.alibi ? "alibi"
                                  : "a window",
                     rows, keys, b);
}

static attn_status check_batch(const struct attn_checked *c, int64_t b,
                               const struct attn_sentence *say) {
    const attn_problem *p = &c->p;
    if (p->past_len && (p->past_len[b] < 0 || p->past_len[b] > p->past_cap))
        return attn_fail(say, ATTN_ERROR_PAST_LEN,
                         "past_len[%" PRId64 "] is %" PRId64
                         "; it must be in 0 .. past_cap = %" PRId64,
                         b, p->past_len[b], p->past_cap);
    if (p->kv_len && (p->kv_len[b] < 0 || p->kv_len[b] > attn_past_len(c, b) + p->kv_cap))
        return attn_fail(say, ATTN_ERROR_KV_LEN,
                         "kv_len[%" PRId64 "] is %" PRId64 "; it must be in 0 .. %s = %" PRId64, b,
                         p->kv_len[b], p->past_cap ? "past_len + kv_cap" : "kv_cap",
                         attn_past_len(c, b) + p->kv_cap);
    if (p->align == ATTN_ALIGN_UNSET && (!c->same_keys || p->alibi)) {
        const attn_status status = check_alignment(c, b, say);
        if (status != ATTN_OK)
            return status;
    }
    if (p->align == ATTN_ALIGN_EXPLICIT &&
        (p->offset[b] > INT64_C(1) << 62 || p->offset[b] < -(INT64_C(1) << 62)))
        return attn_fail(say, ATTN_ERROR_OVERFLOW,
                         "offset[%" PRId64 "] is %" PRId64 "; its magnitude may be at most 2^62", b,
                         p->offset[b]);
    return p->pages.table ? check_table(c, b, say) : ATTN_OK;
}

/* What each batch has of its own; where none has, the first speaks for all. */
static attn_status check_batches(const struct attn_checked *c, const struct attn_sentence *say) {
    const attn_problem *p = &c->p;
    const bool differ = p->past_len || p->kv_len || p->offset || p->cu_q || p->pages.table;
    const int64_t batches = c->no_output ? 0 : differ ? p->batch : 1;
    for (int64_t b = 0; b < batches; b++) {
        const attn_status status = check_batch(c, b, say);
        if (status != ATTN_OK)
            return status;
    }
    return ATTN_OK;
}

static void drop_unused_strides(attn_problem *p, const struct attn_extents *of_query,
                                const struct attn_extents *of_cache) {
    const struct attn_extents query = attn_used_axes(*of_query), cache = attn_used_axes(*of_cache);
    ATTN_DROP_UNUSED_STRIDES(&p->q, query);
    ATTN_DROP_UNUSED_STRIDES(&p->k, cache);
    ATTN_DROP_UNUSED_STRIDES(&p->v, cache);
    ATTN_DROP_UNUSED_STRIDES(&p->k_scales, cache);
    ATTN_DROP_UNUSED_STRIDES(&p->v_scales, cache);
    if (p->past_cap) {
        const struct attn_extents past = attn_used_axes(past_extents(p));
        ATTN_DROP_UNUSED_STRIDES(&p->past_k, past);
        ATTN_DROP_UNUSED_STRIDES(&p->past_v, past);
        ATTN_DROP_UNUSED_STRIDES(&p->past_k_scales, past);
        ATTN_DROP_UNUSED_STRIDES(&p->past_v_scales, past);
    }
    ATTN_DROP_UNUSED_STRIDES(&p->out, query);
    ATTN_DROP_UNUSED_STRIDES(&p->lse, query);
    ATTN_DROP_UNUSED_STRIDES(&p->weights, query);
    ATTN_DROP_UNUSED_STRIDES(&p->scores, query);
    const int64_t batches = attn_if_used(p->batch); /* not one, as for a ragged query */
    p->pages.stride_batch &= batches;
    p->mask.stride_batch &= batches;
    p->mask.stride_head &= query.heads;
    p->mask.stride_query &= query.tokens;
}

attn_status attn_problem_check(const attn_problem *problem, bool with_data,
                               struct attn_checked *checked, const struct attn_sentence *say) {
    if (!problem)
        return attn_fail(say, ATTN_ERROR_NULL, "problem is null");
    enum { SMALLEST = offsetof(attn_problem, mask) }; /* version 0.1 ended here */
    struct attn_checked *c = checked;
    const attn_problem *p = &c->p;
    attn_status status = attn_take_struct(&c->p, sizeof c->p, problem, SMALLEST, say);
    if (status != ATTN_OK)
        return status;

    if ((status = check_sizes(c, say)) || (status = check_pages(c, say)))
        return status;
    const struct attn_extents query = attn_query_extents(p), cache = attn_cache_extents(p);
    if ((status = check_inputs(p, &query, &cache, with_data, say)) ||
        (status = check_outputs(c, &query, with_data, say)) ||
        (status = check_mask(c, with_data, say)) || (status = check_numbers(p, say)) ||
        (p->cu_q && (status = check_cu_q(p, say))))
        return status;
    c->left = p->window ? p->window[0] : -1;
    c->right = p->window ? p->window[1] : -1;
    c->same_keys = !p->causal && c->left < 0 && c->right < 0;
    if ((status = check_batches(c, say)))
        return status;
    drop_unused_strides(&c->p, &query, &cache);
    c->scale = __builtin_expect(!p->scale, 1) ? (float)(1.0 / sqrt((double)p->qk_dim)) : *p->scale;
    return ATTN_OK;
}
