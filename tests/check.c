/* Guarded memory, random numbers, failures and executors.
 *
 * SPDX-License-Identifier: MIT */
#define _GNU_SOURCE 1
#include "check.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cpu_features.h"
#include "dispatch.h"

/* ---- How much to test, failures -------------------------------------------------------------- */

bool check_quick(void) {
    const char *quick = getenv("ATTN_TEST_QUICK");
    return quick && *quick && strcmp(quick, "0") != 0;
}

bool check_is_emulated(void) {
    const char *emulator = getenv("TEST_EMULATOR");
    return emulator && *emulator;
}

int64_t check_count(int64_t full) { return check_quick() ? (full + 9) / 10 : full; }

void check_say(const char *format, ...) {
    va_list args;
    va_start(args, format);
    char line[1024];
    const int n = vsnprintf(line, sizeof line - 1, format, args);
    va_end(args);
    const size_t length = n < (int)sizeof line - 1 ? (size_t)n : sizeof line - 2;
    line[length] = '\n';
    /* One write, so that lines of tests that run at the same time do not mix. */
    if (write(STDOUT_FILENO, line, length + 1) < 0)
        return;
}

static char context[2048];

static void on_crash(int signal_number) {
    static const char text[] = "crashed at: ";
    if (write(STDERR_FILENO, text, sizeof text - 1) > 0 &&
        write(STDERR_FILENO, context, strlen(context)) > 0 && write(STDERR_FILENO, "\n", 1) > 0)
        signal(signal_number, SIG_DFL);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

void check_context(const char *format, ...) {
    static bool installed;
    if (!installed) {
        installed = true;
        const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
        for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
            struct sigaction now;
            if (sigaction(signals[i], NULL, &now) == 0 && now.sa_handler == SIG_DFL)
                signal(signals[i], on_crash); /* a sanitizer's own handler stays */
        }
    }
    va_list args;
    va_start(args, format);
    vsnprintf(context, sizeof context, format, args);
    va_end(args);
}

void check_fail(const char *format, ...) {
    static int failures;
    char message[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    if (++failures < 10)
        cr_expect(false, "%s [%s]", message, context);
    else
        cr_assert(false, "%s [%s]", message, context);
}

/* ---- Random numbers -------------------------------------------------------------------------- */

/* splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014). */
uint64_t rng_next(struct rng *rng) {
    uint64_t z = rng->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

int64_t rng_below(struct rng *rng, int64_t n) { return (int64_t)(rng_next(rng) % (uint64_t)n); }

double rng_uniform(struct rng *rng) { return (double)(rng_next(rng) >> 11) * 0x1p-53; }

float rng_normal(struct rng *rng) {
    const uint64_t bits = rng_next(rng);
    int64_t sum = -2 * 65535;
    for (int i = 0; i < 4; i++)
        sum += (int64_t)(bits >> 16 * i & 0xffff);
    return (float)sum * 0x1.bb67aep-16f; /* sqrt(3) / 65536: variance 4/12 becomes 1 */
}

/* Box and Muller. */
float rng_gauss(struct rng *rng) {
    const double radius = sqrt(-2 * log(1 - rng_uniform(rng)));
    return (float)(radius * cos(6.283185307179586 * rng_uniform(rng)));
}

/* ---- Memory ---------------------------------------------------------------------------------- */

struct guarded_memory {
    char *map;       /* guard page, capacity bytes, guard page */
    size_t capacity; /* whole pages */
};
static struct guarded_memory banks[N_BANKS][N_SLOTS], *slots = banks[0];

void guarded_use_bank(int bank) { slots = banks[bank]; }

void *guarded(enum slot slot, size_t bytes, enum side side) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (!slots[slot].map || slots[slot].capacity < bytes) {
        if (slots[slot].map)
            munmap(slots[slot].map, slots[slot].capacity + 2 * page);
        const size_t capacity = (bytes / page + 17) * page;
        char *map = mmap(NULL, capacity + 2 * page, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        cr_assert(map != MAP_FAILED, "no memory for a test: %zu bytes", bytes);
        mprotect(map, page, PROT_NONE);
        mprotect(map + page + capacity, page, PROT_NONE);
        slots[slot].map = map;
        slots[slot].capacity = capacity;
    }
    char *start = slots[slot].map + page;
    char *data = side == AT_START ? start : start + slots[slot].capacity - bytes;
    memset(data, 0xff, bytes);
    return data;
}

float *guarded_floats(enum slot slot, size_t n, enum side side) {
    return guarded(slot, n * sizeof(float), side);
}

/* ---- Bits ------------------------------------------------------------------------------------ */

uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

bool same_bits(float a, float b) { return bits_of(a) == bits_of(b) || (isnan(a) && isnan(b)); }

int64_t first_difference(const float *a, const float *b, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (!same_bits(a[i], b[i]))
            return i;
    return -1;
}

/* ---- Kernel sets ----------------------------------------------------------------------------- */

bool check_use_isa(const char *name) {
    cr_assert(attn_set_isa(name) == ATTN_OK, "attn_set_isa(%s) failed", name);
    cr_assert(attn_isa() && strcmp(attn_isa(), name) == 0, "asked for %s, got %s", name,
              attn_isa() ? attn_isa() : "(null)");
    return true;
}

size_t check_kernel_sets(const struct attn_kernels **sets) {
    const size_t n = attn_kernels_usable(attn_cpu_features(), sets);
    for (size_t i = 0; i < n; i++)
        if (sets[i] == &attn_kernels_scalar)
            return i + 1;
    cr_assert(false, "scalar cannot be used");
    return 0;
}

/* ---- Executors ------------------------------------------------------------------------------- */

static void run_reversed(attn_executor *self, size_t n_tasks, attn_task task, void *arg) {
    struct reverse_executor *e = (struct reverse_executor *)self;
    e->tasks += (int64_t)n_tasks;
    for (size_t i = n_tasks; i-- > 0;)
        task(arg, i, (size_t)rng_below(&e->rng, (int64_t)e->base.n_workers));
}

struct reverse_executor reverse_executor(size_t n_workers) {
    const struct reverse_executor e = {
        {sizeof(attn_executor), n_workers, run_reversed}, {n_workers}, 0};
    return e;
}
