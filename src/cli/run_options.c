/* The command line of attn run.
 *
 * SPDX-License-Identifier: MIT */
#include "run_options.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "convert.h"

static const char help[] =
    "usage: attn run --q Q.npy --k K.npy --v V.npy --out O.npy [options]\n"
    "\n"
    "Writes softmax(Q K^T * scale) V to O.npy.\n"
    "\n"
    "Files are .npy, C order, little-endian: float32, float16, float64, or uint16 with\n"
    "--bf16. Rank 4 is [B,H,L,D], rank 3 is [H,L,D], rank 2 is [L,D]. float16 and bfloat16\n"
    "are used as they are, in any mix; all sums are float32. The output has the rank, layout\n"
    "and type of Q (float64 gives float32).\n"
    "\n"
    "Who sees what:\n"
    "  --causal              row i sees the keys up to its own position only\n"
    "  --window LEFT,RIGHT   row i sees LEFT keys before its own position and RIGHT after it;\n"
    "                        -1 is unbounded\n"
    "  --align WHERE         position of row 0 among the keys: top-left (0), bottom-right\n"
    "                        (keys - rows), or P[,P...], one for all batches or one each;\n"
    "                        needed by --causal, --window and --alibi where rows and keys\n"
    "                        differ in number\n"
    "  --kv-len N[,N...]     only the first N keys exist; one for all batches or one each\n"
    "  --mask M.npy          bool (true: attend), or numbers that are added (-inf hides);\n"
    "                        broadcast to [B,H,rows,keys] as NumPy does, but a last axis of\n"
    "                        2 or more may also be shorter, and hides the keys after it\n"
    "\n"
    "Scores:\n"
    "  --scale X             instead of 1/sqrt(D)\n"
    "  --softcap X           X * tanh(score / X) instead of the score, before what follows\n"
    "  --alibi A.npy         [H]: less A[h] for each position between row and key\n"
    "  --sinks S.npy         [H]: a score that takes its share of the weight and adds nothing\n"
    "\n"
    "Keys and values from before:\n"
    "  --past-k P.npy --past-v P.npy\n"
    "                        [B,H,P,D] whatever --layout: they come before K and V, and row 0\n"
    "                        has position P unless --align says otherwise; not with --kv-len\n"
    "  --present-k F.npy --present-v F.npy\n"
    "                        also write past and new together, [B,H,P+L,D], types of K and V\n"
    "  --kv-type f32|f16|bf16|i8\n"
    "                        store keys and values so first, as a cache would; i8: 8-bit\n"
    "                        integers with a scale for each token and head. PRESENT stays as\n"
    "                        it was\n"
    "\n"
    "Files:\n"
    "  --layout bhld|blhd    blhd: rank 4 is [B,L,H,D]\n"
    "  --q-heads N --kv-heads M\n"
    "                        rank 3 is packed: Q [B,L,N*D], K and V [B,L,M*D]\n"
    "  --bf16                read uint16 files as bfloat16; write the outputs so if Q is\n"
    "  --weights W.npy       also write the attention weights, [B,H,rows,keys], type of O\n"
    "  --lse L.npy           also write log(sum(exp(scores))), [B,H,rows], float32\n"
    "  --scores S.npy --scores-at scaled|capped|biased\n"
    "                        also write the scores, [B,H,rows,keys], type of O: scaled, after\n"
    "                        softcap as well, or after ALiBi and mask, -inf where hidden\n"
    "\n"
    "Running:\n"
    "  --isa NAME            the kernel set to use; attn info lists them\n"
    "  --threads N           compute on N threads (needs a build with OpenMP)\n"
    "  --repeat N            compute N times more and print the median time\n"
    "\n"
    "Outputs appear when all are complete, or not at all. Exit status: 0 done, 1 failed,\n"
    "2 wrong usage.\n";

#define MAX_THREADS 1024
#define MAX_REPEATS 1000000

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

/* An option whose value is a list of integers in [least, most], as many as wanted, or any number
 * where that is 0. */
static int list_option(const char *name, const char *text, int64_t least, int64_t most,
                       size_t wanted, const char *expected, int64_t **list, size_t *count) {
    int bad = cli_parse_int64_list(text, list, count) || (wanted && *count != wanted);
    for (size_t i = 0; !bad && i < *count; i++)
        bad = (*list)[i] < least || (*list)[i] > most;
    if (bad)
        cli_fail(CLI_USAGE, "%s: '%s', expected %s", name, text, expected);
    return bad ? -1 : 0;
}

/* Two options that make sense together only. */
static int both_or_none(const char *name_a, const char *a, const char *name_b, const char *b) {
    if (!a == !b)
        return 0;
    cli_fail(CLI_USAGE, "%s without %s, expected both or none", a ? name_a : name_b,
             a ? name_b : name_a);
    return -1;
}

static int parse_align(const char *text, struct run_options *o) {
    if (strcmp(text, "top-left") == 0) {
        o->align = ATTN_ALIGN_TOP_LEFT;
    } else if (strcmp(text, "bottom-right") == 0) {
        o->align = ATTN_ALIGN_BOTTOM_RIGHT;
    } else {
        o->align = ATTN_ALIGN_EXPLICIT;
        return list_option("--align", text, -(INT64_C(1) << 62), INT64_C(1) << 62, 0,
                           "top-left, bottom-right or one or more positions, P[,P...]", &o->offsets,
                           &o->n_offsets);
    }
    return 0;
}

static int parse_scores_at(const char *text, attn_score_stage *stage) {
    static const char *const names[] = {[ATTN_SCORES_SCALED] = "scaled",
                                        [ATTN_SCORES_CAPPED] = "capped",
                                        [ATTN_SCORES_BIASED] = "biased"};
    for (int i = ATTN_SCORES_SCALED; i <= ATTN_SCORES_BIASED; i++) {
        if (strcmp(text, names[i]) == 0) {
            *stage = (attn_score_stage)i;
            return 0;
        }
    }
    cli_fail(CLI_USAGE, "--scores-at: '%s', expected scaled, capped or biased", text);
    return -1;
}

static int parse_kv_type(const char *text, attn_type *type) {
    for (int i = ATTN_F32; i <= ATTN_I8; i++) {
        if (strcmp(text, type_name((attn_type)i)) == 0) {
            *type = (attn_type)i;
            return 0;
        }
    }
    cli_fail(CLI_USAGE, "--kv-type: '%s', expected f32, f16, bf16 or i8", text);
    return -1;
}

int run_options_parse(int argc, char **argv, struct run_options *o, int *done) {
    const char *align = NULL, *window = NULL, *kv_len = NULL, *scale = NULL, *softcap = NULL;
    const char *layout = NULL, *q_heads = NULL, *kv_heads = NULL, *scores_at = NULL;
    const char *kv_type = NULL;
    const char *threads = NULL, *repeat = NULL;
    const struct cli_option options[] = {
        {"--q", &o->q, NULL},
        {"--k", &o->k, NULL},
        {"--v", &o->v, NULL},
        {"--out", &o->out, NULL},
        {"--causal", NULL, &o->causal},
        {"--window", &window, NULL},
        {"--align", &align, NULL},
        {"--kv-len", &kv_len, NULL},
        {"--mask", &o->mask, NULL},
        {"--scale", &scale, NULL},
        {"--softcap", &softcap, NULL},
        {"--alibi", &o->alibi, NULL},
        {"--sinks", &o->sinks, NULL},
        {"--past-k", &o->past_k, NULL},
        {"--past-v", &o->past_v, NULL},
        {"--present-k", &o->present_k, NULL},
        {"--present-v", &o->present_v, NULL},
        {"--kv-type", &kv_type, NULL},
        {"--layout", &layout, NULL},
        {"--q-heads", &q_heads, NULL},
        {"--kv-heads", &kv_heads, NULL},
        {"--bf16", NULL, &o->bf16},
        {"--weights", &o->weights, NULL},
        {"--lse", &o->lse, NULL},
        {"--scores", &o->scores, NULL},
        {"--scores-at", &scores_at, NULL},
        {"--isa", &o->isa, NULL},
        {"--threads", &threads, NULL},
        {"--repeat", &repeat, NULL},
        {NULL, NULL, NULL},
    };
    *o = (struct run_options){.threads = 1};
    const int status = cli_parse(argc, argv, options, NULL, help, done);
    if (status != CLI_DONE || *done)
        return status;

    if (!o->q || !o->k || !o->v || !o->out)
        return cli_fail(CLI_USAGE, "%s is missing; see 'attn run --help'",
                        !o->q   ? "--q"
                        : !o->k ? "--k"
                        : !o->v ? "--v"
                                : "--out");
    if (both_or_none("--q-heads", q_heads, "--kv-heads", kv_heads) ||
        both_or_none("--past-k", o->past_k, "--past-v", o->past_v) ||
        both_or_none("--scores", o->scores, "--scores-at", scores_at))
        return CLI_USAGE;
    if (o->past_k && kv_len)
        return cli_fail(CLI_USAGE, "--kv-len with --past-k, all of whose keys count");
    if (integer_option("--q-heads", q_heads, 1, INT32_MAX, &o->layout.q_heads) ||
        integer_option("--kv-heads", kv_heads, 1, INT32_MAX, &o->layout.kv_heads) ||
        integer_option("--threads", threads, 1, MAX_THREADS, &o->threads) ||
        integer_option("--repeat", repeat, 1, MAX_REPEATS, &o->repeat))
        return CLI_USAGE;
    if (layout && strcmp(layout, "bhld") != 0 && strcmp(layout, "blhd") != 0)
        return cli_fail(CLI_USAGE, "--layout: '%s', expected bhld or blhd", layout);
    if (layout && q_heads && strcmp(layout, "bhld") == 0)
        return cli_fail(CLI_USAGE, "--layout bhld with --q-heads, which means [B,L,H*D]");
    o->layout.length_first = layout && !q_heads && strcmp(layout, "blhd") == 0;
    if (scale && cli_parse_finite_float(scale, &o->scale))
        return cli_fail(CLI_USAGE, "--scale: '%s', expected a finite number", scale);
    o->has_scale = scale != NULL;
    if (softcap && (cli_parse_finite_float(softcap, &o->softcap) || o->softcap < 0))
        return cli_fail(CLI_USAGE, "--softcap: '%s', expected a finite number, at least 0",
                        softcap);
    size_t two;
    if (window && list_option("--window", window, -1, INT64_MAX, 2,
                              "LEFT,RIGHT, each a number of keys or -1", &o->window, &two))
        return CLI_USAGE;
    if (kv_len && list_option("--kv-len", kv_len, 0, INT64_MAX, 0, "one or more lengths, N[,N...]",
                              &o->kv_lens, &o->n_kv_lens))
        return CLI_USAGE;
    if ((align && parse_align(align, o)) ||
        (scores_at && parse_scores_at(scores_at, &o->scores_at)) ||
        (kv_type && parse_kv_type(kv_type, &o->kv_type)))
        return CLI_USAGE;
    o->has_kv_type = kv_type != NULL;
    return CLI_DONE;
}

void run_options_free(struct run_options *o) {
    free(o->offsets);
    free(o->kv_lens);
    free(o->window);
}
