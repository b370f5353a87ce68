/* The scalar kernel set: plain loops and libm, the definition that every other set is checked
 * against.
 *
 * SPDX-License-Identifier: MIT */
#include "required_features.h"
#include "scalar.h"

ATTN_DEFINE_KERNELS(scalar, 12, 2, 3, NULL);
