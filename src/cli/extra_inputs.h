/* What attn run may read besides q, k and v: a mask, a number for each head, keys from before.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_EXTRA_INPUTS_H
#define ATTN_EXTRA_INPUTS_H

#include "attn.h"
#include "npy.h"

struct extra_inputs {
    /* Null where not given; past_k and past_v come together. */
    const char *mask_path, *sinks_path, *alibi_path, *past_k_path, *past_v_path;
    struct npy mask, sinks, alibi, past_k, past_v;
};

/* Reads the files. Prints an error line and returns -1 if one cannot be read. */
int extra_inputs_read(struct extra_inputs *e, int bf16);
void extra_inputs_free(struct extra_inputs *e);

/* Adds them to the problem, which has its sizes, q, k and v; they must outlive it. Prints an error
 * line that names the file and its shape and returns -1 where one does not fit. */
int extra_inputs_set(const struct extra_inputs *e, attn_problem *problem);

#endif
