/* What rows have one of each, such as their maxima, as vectors of vec.h.
 *
 * Include after vec.h.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_ROW_VECTORS_H
#define ATTN_ROW_VECTORS_H

/* Fewer rows than this are dealt with one by one. */
enum { ROWS_WORTH_A_VECTOR = (VF_LANES + 3) / 4 };

/* Those of the next VF_LANES rows, or of the n that are left; other lanes are 0. */
static inline vf load_rows(const float *p, size_t n) {
    return n < VF_LANES ? vf_load_first(p, n) : vf_load(p);
}
static inline void store_rows(float *p, vf x, size_t n) {
    if (n < VF_LANES)
        vf_store_first(p, x, n);
    else
        vf_store(p, x);
}

#endif
