/* The OpenMP executor: every task once, worker numbers in range and never shared, the bits of one
 * thread, and fork() (FAULTS N1, N2).
 *
 * SPDX-License-Identifier: MIT */
#define _GNU_SOURCE 1
#include "check.h"

#ifdef ATTN_HAVE_OPENMP

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_TASKS = 5000, MAX_WORKERS = 64 };
struct count {
    atomic_int done[MAX_TASKS], busy[MAX_WORKERS];
    atomic_int shared, out_of_range;
    size_t n_workers;
};

static void count_task(void *arg, size_t index, size_t worker) {
    struct count *count = arg;
    if (worker >= count->n_workers) {
        atomic_fetch_add(&count->out_of_range, 1);
        return;
    }
    if (atomic_fetch_add(&count->busy[worker], 1) != 0)
        atomic_fetch_add(&count->shared, 1);
    atomic_fetch_add(&count->done[index], 1);
    atomic_fetch_sub(&count->busy[worker], 1);
}

Test(openmp, every_task_once, .timeout = 120) {
    static struct count count;
    const size_t tasks[] = {0, 1, 2, 7, 100, MAX_TASKS};
    for (size_t workers = 1; workers <= 16; workers += check_quick() ? 5 : 1)
        for (size_t n = 0; n < sizeof tasks / sizeof *tasks; n++) {
            memset(&count, 0, sizeof count);
            attn_executor e = attn_openmp_executor(workers);
            check_context("%zu tasks on %zu workers", tasks[n], workers);
            CHECK(e.n_workers == workers && e.struct_size == sizeof e, "n_workers %zu",
                  e.n_workers);
            count.n_workers = e.n_workers;
            e.run(&e, tasks[n], count_task, &count);
            CHECK(count.shared == 0 && count.out_of_range == 0, "shared %d, out of range %d",
                  count.shared, count.out_of_range);
            for (size_t i = 0; i < MAX_TASKS; i++)
                CHECK(count.done[i] == (i < tasks[n]), "task %zu ran %d times", i, count.done[i]);
        }
    attn_executor automatic = attn_openmp_executor(0);
    CHECK(automatic.n_workers >= 1, "0 threads");
}

/* N1: 1 .. 16 threads give the bits of none. */
Test(openmp, any_number_of_threads, .timeout = 300) {
    static const struct shape shapes[] = {
        {1, 2, 1, 1, 4097, 16, 16}, {1, 2, 2, 257, 257, 24, 40}, {2, 4, 1, 3, 1300, 8, 8}};
    FOR_EACH_ISA(isa) {
        for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++) {
            struct trial t;
            struct rng rng = {1};
            struct shape s = shapes[n];
            if (check_quick())
                s.q_len = (s.q_len + 4) / 5, s.v_dim = 4;
            trial_place(&t, s, (struct layouts){.lse = true, .weights = n == 1});
            trial_fill(&t, KIND_NORMAL, &rng);
            t.p.causal = 1, t.p.align = ATTN_ALIGN_BOTTOM_RIGHT;
            trial_context(&t, "one thread");
            trial_run(&t, NULL);
            float *want = malloc((t.out.n + t.lse.n) * sizeof(float));
            cr_assert(want != NULL);
            memcpy(want, t.out.data, t.out.n * sizeof(float));
            memcpy(want + t.out.n, t.lse.data, t.lse.n * sizeof(float));
            for (size_t threads = 1; threads <= 16; threads += check_quick() ? 5 : 1) {
                attn_executor e = attn_openmp_executor(threads);
                trial_context(&t, "N1");
                trial_run(&t, &e);
                CHECK(first_difference(want, t.out.data, (int64_t)t.out.n) < 0 &&
                          first_difference(want + t.out.n, t.lse.data, (int64_t)t.lse.n) < 0,
                      "%zu threads give other bits", threads);
            }
            free(want);
        }
    }
}

/* N2: after the parent used OpenMP, a child of fork() can compute with one thread and without an
 * executor. (More threads than one hang there with GCC's OpenMP, whose pool did not survive.) */
Test(openmp, fork_after_use) {
    struct trial t;
    struct rng rng = {2};
    trial_place(&t, (struct shape){1, 2, 1, 9, 1030, 8, 8}, (struct layouts){.lse = true});
    trial_fill(&t, KIND_NORMAL, &rng);
    attn_executor four = attn_openmp_executor(4);
    trial_context(&t, "N2");
    trial_run(&t, &four);
    for (size_t threads = 0; threads <= 1; threads++) {
        const pid_t child = fork();
        cr_assert(child >= 0);
        if (child == 0) {
            alarm(20);
            attn_executor e = attn_openmp_executor(1);
            float *want = malloc(t.out.n * sizeof(float));
            memcpy(want, t.out.data, t.out.n * sizeof(float));
            trial_run(&t, threads ? &e : NULL);
            _exit(first_difference(want, t.out.data, (int64_t)t.out.n) < 0 ? 0 : 1);
        }
        int status = 0;
        waitpid(child, &status, 0);
        cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%zu threads: status %#x", threads,
                  (unsigned)status);
    }
}

#else

Test(openmp, not_here) { check_say("skipped: the OpenMP executor (no OpenMP in this compiler)"); }

#endif
