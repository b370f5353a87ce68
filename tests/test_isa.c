/* Which kernel sets this test run covers: said on the output, and asserted where CI expects some.
 *
 * ATTN_EXPECT_ISAS="avx512 avx2 scalar" must equal attn_isa_list(), and ATTN_EXPECT_ISA=avx2 the
 * set in use when nobody chooses one. Inside a test, because a worker that has left its emulator
 * sees other features than the program that started it.
 *
 * SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>

#include "check.h"
#include "dispatch.h"

static bool is_listed(const char *name) {
    for (const char *const *isa = attn_isa_list(); *isa; isa++)
        if (strcmp(*isa, name) == 0)
            return true;
    return false;
}

Test(isa, what_runs_here) {
    char ran[128] = "", skipped[128] = "";
    for (const char *const *isa = attn_isa_list(); *isa; isa++)
        snprintf(ran + strlen(ran), sizeof ran - strlen(ran), "%s%s", *ran ? " " : "", *isa);
    for (size_t i = 0; attn_kernels_built(i); i++)
        if (!is_listed(attn_kernels_built(i)->name))
            snprintf(skipped + strlen(skipped), sizeof skipped - strlen(skipped), " %s",
                     attn_kernels_built(i)->name);
    const char *chosen = attn_isa();
    check_say("kernel sets tested: %s; chosen: %s; built but not usable here:%s", ran,
              chosen ? chosen : "(none)", *skipped ? skipped : " none");

    const char *expected = getenv("ATTN_EXPECT_ISAS");
    if (expected)
        cr_assert(strcmp(expected, ran) == 0, "expected \"%s\", but \"%s\" are usable", expected,
                  ran);
    const char *best = getenv("ATTN_EXPECT_ISA");
    if (best)
        cr_assert(chosen && strcmp(best, chosen) == 0, "expected %s, but %s was chosen", best,
                  chosen ? chosen : "nothing");
    if (!getenv("ATTN_ISA"))
        cr_assert(chosen && strcmp(chosen, *attn_isa_list()) == 0, "the best is not the default");
    FOR_EACH_ISA(isa) { cr_expect(strcmp(isa, attn_isa()) == 0, "%s", isa); }
    cr_expect(attn_set_isa(NULL) == ATTN_OK && strcmp(attn_isa(), *attn_isa_list()) == 0,
              "null does not choose the best");
}
