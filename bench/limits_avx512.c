/* The limits of the avx512 set.
 *
 * SPDX-License-Identifier: MIT */
typedef float vector __attribute__((vector_size(64)));
#define VECTOR vector
#define ISA avx512
#include "limits_template.h"
