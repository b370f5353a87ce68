/* Where the tensors of a real model are that come with the attn command.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_SHIPPED_H
#define ATTN_SHIPPED_H

#include <stddef.h>

#define SHIPPED_SHORT "ppocr_b0_L40"
#define SHIPPED_SHORT_TEXT "It was a bright cold day"
#define SHIPPED_LONG "ppocr_b0_L197"

/* Whether path is there and no folder. */
int shipped_is_file(const char *path);

/* Whether there is a q.npy in directory. */
int shipped_has_tensors(const char *directory);

/* The folder of the shipped tensors called name: in a source tree, beside the build folder of one,
 * or installed. Returns 0, or -1 after an error line that ends with advice. */
int shipped_find(const char *name, const char *advice, char *directory, size_t size);

#endif
