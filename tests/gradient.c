/* A trial's gradient in guarded memory, and its comparison with the oracle.
 *
 * SPDX-License-Identifier: MIT */
#include "gradient.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/oracle.h"

/* The slots from SLOT_OTHER on. */
enum { DOUT, DQ, DK, DV, DSINKS, LSE, WORKSPACE };

struct gradient_form gradient_form_random(struct rng *rng) {
    const bool is_stored = rng_below(rng, 3) == 0;
    struct gradient_form form = {.side = rng_below(rng, 2) ? AT_END : AT_START};
    enum layout *const layouts[] = {&form.dout, &form.dq, &form.dk, &form.dv};
    attn_type *const types[] = {&form.dout_type, &form.dq_type, &form.dk_type, &form.dv_type};
    for (int i = 0; i < 4; i++) {
        *layouts[i] = (enum layout)rng_below(rng, N_LAYOUTS);
        *types[i] = is_stored ? (attn_type)rng_below(rng, 3) : ATTN_F32;
    }
    form.no_dq = rng_below(rng, 8) == 0, form.no_dk = rng_below(rng, 8) == 0;
    form.no_dv = rng_below(rng, 8) == 0, form.no_dsinks = rng_below(rng, 8) == 0;
    return form;
}

static void put(const struct placed *t, int64_t at, float x) {
    if (t->type == ATTN_F32) {
        ((float *)t->data)[at] = x;
        return;
    }
    /* The number's own bits, by search in what the oracle reads: it shares no code with half.h. */
    uint32_t bits = bits_of(x) >> 16;
    if (t->type == ATTN_F16) {
        const float y = rounded_to(ATTN_F16, x);
        int exponent;
        const double f = frexp(fabs((double)y), &exponent);
        bits = y == 0           ? 0
               : exponent < -13 ? (uint32_t)ldexp(fabs((double)y), 24)
                                : (uint32_t)(exponent + 14) << 10 | ((uint32_t)ldexp(f, 11) & 1023);
        bits |= signbit(y) ? 0x8000 : 0;
        bits = isnan(x) ? 0x7e00 : isinf(y) ? (signbit(y) ? 0xfc00 : 0x7c00) : bits;
    }
    ((uint16_t *)t->data)[at] = (uint16_t)bits;
}

static int64_t element_at(const struct placed *t, int64_t b, int64_t h, int64_t i) {
    return (t->sizes[0] > 1 ? b * t->stride_batch : 0) + h * t->stride_head + i * t->stride_token;
}

static attn_output as_output(const struct placed *t, bool is_absent) {
    return (attn_output){is_absent ? NULL : t->data, t->type, t->stride_batch, t->stride_head,
                         t->stride_token};
}

void gradient_place(struct gradient_trial *g, struct trial *t, struct gradient_form form,
                    struct rng *rng) {
    attn_problem *p = &t->p;
    const int64_t batches = p->cu_q && p->batch > 0 ? 1 : p->batch;
    const int64_t dout[4] = {batches, p->q_heads, p->q_len, p->v_dim};
    const int64_t dq[4] = {batches, p->q_heads, p->q_len, p->qk_dim};
    const int64_t dk[4] = {p->batch, p->kv_heads, p->kv_cap, p->qk_dim};
    const int64_t dv[4] = {p->batch, p->kv_heads, p->kv_cap, p->v_dim};
    const int64_t lse[4] = {batches, p->q_heads, p->q_len, 1};
    g->dout = trial_place_tensor(SLOT_OTHER + DOUT, form.dout, dout, form.dout_type, form.side);
    g->dq = trial_place_tensor(SLOT_OTHER + DQ, form.dq, dq, form.dq_type, form.side);
    g->dk = trial_place_tensor(SLOT_OTHER + DK, form.dk, dk, form.dk_type, form.side);
    g->dv = trial_place_tensor(SLOT_OTHER + DV, form.dv, dv, form.dv_type, form.side);
    g->lse = trial_place_tensor(SLOT_OTHER + LSE, PADDED, lse, ATTN_F32, form.side);
    p->lse = as_output(&g->lse, false);
    for (int64_t b = 0; b < batches; b++)
        for (int64_t h = 0; h < p->q_heads; h++)
            for (int64_t i = 0; i < p->q_len; i++)
                for (int64_t c = 0; c < p->v_dim; c++)
                    put(&g->dout, element_at(&g->dout, b, h, i) + c, rng_normal(rng));
    g->g = attn_gradient_init();
    g->g.dout = (attn_input){g->dout.data, g->dout.type, g->dout.stride_batch, g->dout.stride_head,
                             g->dout.stride_token};
    g->g.dq = as_output(&g->dq, form.no_dq), g->g.dk = as_output(&g->dk, form.no_dk);
    g->g.dv = as_output(&g->dv, form.no_dv);
    if (p->sinks && !form.no_dsinks)
        g->g.dsinks = guarded_floats(SLOT_OTHER + DSINKS, (size_t)p->q_heads, form.side);
}

void gradient_poison(const struct gradient_trial *g, const struct trial *t, struct rng *rng) {
    const attn_problem *p = &t->p;
    const float values[] = {NAN, INFINITY, -INFINITY, 1e30f};
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->q_heads; h++)
            for (int64_t i = 0; i < oracle_rows(p, b); i++) {
                bool sees = false;
                for (int64_t j = 0; j < oracle_key_count(p, b) && !sees; j++)
                    sees = oracle_sees(p, b, h, i, j);
                const int64_t token = p->cu_q ? p->cu_q[b] + i : i;
                for (int64_t c = 0; !sees && c < p->v_dim; c++)
                    put(&g->dout, element_at(&g->dout, b, h, token) + c, values[rng_below(rng, 4)]);
            }
}

/* ---- Running --------------------------------------------------------------------------------- */

static void fill_result(const struct placed *t) {
    if (t->n)
        memset(t->memory, 0xff, t->n * t->width);
}

/* All but the rows of results is as it was. */
static void check_gaps(const char *name, const struct placed *t, bool is_absent) {
    unsigned char *is_row = calloc(t->n + 1, 1);
    cr_assert(is_row != NULL);
    const int64_t first = (t->data - t->memory) / (int64_t)t->width;
    for (int64_t b = 0; b < t->sizes[0] && !is_absent; b++)
        for (int64_t h = 0; h < t->sizes[1]; h++)
            for (int64_t i = 0; t->n && i < t->sizes[2]; i++)
                memset(is_row + first + element_at(t, b, h, i), 1, (size_t)t->sizes[3]);
    for (size_t i = 0; i < t->n * t->width; i++)
        if (!is_row[i / t->width] && (unsigned char)t->memory[i] != 0xff) {
            check_fail("%s: byte %zu between rows was written", name, i);
            break;
        }
    free(is_row);
}

void gradient_run(struct gradient_trial *g, struct trial *t, attn_executor *executor) {
    attn_status status = attn_forward_alloc(&t->p, NULL);
    CHECK(status == ATTN_OK, "forward: %s", attn_status_string(status));
    fill_result(&g->dq), fill_result(&g->dk), fill_result(&g->dv);
    if (g->g.dsinks)
        memset(g->g.dsinks, 0xff, (size_t)t->p.q_heads * sizeof(float));
    size_t size;
    status = attn_backward_workspace_size(&t->p, &g->g, executor ? executor->n_workers : 1, &size);
    CHECK(status == ATTN_OK, "backward_workspace_size: %s", attn_status_string(status));
    void *workspace = guarded(SLOT_OTHER + WORKSPACE, size + 1, AT_END);
    status = attn_backward(&t->p, &g->g, workspace, size, executor);
    CHECK(status == ATTN_OK, "backward: %s", attn_status_string(status));
    check_gaps("dq", &g->dq, !g->g.dq.data);
    check_gaps("dk", &g->dk, !g->g.dk.data);
    check_gaps("dv", &g->dv, !g->g.dv.data);
}

/* ---- Comparing ------------------------------------------------------------------------------- */

struct worst {
    double ratio;
};

/* Where f32 may overflow on the way, no bound is promised. */
static void compare(struct worst *worst, const char *name, int64_t at, float got, double want,
                    double bound) {
    if (isfinite(want) && !(bound < 1e25))
        return;
    if (isfinite(want) && bound > 0 && isfinite(got))
        worst->ratio = fmax(worst->ratio, fabs((double)got - want) / bound);
    CHECK(oracle_agrees(got, want, bound), "%s[%" PRId64 "] is %.9g, want %.9g within %.3g", name,
          at, (double)got, want, bound);
}

static void compare_tensor(struct worst *worst, const char *name, const struct placed *t,
                           const attn_problem *p, bool has_queries,
                           const struct oracle_part *part) {
    const int64_t heads = t->sizes[1], n = t->sizes[3];
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t i = 0; i < (has_queries ? oracle_rows(p, b) : t->sizes[2]); i++) {
                const int64_t token = has_queries && p->cu_q ? p->cu_q[b] + i : i;
                const int64_t at = ((b * heads + h) * t->sizes[2] + i) * n;
                for (int64_t c = 0; c < n; c++)
                    compare(worst, name, at + c,
                            (float)oracle_load(t->type, t->data, element_at(t, b, h, token) + c),
                            part->value[at + c], part->bound[at + c]);
            }
}

double gradient_compare(const struct gradient_trial *g, const struct trial *t,
                        const struct oracle_gradient *o) {
    struct worst worst = {0};
    if (g->g.dq.data)
        compare_tensor(&worst, "dq", &g->dq, &t->p, true, &o->dq);
    if (g->g.dk.data)
        compare_tensor(&worst, "dk", &g->dk, &t->p, false, &o->dk);
    if (g->g.dv.data)
        compare_tensor(&worst, "dv", &g->dv, &t->p, false, &o->dv);
    for (int64_t h = 0; g->g.dsinks && h < t->p.q_heads; h++)
        compare(&worst, "dsinks", h, g->g.dsinks[h], o->dsinks.value[h], o->dsinks.bound[h]);
    return worst.ratio;
}

static uint64_t bits_of_tensor(const struct placed *t, uint64_t hash) {
    for (int64_t b = 0; b < t->sizes[0]; b++)
        for (int64_t h = 0; h < t->sizes[1]; h++)
            for (int64_t i = 0; i < t->sizes[2]; i++)
                for (int64_t c = 0; c < t->sizes[3]; c++) {
                    const float x =
                        (float)oracle_load(t->type, t->data, element_at(t, b, h, i) + c);
                    hash = (hash ^ (isnan(x) ? 1 : bits_of(x))) * UINT64_C(0x100000001b3);
                }
    return hash;
}

uint64_t gradient_bits(const struct gradient_trial *g, const struct trial *t) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    if (g->g.dq.data)
        hash = bits_of_tensor(&g->dq, hash);
    if (g->g.dk.data)
        hash = bits_of_tensor(&g->dk, hash);
    if (g->g.dv.data)
        hash = bits_of_tensor(&g->dv, hash);
    for (int64_t h = 0; g->g.dsinks && h < t->p.q_heads; h++)
        hash = (hash ^ (isnan(g->g.dsinks[h]) ? 1 : bits_of(g->g.dsinks[h]))) *
               UINT64_C(0x100000001b3);
    return hash;
}
