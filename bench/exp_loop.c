/* The exponential of one kernel set by itself: compiled once for each, like the set's own files,
 * with its name in ISA.
 *
 * SPDX-License-Identifier: MIT */
#include "exp_loop.h"

#if __has_include("vec.h")
#include "vec.h"

#include "exp_nonpositive.h"

enum { STEP = SOFTMAX_VECTORS * VF_LANES };

static void loop(const float *x, float *y, size_t n) {
    for (size_t i = 0; i + STEP <= n; i += STEP) {
        vf v[SOFTMAX_VECTORS];
        UNROLL
        for (size_t k = 0; k < SOFTMAX_VECTORS; k++)
            v[k] = vf_load(x + i + k * VF_LANES);
        exp_nonpositive_n(SOFTMAX_VECTORS, v);
        UNROLL
        for (size_t k = 0; k < SOFTMAX_VECTORS; k++)
            vf_store(y + i + k * VF_LANES, v[k]);
    }
}
#else
#include "exp_scalar.h"

static void loop(const float *x, float *y, size_t n) {
    for (size_t i = 0; i < n; i++)
        y[i] = exp_scalar(x[i]);
}
#endif

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
const struct exp_loop JOIN(exp_loop_, ISA) = {TEXT(ISA), loop};
