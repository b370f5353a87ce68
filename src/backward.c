/* The gradient's algorithm: weights computed again from the saved lse, tile by tile (after Dao et
 * al., "FlashAttention", 2022), on tiles that are turned: a row is a key, a column a query row.
 *
 *     for each tile of keys                              dK and dV of the tile stay in cache
 *         for each head that shares them
 *             for each tile of query rows                Q and dO packed once, used by all keys
 *                 for each block of keys                 its scores stay in cache
 *                     S^T  = scale * K Q^T               qk_packed
 *                     softcap, ALiBi, additive mask
 *                     dP^T = V dO^T                      qk_packed
 *                     P^T  = exp(S^T - lse)              gradient_rows
 *                     dS^T = P^T (dP^T - D)
 *                     dV  += P^T dO                      pv_tile
 *                     dK  += dS^T Q                      pv_tile
 *                     dS   = (dS^T)^T                    transpose
 *                 dQ += dS K                             pv_tile
 *
 * So dK and dV need nothing turned, and dS only one of the three. Every sum is a chain that starts
 * from 0 and that tiles only interrupt: by ascending key for dQ, by ascending head and row for dK and
 * dV. No bit depends on how the work is cut, and where few heads leave workers idle the same loops
 * run twice, for dK and dV by tiles of keys and for dQ by tiles of rows.
 *
 * SPDX-License-Identifier: MIT */
#include "backward.h"

#include <math.h>
#include <string.h>

#include "integers.h"
#include "storage.h"
#include "turned.h"

enum { BLOCK = ATTN_KEY_BLOCK };

/* ---- Tiles ----------------------------------------------------------------------------------- */

struct key_tile {
    int64_t batch, kv_head;
    int64_t begin, end; /* begin a multiple of 64; only those that some row may see */
    const float *keys, *values;
    int64_t key_stride, value_stride;
};

/* The keys of tile t that some query row of the batch may see, as f32. */
static struct key_tile load_keys(const struct backward_job *job, const struct backward_scratch *w,
                                 int64_t b, int64_t g, int64_t t) {
    const int64_t begin = t * job->plan->tile_keys, n_rows = attn_query_count(job->c, b);
    struct key_tile tile = {.batch = b, .kv_head = g, .begin = begin, .end = begin};
    if (n_rows == 0)
        return tile;
    const struct attn_key_range seen = attn_range_clip(
        attn_visible_to_rows(job->c, b, 0, n_rows - 1), begin, begin + job->plan->tile_keys);
    if (seen.begin >= seen.end)
        return tile;
    tile.end = seen.end;
    const attn_problem *p = &job->c->p;
    tile.keys = w->key_copy, tile.key_stride = (int64_t)job->plan->q_stride;
    tile.values = w->value_copy, tile.value_stride = (int64_t)job->plan->v_stride;
    if (p->k.type == ATTN_F32) {
        const struct attn_run run = attn_run_of(job->c, ATTN_KEYS, b, g, begin, tile.end);
        tile.keys = (const float *)run.at, tile.key_stride = run.stride;
    } else {
        attn_widen_tokens(job->c, job->kernels, ATTN_KEYS, b, g, begin, tile.end, w->key_copy,
                          tile.key_stride);
    }
    if (p->v.type == ATTN_F32) {
        const struct attn_run run = attn_run_of(job->c, ATTN_VALUES, b, g, begin, tile.end);
        tile.values = (const float *)run.at, tile.value_stride = run.stride;
    } else {
        attn_widen_tokens(job->c, job->kernels, ATTN_VALUES, b, g, begin, tile.end, w->value_copy,
                          tile.value_stride);
    }
    return tile;
}

/* The row of a token of a head as f32: where it is or, of another type, in copy. */
static const float *load_row(const struct backward_job *job, const attn_input *t, int64_t batch,
                             int64_t head, int64_t token, int64_t n_features, float *copy) {
    return attn_widen_query(
        t, job->kernels, batch * t->stride_batch + head * t->stride_head + token * t->stride_token,
        n_features, copy);
}

/* n rows of a tensor as f32: where they are or, of another type, in copy. */
static const float *load_rows_of(const struct backward_job *job, const attn_input *t,
                                 const struct turned_rows *rows, int64_t n_features, float *copy,
                                 int64_t copy_stride, int64_t *stride) {
    const int64_t token = attn_query_first(job->c, rows->batch) + rows->first;
    *stride = t->type == ATTN_F32 ? t->stride_token : copy_stride;
    for (int64_t i = 1; t->type != ATTN_F32 && i < rows->n; i++)
        load_row(job, t, rows->batch, rows->head, token + i, n_features, copy + i * copy_stride);
    return load_row(job, t, rows->batch, rows->head, token, n_features, copy);
}

/* D and lse of the rows, 0 in the padding. */
static void load_sums(const struct backward_job *job, const struct backward_scratch *w,
                      const struct turned_rows *rows) {
    const attn_problem *p = &job->c->p;
    const int64_t token = attn_query_first(job->c, rows->batch) + rows->first;
    for (int64_t i = 0; i < rows->n; i++) {
        w->lse[i] = *backward_lse(job, rows->batch, rows->head, token + i);
        const attn_input out = backward_out(p);
        const float *x =
            load_row(job, &out, rows->batch, rows->head, token + i, p->v_dim, w->out_copy);
        w->delta[i] =
            job->kernels->dot_row(rows->dout + i * rows->dout_stride, x, (size_t)p->v_dim);
    }
    for (int64_t i = rows->n; i < job->plan->tile_rows; i++)
        w->lse[i] = w->delta[i] = 0;
}

static struct turned_rows load_rows(const struct backward_job *job,
                                    const struct backward_scratch *w, struct turned_rows rows) {
    const attn_problem *p = &job->c->p;
    rows.q = load_rows_of(job, &p->q, &rows, p->qk_dim, w->q_copy, (int64_t)job->plan->q_stride,
                          &rows.q_stride);
    rows.dout = load_rows_of(job, &job->g->dout, &rows, p->v_dim, w->dout_copy,
                             (int64_t)job->plan->v_stride, &rows.dout_stride);
    job->kernels->pack_keys(rows.q, rows.q_stride, 0, (size_t)rows.n, (size_t)p->qk_dim,
                            w->packed_q);
    job->kernels->pack_keys(rows.dout, rows.dout_stride, 0, (size_t)rows.n, (size_t)p->v_dim,
                            w->packed_dout);
    load_sums(job, w, &rows);
    return rows;
}

/* ---- A tile of keys and a tile of rows ------------------------------------------------------- */

/* Scores and dP^T of the tile's keys [from, from + n), for columns [begin, end) of the rows. */
static void score_block(const struct backward_job *job, const struct backward_scratch *w,
                        const struct key_tile *tile, const struct turned_rows *rows, int64_t from,
                        int64_t n, int64_t begin, int64_t end) {
    const attn_problem *p = &job->c->p;
    const float *keys[BLOCK], *values[BLOCK];
    for (int64_t j = 0; j < n; j++) {
        keys[j] = tile->keys + (from + j) * tile->key_stride;
        values[j] = tile->values + (from + j) * tile->value_stride;
    }
    const size_t stride = (size_t)job->plan->tile_rows, columns = (size_t)(end - begin);
    job->kernels->qk_packed(keys, (size_t)n, w->packed_q + begin * p->qk_dim, columns,
                            (size_t)p->qk_dim, job->c->scale, w->scores + begin, stride, NULL);
    attn_turned_modify(job, w, rows, tile->begin + from, n, begin, end);
    job->kernels->qk_packed(values, (size_t)n, w->packed_dout + begin * p->v_dim, columns,
                            (size_t)p->v_dim, 1.0f, w->dweights + begin, stride, NULL);
}

/* Adds what the pairs of a tile of keys and a tile of rows give to the sums that are not null: dq
 * of the rows, w->dk and w->dv of the keys. */
static void add_pairs(const struct backward_job *job, const struct backward_scratch *w,
                      const struct key_tile *tile, const struct turned_rows *rows, bool with_keys,
                      float *dq, size_t dq_stride) {
    const struct attn_kernels *kernels = job->kernels;
    const size_t stride = (size_t)job->plan->tile_rows, key_stride = (size_t)job->plan->tile_keys;
    const size_t qk_dim = (size_t)job->c->p.qk_dim, v_dim = (size_t)job->c->p.v_dim;
    struct turned_sight sight;
    if (!attn_turned_see(job, w, rows, tile->begin, tile->end, &sight))
        return;
    for (int64_t from = 0; from < tile->end - tile->begin; from += BLOCK) {
        const int64_t n = at_most(BLOCK, tile->end - tile->begin - from);
        struct turned_columns see;
        if (!attn_turned_see_columns(&sight, rows->n, from, n, &see))
            continue;
        const int64_t begin = see.begin / ATTN_SCORE_PAD * ATTN_SCORE_PAD;
        score_block(job, w, tile, rows, from, n, begin, see.end);
        kernels->gradient_rows(w->scores, w->dweights, w->capped, stride, (size_t)n, see.visible,
                               w->lse, w->delta, job->c->p.softcap);
        if (with_keys && job->g->dv.data)
            kernels->pv_tile(
                w->scores, stride, see.visible, (size_t)n, rows->dout, rows->dout_stride, v_dim,
                w->ones, w->dv + from * (int64_t)job->plan->v_stride, job->plan->v_stride, NULL);
        if (with_keys && job->g->dk.data)
            kernels->pv_tile(w->dweights, stride, see.visible, (size_t)n, rows->q, rows->q_stride,
                             qk_dim, w->ones, w->dk + from * (int64_t)job->plan->q_stride,
                             job->plan->q_stride, NULL);
        if (dq)
            kernels->transpose(w->dweights + begin, stride, (size_t)n, (size_t)(see.end - begin),
                               w->turned + begin * (int64_t)key_stride + from, key_stride);
    }
    if (dq)
        kernels->pv_tile(w->turned, key_stride, sight.visible, (size_t)rows->n, tile->keys,
                         tile->key_stride, qk_dim, w->ones, dq, dq_stride, NULL);
}

/* ---- Results --------------------------------------------------------------------------------- */

/* n results from their sums; x and out may be the same. */
static void store_row(const struct backward_job *job, const attn_output *t, int64_t at, float *x,
                      float scale, int64_t n) {
    const bool is_f32 = t->type == ATTN_F32;
    float *const out = is_f32 ? (float *)t->data + at : x;
    if (scale != 1 || is_f32)
        job->kernels->scale_rows(1, x, 0, &scale, (size_t)n, &out);
    if (!is_f32)
        attn_narrow_row(t->type, job->kernels, x, n, (uint16_t *)t->data + at);
}

/* dk or dv of a tile of keys, to the last token that there is room for. */
static void store_keys(const struct backward_job *job, const attn_output *t, int64_t b, int64_t g,
                       int64_t tile, float *sums, size_t stride, float scale, int64_t n_features) {
    const int64_t begin = tile * job->plan->tile_keys;
    const int64_t end = at_most(begin + job->plan->tile_keys, job->c->p.kv_cap);
    for (int64_t j = begin; t->data && j < end; j++)
        store_row(job, t, b * t->stride_batch + g * t->stride_head + j * t->stride_token,
                  sums + (j - begin) * (int64_t)stride, scale, n_features);
}

/* Where the sums of dq of a head's rows from `first` on are, and how far apart. slot: its place
 * among those of the task, where they are not summed in place. */
static float *dq_sums(const struct backward_job *job, const struct backward_scratch *w, int64_t b,
                      int64_t h, int64_t first, int64_t slot, size_t *stride) {
    const attn_output *t = &job->g->dq;
    *stride = job->plan->q_stride;
    if (!t->data)
        return NULL;
    if (!job->plan->dq_in_place)
        return w->dq + slot * (int64_t)*stride;
    *stride = (size_t)t->stride_token;
    return (float *)t->data +
           backward_query_at(job->c, t->stride_batch, t->stride_head, t->stride_token, b, h, first);
}

static void zero_dq(const struct backward_job *job, const struct backward_scratch *w, int64_t b,
                    int64_t h, int64_t first, int64_t n, int64_t slot) {
    size_t stride;
    float *sums = dq_sums(job, w, b, h, first, slot, &stride);
    for (int64_t i = 0; sums && i < n; i++)
        memset(sums + i * (int64_t)stride, 0, (size_t)job->c->p.qk_dim * sizeof *sums);
}

static void store_dq(const struct backward_job *job, const struct backward_scratch *w, int64_t b,
                     int64_t h, int64_t first, int64_t n, int64_t slot) {
    const attn_output *t = &job->g->dq;
    size_t stride;
    float *sums = dq_sums(job, w, b, h, first, slot, &stride);
    for (int64_t i = 0; sums && i < n; i++)
        store_row(job, t,
                  backward_query_at(job->c, t->stride_batch, t->stride_head, t->stride_token, b, h,
                                    first + i),
                  sums + i * (int64_t)stride, job->c->scale, job->c->p.qk_dim);
}

/* ---- Tasks ----------------------------------------------------------------------------------- */

/* The tile of rows of head h from `first` on, not loaded. */
static struct turned_rows rows_at(const struct backward_job *job, int64_t b, int64_t h,
                                  int64_t first) {
    return (struct turned_rows){
        .batch = b,
        .head = h,
        .first = first,
        .n = at_most(job->plan->tile_rows, attn_query_count(job->c, b) - first),
    };
}

static bool meet(const struct backward_job *job, const struct turned_rows *rows,
                 const struct key_tile *tile) {
    const struct attn_key_range keys = attn_range_clip(
        attn_visible_to_rows(job->c, rows->batch, rows->first, rows->first + rows->n - 1),
        tile->begin, tile->end);
    return keys.begin < keys.end;
}

/* One tile of keys with all the rows that may see it. */
static void sum_key_tile(const struct backward_job *job, const struct backward_scratch *w,
                         int64_t b, int64_t g, int64_t t, bool with_dq) {
    const int64_t group = job->c->group, n_rows = attn_query_count(job->c, b);
    const struct key_tile tile = load_keys(job, w, b, g, t);
    memset(w->dk, 0, (job->plan->dk + job->plan->dv) * sizeof *w->dk);
    for (int64_t h = 0; tile.begin < tile.end && h < group; h++)
        for (int64_t i = 0; i < n_rows; i += job->plan->tile_rows) {
            struct turned_rows rows = rows_at(job, b, g * group + h, i);
            if (!meet(job, &rows, &tile))
                continue;
            rows = load_rows(job, w, rows);
            size_t stride;
            float *dq = with_dq ? dq_sums(job, w, b, rows.head, i, h * n_rows + i, &stride) : NULL;
            add_pairs(job, w, &tile, &rows, true, dq, with_dq ? stride : 0);
        }
    store_keys(job, &job->g->dk, b, g, t, w->dk, job->plan->q_stride, job->c->scale,
               job->c->p.qk_dim);
    store_keys(job, &job->g->dv, b, g, t, w->dv, job->plan->v_stride, 1, job->c->p.v_dim);
}

/* Everything of one batch and key/value head. */
static void whole_task(void *arg, size_t index, size_t worker) {
    const struct backward_job *job = arg;
    const struct backward_scratch w = attn_backward_scratch_of(job, worker);
    const int64_t b = (int64_t)index / job->c->p.kv_heads, g = (int64_t)index % job->c->p.kv_heads;
    const int64_t group = job->c->group, n_rows = attn_query_count(job->c, b);
    for (int64_t h = 0; h < group; h++)
        zero_dq(job, &w, b, g * group + h, 0, n_rows, h * n_rows);
    for (int64_t t = 0; t < job->plan->key_tiles; t++)
        sum_key_tile(job, &w, b, g, t, true);
    for (int64_t h = 0; h < group; h++)
        store_dq(job, &w, b, g * group + h, 0, n_rows, h * n_rows);
}

/* Of two passes, the first: dk and dv of one tile of keys. */
static void key_task(void *arg, size_t index, size_t worker) {
    const struct backward_job *job = arg;
    const struct backward_scratch w = attn_backward_scratch_of(job, worker);
    const int64_t tiles = job->plan->key_tiles, pair = (int64_t)index / tiles;
    sum_key_tile(job, &w, pair / job->c->p.kv_heads, pair % job->c->p.kv_heads,
                 (int64_t)index % tiles, false);
}

/* The second: dq of one tile of rows. */
static void row_task(void *arg, size_t index, size_t worker) {
    const struct backward_job *job = arg;
    const struct backward_scratch w = attn_backward_scratch_of(job, worker);
    const int64_t tiles = job->plan->row_tiles, pair = (int64_t)index / tiles;
    const int64_t b = pair / job->c->p.q_heads, h = pair % job->c->p.q_heads;
    struct turned_rows rows = rows_at(job, b, h, (int64_t)index % tiles * job->plan->tile_rows);
    if (rows.n <= 0)
        return;
    zero_dq(job, &w, b, h, rows.first, rows.n, 0);
    const struct attn_key_range seen =
        attn_visible_to_rows(job->c, b, rows.first, rows.first + rows.n - 1);
    if (seen.begin < seen.end) {
        rows = load_rows(job, &w, rows);
        size_t stride;
        float *dq = dq_sums(job, &w, b, h, rows.first, 0, &stride);
        for (int64_t t = seen.begin / job->plan->tile_keys; t * job->plan->tile_keys < seen.end;
             t++) {
            const struct key_tile tile = load_keys(job, &w, b, h / job->c->group, t);
            add_pairs(job, &w, &tile, &rows, false, dq, stride);
        }
    }
    store_dq(job, &w, b, h, rows.first, rows.n, 0);
}

/* Whether query row i sees a key, masks included. */
static bool sees_some(const struct backward_job *job, const struct backward_scratch *w, int64_t b,
                      int64_t h, int64_t i) {
    const struct turned_rows row = {.batch = b, .head = h, .first = i, .n = 1};
    const struct attn_key_range keys = attn_visible_keys(job->c, b, i);
    const int64_t tile = job->plan->tile_keys;
    struct turned_sight sight;
    for (int64_t j = keys.begin / tile * tile; j < keys.end; j += tile)
        if (attn_turned_see(job, w, &row, j, at_most(j + tile, keys.end), &sight) &&
            sight.visible[0].begin < sight.visible[0].end)
            return true;
    return false;
}

/* dsinks of one head. A few operations for each row, so that double costs nothing. */
static void sink_task(void *arg, size_t index, size_t worker) {
    const struct backward_job *job = arg;
    struct backward_scratch w = attn_backward_scratch_of(job, worker);
    const attn_problem *p = &job->c->p;
    const int64_t h = (int64_t)index;
    const float sink = p->sinks[h];
    double sum = 0;
    for (int64_t b = 0; sink != -INFINITY && b < p->batch; b++)
        for (int64_t i = 0; i < attn_query_count(job->c, b); i += job->plan->tile_rows) {
            struct turned_rows rows = rows_at(job, b, h, i);
            rows.dout = load_rows_of(job, &job->g->dout, &rows, p->v_dim, w.dout_copy,
                                     (int64_t)job->plan->v_stride, &rows.dout_stride);
            load_sums(job, &w, &rows);
            float *const lse = w.lse;
            for (int64_t r = 0; r < rows.n; r++) {
                w.lse = lse + r;
                /* A row that sees nothing has the sink's lse, and perhaps NaN in its dout. */
                if (*w.lse != sink || sees_some(job, &w, b, h, i + r))
                    sum -= exp((double)sink - (double)*w.lse) * (double)w.delta[r];
            }
            w.lse = lse;
        }
    job->g->dsinks[h] = (float)sum;
}

static void run(attn_executor *executor, int64_t n_tasks, attn_task task, void *arg) {
    if (executor)
        executor->run(executor, (size_t)n_tasks, task, arg);
    else
        for (int64_t i = 0; i < n_tasks; i++)
            task(arg, (size_t)i, 0);
}

void attn_backward_run(const struct attn_checked *c, const attn_gradient *g,
                       const struct attn_backward_plan *plan, const struct attn_kernels *kernels,
                       void *workspace, attn_executor *executor) {
    float *base = (float *)(((uintptr_t)workspace + 63) & ~(uintptr_t)63);
    struct backward_job job = {c, g, plan, kernels, base};
    const bool with_keys = g->dk.data || g->dv.data;
    if (plan->single_pass && with_keys && g->dq.data) {
        run(executor, c->p.batch * c->p.kv_heads, whole_task, &job);
    } else {
        if (with_keys && plan->key_tiles > 0)
            run(executor, c->p.batch * c->p.kv_heads * plan->key_tiles, key_task, &job);
        if (g->dq.data)
            run(executor, c->p.batch * c->p.q_heads * plan->row_tiles, row_task, &job);
    }
    if (g->dsinks)
        run(executor, c->p.q_heads, sink_task, &job);
}

/* ---- Nothing to sum -------------------------------------------------------------------------- */

static void zero_tensor(const attn_output *t, int64_t batch, int64_t heads, int64_t tokens,
                        int64_t n_features) {
    const size_t width = (size_t)attn_type_bytes(t->type);
    for (int64_t b = 0; t->data && n_features > 0 && b < batch; b++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t i = 0; i < tokens; i++)
                memset((char *)t->data +
                           (b * t->stride_batch + h * t->stride_head + i * t->stride_token) *
                               (int64_t)width,
                       0, (size_t)n_features * width);
}

void attn_backward_zero(const struct attn_checked *c, const attn_gradient *g) {
    const attn_problem *p = &c->p;
    zero_tensor(&g->dq, p->cu_q ? p->batch > 0 : p->batch, p->q_heads, p->q_len, p->qk_dim);
    zero_tensor(&g->dk, p->batch, p->kv_heads, p->kv_cap, p->qk_dim);
    zero_tensor(&g->dv, p->batch, p->kv_heads, p->kv_cap, p->v_dim);
    for (int64_t h = 0; g->dsinks && h < p->q_heads; h++)
        g->dsinks[h] = 0;
}
