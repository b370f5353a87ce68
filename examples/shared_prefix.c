/* One prompt, many sequences: attention over the prompt's keys once for the queries of all
 * sequences, over each sequence's own keys apart, and the two merged.
 *
 * SPDX-License-Identifier: MIT */
#include <attn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SEQUENCES = 16, Q_HEADS = 8, KV_HEADS = 2, DIM = 64 };
enum { PREFIX = 2048, SUFFIX = 64, REPEATS = 20 }; /* tokens of the prompt; of each sequence */

/* A decode step: each sequence has one query. */
static float q[SEQUENCES][Q_HEADS][DIM], out[SEQUENCES][Q_HEADS][DIM];
static float prefix_k[KV_HEADS][PREFIX][DIM], prefix_v[KV_HEADS][PREFIX][DIM];
static float suffix_k[SEQUENCES][KV_HEADS][SUFFIX][DIM], suffix_v[SEQUENCES][KV_HEADS][SUFFIX][DIM];

/* What is merged, and how things are without sharing: the prompt copied before each suffix. */
static float prefix_out[SEQUENCES][Q_HEADS][DIM], prefix_lse[SEQUENCES][Q_HEADS];
static float suffix_out[SEQUENCES][Q_HEADS][DIM], suffix_lse[SEQUENCES][Q_HEADS];
static float whole_k[SEQUENCES][KV_HEADS][PREFIX + SUFFIX][DIM];
static float whole_v[SEQUENCES][KV_HEADS][PREFIX + SUFFIX][DIM];
static float whole_out[SEQUENCES][Q_HEADS][DIM];

static void fill(float *x, size_t n) {
    for (size_t i = 0; i < n; i++)
        x[i] = 4 * (float)rand() / (float)RAND_MAX - 2;
}

static void stop_at(attn_status status) {
    if (status == ATTN_OK)
        return;
    fprintf(stderr, "%s\n", attn_status_string(status));
    exit(1);
}

static double now(void) {
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* SEQUENCES batches of one query, each with its own keys. */
static attn_problem one_query_each(int64_t n_keys, const float *k, const float *v, float *to) {
    return attn_problem_bhld(SEQUENCES, Q_HEADS, KV_HEADS, 1, n_keys, DIM, DIM, &q[0][0][0], k, v,
                             to);
}

/* One batch, in which the queries of all sequences are the rows: the prompt is read once. */
static attn_problem all_queries_at_once(void) {
    attn_problem p =
        attn_problem_bhld(1, Q_HEADS, KV_HEADS, SEQUENCES, PREFIX, DIM, DIM, &q[0][0][0],
                          &prefix_k[0][0][0], &prefix_v[0][0][0], &prefix_out[0][0][0]);
    p.q.stride_token = p.out.stride_token = Q_HEADS * DIM;
    p.q.stride_head = p.out.stride_head = DIM;
    p.lse.data = prefix_lse;
    p.lse.stride_token = Q_HEADS, p.lse.stride_head = 1;
    return p;
}

int main(void) {
    fill(&q[0][0][0], sizeof q / sizeof(float));
    fill(&prefix_k[0][0][0], sizeof prefix_k / sizeof(float));
    fill(&prefix_v[0][0][0], sizeof prefix_v / sizeof(float));
    fill(&suffix_k[0][0][0][0], sizeof suffix_k / sizeof(float));
    fill(&suffix_v[0][0][0][0], sizeof suffix_v / sizeof(float));
    for (int s = 0; s < SEQUENCES; s++) {
        for (int h = 0; h < KV_HEADS; h++) {
            memcpy(whole_k[s][h], prefix_k[h], sizeof prefix_k[h]);
            memcpy(whole_v[s][h], prefix_v[h], sizeof prefix_v[h]);
            memcpy(whole_k[s][h][PREFIX], suffix_k[s][h], sizeof suffix_k[s][h]);
            memcpy(whole_v[s][h][PREFIX], suffix_v[s][h], sizeof suffix_v[s][h]);
        }
    }

    const attn_problem prefix = all_queries_at_once();
    attn_problem suffix =
        one_query_each(SUFFIX, &suffix_k[0][0][0][0], &suffix_v[0][0][0][0], &suffix_out[0][0][0]);
    suffix.lse.data = suffix_lse;
    const attn_problem whole = one_query_each(PREFIX + SUFFIX, &whole_k[0][0][0][0],
                                              &whole_v[0][0][0][0], &whole_out[0][0][0]);

    /* Both results as [sequence, head, one query, features]. */
    const attn_output merged = {
        .data = out, .stride_batch = Q_HEADS * DIM, .stride_head = DIM, .stride_token = DIM};
    attn_partial parts[2];
    for (int i = 0; i < 2; i++) {
        parts[i].out = (attn_input){.data = i ? &suffix_out[0][0][0] : &prefix_out[0][0][0],
                                    .stride_batch = Q_HEADS * DIM,
                                    .stride_head = DIM,
                                    .stride_token = DIM};
        parts[i].lse = (attn_input){.data = i ? &suffix_lse[0][0] : &prefix_lse[0][0],
                                    .stride_batch = Q_HEADS,
                                    .stride_head = 1,
                                    .stride_token = 1};
    }

    size_t size = 0;
    const attn_problem *const problems[] = {&prefix, &suffix, &whole};
    for (int i = 0; i < 3; i++) {
        size_t needed;
        stop_at(attn_workspace_size(problems[i], 1, &needed));
        size = needed > size ? needed : size;
    }
    void *workspace = malloc(size);
    if (!workspace)
        return fprintf(stderr, "not enough memory\n"), 1;

    double shared = INFINITY, apart = INFINITY; /* seconds, the best of some */
    for (int i = 0; i < REPEATS; i++) {
        const double start = now();
        stop_at(attn_forward(&prefix, workspace, size, NULL));
        stop_at(attn_forward(&suffix, workspace, size, NULL));
        stop_at(attn_merge(SEQUENCES, Q_HEADS, 1, DIM, 2, parts, &merged, NULL));
        const double middle = now();
        stop_at(attn_forward(&whole, workspace, size, NULL));
        const double end = now();
        shared = middle - start < shared ? middle - start : shared;
        apart = end - middle < apart ? end - middle : apart;
    }
    free(workspace);

    float worst = 0;
    for (int s = 0; s < SEQUENCES; s++)
        for (int h = 0; h < Q_HEADS; h++)
            for (int c = 0; c < DIM; c++)
                worst = fmaxf(worst, fabsf(out[s][h][c] - whole_out[s][h][c]));
    printf("%d sequences after one prompt of %d tokens, on %s:\n", SEQUENCES, PREFIX, attn_isa());
    printf("  the prompt's keys in each cache  %8.1f us\n", 1e6 * apart);
    printf("  the prompt once, merged          %8.1f us, %.1f times as fast\n", 1e6 * shared,
           apart / shared);
    printf("  the results differ by at most %g\n", (double)worst);
    return !(worst < 1e-5f);
}
