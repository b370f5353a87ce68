/* The scalar kernel set: plain loops and libm, the definition that every other set is checked
 * against.
 *
 * SPDX-License-Identifier: MIT */
#include "required_features.h"
#include "scalar.h"

#define PACK                                                                                       \
    { 2, 2, 3 }
ATTN_DEFINE_KERNELS(scalar, scalar, 12, PACK, NULL, NULL, NULL);
