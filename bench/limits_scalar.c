/* The limits of the scalar set.
 *
 * SPDX-License-Identifier: MIT */
typedef float vector __attribute__((vector_size(4)));
#define VECTOR vector
#define ISA scalar
#include "limits_template.h"
