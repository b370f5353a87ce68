/* The kernels of the scalar set.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_SCALAR_H
#define ATTN_SCALAR_H

#include "kernel_set.h"

ATTN_DECLARE_KERNELS(scalar)

#endif
