/* From complete sums of a block of rows to its outputs.
 *
 * SPDX-License-Identifier: MIT */
#include "finish.h"

#include <math.h>

#include "storage.h"

void attn_set_unseen(const struct attn_job *job, int64_t n_rows, const struct attn_state *state) {
    for (int64_t r = 0; r < n_rows; r++)
        state->m[r] = -INFINITY, state->l[r] = 0;
    for (int64_t i = 0; i < n_rows * (int64_t)job->plan->v_stride; i++)
        state->acc[i] = -0.0f;
}

/* A sink is the last state of a row: m = sink, l = 1, acc = 0. sinks: room for the states of a
 * block. */
static void merge_sinks(const struct attn_job *job, const struct attn_rows *block,
                        const struct attn_state *state, const struct attn_state *sinks) {
    attn_set_unseen(job, block->n, sinks);
    struct attn_row row = attn_first_row(job, block);
    for (int64_t r = 0; r < block->n; r++, attn_next_row(job, &row)) {
        if (job->c->p.sinks[row.head] == -INFINITY)
            continue;
        const struct attn_state sink = attn_state_of_row(job, *sinks, r);
        const struct attn_state of_row = attn_state_of_row(job, *state, r);
        *sink.m = job->c->p.sinks[row.head], *sink.l = 1;
        for (int64_t c = 0; c < job->c->p.v_dim; c++)
            sink.acc[c] = 0;
        if (*of_row.l == 0) /* no key, or none above -inf, was seen, whatever the values hold */
            attn_set_unseen(job, 1, &of_row);
    }
    job->kernels->merge_rows((size_t)block->n, (size_t)job->c->p.v_dim, state->acc, state->m,
                             state->l, sinks->acc, sinks->m, sinks->l, job->plan->v_stride);
}

void attn_write_lse(const struct attn_job *job, const struct attn_rows *block,
                    const struct attn_state *state) {
    struct attn_row row = attn_first_row(job, block);
    for (int64_t r = 0; r < block->n; r++, attn_next_row(job, &row)) {
        const float m = state->m[r], l = state->l[r];
        *attn_output_row(job, &job->c->p.lse, &row) = l > 0    ? m + logf(l)
                                                      : l == 0 ? -INFINITY
                                                               : NAN;
    }
}

/* Where the rows of a block have their f32 outputs. */
void attn_find_outputs(const struct attn_job *job, const struct attn_rows *block, float **out) {
    ATTN_FIND_ROWS(float, job, block, &job->c->p.out, out);
}

/* Where they have their sums. */
void attn_find_sums(const struct attn_job *job, const struct attn_rows *block,
                    const struct attn_state *state, float **out) {
    for (int64_t r = 0; r < block->n; r++)
        out[r] = state->acc + r * (int64_t)job->plan->v_stride;
}

void attn_fill_unseen(size_t n, const float *l, int64_t v_dim, float *const *out) {
    for (size_t r = 0; r < n; r++)
        for (int64_t c = 0; !(l[r] > 0) && c < v_dim; c++)
            out[r][c] = l[r] == 0 ? 0 : NAN;
}

/* Merges the sinks into the complete state of a block, and writes its out and lse. */
void attn_finish_block(const struct attn_job *job, const struct attn_rows *block,
                       const struct attn_state *state, const struct attn_state *sinks) {
    const attn_output *t = &job->c->p.out;
    const int64_t v_dim = job->c->p.v_dim;
    const size_t n = (size_t)block->n;
    const bool is_f32 = t->type == ATTN_F32;
    float factor[ATTN_ROW_BLOCK], *out[ATTN_ROW_BLOCK];
    if (job->c->p.sinks)
        merge_sinks(job, block, state, sinks);
    const bool all_saw = job->kernels->finish_factors(n, state->l, factor);
    if (is_f32)
        attn_find_outputs(job, block, out);
    else
        attn_find_sums(job, block, state, out);
    job->kernels->scale_rows(n, state->acc, job->plan->v_stride, factor, (size_t)v_dim, out);
    if (!all_saw)
        attn_fill_unseen(n, state->l, v_dim, out);
    struct attn_places place = attn_first_place_in(job, block, t);
    for (int64_t r = 0; !is_f32 && r < block->n; r++, attn_next_place(&place))
        attn_narrow_row(t->type, job->kernels, out[r], v_dim, (uint16_t *)t->data + place.at);
    if (job->c->p.lse.data)
        attn_write_lse(job, block, state);
}
