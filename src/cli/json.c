/* Pieces of JSON on standard output.
 *
 * SPDX-License-Identifier: MIT */
#include "json.h"

#include <math.h>
#include <stdio.h>

void json_text(const char *text) {
    putchar('"');
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            putchar('\\');
        putchar((unsigned char)*text < ' ' ? '?' : *text);
    }
    putchar('"');
}

void json_number(double value) {
    if (isfinite(value))
        printf("%.9g", value);
    else
        printf("null");
}
