/* Picks a kernel set: the first row of isa.def that the CPU can run, at the latest scalar, or the one
 * asked for by name.
 *
 * SPDX-License-Identifier: MIT */
#include "dispatch.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "attn.h"
#include "cpu_features.h"

static const struct attn_kernels *const built[] = {
#define ATTN_ISA(isa) &attn_kernels_##isa,
#include "isa.def"
#undef ATTN_ISA
};
#define N_BUILT (sizeof built / sizeof built[0])
_Static_assert(N_BUILT <= ATTN_MAX_ISAS, "raise ATTN_MAX_ISAS");

/* Published as one pointer to constant data. Null: nobody has selected yet. Threads that race to be
 * first compute the same value, so it does not matter which of them stores it last; what must not
 * happen is that the first selection overwrites an attn_set_isa() that came between. */
static _Atomic(const struct attn_kernels *) in_use;

/* Stands for "ATTN_ISA asks for what cannot be had". Never called, never handed out. */
static const struct attn_kernels unusable = {.name = ""};

const struct attn_kernels *attn_kernels_built(size_t index) {
    return index < N_BUILT ? built[index] : NULL;
}

static int runs_with(const struct attn_kernels *kernels, uint64_t features) {
    return (kernels->required & ~features) == 0 || kernels == &attn_kernels_scalar;
}

size_t attn_kernels_usable(uint64_t features, const struct attn_kernels **list) {
    size_t n = 0;
    for (size_t i = 0; i < N_BUILT; i++)
        if (runs_with(built[i], features))
            list[n++] = built[i];
    return n;
}

const struct attn_kernels *attn_kernels_select(uint64_t features, const char *name) {
    for (size_t i = 0; i < N_BUILT; i++)
        if (runs_with(built[i], features) && (!name || !*name || strcmp(name, built[i]->name) == 0))
            return built[i];
    return NULL;
}

const struct attn_kernels *attn_kernels_in_use(void) {
    const struct attn_kernels *now = atomic_load_explicit(&in_use, memory_order_acquire);
    if (!now) {
        const struct attn_kernels *chosen =
            attn_kernels_select(attn_cpu_features(), getenv("ATTN_ISA"));
        if (!chosen)
            chosen = &unusable;
        if (atomic_compare_exchange_strong(&in_use, &now, chosen))
            now = chosen;
    }
    return now == &unusable ? NULL : now;
}

const char *attn_isa(void) {
    const struct attn_kernels *kernels = attn_kernels_in_use();
    return kernels ? kernels->name : NULL;
}

attn_status attn_set_isa(const char *name) {
    const struct attn_kernels *chosen = attn_kernels_select(attn_cpu_features(), name);
    if (!chosen || (name && !*name)) /* empty is unset in the environment only */
        return ATTN_ERROR_ISA;
    atomic_store_explicit(&in_use, chosen, memory_order_release);
    return ATTN_OK;
}

const char *const *attn_isa_list(void) {
    enum { EMPTY, FILLING, READY };
    static const char *names[ATTN_MAX_ISAS + 1];
    static atomic_int state;
    int expected = EMPTY;
    if (atomic_compare_exchange_strong(&state, &expected, FILLING)) {
        const struct attn_kernels *usable[ATTN_MAX_ISAS];
        const size_t n = attn_kernels_usable(attn_cpu_features(), usable);
        for (size_t i = 0; i < n; i++)
            names[i] = usable[i]->name;
        atomic_store_explicit(&state, READY, memory_order_release);
    }
    while (atomic_load_explicit(&state, memory_order_acquire) != READY) {
        /* Another thread is copying a few pointers. */
    }
    return names;
}
