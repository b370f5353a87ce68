/* The benchmark program's own options.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_BENCH_OPTIONS_H
#define ATTN_BENCH_OPTIONS_H

extern struct bench_options {
    int all;         /* the whole set */
    const char *isa; /* one kernel set only; null: see bench_kernel_sets() */
    double seconds;  /* of each measurement, bursts of the limit included */
} bench_options;

#endif
