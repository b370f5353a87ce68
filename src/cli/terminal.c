/* How a verb that is read by people looks on a terminal, and that it is plain text elsewhere.
 *
 * SPDX-License-Identifier: MIT */
#define _XOPEN_SOURCE 700
#include "terminal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int terminal_colours(void) {
    const char *no_color = getenv("NO_COLOR"), *terminal = getenv("TERM");
    return isatty(STDOUT_FILENO) && !(no_color && *no_color) &&
           !(terminal && strcmp(terminal, "dumb") == 0);
}

void terminal_heading(const char *text, int colours) {
    printf(colours ? "\033[1m%s\033[0m\n\n" : "%s\n\n", text);
}
