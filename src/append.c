/* Appends tokens to a cache of any storage type.
 *
 * SPDX-License-Identifier: MIT */
#include <float.h>
#include <math.h>

#include "half.h"
#include "problem.h"
#include "storage.h"

static float element(const attn_input *t, int64_t at) {
    switch (t->type) {
    case ATTN_F16:
        return float_of_f16(((const uint16_t *)t->data)[at]);
    case ATTN_BF16:
        return float_of_bf16(((const uint16_t *)t->data)[at]);
    default:
        return ((const float *)t->data)[at];
    }
}

/* The nearest integer, of two the even one. */
static int nearest(double x) {
    const int whole = (int)x;
    const double rest = x - whole;
    const bool is_odd = whole % 2;
    return whole + (rest > 0.5 || (rest == 0.5 && is_odd)) -
           (rest < -0.5 || (rest == -0.5 && is_odd));
}

/* A group of n features: integers at out, their scale returned. */
static float quantise(const attn_input *t, int64_t at, int64_t n, int8_t *out) {
    float largest = 0;
    bool is_finite = true;
    for (int64_t c = 0; c < n; c++) {
        const float x = fabsf(element(t, at + c));
        is_finite &= x < INFINITY; /* false for NaN */
        largest = x > largest ? x : largest;
    }
    if (!is_finite || largest < 127 * 0x1p-126f) {
        for (int64_t c = 0; c < n; c++)
            out[c] = 0;
        return is_finite ? 0 : NAN;
    }
    /* In double, so that the quotient is rounded once: a scale rounded down could otherwise give
     * 128, and a product with its reciprocal miss the nearest integer. */
    float scale = largest / 127;
    if (127 * (double)scale > FLT_MAX) /* the largest floats would come back as infinity */
        scale = half_float_of_bits(half_bits_of_float(scale) - 1);
    for (int64_t c = 0; c < n; c++) {
        const int i = nearest((double)element(t, at + c) / (double)scale);
        out[c] = (int8_t)(i > 127 ? 127 : i < -127 ? -127 : i);
    }
    return scale;
}

static void append_row(const attn_input *t, int64_t from, int64_t dim, const attn_cache *cache,
                       int64_t to, int64_t scale_at) {
    switch (cache->type) {
    case ATTN_F32:
        for (int64_t c = 0; c < dim; c++)
            ((float *)cache->data)[to + c] = element(t, from + c);
        break;
    case ATTN_F16:
        for (int64_t c = 0; c < dim; c++)
            ((uint16_t *)cache->data)[to + c] = f16_of_float(element(t, from + c));
        break;
    case ATTN_BF16:
        for (int64_t c = 0; c < dim; c++)
            ((uint16_t *)cache->data)[to + c] = bf16_of_float(element(t, from + c));
        break;
    case ATTN_I8: {
        const int64_t group = cache->scale_group ? cache->scale_group : dim;
        for (int64_t c = 0; c < dim; c += group) {
            const int64_t n = dim - c < group ? dim - c : group;
            cache->scales[scale_at + c / group] =
                quantise(t, from + c, n, (int8_t *)cache->data + to + c);
        }
        break;
    }
    }
}

attn_status attn_append(const attn_input *tokens, int64_t n, int64_t heads, int64_t dim,
                        const int64_t *slots, const attn_cache *cache) {
    const struct attn_append_arguments arguments = {tokens, n, heads, dim, slots, cache};
    const attn_status status = attn_append_check(&arguments);
    if (status != ATTN_OK || !n || !heads || !dim)
        return status;
    for (int64_t i = 0; i < n; i++) {
        if (slots[i] < 0)
            continue;
        const int64_t page = slots[i] / cache->page_len, token = slots[i] % cache->page_len;
        for (int64_t h = 0; h < heads; h++)
            append_row(tokens, i * tokens->stride_token + h * tokens->stride_head, dim, cache,
                       page * cache->stride_page + h * cache->stride_head +
                           token * cache->stride_token,
                       page * cache->scale_stride_page + h * cache->scale_stride_head +
                           token * cache->scale_stride_token);
    }
    return ATTN_OK;
}
