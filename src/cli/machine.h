/* What the attn command says about this CPU and the kernel set in use.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_MACHINE_H
#define ATTN_MACHINE_H

#include <stddef.h>
#include <stdint.h>

/* The CPU's own name for itself, as far as it can be had. */
const char *machine_cpu_name(void);

/* The names of the features in the set, separated by spaces, in text. */
const char *machine_feature_names(uint64_t features, char *text, size_t size);

/* The names of attn_isa_list(), separated by ", ". */
const char *machine_usable(char *text, size_t size);

/* Why the kernel set in use was chosen when nobody called attn_set_isa(). */
const char *machine_reason(void);

/* Selects a kernel set for this process: name, or where that is null what the library itself
 * selects. Returns its name, or null after an error line. */
const char *machine_select(const char *name);

#endif
