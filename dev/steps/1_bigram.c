// 1_bigram: the smallest language model. The next byte depends on the byte before it, and on nothing else.
//
// New: all of it: a text, a table of weights, a loss, its gradient, and steps down the gradient.
//
//     logits_t = W[x_t]                                   row x_t of W (256, 256)
//     L = 1/T sum_t -log softmax(logits_t)[x_(t+1)]       cross-entropy, in nats per byte
//     dL/dlogits_t = 1/T (softmax(logits_t) - onehot(x_(t+1)))
//     W -= lr dL/dW                                       SGD, one window of T bytes a step
//
// The invariant: no model of this kind has a smaller mean loss on a text than H(next | last), the entropy of the text's
// pairs of bytes, which the program finds by counting. The loss of the first step is log 256: all weights are zero.
//
//     build/stories --bytes 300000 --out runs/steps && make build/steps/1_bigram && build/steps/1_bigram runs/steps
//
// Loss: 2.501 nats per byte after 5000 steps; counting gives 2.427.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/disk.h"
#include "base/params.h"
#include "base/rng.h"
#include "ops/dev.h"

enum { V = 256, T = 64, STEPS = 5000, LAST = 100, SEED = 1337 };
static const float LR = 10;

typedef struct {
    Dev *dev; // the op table
    Params params; // the parameter table
    float *weight, *grad; // (params.n_elems), in the order of the table
    unsigned char *text;
    size_t n_text;
    int32_t token[T], target[T];
    X *logits;   // (T, V)
    float *loss; // (T)
} Trainer;

// ---- memory, arguments

static void *room(size_t n, size_t elem_bytes)
{
    void *p = calloc(n + 16, elem_bytes);
    if (!p) die("no memory for %zu elements", n);
    return p;
}

// A whole number among the arguments.
static long argument(int argc, char **argv, int i, long otherwise)
{
    if (i >= argc) return otherwise;
    char *end;
    long value = strtol(argv[i], &end, 10);
    if (*end || value < 1) die_usage("%s: argument %d: '%s' is not a number above 0", argv[0], i, argv[i]);
    return value;
}

// ---- data

static void read_text(Trainer *t, const char *dir)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/train.txt", dir);
    t->text = (unsigned char *)disk_read_file(path, &t->n_text, 1u << 30);
    if (!t->text || t->n_text <= T)
        die("%s: %zu bytes could be read (try build/stories --bytes 300000 --out %s)", path, t->n_text, dir);
}

// Sample s of the run: T bytes from a random place, and the bytes that follow each.
static void load_sample(Trainer *t, size_t s)
{
    size_t begin = rng_below(rng_make(SEED, "sample", 0), s, t->n_text - T);
    for (size_t i = 0; i < T; i++) {
        t->token[i] = t->text[begin + i];
        t->target[i] = t->text[begin + i + 1];
    }
}

// H(next | last) = - sum over pairs p(a, b) log p(b | a), in nats.
static double entropy_of_pairs(const Trainer *t)
{
    static double pair[V][V], last[V];
    double sum = 0, n = (double)t->n_text - 1;
    for (size_t i = 0; i + 1 < t->n_text; i++) pair[t->text[i]][t->text[i + 1]]++, last[t->text[i]]++;
    for (size_t a = 0; a < V; a++)
        for (size_t b = 0; b < V; b++)
            if (pair[a][b] > 0) sum -= pair[a][b] / n * log(pair[a][b] / last[a]);
    return sum;
}

// ---- the model

static void create_model(Trainer *t)
{
    params_add(&t->params, 0, "pairs.weight", 2, V, V, 0, 0, true, -1); // all zero
    t->weight = room(t->params.n_elems, sizeof(float));
    t->grad = room(t->params.n_elems, sizeof(float));
    params_init(&t->params, SEED, t->weight);
    t->logits = room(T * V, sizeof(float));
    t->loss = room(T, sizeof(float));
}

static void forward(Trainer *t)
{
    t->dev->embed_forward(t->dev, t->logits, t->token, NULL, (X *)t->weight, NULL, T, V);
}

// Adds the gradient of the loss times `scale`; returns the sum of the losses.
static double backward(Trainer *t, float scale)
{
    Dev *dev = t->dev;
    X *dlogits = t->logits; // in place
    dev->softmax_xent(dev, t->loss, dlogits, t->logits, t->target, T, V, scale, 0);
    dev->embed_backward(dev, t->grad, NULL, dlogits, t->token, NULL, T, V, V);
    double sum = 0;
    for (size_t i = 0; i < T; i++) sum += t->loss[i];
    return sum;
}

// ---- a step

static double train_step(Trainer *t, long step)
{
    load_sample(t, (size_t)step);
    forward(t);
    double loss = backward(t, 1.0f / T);
    t->dev->update(t->dev, OPTIM_SGD, t->weight, NULL, NULL, t->grad, t->params.n_elems,
                   (Update){.lr = LR, .grad_scale = 1});
    return loss / T;
}

int main(int argc, char **argv)
{
    if (argc < 2 || argc > 3) die_usage("usage: 1_bigram DIR [STEPS]    DIR/train.txt: the text");
    static Trainer t;
    long steps = argument(argc, argv, 2, STEPS);
    t.dev = dev_cpu_create(1);
    read_text(&t, argv[1]);
    create_model(&t);
    printf("%zu parameters, %zu bytes of text\n", t.params.n_elems, t.n_text);

    double mean = 0;
    for (long step = 0; step < steps; step++) {
        double loss = train_step(&t, step);
        if (step < 3 || step % 20 == 19 || step == steps - 1) printf("step %4ld  loss %.9g\n", step + 1, loss);
        if (step >= steps - LAST) mean += loss / (double)(steps < LAST ? steps : LAST);
    }
    printf("counted %.4f\n", entropy_of_pairs(&t));
    printf("final %.4f (mean of the last %d steps)\n", mean, LAST);
    dev_cpu_free(t.dev);
    return 0;
}
