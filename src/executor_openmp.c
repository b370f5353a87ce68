/* The OpenMP executor: a library of its own, so that libattn depends on libc alone.
 *
 * SPDX-License-Identifier: MIT */
#include <omp.h>

#include "attn.h"

static void run(attn_executor *self, size_t n_tasks, attn_task task, void *arg) {
    const int64_t n = (int64_t)n_tasks;
    /* Dynamic, one task at a time: causal tasks differ in length, and a task is never so short that
     * taking the next one would matter. */
#pragma omp parallel for schedule(dynamic, 1) num_threads((int)self->n_workers)
    for (int64_t i = 0; i < n; i++)
        task(arg, (size_t)i, (size_t)omp_get_thread_num());
}

attn_executor attn_openmp_executor(size_t n_threads) {
    const size_t most = (size_t)omp_get_max_threads();
    const attn_executor executor = {sizeof executor, n_threads ? n_threads : most, run};
    return executor;
}
