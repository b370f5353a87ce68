/* The limits of the neon set.
 *
 * SPDX-License-Identifier: MIT */
typedef float vector __attribute__((vector_size(16)));
#define VECTOR vector
#define ISA neon
#include "limits_template.h"
