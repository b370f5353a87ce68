/* The attn command: picks the verb.
 *
 * SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <string.h>

#include "attn.h"
#include "cli.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} verbs[] = {
    {"info", cmd_info}, {"run", cmd_run},         {"verify", cmd_verify},
    {"demo", cmd_demo}, {"explain", cmd_explain}, {"bench", cmd_bench},
};

static const char help[] =
    "usage: attn VERB [options]\n"
    "\n"
    "Scaled dot-product attention, softmax(Q K^T * scale) V, on the CPU.\n"
    "\n"
    "  info        the CPU, the kernel sets it can run, and the one chosen\n"
    "  run         attention over .npy files\n"
    "  verify      every usable kernel set against attention in double precision\n"
    "  demo [DIR]  attention over the tensors of a real model: steps, picture, error, time\n"
    "  explain     what scaling, softmax and causality do, measured\n"
    "  bench       what this machine can do, and attention against it\n"
    "\n"
    "attn VERB --help says more; attn --version names the version.\n"
    "Exit status: 0 done, 1 failed, 2 wrong usage.\n";

static int dispatch(int argc, char **argv) {
    if (argc < 2) {
        fputs(help, stderr);
        return CLI_USAGE;
    }
    const char *verb = argv[1];
    if (strcmp(verb, "--help") == 0 || strcmp(verb, "-h") == 0 || strcmp(verb, "help") == 0) {
        fputs(help, stdout);
        return CLI_DONE;
    }
    if (strcmp(verb, "--version") == 0) {
        printf("attn %s\n", attn_version());
        return CLI_DONE;
    }
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
        if (strcmp(verb, verbs[i].name) == 0) {
            cli_set_verb(verb);
            return verbs[i].run(argc - 1, argv + 1);
        }
    }
    return cli_fail(CLI_USAGE, "unknown verb '%s'; see 'attn --help'", verb);
}

int main(int argc, char **argv) {
    const int status = dispatch(argc, argv);
    const int had_error = ferror(stdout);
    if ((fflush(stdout) != 0 || had_error) && status == CLI_DONE)
        return cli_fail(CLI_FAILED, "standard output cannot be written");
    return status;
}
