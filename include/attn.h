/* libattn: scaled dot-product attention on CPUs, from plain pointers.
 *
 *     out = softmax(Q K^T * scale) V          (Vaswani et al., "Attention Is All You Need", 2017)
 *
 * Every function here is thread-safe. None allocates, prints, aborts or starts a thread, except
 * attn_forward_alloc() and attn_backward_alloc(), which allocate. This header compiles as C99, C11
 * and C++.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_H
#define ATTN_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define ATTN_VERSION_MAJOR 0
#define ATTN_VERSION_MINOR 1
#define ATTN_VERSION_PATCH 0

#if defined(__GNUC__)
#define ATTN_API __attribute__((visibility("default")))
#else
#define ATTN_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* What a call answers. Everything but ATTN_OK was found before the first write. */
typedef enum attn_status {
    ATTN_OK = 0,
    ATTN_ERROR_NULL = 1,        /* a required pointer is null */
    ATTN_ERROR_STRUCT_SIZE = 2, /* struct_size is not that of any version this library knows */
    ATTN_ERROR_SIZE = 3,        /* a size is negative, or zero where it may not be */
    ATTN_ERROR_OVERFLOW = 4,    /* an extent or the workspace does not fit in the address space */
    ATTN_ERROR_HEADS = 5,       /* q_heads is not a multiple of kv_heads */
    ATTN_ERROR_KV_LEN = 6,      /* a kv_len is negative or beyond kv_cap */
    ATTN_ERROR_TYPE = 7,        /* an element type, or a mix of types, that is not supported */
    ATTN_ERROR_PARAMETER = 8,   /* scale, softcap or a slope not finite, softcap below 0, causal not
                                   0 or 1, a window below -1, or an enum's value unknown */
    ATTN_ERROR_ALIGNMENT = 9,   /* causal, a window or ALiBi needs an alignment that was not picked,
                                   or offset is given without ATTN_ALIGN_EXPLICIT */
    ATTN_ERROR_WORKSPACE = 10,  /* the workspace is smaller than attn_workspace_size() says */
    ATTN_ERROR_EXECUTOR = 11,   /* the executor has no run function, or fewer than 1 worker */
    ATTN_ERROR_ISA = 12,        /* the kernel set asked for is unknown or cannot run here */
    ATTN_ERROR_MEMORY = 13,     /* attn_forward_alloc() could not get its workspace */
    ATTN_ERROR_STRIDE = 14,     /* the strides of an output make its rows share memory */
    ATTN_ERROR_CU_Q = 15,       /* cu_q does not rise from 0 to q_len */
    ATTN_ERROR_PAST_LEN = 16,   /* a past_len is negative or beyond past_cap, or attn_backward() is
                                   asked for keys in two pieces */
    ATTN_ERROR_MASK = 17,       /* the mask covers no key, has data but no type, or
                                   packed bits with a key stride */
    ATTN_ERROR_PAGE = 18        /* a page number that is needed is not in the cache, or the pages
                                   contradict other arguments, or attn_backward() */
} attn_status;

/* Element type of a tensor. q and out are f32, f16 or bf16, k and v (each with its past) any of the
 * four, in any mix; lse, weights and scores are f32. Whatever is stored, scores, softmax and sums
 * are computed in f32 (but see attn_isa() for sets that multiply bf16 as it is), and out is rounded
 * to nearest, ties to even: NaN stays NaN, subnormals are kept, an f16 beyond 65504 becomes
 * infinity. */
typedef enum attn_type {
    ATTN_F32 = 0,
    ATTN_F16 = 1,  /* IEEE half precision */
    ATTN_BF16 = 2, /* the upper half of an f32 */
    ATTN_I8 = 3    /* times a scale: see attn_scales */
} attn_type;

/* The scales of an int8 tensor: element (b, h, t, c) stands for its int8 times the f32 at data +
 * b*stride_batch + h*stride_head + t*stride_token + c / group. With pages stride_batch is from page
 * to page and t the token within its page, as for the tensor itself. */
typedef struct attn_scales {
    const float *data;
    int64_t group; /* features that share a scale; 0: all of a token and head */
    int64_t stride_batch, stride_head, stride_token;
} attn_scales;

/* A paged cache: key j of batch b is token j % page_len of the page whose number is at table +
 * b*stride_batch + j / page_len. k and v (and their scales) are then [n_pages, kv_heads, page_len,
 * dim], with stride_batch from page to page; kv_cap is how many keys a sequence can have. Only
 * pages that some row sees, before a mask is looked at, must be there (all in use where scores are
 * asked for): other entries of the table may be anything. */
typedef struct attn_pages {
    const int32_t *table; /* null: not paged */
    int64_t stride_batch;
    int64_t page_len, n_pages;
} attn_pages;

/* Where query row 0 stands among the keys: causal, a window and ALiBi need it when the number of
 * query rows differs from the key count. The position of query row i is p(i) = offset + i. */
typedef enum attn_align {
    ATTN_ALIGN_UNSET = 0,        /* an error where it matters */
    ATTN_ALIGN_TOP_LEFT = 1,     /* offset 0: PyTorch's is_causal, ONNX without a cache */
    ATTN_ALIGN_BOTTOM_RIGHT = 2, /* offset key count - q_len: decoding with a cache. May be
                                    negative: the leading rows then see nothing */
    ATTN_ALIGN_EXPLICIT = 3      /* offset[b] from attn_problem.offset: chunked prefill */
} attn_align;

/* A tensor that is read. Element (b, h, t, c) is at data + b*stride_batch + h*stride_head +
 * t*stride_token + c, strides in elements: 0 and negative are allowed, the feature axis c is
 * contiguous, data needs only its element's alignment, and the stride of an axis of size 1 is
 * ignored. So [B,H,L,D], [B,L,H,D], packed [B,L,3,H,D] and a slice of a cache are all one call. */
typedef struct attn_input {
    const void *data;
    attn_type type;
    int64_t stride_batch, stride_head, stride_token;
} attn_input;

/* A tensor that is written, strides as above. Its elements must not share memory with each other
 * (rows that obviously do are ATTN_ERROR_STRIDE) nor with any other tensor (the caller's duty). */
typedef struct attn_output {
    void *data;
    attn_type type;
    int64_t stride_batch, stride_head, stride_token;
} attn_output;

/* What a mask holds. */
typedef enum attn_mask_type {
    ATTN_MASK_NONE = 0,
    ATTN_MASK_BOOL = 1, /* a byte each: 0 hides, anything else shows */
    ATTN_MASK_F32 = 2,  /* added to the score; -inf hides */
    ATTN_MASK_F16 = 3,  /* the same in IEEE half precision, added as f32 */
    ATTN_MASK_BITS = 4  /* bit j & 7 of byte j >> 3: 1 shows; for speculative decoding's trees */
} attn_mask_type;

/* A mask over pairs of query rows and keys. The element of (b, h, i, j) is at data +
 * b*stride_batch + h*stride_head + i*stride_query + j*stride_key, strides in elements (in bytes
 * for bits, which have no stride_key). A stride of 0 broadcasts, so that [Lq,Lk], [B,1,1,Lk] or a
 * single column are used where they lie. */
typedef struct attn_mask {
    const void *data;
    attn_mask_type type;
    int64_t stride_batch, stride_head, stride_query, stride_key;
    int64_t n_keys; /* keys that the mask covers, at least 1 (unless there is room for no key);
                       those from n_keys on are hidden. Elements from the key count on are not read
                     */
} attn_mask;

/* Which scores attn_problem.scores receives. */
typedef enum attn_score_stage {
    ATTN_SCORES_SCALED = 0, /* scale * q.k */
    ATTN_SCORES_CAPPED = 1, /* after softcap */
    ATTN_SCORES_BIASED = 2  /* after ALiBi and mask, -inf wherever hidden */
} attn_score_stage;

/* One attention problem. Start from attn_problem_init() or attn_problem_bhld(): zero is the
 * default of every field that is not named here as required.
 *
 * For batch b, query head h, query row i and key j, with g = h / (q_heads / kv_heads):
 *
 *     s[j]   = scale * dot(q[b,h,i,:], k[b,g,j,:])
 *     s[j]   = softcap * tanh(s[j] / softcap)          if softcap > 0
 *     s[j]  += -alibi[h] * |p(i) - j|                  if there are slopes
 *     s[j]  += mask[b,h,i,j]                           if the mask is additive
 *     hidden:  j >= key count, or causal and j > p(i), or j outside the window
 *              [p(i) - left, p(i) + right], or the mask hides j
 *     m      = max over visible j of s[j], and sinks[h]
 *     l      = sum over visible j of exp(s[j] - m), and exp(sinks[h] - m)
 *     out    = sum over visible j of (exp(s[j] - m) / l) * v[b,g,j,:]
 *     lse    = m + log(l)
 *     weight = exp(s[j] - m) / l, 0 where hidden
 *
 * The key count is kv_len[b], or all of k's where that is not given (and of past_k's before them).
 * A hidden key or value cannot change one bit of the output, whatever it holds. A row that sees no
 * key, or whose visible scores are all -inf, gives out 0 and lse -inf (with a sink: the sink). NaN
 * in q, in a visible key or in the mask at a visible place, or a score of +inf, makes the row NaN;
 * so does a sink of NaN or +inf. NaN in a visible value makes its column NaN.
 *
 * Ragged batches: with cu_q the query rows of all batches lie end to end on one token axis of
 * length q_len, in q, out, lse, weights, scores and the mask's query axis; their stride_batch is
 * not used (the mask's is). Row i of batch b is then token cu_q[b] + i.
 *
 * Keys in two pieces: with past_cap > 0, key j of batch b is token j of past_k and past_v where
 * j < past_len[b], else token j - past_len[b] of k and v, to the bit as if they lay together. */
typedef struct attn_problem {
    size_t struct_size; /* required: sizeof(attn_problem); the two initialisers set it */

    int64_t batch;    /* 0: nothing to do, nothing written; so too q_heads, q_len and v_dim */
    int64_t q_heads;  /* a multiple of kv_heads */
    int64_t kv_heads; /* q_heads: multi-head; 1: multi-query; between: grouped-query attention */
    int64_t q_len;    /* query rows */
    int64_t kv_cap;   /* keys that fit in k and v; also their count unless kv_len is given */
    int64_t qk_dim;   /* features of q and k, at least 1 */
    int64_t v_dim;    /* features of v and out */

    attn_input q;    /* [batch, q_heads, q_len, qk_dim] */
    attn_input k;    /* [batch, kv_heads, kv_cap, qk_dim] */
    attn_input v;    /* [batch, kv_heads, kv_cap, v_dim] */
    attn_output out; /* [batch, q_heads, q_len, v_dim] */

    const float *scale;    /* one value, finite; null: 1/sqrt(qk_dim) */
    const int64_t *kv_len; /* [batch]: keys in use, those of past_k counted, from 0 to as many as
                              there are; null: all */

    int32_t causal;        /* 1: row i does not see keys beyond its own position */
    attn_align align;      /* see attn_align */
    const int64_t *offset; /* [batch], only and always with ATTN_ALIGN_EXPLICIT, |.| <= 2^62 */

    attn_output lse;     /* optional (null data): f32 [batch, q_heads, q_len] */
    attn_output weights; /* optional (null data): [batch, q_heads, q_len, past_cap + kv_cap], keys
                            contiguous; costs one more product of q and k. 0 where hidden */

    attn_mask mask;        /* optional (ATTN_MASK_NONE) */
    const int64_t *window; /* {left, right}, how far a row sees: 0 is its own position only, -1 is
                              unbounded; null: both unbounded */
    float softcap;         /* 0: none */
    const float *alibi;    /* [q_heads] slopes; null: none */
    const float *sinks;    /* [q_heads] a logit that takes part in m and l only; null: none; -inf is
                              no sink */

    attn_output scores; /* optional (null data): as weights. Below the key count as scores_at says,
                           of hidden keys too; from it on 0, or -inf where biased */
    attn_score_stage scores_at;

    const int64_t *cu_q; /* [batch + 1], rising from 0 to q_len: ragged batches; null: none */

    int64_t past_cap; /* keys that fit in past_k and past_v; 0: none */
    attn_input past_k, past_v;
    const int64_t *past_len; /* [batch], 0 <= past_len[b] <= past_cap; null: past_cap */

    attn_scales k_scales, v_scales; /* where k or v is int8 */
    attn_scales past_k_scales, past_v_scales;
    attn_pages pages; /* of k and v; not together with past_k */
} attn_problem;

/* All fields at their defaults; sizes and pointers are still to be filled in. */
static inline attn_problem attn_problem_init(void) {
    attn_problem p;
    memset(&p, 0, sizeof p);
    p.struct_size = sizeof p;
    return p;
}

/* A problem over contiguous f32 tensors in the order [batch, heads, length, features]; the strides
 * of lse and weights are set as well, for whoever sets their data. */
static inline attn_problem attn_problem_bhld(int64_t batch, int64_t q_heads, int64_t kv_heads,
                                             int64_t q_len, int64_t kv_cap, int64_t qk_dim,
                                             int64_t v_dim, const float *q, const float *k,
                                             const float *v, float *out) {
    attn_problem p = attn_problem_init();
    /* Unsigned, so that sizes too large to multiply wrap and are left for attn_forward() to refuse.
     */
    const uint64_t q_row = (uint64_t)qk_dim, out_row = (uint64_t)v_dim;
    const uint64_t q_rows = (uint64_t)q_len, kv_rows = (uint64_t)kv_cap;
    p.batch = batch, p.q_heads = q_heads, p.kv_heads = kv_heads;
    p.q_len = q_len, p.kv_cap = kv_cap, p.qk_dim = qk_dim, p.v_dim = v_dim;
    p.q.data = q, p.q.stride_token = qk_dim;
    p.q.stride_head = (int64_t)(q_rows * q_row);
    p.q.stride_batch = (int64_t)((uint64_t)q_heads * q_rows * q_row);
    p.k.data = k, p.k.stride_token = qk_dim;
    p.k.stride_head = (int64_t)(kv_rows * q_row);
    p.k.stride_batch = (int64_t)((uint64_t)kv_heads * kv_rows * q_row);
    p.v.data = v, p.v.stride_token = v_dim;
    p.v.stride_head = (int64_t)(kv_rows * out_row);
    p.v.stride_batch = (int64_t)((uint64_t)kv_heads * kv_rows * out_row);
    p.out.data = out, p.out.stride_token = v_dim;
    p.out.stride_head = (int64_t)(q_rows * out_row);
    p.out.stride_batch = (int64_t)((uint64_t)q_heads * q_rows * out_row);
    p.lse.stride_token = 1, p.lse.stride_head = q_len;
    p.lse.stride_batch = (int64_t)((uint64_t)q_heads * q_rows);
    p.weights.stride_token = kv_cap, p.weights.stride_head = (int64_t)(q_rows * kv_rows);
    p.weights.stride_batch = (int64_t)((uint64_t)q_heads * q_rows * kv_rows);
    return p;
}

/* One piece of work of a call: to be called once for each index below n_tasks. */
typedef void (*attn_task)(void *arg, size_t index, size_t worker);

/* How a call gets its threads: they are the caller's. A caller's own executor is a struct that
 * begins with this one. run() calls task(arg, index, worker) once for every index in [0, n_tasks),
 * in any order, with worker < n_workers and no worker number in use twice at once, and returns when
 * all have returned and their writes are visible. Tasks never wait for each other, so that one
 * thread can run them all. */
typedef struct attn_executor attn_executor;
struct attn_executor {
    size_t struct_size; /* sizeof(attn_executor) */
    size_t n_workers;   /* at least 1 */
    void (*run)(attn_executor *self, size_t n_tasks, attn_task task, void *arg);
};

/* Computes attention.
 *
 * workspace: scratch of at least attn_workspace_size() bytes, any alignment, used by no other call
 *     at the same time; its contents before and after mean nothing.
 * executor:  null runs everything on the calling thread.
 *
 * The bits of an output row depend on the kernel set and on that row's own inputs alone: its query,
 * the keys and values it sees and their indices, and the parameters. They do not depend on threads,
 * other rows, batch, strides, capacity, or on which outputs are asked for, so that decoding token
 * by token gives the bits of the prefill.
 *
 * Error against exact arithmetic on the same inputs, where no f32 step overflows, at most 2^24 keys
 * are visible, qk_dim <= 4096 and qk_dim |scale| <= 2^120. With u = 2^-24, n visible keys, and over
 * the visible j with a finite score: A = max |scale| sum_c |q_c k_jc|, C = max |s[j]| after softcap
 * (0 without softcap), B = max (|s[j]| before, plus |ALiBi term|, plus |mask|) (0 with neither) and
 * X = min(m - min s[j], 88):
 *
 *     t = (qk_dim + 2) u A + u (16 C + 4 B + 2 X + n_chain + 8 n_merge + 16)
 *     |out_c - exact|  <= (exp(2 t) - 1) sum_j weight_j |v_jc| + n 2^-125 (1 + max_j |v_jc|)
 *     |weight_j - exact| <= (exp(2 t) - 1) weight_j + 2^-125
 *     |lse - exact| <= t + 4 u (|m| + log(n + 1) + 1)
 *
 * Where k or v is int8, its element is the rounded product of integer and scale: t grows by 1 u A
 * and the first bound by u sum_j weight_j |v_jc|. Where out is f16 or bf16, half a unit in its last
 * place comes on top.
 *
 * The sets "avx512_bf16" and "neon_bf16" multiply bf16 by bf16 as they are. Where v is bf16 they
 * round weights to bf16 before the product, and the first bound grows by
 * 2^-8 exp(2 t) sum_j weight_j |v_jc| + n 2^-124. Where q and k are bf16, t grows by
 * F = max |scale| 2^-126 sum_c (|q_c| + |k_jc| + 2), because subnormal numbers count as 0. On
 * neon_bf16, whose sums are rounded to odd, t grows by another 2 u A where q and k are bf16, and
 * 2 n_chain + 2 takes the place of n_chain where v is.
 *
 * On a set that rounds queries to int8 (see attn_isa()) each group of features of q, cut as k's are,
 * becomes integers times max |q_c| / 127, and t grows by
 *
 *     Q = max |scale| sum_g (max_{c in g} |q_c| / 252 + 2^-119) sum_{c in g} |k_jc|
 *
 * n_chain, the longest chain of additions, is min(n, 512) up to 8192 keys and then n or an eighth
 * of the largest power of two that is not above the number of keys up to the last visible one,
 * whichever is less; n_merge is ceil(that number / 512), or ceil(that number / tile) where the keys
 * or the values of 512 tokens would exceed 512 KiB in f32; one more with a sink.
 *
 * Derivation. Write the computed numerator as sum_j exp(s_j - m + a_j) v_jc and the computed
 * denominator as sum_j exp(s_j - m + b_j): if |a_j|, |b_j| <= t, their quotient errs by at most
 * exp(2 t) - 1 relative to sum_j weight_j |v_jc|. What a_j and b_j gather, a factor 1 + e with
 * |e| <= k u counting k u: (score) a chain of d products and sums and the product with scale err by
 * at most ((1 + u)^(d+1) - 1) A <= (d + 2) u A, in the exponent; (softcap) its slope is at
 * most 1, the quotient rounds twice, tanh is within 4 ULP, the product rounds once: below 16 u C;
 * (biases) the slope's product rounds twice, each sum once: 4 u B; (differences) s - m, and the
 * differences of maxima by which states are rescaled, are rounded once each: they add up to the way
 * from s_j to the final maximum, so u X, twice for good measure; beyond 88 the weight is below
 * 2^-126; (exponential) 1 ULP, 2 u, in the weight; (rescaling) each tile and each merge multiplies
 * by a factor 2 u off, rounds the product and then the sum: at most 8 u for a tile and its merge;
 * (sums) at most n_chain additions to a term, and 5 in the tree over the lanes; (end) reciprocal
 * and product, 2 u. Weights below 2^-126 become 0, and so may products: the terms with 2^-125.
 * Products of two bf16 are exact. VDPBF16PS rounds as often as a chain of multiply-adds does; BFDOT
 * half as often, and once more for the sum within each pair, each time by up to 2 u. A weight in
 * bf16 is off by at most 2^-8 of itself. A subnormal factor that counts as 0 takes at most 2^-126 of
 * the other one, a product or sum at most 2^-126: of each key as well, whose weight is at most 1.
 * (Queries in int8) q_c differs from its integer times the scale by at most max |q_c| / 253, or by
 * 127 * 2^-126 where the group is all zeros; integers add up exactly, and conversion, scales, the
 * chain over the groups and the product with scale round no more often than the chain of f32. That
 * is on products which Q may add to: 252 for 253.
 *
 * Errors: everything that attn_status names is reported before the first write; attn_check() says
 * more. Memory that is not there, or shared where it must not be, is the caller's duty. */
ATTN_API attn_status attn_forward(const attn_problem *problem, void *workspace,
                                  size_t workspace_size, attn_executor *executor);

/* attn_forward() with a workspace from malloc(). */
ATTN_API attn_status attn_forward_alloc(const attn_problem *problem, attn_executor *executor);

/* Bytes of workspace that attn_forward() needs with an executor of n_workers (1 for null), for
 * these sizes and any kv_len, on every kernel set this CPU can run. With one worker it never
 * shrinks as q_len or kv_cap grow, so that one workspace for the largest serves all; with several,
 * ask for each q_len. Each worker takes at most 1.5 MiB for dims up to 1024, whatever the lengths;
 * where few rows meet many keys, the states of the key spans that run in parallel come on top.
 * Tensor pointers are not looked at and may still be null. What has a say in the shape is: cu_q, the
 * table of pages, a mask's type, the group of int8 keys; ask again when the sequences of a ragged
 * batch change. */
ATTN_API attn_status attn_workspace_size(const attn_problem *problem, size_t n_workers,
                                         size_t *size);

/* The result of attention over some of the keys: what attn_forward() wrote to out and lse. */
typedef struct attn_partial {
    attn_input out; /* f32 [batch, heads, q_len, v_dim] */
    attn_input lse; /* f32 [batch, heads, q_len] */
} attn_partial;

/* Merges n results over disjoint sets of keys into the result over all of them:
 *
 *     w_p = exp(lse_p - max lse)
 *     out = sum_p w_p out_p / sum_p w_p
 *     lse = max lse + log(sum_p w_p)
 *
 * from left to right (the merge of Milakov and Gimelshein, 2018). So a prompt that many sequences
 * share is computed once (examples/shared_prefix.c). lse may be null. out and lse may be those of
 * parts[0], at the same strides; otherwise nothing overlaps. (0, -inf), the result over no key, is
 * neutral (but a -0 may become +0); an lse of NaN or +inf makes the row NaN. A sink must be in one
 * part only.
 *
 * Error, beyond that of the parts, relative to sum_p w_p |out_p| / sum_p w_p:
 * exp(2 t) - 1 with t = 2^-24 (2 max |lse_p| + 8 n + 16), the maximum over the finite ones: the
 * rounding of lse itself.
 *
 * n at least 1; sizes of 0 are success, nothing written. Errors as for attn_forward(). */
ATTN_API attn_status attn_merge(int64_t batch, int64_t heads, int64_t q_len, int64_t v_dim,
                                size_t n, const attn_partial *parts, const attn_output *out,
                                const attn_output *lse);

/* The gradient of a problem: what comes in, and where the parts that are wanted go. Start from
 * attn_gradient_init(): null data is not wanted. */
typedef struct attn_gradient {
    size_t struct_size; /* required: sizeof(attn_gradient) */

    attn_input dout; /* required: as out, f32, f16 or bf16 */
    attn_output dq;  /* [batch, q_heads, q_len, qk_dim], f32, f16 or bf16, and so dk and dv */
    attn_output dk;  /* [batch, kv_heads, kv_cap, qk_dim] */
    attn_output dv;  /* [batch, kv_heads, kv_cap, v_dim] */
    float *dsinks;   /* [q_heads]; only with sinks */
} attn_gradient;

static inline attn_gradient attn_gradient_init(void) {
    attn_gradient g;
    memset(&g, 0, sizeof g);
    g.struct_size = sizeof g;
    return g;
}

/* Computes the gradient of sum_bhic dout[b,h,i,c] out[b,h,i,c]. problem is the one that
 * attn_forward() has answered, with lse: its out and lse are read, so that the weights need not be
 * kept (Dao et al., "FlashAttention", 2022). For each head and the pairs of row i and key j that
 * see each other, s_ij being the score of attn_problem and c_ij the same before ALiBi and mask:
 *
 *     P_ij  = exp(s_ij - lse_i)
 *     D_i   = sum_c dout_ic out_ic
 *     dS_ij = P_ij (sum_c dout_ic v_jc - D_i)      times 1 - (c_ij / softcap)^2 if softcap > 0
 *     dq_i  = scale sum_j dS_ij k_j
 *     dk_j  = scale sum_i dS_ij q_i                over the rows of all heads that share key j
 *     dv_j  = sum_i P_ij dout_i                    likewise
 *     dsinks_h = -sum_bi exp(sinks_h - lse_i) D_i
 *
 * ALiBi and masks take part in s and get no gradient. Everything is written: a row that sees no key,
 * or whose lse is -inf, has dq 0, a key that no row sees, or beyond kv_len, has dk and dv 0. What is
 * hidden, and dout of a row that sees nothing, changes no bit, whatever it holds.
 *
 * Sums go by ascending key, and by ascending head and row; no bit depends on the executor, on which
 * parts are wanted, or on strides, and dq_i not on other rows. weights and scores of problem are
 * ignored. Not for int8 keys or values (ATTN_ERROR_TYPE), pages (ATTN_ERROR_PAGE) and keys in two
 * pieces (ATTN_ERROR_PAST_LEN). dq, dk and dv must share no memory with anything.
 *
 * workspace and executor: as for attn_forward(), with attn_backward_workspace_size().
 *
 * Error against the exact gradient, under the conditions of attn_forward()'s bound, with its t, and
 * m, n, u for row i, N the number of pairs that a key takes part in, o_ic the error of out_ic that
 * the bound there (and the rounding to the type of out) allows, and exact P, D and G = |dP - D|,
 * dP_ij = sum_c dout_ic v_jc:
 *
 *     r_i  = 2 t + 5 u (|m| + log(n + 1) + 1)
 *     E_ij = (v_dim + 4) u sum_c |dout_ic| (|v_jc| + |out_ic| + o_ic) + sum_c |dout_ic| o_ic
 *     S_ij = P_ij (exp(r_i) (1 + 8 u) (G_ij + E_ij) - G_ij)
 *     with softcap, S_ij += exp(r_i) P_ij (G_ij + E_ij) (min(1, 2 t / softcap) + 40 u)
 *     |dq_ic - exact| <= |scale| sum_j (S_ij + (n + 3) u (P_ij G_ij + S_ij)) |k_jc| + z
 *     |dk_jc - exact| <= |scale| sum_i (S_ij + (N + 3) u (P_ij G_ij + S_ij)) |q_ic| + z
 *     |dv_jc - exact| <= sum_i (exp(r_i + (N + 2) u) - 1) P_ij |dout_ic| + z
 *     |dsinks_h - exact| <= sum_bi exp(sinks_h - lse_i) ((exp(r_i) - 1) |D_i| + exp(r_i) E_i) + z
 *
 * E_i being E_ij without v, and z = 2^-125 times a sum over the same terms: 1 + |dout_ic| for dv,
 * (1 + |scale|) (1 + G_ij + E_ij) (1 + |k_jc|) for dq, with |q_ic| for dk, and 1 + |D_i|. A result of
 * a half type errs by half a unit in its last place more.
 *
 * Derivation. Of the error of s_ij and that of lse_i each is in t, the second with 4 u (|m| +
 * log(n + 1) + 1) on top; their difference is rounded once, u (X + log(n + 1)), and X is in what t
 * keeps for sums. So P is off by a factor exp(r_i). dP and D are chains of v_dim products, D of the
 * rounded out; the difference, the product with P and the slope of softcap round once each. The
 * slope is 1 - tanh^2: twice the error of the tanh, whose argument is off by at most t / softcap.
 * Last come chains of n or N multiply-adds, and the product with scale. */
ATTN_API attn_status attn_backward(const attn_problem *problem, const attn_gradient *gradient,
                                   void *workspace, size_t workspace_size, attn_executor *executor);

/* attn_backward() with a workspace from malloc(). */
ATTN_API attn_status attn_backward_alloc(const attn_problem *problem, const attn_gradient *gradient,
                                         attn_executor *executor);

/* Bytes of workspace that attn_backward() needs with an executor of n_workers (1 for null). Data
 * pointers may still be null; the types, dq's stride and the lengths have a say. Each worker takes at
 * most 4 MiB for dims up to 1024, whatever the lengths, but for one case: a dq that is not f32, or
 * runs backwards in memory, is summed in the workspace, in f32 and for all rows of a key/value
 * head. */
ATTN_API attn_status attn_backward_workspace_size(const attn_problem *problem,
                                                  const attn_gradient *gradient, size_t n_workers,
                                                  size_t *size);

/* The gradient of a softmax, for whoever has weights: ds_j = w_j (dw_j - sum_i w_i dw_i), j < n.
 * dscores may be weights or dweights. |error| <= w_j u ((n + 3) sum_i |w_i dw_i| + 3 |dw_j|) and
 * 2^-125 (n + 1) for products too small for f32. n may be 0. */
ATTN_API attn_status attn_softmax_backward(int64_t n, const float *weights, const float *dweights,
                                           float *dscores);

/* A cache that is written to: element (page, h, t, c) is at data + page*stride_page +
 * h*stride_head + t*stride_token + c. A cache without pages is one of a page per batch, page_len
 * its capacity. */
typedef struct attn_cache {
    void *data;
    attn_type type;
    int64_t stride_page, stride_head, stride_token;
    int64_t n_pages, page_len;
    float *scales; /* of an int8 cache, else null; strides and group as in attn_scales */
    int64_t scale_group, scale_stride_page, scale_stride_head, scale_stride_token;
} attn_cache;

/* Appends tokens to a cache: token i of tokens, f32, f16 or bf16 [n, heads, dim] at stride_token
 * and stride_head, becomes token slots[i] % page_len of page slots[i] / page_len; a negative slot
 * skips its token. Rounding as for out. For int8 each group of features is quantised symmetrically:
 * scale = max |x| / 127, elements round(x / scale) in -127 .. 127, so that a round trip errs by at
 * most scale / 2 (and the rounding of the product); a group with a value that is not finite gets
 * the scale NaN, one whose largest magnitude is below 127 * 2^-126 becomes zeros.
 *
 * Errors are found before the first write; ATTN_ERROR_PAGE: a slot beyond the cache. */
ATTN_API attn_status attn_append(const attn_input *tokens, int64_t n, int64_t heads, int64_t dim,
                                 const int64_t *slots, const attn_cache *cache);

/* The kind of an error, in a few words. Never null. */
ATTN_API const char *attn_status_string(attn_status status);

/* What attn_forward() would answer to problem, with a sentence that names the argument and its
 * values written to buffer (cut to size, always terminated; buffer may be null with size 0). */
ATTN_API attn_status attn_check(const attn_problem *problem, char *buffer, size_t size);

/* The name of the kernel set in use: "avx512", "avx2", "neon" or "scalar", the best of which is the
 * default; or one that is used only where asked for, because it is less accurate. "avx512_bf16" and
 * "neon_bf16": what is bf16 they multiply as it is, by the instructions that the CPU has for that, and
 * weights are rounded to bf16 for it. "avx512_vnni", "neon_i8mm" and "neon_dotprod": where k is int8
 * they multiply it as it is, and q is rounded to int8 for it, in groups as k has them; these must be
 * multiples of 16 features or all of a row, and at most 65536. Everything else is as on "avx512" or
 * "neon". Null if the environment variable ATTN_ISA (read once, when kernels are first selected; empty
 * is unset) names one that is unknown or cannot run here. */
ATTN_API const char *attn_isa(void);

/* The kernel sets this CPU can run, best first, down to scalar, then those that are used only where
 * asked for; a null pointer ends the list. */
ATTN_API const char *const *attn_isa_list(void);

/* Chooses the kernel set of all later calls, by name; null chooses the best. Calls under way keep
 * theirs. ATTN_ERROR_ISA: the name is unknown or cannot run here, and nothing changes. */
ATTN_API attn_status attn_set_isa(const char *name);

/* The version of the library that runs, "major.minor.patch". */
ATTN_API const char *attn_version(void);

/* In the library libattn_openmp, built where the compiler has OpenMP: an executor that runs its
 * tasks on n_threads OpenMP threads (0: as many as OpenMP would use). It holds no resources. */
ATTN_API attn_executor attn_openmp_executor(size_t n_threads);

#ifdef __cplusplus
}
#endif
#endif
