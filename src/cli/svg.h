/* Writes pictures as SVG files: shapes, texts, axes with curves, and matrices of weights.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_SVG_H
#define ATTN_SVG_H

#include <stdio.h>

#include "cli.h"

struct svg {
    FILE *file; /* null if it could not be opened: drawing then does nothing */
    char path[2200];
};

#define SVG_INK "#22272e"
#define SVG_PALE "#d5dae1"
#define SVG_BLUE "#1769aa"
#define SVG_ORANGE "#d9660f"
#define SVG_RED "#b3261e"
#define SVG_GREEN "#2c8a4b"

enum svg_anchor { SVG_LEFT, SVG_MIDDLE, SVG_RIGHT };

/* Makes the folder for pictures if it is not there. Returns 0, or -1 after an error line. */
int svg_folder(const char *folder);

/* Opens FOLDER/NAME.svg, with a title. */
void svg_open(struct svg *svg, const char *folder, const char *name, int width, int height,
              const char *title);

/* Returns 0, or -1 after an error line if the file could not be opened or written. */
int svg_close(struct svg *svg);

void svg_text(struct svg *svg, double x, double y, enum svg_anchor anchor, const char *colour,
              const char *format, ...) CLI_PRINTF(6, 7);
void svg_rectangle(struct svg *svg, double x, double y, double width, double height,
                   const char *colour);
void svg_line(struct svg *svg, double x1, double y1, double x2, double y2, const char *colour,
              double width);

/* A matrix of weights [n][n] of the words of a sentence, rows query and columns key, with its upper
 * left cell at (x, y): a darker cell is a larger weight. hidden: nothing above the diagonal. */
void svg_matrix(struct svg *svg, double x, double y, double cell, int n, const char *const *names,
                const float *weights, int hidden);

struct svg_axis {
    const char *label;
    double low, high;
    int base;    /* of a logarithmic axis; 0: linear */
    double step; /* between two numbers of the axis; logarithmic: a power of the base */
};

/* Axes over a rectangle whose upper left corner is (x, y). */
struct svg_chart {
    struct svg *svg;
    double x, y, width, height;
    struct svg_axis across, up;
    int curves; /* drawn so far, for the key above */
};

void svg_chart_axes(const struct svg_chart *chart);

/* A curve through n points, named in the key, dots where measured, else a thin line. error: half
 * the height of a bar on each point, or null. Points outside the axes are left out. */
void svg_chart_curve(struct svg_chart *chart, const char *name, const char *colour, int n,
                     const double *x, const double *y, const double *error, int measured);

#endif
