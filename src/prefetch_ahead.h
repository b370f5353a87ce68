/* What kernels that read keys or values once ask for while they work: every line of what comes next, and
 * one line in four of what comes after that, into the second level. The hardware sees there where reading
 * goes on and fetches the rest: through the buffers of the first level alone, memory gives half of what
 * it could. What comes after lies FAR_AHEAD bytes behind what comes next, or it is the piece (struct
 * attn_piece) after the next one.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_PREFETCH_AHEAD_H
#define ATTN_PREFETCH_AHEAD_H

#include "kernels.h"

enum { FAR_AHEAD = 4096 };

/* The scales of tokens [begin, ATTN_PACK_STEP) of an int8 piece. */
#define prefetch_scales(piece, begin, stride)                                                      \
    do {                                                                                           \
        const int64_t per_line = (stride) > 0 && (stride) < 16 ? 16 / (stride) : 1;                \
        for (int64_t token = (begin); (piece)->scales && token < ATTN_PACK_STEP;                   \
             token += per_line)                                                                    \
            vf_prefetch((piece)->scales + token * (stride));                                       \
    } while (0)

#endif
