/* kernel/ISA/KERNEL/dD: each micro-kernel alone, on the tile that the algorithm gives it: 12 rows, 512
 *     keys. The products are held against multiply-adds, what moves data against reading the same
 *     memory; of the rest, the ratio is elements per cycle in which the core could execute two
 *     multiply-adds.
 * exp/ISA: the exponential alone, elements per cycle.
 *
 * Every kernel's result is compared with the scalar set's first.
 *
 * SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "exp_loop.h"

enum { ROWS = 12, FEW_ROWS = 4, KEYS = 512, MERGED_ROWS = 96, MAX_DIM = 128, STRIDE = KEYS };

/* One tile and everything that a kernel can want of it. */
struct tile {
    size_t dim;
    float *q, *keys, *values, *packed, *fresh, *scores, *dweights, *bias, *minus_bias, *acc, *acc_b;
    const float *rows[ROWS];
    struct attn_visible visible[ROWS];
    float m[MERGED_ROWS], l[MERGED_ROWS], m_b[MERGED_ROWS], l_b[MERGED_ROWS], factor[ROWS];
    float lse[KEYS], dot;
    uint8_t mask[KEYS];
    uint64_t bits[KEYS / 64];
    int turn;
    const struct attn_kernels *kernels;
};

static void tile_free(struct tile *t) {
    free(t->q), free(t->keys), free(t->values), free(t->packed), free(t->fresh), free(t->scores);
    free(t->dweights), free(t->bias), free(t->minus_bias), free(t->acc), free(t->acc_b);
}

static int tile_make(struct tile *t, const struct attn_kernels *kernels, size_t dim) {
    memset(t, 0, sizeof *t);
    t->kernels = kernels;
    t->dim = dim;
    t->q = workload_floats(ROWS * dim);
    t->keys = workload_floats(KEYS * dim);
    t->values = workload_floats(KEYS * dim);
    t->packed = workload_floats(KEYS * dim);
    t->fresh = workload_floats(ROWS * STRIDE);
    t->scores = workload_floats(ROWS * STRIDE);
    t->dweights = workload_floats(ROWS * STRIDE);
    t->bias = workload_floats(KEYS);
    t->minus_bias = workload_floats(KEYS);
    t->acc = workload_floats(MERGED_ROWS * dim);
    t->acc_b = workload_floats(MERGED_ROWS * dim);
    if (!t->q || !t->keys || !t->values || !t->packed || !t->fresh || !t->scores || !t->dweights ||
        !t->bias || !t->minus_bias || !t->acc || !t->acc_b)
        return -1;
    for (size_t j = 0; j < KEYS; j++) {
        t->minus_bias[j] = -t->bias[j];
        t->mask[j] = t->bias[j] > -1;
        t->lse[j] = 2;
    }
    for (size_t r = 0; r < ROWS; r++) {
        t->rows[r] = t->q + r * dim;
        t->visible[r] = (struct attn_visible){0, KEYS, 0, r ? 0 : ROWS, NULL};
        t->factor[r] = 0.5f;
    }
    for (size_t r = 0; r < MERGED_ROWS; r++)
        t->l[r] = t->l_b[r] = 1, t->m_b[r] = 0.5f;
    return 0;
}

/* ---- One call of each ------------------------------------------------------------------------ */

/* In place, all but softmax leave numbers of the same kind behind, so that they can be called again
 * and again: a bias is added and taken away in turn, an accumulator is scaled down. */

static void pack_keys(void *arg) {
    struct tile *t = arg;
    t->kernels->pack_keys(t->keys, (int64_t)t->dim, 0, KEYS, t->dim, t->packed);
}
static void qk_packed(void *arg) {
    struct tile *t = arg;
    t->kernels->qk_packed(t->rows, ROWS, t->packed, KEYS, t->dim, 0.125f, t->scores, STRIDE, NULL);
}
static void qk_strided(void *arg) {
    struct tile *t = arg;
    t->kernels->qk_strided(t->rows, FEW_ROWS, t->keys, (int64_t)t->dim, KEYS, t->dim, 0.125f,
                           t->scores, STRIDE);
}
static void softmax_rows(void *arg) {
    struct tile *t = arg;
    memcpy(t->scores, t->fresh, ROWS * STRIDE * sizeof *t->scores);
    for (size_t r = 0; r < ROWS; r++)
        t->m[r] = -2, t->l[r] = 1;
    t->kernels->softmax_rows(t->scores, STRIDE, ROWS, t->visible, t->m, t->l, t->factor);
}
static void gradient_rows(void *arg) {
    struct tile *t = arg;
    memcpy(t->scores, t->fresh, ROWS * STRIDE * sizeof *t->scores);
    memcpy(t->dweights, t->fresh, ROWS * STRIDE * sizeof *t->dweights);
    t->kernels->gradient_rows(t->scores, t->dweights, NULL, STRIDE, ROWS, t->visible, t->lse,
                              t->bias, 0);
}
static void dot(void *arg) {
    struct tile *t = arg;
    t->dot = t->kernels->dot_row(t->q, t->acc_b, t->dim);
}
static void softcap(void *arg) {
    struct tile *t = arg;
    t->kernels->softcap(t->scores, KEYS, 30);
}
static void alibi(void *arg) {
    struct tile *t = arg;
    t->turn ^= 1;
    t->kernels->alibi(t->scores, KEYS, t->turn ? 0.125f : -0.125f, 100);
}
static void add_bias(void *arg) {
    struct tile *t = arg;
    t->turn ^= 1;
    t->kernels->add_bias(t->scores, KEYS, t->turn ? t->bias : t->minus_bias);
}
static void bits_of_bool(void *arg) {
    struct tile *t = arg;
    t->kernels->bits_of_bool(t->mask, KEYS, t->bits);
}
static void bits_of_bias(void *arg) {
    struct tile *t = arg;
    t->kernels->bits_of_bias(t->bias, KEYS, t->bits);
}
static void pv_tile(void *arg) {
    struct tile *t = arg;
    t->kernels->pv_tile(t->fresh, STRIDE, t->visible, ROWS, t->values, (int64_t)t->dim, t->dim,
                        t->factor, t->acc, t->dim, NULL);
}
static void merge_rows(void *arg) {
    struct tile *t = arg;
    memset(t->m, 0, sizeof t->m);
    t->kernels->merge_rows(MERGED_ROWS, t->dim, t->acc, t->m, t->l, t->acc_b, t->m_b, t->l_b,
                           t->dim);
}
static void scale_rows(void *arg) {
    static const float half = 0.5f;
    struct tile *t = arg;
    t->kernels->scale_rows(1, t->acc_b, 0, &half, t->dim, &t->acc);
}

enum held_against { MULTIPLY_ADDS, READING, CYCLES };
struct kernel {
    const char *name;
    void (*call)(void *tile);
    enum held_against against;
    double per_dim; /* operations, bytes or elements for each feature ... */
    double fixed;   /* ... and whatever the features */
    const char *note;
};

static const struct kernel kernels[] = {
    {"pack_keys", pack_keys, READING, 4.0 * KEYS, 0, "reading the keys"},
    {"qk_packed", qk_packed, MULTIPLY_ADDS, 2.0 * ROWS *KEYS, 0, "multiply-adds"},
    {"qk_strided", qk_strided, MULTIPLY_ADDS, 2.0 * FEW_ROWS *KEYS, 0, "multiply-adds, 4 rows"},
    {"pv_tile", pv_tile, MULTIPLY_ADDS, 2.0 * ROWS *KEYS, 0, "multiply-adds"},
    {"merge_rows", merge_rows, READING, 8.0 * MERGED_ROWS, 0, "reading both states"},
    {"scale_rows", scale_rows, CYCLES, 1, 0, "elements per cycle"},
    {"softmax_rows", softmax_rows, CYCLES, 0, ROWS *KEYS, "elements per cycle, copied first"},
    {"gradient_rows", gradient_rows, CYCLES, 0, ROWS *KEYS, "elements per cycle, copied first"},
    {"dot", dot, CYCLES, 1, 0, "elements per cycle"},
    {"softcap", softcap, CYCLES, 0, KEYS, "elements per cycle"},
    {"alibi", alibi, CYCLES, 0, KEYS, "elements per cycle"},
    {"add_bias", add_bias, CYCLES, 0, KEYS, "elements per cycle"},
    {"bits_of_bool", bits_of_bool, CYCLES, 0, KEYS, "elements per cycle"},
    {"bits_of_bias", bits_of_bias, CYCLES, 0, KEYS, "elements per cycle"},
};

/* Runs the same call on two tiles, one of the set and one of the scalar set. */
static int check_kernel(gbench_state *state, const struct kernel *k, struct tile *t) {
    static struct tile want;
    int result = tile_make(&want, &attn_kernels_scalar, t->dim);
    if (result) {
        gbench_fail(state, "not enough memory");
    } else {
        t->kernels->pack_keys(t->keys, (int64_t)t->dim, 0, KEYS, t->dim, t->packed);
        want.kernels->pack_keys(want.keys, (int64_t)t->dim, 0, KEYS, t->dim, want.packed);
        k->call(t);
        k->call(&want);
        /* What packing made shows in the product. */
        if (k->call == pack_keys) {
            qk_packed(t);
            qk_packed(&want);
        }
        const float tolerance = 1e-4f;
        result =
            bench_close(state, "scores", t->scores, want.scores, ROWS * STRIDE, tolerance) ||
            bench_close(state, "dweights", t->dweights, want.dweights, ROWS * STRIDE, tolerance) ||
            bench_close(state, "dot", &t->dot, &want.dot, 1, tolerance) ||
            bench_close(state, "acc", t->acc, want.acc, MERGED_ROWS * t->dim, tolerance) ||
            bench_close(state, "m", t->m, want.m, MERGED_ROWS, tolerance) ||
            bench_close(state, "l", t->l, want.l, MERGED_ROWS, tolerance);
        if (!result && memcmp(t->bits, want.bits, sizeof t->bits) != 0) {
            gbench_fail(state, "wrong: bits");
            result = -1;
        }
    }
    tile_free(&want);
    return result;
}

static void kernel_alone(gbench_state *state, const void *arg) {
    const struct bench_case *about = arg;
    const struct kernel *k = about->row;
    static struct tile t;
    if (tile_make(&t, about->kernels, (size_t)about->number)) {
        gbench_fail(state, "not enough memory");
    } else if (check_kernel(state, k, &t) == 0) {
        struct work work = {k->call, &t, k->per_dim * (double)t.dim + k->fixed};
        struct limit limit;
        if (k->against == CYCLES)
            work.amount = bench_elements_per_cycle(about, work.amount);
        if (k->against != READING)
            limit_multiply_add(&limit, about->loops);
        else if (k->call == pack_keys)
            limit_read(&limit, about->loops, t.keys, KEYS * t.dim, t.keys, 0);
        else
            limit_read(&limit, about->loops, t.acc, MERGED_ROWS * t.dim, t.acc_b,
                       MERGED_ROWS * t.dim);
        static const char *const units[] = {"GFLOP/s", "GB/s", ""};
        bench_measure(state, &work, &limit, units[k->against], k->note, 1);
    }
    tile_free(&t);
}

/* ---- exp ------------------------------------------------------------------------------------- */

enum { EXP_COUNT = 2048 }; /* two arrays in the first-level cache */

struct exp_arrays {
    const struct exp_loop *loop;
    float x[EXP_COUNT], y[EXP_COUNT];
};

static void exp_call(void *arg) {
    struct exp_arrays *a = arg;
    a->loop->run(a->x, a->y, EXP_COUNT);
}

static void exp_alone(gbench_state *state, const void *arg) {
    static const struct exp_loop *const loops[] = {
#define ATTN_ISA(isa) &exp_loop_##isa,
#include "isa.def"
#undef ATTN_ISA
    };
    static struct exp_arrays a;
    static float want[EXP_COUNT];
    const struct bench_case *about = arg;
    for (size_t i = 0; i < sizeof loops / sizeof loops[0]; i++)
        if (strcmp(loops[i]->isa, about->kernels->name) == 0)
            a.loop = loops[i];
    for (size_t i = 0; i < EXP_COUNT; i++)
        a.x[i] = -20.0f * (float)((i * 1103) % EXP_COUNT) / EXP_COUNT;
    exp_call(&a);
    exp_loop_scalar.run(a.x, want, EXP_COUNT);
    if (bench_close(state, "exp", a.y, want, EXP_COUNT, 2e-7f))
        return;
    const struct work work = {exp_call, &a, bench_elements_per_cycle(about, EXP_COUNT)};
    struct limit limit;
    limit_multiply_add(&limit, about->loops);
    bench_measure(state, &work, &limit, "", "elements per cycle; time of one", EXP_COUNT);
}

void bench_add_kernels(void) {
    static const int64_t dims[] = {64, MAX_DIM};
    const struct attn_kernels *const *sets = bench_kernel_sets();
    for (size_t i = 0; sets[i]; i++)
        bench_add(BENCH_QUICK, exp_alone, bench_case_of(sets[i], NULL), "exp/%s", sets[i]->name);
    for (size_t i = 0; sets[i]; i++)
        for (size_t k = 0; k < sizeof kernels / sizeof kernels[0]; k++)
            for (size_t d = 0; d < sizeof dims / sizeof dims[0]; d++) {
                struct bench_case about = bench_case_of(sets[i], &kernels[k]);
                about.number = dims[d];
                if (kernels[k].per_dim > 0)
                    bench_add(BENCH_ALL, kernel_alone, about, "kernel/%s/%s/d%d", sets[i]->name,
                              kernels[k].name, (int)dims[d]);
                else if (d == 0)
                    bench_add(BENCH_ALL, kernel_alone, about, "kernel/%s/%s", sets[i]->name,
                              kernels[k].name);
            }
}
