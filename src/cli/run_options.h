/* The command line of attn run.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_RUN_OPTIONS_H
#define ATTN_RUN_OPTIONS_H

#include "attn.h"
#include "tensors.h"

/* Checked as far as it can be without the files. */
struct run_options {
    /* Paths, null where not given. */
    const char *q, *k, *v, *mask, *sinks, *alibi, *past_k, *past_v;
    const char *out, *weights, *lse, *scores, *present_k, *present_v;
    const char *isa;
    int causal, bf16;
    struct tensor_layout layout;
    attn_align align;
    int64_t *offsets, *kv_lens; /* null where not given */
    size_t n_offsets, n_kv_lens;
    int64_t *window; /* null, or left and right */
    float scale, softcap;
    int has_scale, has_kv_type;
    attn_type kv_type;
    attn_score_stage scores_at;
    int64_t threads, repeat;
};

/* Like cli_parse(), which it calls. */
int run_options_parse(int argc, char **argv, struct run_options *o, int *done);
void run_options_free(struct run_options *o);

#endif
