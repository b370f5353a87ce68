/* Keys packed into panels for qk_packed.
 *
 * A panel is 16 keys wide: [feature][key]; the last one is filled up to a multiple of 4 keys. The
 * layout does not depend on the number of keys, because qk_packed may be asked for fewer. Where
 * keys are missing, the last one stands in for them: its scores fall into the padding of the row.
 *
 * SPDX-License-Identifier: MIT */
#include "block.h"
#include "neon.h"
#include "transpose.h"

/* Features c to c + 3 of four keys. */
ALWAYS_INLINE void pack_square(const float *const *k, size_t c, float *out) {
    vf x[VF_LANES];
    UNROLL
    for (int i = 0; i < VF_LANES; i++)
        x[i] = vf_load(k[i] + c);
    transpose_4x4(x);
    UNROLL
    for (int i = 0; i < VF_LANES; i++)
        vf_store(out + i * BLOCK_COLUMNS, x[i]);
}

/* Four keys, n of which exist, into their columns of a panel. */
static void pack_four(const float *keys, int64_t stride, size_t n, size_t dim, float *out) {
    const float *k[VF_LANES];
    UNROLL
    for (size_t i = 0; i < VF_LANES; i++)
        k[i] = keys + (int64_t)(i < n ? i : n - 1) * stride;
    size_t c = 0;
    for (; c + 2 * VF_LANES <= dim; c += 2 * VF_LANES, out += 2 * VF_LANES * BLOCK_COLUMNS) {
        pack_square(k, c, out);
        pack_square(k, c + VF_LANES, out + VF_LANES * BLOCK_COLUMNS);
    }
    for (; c + VF_LANES <= dim; c += VF_LANES, out += VF_LANES * BLOCK_COLUMNS)
        pack_square(k, c, out);
    for (; c < dim; c++, out += BLOCK_COLUMNS) {
        UNROLL
        for (int i = 0; i < VF_LANES; i++)
            out[i] = k[i][c];
    }
}

void attn_pack_keys_f32_neon(const float *keys, int64_t stride, size_t first, size_t n_keys,
                             size_t dim, void *packed) {
    for (size_t j = 0; j < n_keys; j += VF_LANES) {
        float *panel = (float *)packed + (first + j) / BLOCK_COLUMNS * BLOCK_COLUMNS * dim;
        pack_four(keys + (int64_t)j * stride, stride, n_keys - j, dim, panel + j % BLOCK_COLUMNS);
    }
}
