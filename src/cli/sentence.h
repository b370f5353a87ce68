/* A sentence whose words are vectors, and the three linear maps that make q, k and v of them.
 *
 * Everything is written by hand, so that one can see what a query looks for; a trained model has
 * found such numbers itself.
 *
 * SPDX-License-Identifier: MIT */
#ifndef ATTN_SENTENCE_H
#define ATTN_SENTENCE_H

#include "attn.h"

/* Features of a word's vector x: what kind of word, what it means, where it stands. */
enum sentence_feature {
    ARTICLE,
    ADJECTIVE,
    NOUN,
    VERB,
    PRONOUN,
    CONJUNCTION,
    ANIMAL,
    THING,
    COSINE,
    SINE,
    X_DIM
};
/* Features that keys offer and queries ask for. */
enum sentence_key {
    K_ARTICLE,
    K_ADJECTIVE,
    K_NOUN,
    K_VERB,
    K_ANIMAL,
    K_THING,
    K_COSINE,
    K_SINE,
    QK_DIM
};
/* What a value tells. */
enum sentence_value { V_ANIMAL, V_THING, V_QUALITY, V_ACTION, V_DIM };

enum { WORDS = 10, WORD_IT = 9, WORD_FOX = 2, WORD_APPLE = 6 };

struct sentence {
    const char *words[WORDS];
    float x[WORDS][X_DIM];
    float q[WORDS][QK_DIM], k[WORDS][QK_DIM], v[WORDS][V_DIM];
};

/* "the quick fox found a red apple and ate it" */
void sentence_make(struct sentence *s);

/* The same up to word `from`; from there on words that say other things. */
void sentence_make_other(struct sentence *s, int from);

/* One head over the words; out is [WORDS][V_DIM]. */
attn_problem sentence_problem(const struct sentence *s, float *out);

#endif
