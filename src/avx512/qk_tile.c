/* Scores of a tile of query rows against packed keys: scale * (q . k), 64 keys at a time.
 *
 * Packed keys are panels of 64 keys, [feature][64], also where the last has fewer.
 *
 * SPDX-License-Identifier: MIT */
#include "avx512.h"
#include "transpose.h"

#include "qk_broadcast.h"

enum { PANEL = MAX_BLOCK_VECTORS * VF_LANES };

void attn_pack_keys_f32_avx512(const float *keys, int64_t stride, size_t n_keys, size_t dim,
                               void *packed) {
    for (size_t j = 0; j < n_keys; j += VF_LANES) {
        const size_t n = n_keys - j < VF_LANES ? n_keys - j : VF_LANES;
        float *to = (float *)packed + j / PANEL * PANEL * dim + j % PANEL;
        const float *from = keys + (int64_t)j * stride;
        __m512 x[4];
        size_t c = 0;
        if (n == VF_LANES) {
            for (; c + 4 <= dim; c += 4) {
                transpose_16x4(from + c, stride, VF_LANES, 4, x);
                UNROLL
                for (size_t f = 0; f < 4; f++)
                    _mm512_store_ps(to + (c + f) * PANEL, x[f]);
            }
        }
        for (; c < dim; c += 4) {
            const size_t features = dim - c < 4 ? dim - c : 4;
            transpose_16x4(from + c, stride, n, features, x);
            for (size_t f = 0; f < features; f++)
                _mm512_store_ps(to + (c + f) * PANEL, x[f]);
        }
    }
}

#define BLOCK(M, N)                                                                                \
    NEVER_INLINE void block_##M##x##N(const float *const *q, const float *keys, size_t dim,        \
                                      float scale, float *scores, size_t score_stride) {           \
        qk_block(M, N, PANEL, q, keys, dim, scale, scores, score_stride);                          \
    }
#define NAME(M, N) block_##M##x##N,
UP_TO_12(BLOCK, 1)
UP_TO_12(BLOCK, 2)
UP_TO_8(BLOCK, 3)
UP_TO_6(BLOCK, 4)

void attn_qk_packed_f32_avx512(const float *const *q, size_t n_rows, const void *packed,
                               size_t n_keys, size_t dim, float scale, float *scores,
                               size_t score_stride) {
    /* By the vectors of keys in a panel. */
    static qk_function *const blocks[4][MAX_BLOCK_ROWS] = {
        {UP_TO_12(NAME, 1)}, {UP_TO_12(NAME, 2)}, {UP_TO_8(NAME, 3)}, {UP_TO_6(NAME, 4)}};
    static const size_t most_rows[4] = {12, 12, 8, 6};
    for (size_t j = 0; j < n_keys; j += PANEL) {
        const float *keys = (const float *)packed + j * dim;
        const size_t left = n_keys - j < PANEL ? n_keys - j : PANEL;
        const size_t vectors = (left + VF_LANES - 1) / VF_LANES;
        for (size_t r = 0; r < n_rows;) {
            const size_t n = next_block(n_rows - r, most_rows[vectors - 1]);
            blocks[vectors - 1][n - 1](q + r, keys, dim, scale, scores + r * score_stride + j,
                                       score_stride);
            r += n;
        }
    }
}
