/* The limits of the avx2 set.
 *
 * SPDX-License-Identifier: MIT */
typedef float vector __attribute__((vector_size(32)));
#define VECTOR vector
#define ISA avx2
#include "limits_template.h"
