/* Times work as a fraction of what the machine can do: every short burst of calls stands between
 * two bursts of the limit in the same process, because a shared machine's clock moves.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_MEASURE_H
#define ATTN_MEASURE_H

#include <stddef.h>

#include "loops.h"

/* Something that can be called again and again, and how much it does each time, in whatever unit
 * the limit counts in as well. */
struct work {
    void (*call)(void *arg);
    void *arg;
    double amount;
};

enum measure_clock {
    MEASURE_CPU, /* of this thread alone: what else runs on its core does not count */
    MEASURE_WALL /* for work on several threads */
};

/* What work is held against: other work. */
#define LIMIT_MAX_WAYS 3
struct limit {
    struct work ways[LIMIT_MAX_WAYS]; /* to do the same */
    size_t n_ways;
    /* 1: the best burst of all ways, before and after, counts, for a limit that can only be
     * underestimated; 0: the mean of one before and one after. */
    int best;
    /* What the limits below need to remember. */
    struct loop_call {
        const struct loops *loops;
        const float *data[2];
        size_t n[2], ahead;
    } calls[LIMIT_MAX_WAYS];
};

/* The limits of a core. A struct limit stays where it is while it is in use. */
void limit_multiply_add(struct limit *limit, const struct loops *loops); /* operations */
void limit_dot_bf16(struct limit *limit, const struct loops *loops);
void limit_dot_i8(struct limit *limit, const struct loops *loops);
/* Bytes of reading two buffers of floats once (the second may be empty): the best of a plain loop
 * and of two that prefetch. */
void limit_read(struct limit *limit, const struct loops *loops, const float *a, size_t n_a,
                const float *b, size_t n_b);
/* Other work. */
void limit_work(struct limit *limit, const struct work *work);

/* The loops of that name, null if there are none. */
const struct loops *loops_of(const char *isa);

/* Whether this CPU has the instruction of the dot product, given that it can run the set. */
int loops_have_dot_bf16(const struct loops *loops);
int loops_have_dot_i8(const struct loops *loops);

struct measure_settings {
    enum measure_clock clock;
    double seconds;       /* bursts go on until this is over, on the clock above */
    double burst_seconds; /* a burst is as many calls as this takes; at least one */
    int min_bursts;       /* even where that takes longer */
};

/* 2 ms of burst: so short that the clock is still that of the burst before or after it. */
extern const struct measure_settings measure_defaults;

struct measured {
    double seconds;          /* of a call: median */
    double rate;             /* amount / seconds */
    double limit;            /* rate of the limit: median */
    double ratio, low, high; /* of the two rates in a burst: median, 10 % and 90 % */
    int bursts;
};

/* A first burst of each warms up and does not count. */
void measure(const struct work *work, const struct limit *limit,
             const struct measure_settings *settings, struct measured *measured);

/* The same with other work as the limit, as a ratio of the times of one call: above 1, work takes
 * longer. The amounts do not count. */
void measure_cost(const struct work *work, const struct work *other,
                  const struct measure_settings *settings, struct measured *measured);

/* The limit by itself: its median rate where it is a mean, otherwise its best. */
double measure_limit(const struct limit *limit, const struct measure_settings *settings);

double measure_now(enum measure_clock clock);

/* Results go here, so that what computes them has to be kept. */
extern float measure_sink;

#endif
