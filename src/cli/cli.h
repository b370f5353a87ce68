/* What the verbs of the attn command share: exit statuses, error lines, option parsing.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_CLI_H
#define ATTN_CLI_H

#include <stddef.h>
#include <stdint.h>

enum { CLI_DONE = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

/* The verbs. argv[0] is the verb itself; the result is the exit status. */
int cmd_info(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_verify(int argc, char **argv);
int cmd_demo(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_explain(int argc, char **argv);

#if defined(__GNUC__)
#define CLI_PRINTF(text, rest) __attribute__((format(printf, text, rest)))
#else
#define CLI_PRINTF(text, rest)
#endif

/* Prints "attn VERB: ..." as one line to stderr and returns status. What cannot be printed (control
 * characters in a file name, say) appears as '?'. */
int cli_fail(int status, const char *format, ...) CLI_PRINTF(2, 3);

/* Names the verb in the lines of cli_fail(). */
void cli_set_verb(const char *verb);

/* One option: --name VALUE stores the value, --name alone sets the flag. */
struct cli_option {
    const char *name;   /* with its dashes */
    const char **value; /* null: takes no value */
    int *flag;          /* null: takes a value */
};

/* Parses all arguments after argv[0]; the table ends with a null name. --help prints help and sets
 * *done. positional: where one argument that is no option goes; null if there may be none. Returns
 * CLI_DONE or CLI_USAGE, the latter after an error line. */
int cli_parse(int argc, char **argv, const struct cli_option *options, const char **positional,
              const char *help, int *done);

/* Number parsers for option values: the whole text must be one number. Return 0, or -1. */
int cli_parse_int64(const char *text, int64_t *value);
int cli_parse_finite_float(const char *text, float *value);

/* N[,N...]: the caller frees *list. Returns 0, or -1 if the text is no such list. */
int cli_parse_int64_list(const char *text, int64_t **list, size_t *count);

#endif
