/* What a lesson shows: the same numbers as tables for people or as JSON for programs.
 *
 * SPDX-License-Identifier: MIT */
#include "report.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "attn.h"
#include "json.h"
#include "terminal.h"

enum { LINE_WIDTH = 88, TEXT_SIZE = 2048 };

void report_open(struct report *r) {
    if (!r->json)
        return;
    printf("{\n  \"version\": \"%s\",\n  \"isa\": \"%s\",\n  \"lessons\": [", attn_version(),
           attn_isa());
}

void report_close(struct report *r) {
    if (r->json)
        printf("\n  ]\n}\n");
}

void report_lesson(struct report *r, const char *name, const char *title) {
    if (r->json) {
        printf("%s\n    {\"name\": \"%s\", \"title\": \"%s\"", r->lessons ? "," : "", name, title);
    } else {
        if (r->lessons)
            printf("\n");
        char text[TEXT_SIZE];
        snprintf(text, sizeof text, "%s: %s", name, title);
        terminal_heading(text, r->colours);
    }
    r->lessons++;
}

/* Breaks text at blanks into lines, the first of which begins with mark. */
static void print_wrapped(const char *mark, const char *text) {
    int column = printf("  %s", mark);
    const int indent = column;
    while (*text) {
        const int length = (int)strcspn(text, " ");
        if (column > indent && column + 1 + length > LINE_WIDTH)
            column = printf("\n%*s", indent, "") - 1;
        else if (column > indent)
            column += printf(" ");
        column += printf("%.*s", length, text);
        text += length;
        text += *text == ' ';
    }
    printf("\n");
}

void report_say(struct report *r, const char *format, ...) {
    if (r->json)
        return;
    char text[TEXT_SIZE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    print_wrapped("", text);
    printf("\n");
}

void report_table(struct report *r, const char *key, const struct report_column *columns) {
    r->columns = columns;
    r->rows = 0;
    r->shares = (struct shares){0};
    if (r->json) {
        printf(",\n     \"%s\": [", key);
        return;
    }
    for (const struct report_column *c = columns; c->kind; c++)
        printf("  %*s", c->kind == REPORT_TEXT ? -c->width : c->width, c->heading);
    printf("\n");
}

static void print_number(struct report *r, const struct report_column *c, double x) {
    if (c->kind == REPORT_SHARE) {
        const int tenths = shares_next(&r->shares, x);
        printf("  %*d.%d %%", c->width - 4, tenths / 10, tenths % 10);
    } else if (c->kind == REPORT_FIXED) {
        printf("  %*.*f", c->width, c->digits, x);
    } else {
        printf("  %*.*g", c->width, c->digits, x);
    }
}

void report_row(struct report *r, const char *const *texts, const double *numbers) {
    if (r->json)
        printf("%s\n      {", r->rows ? "," : "");
    for (const struct report_column *c = r->columns; c->kind; c++) {
        if (r->json)
            printf("%s\"%s\": ", c > r->columns ? ", " : "", c->key);
        if (c->kind == REPORT_TEXT) {
            if (r->json)
                json_text(*texts);
            else
                printf("  %-*s", c->width, *texts);
            texts++;
        } else {
            if (r->json)
                json_number(*numbers);
            else
                print_number(r, c, *numbers);
            numbers++;
        }
    }
    printf(r->json ? "}" : "\n");
    r->rows++;
}

void report_end_table(struct report *r) { printf(r->json ? "]" : "\n"); }

void report_matrix(struct report *r, const char *key, int n, const char *const *names,
                   const float *weights, int causal) {
    if (r->json)
        printf(",\n     \"%s\": [", key);
    else
        printf("  %-8s", "");
    for (int j = 0; j < n && !r->json; j++)
        printf(" %6.6s", names[j]);
    for (int i = 0; i < n; i++) {
        struct shares shares = {0};
        if (r->json)
            printf("%s\n      [", i ? "," : "");
        else
            printf("\n  %-8s", names[i]);
        for (int j = 0; j < n; j++) {
            const double weight = (double)weights[i * n + j];
            if (r->json) {
                printf("%s", j ? ", " : "");
                json_number(weight);
            } else if (causal && j > i) {
                printf(" %6s", ".");
            } else {
                const int tenths = shares_next(&shares, weight);
                printf(" %4d.%d", tenths / 10, tenths % 10);
            }
        }
        if (r->json)
            printf("]");
    }
    printf(r->json ? "]" : "\n\n");
}

void report_value(struct report *r, const char *key, double value) {
    if (!r->json)
        return;
    printf(",\n     \"%s\": ", key);
    json_number(value);
}

void report_conclude(struct report *r, int holds, const char *format, ...) {
    char text[TEXT_SIZE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    r->not_held += !holds;
    if (r->json) {
        printf(",\n     \"conclusion\": ");
        json_text(text);
        printf(", \"holds\": %s}", holds ? "true" : "false");
    } else {
        print_wrapped(holds ? "=> " : "NOT SO: ", text);
    }
}
