/* The algorithm: tiled online softmax over fixed spans of keys (after Dao et al., "FlashAttention",
 * 2022, and Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018).
 *
 * A row's result is built from states (acc, m, l) of disjoint key ranges: m the largest score,
 * l = sum exp(s - m), acc = sum exp(s - m) v. The state of no key is acc -0, m -inf, l 0.
 *
 *     for each span of keys that the rows see           fixed cuts: the same for every call
 *         for each tile of the span                     keys packed once, used by all rows
 *             for each block of rows                    scores stay in cache
 *                 scores = scale * Q K^T                attn_tile_scores
 *                 softcap, ALiBi, additive mask         attn_tile_cap, attn_tile_bias
 *                 weights = exp(scores - max)           softmax_rows; raises the maximum
 *                 acc = factor * acc + weights V        attn_tile_values;
 *                                                       factor = exp(old max - new max)
 *         merge the span's state into the rows' state   merge_rows
 *     merge the sink
 *     out = acc / l
 *
 * Rows see different keys only through attn_tile_see; nothing here or in a kernel infers "hidden"
 * from a weight of 0.
 *
 * SPDX-License-Identifier: MIT */
#include "attention.h"

#include "finish.h"
#include "inspect.h"
#include "one_tile.h"
#include "storage.h"
#include "tile.h"
#include "unroll.h"
#include "upcoming.h"

/* ---- One block of rows on one tile ----------------------------------------------------------- */

/* Weights of the tile in w->scores, in place of scores; m and l of the block's state are raised and
 * factor[r] is what its sums have to be multiplied by, or they are begun where factor is null. False
 * if no row sees any key. */
static bool weigh_tile(const struct attn_job *job, const struct attn_scratch *w,
                       const struct attn_rows *rows, const struct attn_rows *block,
                       struct attn_tile *tile, const struct attn_state *state,
                       struct attn_sight *sight, float *factor) {
    attn_tile_see(job, w, block, tile, sight);
    if (sight->begin >= sight->end)
        return false;
    if (!tile->is_ready)
        attn_tile_make_ready(job, w, rows, tile);
    const int64_t begin = sight->begin / ATTN_SCORE_PAD * ATTN_SCORE_PAD;
    attn_tile_scores(job, w, block, tile, begin, sight->end);
    attn_tile_cap(job, w, block, begin, sight->end);
    attn_tile_bias(job, w, block, tile, sight, begin, sight->end);
    job->kernels->softmax_rows(w->scores, job->plan->score_stride, (size_t)block->n, sight->visible,
                               state->m, state->l, factor);
    return true;
}

/* Asks for the part of the mask that a block of rows meets on the tile of keys [begin, end). */
static void prefetch_mask(const struct attn_job *job, const struct attn_rows *block, int64_t begin,
                          int64_t end) {
#if defined(__GNUC__)
    static const int64_t bits_of_element[] = {0, 8, 32, 16, 1};
    const attn_mask *mask = &job->c->p.mask;
    const bool is_bits = mask->type == ATTN_MASK_BITS;
    if (mask->type == ATTN_MASK_NONE || (mask->stride_key != 1 && !is_bits))
        return;
    const int64_t covered = end < mask->n_keys ? end : mask->n_keys;
    const int64_t bytes = ((covered - begin) * bits_of_element[mask->type] + 7) / 8;
    const void *last = NULL;
    struct attn_row row = attn_first_row(job, block);
    for (int64_t r = 0; r < block->n; r++, attn_next_row(job, &row)) {
        const char *at = attn_mask_row(job->c, row.batch, row.head, row.query, begin);
        for (int64_t i = 0; at != last && i < bytes; i += 64)
            __builtin_prefetch(at + i, 0, 3);
        last = at;
        __asm__ volatile("");
    }
#endif
}

/* Asks for the output of a block, which would otherwise wait for memory when it is written. */
static void prefetch_output(const struct attn_job *job, const struct attn_rows *block) {
#if defined(__GNUC__)
    const attn_output *out = &job->c->p.out;
    const int64_t width = attn_type_bytes(out->type);
    struct attn_places place = attn_first_place_in(job, block, out);
    for (int64_t r = 0; r < block->n; r++, attn_next_place(&place)) {
        const char *at = (const char *)out->data + place.at * width;
        for (int64_t i = 0; i < job->c->p.v_dim * width; i += 64)
            __builtin_prefetch(at + i, 1, 2);
        __asm__ volatile("");
    }
#endif
}

/* ---- The last tile of a span ----------------------------------------------------------------- */

/* The values of the last tile of a span whose state is `own` so far. On their way into memory the sums
 * join those of earlier spans, in `run` (`own` itself where there are none), and where no later span
 * is seen they become the output, if it can be written so: that is returned. */
static bool end_span(const struct attn_job *job, const struct attn_scratch *w,
                     const struct attn_rows *block, const struct attn_tile *tile,
                     const struct attn_sight *sight, const float *rescale,
                     const struct attn_state *own, const struct attn_state *run, bool is_finished) {
    float keep[ATTN_ROW_BLOCK], add[ATTN_ROW_BLOCK], factor[ATTN_ROW_BLOCK], *out[ATTN_ROW_BLOCK];
    const attn_output *t = &job->c->p.out;
    const bool merges = own != run;
    if (merges)
        job->kernels->merge_factors((size_t)block->n, run->m, run->l, own->m, own->l, keep, add);
    const bool is_output = is_finished && t->type == ATTN_F32 && !job->c->p.sinks &&
                           job->kernels->finish_factors((size_t)block->n, run->l, factor);
    const float *const finish = is_output ? factor : attn_factors_one;
    if (is_output)
        attn_find_outputs(job, block, out);
    else
        attn_find_sums(job, block, run, out);
    const struct attn_ending ending = {merges ? run->acc : NULL, keep, add, finish, out};
    attn_tile_end_values(job, w, block, tile, sight, rescale, own->acc, &ending);
    if (is_output && job->c->p.lse.data)
        attn_write_lse(job, block, run);
    return is_output;
}

/* ---- A task's rows on one span --------------------------------------------------------------- */

/* The outputs of so few rows are in cache already. */
enum { FEW_ROWS = 128 };

/* One block of rows on the tile of nominal keys [begin, begin + tile_keys) of a span. The block's
 * first span goes straight into w->run, later ones into w->span and from there into w->run, with
 * its last tile the block is finished. Where `split` is not null, it gets the span's state instead
 * and nothing is finished. False if the tile has no key that the block might see. */
static bool attend_block(const struct attn_job *job, const struct attn_scratch *w,
                         const struct attn_rows *rows, const struct attn_rows *block,
                         const struct attn_key_range *span, int64_t begin, struct attn_tile *tile,
                         const struct attn_state *split) {
    const int64_t tile_keys = job->plan->tile_keys, r = block->first - rows->first;
    const struct attn_key_range keys = attn_range_clip(block->keys, span->begin, span->end);
    if (keys.begin >= begin + tile_keys || keys.end <= begin || keys.begin >= keys.end)
        return false;
    const bool is_direct = split || block->keys.begin >= span->begin;
    /* Spans of a single tile need no place for more than one block at a time, and a small one
     * stays in cache. */
    const int64_t slot = span->end - span->begin <= tile_keys ? 0 : r;
    const struct attn_state run = attn_state_of_row(job, split ? *split : w->run, r);
    const struct attn_state in_span = attn_state_of_row(job, w->span, slot);
    const struct attn_state *const own = is_direct ? &run : &in_span;
    const bool is_first = keys.begin >= begin;
    const bool is_last = !split && keys.end <= begin + tile_keys;
    const bool is_finished = is_last && block->keys.end <= span->end;
    if (is_finished && rows->n > FEW_ROWS)
        prefetch_output(job, block);
    struct attn_sight sight;
    float factor[ATTN_ROW_BLOCK], *const rescale = is_first ? NULL : factor;
    const bool sees = weigh_tile(job, w, rows, block, tile, own, &sight, rescale);
    if (sees && is_last && (is_finished || !is_direct) && attn_tile_can_end(job, tile)) {
        if (end_span(job, w, block, tile, &sight, rescale, own, &run, is_finished))
            return true;
    } else {
        if (sees)
            attn_tile_values(job, w, block, tile, &sight, rescale, own->acc);
        else if (is_first)
            attn_set_unseen(job, block->n, own);
        if (is_last && !is_direct)
            job->kernels->merge_rows((size_t)block->n, (size_t)job->c->p.v_dim, run.acc, run.m,
                                     run.l, own->acc, own->m, own->l, job->plan->v_stride);
    }
    if (is_finished)
        attn_finish_block(job, block, &run, &in_span);
    return true;
}

/* The keys that a worker needs after the tile of nominal keys [begin, begin + tile_keys) of its rows:
 * `next` or, if that is empty, those of the first tile of the rows `then`, if not null. */
static struct attn_tokens needed_later(const struct attn_job *job, const struct attn_rows *rows,
                                       int64_t begin, struct attn_key_range next,
                                       const struct attn_rows *then) {
    struct attn_tokens tokens = {rows->batch, rows->kv_head, next};
    if (next.begin < next.end || !then)
        return tokens;
    const int64_t tile_keys = job->plan->tile_keys, first = then->keys.begin & -tile_keys;
    if (then->kv_head == rows->kv_head && then->batch == rows->batch && first == begin)
        return tokens; /* it is this tile */
    tokens.batch = then->batch, tokens.kv_head = then->kv_head;
    tokens.keys = attn_range_clip(then->keys, first, first + tile_keys);
    return tokens;
}

/* then: the rows that this worker attends next, or null. */
static void attend_span(const struct attn_job *job, const struct attn_scratch *w,
                        const struct attn_rows *rows, int64_t s, const struct attn_state *split,
                        const struct attn_rows *then) {
    const int64_t tile_keys = job->plan->tile_keys; /* a power of two */
    const struct attn_key_range span = attn_span(s);
    const struct attn_key_range seen = attn_range_clip(rows->keys, span.begin, span.end);
    const struct attn_key_range ours = split ? seen : rows->keys; /* of this worker, one by one */
    const bool packs = attn_packs(job, rows);
    for (int64_t begin = span.begin + ((seen.begin - span.begin) & -tile_keys); begin < seen.end;
         begin += tile_keys) {
        const struct attn_key_range here = attn_range_clip(seen, begin, begin + tile_keys);
        const struct attn_key_range next =
            attn_range_clip(ours, begin + tile_keys, begin + 2 * tile_keys);
        struct attn_tile tile;
        attn_tile_begin(job, rows, begin + ((here.begin - begin) & -ATTN_SCORE_PAD), here.end,
                        next.end, &tile);
        /* Packing and the first block of rows would otherwise wait for memory. */
        struct attn_upcoming upcoming[2];
        if (packs) {
            const struct attn_tokens later = needed_later(job, rows, begin, next, then);
            if (later.keys.begin < later.keys.end) {
                attn_upcoming_begin(job->c, ATTN_KEYS, &later, &upcoming[ATTN_KEYS]);
                attn_upcoming_begin(job->c, ATTN_VALUES, &later, &upcoming[ATTN_VALUES]);
                tile.upcoming = upcoming;
            }
        }
        int64_t idle = 0; /* rows up to the first ones that see a key of the tile */
        for (int64_t r = 0; r < rows->n;) {
            const struct attn_rows block = attn_row_block(job, rows, r);
            r += block.n;
            if (r < rows->n && job->c->p.mask.type != ATTN_MASK_NONE) {
                const struct attn_rows following = attn_row_block(job, rows, r);
                prefetch_mask(job, &following, tile.begin, tile.end);
            }
            const bool meets = attend_block(job, w, rows, &block, &span, begin, &tile, split);
            if (!meets && idle == r - block.n && r < rows->n)
                idle = r;
            else if (tile.upcoming)
                attn_upcoming_share(job->c, upcoming, r - idle, rows->n - idle);
        }
    }
}

/* ---- Tasks ----------------------------------------------------------------------------------- */

static void inspect(const struct attn_job *job, const struct attn_scratch *w,
                    const struct attn_rows *rows, const struct attn_state *state) {
    if (job->c->p.weights.data || job->c->p.scores.data)
        attn_inspect(job, w, rows, *state);
}

/* Blocks that see no key at all, which no span will meet. Both ends of a row's range grow with the
 * row: if the first row and the last one see something, every row does. */
static void finish_blind_blocks(const struct attn_job *job, const struct attn_scratch *w,
                                const struct attn_rows *rows) {
    for (int64_t r = 0; r < rows->n;) {
        const struct attn_rows block = attn_row_block(job, rows, r);
        if (block.keys.begin >= block.keys.end) {
            const struct attn_state run = attn_state_of_row(job, w->run, r);
            attn_set_unseen(job, block.n, &run);
            attn_finish_block(job, &block, &run, &w->span);
        }
        r += block.n;
    }
}

/* Whether some row of a task may see no key. */
static bool may_be_blind(const struct attn_job *job, const struct attn_rows *rows) {
    if (job->c->same_keys)
        return rows->keys.begin >= rows->keys.end;
    const struct attn_key_range first =
        attn_visible_keys(job->c, rows->batch, attn_query_of(job, rows, 0));
    const struct attn_key_range last =
        attn_visible_keys(job->c, rows->batch, attn_query_of(job, rows, rows->n - 1));
    return first.begin >= first.end || last.begin >= last.end;
}

/* Rows that see fewer keys are through before memory has answered, and asking for those of others takes
 * longer than it saves. */
enum { KEYS_WORTH_ASKING = 128 };

/* All spans of a row task, one after the other. */
static void attend_rows(void *arg, size_t index, size_t worker) {
    const struct attn_job *job = arg;
    const struct attn_scratch w = attn_scratch_of(job, worker);
    const struct attn_rows rows = attn_plan_rows(job->c, job->plan, (int64_t)index);
    if (may_be_blind(job, &rows))
        finish_blind_blocks(job, &w, &rows);
    const struct attn_key_range seen = rows.keys;
    const int64_t following = (int64_t)index + 1;
    const bool asks = job->in_order && following < job->plan->row_tasks &&
                      seen.end - seen.begin >= KEYS_WORTH_ASKING;
    struct attn_rows then;
    if (asks)
        then = attn_plan_rows(job->c, job->plan, following);
    if (seen.begin < seen.end)
        for (int64_t s = attn_span_of(seen.begin); s <= attn_span_of(seen.end - 1); s++)
            attend_span(job, &w, &rows, s, NULL, asks ? &then : NULL);
    inspect(job, &w, &rows, &w.run);
}

static struct attn_state split_state(const struct attn_job *job, int64_t row_task, int64_t span) {
    const size_t slot = (size_t)(row_task * job->plan->spans + span);
    return attn_state_at(job, job->states + slot * job->plan->state_floats);
}

/* Where split, round one: one span of a row task. */
static void attend_one_span(void *arg, size_t index, size_t worker) {
    const struct attn_job *job = arg;
    const struct attn_scratch w = attn_scratch_of(job, worker);
    const int64_t row_task = (int64_t)index / job->plan->spans;
    const int64_t s = (int64_t)index % job->plan->spans;
    const struct attn_rows rows = attn_plan_rows(job->c, job->plan, row_task);
    const struct attn_key_range span = attn_span(s);
    const struct attn_key_range seen = attn_range_clip(rows.keys, span.begin, span.end);
    if (seen.begin >= seen.end)
        return; /* round two leaves it out */
    const struct attn_state state = split_state(job, row_task, s);
    attn_set_unseen(job, rows.n, &state); /* some rows may see nothing of it */
    attend_span(job, &w, &rows, s, &state, NULL);
}

/* Where split, round two: the spans of a row task, merged left to right. */
static void merge_spans(void *arg, size_t index, size_t worker) {
    const struct attn_job *job = arg;
    const struct attn_scratch w = attn_scratch_of(job, worker);
    const struct attn_rows rows = attn_plan_rows(job->c, job->plan, (int64_t)index);
    const struct attn_key_range seen = rows.keys;
    struct attn_state run = w.run;
    if (seen.begin >= seen.end) {
        attn_set_unseen(job, rows.n, &run);
    } else {
        const int64_t first = attn_span_of(seen.begin), last = attn_span_of(seen.end - 1);
        run = split_state(job, (int64_t)index, first);
        for (int64_t s = first + 1; s <= last; s++) {
            const struct attn_state next = split_state(job, (int64_t)index, s);
            job->kernels->merge_rows((size_t)rows.n, (size_t)job->c->p.v_dim, run.acc, run.m, run.l,
                                     next.acc, next.m, next.l, job->plan->v_stride);
        }
    }
    for (int64_t r = 0; r < rows.n;) {
        const struct attn_rows block = attn_row_block(job, &rows, r);
        const struct attn_state state = attn_state_of_row(job, run, r);
        attn_finish_block(job, &block, &state, &w.span);
        r += block.n;
    }
    inspect(job, &w, &rows, &run);
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
    struct attn_job job = {.c = c, .plan = plan, .kernels = kernels, .workers = base};
    attn_products_of(c, kernels, &job.products);
    job.least_packed_rows = attn_tile_least_packed_rows(&job);
    job.in_order = n_workers == 1;
    job.states = base + n_workers * plan->worker_floats;
    if (plan->split) {
        run(executor, (size_t)(plan->row_tasks * plan->spans), attend_one_span, &job);
        run(executor, (size_t)plan->row_tasks, merge_spans, &job);
    } else {
        run(executor, (size_t)plan->row_tasks,
            plan->is_one_tile ? attn_attend_one_tile : attend_rows, &job);
    }
}
