/* Where a key or value is stored, and how it becomes f32: past and new keys, pages, storage types.
 *
 * SPDX-License-Identifier: MIT */
#include "storage.h"

#include <string.h>

#include "integers.h"

/* The run of tokens [token, token + n) of a tensor's row of batches or pages. */
static struct attn_run run_in(const attn_input *t, const attn_scales *s, int64_t b, int64_t h,
                              int64_t token, int64_t n) {
    const int64_t element = b * t->stride_batch + h * t->stride_head + token * t->stride_token;
    struct attn_run run = {
        .at = (const char *)t->data + element * attn_type_bytes(t->type),
        .stride = t->stride_token,
        .n = n,
    };
    if (t->type == ATTN_I8) {
        run.scales = s->data + b * s->stride_batch + h * s->stride_head + token * s->stride_token;
        run.scale_stride = s->stride_token;
    }
    return run;
}

/* The page of key j. A tile may begin before the first key that a row sees, where the table may
 * hold anything: then any page of the cache will do, for nothing in it shows. */
static int64_t page_of(const attn_pages *pages, int64_t b, int64_t j) {
    const int64_t page = pages->table[b * pages->stride_batch + j / pages->page_len];
    return page >= 0 && page < pages->n_pages ? page : 0;
}

struct attn_run attn_run_of(const struct attn_checked *c, enum attn_side side, int64_t b, int64_t h,
                            int64_t j, int64_t end) {
    const attn_problem *p = &c->p;
    const attn_input *t = side == ATTN_KEYS ? &p->k : &p->v;
    const attn_scales *s = side == ATTN_KEYS ? &p->k_scales : &p->v_scales;
    if (p->pages.table) {
        const int64_t length = p->pages.page_len, token = j % length;
        return run_in(t, s, page_of(&p->pages, b, j), h, token, at_most(end - j, length - token));
    }
    const int64_t past = attn_past_len(c, b);
    if (j < past)
        return run_in(side == ATTN_KEYS ? &p->past_k : &p->past_v,
                      side == ATTN_KEYS ? &p->past_k_scales : &p->past_v_scales, b, h, j,
                      at_most(end, past) - j);
    return run_in(t, s, b, h, j - past, end - j);
}

void attn_prefetch(const struct attn_checked *c, enum attn_side side, int64_t b, int64_t h,
                   int64_t j, int64_t end) {
#if defined(__GNUC__)
    const int64_t width = attn_type_bytes(side == ATTN_KEYS ? c->p.k.type : c->p.v.type);
    const int64_t bytes = width * (side == ATTN_KEYS ? c->p.qk_dim : c->p.v_dim);
    while (j < end) {
        const struct attn_run run = attn_run_of(c, side, b, h, j, end);
        const char *at = run.at;
        for (int64_t i = 0; i < run.n; i++, at += run.stride * width) {
            for (int64_t line = 0; line < bytes; line += 64)
                __builtin_prefetch(at + line, 0, 2);
            __asm__ volatile(""); /* gcc 12 drops a function that does nothing but prefetch */
        }
        j += run.n;
    }
#endif
}

static void widen_f32(const float *x, int64_t stride, size_t n_rows, size_t n, float *out,
                      size_t out_stride) {
    for (size_t r = 0; r < n_rows; r++)
        memcpy(out + r * out_stride, x + (int64_t)r * stride, n * sizeof *x);
}

/* Features of an int8 row that share a scale are a column of their own. */
static void widen_i8(const struct attn_kernels *kernels, const struct attn_run *run, int64_t group,
                     size_t n, float *out, size_t out_stride) {
    const size_t width = group > 0 && (size_t)group < n ? (size_t)group : n;
    for (size_t c = 0; c < n; c += width)
        kernels->widen_i8((const int8_t *)run->at + c, run->stride, (size_t)run->n,
                          n - c < width ? n - c : width, run->scales + c / width, run->scale_stride,
                          out + c, out_stride);
}

void attn_widen_tokens(const struct attn_checked *c, const struct attn_kernels *kernels,
                       enum attn_side side, int64_t b, int64_t h, int64_t j, int64_t end,
                       float *out, int64_t out_stride) {
    const attn_problem *p = &c->p;
    const attn_type type = side == ATTN_KEYS ? p->k.type : p->v.type;
    const size_t n = (size_t)(side == ATTN_KEYS ? p->qk_dim : p->v_dim);
    const size_t stride = (size_t)out_stride;
    while (j < end) {
        const struct attn_run run = attn_run_of(c, side, b, h, j, end);
        const size_t rows = (size_t)run.n;
        const int64_t group = side == ATTN_KEYS ? p->k_scales.group : p->v_scales.group;
        switch (type) {
        case ATTN_F32:
            widen_f32((const float *)run.at, run.stride, rows, n, out, stride);
            break;
        case ATTN_F16:
            kernels->widen_f16((const uint16_t *)run.at, run.stride, rows, n, out, stride);
            break;
        case ATTN_BF16:
            kernels->widen_bf16((const uint16_t *)run.at, run.stride, rows, n, out, stride);
            break;
        case ATTN_I8:
            widen_i8(kernels, &run, group, n, out, stride);
            break;
        }
        j += run.n;
        out += run.n * out_stride;
    }
}

bool attn_are_lanes(attn_type type, const void *at, int64_t stride, int64_t n) {
    const int64_t width = attn_type_bytes(type), lane = sizeof(float);
    return (uintptr_t)at % sizeof(float) == 0 && stride * width % lane == 0 &&
           n * width % lane == 0;
}

/* A row of n bytes, and zeros up to a whole lane. */
static void copy_row(const char *x, size_t n, float *lanes) {
    memset((char *)lanes + n / sizeof *lanes * sizeof *lanes, 0, n % sizeof *lanes ? 4 : 0);
    memcpy(lanes, x, n);
}

void attn_copy_lanes(const struct attn_checked *c, int64_t b, int64_t h, int64_t j, int64_t end,
                     float *lanes, int64_t lane_stride) {
    const int64_t width = attn_type_bytes(c->p.k.type);
    while (j < end) {
        const struct attn_run run = attn_run_of(c, ATTN_KEYS, b, h, j, end);
        for (int64_t i = 0; i < run.n; i++, lanes += lane_stride)
            copy_row(run.at + i * run.stride * width, (size_t)(c->p.qk_dim * width), lanes);
        j += run.n;
    }
}

void attn_interleave_values(const struct attn_checked *c, const struct attn_dot_kernels *dot,
                            int64_t b, int64_t h, int64_t j, int64_t end, float *lanes,
                            int64_t lane_stride) {
    const int64_t width = attn_type_bytes(c->p.v.type);
    const void *tokens[ATTN_PER_LANE_MOST] = {0};
    size_t n = 0;
    while (j < end) {
        const struct attn_run run = attn_run_of(c, ATTN_VALUES, b, h, j, end);
        for (int64_t i = 0; i < run.n; i++) {
            tokens[n++] = run.at + i * run.stride * width;
            if (n < dot->per_lane && j + i + 1 < end)
                continue;
            while (n < dot->per_lane)
                tokens[n++] = NULL;
            dot->interleave(tokens, (size_t)c->p.v_dim, lanes);
            lanes += lane_stride;
            n = 0;
        }
        j += run.n;
    }
}

const float *attn_query_lanes(const attn_input *q, int64_t at, int64_t n, float *copy) {
    const int64_t width = attn_type_bytes(q->type);
    const char *x = (const char *)q->data + at * width;
    if (attn_are_lanes(q->type, x, 0, n))
        return (const float *)(const void *)x;
    copy_row(x, (size_t)(n * width), copy);
    return copy;
}

const float *attn_widen_query(const attn_input *q, const struct attn_kernels *kernels, int64_t at,
                              int64_t n, float *copy) {
    if (q->type == ATTN_F32)
        return (const float *)q->data + at;
    const uint16_t *x = (const uint16_t *)q->data + at;
    if (q->type == ATTN_F16)
        kernels->widen_f16(x, 0, 1, (size_t)n, copy, 0);
    else
        kernels->widen_bf16(x, 0, 1, (size_t)n, copy, 0);
    return copy;
}

void attn_narrow_row(attn_type type, const struct attn_kernels *kernels, const float *x, int64_t n,
                     void *out) {
    if (type == ATTN_F16)
        kernels->narrow_f16(x, (size_t)n, out);
    else
        kernels->narrow_bf16(x, (size_t)n, out);
}
