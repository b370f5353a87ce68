/* attn info: the CPU, the kernel sets of this build, and the one chosen.
 *
 * SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <string.h>

#include "attn.h"
#include "cli.h"
#include "cpu_features.h"
#include "dispatch.h"
#include "machine.h"

static const char help[] =
    "usage: attn info\n"
    "\n"
    "Shows the CPU and the features that it and its operating system offer, the kernel\n"
    "sets of this build, which of them can run here, and the one chosen. The environment\n"
    "variable ATTN_ISA chooses another.\n";

int cmd_info(int argc, char **argv) {
    const struct cli_option options[] = {{NULL, NULL, NULL}};
    int done;
    const int status = cli_parse(argc, argv, options, NULL, help, &done);
    if (status != CLI_DONE || done)
        return status;

    char names[256];
    const uint64_t features = attn_cpu_features();
    const char *chosen = attn_isa();
    printf("libattn    %s\n", attn_version());
    printf("CPU        %s\n", machine_cpu_name());
    printf("features   %s\n\n", machine_feature_names(features, names, sizeof names));

    const struct attn_kernels *usable[ATTN_MAX_ISAS], *kernels;
    const size_t n_usable = attn_kernels_usable(features, usable);
    printf("%-12s %s\n", "kernels", "usable here");
    int by_name = 0;
    for (size_t i = 0; (kernels = attn_kernels_built(i)); i++) {
        int runs = 0;
        for (size_t j = 0; j < n_usable; j++)
            runs |= usable[j] == kernels;
        printf("%-12s ", kernels->name);
        if (!runs)
            printf("no: needs %s\n",
                   machine_feature_names(kernels->required & ~features, names, sizeof names));
        else if (chosen && strcmp(chosen, kernels->name) == 0)
            printf("yes, chosen: %s\n", machine_reason());
        else
            printf(by_name ? "yes, where asked for: less accurate\n" : "yes\n");
        by_name |= kernels == &attn_kernels_scalar;
    }
    if (!chosen)
        return machine_select(NULL) ? CLI_DONE : CLI_FAILED;
    return CLI_DONE;
}
