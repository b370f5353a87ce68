/* Products of keys and values as they are stored against those that are widened first, bit for bit:
 * for every storage type, any stride, groups of scales, tails, pieces in another order, and rows alone.
 *
 * SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { MAX_SETS = 16, MAX_ROWS = 27, MAX_PIECES = 5 };

struct stored_case {
    attn_type type;
    size_t rows, keys, dim, group; /* group: of int8, a divisor of dim */
    int64_t stride;                /* lanes of keys; may be negative or 0 */
    int64_t scale_stride;
    enum side side;
    bool has_specials; /* NaN, infinity or a huge scale in one key */
    bool in_pieces;    /* whole pieces are stored in reverse order */
};

/* Where key or value j is stored. */
static size_t place_of(const struct stored_case *c, size_t j) {
    const size_t whole = c->keys / ATTN_PACK_STEP, piece = j / ATTN_PACK_STEP;
    return c->in_pieces && piece < whole ? j + (whole - 1 - 2 * piece) * ATTN_PACK_STEP : j;
}

/* The keys or values, from `at` or in pieces. element: bytes of one. */
static struct attn_stored stored_of(const struct stored_case *c, const char *at, int64_t stride,
                                    size_t element, const float *scales,
                                    struct attn_piece *pieces) {
    struct attn_stored stored = {at, stride, scales, c->scale_stride, c->group, NULL};
    size_t n = 0;
    for (size_t j = 0; c->in_pieces && j < c->keys; j += ATTN_PACK_STEP) {
        const int64_t place = (int64_t)place_of(c, j);
        pieces[n++] = (struct attn_piece){at + place * stride * (int64_t)element,
                                          scales + place * c->scale_stride};
    }
    for (size_t i = 0; i < ATTN_PIECES_AHEAD; i++) /* asked for, or not there */
        pieces[n + i] = i == 0 && n > 0 ? pieces[0] : (struct attn_piece){NULL, NULL};
    if (c->in_pieces)
        stored.at = NULL, stored.scales = NULL, stored.pieces = pieces;
    return stored;
}

typedef void qk_function(const float *const *q, size_t n_rows, const struct attn_stored *keys,
                         size_t n_keys, size_t dim, float scale, float *scores,
                         size_t score_stride);

static qk_function *qk_of(const struct attn_stored_kernels *stored, attn_type type) {
    return type == ATTN_F32    ? stored->qk_f32
           : type == ATTN_F16  ? stored->qk_f16
           : type == ATTN_BF16 ? stored->qk_bf16
                               : stored->qk_i8;
}

static size_t per_lane(attn_type type) { return type == ATTN_F32 ? 1 : type == ATTN_I8 ? 4 : 2; }
static size_t bytes_of(attn_type type) { return sizeof(float) / per_lane(type); }

static void fill_key(const struct stored_case *c, void *key, bool is_special, struct rng *rng) {
    for (size_t i = 0; i < c->dim; i++) {
        const uint64_t x = rng_next(rng);
        if (c->type == ATTN_F32)
            ((float *)key)[i] = rng_normal(rng);
        else if (c->type == ATTN_I8)
            ((int8_t *)key)[i] = (int8_t)x;
        else /* f16: any finite number; bf16: 2^-127 to 2^8, and subnormal ones */
            ((uint16_t *)key)[i] = (uint16_t)(x & (c->type == ATTN_F16 ? 0xbbff : 0xc3ff));
    }
    if (is_special && c->type == ATTN_F32)
        ((float *)key)[rng_below(rng, (int64_t)c->dim)] = rng_below(rng, 2) ? INFINITY : NAN;
    if (is_special && c->type == ATTN_F16)
        ((uint16_t *)key)[rng_below(rng, (int64_t)c->dim)] = rng_below(rng, 2) ? 0x7c00 : 0x7e01;
    if (is_special && c->type == ATTN_BF16)
        ((uint16_t *)key)[rng_below(rng, (int64_t)c->dim)] = rng_below(rng, 2) ? 0xff80 : 0x7fc1;
}

static void widen(const struct attn_kernels *set, const struct stored_case *c, const void *at,
                  int64_t stride, const float *scales, float *wide) {
    if (c->type == ATTN_F32)
        for (size_t j = 0; j < c->keys; j++)
            memcpy(wide + j * c->dim, (const float *)at + (int64_t)j * stride,
                   c->dim * sizeof *wide);
    else if (c->type == ATTN_F16)
        set->widen_f16(at, stride, c->keys, c->dim, wide, c->dim);
    else if (c->type == ATTN_BF16)
        set->widen_bf16(at, stride, c->keys, c->dim, wide, c->dim);
    else
        for (size_t f = 0; f < c->dim; f += c->group)
            set->widen_i8((const int8_t *)at + f, stride, c->keys, c->group, scales + f / c->group,
                          c->scale_stride, wide + f, c->dim);
}

/* Rows of wide from the order in which they are stored to that of keys. */
static void put_in_order(const struct stored_case *c, float *wide) {
    for (size_t j = 0; j < c->keys; j++)
        for (size_t i = 0; place_of(c, j) > j && i < c->dim; i++) {
            const float x = wide[j * c->dim + i];
            wide[j * c->dim + i] = wide[place_of(c, j) * c->dim + i];
            wide[place_of(c, j) * c->dim + i] = x;
        }
}

/* ---- Keys ------------------------------------------------------------------------------------ */

/* The scores that widening gives. */
static void widen_and_multiply(const struct attn_kernels *set, const struct stored_case *c,
                               const float *const *q, const void *at, int64_t stride,
                               const float *scales, float scale, float *scores, size_t width) {
    float *wide = malloc(c->keys * c->dim * sizeof *wide);
    cr_assert(wide, "no memory");
    widen(set, c, at, stride, scales, wide);
    put_in_order(c, wide);
    set->qk_strided(q, c->rows, wide, (int64_t)c->dim, c->keys, c->dim, scale, scores, width);
    free(wide);
}

static void try_case(const struct attn_kernels *set, const struct stored_case *c, struct rng *rng) {
    check_context("stored %s: type %d rows %zu keys %zu dim %zu group %zu stride %" PRId64
                  " scale stride %" PRId64 " side %d specials %d pieces %d",
                  set->name, (int)c->type, c->rows, c->keys, c->dim, c->group, c->stride,
                  c->scale_stride, (int)c->side, (int)c->has_specials, (int)c->in_pieces);
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

    const int64_t stride = c->stride * (int64_t)per_lane(c->type);
    struct attn_piece pieces[MAX_PIECES + ATTN_PIECES_AHEAD];
    const struct attn_stored keys =
        stored_of(c, (const char *)lanes, stride, bytes_of(c->type), scales, pieces);
    float *got = guarded_floats(SLOT_OTHER, c->rows * width, c->side);
    float *want = guarded_floats(SLOT_OTHER + 1, c->rows * width, c->side);
    float *alone = guarded_floats(SLOT_OTHER + 2, width, c->side);
    qk_function *const multiply = qk_of(set->stored, c->type);
    widen_and_multiply(set, c, q, lanes, stride, scales, scale, want, width);
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
        for (attn_type type = ATTN_F32; sets[s]->stored && type <= ATTN_I8;
             type = (attn_type)(type + 1))
            for (size_t rows = 1; rows <= MAX_ROWS; rows += rows < 13 ? 1 : 7)
                for (size_t n = 0; n < sizeof key_counts / sizeof *key_counts; n++) {
                    const size_t n_dims = type == ATTN_I8 ? 5 : 8;
                    const size_t dim = type == ATTN_F32 ? 1 + (size_t)rng_below(&rng, 130)
                                                        : dims[rng_below(&rng, (int64_t)n_dims)];
                    const int64_t lanes = (int64_t)(dim / per_lane(type));
                    const int64_t groups =
                        type == ATTN_I8 && rng_below(&rng, 2) ? (int64_t)dim / 16 : 1;
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
                        .in_pieces = rng_below(&rng, 2) == 0,
                    };
                    try_case(sets[s], &c, &rng);
                }
}

/* ---- Values ---------------------------------------------------------------------------------- */

typedef void pv_function(const float *weights, size_t weight_stride,
                         const struct attn_visible *visible, size_t n_rows,
                         const struct attn_stored *values, size_t v_dim, const float *factor,
                         float *acc, size_t acc_stride);

static pv_function *pv_of(const struct attn_stored_kernels *stored, attn_type type) {
    return type == ATTN_F32    ? stored->pv_f32
           : type == ATTN_F16  ? stored->pv_f16
           : type == ATTN_BF16 ? stored->pv_bf16
                               : stored->pv_i8;
}

/* A range that may be empty; some rows are lifted up to a column in it. */
static struct attn_visible any_range(size_t keys, struct rng *rng) {
    const int32_t begin = (int32_t)rng_below(rng, (int64_t)keys);
    const int32_t end = (int32_t)rng_below(rng, (int64_t)keys + 1);
    struct attn_visible see = {rng_below(rng, 2) ? 0 : begin,
                               rng_below(rng, 2) ? (int32_t)keys : end, 0, 0, NULL};
    if (see.end > see.begin && rng_below(rng, 3) == 0)
        see.lifted = see.begin + 1 + (int32_t)rng_below(rng, see.end - see.begin);
    return see;
}

/* Values that no row sees are NaN, or int8 whose scales are. The stride of c counts elements here. */
static void try_values(const struct attn_kernels *set, const struct stored_case *c,
                       struct rng *rng) {
    check_context("stored values %s: type %d rows %zu keys %zu dim %zu group %zu stride %" PRId64
                  " scale stride %" PRId64 " side %d specials %d pieces %d",
                  set->name, (int)c->type, c->rows, c->keys, c->dim, c->group, c->stride,
                  c->scale_stride, (int)c->side, (int)c->has_specials, (int)c->in_pieces);
    const size_t bytes = bytes_of(c->type), groups = c->dim / c->group;
    const int64_t reach = c->stride * (int64_t)(c->keys - 1);
    const int64_t scale_reach = c->scale_stride * (int64_t)(c->keys - 1);
    char *values = guarded(SLOT_V, ((size_t)llabs(reach) + c->dim) * bytes, c->side);
    float *scales = guarded_floats(SLOT_V_SCALES, (size_t)llabs(scale_reach) + groups, c->side);
    float *weights = guarded_floats(SLOT_OTHER, c->rows * c->keys, c->side);
    float *factors = guarded_floats(SLOT_OTHER + 1, c->rows, c->side);
    float *got = guarded_floats(SLOT_OTHER + 2, c->rows * c->dim, c->side);
    float *want = guarded_floats(SLOT_OTHER + 3, c->rows * c->dim, c->side);
    float *alone = guarded_floats(SLOT_OTHER + 4, c->rows * c->dim, c->side);
    float *wide = guarded_floats(SLOT_OTHER + 5, c->keys * c->dim, c->side);
    values -= reach < 0 ? reach * (int64_t)bytes : 0;
    scales -= scale_reach < 0 ? scale_reach : 0;

    struct attn_visible visible[MAX_ROWS];
    const bool is_same = rng_below(rng, 2);
    for (size_t r = 0; r < c->rows; r++) {
        visible[r] = r > 0 && is_same ? visible[0] : any_range(c->keys, rng);
        factors[r] = (float)rng_uniform(rng);
        for (int32_t j = visible[r].begin; j < visible[r].end; j++)
            weights[r * c->keys + (size_t)j] = (float)rng_uniform(rng);
        for (size_t f = 0; f < c->dim; f++)
            got[r * c->dim + f] = want[r * c->dim + f] = alone[r * c->dim + f] = rng_normal(rng);
    }
    for (size_t j = 0; j < c->keys; j++) {
        bool is_seen = false;
        for (size_t r = 0; r < c->rows; r++)
            is_seen |= (int32_t)j >= visible[r].begin && (int32_t)j < visible[r].end;
        if (!is_seen && c->stride != 0 && c->scale_stride != 0)
            continue;
        const int64_t place = (int64_t)place_of(c, j);
        fill_key(c, values + place * c->stride * (int64_t)bytes,
                 c->has_specials && j == c->keys / 2, rng);
        for (size_t g = 0; g < groups; g++)
            scales[place * c->scale_stride + (int64_t)g] = rng_normal(rng) * 0.01f;
    }
    widen(set, c, values, c->stride, scales, wide);
    put_in_order(c, wide);

    const float *factor = rng_below(rng, 2) ? factors : NULL;
    struct attn_piece pieces[MAX_PIECES + ATTN_PIECES_AHEAD];
    const struct attn_stored stored = stored_of(c, values, c->stride, bytes, scales, pieces);
    pv_function *const pv = pv_of(set->stored, c->type);
    set->pv_tile(weights, c->keys, visible, c->rows, wide, (int64_t)c->dim, c->dim, factor, want,
                 c->dim, NULL);
    pv(weights, c->keys, visible, c->rows, &stored, c->dim, factor, got, c->dim);
    int64_t at = first_difference(got, want, (int64_t)(c->rows * c->dim));
    CHECK(at < 0, "element %" PRId64 ": %a, widened %a", at, (double)got[at], (double)want[at]);
    for (size_t r = 0; r < c->rows; r++)
        pv(weights + r * c->keys, c->keys, visible + r, 1, &stored, c->dim,
           factor ? factor + r : NULL, alone + r * c->dim, c->dim);
    at = first_difference(got, alone, (int64_t)(c->rows * c->dim));
    CHECK(at < 0, "element %" PRId64 ": %a, alone %a", at, (double)got[at], (double)alone[at]);
}

Test(stored, sums_are_those_of_widened_values) {
    static const size_t key_counts[] = {1, 2, 3, 4, 5, 9, 16, 31, 64, 75};
    const struct attn_kernels *sets[MAX_SETS];
    const size_t n_sets = check_kernel_sets(sets);
    struct rng rng = {12};
    for (size_t s = 0; s < n_sets; s++)
        for (attn_type type = ATTN_F32; sets[s]->stored && type <= ATTN_I8;
             type = (attn_type)(type + 1))
            for (size_t vectors = 1; vectors <= 17; vectors++)
                for (size_t rows = 1; rows <= 13; rows++) {
                    const int64_t dim = (int64_t)(vectors * ATTN_STORED_STEP) -
                                        (type == ATTN_F32 ? rng_below(&rng, 16) : 0);
                    const int64_t groups =
                        type == ATTN_I8 && rng_below(&rng, 2) ? (int64_t)vectors : 1;
                    const int64_t strides[] = {dim, dim + 3, 0, -dim, -dim - 5};
                    const int64_t scale_strides[] = {groups, groups + 2, 0, -groups};
                    const struct stored_case c = {
                        .type = type,
                        .rows = rows,
                        .keys = key_counts[rng_below(&rng, 10)],
                        .dim = (size_t)dim,
                        .group = (size_t)(dim / groups),
                        .stride = strides[rng_below(&rng, 5)],
                        .scale_stride = scale_strides[rng_below(&rng, 4)],
                        .side = rng_below(&rng, 2) ? AT_END : AT_START,
                        .has_specials = rng_below(&rng, 4) == 0,
                        .in_pieces = rng_below(&rng, 2) == 0,
                    };
                    try_values(sets[s], &c, &rng);
                }
}
