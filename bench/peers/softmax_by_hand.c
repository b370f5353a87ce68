/* What a C programmer writes between two matrix products. Compiled with -O3 -march=native
 * -ffast-math, so that the compiler may use its vector exponential.
 *
 * SPDX-License-Identifier: MIT */
#include <math.h>

#include "peers.h"

void softmax_by_hand(float *scores, const struct shape *s) {
    for (int64_t i = 0; i < s->q_len; i++, scores += s->keys) {
        const int64_t n = keys_of_row(s, i);
        float max = scores[0], sum = 0;
        for (int64_t j = 1; j < n; j++)
            max = scores[j] > max ? scores[j] : max;
        for (int64_t j = 0; j < n; j++) {
            scores[j] = expf(scores[j] - max);
            sum += scores[j];
        }
        const float factor = 1 / sum;
        for (int64_t j = 0; j < n; j++)
            scores[j] *= factor;
        for (int64_t j = n; j < s->keys; j++)
            scores[j] = 0;
    }
}
