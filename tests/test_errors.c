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
enum { PAST = 2, KEYS = PAST + LK };

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
BREAK(q_type, s->p.q.type = ATTN_F16)
BREAK(k_type, s->p.k.type = ATTN_BF16)
BREAK(v_type, s->p.v.type = ATTN_I8)
BREAK(out_type, s->p.out.type = ATTN_F16)
BREAK(lse_type, s->p.lse.type = ATTN_F16)
BREAK(weights_type, s->p.weights.type = ATTN_BF16)
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
BREAK(past_v_type, s->p.past_v.type = ATTN_I8)
BREAK(past_k_far, s->p.past_k.stride_token = INT64_C(1) << 61)
BREAK(past_v_far, s->p.past_v.stride_batch = -(INT64_C(1) << 61))
BREAK(past_len_negative, s->past_len[1] = -1)
BREAK(past_len_beyond, s->past_len[0] = 3)
BREAK(kv_len_beyond_pieces, s->kv_len[1] = 7) /* the room is 7, but only 6 keys are there */
BREAK(window_unaligned, s->p.causal = 0; s->p.alibi = NULL; s->p.align = ATTN_ALIGN_UNSET;
      s->p.offset = NULL)
BREAK(alibi_unaligned, s->p.causal = 0; s->p.window = NULL; s->p.align = ATTN_ALIGN_UNSET;
      s->p.offset = NULL)
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
    {"q f16", q_type, ATTN_ERROR_TYPE, {"q.type", "1"}, false},
    {"k bf16", k_type, ATTN_ERROR_TYPE, {"k.type", "2"}, false},
    {"v i8", v_type, ATTN_ERROR_TYPE, {"v.type", "3"}, false},
    {"out f16", out_type, ATTN_ERROR_TYPE, {"out.type", "1"}, false},
    {"lse f16", lse_type, ATTN_ERROR_TYPE, {"lse.type", "1"}, false},
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
    {"past_k bf16", past_k_type, ATTN_ERROR_TYPE, {"past_k.type", "2"}, false},
    {"past_v i8", past_v_type, ATTN_ERROR_TYPE, {"past_v.type", "3"}, false},
    {"past_k far", past_k_far, ATTN_ERROR_OVERFLOW, {"past_k ", "2305843009213693952"}, false},
    {"past_v far", past_v_far, ATTN_ERROR_OVERFLOW, {"past_v ", "-2305843009213693952"}, false},
    {"past_len < 0", past_len_negative, ATTN_ERROR_PAST_LEN, {"past_len[1]", "-1"}, false},
    {"past_len > cap", past_len_beyond, ATTN_ERROR_PAST_LEN, {"past_len[0]", "3", "2"}, false},
    {"kv_len > pieces", kv_len_beyond_pieces, ATTN_ERROR_KV_LEN, {"kv_len[1]", "7", "6"}, false},
    {"window unaligned", window_unaligned, ATTN_ERROR_ALIGNMENT, {"window", "5 keys"}, false},
    {"alibi unaligned", alibi_unaligned, ATTN_ERROR_ALIGNMENT, {"alibi", "1 query"}, false},
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
