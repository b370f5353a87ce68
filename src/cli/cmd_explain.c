/* attn explain: what scaling, softmax and causality do, measured here and now.
 *
 * SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <string.h>

#include "attn.h"
#include "cli.h"
#include "explain.h"
#include "machine.h"
#include "report.h"
#include "svg.h"
#include "terminal.h"

static const char help[] =
    "usage: attn explain [LESSON] [--svg DIR] [--json]\n"
    "\n"
    "Explains scaled dot-product attention by measuring it, on small seeded examples:\n"
    "\n"
    "  roles       what query, key and value are for, in a sentence\n"
    "  steps       one row: scores, scaling, softmax, weighted sum\n"
    "  causality   who sees whom, and a test that nobody sees the future\n"
    "  variance    the variance of q . k is d_k: why scores are divided by sqrt(d_k)\n"
    "  saturation  what the softmax makes of scores that are not scaled\n"
    "  gradient    what a saturated softmax leaves of the gradient\n"
    "  additive    attention by a hidden layer instead of a product, and what that costs\n"
    "\n"
    "Without LESSON all of them. Exit status 1 if a measurement contradicts its conclusion.\n"
    "\n"
    "  --svg DIR   draws DIR/LESSON.svg as well\n"
    "  --json      the numbers, for programs\n";

static const struct {
    const char *name;
    int (*explain)(struct report *r);
} lessons[] = {
    {"roles", explain_roles},           {"steps", explain_steps},
    {"causality", explain_causality},   {"variance", explain_variance},
    {"saturation", explain_saturation}, {"gradient", explain_gradient},
    {"additive", explain_additive},
};
enum { N_LESSONS = sizeof lessons / sizeof lessons[0] };

int explain_attend(const attn_problem *problem) {
    const attn_status status = attn_forward_alloc(problem, NULL);
    return status == ATTN_OK ? 0 : cli_fail(-1, "%s", attn_status_string(status));
}

static int unknown(const char *name) {
    char names[256] = "";
    for (int i = 0; i < N_LESSONS; i++) {
        strcat(names, i ? ", " : "");
        strcat(names, lessons[i].name);
    }
    return cli_fail(CLI_USAGE, "unknown lesson '%s'; there are %s", name, names);
}

int cmd_explain(int argc, char **argv) {
    struct report report = {0};
    const char *name = NULL;
    const struct cli_option options[] = {
        {"--svg", &report.pictures, NULL},
        {"--json", NULL, &report.json},
        {NULL, NULL, NULL},
    };
    int done;
    const int status = cli_parse(argc, argv, options, &name, help, &done);
    if (status != CLI_DONE || done)
        return status;
    int first = 0, end = N_LESSONS;
    if (name) {
        while (first < N_LESSONS && strcmp(lessons[first].name, name) != 0)
            first++;
        if (first == N_LESSONS)
            return unknown(name);
        end = first + 1;
    }
    if (!machine_select(NULL) || (report.pictures && svg_folder(report.pictures)))
        return CLI_FAILED;

    report.colours = terminal_colours();
    report_open(&report);
    for (int i = first; i < end; i++)
        if (lessons[i].explain(&report))
            return CLI_FAILED;
    report_close(&report);
    if (report.not_held)
        return cli_fail(CLI_FAILED, "%d of %d conclusions do not hold here", report.not_held,
                        report.lessons);
    return CLI_DONE;
}
