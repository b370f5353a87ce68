/* How calls are timed against each other on a machine whose speed moves.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_PEERS_MEASURE_H
#define ATTN_PEERS_MEASURE_H

#include "peers.h"

enum { MOST_ROUNDS = 2000 };

/* Of one way over all rounds: seconds of a call (of ways[0], their mean over the round), and by how
 * much it took longer than the calls of ways[0] right before and after it. */
struct timed {
    double seconds[MOST_ROUNDS], ratios[MOST_ROUNDS];
};

/* ways[0] is what the others are held against. Rounds of 0, 1, 0, 2, 0, ... until `seconds` are over;
 * returns how many, or 0 where one failed. */
size_t measure(struct way *const *ways, size_t n_ways, double seconds, struct timed *timed);

/* The value below which that part of them lies; sorts them. */
double quantile(double *values, size_t n, double part);

#endif
