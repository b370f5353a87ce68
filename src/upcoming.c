/* Keys and values that are needed after a tile.
 *
 * SPDX-License-Identifier: MIT */
#include "upcoming.h"

#include "integers.h"
#include "later.h"

void attn_upcoming_begin(const struct attn_checked *c, enum attn_side side,
                         const struct attn_tokens *tokens, struct attn_upcoming *u) {
    const attn_problem *p = &c->p;
    const int64_t bytes = side == ATTN_KEYS ? p->qk_dim * attn_type_bytes(p->k.type)
                                            : p->v_dim * attn_type_bytes(p->v.type);
    /* The other half is for the other side. */
    const int64_t stay =
        attn_tokens_that_stay(c, side, side == ATTN_KEYS ? p->k.stride_token : p->v.stride_token);
    u->side = side;
    u->n = at_most(tokens->keys.end - tokens->keys.begin, at_least(stay / 2, 1));
    u->tokens = *tokens;
    u->tokens.keys.end = tokens->keys.begin + u->n;
    u->lines_per_token = ceil_div(bytes, ATTN_LINE_BYTES);
    u->lines.left = u->lines.columns = u->lines.lines = 0;
}

/* Tokens without gaps between them are one column of lines. Otherwise each line of a token begins a
 * column of its own. */
static void take_run(const struct attn_checked *c, struct attn_upcoming *u) {
    const attn_problem *p = &c->p;
    const struct attn_tokens *t = &u->tokens;
    const struct attn_run run =
        attn_run_of(c, u->side, t->batch, t->kv_head, t->keys.begin, t->keys.end);
    const attn_type type = u->side == ATTN_KEYS ? p->k.type : p->v.type;
    const int64_t stride = run.stride * attn_type_bytes(type);
    const bool is_dense = stride == u->lines_per_token * ATTN_LINE_BYTES;
    struct attn_later *l = &u->lines;
    l->at = l->column = (uintptr_t)run.at;
    l->step = is_dense ? ATTN_LINE_BYTES : (uintptr_t)stride;
    l->left = (size_t)(is_dense ? run.n * u->lines_per_token : run.n);
    l->columns = is_dense ? 0 : (size_t)u->lines_per_token - 1;
    l->lines = (size_t)run.n;
    u->tokens.keys.begin += run.n;
}

struct attn_later *attn_upcoming_lines(const struct attn_checked *c, struct attn_upcoming *u) {
    if (u->lines.left == 0 && u->tokens.keys.begin < u->tokens.keys.end)
        take_run(c, u);
    return &u->lines;
}

/* Asks for lines until at most so many tokens of them are left. */
static void ask_for_all_but(const struct attn_checked *c, struct attn_upcoming *u, int64_t tokens) {
    const int64_t may_be_left = tokens * u->lines_per_token;
    for (;;) {
        const int64_t lines = (int64_t)later_lines(&u->lines);
        const int64_t left =
            lines + (u->tokens.keys.end - u->tokens.keys.begin) * u->lines_per_token;
        if (left <= may_be_left)
            break;
        later_ask(&u->lines, (size_t)at_most(left - may_be_left, lines));
        attn_upcoming_lines(c, u);
    }
}

void attn_upcoming_share(const struct attn_checked *c, struct attn_upcoming upcoming[2],
                         int64_t done, int64_t n_rows) {
    for (int side = 0; side < 2; side++)
        ask_for_all_but(c, &upcoming[side], upcoming[side].n * (n_rows - done) / n_rows);
}
