/* From the files of q, k and v to an attention problem.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_TENSORS_H
#define ATTN_TENSORS_H

#include "attn.h"
#include "npy.h"

/* How the axes of a file map to batch, heads, length and features. */
struct tensor_layout {
    int length_first;          /* rank 4 is [B,L,H,D] instead of [B,H,L,D] */
    int64_t q_heads, kv_heads; /* not 0: rank 3 is packed, [B,L,H*D] instead of [H,L,D] */
};

struct tensors {
    const char *q_path, *k_path, *v_path;
    struct npy q, k, v;
};

/* Reads the three files, as_stored: float16 and bfloat16 as they are, else all as floats. Prints an
 * error line and returns -1 if one cannot be read. */
int tensors_read(struct tensors *t, int bf16, int as_stored);
void tensors_free(struct tensors *t);

/* The type of a file's tensor in memory. */
attn_type tensor_type(const struct npy *file);

/* Fills in sizes, q, k, v and the strides of out, whose data stays null. Prints an error line that
 * names the files and their shapes and returns -1 where they do not fit together. */
int tensors_problem(const struct tensors *t, const struct tensor_layout *layout,
                    attn_problem *problem);

/* The shape of the output file: that of q with the features of v. */
void tensors_out_shape(const struct tensors *t, const struct tensor_layout *layout,
                       const attn_problem *problem, int64_t shape[NPY_MAX_RANK]);

#endif
