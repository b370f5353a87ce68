/* Draws a matrix of weights in the terminal.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_HEATMAP_H
#define ATTN_HEATMAP_H

#include <stdint.h>

/* weights[row * n_keys + key], n_rows sampled query rows, query_step apart; drawn as at most
 * HEATMAP_COLUMNS columns, each the largest weight of its keys, in 256 colours or in plain
 * characters. */
#define HEATMAP_COLUMNS 64
void heatmap_draw(const float *weights, int64_t n_rows, int64_t n_keys, int64_t query_step,
                  int colours);

#endif
