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
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/params.h"
#include "comm/launch.h"
#include "comm/mesh.h"
#include "ops/dev_cpu.h"
#include "ops/narrow.h"
#include "text/dataset.h"

enum { V = 512, T = 64, LAYERS = 4, C = 32, HEADS = 4, F = 4 * C, SEQUENCES = 8, LEVELS = 8,
       STEPS = 300, WARMUP = 20, LAST = 20, SEED = 1337 };
static const double LR = 0.003;
static const float EPS = 1e-5f;

// What the forward pass of a block leaves for its backward.
typedef struct {
    X *norm1, *qkv, *attn, *resid, *norm2, *pre, *act; // (T, C), (T, 3 C), (T, C), (T, C), (T, C), (T, F), (T, F)
    float *rstd1, *rstd2, *lse;                        // (T), (T), (HEADS, T)
} Saved;

typedef struct {
    Dev *dev; // the op table
    Params params; // the parameter table
    float *grad;            // (params.n_elems), in the order of the table
    float *weight, *m, *v;  // elements [begin, end) of it
    X *x_weight;                  // the same weights as the ops read them
    float *tree[LEVELS];          // gradients of 1, 2, 4, ... sequences that wait for as many others
    size_t sequences;             // of a step
    Dataset *data;
    Comm *world, *dp, *tp;
    size_t counts[64], begin, end; // elements of each rank of dp; of this one
    size_t width, ffn;             // this rank's part of C channels of heads, of F
    int32_t token[T], target[T], pos[T];
    X *stream[LAYERS + 1]; // (T, C) inputs of the blocks and of the head
    Saved saved; // of one block
    X *branch, *wide, *dstream, *dbranch; // (T, C), (T, 3 C or F), (T, C), (T, C)
    X *norm, *logits;                     // (T, C), (T, V)
    float *rstd, *loss;                   // (T)
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

// Sample s of the run: a window of T tokens, and the token that follows each.
static void load_sample(Trainer *t, size_t s)
{
    dataset_window(t->data, (int64_t)s, T, SEED, true, t->token, t->target);
}

// ---- ranks

static void sum_ranks(Comm *ranks, void *x, size_t n, CommType type)
{
    CommRequest request = comm_all_reduce(ranks, x, x, n, type, COMM_SUM);
    comm_wait(ranks, &request);
}

// ---- the model

// cut 0, 1: this rank's rows or columns of the matrix; -1: all
static void add_matrix(Trainer *t, int unit, const char *name, size_t out, size_t in, float std, int cut)
{
    size_t dim[] = {out, in}, tp = (size_t)t->tp->size;
    if (cut >= 0) dim[cut] /= tp;
    int added = params_add(&t->params, unit, name, 2, dim[0], dim[1], 0, std, true, cut); // moves all rows
    Param *row = &t->params.row[added];
    if (cut >= 0) row->whole[cut] = dim[cut] * tp, row->first = dim[cut] * (size_t)t->tp->rank;
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
    return (X *)((char *)t->x_weight + offset(t, layer, name) * t->dev->x_bytes);
}

static float *grad(const Trainer *t, int layer, const char *name)
{
    return t->grad + offset(t, layer, name);
}

// Names and initial weights are the trainer's (src/net/model_table.c).
static void describe_model(Trainer *t)
{
    float std = 0.02f, std_out = 0.02f / sqrtf(2.0f * LAYERS); // into the stream, to which 2 LAYERS branches are added
    add_matrix(t, 0, "embed.tokens.weight", V, C, std, -1);
    add_matrix(t, 0, "embed.positions.weight", T, C, std, -1);
    for (int l = 0; l < LAYERS; l++) {
        char name[PARAM_NAME];
#define NAME(end) (snprintf(name, sizeof name, "layers.%d." end, l), name)
        add_norm(t, 1 + l, NAME("attn_norm.weight"));
        add_matrix(t, 1 + l, NAME("attn.q.weight"), C, C, std, 0); // q, k, v: neighbours, so one matrix (3 C, C)
        add_matrix(t, 1 + l, NAME("attn.k.weight"), C, C, std, 0);
        add_matrix(t, 1 + l, NAME("attn.v.weight"), C, C, std, 0);
        add_matrix(t, 1 + l, NAME("attn.out.weight"), C, C, std_out, 1);
        add_norm(t, 1 + l, NAME("ffn_norm.weight"));
        add_matrix(t, 1 + l, NAME("ffn.up.weight"), F, C, std, 0);
        add_matrix(t, 1 + l, NAME("ffn.down.weight"), C, F, std_out, 1);
    }
    add_norm(t, 1 + LAYERS, "final_norm.weight");
    add_matrix(t, 1 + LAYERS, "head.weight", V, C, std, -1);
}

static Saved create_saved(const Trainer *t)
{
    size_t x = t->dev->x_bytes, f = sizeof(float);
    return (Saved){.norm1 = room(T * C, x), .qkv = room(T * 3 * C, x), .attn = room(T * C, x), .resid = room(T * C, x),
                   .norm2 = room(T * C, x), .pre = room(T * F, x), .act = room(T * F, x), .rstd1 = room(T, f),
                   .rstd2 = room(T, f), .lse = room(HEADS * T, f)};
}

static void gather_weights(Trainer *t)
{
    X *own = (X *)((char *)t->x_weight + t->begin * t->dev->x_bytes);
    t->dev->to_x(t->dev, own, t->weight, t->end - t->begin);
    CommRequest request = comm_all_gather(t->dp, t->x_weight, own, t->counts, comm_type_of(t->dev->x_type));
    comm_wait(t->dp, &request);
}

static void create_model(Trainer *t)
{
    size_t x = t->dev->x_bytes;
    describe_model(t);
    comm_even(t->counts, t->params.n_elems, t->dp->size);
    for (int r = 0; r < t->dp->rank; r++) t->begin += t->counts[r];
    t->end = t->begin + t->counts[t->dp->rank];
    t->weight = room(t->end - t->begin, sizeof(float));
    t->grad = room(t->params.n_elems, sizeof(float));
    t->m = room(t->end - t->begin, sizeof(float)), t->v = room(t->end - t->begin, sizeof(float));
    for (int k = 0; k < LEVELS; k++) t->tree[k] = room(t->params.n_elems, sizeof(float));
    t->x_weight = room(t->params.n_elems, x);
    params_init_range(&t->params, SEED, t->begin, t->end, t->weight);
    gather_weights(t);
    for (int l = 0; l <= LAYERS; l++) t->stream[l] = room(T * C, x);
    t->saved = create_saved(t);
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

static X *part(const Trainer *t, X *qkv, size_t i)
{
    return (X *)((char *)qkv + i * t->width * t->dev->x_bytes);
}

static AttnShape attention_shape(const Trainer *t)
{
    size_t D = C / HEADS, H = t->width / D, ld = 3 * t->width;
    return (AttnShape){.B = 1, .Tq = T, .Tk = T, .H = H, .G = H, .D = D, .ldq = ld, .ldkv = ld};
}

static void complete(Trainer *t, X *x)
{
    sum_ranks(t->tp, x, T * C, comm_type_of(t->dev->x_type));
}

static void block_forward(Trainer *t, int l, X *out, const X *inp, Saved *s)
{
    Dev *dev = t->dev;
    norm(t, s->norm1, NULL, s->rstd1, inp, NULL, l, "attn_norm.weight");
    matrix(t, s->qkv, s->norm1, l, "attn.q.weight", C, 3 * t->width);
    dev->attention_forward(dev, s->attn, s->lse, part(t, s->qkv, 0), part(t, s->qkv, 1), part(t, s->qkv, 2),
                           attention_shape(t));
    matrix(t, t->branch, s->attn, l, "attn.out.weight", t->width, C);
    complete(t, t->branch);
    norm(t, s->norm2, s->resid, s->rstd2, inp, t->branch, l, "ffn_norm.weight");
    matrix(t, s->pre, s->norm2, l, "ffn.up.weight", C, t->ffn);
    dev->act_forward(dev, s->act, s->pre, T * t->ffn, ACT_RELU2);
    matrix(t, t->branch, s->act, l, "ffn.down.weight", t->ffn, C);
    complete(t, t->branch);
    dev->add(dev, out, s->resid, t->branch, T * C);
}

// dstream: the gradient of the block's output on entry, of its input on return.
static void block_backward(Trainer *t, int l, const X *inp, Saved *s)
{
    Dev *dev = t->dev;
    X *wide = t->wide, *dbranch = t->dbranch;
    matrix_backward(t, wide, t->dstream, s->act, l, "ffn.down.weight", t->ffn, C);
    dev->act_backward(dev, wide, wide, s->pre, T * t->ffn, ACT_RELU2);
    matrix_backward(t, dbranch, wide, s->norm2, l, "ffn.up.weight", C, t->ffn);
    complete(t, dbranch);
    norm_backward(t, t->dstream, s->resid, s->rstd2, l, "ffn_norm.weight");
    matrix_backward(t, dbranch, t->dstream, s->attn, l, "attn.out.weight", t->width, C);
    dev->attention_backward(dev, part(t, wide, 0), part(t, wide, 1), part(t, wide, 2), dbranch, s->attn, s->lse,
                            part(t, s->qkv, 0), part(t, s->qkv, 1), part(t, s->qkv, 2), attention_shape(t));
    matrix_backward(t, dbranch, wide, s->norm1, l, "attn.q.weight", C, 3 * t->width);
    complete(t, dbranch);
    norm_backward(t, t->dstream, inp, s->rstd1, l, "attn_norm.weight");
}

static void forward(Trainer *t)
{
    t->dev->embed_forward(t->dev, t->stream[0], t->token, t->pos, weight(t, -1, "embed.tokens.weight"),
                          weight(t, -1, "embed.positions.weight"), T, C);
    for (int l = 0; l < LAYERS; l++) block_forward(t, l, t->stream[l + 1], t->stream[l], &t->saved);
}

// Adds the gradient of the loss times `scale`; returns the sum of the losses.
static double backward(Trainer *t, float scale)
{
    Dev *dev = t->dev;
    X *dlogits = t->logits; // in place
    norm(t, t->norm, NULL, t->rstd, t->stream[LAYERS], NULL, -1, "final_norm.weight");
    matrix(t, t->logits, t->norm, -1, "head.weight", C, V);
    dev->softmax_xent(dev, t->loss, dlogits, t->logits, t->target, T, V, scale, 0);
    matrix_backward(t, t->dbranch, dlogits, t->norm, -1, "head.weight", C, V);
    norm_backward(t, NULL, t->stream[LAYERS], t->rstd, -1, "final_norm.weight");
    for (int l = LAYERS - 1; l >= 0; l--) {
        block_forward(t, l, t->stream[l + 1], t->stream[l], &t->saved); // again, for what it saves
        block_backward(t, l, t->stream[l], &t->saved);
    }
    dev->embed_backward(dev, grad(t, -1, "embed.tokens.weight"), grad(t, -1, "embed.positions.weight"), t->dstream,
                        t->token, t->pos, T, C, V);
    double sum = 0;
    for (size_t i = 0; i < T; i++) sum += t->loss[i];
    return sum;
}

// ---- a step

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
        size_t from = row->offset, to = from + row->n_elems; // of the row, what is in [begin, end)
        if (from < t->begin) from = t->begin;
        if (to > t->end) to = t->end;
        if (from >= to) continue;
        size_t at = from - t->begin;
        t->dev->update(t->dev, OPTIM_ADAMW, t->weight + at, t->m + at, t->v + at, t->grad + from, to - from,
                      (Update){.lr = (float)lr, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8f, .grad_scale = 1,
                               .weight_decay = row->decay ? 0.1f : 0, .step = (int)step + 1});
    }
    t->dev->zero(t->dev, t->grad, t->params.n_elems * sizeof(float)); // the rest are other ranks' parts of sums
    gather_weights(t);
}

static double train_step(Trainer *t, long step)
{
    size_t n = t->sequences, own = n / (size_t)t->dp->size, first = own * (size_t)t->dp->rank;
    double loss[1 << LEVELS] = {0}, sum = 0;
    for (size_t i = 0; i < own; i++) {
        load_sample(t, (size_t)step * n + first + i);
        forward(t);
        double sum_of_losses = backward(t, 1.0f / (float)(n * T));
        if (t->tp->rank == 0) loss[first + i] = sum_of_losses; // of tp ranks all have it
        tree_add(t, i);
    }
    tree_finish(t, own);
    CommRequest request = comm_reduce_scatter(t->dp, t->grad + t->begin, t->grad, t->counts, COMM_FP32, COMM_SUM);
    comm_wait(t->dp, &request);
    update(t, step);
    sum_ranks(t->world, loss, n, COMM_FP64);
    for (size_t i = 0; i < n; i++) sum += loss[i];
    return sum / (double)(n * T);
}

int main(int argc, char **argv)
{
    if (argc < 2 || argc > 5) die_usage("usage: 8_zero_tp DIR [STEPS [SEQUENCES [TP]]]    DIR: where 6_bf16 ran");
    dev_cpu_choose_blas(argv); // may start the program again
    static Trainer t;
    t.world = launch_start(argv); // the ranks that mpiexec started, or one
    comm_set_ordered(t.world, true);
    long steps = argument(argc, argv, 2, STEPS);
    int tp = (int)argument(argc, argv, 4, 1);
    mesh_must_divide("HEADS", HEADS, "TP", tp);
    Mesh mesh = mesh_create(t.world, mesh_shape(t.world->size, 1, 1, 1, tp));
    t.dp = mesh.group[MESH_DP], t.tp = mesh.group[MESH_TP];
    t.width = C / (size_t)tp, t.ffn = F / (size_t)tp;
    t.sequences = (size_t)argument(argc, argv, 3, SEQUENCES);
    if (t.sequences & (t.sequences - 1) || t.sequences >> LEVELS || t.sequences % (size_t)t.dp->size)
        die_usage("SEQUENCES: a power of two below 256 that the number of ranks divides");
    Dev *cpu = dev_cpu_create(launch_threads(t.world, omp_get_max_threads() / t.world->size)); // this rank's cores
    t.dev = narrow_create(cpu, (NarrowOptions){.x_type = X_BF16});
    char path[4096];
    snprintf(path, sizeof path, "%s/tokens.bin", argv[1]);
    t.data = dataset_open(path, V);
    create_model(&t);
    bool tells = t.world->rank == 0;
    if (tells) printf("%zu parameters, %d ranks\n", t.params.n_elems, t.world->size);

    double mean = 0;
    for (long step = 0; step < steps; step++) {
        double loss = train_step(&t, step);
        if (tells && (step < WARMUP || step % 20 == 19 || step == steps - 1))
            printf("step %4ld  loss %.9g\n", step + 1, loss);
        if (step >= steps - LAST) mean += loss / (double)(steps < LAST ? steps : LAST);
    }
    if (tells) printf("final %.4f (mean of the last %d steps)\n", mean, LAST);
    narrow_free(t.dev);
    dev_cpu_free(cpu);
    launch_stop(t.world);
    return 0;
}
