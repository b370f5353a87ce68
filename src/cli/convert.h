/* Gives a tensor another storage type.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_CONVERT_H
#define ATTN_CONVERT_H

#include "attn.h"

/* What a converted tensor lies in; null where there is none. */
struct converted {
    void *data;
    float *scales;
};

/* "f32", "f16", "bf16", "i8". */
const char *type_name(attn_type type);
size_t type_size(attn_type type);

/* Makes tensor, [batch, heads, tokens, features] in f32, f16 or bf16, one of another type, contiguous
 * in memory of its own. For int8 scales says where they are; its group is given. Returns 0, or -1
 * after an error line. */
int convert_input(attn_input *tensor, attn_scales *scales, int64_t batch, int64_t heads,
                  int64_t tokens, int64_t features, attn_type type, struct converted *memory);
void converted_free(struct converted *memory);

/* Appends tokens [from, from + tokens) of each batch to a cache of one page for each. */
int append_tokens(const attn_input *tensor, int64_t batch, int64_t heads, int64_t tokens,
                  int64_t features, int64_t from, const attn_cache *cache);

#endif
