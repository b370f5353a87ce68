/* Continuous batching: sequences in different states, a new prompt, a chunk of a long one and two
 * that decode, are one call.
 *
 * SPDX-License-Identifier: MIT */
#include <attn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEQUENCES = 4, Q_HEADS = 8, KV_HEADS = 2, DIM = 64, CAPACITY = 128 };

/* This step's queries of each sequence, and the keys in its cache, those of these queries counted. */
static const int64_t n_queries[SEQUENCES] = {24, 16, 1, 1};
static const int64_t n_keys[SEQUENCES] = {24, 80, 51, 128};
#define TOKENS (24 + 16 + 1 + 1)

static float q[TOKENS][Q_HEADS][DIM];
static float k[SEQUENCES][KV_HEADS][CAPACITY][DIM], v[SEQUENCES][KV_HEADS][CAPACITY][DIM];
static float out[TOKENS][Q_HEADS][DIM], alone[TOKENS][Q_HEADS][DIM];

static void fill(float *x, size_t n) {
    for (size_t i = 0; i < n; i++)
        x[i] = (float)rand() / (float)RAND_MAX - 0.5f;
}

static void run(const attn_problem *p) {
    char sentence[256];
    if (attn_forward_alloc(p, NULL) == ATTN_OK)
        return;
    attn_check(p, sentence, sizeof sentence);
    fprintf(stderr, "%s\n", sentence);
    exit(1);
}

int main(void) {
    fill(&q[0][0][0], sizeof q / sizeof(float));
    fill(&k[0][0][0][0], sizeof k / sizeof(float));
    fill(&v[0][0][0][0], sizeof v / sizeof(float));
    int64_t cu_q[SEQUENCES + 1] = {0};
    for (int s = 0; s < SEQUENCES; s++)
        cu_q[s + 1] = cu_q[s] + n_queries[s];

    attn_problem p = attn_problem_init();
    p.batch = SEQUENCES, p.q_heads = Q_HEADS, p.kv_heads = KV_HEADS;
    p.qk_dim = p.v_dim = DIM;
    p.q_len = cu_q[SEQUENCES]; /* the queries of all sequences, end to end */
    p.cu_q = cu_q;
    p.kv_cap = CAPACITY;
    p.kv_len = n_keys;
    p.causal = 1;
    p.align = ATTN_ALIGN_BOTTOM_RIGHT; /* a sequence's last query sees its last key */
    p.q = (attn_input){.data = q, .stride_token = Q_HEADS * DIM, .stride_head = DIM};
    p.out = (attn_output){.data = out, .stride_token = Q_HEADS * DIM, .stride_head = DIM};
    p.k = (attn_input){.data = k,
                       .stride_batch = KV_HEADS * CAPACITY * DIM,
                       .stride_head = CAPACITY * DIM,
                       .stride_token = DIM};
    p.v = p.k;
    p.v.data = v;
    run(&p);

    /* Each sequence by itself gives the same bits. */
    for (int s = 0; s < SEQUENCES; s++) {
        attn_problem one = p;
        one.batch = 1, one.cu_q = NULL;
        one.q_len = n_queries[s], one.kv_len = &n_keys[s];
        one.q.data = q[cu_q[s]], one.out.data = alone[cu_q[s]];
        one.k.data = k[s], one.v.data = v[s];
        run(&one);
    }
    const int same = memcmp(out, alone, sizeof out) == 0;
    printf("%d sequences, %d queries, one call on %s: %s\n", SEQUENCES, TOKENS, attn_isa(),
           same ? "the same bits as each sequence by itself" : "DIFFERENT from each by itself");
    return !same;
}
