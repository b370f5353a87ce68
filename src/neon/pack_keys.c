/* Keys packed into panels for qk_packed.
 *
 * A panel is 16 keys wide, the last one a multiple of 4: [feature][key]. It starts at 16 * dim
 * floats times its number. Where keys are missing, the last key stands in for them: its scores fall
 * into the padding of the row.
 *
 * SPDX-License-Identifier: MIT */
#include "block.h"
#include "neon.h"
#include "transpose.h"

/* Four keys, n of which exist, into their columns of a panel. */
static void pack_four(const float *keys, int64_t stride, size_t n, size_t dim, size_t width,
                      float *out) {
    const float *k[VF_LANES];
    UNROLL
    for (size_t i = 0; i < VF_LANES; i++)
        k[i] = keys + (int64_t)(i < n ? i : n - 1) * stride;
    size_t c = 0;
    for (; c + VF_LANES <= dim; c += VF_LANES) {
        vf x[VF_LANES];
        UNROLL
        for (int i = 0; i < VF_LANES; i++)
            x[i] = vf_load(k[i] + c);
        transpose_4x4(x);
        UNROLL
        for (int i = 0; i < VF_LANES; i++, out += width)
            vf_store(out, x[i]);
    }
    for (; c < dim; c++, out += width) {
        UNROLL
        for (int i = 0; i < VF_LANES; i++)
            out[i] = k[i][c];
    }
}

void attn_pack_keys_f32_neon(const float *keys, int64_t stride, size_t n_keys, size_t dim,
                             void *packed) {
    float *panel = packed;
    for (size_t j = 0; j < n_keys; j += BLOCK_COLUMNS) {
        const size_t n = n_keys - j < BLOCK_COLUMNS ? n_keys - j : BLOCK_COLUMNS;
        const size_t width = (n + VF_LANES - 1) / VF_LANES * VF_LANES;
        for (size_t i = 0; i < n; i += VF_LANES)
            pack_four(keys + (int64_t)(j + i) * stride, stride, n - i, dim, width, panel + i);
        panel += width * dim;
    }
}
