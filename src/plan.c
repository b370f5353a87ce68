/* Cuts a checked problem into spans, tiles and tasks, and lays out the workspace.
 *
 * SPDX-License-Identifier: MIT */
#include "plan.h"

#include "int8_rows.h"
#include "integers.h"

/* Spans: 0 .. 7 are 512 keys each; then eight for each doubling from 4096 on. */
enum { SPAN_MIN = ATTN_TILE_MOST, SPANS_PER_DOUBLING = 8 };

/* The keys of a tile as f32, and its values, are at most this many bytes each. */
enum { TILE_BYTES = 512 * 1024 };

/* Each of a worker's two row states is at most this many bytes, and fewer where the rest of its
 * scratch would then be more than SCRATCH_BYTES: so a worker stays below 1.5 MiB for up to 1024
 * features, and mostly in a second-level cache. */
enum { STATE_BYTES = 532 * 1024, SCRATCH_BYTES = 1500 * 1024 };

/* Keys of a call that fit in a second-level cache beside what else is there. */
enum { CACHED_KEY_BYTES = 1024 * 1024 };

/* Packing a tile costs as much as about five rows of it: with 1024 rows that is half a per cent,
 * and below 96 a task is not worth its own packing. */
enum { ROWS_MOST = 1024, ROWS_WORTH_A_TASK = 96 };

/* Tasks differ in length where causal: four for each worker even that out. Where there are fewer
 * than two for each and the rows are too few to be cut, the spans of the keys become tasks. */
enum { TASKS_PER_WORKER = 4, TASKS_TOO_FEW = 2 };

struct attn_key_range attn_span(int64_t index) {
    if (index < SPANS_PER_DOUBLING)
        return (struct attn_key_range){index * SPAN_MIN, (index + 1) * SPAN_MIN};
    const int64_t doubling = index / SPANS_PER_DOUBLING - 1;
    const int64_t length = (int64_t)SPAN_MIN << doubling;
    const int64_t begin = (SPANS_PER_DOUBLING + index % SPANS_PER_DOUBLING) * length;
    return (struct attn_key_range){begin, begin + length};
}

int64_t attn_span_of(int64_t j) {
    if (j < SPANS_PER_DOUBLING * SPAN_MIN)
        return j / SPAN_MIN;
    int64_t doubling = 0;
    while (j >> (doubling + 1) >= SPANS_PER_DOUBLING * SPAN_MIN)
        doubling++;
    return doubling * SPANS_PER_DOUBLING + (j >> doubling) / SPAN_MIN;
}

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

/* Whether some keys or values cannot be used where they lie: because of their type, or because a
 * tile's are in several places. */
static bool needs_widening(const struct attn_checked *c) {
    return c->p.k.type != ATTN_F32 || c->p.v.type != ATTN_F32 || c->p.past_cap || c->p.pages.table;
}

/* Whether keys are multiplied in int8 by a set that can: a workspace serves every set. */
static bool may_multiply_int8(const struct attn_checked *c) {
    return c->p.k.type == ATTN_I8 && int8_shape_fits(c->p.qk_dim, c->p.k_scales.group);
}

/* What a packed key takes at most, and a quantised query, in floats. */
static int64_t key_floats(const struct attn_checked *c) {
    if (!may_multiply_int8(c))
        return c->p.qk_dim;
    const struct int8_shape s = int8_shape_of((size_t)c->p.qk_dim, (size_t)c->p.k_scales.group);
    return at_least(c->p.qk_dim, (int64_t)int8_key_words(&s));
}
static int64_t quantised_query_floats(const struct attn_checked *c) {
    if (!may_multiply_int8(c))
        return 0;
    const struct int8_shape s = int8_shape_of((size_t)c->p.qk_dim, (size_t)c->p.k_scales.group);
    return (int64_t)int8_query_words(&s);
}

/* Rows of a task, at most. */
static int64_t most_rows(const struct attn_checked *c, const struct attn_plan *plan) {
    const int64_t row_bytes = ((int64_t)plan->v_stride + 2) * (int64_t)sizeof(float);
    const int64_t widened = needs_widening(c) ? plan->tile_keys * (int64_t)plan->v_stride : 0;
    const int64_t others =
        plan->tile_keys * key_floats(c) + widened +
        (plan->tile_keys * 2 + c->p.qk_dim + quantised_query_floats(c)) * ATTN_ROW_BLOCK;
    const int64_t state_bytes =
        at_most(STATE_BYTES, (SCRATCH_BYTES - others * (int64_t)sizeof(float)) / 2);
    return at_least(at_most(state_bytes / row_bytes, ROWS_MOST), ATTN_ROW_BLOCK) / ATTN_ROW_BLOCK *
           ATTN_ROW_BLOCK;
}

/* The most rows that one batch and key/value head has. */
static int64_t rows_of_a_pair(const struct attn_checked *c) {
    int64_t queries = c->p.cu_q ? 0 : c->p.q_len;
    for (int64_t b = 0; c->p.cu_q && b < c->p.batch; b++)
        queries = at_least(queries, attn_query_count(c, b));
    return queries * c->group;
}

/* The tasks of each key/value head of batch b. */
static int64_t blocks_of_batch(const struct attn_checked *c, const struct attn_plan *plan,
                               int64_t b) {
    return ceil_div(attn_query_count(c, b) * c->group, plan->rows_per_task);
}

static void cut_rows(const struct attn_checked *c, int64_t n_workers, int64_t rows, int64_t most,
                     struct attn_plan *plan) {
    const int64_t pairs = c->p.batch * c->p.kv_heads;
    int64_t blocks = ceil_div(rows, most);
    if (n_workers > 1 && pairs > 0) {
        const int64_t wanted = ceil_div(at_most(n_workers, 1 << 20) * TASKS_PER_WORKER, pairs);
        blocks = at_least(blocks, at_most(wanted, rows / ROWS_WORTH_A_TASK));
    }
    plan->rows_per_task = round_up(ceil_div(rows, at_least(blocks, 1)), ATTN_ROW_BLOCK);
    plan->row_tasks = 0;
    if (!c->p.cu_q)
        plan->row_tasks = pairs * ceil_div(rows, plan->rows_per_task);
    for (int64_t b = 0; c->p.cu_q && b < c->p.batch; b++)
        plan->row_tasks += c->p.kv_heads * blocks_of_batch(c, plan, b);
}

attn_status attn_plan_make(const struct attn_checked *c, size_t n_workers, struct attn_plan *plan) {
    if (n_workers > INT32_MAX)
        return ATTN_ERROR_OVERFLOW;
    const int64_t workers = (int64_t)n_workers;
    plan->tile_keys = SPAN_MIN;
    const int64_t features = at_least(c->p.qk_dim, c->p.v_dim);
    while (plan->tile_keys > ATTN_SCORE_PAD &&
           plan->tile_keys * features * (int64_t)sizeof(float) > TILE_BYTES)
        plan->tile_keys /= 2;
    plan->v_stride = (size_t)round_up(c->p.v_dim, 16);
    const int64_t rows = rows_of_a_pair(c), most = most_rows(c, plan);
    cut_rows(c, workers, at_least(rows, 1), most, plan);

    const double key_bytes = (double)c->p.batch * (double)c->p.kv_heads * (double)c->key_cap *
                             (double)c->p.qk_dim * sizeof(float);
    plan->packs_late = !needs_widening(c) && key_bytes > CACHED_KEY_BYTES;

    /* From the capacity, not from the keys in use: a workspace then serves a growing cache. */
    plan->spans = c->key_cap ? attn_span_of(c->key_cap - 1) + 1 : 0;
    plan->split = workers > 1 && plan->row_tasks < TASKS_TOO_FEW * workers && plan->spans > 1 &&
                  rows < 2 * ROWS_WORTH_A_TASK;

    /* For as many rows as any smaller q_len could put into a task, not only for this one's. */
    plan->state_rows = (size_t)at_most(most, rows);
    const int64_t tile =
        round_up(at_least(at_most(c->key_cap, plan->tile_keys), 1), ATTN_SCORE_PAD);
    plan->score_stride = (size_t)tile;
    plan->score_floats = plan->score_stride * ATTN_ROW_BLOCK;
    plan->bias_floats = attn_mask_needs_copy(c) ? plan->score_floats : 0;
    plan->widened_floats = !needs_widening(c)
                               ? 0
                               : (size_t)at_least(tile * (int64_t)plan->v_stride,
                                                  at_most(tile, ATTN_PACK_STEP) * key_floats(c));
    plan->query_floats =
        c->p.q.type == ATTN_F32 ? 0 : (size_t)round_up(c->p.qk_dim * ATTN_ROW_BLOCK, 16);
    plan->quantised_floats = (size_t)round_up(quantised_query_floats(c) * ATTN_ROW_BLOCK, 16);
    plan->state_floats = (plan->state_rows * (plan->v_stride + 2) + 15) / 16 * 16;

    const size_t states = plan->split ? (size_t)(plan->row_tasks * plan->spans) : 0;
    size_t floats, split_floats;
    if (__builtin_mul_overflow((size_t)tile, (size_t)key_floats(c), &plan->packed_floats) ||
        __builtin_mul_overflow(states, plan->state_floats, &split_floats) ||
        __builtin_add_overflow(2 * plan->state_floats + plan->score_floats + plan->bias_floats +
                                   plan->widened_floats + plan->query_floats +
                                   plan->quantised_floats,
                               plan->packed_floats, &plan->worker_floats) ||
        __builtin_mul_overflow(plan->worker_floats, n_workers, &floats) ||
        __builtin_add_overflow(floats, split_floats, &floats) ||
        floats > (PTRDIFF_MAX - 64) / sizeof(float))
        return ATTN_ERROR_OVERFLOW;
    plan->workspace_bytes = floats * sizeof(float) + 64;
    return ATTN_OK;
}

struct attn_rows attn_plan_rows(const struct attn_checked *c, const struct attn_plan *plan,
                                int64_t row_task) {
    int64_t b = 0, blocks = blocks_of_batch(c, plan, 0);
    if (!c->p.cu_q) {
        b = row_task / (blocks * c->p.kv_heads);
        row_task %= blocks * c->p.kv_heads;
    } else {
        while (row_task >= blocks * c->p.kv_heads) {
            row_task -= blocks * c->p.kv_heads;
            blocks = blocks_of_batch(c, plan, ++b);
        }
    }
    const int64_t kv_head = blocks == 1 ? row_task : row_task / blocks;
    const int64_t first = (row_task - kv_head * blocks) * plan->rows_per_task;
    const int64_t n = at_most(plan->rows_per_task, attn_query_count(c, b) * c->group - first);
    const struct attn_rows rows = {
        .batch = b,
        .kv_head = kv_head,
        .first = first,
        .n = n,
        .keys = attn_visible_to_rows(c, b, first / c->group, (first + n - 1) / c->group),
    };
    return rows;
}
