/* Every case of ONNX's own conformance suite for the operator Attention, on every kernel set.
 *
 * Used where the folder shared/data/onnx-attention is present beside the repository, or where
 * ATTN_SHARED names the folder shared. How a node maps to a call:
 *
 *     Q, K, V of rank 4       [B, H, L, D]; of rank 3 [B, L, H * D], both by strides
 *     scale, softcap          the same; a scale that is not set is the default
 *     is_causal, windows      the same; where one is set the alignment is bottom-right with
 *                             nonpad_kv_seqlen, explicit at past_len with a past, else top-left
 *     attn_mask               right-aligned broadcast to [B, Hq, Lq, Lk]; bool, f32 and f16 as they
 *                             are; a last axis shorter than Lk hides the rest
 *     nonpad_kv_seqlen        kv_len
 *     past_key, past_value    past_k and past_v
 *     present_key, _value     nothing: past and new one after the other
 *     qk_matmul_output        mode 0, 1, 2: scores scaled, capped, biased; 3: weights
 *     softmax_precision       nothing: always f32
 *     float16                 converted to f32 (masks are not)
 *
 * SPDX-License-Identifier: MIT */
#define _GNU_SOURCE 1
#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "cli/oracle.h"

enum { N_CASES = 87, MAX_RANK = 4 };

/* The expected values agree with arithmetic in double precision to 3e-8, those of f16 cases to
 * 2.4e-4: half a unit in the last place of their own type. */
#define TOLERANCE_F32 2e-6
#define TOLERANCE_F16 1e-3
#define ORACLE_F32 1e-7
#define ORACLE_F16 5e-4

/* ---- Files ----------------------------------------------------------------------------------- */

static char *read_file(const char *folder, const char *name, const char *end, size_t *size) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s%s", folder, name, end);
    FILE *file = fopen(path, "rb");
    cr_assert(file != NULL, "%s cannot be read", path);
    cr_assert(fseek(file, 0, SEEK_END) == 0);
    *size = (size_t)ftell(file);
    rewind(file);
    char *data = calloc(*size + 1, 1);
    cr_assert(data && fread(data, 1, *size, file) == *size, "%s", path);
    fclose(file);
    return data;
}

/* What follows "name": in meta.json, one object whose names all differ but in lists of strings. */
static const char *json_value(const char *meta, const char *name) {
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\": ", name);
    const char *at = strstr(meta, quoted);
    return at ? at + strlen(quoted) : NULL;
}

static double json_number(const char *meta, const char *name, double if_null) {
    const char *at = json_value(meta, name);
    cr_assert(at != NULL, "no %s in meta.json", name);
    return strncmp(at, "null", 4) == 0 ? if_null : strtod(at, NULL);
}

enum dtype { FLOAT32, FLOAT16, BOOL, INT64 };

/* A tensor as the file has it, and as f32 where it holds such numbers. */
struct tensor {
    enum dtype type;
    int rank;
    int64_t shape[MAX_RANK], count;
    char *file;
    const void *raw;
    float *values;
};

static float half_value(uint16_t h) {
    const int exponent = h >> 10 & 31, fraction = h & 1023;
    const float x = exponent == 31 ? fraction ? NAN : INFINITY
                    : exponent     ? ldexpf((float)(1024 + fraction), exponent - 25)
                                   : ldexpf((float)fraction, -24);
    return h >> 15 ? -x : x;
}

/* Returns false if the case has no tensor of this name. */
static bool read_tensor(const char *folder, const char *meta, const char *name, struct tensor *t) {
    memset(t, 0, sizeof *t);
    const char *at = json_value(strstr(meta, "\"tensors\""), name);
    if (!at)
        return false;
    static const char *const types[] = {"float32", "float16", "bool", "int64"};
    static const size_t sizes[] = {4, 2, 1, 8};
    char type[16];
    cr_assert(sscanf(at, "{\"dtype\": \"%15[a-z0-9]\"", type) == 1, "%s of %s", name, folder);
    while (strcmp(types[t->type], type) != 0) {
        cr_assert(t->type < INT64, "type %s of %s", type, name);
        t->type = (enum dtype)(t->type + 1);
    }
    at = strchr(at, '[');
    t->count = 1;
    while (*at != ']') {
        cr_assert(t->rank < MAX_RANK, "rank of %s", name);
        char *end;
        t->shape[t->rank] = strtoll(at + 1, &end, 10);
        t->count *= t->shape[t->rank++];
        at = end;
    }
    size_t size;
    t->file = read_file(folder, name, ".npy", &size);
    const unsigned char *header = (const unsigned char *)t->file;
    cr_assert(size > 10 && memcmp(header, "\x93NUMPY\x01", 7) == 0, "%s of %s", name, folder);
    const size_t begin = 10 + header[8] + 256u * header[9];
    cr_assert(size == begin + (size_t)t->count * sizes[t->type], "size of %s of %s", name, folder);
    t->raw = t->file + begin;
    if (t->type > FLOAT16)
        return true;
    t->values = malloc((size_t)(t->count + 1) * sizeof(float));
    cr_assert(t->values != NULL);
    for (int64_t k = 0; k < t->count; k++) {
        uint16_t h;
        if (t->type == FLOAT32) {
            memcpy(&t->values[k], (const char *)t->raw + 4 * k, 4);
        } else {
            memcpy(&h, (const char *)t->raw + 2 * k, 2);
            t->values[k] = half_value(h);
        }
    }
    return true;
}

/* ---- A case ---------------------------------------------------------------------------------- */

enum { Q, K, V, MASK, NONPAD, PAST_K, PAST_V, Y, PRESENT_K, PRESENT_V, QK, N_TENSORS };
static const char *const tensor_names[N_TENSORS] = {
    "Q",          "K", "V",           "attn_mask",     "nonpad_kv_seqlen", "past_key",
    "past_value", "Y", "present_key", "present_value", "qk_matmul_output"};

struct onnx_case {
    struct tensor t[N_TENSORS];
    bool has[N_TENSORS];
    attn_problem p;
    float scale, *out, *qk;
    int64_t window[2], offset[MAX_BATCH];
    int mode; /* qk_matmul_output_mode */
};

/* [B, H, L, D], or [B, L, H * D]. */
static attn_input input_of(const struct tensor *t, int64_t heads, int64_t tokens, int64_t dim) {
    if (t->rank == 3)
        return (attn_input){t->values, ATTN_F32, tokens * heads * dim, dim, heads * dim};
    return (attn_input){t->values, ATTN_F32, heads * tokens * dim, tokens * dim, dim};
}

static attn_mask mask_of(const struct tensor *t) {
    attn_mask m = {.data = t->raw,
                   .type = t->type == BOOL      ? ATTN_MASK_BOOL
                           : t->type == FLOAT16 ? ATTN_MASK_F16
                                                : ATTN_MASK_F32,
                   .stride_key = 1,
                   .n_keys = t->shape[t->rank - 1]};
    int64_t *const strides[] = {&m.stride_query, &m.stride_head, &m.stride_batch};
    int64_t stride = m.n_keys;
    for (int axis = t->rank - 2, n = 0; axis >= 0; axis--, n++) {
        *strides[n] = t->shape[axis] > 1 ? stride : 0;
        stride *= t->shape[axis];
    }
    return m;
}

static void set_alignment(struct onnx_case *c, int64_t past_len) {
    attn_problem *p = &c->p;
    if (!p->causal && !p->window)
        return;
    p->align = c->has[NONPAD] ? ATTN_ALIGN_BOTTOM_RIGHT
               : past_len > 0 ? ATTN_ALIGN_EXPLICIT
                              : ATTN_ALIGN_TOP_LEFT;
    for (int64_t b = 0; b < p->batch; b++)
        c->offset[b] = past_len;
    if (p->align == ATTN_ALIGN_EXPLICIT)
        p->offset = c->offset;
}

static void read_case(const char *folder, struct onnx_case *c) {
    size_t size;
    char *meta = read_file(folder, "meta", ".json", &size);
    memset(c, 0, sizeof *c);
    for (int n = 0; n < N_TENSORS; n++)
        c->has[n] = read_tensor(folder, meta, tensor_names[n], &c->t[n]);
    attn_problem *p = &c->p;
    *p = attn_problem_init();
    p->batch = (int64_t)json_number(meta, "batch", 0);
    p->q_heads = (int64_t)json_number(meta, "q_heads", 0);
    p->kv_heads = (int64_t)json_number(meta, "kv_heads", 0);
    p->q_len = (int64_t)json_number(meta, "q_len", 0);
    p->kv_cap = (int64_t)json_number(meta, "kv_len", 0);
    p->qk_dim = (int64_t)json_number(meta, "head_size", 0);
    p->v_dim = (int64_t)json_number(meta, "v_head_size", 0);
    cr_assert(p->batch <= MAX_BATCH);

    p->q = input_of(&c->t[Q], p->q_heads, p->q_len, p->qk_dim);
    p->k = input_of(&c->t[K], p->kv_heads, p->kv_cap, p->qk_dim);
    p->v = input_of(&c->t[V], p->kv_heads, p->kv_cap, p->v_dim);
    const attn_input as_y = input_of(&c->t[Y], p->q_heads, p->q_len, p->v_dim);
    c->out = malloc((size_t)(c->t[Y].count + 1) * sizeof(float));
    p->out =
        (attn_output){c->out, ATTN_F32, as_y.stride_batch, as_y.stride_head, as_y.stride_token};
    if (c->has[PAST_K]) {
        p->past_cap = (int64_t)json_number(meta, "past_len", 0);
        p->past_k = input_of(&c->t[PAST_K], p->kv_heads, p->past_cap, p->qk_dim);
        p->past_v = input_of(&c->t[PAST_V], p->kv_heads, p->past_cap, p->v_dim);
    }
    if (c->has[MASK])
        p->mask = mask_of(&c->t[MASK]);
    if (c->has[NONPAD])
        p->kv_len = c->t[NONPAD].raw;

    c->scale = (float)json_number(meta, "scale", NAN);
    p->scale = isnan(c->scale) ? NULL : &c->scale;
    p->softcap = (float)json_number(meta, "softcap", 0);
    p->causal = (int32_t)json_number(meta, "is_causal", 0);
    c->window[0] = (int64_t)json_number(meta, "left_window_size", -1);
    c->window[1] = (int64_t)json_number(meta, "right_window_size", -1);
    p->window = c->window[0] >= 0 || c->window[1] >= 0 ? c->window : NULL;
    set_alignment(c, p->past_cap);

    c->mode = (int)json_number(meta, "qk_matmul_output_mode", 0);
    if (c->has[QK]) {
        const int64_t keys = p->past_cap + p->kv_cap;
        cr_assert(c->t[QK].count == p->batch * p->q_heads * p->q_len * keys);
        c->qk = malloc((size_t)(c->t[QK].count + 1) * sizeof(float));
        attn_output *to = c->mode == 3 ? &p->weights : &p->scores;
        *to = (attn_output){c->qk, ATTN_F32, p->q_heads * p->q_len * keys, p->q_len * keys, keys};
        p->scores_at = c->mode == 3 ? ATTN_SCORES_SCALED : (attn_score_stage)c->mode;
    }
    free(meta);
}

static void free_case(struct onnx_case *c) {
    for (int n = 0; n < N_TENSORS; n++)
        free(c->t[n].file), free(c->t[n].values);
    free(c->out), free(c->qk);
}

/* ---- Comparisons ----------------------------------------------------------------------------- */

static bool is_close(double got, double want, double tolerance) {
    return got == want || fabs(got - want) <= tolerance * (1 + fabs(want));
}

static bool compare_tensor(const float *got, const struct tensor *want, const char *what) {
    const double tolerance = want->type == FLOAT16 ? TOLERANCE_F16 : TOLERANCE_F32;
    for (int64_t k = 0; k < want->count; k++)
        if (!is_close(got[k], want->values[k], tolerance)) {
            check_fail("%s[%" PRId64 "] is %.9g, want %.9g", what, k, (double)got[k],
                       (double)want->values[k]);
            return false;
        }
    return true;
}

static bool run_case(struct onnx_case *c) {
    const attn_problem *p = &c->p;
    memset(c->out, 0xff, (size_t)c->t[Y].count * sizeof(float));
    if (c->qk)
        memset(c->qk, 0xff, (size_t)c->t[QK].count * sizeof(float));
    const attn_status status = attn_forward_alloc(p, NULL);
    if (status != ATTN_OK) {
        char sentence[256];
        attn_check(p, sentence, sizeof sentence);
        check_fail("%s: %s", attn_status_string(status), sentence);
        return false;
    }
    return compare_tensor(c->out, &c->t[Y], "Y") &&
           (!c->qk || compare_tensor(c->qk, &c->t[QK], "qk_matmul_output"));
}

/* The oracle is held to the suite as well: it judges everything else. */
static bool oracle_case(const struct onnx_case *c) {
    const attn_problem *p = &c->p;
    enum { MOST = 64 };
    double out[MOST], out_bound[MOST], weights[MOST], scores[MOST], scores_bound[MOST];
    unsigned char sees[MOST];
    struct oracle_row row = {.out = out,
                             .out_bound = out_bound,
                             .weights = weights,
                             .scores = scores,
                             .scores_bound = scores_bound,
                             .sees = sees};
    const int64_t keys = p->past_cap + p->kv_cap;
    cr_assert(p->v_dim <= MOST && keys <= MOST);
    const double tolerance = c->t[Y].type == FLOAT16 ? ORACLE_F16 : ORACLE_F32;
    int64_t at = 0;
    bool good = true;
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->q_heads; h++)
            for (int64_t i = 0; i < p->q_len; i++, at++) {
                oracle_attend(p, b, h, i, &row);
                const float *y = c->t[Y].values + oracle_output_at(p, &p->out, b, h, i);
                for (int64_t k = 0; k < p->v_dim; k++)
                    good &= is_close(out[k], y[k], tolerance);
                for (int64_t j = 0; j < keys && c->qk; j++)
                    good &= is_close(c->mode == 3 ? weights[j] : scores[j],
                                     c->t[QK].values[at * keys + j], tolerance);
            }
    CHECK(good, "the oracle disagrees");
    return good;
}

/* present = past, then new: what a caller who keeps one cache lays together. */
static bool present_case(const struct onnx_case *c) {
    const attn_problem *p = &c->p;
    bool good = true;
    for (int which = 0; which < 2 && c->has[PRESENT_K]; which++) {
        const struct tensor *present = &c->t[PRESENT_K + which];
        const attn_input *past = which ? &p->past_v : &p->past_k, *now = which ? &p->v : &p->k;
        const int64_t dim = which ? p->v_dim : p->qk_dim, keys = p->past_cap + p->kv_cap;
        for (int64_t at = 0; at < p->batch * p->kv_heads * keys; at++) {
            const int64_t b = at / keys / p->kv_heads, g = at / keys % p->kv_heads, j = at % keys;
            const float *row =
                j < p->past_cap ? in_at(past, b, g, j) : in_at(now, b, g, j - p->past_cap);
            good &= memcmp(row, present->values + at * dim, (size_t)dim * sizeof(float)) == 0;
        }
    }
    CHECK(good, "present_key or present_value is not past and new together");
    return good;
}

/* ---- The suite ------------------------------------------------------------------------------- */

static bool suite_folder(char *folder, size_t size) {
    const char *shared = getenv("ATTN_SHARED"), *slash = strrchr(__FILE__, '/');
    if (shared && *shared)
        snprintf(folder, size, "%s/data/onnx-attention", shared);
    else if (slash)
        snprintf(folder, size, "%.*s/../../shared/data/onnx-attention", (int)(slash - __FILE__),
                 __FILE__);
    else
        snprintf(folder, size, "../shared/data/onnx-attention");
    if (access(folder, R_OK) == 0)
        return true;
    check_say("skipped: the conformance suite of ONNX in %s, which is not there", folder);
    return false;
}

static bool oracle_and_present(struct onnx_case *c) { return oracle_case(c) && present_case(c); }

/* Calls what for each case; returns how many of them were good. */
static int for_each_case(const char *folder, bool (*what)(struct onnx_case *c), int *n_cases) {
    int good = 0;
    *n_cases = 0;
    DIR *suite = opendir(folder);
    cr_assert(suite != NULL);
    for (struct dirent *entry; (entry = readdir(suite));) {
        if (strncmp(entry->d_name, "test_", 5) != 0)
            continue;
        char path[3500];
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        struct onnx_case c;
        read_case(path, &c);
        check_context("%s: %s", attn_isa(), entry->d_name);
        good += what(&c);
        free_case(&c);
        ++*n_cases;
    }
    closedir(suite);
    return good;
}

Test(onnx, oracle) {
    char folder[3072];
    if (!suite_folder(folder, sizeof folder))
        return;
    int n_cases;
    const int good = for_each_case(folder, oracle_and_present, &n_cases);
    check_say("ONNX: %d of %d cases by the oracle", good, n_cases);
    cr_expect(good == N_CASES && n_cases == N_CASES);
}

Test(onnx, attention) {
    char folder[3072];
    if (!suite_folder(folder, sizeof folder))
        return;
    FOR_EACH_ISA(isa) {
        int n_cases;
        const int good = for_each_case(folder, run_case, &n_cases);
        check_say("ONNX: %d of %d cases on %s", good, n_cases, isa);
        cr_expect(good == N_CASES && n_cases == N_CASES);
    }
}
