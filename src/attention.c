/* The algorithm: tiled online softmax over fixed spans of keys (after Dao et al., "FlashAttention",
 * 2022, and Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018).
 *
 * A row's result is built from states (acc, m, l) of disjoint key ranges: m the largest score,
 * l = sum exp(s - m), acc = sum exp(s - m) v. The state of no key is acc -0, m -inf, l 0.
 *
 *     for each span of keys that the rows see           fixed cuts: the same for every call
 *         for each tile of the span                     keys packed once, used by all rows
 *             for each block of rows                    scores stay in cache
 *                 scores = scale * Q K^T                qk_packed or qk_strided
 *                 weights = exp(scores - max)           softmax_rows; raises the maximum
 *                 acc = factor * acc + weights V        pv_tile; factor = exp(old max - new max)
 *         merge the span's state into the rows' state   merge_rows
 *     out = acc / l
 *
 * Rows see different keys only through the ranges that visible.c gives; nothing here or in a kernel
 * infers "hidden" from a weight of 0.
 *
 * SPDX-License-Identifier: MIT */
#include "attention.h"

#include <math.h>
#include <string.h>

/* (acc, m, l) of some rows: acc + r * v_stride, m[r], l[r]. */
struct state {
    float *acc, *m, *l;
};

struct job {
    const struct attn_checked *c;
    const struct attn_plan *plan;
    const struct attn_kernels *kernels;
    float *workers; /* scratch, worker_floats for each */
    float *states;  /* where split: a state for each row task and span */
};

/* What one worker works in. */
struct scratch {
    float *packed, *scores;
    struct state run;  /* of all keys so far */
    struct state span; /* of one span */
};

/* The keys of a tile: [begin, end), a multiple of ATTN_SCORE_PAD from the start of their span. */
struct tile {
    int64_t begin, end;
    const float *keys, *values;
    bool is_packed;
    bool is_first; /* of its span: the state has no past */
};

static struct state state_at(const struct job *job, float *base) {
    const size_t rows = job->plan->state_rows;
    const struct state s = {base, base + rows * job->plan->v_stride,
                            base + rows * (job->plan->v_stride + 1)};
    return s;
}

static struct state state_of_row(const struct job *job, struct state s, int64_t r) {
    const struct state at = {s.acc + r * (int64_t)job->plan->v_stride, s.m + r, s.l + r};
    return at;
}

static struct scratch scratch_of(const struct job *job, size_t worker) {
    float *base = job->workers + worker * job->plan->worker_floats;
    struct scratch w = {.packed = base, .scores = base + job->plan->packed_floats};
    float *states = w.scores + job->plan->score_floats;
    w.run = state_at(job, states);
    w.span = state_at(job, states + job->plan->state_floats);
    return w;
}

/* The query head and query row that row r of a block stands for. */
static int64_t head_of(const struct job *job, const struct attn_rows *rows, int64_t r) {
    return rows->kv_head * job->c->group + (rows->first + r) % job->c->group;
}

static int64_t query_of(const struct job *job, const struct attn_rows *rows, int64_t r) {
    return (rows->first + r) / job->c->group;
}

static struct attn_rows row_block(const struct attn_rows *rows, int64_t r) {
    struct attn_rows block = *rows;
    block.first += r;
    block.n = rows->n - r < ATTN_ROW_BLOCK ? rows->n - r : ATTN_ROW_BLOCK;
    return block;
}

static const float *input_row(const attn_input *t, int64_t b, int64_t h, int64_t token) {
    return (const float *)t->data + b * t->stride_batch + h * t->stride_head +
           token * t->stride_token;
}

static float *output_row(const attn_output *t, int64_t b, int64_t h, int64_t token) {
    return (float *)t->data + b * t->stride_batch + h * t->stride_head + token * t->stride_token;
}

/* ---- Which keys a block of rows sees --------------------------------------------------------- */

static struct attn_key_range keys_of_rows(const struct job *job, const struct attn_rows *rows) {
    return attn_visible_to_rows(job->c, rows->batch, query_of(job, rows, 0),
                                query_of(job, rows, rows->n - 1));
}

/* Row ranges relative to the tile's first key. Returns the end of the longest. */
static int64_t ranges_in_tile(const struct job *job, const struct attn_rows *rows,
                              const struct tile *tile, struct attn_visible *visible) {
    const int64_t group = job->c->group;
    int64_t end = 0;
    struct attn_visible now = {0, 0};
    for (int64_t r = 0; r < rows->n; r++) {
        if (r == 0 || (rows->first + r) % group == 0) {
            const struct attn_key_range keys =
                attn_range_clip(attn_visible_keys(job->c, rows->batch, (rows->first + r) / group),
                                tile->begin, tile->end);
            now = (struct attn_visible){0, 0};
            if (keys.begin < keys.end) {
                now.begin = (int32_t)(keys.begin - tile->begin);
                now.end = (int32_t)(keys.end - tile->begin);
            }
            end = now.end > end ? now.end : end;
        }
        visible[r] = now;
    }
    return end;
}

/* ---- One block of rows on one tile ----------------------------------------------------------- */

static void query_rows(const struct job *job, const struct attn_rows *rows, const float **q) {
    for (int64_t r = 0; r < rows->n; r++)
        q[r] = input_row(&job->c->p.q, rows->batch, head_of(job, rows, r), query_of(job, rows, r));
}

/* scores[r * tile_keys + j] for the first n_keys keys of the tile. */
static void score_tile(const struct job *job, const struct scratch *w, const struct attn_rows *rows,
                       const struct tile *tile, int64_t n_keys) {
    const float *q[ATTN_ROW_BLOCK];
    query_rows(job, rows, q);
    const attn_problem *p = &job->c->p;
    const size_t stride = job->plan->score_stride;
    if (tile->is_packed)
        job->kernels->qk_packed(q, (size_t)rows->n, w->packed, (size_t)n_keys, (size_t)p->qk_dim,
                                job->c->scale, w->scores, stride);
    else
        job->kernels->qk_strided(q, (size_t)rows->n, tile->keys, p->k.stride_token, (size_t)n_keys,
                                 (size_t)p->qk_dim, job->c->scale, w->scores, stride);
}

/* Adds the tile to the state of at most ATTN_ROW_BLOCK rows. */
static void attend_tile(const struct job *job, const struct scratch *w,
                        const struct attn_rows *rows, const struct tile *tile, struct state state) {
    const size_t n = (size_t)rows->n, stride = job->plan->score_stride;
    struct attn_visible visible[ATTN_ROW_BLOCK];
    float factor[ATTN_ROW_BLOCK];
    if (tile->is_first)
        for (size_t r = 0; r < n; r++)
            state.m[r] = -INFINITY, state.l[r] = 0;
    const int64_t n_keys = ranges_in_tile(job, rows, tile, visible);
    if (n_keys == 0 && !tile->is_first)
        return;
    if (n_keys > 0) {
        score_tile(job, w, rows, tile, n_keys);
        /* Softcap, ALiBi and additive masks belong here: they change scores. */
        job->kernels->softmax_rows(w->scores, stride, n, visible, state.m, state.l, factor);
    }
    job->kernels->pv_tile(w->scores, stride, visible, n, tile->values, job->c->p.v.stride_token,
                          (size_t)job->c->p.v_dim, tile->is_first ? NULL : factor, state.acc,
                          job->plan->v_stride);
}

/* ---- A task's rows on one span --------------------------------------------------------------- */

/* The tile that begins at `begin`, cut to what the rows see, packed if that pays. */
static struct tile prepare_tile(const struct job *job, const struct scratch *w,
                                const struct attn_rows *rows, int64_t begin,
                                struct attn_key_range seen) {
    const attn_problem *p = &job->c->p;
    seen = attn_range_clip(seen, begin, begin + job->plan->tile_keys);
    struct tile tile = {.begin = begin + (seen.begin - begin) / ATTN_SCORE_PAD * ATTN_SCORE_PAD,
                        .end = seen.end};
    tile.keys = input_row(&p->k, rows->batch, rows->kv_head, tile.begin);
    tile.values = input_row(&p->v, rows->batch, rows->kv_head, tile.begin);
    tile.is_packed = (size_t)rows->n >= job->kernels->pack_min_rows;
    if (tile.is_packed)
        job->kernels->pack_keys(tile.keys, p->k.stride_token, (size_t)(tile.end - tile.begin),
                                (size_t)p->qk_dim, w->packed);
    return tile;
}

/* Asks for part `part` of `parts` of the keys and values of the tile that begins at `begin`, so
 * that they are in the second-level cache when that tile's turn comes: packing and the first block
 * of rows would otherwise wait for memory. */
static void prefetch_tile(const struct job *job, const struct attn_rows *rows, int64_t begin,
                          struct attn_key_range seen, int64_t part, int64_t parts) {
#if defined(__GNUC__)
    enum { LINE = 64 / sizeof(float) };
    const attn_problem *p = &job->c->p;
    const struct attn_key_range keys = attn_range_clip(seen, begin, begin + job->plan->tile_keys);
    const int64_t n = keys.end - keys.begin;
    for (int64_t j = n * part / parts; j < n * (part + 1) / parts; j++) {
        const float *k = input_row(&p->k, rows->batch, rows->kv_head, keys.begin + j);
        const float *v = input_row(&p->v, rows->batch, rows->kv_head, keys.begin + j);
        for (int64_t c = 0; c < p->qk_dim; c += LINE)
            __builtin_prefetch(k + c, 0, 2);
        for (int64_t c = 0; c < p->v_dim; c += LINE)
            __builtin_prefetch(v + c, 0, 2);
        __asm__ volatile(""); /* gcc 12 drops a function that does nothing but prefetch */
    }
#endif
}

/* Computes the state of the rows over one span into `state`, every row of it. If `into` is not
 * null, each block of rows is merged into it as soon as its span is complete; where the span is a
 * single tile, `state` then holds one block after the other in the same, cached place. */
static void attend_span(const struct job *job, const struct scratch *w,
                        const struct attn_rows *rows, struct attn_key_range span,
                        struct attn_key_range all, struct state state, const struct state *into) {
    const int64_t tile_keys = job->plan->tile_keys;
    const struct attn_key_range seen = attn_range_clip(all, span.begin, span.end);
    const int64_t first = span.begin + (seen.begin - span.begin) / tile_keys * tile_keys;
    const bool single = seen.end - first <= tile_keys;
    for (int64_t begin = first; begin < seen.end; begin += tile_keys) {
        struct tile tile = prepare_tile(job, w, rows, begin, seen);
        tile.is_first = begin == first;
        for (int64_t r = 0; r < rows->n; r += ATTN_ROW_BLOCK) {
            const struct attn_rows block = row_block(rows, r);
            if (tile.is_packed)
                prefetch_tile(job, rows, begin + tile_keys, all, r / ATTN_ROW_BLOCK,
                              (rows->n + ATTN_ROW_BLOCK - 1) / ATTN_ROW_BLOCK);
            const struct state at = state_of_row(job, state, into && single ? 0 : r);
            if (into) { /* a block that sees nothing of the span leaves the merged state alone */
                const struct attn_key_range keys =
                    attn_range_clip(keys_of_rows(job, &block), span.begin, span.end);
                if (keys.begin >= keys.end)
                    continue;
            }
            attend_tile(job, w, &block, &tile, at);
            if (into && begin + tile_keys >= seen.end) {
                const struct state to = state_of_row(job, *into, r);
                job->kernels->merge_rows((size_t)block.n, (size_t)job->c->p.v_dim, to.acc, to.m,
                                         to.l, at.acc, at.m, at.l, job->plan->v_stride);
            }
        }
    }
}

static void set_unseen(const struct job *job, const struct attn_rows *rows, struct state state) {
    for (int64_t r = 0; r < rows->n; r++)
        state.m[r] = -INFINITY, state.l[r] = 0;
    for (int64_t i = 0; i < rows->n * (int64_t)job->plan->v_stride; i++)
        state.acc[i] = -0.0f;
}

/* ---- Outputs --------------------------------------------------------------------------------- */

static void write_rows(const struct job *job, const struct attn_rows *rows, struct state state) {
    const attn_problem *p = &job->c->p;
    for (int64_t r = 0; r < rows->n; r++) {
        const int64_t h = head_of(job, rows, r), i = query_of(job, rows, r);
        const struct state at = state_of_row(job, state, r);
        const float l = *at.l;
        float *out = output_row(&p->out, rows->batch, h, i);
        if (l > 0)
            job->kernels->scale_row(at.acc, 1 / l, (size_t)p->v_dim, out);
        else /* l is 0 where no key, or none above -inf, was seen, whatever the values hold */
            for (int64_t c = 0; c < p->v_dim; c++)
                out[c] = l == 0 ? 0 : NAN;
        if (p->lse.data)
            *output_row(&p->lse, rows->batch, h, i) = l > 0    ? *at.m + logf(l)
                                                      : l == 0 ? -INFINITY
                                                               : NAN;
    }
}

/* The weights of a block of rows on one tile: the scores again, the same bits as before, and now
 * that the final m and l are known, exp(s - m) / l. */
static void write_weights_of_tile(const struct job *job, const struct scratch *w,
                                  const struct attn_rows *rows, const struct tile *tile,
                                  struct state state) {
    const attn_problem *p = &job->c->p;
    const size_t stride = job->plan->score_stride;
    struct attn_visible visible[ATTN_ROW_BLOCK];
    float m[ATTN_ROW_BLOCK], l[ATTN_ROW_BLOCK] = {0}, factor[ATTN_ROW_BLOCK];
    const int64_t n_keys = ranges_in_tile(job, rows, tile, visible);
    if (n_keys > 0) {
        score_tile(job, w, rows, tile, n_keys);
        memcpy(m, state.m, (size_t)rows->n * sizeof *m);
        job->kernels->softmax_rows(w->scores, stride, (size_t)rows->n, visible, m, l, factor);
    }
    for (int64_t r = 0; r < rows->n; r++) {
        float *out =
            output_row(&p->weights, rows->batch, head_of(job, rows, r), query_of(job, rows, r));
        if (visible[r].begin < visible[r].end)
            job->kernels->scale_row(w->scores + (size_t)r * stride + visible[r].begin,
                                    state.l[r] == 0 ? 0 : 1 / state.l[r],
                                    (size_t)(visible[r].end - visible[r].begin),
                                    out + tile->begin + visible[r].begin);
    }
}

static void write_weights(const struct job *job, const struct scratch *w,
                          const struct attn_rows *rows, struct attn_key_range seen,
                          struct state state) {
    const attn_problem *p = &job->c->p;
    for (int64_t r = 0; r < rows->n; r++) {
        float *out =
            output_row(&p->weights, rows->batch, head_of(job, rows, r), query_of(job, rows, r));
        for (int64_t j = 0; j < p->kv_cap; j++)
            out[j] = 0;
    }
    const int64_t tile_keys = job->plan->tile_keys;
    for (int64_t begin = seen.begin / tile_keys * tile_keys; begin < seen.end; begin += tile_keys) {
        const struct tile tile = prepare_tile(job, w, rows, begin, seen);
        for (int64_t r = 0; r < rows->n; r += ATTN_ROW_BLOCK) {
            const struct attn_rows block = row_block(rows, r);
            write_weights_of_tile(job, w, &block, &tile, state_of_row(job, state, r));
        }
    }
}

static void write_outputs(const struct job *job, const struct scratch *w,
                          const struct attn_rows *rows, struct attn_key_range seen,
                          struct state state) {
    write_rows(job, rows, state);
    if (job->c->p.weights.data)
        write_weights(job, w, rows, seen, state);
}

/* ---- Tasks ----------------------------------------------------------------------------------- */

/* All spans of a row task, one after the other. */
static void attend_rows(void *arg, size_t index, size_t worker) {
    const struct job *job = arg;
    const struct scratch w = scratch_of(job, worker);
    const struct attn_rows rows = attn_plan_rows(job->c, job->plan, (int64_t)index);
    const struct attn_key_range seen = keys_of_rows(job, &rows);
    if (seen.begin >= seen.end) {
        set_unseen(job, &rows, w.run);
    } else {
        const int64_t first = attn_span_of(seen.begin), last = attn_span_of(seen.end - 1);
        attend_span(job, &w, &rows, attn_span(first), seen, w.run, NULL);
        for (int64_t s = first + 1; s <= last; s++)
            attend_span(job, &w, &rows, attn_span(s), seen, w.span, &w.run);
    }
    write_outputs(job, &w, &rows, seen, w.run);
}

static struct state split_state(const struct job *job, int64_t row_task, int64_t span) {
    const size_t slot = (size_t)(row_task * job->plan->spans + span);
    return state_at(job, job->states + slot * job->plan->state_floats);
}

/* Where split, round one: one span of a row task. */
static void attend_one_span(void *arg, size_t index, size_t worker) {
    const struct job *job = arg;
    const struct scratch w = scratch_of(job, worker);
    const int64_t row_task = (int64_t)index / job->plan->spans;
    const int64_t s = (int64_t)index % job->plan->spans;
    const struct attn_rows rows = attn_plan_rows(job->c, job->plan, row_task);
    const struct attn_key_range seen = keys_of_rows(job, &rows);
    const struct attn_key_range here = attn_range_clip(seen, attn_span(s).begin, attn_span(s).end);
    if (here.begin < here.end)
        attend_span(job, &w, &rows, attn_span(s), seen, split_state(job, row_task, s), NULL);
}

/* Where split, round two: the spans of a row task, merged left to right. */
static void merge_spans(void *arg, size_t index, size_t worker) {
    const struct job *job = arg;
    const struct scratch w = scratch_of(job, worker);
    const struct attn_rows rows = attn_plan_rows(job->c, job->plan, (int64_t)index);
    const struct attn_key_range seen = keys_of_rows(job, &rows);
    struct state run = w.run;
    if (seen.begin >= seen.end) {
        set_unseen(job, &rows, run);
    } else {
        const int64_t first = attn_span_of(seen.begin), last = attn_span_of(seen.end - 1);
        run = split_state(job, (int64_t)index, first);
        for (int64_t s = first + 1; s <= last; s++) {
            const struct state next = split_state(job, (int64_t)index, s);
            job->kernels->merge_rows((size_t)rows.n, (size_t)job->c->p.v_dim, run.acc, run.m, run.l,
                                     next.acc, next.m, next.l, job->plan->v_stride);
        }
    }
    write_outputs(job, &w, &rows, seen, run);
}

static void run_here(size_t n_tasks, attn_task task, void *arg) {
    for (size_t i = 0; i < n_tasks; i++)
        task(arg, i, 0);
}

static void run(attn_executor *executor, size_t n_tasks, attn_task task, void *arg) {
    if (executor)
        executor->run(executor, n_tasks, task, arg);
    else
        run_here(n_tasks, task, arg);
}

void attn_attend(const struct attn_checked *c, const struct attn_plan *plan,
                 const struct attn_kernels *kernels, void *workspace, attn_executor *executor) {
    const size_t n_workers = executor ? executor->n_workers : 1;
    float *base = (float *)(((uintptr_t)workspace + 63) & ~(uintptr_t)63);
    struct job job = {c, plan, kernels, base, base + n_workers * plan->worker_floats};
    if (plan->split) {
        run(executor, (size_t)(plan->row_tasks * plan->spans), attend_one_span, &job);
        run(executor, (size_t)plan->row_tasks, merge_spans, &job);
    } else {
        run(executor, (size_t)plan->row_tasks, attend_rows, &job);
    }
}
