/* Memory for tensors.
 *
 * A call reads keys and values that are megabytes apart. In pages of 4 KiB that is more of them
 * than a core's table of translations holds, and in a virtual machine a miss there walks two
 * tables: the same call has taken 1.25 times as long.
 *
 * SPDX-License-Identifier: MIT */
#define _DEFAULT_SOURCE
#include "memory.h"

#include <stdint.h>
#include <stdlib.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

enum { CACHE_LINE = 64, HUGE_PAGE = 2 * 1024 * 1024 };

void *cli_allocate(size_t count, size_t size) {
    if (size && count > (SIZE_MAX - HUGE_PAGE) / size)
        return NULL;
    const size_t bytes = count * size, unit = bytes < HUGE_PAGE / 4 ? CACHE_LINE : HUGE_PAGE;
    const size_t room = (bytes / unit + (bytes % unit != 0 || bytes == 0)) * unit;
    void *p = aligned_alloc(unit, room);
#if defined(MADV_HUGEPAGE)
    if (p && unit == HUGE_PAGE)
        madvise(p, room, MADV_HUGEPAGE); /* a wish: where it is refused, small pages do */
#endif
    return p;
}
