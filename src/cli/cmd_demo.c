/* attn demo: attention over the tensors of a real model, step by step, drawn, checked and timed.
 *
 * SPDX-License-Identifier: MIT */
#define _XOPEN_SOURCE 700
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attn.h"
#include "cli.h"
#include "heatmap.h"
#include "judge.h"
#include "machine.h"
#include "memory.h"
#include "oracle.h"
#include "tensors.h"
#include "timing.h"

static const char help[] =
    "usage: attn demo [DIR]\n"
    "\n"
    "Computes attention over DIR/q.npy, k.npy and v.npy, by default the shipped tensors of a\n"
    "text recogniser, and shows one row step by step, a picture of the weights, the error\n"
    "against double precision (and against the model's own output, DIR/o.npy, if there),\n"
    "and the time of every kernel set that can run here. Exit status 1 if the error is\n"
    "beyond its bound. NO_COLOR in the environment keeps the picture plain.\n";

#define SHIPPED "ppocr_b0_L40"
#define SHIPPED_TEXT "It was a bright cold day"
#define SHIPPED_LONG "ppocr_b0_L197"

#define TOP_KEYS 6
#define MAX_DRAWN_ROWS 24
#define SECONDS_PER_TIMING 0.25
#define ORACLE_WORK 3e7 /* products of the oracle, a fraction of a second */

static const struct tensor_layout plain_layout = {0, 0, 0};

/* The tensors of one directory and what the library makes of them. */
struct scene {
    char directory[2048];
    char paths[4][2100]; /* q, k, v, o */
    struct tensors tensors;
    struct npy expected; /* o; no data if there is none */
    attn_problem problem;
    float *out;
};

/* ---- Where the tensors are ------------------------------------------------------------------- */

static int is_file(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 && !S_ISDIR(status.st_mode);
}

static int has_tensors(const char *directory) {
    char path[2100];
    snprintf(path, sizeof path, "%s/q.npy", directory);
    return is_file(path);
}

/* The folder of this program with its slash, or "" where it cannot be known. */
static void program_folder(char *folder, size_t size) {
    const ssize_t length = readlink("/proc/self/exe", folder, size - 1);
    folder[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[1] = '\0';
}

/* The shipped tensors: in a source tree, beside the build folder of one, or installed. */
static int find_shipped(char *directory, size_t size) {
    char folder[1024];
    program_folder(folder, sizeof folder);
    const char *const places[][2] = {
        {"", "tests/data"}, {folder, "../share/attn"}, {folder, "../tests/data"}};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        if (i && !*folder)
            break;
        snprintf(directory, size, "%s%s/%s", places[i][0], places[i][1], SHIPPED);
        if (has_tensors(directory))
            return 0;
    }
    cli_fail(CLI_FAILED,
             "the tensors are neither in tests/data/%s nor in %s../share/attn/%s; name a directory "
             "that holds q.npy, k.npy and v.npy",
             SHIPPED, folder, SHIPPED);
    return -1;
}

/* ---- Loading --------------------------------------------------------------------------------- */

static void scene_free(struct scene *s) {
    tensors_free(&s->tensors);
    free(s->expected.data);
    free(s->out);
}

static int scene_load(struct scene *s) {
    static const char *const names[] = {"q", "k", "v", "o"};
    for (int i = 0; i < 4; i++)
        snprintf(s->paths[i], sizeof s->paths[i], "%s/%s.npy", s->directory, names[i]);
    s->tensors.q_path = s->paths[0];
    s->tensors.k_path = s->paths[1];
    s->tensors.v_path = s->paths[2];
    if (tensors_read(&s->tensors, 0, 0) || tensors_problem(&s->tensors, &plain_layout, &s->problem))
        return -1;

    int64_t shape[NPY_MAX_RANK];
    tensors_out_shape(&s->tensors, &plain_layout, &s->problem, shape);
    const int rank = s->tensors.q.rank;
    const int64_t count = npy_count(rank, shape);
    if (count == 0 || s->problem.kv_cap == 0)
        return cli_fail(-1, "%s: no rows or no keys, nothing to show", s->directory);
    if (is_file(s->paths[3])) {
        char error[NPY_ERROR_SIZE], got[NPY_SHAPE_SIZE], want[NPY_SHAPE_SIZE];
        if (npy_read(s->paths[3], 0, &s->expected, error))
            return cli_fail(-1, "%s: %s", s->paths[3], error);
        if (s->expected.rank != rank ||
            memcmp(s->expected.shape, shape, (size_t)rank * sizeof *shape) != 0)
            return cli_fail(-1, "%s: shape %s, expected %s", s->paths[3],
                            npy_shape_text(s->expected.rank, s->expected.shape, got),
                            npy_shape_text(rank, shape, want));
    }
    s->out = cli_allocate((size_t)count, sizeof *s->out);
    if (!s->out)
        return cli_fail(-1, "%s: not enough memory", s->directory);
    s->problem.out.data = s->out;
    const attn_status status = attn_forward_alloc(&s->problem, NULL);
    if (status != ATTN_OK)
        return cli_fail(-1, "%s: %s", s->directory, attn_status_string(status));
    return 0;
}

/* ---- One head, row by row -------------------------------------------------------------------- */

/* Output and, unless null, weights of row i of head h in batch 0. A problem of one row: its bits
 * are those that the row has in the whole problem. */
static int row_weights(const struct scene *s, int64_t h, int64_t i, float *weights, float *out) {
    attn_problem p = s->problem;
    const int64_t g = h / (p.q_heads / p.kv_heads);
    p.batch = p.q_heads = p.kv_heads = p.q_len = 1;
    p.q.data = (const float *)p.q.data + h * p.q.stride_head + i * p.q.stride_token;
    p.k.data = (const float *)p.k.data + g * p.k.stride_head;
    p.v.data = (const float *)p.v.data + g * p.v.stride_head;
    p.out.data = out;
    p.weights.data = weights;
    const attn_status status = attn_forward_alloc(&p, NULL);
    return status == ATTN_OK ? 0 : cli_fail(-1, "%s", attn_status_string(status));
}

/* What is worth showing: some query rows of one head, and one of them in detail. */
struct view {
    int64_t head, row;
    int64_t n_rows, query_step;
    float *weights; /* [n_rows][keys] of the head */
    float *out;     /* [v_dim] */
};

static double entropy(const float *weights, int64_t n) {
    double sum = 0;
    for (int64_t j = 0; j < n; j++)
        if (weights[j] > 0)
            sum -= (double)weights[j] * log((double)weights[j]);
    return sum;
}

/* Shows the head whose weights depend most on the query (the mutual information of query and key:
 * entropy of the mean row minus mean entropy of the rows), and of it the row that looks at the
 * fewest keys. */
static int choose_view(const struct scene *s, int drawn_rows, struct view *view) {
    const attn_problem *p = &s->problem;
    const int64_t keys = p->kv_cap;
    view->query_step = (p->q_len + drawn_rows - 1) / drawn_rows;
    view->n_rows = (p->q_len + view->query_step - 1) / view->query_step;
    const size_t count = (size_t)(view->n_rows * keys);
    view->weights = cli_allocate(count, sizeof(float));
    view->out = cli_allocate((size_t)p->v_dim, sizeof(float));
    float *candidate = cli_allocate(count, sizeof(float));
    float *mean = cli_allocate((size_t)keys, sizeof(float));
    int result = view->weights && candidate && mean && view->out ? 0 : -1;
    if (result)
        cli_fail(CLI_FAILED, "not enough memory");

    double most = -1;
    for (int64_t h = 0; h < p->q_heads && result == 0; h++) {
        double row_entropy = 0, least = INFINITY;
        int64_t sharpest = 0;
        for (int64_t j = 0; j < keys; j++)
            mean[j] = 0;
        for (int64_t r = 0; r < view->n_rows && result == 0; r++) {
            float *row = candidate + r * keys;
            result = row_weights(s, h, r * view->query_step, row, view->out);
            const double e = result ? 0 : entropy(row, keys);
            if (e < least)
                least = e, sharpest = r;
            row_entropy += e / (double)view->n_rows;
            for (int64_t j = 0; j < keys && result == 0; j++)
                mean[j] += row[j] / (float)view->n_rows;
        }
        const double information = entropy(mean, keys) - row_entropy;
        if (result == 0 && (h == 0 || information > most)) {
            most = information;
            view->head = h;
            view->row = sharpest * view->query_step;
            memcpy(view->weights, candidate, count * sizeof(float));
        }
    }
    free(candidate);
    free(mean);
    return result;
}

/* ---- Printing -------------------------------------------------------------------------------- */

static int use_colours(void) {
    const char *no_color = getenv("NO_COLOR"), *terminal = getenv("TERM");
    return isatty(STDOUT_FILENO) && !(no_color && *no_color) &&
           !(terminal && strcmp(terminal, "dumb") == 0);
}

static const char *heading(const char *text, int colours) {
    static char line[256];
    snprintf(line, sizeof line, colours ? "\033[1m%s\033[0m" : "%s", text);
    return line;
}

/* The keys with the largest weights, best first. */
static int largest_keys(const float *weights, int64_t n, int64_t keys[TOP_KEYS]) {
    int count = 0;
    for (int64_t j = 0; j < n; j++) {
        int at = count;
        while (at > 0 && weights[keys[at - 1]] < weights[j])
            at--;
        if (at == TOP_KEYS)
            continue;
        if (count < TOP_KEYS)
            count++;
        memmove(keys + at + 1, keys + at, (size_t)(count - 1 - at) * sizeof *keys);
        keys[at] = j;
    }
    return count;
}

static int show_steps(const struct scene *s, const struct view *view, int colours) {
    const attn_problem *p = &s->problem;
    const int64_t keys = p->kv_cap, group = p->q_heads / p->kv_heads;
    const float *q =
        (const float *)p->q.data + view->head * p->q.stride_head + view->row * p->q.stride_token;
    const float *k = (const float *)p->k.data + view->head / group * p->k.stride_head;
    const float *weights = view->weights + view->row / view->query_step * keys;
    if (row_weights(s, view->head, view->row, NULL, view->out))
        return -1;

    char title[128];
    snprintf(title, sizeof title,
             "One row: what query %" PRId64 " of head %" PRId64 " takes from "
             "%" PRId64 " keys",
             view->row, view->head, keys);
    printf("%s\n\n", heading(title, colours));
    const double scale = (double)(float)(1 / sqrt((double)p->qk_dim));
    printf("  1 score   q . k, how well the query matches each key\n"
           "  2 scaled  times 1/sqrt(%" PRId64
           ") = %.4f, which keeps heads of any size in the same range\n"
           "  3 weight  softmax: exp, then divided by the sum, so that all add up to 100 %%\n"
           "  4 output  the values of the keys, mixed by weight\n\n",
           p->qk_dim, scale);

    int64_t top[TOP_KEYS];
    const int n = largest_keys(weights, keys, top);
    printf("  %11s  %9s  %9s  %9s\n", "key", "1 score", "2 scaled", "3 weight");
    /* In tenths of a per cent, rounded as running totals, so that the column adds up as printed. */
    double total = 0;
    int shown = 0;
    for (int t = 0; t < n; t++) {
        double score = 0;
        for (int64_t c = 0; c < p->qk_dim; c++)
            score += (double)q[c] * (double)k[top[t] * p->k.stride_token + c];
        total += isnan(weights[top[t]]) ? 0 : (double)weights[top[t]];
        const int tenths = (int)lrint(1000 * fmin(total, 1)) - shown;
        shown += tenths;
        printf("  %11" PRId64 "  %9.3f  %9.3f  %7d.%d %%  ", top[t], score, score * scale,
               tenths / 10, tenths % 10);
        for (int i = 0; i < (tenths + 10) / 20; i++)
            putchar('#');
        putchar('\n');
    }
    if (n < keys) {
        const int rest = 1000 - shown;
        char text[32];
        snprintf(text, sizeof text, "%" PRId64 " more", keys - n);
        printf("  %11s  %9s  %9s  %7d.%d %%\n", text, "...", "...", rest / 10, rest % 10);
    }
    printf("  %11s  %9s  %9s  %9s\n", "sum", "", "", "100.0 %");

    printf("\n  4 output ");
    for (int64_t c = 0; c < p->v_dim && c < 7; c++)
        printf(" %8.4f", (double)view->out[c]);
    if (p->v_dim > 7)
        printf(" ... (%" PRId64 ")", p->v_dim);
    printf("\n\n");
    return 0;
}

/* Prints the errors. Returns -1 if one is beyond its bound. */
static int show_errors(const struct scene *s, int colours) {
    const attn_problem *p = &s->problem;
    struct oracle_row row;
    if (judge_allocate(p, &row))
        return cli_fail(-1, "not enough memory");
    const double per_row = (double)p->kv_cap * (double)(p->qk_dim + p->v_dim + 20);
    const int64_t rows = p->batch * p->q_heads * p->q_len;
    const int64_t step = 1 + (int64_t)((double)rows * per_row / ORACLE_WORK);
    struct judgement judgement = {0};
    int64_t judged = 0;
    for (int64_t n = 0; n < rows; n += step, judged++) {
        const int64_t i = n % p->q_len, h = n / p->q_len % p->q_heads;
        const int64_t b = n / p->q_len / p->q_heads;
        row.arithmetic = oracle_arithmetic(p, attn_isa());
        oracle_attend(p, b, h, i, &row);
        judge_row(p, b, h, i, &row, &judgement);
    }
    judge_free(&row);

    printf("%s\n\n", heading("Largest error", colours));
    printf("  %.1e  against attention in double precision, %" PRId64 " of %" PRId64 " rows;\n"
           "           %.1f %% of the bound that attn.h proves: %s\n",
           judgement.worst_out, judged, rows, 100 * judgement.worst_ratio,
           judgement.failures ? "BEYOND IT" : "ok");
    if (s->expected.data) {
        double worst = 0;
        const int64_t count = npy_count(s->expected.rank, s->expected.shape);
        for (int64_t i = 0; i < count; i++) {
            const double error = fabs((double)s->out[i] - (double)s->expected.data[i]);
            worst = error > worst || isnan(error) ? error : worst;
        }
        printf("  %.1e  against the model's own output, o.npy\n", worst);
    }
    printf("\n");
    if (judgement.failures)
        return cli_fail(-1, "%s: %" PRId64 " of %" PRId64 " values are beyond the bound",
                        s->directory, judgement.failures, judgement.values);
    return 0;
}

static int time_scene(const struct scene *s, double *median) {
    size_t size;
    attn_status status = attn_workspace_size(&s->problem, 1, &size);
    void *workspace = status == ATTN_OK ? cli_allocate(size, 1) : NULL;
    if (status == ATTN_OK && !workspace)
        status = ATTN_ERROR_MEMORY;
    double first = 0;
    if (status == ATTN_OK)
        status = timing_median(&s->problem, workspace, size, NULL, 1, 1, 0, &first);
    *median = first;
    if (status == ATTN_OK && first < SECONDS_PER_TIMING)
        status = timing_median(&s->problem, workspace, size, NULL, 3, INT64_MAX, SECONDS_PER_TIMING,
                               median);
    free(workspace);
    return status == ATTN_OK ? 0 : cli_fail(-1, "%s", attn_status_string(status));
}

#define MAX_SCENES 2
#define MAX_SETS 16

static int show_times(const struct scene *scenes, int n_scenes, int colours) {
    const char *const *sets = attn_isa_list();
    double medians[MAX_SCENES][MAX_SETS];
    int n_sets = 0;
    int is_last = 0; /* scalar, after which come sets that are the same ones here, in f32 */
    for (; sets[n_sets] && n_sets < MAX_SETS && !is_last; n_sets++) {
        is_last = strcmp(sets[n_sets], "scalar") == 0;
        if (attn_set_isa(sets[n_sets]) != ATTN_OK)
            return cli_fail(-1, "%s cannot be selected", sets[n_sets]);
        for (int s = 0; s < n_scenes; s++)
            if (time_scene(&scenes[s], &medians[s][n_sets]))
                return -1;
    }

    printf("%s\n\n", heading("Time of one call on one thread", colours));
    printf("  %-8s", "");
    for (int s = 0; s < n_scenes; s++) {
        char text[64];
        const attn_problem *p = &scenes[s].problem;
        snprintf(text, sizeof text, "%" PRId64 " heads, %" PRId64 " x %" PRId64 " keys",
                 p->batch * p->q_heads, p->q_len, p->kv_cap);
        printf("  %32s", text);
    }
    printf("\n  %-8s", "kernels");
    for (int s = 0; s < n_scenes; s++)
        printf("  %11s %10s %9s", "time", "GFLOP/s", "speedup");
    printf("\n");
    for (int i = 0; i < n_sets; i++) {
        printf("  %-8s", sets[i]);
        for (int s = 0; s < n_scenes; s++) {
            const double t = medians[s][i], us = t * 1e6;
            printf(us < 1e4 ? "  %8.1f us" : "  %8.0f us", us);
            printf(" %10.1f %8.1fx", timing_flops(&scenes[s].problem) / t * 1e-9,
                   medians[s][n_sets - 1] / t);
        }
        printf("\n");
    }
    return 0;
}

/* ---- The verb -------------------------------------------------------------------------------- */

static int show(struct scene *scenes, int n_scenes, int shipped, const char *isa) {
    const struct scene *s = &scenes[0];
    const attn_problem *p = &s->problem;
    const int colours = use_colours();
    printf("%s\n\n", heading("Attention: softmax(Q K^T / sqrt(d)) V", colours));
    printf("  CPU      %s\n", machine_cpu_name());
    printf("  kernels  %s, %s\n", isa, machine_reason());
    printf("  tensors  %s\n", s->directory);
    if (shipped)
        printf("           a text recogniser reading \"%s\"\n", SHIPPED_TEXT);
    printf("           ");
    if (p->batch > 1)
        printf("%" PRId64 " batches, ", p->batch);
    printf("%" PRId64 " heads, %" PRId64 " queries, %" PRId64 " keys, %" PRId64 " features\n\n",
           p->q_heads, p->q_len, p->kv_cap, p->qk_dim);

    struct view view = {0};
    int failed = choose_view(s, colours ? 2 * MAX_DRAWN_ROWS : MAX_DRAWN_ROWS, &view) ||
                 show_steps(s, &view, colours);
    if (!failed) {
        char title[128];
        snprintf(title, sizeof title,
                 "Weights of head %" PRId64 ": each line %s, each column a key", view.head,
                 colours ? "two queries" : "a query");
        printf("%s\n\n", heading(title, colours));
        heatmap_draw(view.weights, view.n_rows, p->kv_cap, view.query_step, colours);
        printf("\n");
    }
    free(view.weights);
    free(view.out);
    failed = failed || show_errors(s, colours);
    fflush(stdout);
    failed = failed || show_times(scenes, n_scenes, colours);
    return failed ? CLI_FAILED : CLI_DONE;
}

int cmd_demo(int argc, char **argv) {
    const char *directory = NULL;
    const struct cli_option options[] = {{NULL, NULL, NULL}};
    int done;
    int status = cli_parse(argc, argv, options, &directory, help, &done);
    if (status != CLI_DONE || done)
        return status;
    const char *isa = machine_select(NULL);
    static struct scene scenes[MAX_SCENES];
    if (!isa)
        return CLI_FAILED;
    if (directory)
        snprintf(scenes[0].directory, sizeof scenes[0].directory, "%s", directory);
    else if (find_shipped(scenes[0].directory, sizeof scenes[0].directory))
        return CLI_FAILED;

    int n_scenes = 1;
    status = scene_load(&scenes[0]) ? CLI_FAILED : CLI_DONE;
    if (status == CLI_DONE && !directory) {
        struct scene *longer = &scenes[1];
        const size_t stem = strlen(scenes[0].directory) - strlen(SHIPPED);
        snprintf(longer->directory, sizeof longer->directory, "%.*s%s", (int)stem,
                 scenes[0].directory, SHIPPED_LONG);
        if (has_tensors(longer->directory)) {
            status = scene_load(longer) ? CLI_FAILED : CLI_DONE;
            n_scenes = 2;
        }
    }
    if (status == CLI_DONE)
        status = show(scenes, n_scenes, directory == NULL, isa);
    for (int i = 0; i < MAX_SCENES; i++)
        scene_free(&scenes[i]);
    return status;
}
