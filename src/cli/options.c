/* Option parsing and error lines of the attn command.
 *
 * SPDX-License-Identifier: MIT */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "memory.h"

static const char *verb_name = "";

void cli_set_verb(const char *verb) { verb_name = verb; }

int cli_fail(int status, const char *format, ...) {
    char line[8192];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    for (char *c = line; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = '?';
    fflush(stdout);
    fprintf(stderr, "attn%s%s: %s\n", *verb_name ? " " : "", verb_name, line);
    return status;
}

int cli_parse(int argc, char **argv, const struct cli_option *options, const char **positional,
              const char *help, int *done) {
    *done = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            fputs(help, stdout);
            *done = 1;
            return CLI_DONE;
        }
    }
    for (int i = 1; i < argc; i++) {
        const char *argument = argv[i];
        if (argument[0] != '-') {
            if (!positional || *positional)
                return cli_fail(CLI_USAGE, "unexpected argument '%s'; see 'attn %s --help'",
                                argument, verb_name);
            *positional = argument;
            continue;
        }
        const struct cli_option *option = options;
        while (option->name && strcmp(option->name, argument) != 0)
            option++;
        if (!option->name)
            return cli_fail(CLI_USAGE, "unknown option '%s'; see 'attn %s --help'", argument,
                            verb_name);
        if (option->flag ? *option->flag : *option->value != NULL)
            return cli_fail(CLI_USAGE, "%s is given twice", argument);
        if (option->flag) {
            *option->flag = 1;
            continue;
        }
        /* A value that looks like an option is an option whose predecessor lacks its value; -1 and
         * the like are values. */
        if (i + 1 >= argc || strncmp(argv[i + 1], "--", 2) == 0)
            return cli_fail(CLI_USAGE, "%s needs a value; see 'attn %s --help'", argument,
                            verb_name);
        *option->value = argv[++i];
    }
    return CLI_DONE;
}

static int parse_int64_until(const char *text, char **end, int64_t *value) {
    if (!(*text >= '0' && *text <= '9') && *text != '-')
        return -1;
    errno = 0;
    const long long number = strtoll(text, end, 10);
    if (errno || *end == text || number < INT64_MIN || number > INT64_MAX)
        return -1;
    *value = number;
    return 0;
}

int cli_parse_int64(const char *text, int64_t *value) {
    char *end;
    return parse_int64_until(text, &end, value) || *end ? -1 : 0;
}

int cli_parse_finite_float(const char *text, float *value) {
    char *end;
    if (*text <= ' ')
        return -1;
    const float number = strtof(text, &end);
    if (end == text || *end || !isfinite(number))
        return -1;
    *value = number;
    return 0;
}

int cli_parse_int64_list(const char *text, int64_t **list, size_t *count) {
    size_t n = 1;
    for (const char *c = text; *c; c++)
        n += *c == ',';
    int64_t *numbers = cli_allocate(n, sizeof *numbers);
    if (!numbers)
        return -1;
    char *at = (char *)text;
    for (size_t i = 0; i < n; i++) {
        if (parse_int64_until(at, &at, &numbers[i]) || *at != (i + 1 < n ? ',' : '\0')) {
            free(numbers);
            return -1;
        }
        at++;
    }
    *list = numbers;
    *count = n;
    return 0;
}
