/* What this CPU and its operating system let a program execute.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_CPU_FEATURES_H
#define ATTN_CPU_FEATURES_H

#include <stdint.h>

/* One bit per feature that some compiler flag of some kernel set can enable. A bit is set only if
 * the operating system also saves the registers that the feature uses. */
#define ATTN_CPU_FEATURES(X)                                                                       \
    X(SSE3, 0)                                                                                     \
    X(SSSE3, 1)                                                                                    \
    X(SSE41, 2)                                                                                    \
    X(SSE42, 3)                                                                                    \
    X(POPCNT, 4)                                                                                   \
    X(AVX, 5)                                                                                      \
    X(F16C, 6)                                                                                     \
    X(FMA, 7)                                                                                      \
    X(AVX2, 8)                                                                                     \
    X(AVX512F, 9)                                                                                  \
    X(AVX512DQ, 10)                                                                                \
    X(AVX512BW, 11)                                                                                \
    X(AVX512VL, 12)                                                                                \
    X(AVX512CD, 13)                                                                                \
    X(AVX512_VNNI, 14)                                                                             \
    X(AVX512_BF16, 15)                                                                             \
    X(NEON, 32)                                                                                    \
    X(NEON_DOTPROD, 33)                                                                            \
    X(NEON_BF16, 34)                                                                               \
    X(NEON_I8MM, 35)

enum attn_cpu_feature {
#define ATTN_CPU_BIT(name, bit) ATTN_CPU_##name##_BIT = bit,
    ATTN_CPU_FEATURES(ATTN_CPU_BIT)
#undef ATTN_CPU_BIT
};
#define ATTN_CPU_HAS(name) (UINT64_C(1) << ATTN_CPU_##name##_BIT)

/* Where the facts come from: the machine, or a test. */
struct attn_cpu_probe {
    /* x86: CPUID leaf and subleaf into eax, ebx, ecx, edx; all 0 beyond the highest leaf. */
    void (*cpuid)(uint32_t leaf, uint32_t subleaf, uint32_t regs[4]);
    /* x86: XCR0; called only if CPUID says that XGETBV is there. */
    uint64_t (*xgetbv)(void);
    /* AArch64: AT_HWCAP and AT_HWCAP2. */
    uint64_t (*hwcap)(void);
    uint64_t (*hwcap2)(void);
};

/* The features of an x86 or AArch64 CPU that answers as probe does. */
uint64_t attn_cpu_features_x86(const struct attn_cpu_probe *probe);
uint64_t attn_cpu_features_aarch64(const struct attn_cpu_probe *probe);

/* The features of this CPU; 0 on platforms without detection. */
uint64_t attn_cpu_features(void);

#endif
