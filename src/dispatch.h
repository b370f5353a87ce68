/* Which kernel set a call uses.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_DISPATCH_H
#define ATTN_DISPATCH_H

#include <stddef.h>

#include "kernels.h"

/* The kernel set in use; null if ATTN_ISA names one that cannot be used. Selects it on the first
 * call of the process. Any thread may call it, also as the first. */
const struct attn_kernels *attn_kernels_in_use(void);

/* The sets of this build that a CPU with these features can run, in the order of isa.def: best first
 * down to scalar, then those that are chosen by name only. Returns their number; list has room for
 * ATTN_MAX_ISAS. */
#define ATTN_MAX_ISAS 8
size_t attn_kernels_usable(uint64_t features, const struct attn_kernels **list);

/* The set that a CPU with these features uses when the user asks for name: null and "" ask for the
 * best. Null if the name is unknown or needs features that are not there. */
const struct attn_kernels *attn_kernels_select(uint64_t features, const char *name);

/* Every set of this build, usable or not, in the same order; null after the last. */
const struct attn_kernels *attn_kernels_built(size_t index);

#endif
