/* What is asked for ahead of its use: which lines those are, and that asking changes no bit.
 *
 * SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "later.h"
#include "problem.h"
#include "upcoming.h"

/* ---- Which lines ----------------------------------------------------------------------------- */

enum { MAX_LINES = 4096 };

static int ascending(const void *a, const void *b) {
    const uintptr_t x = *(const uintptr_t *)a, y = *(const uintptr_t *)b;
    return (x > y) - (x < y);
}

/* The lines that are asked for, in ascending order: some one by one, as by a kernel, the rest as what
 * it leaves. */
static size_t lines_of(const struct attn_checked *c, struct attn_upcoming *u, struct rng *rng,
                       uintptr_t *lines) {
    size_t n = 0;
    for (;;) {
        struct attn_later *later = attn_upcoming_lines(c, u);
        if (later->left == 0)
            break;
        const size_t turns = (size_t)rng_below(rng, 8) + 1, all = later_lines(later);
        const struct attn_later before = *later;
        const struct asking asking = later_of_turns(later, turns, "");
        const size_t taken = all - later_lines(later);
        cr_assert(n + taken <= MAX_LINES);
        CHECK(taken > 0 && taken <= turns * LINES_OF_A_TURN, "%zu lines for %zu turns", taken,
              turns);
        CHECK(asking.step == 0 || (asking.at == before.at && asking.step == before.step),
              "a loop asks for other lines than were taken off");
        for (size_t i = 0; i < taken; i++)
            lines[n++] = before.at + i * before.step;
    }
    qsort(lines, n, sizeof *lines, ascending);
    return n;
}

static attn_problem problem_of(int64_t tokens, int64_t dim, int64_t gap, bool heads_inside,
                               float *data) {
    const int64_t heads = 2, row = dim + gap;
    attn_problem p =
        attn_problem_bhld(1, heads, heads, tokens, tokens, dim, dim, data, data, data, data);
    p.k.stride_token = p.v.stride_token = heads_inside ? heads * row : row;
    p.k.stride_head = p.v.stride_head = heads_inside ? row : tokens * row;
    return p;
}

/* Whatever the layout: every line that a token begins at or has a multiple of 64 bytes further on,
 * once. */
Test(later, lines_of_tokens) {
    static float data[1 << 16];
    struct rng rng = {11};
    for (int64_t trial = 0; trial < check_count(2000); trial++) {
        const int64_t tokens = rng_below(&rng, 60) + 1, dim = rng_below(&rng, 70) + 1;
        const int64_t gap = rng_below(&rng, 3) ? 0 : rng_below(&rng, 20);
        const int64_t begin = rng_below(&rng, tokens),
                      end = begin + 1 + rng_below(&rng, tokens - begin);
        const bool is_paged = rng_below(&rng, 4) == 0;
        int32_t table[60];
        attn_problem p = problem_of(tokens, dim, gap, rng_below(&rng, 2), data);
        if (is_paged) {
            for (int64_t i = 0; i < tokens; i++)
                table[i] = (int32_t)(tokens - 1 - i);
            p.pages = (attn_pages){
                .table = table, .stride_batch = tokens, .page_len = 1, .n_pages = tokens};
            p.k.stride_batch = p.v.stride_batch = p.k.stride_token;
        }
        struct attn_checked c;
        cr_assert_eq(attn_problem_check(&p, true, &c, NULL), ATTN_OK);
        check_context("tokens %" PRId64 "..%" PRId64 " dim %" PRId64 " stride %" PRId64 " paged %d",
                      begin, end, dim, p.k.stride_token, is_paged);
        const struct attn_tokens tokens_of = {0, 1, {begin, end}};
        static uintptr_t got[MAX_LINES], want[MAX_LINES];
        size_t n = 0;
        for (int64_t j = begin; j < end; j++) {
            const struct attn_run run = attn_run_of(&c, ATTN_KEYS, 0, 1, j, j + 1);
            for (int64_t line = 0; line < dim * 4; line += ATTN_LINE_BYTES)
                want[n++] = (uintptr_t)run.at + (uintptr_t)line;
        }
        qsort(want, n, sizeof *want, ascending);
        struct attn_upcoming u[2];
        attn_upcoming_begin(&c, ATTN_KEYS, &tokens_of, &u[ATTN_KEYS]);
        attn_upcoming_begin(&c, ATTN_VALUES, &tokens_of, &u[ATTN_VALUES]);
        const size_t n_got = lines_of(&c, &u[ATTN_KEYS], &rng, got);
        CHECK(n_got == n && memcmp(got, want, n * sizeof *got) == 0, "%zu lines, not those %zu",
              n_got, n);

        /* What is left over, row by row. */
        const int64_t rows = rng_below(&rng, 40) + 1;
        for (int64_t r = 1; r <= rows; r++) {
            attn_upcoming_share(&c, u, r, rows);
            const struct attn_upcoming *v = &u[ATTN_VALUES];
            const int64_t left = (int64_t)later_lines(&v->lines) +
                                 (v->tokens.keys.end - v->tokens.keys.begin) * v->lines_per_token;
            CHECK(left <= (end - begin) * v->lines_per_token * (rows - r) / rows,
                  "%" PRId64 " lines left after row %" PRId64 " of %" PRId64, left, r, rows);
        }
    }
}

/* ---- No bit ---------------------------------------------------------------------------------- */

/* Lines somewhere, and whether a kernel took the first ones of them and no others. */
static struct attn_later some_lines(struct rng *rng) {
    struct attn_later l = {.at = (uintptr_t)rng_next(rng), .step = 192, .lines = 100};
    l.column = l.at;
    l.left = (size_t)rng_below(rng, 101);
    l.columns = l.left ? (size_t)rng_below(rng, 4) : 0;
    return l;
}
static void check_taken(struct attn_later all, const struct attn_later *rest) {
    const size_t taken = later_lines(&all) - later_lines(rest);
    CHECK(later_lines(rest) <= later_lines(&all), "there are more lines than before");
    later_ask(&all, taken);
    CHECK(all.at == rest->at && all.left == rest->left && all.columns == rest->columns,
          "what is left does not follow what was taken");
}

enum { ROWS = ATTN_ROW_BLOCK, KEYS = 128, MAX_DIM = 130 };

Test(later, changes_no_bit) {
    const struct attn_kernels *sets[8];
    const size_t n_sets = check_kernel_sets(sets);
    static float q[ROWS * MAX_DIM], keys[KEYS * MAX_DIM], scores[2][ROWS * KEYS];
    static float acc[2][ROWS * MAX_DIM], out[2][ROWS * MAX_DIM];
    float *const packed = aligned_alloc(64, sizeof keys + 64);
    struct rng rng = {12};
    cr_assert(packed);
    for (size_t i = 0; i < sizeof q / sizeof *q; i++)
        q[i] = rng_normal(&rng);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        keys[i] = rng_normal(&rng);
    for (size_t s = 0; s < n_sets; s++)
        for (int64_t trial = 0; trial < check_count(300); trial++) {
            const struct attn_kernels *set = sets[s];
            const size_t dim = (size_t)rng_below(&rng, MAX_DIM) + 1;
            const size_t rows = (size_t)rng_below(&rng, ROWS) + 1;
            const size_t n = (size_t)rng_below(&rng, KEYS) + 1;
            check_context("%s: %zu rows, %zu keys, dim %zu", set->name, rows, n, dim);
            const float *row[ROWS];
            struct attn_visible visible[ROWS];
            float one[ROWS], *to[2][ROWS];
            const bool is_causal = rng_below(&rng, 2);
            for (size_t r = 0; r < rows; r++) {
                const size_t end = is_causal && n > r ? n - r : n;
                row[r] = q + r * dim, one[r] = 1;
                visible[r] = (struct attn_visible){.end = (int32_t)end};
                to[0][r] = out[0] + r * dim, to[1][r] = out[1] + r * dim;
            }
            set->pack_keys(keys, (int64_t)dim, 0, n, dim, packed);
            for (int asks = 0; asks < 2; asks++) {
                const struct attn_later all[] = {some_lines(&rng), some_lines(&rng),
                                                 some_lines(&rng)};
                struct attn_later rest[] = {all[0], all[1], all[2]};
                const struct attn_ending ending = {NULL, one, one, one, to[asks]};
                static float spare[ROWS * MAX_DIM];
                set->qk_packed(row, rows, packed, n, dim, 0.1f, scores[asks], KEYS,
                               asks ? &rest[0] : NULL);
                set->pv_tile(scores[asks], KEYS, visible, rows, keys, (int64_t)dim, dim, NULL,
                             acc[asks], dim, asks ? &rest[1] : NULL);
                set->pv_ending(scores[asks], KEYS, visible, rows, keys, (int64_t)dim, dim, NULL,
                               spare, dim, &ending, asks ? &rest[2] : NULL);
                for (int i = 0; i < 3; i++)
                    check_taken(all[i], &rest[i]);
            }
            for (size_t r = 0; r < rows; r++) {
                CHECK(first_difference(scores[0] + r * KEYS, scores[1] + r * KEYS, (int64_t)n) < 0,
                      "scores of row %zu differ", r);
                CHECK(first_difference(acc[0] + r * dim, acc[1] + r * dim, (int64_t)dim) < 0 &&
                          first_difference(to[0][r], to[1][r], (int64_t)dim) < 0,
                      "sums of row %zu differ", r);
            }
        }
    free(packed);
}

/* Values so far apart that they are copied give the bits of the same values side by side. */
Test(later, values_far_apart) {
    enum { HEADS = 2, LENGTH = 600, DIM = 20, APART = 1024 };
    const int64_t rows[] = {1, 63, 64, 65, 200};
    float *const k = malloc(sizeof(float) * LENGTH * APART), *const v = malloc(sizeof(float) *
                                                                               LENGTH * APART);
    static float dense_k[HEADS * LENGTH * DIM], dense_v[HEADS * LENGTH * DIM];
    static float queries[HEADS * 200 * DIM], want[HEADS * 200 * DIM], got[HEADS * 200 * DIM];
    struct rng rng = {13};
    cr_assert(k && v);
    memset(k, 0xff, sizeof(float) * LENGTH * APART);
    memset(v, 0xff, sizeof(float) * LENGTH * APART);
    for (size_t i = 0; i < sizeof queries / sizeof *queries; i++)
        queries[i] = rng_normal(&rng);
    for (int64_t h = 0; h < HEADS; h++)
        for (int64_t j = 0; j < LENGTH; j++)
            for (int64_t c = 0; c < DIM; c++) {
                k[j * APART + h * DIM + c] = dense_k[(h * LENGTH + j) * DIM + c] = rng_normal(&rng);
                v[j * APART + h * DIM + c] = dense_v[(h * LENGTH + j) * DIM + c] = rng_normal(&rng);
            }
    FOR_EACH_ISA(isa)
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        check_context("%s, %" PRId64 " rows", isa, rows[i]);
        attn_problem p = attn_problem_bhld(1, HEADS, HEADS, rows[i], LENGTH, DIM, DIM, queries,
                                           dense_k, dense_v, want);
        p.causal = rows[i] > 64, p.align = ATTN_ALIGN_BOTTOM_RIGHT;
        cr_assert_eq(attn_forward_alloc(&p, NULL), ATTN_OK);
        p.k.data = k, p.v.data = v, p.out.data = got;
        p.k.stride_token = p.v.stride_token = APART;
        p.k.stride_head = p.v.stride_head = DIM;
        cr_assert_eq(attn_forward_alloc(&p, NULL), ATTN_OK);
        const int64_t at = first_difference(got, want, HEADS * rows[i] * DIM);
        CHECK(at < 0, "output %" PRId64 " differs", at);
    }
    free(k);
    free(v);
}
