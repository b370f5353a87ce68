/* A sentence whose words are vectors, and the three linear maps that make q, k and v of them.
 *
 * Position p is the point (cos a p, sin a p): the product of two such points is cos a(p - p'),
 * which is largest where p = p', and a linear map can turn one, so that a query can ask for the
 * place half a step ahead.
 *
 * SPDX-License-Identifier: MIT */
#include "sentence.h"

#include <math.h>
#include <string.h>

#define STEP (3.14159265358979 / WORDS) /* the angle a between neighbours */
#define AHEAD (0.5 * STEP)

struct word {
    const char *text;
    enum sentence_feature kind;
    int meaning; /* ANIMAL, THING or -1 */
};

static const struct word words[WORDS] = {
    {"the", ARTICLE, -1},   {"quick", ADJECTIVE, -1}, {"fox", NOUN, ANIMAL},
    {"found", VERB, -1},    {"a", ARTICLE, -1},       {"red", ADJECTIVE, -1},
    {"apple", NOUN, THING}, {"and", CONJUNCTION, -1}, {"ate", VERB, -1},
    {"it", PRONOUN, -1},
};
static const struct word others[WORDS] = {
    {"old", ADJECTIVE, -1},   {"hens", NOUN, ANIMAL},   {"lay", VERB, -1},  {"an", ARTICLE, -1},
    {"egg", NOUN, THING},     {"but", CONJUNCTION, -1}, {"hide", VERB, -1}, {"that", PRONOUN, -1},
    {"small", ADJECTIVE, -1}, {"nest", NOUN, THING},
};

/* Rows are features of q, k and v, columns features of x. */
static float w_q[QK_DIM][X_DIM], w_k[QK_DIM][X_DIM], w_v[V_DIM][X_DIM];

static void make_maps(void) {
    /* What a word is looking for. */
    w_q[K_NOUN][ARTICLE] = 8;
    w_q[K_NOUN][ADJECTIVE] = 8;
    w_q[K_ADJECTIVE][NOUN] = 9; /* a noun its adjective and, less so, its article */
    w_q[K_ARTICLE][NOUN] = 6;
    w_q[K_ANIMAL][VERB] = 16;  /* a verb who does it */
    w_q[K_THING][PRONOUN] = 9; /* this pronoun a thing */
    w_q[K_VERB][CONJUNCTION] = 8;
    w_q[K_COSINE][COSINE] = w_q[K_SINE][SINE] = (float)(8 * cos(AHEAD));
    w_q[K_SINE][COSINE] = (float)(8 * sin(AHEAD));
    w_q[K_COSINE][SINE] = (float)(-8 * sin(AHEAD));
    /* What it is found by. */
    w_k[K_ARTICLE][ARTICLE] = w_k[K_ADJECTIVE][ADJECTIVE] = w_k[K_NOUN][NOUN] = 2;
    w_k[K_VERB][VERB] = w_k[K_ANIMAL][ANIMAL] = w_k[K_THING][THING] = 2;
    w_k[K_COSINE][COSINE] = w_k[K_SINE][SINE] = 2;
    /* What it has to say. */
    w_v[V_ANIMAL][ANIMAL] = w_v[V_THING][THING] = 1;
    w_v[V_QUALITY][ADJECTIVE] = w_v[V_ACTION][VERB] = 1;
}

static void map(const float *w, int rows, const float *x, float *y) {
    for (int r = 0; r < rows; r++) {
        y[r] = 0;
        for (int c = 0; c < X_DIM; c++)
            y[r] += w[r * X_DIM + c] * x[c];
    }
}

void sentence_make_other(struct sentence *s, int from) {
    memset(s, 0, sizeof *s);
    make_maps();
    for (int i = 0; i < WORDS; i++) {
        const struct word *word = i < from ? &words[i] : &others[i];
        float *x = s->x[i];
        s->words[i] = word->text;
        x[word->kind] = 1;
        if (word->meaning >= 0)
            x[word->meaning] = 1;
        x[COSINE] = (float)cos(STEP * i);
        x[SINE] = (float)sin(STEP * i);
        map(*w_q, QK_DIM, x, s->q[i]);
        map(*w_k, QK_DIM, x, s->k[i]);
        map(*w_v, V_DIM, x, s->v[i]);
    }
}

void sentence_make(struct sentence *s) { sentence_make_other(s, WORDS); }

attn_problem sentence_problem(const struct sentence *s, float *out) {
    return attn_problem_bhld(1, 1, 1, WORDS, WORDS, QK_DIM, V_DIM, *s->q, *s->k, *s->v, out);
}
