/* Which kernel set is chosen, for CPUs and operating systems of every kind and for the first call
 * of a process by many threads at once (FAULTS O1, O8, O9).
 *
 * SPDX-License-Identifier: MIT */
#define _GNU_SOURCE 1
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "cpu_features.h"
#include "dispatch.h"

/* ---- A CPU that answers as it is told -------------------------------------------------------- */

enum { EAX, EBX, ECX, EDX };
static struct {
    uint32_t max_leaf, leaf1[4], leaf7[4], leaf7_1[4];
    uint64_t xcr0, hwcap, hwcap2;
    bool xgetbv_called;
} mock;

static void mock_cpuid(uint32_t leaf, uint32_t subleaf, uint32_t regs[4]) {
    memset(regs, 0, 4 * sizeof *regs);
    if (leaf == 0)
        regs[EAX] = mock.max_leaf;
    if (leaf == 1 && mock.max_leaf >= 1)
        memcpy(regs, mock.leaf1, sizeof mock.leaf1);
    if (leaf == 7 && mock.max_leaf >= 7 && subleaf == 0)
        memcpy(regs, mock.leaf7, sizeof mock.leaf7);
    if (leaf == 7 && mock.max_leaf >= 7 && subleaf == 1)
        memcpy(regs, mock.leaf7_1, sizeof mock.leaf7_1);
}

static uint64_t mock_xgetbv(void) {
    mock.xgetbv_called = true;
    return mock.xcr0;
}

static uint64_t mock_hwcap(void) { return mock.hwcap; }

static uint64_t mock_hwcap2(void) { return mock.hwcap2; }

static const struct attn_cpu_probe probe = {mock_cpuid, mock_xgetbv, mock_hwcap, mock_hwcap2};

#define BIT(n) (UINT32_C(1) << (n))
#define OSXSAVE BIT(27)

/* Bits of the Intel manual (vol. 2A, CPUID), typed a second time on purpose. */
static const struct {
    const char *name;
    int leaf, reg, bit; /* leaf 71: leaf 7, subleaf 1 */
} cpuid_names[] = {
    {"SSE3", 1, ECX, 0},         {"SSSE3", 1, ECX, 9},        {"FMA", 1, ECX, 12},
    {"SSE4.1", 1, ECX, 19},      {"SSE4.2", 1, ECX, 20},      {"POPCNT", 1, ECX, 23},
    {"OSXSAVE", 1, ECX, 27},     {"AVX", 1, ECX, 28},         {"F16C", 1, ECX, 29},
    {"AVX2", 7, EBX, 5},         {"AVX512F", 7, EBX, 16},     {"AVX512DQ", 7, EBX, 17},
    {"AVX512CD", 7, EBX, 28},    {"AVX512BW", 7, EBX, 30},    {"AVX512VL", 7, EBX, 31},
    {"AVX512_VNNI", 7, ECX, 11}, {"AVX512_BF16", 71, EAX, 5},
};
enum { N_BITS = sizeof cpuid_names / sizeof *cpuid_names };

static uint32_t *mock_register(int i) {
    const int leaf = cpuid_names[i].leaf;
    return &(leaf == 1 ? mock.leaf1 : leaf == 7 ? mock.leaf7 : mock.leaf7_1)[cpuid_names[i].reg];
}

static void mock_everything(void) {
    memset(&mock, 0, sizeof mock);
    mock.max_leaf = 0x1f;
    mock.leaf7[EAX] = 2; /* the highest subleaf */
    for (int i = 0; i < N_BITS; i++)
        *mock_register(i) |= BIT(cpuid_names[i].bit);
    mock.xcr0 = 0xe7;
}

static void mock_avx2_machine(void) {
    mock_everything();
    memset(mock.leaf7_1, 0, sizeof mock.leaf7_1);
    mock.leaf7[EBX] &= BIT(5);
    mock.leaf7[ECX] = 0;
    mock.xcr0 = 0x7;
}

static bool is_built(const char *name) {
    for (size_t i = 0; attn_kernels_built(i); i++)
        if (strcmp(attn_kernels_built(i)->name, name) == 0)
            return true;
    return false;
}

static const char *chosen_by_mock(void) {
    const struct attn_kernels *set = attn_kernels_select(attn_cpu_features_x86(&probe), NULL);
    return set ? set->name : "(null)";
}

/* The first of these that is built: an ISA that is not part of this build cannot be chosen. */
static const char *expected(const char *best) {
    if (strcmp(best, "avx512") == 0 && is_built("avx512"))
        return "avx512";
    if (strcmp(best, "scalar") != 0 && is_built("avx2"))
        return "avx2";
    return "scalar";
}

static void expect_chosen(const char *what, const char *best) {
    check_context("%s", what);
    CHECK(strcmp(chosen_by_mock(), expected(best)) == 0, "%s was chosen, want %s", chosen_by_mock(),
          expected(best));
}

/* O1: the CPU has the instructions, but does the operating system save the registers? */
Test(dispatch, operating_system_saves_registers) {
    if (!is_built("avx2") && !is_built("avx512"))
        check_say("skipped in part: no x86 kernel set in this build");
    mock_everything();
    expect_chosen("everything", "avx512");
    mock.leaf1[ECX] &= ~OSXSAVE;
    mock.xgetbv_called = false;
    expect_chosen("OSXSAVE 0", "scalar");
    CHECK(!mock.xgetbv_called, "XGETBV would be an illegal instruction");
    const struct {
        const char *what;
        uint64_t xcr0;
        const char *best;
    } states[] = {{"XCR0 0", 0, "scalar"},           {"XCR0 1", 0x1, "scalar"},
                  {"XCR0 3", 0x3, "scalar"},         {"XCR0 5", 0x5, "scalar"},
                  {"XCR0 7", 0x7, "avx2"},           {"XCR0 0x27", 0x27, "avx2"},
                  {"XCR0 0x67", 0x67, "avx2"},       {"XCR0 0xa7", 0xa7, "avx2"},
                  {"XCR0 0xc7", 0xc7, "avx2"},       {"XCR0 0xe7", 0xe7, "avx512"},
                  {"XCR0 0xe3", 0xe3, "scalar"},     {"XCR0 0xe1", 0xe1, "scalar"},
                  {"XCR0 of AMX", 0x602e7, "avx512"}};
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        mock_everything();
        mock.xcr0 = states[i].xcr0;
        expect_chosen(states[i].what, states[i].best);
    }
    for (uint32_t leaf = 0; leaf < 7; leaf++) {
        mock_everything();
        mock.max_leaf = leaf;
        expect_chosen("highest leaf below 7", "scalar");
    }
    memset(&mock, 0, sizeof mock);
    expect_chosen("nothing", "scalar");
}

/* Whether a set is the one for an extension: avx512_bf16 for AVX512_BF16's "_BF16". */
static bool is_of_extension(const char *name, const char *extension) {
    name = strchr(name, '_');
    return name && strcasecmp(name, extension) == 0;
}

/* Each CPUID bit missing alone drops exactly the sets that require it, and a set requires what its
 * compiler flags enable: without that it could meet an instruction that the CPU does not have. */
Test(dispatch, each_bit_dropped_alone) {
    for (size_t k = 0; attn_kernels_built(k); k++) {
        const struct attn_kernels *set = attn_kernels_built(k);
        mock_everything();
        const uint64_t all = attn_cpu_features_x86(&probe);
        if (strncmp(set->name, "avx", 3) != 0)
            continue;
        CHECK((set->required & ~all) == 0, "%s requires what no x86 CPU has", set->name);
        uint64_t seen = 0;
        for (int i = 0; i < N_BITS; i++) {
            mock_everything();
            *mock_register(i) &= ~BIT(cpuid_names[i].bit);
            const uint64_t features = attn_cpu_features_x86(&probe);
            const bool needs = (set->required & ~features) != 0;
            seen |= set->required & ~features;
            const struct attn_kernels *list[ATTN_MAX_ISAS];
            const size_t n = attn_kernels_usable(features, list);
            bool is_usable = false;
            for (size_t at = 0; at < n; at++)
                is_usable |= list[at] == set;
            check_context("%s without %s", set->name, cpuid_names[i].name);
            CHECK(is_usable == !needs, "usable %d, needs it %d", is_usable, needs);
            CHECK((attn_kernels_select(features, set->name) == set) == !needs, "by name");
            /* What the folder's flags are known to enable; of three bits that depends on the
             * compiler. */
            const bool is_avx512 = strncmp(set->name, "avx512", 6) == 0;
            const bool is_wide = strncmp(cpuid_names[i].name, "AVX512", 6) == 0;
            const char *extension = strchr(cpuid_names[i].name, '_');
            const bool is_extension = extension != NULL;
            const bool may_differ = strcmp(cpuid_names[i].name, "AVX512CD") == 0 ||
                                    strcmp(cpuid_names[i].name, "F16C") == 0 ||
                                    (is_avx512 && strcmp(cpuid_names[i].name, "FMA") == 0);
            CHECK(may_differ || is_extension || needs == (is_avx512 || !is_wide), "needed: %d",
                  needs);
            CHECK(!is_extension || needs == is_of_extension(set->name, extension), "needed: %d",
                  needs);
        }
        CHECK(seen == set->required, "%s requires bits that no CPUID bit turns off", set->name);
    }
    /* Subleaf 1 means nothing where subleaf 0 does not know it. */
    mock_everything();
    mock.leaf7[EAX] = 0;
    check_context("no subleaf 1");
    CHECK(!(attn_cpu_features_x86(&probe) & ATTN_CPU_HAS(AVX512_BF16)), "AVX512_BF16 was seen");
    /* The scalar set needs nothing. */
    const struct attn_kernels *list[ATTN_MAX_ISAS];
    check_context("no features");
    CHECK(attn_kernels_usable(0, list) == 1 && strcmp(list[0]->name, "scalar") == 0, "not scalar");
    /* Linux's asm/hwcap.h: ASIMD is bit 1, ASIMDDP bit 20; in the second word I8MM is bit 13, BF16
     * bit 14. None of them counts without ASIMD. */
    const uint64_t extensions =
        ATTN_CPU_HAS(NEON_DOTPROD) | ATTN_CPU_HAS(NEON_I8MM) | ATTN_CPU_HAS(NEON_BF16);
    for (int bit = 0; bit < 128; bit++) {
        const uint64_t feature = bit == 1         ? ATTN_CPU_HAS(NEON)
                                 : bit == 20      ? ATTN_CPU_HAS(NEON_DOTPROD)
                                 : bit == 64 + 13 ? ATTN_CPU_HAS(NEON_I8MM)
                                 : bit == 64 + 14 ? ATTN_CPU_HAS(NEON_BF16)
                                                  : 0;
        check_context("AT_HWCAP and AT_HWCAP2, bit %d", bit);
        mock.hwcap = bit < 64 ? UINT64_C(1) << bit : 0;
        mock.hwcap2 = bit < 64 ? 0 : UINT64_C(1) << (bit - 64);
        CHECK(attn_cpu_features_aarch64(&probe) == (bit == 1 ? feature : 0), "alone");
        mock.hwcap |= 2;
        CHECK(attn_cpu_features_aarch64(&probe) == (feature | ATTN_CPU_HAS(NEON)), "with ASIMD");
        mock.hwcap = ~(bit < 64 ? UINT64_C(1) << bit : 0);
        mock.hwcap2 = ~(bit < 64 ? 0 : UINT64_C(1) << (bit - 64));
        CHECK(attn_cpu_features_aarch64(&probe) ==
                  (bit == 1 ? 0 : (ATTN_CPU_HAS(NEON) | extensions) & ~feature),
              "dropped");
    }
    if (is_built("neon")) {
        const uint64_t all = ATTN_CPU_HAS(NEON) | extensions;
        const struct attn_kernels *neon = attn_kernels_select(all, NULL);
        CHECK(neon && strcmp(neon->name, "neon") == 0 && neon->required == ATTN_CPU_HAS(NEON),
              "neon requires %llx", (unsigned long long)(neon ? neon->required : 0));
        CHECK(attn_kernels_select(ATTN_CPU_HAS(NEON), NULL) == neon, "without extensions");
        for (size_t i = 0; attn_kernels_built(i); i++) {
            const struct attn_kernels *set = attn_kernels_built(i);
            if (strncmp(set->name, "neon_", 5) != 0)
                continue;
            check_context("%s", set->name);
            const uint64_t own = set->required & extensions;
            CHECK(own && set->required == (ATTN_CPU_HAS(NEON) | own), "requires %llx",
                  (unsigned long long)set->required);
            CHECK(attn_kernels_select(all, set->name) == set, "not given");
            CHECK(attn_kernels_select(all & ~own, set->name) == NULL, "given");
        }
    }
}

/* Sets that are less accurate come after scalar: nobody gets one who did not ask for it. */
Test(dispatch, less_accurate_by_name_only) {
    bool past_scalar = false;
    for (size_t i = 0; attn_kernels_built(i); i++) {
        const struct attn_kernels *set = attn_kernels_built(i);
        check_context("%s", set->name);
        CHECK((strchr(set->name, '_') != NULL) == past_scalar, "on the wrong side of scalar");
        past_scalar |= strcmp(set->name, "scalar") == 0;
        const struct attn_kernels *best = attn_kernels_select(set->required, NULL);
        CHECK(strchr(best->name, '_') == NULL, "%s is chosen by default", best->name);
        CHECK(attn_kernels_select(set->required, set->name) == set, "not given by name");
    }
    CHECK(past_scalar, "no scalar");
}

/* O9: a name that the CPU cannot run is refused, whatever its source. */
Test(dispatch, by_name) {
    mock_avx2_machine();
    const uint64_t avx2 = attn_cpu_features_x86(&probe);
    check_context("an AVX2 machine");
    CHECK(attn_kernels_select(avx2, "avx512") == NULL, "avx512 was given");
    CHECK(attn_kernels_select(avx2, "bogus") == NULL, "bogus was given");
    CHECK(attn_kernels_select(avx2, "neon") == NULL || is_built("neon"), "neon was given");
    const struct attn_kernels *best = attn_kernels_select(avx2, "");
    CHECK(best && best == attn_kernels_select(avx2, NULL), "\"\" is not the best");
    CHECK(strcmp(best->name, expected("avx2")) == 0, "best is %s", best->name);
    CHECK(strcmp(attn_kernels_select(avx2, "scalar")->name, "scalar") == 0, "no scalar");

    const char *before = attn_isa();
    const char *bad[] = {"", "bogus", "Scalar", "scalar ", "avx", "avx5123", "\xff"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(attn_set_isa(bad[i]) == ATTN_ERROR_ISA && attn_isa() == before, "\"%s\"", bad[i]);
    for (size_t i = 0; attn_kernels_built(i); i++) {
        const struct attn_kernels *set = attn_kernels_built(i);
        const bool runs = attn_kernels_select(attn_cpu_features(), set->name) != NULL;
        CHECK((attn_set_isa(set->name) == ATTN_OK) == runs, "%s", set->name);
    }
    CHECK(attn_set_isa(NULL) == ATTN_OK && strcmp(attn_isa(), *attn_isa_list()) == 0, "null");
    const char *const *list = attn_isa_list();
    bool has_scalar = false;
    for (size_t n = 0; list[n]; n++)
        has_scalar |= strcmp(list[n], "scalar") == 0;
    CHECK(has_scalar, "scalar is not in the list");
    CHECK(attn_isa_list() == list, "the list moves");
    for (size_t i = 0; attn_kernels_built(i); i++)
        for (size_t j = 0; j < i; j++)
            CHECK(strcmp(attn_kernels_built(i)->name, attn_kernels_built(j)->name), "same names");
}

/* ---- Threads --------------------------------------------------------------------------------- */

enum { MAX_THREADS = 64 };
static pthread_barrier_t barrier;
static const char *seen_isa[MAX_THREADS];
static const char *const *seen_list[MAX_THREADS];
static float seen_out[MAX_THREADS];
static attn_status seen_status[MAX_THREADS];

static void *first_call(void *arg) {
    const size_t me = (size_t)(uintptr_t)arg;
    const float x[2] = {1, 2};
    char workspace[65536];
    attn_problem p = attn_problem_bhld(1, 1, 1, 1, 1, 2, 1, x, x, x, &seen_out[me]);
    pthread_barrier_wait(&barrier);
    switch (me % 3) { /* each of them may be the first */
    case 0:
        seen_isa[me] = attn_isa();
        seen_list[me] = attn_isa_list();
        break;
    case 1:
        seen_list[me] = attn_isa_list();
        seen_isa[me] = attn_isa();
        break;
    }
    seen_status[me] = attn_forward(&p, workspace, sizeof workspace, NULL);
    seen_isa[me] = attn_isa();
    seen_list[me] = attn_isa_list();
    return NULL;
}

static int first_call_of_process(size_t n_threads) {
    pthread_t threads[MAX_THREADS];
    if (pthread_barrier_init(&barrier, NULL, (unsigned)n_threads))
        return 10;
    for (size_t i = 0; i < n_threads; i++)
        if (pthread_create(&threads[i], NULL, first_call, (void *)(uintptr_t)i))
            return 11;
    for (size_t i = 0; i < n_threads; i++)
        pthread_join(threads[i], NULL);
    const char *best = *attn_isa_list();
    for (size_t i = 0; i < n_threads; i++) {
        if (!seen_isa[i] || seen_isa[i] != seen_isa[0])
            return 1;
        if (!getenv("ATTN_ISA") && strcmp(seen_isa[i], best) != 0)
            return 2;
        if (seen_list[i] != seen_list[0] || !seen_list[i][0])
            return 3;
        if (seen_status[i] != ATTN_OK || seen_out[i] != 1)
            return 4;
    }
    return 0;
}

/* O8. Nothing has been selected in this process, nor in any that it forks. */
Test(dispatch, first_call_by_many_threads, .timeout = 300) {
    if (check_is_emulated()) { /* QEMU 7.2 cannot start threads after fork() */
        check_say("emulated: first call by %zu threads in one process, not in 100", (size_t)8);
        cr_assert(first_call_of_process(8) == 0);
        return;
    }
    const int processes = (int)check_count(100);
    const size_t n_threads = check_quick() ? 8 : MAX_THREADS;
    if (check_quick())
        check_say("ATTN_TEST_QUICK: first call by %zu threads in %d processes, not 64 in 100",
                  n_threads, processes);
    for (int i = 0; i < processes; i++) {
        const pid_t child = fork();
        cr_assert(child >= 0);
        if (child == 0)
            _exit(first_call_of_process(n_threads));
        int status = 0;
        waitpid(child, &status, 0);
        cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "process %d: status %#x, step %d",
                  i, (unsigned)status, WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    }
}

/* Calls under way keep their kernel set: each result has the bits of one set. */
enum { SWITCH_THREADS = 4, SWITCH_KEYS = 200, SWITCH_DIM = 24, MAX_SETS = 8 };
static float switch_q[SWITCH_DIM], switch_k[SWITCH_KEYS * SWITCH_DIM];
static float switch_want[MAX_SETS][SWITCH_DIM];
static atomic_bool switching;
static atomic_int mixed, finished;

static attn_status switch_forward(float *out, char *workspace, size_t size) {
    const attn_problem p = attn_problem_bhld(1, 1, 1, 1, SWITCH_KEYS, SWITCH_DIM, SWITCH_DIM,
                                             switch_q, switch_k, switch_k, out);
    return attn_forward(&p, workspace, size, NULL);
}

static void *forward_while_switching(void *arg) {
    (void)arg;
    static _Thread_local char workspace[1 << 18];
    const size_t n_sets = (size_t)(uintptr_t)arg;
    while (atomic_load(&switching)) {
        float out[SWITCH_DIM];
        bool is_one = false;
        if (switch_forward(out, workspace, sizeof workspace) == ATTN_OK)
            for (size_t s = 0; s < n_sets; s++)
                is_one |= memcmp(out, switch_want[s], sizeof out) == 0;
        if (!is_one)
            atomic_fetch_add(&mixed, 1);
        atomic_fetch_add(&finished, 1);
    }
    return NULL;
}

Test(dispatch, switching_while_others_run) {
    struct rng rng = {1};
    static char workspace[1 << 18];
    for (int i = 0; i < SWITCH_DIM; i++)
        switch_q[i] = rng_normal(&rng);
    for (int i = 0; i < SWITCH_KEYS * SWITCH_DIM; i++)
        switch_k[i] = rng_normal(&rng);
    size_t n_sets = 0;
    FOR_EACH_ISA(isa) {
        cr_assert(switch_forward(switch_want[n_sets++], workspace, sizeof workspace) == ATTN_OK);
    }
    atomic_store(&switching, true);
    pthread_t threads[SWITCH_THREADS];
    for (size_t i = 0; i < SWITCH_THREADS; i++)
        cr_assert(pthread_create(&threads[i], NULL, forward_while_switching,
                                 (void *)(uintptr_t)n_sets) == 0);
    for (int64_t round = 0; atomic_load(&finished) < (int)check_count(5000); round++)
        FOR_EACH_ISA(isa) {
            if (round % 16 == 0)
                usleep(100);
        }
    atomic_store(&switching, false);
    for (size_t i = 0; i < SWITCH_THREADS; i++)
        pthread_join(threads[i], NULL);
    cr_expect(atomic_load(&mixed) == 0, "%d of %d results are of no kernel set",
              atomic_load(&mixed), atomic_load(&finished));
}
