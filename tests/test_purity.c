/* A call allocates nothing, starts no thread, prints nothing, makes no system call at all, and
 * leaves the floating-point modes alone (CONTRACT 6, FAULTS N3).
 *
 * Proved in two ways: the allocator and its like are replaced by functions that count, and a call
 * runs in a process where every system call but _exit is fatal.
 *
 * SPDX-License-Identifier: MIT */
#define _GNU_SOURCE 1
#include <dirent.h>
#include <errno.h>
#include <fenv.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__linux__)
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "check.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAVE_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HAVE_SANITIZER 1
#endif
#endif

/* ---- Counting -------------------------------------------------------------------------------- */

/* Of the thread under test only: others (Criterion's, OpenMP's) may do as they like. */
static _Thread_local volatile bool is_counting;
static _Thread_local volatile int calls;

#if defined(__GLIBC__) && !defined(HAVE_SANITIZER)
#define CAN_COUNT 1

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *memory, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *memory);

void *malloc(size_t size) {
    calls += is_counting;
    return __libc_malloc(size);
}
void *calloc(size_t n, size_t size) {
    calls += is_counting;
    return __libc_calloc(n, size);
}
void *realloc(void *memory, size_t size) {
    calls += is_counting;
    return __libc_realloc(memory, size);
}
void free(void *memory) {
    calls += is_counting;
    __libc_free(memory);
}
void *memalign(size_t alignment, size_t size) {
    calls += is_counting;
    return __libc_memalign(alignment, size);
}
void *aligned_alloc(size_t alignment, size_t size) {
    calls += is_counting;
    return __libc_memalign(alignment, size);
}
int posix_memalign(void **memory, size_t alignment, size_t size) {
    calls += is_counting;
    *memory = __libc_memalign(alignment, size);
    return *memory ? 0 : ENOMEM;
}
#else
#define CAN_COUNT 0
#endif

/* ---- Calls to watch -------------------------------------------------------------------------- */

enum { L = 20, D = 17, KEYS = 1100 };
static float q[2 * L * D], k[KEYS * D], v[KEYS * D], out[2 * L * D], lse[2 * L];
static float lse_gradient[2];
static float weights[2 * L * KEYS], scores[2 * L * KEYS], bias[KEYS];
static char workspace[4 << 20];

static bool call_with_options(attn_executor *executor) {
    attn_problem p = attn_problem_bhld(1, 2, 1, L, KEYS - 300, D, D, q, k, v, out);
    const int64_t window[2] = {500, -1}, cu_q[2] = {0, L};
    const float slopes[2] = {0.1f, 0.2f}, sinks[2] = {1, 2};
    p.align = ATTN_ALIGN_BOTTOM_RIGHT, p.window = window, p.cu_q = cu_q;
    p.softcap = 3, p.alibi = slopes, p.sinks = sinks;
    p.past_cap = 300, p.past_k = p.k, p.past_v = p.v;
    p.past_k.data = k + (KEYS - 300) * D, p.past_v.data = v + (KEYS - 300) * D;
    p.lse = (attn_output){lse, ATTN_F32, 0, L, 1};
    p.weights = (attn_output){weights, ATTN_F32, 0, L * KEYS, KEYS};
    p.scores = (attn_output){scores, ATTN_F32, 0, L * KEYS, KEYS};
    p.scores_at = ATTN_SCORES_BIASED;
    bool good = true;
    for (attn_mask_type type = ATTN_MASK_NONE; type <= ATTN_MASK_BITS;
         type = (attn_mask_type)(type + 1)) {
        p.mask = (attn_mask){type ? bias : NULL, type, 0, 0, 0, type != ATTN_MASK_BITS, KEYS};
        good &= attn_forward(&p, workspace, sizeof workspace, executor) == ATTN_OK;
    }
    p.past_cap = 0, p.mask.n_keys = p.kv_cap, p.mask.stride_query = 0;
    attn_gradient g = attn_gradient_init();
    g.dout = p.q, g.dq = (attn_output){weights, ATTN_F32, 0, L * D, D};
    g.dk = (attn_output){scores, ATTN_F32, 0, 0, D};
    g.dv = (attn_output){scores + KEYS * D, ATTN_F32, 0, 0, D}, g.dsinks = lse_gradient;
    p.weights.data = p.scores.data = NULL;
    good &= attn_forward(&p, workspace, sizeof workspace, executor) == ATTN_OK;
    good &= attn_backward(&p, &g, workspace, sizeof workspace, executor) == ATTN_OK;
    good &= attn_softmax_backward(KEYS, k, v, scores) == ATTN_OK;
    const attn_partial part = {{out, ATTN_F32, 0, L * D, D}, {lse, ATTN_F32, 0, L, 1}};
    const attn_partial parts[2] = {part, part};
    const attn_output merged = {scores, ATTN_F32, 0, L * D, D};
    return good && attn_merge(1, 2, L, D, 2, parts, &merged, NULL) == ATTN_OK;
}

/* Appends keys to a cache of each type in pages, and attends to it, with the query in another type. */
static bool call_with_types(attn_executor *executor) {
    enum { PAGE = 16, N = 640 };
    static union {
        float f32[N * D];
        uint16_t half[N * D];
        int8_t i8[N * D];
    } cache, queries, narrow;
    static float cache_scales[N * 2];
    static int64_t slots[N];
    static int32_t table[N / PAGE];
    bool good = true;
    for (int i = 0; i < N; i++)
        slots[i] = i % 7 ? i : -1;
    for (int i = 0; i < N / PAGE; i++)
        table[i] = N / PAGE - 1 - i;
    for (attn_type type = ATTN_F32; type <= ATTN_I8; type = (attn_type)(type + 1)) {
        const attn_input tokens = {k, ATTN_F32, 0, 0, D};
        const attn_cache c = {cache.f32, type,         PAGE * D, 0,        D, N / PAGE,
                              PAGE,      cache_scales, 9,        PAGE * 2, 0, 2};
        good &= attn_append(&tokens, N, 1, D, slots, &c) == ATTN_OK;
        attn_problem p =
            attn_problem_bhld(1, 2, 1, L, N, D, D, queries.f32, NULL, NULL, narrow.f32);
        p.k = p.v = (attn_input){cache.f32, type, PAGE * D, 0, D};
        p.k_scales = p.v_scales = (attn_scales){cache_scales, 9, PAGE * 2, 0, 2};
        p.pages = (attn_pages){table, 0, PAGE, N / PAGE};
        p.q.type = p.out.type = type == ATTN_I8 ? ATTN_BF16 : type;
        good &= attn_forward(&p, workspace, sizeof workspace, executor) == ATTN_OK;
        table[3] = -1;
        good &= attn_forward(&p, workspace, sizeof workspace, executor) == ATTN_ERROR_PAGE;
        table[3] = N / PAGE - 4;
    }
    return good;
}

/* Every entry point but attn_forward_alloc(), with all outputs, with and without an executor, good
 * and bad arguments. */
static bool call_everything(void) {
    struct reverse_executor e = reverse_executor(2);
    attn_problem p = attn_problem_bhld(1, 2, 1, L, KEYS, D, D, q, k, v, out);
    p.causal = 1, p.align = ATTN_ALIGN_BOTTOM_RIGHT;
    p.lse = (attn_output){lse, ATTN_F32, 0, L, 1};
    p.weights = (attn_output){weights, ATTN_F32, 0, L * KEYS, KEYS};
    char sentence[256];
    size_t size;
    bool good = attn_check(&p, sentence, sizeof sentence) == ATTN_OK;
    good &= attn_workspace_size(&p, 2, &size) == ATTN_OK && size <= sizeof workspace;
    good &= attn_forward(&p, workspace, sizeof workspace, NULL) == ATTN_OK;
    good &= attn_forward(&p, workspace, sizeof workspace, &e.base) == ATTN_OK;
    p.q_len = 1; /* the spans of a decode step in parallel */
    good &= attn_forward(&p, workspace, sizeof workspace, &e.base) == ATTN_OK && e.tasks > 3;
    good &= call_with_options(NULL) && call_with_options(&e.base);
    good &= call_with_types(NULL) && call_with_types(&e.base);
    p.kv_cap = -1;
    good &= attn_check(&p, sentence, sizeof sentence) == ATTN_ERROR_SIZE;
    good &= attn_forward(&p, workspace, sizeof workspace, NULL) == ATTN_ERROR_SIZE;
    good &= attn_isa() && *attn_isa_list() && attn_version() && attn_status_string(ATTN_OK);
    return good && attn_set_isa(attn_isa()) == ATTN_OK;
}

static void fill(void) {
    struct rng rng = {1};
    for (size_t i = 0; i < sizeof q / sizeof *q; i++)
        q[i] = rng_normal(&rng);
    for (size_t i = 0; i < sizeof k / sizeof *k; i++)
        k[i] = rng_normal(&rng), v[i] = rng_normal(&rng);
}

static int count_threads(void) {
    DIR *tasks = opendir("/proc/self/task");
    if (!tasks)
        return -1;
    int n = 0;
    for (struct dirent *entry; (entry = readdir(tasks));)
        n += entry->d_name[0] != '.';
    closedir(tasks);
    return n;
}

static int threads_inside;
static void count_inside(attn_executor *self, size_t n_tasks, attn_task task, void *arg) {
    (void)self;
    for (size_t i = 0; i < n_tasks; i++)
        task(arg, i, 0);
    threads_inside = count_threads();
}

/* The first call of the process is among those counted. */
Test(purity, no_allocation_and_no_thread) {
    fill();
    const int before = count_threads();
    if (CAN_COUNT) {
        is_counting = true;
        void *(*volatile allocate)(size_t) = malloc; /* a compiler may drop malloc with its free */
        free(allocate(1));
        cr_assert(calls == 2, "the counters do not count: %d", calls);
        calls = 0;
    } else {
        check_say("skipped: counting allocations (a sanitizer has replaced the allocator, or the C "
                  "library is not glibc)");
    }
    const bool good = call_everything();
    is_counting = false;
    cr_assert(good, "a call gave an unexpected answer");
    cr_expect(calls == 0, "%d calls of the allocator by the default set", calls);
    FOR_EACH_ISA(isa) {
        calls = 0;
        is_counting = true;
        const bool was_good = call_everything();
        is_counting = false;
        cr_expect(was_good && calls == 0, "%s: %d calls of the allocator", isa, calls);
        attn_executor watch = {sizeof watch, 1, count_inside};
        attn_problem p = attn_problem_bhld(1, 2, 1, L, KEYS, D, D, q, k, v, out);
        cr_expect(attn_forward(&p, workspace, sizeof workspace, &watch) == ATTN_OK);
        if (before > 0)
            cr_expect(threads_inside == before && count_threads() == before,
                      "%s: %d threads before, %d inside, %d after", isa, before, threads_inside,
                      count_threads());
    }
}

/* Nothing on standard output or standard error. */
Test(purity, no_output) {
    fill();
    char path[] = "/tmp/attn_test_XXXXXX";
    const int file = mkstemp(path);
    cr_assert(file >= 0);
    unlink(path);
    fflush(NULL);
    const int saved[2] = {dup(1), dup(2)};
    dup2(file, 1);
    dup2(file, 2);
    bool good = true;
    for (const char *const *isa = attn_isa_list(); *isa; isa++)
        good &= attn_set_isa(*isa) == ATTN_OK && call_everything() &&
                attn_set_isa("bogus") == ATTN_ERROR_ISA;
    fflush(NULL);
    dup2(saved[0], 1);
    dup2(saved[1], 2);
    struct stat status;
    cr_assert(fstat(file, &status) == 0 && good);
    cr_expect(status.st_size == 0, "%lld bytes were printed", (long long)status.st_size);
}

#if defined(__linux__) && !defined(HAVE_SANITIZER) && (defined(__x86_64__) || defined(__aarch64__))
/* From here on every system call but exit_group kills the process. */
static bool forbid_system_calls(void) {
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL),
    };
    struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

enum { DONE = 0, WRONG_ANSWER = 1, NO_FILTER = 2 };

static int run_forbidden(const char *isa, bool misbehave) {
    const pid_t child = fork();
    cr_assert(child >= 0);
    if (child == 0) {
        /* The stack that the calls need exists already; growing it is no system call anyway. */
        if (!forbid_system_calls())
            _exit(NO_FILTER);
        if (misbehave && write(1, "", 0) == 0)
            _exit(DONE);
        if (isa && attn_set_isa(isa) != ATTN_OK)
            _exit(WRONG_ANSWER);
        _exit(call_everything() ? DONE : WRONG_ANSWER);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

Test(purity, no_system_call) {
    fill();
    const int control = run_forbidden(NULL, true);
    if (control != -1) { /* an emulator, or a container that allows no filter */
        check_say("skipped: no system call is made (no seccomp filter here)");
        return;
    }
    cr_expect(run_forbidden(NULL, false) == DONE, "the first calls of a process");
    FOR_EACH_ISA(isa) { cr_expect(run_forbidden(isa, false) == DONE, "%s", isa); }
}
#else
Test(purity, no_system_call) {
    check_say("skipped: no system call is made (a sanitizer makes some, or no seccomp filter)");
}
#endif

/* Rounding, masks, FTZ and DAZ: in the control register, flags apart, nothing may change. */
static unsigned long long control_word(void) {
#if defined(__x86_64__)
    return _mm_getcsr() & ~0x3fu;
#elif defined(__aarch64__)
    unsigned long long fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    return fpcr;
#else
    return 0;
#endif
}

Test(purity, floating_point_modes) {
    fill();
    FOR_EACH_ISA(isa) {
        const unsigned long long before = control_word();
        const int rounding = fegetround();
        cr_assert(call_everything());
        cr_expect(control_word() == before && fegetround() == rounding,
                  "%s: control %llx -> %llx, rounding %d -> %d", isa, before, control_word(),
                  rounding, fegetround());
    }
#if defined(__x86_64__)
    /* A caller's FTZ and DAZ stay as they are too. */
    const unsigned was = _mm_getcsr();
    _mm_setcsr(was | 0x8040);
    const unsigned long long before = control_word();
    const bool good = call_everything();
    const unsigned long long after = control_word();
    _mm_setcsr(was);
    cr_expect(good && before == after, "FTZ and DAZ: %llx -> %llx", before, after);
#endif
}
