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
    uint8_t leaf, subleaf, reg, bit;
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
    {ATTN_CPU_HAS(SSE3), 1, 0, ECX, 0, STATE_NONE},
    {ATTN_CPU_HAS(SSSE3), 1, 0, ECX, 9, STATE_NONE},
    {ATTN_CPU_HAS(SSE41), 1, 0, ECX, 19, STATE_NONE},
    {ATTN_CPU_HAS(SSE42), 1, 0, ECX, 20, STATE_NONE},
    {ATTN_CPU_HAS(POPCNT), 1, 0, ECX, 23, STATE_NONE},
    {ATTN_CPU_HAS(AVX), 1, 0, ECX, 28, STATE_YMM},
    {ATTN_CPU_HAS(F16C), 1, 0, ECX, 29, STATE_YMM},
    {ATTN_CPU_HAS(FMA), 1, 0, ECX, 12, STATE_YMM},
    {ATTN_CPU_HAS(AVX2), 7, 0, EBX, 5, STATE_YMM},
    {ATTN_CPU_HAS(AVX512F), 7, 0, EBX, 16, STATE_ZMM},
    {ATTN_CPU_HAS(AVX512DQ), 7, 0, EBX, 17, STATE_ZMM},
    {ATTN_CPU_HAS(AVX512CD), 7, 0, EBX, 28, STATE_ZMM},
    {ATTN_CPU_HAS(AVX512BW), 7, 0, EBX, 30, STATE_ZMM},
    {ATTN_CPU_HAS(AVX512VL), 7, 0, EBX, 31, STATE_ZMM},
    {ATTN_CPU_HAS(AVX512_VNNI), 7, 0, ECX, 11, STATE_ZMM},
    {ATTN_CPU_HAS(AVX512_BF16), 7, 1, EAX, 5, STATE_ZMM},
};

uint64_t attn_cpu_features_x86(const struct attn_cpu_probe *probe) {
    uint32_t leaf0[4], regs[4];
    probe->cpuid(0, 0, leaf0);
    if (leaf0[EAX] < 1)
        return 0;
    probe->cpuid(1, 0, regs);
    const uint64_t xcr0 = regs[ECX] & CPUID1_ECX_OSXSAVE ? probe->xgetbv() : 0;

    /* Subleaves beyond the highest, which EAX of subleaf 0 says, hold nothing of their own. */
    uint32_t leaf7[4] = {0};
    if (leaf0[EAX] >= 7)
        probe->cpuid(7, 0, leaf7);
    uint64_t features = 0;
    uint32_t leaf = 1, subleaf = 0; /* what regs holds */
    for (size_t i = 0; i < sizeof cpuid_bits / sizeof cpuid_bits[0]; i++) {
        const struct cpuid_bit *b = &cpuid_bits[i];
        if (b->leaf > leaf0[EAX] || (b->subleaf && b->subleaf > leaf7[EAX]))
            continue;
        if (b->leaf != leaf || b->subleaf != subleaf)
            probe->cpuid(leaf = b->leaf, subleaf = b->subleaf, regs);
        if ((regs[b->reg] >> b->bit & 1) && (xcr0 & b->state) == b->state)
            features |= b->feature;
    }
    return features;
}

/* Bits of AT_HWCAP and AT_HWCAP2 as Linux defines them; other systems have no such words, and what
 * is set for them is what every AArch64 system has. */
enum { HWCAP_BIT_ASIMD = 1, HWCAP_BIT_ASIMDDP = 20, HWCAP2_BIT_I8MM = 13, HWCAP2_BIT_BF16 = 14 };

uint64_t attn_cpu_features_aarch64(const struct attn_cpu_probe *probe) {
    const uint64_t hwcap = probe->hwcap(), hwcap2 = probe->hwcap2();
    if (!(hwcap >> HWCAP_BIT_ASIMD & 1))
        return 0;
    return ATTN_CPU_HAS(NEON) | (hwcap >> HWCAP_BIT_ASIMDDP & 1 ? ATTN_CPU_HAS(NEON_DOTPROD) : 0) |
           (hwcap2 >> HWCAP2_BIT_I8MM & 1 ? ATTN_CPU_HAS(NEON_I8MM) : 0) |
           (hwcap2 >> HWCAP2_BIT_BF16 & 1 ? ATTN_CPU_HAS(NEON_BF16) : 0);
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
static uint64_t machine_hwcap2(void) { return getauxval(AT_HWCAP2); }
#else
static uint64_t machine_hwcap(void) { return UINT64_C(1) << HWCAP_BIT_ASIMD; }
static uint64_t machine_hwcap2(void) { return 0; }
#endif

uint64_t attn_cpu_features(void) {
    static const struct attn_cpu_probe machine = {.hwcap = machine_hwcap, .hwcap2 = machine_hwcap2};
    return attn_cpu_features_aarch64(&machine);
}

#else

uint64_t attn_cpu_features(void) { return 0; }

#endif
