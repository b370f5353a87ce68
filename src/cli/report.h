/* What a lesson shows: the same numbers as tables for people or as JSON for programs.
 *
 * In JSON a lesson is an object: its name and title, a member for each table (a list of objects,
 * one for each row), matrix (a list of lists) and value, and its conclusion with whether it holds.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_REPORT_H
#define ATTN_REPORT_H

#include <stdint.h>

#include "cli.h"
#include "shares.h"

struct report {
    int json, colours;
    const char *pictures; /* the folder of the SVG files; null: none are drawn */

    /* Of the report itself. */
    int lessons, rows, not_held;
    const struct report_column *columns;
    struct shares shares;
};

/* A column of a table. */
enum report_kind {
    REPORT_TEXT = 1,
    REPORT_FIXED,       /* so many digits after the point */
    REPORT_SIGNIFICANT, /* so many digits */
    REPORT_SHARE        /* a share as a per cent; those of the column print as 100.0 in all */
};
struct report_column {
    const char *key, *heading; /* in JSON; above the column */
    enum report_kind kind;     /* 0 ends the table's list of columns */
    int width, digits;
};

void report_open(struct report *r);
void report_close(struct report *r);

void report_lesson(struct report *r, const char *name, const char *title);

/* A paragraph, for people only. */
void report_say(struct report *r, const char *format, ...) CLI_PRINTF(2, 3);

/* A table: its rows take the texts for the columns that are texts and the numbers for the others,
 * from left to right. */
void report_table(struct report *r, const char *key, const struct report_column *columns);
void report_row(struct report *r, const char *const *texts, const double *numbers);
void report_end_table(struct report *r);

/* Weights [n][n] of the words of a sentence as per cents, each row 100 in all; hidden ones, those
 * above the diagonal where causal, are points. */
void report_matrix(struct report *r, const char *key, int n, const char *const *names,
                   const float *weights, int causal);

/* A number that a paragraph mentions, for programs. */
void report_value(struct report *r, const char *key, double value);

/* What follows from the numbers, and whether it does: the end of a lesson. */
void report_conclude(struct report *r, int holds, const char *format, ...) CLI_PRINTF(3, 4);

#endif
