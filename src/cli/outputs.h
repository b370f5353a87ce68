/* Output files that appear together at the end, or not at all.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_OUTPUTS_H
#define ATTN_OUTPUTS_H

#include <stdio.h>

/* Opens a temporary beside path, to be renamed to it at the end. Nothing of it is left behind if
 * the program fails or is interrupted. Returns null after an error line, with *status what the
 * program should exit with. */
FILE *output_open(const char *path, int *status);

/* Renames all temporaries, after making sure that each was written. Returns 0, or -1 after an
 * error line, and then none of the files is there. */
int outputs_commit(void);

/* Removes all temporaries. Harmless after outputs_commit(). */
void outputs_discard(void);

#endif
