/* A layer of multi-head self-attention that learns to look back, forward and backward, with the
 * scale 1/sqrt(d_k) and without.
 *
 *     Q = X Wq,  K = X Wk,  V = X Wv,  Y = attention(Q, K, V) Wo
 *
 * The task: to say at each token which symbol stood BACK tokens before. X holds symbol and
 * position, one number each that is 1, and the symbols are drawn at random, so that a layer which
 * does not look back can only guess: a loss of log(SYMBOLS). Exit status 0 if with the scale it
 * learns and without it is left behind, from some d_k on.
 *
 * SPDX-License-Identifier: MIT */
#include <attn.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SYMBOLS = 8, TOKENS = 64, BACK = 4, BATCH = 4, HEADS = 2, V_DIM = 8 };
enum { MODEL = SYMBOLS + TOKENS, ROWS = BATCH * TOKENS, STEPS = 300, SHOWN = 6 };

static void *room_for(size_t n, size_t size) {
    void *p = calloc(n, size);
    if (!p) {
        fprintf(stderr, "not enough memory\n");
        exit(1);
    }
    return p;
}

static void stop_at(attn_status status) {
    if (status == ATTN_OK)
        return;
    fprintf(stderr, "%s\n", attn_status_string(status));
    exit(1);
}

/* ---- Random numbers -------------------------------------------------------------------------- */

static uint64_t state;

static double uniform(void) { /* in [0, 1) */
    state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
    return (double)((state * 0x2545f4914f6cdd1du) >> 11) * 0x1p-53;
}

/* Mean 0 and variance 1, and nearly normal: 12 uniform numbers have variance 12/12. */
static float normal(void) {
    double sum = -6;
    for (int i = 0; i < 12; i++)
        sum += uniform();
    return (float)sum;
}

/* ---- Linear maps ----------------------------------------------------------------------------- */

/* y[ROWS][out] = x[ROWS][in] w[in][out] */
struct linear {
    int in, out;
    float *w, *dw;
};

static struct linear linear_make(int in, int out, double sd) {
    const size_t n = (size_t)in * (size_t)out;
    struct linear l = {in, out, room_for(n, sizeof(float)), room_for(n, sizeof(float))};
    for (size_t i = 0; i < n; i++)
        l.w[i] = (float)sd * normal();
    return l;
}

static void linear_forward(const struct linear *l, const float *x, float *y) {
    memset(y, 0, sizeof(float) * ROWS * (size_t)l->out);
    for (int i = 0; i < ROWS; i++, x += l->in, y += l->out)
        for (int c = 0; c < l->in; c++)
            for (int u = 0; u < l->out && x[c] != 0; u++)
                y[u] += x[c] * l->w[c * l->out + u];
}

/* dw = x^T dy and, unless dx is null, dx = dy w^T. */
static void linear_backward(const struct linear *l, const float *x, const float *dy, float *dx) {
    memset(l->dw, 0, sizeof(float) * (size_t)l->in * (size_t)l->out);
    for (int i = 0; i < ROWS; i++, x += l->in, dy += l->out) {
        for (int c = 0; c < l->in; c++) {
            for (int u = 0; u < l->out && x[c] != 0; u++)
                l->dw[c * l->out + u] += x[c] * dy[u];
            float sum = 0;
            for (int u = 0; u < l->out && dx; u++)
                sum += dy[u] * l->w[c * l->out + u];
            if (dx)
                dx[i * l->in + c] = sum;
        }
    }
}

static void linear_descend(struct linear *l, float rate) {
    for (int i = 0; i < l->in * l->out; i++)
        l->w[i] -= rate * l->dw[i];
}

static void linear_free(struct linear *l) {
    free(l->w);
    free(l->dw);
}

/* ---- The layer ------------------------------------------------------------------------------- */

struct layer {
    struct linear wq, wk, wv, wo;
    float *q, *k, *v, *heads;     /* [BATCH, TOKENS, HEADS, d_k or V_DIM] */
    float *dq, *dk, *dv, *dheads; /* the gradient of the loss with respect to them */
    float *lse;                   /* [BATCH, TOKENS, HEADS] */
    attn_problem problem;
    attn_gradient gradient;
    void *workspace;
    size_t workspace_size;
};

static attn_input input(const float *data, int dim) {
    return (attn_input){.data = data,
                        .stride_batch = (int64_t)TOKENS * HEADS * dim,
                        .stride_token = (int64_t)HEADS * dim,
                        .stride_head = dim};
}

static attn_output output(float *data, int dim) {
    return (attn_output){.data = data,
                         .stride_batch = (int64_t)TOKENS * HEADS * dim,
                         .stride_token = (int64_t)HEADS * dim,
                         .stride_head = dim};
}

/* scale: null is 1/sqrt(d_k). */
static void layer_make(struct layer *l, int d_k, const float *scale) {
    /* A token has two numbers that are 1: weights of variance 1/2 make features of variance 1. */
    l->wq = linear_make(MODEL, HEADS * d_k, sqrt(0.5));
    l->wk = linear_make(MODEL, HEADS * d_k, sqrt(0.5));
    l->wv = linear_make(MODEL, HEADS * V_DIM, sqrt(0.5));
    l->wo = linear_make(HEADS * V_DIM, SYMBOLS, 1 / sqrt(HEADS * V_DIM));
    float **const wide[] = {&l->q, &l->k, &l->dq, &l->dk};
    float **const narrow[] = {&l->v, &l->heads, &l->dv, &l->dheads};
    for (int i = 0; i < 4; i++) {
        *wide[i] = room_for((size_t)ROWS * HEADS * (size_t)d_k, sizeof(float));
        *narrow[i] = room_for((size_t)ROWS * HEADS * V_DIM, sizeof(float));
    }
    l->lse = room_for((size_t)ROWS * HEADS, sizeof(float));

    attn_problem *p = &l->problem;
    *p = attn_problem_init();
    p->batch = BATCH, p->q_heads = p->kv_heads = HEADS, p->q_len = p->kv_cap = TOKENS;
    p->qk_dim = d_k, p->v_dim = V_DIM;
    p->q = input(l->q, d_k), p->k = input(l->k, d_k), p->v = input(l->v, V_DIM);
    p->out = output(l->heads, V_DIM), p->lse = output(l->lse, 1);
    p->causal = 1, p->scale = scale;

    attn_gradient *g = &l->gradient;
    *g = attn_gradient_init();
    g->dout = input(l->dheads, V_DIM);
    g->dq = output(l->dq, d_k), g->dk = output(l->dk, d_k), g->dv = output(l->dv, V_DIM);

    size_t forward, backward;
    stop_at(attn_workspace_size(p, 1, &forward));
    stop_at(attn_backward_workspace_size(p, g, 1, &backward));
    l->workspace_size = forward > backward ? forward : backward;
    l->workspace = room_for(l->workspace_size, 1);
}

static void layer_forward(struct layer *l, const float *x, float *y) {
    linear_forward(&l->wq, x, l->q);
    linear_forward(&l->wk, x, l->k);
    linear_forward(&l->wv, x, l->v);
    stop_at(attn_forward(&l->problem, l->workspace, l->workspace_size, NULL));
    linear_forward(&l->wo, l->heads, y);
}

/* X is data here: its own gradient, the sum of what the three maps would give, is not needed. */
static void layer_backward(struct layer *l, const float *x, const float *dy) {
    linear_backward(&l->wo, l->heads, dy, l->dheads);
    stop_at(attn_backward(&l->problem, &l->gradient, l->workspace, l->workspace_size, NULL));
    linear_backward(&l->wq, x, l->dq, NULL);
    linear_backward(&l->wk, x, l->dk, NULL);
    linear_backward(&l->wv, x, l->dv, NULL);
}

static void layer_free(struct layer *l) {
    struct linear *const maps[] = {&l->wq, &l->wk, &l->wv, &l->wo};
    float *const tensors[] = {l->q, l->k, l->v, l->heads, l->dq, l->dk, l->dv, l->lse, l->dheads};
    for (size_t i = 0; i < sizeof maps / sizeof maps[0]; i++)
        linear_free(maps[i]);
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++)
        free(tensors[i]);
    free(l->workspace);
}

/* ---- Learning -------------------------------------------------------------------------------- */

/* A new batch every step, so that there is nothing to learn by heart. */
static void draw_batch(int *symbols, float *x) {
    memset(x, 0, sizeof(float) * ROWS * MODEL);
    for (int i = 0; i < ROWS; i++) {
        symbols[i] = (int)(uniform() * SYMBOLS);
        x[i * MODEL + symbols[i]] = 1;
        x[i * MODEL + SYMBOLS + i % TOKENS] = 1;
    }
}

/* The mean cross entropy of y[ROWS][SYMBOLS], which becomes its own gradient: the softmax less 1 at
 * the right answer. The first BACK tokens have nothing to look back to. */
static double loss_of(const int *symbols, float *y) {
    const float answers = BATCH * (TOKENS - BACK);
    double loss = 0;
    for (int i = 0; i < ROWS; i++, y += SYMBOLS) {
        float weights[SYMBOLS];
        if (i % TOKENS < BACK) {
            memset(y, 0, sizeof weights);
            continue;
        }
        float largest = y[0], sum = 0;
        for (int c = 1; c < SYMBOLS; c++)
            largest = fmaxf(largest, y[c]);
        for (int c = 0; c < SYMBOLS; c++)
            sum += weights[c] = expf(y[c] - largest);
        loss += (double)(logf(sum) + largest - y[symbols[i - BACK]]) / (double)answers;
        for (int c = 0; c < SYMBOLS; c++)
            y[c] = (weights[c] / sum - (c == symbols[i - BACK])) / answers;
    }
    return loss;
}

/* Plain gradient descent. curve[s] is the mean loss of the s-th part of all steps. */
static void train(int d_k, const float *scale, float rate, double curve[SHOWN]) {
    static float x[ROWS * MODEL], y[ROWS * SYMBOLS];
    int symbols[ROWS];
    struct layer l;
    state = 7;
    layer_make(&l, d_k, scale);
    memset(curve, 0, SHOWN * sizeof *curve);
    for (int step = 0; step < STEPS; step++) {
        draw_batch(symbols, x);
        layer_forward(&l, x, y);
        curve[step * SHOWN / STEPS] += loss_of(symbols, y) * SHOWN / STEPS;
        layer_backward(&l, x, y);
        linear_descend(&l.wq, rate);
        linear_descend(&l.wk, rate);
        linear_descend(&l.wv, rate);
        linear_descend(&l.wo, rate);
    }
    layer_free(&l);
}

static void show(int d_k, const char *scale, float rate, const double curve[SHOWN]) {
    printf("%6d  %-10s %5g ", d_k, scale, (double)rate);
    for (int s = 0; s < SHOWN; s++)
        printf(" %7.3f", curve[s]);
    printf("\n");
}

int main(void) {
    static const int sizes[] = {16, 64, 256};
    static const float rates[] = {1, 4, 16}; /* without the scale the best of them counts */
    const float one = 1;
    int smallest = 0;
    printf("Which symbol stood %d tokens before? Guessing: %.3f. Mean loss of steps\n\n", BACK,
           log(SYMBOLS));
    printf("%6s  %-10s %5s ", "d_k", "scale", "rate");
    for (int s = 0; s < SHOWN; s++)
        printf(" %3d-%3d", s * STEPS / SHOWN + 1, (s + 1) * STEPS / SHOWN);
    printf("\n");
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        double scaled[SHOWN], best[SHOWN], best_rate = 0;
        train(sizes[i], NULL, 4, scaled);
        show(sizes[i], "1/sqrt(d)", 4, scaled);
        for (size_t j = 0; j < sizeof rates / sizeof rates[0]; j++) {
            double curve[SHOWN];
            train(sizes[i], &one, rates[j], curve);
            if (j && !(curve[SHOWN - 1] < best[SHOWN - 1]))
                continue;
            memcpy(best, curve, sizeof best);
            best_rate = (double)rates[j];
        }
        show(sizes[i], "1", (float)best_rate, best);
        const int learned = scaled[SHOWN - 1] < log(SYMBOLS) / 4;
        if (!smallest && learned && best[SHOWN - 1] > 2 * scaled[SHOWN - 1])
            smallest = sizes[i];
    }
    if (!smallest) {
        printf("\nThe scale makes no difference here.\n");
        return 1;
    }
    printf("\nFrom d_k = %d on, 1/sqrt(d_k) more than halves the loss that is left.\n", smallest);
    return 0;
}
