/* Weighted values where a lane holds several keys (lanes.h): pv_dot of kernels.h, from a set's kernel
 * for ranges of whole lanes, pv_ranges, and pv_masked.h for the lanes of which a row sees a part.
 *
 * Columns [begin, end) of a row are, in ascending order, the rest of a lane that begin cuts, whole
 * lanes, and the start of a lane that end cuts. What a row sees of a lane is a matter of columns
 * alone, so the order of arithmetic is the same however its keys are met.
 *
 * Include after pv_masked.h and pv_ranges.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_PV_LANES_H
#define ATTN_PV_LANES_H

/* Columns [begin, end) of one row, which lie in one lane and are not all of it. */
static inline void pv_cut_lane(const float *weights, int32_t begin, int32_t end,
                               const float *values, int64_t value_stride, size_t v_dim,
                               const float *factor, float *acc) {
    static const uint64_t all = ~UINT64_C(0);
    const int32_t lane = begin / LANE_KEYS;
    const struct attn_visible see = {
        .begin = begin - lane * LANE_KEYS, .end = end - lane * LANE_KEYS, .bits = &all};
    masked_rows(weights + lane, 0, &see, 1, values + lane * value_stride, value_stride, v_dim,
                factor, acc, 0);
}

/* The lanes that are whole, and what comes before and after. */
struct lane_range {
    int32_t begin, end;
    int is_cut_before, is_cut_after;
};

static inline struct lane_range whole_lanes(struct attn_visible see) {
    if (see.begin >= see.end)
        return (struct lane_range){0, 0, 0, 0};
    const int32_t begin = (see.begin + LANE_KEYS - 1) / LANE_KEYS, end = see.end / LANE_KEYS;
    return (struct lane_range){begin, end > begin ? end : begin, see.begin % LANE_KEYS != 0,
                               see.end % LANE_KEYS != 0 && end >= begin};
}

/* At most MAX_SAME_ROWS rows. */
static inline void pv_lane_rows(const float *weights, size_t weight_stride,
                                const struct attn_visible *visible, size_t n_rows,
                                const float *values, int64_t value_stride, size_t v_dim,
                                const float *factor, float *acc, size_t acc_stride,
                                struct attn_later *later) {
    static const float one = 1;
    struct attn_visible whole[MAX_SAME_ROWS];
    float rest[MAX_SAME_ROWS];
    int some_before = 0;
    for (size_t r = 0; r < n_rows; r++) {
        const struct lane_range lanes = whole_lanes(visible[r]);
        whole[r] = (struct attn_visible){
            .begin = lanes.begin, .end = lanes.end, .lifted = visible[r].lifted / LANE_KEYS};
        some_before |= lanes.is_cut_before;
    }
    for (size_t r = 0; some_before && r < n_rows; r++) {
        const struct attn_visible see = visible[r];
        const int32_t end =
            whole[r].begin * LANE_KEYS < see.end ? whole[r].begin * LANE_KEYS : see.end;
        rest[r] = factor ? factor[r] : 1;
        if (whole_lanes(see).is_cut_before) {
            pv_cut_lane(weights + r * weight_stride, see.begin, end, values, value_stride, v_dim,
                        factor ? factor + r : NULL, acc + r * acc_stride);
            rest[r] = see.lifted == end ? 1 / ATTN_LIFT : 1;
        } else if (!factor) {
            for (size_t c = 0; c < v_dim; c++)
                acc[r * acc_stride + c] = -0.0f;
        }
    }
    pv_ranges(weights, weight_stride, whole, n_rows, values, value_stride, v_dim,
              some_before ? rest : factor, acc, acc_stride, later);
    for (size_t r = 0; r < n_rows; r++)
        if (whole_lanes(visible[r]).is_cut_after)
            pv_cut_lane(weights + r * weight_stride, whole[r].end * LANE_KEYS, visible[r].end,
                        values, value_stride, v_dim, &one, acc + r * acc_stride);
}

/* pv_tile where no row has bits. */
static void pv_lane_ranges(const float *weights, size_t weight_stride,
                           const struct attn_visible *visible, size_t n_rows, const float *values,
                           int64_t value_stride, size_t v_dim, const float *factor, float *acc,
                           size_t acc_stride, struct attn_later *later) {
    for (size_t r = 0; r < n_rows; r += MAX_SAME_ROWS)
        pv_lane_rows(weights + r * weight_stride, weight_stride, visible + r,
                     n_rows - r < MAX_SAME_ROWS ? n_rows - r : MAX_SAME_ROWS, values, value_stride,
                     v_dim, factor ? factor + r : NULL, acc + r * acc_stride, acc_stride, later);
}

#endif
