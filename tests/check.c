/* Guarded memory, random inputs, problems of any layout, and comparisons.
 *
 * SPDX-License-Identifier: MIT */
#define _GNU_SOURCE 1
#include "check.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cli/oracle.h"
#include "cpu_features.h"
#include "dispatch.h"

/* ---- How much to test, failures -------------------------------------------------------------- */

bool check_quick(void) {
    const char *quick = getenv("ATTN_TEST_QUICK");
    return quick && *quick && strcmp(quick, "0") != 0;
}

bool check_is_emulated(void) {
    const char *emulator = getenv("TEST_EMULATOR");
    return emulator && *emulator;
}

int64_t check_count(int64_t full) { return check_quick() ? (full + 9) / 10 : full; }

void check_say(const char *format, ...) {
    va_list args;
    va_start(args, format);
    char line[1024];
    const int n = vsnprintf(line, sizeof line - 1, format, args);
    va_end(args);
    const size_t length = n < (int)sizeof line - 1 ? (size_t)n : sizeof line - 2;
    line[length] = '\n';
    /* One write, so that lines of tests that run at the same time do not mix. */
    if (write(STDOUT_FILENO, line, length + 1) < 0)
        return;
}

static char context[1024];

static void on_crash(int signal_number) {
    static const char text[] = "crashed at: ";
    if (write(STDERR_FILENO, text, sizeof text - 1) > 0 &&
        write(STDERR_FILENO, context, strlen(context)) > 0 && write(STDERR_FILENO, "\n", 1) > 0)
        signal(signal_number, SIG_DFL);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

void check_context(const char *format, ...) {
    static bool installed;
    if (!installed) {
        installed = true;
        const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
        for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
            struct sigaction now;
            if (sigaction(signals[i], NULL, &now) == 0 && now.sa_handler == SIG_DFL)
                signal(signals[i], on_crash); /* a sanitizer's own handler stays */
        }
    }
    va_list args;
    va_start(args, format);
    vsnprintf(context, sizeof context, format, args);
    va_end(args);
}

void check_fail(const char *format, ...) {
    static int failures;
    char message[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    if (++failures < 10)
        cr_expect(false, "%s [%s]", message, context);
    else
        cr_assert(false, "%s [%s]", message, context);
}

/* ---- Random numbers -------------------------------------------------------------------------- */

/* splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014). */
uint64_t rng_next(struct rng *rng) {
    uint64_t z = rng->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

int64_t rng_below(struct rng *rng, int64_t n) { return (int64_t)(rng_next(rng) % (uint64_t)n); }

double rng_uniform(struct rng *rng) { return (double)(rng_next(rng) >> 11) * 0x1p-53; }

float rng_normal(struct rng *rng) {
    const uint64_t bits = rng_next(rng);
    int64_t sum = -2 * 65535;
    for (int i = 0; i < 4; i++)
        sum += (int64_t)(bits >> 16 * i & 0xffff);
    return (float)sum * 0x1.bb67aep-16f; /* sqrt(3) / 65536: variance 4/12 becomes 1 */
}

/* Box and Muller. */
float rng_gauss(struct rng *rng) {
    const double radius = sqrt(-2 * log(1 - rng_uniform(rng)));
    return (float)(radius * cos(6.283185307179586 * rng_uniform(rng)));
}

/* ---- Memory ---------------------------------------------------------------------------------- */

static struct {
    char *map;       /* guard page, capacity bytes, guard page */
    size_t capacity; /* whole pages */
} slots[N_SLOTS];

void *guarded(enum slot slot, size_t bytes, enum side side) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (!slots[slot].map || slots[slot].capacity < bytes) {
        if (slots[slot].map)
            munmap(slots[slot].map, slots[slot].capacity + 2 * page);
        const size_t capacity = (bytes / page + 17) * page;
        char *map = mmap(NULL, capacity + 2 * page, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        cr_assert(map != MAP_FAILED, "no memory for a test: %zu bytes", bytes);
        mprotect(map, page, PROT_NONE);
        mprotect(map + page + capacity, page, PROT_NONE);
        slots[slot].map = map;
        slots[slot].capacity = capacity;
    }
    char *start = slots[slot].map + page;
    char *data = side == AT_START ? start : start + slots[slot].capacity - bytes;
    memset(data, 0xff, bytes);
    return data;
}

float *guarded_floats(enum slot slot, size_t n, enum side side) {
    return guarded(slot, n * sizeof(float), side);
}

/* ---- Bits ------------------------------------------------------------------------------------ */

uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

bool same_bits(float a, float b) { return bits_of(a) == bits_of(b) || (isnan(a) && isnan(b)); }

int64_t first_difference(const float *a, const float *b, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (!same_bits(a[i], b[i]))
            return i;
    return -1;
}

/* ---- Kernel sets ----------------------------------------------------------------------------- */

bool check_use_isa(const char *name) {
    cr_assert(attn_set_isa(name) == ATTN_OK, "attn_set_isa(%s) failed", name);
    cr_assert(attn_isa() && strcmp(attn_isa(), name) == 0, "asked for %s, got %s", name,
              attn_isa() ? attn_isa() : "(null)");
    return true;
}

size_t check_kernel_sets(const struct attn_kernels **sets) {
    const size_t n = attn_kernels_usable(attn_cpu_features(), sets);
    cr_assert(n >= 1 && strcmp(sets[n - 1]->name, "scalar") == 0, "the last set must be scalar");
    return n;
}

/* ---- Problems -------------------------------------------------------------------------------- */

struct strides {
    int64_t batch, head, token;
};

static struct strides strides_of(enum layout layout, int64_t heads, int64_t tokens, int64_t dim) {
    switch (layout) {
    case BLHD:
        return (struct strides){tokens * heads * dim, dim, heads * dim};
    case PACKED_QKV:
        return (struct strides){tokens * 3 * heads * dim, dim, 3 * heads * dim};
    case PADDED:
        return (struct strides){heads * (tokens * (dim + 3) + 5) + 7, tokens * (dim + 3) + 5,
                                dim + 3};
    case REVERSED:
        return (struct strides){-heads * tokens * dim, -tokens * dim, -dim};
    case SHARED_HEADS:
        return (struct strides){0, 0, dim};
    case SHARED_TOKENS:
        return (struct strides){heads * dim, dim, 0};
    default:
        return (struct strides){heads * tokens * dim, tokens * dim, dim};
    }
}

/* Storage for the tensor, and the pointer to its element (0, 0, 0, 0). */
static float *place(enum slot slot, struct stored *stored, struct strides s, int64_t batch,
                    int64_t heads, int64_t tokens, int64_t dim, enum side side) {
    *stored = (struct stored){NULL, 0};
    if (batch == 0 || heads == 0 || tokens == 0 || dim == 0)
        return NULL;
    const int64_t reach[3] = {s.batch * (batch - 1), s.head * (heads - 1), s.token * (tokens - 1)};
    int64_t low = 0, high = dim;
    for (int i = 0; i < 3; i++)
        *(reach[i] < 0 ? &low : &high) += reach[i];
    stored->n = (size_t)(high - low);
    stored->data = guarded_floats(slot, stored->n, side);
    return stored->data - low;
}

void trial_place(struct trial *t, struct shape shape, struct layouts how) {
    cr_assert(shape.batch <= MAX_BATCH, "a test asks for too large a batch");
    memset(t, 0, sizeof *t);
    t->shape = shape;
    attn_problem *p = &t->p;
    *p = attn_problem_init();
    p->batch = shape.batch, p->q_heads = shape.q_heads, p->kv_heads = shape.kv_heads;
    p->q_len = shape.q_len, p->kv_cap = shape.kv_cap;
    p->qk_dim = shape.qk_dim, p->v_dim = shape.v_dim;

#define PLACE(name, slot, layout, heads, tokens, dim)                                              \
    do {                                                                                           \
        const struct strides s = strides_of(layout, heads, tokens, dim);                           \
        p->name.data = place(slot, &t->name, s, shape.batch, heads, tokens, dim, how.side);        \
        p->name.stride_batch = s.batch, p->name.stride_head = s.head;                              \
        p->name.stride_token = s.token;                                                            \
    } while (0)
    PLACE(q, SLOT_Q, how.q, shape.q_heads, shape.q_len, shape.qk_dim);
    PLACE(k, SLOT_K, how.k, shape.kv_heads, shape.kv_cap, shape.qk_dim);
    PLACE(v, SLOT_V, how.v, shape.kv_heads, shape.kv_cap, shape.v_dim);
    PLACE(out, SLOT_OUT, how.out, shape.q_heads, shape.q_len, shape.v_dim);
    if (how.lse)
        PLACE(lse, SLOT_LSE, how.out, shape.q_heads, shape.q_len, 1);
    if (how.weights)
        PLACE(weights, SLOT_WEIGHTS, how.out, shape.q_heads, shape.q_len, shape.kv_cap);
#undef PLACE
}

const float *in_at(const attn_input *t, int64_t b, int64_t h, int64_t token) {
    return (const float *)t->data + b * t->stride_batch + h * t->stride_head +
           token * t->stride_token;
}

float *in_at_mutable(const attn_input *t, int64_t b, int64_t h, int64_t token) {
    return (float *)(uintptr_t)in_at(t, b, h, token);
}

float *out_at(const attn_output *t, int64_t b, int64_t h, int64_t token) {
    return (float *)t->data + b * t->stride_batch + h * t->stride_head + token * t->stride_token;
}

static void fill_tensor(const attn_input *t, int64_t batch, int64_t heads, int64_t tokens,
                        int64_t dim, enum kind kind, struct rng *rng) {
    if (!t->data)
        return;
    const float equal = rng_normal(rng);
    for (int64_t b = 0; b < batch; b++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t i = 0; i < tokens; i++) {
                float *row = in_at_mutable(t, b, h, i);
                for (int64_t c = 0; c < dim; c++) {
                    const float x = kind == KIND_GAUSS ? rng_gauss(rng) : rng_normal(rng);
                    row[c] = kind == KIND_EQUAL ? equal : kind == KIND_DENORMAL ? x * 0x1p-130f : x;
                }
            }
}

static float *any_element(const attn_input *t, int64_t batch, int64_t heads, int64_t tokens,
                          int64_t dim, struct rng *rng) {
    return in_at_mutable(t, rng_below(rng, batch), rng_below(rng, heads), rng_below(rng, tokens)) +
           rng_below(rng, dim);
}

void trial_fill(struct trial *t, enum kind kind, struct rng *rng) {
    const struct shape s = t->shape;
    fill_tensor(&t->p.q, s.batch, s.q_heads, s.q_len, s.qk_dim, kind, rng);
    fill_tensor(&t->p.k, s.batch, s.kv_heads, s.kv_cap, s.qk_dim, kind, rng);
    fill_tensor(&t->p.v, s.batch, s.kv_heads, s.kv_cap, s.v_dim, kind, rng);
    if (!t->p.q.data || !t->p.k.data || !t->p.v.data)
        return;
    if (kind == KIND_ONE_HUGE) {
        *any_element(&t->p.k, s.batch, s.kv_heads, s.kv_cap, s.qk_dim, rng) = 3e4f;
        *any_element(&t->p.v, s.batch, s.kv_heads, s.kv_cap, s.v_dim, rng) = -1e20f;
    }
    if (kind == KIND_MINUS_INF_KEYS) {
        /* Feature 0 of every query is positive, so that a key with -inf there has logit -inf. */
        for (int64_t b = 0; b < s.batch; b++) {
            for (int64_t h = 0; h < s.q_heads; h++)
                for (int64_t i = 0; i < s.q_len; i++)
                    *in_at_mutable(&t->p.q, b, h, i) = 0.5f;
            for (int64_t h = 0; h < s.kv_heads; h++)
                for (int64_t j = 0; j < s.kv_cap; j++)
                    if (rng_below(rng, 3) > 0)
                        *in_at_mutable(&t->p.k, b, h, j) = -INFINITY;
        }
    }
    if (kind == KIND_NAN) {
        *any_element(&t->p.q, s.batch, s.q_heads, s.q_len, s.qk_dim, rng) = NAN;
        *any_element(&t->p.k, s.batch, s.kv_heads, s.kv_cap, s.qk_dim, rng) = -NAN;
        *any_element(&t->p.v, s.batch, s.kv_heads, s.kv_cap, s.v_dim, rng) = NAN;
    }
}

void trial_context(const struct trial *t, const char *what) {
    const attn_problem *p = &t->p;
    char kv_len[64] = "cap", offset[64] = "-";
    if (p->kv_len && p->batch > 0)
        snprintf(kv_len, sizeof kv_len, "%" PRId64 ",%" PRId64, p->kv_len[0],
                 p->kv_len[p->batch - 1]);
    if (p->offset && p->batch > 0)
        snprintf(offset, sizeof offset, "%" PRId64 ",%" PRId64, p->offset[0],
                 p->offset[p->batch - 1]);
    check_context("%s: batch %" PRId64 " q_heads %" PRId64 " kv_heads %" PRId64 " q_len %" PRId64
                  " kv_cap %" PRId64 " qk_dim %" PRId64 " v_dim %" PRId64
                  " kv_len %s causal %d align %d "
                  "offset %s scale %g; token strides q %" PRId64 " k %" PRId64 " v %" PRId64
                  " out %" PRId64 "; lse %d weights %d; isa %s",
                  what, p->batch, p->q_heads, p->kv_heads, p->q_len, p->kv_cap, p->qk_dim, p->v_dim,
                  kv_len, (int)p->causal, (int)p->align, offset, p->scale ? (double)*p->scale : 0.0,
                  p->q.stride_token, p->k.stride_token, p->v.stride_token, p->out.stride_token,
                  p->lse.data != NULL, p->weights.data != NULL, attn_isa() ? attn_isa() : "(none)");
}

static uint64_t hash_of(const struct stored *s, uint64_t hash) {
    for (size_t i = 0; i < s->n; i++)
        hash = (hash ^ bits_of(s->data[i])) * UINT64_C(0x100000001b3);
    return hash;
}

static uint64_t hash_of_inputs(const struct trial *t) {
    return hash_of(&t->q, hash_of(&t->k, hash_of(&t->v, UINT64_C(0xcbf29ce484222325))));
}

static void fill_nan(const struct stored *s) {
    if (s->data)
        memset(s->data, 0xff, s->n * sizeof(float));
}

void trial_run(struct trial *t, attn_executor *executor) {
    fill_nan(&t->out);
    fill_nan(&t->lse);
    fill_nan(&t->weights);
    size_t size = 0;
    const attn_status asked = attn_workspace_size(&t->p, executor ? executor->n_workers : 1, &size);
    CHECK(asked == ATTN_OK, "attn_workspace_size: %s", attn_status_string(asked));
    void *workspace = guarded(SLOT_WORKSPACE, size, AT_END);
    const uint64_t before = hash_of_inputs(t);
    const attn_status status = attn_forward(&t->p, workspace, size, executor);
    CHECK(status == ATTN_OK, "attn_forward: %s", attn_status_string(status));
    CHECK(hash_of_inputs(t) == before, "an input changed");
}

struct reference reference_make(const struct trial *t) {
    const attn_problem *p = &t->p;
    const size_t rows = (size_t)(p->batch * p->q_heads * p->q_len);
    const size_t v_dim = (size_t)p->v_dim, keys = (size_t)p->kv_cap;
    struct reference r = {.rows = (int64_t)rows};
    r.out = calloc(rows * v_dim + 1, sizeof(double));
    r.out_bound = calloc(rows * v_dim + 1, sizeof(double));
    r.lse = calloc(rows + 1, sizeof(double));
    r.lse_bound = calloc(rows + 1, sizeof(double));
    r.weight_factor = calloc(rows + 1, sizeof(double));
    r.visible = calloc(rows + 1, sizeof(int64_t));
    r.weights = calloc((p->weights.data ? rows : 1) * keys + 1, sizeof(double));
    cr_assert(r.out && r.out_bound && r.lse && r.lse_bound && r.weight_factor && r.weights &&
                  r.visible,
              "no memory for the reference");
    size_t at = 0;
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->q_heads; h++)
            for (int64_t i = 0; i < p->q_len; i++, at++) {
                struct oracle_row row = {.out = r.out + at * v_dim,
                                         .out_bound = r.out_bound + at * v_dim,
                                         .weights = r.weights + (p->weights.data ? at * keys : 0)};
                oracle_attend(p, b, h, i, &row);
                r.lse[at] = row.lse, r.lse_bound[at] = row.lse_bound;
                r.weight_factor[at] = row.weight_factor;
                r.visible[at] = row.visible;
            }
    return r;
}

void reference_free(struct reference *r) {
    free(r->out), free(r->out_bound), free(r->lse), free(r->lse_bound);
    free(r->weights), free(r->weight_factor), free(r->visible);
}

/* The largest share of the bound so far, and the failure if one is above 1. */
struct worst {
    double share;
    int64_t failures;
};

static void compare_one(struct worst *worst, const char *what, int64_t at[4], float got,
                        double want, double bound) {
    const double error = fabs((double)got - want);
    if (error > 0 && error / bound > worst->share)
        worst->share = error / bound;
    if (!oracle_agrees(got, want, bound) && worst->failures++ == 0)
        check_fail("%s[%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "] is %.9g, want %.17g within "
                   "%g",
                   what, at[0], at[1], at[2], at[3], (double)got, want, bound);
}

double trial_compare(const struct trial *t, const struct reference *r) {
    const attn_problem *p = &t->p;
    struct worst worst = {0, 0};
    size_t row = 0;
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->q_heads; h++)
            for (int64_t i = 0; i < p->q_len && p->v_dim > 0; i++, row++) {
                int64_t at[4] = {b, h, i, 0};
                for (int64_t c = 0; c < p->v_dim; c++) {
                    const size_t k = row * (size_t)p->v_dim + (size_t)c;
                    at[3] = c;
                    compare_one(&worst, "out", at, out_at(&p->out, b, h, i)[c], r->out[k],
                                r->out_bound[k]);
                }
                if (p->lse.data)
                    compare_one(&worst, "lse", at, *out_at(&p->lse, b, h, i), r->lse[row],
                                r->lse_bound[row]);
                for (int64_t j = 0; p->weights.data && j < p->kv_cap; j++) {
                    const double want = r->weights[row * (size_t)p->kv_cap + (size_t)j];
                    at[3] = j;
                    const float got = out_at(&p->weights, b, h, i)[j];
                    if (j >= r->visible[row] && bits_of(got) != 0 && worst.failures++ == 0)
                        check_fail("hidden weight[%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64
                                   "] is %g",
                                   b, h, i, j, (double)got);
                    /* Where the factor is infinite or NaN, a weight of 0 still is one. */
                    compare_one(&worst, "weight", at, got, want,
                                (want == 0 ? 0 : r->weight_factor[row] * want) + 0x1p-125);
                }
            }
    if (worst.failures > 1)
        fprintf(stderr,
                "    %" PRId64 " values of this problem are beyond the bound; worst error "
                "is %g times it\n",
                worst.failures, worst.share);
    return worst.share;
}

void trial_on_every_isa(struct trial *t) {
    struct reference reference = reference_make(t);
    FOR_EACH_ISA(isa) {
        trial_context(t, "oracle");
        trial_run(t, NULL);
        trial_compare(t, &reference);
    }
    reference_free(&reference);
}

/* ---- Executors ------------------------------------------------------------------------------- */

static void run_reversed(attn_executor *self, size_t n_tasks, attn_task task, void *arg) {
    struct reverse_executor *e = (struct reverse_executor *)self;
    e->tasks += (int64_t)n_tasks;
    for (size_t i = n_tasks; i-- > 0;)
        task(arg, i, (size_t)rng_below(&e->rng, (int64_t)e->base.n_workers));
}

struct reverse_executor reverse_executor(size_t n_workers) {
    const struct reverse_executor e = {
        {sizeof(attn_executor), n_workers, run_reversed}, {n_workers}, 0};
    return e;
}
