/* What the attn command says about this CPU and the kernel set in use.
 *
 * SPDX-License-Identifier: MIT */
#include "machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn.h"
#include "cli.h"
#include "cpu_features.h"

#if (defined(__x86_64__) || defined(__i386__)) && defined(__GNUC__)
#include <cpuid.h>

const char *machine_cpu_name(void) {
    static char name[49];
    unsigned regs[12];
    if ((unsigned)__get_cpuid_max(0x80000000, NULL) < 0x80000004)
        return "x86 CPU without a name";
    for (unsigned i = 0; i < 3; i++)
        __get_cpuid(0x80000002 + i, &regs[4 * i], &regs[4 * i + 1], &regs[4 * i + 2],
                    &regs[4 * i + 3]);
    memcpy(name, regs, sizeof regs);
    size_t length = strlen(name);
    while (length && name[length - 1] == ' ')
        name[--length] = '\0';
    const char *start = name + strspn(name, " ");
    return *start ? start : "x86 CPU without a name";
}

#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>

/* MIDR_EL1, which Linux lets programs read where HWCAP_CPUID is set. Part numbers: each core's
 * technical reference manual. */
const char *machine_cpu_name(void) {
    static const struct {
        unsigned implementer, part;
        const char *name;
    } cores[] = {
        {0x41, 0xd03, "Arm Cortex-A53"},  {0x41, 0xd04, "Arm Cortex-A35"},
        {0x41, 0xd05, "Arm Cortex-A55"},  {0x41, 0xd07, "Arm Cortex-A57"},
        {0x41, 0xd08, "Arm Cortex-A72"},  {0x41, 0xd09, "Arm Cortex-A73"},
        {0x41, 0xd0a, "Arm Cortex-A75"},  {0x41, 0xd0b, "Arm Cortex-A76"},
        {0x41, 0xd0c, "Arm Neoverse N1"}, {0x41, 0xd40, "Arm Neoverse V1"},
        {0x41, 0xd49, "Arm Neoverse N2"}, {0x41, 0xd4f, "Arm Neoverse V2"},
        {0x46, 0x001, "Fujitsu A64FX"},
    };
    static char other[64];
    const unsigned long hwcap_cpuid = 1ul << 11;
    if (!(getauxval(AT_HWCAP) & hwcap_cpuid))
        return "AArch64 CPU";
    uint64_t midr;
    __asm__("mrs %0, midr_el1" : "=r"(midr));
    const unsigned implementer = midr >> 24 & 0xff, part = midr >> 4 & 0xfff;
    for (size_t i = 0; i < sizeof cores / sizeof cores[0]; i++)
        if (cores[i].implementer == implementer && cores[i].part == part)
            return cores[i].name;
    snprintf(other, sizeof other, "AArch64 CPU, implementer 0x%02x, part 0x%03x", implementer,
             part);
    return other;
}

#else

const char *machine_cpu_name(void) { return "unknown CPU"; }

#endif

static size_t append(char *text, size_t size, size_t length, const char *separator,
                     const char *word) {
    if (length >= size)
        return length;
    return length +
           (size_t)snprintf(text + length, size - length, "%s%s", length ? separator : "", word);
}

const char *machine_feature_names(uint64_t features, char *text, size_t size) {
    size_t length = 0;
    text[0] = '\0';
#define FEATURE_NAME(name, bit)                                                                    \
    if (features & ATTN_CPU_HAS(name))                                                             \
        length = append(text, size, length, " ", #name);
    ATTN_CPU_FEATURES(FEATURE_NAME)
#undef FEATURE_NAME
    return length ? text : "none";
}

const char *machine_usable(char *text, size_t size) {
    size_t length = 0;
    text[0] = '\0';
    for (const char *const *name = attn_isa_list(); *name; name++)
        length = append(text, size, length, ", ", *name);
    return text;
}

const char *machine_reason(void) {
    const char *asked = getenv("ATTN_ISA");
    if (asked && *asked)
        return "the environment variable ATTN_ISA asks for it";
    return attn_isa_list()[1] ? "the best that this CPU can run"
                              : "the only one of this build that this CPU can run";
}

const char *machine_select(const char *name) {
    char usable[128];
    if (name && (!*name || attn_set_isa(name) != ATTN_OK)) {
        cli_fail(CLI_FAILED, "--isa: '%s' is unknown or cannot run here, expected one of %s", name,
                 machine_usable(usable, sizeof usable));
        return NULL;
    }
    const char *isa = attn_isa();
    if (!isa)
        cli_fail(CLI_FAILED,
                 "the environment variable ATTN_ISA is '%s', unknown or unable to run here, "
                 "expected one of %s",
                 getenv("ATTN_ISA"), machine_usable(usable, sizeof usable));
    return isa;
}
