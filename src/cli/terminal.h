/* How a verb that is read by people looks on a terminal, and that it is plain text elsewhere.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_TERMINAL_H
#define ATTN_TERMINAL_H

/* Whether standard output is a terminal with colours that nobody has forbidden by NO_COLOR. */
int terminal_colours(void);

/* Prints a line in bold type, where there are colours, and an empty one. */
void terminal_heading(const char *text, int colours);

#endif
