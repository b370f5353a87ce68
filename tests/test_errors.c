/* Every misuse is an error code found before the first write, and attn_check() says which argument
 * it was and what it held (CONTRACT 6).
 *
 * SPDX-License-Identifier: MIT */
#define _GNU_SOURCE 1
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

/* A valid problem: 2 batches, 4 heads on 2, 3 rows, 5 keys. */
enum { B = 2, HQ = 4, HKV = 2, LQ = 3, LK = 5, D = 6, DV = 7, N_OUT = B * HQ * LQ * DV };
enum { PAST = 2, KEYS = PAST + LK, PAGES = 7 };

struct sample {
    attn_problem p;
    float q[B * HQ * LQ * D], k[B * HKV * LK * D], v[B * HKV * LK * DV];
    float out[N_OUT], lse[B * HQ * LQ], weights[B * HQ * LQ * LK];
    float scale;
    int64_t kv_len[B], offset[B];
    /* With every option: see sample_make_full(). */
    float past_k[B * HKV * PAST * D], past_v[B * HKV * PAST * DV];
    float scores[B * HQ * LQ * KEYS], all_weights[B * HQ * LQ * KEYS];
    float mask[LQ * KEYS], alibi[HQ], sinks[HQ];
    int64_t cu_q[B + 1], past_len[B], window[2];
    /* Int8 tensors, and a cache of pages of two tokens: see sample_make_i8(), sample_make_paged(). */
    int8_t q8[N_OUT], k8[B * HKV * LK * D], v8[B * HKV * LK * DV];
    float scales[B * HKV * LK * 3];
    float pool_k[PAGES * HKV * 2 * D], pool_v[PAGES * HKV * 2 * DV];
    int32_t table[B][3];
};

static void sample_make(struct sample *s) {
    memset(s, 0, sizeof *s);
    memset(s->out, 0xab, sizeof s->out);
    memset(s->lse, 0xab, sizeof s->lse);
    memset(s->weights, 0xab, sizeof s->weights);
    s->p = attn_problem_bhld(B, HQ, HKV, LQ, LK, D, DV, s->q, s->k, s->v, s->out);
    s->p.lse = (attn_output){s->lse, ATTN_F32, HQ * LQ, LQ, 1};
    s->p.weights = (attn_output){s->weights, ATTN_F32, HQ * LQ * LK, LQ * LK, LK};
    s->scale = 0.5f, s->p.scale = &s->scale;
    s->kv_len[0] = 5, s->kv_len[1] = 2, s->p.kv_len = s->kv_len;
    s->p.causal = 1, s->p.align = ATTN_ALIGN_EXPLICIT, s->p.offset = s->offset;
}

/* The same with an additive mask, a window, softcap, ALiBi, sinks, scores, sequences of 1 and 2 rows
 * and keys in two pieces. */
static void sample_make_full(struct sample *s) {
    sample_make(s);
    memset(s->scores, 0xab, sizeof s->scores);
    memset(s->all_weights, 0xab, sizeof s->all_weights);
    attn_problem *p = &s->p;
    p->mask = (attn_mask){s->mask, ATTN_MASK_F32, 0, 0, KEYS, 1, KEYS};
    p->window = s->window, p->softcap = 3, p->alibi = s->alibi, p->sinks = s->sinks;
    s->window[0] = 4, s->window[1] = -1;
    p->cu_q = s->cu_q, s->cu_q[1] = 1, s->cu_q[2] = LQ;
    p->past_cap = PAST, p->past_len = s->past_len, s->past_len[0] = 2, s->past_len[1] = 1;
    p->past_k = (attn_input){s->past_k, ATTN_F32, HKV * PAST * D, PAST * D, D};
    p->past_v = (attn_input){s->past_v, ATTN_F32, HKV * PAST * DV, PAST * DV, DV};
    p->scores = (attn_output){s->scores, ATTN_F32, 0, LQ * KEYS, KEYS};
    p->weights = (attn_output){s->all_weights, ATTN_F32, 0, LQ * KEYS, KEYS};
}

/* k and v are int8, with scales for 4 features each: 2 for D and for DV. */
static void sample_make_i8(struct sample *s) {
    sample_make(s);
    attn_problem *p = &s->p;
    p->k.data = s->k8, p->k.type = ATTN_I8;
    p->v.data = s->v8, p->v.type = ATTN_I8;
    p->k_scales = (attn_scales){s->scales, 4, HKV * LK * 2, LK * 2, 2};
    p->v_scales = p->k_scales;
}

/* Rows 2 to 4 of batch 0 see its keys 0 to 4, rows 0 to 2 of batch 1 the two that it has. */
static void sample_make_paged(struct sample *s) {
    static const int32_t table[B][3] = {{6, 0, 3}, {2, INT32_MAX, -1}};
    sample_make(s);
    attn_problem *p = &s->p;
    p->k = (attn_input){s->pool_k, ATTN_F32, HKV * 2 * D, 2 * D, D};
    p->v = (attn_input){s->pool_v, ATTN_F32, HKV * 2 * DV, 2 * DV, DV};
    memcpy(s->table, table, sizeof table);
    p->pages = (attn_pages){s->table[0], 3, 2, PAGES};
    s->offset[0] = 2;
}

static bool is_untouched(const void *data, size_t size) {
    const unsigned char *bytes = data;
    for (size_t i = 0; i < size; i++)
        if (bytes[i] != 0xab)
            return false;
    return true;
}

/* One way to break the sample, the answer, and words of the sentence. */
struct misuse {
    const char *what;
    void (*apply)(struct sample *s);
    attn_status status;
    const char *words[3];
    bool needs_data; /* attn_workspace_size() does not look at it */
};

#define BREAK(name, statement)                                                                     \
    static void name(struct sample *s) { statement; }
BREAK(q_null, s->p.q.data = NULL)
BREAK(k_null, s->p.k.data = NULL)
BREAK(v_null, s->p.v.data = NULL)
BREAK(out_null, s->p.out.data = NULL)
BREAK(offset_null, s->p.offset = NULL)
BREAK(size_zero, s->p.struct_size = 0)
BREAK(size_small, s->p.struct_size = offsetof(attn_problem, mask) - 1)
BREAK(size_garbage, s->p.struct_size = (size_t)1 << 30) /* an uninitialised struct */
BREAK(batch_negative, s->p.batch = -1)
BREAK(q_heads_negative, s->p.q_heads = -4)
BREAK(kv_heads_negative, s->p.kv_heads = -2)
BREAK(q_len_negative, s->p.q_len = -3)
BREAK(kv_cap_negative, s->p.kv_cap = -5)
BREAK(qk_dim_negative, s->p.qk_dim = INT64_MIN)
BREAK(v_dim_negative, s->p.v_dim = -7)
BREAK(qk_dim_zero, s->p.qk_dim = 0)
BREAK(kv_heads_zero, s->p.kv_heads = 0) /* L2 */
BREAK(heads_3_on_2, s->p.q_heads = 3)   /* K4 */
BREAK(heads_33_on_2, s->p.q_heads = 33)
BREAK(heads_2_on_4, s->p.q_heads = 2; s->p.kv_heads = 4)
BREAK(kv_len_negative, s->kv_len[1] = -1)
BREAK(kv_len_beyond, s->kv_len[1] = 6)
BREAK(q_type, s->p.q.type = ATTN_I8)
BREAK(k_type, s->p.k.type = (attn_type)4)
BREAK(v_type, s->p.v.type = (attn_type)-1)
BREAK(out_type, s->p.out.type = ATTN_I8)
BREAK(lse_type, s->p.lse.type = ATTN_F16)
BREAK(lse_i8, s->p.lse.type = ATTN_I8)
BREAK(weights_type, s->p.weights.type = ATTN_BF16)
BREAK(out_unknown, s->p.out.type = (attn_type)INT32_MIN)
BREAK(type_unknown, s->p.q.type = (attn_type)77)
BREAK(scale_nan, s->scale = NAN)
BREAK(scale_infinite, s->scale = -INFINITY)
BREAK(causal_2, s->p.causal = 2)
BREAK(causal_negative, s->p.causal = -1)
BREAK(align_unknown, s->p.align = (attn_align)9)
BREAK(align_unset, s->p.align = ATTN_ALIGN_UNSET; s->p.offset = NULL)
BREAK(offset_without_explicit, s->p.align = ATTN_ALIGN_TOP_LEFT)
BREAK(offset_far, s->offset[1] = (INT64_C(1) << 62) + 1)
BREAK(offset_far_negative, s->offset[0] = INT64_MIN)
BREAK(batch_huge, s->p.batch = INT64_C(1) << 31; s->p.q_heads = INT64_C(1) << 20;
      s->p.q_len = INT64_C(1) << 20) /* I7 */
BREAK(v_dim_huge, s->p.v_dim = INT64_C(1) << 40)
BREAK(qk_dim_huge, s->p.qk_dim = INT64_MAX)
BREAK(q_stride_huge, s->p.q.stride_head = INT64_MAX / 4)
BREAK(k_stride_huge, s->p.k.stride_token = INT64_MIN)
BREAK(v_stride_huge, s->p.v.stride_batch = INT64_C(1) << 62)
BREAK(out_stride_huge, s->p.out.stride_token = -(INT64_C(1) << 61))
BREAK(lse_stride_huge, s->p.lse.stride_batch = INT64_C(1) << 61)
BREAK(weights_stride_huge, s->p.weights.stride_head = INT64_C(1) << 61)
/* Strides that make an output's rows share memory; 0 is what a forgotten one is. */
BREAK(out_stride_zero, s->p.out.stride_token = 0)
BREAK(out_rows_overlap, s->p.out.stride_token = 1 - DV)
BREAK(lse_strides_zero, s->p.lse.stride_batch = s->p.lse.stride_head = s->p.lse.stride_token = 0)
BREAK(weights_stride_short, s->p.weights.stride_head = LK - 1)
/* Of the sample with every option. */
BREAK(mask_null, s->p.mask.data = NULL)
BREAK(mask_type_5, s->p.mask.type = (attn_mask_type)5)
BREAK(mask_without_type, s->p.mask.type = ATTN_MASK_NONE)
BREAK(mask_of_no_key, s->p.mask.n_keys = 0)
BREAK(mask_of_negative_keys, s->p.mask.n_keys = -3)
BREAK(bits_with_stride, s->p.mask.type = ATTN_MASK_BITS)
BREAK(mask_batch_far, s->p.mask.stride_batch = INT64_C(1) << 61)
BREAK(mask_query_far, s->p.mask.stride_query = INT64_MIN)
BREAK(mask_key_far, s->p.mask.stride_key = INT64_MAX / 2)
BREAK(window_left, s->window[0] = -2)
BREAK(window_right, s->window[1] = INT64_MIN)
BREAK(softcap_negative, s->p.softcap = -0.5f)
BREAK(softcap_nan, s->p.softcap = NAN)
BREAK(softcap_infinite, s->p.softcap = INFINITY)
BREAK(slope_nan, s->alibi[2] = NAN)
BREAK(slope_infinite, s->alibi[3] = -INFINITY)
BREAK(scores_type, s->p.scores.type = ATTN_F16)
BREAK(scores_stage, s->p.scores_at = (attn_score_stage)3)
BREAK(scores_stage_negative, s->p.scores_at = (attn_score_stage)-1)
BREAK(scores_overlap, s->p.scores.stride_token = LK) /* enough for k, but not for both pieces */
BREAK(weights_overlap, s->p.weights.stride_token = -LK)
BREAK(scores_far, s->p.scores.stride_head = INT64_C(1) << 61)
BREAK(cu_q_from_1, s->cu_q[0] = 1)
BREAK(cu_q_negative, s->cu_q[1] = -1)
BREAK(cu_q_falls, s->cu_q[1] = 4)
BREAK(cu_q_short, s->cu_q[2] = 2)
BREAK(cu_q_long, s->cu_q[2] = INT64_MAX)
BREAK(past_cap_negative, s->p.past_cap = -1)
BREAK(past_cap_huge, s->p.past_cap = INT64_MAX)
BREAK(past_k_null, s->p.past_k.data = NULL)
BREAK(past_v_null, s->p.past_v.data = NULL)
BREAK(past_k_type, s->p.past_k.type = ATTN_BF16)
BREAK(past_v_type, s->p.past_v.type = ATTN_I8; s->p.past_v_scales.data = s->scales)
BREAK(past_v_unknown, s->p.past_v.type = (attn_type)9)
BREAK(k_type_not_of_past, s->p.k.type = ATTN_F16)
BREAK(past_k_far, s->p.past_k.stride_token = INT64_C(1) << 61)
BREAK(past_v_far, s->p.past_v.stride_batch = -(INT64_C(1) << 61))
BREAK(past_len_negative, s->past_len[1] = -1)
BREAK(past_len_beyond, s->past_len[0] = 3)
BREAK(kv_len_beyond_pieces, s->kv_len[1] = 7) /* the room is 7, but only 6 keys are there */
BREAK(window_unaligned, s->p.causal = 0; s->p.alibi = NULL; s->p.align = ATTN_ALIGN_UNSET;
      s->p.offset = NULL)
BREAK(alibi_unaligned, s->p.causal = 0; s->p.window = NULL; s->p.align = ATTN_ALIGN_UNSET;
      s->p.offset = NULL)
/* Of the sample with pages: scores are those of hidden keys too. */
static void page_for_scores(struct sample *s) {
    s->p.scores = (attn_output){s->scores, ATTN_F32, HQ * LQ * LK, LQ * LK, LK};
    s->offset[0] = 0, s->table[0][2] = -1;
}
/* Of the sample with int8 keys and values (FAULTS F10). */
static void add_past(struct sample *s) {
    s->p.past_cap = PAST;
    s->p.past_k = s->p.k, s->p.past_v = s->p.v;
    s->p.past_k_scales = s->p.k_scales, s->p.past_v_scales = s->p.v_scales;
    s->p.weights.data = NULL;
}
BREAK(k_scales_null, s->p.k_scales.data = NULL)
BREAK(v_scales_null, s->p.v_scales.data = NULL)
BREAK(k_group_negative, s->p.k_scales.group = -1)
BREAK(v_group_negative, s->p.v_scales.group = INT64_MIN)
BREAK(k_scales_far, s->p.k_scales.stride_head = INT64_C(1) << 61)
BREAK(v_scales_far, s->p.v_scales.stride_token = INT64_MIN)
BREAK(k8_null, s->p.k.data = NULL)
BREAK(past_scales_null, add_past(s); s->p.past_k_scales.data = NULL)
BREAK(past_v_scales_null, add_past(s); s->p.past_v_scales.data = NULL)
BREAK(past_group, add_past(s); s->p.past_k_scales.group = 3)
BREAK(past_v_group, add_past(s); s->p.past_v_scales.group = 0)
BREAK(past_group_negative, add_past(s); s->p.past_v_scales.group = -4)
BREAK(past_not_i8, add_past(s); s->p.past_k.type = ATTN_F32)
/* Of the sample with pages. */
BREAK(page_len_0, s->p.pages.page_len = 0)
BREAK(page_len_negative, s->p.pages.page_len = -3)
BREAK(n_pages_negative, s->p.pages.n_pages = -1)
BREAK(n_pages_beyond, s->p.pages.n_pages = INT64_C(1) << 31)
BREAK(page_of_minus_2, s->table[1][0] = -2) /* L5 */
BREAK(page_of_n_pages, s->table[0][1] = PAGES)
BREAK(page_of_int32_max, s->table[0][2] = INT32_MAX)
BREAK(page_of_int32_min, s->table[0][0] = INT32_MIN)
BREAK(no_pages, s->p.pages.n_pages = 0; s->p.k.data = s->p.v.data = NULL)
BREAK(pages_and_past, s->p.past_cap = PAST; s->p.past_k = s->p.k; s->p.past_v = s->p.v)
BREAK(table_far, s->p.pages.stride_batch = INT64_C(1) << 61)
BREAK(pages_far, s->p.k.stride_batch = INT64_C(1) << 61)
BREAK(pool_k_null, s->p.k.data = NULL)
BREAK(pool_v_null, s->p.v.data = NULL)
#undef BREAK

static const struct misuse misuses[] = {
    {"q null", q_null, ATTN_ERROR_NULL, {"q.data"}, true},
    {"k null", k_null, ATTN_ERROR_NULL, {"k.data"}, true},
    {"v null", v_null, ATTN_ERROR_NULL, {"v.data"}, true},
    {"out null", out_null, ATTN_ERROR_NULL, {"out.data"}, true},
    {"offset null", offset_null, ATTN_ERROR_NULL, {"offset"}, false},
    {"struct_size 0", size_zero, ATTN_ERROR_STRUCT_SIZE, {"struct_size", "0"}, false},
    {"struct_size small", size_small, ATTN_ERROR_STRUCT_SIZE, {"struct_size"}, false},
    {"struct_size garbage", size_garbage, ATTN_ERROR_STRUCT_SIZE, {"struct_size"}, false},
    {"out stride 0", out_stride_zero, ATTN_ERROR_STRIDE, {"out.stride", "tokens", "0"}, false},
    {"out rows overlap", out_rows_overlap, ATTN_ERROR_STRIDE, {"out.stride", "-6"}, false},
    {"lse strides 0", lse_strides_zero, ATTN_ERROR_STRIDE, {"lse.stride", "0"}, false},
    {"weights short", weights_stride_short, ATTN_ERROR_STRIDE, {"weights.stride", "heads"}, false},
    {"batch < 0", batch_negative, ATTN_ERROR_SIZE, {"batch", "-1"}, false},
    {"q_heads < 0", q_heads_negative, ATTN_ERROR_SIZE, {"q_heads", "-4"}, false},
    {"kv_heads < 0", kv_heads_negative, ATTN_ERROR_SIZE, {"kv_heads", "-2"}, false},
    {"q_len < 0", q_len_negative, ATTN_ERROR_SIZE, {"q_len", "-3"}, false},
    {"kv_cap < 0", kv_cap_negative, ATTN_ERROR_SIZE, {"kv_cap", "-5"}, false},
    {"qk_dim < 0", qk_dim_negative, ATTN_ERROR_SIZE, {"qk_dim", "-9223372036854775808"}, false},
    {"v_dim < 0", v_dim_negative, ATTN_ERROR_SIZE, {"v_dim", "-7"}, false},
    {"qk_dim 0", qk_dim_zero, ATTN_ERROR_SIZE, {"qk_dim"}, false},
    {"L2: kv_heads 0", kv_heads_zero, ATTN_ERROR_SIZE, {"kv_heads", "q_heads", "4"}, false},
    {"K4: heads 3/2", heads_3_on_2, ATTN_ERROR_HEADS, {"q_heads 3", "kv_heads 2"}, false},
    {"K4: heads 33/2", heads_33_on_2, ATTN_ERROR_HEADS, {"q_heads 33", "kv_heads 2"}, false},
    {"K4: heads 2/4", heads_2_on_4, ATTN_ERROR_HEADS, {"q_heads 2", "kv_heads 4"}, false},
    {"kv_len < 0", kv_len_negative, ATTN_ERROR_KV_LEN, {"kv_len[1]", "-1"}, false},
    {"kv_len > cap", kv_len_beyond, ATTN_ERROR_KV_LEN, {"kv_len[1]", "6", "5"}, false},
    {"q i8", q_type, ATTN_ERROR_TYPE, {"q.type", "3"}, false},
    {"k of type 4", k_type, ATTN_ERROR_TYPE, {"k.type", "4"}, false},
    {"v of type -1", v_type, ATTN_ERROR_TYPE, {"v.type", "-1"}, false},
    {"out i8", out_type, ATTN_ERROR_TYPE, {"out.type", "3"}, false},
    {"out of no type", out_unknown, ATTN_ERROR_TYPE, {"out.type", "-2147483648"}, false},
    {"lse f16", lse_type, ATTN_ERROR_TYPE, {"lse.type", "1"}, false},
    {"lse i8", lse_i8, ATTN_ERROR_TYPE, {"lse.type", "3"}, false},
    {"weights bf16", weights_type, ATTN_ERROR_TYPE, {"weights.type", "2"}, false},
    {"q of no type", type_unknown, ATTN_ERROR_TYPE, {"q.type", "77"}, false},
    {"scale NaN", scale_nan, ATTN_ERROR_PARAMETER, {"scale", "nan"}, false},
    {"scale -inf", scale_infinite, ATTN_ERROR_PARAMETER, {"scale", "-inf"}, false},
    {"causal 2", causal_2, ATTN_ERROR_PARAMETER, {"causal", "2"}, false},
    {"causal -1", causal_negative, ATTN_ERROR_PARAMETER, {"causal", "-1"}, false},
    {"align 9", align_unknown, ATTN_ERROR_PARAMETER, {"align", "9"}, false},
    {"no alignment",
     align_unset,
     ATTN_ERROR_ALIGNMENT,
     {"causal", "3 query rows", "5 keys"},
     false},
    {"offset, top-left", offset_without_explicit, ATTN_ERROR_ALIGNMENT, {"offset", "align"}, false},
    {"offset far", offset_far, ATTN_ERROR_OVERFLOW, {"offset[1]", "4611686018427387905"}, false},
    {"offset minimal", offset_far_negative, ATTN_ERROR_OVERFLOW, {"offset[0]"}, false},
    {"I7: sizes", batch_huge, ATTN_ERROR_OVERFLOW, {"batch", "2147483648", "1048576"}, false},
    {"v_dim huge", v_dim_huge, ATTN_ERROR_OVERFLOW, {"v_dim", "1099511627776"}, false},
    {"qk_dim huge", qk_dim_huge, ATTN_ERROR_OVERFLOW, {"qk_dim", "9223372036854775807"}, false},
    {"q far", q_stride_huge, ATTN_ERROR_OVERFLOW, {"q ", "2305843009213693951"}, false},
    {"k far", k_stride_huge, ATTN_ERROR_OVERFLOW, {"k ", "-9223372036854775808"}, false},
    {"v far", v_stride_huge, ATTN_ERROR_OVERFLOW, {"v ", "4611686018427387904"}, false},
    {"out far", out_stride_huge, ATTN_ERROR_OVERFLOW, {"out ", "-2305843009213693952"}, false},
    {"lse far", lse_stride_huge, ATTN_ERROR_OVERFLOW, {"lse ", "2305843009213693952"}, false},
    {"weights far", weights_stride_huge, ATTN_ERROR_OVERFLOW, {"weights "}, false},
};

static const struct misuse misuses_of_options[] = {
    {"mask null", mask_null, ATTN_ERROR_NULL, {"mask.data"}, true},
    {"mask type 5", mask_type_5, ATTN_ERROR_PARAMETER, {"mask.type", "5"}, false},
    {"mask without type", mask_without_type, ATTN_ERROR_MASK, {"mask", "type"}, false},
    {"mask of no key", mask_of_no_key, ATTN_ERROR_MASK, {"mask.n_keys", "0"}, false},
    {"mask of -3 keys", mask_of_negative_keys, ATTN_ERROR_MASK, {"mask.n_keys", "-3"}, false},
    {"bits with stride", bits_with_stride, ATTN_ERROR_MASK, {"mask.stride_key", "1"}, false},
    {"mask batch far", mask_batch_far, ATTN_ERROR_OVERFLOW, {"mask", "2305843009213693952"}, false},
    {"mask query far",
     mask_query_far,
     ATTN_ERROR_OVERFLOW,
     {"mask", "-9223372036854775808"},
     false},
    {"mask key far", mask_key_far, ATTN_ERROR_OVERFLOW, {"mask", "4611686018427387903"}, false},
    {"window left", window_left, ATTN_ERROR_PARAMETER, {"window", "-2"}, false},
    {"window right", window_right, ATTN_ERROR_PARAMETER, {"window", "-9223372036854775808"}, false},
    {"softcap < 0", softcap_negative, ATTN_ERROR_PARAMETER, {"softcap", "-0.5"}, false},
    {"softcap NaN", softcap_nan, ATTN_ERROR_PARAMETER, {"softcap", "nan"}, false},
    {"softcap inf", softcap_infinite, ATTN_ERROR_PARAMETER, {"softcap", "inf"}, false},
    {"slope NaN", slope_nan, ATTN_ERROR_PARAMETER, {"alibi[2]", "nan"}, false},
    {"slope -inf", slope_infinite, ATTN_ERROR_PARAMETER, {"alibi[3]", "-inf"}, false},
    {"scores f16", scores_type, ATTN_ERROR_TYPE, {"scores.type", "1"}, false},
    {"scores at 3", scores_stage, ATTN_ERROR_PARAMETER, {"scores_at", "3"}, false},
    {"scores at -1", scores_stage_negative, ATTN_ERROR_PARAMETER, {"scores_at", "-1"}, false},
    {"scores overlap", scores_overlap, ATTN_ERROR_STRIDE, {"scores.stride", "5", "7"}, false},
    {"weights overlap", weights_overlap, ATTN_ERROR_STRIDE, {"weights.stride", "-5", "7"}, false},
    {"scores far", scores_far, ATTN_ERROR_OVERFLOW, {"scores ", "2305843009213693952"}, false},
    {"cu_q from 1", cu_q_from_1, ATTN_ERROR_CU_Q, {"cu_q[0]", "1"}, false},
    {"cu_q < 0", cu_q_negative, ATTN_ERROR_CU_Q, {"cu_q[1]", "-1"}, false},
    {"cu_q falls", cu_q_falls, ATTN_ERROR_CU_Q, {"cu_q[1]", "4"}, false},
    {"cu_q short", cu_q_short, ATTN_ERROR_CU_Q, {"cu_q[2]", "2", "3"}, false},
    {"cu_q long", cu_q_long, ATTN_ERROR_CU_Q, {"cu_q[2]", "9223372036854775807"}, false},
    {"past_cap < 0", past_cap_negative, ATTN_ERROR_SIZE, {"past_cap", "-1"}, false},
    {"past_cap huge", past_cap_huge, ATTN_ERROR_OVERFLOW, {"past_cap"}, false},
    {"past_k null", past_k_null, ATTN_ERROR_NULL, {"past_k.data"}, true},
    {"past_v null", past_v_null, ATTN_ERROR_NULL, {"past_v.data"}, true},
    {"past_k bf16", past_k_type, ATTN_ERROR_TYPE, {"past_k", "2"}, false},
    {"past_v i8", past_v_type, ATTN_ERROR_TYPE, {"past_v", "3"}, false},
    {"past_v of no type", past_v_unknown, ATTN_ERROR_TYPE, {"past_v.type", "9"}, false},
    {"k f16, past_k f32", k_type_not_of_past, ATTN_ERROR_TYPE, {"past_k", "1"}, false},
    {"past_k far", past_k_far, ATTN_ERROR_OVERFLOW, {"past_k ", "2305843009213693952"}, false},
    {"past_v far", past_v_far, ATTN_ERROR_OVERFLOW, {"past_v ", "-2305843009213693952"}, false},
    {"past_len < 0", past_len_negative, ATTN_ERROR_PAST_LEN, {"past_len[1]", "-1"}, false},
    {"past_len > cap", past_len_beyond, ATTN_ERROR_PAST_LEN, {"past_len[0]", "3", "2"}, false},
    {"kv_len > pieces", kv_len_beyond_pieces, ATTN_ERROR_KV_LEN, {"kv_len[1]", "7", "6"}, false},
    {"window unaligned", window_unaligned, ATTN_ERROR_ALIGNMENT, {"window", "5 keys"}, false},
    {"alibi unaligned", alibi_unaligned, ATTN_ERROR_ALIGNMENT, {"alibi", "1 query"}, false},
};

static const struct misuse misuses_of_i8[] = {
    {"F10: k_scales null", k_scales_null, ATTN_ERROR_NULL, {"k_scales.data"}, true},
    {"F10: v_scales null", v_scales_null, ATTN_ERROR_NULL, {"v_scales.data"}, true},
    {"k group < 0", k_group_negative, ATTN_ERROR_SIZE, {"k_scales.group", "-1"}, false},
    {"v group < 0", v_group_negative, ATTN_ERROR_SIZE, {"v_scales.group", "-92"}, false},
    {"k_scales far",
     k_scales_far,
     ATTN_ERROR_OVERFLOW,
     {"k_scales ", "2305843009213693952"},
     false},
    {"v_scales far", v_scales_far, ATTN_ERROR_OVERFLOW, {"v_scales ", "-92"}, false},
    {"k null", k8_null, ATTN_ERROR_NULL, {"k.data"}, true},
    {"past_k_scales null", past_scales_null, ATTN_ERROR_NULL, {"past_k_scales.data"}, true},
    {"past_v_scales null", past_v_scales_null, ATTN_ERROR_NULL, {"past_v_scales.data"}, true},
    {"past_k group", past_group, ATTN_ERROR_TYPE, {"past_k", "group"}, false},
    {"past_v group", past_v_group, ATTN_ERROR_TYPE, {"past_v", "group"}, false},
    {"past_v group < 0",
     past_group_negative,
     ATTN_ERROR_SIZE,
     {"past_v_scales.group", "-4"},
     false},
    {"past_k f32", past_not_i8, ATTN_ERROR_TYPE, {"past_k", "3"}, false},
};

static const struct misuse misuses_of_pages[] = {
    {"page_len 0", page_len_0, ATTN_ERROR_PAGE, {"pages.page_len", "0"}, false},
    {"page_len < 0", page_len_negative, ATTN_ERROR_PAGE, {"pages.page_len", "-3"}, false},
    {"n_pages < 0", n_pages_negative, ATTN_ERROR_PAGE, {"n_pages", "-1"}, false},
    {"n_pages 2^31", n_pages_beyond, ATTN_ERROR_PAGE, {"n_pages", "2147483648"}, false},
    {"L5: page -2", page_of_minus_2, ATTN_ERROR_PAGE, {"pages.table[1][0]", "-2", "7"}, false},
    {"L5: page 7 of 7", page_of_n_pages, ATTN_ERROR_PAGE, {"pages.table[0][1]", "7"}, false},
    {"L5: page 2^31 - 1",
     page_of_int32_max,
     ATTN_ERROR_PAGE,
     {"pages.table[0][2]", "2147483647"},
     false},
    {"L5: page -2^31",
     page_of_int32_min,
     ATTN_ERROR_PAGE,
     {"pages.table[0][0]", "-2147483648"},
     false},
    {"page of scores", page_for_scores, ATTN_ERROR_PAGE, {"pages.table[0][2]", "-1"}, false},
    {"no pages", no_pages, ATTN_ERROR_PAGE, {"pages.table[0][0]", "0"}, false},
    {"pages and past", pages_and_past, ATTN_ERROR_PAGE, {"pages", "past_cap 2"}, false},
    {"table far", table_far, ATTN_ERROR_OVERFLOW, {"pages.table"}, false},
    {"pages far", pages_far, ATTN_ERROR_OVERFLOW, {"k ", "2305843009213693952"}, false},
    {"k null", pool_k_null, ATTN_ERROR_NULL, {"k.data"}, true},
    {"v null", pool_v_null, ATTN_ERROR_NULL, {"v.data"}, true},
};

static void check_sentence(const struct misuse *m, const struct sample *s) {
    char sentence[512];
    const attn_status checked = attn_check(&s->p, sentence, sizeof sentence);
    CHECK(checked == m->status, "attn_check: %s, want %s", attn_status_string(checked),
          attn_status_string(m->status));
    for (int w = 0; w < 3 && m->words[w]; w++)
        CHECK(strstr(sentence, m->words[w]), "\"%s\" does not say \"%s\"", sentence, m->words[w]);
    CHECK(!strchr(sentence, '\n'), "more than a line: \"%s\"", sentence);
    /* Cut to size, always terminated, nothing beyond. */
    for (size_t size = 0; size <= strlen(sentence) + 1; size += 1 + size / 3) {
        char cut[512];
        memset(cut, 0x55, sizeof cut);
        CHECK(attn_check(&s->p, cut, size) == m->status, "buffer of %zu", size);
        CHECK(size == 0 || strncmp(cut, sentence, size - 1) == 0, "cut to %zu: \"%s\"", size, cut);
        CHECK(size == 0 || cut[strnlen(cut, size)] == '\0', "not terminated within %zu", size);
        CHECK(cut[size] == 0x55, "written beyond %zu", size);
    }
    CHECK(attn_check(&s->p, NULL, 0) == m->status, "no buffer");
}

static void try_misuses(void (*make)(struct sample *), const struct misuse *all, size_t n) {
    static struct sample s;
    static char workspace[1 << 20];
    make(&s);
    char sentence[256] = "x";
    check_context("valid sample");
    CHECK(attn_check(&s.p, sentence, sizeof sentence) == ATTN_OK && !*sentence, "\"%s\"", sentence);
    CHECK(attn_forward(&s.p, workspace, sizeof workspace, NULL) == ATTN_OK, "fails");

    for (size_t i = 0; i < n; i++) {
        const struct misuse *m = &all[i];
        check_context("%s", m->what);
        make(&s);
        m->apply(&s);
        memset(workspace, 0xab, sizeof workspace);
        const attn_status status = attn_forward(&s.p, workspace, sizeof workspace, NULL);
        CHECK(status == m->status, "attn_forward: %s, want %s", attn_status_string(status),
              attn_status_string(m->status));
        struct reverse_executor e = reverse_executor(2);
        CHECK(attn_forward(&s.p, workspace, sizeof workspace, &e.base) == m->status && !e.tasks,
              "with an executor");
        CHECK(attn_forward_alloc(&s.p, NULL) == m->status, "attn_forward_alloc");
        size_t size = 99;
        const attn_status sized = attn_workspace_size(&s.p, 1, &size);
        CHECK(sized == (m->needs_data ? ATTN_OK : m->status), "attn_workspace_size: %s",
              attn_status_string(sized));
        CHECK(m->needs_data || size == 0, "attn_workspace_size gives %zu", size);
        CHECK(is_untouched(s.out, sizeof s.out) && is_untouched(s.lse, sizeof s.lse) &&
                  is_untouched(s.weights, sizeof s.weights) &&
                  is_untouched(workspace, sizeof workspace),
              "something was written");
        if (make == sample_make_full)
            CHECK(is_untouched(s.scores, sizeof s.scores) &&
                      is_untouched(s.all_weights, sizeof s.all_weights),
                  "scores or weights were written");
        check_sentence(m, &s);
    }
}

Test(errors, each_misuse) { try_misuses(sample_make, misuses, sizeof misuses / sizeof *misuses); }

Test(errors, each_misuse_of_options) {
    try_misuses(sample_make_full, misuses_of_options,
                sizeof misuses_of_options / sizeof *misuses_of_options);
}

Test(errors, each_misuse_of_i8) {
    try_misuses(sample_make_i8, misuses_of_i8, sizeof misuses_of_i8 / sizeof *misuses_of_i8);
}

Test(errors, each_misuse_of_pages) {
    try_misuses(sample_make_paged, misuses_of_pages,
                sizeof misuses_of_pages / sizeof *misuses_of_pages);
}

/* Of several misuses the first in the order of the checks is reported: each of these hides all that
 * come after it. */
Test(errors, the_first_misuse_is_reported) {
    static const struct misuse in_order[] = {
        {"struct_size", size_zero, ATTN_ERROR_STRUCT_SIZE, {"struct_size"}, false},
        {"size", v_dim_negative, ATTN_ERROR_SIZE, {"v_dim is -7"}, false},
        {"heads", heads_33_on_2, ATTN_ERROR_HEADS, {"q_heads 33"}, false},
        {"type of q", type_unknown, ATTN_ERROR_TYPE, {"q.type is 77"}, false},
        {"q null", q_null, ATTN_ERROR_NULL, {"q.data"}, true},
        {"q far", q_stride_huge, ATTN_ERROR_OVERFLOW, {"q reaches"}, false},
        {"k far", k_stride_huge, ATTN_ERROR_OVERFLOW, {"k reaches"}, false},
        {"type of v", v_type, ATTN_ERROR_TYPE, {"v.type is -1"}, false},
        {"past_v null", past_v_null, ATTN_ERROR_NULL, {"past_v.data"}, true},
        {"past_k of another type", past_k_type, ATTN_ERROR_TYPE, {"past_k and past_v"}, false},
        {"out null", out_null, ATTN_ERROR_NULL, {"out.data"}, true},
        {"out far", out_stride_huge, ATTN_ERROR_OVERFLOW, {"out reaches"}, false},
        {"type of lse", lse_type, ATTN_ERROR_TYPE, {"lse.type"}, false},
        {"lse shared", lse_strides_zero, ATTN_ERROR_STRIDE, {"lse.stride of heads"}, false},
        {"weights shared", weights_overlap, ATTN_ERROR_STRIDE, {"weights.stride of tokens"}, false},
        {"type of scores", scores_type, ATTN_ERROR_TYPE, {"scores.type"}, false},
        {"mask", mask_of_no_key, ATTN_ERROR_MASK, {"mask.n_keys"}, false},
        {"scale", scale_nan, ATTN_ERROR_PARAMETER, {"scale is"}, false},
        {"softcap", softcap_nan, ATTN_ERROR_PARAMETER, {"softcap"}, false},
        {"slope", slope_nan, ATTN_ERROR_PARAMETER, {"alibi[2]"}, false},
        {"cu_q", cu_q_falls, ATTN_ERROR_CU_Q, {"cu_q[1]"}, false},
        {"offset of batch 0", offset_far_negative, ATTN_ERROR_OVERFLOW, {"offset[0]"}, false},
        {"past_len of batch 1", past_len_negative, ATTN_ERROR_PAST_LEN, {"past_len[1]"}, false},
        {"kv_len of batch 1", kv_len_negative, ATTN_ERROR_KV_LEN, {"kv_len[1]"}, false},
        {"offset of batch 1", offset_far, ATTN_ERROR_OVERFLOW, {"offset[1]"}, false},
    };
    const size_t n = sizeof in_order / sizeof *in_order;
    for (size_t first = 0; first < n; first++) {
        static struct sample s;
        sample_make_full(&s);
        for (size_t i = n; i-- > first;) /* so that the first has the last word on a field */
            in_order[i].apply(&s);
        check_context("%s", in_order[first].what);
        check_sentence(&in_order[first], &s);
    }
}

/* Every mix of types that the header allows, and table entries of pages that no row sees. */
Test(errors, valid_types_and_pages) {
    static struct sample s;
    static char workspace[1 << 20];
    for (int n = 0; n < 3 * 4 * 4 * 3 + 6; n++) {
        sample_make(&s);
        attn_problem *p = &s.p;
        switch (n - 3 * 4 * 4 * 3) {
        case 0:
            sample_make_paged(&s);
            break;
        case 1: /* batch 1 has no key in use */
            sample_make_paged(&s);
            s.kv_len[1] = 0, s.table[1][0] = -2;
            break;
        case 2: /* causal: the rows see 3 keys */
            sample_make_paged(&s);
            s.offset[0] = 0, s.table[0][2] = PAGES;
            break;
        case 3: /* a window: they see keys 4 and 5 to 6, of which there are none */
            sample_make_paged(&s);
            s.offset[0] = 4, s.window[0] = 0, s.window[1] = -1, p->window = s.window;
            s.table[0][0] = INT32_MAX, s.table[0][1] = INT32_MIN;
            s.table[1][0] = -1; /* row 0 sees key 0, */
            s.offset[1] = 9;    /* if it does not stand behind all of them */
            break;
        case 4: /* nothing to do: the table is not looked at */
            sample_make_paged(&s);
            p->q_len = 0, s.table[0][0] = -9;
            break;
        case 5: /* no page, but no key either */
            sample_make_paged(&s);
            p->pages.n_pages = 0, p->k.data = p->v.data = NULL;
            s.kv_len[0] = s.kv_len[1] = 0;
            break;
        default:
            p->q.type = (attn_type)(n % 3), p->out.type = (attn_type)(n / 3 % 3);
            p->k.type = (attn_type)(n / 9 % 4), p->v.type = (attn_type)(n / 36);
            p->k_scales = (attn_scales){p->k.type == ATTN_I8 ? s.scales : NULL, 0, LK, 0, 1};
            p->v_scales = (attn_scales){p->v.type == ATTN_I8 ? s.scales : NULL, 3, 0, LK * 3, 3};
        }
        char sentence[256];
        check_context("case %d", n);
        const attn_status status = attn_check(p, sentence, sizeof sentence);
        CHECK(status == ATTN_OK, "attn_check: %s: %s", attn_status_string(status), sentence);
        CHECK(attn_forward(p, workspace, sizeof workspace, NULL) == ATTN_OK, "attn_forward");
    }
}

/* ---- attn_append ----------------------------------------------------------------------------- */

enum { TOKENS = 4, PAGE_LEN = 3, CACHE = PAGES * HKV * PAGE_LEN };

struct append_sample {
    float tokens[TOKENS * HKV * D], data[CACHE * D], scales[CACHE * 2];
    attn_input input;
    int64_t n, heads, dim, slots[TOKENS];
    attn_cache cache;
    const attn_input *input_given;
    const int64_t *slots_given;
    const attn_cache *cache_given;
};

static void append_make(struct append_sample *a) {
    memset(a, 0, sizeof *a);
    memset(a->data, 0xab, sizeof a->data);
    memset(a->scales, 0xab, sizeof a->scales);
    a->input = (attn_input){a->tokens, ATTN_F32, 0, D, HKV * D};
    a->n = TOKENS, a->heads = HKV, a->dim = D;
    const int64_t slots[TOKENS] = {0, PAGES * PAGE_LEN - 1, -1, 4};
    memcpy(a->slots, slots, sizeof slots);
    a->cache = (attn_cache){.data = a->data,
                            .type = ATTN_I8,
                            .stride_page = HKV * PAGE_LEN * D,
                            .stride_head = PAGE_LEN * D,
                            .stride_token = D,
                            .n_pages = PAGES,
                            .page_len = PAGE_LEN,
                            .scales = a->scales,
                            .scale_group = 4,
                            .scale_stride_page = HKV * PAGE_LEN * 2,
                            .scale_stride_head = PAGE_LEN * 2,
                            .scale_stride_token = 2};
    a->input_given = &a->input, a->slots_given = a->slots, a->cache_given = &a->cache;
}

static attn_status append(const struct append_sample *a) {
    return attn_append(a->input_given, a->n, a->heads, a->dim, a->slots_given, a->cache_given);
}

#define BREAK(name, statement)                                                                     \
    static void name(struct append_sample *a) { statement; }
BREAK(tokens_null, a->input_given = NULL)
BREAK(slots_null, a->slots_given = NULL)
BREAK(cache_null, a->cache_given = NULL)
BREAK(token_data_null, a->input.data = NULL)
BREAK(cache_data_null, a->cache.data = NULL)
BREAK(cache_scales_null, a->cache.scales = NULL)
BREAK(n_negative, a->n = -1)
BREAK(append_heads_negative, a->heads = -2)
BREAK(dim_negative, a->dim = INT64_MIN)
BREAK(cache_pages_negative, a->cache.n_pages = -7)
BREAK(cache_page_len_0, a->cache.page_len = 0)
BREAK(cache_group_negative, a->cache.scale_group = -4)
BREAK(slot_beyond, a->slots[3] = PAGES * PAGE_LEN)
BREAK(slot_far_beyond, a->slots[0] = INT64_MAX)
BREAK(no_cache_pages, a->cache.n_pages = 0; a->cache.data = NULL; a->cache.scales = NULL)
BREAK(tokens_i8, a->input.type = ATTN_I8)
BREAK(tokens_unknown, a->input.type = (attn_type)11)
BREAK(cache_unknown, a->cache.type = (attn_type)4)
BREAK(cache_unknown_below, a->cache.type = (attn_type)-1)
BREAK(tokens_far, a->input.stride_token = INT64_C(1) << 61)
BREAK(cache_far, a->cache.stride_page = INT64_MIN)
BREAK(cache_scales_far, a->cache.scale_stride_page = INT64_C(1) << 61)
BREAK(cache_overlaps, a->cache.stride_token = D - 1)
BREAK(scales_overlap, a->cache.scale_stride_token = 1)
BREAK(cache_stride_0, a->cache.stride_page = 0)
#undef BREAK

static const struct {
    const char *what;
    void (*apply)(struct append_sample *a);
    attn_status status;
} misuses_of_append[] = {
    {"tokens null", tokens_null, ATTN_ERROR_NULL},
    {"slots null", slots_null, ATTN_ERROR_NULL},
    {"cache null", cache_null, ATTN_ERROR_NULL},
    {"tokens.data null", token_data_null, ATTN_ERROR_NULL},
    {"cache.data null", cache_data_null, ATTN_ERROR_NULL},
    {"F10: scales null", cache_scales_null, ATTN_ERROR_NULL},
    {"n < 0", n_negative, ATTN_ERROR_SIZE},
    {"heads < 0", append_heads_negative, ATTN_ERROR_SIZE},
    {"dim < 0", dim_negative, ATTN_ERROR_SIZE},
    {"n_pages < 0", cache_pages_negative, ATTN_ERROR_SIZE},
    {"page_len 0", cache_page_len_0, ATTN_ERROR_SIZE},
    {"group < 0", cache_group_negative, ATTN_ERROR_SIZE},
    {"a slot beyond", slot_beyond, ATTN_ERROR_PAGE},
    {"a slot far beyond", slot_far_beyond, ATTN_ERROR_PAGE},
    {"no pages", no_cache_pages, ATTN_ERROR_PAGE},
    {"tokens i8", tokens_i8, ATTN_ERROR_TYPE},
    {"tokens of no type", tokens_unknown, ATTN_ERROR_TYPE},
    {"cache of no type", cache_unknown, ATTN_ERROR_TYPE},
    {"cache of type -1", cache_unknown_below, ATTN_ERROR_TYPE},
    {"tokens far", tokens_far, ATTN_ERROR_OVERFLOW},
    {"cache far", cache_far, ATTN_ERROR_OVERFLOW},
    {"scales far", cache_scales_far, ATTN_ERROR_OVERFLOW},
    {"cache overlaps", cache_overlaps, ATTN_ERROR_STRIDE},
    {"scales overlap", scales_overlap, ATTN_ERROR_STRIDE},
    {"page stride 0", cache_stride_0, ATTN_ERROR_STRIDE},
};

Test(errors, each_misuse_of_append) {
    static struct append_sample a;
    append_make(&a);
    check_context("valid sample");
    CHECK(append(&a) == ATTN_OK, "fails");
    CHECK(!is_untouched(a.data, sizeof a.data) && !is_untouched(a.scales, sizeof a.scales),
          "nothing was written");
    for (size_t i = 0; i < sizeof misuses_of_append / sizeof *misuses_of_append; i++) {
        append_make(&a);
        check_context("%s", misuses_of_append[i].what);
        misuses_of_append[i].apply(&a);
        const attn_status status = append(&a);
        CHECK(status == misuses_of_append[i].status, "%s, want %s", attn_status_string(status),
              attn_status_string(misuses_of_append[i].status));
        CHECK(is_untouched(a.data, sizeof a.data) && is_untouched(a.scales, sizeof a.scales),
              "something was written");
    }
    /* No misuse: nothing to append, no scales for another type, a cache of no pages skipped. */
    const struct {
        int64_t n, heads, dim;
    } empty[] = {{0, HKV, D}, {TOKENS, 0, D}, {TOKENS, HKV, 0}};
    for (int n = 0; n < 3; n++) {
        append_make(&a);
        check_context("n %d heads %d dim %d", (int)empty[n].n, (int)empty[n].heads,
                      (int)empty[n].dim);
        a.n = empty[n].n, a.heads = empty[n].heads, a.dim = empty[n].dim;
        CHECK(append(&a) == ATTN_OK, "fails");
        CHECK(is_untouched(a.data, sizeof a.data) && is_untouched(a.scales, sizeof a.scales),
              "something was written");
    }
    append_make(&a);
    check_context("f16 without scales");
    a.cache.type = ATTN_F16, a.cache.scales = NULL;
    CHECK(append(&a) == ATTN_OK, "fails");
    append_make(&a);
    check_context("all skipped");
    a.cache.n_pages = 0, a.cache.data = NULL, a.cache.scales = NULL;
    for (int i = 0; i < TOKENS; i++)
        a.slots[i] = -1 - i;
    CHECK(append(&a) == ATTN_OK, "fails");
}

/* What is no misuse: numbers that the contract gives a meaning, and what is not looked at. */
Test(errors, unusual_but_valid) {
    static struct sample s;
    static char workspace[1 << 20];
    for (int n = 0; n < 12; n++) {
        sample_make_full(&s);
        attn_problem *p = &s.p;
        switch (n) {
        case 0: /* sinks may be anything */
            s.sinks[0] = NAN, s.sinks[1] = INFINITY, s.sinks[2] = -INFINITY;
            break;
        case 1:
            s.window[0] = s.window[1] = INT64_MAX;
            break;
        case 2: /* covers more than there are */
            p->mask.n_keys = INT64_MAX;
            break;
        case 3: /* bits use no stride along the keys */
            p->mask.type = ATTN_MASK_BITS, p->mask.stride_key = 0, p->mask.stride_query = 1;
            break;
        case 4: /* all rows in one sequence */
            s.cu_q[1] = 0;
            break;
        case 5: /* the batch strides of a ragged batch */
            p->q.stride_batch = p->out.stride_batch = p->lse.stride_batch = INT64_MIN;
            p->weights.stride_batch = p->scores.stride_batch = 0;
            break;
        case 6: /* not looked at without a past */
            p->past_cap = 0, p->past_len = NULL;
            p->past_k.data = p->past_v.data = NULL, p->past_k.stride_token = INT64_MIN;
            s.kv_len[0] = 5, s.kv_len[1] = 0;
            break;
        case 7: /* no new keys */
            p->kv_cap = 0, p->k.data = p->v.data = NULL;
            s.kv_len[0] = 2, s.kv_len[1] = 1;
            break;
        case 8: /* no positions needed: no alignment */
            p->causal = 0, p->window = NULL, p->alibi = NULL;
            p->align = ATTN_ALIGN_UNSET, p->offset = NULL;
            break;
        case 9: /* an empty sequence needs no alignment */
            s.cu_q[1] = 0, s.kv_len[1] = 3, p->align = ATTN_ALIGN_UNSET, p->offset = NULL;
            break;
        case 10: /* no key has room, so the mask may cover none */
            p->kv_cap = p->past_cap = 0, p->past_len = NULL, p->mask.n_keys = 0;
            s.kv_len[0] = s.kv_len[1] = 0;
            break;
        default: /* the stage of scores that nobody asked for */
            p->scores.data = NULL, p->scores.stride_token = 0;
            p->scores_at = ATTN_SCORES_BIASED;
        }
        char sentence[256];
        check_context("case %d", n);
        const attn_status status = attn_check(p, sentence, sizeof sentence);
        CHECK(status == ATTN_OK, "attn_check: %s: %s", attn_status_string(status), sentence);
        CHECK(attn_forward(p, workspace, sizeof workspace, NULL) == ATTN_OK, "attn_forward");
    }
}

static void run_nothing(attn_executor *self, size_t n_tasks, attn_task task, void *arg) {
    (void)self, (void)n_tasks, (void)task, (void)arg;
    cr_assert(false, "the executor ran");
}

/* What is wrong beside the problem itself: workspace, executor, null arguments. */
Test(errors, other_arguments) {
    struct sample s;
    sample_make(&s);
    size_t size = 0;
    cr_assert(attn_workspace_size(&s.p, 1, &size) == ATTN_OK && size > 0);
    char *workspace = guarded(SLOT_WORKSPACE, size, AT_END);
    const size_t executor_size = sizeof(attn_executor);
    const struct {
        const char *what;
        size_t size;
        attn_executor executor;
        attn_status status;
    } cases[] = {
        {"one byte less", size - 1, {0, 0, NULL}, ATTN_ERROR_WORKSPACE},
        {"size 0", 0, {0, 0, NULL}, ATTN_ERROR_WORKSPACE},
        {"2 workers in the space of 1",
         size,
         {executor_size, 2, run_nothing},
         ATTN_ERROR_WORKSPACE},
        {"no run function", size, {executor_size, 1, NULL}, ATTN_ERROR_EXECUTOR},
        {"no workers", size, {executor_size, 0, run_nothing}, ATTN_ERROR_EXECUTOR},
        {"struct_size of executor 0", size, {0, 1, run_nothing}, ATTN_ERROR_EXECUTOR},
        {"struct_size of executor 8", size, {8, 1, run_nothing}, ATTN_ERROR_EXECUTOR},
        {"SIZE_MAX workers", size, {executor_size, SIZE_MAX, run_nothing}, ATTN_ERROR_OVERFLOW},
        {"2^62 workers", size, {executor_size, (size_t)1 << 62, run_nothing}, ATTN_ERROR_OVERFLOW},
        {"2^31 - 1 workers", size, {executor_size, INT32_MAX, run_nothing}, ATTN_ERROR_WORKSPACE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check_context("%s", cases[i].what);
        attn_executor e = cases[i].executor;
        const bool has_executor = e.struct_size || e.n_workers || e.run;
        const attn_status status =
            attn_forward(&s.p, workspace, cases[i].size, has_executor ? &e : NULL);
        CHECK(status == cases[i].status, "%s, want %s", attn_status_string(status),
              attn_status_string(cases[i].status));
        CHECK(is_untouched(s.out, sizeof s.out), "something was written");
    }
    check_context("null arguments");
    CHECK(attn_forward(&s.p, NULL, size, NULL) == ATTN_ERROR_NULL, "workspace");
    CHECK(attn_forward(NULL, workspace, size, NULL) == ATTN_ERROR_NULL, "problem");
    CHECK(attn_forward_alloc(NULL, NULL) == ATTN_ERROR_NULL, "problem of _alloc");
    CHECK(attn_workspace_size(NULL, 1, &size) == ATTN_ERROR_NULL, "problem of _size");
    CHECK(attn_workspace_size(&s.p, 1, NULL) == ATTN_ERROR_NULL, "size");
    CHECK(attn_workspace_size(&s.p, 0, &size) == ATTN_ERROR_EXECUTOR, "0 workers");
    CHECK(attn_workspace_size(&s.p, SIZE_MAX, &size) == ATTN_ERROR_OVERFLOW && size == 0,
          "SIZE_MAX workers: %zu", size);
    char sentence[64] = "";
    CHECK(attn_check(NULL, sentence, sizeof sentence) == ATTN_ERROR_NULL &&
              strstr(sentence, "problem"),
          "\"%s\"", sentence);
    CHECK(is_untouched(s.out, sizeof s.out), "something was written");

    /* I7: a workspace that does not fit is no small workspace. */
    attn_problem p = attn_problem_bhld(1, 1, 1, 1, INT64_C(1) << 40, INT32_MAX, INT32_MAX, NULL,
                                       NULL, NULL, NULL);
    check_context("I7");
    const attn_status status = attn_workspace_size(&p, INT32_MAX, &size);
    CHECK(status == ATTN_ERROR_OVERFLOW && size == 0, "%s, %zu bytes", attn_status_string(status),
          size);

    /* Only MEMORY is left: an allocation that cannot be had. Under a sanitizer it would abort. */
#if !defined(__SANITIZE_ADDRESS__)
    float x[4] = {0};
    attn_problem big = attn_problem_bhld(1, 1, 1, 1, 1, 1, 1, x, x, x, x + 1);
    attn_executor many = {sizeof many, INT32_MAX, run_nothing};
    CHECK(attn_workspace_size(&big, INT32_MAX, &size) == ATTN_OK, "sizes");
    if (size > (size_t)1 << 41) {
        check_context("%zu bytes of workspace", size);
        const attn_status memory = attn_forward_alloc(&big, &many);
        CHECK(memory == ATTN_ERROR_MEMORY, "%s", attn_status_string(memory));
    }
#endif
}

/* struct_size: a newer header's larger struct is welcome while what is new in it is 0. */
Test(errors, struct_of_another_version) {
    struct sample s;
    static char workspace[1 << 20];
    sample_make(&s);
    struct {
        attn_problem p;
        unsigned char tail[40];
    } newer;
    memset(&newer, 0, sizeof newer);
    newer.p = s.p;
    newer.p.struct_size = sizeof newer;
    check_context("a larger struct");
    CHECK(attn_forward(&newer.p, workspace, sizeof workspace, NULL) == ATTN_OK, "zero tail");
    for (size_t i = 0; i < sizeof newer.tail; i++) {
        sample_make(&s);
        newer.tail[i] = 1;
        CHECK(attn_forward(&newer.p, workspace, sizeof workspace, NULL) == ATTN_ERROR_STRUCT_SIZE,
              "byte %zu of the tail", i);
        CHECK(is_untouched(s.out, sizeof s.out), "something was written");
        newer.tail[i] = 0;
    }
    for (int status = 0; status <= ATTN_ERROR_MASK; status++)
        for (int other = 0; other < status; other++)
            CHECK(strcmp(attn_status_string((attn_status)status),
                         attn_status_string((attn_status)other)) != 0,
                  "%d and %d have one name", status, other);
    CHECK(attn_status_string((attn_status)-1) && *attn_status_string((attn_status)1000), "unknown");
}

/* ATTN_ISA names what cannot be had: an error from each call, in a process of its own because it is
 * read once. */
static int child_with_isa(const char *isa) {
    setenv("ATTN_ISA", isa, 1);
    struct sample s;
    static char workspace[1 << 20];
    sample_make(&s);
    char sentence[256] = "";
    size_t size = 0;
    if (attn_forward(&s.p, workspace, sizeof workspace, NULL) != ATTN_ERROR_ISA)
        return 1;
    if (!is_untouched(s.out, sizeof s.out))
        return 2;
    if (attn_isa() != NULL)
        return 3;
    if (attn_check(&s.p, sentence, sizeof sentence) != ATTN_ERROR_ISA || !*sentence)
        return 4;
    if (attn_workspace_size(&s.p, 1, &size) != ATTN_OK)
        return 5;
    if (attn_set_isa("scalar") != ATTN_OK || !attn_isa() || strcmp(attn_isa(), "scalar") != 0)
        return 6;
    if (attn_forward(&s.p, workspace, sizeof workspace, NULL) != ATTN_OK)
        return 7;
    return 0;
}

Test(errors, isa_that_cannot_be_had) {
    const char *names[] = {"bogus", "AVX2", "scalar ", "avx2,scalar"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const pid_t child = fork();
        cr_assert(child >= 0);
        if (child == 0)
            _exit(child_with_isa(names[i]));
        int status = 0;
        waitpid(child, &status, 0);
        cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "ATTN_ISA=%s: step %d", names[i],
                  WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    }
}
