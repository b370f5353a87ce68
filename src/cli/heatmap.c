/* Draws a matrix of weights in the terminal: two query rows per line as half blocks in 256 colours,
 * or one per line in plain characters.
 *
 * SPDX-License-Identifier: MIT */
#include "heatmap.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char ramp[] = " .:-=+*#%@";
#define RAMP_LEVELS ((int)sizeof ramp - 1)

/* From black through purple and orange to white, in the xterm colour cube. */
static const int palette[] = {16, 17, 53, 54, 90, 126, 161, 197, 203, 209, 215, 221, 227, 229, 231};
#define COLOUR_LEVELS ((int)(sizeof palette / sizeof palette[0]))

/* The square root spreads the many small weights over more levels. */
static int level(float weight, float largest, int levels) {
    const float x = largest > 0 ? sqrtf(weight / largest) : 0;
    const int n = (int)(x * (float)levels);
    return !(x >= 0) ? 0 : n < levels ? n : levels - 1;
}

static float cell(const float *row, int64_t n_keys, int64_t step, int64_t column) {
    float largest = 0;
    for (int64_t j = column * step; j < (column + 1) * step && j < n_keys; j++)
        largest = row[j] > largest ? row[j] : largest;
    return largest;
}

static void draw_axis(int64_t n_keys, int64_t columns) {
    char last[24];
    snprintf(last, sizeof last, "%" PRId64, n_keys - 1);
    const int width = (int)columns;
    if (width >= 16)
        printf("         key 0%*s\n", width - 5, last);
    else
        printf("         keys 0 to %s\n", last);
}

static void draw_colours(const float *weights, int64_t n_rows, int64_t n_keys, int64_t query_step,
                         int64_t step, int64_t columns, float largest) {
    for (int64_t r = 0; r < n_rows; r += 2) {
        printf("  %6" PRId64 " ", r * query_step);
        int foreground = -1, background = -1;
        for (int64_t c = 0; c < columns; c++) {
            /* The upper half block shows row r in front of row r + 1. */
            const int above =
                palette[level(cell(weights + r * n_keys, n_keys, step, c), largest, COLOUR_LEVELS)];
            const int below = r + 1 < n_rows
                                  ? palette[level(cell(weights + (r + 1) * n_keys, n_keys, step, c),
                                                  largest, COLOUR_LEVELS)]
                                  : 16;
            if (above != foreground || below != background)
                printf("\033[38;5;%d;48;5;%dm", above, below);
            fputs("\xe2\x96\x80", stdout);
            foreground = above, background = below;
        }
        printf("\033[0m\n");
    }
    printf("\n         0 %% \033[0m");
    for (int i = 0; i < COLOUR_LEVELS; i++)
        printf("\033[48;5;%dm ", palette[i]);
    printf("\033[0m %.1f %%\n", 100 * (double)largest);
}

static void draw_characters(const float *weights, int64_t n_rows, int64_t n_keys,
                            int64_t query_step, int64_t step, int64_t columns, float largest) {
    for (int64_t r = 0; r < n_rows; r++) {
        char line[HEATMAP_COLUMNS + 1];
        for (int64_t c = 0; c < columns; c++)
            line[c] =
                ramp[level(cell(weights + r * n_keys, n_keys, step, c), largest, RAMP_LEVELS)];
        line[columns] = '\0';
        printf("  %6" PRId64 " |%s|\n", r * query_step, line);
    }
    printf("\n          0 %% [%s] %.1f %%\n", ramp, 100 * (double)largest);
}

void heatmap_draw(const float *weights, int64_t n_rows, int64_t n_keys, int64_t query_step,
                  int colours) {
    if (n_rows <= 0 || n_keys <= 0)
        return;
    const int64_t step = (n_keys + HEATMAP_COLUMNS - 1) / HEATMAP_COLUMNS;
    const int64_t columns = (n_keys + step - 1) / step;
    float largest = 0;
    for (int64_t i = 0; i < n_rows * n_keys; i++)
        largest = weights[i] > largest ? weights[i] : largest;
    draw_axis(n_keys, columns);
    if (colours)
        draw_colours(weights, n_rows, n_keys, query_step, step, columns, largest);
    else
        draw_characters(weights, n_rows, n_keys, query_step, step, columns, largest);
}
