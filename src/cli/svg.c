/* Writes pictures as SVG files: shapes, texts and matrices of weights.
 *
 * SPDX-License-Identifier: MIT */
#define _XOPEN_SOURCE 700
#include "svg.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int svg_folder(const char *folder) {
    struct stat status;
    if (mkdir(folder, 0777) == 0)
        return 0;
    const int error = errno;
    if (stat(folder, &status) == 0 && S_ISDIR(status.st_mode))
        return access(folder, W_OK) == 0 ? 0 : cli_fail(-1, "%s: %s", folder, strerror(errno));
    return cli_fail(-1, "%s: %s", folder, strerror(error));
}

void svg_open(struct svg *svg, const char *folder, const char *name, int width, int height,
              const char *title) {
    snprintf(svg->path, sizeof svg->path, "%s/%s.svg", folder, name);
    svg->file = fopen(svg->path, "w");
    if (!svg->file)
        return;
    fprintf(svg->file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "viewBox=\"0 0 %d %d\" font-family=\"Helvetica, Arial, sans-serif\" "
            "font-size=\"13\">\n<title>%s</title>\n",
            width, height, width, height, title);
    svg_rectangle(svg, 0, 0, width, height, "#ffffff");
    fprintf(svg->file, "<text x=\"16\" y=\"27\" font-size=\"16\" fill=\"" SVG_INK "\">%s</text>\n",
            title);
}

int svg_close(struct svg *svg) {
    int failed = !svg->file;
    if (svg->file) {
        fprintf(svg->file, "</svg>\n");
        failed = ferror(svg->file);
        failed |= fclose(svg->file);
    }
    return failed ? cli_fail(-1, "%s: %s", svg->path, strerror(errno)) : 0;
}

void svg_text(struct svg *svg, double x, double y, enum svg_anchor anchor, const char *colour,
              const char *format, ...) {
    static const char *const anchors[] = {"start", "middle", "end"};
    char text[512];
    if (!svg->file)
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(svg->file, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" fill=\"%s\">", x, y,
            anchors[anchor], colour);
    for (const char *c = text; *c; c++) {
        if (*c == '<')
            fputs("&lt;", svg->file);
        else if (*c == '&')
            fputs("&amp;", svg->file);
        else
            fputc(*c, svg->file);
    }
    fprintf(svg->file, "</text>\n");
}

void svg_rectangle(struct svg *svg, double x, double y, double width, double height,
                   const char *colour) {
    if (svg->file)
        fprintf(svg->file,
                "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n", x, y,
                width, height, colour);
}

void svg_line(struct svg *svg, double x1, double y1, double x2, double y2, const char *colour,
              double width) {
    if (svg->file)
        fprintf(svg->file,
                "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" "
                "stroke-width=\"%.1f\"/>\n",
                x1, y1, x2, y2, colour, width);
}

/* Between nearly white and dark blue. */
static void shade(double weight, char colour[8]) {
    static const double pale[] = {238, 242, 247}, dark[] = {8, 64, 129};
    int channel[3];
    for (int i = 0; i < 3; i++)
        channel[i] = (int)(pale[i] + (dark[i] - pale[i]) * weight) & 255;
    snprintf(colour, 8, "#%02x%02x%02x", channel[0], channel[1], channel[2]);
}

void svg_matrix(struct svg *svg, double x, double y, double cell, int n, const char *const *names,
                const float *weights, int hidden) {
    for (int i = 0; i < n; i++) {
        const double middle = y + (i + 0.5) * cell + 4;
        svg_text(svg, x - 6, middle, SVG_RIGHT, SVG_INK, "%s", names[i]);
        svg_text(svg, x + (i + 0.5) * cell, y - 7, SVG_MIDDLE, SVG_INK, "%s", names[i]);
        for (int j = 0; j < n && !(hidden && j > i); j++) {
            const double weight = (double)weights[i * n + j];
            char colour[8];
            shade(weight, colour);
            svg_rectangle(svg, x + j * cell, y + i * cell, cell - 1, cell - 1, colour);
            if (weight >= 0.005)
                svg_text(svg, x + (j + 0.5) * cell, middle, SVG_MIDDLE,
                         weight < 0.45 ? SVG_INK : "#ffffff", "%.0f", 100 * weight);
        }
    }
}
