/* CPUID and XGETBV on x86, HWCAP on AArch64. Compiled with baseline flags only.
 *
 * Sources: Intel SDM vol. 2A (CPUID) and vol. 1 chapters 14.3 and 15.2 (detection of AVX and
 * AVX-512, XCR0); Linux Documentation/arch/arm64/elf_hwcaps.rst.
 *
 * SPDX-License-Identifier: MIT */
#include "cpu_features.h"

#include <stddef.h>

/* One CPUID feature bit. state: bits of XCR0 that the operating system must have set. */
struct cpuid_bit {
    uint64_t feature;
    uint32_t leaf;
    uint8_t reg, bit;
    uint8_t state;
};

enum { EAX, EBX, ECX, EDX };
enum {
    STATE_NONE = 0,
    STATE_YMM = 0x06, /* XMM and upper halves of YMM */
    STATE_ZMM = 0xe6  /* also opmask, upper halves of ZMM0-15, and ZMM16-31 */
};
#define CPUID1_ECX_OSXSAVE (UINT32_C(1) << 27)

static const struct cpuid_bit cpuid_bits[] = {
    {ATTN_CPU_HAS(SSE3), 1, ECX, 0, STATE_NONE},
    {ATTN_CPU_HAS(SSSE3), 1, ECX, 9, STATE_NONE},
    {ATTN_CPU_HAS(SSE41), 1, ECX, 19, STATE_NONE},
    {ATTN_CPU_HAS(SSE42), 1, ECX, 20, STATE_NONE},
    {ATTN_CPU_HAS(POPCNT), 1, ECX, 23, STATE_NONE},
    {ATTN_CPU_HAS(AVX), 1, ECX, 28, STATE_YMM},
    {ATTN_CPU_HAS(F16C), 1, ECX, 29, STATE_YMM},
    {ATTN_CPU_HAS(FMA), 1, ECX, 12, STATE_YMM},
    {ATTN_CPU_HAS(AVX2), 7, EBX, 5, STATE_YMM},
    {ATTN_CPU_HAS(AVX512F), 7, EBX, 16, STATE_ZMM},
    {ATTN_CPU_HAS(AVX512DQ), 7, EBX, 17, STATE_ZMM},
    {ATTN_CPU_HAS(AVX512CD), 7, EBX, 28, STATE_ZMM},
    {ATTN_CPU_HAS(AVX512BW), 7, EBX, 30, STATE_ZMM},
    {ATTN_CPU_HAS(AVX512VL), 7, EBX, 31, STATE_ZMM},
};

uint64_t attn_cpu_features_x86(const struct attn_cpu_probe *probe) {
    uint32_t leaf0[4], regs[4];
    probe->cpuid(0, 0, leaf0);
    if (leaf0[EAX] < 1)
        return 0;
    probe->cpuid(1, 0, regs);
    const uint64_t xcr0 = regs[ECX] & CPUID1_ECX_OSXSAVE ? probe->xgetbv() : 0;

    uint64_t features = 0;
    uint32_t loaded = 1;
    for (size_t i = 0; i < sizeof cpuid_bits / sizeof cpuid_bits[0]; i++) {
        const struct cpuid_bit *b = &cpuid_bits[i];
        if (b->leaf > leaf0[EAX])
            continue;
        if (b->leaf != loaded)
            probe->cpuid(loaded = b->leaf, 0, regs);
        if ((regs[b->reg] >> b->bit & 1) && (xcr0 & b->state) == b->state)
            features |= b->feature;
    }
    return features;
}

/* Bits of AT_HWCAP as Linux defines them; other systems have no such word, and what is set for them
 * is what every AArch64 system has. */
enum { HWCAP_BIT_ASIMD = 1 };

uint64_t attn_cpu_features_aarch64(const struct attn_cpu_probe *probe) {
    return probe->hwcap() >> HWCAP_BIT_ASIMD & 1 ? ATTN_CPU_HAS(NEON) : 0;
}

#if (defined(__x86_64__) || defined(__i386__)) && defined(__GNUC__) && !defined(__APPLE__) &&      \
    !defined(_WIN32)
#include <cpuid.h>

static void machine_cpuid(uint32_t leaf, uint32_t subleaf, uint32_t regs[4]) {
    regs[EAX] = regs[EBX] = regs[ECX] = regs[EDX] = 0;
    __get_cpuid_count(leaf, subleaf, &regs[EAX], &regs[EBX], &regs[ECX], &regs[EDX]);
}

static uint64_t machine_xgetbv(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

uint64_t attn_cpu_features(void) {
    static const struct attn_cpu_probe machine = {.cpuid = machine_cpuid, .xgetbv = machine_xgetbv};
    return attn_cpu_features_x86(&machine);
}

#elif defined(__aarch64__)
#if defined(__linux__)
#include <sys/auxv.h>

static uint64_t machine_hwcap(void) { return getauxval(AT_HWCAP); }
#else
static uint64_t machine_hwcap(void) { return UINT64_C(1) << HWCAP_BIT_ASIMD; }
#endif

uint64_t attn_cpu_features(void) {
    static const struct attn_cpu_probe machine = {.hwcap = machine_hwcap};
    return attn_cpu_features_aarch64(&machine);
}

#else

uint64_t attn_cpu_features(void) { return 0; }

#endif
