/* attn run: attention over .npy files.
 *
 * SPDX-License-Identifier: MIT */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn.h"
#include "cli.h"
#include "convert.h"
#include "extra_inputs.h"
#include "machine.h"
#include "memory.h"
#include "outputs.h"
#include "run_options.h"
#include "tensors.h"
#include "timing.h"

/* One value per batch, from a list that may give one for all. */
static int spread(const char *name, int64_t **list, size_t count, int64_t batch,
                  const char *q_path) {
    if (!*list || (int64_t)count == batch)
        return 0;
    if (count != 1) {
        cli_fail(CLI_FAILED,
                 "%s gives %zu values, but %s holds %" PRId64 " batches: expected one or one each",
                 name, count, q_path, batch);
        return -1;
    }
    int64_t *all = (uint64_t)batch > SIZE_MAX ? NULL : cli_allocate((size_t)batch, sizeof *all);
    if (!all) {
        cli_fail(CLI_FAILED, "not enough memory for %" PRId64 " batches", batch);
        return -1;
    }
    for (int64_t b = 0; b < batch; b++)
        all[b] = **list;
    free(*list);
    *list = all;
    return 0;
}

/* The position of row 0, unless the user picked one: after the keys from before. */
static int align_after_past(struct run_options *o, int64_t past) {
    if (o->align != ATTN_ALIGN_UNSET)
        return 0;
    o->offsets = cli_allocate(1, sizeof *o->offsets);
    if (!o->offsets)
        return cli_fail(-1, "not enough memory");
    *o->offsets = past;
    o->n_offsets = 1;
    o->align = ATTN_ALIGN_EXPLICIT;
    return 0;
}

static int make_problem(struct run_options *o, const struct tensors *t,
                        const struct extra_inputs *e, attn_problem *p) {
    if (tensors_problem(t, &o->layout, p) || extra_inputs_set(e, p) ||
        (o->past_k && align_after_past(o, p->past_cap)) ||
        spread("--align", &o->offsets, o->n_offsets, p->batch, o->q) ||
        spread("--kv-len", &o->kv_lens, o->n_kv_lens, p->batch, o->q))
        return -1;
    p->causal = o->causal;
    p->window = o->window;
    p->align = o->align;
    p->offset = o->offsets;
    p->kv_len = o->kv_lens;
    p->scale = o->has_scale ? &o->scale : NULL;
    p->softcap = o->softcap;
    p->scores_at = o->scores_at;
    return 0;
}

/* One output file with what goes into it. */
struct result {
    const char *path; /* null: not asked for */
    enum npy_type type;
    int rank;
    int64_t shape[NPY_MAX_RANK];
    int is_stored; /* data is of that type, and not float */
    void *data;
    FILE *file;
};

enum { OUT, WEIGHTS, LSE, SCORES, PRESENT_K, PRESENT_V, N_RESULTS };

static enum npy_type output_type(const struct npy *input) {
    return input->type == NPY_F64 ? NPY_F32 : input->type;
}

static void describe_results(const struct run_options *o, const struct tensors *t,
                             const attn_problem *p, struct result results[N_RESULTS]) {
    const enum npy_type type = output_type(&t->q);
    const int64_t n_keys = p->past_cap + p->kv_cap;
    results[OUT] = (struct result){.path = o->out, .type = type, .rank = t->q.rank, .is_stored = 1};
    tensors_out_shape(t, &o->layout, p, results[OUT].shape);
    results[WEIGHTS] = (struct result){.path = o->weights,
                                       .type = type,
                                       .rank = 4,
                                       .shape = {p->batch, p->q_heads, p->q_len, n_keys}};
    results[SCORES] = results[WEIGHTS];
    results[SCORES].path = o->scores;
    results[LSE] = (struct result){
        .path = o->lse, .type = NPY_F32, .rank = 3, .shape = {p->batch, p->q_heads, p->q_len}};
    results[PRESENT_K] = (struct result){.path = o->present_k,
                                         .type = output_type(&t->k),
                                         .is_stored = 1,
                                         .rank = 4,
                                         .shape = {p->batch, p->kv_heads, n_keys, p->qk_dim}};
    results[PRESENT_V] = (struct result){.path = o->present_v,
                                         .type = output_type(&t->v),
                                         .is_stored = 1,
                                         .rank = 4,
                                         .shape = {p->batch, p->kv_heads, n_keys, p->v_dim}};
}

static int allocate(struct result *r) {
    const int64_t count = npy_count(r->rank, r->shape);
    char shape[NPY_SHAPE_SIZE];
    npy_shape_text(r->rank, r->shape, shape);
    if (count < 0)
        return cli_fail(-1, "%s: the size of its shape %s overflows", r->path, shape);
    const int is_half = r->is_stored && r->type != NPY_F32;
    r->data = cli_allocate((size_t)count, is_half ? sizeof(uint16_t) : sizeof(float));
    if (!r->data)
        return cli_fail(-1, "%s: not enough memory for its shape %s", r->path, shape);
    return 0;
}

/* Where the library writes r: contiguous, in the order of its shape, of which the last axis is that
 * of the features, or of one number where there are only three. */
static attn_output output_of(const struct result *r) {
    if (!r->path)
        return (attn_output){.data = NULL};
    const int64_t features = r->rank == 4 ? r->shape[3] : 1;
    return (attn_output){.data = r->data,
                         .type = ATTN_F32,
                         .stride_batch = r->shape[1] * r->shape[2] * features,
                         .stride_head = r->shape[2] * features,
                         .stride_token = features};
}

/* Past and new together, in the type of the new ones. */
static int join(const attn_problem *p, const attn_input *past, const attn_input *new,
                const struct result *present) {
    const int64_t n_keys = present->shape[2], features = present->shape[3];
    const attn_cache cache = {.data = present->data,
                              .type = new->type,
                              .stride_page = p->kv_heads *n_keys *features,
                              .stride_head = n_keys *features,
                              .stride_token = features,
                              .n_pages = p->batch,
                              .page_len = n_keys ? n_keys : 1};
    return append_tokens(past, p->batch, p->kv_heads, p->past_cap, features, 0, &cache) ||
                   append_tokens(new, p->batch, p->kv_heads, p->kv_cap, features, p->past_cap,
                                 &cache)
               ? -1
               : 0;
}

/* Keys and values are stored as asked for, or as f32 where past and new differ. */
enum { K, V, PAST_K, PAST_V, N_CONVERTED };

static int convert_cache(const struct run_options *o, attn_problem *p,
                         struct converted converted[N_CONVERTED]) {
    attn_input *const tensors[] = {&p->k, &p->v, &p->past_k, &p->past_v};
    attn_scales *const scales[] = {&p->k_scales, &p->v_scales, &p->past_k_scales,
                                   &p->past_v_scales};
    const int differ[2] = {p->past_cap && p->k.type != p->past_k.type,
                           p->past_cap && p->v.type != p->past_v.type};
    for (int i = 0; i < N_CONVERTED; i++) {
        const int is_past = i >= PAST_K, is_value = i % 2;
        const attn_type type = o->has_kv_type ? o->kv_type : ATTN_F32;
        if ((!o->has_kv_type && !differ[is_value]) || tensors[i]->type == type ||
            (is_past && !p->past_cap))
            continue;
        if (convert_input(tensors[i], scales[i], p->batch, p->kv_heads,
                          is_past ? p->past_cap : p->kv_cap, is_value ? p->v_dim : p->qk_dim, type,
                          &converted[i]))
            return -1;
    }
    return 0;
}

static attn_executor *make_executor(int64_t threads, attn_executor *executor) {
#ifdef ATTN_HAVE_OPENMP
    if (threads > 1) {
        *executor = attn_openmp_executor((size_t)threads);
        return executor;
    }
#endif
    (void)threads, (void)executor;
    return NULL;
}

static int library_failed(const char *q_path, attn_status status, const char *sentence) {
    if (status == ATTN_ERROR_ALIGNMENT)
        return cli_fail(CLI_USAGE, "--align is missing: %s", sentence);
    return cli_fail(CLI_FAILED, "%s: %s", q_path, sentence);
}

/* Everything after the files are read. */
static int compute(struct run_options *o, const struct tensors *t, const struct extra_inputs *e,
                   const char *isa, struct result results[N_RESULTS],
                   struct converted converted[N_CONVERTED]) {
    attn_problem p;
    if (make_problem(o, t, e, &p))
        return CLI_FAILED;
    if (p.v_dim == 0 && (o->weights || o->lse || o->scores)) /* the library has nothing to do */
        return cli_fail(CLI_FAILED, "%s: 0 features found, at least 1 expected with %s", o->v,
                        o->weights ? "--weights"
                        : o->lse   ? "--lse"
                                   : "--scores");
    describe_results(o, t, &p, results);
    for (int i = 0; i < N_RESULTS; i++)
        if (results[i].path && allocate(&results[i]))
            return CLI_FAILED;
    p.out.data = results[OUT].data;
    p.out.type = p.q.type;
    p.weights = output_of(&results[WEIGHTS]);
    p.lse = output_of(&results[LSE]);
    p.scores = output_of(&results[SCORES]);
    if ((o->present_k && join(&p, &p.past_k, &p.k, &results[PRESENT_K])) ||
        (o->present_v && join(&p, &p.past_v, &p.v, &results[PRESENT_V])) ||
        convert_cache(o, &p, converted))
        return CLI_FAILED;
    char sentence[512];
    attn_status answer = attn_check(&p, sentence, sizeof sentence);
    if (answer != ATTN_OK)
        return library_failed(o->q, answer, sentence);

    /* Opened before the work, so that a place that cannot be written costs no time. */
    int status = CLI_DONE;
    for (int i = 0; i < N_RESULTS; i++)
        if (results[i].path && !(results[i].file = output_open(results[i].path, &status)))
            return status;

    attn_executor openmp, *executor = make_executor(o->threads, &openmp);
    size_t size;
    answer = attn_workspace_size(&p, executor ? executor->n_workers : 1, &size);
    void *workspace = answer == ATTN_OK ? cli_allocate(size, 1) : NULL;
    if (answer == ATTN_OK && !workspace)
        return cli_fail(CLI_FAILED, "not enough memory for a workspace of %zu bytes", size);
    if (answer == ATTN_OK)
        answer = attn_forward(&p, workspace, size, executor);
    double median = 0;
    if (answer == ATTN_OK && o->repeat)
        answer = timing_median(&p, workspace, size, executor, o->repeat, o->repeat, 0, &median);
    free(workspace);
    if (answer != ATTN_OK)
        return library_failed(o->q, answer, attn_status_string(answer));

    for (int i = 0; i < N_RESULTS; i++) {
        const struct result *r = &results[i];
        if (r->path &&
            (r->is_stored ? npy_write_stored(r->file, r->type, r->rank, r->shape, r->data)
                          : npy_write(r->file, r->type, r->rank, r->shape, r->data)))
            return cli_fail(CLI_FAILED, "%s: cannot be written: %s", r->path, strerror(errno));
    }
    if (o->repeat) {
        const double gflops = median > 0 ? timing_flops(&p) / median * 1e-9 : 0;
        printf("isa=%s median_us=%.3f gflops=%.3f\n", isa, median * 1e6, gflops);
        if (fflush(stdout) != 0)
            return cli_fail(CLI_FAILED, "standard output cannot be written: %s", strerror(errno));
    }
    return outputs_commit() ? CLI_FAILED : CLI_DONE;
}

int cmd_run(int argc, char **argv) {
    struct run_options o;
    int done;
    int status = run_options_parse(argc, argv, &o, &done);
    if (status == CLI_DONE && !done) {
        const char *isa = machine_select(o.isa);
#ifndef ATTN_HAVE_OPENMP
        if (isa && o.threads > 1) {
            cli_fail(CLI_FAILED, "--threads %" PRId64 ": this build has no OpenMP, expected 1",
                     o.threads);
            isa = NULL;
        }
#endif
        struct tensors t = {.q_path = o.q, .k_path = o.k, .v_path = o.v};
        struct extra_inputs e = {.mask_path = o.mask,
                                 .sinks_path = o.sinks,
                                 .alibi_path = o.alibi,
                                 .past_k_path = o.past_k,
                                 .past_v_path = o.past_v};
        struct result results[N_RESULTS] = {{.path = NULL}};
        status = CLI_FAILED;
        struct converted converted[N_CONVERTED] = {{NULL, NULL}};
        if (isa && tensors_read(&t, o.bf16, 1) == 0 && extra_inputs_read(&e, o.bf16) == 0)
            status = compute(&o, &t, &e, isa, results, converted);
        outputs_discard();
        for (int i = 0; i < N_RESULTS; i++)
            free(results[i].data);
        for (int i = 0; i < N_CONVERTED; i++)
            converted_free(&converted[i]);
        tensors_free(&t);
        extra_inputs_free(&e);
    }
    run_options_free(&o);
    return status;
}
