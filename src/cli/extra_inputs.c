/* What attn run may read besides q, k and v: a mask, a number for each head, keys from before.
 *
 * SPDX-License-Identifier: MIT */
#include "extra_inputs.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "cli.h"
#include "tensors.h"

int extra_inputs_read(struct extra_inputs *e, int bf16) {
    const struct {
        const char *path;
        struct npy *file;
        int (*read)(const char *path, int bf16, struct npy *tensor, char error[NPY_ERROR_SIZE]);
    } inputs[] = {
        {e->mask_path, &e->mask, npy_read_mask},
        {e->sinks_path, &e->sinks, npy_read},
        {e->alibi_path, &e->alibi, npy_read},
        {e->past_k_path, &e->past_k, npy_read_stored},
        {e->past_v_path, &e->past_v, npy_read_stored},
    };
    for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++) {
        char error[NPY_ERROR_SIZE];
        if (inputs[i].path && inputs[i].read(inputs[i].path, bf16, inputs[i].file, error))
            return cli_fail(-1, "%s: %s", inputs[i].path, error);
    }
    return 0;
}

void extra_inputs_free(struct extra_inputs *e) {
    free(e->mask.stored);
    free(e->sinks.data);
    free(e->alibi.data);
    free(e->past_k.stored);
    free(e->past_v.stored);
}

/* [batch, kv_heads, past, features] */
static int set_past(const char *path, const struct npy *file, const attn_problem *p,
                    int64_t features, attn_input *past) {
    const int64_t *s = file->shape;
    char shape[NPY_SHAPE_SIZE];
    if (file->rank != 4 || s[0] != p->batch || s[1] != p->kv_heads || s[3] != features)
        return cli_fail(-1,
                        "%s: shape %s, expected (%" PRId64 ", %" PRId64 ", P, %" PRId64
                        "): batches, key heads, any number of keys, features",
                        path, npy_shape_text(file->rank, s, shape), p->batch, p->kv_heads,
                        features);
    *past = (attn_input){.data = file->stored,
                         .type = tensor_type(file),
                         .stride_batch = s[1] * s[2] * s[3],
                         .stride_head = s[2] * s[3],
                         .stride_token = s[3]};
    return 0;
}

static int check_per_head(const char *path, const struct npy *file, int64_t heads) {
    char shape[NPY_SHAPE_SIZE];
    if (file->rank == 1 && file->shape[0] == heads)
        return 0;
    return cli_fail(-1, "%s: shape %s, expected (%" PRId64 ",), one for each query head", path,
                    npy_shape_text(file->rank, file->shape, shape), heads);
}

static int check_slopes(const char *path, const struct npy *file) {
    for (int64_t h = 0; h < file->shape[0]; h++)
        if (!isfinite(file->data[h]))
            return cli_fail(-1, "%s: the slope of head %" PRId64 " is %g, expected a finite one",
                            path, h, (double)file->data[h]);
    return 0;
}

/* Axes are matched from the last one on; one of length 1, or that is not there, serves all. */
static int set_mask(const char *path, const struct npy *file, attn_problem *p) {
    const int64_t n_keys = p->past_cap + p->kv_cap;
    const int64_t full[4] = {p->batch, p->q_heads, p->q_len, n_keys};
    int64_t strides[4] = {0, 0, 0, 0};
    int64_t stride = 1, covered = n_keys;
    int fits = file->rank >= 1;
    for (int from_last = 0; from_last < file->rank; from_last++) {
        const int64_t length = file->shape[file->rank - 1 - from_last];
        const int axis = 3 - from_last;
        if (length != 1)
            strides[axis] = stride;
        if (axis == 3 && length > 1 && length < n_keys)
            covered = length; /* the library hides the rest */
        else if (length != 1 && length != full[axis])
            fits = 0;
        stride *= length;
    }
    char found[NPY_SHAPE_SIZE], wanted[NPY_SHAPE_SIZE];
    if (!fits)
        return cli_fail(-1,
                        "%s: shape %s, expected one that broadcasts to %s (batches, query heads, "
                        "rows, keys) or whose last axis is shorter",
                        path, npy_shape_text(file->rank, file->shape, found),
                        npy_shape_text(4, full, wanted));
    p->mask = (attn_mask){.data = file->stored,
                          .type = file->type == NPY_BOOL  ? ATTN_MASK_BOOL
                                  : file->type == NPY_F16 ? ATTN_MASK_F16
                                                          : ATTN_MASK_F32,
                          .stride_batch = strides[0],
                          .stride_head = strides[1],
                          .stride_query = strides[2],
                          .stride_key = strides[3],
                          .n_keys = covered};
    return 0;
}

int extra_inputs_set(const struct extra_inputs *e, attn_problem *p) {
    if (e->past_k_path) { /* before the mask, which covers these keys as well */
        if (set_past(e->past_k_path, &e->past_k, p, p->qk_dim, &p->past_k) ||
            set_past(e->past_v_path, &e->past_v, p, p->v_dim, &p->past_v))
            return -1;
        p->past_cap = e->past_k.shape[2];
        if (e->past_v.shape[2] != p->past_cap) {
            char k[NPY_SHAPE_SIZE], v[NPY_SHAPE_SIZE];
            return cli_fail(-1,
                            "%s %s and %s %s do not fit together: keys %" PRId64 " and %" PRId64
                            ", expected the same",
                            e->past_k_path, npy_shape_text(4, e->past_k.shape, k), e->past_v_path,
                            npy_shape_text(4, e->past_v.shape, v), p->past_cap, e->past_v.shape[2]);
        }
    }
    if ((e->sinks_path && check_per_head(e->sinks_path, &e->sinks, p->q_heads)) ||
        (e->alibi_path && (check_per_head(e->alibi_path, &e->alibi, p->q_heads) ||
                           check_slopes(e->alibi_path, &e->alibi))))
        return -1;
    p->sinks = e->sinks.data;
    p->alibi = e->alibi.data;
    return e->mask_path ? set_mask(e->mask_path, &e->mask, p) : 0;
}
