/* What kernels ask for while they work on a piece (struct attn_piece): all of the next piece, and how
 * the one after that begins. The hardware then knows where it goes on by the time it is asked for: in
 * every 4 KiB it has to see a few lines first, and pages of a cache are hardly longer.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_PIECES_H
#define ATTN_PIECES_H

#include "kernels.h"

/* Fewer lines than can be on their way to the first-level cache at once. */
enum { PIECE_START = 12 * 64, PREFETCHED_AT_ONCE = 4096 };

/* The start of every 4 KiB of a piece. */
#define prefetch_start(piece, bytes_of_piece)                                                      \
    do {                                                                                           \
        const char *from = (piece)->at;                                                            \
        for (int64_t part = 0; from && part < (bytes_of_piece); part += PREFETCHED_AT_ONCE)        \
            for (int64_t line = 0; line < PIECE_START; line += 64)                                 \
                vf_prefetch_far(from + part + line);                                               \
    } while (0)

/* The scales of tokens [begin, ATTN_PACK_STEP) of an int8 piece. */
#define prefetch_scales(piece, begin, stride)                                                      \
    do {                                                                                           \
        const int64_t per_line = (stride) > 0 && (stride) < 16 ? 16 / (stride) : 1;                \
        for (int64_t token = (begin); (piece)->scales && token < ATTN_PACK_STEP;                   \
             token += per_line)                                                                    \
            vf_prefetch((piece)->scales + token * (stride));                                       \
    } while (0)

#endif
