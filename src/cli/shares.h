/* Shares of a whole as per cents that add up to 100.0 as they are printed, and their entropy.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_SHARES_H
#define ATTN_SHARES_H

#include <math.h>
#include <stdint.h>

/* What the shares so far add up to; zero at first. */
struct shares {
    double total;
    int shown; /* tenths of a per cent */
};

/* The next share in tenths of a per cent: the difference of two rounded running totals. NaN counts
 * as 0. */
static inline int shares_next(struct shares *s, double share) {
    s->total += isnan(share) ? 0 : share;
    const int tenths = (int)lrint(1000 * fmin(s->total, 1)) - s->shown;
    s->shown += tenths;
    return tenths;
}

/* The tenths of a per cent that are left for the last share. */
static inline int shares_rest(const struct shares *s) { return 1000 - s->shown; }

/* In nats: exp() of it is the number of equal shares that are spread as widely. */
static inline double shares_entropy(const float *weights, int64_t n) {
    double sum = 0;
    for (int64_t j = 0; j < n; j++)
        if (weights[j] > 0)
            sum -= (double)weights[j] * log((double)weights[j]);
    return sum;
}

#endif
