/* From the files of q, k and v to an attention problem.
 *
 * SPDX-License-Identifier: MIT */
#include "tensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

int tensors_read(struct tensors *t, int bf16, int as_stored) {
    const char *const paths[] = {t->q_path, t->k_path, t->v_path};
    struct npy *const files[] = {&t->q, &t->k, &t->v};
    for (int i = 0; i < 3; i++) {
        char error[NPY_ERROR_SIZE];
        if ((as_stored ? npy_read_stored : npy_read)(paths[i], bf16, files[i], error)) {
            cli_fail(CLI_FAILED, "%s: %s", paths[i], error);
            return -1;
        }
    }
    return 0;
}

void tensors_free(struct tensors *t) {
    struct npy *const files[] = {&t->q, &t->k, &t->v};
    for (int i = 0; i < 3; i++) {
        free(files[i]->data);
        free(files[i]->stored);
    }
}

attn_type tensor_type(const struct npy *file) {
    return !file->stored            ? ATTN_F32
           : file->type == NPY_F16  ? ATTN_F16
           : file->type == NPY_BF16 ? ATTN_BF16
                                    : ATTN_F32;
}

/* The four sizes of one file, and the element strides of the three outer axes. */
struct extent {
    int64_t batch, heads, length, features;
    int64_t stride_batch, stride_head, stride_token;
};

static void set_strides(struct extent *e, int length_first) {
    e->stride_head = length_first ? e->features : e->length * e->features;
    e->stride_token = length_first ? e->heads * e->features : e->features;
    e->stride_batch = e->heads * e->length * e->features;
}

static int extent_of(const char *path, const struct npy *file, const struct tensor_layout *layout,
                     int64_t packed_heads, struct extent *e) {
    char shape[NPY_SHAPE_SIZE];
    npy_shape_text(file->rank, file->shape, shape);
    const int64_t *s = file->shape;
    if (packed_heads) {
        if (file->rank != 3)
            return cli_fail(-1, "%s: rank %d, shape %s, expected rank 3 [B,L,H*D] with --q-heads",
                            path, file->rank, shape);
        if (s[2] % packed_heads)
            return cli_fail(-1, "%s: shape %s, expected a last axis that %" PRId64 " heads divide",
                            path, shape, packed_heads);
        *e = (struct extent){
            .batch = s[0], .heads = packed_heads, .length = s[1], .features = s[2] / packed_heads};
        set_strides(e, 1);
        return 0;
    }
    if (file->rank < 2)
        return cli_fail(-1, "%s: rank %d, shape %s, expected rank 2, 3 or 4", path, file->rank,
                        shape);
    if (layout->length_first && file->rank != 4)
        return cli_fail(-1, "%s: rank %d, shape %s, expected rank 4 with --layout blhd", path,
                        file->rank, shape);
    const int last = file->rank - 1;
    *e = (struct extent){.batch = file->rank == 4 ? s[0] : 1,
                         .heads = file->rank >= 3 ? s[last - 2] : 1,
                         .length = s[last - 1],
                         .features = s[last]};
    if (layout->length_first)
        e->heads = s[2], e->length = s[1];
    set_strides(e, layout->length_first);
    return 0;
}

static attn_input input_of(const struct npy *file, const struct extent *e) {
    const attn_input input = {.data = file->stored ? file->stored : file->data,
                              .type = tensor_type(file),
                              .stride_batch = e->stride_batch,
                              .stride_head = e->stride_head,
                              .stride_token = e->stride_token};
    return input;
}

/* What two files must have in common. */
static int same(const char *what, const char *path_a, const struct npy *a, int64_t size_a,
                const char *path_b, const struct npy *b, int64_t size_b) {
    if (size_a == size_b)
        return 0;
    char shape_a[NPY_SHAPE_SIZE], shape_b[NPY_SHAPE_SIZE];
    return cli_fail(-1,
                    "%s %s and %s %s do not fit together: %s %" PRId64 " and %" PRId64
                    ", expected the same",
                    path_a, npy_shape_text(a->rank, a->shape, shape_a), path_b,
                    npy_shape_text(b->rank, b->shape, shape_b), what, size_a, size_b);
}

int tensors_problem(const struct tensors *t, const struct tensor_layout *layout,
                    attn_problem *problem) {
    struct extent q, k, v;
    if (extent_of(t->q_path, &t->q, layout, layout->q_heads, &q) ||
        extent_of(t->k_path, &t->k, layout, layout->kv_heads, &k) ||
        extent_of(t->v_path, &t->v, layout, layout->kv_heads, &v))
        return -1;

    const char *const names[] = {t->q_path, t->k_path, t->v_path};
    const struct npy *const files[] = {&t->q, &t->k, &t->v};
    const struct extent *const extents[] = {&q, &k, &v};
    char shape[NPY_SHAPE_SIZE];
    for (int i = 0; i < 3; i++) {
        npy_shape_text(files[i]->rank, files[i]->shape, shape);
        if (extents[i]->heads == 0)
            return cli_fail(-1, "%s: shape %s, zero heads, expected at least 1", names[i], shape);
        if (extents[i]->features == 0 && i < 2)
            return cli_fail(-1, "%s: shape %s, zero features, expected at least 1", names[i],
                            shape);
    }
    if (same("rank", t->q_path, &t->q, t->q.rank, t->k_path, &t->k, t->k.rank) ||
        same("rank", t->q_path, &t->q, t->q.rank, t->v_path, &t->v, t->v.rank) ||
        same("batch", t->q_path, &t->q, q.batch, t->k_path, &t->k, k.batch) ||
        same("batch", t->k_path, &t->k, k.batch, t->v_path, &t->v, v.batch) ||
        same("features per head", t->q_path, &t->q, q.features, t->k_path, &t->k, k.features) ||
        same("heads", t->k_path, &t->k, k.heads, t->v_path, &t->v, v.heads) ||
        same("keys", t->k_path, &t->k, k.length, t->v_path, &t->v, v.length))
        return -1;
    if (q.heads % k.heads) {
        char shape_k[NPY_SHAPE_SIZE];
        return cli_fail(-1,
                        "%s %s and %s %s do not fit together: %" PRId64 " query heads, expected a "
                        "multiple of the %" PRId64 " key heads",
                        t->q_path, npy_shape_text(t->q.rank, t->q.shape, shape), t->k_path,
                        npy_shape_text(t->k.rank, t->k.shape, shape_k), q.heads, k.heads);
    }

    *problem = attn_problem_init();
    problem->batch = q.batch;
    problem->q_heads = q.heads, problem->kv_heads = k.heads;
    problem->q_len = q.length, problem->kv_cap = k.length;
    problem->qk_dim = q.features, problem->v_dim = v.features;
    problem->q = input_of(&t->q, &q);
    problem->k = input_of(&t->k, &k);
    problem->v = input_of(&t->v, &v);

    int64_t out_shape[NPY_MAX_RANK];
    tensors_out_shape(t, layout, problem, out_shape);
    if (npy_count(t->q.rank, out_shape) < 0) {
        char shape_v[NPY_SHAPE_SIZE];
        return cli_fail(-1,
                        "%s %s and %s %s do not fit together: the size of their output overflows",
                        t->q_path, npy_shape_text(t->q.rank, t->q.shape, shape), t->v_path,
                        npy_shape_text(t->v.rank, t->v.shape, shape_v));
    }
    struct extent out = q;
    out.features = v.features;
    set_strides(&out, layout->length_first || layout->q_heads);
    problem->out.stride_batch = out.stride_batch;
    problem->out.stride_head = out.stride_head;
    problem->out.stride_token = out.stride_token;
    return 0;
}

void tensors_out_shape(const struct tensors *t, const struct tensor_layout *layout,
                       const attn_problem *problem, int64_t shape[NPY_MAX_RANK]) {
    memcpy(shape, t->q.shape, sizeof t->q.shape);
    const int64_t heads = layout->q_heads ? layout->q_heads : 1;
    shape[t->q.rank - 1] = problem->v_dim > INT64_MAX / heads ? INT64_MAX : problem->v_dim * heads;
}
