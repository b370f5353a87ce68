/* Pieces of JSON on standard output.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_JSON_H
#define ATTN_JSON_H

/* A string; control characters, which only what a CPU calls itself could hold, as '?'. */
void json_text(const char *text);

/* A number that reads back as the same float; null where it is not finite. */
void json_number(double value);

#endif
