/* attn verify: every usable kernel set against attention in double precision, over a built-in grid
 * of problems.
 *
 * SPDX-License-Identifier: MIT */
#define _XOPEN_SOURCE 700
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attn.h"
#include "cli.h"
#include "convert.h"
#include "judge.h"
#include "machine.h"
#include "memory.h"
#include "oracle.h"

static const char help[] =
    "usage: attn verify [--isa NAME]\n"
    "\n"
    "Computes a built-in grid of problems, in every storage type and in pages too, with every\n"
    "kernel set that can run here (or the one named), compares output, lse, weights and scores\n"
    "with attention in double precision, and prints the worst error of each (of float32\n"
    "outputs) and how much of the bound in attn.h it is. What no row may see is NaN. Exit\n"
    "status 1 if anything is beyond its bound.\n";

#define MAX_SETS 16
#define MAX_BATCH 4
#define MAX_HEADS 64

/* What the tensors hold beside normally distributed numbers. */
enum kind {
    NORMAL,
    EQUAL,     /* all keys the same */
    HUGE_KEY,  /* one key value 300 times as large */
    MINUS_INF, /* every third key scores -inf */
    NAN_QUERY, /* every third query holds NaN */
    NAN_KEY,   /* the middle key is NaN and its value infinite */
    TINY,      /* subnormal keys and values */
};
static const char *const kind_names[] = {
    [NORMAL] = "",
    [EQUAL] = ", equal keys",
    [HUGE_KEY] = ", one huge key",
    [MINUS_INF] = ", -inf scores",
    [NAN_QUERY] = ", NaN queries",
    [NAN_KEY] = ", NaN key",
    [TINY] = ", subnormal",
};

/* Key counts in use. */
enum kv_use { ALL_KEYS, SOME_KEYS };

/* What else the problem has; a mask is one of the first four. */
enum modifier {
    BOOL_MASK = ATTN_MASK_BOOL,
    F32_MASK = ATTN_MASK_F32,
    F16_MASK = ATTN_MASK_F16,
    BITS_MASK = ATTN_MASK_BITS,
    ANY_MASK = 7,
    WINDOW = 1 << 3,
    SOFTCAP = 1 << 4,
    ALIBI = 1 << 5,
    SINKS = 1 << 6,
    RAGGED = 1 << 7,
    PAST = 1 << 8,
    FORWARD = 1 << 9, /* aligned, but not causal */
    PAGED = 1 << 10,  /* not together with PAST */
    STORED = 7 << 11, /* a place in storages[] */
    F16 = 1 << 11,
    BF16 = 2 << 11,
    I8 = 3 << 11,
    I8_GROUPS = 4 << 11,
    MIXED = 5 << 11,
    EVERYTHING = WINDOW | SOFTCAP | ALIBI | SINKS | RAGGED | PAST,
};
static const struct {
    int modifier;
    const char *name;
} modifier_names[] = {{WINDOW, ", window"}, {SOFTCAP, ", softcap"}, {ALIBI, ", ALiBi"},
                      {SINKS, ", sinks"},   {RAGGED, ", ragged"},   {PAST, ", past"},
                      {PAGED, ", pages"}};
/* How tensors are stored. */
static const struct {
    const char *name;
    attn_type q, k, v, out;
    int group; /* of int8 */
} storages[] = {{"", ATTN_F32, ATTN_F32, ATTN_F32, ATTN_F32, 0},
                {", f16", ATTN_F16, ATTN_F16, ATTN_F16, ATTN_F16, 0},
                {", bf16", ATTN_BF16, ATTN_BF16, ATTN_BF16, ATTN_BF16, 0},
                {", int8 cache", ATTN_F32, ATTN_I8, ATTN_I8, ATTN_F32, 0},
                {", int8 cache in groups", ATTN_BF16, ATTN_I8, ATTN_I8, ATTN_BF16, 16},
                {", mixed types", ATTN_F16, ATTN_I8, ATTN_BF16, ATTN_F32, 32}};
enum { N_STORAGES = sizeof storages / sizeof storages[0] };
static int storage_of(int with) { return (with & STORED) / F16; }
static const char *const mask_names[] = {"", ", bool mask", ", f32 mask", ", f16 mask", ", bits"};

#define FREE ATTN_ALIGN_UNSET /* not causal */
#define TOP ATTN_ALIGN_TOP_LEFT
#define BOTTOM ATTN_ALIGN_BOTTOM_RIGHT
#define AT ATTN_ALIGN_EXPLICIT

struct grid_case {
    int batch, q_heads, kv_heads, q_len, kv_cap, qk_dim, v_dim;
    attn_align causal;
    enum kv_use kv_use;
    enum kind kind;
    int with; /* modifiers */
};
static const struct grid_case grid[] = {
    /* Smallest sizes, odd dims, tails of every vector length. */
    {1, 1, 1, 1, 1, 1, 1, FREE, ALL_KEYS, NORMAL, 0},
    {1, 1, 1, 2, 3, 2, 5, FREE, ALL_KEYS, NORMAL, 0},
    {2, 3, 3, 5, 7, 3, 4, FREE, ALL_KEYS, NORMAL, 0},
    {1, 2, 2, 17, 33, 15, 9, FREE, ALL_KEYS, NORMAL, 0},
    {1, 1, 1, 9, 31, 17, 31, TOP, ALL_KEYS, NORMAL, 0},
    {2, 2, 1, 16, 64, 32, 33, FREE, SOME_KEYS, NORMAL, 0},
    {1, 1, 1, 33, 65, 63, 1, FREE, ALL_KEYS, NORMAL, 0},
    {1, 1, 1, 7, 129, 1, 65, BOTTOM, ALL_KEYS, NORMAL, 0},
    {1, 1, 1, 63, 63, 64, 64, TOP, ALL_KEYS, NORMAL, 0},
    {1, 1, 1, 65, 96, 128, 128, FREE, ALL_KEYS, NORMAL, 0},
    {1, 1, 1, 3, 40, 300, 257, FREE, ALL_KEYS, NORMAL, 0},
    {1, 1, 1, 20, 600, 300, 20, BOTTOM, ALL_KEYS, NORMAL, 0},
    {1, 1, 1, 2, 300, 1024, 8, FREE, ALL_KEYS, NORMAL, 0},
    /* Grouped and multi-query heads. */
    {1, 8, 2, 12, 50, 40, 24, FREE, ALL_KEYS, NORMAL, 0},
    {2, 6, 1, 4, 70, 16, 16, BOTTOM, SOME_KEYS, NORMAL, 0},
    {1, 32, 8, 1, 200, 16, 16, FREE, ALL_KEYS, NORMAL, 0},
    {3, 4, 2, 3, 90, 80, 80, AT, SOME_KEYS, NORMAL, 0},
    /* Causal in all alignments, also with more rows than keys and rows that see nothing. */
    {2, 2, 2, 30, 20, 24, 24, TOP, ALL_KEYS, NORMAL, 0},
    {2, 2, 2, 30, 20, 24, 24, BOTTOM, ALL_KEYS, NORMAL, 0},
    {4, 1, 1, 25, 40, 8, 12, BOTTOM, SOME_KEYS, NORMAL, 0},
    {4, 2, 1, 25, 40, 20, 12, AT, ALL_KEYS, NORMAL, 0},
    {4, 1, 1, 10, 130, 12, 12, AT, SOME_KEYS, NORMAL, 0},
    {1, 1, 1, 130, 130, 48, 48, TOP, ALL_KEYS, NORMAL, 0},
    {2, 1, 1, 6, 0, 8, 8, FREE, ALL_KEYS, NORMAL, 0},
    /* Around tiles and spans of 512 keys, and beyond 4096, where spans grow. */
    {1, 2, 1, 3, 511, 16, 16, FREE, ALL_KEYS, NORMAL, 0},
    {1, 2, 1, 3, 512, 16, 16, BOTTOM, ALL_KEYS, NORMAL, 0},
    {1, 2, 1, 3, 513, 16, 16, FREE, ALL_KEYS, NORMAL, 0},
    {1, 1, 1, 70, 1025, 15, 15, BOTTOM, ALL_KEYS, NORMAL, 0},
    {1, 2, 1, 2, 4095, 16, 16, FREE, ALL_KEYS, NORMAL, 0},
    {1, 1, 1, 1, 4096, 16, 16, FREE, ALL_KEYS, NORMAL, 0},
    {1, 2, 1, 2, 4097, 16, 16, BOTTOM, ALL_KEYS, NORMAL, 0},
    {4, 1, 1, 2, 4500, 7, 5, BOTTOM, SOME_KEYS, NORMAL, 0},
    {1, 1, 1, 2, 9001, 8, 8, FREE, ALL_KEYS, NORMAL, 0},
    {1, 1, 1, 1, 17000, 8, 8, FREE, ALL_KEYS, NORMAL, 0},
    /* Values that hurt. */
    {1, 2, 2, 9, 70, 20, 20, FREE, ALL_KEYS, EQUAL, 0},
    {1, 1, 1, 2, 1100, 16, 16, FREE, ALL_KEYS, EQUAL, 0},
    {1, 2, 1, 20, 75, 33, 17, FREE, ALL_KEYS, HUGE_KEY, 0},
    {1, 1, 1, 5, 700, 16, 16, BOTTOM, ALL_KEYS, HUGE_KEY, 0},
    {2, 2, 1, 20, 40, 33, 17, TOP, ALL_KEYS, MINUS_INF, 0},
    {1, 1, 1, 4, 600, 9, 9, FREE, ALL_KEYS, MINUS_INF, 0},
    {2, 2, 1, 20, 40, 33, 17, FREE, SOME_KEYS, NAN_QUERY, 0},
    {1, 1, 1, 40, 45, 17, 16, BOTTOM, ALL_KEYS, NAN_QUERY, 0},
    {2, 2, 1, 30, 30, 33, 17, TOP, ALL_KEYS, NAN_KEY, 0},
    {1, 1, 1, 560, 1060, 4, 4, BOTTOM, ALL_KEYS, NAN_KEY, 0},
    {1, 1, 1, 11, 90, 19, 21, FREE, ALL_KEYS, TINY, 0},
    /* Each modifier alone, in one tile and across a span's end, then together. */
    {2, 4, 2, 13, 75, 20, 18, FREE, SOME_KEYS, NORMAL, BOOL_MASK},
    {2, 4, 2, 13, 75, 20, 18, BOTTOM, ALL_KEYS, NORMAL, BITS_MASK},
    {1, 2, 1, 13, 700, 12, 12, FREE, ALL_KEYS, NORMAL, BITS_MASK},
    {2, 4, 2, 13, 75, 20, 18, FREE, SOME_KEYS, NORMAL, F32_MASK},
    {1, 2, 1, 5, 700, 12, 12, TOP, ALL_KEYS, NORMAL, F16_MASK},
    {2, 2, 1, 40, 90, 16, 16, BOTTOM, SOME_KEYS, NORMAL, WINDOW},
    {1, 2, 1, 20, 1100, 8, 8, BOTTOM, ALL_KEYS, NORMAL, WINDOW | FORWARD},
    {2, 3, 3, 13, 75, 20, 18, FREE, ALL_KEYS, NORMAL, SOFTCAP},
    {1, 2, 1, 4, 600, 12, 12, BOTTOM, ALL_KEYS, HUGE_KEY, SOFTCAP},
    {1, 6, 2, 13, 75, 20, 18, BOTTOM, ALL_KEYS, NORMAL, ALIBI},
    {1, 2, 1, 4, 5000, 8, 8, TOP, ALL_KEYS, NORMAL, ALIBI | FORWARD},
    {3, 4, 2, 5, 70, 16, 16, FREE, SOME_KEYS, NORMAL, SINKS},
    {1, 2, 1, 2, 1300, 8, 8, BOTTOM, ALL_KEYS, MINUS_INF, SINKS},
    {4, 2, 1, 37, 80, 16, 12, BOTTOM, SOME_KEYS, NORMAL, RAGGED},
    {3, 2, 2, 9, 129, 16, 12, FREE, ALL_KEYS, NORMAL, PAST},
    {2, 2, 1, 30, 1000, 8, 9, BOTTOM, SOME_KEYS, NORMAL, PAST},
    {3, 4, 2, 29, 130, 17, 9, BOTTOM, SOME_KEYS, NORMAL, F32_MASK | EVERYTHING},
    {3, 4, 2, 29, 700, 9, 5, AT, ALL_KEYS, NORMAL, F16_MASK | EVERYTHING},
    {2, 4, 1, 29, 600, 9, 5, TOP, ALL_KEYS, NAN_KEY, BITS_MASK | EVERYTHING},
    {2, 4, 4, 29, 90, 9, 33, BOTTOM, ALL_KEYS, NAN_QUERY, BOOL_MASK | EVERYTHING},
    /* Storage types and pages, each alone, then with the rest. */
    {2, 4, 2, 13, 75, 33, 18, FREE, SOME_KEYS, NORMAL, F16},
    {1, 4, 2, 1, 700, 64, 64, BOTTOM, ALL_KEYS, NORMAL, F16},
    {1, 2, 1, 7, 90, 20, 31, FREE, ALL_KEYS, HUGE_KEY, F16},
    {1, 1, 1, 11, 90, 19, 21, FREE, ALL_KEYS, TINY, F16},
    {2, 4, 2, 13, 75, 33, 18, FREE, SOME_KEYS, NORMAL, BF16},
    {1, 4, 2, 2, 1100, 64, 64, BOTTOM, ALL_KEYS, NORMAL, BF16},
    {1, 2, 2, 9, 70, 20, 20, FREE, ALL_KEYS, MINUS_INF, BF16},
    {2, 4, 2, 13, 75, 33, 18, FREE, SOME_KEYS, NORMAL, I8},
    {1, 8, 2, 1, 1300, 64, 64, BOTTOM, ALL_KEYS, NORMAL, I8},
    {1, 1, 1, 33, 600, 40, 24, TOP, ALL_KEYS, HUGE_KEY, I8_GROUPS},
    {2, 2, 1, 30, 30, 33, 17, TOP, ALL_KEYS, NAN_KEY, I8_GROUPS},
    {3, 4, 2, 5, 130, 40, 40, BOTTOM, SOME_KEYS, NORMAL, MIXED},
    {3, 4, 2, 9, 130, 17, 20, BOTTOM, SOME_KEYS, NORMAL, PAGED},
    {2, 2, 1, 20, 1100, 12, 12, BOTTOM, ALL_KEYS, NORMAL, PAGED | WINDOW},
    {3, 4, 2, 1, 600, 32, 32, BOTTOM, SOME_KEYS, NORMAL, PAGED | I8},
    {3, 4, 2, 29, 130, 17, 9, BOTTOM, SOME_KEYS, NORMAL, F32_MASK | EVERYTHING | MIXED},
    {3, 4, 2, 29, 130, 17, 9, AT, ALL_KEYS, NORMAL,
     F16_MASK | (EVERYTHING & ~PAST) | PAGED | I8_GROUPS},
    {2, 4, 1, 29, 600, 9, 5, TOP, ALL_KEYS, NAN_QUERY,
     BITS_MASK | (EVERYTHING & ~PAST) | PAGED | BF16},
};
#define N_CHOSEN ((int)(sizeof grid / sizeof grid[0]))
#define N_CASES (N_CHOSEN + 140) /* the rest is random */

#define TEXT_SIZE 192
static const char *case_text(const struct grid_case *g, char text[TEXT_SIZE]) {
    static const char *const aligned[] = {
        [FREE] = "", [TOP] = "top-left", [BOTTOM] = "bottom-right", [AT] = "at offsets"};
    int n = snprintf(text, TEXT_SIZE, "[%d %d/%d %dx%d d%d/%d", g->batch, g->q_heads, g->kv_heads,
                     g->q_len, g->kv_cap, g->qk_dim, g->v_dim);
    if (g->causal != FREE)
        n += snprintf(text + n, (size_t)(TEXT_SIZE - n), ", %s%s",
                      g->with & FORWARD ? "" : "causal ", aligned[g->causal]);
    n += snprintf(text + n, (size_t)(TEXT_SIZE - n), "%s%s%s",
                  g->kv_use == SOME_KEYS ? ", kv_len" : "", kind_names[g->kind],
                  mask_names[g->with & ANY_MASK]);
    for (size_t i = 0; i < sizeof modifier_names / sizeof modifier_names[0]; i++)
        if (g->with & modifier_names[i].modifier)
            n += snprintf(text + n, (size_t)(TEXT_SIZE - n), "%s", modifier_names[i].name);
    snprintf(text + n, (size_t)(TEXT_SIZE - n), "%s]", storages[storage_of(g->with)].name);
    return text;
}

/* splitmix64 (Steele, Lea, Flood 2014): the same numbers on every machine. */
static uint64_t random_state;
static uint64_t random_bits(void) {
    uint64_t z = random_state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Near enough to N(0, 1): four uniform numbers of 16 bits, centred, with variance 1. */
static float random_normal(void) {
    uint64_t bits = random_bits();
    int64_t sum = 0;
    for (int i = 0; i < 4; i++, bits >>= 16)
        sum += (int64_t)(bits & 0xffff);
    return (float)((double)(sum - 2 * 0xffff) / 65536 * 1.7320508);
}

static int random_below(int n) { return (int)(random_bits() % (uint64_t)n); }

/* A problem of the grid, or past its end a random one: always the same for the same index. */
static struct grid_case case_at(int index) {
    if (index < N_CHOSEN)
        return grid[index];
    random_state = (uint64_t)index;
    const int kv_heads = 1 + random_below(2);
    struct grid_case g = {.batch = 1 + random_below(2),
                          .q_heads = kv_heads * (1 + random_below(3)),
                          .kv_heads = kv_heads,
                          .q_len = 1 + random_below(30),
                          .kv_cap = 1 + random_below(index % 8 ? 80 : 700),
                          .qk_dim = 1 + random_below(70),
                          .v_dim = 1 + random_below(70)};
    g.causal = (attn_align)random_below(4);
    g.kv_use = (enum kv_use)random_below(2);
    g.kind = (enum kind)(random_below(2) ? NORMAL : random_below(TINY + 1));
    if (random_below(2)) {
        g.with = random_below(BITS_MASK + 1);
        for (int modifier = WINDOW; modifier <= FORWARD; modifier *= 2)
            g.with |= random_below(3) ? 0 : modifier;
    }
    if (random_below(3) == 0)
        g.with |= random_below(N_STORAGES) * F16;
    if (!(g.with & PAST) && random_below(4) == 0)
        g.with |= PAGED;
    return g;
}

static float *random_tensor(size_t count, float factor) {
    float *data = cli_allocate(count, sizeof *data);
    for (size_t i = 0; data && i < count; i++)
        data[i] = random_normal() * factor;
    return data;
}

enum { Q, K, V, PAST_K, PAST_V, N_TENSORS };

/* A case with its tensors, and room for the outputs of every kernel set, one after the other. */
struct trial {
    attn_problem problem;
    float *q, *k, *v, *past_k, *past_v, *out, *lse, *weights, *scores;
    void *mask;
    struct converted stored[N_TENSORS];
    int32_t *table;
    void *pool[2];
    size_t out_count, lse_count, weight_count;
    int64_t kv_len[MAX_BATCH], offset[MAX_BATCH], past_len[MAX_BATCH], cu_q[MAX_BATCH + 1];
    int64_t window[2];
    float alibi[MAX_HEADS], sinks[MAX_HEADS];
};

static void trial_free(struct trial *t) {
    float *const all[] = {t->q,   t->k,   t->v,       t->past_k, t->past_v,
                          t->out, t->lse, t->weights, t->scores};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
    free(t->mask);
    for (int i = 0; i < N_TENSORS; i++)
        converted_free(&t->stored[i]);
    free(t->table);
    free(t->pool[0]);
    free(t->pool[1]);
}

static float *row_of(const attn_input *t, int64_t b, int64_t h, int64_t token, float *base) {
    return base + b * t->stride_batch + h * t->stride_head + token * t->stride_token;
}

static int is_seen(const attn_problem *p, int64_t b, int64_t g, int64_t j) {
    const int64_t group = p->q_heads / p->kv_heads;
    for (int64_t h = g * group; h < (g + 1) * group; h++)
        for (int64_t i = oracle_rows(p, b); i-- > 0;)
            if (oracle_sees(p, b, h, i, j))
                return 1;
    return 0;
}

/* Gives key j of a sequence, at a token of one of its two pieces, what the kind asks for, and NaN
 * if no row sees it. */
static void spoil_key(const struct grid_case *g, struct trial *t, int64_t b, int64_t head,
                      int64_t j, float *key, float *value) {
    const size_t d = (size_t)g->qk_dim, dv = (size_t)g->v_dim;
    if (g->kind == EQUAL)
        for (size_t c = 0; c < d; c++)
            key[c] = 0.25f * (float)(c % 5) - 0.5f;
    if (g->kind == HUGE_KEY && j == g->kv_cap / 3)
        key[d / 2] *= 300;
    if (g->kind == MINUS_INF && j % 3 == 0)
        key[0] = -INFINITY;
    if (g->kind == NAN_KEY && j == g->kv_cap / 2)
        key[d / 2] = NAN, value[dv / 2] = INFINITY;
    if (is_seen(&t->problem, b, head, j))
        return;
    for (size_t c = 0; c < d; c++)
        key[c] = NAN;
    for (size_t c = 0; c < dv; c++)
        value[c] = NAN;
}

static void spoil(const struct grid_case *g, struct trial *t) {
    const attn_problem *p = &t->problem;
    const size_t d = (size_t)g->qk_dim;
    const size_t n_queries = (size_t)(g->batch * g->q_heads * g->q_len);
    for (size_t n = 0; n < n_queries; n++) {
        if (g->kind == NAN_QUERY && n % 3 == 1)
            t->q[n * d + n % d] = NAN;
        if (g->kind == MINUS_INF)
            t->q[n * d] = fabsf(t->q[n * d]) + 0.125f;
    }
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->kv_heads; h++) {
            const int64_t past = p->past_len ? p->past_len[b] : 0;
            for (int64_t n = 0; n < p->past_cap; n++) /* what is behind past_len is no key */
                spoil_key(g, t, b, h, n < past ? n : INT64_MAX,
                          row_of(&p->past_k, b, h, n, t->past_k),
                          row_of(&p->past_v, b, h, n, t->past_v));
            for (int64_t n = 0; n < p->kv_cap; n++)
                spoil_key(g, t, b, h, past + n, row_of(&p->k, b, h, n, t->k),
                          row_of(&p->v, b, h, n, t->v));
        }
}

/* A quarter of the places hide, and more in some rows: everything, or two thirds at the front. */
static int set_mask(const struct grid_case *g, struct trial *t) {
    attn_mask *m = &t->problem.mask;
    const size_t sizes[] = {0, 1, sizeof(float), sizeof(uint16_t), 1};
    const size_t heads = (size_t)g->q_heads, keys = (size_t)g->kv_cap;
    const size_t rows = (size_t)(g->batch * g->q_len) * heads;
    m->type = (attn_mask_type)(g->with & ANY_MASK);
    if (m->type == ATTN_MASK_NONE)
        return 0;
    t->mask = cli_allocate(rows * (keys + 1), sizes[m->type]);
    if (!t->mask)
        return -1;
    const size_t stride = m->type == ATTN_MASK_BITS ? (keys + 7) / 8 : keys;
    for (size_t r = 0; r < rows; r++) {
        const size_t first = r % 5 == 4 ? keys : r % 5 == 3 ? keys * 2 / 3 : 0;
        for (size_t j = 0; j < keys; j++) {
            const int is_hidden = j < first || random_below(4) == 0;
            const int eighths = random_below(16) - 8;
            const size_t at = r * stride + j;
            if (m->type == ATTN_MASK_BOOL)
                ((uint8_t *)t->mask)[at] = (uint8_t)(is_hidden ? 0 : 1 + j % 255);
            if (m->type == ATTN_MASK_F32)
                ((float *)t->mask)[at] = is_hidden ? -INFINITY : (float)eighths / 8;
            if (m->type == ATTN_MASK_F16) /* from 0.5 to 1, of either sign */
                ((uint16_t *)t->mask)[at] =
                    is_hidden ? 0xfc00
                              : (uint16_t)((eighths & 1) << 15 | 0x3800 | (eighths + 8) << 6);
            if (m->type == ATTN_MASK_BITS) {
                uint8_t *byte = (uint8_t *)t->mask + r * stride + j / 8;
                *byte = (uint8_t)((j % 8 ? *byte : 0) | !is_hidden << j % 8);
            }
        }
    }
    m->data = t->mask;
    m->n_keys = g->kv_cap;
    m->stride_key = m->type != ATTN_MASK_BITS;
    m->stride_query = (int64_t)stride;
    m->stride_head = (int64_t)stride * g->q_len;
    m->stride_batch = (int64_t)stride * g->q_len * g->q_heads;
    return 0;
}

/* Positions, lengths and parameters. g->kv_cap counts the keys of both pieces. */
static void set_options(const struct grid_case *g, struct trial *t) {
    attn_problem *p = &t->problem;
    for (int64_t b = 0; b < g->batch; b++) {
        t->cu_q[b + 1] = g->q_len * (b + 1) * (b + 1) / (g->batch * g->batch);
        t->past_len[b] = p->past_cap - b < 0 ? 0 : p->past_cap - b;
        const int64_t keys = (g->with & PAST ? t->past_len[b] : 0) + p->kv_cap;
        const int64_t some[MAX_BATCH] = {keys * 2 / 3, keys, 0, keys > 0};
        const int64_t offsets[MAX_BATCH] = {3, -g->q_len / 2, g->kv_cap, -g->q_len - 1};
        t->kv_len[b] = some[b];
        t->offset[b] = offsets[b];
    }
    p->causal = g->causal != FREE && !(g->with & FORWARD);
    p->align = g->causal;
    if (g->causal == FREE && g->with & (WINDOW | ALIBI))
        p->align = BOTTOM;
    p->offset = g->causal == AT ? t->offset : NULL;
    p->kv_len = g->kv_use == SOME_KEYS ? t->kv_len : NULL;
    p->past_len = g->with & PAST ? t->past_len : NULL;
    p->cu_q = g->with & RAGGED ? t->cu_q : NULL;
    t->window[0] = g->kv_cap / 4, t->window[1] = 2;
    p->window = g->with & WINDOW ? t->window : NULL;
    p->softcap = g->with & SOFTCAP ? 1.5f : 0;
    for (int h = 0; h < g->q_heads; h++) {
        t->alibi[h] = ldexpf(1, -1 - h % 8);
        t->sinks[h] = random_normal();
    }
    p->alibi = g->with & ALIBI ? t->alibi : NULL;
    p->sinks = g->with & SINKS ? t->sinks : NULL;
}

/* Keys and values in pages of 16 tokens: every second page of a pool, in reverse. Keys that are not
 * in use have none. */
static int set_pages(const struct grid_case *g, struct trial *t) {
    enum { PAGE = 16 };
    attn_problem *p = &t->problem;
    const int64_t per_batch = (p->kv_cap + PAGE - 1) / PAGE, n_pages = 2 * g->batch * per_batch;
    attn_input *const tensors[2] = {&p->k, &p->v};
    float *const from[2] = {t->k, t->v};
    const int64_t dims[2] = {p->qk_dim, p->v_dim};
    t->table = cli_allocate((size_t)(g->batch * per_batch), sizeof *t->table);
    for (int i = 0; i < 2; i++)
        t->pool[i] = cli_allocate((size_t)(n_pages * p->kv_heads * PAGE * dims[i]), sizeof(float));
    if (!t->table || !t->pool[0] || !t->pool[1])
        return -1;
    for (int i = 0; i < 2; i++) {
        const attn_input flat = *tensors[i];
        const attn_input paged = {t->pool[i], ATTN_F32, p->kv_heads * PAGE * dims[i],
                                  PAGE * dims[i], dims[i]};
        memset(t->pool[i], 0xff, (size_t)(n_pages * paged.stride_batch) * sizeof(float)); /* NaN */
        for (int64_t b = 0; b < p->batch; b++)
            for (int64_t j = 0; j < p->kv_cap; j++)
                for (int64_t h = 0; h < p->kv_heads; h++)
                    memcpy(row_of(&paged, n_pages - 1 - 2 * (b * per_batch + j / PAGE), h, j % PAGE,
                                  t->pool[i]),
                           row_of(&flat, b, h, j, from[i]), (size_t)dims[i] * sizeof(float));
        *tensors[i] = paged;
    }
    for (int64_t n = 0; n < p->batch * per_batch; n++) {
        const int is_used = n % per_batch * PAGE < oracle_key_count(p, n / per_batch);
        t->table[n] = is_used ? (int32_t)(n_pages - 1 - 2 * n) : INT32_MAX;
    }
    p->pages = (attn_pages){t->table, per_batch, PAGE, n_pages};
    return 0;
}

/* Gives the tensors the types of the case. */
static int set_storage(const struct grid_case *g, struct trial *t) {
    attn_problem *p = &t->problem;
    const int at = storage_of(g->with);
    const int64_t batch = p->pages.table ? p->pages.n_pages : p->batch;
    const int64_t tokens = p->pages.table ? p->pages.page_len : p->kv_cap;
    const struct {
        attn_input *tensor;
        attn_scales *scales;
        int64_t batch, heads, tokens, features;
        attn_type type;
    } all[N_TENSORS] = {
        {&p->q, NULL, p->batch, p->q_heads, p->q_len, p->qk_dim, storages[at].q},
        {&p->k, &p->k_scales, batch, p->kv_heads, tokens, p->qk_dim, storages[at].k},
        {&p->v, &p->v_scales, batch, p->kv_heads, tokens, p->v_dim, storages[at].v},
        {&p->past_k, &p->past_k_scales, p->batch, p->kv_heads, p->past_cap, p->qk_dim,
         storages[at].k},
        {&p->past_v, &p->past_v_scales, p->batch, p->kv_heads, p->past_cap, p->v_dim,
         storages[at].v}};
    for (int i = 0; i < N_TENSORS; i++) {
        if (all[i].scales)
            all[i].scales->group = storages[at].group;
        if (all[i].type != ATTN_F32 &&
            convert_input(all[i].tensor, all[i].scales, all[i].batch, all[i].heads, all[i].tokens,
                          all[i].features, all[i].type, &t->stored[i]))
            return -1;
    }
    p->out.type = storages[at].out;
    return 0;
}

static int trial_make(const struct grid_case *g, int n_sets, struct trial *t) {
    memset(t, 0, sizeof *t);
    const size_t rows = (size_t)(g->batch * g->q_heads * g->q_len);
    const size_t keys = (size_t)(g->batch * g->kv_heads * g->kv_cap);
    const int64_t past = g->with & PAST ? g->kv_cap / 3 : 0, now = g->kv_cap - past;
    const float factor = g->kind == TINY ? 1e-39f : 1;
    t->out_count = rows * (size_t)g->v_dim;
    t->lse_count = rows;
    t->weight_count = rows * (size_t)g->kv_cap;
    t->q = random_tensor(rows * (size_t)g->qk_dim, 1);
    t->k = random_tensor(keys * (size_t)g->qk_dim, factor);
    t->v = random_tensor(keys * (size_t)g->v_dim, factor);
    t->past_k = random_tensor(past ? keys * (size_t)g->qk_dim : 0, factor);
    t->past_v = random_tensor(past ? keys * (size_t)g->v_dim : 0, factor);
    t->out = cli_allocate((size_t)n_sets * t->out_count, sizeof(float));
    t->lse = cli_allocate((size_t)n_sets * t->lse_count, sizeof(float));
    t->weights = cli_allocate((size_t)n_sets * t->weight_count, sizeof(float));
    t->scores = cli_allocate((size_t)n_sets * t->weight_count, sizeof(float));
    if (!t->q || !t->k || !t->v || !t->past_k || !t->past_v || !t->out || !t->lse || !t->weights ||
        !t->scores)
        return -1;

    attn_problem *p = &t->problem;
    *p = attn_problem_bhld(g->batch, g->q_heads, g->kv_heads, g->q_len, now, g->qk_dim, g->v_dim,
                           t->q, t->k, t->v, t->out);
    p->past_cap = past;
    p->past_k = p->k, p->past_k.data = t->past_k;
    p->past_v = p->v, p->past_v.data = t->past_v;
    p->lse.data = t->lse;
    p->weights.data = t->weights;
    p->weights.stride_token = g->kv_cap, p->weights.stride_head = (int64_t)g->q_len * g->kv_cap;
    p->weights.stride_batch = (int64_t)g->q_heads * g->q_len * g->kv_cap;
    p->scores = p->weights, p->scores.data = t->scores;
    p->scores_at = (attn_score_stage)(g->qk_dim % 3);
    set_options(g, t);
    if (set_mask(g, t))
        return -1;
    spoil(g, t);
    if (g->with & PAGED && set_pages(g, t))
        return -1;
    return set_storage(g, t);
}

/* What one kernel set did over the whole grid. */
struct record {
    const char *isa;
    struct judgement total;
    int worst_case;  /* of the error in terms of its bound */
    int failed_case; /* the first beyond it; -1: none */
};

/* Points the trial's problem at the outputs of one kernel set. */
static const attn_problem *outputs_of(struct trial *t, int set) {
    t->problem.out.data = t->out + (size_t)set * t->out_count;
    t->problem.lse.data = t->lse + (size_t)set * t->lse_count;
    t->problem.weights.data = t->weights + (size_t)set * t->weight_count;
    t->problem.scores.data = t->scores + (size_t)set * t->weight_count;
    return &t->problem;
}

/* Adds the rows of a computed trial to the judgement of every kernel set; of long problems only
 * some rows, because the oracle is slow under an emulator. */
static int judge_trial(struct trial *t, struct record *records, int n_records) {
    const attn_problem *p = &t->problem;
    struct oracle_row row;
    if (judge_allocate(p, &row))
        return -1;
    const double work = (double)(p->past_cap + p->kv_cap) * (double)(p->qk_dim + p->v_dim + 10);
    const int64_t step = 1 + (int64_t)((double)p->q_len * (double)p->q_heads * work / 1e6);
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->q_heads; h++)
            for (int64_t i = h % step; i < oracle_rows(p, b); i += step) {
                for (int r = 0; r < n_records; r++) {
                    const int arithmetic = oracle_arithmetic(p, records[r].isa);
                    if (r == 0 || arithmetic != row.arithmetic) {
                        row.arithmetic = arithmetic;
                        oracle_attend(p, b, h, i, &row);
                    }
                    judge_row(outputs_of(t, r), b, h, i, &row, &records[r].total);
                }
            }
    judge_free(&row);
    return 0;
}

static int compute_trial(struct trial *t, const struct grid_case *g, const struct record *records,
                         int n_records) {
    /* A place that is not written must not look like an answer. */
    memset(t->out, 0x5a, (size_t)n_records * t->out_count * sizeof(float));
    memset(t->lse, 0x5a, (size_t)n_records * t->lse_count * sizeof(float));
    memset(t->weights, 0x5a, (size_t)n_records * t->weight_count * sizeof(float));
    memset(t->scores, 0x5a, (size_t)n_records * t->weight_count * sizeof(float));
    for (int r = 0; r < n_records; r++) {
        attn_status answer = attn_set_isa(records[r].isa);
        if (answer == ATTN_OK)
            answer = attn_forward_alloc(outputs_of(t, r), NULL);
        char text[TEXT_SIZE];
        if (answer != ATTN_OK)
            return cli_fail(-1, "%s: %s: %s", records[r].isa, case_text(g, text),
                            attn_status_string(answer));
    }
    return 0;
}

static int run_case(int index, struct record *records, int n_records) {
    const struct grid_case g = case_at(index);
    struct record before[MAX_SETS];
    memcpy(before, records, (size_t)n_records * sizeof *records);
    struct trial t;
    int status = CLI_DONE;
    random_state = (uint64_t)index;
    if (trial_make(&g, n_records, &t))
        status = cli_fail(CLI_FAILED, "not enough memory");
    else if (compute_trial(&t, &g, records, n_records))
        status = CLI_FAILED;
    else if (judge_trial(&t, records, n_records))
        status = cli_fail(CLI_FAILED, "not enough memory");
    trial_free(&t);
    for (int r = 0; r < n_records; r++) {
        const struct judgement *was = &before[r].total, *now = &records[r].total;
        if (now->worst_ratio > was->worst_ratio)
            records[r].worst_case = index;
        if (now->failures > was->failures && records[r].failed_case < 0)
            records[r].failed_case = index;
    }
    return status;
}

static const char *case_name(int index, char text[TEXT_SIZE]) {
    const struct grid_case g = case_at(index);
    return case_text(&g, text);
}

static int report(const struct record *records, int n_records) {
    char text[TEXT_SIZE];
    int status = CLI_DONE;
    printf("%-12s  %10s  %-35s  %s\n", "", "", "worst |error| of", "worst |error| / bound");
    printf("%-12s  %10s  %-8s  %-7s  %-7s  %-7s  %-7s %s\n", "kernels", "values", "out", "lse",
           "weights", "scores", "", "in [batch heads rows x keys dims]");
    for (int r = 0; r < n_records; r++) {
        const struct judgement *j = &records[r].total;
        printf("%-12s  %10" PRId64 "  %-8.1e  %-7.1e  %-7.1e  %-7.1e  %-7.4f %s\n", records[r].isa,
               j->values, j->worst_out, j->worst_lse, j->worst_weight, j->worst_score,
               j->worst_ratio, case_name(records[r].worst_case, text));
    }
    for (int r = 0; r < n_records; r++)
        if (records[r].failed_case >= 0)
            status = cli_fail(CLI_FAILED,
                              "%s: %" PRId64 " of %" PRId64 " values beyond the bound, first in %s",
                              records[r].isa, records[r].total.failures, records[r].total.values,
                              case_name(records[r].failed_case, text));
    if (status == CLI_DONE)
        printf("\nAll within the bound that attn.h states.\n");
    return status;
}

int cmd_verify(int argc, char **argv) {
    const char *only = NULL;
    const struct cli_option options[] = {{"--isa", &only, NULL}, {NULL, NULL, NULL}};
    int done;
    int status = cli_parse(argc, argv, options, NULL, help, &done);
    if (status != CLI_DONE || done)
        return status;
    if (only && !machine_select(only))
        return CLI_FAILED;

    struct record records[MAX_SETS];
    int n_records = 0;
    for (const char *const *name = attn_isa_list(); *name && n_records < MAX_SETS; name++)
        if (!only || strcmp(only, *name) == 0)
            records[n_records++] = (struct record){.isa = *name, .failed_case = -1};

    printf("CPU      %s\n", machine_cpu_name());
    printf("grid     %d problems, what no row sees is NaN\n", N_CASES);
    printf("against  attention in double precision, within the bound of attn.h\n");
    const char *environment = getenv("ATTN_ISA");
    if (environment && *environment)
        printf("note     ATTN_ISA is '%s'; it does not matter here\n", environment);
    printf("\n");
    fflush(stdout);

    const int progress = isatty(STDERR_FILENO);
    for (int i = 0; i < N_CASES && status == CLI_DONE; i++) {
        if (progress)
            fprintf(stderr, "\r%d of %d ", i + 1, N_CASES);
        status = run_case(i, records, n_records);
    }
    if (progress)
        fprintf(stderr, "\r\033[K");
    return status == CLI_DONE ? report(records, n_records) : status;
}
