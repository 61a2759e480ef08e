// The trainer in steps: nine programs in one source. `make steps` writes them, from build/steps/1_bigram.c on,
// each complete and without the marks below (doc/steps.md). Read those; change this.
//
// A line "//@ 3-6,9" begins the lines that programs 3 to 6 and 9 have, "//@" those that all have. What stands before the
// first mark is in none.
//@ 1
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
//@ 2
// 2_attention: a transformer. The next byte depends on all bytes before it in the window.
//
// New: blocks with causal attention and a feed-forward network, on a residual stream x (T, C), and their backward:
//
//     x_0 = tokens[x_t] + positions[t]
//     r_l = x_l + out(attention(qkv(norm(x_l)))),   x_(l+1) = r_l + down(relu(up(norm(r_l)))^2)
//     logits = head(norm(x_L))
//
// Matrices are three loops here, in the entries of the op table that 5_threads leaves to the device. out = x W^T has
// dx = dout W and dW += dout^T x. The other ops are those of the table, each with its backward beside it in ops/dev.h.
//
// The invariant: backward differentiates forward line by line, last line first. A residual x + f(x) has the gradient
// d + f'(x) d: the stream's gradient passes on unchanged, and the branch adds its own to it.
//
//     make build/steps/2_attention && build/steps/2_attention runs/steps
//
// Loss: 2.382 nats per byte after 4000 steps of one window. No table of pairs gets below 2.427 (1_bigram).
//@ 3
// 3_adamw: a batch for each step, and an update that knows how large each weight's gradient usually is.
//
// New: a step takes 8 sequences; AdamW with a warm-up replaces SGD:
//
//     m = b1 m + (1 - b1) g,  v = b2 v + (1 - b2) g^2         means, corrected by 1 / (1 - b^step)
//     w -= lr (m / (sqrt(v) + eps) + decay w)                 decay of matrices alone
//     lr = LR min(1, (step + 1) / WARMUP)
//
// The loss is the mean over all tokens of the batch, so each sequence's gradient is scaled by 1 / (sequences T).
//
// The invariant: the gradients of sequences are added in one binary tree, ((g0 + g1) + (g2 + g3)) + ... An addition of
// floating-point numbers rounds, so another order gives other bits. The tree is what several ranks can build together:
// 7_ddp relies on it.
//
//     make build/steps/3_adamw && build/steps/3_adamw runs/steps
//
// Loss: 2.328 nats per byte after 500 steps of 512 bytes: the windows that 2_attention read.
//@ 4
// 4_bpe: tokens of several bytes, learned from the text, in place of bytes.
//
// New: byte pair encoding and a token shard. A tokenizer begins with the 256 bytes as its tokens. While it has fewer
// than V it joins the pair of neighbours that the text has most often:
//
//     (a, b) = argmax count(a b),  new token ab, and every a b becomes ab
//
// The tokens go into a file; each document begins with <|endoftext|>. Tokenizer, shard and order are the trainer's.
//
// The invariant: decoding gives the same bytes, so a loss has two units:  bits per byte = nats per token * tokens /
// bytes / log 2. Only the second compares with a model of bytes, or of another vocabulary.
//
//     make build/steps/4_bpe && build/steps/4_bpe runs/steps        (writes tokenizer.json and tokens.bin there too)
//
// Loss: 3.489 nats per token after 300 steps = 2.369 bits per byte = 1.642 nats per byte.
//@ 5
// 5_threads: the same program on all cores, with a fast matrix product.
//
// New: nothing that it computes. The three loops are gone: the device's own entries cut a product into tiles, give the
// tiles to threads (OpenMP), and each thread calls OpenBLAS' kernel (or, for small products, src/ops/gemm.c) for its
// tile. A tile's sums have 2 m n k operations for (m + n) k numbers read, so large tiles keep the multipliers busy.
//
// The invariant: a sum belongs to one thread, whatever their number, so the number of threads changes no bit.
// (The tiles add in another order than three loops: against 4_bpe the loss of a step differs by rounding.) An error of
// one rounding is 6e-8 of a value, and a sum of n terms in any order has at most n of them.
//
//     make build/steps/5_threads && build/steps/5_threads runs/steps
//
// Loss: 3.489 nats per token after 300 steps.
//@ 6
// 6_bf16: half the memory for weights and activations, and activations of one block instead of all.
//
// New: bf16 storage. X is now 2 bytes: 8 bits of exponent, as fp32 has, and 8 bits of precision. Every op computes in
// fp32 and rounds what it stores (src/narrow/narrow.h). Weights are kept twice: fp32 masters, which the update changes,
// and x_weight = round(master), which the ops read. A step of lr 3e-3 is often below half a unit of a bf16 weight, so
// without masters it would be lost:  round(w + d) = w  when |d| < 2^-9 |w|.
//
// And recomputation: a block saves its input alone, and backward runs its forward again before it:
//
//     memory  LAYERS saved + LAYERS inputs  ->  1 saved + LAYERS inputs          for one more forward pass
//
// The invariant: gradients, moments and losses stay fp32, and what is computed again has the same bits.
//
//     make build/steps/6_bf16 && build/steps/6_bf16 runs/steps
//
// Loss: 3.480 nats per token after 300 steps: that of 5_threads, but for rounding.
//@ 7
// 7_ddp: several processes, each with the whole model and a part of every batch.
//
// New: data parallelism. Of R ranks, rank r takes sequences [r n / R, (r + 1) n / R) of a step's n. Then
//
//     grad = sum over ranks of grad_r        one all_reduce of (parameters) fp32 numbers a step
//
// and every rank makes the same update from the same gradient, so the weights stay equal and are never sent. Losses go
// into a table of all sequences, in which a rank leaves 0 for those of others; the sum over ranks is the whole table.
//
// The invariant: R ranks have the bits of one. A rank's sequences are a whole subtree of 3_adamw's tree, and an ordered
// all_reduce adds the ranks in the tree that is above them (src/comm/comm.h). The gradient's scale is 1 / tokens of the
// whole batch, on every rank: a mean of the ranks' means would be the same only as long as all have as many tokens.
//
// The tokens are those that 6_bf16 wrote: one process makes them, all read them.
//
//     make build/steps/7_ddp && mpiexec -n 2 build/steps/7_ddp runs/steps
//
// Loss: 3.480 nats per token after 300 steps, on 1, 2 and 4 ranks the bits of 6_bf16.
//@ 8
// 8_zero_tp: no rank holds all of the optimizer's state, and no rank holds all of a matrix.
//
// New: ZeRO-1. Every rank of a data-parallel group held the same masters and moments (12 bytes a parameter). Now each
// holds 1/dp of the flat range, and updates that alone; as much is sent as before, for an all_reduce is both of these:
//
//     reduce_scatter(grad) -> update of the own shard -> all_gather(x_weight), which is bf16
//
// And tensor parallelism (Megatron). Of tp ranks each holds HEADS / tp heads and F / tp channels: rows of q, k, v, up,
// and columns of out, down. The sum over columns is completed by an all_reduce of (T, C); backward has one where the
// gradient leaves q, k, v and up. Embedding, norms and head are whole on each, and computed alike.
//
// The invariant: rank = dp TP + tp. ZeRO and dp change no bit. With tp each rank's part of a sum is rounded to bf16, by
// 2^-8 of it at most, before the parts are added, and nothing else differs.
//
//     make build/steps/8_zero_tp && mpiexec -n 4 build/steps/8_zero_tp runs/steps 300 8 2          (tp = 2, so dp = 2)
//
// Loss: 3.480 nats per token after 300 steps; tp = 1: on 1, 2 and 4 ranks the bits of 6_bf16.
//@ 9
// 9_pipeline: no rank holds all of the layers.
//
// New: a pipeline, in the order 1F1B. Each of pp stages holds LAYERS / pp blocks, the first also the embedding, the
// last the head. A sequence is a micro-batch: F is its forward pass through a stage, B its backward. Stage s does F of
// pp - 1 - s sequences ahead, then F and B in turn:
//
//     stage 0 of 2    F0 F1 B0 F2 B1 F3 B2 B3       has pp - s sequences between F and B, however many a step has
//     stage 1 of 2       F0 B0 F1 B1 F2 B2 F3 B3    waits (pp - 1) / (m + pp - 1) of the time, for m sequences
//
// The stream (T, C) goes to the next stage, its gradient to the one before. A stage waits for what it receives at once,
// for what it sends only before it writes there again: two stages that wait until the other has received wait forever.
//
// The invariant: rank = dp PP + pp. A stage does B in the order of the sequences, so its tree of gradients is that of
// one process, and stages change no bit. ZeRO-1 divides a stage's parameters over its dp ranks. Tensor parallelism is
// left out for length: it is inside a block, and stages are cut between blocks.
//
//     make build/steps/9_pipeline && mpiexec -n 4 build/steps/9_pipeline runs/steps 300 8 2         (pp = 2, so dp = 2)
//
// Loss: 3.480 nats per token after 300 steps; on 1, 2 and 4 stages the bits of 6_bf16, with dp too.
//@
#include <math.h>
//@ 5-9
#include <omp.h>
//@
#include <stdio.h>
#include <stdlib.h>
//@ 2-6
#include <string.h>
//@

#include "base/check.h"
//@ 1-6
#include "base/disk.h"
//@
#include "base/params.h"
//@ 1-6
#include "base/rng.h"
//@ 1-4
#include "ops/dev.h"
//@ 7-9
#include "comm/launch.h"
//@ 8-9
#include "parallel/mesh.h"
//@ 5-9
#include "ops/dev_cpu.h"
//@ 6-9
#include "narrow/narrow.h"
//@ 4-9
#include "text/dataset.h"
//@ 4-6
#include "tokenizer/tokenizer.h"
//@

//@ 1
enum { V = 256, T = 64, STEPS = 5000, LAST = 100, SEED = 1337 };
static const float LR = 10;
//@ 2
enum { V = 256, T = 64, LAYERS = 4, C = 32, HEADS = 4, F = 4 * C, STEPS = 4000, LAST = 100, SEED = 1337 };
static const float LR = 0.1f, EPS = 1e-5f;
//@ 3
enum { V = 256, T = 64, LAYERS = 4, C = 32, HEADS = 4, F = 4 * C, SEQUENCES = 8, LEVELS = 8,
       STEPS = 500, WARMUP = 20, LAST = 20, SEED = 1337 };
//@ 4-9
enum { V = 512, T = 64, LAYERS = 4, C = 32, HEADS = 4, F = 4 * C, SEQUENCES = 8, LEVELS = 8,
       STEPS = 300, WARMUP = 20, LAST = 20, SEED = 1337 };
//@ 3-9
static const double LR = 0.003;
static const float EPS = 1e-5f;
//@ 2-9

// What the forward pass of a block leaves for its backward.
typedef struct {
    X *norm1, *qkv, *attn, *resid, *norm2, *pre, *act; // (T, C), (T, 3 C), (T, C), (T, C), (T, C), (T, F), (T, F)
    float *rstd1, *rstd2, *lse;                        // (T), (T), (HEADS, T)
} Saved;
//@

typedef struct {
    Dev *dev; // the op table
    Params params; // the parameter table
//@ 1-2
    float *weight, *grad; // (params.n_elems), in the order of the table
//@ 3-7
    float *weight, *grad, *m, *v; // (params.n_elems), in the order of the table
//@ 8-9
    float *grad;            // (params.n_elems), in the order of the table
    float *weight, *m, *v;  // elements [begin, end) of it
//@ 6-9
    X *x_weight;                  // the same weights as the ops read them
//@ 3-9
    float *tree[LEVELS];          // gradients of 1, 2, 4, ... sequences that wait for as many others
    size_t sequences;             // of a step
//@ 1-3
    unsigned char *text;
    size_t n_text;
//@ 1
    int32_t token[T], target[T];
    X *logits;   // (T, V)
    float *loss; // (T)
//@ 4-9
    Dataset *data;
//@ 4-6
    size_t n_text; // bytes
//@ 7
    Comm *world;
//@ 8
    Comm *world, *dp, *tp;
//@ 9
    Comm *world, *dp, *pp;
//@ 8-9
    size_t counts[64], begin, end; // elements of each rank of dp; of this one
//@ 8
    size_t width, ffn;             // this rank's part of C channels of heads, of F
//@ 2-9
    int32_t token[T], target[T], pos[T];
//@ 2-8
    X *stream[LAYERS + 1]; // (T, C) inputs of the blocks and of the head
//@ 2-5
    Saved saved[LAYERS];
//@ 9
    int layer, end_layer, ahead; // this stage's blocks [layer, end_layer); sequences whose F it does ahead
    X *stream[LAYERS][LAYERS + 1]; // (T, C) for each sequence between F and B: inputs of the blocks and of the head
    CommRequest sent[LAYERS], sent_back; // to the next stage: each sequence's output; to the one before: a gradient
//@ 6-9
    Saved saved; // of one block
//@ 2-9
    X *branch, *wide, *dstream, *dbranch; // (T, C), (T, 3 C or F), (T, C), (T, C)
    X *norm, *logits;                     // (T, C), (T, V)
    float *rstd, *loss;                   // (T)
//@
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

//@ 2-4
// ---- matrices: weight (OC, IN), inp (N, IN), out (N, OC)

static void matmul_forward(Dev *dev, X *out, const X *inp, const X *weight, const X *bias, size_t N, size_t IN,
                           size_t OC, int site)
{
    (void)dev, (void)bias, (void)site;
    const float *x = (const float *)inp, *w = (const float *)weight;
    for (size_t n = 0; n < N; n++)
        for (size_t o = 0; o < OC; o++) {
            float sum = 0;
#pragma omp simd reduction(+ : sum)
            for (size_t c = 0; c < IN; c++) sum += x[n * IN + c] * w[o * IN + c];
            ((float *)out)[n * OC + o] = sum;
        }
}

static void matmul_backward_input(Dev *dev, X *dinp, const X *dout, const X *weight, size_t N, size_t IN, size_t OC,
                                  int site)
{
    (void)dev, (void)site;
    const float *d = (const float *)dout, *w = (const float *)weight;
    memset(dinp, 0, N * IN * sizeof(float));
    for (size_t n = 0; n < N; n++)
        for (size_t o = 0; o < OC; o++)
            for (size_t c = 0; c < IN; c++) ((float *)dinp)[n * IN + c] += d[n * OC + o] * w[o * IN + c];
}

static void matmul_backward_weight(Dev *dev, float *dweight, float *dbias, const X *dout, const X *inp, size_t N,
                                   size_t IN, size_t OC, int site)
{
    (void)dev, (void)dbias, (void)site;
    const float *d = (const float *)dout, *x = (const float *)inp;
    for (size_t n = 0; n < N; n++)
        for (size_t o = 0; o < OC; o++)
            for (size_t c = 0; c < IN; c++) dweight[o * IN + c] += d[n * OC + o] * x[n * IN + c];
}

//@ 1-8
// ---- data

//@ 1-3
static void read_text(Trainer *t, const char *dir)
//@ 4-6
// Learns a vocabulary from the documents of DIR/train.txt, writes and opens DIR/tokens.bin.
static void open_data(Trainer *t, const char *dir)
//@ 1-6
{
    char path[4096];
    snprintf(path, sizeof path, "%s/train.txt", dir);
//@ 1-3
    t->text = (unsigned char *)disk_read_file(path, &t->n_text, 1u << 30);
    if (!t->text || t->n_text <= T)
        die("%s: %zu bytes could be read (try build/stories --bytes 300000 --out %s)", path, t->n_text, dir);
//@ 4-6
    char *text = disk_read_file(path, &t->n_text, 1u << 30);
    if (!text) die("%s: cannot be read (try build/stories --bytes 300000 --out %s)", path, dir);
    TokenizerTrainer *trainer = tokenizer_trainer_new("gpt2");
    Tokenizer *tokenizer = NULL;
    TokenIds ids = {0};
    for (int pass = 0; pass < 2; pass++) { // learn, then encode
        for (char *doc = text, *end; (end = strstr(doc, TOKENIZER_EOT)); doc = end + strlen(TOKENIZER_EOT)) {
            size_t n = (size_t)(end - doc);
            if (pass == 0) tokenizer_trainer_add(trainer, doc, n);
            if (pass == 1) token_ids_push(&ids, tokenizer_eot(tokenizer)), tokenizer_encode(tokenizer, doc, n, &ids);
        }
        if (pass == 0) tokenizer = tokenizer_trainer_finish(trainer, V);
    }
    if (tokenizer_vocab_size(tokenizer) != V) die("%s: too short for %d tokens", path, V);
    tokenizer_save(tokenizer, dir);
    snprintf(path, sizeof path, "%s/tokens.bin", dir);
    DatasetWriter *writer = dataset_writer_open(path, V, DATASET_AUTO);
    dataset_writer_append(writer, ids.id, ids.n);
    dataset_writer_finish(writer);
    token_ids_free(&ids), tokenizer_free(tokenizer), free(text);
    t->data = dataset_open(path, V);
//@ 1-6
}

//@ 1-3
// Sample s of the run: T bytes from a random place, and the bytes that follow each.
//@ 4-8
// Sample s of the run: a window of T tokens, and the token that follows each.
//@ 1-8
static void load_sample(Trainer *t, size_t s)
{
//@ 1-3
    size_t begin = rng_below(rng_make(SEED, "sample", 0), s, t->n_text - T);
    for (size_t i = 0; i < T; i++) {
        t->token[i] = t->text[begin + i];
        t->target[i] = t->text[begin + i + 1];
    }
//@ 4-8
    dataset_window(t->data, (int64_t)s, T, SEED, true, t->token, t->target);
//@ 1-8
}

//@ 1
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

//@ 8
// ---- ranks

static void sum_ranks(Comm *ranks, void *x, size_t n, CommType type)
{
    CommRequest request = comm_all_reduce(ranks, x, x, n, type, COMM_SUM);
    comm_wait(ranks, &request);
}

//@
// ---- the model

//@ 2-7,9
static void add_matrix(Trainer *t, int unit, const char *name, size_t out, size_t in, float std)
//@ 8
// cut 0, 1: this rank's rows or columns of the matrix; -1: all
static void add_matrix(Trainer *t, int unit, const char *name, size_t out, size_t in, float std, int cut)
//@ 2-9
{
//@ 2-7,9
    params_add(&t->params, unit, name, 2, out, in, 0, std, true, -1);
//@ 8
    size_t dim[] = {out, in}, tp = (size_t)t->tp->size;
    if (cut >= 0) dim[cut] /= tp;
    int added = params_add(&t->params, unit, name, 2, dim[0], dim[1], 0, std, true, cut); // moves all rows
    Param *row = &t->params.row[added];
    if (cut >= 0) row->whole[cut] = dim[cut] * tp, row->first = dim[cut] * (size_t)t->tp->rank;
//@ 2-9
}

static void add_norm(Trainer *t, int unit, const char *name)
{
    params_add(&t->params, unit, name, 1, C, 0, 1, 0, false, -1);
}

// Where a tensor begins, by its name; layer -1: it is in none.
static size_t offset(const Trainer *t, int layer, const char *name)
{
    char full[PARAM_NAME];
    if (layer < 0) snprintf(full, sizeof full, "%s", name);
    else snprintf(full, sizeof full, "layers.%d.%s", layer, name);
    int row = params_find(&t->params, full);
    check(row >= 0);
    return t->params.row[row].offset;
}

static X *weight(const Trainer *t, int layer, const char *name)
{
//@ 2-5
    return (X *)(t->weight + offset(t, layer, name));
//@ 6-9
    return (X *)((char *)t->x_weight + offset(t, layer, name) * t->dev->x_bytes);
//@ 2-9
}

static float *grad(const Trainer *t, int layer, const char *name)
{
    return t->grad + offset(t, layer, name);
}

// Names and initial weights are the trainer's (src/net/model_table.c).
static void describe_model(Trainer *t)
{
    float std = 0.02f, std_out = 0.02f / sqrtf(2.0f * LAYERS); // into the stream, to which 2 LAYERS branches are added
//@ 2-7
    add_matrix(t, 0, "embed.tokens.weight", V, C, std);
    add_matrix(t, 0, "embed.positions.weight", T, C, std);
//@ 8
    add_matrix(t, 0, "embed.tokens.weight", V, C, std, -1);
    add_matrix(t, 0, "embed.positions.weight", T, C, std, -1);
//@ 2-8
    for (int l = 0; l < LAYERS; l++) {
//@ 9
    if (t->layer == 0) add_matrix(t, 0, "embed.tokens.weight", V, C, std);
    if (t->layer == 0) add_matrix(t, 0, "embed.positions.weight", T, C, std);
    for (int l = t->layer; l < t->end_layer; l++) {
//@ 2-9
        char name[PARAM_NAME];
#define NAME(end) (snprintf(name, sizeof name, "layers.%d." end, l), name)
        add_norm(t, 1 + l, NAME("attn_norm.weight"));
//@ 2-7,9
        add_matrix(t, 1 + l, NAME("attn.q.weight"), C, C, std); // q, k, v: neighbours, so one matrix (3 C, C)
        add_matrix(t, 1 + l, NAME("attn.k.weight"), C, C, std);
        add_matrix(t, 1 + l, NAME("attn.v.weight"), C, C, std);
        add_matrix(t, 1 + l, NAME("attn.out.weight"), C, C, std_out);
//@ 8
        add_matrix(t, 1 + l, NAME("attn.q.weight"), C, C, std, 0); // q, k, v: neighbours, so one matrix (3 C, C)
        add_matrix(t, 1 + l, NAME("attn.k.weight"), C, C, std, 0);
        add_matrix(t, 1 + l, NAME("attn.v.weight"), C, C, std, 0);
        add_matrix(t, 1 + l, NAME("attn.out.weight"), C, C, std_out, 1);
//@ 2-9
        add_norm(t, 1 + l, NAME("ffn_norm.weight"));
//@ 2-7,9
        add_matrix(t, 1 + l, NAME("ffn.up.weight"), F, C, std);
        add_matrix(t, 1 + l, NAME("ffn.down.weight"), C, F, std_out);
//@ 8
        add_matrix(t, 1 + l, NAME("ffn.up.weight"), F, C, std, 0);
        add_matrix(t, 1 + l, NAME("ffn.down.weight"), C, F, std_out, 1);
//@ 2-9
    }
//@ 2-8
    add_norm(t, 1 + LAYERS, "final_norm.weight");
//@ 2-7
    add_matrix(t, 1 + LAYERS, "head.weight", V, C, std);
//@ 8
    add_matrix(t, 1 + LAYERS, "head.weight", V, C, std, -1);
//@ 9
    if (t->end_layer == LAYERS) add_norm(t, 1 + LAYERS, "final_norm.weight");
    if (t->end_layer == LAYERS) add_matrix(t, 1 + LAYERS, "head.weight", V, C, std);
//@ 2-9
}

static Saved create_saved(const Trainer *t)
{
    size_t x = t->dev->x_bytes, f = sizeof(float);
    return (Saved){.norm1 = room(T * C, x), .qkv = room(T * 3 * C, x), .attn = room(T * C, x), .resid = room(T * C, x),
                   .norm2 = room(T * C, x), .pre = room(T * F, x), .act = room(T * F, x), .rstd1 = room(T, f),
                   .rstd2 = room(T, f), .lse = room(HEADS * T, f)};
}

//@ 8-9
static void gather_weights(Trainer *t)
{
    X *own = (X *)((char *)t->x_weight + t->begin * t->dev->x_bytes);
    t->dev->to_x(t->dev, own, t->weight, t->end - t->begin);
    CommRequest request = comm_all_gather(t->dp, t->x_weight, own, t->counts, comm_type_of(t->dev->x_type));
    comm_wait(t->dp, &request);
}

//@
static void create_model(Trainer *t)
{
//@ 1
    params_add(&t->params, 0, "pairs.weight", 2, V, V, 0, 0, true, -1); // all zero
//@ 2-9
    size_t x = t->dev->x_bytes;
    describe_model(t);
//@ 1-7
    t->weight = room(t->params.n_elems, sizeof(float));
//@ 8-9
    comm_even(t->counts, t->params.n_elems, t->dp->size);
    for (int r = 0; r < t->dp->rank; r++) t->begin += t->counts[r];
    t->end = t->begin + t->counts[t->dp->rank];
    t->weight = room(t->end - t->begin, sizeof(float));
//@
    t->grad = room(t->params.n_elems, sizeof(float));
//@ 3-7
    t->m = room(t->params.n_elems, sizeof(float)), t->v = room(t->params.n_elems, sizeof(float));
//@ 8-9
    t->m = room(t->end - t->begin, sizeof(float)), t->v = room(t->end - t->begin, sizeof(float));
//@ 3-9
    for (int k = 0; k < LEVELS; k++) t->tree[k] = room(t->params.n_elems, sizeof(float));
//@ 6-9
    t->x_weight = room(t->params.n_elems, x);
//@ 1-7
    params_init(&t->params, SEED, t->weight);
//@ 1
    t->logits = room(T * V, sizeof(float));
    t->loss = room(T, sizeof(float));
//@ 6-7
    t->dev->to_x(t->dev, t->x_weight, t->weight, t->params.n_elems);
//@ 8-9
    params_init_range(&t->params, SEED, t->begin, t->end, t->weight);
    gather_weights(t);
//@ 2-8
    for (int l = 0; l <= LAYERS; l++) t->stream[l] = room(T * C, x);
//@ 2-5
    for (int l = 0; l < LAYERS; l++) t->saved[l] = create_saved(t);
//@ 9
    for (int i = 0; i <= t->ahead; i++)
        for (int l = t->layer; l <= t->end_layer; l++) t->stream[i][l] = room(T * C, x);
//@ 6-9
    t->saved = create_saved(t);
//@ 2-9
    t->branch = room(T * C, x), t->wide = room(T * F, x); // F > 3 C
    t->dstream = room(T * C, x), t->dbranch = room(T * C, x);
    t->norm = room(T * C, x), t->logits = room(T * V, x);
    t->rstd = room(T, sizeof(float)), t->loss = room(T, sizeof(float));
    for (int i = 0; i < T; i++) t->pos[i] = i;
}

static void matrix(Trainer *t, X *out, const X *inp, int layer, const char *name, size_t in, size_t width)
{
    t->dev->matmul_forward(t->dev, out, inp, weight(t, layer, name), NULL, T, in, width, -1);
}

static void matrix_backward(Trainer *t, X *dinp, const X *dout, const X *inp, int layer, const char *name, size_t in,
                            size_t width)
{
    t->dev->matmul_backward_weight(t->dev, grad(t, layer, name), NULL, dout, inp, T, in, width, -1);
    t->dev->matmul_backward_input(t->dev, dinp, dout, weight(t, layer, name), T, in, width, -1);
}

// sum = a + b, out = norm(sum); b NULL: out = norm(a)
static void norm(Trainer *t, X *out, X *sum, float *rstd, const X *a, const X *b, int layer, const char *name)
{
    t->dev->norm_forward(t->dev, out, sum, NULL, rstd, a, b, weight(t, layer, name), NULL, T, C, NORM_RMSNORM, EPS);
}

// dstream (NULL: it begins here) += the norm's gradient
static void norm_backward(Trainer *t, const X *dresid, const X *inp, const float *rstd, int layer, const char *name)
{
    t->dev->norm_backward(t->dev, t->dstream, grad(t, layer, name), NULL, t->dbranch, dresid, inp, NULL, rstd,
                          weight(t, layer, name), T, C, NORM_RMSNORM);
}

//@ 2-7
// A part of packed rows (T, 3 C): 0 q, 1 k, 2 v.
//@ 2-9
static X *part(const Trainer *t, X *qkv, size_t i)
{
//@ 2-7,9
    return (X *)((char *)qkv + i * C * t->dev->x_bytes);
//@ 8
    return (X *)((char *)qkv + i * t->width * t->dev->x_bytes);
//@ 2-9
}

//@ 2-7,9
static AttnShape attention_shape(void)
//@ 8
static AttnShape attention_shape(const Trainer *t)
//@ 2-9
{
//@ 2-7,9
    return (AttnShape){.B = 1, .Tq = T, .Tk = T, .H = HEADS, .G = HEADS, .D = C / HEADS, .ldq = 3 * C, .ldkv = 3 * C};
//@ 8
    size_t D = C / HEADS, H = t->width / D, ld = 3 * t->width;
    return (AttnShape){.B = 1, .Tq = T, .Tk = T, .H = H, .G = H, .D = D, .ldq = ld, .ldkv = ld};
}

static void complete(Trainer *t, X *x)
{
    sum_ranks(t->tp, x, T * C, comm_type_of(t->dev->x_type));
//@ 2-9
}

static void block_forward(Trainer *t, int l, X *out, const X *inp, Saved *s)
{
    Dev *dev = t->dev;
    norm(t, s->norm1, NULL, s->rstd1, inp, NULL, l, "attn_norm.weight");
//@ 2-7,9
    matrix(t, s->qkv, s->norm1, l, "attn.q.weight", C, 3 * C);
//@ 8
    matrix(t, s->qkv, s->norm1, l, "attn.q.weight", C, 3 * t->width);
//@ 2-9
    dev->attention_forward(dev, s->attn, s->lse, part(t, s->qkv, 0), part(t, s->qkv, 1), part(t, s->qkv, 2),
//@ 2-7,9
                           attention_shape());
    matrix(t, t->branch, s->attn, l, "attn.out.weight", C, C);
//@ 8
                           attention_shape(t));
    matrix(t, t->branch, s->attn, l, "attn.out.weight", t->width, C);
    complete(t, t->branch);
//@ 2-9
    norm(t, s->norm2, s->resid, s->rstd2, inp, t->branch, l, "ffn_norm.weight");
//@ 2-7,9
    matrix(t, s->pre, s->norm2, l, "ffn.up.weight", C, F);
    dev->act_forward(dev, s->act, s->pre, T * F, ACT_RELU2);
    matrix(t, t->branch, s->act, l, "ffn.down.weight", F, C);
//@ 8
    matrix(t, s->pre, s->norm2, l, "ffn.up.weight", C, t->ffn);
    dev->act_forward(dev, s->act, s->pre, T * t->ffn, ACT_RELU2);
    matrix(t, t->branch, s->act, l, "ffn.down.weight", t->ffn, C);
    complete(t, t->branch);
//@ 2-9
    dev->add(dev, out, s->resid, t->branch, T * C);
}

// dstream: the gradient of the block's output on entry, of its input on return.
static void block_backward(Trainer *t, int l, const X *inp, Saved *s)
{
    Dev *dev = t->dev;
    X *wide = t->wide, *dbranch = t->dbranch;
//@ 2-7,9
    matrix_backward(t, wide, t->dstream, s->act, l, "ffn.down.weight", F, C);
    dev->act_backward(dev, wide, wide, s->pre, T * F, ACT_RELU2);
    matrix_backward(t, dbranch, wide, s->norm2, l, "ffn.up.weight", C, F);
//@ 8
    matrix_backward(t, wide, t->dstream, s->act, l, "ffn.down.weight", t->ffn, C);
    dev->act_backward(dev, wide, wide, s->pre, T * t->ffn, ACT_RELU2);
    matrix_backward(t, dbranch, wide, s->norm2, l, "ffn.up.weight", C, t->ffn);
    complete(t, dbranch);
//@ 2-9
    norm_backward(t, t->dstream, s->resid, s->rstd2, l, "ffn_norm.weight");
//@ 2-7,9
    matrix_backward(t, dbranch, t->dstream, s->attn, l, "attn.out.weight", C, C);
//@ 8
    matrix_backward(t, dbranch, t->dstream, s->attn, l, "attn.out.weight", t->width, C);
//@ 2-9
    dev->attention_backward(dev, part(t, wide, 0), part(t, wide, 1), part(t, wide, 2), dbranch, s->attn, s->lse,
//@ 2-7,9
                            part(t, s->qkv, 0), part(t, s->qkv, 1), part(t, s->qkv, 2), attention_shape());
    matrix_backward(t, dbranch, wide, s->norm1, l, "attn.q.weight", C, 3 * C);
//@ 8
                            part(t, s->qkv, 0), part(t, s->qkv, 1), part(t, s->qkv, 2), attention_shape(t));
    matrix_backward(t, dbranch, wide, s->norm1, l, "attn.q.weight", C, 3 * t->width);
    complete(t, dbranch);
//@ 2-9
    norm_backward(t, t->dstream, inp, s->rstd1, l, "attn_norm.weight");
//@
}

//@ 1-8
static void forward(Trainer *t)
//@ 9
// ---- a stage

static CommRequest send(Trainer *t, const X *x, int stage)
//@
{
//@ 1
    t->dev->embed_forward(t->dev, t->logits, t->token, NULL, (X *)t->weight, NULL, T, V);
//@ 2-8
    t->dev->embed_forward(t->dev, t->stream[0], t->token, t->pos, weight(t, -1, "embed.tokens.weight"),
                          weight(t, -1, "embed.positions.weight"), T, C);
//@ 2-5
    for (int l = 0; l < LAYERS; l++) block_forward(t, l, t->stream[l + 1], t->stream[l], &t->saved[l]);
//@ 6-8
    for (int l = 0; l < LAYERS; l++) block_forward(t, l, t->stream[l + 1], t->stream[l], &t->saved);
//@ 9
    return comm_send(t->pp, x, T * C, comm_type_of(t->dev->x_type), stage, 0);
//@
}

//@ 1-8
// Adds the gradient of the loss times `scale`; returns the sum of the losses.
static double backward(Trainer *t, float scale)
//@ 9
static void receive(Trainer *t, X *x, int stage)
//@
{
//@ 1-8
    Dev *dev = t->dev;
    X *dlogits = t->logits; // in place
//@ 2-8
    norm(t, t->norm, NULL, t->rstd, t->stream[LAYERS], NULL, -1, "final_norm.weight");
    matrix(t, t->logits, t->norm, -1, "head.weight", C, V);
//@ 1-8
    dev->softmax_xent(dev, t->loss, dlogits, t->logits, t->target, T, V, scale, 0);
//@ 1
    dev->embed_backward(dev, t->grad, NULL, dlogits, t->token, NULL, T, V, V);
//@ 2-8
    matrix_backward(t, t->dbranch, dlogits, t->norm, -1, "head.weight", C, V);
    norm_backward(t, NULL, t->stream[LAYERS], t->rstd, -1, "final_norm.weight");
//@ 2-5
    for (int l = LAYERS - 1; l >= 0; l--) block_backward(t, l, t->stream[l], &t->saved[l]);
//@ 6-8
    for (int l = LAYERS - 1; l >= 0; l--) {
        block_forward(t, l, t->stream[l + 1], t->stream[l], &t->saved); // again, for what it saves
        block_backward(t, l, t->stream[l], &t->saved);
//@ 9
    CommRequest request = comm_recv(t->pp, x, T * C, comm_type_of(t->dev->x_type), stage, 0);
    comm_wait(t->pp, &request);
}

// F of sample s, whose stream is kept in a slot.
static void forward(Trainer *t, size_t s, size_t slot)
{
    X **stream = t->stream[slot];
    if (t->layer == 0) {
        dataset_window(t->data, (int64_t)s, T, SEED, true, t->token, t->target);
        t->dev->embed_forward(t->dev, stream[0], t->token, t->pos, weight(t, -1, "embed.tokens.weight"),
                              weight(t, -1, "embed.positions.weight"), T, C);
    } else {
        receive(t, stream[t->layer], t->pp->rank - 1);
//@ 6-9
    }
//@ 2-8
    dev->embed_backward(dev, grad(t, -1, "embed.tokens.weight"), grad(t, -1, "embed.positions.weight"), t->dstream,
                        t->token, t->pos, T, C, V);
//@ 9
    for (int l = t->layer; l < t->end_layer; l++) block_forward(t, l, stream[l + 1], stream[l], &t->saved);
    if (t->end_layer < LAYERS) t->sent[slot] = send(t, stream[t->end_layer], t->pp->rank + 1);
}

// B of sample s: adds the gradient of the loss times `scale`; returns the sum of its losses, 0 but on the last stage.
static double backward(Trainer *t, size_t s, size_t slot, float scale)
{
    X **stream = t->stream[slot], *dlogits = t->logits; // in place
//@
    double sum = 0;
//@ 1-8
    for (size_t i = 0; i < T; i++) sum += t->loss[i];
//@ 9
    dataset_window(t->data, (int64_t)s, T, SEED, true, t->token, t->target);
    comm_wait(t->pp, &t->sent_back); // dstream may be written again
    if (t->end_layer == LAYERS) {
        norm(t, t->norm, NULL, t->rstd, stream[LAYERS], NULL, -1, "final_norm.weight");
        matrix(t, t->logits, t->norm, -1, "head.weight", C, V);
        t->dev->softmax_xent(t->dev, t->loss, dlogits, t->logits, t->target, T, V, scale, 0);
        matrix_backward(t, t->dbranch, dlogits, t->norm, -1, "head.weight", C, V);
        norm_backward(t, NULL, stream[LAYERS], t->rstd, -1, "final_norm.weight");
        for (size_t i = 0; i < T; i++) sum += t->loss[i];
    } else {
        receive(t, t->dstream, t->pp->rank + 1);
    }
    comm_wait(t->pp, &t->sent[slot]); // at once: its gradient is here
    for (int l = t->end_layer - 1; l >= t->layer; l--) {
        block_forward(t, l, stream[l + 1], stream[l], &t->saved); // again, for what it saves
        block_backward(t, l, stream[l], &t->saved);
    }
    if (t->layer == 0)
        t->dev->embed_backward(t->dev, grad(t, -1, "embed.tokens.weight"), grad(t, -1, "embed.positions.weight"),
                               t->dstream, t->token, t->pos, T, C, V);
    else t->sent_back = send(t, t->dstream, t->pp->rank - 1);
//@
    return sum;
}

// ---- a step

//@ 3-9
// The gradient of sequence i enters the tree as a bit enters a binary counter: where 2^k wait, 2^(k + 1) go on.
static void tree_add(Trainer *t, size_t i)
{
    float *from = t->grad;
    for (int k = 0;; k++) {
        t->dev->accumulate(t->dev, t->tree[k], from, t->params.n_elems); // tree[k] += from, from = 0
        if (!(i >> k & 1)) return;
        from = t->tree[k];
    }
}

// The whole gradient, of 2^k sequences, to grad.
static void tree_finish(Trainer *t, size_t sequences)
{
    int k = 0;
    while (sequences >> k > 1) k++;
    t->dev->accumulate(t->dev, t->grad, t->tree[k], t->params.n_elems);
}

static void update(Trainer *t, long step)
{
    double lr = step < WARMUP ? LR * (double)(step + 1) / WARMUP : LR;
    for (int i = 0; i < t->params.n_rows; i++) {
        const Param *row = &t->params.row[i];
//@ 3-7
        size_t at = row->offset;
        t->dev->update(t->dev, OPTIM_ADAMW, t->weight + at, t->m + at, t->v + at, t->grad + at, row->n_elems,
//@ 8-9
        size_t from = row->offset, to = from + row->n_elems; // of the row, what is in [begin, end)
        if (from < t->begin) from = t->begin;
        if (to > t->end) to = t->end;
        if (from >= to) continue;
        size_t at = from - t->begin;
        t->dev->update(t->dev, OPTIM_ADAMW, t->weight + at, t->m + at, t->v + at, t->grad + from, to - from,
//@ 3-9
                      (Update){.lr = (float)lr, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8f, .grad_scale = 1,
                               .weight_decay = row->decay ? 0.1f : 0, .step = (int)step + 1});
    }
//@ 6-7
    t->dev->to_x(t->dev, t->x_weight, t->weight, t->params.n_elems);
//@ 3-7
}

//@ 7
// x = sum over the ranks of x
static void sum_ranks(Comm *ranks, void *x, size_t n, CommType type)
{
    CommRequest request = comm_all_reduce(ranks, x, x, n, type, COMM_SUM);
    comm_wait(ranks, &request);
//@ 8-9
    t->dev->zero(t->dev, t->grad, t->params.n_elems * sizeof(float)); // the rest are other ranks' parts of sums
    gather_weights(t);
//@ 7-9
}

//@
static double train_step(Trainer *t, long step)
{
//@ 1-2
    load_sample(t, (size_t)step);
    forward(t);
    double loss = backward(t, 1.0f / T);
    t->dev->update(t->dev, OPTIM_SGD, t->weight, NULL, NULL, t->grad, t->params.n_elems,
                   (Update){.lr = LR, .grad_scale = 1});
    return loss / T;
//@ 3-6
    size_t n = t->sequences;
    double loss = 0;
    for (size_t i = 0; i < n; i++) {
        load_sample(t, (size_t)step * n + i);
//@ 7
    size_t n = t->sequences, own = n / (size_t)t->world->size, first = own * (size_t)t->world->rank;
//@ 8-9
    size_t n = t->sequences, own = n / (size_t)t->dp->size, first = own * (size_t)t->dp->rank;
//@ 7-9
    double loss[1 << LEVELS] = {0}, sum = 0;
//@ 7-8
    for (size_t i = 0; i < own; i++) {
        load_sample(t, (size_t)step * n + first + i);
//@ 3-8
        forward(t);
//@ 3-6
        loss += backward(t, 1.0f / (float)(n * T));
//@ 7
        loss[first + i] = backward(t, 1.0f / (float)(n * T));
//@ 8
        double sum_of_losses = backward(t, 1.0f / (float)(n * T));
        if (t->tp->rank == 0) loss[first + i] = sum_of_losses; // of tp ranks all have it
//@ 9
    for (size_t k = 0, ahead = (size_t)t->ahead; k < own + ahead; k++) {
        if (k < own) forward(t, (size_t)step * n + first + k, k % (ahead + 1));
        if (k < ahead) continue;
        size_t i = k - ahead;
        loss[first + i] = backward(t, (size_t)step * n + first + i, i % (ahead + 1), 1.0f / (float)(n * T));
//@ 3-9
        tree_add(t, i);
    }
//@ 3-6
    tree_finish(t, n);
//@ 9
    comm_wait(t->pp, &t->sent_back);
//@ 7-9
    tree_finish(t, own);
//@ 7
    sum_ranks(t->world, t->grad, t->params.n_elems, COMM_FP32);
//@ 8-9
    CommRequest request = comm_reduce_scatter(t->dp, t->grad + t->begin, t->grad, t->counts, COMM_FP32, COMM_SUM);
    comm_wait(t->dp, &request);
//@ 3-9
    update(t, step);
//@ 3-6
    return loss / (double)(n * T);
//@ 7-8
    sum_ranks(t->world, loss, n, COMM_FP64);
//@ 9
    request = comm_all_reduce(t->world, loss, loss, n, COMM_FP64, COMM_SUM);
    comm_wait(t->world, &request);
//@ 7-9
    for (size_t i = 0; i < n; i++) sum += loss[i];
    return sum / (double)(n * T);
//@
}

int main(int argc, char **argv)
{
//@ 1
    if (argc < 2 || argc > 3) die_usage("usage: 1_bigram DIR [STEPS]    DIR/train.txt: the text");
//@ 2
    if (argc < 2 || argc > 3) die_usage("usage: 2_attention DIR [STEPS]    DIR/train.txt: the text");
//@ 3
    if (argc < 2 || argc > 4) die_usage("usage: 3_adamw DIR [STEPS [SEQUENCES]]    DIR/train.txt: the text");
//@ 4
    if (argc < 2 || argc > 4) die_usage("usage: 4_bpe DIR [STEPS [SEQUENCES]]    DIR/train.txt: the text");
//@ 5
    if (argc < 2 || argc > 4) die_usage("usage: 5_threads DIR [STEPS [SEQUENCES]]    DIR/train.txt: the text");
//@ 6
    if (argc < 2 || argc > 4) die_usage("usage: 6_bf16 DIR [STEPS [SEQUENCES]]    DIR/train.txt: the text");
//@ 7
    if (argc < 2 || argc > 4) die_usage("usage: 7_ddp DIR [STEPS [SEQUENCES]]    DIR: where 6_bf16 ran");
//@ 8
    if (argc < 2 || argc > 5) die_usage("usage: 8_zero_tp DIR [STEPS [SEQUENCES [TP]]]    DIR: where 6_bf16 ran");
//@ 9
    if (argc < 2 || argc > 5) die_usage("usage: 9_pipeline DIR [STEPS [SEQUENCES [PP]]]    DIR: where 6_bf16 ran");
//@ 5-9
    dev_cpu_choose_blas(argv); // may start the program again
//@
    static Trainer t;
//@ 7-9
    t.world = launch_start(argv); // the ranks that mpiexec started, or one
    comm_set_ordered(t.world, true);
//@
    long steps = argument(argc, argv, 2, STEPS);
//@ 8
    int tp = (int)argument(argc, argv, 4, 1);
    mesh_must_divide("HEADS", HEADS, "TP", tp);
    Mesh mesh = mesh_create(t.world, mesh_shape(t.world->size, 1, 1, 1, tp));
    t.dp = mesh.group[MESH_DP], t.tp = mesh.group[MESH_TP];
    t.width = C / (size_t)tp, t.ffn = F / (size_t)tp;
//@ 9
    int pp = (int)argument(argc, argv, 4, 1);
    mesh_must_divide("LAYERS", LAYERS, "PP", pp);
    Mesh mesh = mesh_create(t.world, mesh_shape(t.world->size, pp, 1, 1, 1));
    t.dp = mesh.group[MESH_DP], t.pp = mesh.group[MESH_PP];
    t.ahead = pp - 1 - t.pp->rank, t.layer = LAYERS / pp * t.pp->rank, t.end_layer = t.layer + LAYERS / pp;
//@ 3-9
    t.sequences = (size_t)argument(argc, argv, 3, SEQUENCES);
//@ 3-6
    if (t.sequences & (t.sequences - 1) || t.sequences >> LEVELS) die_usage("SEQUENCES: a power of two below 256");
//@ 1-4
    t.dev = dev_cpu_create(1);
//@ 2-4
    t.dev->matmul_forward = matmul_forward;
    t.dev->matmul_backward_input = matmul_backward_input;
    t.dev->matmul_backward_weight = matmul_backward_weight;
//@ 1-3
    read_text(&t, argv[1]);
//@ 5
    t.dev = dev_cpu_create(omp_get_max_threads()); // all cores, or OMP_NUM_THREADS
//@ 6
    Dev *cpu = dev_cpu_create(omp_get_max_threads()); // all cores, or OMP_NUM_THREADS
//@ 7
    if (t.sequences & (t.sequences - 1) || t.sequences >> LEVELS || t.sequences % (size_t)t.world->size)
//@ 8-9
    if (t.sequences & (t.sequences - 1) || t.sequences >> LEVELS || t.sequences % (size_t)t.dp->size)
//@ 7-8
        die_usage("SEQUENCES: a power of two below 256 that the number of ranks divides");
//@ 9
        die_usage("SEQUENCES: a power of two below 256 that the number of replicas divides");
//@ 7-9
    Dev *cpu = dev_cpu_create(launch_threads(t.world, omp_get_max_threads() / t.world->size)); // this rank's cores
//@ 6-9
    t.dev = narrow_create(cpu, (NarrowOptions){.x_type = X_BF16});
//@ 4-6
    open_data(&t, argv[1]);
//@ 7-9
    char path[4096];
    snprintf(path, sizeof path, "%s/tokens.bin", argv[1]);
    t.data = dataset_open(path, V);
//@
    create_model(&t);
//@ 1-3
    printf("%zu parameters, %zu bytes of text\n", t.params.n_elems, t.n_text);
//@ 4-6
    double rate = (double)dataset_tokens(t.data) / (double)t.n_text; // tokens per byte
    printf("%zu parameters, %zu bytes of text, %.3f tokens per byte\n", t.params.n_elems, t.n_text, rate);
//@ 7-9
    bool tells = t.world->rank == 0;
    if (tells) printf("%zu parameters, %d ranks\n", t.params.n_elems, t.world->size);
//@

    double mean = 0;
    for (long step = 0; step < steps; step++) {
        double loss = train_step(&t, step);
//@ 1-2
        if (step < 3 || step % 20 == 19 || step == steps - 1) printf("step %4ld  loss %.9g\n", step + 1, loss);
//@ 3-6
        if (step < WARMUP || step % 20 == 19 || step == steps - 1) printf("step %4ld  loss %.9g\n", step + 1, loss);
//@ 7-9
        if (tells && (step < WARMUP || step % 20 == 19 || step == steps - 1))
            printf("step %4ld  loss %.9g\n", step + 1, loss);
//@
        if (step >= steps - LAST) mean += loss / (double)(steps < LAST ? steps : LAST);
    }
//@ 1
    printf("counted %.4f\n", entropy_of_pairs(&t));
//@ 1-3
    printf("final %.4f (mean of the last %d steps)\n", mean, LAST);
//@ 4-6
    printf("final %.4f = %.4f bits per byte (mean of the last %d steps)\n", mean, mean * rate / log(2), LAST);
//@ 1-5
    dev_cpu_free(t.dev);
//@ 7-9
    if (tells) printf("final %.4f (mean of the last %d steps)\n", mean, LAST);
//@ 6-9
    narrow_free(t.dev);
    dev_cpu_free(cpu);
//@ 7-9
    launch_stop(t.world);
//@
    return 0;
}
