/* Tensors of real models: each kernel set gives the model's own output within 2e-5, and the exact
 * result within the bound of attn.h.
 *
 * Two tensors ship in tests/data; more are used where the folder shared/data/real is present beside
 * the repository, or where ATTN_SHARED names the folder shared.
 *
 * SPDX-License-Identifier: MIT */
#define _GNU_SOURCE 1
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "cli/npy.h"

#define AS_THE_MODEL 2e-5

/* The folder of this file, or tests/ where only its name is known. */
static void tests_path(char *path, size_t size, const char *rest) {
    const char *slash = strrchr(__FILE__, '/');
    if (slash)
        snprintf(path, size, "%.*s/%s", (int)(slash - __FILE__), __FILE__, rest);
    else
        snprintf(path, size, "tests/%s", rest);
}

static struct npy load(const char *prefix, const char *name) {
    char path[4096], error[NPY_ERROR_SIZE];
    snprintf(path, sizeof path, "%s%s.npy", prefix, name);
    struct npy tensor;
    cr_assert(npy_read(path, 0, &tensor, error) == 0, "%s: %s", path, error);
    cr_assert(tensor.rank == 3, "%s: rank %d, want [H, L, D]", path, tensor.rank);
    return tensor;
}

/* prefix is "folder/" or "folder/name_". */
static void try_model(const char *what, const char *prefix) {
    struct npy q = load(prefix, "q"), k = load(prefix, "k"), v = load(prefix, "v");
    struct npy o = load(prefix, "o");
    const struct shape shape = {1,          q.shape[0], k.shape[0], q.shape[1],
                                k.shape[1], q.shape[2], v.shape[2]};
    struct trial t;
    trial_place(&t, shape, (struct layouts){.lse = true, .weights = true, .v = BLHD});
    const struct npy *from[3] = {&q, &k, &v};
    const attn_input *to[3] = {&t.p.q, &t.p.k, &t.p.v};
    for (int i = 0; i < 3; i++)
        for (int64_t h = 0; h < from[i]->shape[0]; h++)
            for (int64_t l = 0; l < from[i]->shape[1]; l++)
                memcpy(in_at_mutable(to[i], 0, h, l),
                       from[i]->data + (h * from[i]->shape[1] + l) * from[i]->shape[2],
                       (size_t)from[i]->shape[2] * sizeof(float));
    struct reference r = reference_make(&t);
    FOR_EACH_ISA(isa) {
        trial_context(&t, what);
        trial_run(&t, NULL);
        const double share = trial_compare(&t, &r);
        double error = 0;
        for (int64_t h = 0; h < shape.q_heads; h++)
            for (int64_t l = 0; l < shape.q_len; l++)
                for (int64_t c = 0; c < shape.v_dim; c++) {
                    const double e = fabs((double)out_at(&t.p.out, 0, h, l)[c] -
                                          o.data[(h * shape.q_len + l) * shape.v_dim + c]);
                    error = e <= error ? error : e; /* NaN comes through */
                }
        CHECK(error <= AS_THE_MODEL, "differs from the model by %g", error);
        check_say("real tensors %s, %s: differs from the model by %.2g, %.3f of the bound", what,
                  isa, error, share);
    }
    reference_free(&r);
    free(q.data), free(k.data), free(v.data), free(o.data);
}

Test(real, shipped, .timeout = 300) {
    const char *names[] = {"ppocr_b0_L40", "ppocr_b0_L197"};
    for (int i = 0; i < 2; i++) {
        char rest[64], prefix[4096];
        if (check_quick() && i > 0) {
            check_say("ATTN_TEST_QUICK skipped: real tensors %s", names[i]);
            continue;
        }
        snprintf(rest, sizeof rest, "data/%s/", names[i]);
        tests_path(prefix, sizeof prefix, rest);
        try_model(names[i], prefix);
    }
}

Test(real, beside_the_repository, .timeout = 300) {
    const char *names[] = {"kwt1_l0", "kwt1_l5", "kwt1_l11", "ppocr_b0_L528"};
    char folder[3072], prefix[4096];
    const char *shared = getenv("ATTN_SHARED");
    if (shared && *shared)
        snprintf(folder, sizeof folder, "%s/data/real", shared);
    else
        tests_path(folder, sizeof folder, "../../shared/data/real");
    if (access(folder, R_OK)) {
        check_say("skipped: real tensors of %s, which is not there", folder);
        return;
    }
    for (int i = 0; i < 4; i++) {
        snprintf(prefix, sizeof prefix, "%s/%s_", folder, names[i]);
        char path[4104];
        snprintf(path, sizeof path, "%sq.npy", prefix);
        if (access(path, R_OK) || (check_quick() && i > 0))
            check_say("skipped: real tensors %s (%s)", names[i],
                      check_quick() ? "ATTN_TEST_QUICK" : "not there");
        else
            try_model(names[i], prefix);
    }
}
