// dev: the op table.
//
// Everything that touches large arrays goes through this struct of function pointers. dev_cpu fills every
// entry in plain C with OpenMP and OpenBLAS, and is the specification; another device fills the same
// entries with its own kernels, and is checked against this one.
//
// Conventions. Outputs first, inputs next, sizes last. Parameter gradients accumulate (+=), activations
// and their gradients are written (=). `X` is one element of the storage type of activations and weights
// (dev->x_type); it is opaque, so that the compiler refuses to mix it with the fp32 arrays (float *):
// gradients, optimizer state, statistics, losses. All arithmetic is fp32 whatever X is.
//
// Glossary: B batch, T tokens of a sequence, N = B*T rows, C channels, H query heads, G key/value heads,
// D head size, F ffn width, V vocabulary, OC output channels, E experts, k of which a token uses.
#ifndef DEV_H
#define DEV_H
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/config.h"
#include "formats/formats.h"
#include "base/rng.h"
#include "ops/rope.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct X X; // opaque element of the storage type
enum { DEV_GROUP = 256 }; // elements that share a scale in compressed activations
enum { FEW_ROWS = 8 };    // up to so many rows a product takes the time of reading the weights (dev_cpu.h)
enum { DEV_VERSION = 12 }; // of this file's declarations, for libraries that were compiled with them (override.h)

// Dropout (Srivastava et al., JMLR 15, 2014): an element is kept, and divided by 1 - p, or becomes 0. The choice is a
// function of (rng, global index of the element), so the mask is never stored: backward, recomputation and any layout
// draw it again. Element i uses word i % 4 of counter i / 4 and is kept when that word is at least p 2^32.
typedef struct {
    float p; // 0: off
    Rng rng;
    uint64_t first; // global index of the array's element 0; for attention, of its first sequence
    // Not NULL: the array's rows of `width` elements are not contiguous; row i has global index first + row[i] width.
    const int32_t *row;
    size_t width;
} Dropout;

// Attention over packed rows: q row (b, t) starts at q + (b*Tq + t)*ldq and holds H*D elements; k and v
// likewise with G*D elements and ldkv. Query t of the block stands at position q_start + t; it sees keys
// 0 .. q_start + t.
typedef struct {
    size_t B, Tq, Tk, H, G, D; // H is a multiple of G: query head h reads key/value head h / (H/G)
    size_t ldq, ldkv;          // elements from one row to the next
    size_t q_start;            // 0 in training; the number of cached keys when sampling
    const int32_t *first;      // (B, Tq) first key that a query sees: where its document starts; NULL: 0
    size_t window;             // keys that a query sees at most, itself the last of them; 0: all
    float scale;               // of q k; 0: 1 / sqrt(D)
    Dropout drop;              // of the probabilities; element ((drop.first + b) H + h) Tq + tq) Tk + tk
    // For attention_part_*: queries and keys are pieces of sequences of T tokens (cp.h), and all positions, `first`
    // and dropout's tq and tk too, are those of the whole sequence. The other entries want zeros here; but they may be
    // given `blocks`, with T = Tq = Tk.
    size_t T;
    size_t q_cut, q_jump;          // from row q_cut on, a query's position is q_jump more: q_start + t + q_jump
    size_t k_start, k_cut, k_jump; // key j stands at k_start + j, from k_cut on at k_start + j + k_jump
    int blocks; // even; sums over tokens are split into this many blocks and added in a fixed tree; 0: any order
} AttnShape;

// A sum in parts: part p adds the terms of its ranges p*each .. p*each + each - 1, each in ascending order. The parts
// are added in the binary tree of comm.h, ((0 + 1) + (2 + 3)) + ... So a rank that holds a whole subtree of parts can
// add it alone, and adding the ranks' sums in the same tree gives the bits of one rank that holds all parts (tp.h).
typedef struct {
    size_t begin, end;
} DevRange;
typedef struct {
    const DevRange *range;
    size_t n, each; // n parts of `each` ranges; together they cover every term once
} DevParts;

// How a token chooses its experts. Its E logits z become scores s: the softmax over all, or each one's sigmoid. The k
// experts with the largest s + bias are chosen; of equal ones those with the lower number; NaN counts as -infinity.
// Their weights are s, not s + bias (Wang et al., arXiv 2408.15664).
typedef struct {
    size_t E, k;
    size_t groups, best; // groups of E / groups neighbours; a token uses experts of `best` of them alone: those whose
                         // best expert (softmax) or best two experts (sigmoid) sum to the most; 0: no groups
    bool sigmoid, renorm; // renorm: the k weights are divided by their sum
    float scale;          // of the weights, after that
} DevRouter;

// R rows of slots, sorted by source, of a source by expert: those of source s for expert e are offset[i] ..
// offset[i + 1] - 1, where i = s E + e. Rows from offset[sources E] on are of no expert (of dropped slots). The
// experts' weights lie `stride` elements apart; the gradient of a weight adds the rows of source 0 first.
typedef struct {
    const int32_t *offset; // (sources E + 1)
    size_t E, R, stride;
    size_t sources; // ranks whose rows these are (expert parallelism); 1: this one's alone
    DevParts parts; // in which experts_forward adds its C terms, experts_backward_input its OC; n 0: in any order
} DevExperts;

#define DEV_ROWS_GIVEN SIZE_MAX // experts_sort: on entry `row` says which slots are dropped

// The parameters of an optimizer's update, shared by all elements that one call updates.
typedef struct {
    float lr;
    double beta1, beta2; // 1 - 0.999 of 32-bit numbers would be 1.3e-5 too small
    float eps, weight_decay;
    float grad_scale; // multiplies the gradient first (unscaling, clipping)
    int step;         // 1 for the first update: bias correction
    bool cautious;    // adamw and muon: no decay where update and weight have opposite signs (arXiv 2510.12402)
    X *copy;          // op update, on a device that stores 2 bytes: gets the new weights rounded to X; NULL: no copy
} Update;

// What kernels multiply by: beta and 1 - beta, and 1 / (1 - beta^step), which corrects a mean that began with 0.
typedef struct {
    float beta1, rest1, correct1, beta2, rest2, correct2;
} UpdateFactors;
static inline UpdateFactors update_factors(Update u)
{
    UpdateFactors f = {(float)u.beta1, (float)(1 - u.beta1), (float)(1 / (1 - pow(u.beta1, u.step))),
                       (float)u.beta2, (float)(1 - u.beta2), (float)(1 / (1 - pow(u.beta2, u.step)))};
    return f;
}
enum { UPDATE_BLOCK = 2048 }; // elements that share one scale in adamw8bit

typedef struct Dev Dev;
struct Dev {
    const char *name;
    XType x_type;
    size_t x_bytes; // bytes of one X
    int threads;
    bool deterministic; // sums in one canonical order, whatever the threads and the number of rows
    bool tf32; // X_FP32: matmul_* and experts_* round the operands of their products to TF32; no other entry does
    bool embed_fp32; // embed_forward reads tables of fp32, whatever X is
    double tf32_error; // bound on the extra error of such a sum, relative to sum |a b| (GPU_TF32_ERROR)
    double dgelu_error; // bound on the extra error of gelu' in matmul_gelu_backward_input (GPU_DGELU_ERROR)
    void *state;
    struct Fp8 *fp8;  // scales of a device whose products run in fp8 (fp8.h); NULL for others
    double fp8_error; // bound on the extra error of a sum of 8-bit products, relative to sum |a b| (GPU_FP8_ERROR)
    // Called now and then on the caller's thread during attention of pieces, to drive messages; NULL: not called.
    void (*meanwhile)(void *arg);
    void *meanwhile_arg;
    // The allocator's raw_alloc and raw_free (mem.h); NULL: all arrays are host memory, which the host may read and
    // write
    void *(*raw_alloc)(size_t n_bytes);
    void (*raw_free)(void *ptr);
    // Waits until all ops called so far are done, before code reads the arrays without to_host (messages between
    // ranks); NULL: an op is done when it returns.
    void (*wait)(Dev *);

    // For profilers: opens a nested range of this name around the ops that follow; name NULL closes the innermost one.
    // The entry may be NULL: no profiler (dev_mark).
    void (*mark)(const char *name);

    // ---- matmul: weight (OC, C), inp (N, C), out (N, OC)
    // site: the weight's row in the parameter table, for devices that keep something per weight (scales);
    // -1: none
    // out = inp weight^T + bias; bias (OC) may be NULL.
    void (*matmul_forward)(Dev *, X *out, const X *inp, const X *weight, const X *bias,
                           size_t N, size_t C, size_t OC, int site);
    // pre = inp weight^T + bias; out = gelu(pre), the tanh form (Hendrycks & Gimpel, arXiv 1606.08415).
    // pre may be NULL; where it is not, out is the gelu of pre as it is stored.
    void (*matmul_gelu_forward)(Dev *, X *out, X *pre, const X *inp, const X *weight, const X *bias,
                                size_t N, size_t C, size_t OC, int site);
    // dinp = dout weight
    void (*matmul_backward_input)(Dev *, X *dinp, const X *dout, const X *weight,
                                  size_t N, size_t C, size_t OC, int site);
    // dpre = (dout weight) * gelu'(pre), where pre (N, C) fed the gelu whose output was this matmul's input
    void (*matmul_gelu_backward_input)(Dev *, X *dpre, const X *dout, const X *weight, const X *pre,
                                       size_t N, size_t C, size_t OC, int site);
    // dweight += dout^T inp; dbias += column sums of dout (dbias may be NULL)
    void (*matmul_backward_weight)(Dev *, float *dweight, float *dbias, const X *dout, const X *inp,
                                   size_t N, size_t C, size_t OC, int site);

    // out = inp weight^T, the sums over C in parts; bias (may be NULL) joins the first part. A device that does not
    // keep its bits across layouts may add in any order.
    void (*matmul_parts_forward)(Dev *, X *out, const X *inp, const X *weight, const X *bias,
                                 size_t N, size_t C, size_t OC, DevParts parts, int site);
    // dinp = dout weight, the sums over OC in parts
    void (*matmul_parts_backward_input)(Dev *, X *dinp, const X *dout, const X *weight,
                                        size_t N, size_t C, size_t OC, DevParts parts, int site);

    // ---- swiglu (Shazeer, arXiv 2002.05202): gate_up (N, 2F), gate first; out (N, F) = silu(gate) * up
    void (*swiglu_forward)(Dev *, X *out, const X *gate_up, size_t N, size_t F);
    void (*swiglu_backward)(Dev *, X *dgate_up, const X *dout, const X *gate_up, size_t N, size_t F);

    // ---- out = f(pre), dpre = dout f'(pre), n elements, f an activation (activation.h). out may equal pre, and dpre
    // dout. GELU has the same bits here as in matmul_gelu_forward.
    void (*act_forward)(Dev *, X *out, const X *pre, size_t n, ActKind kind);
    void (*act_backward)(Dev *, X *dpre, const X *dout, const X *pre, size_t n, ActKind kind);

    // ---- out = a + b over n elements; out may equal a or b
    void (*add)(Dev *, X *out, const X *a, const X *b, size_t n);

    // ---- out = inp, the same bits: `rows` rows of `width` elements, ld_out and ld_inp elements apart, that do not
    // overlap
    void (*copy)(Dev *, X *out, const X *inp, size_t rows, size_t width, size_t ld_out, size_t ld_inp);

    // ---- out = dropout(inp), n elements; out may equal inp. Its own backward: dinp = dropout(dout).
    void (*dropout)(Dev *, X *out, const X *inp, size_t n, Dropout drop);

    // ---- embedding: out (N, C) = tokens.weight[token] (+ positions.weight[pos]; wpe may be NULL). A token < 0 is
    // another rank's: a row of zeros, without its position; backward gives such a row's gradient to the position
    // alone. With embed_fp32 wte and wpe are arrays of float.
    void (*embed_forward)(Dev *, X *out, const int32_t *token, const int32_t *pos, const X *wte, const X *wpe,
                          size_t N, size_t C);
    void (*embed_backward)(Dev *, float *dwte, float *dwpe, const X *dout, const int32_t *token,
                           const int32_t *pos, size_t N, size_t C, size_t V);

    // ---- residual + norm: sum = a + b, out = norm(sum as it is stored) * weight + bias. b NULL: out =
    // norm(a), and sum is not written. mean, rstd (N) fp32 are saved for backward; RMSNorm (arXiv 1910.07467)
    // leaves mean alone; bias may be NULL.
    void (*norm_forward)(Dev *, X *out, X *sum, float *mean, float *rstd, const X *a, const X *b, const X *weight,
                         const X *bias, size_t N, size_t C, NormKind kind, float eps);
    // dinp = dresid + d(norm)/d(inp) dout; dresid may be NULL or equal dinp. inp is what was normalised.
    void (*norm_backward)(Dev *, X *dinp, float *dweight, float *dbias, const X *dout, const X *dresid,
                          const X *inp, const float *mean, const float *rstd, const X *weight,
                          size_t N, size_t C, NormKind kind);

    // ---- RMSNorm of queries or keys (QK-norm), of each head or of all as one vector: rows of `heads` vectors of D
    // elements, ld elements apart; rstd (N, heads). out may equal inp only when no backward follows.
    void (*head_norm_forward)(Dev *, X *out, float *rstd, const X *inp, const X *weight, size_t N, size_t heads,
                              size_t D, size_t ld, float eps);
    // dinp may equal dout.
    void (*head_norm_backward)(Dev *, X *dinp, float *dweight, const X *dout, const X *inp, const float *rstd,
                               const X *weight, size_t N, size_t heads, size_t D, size_t ld);

    // ---- rotary positions (Su et al., arXiv 2104.09864), rotate-half: pairs (i, i + D/2), angle pos *
    // rope_frequency(i), and all times rope_amplitude. In place on rows of `heads` vectors, ld elements apart. backward
    // rotates the gradient back by the same angle.
    void (*rope_forward)(Dev *, X *x, const int32_t *pos, size_t N, size_t heads, size_t D, size_t ld, Rope rope);
    void (*rope_backward)(Dev *, X *dx, const int32_t *pos, size_t N, size_t heads, size_t D, size_t ld, Rope rope);

    // ---- mixture of experts (doc/experts.md). Slot n k + j is choice j of token n. Everything that is not X is fp32.
    // logits (N, E) = inp (N, C) weight (E, C)^T
    void (*router_forward)(Dev *, float *logits, const X *inp, const X *weight, size_t N, size_t C, size_t E);
    // dinp += dlogits weight; dweight += dlogits^T inp
    void (*router_backward)(Dev *, X *dinp, float *dweight, const float *dlogits, const X *inp, const X *weight,
                            size_t N, size_t C, size_t E);
    // choice (N, k): the best expert first; gate (N, k): their weights. bias (E) may be NULL.
    void (*route_forward)(Dev *, int32_t *choice, float *gate, const float *logits, const float *bias, size_t N,
                          DevRouter router);
    // dlogits (N, E) from dgate (N, k); plus even_scale times the gradient of sum over e of even[n / T, e] P_e, where P
    // is s divided by its sum (even (N / T, E) may be NULL); plus that of z lse^2, where lse = log sum exp(logits).
    void (*route_backward)(Dev *, float *dlogits, const float *dgate, const float *logits, const int32_t *choice,
                           const float *even, float even_scale, float z, size_t N, size_t T, DevRouter router);
    // count (N / T, E + 1): slots of each expert among T tokens; last the dropped ones (row < 0; row may be NULL: none)
    void (*experts_count)(Dev *, float *count, const int32_t *choice, const int32_t *row, size_t N, size_t T, size_t k,
                          size_t E);
    // The rows of the slots: offset (E + 1); row (N, k) of each slot, -1: dropped; slot (N k) of each row, -1 from
    // offset[E] on. An expert's rows are in the order of their slots. cap 0: none is dropped; else of T tokens an
    // expert takes `cap` slots: the first ones or, by_gate, those with the largest weights (equal ones: the first; NaN
    // counts as -infinity). DEV_ROWS_GIVEN: those of which row < 0 on entry are dropped.
    void (*experts_sort)(Dev *, int32_t *offset, int32_t *row, int32_t *slot, const int32_t *choice, const float *gate,
                         size_t N, size_t T, size_t k, size_t E, size_t cap, bool by_gate);
    // out[r] = inp[slot[r] / k], (R, C) from (N, C); 0 where slot[r] < 0
    void (*experts_gather)(Dev *, X *out, const X *inp, const int32_t *slot, size_t R, size_t k, size_t C);
    // out[n] = sum over j, in order, of inp[row[n, j]], (N, C) from (R, C); row < 0 adds nothing. Each is the other's
    // backward.
    void (*experts_combine)(Dev *, X *out, const X *inp, const int32_t *row, size_t N, size_t k, size_t C);
    // The three products, of each expert's rows with its weight (OC, C); rows of no expert become 0.
    void (*experts_forward)(Dev *, X *out, const X *inp, const X *weight, size_t C, size_t OC, DevExperts experts);
    void (*experts_backward_input)(Dev *, X *dinp, const X *dout, const X *weight, size_t C, size_t OC,
                                   DevExperts experts);
    void (*experts_backward_weight)(Dev *, float *dweight, const X *dout, const X *inp, size_t C, size_t OC,
                                    DevExperts experts);
    // out[i] = inp[index[i]], n numbers; 0 where index[i] < 0
    void (*experts_pick)(Dev *, float *out, const float *inp, const int32_t *index, size_t n);
    // swiglu times the weight of the slot: out[r] = gate[slot[r]] silu(gate_r) up_r; 0 where slot[r] < 0. slot NULL: r.
    void (*experts_swiglu_forward)(Dev *, X *out, const X *gate_up, const float *gate, const int32_t *slot, size_t R,
                                   size_t F);
    // dgate[slot[r]] = sum of dout silu(gate_r) up_r; the dgate of a dropped slot stays as it is
    void (*experts_swiglu_backward)(Dev *, X *dgate_up, float *dgate, const X *dout, const X *gate_up,
                                    const float *gate, const int32_t *slot, size_t R, size_t F);

    // ---- causal attention, tiled with online softmax (Dao et al., arXiv 2205.14135)
    // out (B, Tq, H, D); lse (B, H, Tq) = log of the softmax denominator, saved for backward (NULL: not
    // wanted)
    void (*attention_forward)(Dev *, X *out, float *lse, const X *q, const X *k, const X *v, AttnShape shape);
    // dq, dk, dv have the row strides of q, k, v. q_start must be 0.
    void (*attention_backward)(Dev *, X *dq, X *dk, X *dv, const X *dout, const X *out, const float *lse,
                               const X *q, const X *k, const X *v, AttnShape shape);

    // ---- attention of pieces: the keys are some of those that the queries see. Everything that is not X is fp32.
    // out (B, Tq, H, D), lse (B, H, Tq) over these keys alone; 0 and -inf for a query that sees none of them.
    void (*attention_part_forward)(Dev *, float *out, float *lse, const X *q, const X *k, const X *v, AttnShape shape);
    // out, lse = those over both sets of keys: sum = e^lse + e^part_lse, lse = log sum, out weighted by e^lse / sum and
    // e^part_lse / sum
    void (*attention_merge)(Dev *, float *out, float *lse, const float *part_out, const float *part_lse,
                            size_t B, size_t T, size_t H, size_t D);
    // dq (B, Tq, H, D), dk, dv (B, Tk, G, D): the contributions of these keys. out and lse are those over all keys.
    void (*attention_part_backward)(Dev *, float *dq, float *dk, float *dv, const X *dout, const X *out,
                                    const float *lse, const X *q, const X *k, const X *v, AttnShape shape);

    // ---- softmax + cross-entropy: loss[n] = -log softmax(logits[n])[target[n]] in nats; a target < 0 is not
    // counted (loss 0, gradient 0). dlogits = scale * (softmax - onehot); NULL: not wanted; may equal logits.
    // cap > 0: softmax and loss are of c = cap tanh(z / cap) (Gemma 2, arXiv 2408.00118, section 2), and dlogits, the
    // gradient of the given z, is times 1 - (c / cap)^2; c is not rounded to X.
    void (*softmax_xent)(Dev *, float *loss, X *dlogits, const X *logits, const int32_t *target,
                         size_t N, size_t V, float scale, float cap);

    // ---- the same over a vocabulary that is divided over ranks: logits (N, V) are those of this rank's V tokens. The
    // results of the three steps are combined over the ranks in between (tp.h). A target >= V is another rank's token;
    // it is counted. top and hit are of the logits as they are given; xent_sum and xent_loss cap what they read of them.
    // top[n] = max of the row
    void (*xent_max)(Dev *, float *top, const X *logits, size_t N, size_t V);
    // total[n] = sum over the row of exp(z - top[n]), in parts; hit[n] = z[target], or 0 when another rank has it
    void (*xent_sum)(Dev *, float *total, float *hit, const X *logits, const int32_t *target, const float *top,
                     size_t N, size_t V, DevParts parts, float cap);
    // loss = log(total) + top - hit; dlogits = scale (exp(z - top) / total - onehot); NULL: not wanted; may equal
    // logits
    void (*xent_loss)(Dev *, float *loss, X *dlogits, const X *logits, const int32_t *target, const float *top,
                      const float *total, const float *hit, size_t N, size_t V, float scale, float cap);

    // ---- optimizer and reductions
    double (*sum_squares)(Dev *, const float *x, size_t n); // the order of the sum does not depend on the thread count
    // sum += the squares, exactly (formats.h)
    void (*sum_squares_exact)(Dev *, ExactSum *sum, const float *x, size_t n);
    // out = a - b, fp32; b NULL: out = a. out may equal either.
    void (*subtract)(Dev *, float *out, const float *a, const float *b, size_t n);
    // For each row of (R, C), with Euclidean norms: grad *= min(1, limit max(|weight|, least) / |grad|) (Brock et al.,
    // arXiv 2102.06171)
    void (*clip_units)(Dev *, float *grad, const float *weight, size_t R, size_t C, float limit, float least);
    // Updates: each writes weight and its own state from grad, and zeroes grad. All fp32; but for
    // update's u.copy nothing is stored in X (the caller follows up with to_x). The state is zero before the first update.
    // Element by element, by the optimizer's rule (update_rules.h). m and v are its moments; NULL: it has none.
    void (*update)(Dev *, OptimName rule, float *weight, float *m, float *v, float *grad, size_t n, Update u);
    // AdamW with m and v in 8 bits: codes (n) and one scale for each block of UPDATE_BLOCK from the start
    // (Dettmers et al., arXiv 2110.02861)
    void (*adamw8bit)(Dev *, float *weight, uint8_t *m, float *m_scale, uint8_t *v, float *v_scale, float *grad,
                      size_t n, Update u);
    // weight (R, C); row (R) and col (C) are means of squared gradients; col NULL: row (R, C) is that of each
    // element (Shazeer & Stern, arXiv 1804.04235). Reads lr, weight_decay, grad_scale and step.
    void (*adafactor)(Dev *, float *weight, float *row, float *col, float *grad, size_t R, size_t C, Update u);
    // weight (R, C): momentum beta1, made orthogonal; scratch: R C + 2 min(R, C)^2 floats (Jordan 2024; the
    // scale of arXiv 2502.16982). row (R): means, by beta2, of the squares of each row of that, whose roots divide it
    // (NorMuon, arXiv 2510.05491); NULL: plain Muon, and beta2 and eps are not read. Where X is bf16 a device may round
    // the operands of the products to it
    void (*muon)(Dev *, float *weight, float *m, float *row, float *grad, float *scratch, size_t R, size_t C, Update u);

    // ---- copies between host and device
    void (*to_device)(Dev *, void *device_dst, const void *host_src, size_t n_bytes);
    void (*to_host)(Dev *, void *host_dst, const void *device_src, size_t n_bytes);
    void (*zero)(Dev *, void *device_dst, size_t n_bytes);
    // ---- between fp32 and the storage type. to_x rounds to nearest even, both on the device; from_x is exact, from
    // the device to the host or the device
    void (*to_x)(Dev *, X *out, const float *inp, size_t n);
    void (*from_x)(Dev *, float *out, const X *inp, size_t n);

    // ---- saved activations in 8 bits. A row of w elements is cut into groups of DEV_GROUP (the last one may be
    // shorter): scale (N, ceil(w / DEV_GROUP)) = the group's largest |inp| / 127, q (N, w) = inp / scale rounded to
    // the nearest integer; decompress: out = q scale. A group that holds a NaN or an infinity comes back as NaN,
    // one whose scale would not be a normal fp32 number as 0.
    void (*compress)(Dev *, int8_t *q, float *scale, const X *inp, size_t N, size_t w);
    void (*decompress)(Dev *, X *out, const int8_t *q, const float *scale, size_t N, size_t w);

    // ---- sum += part, part = 0: one addition in the tree of gradient sums
    void (*accumulate)(Dev *, float *sum, float *part, size_t n);
};

// The CPU device: fp32, OpenMP with `threads` threads (0: all cores). Results do not depend on the
// thread count.
Dev *dev_cpu_create(int threads);
void dev_cpu_free(Dev *dev);
// The entries that every device fills: their names, and where they are in Dev.
typedef struct {
    const char *name;
    size_t at;
} DevOp;
const DevOp *dev_ops(size_t *n);
// Dies, naming the op, when an entry is missing.
void dev_check_complete(const Dev *dev);

static inline void dev_mark(const Dev *dev, const char *name)
{
    if (dev->mark) dev->mark(name);
}

#ifdef __cplusplus
}
#endif
#endif
