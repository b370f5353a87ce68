/* Problems of any layout and with any option: their memory, their data, running them, and comparing
 * them with the oracle.
 *
 * SPDX-License-Identifier: MIT */
#define _GNU_SOURCE 1
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "cli/oracle.h"

/* ---- Memory ---------------------------------------------------------------------------------- */

struct strides {
    int64_t batch, head, token;
};

static struct strides strides_of(enum layout layout, int64_t heads, int64_t tokens, int64_t dim) {
    switch (layout) {
    case BLHD:
        return (struct strides){tokens * heads * dim, dim, heads * dim};
    case PACKED_QKV:
        return (struct strides){tokens * 3 * heads * dim, dim, 3 * heads * dim};
    case PADDED:
        return (struct strides){heads * (tokens * (dim + 3) + 5) + 7, tokens * (dim + 3) + 5,
                                dim + 3};
    case REVERSED:
        return (struct strides){-heads * tokens * dim, -tokens * dim, -dim};
    case SHARED_HEADS:
        return (struct strides){0, 0, dim};
    case SHARED_TOKENS:
        return (struct strides){heads * dim, dim, 0};
    default:
        return (struct strides){heads * tokens * dim, tokens * dim, dim};
    }
}

/* Storage for the tensor, and the pointer to its element (0, 0, 0, 0). */
static float *place(enum slot slot, struct stored *stored, struct strides s, int64_t batch,
                    int64_t heads, int64_t tokens, int64_t dim, enum side side) {
    *stored = (struct stored){NULL, 0, sizeof(float)};
    if (batch == 0 || heads == 0 || tokens == 0 || dim == 0)
        return NULL;
    const int64_t reach[3] = {s.batch * (batch - 1), s.head * (heads - 1), s.token * (tokens - 1)};
    int64_t low = 0, high = dim;
    for (int i = 0; i < 3; i++)
        *(reach[i] < 0 ? &low : &high) += reach[i];
    stored->n = (size_t)(high - low);
    stored->data = guarded_floats(slot, stored->n, side);
    return stored->data - low;
}

/* The axis of batches where there is one. */
static int64_t query_batches(const struct shape *s, bool is_ragged) {
    return is_ragged && s->batch > 0 ? 1 : s->batch;
}

void trial_place(struct trial *t, struct shape shape, struct layouts how) {
    cr_assert(shape.batch <= MAX_BATCH, "a test asks for too large a batch");
    memset(t, 0, sizeof *t);
    t->shape = shape;
    t->side = how.side;
    attn_problem *p = &t->p;
    *p = attn_problem_init();
    p->batch = shape.batch, p->q_heads = shape.q_heads, p->kv_heads = shape.kv_heads;
    p->q_len = shape.q_len, p->kv_cap = shape.kv_cap;
    p->qk_dim = shape.qk_dim, p->v_dim = shape.v_dim;
    p->past_cap = how.past_cap;

#define PLACE(name, slot, layout, batches, heads, tokens, dim)                                     \
    do {                                                                                           \
        const struct strides s = strides_of(layout, heads, tokens, dim);                           \
        p->name.data = place(slot, &t->name, s, batches, heads, tokens, dim, how.side);            \
        p->name.stride_batch = s.batch, p->name.stride_head = s.head;                              \
        p->name.stride_token = s.token;                                                            \
    } while (0)
    const int64_t batches = query_batches(&shape, how.is_ragged),
                  keys = how.past_cap + shape.kv_cap;
    PLACE(q, SLOT_Q, how.q, batches, shape.q_heads, shape.q_len, shape.qk_dim);
    PLACE(k, SLOT_K, how.k, shape.batch, shape.kv_heads, shape.kv_cap, shape.qk_dim);
    PLACE(v, SLOT_V, how.v, shape.batch, shape.kv_heads, shape.kv_cap, shape.v_dim);
    PLACE(past_k, SLOT_PAST_K, how.past_k, shape.batch, shape.kv_heads, how.past_cap, shape.qk_dim);
    PLACE(past_v, SLOT_PAST_V, how.past_v, shape.batch, shape.kv_heads, how.past_cap, shape.v_dim);
    PLACE(out, SLOT_OUT, how.out, batches, shape.q_heads, shape.q_len, shape.v_dim);
    if (how.lse)
        PLACE(lse, SLOT_LSE, how.out, batches, shape.q_heads, shape.q_len, 1);
    if (how.weights)
        PLACE(weights, SLOT_WEIGHTS, how.out, batches, shape.q_heads, shape.q_len, keys);
    if (how.scores)
        PLACE(scores, SLOT_SCORES, how.out, batches, shape.q_heads, shape.q_len, keys);
#undef PLACE
    if (how.is_ragged) {
        for (int64_t b = 0; b <= shape.batch; b++)
            t->cu_q[b] = shape.batch ? b * shape.q_len / shape.batch : 0;
        p->cu_q = t->cu_q;
        /* Not used, the header says. */
        p->q.stride_batch = p->out.stride_batch = p->lse.stride_batch = INT64_MIN;
        p->weights.stride_batch = p->scores.stride_batch = INT64_MAX;
    }
}

const float *in_at(const attn_input *t, int64_t b, int64_t h, int64_t token) {
    return (const float *)t->data + b * t->stride_batch + h * t->stride_head +
           token * t->stride_token;
}

float *in_at_mutable(const attn_input *t, int64_t b, int64_t h, int64_t token) {
    return (float *)(uintptr_t)in_at(t, b, h, token);
}

float *out_at(const attn_output *t, int64_t b, int64_t h, int64_t token) {
    return (float *)t->data + b * t->stride_batch + h * t->stride_head + token * t->stride_token;
}

float *query_of(const attn_problem *p, int64_t b, int64_t h, int64_t i) {
    return in_at_mutable(&p->q, p->cu_q ? 0 : b, h, p->cu_q ? p->cu_q[b] + i : i);
}

static float *piece_of(const attn_problem *p, const attn_input *past, const attn_input *now,
                       int64_t b, int64_t g, int64_t j) {
    const int64_t n_past = p->past_cap && p->past_len ? p->past_len[b] : p->past_cap;
    return j < n_past ? in_at_mutable(past, b, g, j) : in_at_mutable(now, b, g, j - n_past);
}

float *key_of(const attn_problem *p, int64_t b, int64_t g, int64_t j) {
    return piece_of(p, &p->past_k, &p->k, b, g, j);
}

float *value_of(const attn_problem *p, int64_t b, int64_t g, int64_t j) {
    return piece_of(p, &p->past_v, &p->v, b, g, j);
}

float *row_of(const attn_problem *p, const attn_output *t, int64_t b, int64_t h, int64_t i) {
    return (float *)t->data + oracle_output_at(p, t, b, h, i);
}

/* ---- Masks ----------------------------------------------------------------------------------- */

static size_t mask_element_size(attn_mask_type type) {
    return type == ATTN_MASK_F32 ? 4 : type == ATTN_MASK_F16 ? 2 : 1;
}

void trial_add_mask(struct trial *t, struct mask_form form) {
    attn_problem *p = &t->p;
    attn_mask *m = &p->mask;
    const bool is_bits = form.type == ATTN_MASK_BITS;
    const int64_t keys = form.no_key ? 1 : form.n_keys, queries = form.no_query ? 1 : p->q_len;
    const int64_t heads = form.no_head ? 1 : p->q_heads, batches = form.no_batch ? 1 : p->batch;
    const int64_t gap = form.layout == MASK_PADDED ? 3 : 0;
    const int64_t row = (is_bits ? (form.n_keys + 7) / 8 : keys) + gap;
    if (form.layout == MASK_TRANSPOSED && !is_bits) {
        m->stride_query = 1, m->stride_key = queries;
        m->stride_head = keys * queries;
    } else {
        m->stride_key = 1, m->stride_query = row;
        m->stride_head = row * queries + gap;
    }
    m->stride_batch = m->stride_head * heads + gap;
    const int64_t features = is_bits ? (form.n_keys + 7) / 8 : 1;
    const int64_t sizes[4] = {batches, heads, queries, is_bits ? 1 : keys};
    int64_t *const strides[4] = {&m->stride_batch, &m->stride_head, &m->stride_query,
                                 &m->stride_key};
    int64_t low = 0, high = features;
    bool is_empty = features == 0;
    for (int axis = 0; axis < 4; axis++) {
        if (form.layout == MASK_REVERSED)
            *strides[axis] = -*strides[axis];
        if (sizes[axis] <= 1)
            *strides[axis] = 0;
        *(*strides[axis] < 0 ? &low : &high) += *strides[axis] * (sizes[axis] - 1);
        is_empty |= sizes[axis] == 0;
    }
    if (is_empty)
        low = high = 0;
    const size_t size = mask_element_size(form.type);
    m->type = form.type, m->n_keys = form.n_keys;
    t->mask_form = form;
    t->mask_bytes = (size_t)(high - low) * size;
    t->mask = guarded(SLOT_MASK, t->mask_bytes, form.side);
    m->data = t->mask - low * (int64_t)size;
    for (int64_t b = 0; b < batches && !is_empty; b++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t i = 0; i < queries; i++)
                for (int64_t j = 0; j < (is_bits ? form.n_keys : keys); j++)
                    mask_set(t, b, h, i, j, 0);
}

int64_t mask_place(const struct trial *t, int64_t b, int64_t h, int64_t token, int64_t j) {
    const attn_mask *m = &t->p.mask;
    const int64_t base = ((const uint8_t *)m->data - t->mask);
    const int64_t row = b * m->stride_batch + h * m->stride_head + token * m->stride_query;
    if (m->type == ATTN_MASK_BITS)
        return 8 * (base + row) + j;
    return base / (int64_t)mask_element_size(m->type) + row + j * m->stride_key;
}

/* Cut, not rounded; beyond the range infinite. */
static uint16_t half_of(float x) {
    const uint16_t sign = signbit(x) ? 0x8000 : 0;
    if (isnan(x))
        return 0x7e01;
    if (fabsf(x) >= 65536)
        return sign | 0x7c00;
    int exponent;
    const float fraction = frexpf(fabsf(x), &exponent); /* x = fraction * 2^exponent, from 0.5 */
    if (exponent < -13 || fraction == 0)
        return sign | (uint16_t)ldexpf(fabsf(x), 24);
    return sign | (uint16_t)((exponent + 14) << 10 | ((int)ldexpf(fraction, 11) & 1023));
}

void mask_set(struct trial *t, int64_t b, int64_t h, int64_t token, int64_t j, float x) {
    const int64_t at = mask_place(t, b, h, token, j);
    const uint16_t half = half_of(x);
    const bool is_shown = x != -INFINITY;
    switch (t->p.mask.type) {
    case ATTN_MASK_F32:
        memcpy(t->mask + 4 * at, &x, 4);
        break;
    case ATTN_MASK_F16:
        memcpy(t->mask + 2 * at, &half, 2);
        break;
    case ATTN_MASK_BITS:
        t->mask[at / 8] = (uint8_t)((t->mask[at / 8] & ~(1 << at % 8)) | is_shown << at % 8);
        break;
    default: /* any byte but 0 shows */
        t->mask[at] = is_shown ? (uint8_t)(1 << at % 8) : 0;
    }
}

/* ---- Data ------------------------------------------------------------------------------------ */

static void fill_tensor(const attn_input *t, int64_t batch, int64_t heads, int64_t tokens,
                        int64_t dim, enum kind kind, struct rng *rng) {
    if (!t->data)
        return;
    const float equal = rng_normal(rng);
    for (int64_t b = 0; b < batch; b++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t i = 0; i < tokens; i++) {
                float *row = in_at_mutable(t, b, h, i);
                for (int64_t c = 0; c < dim; c++) {
                    const float x = kind == KIND_GAUSS ? rng_gauss(rng) : rng_normal(rng);
                    row[c] = kind == KIND_EQUAL ? equal : kind == KIND_DENORMAL ? x * 0x1p-130f : x;
                }
            }
}

static float *any_element(const attn_input *t, int64_t batch, int64_t heads, int64_t tokens,
                          int64_t dim, struct rng *rng) {
    return in_at_mutable(t, rng_below(rng, batch), rng_below(rng, heads), rng_below(rng, tokens)) +
           rng_below(rng, dim);
}

/* Feature 0 of every query is positive, so that a key with -inf there has logit -inf. */
static void put_minus_inf(const struct trial *t, int64_t batches, struct rng *rng) {
    const struct shape s = t->shape;
    const attn_problem *p = &t->p;
    for (int64_t b = 0; b < batches; b++)
        for (int64_t h = 0; h < s.q_heads; h++)
            for (int64_t i = 0; i < s.q_len; i++)
                *in_at_mutable(&p->q, b, h, i) = 0.5f;
    for (int64_t b = 0; b < s.batch; b++)
        for (int64_t h = 0; h < s.kv_heads; h++) {
            for (int64_t j = 0; j < s.kv_cap; j++)
                if (rng_below(rng, 3) > 0)
                    *in_at_mutable(&p->k, b, h, j) = -INFINITY;
            for (int64_t j = 0; j < p->past_cap; j++)
                if (rng_below(rng, 3) > 0)
                    *in_at_mutable(&p->past_k, b, h, j) = -INFINITY;
        }
}

void trial_fill(struct trial *t, enum kind kind, struct rng *rng) {
    const struct shape s = t->shape;
    const int64_t batches = query_batches(&s, t->p.cu_q != NULL);
    fill_tensor(&t->p.q, batches, s.q_heads, s.q_len, s.qk_dim, kind, rng);
    fill_tensor(&t->p.k, s.batch, s.kv_heads, s.kv_cap, s.qk_dim, kind, rng);
    fill_tensor(&t->p.v, s.batch, s.kv_heads, s.kv_cap, s.v_dim, kind, rng);
    fill_tensor(&t->p.past_k, s.batch, s.kv_heads, t->p.past_cap, s.qk_dim, kind, rng);
    fill_tensor(&t->p.past_v, s.batch, s.kv_heads, t->p.past_cap, s.v_dim, kind, rng);
    if (!t->p.q.data || !t->p.k.data || !t->p.v.data)
        return;
    if (kind == KIND_ONE_HUGE) {
        *any_element(&t->p.k, s.batch, s.kv_heads, s.kv_cap, s.qk_dim, rng) = 3e4f;
        *any_element(&t->p.v, s.batch, s.kv_heads, s.kv_cap, s.v_dim, rng) = -1e20f;
    }
    if (kind == KIND_MINUS_INF_KEYS)
        put_minus_inf(t, batches, rng);
    if (kind == KIND_NAN) {
        *any_element(&t->p.q, batches, s.q_heads, s.q_len, s.qk_dim, rng) = NAN;
        *any_element(&t->p.k, s.batch, s.kv_heads, s.kv_cap, s.qk_dim, rng) = -NAN;
        *any_element(&t->p.v, s.batch, s.kv_heads, s.kv_cap, s.v_dim, rng) = NAN;
    }
}

/* ---- Storage types and pages ----------------------------------------------------------------- */

size_t type_width(attn_type type) { return type == ATTN_F32 ? 4 : type == ATTN_I8 ? 1 : 2; }

float rounded_to(attn_type type, double x) {
    if (type == ATTN_F32)
        return (float)x;
    if (!isfinite(x) || x == 0)
        return (float)x;
    const int digits = type == ATTN_F16 ? 11 : 8, least = type == ATTN_F16 ? -13 : -125;
    int exponent;
    frexp(x, &exponent);
    const double unit = ldexp(1, (exponent > least ? exponent : least) - digits);
    const double y = nearbyint(x / unit) * unit;
    return fabs(y) < (type == ATTN_F16 ? 0x1p16 : 0x1p128) ? (float)y
                                                           : copysignf(INFINITY, (float)x);
}

float output_of(const attn_problem *p, const attn_output *t, int64_t b, int64_t h, int64_t i,
                int64_t c) {
    return (float)oracle_load(t->type, t->data, oracle_output_at(p, t, b, h, i) + c);
}

static struct place place_in(const attn_input *t, const attn_scales *s, int64_t b, int64_t g,
                             int64_t token) {
    const int64_t at = b * t->stride_batch + g * t->stride_head + token * t->stride_token;
    const int64_t scale = b * s->stride_batch + g * s->stride_head + token * s->stride_token;
    return (struct place){(char *)(uintptr_t)t->data + at * (int64_t)type_width(t->type),
                          t->type == ATTN_I8 ? (float *)(uintptr_t)s->data + scale : NULL};
}

static struct place place_of(const attn_problem *p, const attn_input *past,
                             const attn_scales *past_s, const attn_input *now,
                             const attn_scales *now_s, int64_t b, int64_t g, int64_t j) {
    const int64_t n_past = p->past_cap && p->past_len ? p->past_len[b] : p->past_cap;
    if (j < n_past)
        return place_in(past, past_s, b, g, j);
    const attn_pages *pages = &p->pages;
    if (!pages->table)
        return place_in(now, now_s, b, g, j - n_past);
    const int64_t page = pages->table[b * pages->stride_batch + j / pages->page_len];
    return place_in(now, now_s, page, g, j % pages->page_len);
}

struct place key_place(const attn_problem *p, int64_t b, int64_t g, int64_t j) {
    return place_of(p, &p->past_k, &p->past_k_scales, &p->k, &p->k_scales, b, g, j);
}

struct place value_place(const attn_problem *p, int64_t b, int64_t g, int64_t j) {
    return place_of(p, &p->past_v, &p->past_v_scales, &p->v, &p->v_scales, b, g, j);
}

/* Stores n numbers, and replaces them by what was stored. */
static void store_row(attn_type type, const float *from, int64_t n, int64_t group, struct place to,
                      float *plain) {
    group = group ? group : n;
    for (int64_t c = 0; c < n && type != ATTN_I8; c++) {
        uint16_t half = half_of(from[c]);
        if (type == ATTN_BF16)
            half = (uint16_t)(bits_of(from[c]) >> 16 | (isnan(from[c]) ? 0x40 : 0));
        const void *element = type == ATTN_F32 ? (const void *)(from + c) : &half;
        memcpy(to.at + (size_t)c * type_width(type), element, type_width(type));
        plain[c] = (float)oracle_load(type, to.at, c);
    }
    for (int64_t first = 0; first < n && type == ATTN_I8; first += group) {
        const int64_t end = first + group < n ? first + group : n;
        bool is_finite = true;
        double largest = 0;
        for (int64_t c = first; c < end; c++)
            is_finite &= isfinite(from[c]), largest = fmax(largest, fabsf(from[c]));
        const float scale = is_finite ? (float)(largest / 127) : NAN;
        to.scales[first / group] = scale;
        for (int64_t c = first; c < end; c++) {
            const double x = from[c] / (double)scale, most = c % 2 ? 127 : -127;
            const int8_t i = (int8_t)(isnan(x) ? most : fmin(fmax(x, -127), 127));
            ((int8_t *)to.at)[c] = i;
            plain[c] = (float)(i * (double)scale); /* the exact product, rounded once */
        }
    }
}

/* Memory for a tensor of another type, or in pages, with the strides given. */
static void place_stored(struct trial *t, int which, attn_input *in, attn_scales *s, attn_type type,
                         int64_t group, const int64_t sizes[4], struct strides strides,
                         enum layout scales) {
    const int64_t n_scales = group ? (sizes[3] - 1) / group + 1 : 1;
    const int64_t reach[3] = {strides.batch * (sizes[0] - 1), strides.head * (sizes[1] - 1),
                              strides.token * (sizes[2] - 1)};
    int64_t low = 0, high = sizes[3];
    for (int i = 0; i < 3; i++)
        *(reach[i] < 0 ? &low : &high) += reach[i];
    struct stored *stored = &t->stored[which];
    *stored = (struct stored){NULL, (size_t)(high - low), type_width(type)};
    const enum slot slot = (enum slot)(SLOT_STORED_Q + which);
    stored->data = guarded(slot, stored->n * stored->width, t->side);
    *in = (attn_input){(char *)stored->data - low * (int64_t)stored->width, type, strides.batch,
                       strides.head, strides.token};
    if (type != ATTN_I8)
        return;
    const struct strides of_scales = strides_of(scales, sizes[1], sizes[2], n_scales);
    s->data = place((enum slot)(SLOT_K_SCALES + which - 1), &t->scales[which], of_scales, sizes[0],
                    sizes[1], sizes[2], n_scales, t->side);
    s->group = group, s->stride_batch = of_scales.batch;
    s->stride_head = of_scales.head, s->stride_token = of_scales.token;
}

/* A tensor that is not paged keeps its strides. */
static void store_tensor(struct trial *t, int which, struct stored *from, attn_input *in,
                         attn_scales *s, attn_type type, int64_t group, int64_t batch,
                         int64_t heads, int64_t tokens, int64_t dim) {
    const attn_input plain = t->plain[which] = *in;
    in->type = type;
    if (!from->data || type == ATTN_F32)
        return;
    const int64_t sizes[4] = {batch, heads, tokens, dim};
    const struct strides strides = {plain.stride_batch, plain.stride_head, plain.stride_token};
    place_stored(t, which, in, s, type, group, sizes, strides, t->storage.scales);
    /* Rows may share memory. */
    float *copy = malloc(from->n * sizeof *copy);
    cr_assert(copy != NULL);
    memcpy(copy, from->data, from->n * sizeof *copy);
    const attn_scales none = {.data = NULL};
    for (int64_t b = 0; b < batch; b++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t i = 0; i < tokens; i++) {
                float *row = in_at_mutable(&plain, b, h, i);
                store_row(type, copy + (row - from->data), dim, group,
                          place_in(in, s ? s : &none, b, h, i), row);
            }
    free(copy);
}

/* The first and last key of batch b that some row sees, or may see as far as its mask goes. */
static void seen_keys(const struct trial *t, int64_t b, int64_t *first, int64_t *last) {
    attn_problem open = t->p;
    const int64_t count = oracle_key_count(&t->p, b);
    const int64_t covered = open.mask.type && open.mask.n_keys < count ? open.mask.n_keys : count;
    open.mask.type = ATTN_MASK_NONE;
    *first = INT64_MAX, *last = -1;
    for (int64_t i = 0; i < oracle_rows(&open, b); i++)
        for (int64_t j = 0; j < (open.scores.data ? count : covered); j++)
            if (open.scores.data || oracle_sees(&open, b, 0, i, j)) {
                *first = j < *first ? j : *first;
                *last = j > *last ? j : *last;
            }
}

static void fill_table(struct trial *t, int64_t per_batch, struct rng *rng) {
    attn_pages *pages = &t->p.pages;
    const int64_t batch = t->shape.batch, n = batch * per_batch;
    const int32_t anything[] = {-1, INT32_MAX, INT32_MIN, -2, (int32_t)pages->n_pages};
    int32_t *order = malloc(((size_t)pages->n_pages + 1) * sizeof *order);
    cr_assert(order != NULL);
    for (int64_t i = 0; i < pages->n_pages; i++) {
        const int64_t at = rng_below(rng, i + 1);
        order[i] = order[at];
        order[at] = (int32_t)i;
    }
    int32_t *table = (int32_t *)(uintptr_t)pages->table;
    for (int64_t b = 0, i = 0; i < n; b++) {
        int64_t first, last;
        seen_keys(t, b, &first, &last);
        for (int64_t page = 0; page < per_batch; page++, i++) {
            const bool is_needed =
                page * pages->page_len <= last && (page + 1) * pages->page_len > first;
            table[b * pages->stride_batch + page] = is_needed ? order[i]
                                                    : rng_below(rng, 3) == 0
                                                        ? (int32_t)rng_below(rng, pages->n_pages)
                                                        : anything[rng_below(rng, 5)];
        }
    }
    free(order);
}

static void store_in_pages(struct trial *t, int which, struct stored *from, attn_input *in,
                           attn_scales *s, attn_type type, int64_t group, int64_t dim,
                           struct place (*where)(const attn_problem *, int64_t, int64_t, int64_t)) {
    const attn_pages *pages = &t->p.pages;
    const int64_t heads = t->shape.kv_heads;
    const int64_t sizes[4] = {pages->n_pages, heads, pages->page_len, dim};
    const attn_input plain = t->plain[which] = *in;
    in->type = type;
    if (!from->data)
        return;
    place_stored(t, which, in, s, type, group, sizes,
                 strides_of(t->storage.pages, heads, pages->page_len, dim), t->storage.scales);
    float *copy = malloc(from->n * sizeof *copy), *scales = malloc((size_t)dim * sizeof *scales);
    float *elements = malloc((size_t)dim * sizeof *elements);
    cr_assert(copy && scales && elements);
    memcpy(copy, from->data, from->n * sizeof *copy);
    for (int64_t b = 0; b < t->shape.batch; b++) {
        int64_t first, last;
        seen_keys(t, b, &first, &last);
        for (int64_t h = 0; h < heads; h++)
            for (int64_t j = 0; j < t->shape.kv_cap; j++) {
                const bool has_page = j / pages->page_len >= first / pages->page_len &&
                                      j / pages->page_len <= last / pages->page_len && last >= 0;
                const struct place nowhere = {(char *)elements, scales};
                float *row = in_at_mutable(&plain, b, h, j);
                store_row(type, copy + (row - from->data), dim, group,
                          has_page ? where(&t->p, b, h, j) : nowhere, row);
            }
    }
    free(copy), free(scales), free(elements);
}

void trial_store(struct trial *t, struct storage how, struct rng *rng) {
    attn_problem *p = &t->p;
    const struct shape s = t->shape;
    t->is_stored = true, t->storage = how;
    store_tensor(t, STORED_Q, &t->q, &p->q, NULL, how.q, 0, query_batches(&s, p->cu_q != NULL),
                 s.q_heads, s.q_len, s.qk_dim);
    if (how.page_len) {
        const int64_t per_batch = (s.kv_cap + how.page_len - 1) / how.page_len, gap = 2;
        p->pages = (attn_pages){.stride_batch = per_batch + gap,
                                .page_len = how.page_len,
                                .n_pages = per_batch ? s.batch * per_batch + 3 : 0};
        t->table = (struct stored){NULL, (size_t)(s.batch * (per_batch + gap)), sizeof(int32_t)};
        if (t->table.n > (size_t)gap)
            t->table.n -= (size_t)gap;
        t->table.data = guarded(SLOT_TABLE, t->table.n * sizeof(int32_t), t->side);
        p->pages.table = (const int32_t *)(const void *)t->table.data;
        fill_table(t, per_batch, rng);
        store_in_pages(t, STORED_K, &t->k, &p->k, &p->k_scales, how.k, how.k_group, s.qk_dim,
                       key_place);
        store_in_pages(t, STORED_V, &t->v, &p->v, &p->v_scales, how.v, how.v_group, s.v_dim,
                       value_place);
    } else {
        store_tensor(t, STORED_K, &t->k, &p->k, &p->k_scales, how.k, how.k_group, s.batch,
                     s.kv_heads, s.kv_cap, s.qk_dim);
        store_tensor(t, STORED_V, &t->v, &p->v, &p->v_scales, how.v, how.v_group, s.batch,
                     s.kv_heads, s.kv_cap, s.v_dim);
    }
    store_tensor(t, STORED_PAST_K, &t->past_k, &p->past_k, &p->past_k_scales, how.k, how.k_group,
                 s.batch, s.kv_heads, p->past_cap, s.qk_dim);
    store_tensor(t, STORED_PAST_V, &t->past_v, &p->past_v, &p->past_v_scales, how.v, how.v_group,
                 s.batch, s.kv_heads, p->past_cap, s.v_dim);
    p->k_scales.group = p->past_k_scales.group = how.k_group;
    p->v_scales.group = p->past_v_scales.group = how.v_group;
    p->out.type = how.out;
    if (how.out != ATTN_F32 && t->out.data) {
        const int64_t origin = (float *)p->out.data - t->out.data;
        t->out.width = type_width(how.out);
        t->out.data = guarded(SLOT_OUT, t->out.n * t->out.width, t->side);
        p->out.data = (char *)t->out.data + origin * (int64_t)t->out.width;
    }
}

void trial_plain(const struct trial *t, struct layouts how, struct trial *plain) {
    const attn_problem *p = &t->p;
    how.is_ragged = p->cu_q != NULL, how.past_cap = p->past_cap;
    trial_place(plain, t->shape, how);
    attn_problem twin = *p;
    twin.q = t->plain[STORED_Q], twin.k = t->plain[STORED_K], twin.v = t->plain[STORED_V];
    twin.past_k = t->plain[STORED_PAST_K], twin.past_v = t->plain[STORED_PAST_V];
    twin.out = plain->p.out, twin.lse = plain->p.lse;
    twin.weights = plain->p.weights, twin.scores = plain->p.scores;
    const attn_scales none = {.data = NULL};
    twin.k_scales = twin.v_scales = twin.past_k_scales = twin.past_v_scales = none;
    memset(&twin.pages, 0, sizeof twin.pages);
    plain->p = twin;
}

static const char *list(char text[64], const int64_t *values, int64_t n, const char *if_null) {
    if (!values)
        return if_null;
    int length = 0;
    for (int64_t b = 0; b < n && length < 40; b++)
        length +=
            snprintf(text + length, (size_t)(64 - length), "%s%" PRId64, b ? "," : "", values[b]);
    return text;
}

void trial_context(const struct trial *t, const char *what) {
    const attn_problem *p = &t->p;
    const struct mask_form *m = &t->mask_form;
    char kv_len[64], offset[64], cu_q[64], past_len[64], window[64], mask[128] = "none";
    if (p->mask.type)
        snprintf(mask, sizeof mask, "type %d layout %d axes %s%s%s%s n_keys %" PRId64,
                 (int)p->mask.type, (int)m->layout, m->no_batch ? "" : "b", m->no_head ? "" : "h",
                 m->no_query ? "" : "q", m->no_key ? "" : "k", m->n_keys);
    check_context(
        "%s: batch %" PRId64 " q_heads %" PRId64 " kv_heads %" PRId64 " q_len %" PRId64
        " kv_cap %" PRId64 " qk_dim %" PRId64 " v_dim %" PRId64 " kv_len %s causal %d align %d "
        "offset %s scale %g; cu_q %s past_cap %" PRId64 " past_len %s window %s softcap %g "
        "alibi %d sinks %d mask %s; token strides q %" PRId64 " k %" PRId64 " v %" PRId64
        " out %" PRId64 "; lse %d weights %d scores %d at %d; types %d %d %d out %d groups "
        "%" PRId64 " %" PRId64 " page_len %" PRId64 "; isa %s",
        what, p->batch, p->q_heads, p->kv_heads, p->q_len, p->kv_cap, p->qk_dim, p->v_dim,
        list(kv_len, p->kv_len, p->batch, "all"), (int)p->causal, (int)p->align,
        list(offset, p->offset, p->batch, "-"), p->scale ? (double)*p->scale : 0.0,
        list(cu_q, p->cu_q, p->batch + 1, "-"), p->past_cap,
        list(past_len, p->past_len, p->batch, "all"), list(window, p->window, 2, "-"),
        (double)p->softcap, p->alibi != NULL, p->sinks != NULL, mask, p->q.stride_token,
        p->k.stride_token, p->v.stride_token, p->out.stride_token, p->lse.data != NULL,
        p->weights.data != NULL, p->scores.data != NULL, (int)p->scores_at, (int)p->q.type,
        (int)p->k.type, (int)p->v.type, (int)p->out.type, p->k_scales.group, p->v_scales.group,
        p->pages.table ? p->pages.page_len : 0, attn_isa() ? attn_isa() : "(none)");
}

/* ---- Running --------------------------------------------------------------------------------- */

static uint64_t hash_of(const void *data, size_t size, uint64_t hash) {
    const unsigned char *bytes = data;
    uint64_t word;
    for (; size >= sizeof word; bytes += sizeof word, size -= sizeof word) {
        memcpy(&word, bytes, sizeof word);
        hash = (hash ^ word) * UINT64_C(0x100000001b3);
        hash ^= hash >> 29;
    }
    for (; size; bytes++, size--)
        hash = (hash ^ *bytes) * UINT64_C(0x100000001b3);
    return hash;
}

static uint64_t hash_of_inputs(const struct trial *t) {
    const struct stored *const tensors[] = {&t->q, &t->k, &t->v, &t->past_k, &t->past_v};
    uint64_t hash = hash_of(t->mask, t->mask_bytes, UINT64_C(0xcbf29ce484222325));
    for (size_t k = 0; k < sizeof tensors / sizeof *tensors; k++)
        hash = hash_of(tensors[k]->data, tensors[k]->n * sizeof(float), hash);
    for (int k = 0; k < N_STORED; k++) {
        hash = hash_of(t->stored[k].data, t->stored[k].n * t->stored[k].width, hash);
        hash = hash_of(t->scales[k].data, t->scales[k].n * sizeof(float), hash);
    }
    return hash_of(t->table.data, t->table.n * t->table.width, hash);
}

static void fill_nan(const struct stored *s) {
    if (s->data)
        memset(s->data, 0xff, s->n * s->width);
}

void trial_run(struct trial *t, attn_executor *executor) {
    fill_nan(&t->out);
    fill_nan(&t->lse);
    fill_nan(&t->weights);
    fill_nan(&t->scores);
    size_t size = 0;
    const attn_status asked = attn_workspace_size(&t->p, executor ? executor->n_workers : 1, &size);
    CHECK(asked == ATTN_OK, "attn_workspace_size: %s", attn_status_string(asked));
    void *workspace = guarded(SLOT_WORKSPACE, size, AT_END);
    const uint64_t before = hash_of_inputs(t);
    const attn_status status = attn_forward(&t->p, workspace, size, executor);
    CHECK(status == ATTN_OK, "attn_forward: %s", attn_status_string(status));
    CHECK(hash_of_inputs(t) == before, "an input changed");
}

/* The number among those stored of element `at` of a tensor. */
static size_t element_of(const struct stored *s, const attn_output *t, int64_t at) {
    return (size_t)(((const char *)t->data - (const char *)s->data) / (int64_t)s->width + at);
}

void trial_check_gaps(const struct trial *t) {
    const attn_problem *p = &t->p;
    const struct {
        const char *name;
        const struct stored *stored;
        const attn_output *t;
        int64_t n;
    } outputs[] = {{"out", &t->out, &p->out, p->v_dim},
                   {"lse", &t->lse, &p->lse, 1},
                   {"weights", &t->weights, &p->weights, p->past_cap + p->kv_cap},
                   {"scores", &t->scores, &p->scores, p->past_cap + p->kv_cap}};
    for (size_t k = 0; k < sizeof outputs / sizeof *outputs; k++) {
        const struct stored *s = outputs[k].stored;
        bool *is_row = calloc(s->n + 1, sizeof *is_row);
        cr_assert(is_row != NULL);
        for (int64_t b = 0; b < p->batch && s->data; b++)
            for (int64_t h = 0; h < p->q_heads; h++)
                for (int64_t i = 0; i < oracle_rows(p, b); i++)
                    memset(is_row + element_of(s, outputs[k].t,
                                               oracle_output_at(p, outputs[k].t, b, h, i)),
                           1, (size_t)outputs[k].n);
        static const unsigned char untouched[4] = {0xff, 0xff, 0xff, 0xff};
        for (size_t at = 0; at < s->n; at++)
            if (!is_row[at] &&
                memcmp((const char *)s->data + at * s->width, untouched, s->width) != 0) {
                check_fail("%s: element %zu lies between rows and was written", outputs[k].name,
                           at);
                break;
            }
        free(is_row);
    }
}

/* ---- Comparing ------------------------------------------------------------------------------- */

/* Arrays over the keys take room for each row only where an output is compared with them. */
static void reference_fill(const struct trial *t, struct reference *r) {
    const attn_problem *p = &t->p;
    struct oracle_row *row = r->rows;
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->q_heads; h++)
            for (int64_t i = 0; i < oracle_rows(p, b); i++, row++) {
                row->arithmetic = r->arithmetic;
                oracle_attend(p, b, h, i, row);
            }
}

struct reference reference_make(const struct trial *t) {
    const attn_problem *p = &t->p;
    const size_t v_dim = (size_t)p->v_dim, keys = (size_t)(p->past_cap + p->kv_cap);
    const bool looks_inside = p->weights.data || p->scores.data;
    struct reference r = {.n = 0, .arithmetic = oracle_arithmetic(p, attn_isa())};
    for (int64_t b = 0; b < p->batch; b++)
        r.n += p->q_heads * oracle_rows(p, b);
    const size_t n = (size_t)r.n, inside = looks_inside ? n : 1;
    r.rows = calloc(n + 1, sizeof *r.rows);
    r.numbers = calloc(2 * n * v_dim + 3 * inside * keys + 1, sizeof *r.numbers);
    r.sees = calloc(inside * keys + 1, 1);
    cr_assert(r.rows && r.numbers && r.sees, "no memory for the reference");
    r.out = r.numbers;
    size_t at = 0;
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->q_heads; h++)
            for (int64_t i = 0; i < oracle_rows(p, b); i++, at++) {
                const size_t slot = looks_inside ? at : 0;
                double *const others = r.numbers + 2 * n * v_dim + slot * 3 * keys;
                r.rows[at] = (struct oracle_row){.out = r.out + at * v_dim,
                                                 .out_bound = r.out + (n + at) * v_dim,
                                                 .weights = others,
                                                 .scores = others + keys,
                                                 .scores_bound = others + 2 * keys,
                                                 .sees = r.sees + slot * keys};
            }
    reference_fill(t, &r);
    return r;
}

void reference_free(struct reference *r) { free(r->rows), free(r->numbers), free(r->sees); }

/* The largest share of the bound so far, and how many values are beyond it. */
struct worst {
    double share;
    int64_t failures;
};

static void compare_one(struct worst *worst, const char *what, const int64_t at[4], float got,
                        double want, double bound) {
    const double error = fabs((double)got - want);
    if (error > 0 && error / bound > worst->share)
        worst->share = error / bound;
    if (!oracle_agrees(got, want, bound) && worst->failures++ == 0)
        check_fail("%s[%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "] is %.9g, want %.17g within "
                   "%g",
                   what, at[0], at[1], at[2], at[3], (double)got, want, bound);
}

static void compare_row(struct worst *worst, const attn_problem *p, int64_t b, int64_t h, int64_t i,
                        const struct oracle_row *row) {
    int64_t at[4] = {b, h, i, 0};
    int64_t *const last = &at[3];
    for (*last = 0; *last < p->v_dim; ++*last)
        compare_one(worst, "out", at, output_of(p, &p->out, b, h, i, *last), row->out[*last],
                    row->out_bound[*last]);
    *last = 0;
    if (p->lse.data)
        compare_one(worst, "lse", at, *row_of(p, &p->lse, b, h, i), row->lse, row->lse_bound);
    const int64_t keys = p->past_cap + p->kv_cap;
    const float *const weights = p->weights.data ? row_of(p, &p->weights, b, h, i) : NULL;
    for (*last = 0; weights && *last < keys; ++*last) {
        const float got = weights[*last];
        const double want = row->weights[*last];
        if (!row->sees[*last] && bits_of(got) != 0 && worst->failures++ == 0)
            check_fail("hidden weight[%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "] is %g", b, h,
                       i, *last, (double)got);
        /* Where the factor is infinite or NaN, a weight of 0 still is one. */
        compare_one(worst, "weight", at, got, want,
                    (want == 0 ? 0 : row->weight_factor * want) + 0x1p-125);
    }
    const float *const scores = p->scores.data ? row_of(p, &p->scores, b, h, i) : NULL;
    for (*last = 0; scores && *last < keys; ++*last)
        compare_one(worst, "score", at, scores[*last], row->scores[*last],
                    row->scores_bound[*last]);
}

double trial_compare(const struct trial *t, struct reference *r) {
    const attn_problem *p = &t->p;
    struct worst worst = {0, 0};
    if (r->arithmetic != oracle_arithmetic(p, attn_isa())) {
        r->arithmetic = oracle_arithmetic(p, attn_isa());
        reference_fill(t, r);
    }
    const struct oracle_row *row = r->rows;
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->q_heads; h++)
            for (int64_t i = 0; i < oracle_rows(p, b); i++, row++)
                if (p->v_dim > 0)
                    compare_row(&worst, p, b, h, i, row);
    if (worst.failures > 1)
        fprintf(stderr,
                "    %" PRId64 " values of this problem are beyond the bound; worst error "
                "is %g times it\n",
                worst.failures, worst.share);
    return worst.share;
}

void trial_on_every_isa(struct trial *t) {
    struct reference reference = reference_make(t);
    FOR_EACH_ISA(isa) {
        trial_context(t, "oracle");
        trial_run(t, NULL);
        trial_compare(t, &reference);
    }
    reference_free(&reference);
}

static bool same_row(const struct trial *a, const struct trial *b, const attn_output *of_a,
                     const attn_output *of_b, int64_t n, const int64_t at[3], const char *what,
                     const char *name) {
    if (!of_a->data || !of_b->data)
        return true;
    for (int64_t k = 0; k < n; k++) {
        const float x = output_of(&a->p, of_a, at[0], at[1], at[2], k);
        const float y = output_of(&b->p, of_b, at[0], at[1], at[2], k);
        if (same_bits(x, y))
            continue;
        check_fail("%s: %s[%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "] is %a or %a", what,
                   name, at[0], at[1], at[2], k, (double)x, (double)y);
        return false;
    }
    return true;
}

bool trial_same_bits(const struct trial *a, const struct trial *b, const char *what) {
    const attn_problem *p = &a->p;
    const int64_t keys = p->past_cap + p->kv_cap;
    for (int64_t n = 0; n < p->batch; n++)
        for (int64_t h = 0; h < p->q_heads; h++)
            for (int64_t i = 0; i < oracle_rows(p, n); i++) {
                const int64_t at[3] = {n, h, i};
                if (!same_row(a, b, &p->out, &b->p.out, p->v_dim, at, what, "out") ||
                    !same_row(a, b, &p->lse, &b->p.lse, 1, at, what, "lse") ||
                    !same_row(a, b, &p->weights, &b->p.weights, keys, at, what, "weights") ||
                    (p->scores_at == ATTN_SCORES_BIASED && /* those before show hidden keys */
                     !same_row(a, b, &p->scores, &b->p.scores, keys, at, what, "scores")))
                    return false;
            }
    return true;
}
