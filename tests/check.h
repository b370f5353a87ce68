/* What the tests share: guarded memory, random inputs, problems of any layout, and comparisons.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_CHECK_H
#define ATTN_CHECK_H

#include <criterion/criterion.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attn.h"
#include "kernels.h"

/* ---- How much to test ------------------------------------------------------------------------ */

/* ATTN_TEST_QUICK=1, for emulators: about a tenth of the work. */
bool check_quick(void);
int64_t check_count(int64_t full);

/* TEST_EMULATOR is set (see emulator_exec.c). */
bool check_is_emulated(void);

/* One line on the test program's output, whatever Criterion's verbosity. */
void check_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- Failures -------------------------------------------------------------------------------- */

/* What is being tried now: printed with each failure, and on a crash. */
void check_context(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Fails the test with the context; the tenth failure ends it. */
void check_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition))                                                                          \
            check_fail(__VA_ARGS__);                                                               \
    } while (0)

/* ---- Random numbers -------------------------------------------------------------------------- */

struct rng {
    uint64_t state;
};

uint64_t rng_next(struct rng *rng);
int64_t rng_below(struct rng *rng, int64_t n); /* 0 .. n - 1 */
double rng_uniform(struct rng *rng);           /* [0, 1) */
float rng_normal(struct rng *rng);             /* N(0, 1) as the sum of four: cheap, below 3.5 */
float rng_gauss(struct rng *rng);              /* N(0, 1) */

/* ---- Memory ---------------------------------------------------------------------------------- */

enum side { AT_END, AT_START }; /* which inaccessible page the memory touches */
enum slot {
    SLOT_Q,
    SLOT_K,
    SLOT_V,
    SLOT_OUT,
    SLOT_LSE,
    SLOT_WEIGHTS,
    SLOT_SCORES,
    SLOT_PAST_K,
    SLOT_PAST_V,
    SLOT_MASK,
    SLOT_STORED_Q, /* these five and four in this order: see trial_store() */
    SLOT_STORED_K,
    SLOT_STORED_V,
    SLOT_STORED_PAST_K,
    SLOT_STORED_PAST_V,
    SLOT_K_SCALES,
    SLOT_V_SCALES,
    SLOT_PAST_K_SCALES,
    SLOT_PAST_V_SCALES,
    SLOT_TABLE,
    SLOT_WORKSPACE,
    SLOT_OTHER, /* first of those that have no fixed purpose */
    N_SLOTS = SLOT_OTHER + 24
};

/* Memory of exactly this size that ends (or starts) at a page that must not be touched. A slot
 * holds one piece at a time. Filled with 0xff bytes: floats are NaN. */
enum { N_BANKS = 2 };
void guarded_use_bank(int bank); /* each has all slots, so that two trials can be there at once */
void *guarded(enum slot slot, size_t bytes, enum side side);
float *guarded_floats(enum slot slot, size_t n, enum side side);

/* ---- Bits ------------------------------------------------------------------------------------ */

uint32_t bits_of(float x);
float float_of(uint32_t bits);

/* The same bits, or both NaN: which payload a NaN carries depends on which operand of a commutative
 * operation the compiler puts first, and the contract promises NaN, not a payload. */
bool same_bits(float a, float b);

/* The index of the first difference, or -1. */
int64_t first_difference(const float *a, const float *b, int64_t n);

/* ---- Kernel sets ----------------------------------------------------------------------------- */

/* Chooses the set and asserts that it is in use. */
bool check_use_isa(const char *name);
#define FOR_EACH_ISA(name)                                                                         \
    for (const char *const *isa_at = attn_isa_list(), *name = *isa_at;                             \
         name && check_use_isa(name); name = *++isa_at)

/* The sets this machine can run, best first, down to the scalar one. Those that are chosen by name
 * only come after it: their kernels are those of others, but for their dot products. */
size_t check_kernel_sets(const struct attn_kernels **sets);

/* ---- Problems -------------------------------------------------------------------------------- */

struct shape {
    int64_t batch, q_heads, kv_heads, q_len, kv_cap, qk_dim, v_dim;
};

enum layout {
    BHLD,
    BLHD,
    PACKED_QKV, /* one of the three tensors of [B, L, 3, H, D] */
    PADDED,     /* gaps of different sizes between tokens, heads and batches */
    REVERSED,   /* all strides negative */
    N_LAYOUTS,
    SHARED_HEADS = N_LAYOUTS, /* inputs only: strides of head and batch are 0 */
    SHARED_TOKENS,            /* inputs only: stride of token is 0 */
    N_INPUT_LAYOUTS
};

enum kind {
    KIND_NORMAL,
    KIND_EQUAL,
    KIND_ONE_HUGE,
    KIND_DENORMAL,
    KIND_MINUS_INF_KEYS, /* some visible logits are -inf */
    KIND_NAN,            /* one NaN each in q, k and v */
    N_KINDS,
    KIND_GAUSS = N_KINDS /* KIND_NORMAL has no tails */
};

enum mask_layout {
    MASK_PLAIN,
    MASK_PADDED,     /* gaps between rows, heads and batches */
    MASK_TRANSPOSED, /* queries contiguous; bits stay plain */
    MASK_REVERSED,   /* all strides negative, but not that of bits along the keys */
    N_MASK_LAYOUTS
};

/* A mask in memory of its own: which axes it has (the others are broadcast, stride 0), and how they
 * lie. */
struct mask_form {
    attn_mask_type type;
    enum mask_layout layout;
    bool no_batch, no_head, no_query, no_key;
    int64_t n_keys;
    enum side side;
};

enum { MAX_BATCH = 8, MAX_HEADS = 96 };
struct stored {
    float *data; /* or another type, where width is not sizeof(float) */
    size_t n;    /* gaps included */
    size_t width;
};

/* How a problem's tensors are stored: see trial_store(). */
struct storage {
    attn_type q, k, v, out;
    int64_t k_group, v_group;  /* of int8 */
    int64_t page_len;          /* 0: not paged; else there is no past */
    enum layout pages, scales; /* not the shared ones */
};
enum { STORED_Q, STORED_K, STORED_V, STORED_PAST_K, STORED_PAST_V, N_STORED };

struct trial {
    struct shape shape;
    attn_problem p;
    float scale;
    int64_t kv_len[MAX_BATCH], offset[MAX_BATCH], past_len[MAX_BATCH], cu_q[MAX_BATCH + 1];
    int64_t window[2];
    float alibi[MAX_HEADS], sinks[MAX_HEADS];
    struct stored q, k, v, past_k, past_v, out, lse, weights, scores;
    struct mask_form mask_form;
    uint8_t *mask; /* mask_bytes of them, gaps included */
    size_t mask_bytes;
    enum side side;
    bool is_stored;
    struct storage storage;
    attn_input plain[N_STORED]; /* what trial_store() replaced */
    struct stored stored[N_STORED], scales[N_STORED], table;
};

struct layouts {
    enum layout q, k, v, out;
    enum side side;
    bool lse, weights, scores;
    enum layout past_k, past_v;
    int64_t past_cap;
    bool is_ragged; /* q and the outputs have no batch axis; rows are dealt out evenly in cu_q */
};

/* Sizes, guarded storage and strides; data is NaN. Options are then set in t->p, whose pointers
 * may point to the arrays of *t. */
void trial_place(struct trial *t, struct shape shape, struct layouts layouts);
void trial_fill(struct trial *t, enum kind kind, struct rng *rng);
void trial_context(const struct trial *t, const char *what);

/* Adds a mask that shows everything; gaps are NaN, or true. */
void trial_add_mask(struct trial *t, struct mask_form form);

/* What the mask adds at one place: -inf hides. A bool or a bit can only show or hide, an f16 must
 * be able to hold it (else it is cut). token is the row on the mask's query axis. */
void mask_set(struct trial *t, int64_t b, int64_t h, int64_t token, int64_t j, float x);

/* The place's own number below mask_bytes * 8: broadcast places share it. */
int64_t mask_place(const struct trial *t, int64_t b, int64_t h, int64_t token, int64_t j);

/* Fills outputs with NaN, runs with a workspace of exactly the size asked for, between guard pages,
 * and checks that the answer is ATTN_OK and that the inputs did not change. */
void trial_run(struct trial *t, attn_executor *executor);

/* Between the rows of outputs nothing was written. */
void trial_check_gaps(const struct trial *t);

const float *in_at(const attn_input *t, int64_t b, int64_t h, int64_t token);
float *in_at_mutable(const attn_input *t, int64_t b, int64_t h, int64_t token);
float *out_at(const attn_output *t, int64_t b, int64_t h, int64_t token);

/* The same by row of the batch and key of the sequence, ragged or not, in one piece or two. h is a
 * query head, g one of keys and values. */
float *query_of(const attn_problem *p, int64_t b, int64_t h, int64_t i);
float *key_of(const attn_problem *p, int64_t b, int64_t g, int64_t j);
float *value_of(const attn_problem *p, int64_t b, int64_t g, int64_t j);
float *row_of(const attn_problem *p, const attn_output *t, int64_t b, int64_t h, int64_t i);

/* Stores a filled problem's tensors in other types and in pages. The f32 tensors, which the problem no
 * longer refers to, then hold exactly what the stored ones stand for, to which numbers were cut.
 * Comes last: pages that no row sees under the problem's options are left out, and so are their
 * entries in the table; entries and pages that are not used hold poison. */
void trial_store(struct trial *t, struct storage how, struct rng *rng);

/* The same problem over the f32 tensors, with f32 outputs in the layouts given, in this bank. */
void trial_plain(const struct trial *t, struct layouts how, struct trial *plain);

/* Where key or value j of a stored problem is. */
struct place {
    char *at;
    float *scales; /* of int8 */
};
struct place key_place(const attn_problem *p, int64_t b, int64_t g, int64_t j);
struct place value_place(const attn_problem *p, int64_t b, int64_t g, int64_t j);
size_t type_width(attn_type type);

/* Element c of a row of an output of any type. */
float output_of(const attn_problem *p, const attn_output *t, int64_t b, int64_t h, int64_t i,
                int64_t c);

/* x rounded to a type by arithmetic in double: to nearest, ties to even. */
float rounded_to(attn_type type, double x);

/* The oracle's answer to a trial: a row for each batch, head and query row, in this order. */
struct oracle_row;
struct reference {
    int64_t n;
    struct oracle_row *rows;
    double *out, *numbers;
    unsigned char *sees;
    int arithmetic; /* whose bounds these are */
};
struct reference reference_make(const struct trial *t);
void reference_free(struct reference *reference);

/* Every output within the bound of attn.h, that of the set in use, which computed them: for other
 * bounds the reference is made again. Returns the largest error as a share of the bound. */
double trial_compare(const struct trial *t, struct reference *reference);

/* Runs a filled trial on every set and compares. */
void trial_on_every_isa(struct trial *t);

/* Compares all outputs of two trials of one shape, bit for bit. Returns whether they agree. */
bool trial_same_bits(const struct trial *a, const struct trial *b, const char *what);

/* A random problem over everything that attn.h offers, filled. budget is about the number of
 * products in it. The second function puts poison (NaN, infinities, huge numbers) into everything
 * that no row sees: keys and values, the unused ends of caches, places of the mask where something
 * else hides, and queries that see no key. */
void trial_random(struct trial *t, struct rng *rng, int64_t budget);
void trial_poison(struct trial *t, struct rng *rng);

/* Types, groups and pages that a problem may be stored in. */
struct storage storage_random(const struct trial *t, struct rng *rng);

/* ---- Executors ------------------------------------------------------------------------------- */

/* Runs tasks on the calling thread in reverse order, and hands out worker numbers at random. */
struct reverse_executor {
    attn_executor base;
    struct rng rng;
    int64_t tasks;
};
struct reverse_executor reverse_executor(size_t n_workers);

#endif
