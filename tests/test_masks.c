/* The kernels of masks and biases: add_bias, alibi, bits_of_bool and bits_of_bias of each set, by
 * their definition in kernels.h. Masks lie against an inaccessible page.
 *
 * SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "check.h"

enum { MOST_KEYS = 576 };

/* Lengths one by one beyond two words, and beside the usual tile. */
static size_t next_length(size_t n) { return n < 132 ? n + 1 : n < 510 ? 510 : n + 1; }
#define LAST_LENGTH 514

static size_t padded(size_t n_keys) {
    return (n_keys + ATTN_SCORE_PAD - 1) / ATTN_SCORE_PAD * ATTN_SCORE_PAD;
}

static float any_float(struct rng *rng) {
    const float special[] = {NAN, -NAN, INFINITY, -INFINITY, -INFINITY, 0, -0.0f, 3e38f, 0x1p-149f};
    const int64_t kind = rng_below(rng, 40);
    return kind < 9 ? special[kind] : 9 * rng_normal(rng);
}

static bool is_set(const uint64_t *bits, size_t j) { return bits[j / 64] >> j % 64 & 1; }

Test(masks, bits_of_bool) {
    const struct attn_kernels *sets[8];
    const size_t n_sets = check_kernel_sets(sets);
    struct rng rng = {7};
    for (size_t s = 0; s < n_sets; s++)
        for (size_t n = 1; n <= LAST_LENGTH; n = next_length(n))
            for (int side = 0; side < 2; side++)
                for (int shift = 0; shift < 2; shift++) {
                    check_context("bits_of_bool %s: %zu keys, side %d, shift %d", sets[s]->name, n,
                                  side, shift);
                    const size_t words = (n + 63) / 64;
                    uint8_t *mask = guarded(SLOT_OTHER, n + (size_t)shift, (enum side)side);
                    uint64_t *bits = guarded(SLOT_OTHER + 1, words * 8, (enum side)side);
                    mask += side == AT_START ? shift : 0;
                    for (size_t j = 0; j < n; j++) {
                        const uint8_t values[] = {0, 0, 0, 1, 255, 128, 2, 64};
                        mask[j] = values[rng_below(&rng, 8)];
                    }
                    sets[s]->bits_of_bool(mask, n, bits);
                    for (size_t j = 0; j < 64 * words; j++)
                        CHECK(is_set(bits, j) == (j < n && mask[j] != 0), "bit %zu is %d", j,
                              is_set(bits, j));
                }
}

Test(masks, bits_of_bias) {
    const struct attn_kernels *sets[8];
    const size_t n_sets = check_kernel_sets(sets);
    struct rng rng = {8};
    for (size_t s = 0; s < n_sets; s++)
        for (size_t n = 1; n <= LAST_LENGTH; n = next_length(n))
            for (int side = 0; side < 2; side++) {
                check_context("bits_of_bias %s: %zu keys, side %d", sets[s]->name, n, side);
                const size_t words = (n + 63) / 64;
                float *bias = guarded_floats(SLOT_OTHER, n, (enum side)side);
                uint64_t *bits = guarded(SLOT_OTHER + 1, words * 8, (enum side)side);
                for (size_t j = 0; j < n; j++)
                    bias[j] = rng_below(&rng, 3) ? any_float(&rng) : -INFINITY;
                sets[s]->bits_of_bias(bias, n, bits);
                for (size_t j = 0; j < 64 * words; j++)
                    CHECK(is_set(bits, j) == (j < n && bias[j] != -INFINITY),
                          "bit %zu is %d, bias %f", j, is_set(bits, j),
                          j < n ? (double)bias[j] : 0);
            }
}

Test(masks, add_bias) {
    const struct attn_kernels *sets[8];
    const size_t n_sets = check_kernel_sets(sets);
    struct rng rng = {9};
    for (size_t s = 0; s < n_sets; s++)
        for (size_t n = 1; n <= LAST_LENGTH; n = next_length(n))
            for (int side = 0; side < 2; side++) {
                check_context("add_bias %s: %zu keys, side %d", sets[s]->name, n, side);
                float *bias = guarded_floats(SLOT_OTHER, n, (enum side)side);
                float *scores = guarded_floats(SLOT_OTHER + 1, padded(n), (enum side)side);
                float before[MOST_KEYS];
                for (size_t j = 0; j < n; j++)
                    bias[j] = any_float(&rng), scores[j] = before[j] = any_float(&rng);
                sets[s]->add_bias(scores, n, bias);
                for (size_t j = 0; j < n; j++)
                    CHECK(same_bits(scores[j], before[j] + bias[j]), "at %zu: %a + %a is %a", j,
                          (double)before[j], (double)bias[j], (double)scores[j]);
            }
}

/* The product may be fused with the sum: then one rounding, else two. */
static void alibi_try(const struct attn_kernels *set, size_t n, float slope, int64_t distance,
                      struct rng *rng) {
    check_context("alibi %s: %zu keys, slope %a, distance %" PRId64, set->name, n, (double)slope,
                  distance);
    float *scores = guarded_floats(SLOT_OTHER, padded(n), n % 2 ? AT_START : AT_END);
    float before[MOST_KEYS];
    for (size_t j = 0; j < n; j++)
        scores[j] = before[j] = any_float(rng);
    set->alibi(scores, n, slope, distance);
    for (size_t j = 0; j < n; j++) {
        const int64_t d = distance - (int64_t)j;
        const float size = (float)(d < 0 ? -d : d);
        volatile float product = -slope * size;
        const float twice = before[j] + product, once = fmaf(-slope, size, before[j]);
        CHECK(same_bits(scores[j], strcmp(set->name, "scalar") == 0 ? twice : once),
              "at %zu: %a became %a, want %a", j, (double)before[j], (double)scores[j],
              (double)once);
    }
}

Test(masks, alibi) {
    const struct attn_kernels *sets[8];
    const size_t n_sets = check_kernel_sets(sets);
    struct rng rng = {10};
    const int64_t edge = INT32_MAX, far = INT64_MAX - (INT64_C(1) << 20);
    const int64_t distances[] = {0,         7,          -1,          511,        -600,
                                 70000,     33554435,   edge,        edge + 1,   edge + 65,
                                 -edge,     -edge + 40, far,         -far,       edge - 3,
                                 -edge - 1, 1 << 30,    -edge + 514, -edge + 513};
    for (size_t s = 0; s < n_sets; s++)
        for (size_t i = 0; i < sizeof distances / sizeof *distances; i++)
            for (size_t n = 1; n <= LAST_LENGTH; n = next_length(n)) {
                if (check_quick() && n > 20 && n % 16 != i % 16)
                    continue;
                const float slopes[] = {0.5f, 0.00390625f, 0.1f, -0.7f, 0};
                alibi_try(sets[s], n, slopes[n % 5], distances[i], &rng);
            }
}
