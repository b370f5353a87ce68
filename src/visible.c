/* Which keys a query row sees: those in use, and of them with causality those up to its own
 * position, with a window those near it, with a mask those that it shows.
 *
 * SPDX-License-Identifier: MIT */
#include "visible.h"

#include <math.h>
#include <string.h>

#include "half.h"

/* ---- Masks ----------------------------------------------------------------------------------- */

const void *attn_mask_row(const struct attn_checked *c, int64_t b, int64_t h, int64_t i,
                          int64_t first) {
    static const int64_t element_bytes[] = {0, sizeof(uint8_t), sizeof(float), sizeof(uint16_t), 1};
    const attn_mask *mask = &c->p.mask;
    if (mask->type == ATTN_MASK_NONE)
        return NULL;
    const int64_t along_keys = mask->type == ATTN_MASK_BITS ? first / 8 : first * mask->stride_key;
    const int64_t element = b * mask->stride_batch + h * mask->stride_head +
                            (attn_query_first(c, b) + i) * mask->stride_query + along_keys;
    return (const uint8_t *)mask->data + element * element_bytes[mask->type];
}

const float *attn_mask_bias(const struct attn_checked *c, const void *row, int64_t n, float *copy) {
    if (!attn_mask_needs_copy(c))
        return row;
    enum { STEP = 16 }; /* a constant count is what makes compilers use vectors */
    const int64_t stride = c->p.mask.stride_key;
    const uint16_t *half = row;
    const float *single = row;
    int64_t j = 0;
    if (c->p.mask.type == ATTN_MASK_F16) {
        for (; stride == 1 && j + STEP <= n; j += STEP)
            for (int64_t i = 0; i < STEP; i++)
                copy[j + i] = float_of_f16(half[j + i]);
        for (; j < n; j++)
            copy[j] = float_of_f16(half[j * stride]);
    }
    for (; j < n; j++)
        copy[j] = single[j * stride];
    return copy;
}

static void bits_of_strided_bool(const uint8_t *row, int64_t stride, int64_t n, uint64_t *bits) {
    memset(bits, 0, (size_t)ATTN_BIT_WORDS(n) * sizeof *bits);
    for (int64_t j = 0; j < n; j++)
        bits[j / 64] |= (uint64_t)(row[j * stride] != 0) << (j % 64);
}

static void bits_of_packed(const uint8_t *row, int64_t n, uint64_t *bits) {
    memset(bits, 0, (size_t)ATTN_BIT_WORDS(n) * sizeof *bits);
    for (int64_t i = 0; i < (n + 7) / 8; i++)
        bits[i / 8] |= (uint64_t)row[i] << (i % 8 * 8);
    if (n % 64)
        bits[n / 64] &= (UINT64_C(1) << (n % 64)) - 1;
}

void attn_mask_bits(const struct attn_checked *c, const struct attn_kernels *kernels,
                    const void *row, const float *bias, int64_t n, uint64_t *bits) {
    if (c->p.mask.type == ATTN_MASK_BITS)
        bits_of_packed(row, n, bits);
    else if (bias)
        kernels->bits_of_bias(bias, (size_t)n, bits);
    else if (c->p.mask.stride_key == 1)
        kernels->bits_of_bool(row, (size_t)n, bits);
    else
        bits_of_strided_bool(row, c->p.mask.stride_key, n, bits);
}

/* The ones of the word of keys [64 i, 64 i + 64) that lie in [begin, end), which meets it. */
static uint64_t ones_in(int32_t i, int32_t begin, int32_t end) {
    uint64_t ones = UINT64_MAX;
    if (begin > 64 * i)
        ones <<= begin - 64 * i;
    if (end < 64 * i + 64)
        ones &= (UINT64_C(1) << (end - 64 * i)) - 1;
    return ones;
}

void attn_see_bits(const uint64_t *bits, struct attn_visible *see) {
    if (see->begin >= see->end)
        return;
    int32_t first = see->begin / 64, last = (see->end - 1) / 64;
    uint64_t hidden = 0;
    for (int32_t i = first; i <= last; i++)
        hidden |= ~bits[i] & ones_in(i, see->begin, see->end);
    if (!hidden)
        return;
    while (first <= last && !(bits[first] & ones_in(first, see->begin, see->end)))
        first++;
    if (first > last) {
        *see = (struct attn_visible){0};
        return;
    }
    while (!(bits[last] & ones_in(last, see->begin, see->end)))
        last--;
    const uint64_t low = bits[first] & ones_in(first, see->begin, see->end);
    const uint64_t high = bits[last] & ones_in(last, see->begin, see->end);
    see->begin = 64 * first + __builtin_ctzll(low);
    see->end = 64 * last + 64 - __builtin_clzll(high);
    for (int32_t i = first; i <= last; i++)
        if (~bits[i] & ones_in(i, see->begin, see->end))
            see->bits = bits;
}
