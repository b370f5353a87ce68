/* Checks the arguments of the calls beside attn_forward(): the gradient, merging, appending.
 *
 * Nobody asks these checks for a sentence.
 *
 * SPDX-License-Identifier: MIT */
#include "tensor_check.h"

attn_status attn_gradient_check(const struct attn_checked *c, const attn_gradient *gradient,
                                bool with_data, attn_gradient *g) {
    const attn_problem *p = &c->p;
    if (!gradient)
        return ATTN_ERROR_NULL;
    attn_status status = attn_take_struct(g, sizeof *g, gradient, sizeof *g, NULL);
    if (status != ATTN_OK)
        return status;
    if (p->k.type == ATTN_I8 || p->v.type == ATTN_I8)
        return ATTN_ERROR_TYPE;
    if (p->pages.table)
        return ATTN_ERROR_PAGE;
    if (p->past_cap)
        return ATTN_ERROR_PAST_LEN;
    if (with_data && ((!p->lse.data && !c->no_output) || (g->dsinks && !p->sinks)))
        return ATTN_ERROR_NULL;
    const struct attn_extents query = attn_query_extents(p), cache = attn_cache_extents(p);
    if ((status =
             attn_check_input("dout", &g->dout, &query, p->v_dim, ATTN_BF16, with_data, NULL)) ||
        (status = attn_check_output("dq", &g->dq, &query, p->qk_dim, ATTN_BF16, false, NULL)) ||
        (status = attn_check_output("dk", &g->dk, &cache, p->qk_dim, ATTN_BF16, false, NULL)) ||
        (status = attn_check_output("dv", &g->dv, &cache, p->v_dim, ATTN_BF16, false, NULL)))
        return status;
    const struct attn_extents of_query = attn_used_axes(query), of_cache = attn_used_axes(cache);
    ATTN_DROP_UNUSED_STRIDES(&g->dout, of_query);
    ATTN_DROP_UNUSED_STRIDES(&g->dq, of_query);
    ATTN_DROP_UNUSED_STRIDES(&g->dk, of_cache);
    ATTN_DROP_UNUSED_STRIDES(&g->dv, of_cache);
    return ATTN_OK;
}

attn_status attn_merge_check(const struct attn_merge_arguments *a) {
    if (a->batch < 0 || a->heads < 0 || a->q_len < 0 || a->v_dim < 0 || a->n < 1)
        return ATTN_ERROR_SIZE;
    if (!a->batch || !a->heads || !a->q_len || !a->v_dim)
        return ATTN_OK; /* nothing is read or written, whatever the pointers are */
    if (!a->parts || !a->out)
        return ATTN_ERROR_NULL;
    const struct attn_extents e = {a->batch, a->heads, a->q_len};
    attn_status status;
    for (size_t p = 0; p < a->n; p++)
        if ((status =
                 attn_check_input("out", &a->parts[p].out, &e, a->v_dim, ATTN_F32, true, NULL)) ||
            (status = attn_check_input("lse", &a->parts[p].lse, &e, 1, ATTN_F32, true, NULL)))
            return status;
    if ((status = attn_check_output("out", a->out, &e, a->v_dim, ATTN_F32, true, NULL)) || !a->lse)
        return status;
    return attn_check_output("lse", a->lse, &e, 1, ATTN_F32, true, NULL);
}

attn_status attn_append_check(const struct attn_append_arguments *a) {
    if (a->n < 0 || a->heads < 0 || a->dim < 0)
        return ATTN_ERROR_SIZE;
    if (!a->tokens || !a->cache || (!a->slots && a->n > 0))
        return ATTN_ERROR_NULL;
    const attn_cache *cache = a->cache;
    if (cache->n_pages < 0 || cache->page_len < 1 || cache->scale_group < 0)
        return ATTN_ERROR_SIZE;
    const struct attn_extents tokens = {1, a->heads, a->n};
    const struct attn_extents places = {cache->n_pages, a->heads, cache->page_len};
    const attn_output rows = {.data = cache->data,
                              .stride_batch = cache->stride_page,
                              .stride_head = cache->stride_head,
                              .stride_token = cache->stride_token};
    const attn_output scales = {.data = cache->scales,
                                .stride_batch = cache->scale_stride_page,
                                .stride_head = cache->scale_stride_head,
                                .stride_token = cache->scale_stride_token};
    const int64_t groups = cache->scale_group && a->dim ? (a->dim - 1) / cache->scale_group + 1 : 1;
    attn_status status;
    if ((status = attn_check_type("tokens", a->tokens->type, ATTN_BF16, NULL)) ||
        (status = attn_check_type("cache", cache->type, ATTN_I8, NULL)) ||
        (status = attn_check_input("tokens", a->tokens, &tokens, a->dim, ATTN_BF16, true, NULL)) ||
        (status = attn_check_output("cache", &rows, &places, a->dim, ATTN_I8, true, NULL)))
        return status;
    if (cache->type == ATTN_I8 && a->dim &&
        (status = attn_check_output("scales", &scales, &places, groups, ATTN_F32, true, NULL)))
        return status;
    for (int64_t i = 0; i < a->n; i++)
        if (a->slots[i] >= 0 && a->slots[i] / cache->page_len >= cache->n_pages)
            return ATTN_ERROR_PAGE;
    return ATTN_OK;
}
