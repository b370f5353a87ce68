/* How a kernel asks for what comes later, struct attn_later of kernels.h, while it computes.
 *
 * Memory answers at its own pace, and a core can wait for some dozens of lines at a time: asked for in
 * one go they hold everything up, and spread over the turns of a register block's inner loop they cost
 * nothing.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_LATER_H
#define ATTN_LATER_H

#include "kernels.h"
#include "unroll.h"

/* Lines asked for in a turn: what packed keys and their values take of memory in the time of 36 rows,
 * and few enough not to be in the way of what the loop loads. */
enum { LINES_OF_A_TURN = 2 };

/* Into the second level. */
#if defined(__GNUC__)
#define ASK_FOR_LINE(at) __builtin_prefetch((const void *)(at), 0, 2)
#else
#define ASK_FOR_LINE(at) ((void)(at))
#endif

/* What a loop asks for next. */
struct asking {
    uintptr_t at, step;
};

static inline size_t later_lines(const struct attn_later *a) {
    return a->left + a->columns * a->lines;
}

/* From a column that is through to the next one. */
static inline void later_next_column(struct attn_later *a) {
    if (a->left == 0 && a->columns > 0) {
        a->column += ATTN_LINE_BYTES;
        a->at = a->column;
        a->left = a->lines, a->columns--;
    }
}

/* Asks for n lines at once, or for all there are. */
static inline void later_ask(struct attn_later *a, size_t n) {
    for (; n > 0 && a->left > 0; n--) {
        ASK_FOR_LINE(a->at);
        a->at += a->step;
        a->left--;
        later_next_column(a);
    }
}

/* What so many turns of a loop are to ask for. Where less is left of a column, that is asked for at
 * once; then and where a is null the loop asks for `here` in every turn, which is in a cache. */
static inline struct asking later_of_turns(struct attn_later *a, size_t turns, const void *here) {
    const size_t n = turns * LINES_OF_A_TURN;
    struct asking asking = {(uintptr_t)here, 0};
    if (!a || a->left == 0)
        return asking;
    if (a->left < n) {
        later_ask(a, a->left);
        return asking;
    }
    asking.at = a->at, asking.step = a->step;
    a->at += n * a->step;
    a->left -= n;
    later_next_column(a);
    return asking;
}

/* One turn. */
ALWAYS_INLINE void ask_later(struct asking *asking) {
    UNROLL
    for (size_t i = 0; i < LINES_OF_A_TURN; i++)
        ASK_FOR_LINE(asking->at + i * asking->step);
    asking->at += LINES_OF_A_TURN * asking->step;
}

#endif
