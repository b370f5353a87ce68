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
#include "machine.h"
#include "outputs.h"
#include "tensors.h"
#include "timing.h"

static const char help[] =
    "usage: attn run --q Q.npy --k K.npy --v V.npy --out O.npy [options]\n"
    "\n"
    "Writes softmax(Q K^T * scale) V to O.npy.\n"
    "\n"
    "Files are .npy, C order, little-endian: float32, float16, float64, or uint16 with\n"
    "--bf16. Rank 4 is [B,H,L,D], rank 3 is [H,L,D], rank 2 is [L,D]. All sums are float32.\n"
    "The output has the rank, layout and type of Q (float64 gives float32).\n"
    "\n"
    "  --causal              row i sees the keys up to its own position only\n"
    "  --align WHERE         position of row 0 among the keys: top-left (0), bottom-right\n"
    "                        (keys - rows), or P[,P...], one for all batches or one each;\n"
    "                        needed by --causal where rows and keys differ in number\n"
    "  --kv-len N[,N...]     only the first N keys exist; one for all batches or one each\n"
    "  --scale X             instead of 1/sqrt(D)\n"
    "  --layout bhld|blhd    blhd: rank 4 is [B,L,H,D]\n"
    "  --q-heads N --kv-heads M\n"
    "                        rank 3 is packed: Q [B,L,N*D], K and V [B,L,M*D]\n"
    "  --bf16                read uint16 files as bfloat16; write the outputs so if Q is\n"
    "  --weights W.npy       also write the attention weights, [B,H,rows,keys], type of O\n"
    "  --lse L.npy           also write log(sum(exp(scores))), [B,H,rows], float32\n"
    "  --isa NAME            the kernel set to use; attn info lists them\n"
    "  --threads N           compute on N threads (needs a build with OpenMP)\n"
    "  --repeat N            compute N times more and print the median time\n"
    "\n"
    "Outputs appear when all are complete, or not at all. Exit status: 0 done, 1 failed,\n"
    "2 wrong usage.\n";

#define MAX_THREADS 1024
#define MAX_REPEATS 1000000

/* The command line, checked as far as it can be without the files. */
struct run {
    const char *q, *k, *v, *out, *weights, *lse, *isa;
    int causal, bf16;
    struct tensor_layout layout;
    attn_align align;
    int64_t *offsets, *kv_lens; /* null where not given */
    size_t n_offsets, n_kv_lens;
    float scale;
    int has_scale;
    int64_t threads, repeat;
};

/* An option whose value is an integer in [least, most]; unchanged where not given. */
static int integer_option(const char *name, const char *text, int64_t least, int64_t most,
                          int64_t *value) {
    if (!text)
        return 0;
    int64_t number;
    if (cli_parse_int64(text, &number) || number < least || number > most) {
        cli_fail(CLI_USAGE, "%s: '%s', expected an integer from %" PRId64 " to %" PRId64, name,
                 text, least, most);
        return -1;
    }
    *value = number;
    return 0;
}

static int list_option(const char *name, const char *text, int64_t least, int64_t most,
                       const char *expected, int64_t **list, size_t *count) {
    int bad = cli_parse_int64_list(text, list, count);
    for (size_t i = 0; !bad && i < *count; i++)
        bad = (*list)[i] < least || (*list)[i] > most;
    if (bad)
        cli_fail(CLI_USAGE, "%s: '%s', expected %s", name, text, expected);
    return bad ? -1 : 0;
}

static int parse(int argc, char **argv, struct run *r, int *done) {
    const char *align = NULL, *kv_len = NULL, *scale = NULL, *layout = NULL;
    const char *q_heads = NULL, *kv_heads = NULL, *threads = NULL, *repeat = NULL;
    const struct cli_option options[] = {
        {"--q", &r->q, NULL},
        {"--k", &r->k, NULL},
        {"--v", &r->v, NULL},
        {"--out", &r->out, NULL},
        {"--weights", &r->weights, NULL},
        {"--lse", &r->lse, NULL},
        {"--isa", &r->isa, NULL},
        {"--align", &align, NULL},
        {"--kv-len", &kv_len, NULL},
        {"--scale", &scale, NULL},
        {"--layout", &layout, NULL},
        {"--q-heads", &q_heads, NULL},
        {"--kv-heads", &kv_heads, NULL},
        {"--threads", &threads, NULL},
        {"--repeat", &repeat, NULL},
        {"--causal", NULL, &r->causal},
        {"--bf16", NULL, &r->bf16},
        {NULL, NULL, NULL},
    };
    const int status = cli_parse(argc, argv, options, NULL, help, done);
    if (status != CLI_DONE || *done)
        return status;

    if (!r->q || !r->k || !r->v || !r->out)
        return cli_fail(CLI_USAGE, "%s is missing; see 'attn run --help'",
                        !r->q   ? "--q"
                        : !r->k ? "--k"
                        : !r->v ? "--v"
                                : "--out");
    if (!q_heads != !kv_heads)
        return cli_fail(CLI_USAGE, "%s without %s, expected both or none",
                        q_heads ? "--q-heads" : "--kv-heads", q_heads ? "--kv-heads" : "--q-heads");
    if (integer_option("--q-heads", q_heads, 1, INT32_MAX, &r->layout.q_heads) ||
        integer_option("--kv-heads", kv_heads, 1, INT32_MAX, &r->layout.kv_heads) ||
        integer_option("--threads", threads, 1, MAX_THREADS, &r->threads) ||
        integer_option("--repeat", repeat, 1, MAX_REPEATS, &r->repeat))
        return CLI_USAGE;
    if (layout && strcmp(layout, "bhld") != 0 && strcmp(layout, "blhd") != 0)
        return cli_fail(CLI_USAGE, "--layout: '%s', expected bhld or blhd", layout);
    if (layout && q_heads && strcmp(layout, "bhld") == 0)
        return cli_fail(CLI_USAGE, "--layout bhld with --q-heads, which means [B,L,H*D]");
    r->layout.length_first = layout && !q_heads && strcmp(layout, "blhd") == 0;
    if (scale && cli_parse_finite_float(scale, &r->scale))
        return cli_fail(CLI_USAGE, "--scale: '%s', expected a finite number", scale);
    r->has_scale = scale != NULL;
    if (kv_len && list_option("--kv-len", kv_len, 0, INT64_MAX, "one or more lengths, N[,N...]",
                              &r->kv_lens, &r->n_kv_lens))
        return CLI_USAGE;
    if (align && strcmp(align, "top-left") == 0) {
        r->align = ATTN_ALIGN_TOP_LEFT;
    } else if (align && strcmp(align, "bottom-right") == 0) {
        r->align = ATTN_ALIGN_BOTTOM_RIGHT;
    } else if (align) {
        r->align = ATTN_ALIGN_EXPLICIT;
        if (list_option("--align", align, -(INT64_C(1) << 62), INT64_C(1) << 62,
                        "top-left, bottom-right or one or more positions, P[,P...]", &r->offsets,
                        &r->n_offsets))
            return CLI_USAGE;
    }
    return CLI_DONE;
}

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

/* One output file with what goes into it. */
struct result {
    const char *path; /* null: not asked for */
    enum npy_type type;
    int rank;
    int64_t shape[NPY_MAX_RANK];
    float *data;
    FILE *file;
};

static int allocate(struct result *r) {
    const int64_t count = npy_count(r->rank, r->shape);
    char shape[NPY_SHAPE_SIZE];
    npy_shape_text(r->rank, r->shape, shape);
    if (count < 0)
        return cli_fail(-1, "%s: the size of its shape %s overflows", r->path, shape);
    r->data = cli_allocate((size_t)count, sizeof *r->data);
    if (!r->data)
        return cli_fail(-1, "%s: not enough memory for its shape %s", r->path, shape);
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
static int compute(struct run *r, const struct tensors *t, const char *isa,
                   struct result results[3]) {
    attn_problem p;
    if (tensors_problem(t, &r->layout, &p))
        return CLI_FAILED;
    if (spread("--align", &r->offsets, r->n_offsets, p.batch, r->q) ||
        spread("--kv-len", &r->kv_lens, r->n_kv_lens, p.batch, r->q))
        return CLI_FAILED;
    p.causal = r->causal;
    p.align = r->align;
    p.offset = r->offsets;
    p.kv_len = r->kv_lens;
    p.scale = r->has_scale ? &r->scale : NULL;

    const enum npy_type type = t->q.type == NPY_F64 ? NPY_F32 : t->q.type;
    struct result *out = &results[0], *weights = &results[1], *lse = &results[2];
    *out = (struct result){.path = r->out, .type = type, .rank = t->q.rank};
    tensors_out_shape(t, &r->layout, &p, out->shape);
    *weights = (struct result){.path = r->weights,
                               .type = type,
                               .rank = 4,
                               .shape = {p.batch, p.q_heads, p.q_len, p.kv_cap}};
    *lse = (struct result){
        .path = r->lse, .type = NPY_F32, .rank = 3, .shape = {p.batch, p.q_heads, p.q_len}};
    p.weights.stride_token = p.kv_cap;
    p.weights.stride_head = p.q_len * p.kv_cap;
    p.weights.stride_batch = p.q_heads * p.q_len * p.kv_cap;
    p.lse.stride_token = 1;
    p.lse.stride_head = p.q_len;
    p.lse.stride_batch = p.q_heads * p.q_len;

    if (p.v_dim == 0 && (r->weights || r->lse)) /* the library has nothing to do then */
        return cli_fail(CLI_FAILED, "%s: 0 features found, at least 1 expected with %s", r->v,
                        r->weights ? "--weights" : "--lse");
    for (int i = 0; i < 3; i++)
        if (results[i].path && allocate(&results[i]))
            return CLI_FAILED;
    p.out.data = out->data;
    p.weights.data = weights->data;
    p.lse.data = lse->data;
    char sentence[512];
    attn_status answer = attn_check(&p, sentence, sizeof sentence);
    if (answer != ATTN_OK)
        return library_failed(r->q, answer, sentence);

    /* Opened before the work, so that a place that cannot be written costs no time. */
    int status = CLI_DONE;
    for (int i = 0; i < 3; i++)
        if (results[i].path && !(results[i].file = output_open(results[i].path, &status)))
            return status;

    attn_executor openmp, *executor = make_executor(r->threads, &openmp);
    size_t size;
    answer = attn_workspace_size(&p, executor ? executor->n_workers : 1, &size);
    void *workspace = answer == ATTN_OK ? cli_allocate(size, 1) : NULL;
    if (answer == ATTN_OK && !workspace)
        return cli_fail(CLI_FAILED, "not enough memory for a workspace of %zu bytes", size);
    if (answer == ATTN_OK)
        answer = attn_forward(&p, workspace, size, executor);
    double median = 0;
    if (answer == ATTN_OK && r->repeat)
        answer = timing_median(&p, workspace, size, executor, r->repeat, r->repeat, 0, &median);
    free(workspace);
    if (answer != ATTN_OK)
        return library_failed(r->q, answer, attn_status_string(answer));

    for (int i = 0; i < 3; i++) {
        const struct result *o = &results[i];
        if (o->path && npy_write(o->file, o->type, o->rank, o->shape, o->data))
            return cli_fail(CLI_FAILED, "%s: cannot be written: %s", o->path, strerror(errno));
    }
    if (r->repeat) {
        const double gflops = median > 0 ? timing_flops(&p) / median * 1e-9 : 0;
        printf("isa=%s median_us=%.3f gflops=%.3f\n", isa, median * 1e6, gflops);
        if (fflush(stdout) != 0)
            return cli_fail(CLI_FAILED, "standard output cannot be written: %s", strerror(errno));
    }
    return outputs_commit() ? CLI_FAILED : CLI_DONE;
}

int cmd_run(int argc, char **argv) {
    struct run r = {.threads = 1};
    int done;
    int status = parse(argc, argv, &r, &done);
    if (status == CLI_DONE && !done) {
        const char *isa = machine_select(r.isa);
#ifndef ATTN_HAVE_OPENMP
        if (isa && r.threads > 1) {
            cli_fail(CLI_FAILED, "--threads %" PRId64 ": this build has no OpenMP, expected 1",
                     r.threads);
            isa = NULL;
        }
#endif
        struct tensors t = {.q_path = r.q, .k_path = r.k, .v_path = r.v};
        struct result results[3] = {{.path = NULL}};
        status = CLI_FAILED;
        if (isa && tensors_read(&t, r.bf16) == 0)
            status = compute(&r, &t, isa, results);
        outputs_discard();
        for (int i = 0; i < 3; i++)
            free(results[i].data);
        tensors_free(&t);
    }
    free(r.offsets);
    free(r.kv_lens);
    return status;
}
