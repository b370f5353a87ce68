/* Merges finished results over disjoint sets of keys, (out, lse) pairs: a result is the state
 * acc = out, m = lse, l = 1.
 *
 * SPDX-License-Identifier: MIT */
#include <math.h>

#include "attn.h"
#include "dispatch.h"
#include "problem.h"

static const float *part_row(const attn_input *t, int64_t b, int64_t h, int64_t i) {
    return (const float *)t->data + b * t->stride_batch + h * t->stride_head + i * t->stride_token;
}

/* One row: the first part is copied to out, the others are merged into it. */
static void merge_row(const struct attn_kernels *kernels, int64_t b, int64_t h, int64_t i,
                      size_t v_dim, size_t n, const attn_partial *parts, float *out, float *lse) {
    float m = -INFINITY, l = 0;
    bool is_nan = false;
    for (size_t p = 0; p < n; p++) {
        const float *from = part_row(&parts[p].out, b, h, i);
        const float m_part = *part_row(&parts[p].lse, b, h, i);
        const float l_part = m_part == -INFINITY ? 0 : 1;
        is_nan |= isnan(m_part) || m_part == INFINITY;
        if (p == 0) {
            for (size_t c = 0; c < v_dim; c++)
                out[c] = from[c];
            m = m_part, l = l_part;
        } else {
            kernels->merge_rows(1, v_dim, out, &m, &l, from, &m_part, &l_part, v_dim);
        }
    }
    if (is_nan || l == 0) /* a NaN, or no part has seen a key, whatever they hold */
        for (size_t c = 0; c < v_dim; c++)
            out[c] = is_nan ? NAN : 0;
    else if (n > 1)
        kernels->scale_rows(1, out, 0, (const float[]){1 / l}, v_dim, &out);
    if (lse)
        *lse = is_nan ? NAN : l == 0 ? -INFINITY : m + logf(l);
}

attn_status attn_merge(int64_t batch, int64_t heads, int64_t q_len, int64_t v_dim, size_t n,
                       const attn_partial *parts, const attn_output *out, const attn_output *lse) {
    const struct attn_merge_arguments arguments = {batch, heads, q_len, v_dim, n, parts, out, lse};
    const attn_status status = attn_merge_check(&arguments);
    if (status != ATTN_OK || !batch || !heads || !q_len || !v_dim)
        return status;
    const struct attn_kernels *kernels = attn_kernels_in_use();
    if (!kernels)
        return ATTN_ERROR_ISA;
    for (int64_t b = 0; b < batch; b++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t i = 0; i < q_len; i++)
                merge_row(kernels, b, h, i, (size_t)v_dim, n, parts,
                          (float *)out->data + b * out->stride_batch + h * out->stride_head +
                              i * out->stride_token,
                          lse ? (float *)lse->data + b * lse->stride_batch + h * lse->stride_head +
                                    i * lse->stride_token
                              : NULL);
    return ATTN_OK;
}
