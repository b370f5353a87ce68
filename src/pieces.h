/* How far ahead pieces of keys or values (struct attn_piece) are asked for.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_PIECES_H
#define ATTN_PIECES_H

#include "kernels.h"
#include "unroll.h"

#ifndef AH_F32
#define AH_F32 1
#define AH_HALF 2
#define AH_I8 4
#endif
/* Pieces: so many that memory has as many bytes on their way for each type. */
ALWAYS_INLINE size_t pieces_ahead(const attn_type type) {
    return type == ATTN_F32 ? AH_F32 : type == ATTN_I8 ? AH_I8 : AH_HALF;
}

/* How many tokens have their first scale in a line. */
ALWAYS_INLINE int64_t scales_of_a_line(int64_t scale_stride) {
    const int64_t line = 64 / (int64_t)sizeof(float);
    return scale_stride > 0 && scale_stride < line ? line / scale_stride : 1;
}

#endif
