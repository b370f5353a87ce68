/* Scores of a tile of query rows against a tile of keys: scale * (q . k).
 *
 * SPDX-License-Identifier: MIT */
#include <string.h>

#include "scalar.h"

/* Packed keys are the keys, row after row: there is nothing to gain from another order here. */
void attn_pack_keys_f32_scalar(const float *keys, int64_t stride, size_t first, size_t n_keys,
                               size_t dim, void *packed) {
    float *to = (float *)packed + first * dim;
    for (size_t j = 0; j < n_keys; j++)
        memcpy(to + j * dim, keys + (int64_t)j * stride, dim * sizeof(float));
}

void attn_qk_packed_f32_scalar(const float *const *q, size_t n_rows, const void *packed,
                               size_t n_keys, size_t dim, float scale, float *scores,
                               size_t score_stride, struct attn_later *later) {
    (void)later;
    attn_qk_strided_f32_scalar(q, n_rows, packed, (int64_t)dim, n_keys, dim, scale, scores,
                               score_stride);
}

void attn_qk_strided_f32_scalar(const float *const *q, size_t n_rows, const float *keys,
                                int64_t stride, size_t n_keys, size_t dim, float scale,
                                float *scores, size_t score_stride) {
    for (size_t r = 0; r < n_rows; r++) {
        for (size_t j = 0; j < n_keys; j++) {
            const float *k = keys + (int64_t)j * stride;
            float dot = 0;
            for (size_t c = 0; c < dim; c++)
                dot += q[r][c] * k[c];
            scores[r * score_stride + j] = scale * dot;
        }
    }
}
