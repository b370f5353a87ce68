/* Calls attention CALLS times on a small problem of the given shape and does nothing else, for plugins
 * of an emulator to watch: instructions of two calls less those of one are one without the setup.
 *
 *     calls CALLS Q_HEADS KV_HEADS Q_LEN KEYS DIM CAUSAL
 *
 * SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>

#include "attn.h"

static float *random_floats(size_t n) {
    float *x = malloc(n * sizeof *x);
    uint32_t s = 12345;
    for (size_t i = 0; x && i < n; i++) {
        s = s * 1664525 + 1013904223;
        x[i] = (float)(int32_t)s * 0x1.cp-31f;
    }
    return x;
}

int main(int argc, char **argv) {
    if (argc != 8)
        return fprintf(stderr, "calls CALLS Q_HEADS KV_HEADS Q_LEN KEYS DIM CAUSAL\n"), 2;
    int64_t n[8];
    for (int i = 1; i < 8; i++)
        n[i] = atoll(argv[i]);
    const size_t q_size = (size_t)(n[2] * n[4] * n[6]), kv_size = (size_t)(n[3] * n[5] * n[6]);
    float *q = random_floats(q_size), *k = random_floats(kv_size), *v = random_floats(kv_size);
    float *out = malloc(q_size * sizeof *out);
    attn_problem p = attn_problem_bhld(1, n[2], n[3], n[4], n[5], n[6], n[6], q, k, v, out);
    p.causal = n[7] != 0;
    p.align = p.causal ? ATTN_ALIGN_BOTTOM_RIGHT : ATTN_ALIGN_UNSET;
    size_t size;
    void *workspace;
    if (!q || !k || !v || !out || attn_workspace_size(&p, 1, &size) != ATTN_OK ||
        !(workspace = malloc(size)))
        return 1;
    for (int64_t i = 0; i < n[1]; i++)
        if (attn_forward(&p, workspace, size, NULL) != ATTN_OK)
            return 1;
    return 0;
}
