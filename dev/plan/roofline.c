// roofline: an operation takes the longer of two times, for its arithmetic and for its bytes. See plan_job.h, and
// doc/roofline.md for what follows from it.
//
//     matmul      max(2 M N K / (rate q), x (M K + K N + M N) / (memory bandwidth)) + launch
//     the rest    bytes / (memory bandwidth) + launch
//
// rate = sustained * reachable. q is the part of it that the shape leaves: whole waves of tiles, the best of a few tile
// sizes, and K / (K + depth) of each tile. A long K may be cut over cores, whose sums are then added.
//
// Fused attention (FlashAttention) does the half of the T x T products that causality leaves, at a lower rate than a
// matmul, and computes the scores again in backward: 5 matmuls where forward has 2. Attention that is not fused is two
// batched matmuls on all T x T, with a softmax and a dropout that read and write every score: bound by memory. Where
// layers have windows, a block is the mean of them.
//
// The constants. Only `sustained` was fitted, once for all machines and rows of `plan published`; the rest were
// measured by others, and are the same for all rows:
//   attention 0.60, 0.50  FlashAttention-2 (arXiv 2307.08691) on A100 with heads of 128, causal, 2k to 8k tokens: about
//                         170 and 145 TFLOP/s of 271
//   inside 0.78           NCCL's all-reduce within 8 GPUs: 235 of 300 GB/s on A100, 350 of 450 on H100
//   between 0.9           NCCL's large messages over InfiniBand
//   contention 0.15       Calculon (Isaev et al., SC 2023): what NCCL's kernels take of an A100 while they run
//   memory 0.8, launch 3 us, depth 200: what a stream benchmark, an empty kernel and a sweep over K show
//
// Eager: a framework without fused kernels writes every intermediate result. For the code that was published with LLaMA
// (RMSNorm and rotary angles in fp32, silu and product apart) that is, in bytes an element, back and forth: norm with
// residual sum 42 and 86 where fused ones move 8 and 8; rope 20 and 20 for 4 and 4; silu and product 10 and 18 for 6
// and 10.
//
// The invariant: without recomputation the flops add up to model_flops_per_token, so a predicted time and a reported
// MFU count the same work.
//
// Rejected: an efficiency for each model size or machine, read off the very table to be predicted. A neural network
// over shapes: it would fit, and explain nothing.
#include "dev/plan/plan_job.h"

#include "base/check.h"

#include <math.h>

RooflineConstants roofline_constants(void)
{
    return (RooflineConstants){.sustained = 0.86, .depth = 200, .memory = 0.8, .attention = {0.60, 0.50},
                               .launch = 3e-6, .inside = 0.78, .between = 0.9, .contention = 0.15};
}

// ---- one operation

double roofline_loop(const Machine *machine, double bytes)
{
    RooflineConstants k = roofline_constants();
    return bytes > 0 ? bytes / (k.memory * machine->bandwidth) + k.launch : 0;
}

// A tile's size, and the rate of its inner loop relative to the largest tile's.
static const struct {
    double m, n, rate;
} tiles[] = {{256, 128, 1}, {128, 256, 1}, {128, 128, 0.95}, {128, 64, 0.8}, {64, 64, 0.6}};

double roofline_matmul(const Machine *machine, double M, double N, double K, double x)
{
    RooflineConstants k = roofline_constants();
    double rate = k.sustained * machine->reachable / machine->cores, best = INFINITY;
    for (int i = 0; i < (int)(sizeof tiles / sizeof *tiles); i++) {
        for (double split = 1; split <= 8; split *= 2) {
            double n = ceil(M / tiles[i].m) * ceil(N / tiles[i].n) * split, waves = ceil(n / machine->cores);
            double tile = 2 * tiles[i].m * tiles[i].n * (K / split + k.depth) / (rate * tiles[i].rate);
            double again = split > 1 ? 4 * M * N * split / (k.memory * machine->bandwidth) : 0; // the sums, in fp32
            best = fmin(best, waves * tile + again);
        }
    }
    double bytes = x * (M * K + K * N + M * N);
    return fmax(best, bytes / (k.memory * machine->bandwidth)) + k.launch;
}

// ---- lists of operations

static RooflineOp *add(Roofline *r, const char *name)
{
    check(r->n < ROOFLINE_OPS);
    r->op[r->n].name = name;
    return &r->op[r->n++];
}

// A linear layer of N rows from K to OC features: forward, and its two matmuls back.
static void linear(Roofline *r, const RooflineCase *c, const char *name, double N, double OC, double K, bool again)
{
    RooflineOp *op = add(r, name);
    double x = (double)c->x_bytes;
    for (int way = 0; way < ROOFLINE_WAYS; way++) {
        double rows = way == ROOFLINE_W ? OC : N, columns = way == ROOFLINE_F ? OC : K;
        double depth = way == ROOFLINE_F ? K : way == ROOFLINE_B ? OC : N;
        op->flops[way] = 2 * N * OC * K;
        op->bytes[way] = x * (N * K + N * OC + OC * K);
        op->seconds[way] = roofline_matmul(c->machine, rows, columns, depth, x);
    }
    if (!again) return;
    op->flops[ROOFLINE_B] += op->flops[ROOFLINE_F];
    op->bytes[ROOFLINE_B] += op->bytes[ROOFLINE_F];
    op->seconds[ROOFLINE_B] += op->seconds[ROOFLINE_F];
}

// A loop that moves these bytes, forward and back.
static void loop(Roofline *r, const RooflineCase *c, const char *name, double forward, double back, bool again)
{
    RooflineOp *op = add(r, name);
    op->bytes[ROOFLINE_F] = forward;
    op->bytes[ROOFLINE_B] = back + (again ? forward : 0);
    op->seconds[ROOFLINE_F] = roofline_loop(c->machine, forward);
    op->seconds[ROOFLINE_B] = roofline_loop(c->machine, back) + (again ? op->seconds[ROOFLINE_F] : 0);
}

// unit_window_keys, of the mean layer.
static double mean_keys(const RooflineCase *c)
{
    double keys = 0;
    for (size_t l = 0; l < c->part.layers; l++) keys += unit_window_keys(&c->part, l, c->T);
    return keys / (double)c->part.layers;
}

static void fused_attention(Roofline *r, const RooflineCase *c, double N, bool again)
{
    RooflineConstants k = roofline_constants();
    RooflineOp *op = add(r, "attention, fused");
    double H = (double)c->part.heads, G = (double)c->part.kv_heads, D = (double)c->part.head_size;
    double x = (double)c->x_bytes;
    double products = 2 * N * mean_keys(c) * H * D; // two matmuls, half of T x T
    double bytes = x * N * (2 * H + 2 * G) * D, rate = c->machine->reachable;
    op->flops[ROOFLINE_F] = products;
    op->flops[ROOFLINE_B] = 2 * products + (again ? products : 0); // recomputed scores do not count
    op->bytes[ROOFLINE_F] = bytes, op->bytes[ROOFLINE_B] = 2 * bytes;
    double forward = fmax(products / (k.attention[0] * rate), bytes / (k.memory * c->machine->bandwidth)) + k.launch;
    op->seconds[ROOFLINE_F] = forward;
    op->seconds[ROOFLINE_B] = fmax(2.5 * products / (k.attention[1] * rate),
                                   2 * bytes / (k.memory * c->machine->bandwidth)) + k.launch + (again ? forward : 0);
}

// Scores in memory: (B, H, T / cp, T), all of them.
static void plain_attention(Roofline *r, const RooflineCase *c, double N, bool again)
{
    RooflineOp *op = add(r, "attention, T x T");
    double H = (double)c->part.heads, D = (double)c->part.head_size, T = (double)c->T, x = (double)c->x_bytes;
    double one = roofline_matmul(c->machine, N * H, T, D, x);                    // q k^T; p v has the same size
    double scores = N * H * T, softmax = roofline_loop(c->machine, 2 * x * scores);
    double dropout = roofline_loop(c->machine, (2 * x + 1) * scores);
    double forward = 2 * one + softmax + dropout;
    op->flops[ROOFLINE_F] = 4 * scores * D;
    op->flops[ROOFLINE_B] = 8 * scores * D + (again ? 4 * scores * D : 0);
    op->bytes[ROOFLINE_F] = (6 * x + 1) * scores;
    op->bytes[ROOFLINE_B] = (9 * x + 1) * scores + (again ? (6 * x + 1) * scores : 0);
    op->seconds[ROOFLINE_F] = forward;
    op->seconds[ROOFLINE_B] = 4 * one + roofline_loop(c->machine, 3 * x * scores) + dropout + (again ? forward : 0);
}

static Roofline summed(Roofline r)
{
    for (int i = 0; i < r.n; i++) {
        for (int way = 0; way < ROOFLINE_WAYS; way++) {
            r.flops += r.op[i].flops[way];
            r.seconds[way] += r.op[i].seconds[way];
        }
    }
    return r;
}

static double tokens(const RooflineCase *c)
{
    return (double)c->B * (double)c->T / (double)c->cp;
}

// Rows of the residual stream that this rank has between attention and FFN.
static double own_rows(const RooflineCase *c)
{
    return tokens(c) / (c->part.cut.rows > 1 ? (double)c->part.cut.rows : 1);
}

// The part of the layers that have experts: a block here is the mean of all.
static double experts_share(const ModelShape *s)
{
    double layers = 0;
    for (size_t l = 0; l < s->layers; l++) layers += unit_has_experts(s, l);
    return layers / (double)s->layers;
}

// A feed-forward network of width F on so many rows: its two products and what is between them.
typedef struct {
    const char *in, *down;
    double rows, F;
} Network;

static void network(Roofline *r, const RooflineCase *c, Network n, bool full, bool cheap)
{
    const ModelShape *s = &c->part;
    double C = (double)s->channels, x = (double)c->x_bytes, width = s->swiglu ? 2 : 1;
    double apart = c->eager && s->swiglu ? 1 : 0; // silu's result is written, and read
    if (n.rows == 0 || n.F == 0) return;
    linear(r, c, n.in, n.rows, n.F * width, C, full);
    loop(r, c, s->swiglu ? "swiglu" : s->act == ACT_GELU ? "gelu" : "activation",
         x * n.rows * n.F * (width + 1 + 2 * apart), x * n.rows * n.F * (2 * width + 1 + 4 * apart), cheap);
    linear(r, c, n.down, n.rows, C, n.F, full);
}

Roofline roofline_block(const RooflineCase *c)
{
    Roofline r = {.n = 0};
    const ModelShape *s = &c->part;
    double N = tokens(c), R = own_rows(c), C = (double)s->channels, D = (double)s->head_size, F = (double)s->ffn;
    double H = (double)s->heads, G = (double)s->kv_heads, x = (double)c->x_bytes;
    bool full = c->recompute >= RECOMPUTE_SQRT, cheap = full || recompute_restores(c->recompute);
    bool attention = full || c->recompute == RECOMPUTE_ATTENTION;
    // Norm with the residual sum before it: reads two, writes two; back: reads three, writes one. Eager: see above.
    loop(&r, c, "norms", 2 * (c->eager ? 21 : 4) * x * R * C, 2 * (c->eager ? 43 : 4) * x * R * C, cheap);
    linear(&r, c, "q, k, v", N, (H + 2 * G) * D, C, attention);
    double turned = (c->eager ? 10 : 2) * x * N * (H + G) * D;
    if (s->rope) loop(&r, c, "rope", turned, turned, attention);
    if (c->fused_attention) fused_attention(&r, c, N, attention);
    else plain_attention(&r, c, N, cheap); // what "selective" means without a fused kernel
    linear(&r, c, "attention's output", N, C, H * D, full);
    double share = experts_share(s), dense = share < 1 ? N * (1 - share) : 0;
    network(&r, c, (Network){s->swiglu ? "gate, up" : "up", "down", dense, F}, full, cheap);
    if (share == 0) return summed(r);
    const ModelExperts *e = &s->experts;
    double n = (double)e->n, slots = N * share * (double)e->k, moved = 4 * x * slots * C; // to the experts and back
    linear(&r, c, "router", N * share, n, C, full);
    network(&r, c, (Network){"shared gate, up", "shared down", N * share, (double)e->shared}, full, cheap);
    network(&r, c, (Network){"experts' gate, up", "experts' down", slots, (double)e->ffn}, full, cheap);
    // A product above reads the weights of one. Where ep ranks divide the experts, each has its share of the slots of
    // all: with equal loads as many rows as slots of its own.
    double others = x * (double)(unit_own_experts(e) - 1) * 3 * C * (double)e->ffn * share;
    loop(&r, c, "experts' rows and weights", moved + others, 2 * moved + 2 * others, full);
    return summed(r);
}

Roofline roofline_embedding(const RooflineCase *c)
{
    Roofline r = {.n = 0};
    double moved = 2 * (double)c->x_bytes * own_rows(c) * (double)c->part.channels;
    loop(&r, c, "embedding", moved, 2 * moved, false);
    return summed(r);
}

Roofline roofline_head(const RooflineCase *c)
{
    Roofline r = {.n = 0};
    double N = tokens(c), C = (double)c->part.channels, V = (double)c->part.vocab, x = (double)c->x_bytes;
    loop(&r, c, "final norm", 2 * x * own_rows(c) * C, 3 * x * own_rows(c) * C, false);
    linear(&r, c, "head", N, V, C, false);
    loop(&r, c, "softmax and loss", x * N * V, 2 * x * N * V, false);
    return summed(r);
}

double roofline_adamw(const Machine *machine, double n, double x)
{
    return roofline_loop(machine, n * (4 * 4 + 3 * 4 + x)); // reads gradient, weight and moments, writes the last three
}
