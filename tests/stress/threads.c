/* Many threads make the first call of the process at once, then share the library while its kernel
 * set is changed under them: for ThreadSanitizer, under which Criterion does not work.
 *
 * SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn.h"

enum { THREADS = 12, WORKERS = 3, ROUNDS = 6, Q_LEN = 37, KEYS = 1100, DIM = 24, HEADS = 4 };
enum { N_Q = HEADS * Q_LEN * DIM, N_K = HEADS * KEYS * DIM };

enum { PAST = 300 };

static float q[N_Q], k[N_K], v[N_K], sinks[HEADS], slopes[HEADS];
static uint8_t mask[Q_LEN * KEYS];
static pthread_barrier_t barrier;
static atomic_int failures;

/* ---- An executor on threads of its own ------------------------------------------------------- */

struct pool {
    attn_executor base;
    attn_task task;
    void *arg;
    size_t n_tasks;
    atomic_size_t next, next_worker;
};

static void *work(void *argument) {
    struct pool *pool = argument;
    const size_t worker = atomic_fetch_add(&pool->next_worker, 1);
    for (size_t i; (i = atomic_fetch_add(&pool->next, 1)) < pool->n_tasks;)
        pool->task(pool->arg, i, worker);
    return NULL;
}

static void pool_run(attn_executor *self, size_t n_tasks, attn_task task, void *arg) {
    struct pool *pool = (struct pool *)self;
    pthread_t threads[WORKERS];
    size_t started = 0;
    pool->task = task, pool->arg = arg, pool->n_tasks = n_tasks;
    atomic_store(&pool->next, 0);
    atomic_store(&pool->next_worker, 1); /* 0 is this thread */
    while (started < WORKERS - 1 && pthread_create(&threads[started], NULL, work, pool) == 0)
        started++;
    for (size_t i; (i = atomic_fetch_add(&pool->next, 1)) < n_tasks;)
        task(arg, i, 0);
    while (started > 0)
        pthread_join(threads[--started], NULL);
}

/* ---- The threads ----------------------------------------------------------------------------- */

static void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    atomic_fetch_add(&failures, 1);
}

/* A mask, a window, softcap, ALiBi, sinks, and the first keys as a past. */
static void set_options(attn_problem *p) {
    static const int64_t window[2] = {900, 20};
    p->mask = (attn_mask){mask, ATTN_MASK_BOOL, 0, 0, KEYS, 1, KEYS};
    p->window = window, p->align = ATTN_ALIGN_BOTTOM_RIGHT;
    p->softcap = 2, p->alibi = slopes, p->sinks = sinks;
    p->past_k = p->k, p->past_v = p->v, p->past_cap = PAST;
    p->k.data = k + PAST * DIM, p->v.data = v + PAST * DIM, p->kv_cap = KEYS - PAST;
}

/* Each way to run tasks, on a prefill or a decode step. */
static void attend(int way, int64_t q_len, int has_options, float *out) {
    struct pool pool = {.base = {sizeof pool.base, WORKERS, pool_run}};
    attn_executor *executor = way % 3 == 1 ? &pool.base : NULL;
#ifdef ATTN_HAVE_OPENMP
    attn_executor openmp = attn_openmp_executor(WORKERS);
    if (way % 3 == 2)
        executor = &openmp;
#endif
    attn_problem p = attn_problem_bhld(1, HEADS, HEADS, q_len, KEYS, DIM, DIM, q, k, v, out);
    p.q.stride_head = Q_LEN * DIM;
    if (has_options)
        set_options(&p);
    size_t size = 0;
    if (attn_workspace_size(&p, WORKERS, &size) != ATTN_OK)
        fail("attn_workspace_size");
    void *workspace = malloc(size ? size : 1);
    if (!workspace || attn_forward(&p, workspace, size, executor) != ATTN_OK)
        fail("attn_forward");
    free(workspace);
}

static const char *first_isa[THREADS];
static float first_out[THREADS][N_Q];

static void *thread(void *argument) {
    const int number = (int)(size_t)argument;
    pthread_barrier_wait(&barrier);
    /* The first call of the process is one of these, in all threads at once. */
    if (number % 3 == 0)
        first_isa[number] = attn_isa();
    if (number % 3 == 1 && !attn_isa_list()[0])
        fail("attn_isa_list is empty");
    attend(number, Q_LEN, 0, first_out[number]);
    first_isa[number] = attn_isa();

    pthread_barrier_wait(&barrier);
    float *out = malloc(N_Q * sizeof *out);
    for (int round = 0; out && round < ROUNDS; round++) {
        if (number == 0)
            for (const char *const *isa = attn_isa_list(); *isa; isa++)
                if (attn_set_isa(*isa) != ATTN_OK)
                    fail("attn_set_isa");
        attend(number + round, round % 2 ? 1 : Q_LEN, round % 4 > 1, out);
        if (!(out[0] > -2 && out[0] < 2))
            fail("a result is out of range");
    }
    free(out);
    return NULL;
}

int main(void) {
    uint32_t state = 1;
    float *const inputs[] = {q, k, v};
    const int counts[] = {N_Q, N_K, N_K};
    for (int t = 0; t < 3; t++)
        for (int i = 0; i < counts[t]; i++) {
            state = state * 1664525 + 1013904223;
            inputs[t][i] = (float)(state >> 8) * 0x1p-23f - 1;
        }

    for (int i = 0; i < Q_LEN * KEYS; i++)
        mask[i] = i % 3 != 0;
    for (int h = 0; h < HEADS; h++)
        sinks[h] = 0.5f, slopes[h] = 0.01f * (float)h;

    pthread_t threads[THREADS];
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (size_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, thread, (void *)i) != 0) {
            perror("pthread_create");
            return 1;
        }
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 1; i < THREADS; i++) {
        if (first_isa[i] != first_isa[0])
            fail("threads saw different kernel sets");
        if (memcmp(first_out[i], first_out[0], sizeof first_out[0]) != 0)
            fail("the bits of a result depend on how its tasks ran");
    }
    return atomic_load(&failures) != 0;
}
