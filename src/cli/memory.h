/* Memory for tensors.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_MEMORY_H
#define ATTN_MEMORY_H

#include <stddef.h>

/* Room for count elements of size bytes, at a multiple of 64 bytes; large ones in huge pages where
 * the system has them to give. Null without memory; freed by free(). */
void *cli_allocate(size_t count, size_t size);

#endif
