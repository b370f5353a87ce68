/* Gives a tensor another storage type.
 *
 * SPDX-License-Identifier: MIT */
#include "convert.h"

#include <stdlib.h>

#include "cli.h"
#include "memory.h"

const char *type_name(attn_type type) {
    static const char *const names[] = {
        [ATTN_F32] = "f32", [ATTN_F16] = "f16", [ATTN_BF16] = "bf16", [ATTN_I8] = "i8"};
    return names[type];
}

size_t type_size(attn_type type) { return type == ATTN_F32 ? 4 : type == ATTN_I8 ? 1 : 2; }

int append_tokens(const attn_input *tensor, int64_t batch, int64_t heads, int64_t tokens,
                  int64_t features, int64_t from, const attn_cache *cache) {
    if (batch == 0 || heads == 0 || tokens == 0 || features == 0)
        return 0;
    int64_t *slots = cli_allocate((size_t)tokens, sizeof *slots);
    if (!slots)
        return cli_fail(-1, "not enough memory");
    attn_status status = ATTN_OK;
    for (int64_t b = 0; b < batch && status == ATTN_OK; b++) {
        for (int64_t i = 0; i < tokens; i++)
            slots[i] = b * cache->page_len + from + i;
        attn_input of_batch = *tensor;
        of_batch.data = (const char *)tensor->data +
                        b * tensor->stride_batch * (int64_t)type_size(tensor->type);
        status = attn_append(&of_batch, tokens, heads, features, slots, cache);
    }
    free(slots);
    return status == ATTN_OK ? 0 : cli_fail(-1, "attn_append: %s", attn_status_string(status));
}

int convert_input(attn_input *tensor, attn_scales *scales, int64_t batch, int64_t heads,
                  int64_t tokens, int64_t features, attn_type type, struct converted *memory) {
    const int64_t group = type == ATTN_I8 ? scales->group : 0;
    const int64_t n_scales = group && features ? (features - 1) / group + 1 : 1;
    const size_t rows = (size_t)(batch * heads * tokens);
    memory->data = cli_allocate(rows * (size_t)features, type_size(type));
    if (type == ATTN_I8)
        memory->scales = cli_allocate(rows * (size_t)n_scales, sizeof *memory->scales);
    if (!memory->data || (type == ATTN_I8 && !memory->scales))
        return cli_fail(-1, "not enough memory for a copy in %s", type_name(type));
    const attn_cache cache = {.data = memory->data,
                              .type = type,
                              .stride_page = heads * tokens * features,
                              .stride_head = tokens * features,
                              .stride_token = features,
                              .n_pages = batch,
                              .page_len = tokens ? tokens : 1,
                              .scales = memory->scales,
                              .scale_group = group,
                              .scale_stride_page = heads * tokens * n_scales,
                              .scale_stride_head = tokens * n_scales,
                              .scale_stride_token = n_scales};
    if (append_tokens(tensor, batch, heads, tokens, features, 0, &cache))
        return -1;
    *tensor = (attn_input){.data = memory->data,
                           .type = type,
                           .stride_batch = cache.stride_page,
                           .stride_head = cache.stride_head,
                           .stride_token = cache.stride_token};
    if (type == ATTN_I8)
        *scales = (attn_scales){.data = memory->scales,
                                .group = group,
                                .stride_batch = cache.scale_stride_page,
                                .stride_head = cache.scale_stride_head,
                                .stride_token = cache.scale_stride_token};
    return 0;
}

void converted_free(struct converted *memory) {
    free(memory->data);
    free(memory->scales);
}
