/* Axes with curves, for pictures in SVG.
 *
 * SPDX-License-Identifier: MIT */
#include <math.h>

#include "svg.h"

/* Where a value lies on an axis: 0 at its low end, 1 at its high end. */
static double place(const struct svg_axis *axis, double value) {
    if (axis->base)
        return log(value / axis->low) / log(axis->high / axis->low);
    return (value - axis->low) / (axis->high - axis->low);
}

static double across(const struct svg_chart *chart, double value) {
    return chart->x + place(&chart->across, value) * chart->width;
}

static double up(const struct svg_chart *chart, double value) {
    return chart->y + (1 - place(&chart->up, value)) * chart->height;
}

static double next_tick(const struct svg_axis *axis, double value) {
    return axis->base ? value * axis->step : value + axis->step;
}

/* Powers of ten beyond what reads well as a number are written as powers. */
static void tick_text(struct svg *svg, double x, double y, enum svg_anchor anchor, double value,
                      int base) {
    if (base == 10 && value > 0 && (value < 1e-3 || value > 1e4) && svg->file)
        fprintf(svg->file,
                "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" fill=\"" SVG_INK
                "\">10<tspan dy=\"-5\" font-size=\"9\">%.0f</tspan></text>\n",
                x, y, anchor == SVG_MIDDLE ? "middle" : "end", log10(value));
    else
        svg_text(svg, x, y, anchor, SVG_INK, "%g", value);
}

void svg_chart_axes(const struct svg_chart *c) {
    const double right = c->x + c->width, bottom = c->y + c->height, slack = 1 + 1e-9;
    for (double t = c->across.low; t <= c->across.high * slack; t = next_tick(&c->across, t)) {
        const double x = across(c, t);
        svg_line(c->svg, x, c->y, x, bottom, SVG_PALE, 1);
        tick_text(c->svg, x, bottom + 18, SVG_MIDDLE, t, c->across.base);
    }
    for (double t = c->up.low; t <= c->up.high * slack; t = next_tick(&c->up, t)) {
        const double y = up(c, t);
        svg_line(c->svg, c->x, y, right, y, SVG_PALE, 1);
        tick_text(c->svg, c->x - 7, y + 4, SVG_RIGHT, t, c->up.base);
    }
    svg_line(c->svg, c->x, bottom, right, bottom, SVG_INK, 1);
    svg_line(c->svg, c->x, c->y, c->x, bottom, SVG_INK, 1);
    svg_text(c->svg, c->x + c->width / 2, bottom + 40, SVG_MIDDLE, SVG_INK, "%s", c->across.label);
    svg_text(c->svg, c->x, c->y - 10, SVG_LEFT, SVG_INK, "%s", c->up.label);
}

static int inside(const struct svg_axis *axis, double value) {
    return value >= axis->low && value <= axis->high;
}

void svg_chart_curve(struct svg_chart *c, const char *name, const char *colour, int n,
                     const double *x, const double *y, const double *error, int measured) {
    FILE *file = c->svg->file;
    if (!file)
        return;
    const double width = measured ? 2 : 1.2;
    const char *const dashes = measured ? "" : " stroke-dasharray=\"5 4\"";
    const double key = c->y + 16 + 19 * c->curves++, left = c->x + c->width + 18;
    fprintf(file, "<path d=\"M%.1f %.1fh24\" stroke=\"%s\" stroke-width=\"%.1f\"%s/>\n<path d=\"",
            left, key - 4, colour, width, dashes);
    int pen = 'M';
    for (int i = 0; i < n; i++) {
        if (!inside(&c->across, x[i]) || !inside(&c->up, y[i]))
            continue;
        fprintf(file, "%c%.1f %.1f", pen, across(c, x[i]), up(c, y[i]));
        pen = 'L';
    }
    if (pen == 'M')
        fprintf(file, "M%.1f %.1f", c->x, c->y);
    fprintf(file, "\" fill=\"none\" stroke=\"%s\" stroke-width=\"%.1f\"%s/>\n", colour, width,
            dashes);
    svg_text(c->svg, left + 30, key, SVG_LEFT, SVG_INK, "%s", name);
    for (int i = 0; i < n && measured; i++) {
        if (!inside(&c->across, x[i]) || !inside(&c->up, y[i]))
            continue;
        const double at = across(c, x[i]);
        if (error)
            svg_line(c->svg, at, up(c, y[i] - error[i]), at, up(c, y[i] + error[i]), colour, 1.5);
        fprintf(file, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"%s\"/>\n", at, up(c, y[i]),
                colour);
    }
}
