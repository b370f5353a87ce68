/* Cuts a checked problem into spans, tiles and tasks, and lays out the workspace.
 *
 * SPDX-License-Identifier: MIT */
#include "plan.h"

#include "int8_rows.h"
#include "integers.h"
#include "storage.h"

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
    const uint64_t key = (uint64_t)j, first_doubled = SPANS_PER_DOUBLING * SPAN_MIN;
    if (key < first_doubled)
        return (int64_t)(key / SPAN_MIN);
    const int doubling = 63 - __builtin_clzll(key / first_doubled);
    return doubling * SPANS_PER_DOUBLING + (int64_t)((key >> doubling) / SPAN_MIN);
}

/* What a problem asks of a plan. */
struct demand {
    bool widens;             /* some keys or values cannot be used where they lie: because of their
                                type, or because a tile's are in several places */
    int64_t key_floats;      /* that a packed key takes at most, */
    int64_t quantised_query; /* and a quantised query: a workspace serves every set, and one may
                                multiply keys in int8 */
};

static struct demand demand_of(const struct attn_checked *c) {
    const attn_problem *p = &c->p;
    struct demand d = {.key_floats = p->qk_dim};
    d.widens = p->k.type != ATTN_F32 || p->v.type != ATTN_F32 || p->past_cap || p->pages.table;
    if (p->k.type == ATTN_I8 && int8_shape_fits(p->qk_dim, p->k_scales.group)) {
        const struct int8_shape s = int8_shape_of((size_t)p->qk_dim, (size_t)p->k_scales.group);
        d.key_floats = at_least(p->qk_dim, (int64_t)int8_key_words(&s));
        d.quantised_query = (int64_t)int8_query_words(&s);
    }
    return d;
}

/* Whether values of f32 are copied if they are sparse: that costs as much as about four rows of a
 * tile. */
static bool may_copy_values(const struct demand *d, int64_t rows) {
    enum { ROWS_WORTH_A_COPY = 64 };
    return !d->widens && rows >= ROWS_WORTH_A_COPY;
}

/* Rows of a task, at most. */
static int64_t most_rows(const struct attn_checked *c, const struct attn_plan *plan,
                         const struct demand *d, bool lays_out_values) {
    const int64_t row_bytes = ((int64_t)plan->v_stride + 2) * (int64_t)sizeof(float);
    const int64_t widened = lays_out_values ? plan->tile_keys * (int64_t)plan->v_stride : 0;
    const int64_t others =
        plan->tile_keys * d->key_floats + widened +
        (plan->tile_keys * 2 + c->p.qk_dim + d->quantised_query) * ATTN_ROW_BLOCK;
    const int64_t state_bytes =
        at_most(STATE_BYTES, (SCRATCH_BYTES - others * (int64_t)sizeof(float)) / 2);
    if (state_bytes >= row_bytes * ROWS_MOST)
        return ROWS_MOST / ATTN_ROW_BLOCK * ATTN_ROW_BLOCK;
    return at_least(state_bytes / row_bytes, ATTN_ROW_BLOCK) / ATTN_ROW_BLOCK * ATTN_ROW_BLOCK;
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
    plan->rows_per_task =
        ceil_div(ceil_div(rows, at_least(blocks, 1)), ATTN_ROW_BLOCK) * ATTN_ROW_BLOCK;
    plan->pair_tasks = c->p.cu_q ? 0 : ceil_div(rows, plan->rows_per_task);
    plan->row_tasks = pairs * plan->pair_tasks;
    for (int64_t b = 0; c->p.cu_q && b < c->p.batch; b++)
        plan->row_tasks += c->p.kv_heads * blocks_of_batch(c, plan, b);
}

/* Where there are more rows and keys, arithmetic hides the bookkeeping, and keys that are asked for ahead
 * count more. */
static bool is_one_tile(const struct attn_checked *c, const struct attn_plan *plan,
                        const struct demand *d, int64_t rows) {
    enum { FEW_KEYS = 128 };
    const attn_problem *p = &c->p;
    return c->key_cap > 0 && c->key_cap <= plan->tile_keys &&
           (c->key_cap < FEW_KEYS || rows <= ATTN_ROW_BLOCK) && !d->widens &&
           p->q.type == ATTN_F32 && p->out.type == ATTN_F32 && p->mask.type == ATTN_MASK_NONE &&
           !p->alibi && !p->sinks && p->softcap == 0 && !p->weights.data && !p->scores.data;
}

/* All of a plan, where plan->copies_values, tile_keys and v_stride are known. */
static attn_status lay_out(const struct attn_checked *c, const struct demand *d, size_t n_workers,
                           int64_t rows, struct attn_plan *plan) {
    const int64_t workers = (int64_t)n_workers;
    const bool lays_out_values = d->widens || plan->copies_values;
    const int64_t most = most_rows(c, plan, d, lays_out_values);
    cut_rows(c, workers, at_least(rows, 1), most, plan);

    const double key_bytes = (double)c->p.batch * (double)c->p.kv_heads * (double)c->key_cap *
                             (double)c->p.qk_dim * sizeof(float);
    plan->keys_from_memory = key_bytes > CACHED_KEY_BYTES;

    /* What is begun last should be short, or others wait for it. One worker alone keeps the tasks of
     * a head together, whose keys and values may still be in its cache. */
    plan->longest_first = workers > 1 && !c->same_keys && !c->p.cu_q;

    /* From the capacity, not from the keys in use: a workspace then serves a growing cache. */
    plan->spans = c->key_cap ? attn_span_of(c->key_cap - 1) + 1 : 0;
    plan->split = workers > 1 && plan->row_tasks < TASKS_TOO_FEW * workers && plan->spans > 1 &&
                  rows < 2 * ROWS_WORTH_A_TASK;

    plan->is_one_tile = is_one_tile(c, plan, d, rows);

    /* For as many rows as any smaller q_len could put into a task, not only for this one's. */
    plan->state_rows = (size_t)at_most(most, rows);
    const int64_t tile =
        round_up(at_least(at_most(c->key_cap, plan->tile_keys), 1), ATTN_SCORE_PAD);
    plan->score_stride = (size_t)tile;
    plan->score_floats = plan->score_stride * ATTN_ROW_BLOCK;
    plan->bias_floats = attn_mask_needs_copy(c) ? plan->score_floats : 0;
    plan->widened_floats = !lays_out_values
                               ? 0
                               : (size_t)at_least(tile * (int64_t)plan->v_stride,
                                                  at_most(tile, ATTN_PACK_STEP) * d->key_floats);
    plan->query_floats =
        c->p.q.type == ATTN_F32 ? 0 : (size_t)round_up(c->p.qk_dim * ATTN_ROW_BLOCK, 16);
    plan->quantised_floats = (size_t)round_up(d->quantised_query * ATTN_ROW_BLOCK, 16);
    plan->state_floats = (plan->state_rows * (plan->v_stride + 2) + 15) / 16 * 16;

    const size_t states = plan->split ? (size_t)(plan->row_tasks * plan->spans) : 0;
    size_t floats, split_floats;
    if (__builtin_mul_overflow((size_t)tile, (size_t)d->key_floats, &plan->packed_floats) ||
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

attn_status attn_plan_make(const struct attn_checked *c, size_t n_workers, struct attn_plan *plan) {
    if (n_workers > INT32_MAX)
        return ATTN_ERROR_OVERFLOW;
    plan->tile_keys = SPAN_MIN;
    const int64_t features = at_least(c->p.qk_dim, c->p.v_dim);
    while (plan->tile_keys > ATTN_SCORE_PAD &&
           plan->tile_keys * features * (int64_t)sizeof(float) > TILE_BYTES)
        plan->tile_keys /= 2;
    plan->v_stride = (size_t)round_up(c->p.v_dim, 16);
    const struct demand d = demand_of(c);
    const int64_t rows = rows_of_a_pair(c);
    const bool may_copy = may_copy_values(&d, rows);
    plan->copies_values =
        may_copy && at_most(c->key_cap, plan->tile_keys) >
                        attn_tokens_that_stay(c, ATTN_VALUES, c->p.v.stride_token);
    attn_status status = lay_out(c, &d, n_workers, rows, plan);
    if (status == ATTN_OK && may_copy) {
        /* A workspace serves any strides: also those of which the values are copied, or not. */
        struct attn_plan other = {.tile_keys = plan->tile_keys,
                                  .v_stride = plan->v_stride,
                                  .copies_values = !plan->copies_values};
        status = lay_out(c, &d, n_workers, rows, &other);
        if (other.workspace_bytes > plan->workspace_bytes)
            plan->workspace_bytes = other.workspace_bytes;
    }
    return status;
}

struct attn_rows attn_plan_rows(const struct attn_checked *c, const struct attn_plan *plan,
                                int64_t row_task) {
    int64_t b, kv_head, block;
    if (c->p.cu_q) {
        int64_t blocks = blocks_of_batch(c, plan, b = 0);
        while (row_task >= blocks * c->p.kv_heads) {
            row_task -= blocks * c->p.kv_heads;
            blocks = blocks_of_batch(c, plan, ++b);
        }
        kv_head = quotient(row_task, blocks), block = row_task - kv_head * blocks;
    } else {
        int64_t pair;
        if (plan->longest_first) {
            const int64_t pairs = c->p.batch * c->p.kv_heads, later = quotient(row_task, pairs);
            pair = row_task - later * pairs, block = plan->pair_tasks - 1 - later;
        } else {
            pair = quotient(row_task, plan->pair_tasks);
            block = row_task - pair * plan->pair_tasks;
        }
        b = quotient(pair, c->p.kv_heads), kv_head = pair - b * c->p.kv_heads;
    }
    const int64_t first = block * plan->rows_per_task;
    const int64_t n = at_most(plan->rows_per_task, attn_query_count(c, b) * c->group - first);
    const struct attn_rows rows = {
        .batch = b,
        .kv_head = kv_head,
        .first = first,
        .n = n,
        .keys = attn_visible_to_rows(c, b, quotient(first, c->group),
                                     quotient(first + n - 1, c->group)),
    };
    return rows;
}
