/* Products of keys as they are stored against the keys widened and then multiplied, bit for bit: for
 * every storage type, any stride, groups of scales, tails, and rows alone.
 *
 * SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { MAX_SETS = 16, MAX_ROWS = 27 };

struct stored_case {
    attn_type type;
    size_t rows, keys, dim, group; /* group: of int8, a divisor of dim */
    int64_t stride;                /* lanes; may be negative or 0 */
    int64_t scale_stride;
    enum side side;
    bool has_specials; /* NaN, infinity or a huge scale in one key */
};

typedef void stored_function(const float *const *q, size_t n_rows,
                             const struct attn_stored *keys, size_t n_keys, size_t dim,
                             float scale, float *scores, size_t score_stride);

static stored_function *function_of(const struct attn_stored_kernels *stored, attn_type type) {
    return type == ATTN_F16 ? stored->qk_f16 : type == ATTN_BF16 ? stored->qk_bf16 : stored->qk_i8;
}

static size_t per_lane(attn_type type) { return type == ATTN_I8 ? 4 : 2; }

static void fill_key(const struct stored_case *c, void *key, bool is_special, struct rng *rng) {
    for (size_t i = 0; i < c->dim; i++) {
        const uint64_t x = rng_next(rng);
        if (c->type == ATTN_I8)
            ((int8_t *)key)[i] = (int8_t)x;
        else /* f16: any finite number; bf16: 2^-127 to 2^8, and subnormal ones */
            ((uint16_t *)key)[i] = (uint16_t)(x & (c->type == ATTN_F16 ? 0xbbff : 0xc3ff));
    }
    if (is_special && c->type == ATTN_F16)
        ((uint16_t *)key)[rng_below(rng, (int64_t)c->dim)] = rng_below(rng, 2) ? 0x7c00 : 0x7e01;
    if (is_special && c->type == ATTN_BF16)
        ((uint16_t *)key)[rng_below(rng, (int64_t)c->dim)] = rng_below(rng, 2) ? 0xff80 : 0x7fc1;
}

/* The scores that widening gives. */
static void widen_and_multiply(const struct attn_kernels *set, const struct stored_case *c,
                               const float *const *q, const struct attn_stored *keys,
                               float scale, float *scores, size_t width) {
    float *wide = malloc(c->keys * c->dim * sizeof *wide);
    cr_assert(wide, "no memory");
    if (c->type == ATTN_F16)
        set->widen_f16(keys->at, keys->stride, c->keys, c->dim, wide, c->dim);
    else if (c->type == ATTN_BF16)
        set->widen_bf16(keys->at, keys->stride, c->keys, c->dim, wide, c->dim);
    else
        for (size_t f = 0; f < c->dim; f += c->group)
            set->widen_i8((const int8_t *)keys->at + f, keys->stride, c->keys, c->group,
                          keys->scales + f / c->group, c->scale_stride, wide + f, c->dim);
    set->qk_strided(q, c->rows, wide, (int64_t)c->dim, c->keys, c->dim, scale, scores, width);
    free(wide);
}

static void try_case(const struct attn_kernels *set, const struct stored_case *c, struct rng *rng) {
    check_context("stored %s: type %d rows %zu keys %zu dim %zu group %zu stride %" PRId64
                  " scale stride %" PRId64 " side %d specials %d",
                  set->name, (int)c->type, c->rows, c->keys, c->dim, c->group, c->stride,
                  c->scale_stride, (int)c->side, (int)c->has_specials);
    const size_t width = (c->keys + ATTN_SCORE_PAD - 1) / ATTN_SCORE_PAD * ATTN_SCORE_PAD;
    const float scale = 0.37f;
    float *q_data = guarded_floats(SLOT_Q, c->rows * c->dim, c->side);
    const float *q[MAX_ROWS];
    for (size_t i = 0; i < c->rows * c->dim; i++)
        q_data[i] = rng_normal(rng);
    for (size_t r = 0; r < c->rows; r++)
        q[r] = q_data + (c->rows - 1 - r) * c->dim;

    const int64_t reach = c->stride * (int64_t)(c->keys - 1);
    const size_t extent = (size_t)llabs(reach) + c->dim / per_lane(c->type);
    float *lanes = guarded_floats(SLOT_K, extent, c->side);
    lanes -= reach < 0 ? reach : 0;
    for (size_t j = 0; j < c->keys; j++)
        fill_key(c, lanes + (int64_t)j * c->stride, c->has_specials && j == c->keys / 2, rng);

    const int64_t scale_reach = c->scale_stride * (int64_t)(c->keys - 1);
    const size_t groups = c->dim / c->group;
    float *scales = guarded_floats(SLOT_K_SCALES, (size_t)llabs(scale_reach) + groups, c->side);
    scales -= scale_reach < 0 ? scale_reach : 0;
    for (size_t j = 0; j < c->keys; j++)
        for (size_t g = 0; g < groups; g++)
            scales[(int64_t)j * c->scale_stride + (int64_t)g] =
                rng_below(rng, 8) ? rng_normal(rng) * 0.01f : rng_normal(rng) * 0x1p-130f;
    if (c->has_specials)
        scales[scale_reach / 2] = rng_below(rng, 2) ? NAN : 3e38f;

    const struct attn_stored keys = {lanes, c->stride * (int64_t)per_lane(c->type), scales, c->scale_stride, c->group};
    float *got = guarded_floats(SLOT_OTHER, c->rows * width, c->side);
    float *want = guarded_floats(SLOT_OTHER + 1, c->rows * width, c->side);
    float *alone = guarded_floats(SLOT_OTHER + 2, width, c->side);
    stored_function *const multiply = function_of(set->stored, c->type);
    widen_and_multiply(set, c, q, &keys, scale, want, width);
    multiply(q, c->rows, &keys, c->keys, c->dim, scale, got, width);
    for (size_t r = 0; r < c->rows; r++) {
        multiply(q + r, 1, &keys, c->keys, c->dim, scale, alone, width);
        for (size_t j = 0; j < c->keys; j++) {
            CHECK(same_bits(got[r * width + j], want[r * width + j]),
                  "row %zu key %zu: %a, widened %a", r, j, (double)got[r * width + j],
                  (double)want[r * width + j]);
            CHECK(same_bits(got[r * width + j], alone[j]), "row %zu key %zu: alone %a", r, j,
                  (double)alone[j]);
        }
    }
}

Test(stored, products_are_those_of_widened_keys) {
    static const size_t key_counts[] = {1, 3, 7, 8, 9, 15, 16, 17, 31, 32, 47, 64, 75};
    static const size_t dims[] = {16, 48, 64, 96, 128, 8, 24, 40};
    const struct attn_kernels *sets[MAX_SETS];
    const size_t n_sets = check_kernel_sets(sets);
    struct rng rng = {11};
    for (size_t s = 0; s < n_sets; s++)
        for (attn_type type = ATTN_F16; sets[s]->stored && type <= ATTN_I8;
             type = (attn_type)(type + 1))
            for (size_t rows = 1; rows <= MAX_ROWS; rows += rows < 13 ? 1 : 7)
                for (size_t n = 0; n < sizeof key_counts / sizeof *key_counts; n++) {
                    const size_t n_dims = type == ATTN_I8 ? 5 : 8;
                    const size_t dim = dims[rng_below(&rng, (int64_t)n_dims)];
                    const int64_t lanes = (int64_t)(dim / per_lane(type));
                    const int64_t groups = rng_below(&rng, 2) ? (int64_t)dim / 16 : 1;
                    const int64_t strides[] = {lanes, lanes + 3, 8 * lanes, 0, -lanes, -lanes - 5};
                    const int64_t scale_strides[] = {groups, groups + 2, 0, -groups};
                    const struct stored_case c = {
                        .type = type,
                        .rows = rows,
                        .keys = key_counts[n],
                        .dim = dim,
                        .group = type == ATTN_I8 && groups > 1 ? 16 : dim,
                        .stride = strides[rng_below(&rng, 6)],
                        .scale_stride = scale_strides[rng_below(&rng, 4)],
                        .side = rng_below(&rng, 2) ? AT_END : AT_START,
                        .has_specials = rng_below(&rng, 4) == 0,
                    };
                    try_case(sets[s], &c, &rng);
                }
}
