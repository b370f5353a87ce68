/* Calls whose keys are one tile.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_ONE_TILE_H
#define ATTN_ONE_TILE_H

#include "job.h"

/* An attn_task: the rows of a row task, where plan->is_one_tile. arg: the struct attn_job. */
void attn_attend_one_tile(void *arg, size_t index, size_t worker);

#endif
