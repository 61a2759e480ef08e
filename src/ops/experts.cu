// experts: mixture of experts on the GPU. The twin of experts.c, which has the formulas, and of the products in
// matmul.c; the router's product is in matmul.cu.
//
// The choice is a warp's work for each token; scores and keys are in shared memory. Rows are moved element by element.
//
// Sorting is by counting, stably: blocks of SORT slots count their slots of each expert, one block adds these counts up
// into the first row of each (block, expert), and the blocks place their slots. Capacity: all slots are sorted, each
// counts the better ones of its expert and sequence, which are its neighbours, up to `cap`, and what is left is sorted.
//
// Products: one launch for all groups of rows (a group: those of a source for an expert), and no number of theirs is
// known to the host. Block i has the tile i - first_g of group g, where
//
//   first_g = offset_g / ROWS + g,    first_(g+1) - first_g >= ceil((offset_(g+1) - offset_g) / ROWS)
//
// so g is found by bisection, and a block without a tile ends. Rows of no expert are those of the group behind the
// last, whose output is zero. A gradient has a launch for each source. (Sums in parts: the order is free here, dev.h.)
// Tiles of 16-bit numbers go through tensor cores: tiles of both operands, DEPTH terms deep, are double-buffered in
// shared memory (cp.async). Other tiles, which have fp32 on one side, are multiplied by fused multiply-adds;
// on a device that uses TF32, of the experts' operands rounded to it, which are exactly the CPU's.
//
// The invariant: no atomic additions of floats; each sum has one order, which follows from the sizes alone.
// Rejected: a product per expert by cuBLASLt (the host would wait for `offset`, in each layer); padding each expert to
// the same number of rows (all would be as large as the largest).
#include "ops/dev_cuda.h"

#include "base/check.h"

namespace {

// ---- the choice

enum { LANES = 32, ROUTE_WARPS = 4, ROUTE_SHARED = 48 << 10 };

// Scores of a warp's token; returns log sum exp (softmax). s is shared memory, in which a lane writes each 32nd score.
__device__ inline float warp_scores(float *s, const float *z, bool sigmoid, size_t E, size_t lane)
{
    float top = -INFINITY, sum = 0;
    for (size_t e = lane; e < E; e += LANES) top = fmaxf(top, z[e]);
    top = warp_max(top);
    for (size_t e = lane; e < E; e += LANES) {
        s[e] = sigmoid ? 1 / (1 + expf(-z[e])) : expf(z[e] - top);
        sum += s[e];
    }
    sum = warp_sum(sum);
    for (size_t e = lane; e < E && !sigmoid; e += LANES) s[e] /= sum;
    return top + logf(sum);
}

// The largest of n keys that is not taken, the first of equal ones; for every lane. Taken keys are NaN, others never.
__device__ inline int warp_largest(const float *key, int n, int lane)
{
    float best = -INFINITY;
    int at = n;
    for (int i = lane; i < n; i += LANES)
        if (key[i] > best || (key[i] == best && at == n)) best = key[i], at = i;
    for (int by = LANES / 2; by > 0; by /= 2) {
        float other = __shfl_xor_sync(0xffffffffu, best, by);
        int other_at = __shfl_xor_sync(0xffffffffu, at, by);
        if (other > best || (other == best && other_at < at)) best = other, at = other_at;
    }
    return at;
}

// The same, which is then taken. All lanes have read their keys before lane 0 knows `at`.
__device__ inline int warp_take(float *key, int n, int lane)
{
    int at = warp_largest(key, n, lane);
    if (lane == 0) key[at] = NAN;
    __syncwarp();
    return at;
}

// Takes all experts but those of the best groups. value: of the groups, shared.
__device__ inline void warp_groups(float *key, float *value, const DevRouter &r, int lane)
{
    int each = (int)(r.E / r.groups), groups = (int)r.groups;
    for (int g = lane; g < groups; g += LANES) {
        float first = -INFINITY, second = -INFINITY;
        for (int i = g * each; i < (g + 1) * each; i++) {
            if (key[i] > first) second = first, first = key[i];
            else if (key[i] > second) second = key[i];
        }
        value[g] = r.sigmoid && each > 1 ? first + second : first;
    }
    for (size_t i = 0; i < r.best; i++) warp_take(value, groups, lane);
    for (int e = lane; e < (int)r.E; e += LANES)
        if (value[e / each] == value[e / each]) key[e] = NAN; // its group was not taken
}

#define LEAST_SCORE 1e-20f // as in experts.c

__global__ void route_forward_kernel(int32_t *choice, float *gate, const float *logits, const float *bias, size_t N,
                                     DevRouter r)
{
    DYN_SHARED(float, room); // of a warp: scores, keys, groups
    size_t n = (size_t)blockIdx.x * blockDim.y + threadIdx.y, lane = threadIdx.x;
    if (n >= N) return; // the whole warp
    float *s = room + threadIdx.y * (2 * r.E + r.groups), *key = s + r.E, sum = LEAST_SCORE;
    warp_scores(s, logits + n * r.E, r.sigmoid, r.E, lane);
    for (size_t e = lane; e < r.E; e += LANES) {
        float x = s[e] + (bias ? bias[e] : 0);
        key[e] = x == x ? x : -INFINITY;
    }
    __syncwarp();
    if (r.groups) warp_groups(key, key + r.E, r, (int)lane);
    for (size_t j = 0; j < r.k; j++) {
        int e = warp_take(key, (int)r.E, (int)lane);
        if (lane == 0) choice[n * r.k + j] = e;
        sum += s[e];
    }
    if (lane > 0) return;
    for (size_t j = 0; j < r.k; j++) {
        float x = s[choice[n * r.k + j]];
        gate[n * r.k + j] = r.scale * (r.renorm ? x / sum : x);
    }
}

// Formulas and names as in experts.c.
__global__ void route_backward_kernel(float *dlogits, const float *dgate, const float *logits, const int32_t *choice,
                                      const float *even, float even_scale, float z_scale, size_t N, size_t T,
                                      DevRouter r)
{
    DYN_SHARED(float, room); // of a warp: scores, their gradients
    size_t n = (size_t)blockIdx.x * blockDim.y + threadIdx.y, lane = threadIdx.x;
    if (n >= N) return; // the whole warp
    float *s = room + threadIdx.y * 2 * r.E, *ds = s + r.E, chosen = LEAST_SCORE, total = 0, all = 0,
          dot = 0;
    const float *z = logits + n * r.E, *dg = dgate + n * r.k;
    const int32_t *e_of = choice + n * r.k;
    float *dz = dlogits + n * r.E, lse = warp_scores(s, z, r.sigmoid, r.E, lane);
    for (size_t e = lane; e < r.E; e += LANES) ds[e] = 0, all += s[e];
    all = LEAST_SCORE + warp_sum(all);
    __syncwarp(); // all scores are there, and the zeros
    for (size_t j = 0; j < r.k; j++) chosen += s[e_of[j]];
    for (size_t j = 0; j < r.k; j++) total += dg[j] * (s[e_of[j]] / chosen);
    for (size_t j = lane; j < r.k; j += LANES)
        ds[e_of[j]] = r.scale * (r.renorm ? (dg[j] - total) / chosen : dg[j]);
    __syncwarp();
    if (even) {
        even += n / T * r.E;
        for (size_t e = lane; e < r.E; e += LANES) dot += even[e] * (s[e] / all);
        dot = warp_sum(dot);
        for (size_t e = lane; e < r.E; e += LANES) ds[e] += even_scale * (even[e] - dot) / all;
        dot = 0;
    }
    for (size_t e = lane; e < r.E; e += LANES) dot += ds[e] * s[e];
    dot = warp_sum(dot);
    for (size_t e = lane; e < r.E; e += LANES)
        dz[e] = r.sigmoid ? ds[e] * s[e] * (1 - s[e]) : s[e] * (ds[e] - dot);
    if (z_scale == 0) return;
    if (r.sigmoid) lse = warp_scores(s, z, false, r.E, lane);
    for (size_t e = lane; e < r.E; e += LANES) dz[e] += 2 * z_scale * lse * s[e];
}

// Warps of a block, with so much shared memory each.
unsigned route_warps(size_t n_floats)
{
    size_t fit = ROUTE_SHARED / (n_floats * sizeof(float));
    if (fit == 0) die("cuda: too many experts: their scores do not fit the shared memory of a block");
    return (unsigned)(fit < ROUTE_WARPS ? fit : (size_t)ROUTE_WARPS);
}

void route_forward(Dev *dev, int32_t *choice, float *gate, const float *logits, const float *bias, size_t N,
                   DevRouter r)
{
    size_t room = 2 * r.E + r.groups, warps = route_warps(room);
    if (N == 0) return;
    LAUNCH(route_forward_kernel, (unsigned)((N + warps - 1) / warps), dim3(LANES, (unsigned)warps),
           warps * room * sizeof(float), dev_cuda(dev)->stream, choice, gate, logits, bias, N, r);
}

void route_backward(Dev *dev, float *dlogits, const float *dgate, const float *logits, const int32_t *choice,
                    const float *even, float even_scale, float z, size_t N, size_t T, DevRouter r)
{
    size_t room = 2 * r.E, warps = route_warps(room);
    if (N == 0) return;
    LAUNCH(route_backward_kernel, (unsigned)((N + warps - 1) / warps), dim3(LANES, (unsigned)warps),
           warps * room * sizeof(float), dev_cuda(dev)->stream, dlogits, dgate, logits, choice, even, even_scale, z, N,
           T, r);
}

// ---- slots and rows

enum { SORT = 256 }; // slots, and threads, of a block

// A block counts the slots of one sequence.
__global__ void experts_count_kernel(float *count, const int32_t *choice, const int32_t *row, size_t n, size_t E)
{
    DYN_SHARED(int, held); // (E + 1)
    choice += blockIdx.x * n;
    for (size_t e = threadIdx.x; e <= E; e += blockDim.x) held[e] = 0;
    __syncthreads();
    for (size_t i = threadIdx.x; i < n; i += blockDim.x) {
        atomicAdd(held + choice[i], 1);
        if (row && row[blockIdx.x * n + i] < 0) atomicAdd(held + E, 1);
    }
    __syncthreads();
    for (size_t e = threadIdx.x; e <= E; e += blockDim.x) count[blockIdx.x * (E + 1) + e] = (float)held[e];
}

// Thread r: the slot in row r, of all slots sorted. Its expert's slots of its sequence, of n slots, are the rows around
// it. row = -1 where `cap` of them are before it, in the order of slots or of weights.
__global__ void experts_drop_kernel(int32_t *row, const int32_t *offset, const int32_t *slot, const int32_t *choice,
                                    const float *gate, size_t R, size_t n, size_t cap, bool by_gate)
{
    size_t r = (size_t)blockIdx.x * SORT + threadIdx.x, before = 0;
    if (r >= R) return;
    size_t own = (size_t)slot[r], first = own / n * n;
    size_t low = (size_t)offset[choice[own]], high = (size_t)offset[choice[own] + 1];
    auto key = [&](size_t i) { return gate[i] == gate[i] ? gate[i] : -INFINITY; };
    float weight = by_gate ? key(own) : 0;
    for (size_t t = r; t > low && before < cap; t--) {
        size_t i = (size_t)slot[t - 1];
        if (i < first) break;
        before += !by_gate || key(i) >= weight;
    }
    for (size_t t = r + 1; by_gate && t < high && before < cap; t++) {
        size_t i = (size_t)slot[t];
        if (i >= first + n) break;
        before += key(i) > weight;
    }
    if (before >= cap) row[own] = -1;
}

// Block b: the slots b SORT .. that have rows. all: every slot has one, and `row` is not read.
__global__ void experts_tally_kernel(int32_t *counts, const int32_t *choice, const int32_t *row, size_t R, size_t E,
                                     bool all)
{
    DYN_SHARED(int, held); // (E)
    size_t i = (size_t)blockIdx.x * SORT + threadIdx.x;
    for (size_t e = threadIdx.x; e < E; e += SORT) held[e] = 0;
    __syncthreads();
    if (i < R && (all || row[i] >= 0)) atomicAdd(held + choice[i], 1);
    __syncthreads();
    for (size_t e = threadIdx.x; e < E; e += SORT) counts[blockIdx.x * E + e] = held[e];
}

// counts (blocks, E) become the first row of each; offset (E + 1). One block, a warp an expert.
__global__ void experts_scan_kernel(int32_t *counts, int32_t *offset, size_t blocks, size_t E)
{
    size_t lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, warps = blockDim.x / LANES;
    for (size_t e = warp; e < E; e += warps) {
        int32_t sum = 0;
        for (size_t b = lane; b < blocks; b += LANES) sum += counts[b * E + e];
        sum = __reduce_add_sync(0xffffffffu, sum);
        if (lane == 0) offset[e + 1] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        offset[0] = 0;
        for (size_t e = 0; e < E; e++) offset[e + 1] += offset[e];
    }
    __syncthreads();
    for (size_t e = warp; e < E; e += warps) {
        int32_t at = offset[e];
        for (size_t from = 0; from < blocks; from += LANES) { // 32 blocks at a time
            size_t b = from + lane;
            int32_t held = b < blocks ? counts[b * E + e] : 0, upto = held;
            for (unsigned by = 1; by < LANES; by *= 2) {
                int32_t below = __shfl_up_sync(0xffffffffu, upto, by);
                if (lane >= by) upto += below;
            }
            if (b < blocks) counts[b * E + e] = at + upto - held;
            at += __shfl_sync(0xffffffffu, upto, LANES - 1);
        }
    }
}

// A slot's row: the first of its block and expert, and one more for each such slot before it in the block.
__global__ void experts_place_kernel(int32_t *row, int32_t *slot, const int32_t *counts, const int32_t *choice,
                                     size_t R, size_t E, bool all)
{
    SHARED(int32_t, experts, [SORT]);
    size_t i = (size_t)blockIdx.x * SORT + threadIdx.x;
    bool has = i < R && (all || row[i] >= 0);
    int32_t expert = has ? choice[i] : -1, at = 0;
    experts[threadIdx.x] = expert;
    __syncthreads();
    if (!has) return;
    for (unsigned t = 0; t < threadIdx.x; t++) at += experts[t] == expert;
    at += counts[blockIdx.x * E + (size_t)expert];
    row[i] = at;
    slot[at] = (int32_t)i;
}

void experts_count(Dev *dev, float *count, const int32_t *choice, const int32_t *row, size_t N, size_t T, size_t k,
                   size_t E)
{
    if (N == 0) return;
    LAUNCH(experts_count_kernel, (unsigned)(N / T), (unsigned)SORT, (E + 1) * sizeof(int), dev_cuda(dev)->stream, count,
           choice, row, T * k, E);
}

void experts_sort(Dev *dev, int32_t *offset, int32_t *row, int32_t *slot, const int32_t *choice, const float *gate,
                  size_t N, size_t T, size_t k, size_t E, size_t cap, bool by_gate)
{
    DevCuda *d = dev_cuda(dev);
    size_t R = N * k, blocks = (R + SORT - 1) / SORT;
    bool drops = cap && cap != DEV_ROWS_GIVEN;
    GPU_CHECK(cudaMemsetAsync(offset, 0, (E + 1) * sizeof *offset, d->stream));
    if (R == 0) return;
    int32_t *counts = (int32_t *)dev_cuda_scratch(d, blocks * E * sizeof *counts);
    for (int pass = drops ? 0 : 1; pass < 2; pass++) { // before and after the drops
        bool all = pass == 0 || cap == 0;
        GPU_CHECK(cudaMemsetAsync(slot, 0xff, R * sizeof *slot, d->stream));
        LAUNCH(experts_tally_kernel, (unsigned)blocks, (unsigned)SORT, E * sizeof(int), d->stream, counts, choice, row,
               R, E, all);
        LAUNCH(experts_scan_kernel, 1, 1024, 0, d->stream, counts, offset, blocks, E);
        LAUNCH(experts_place_kernel, (unsigned)blocks, (unsigned)SORT, 0, d->stream, row, slot, counts, choice, R, E,
               all);
        if (pass == 0)
            LAUNCH(experts_drop_kernel, (unsigned)blocks, (unsigned)SORT, 0, d->stream, row, offset, slot, choice, gate,
                   R, T * k, cap, by_gate);
    }
}

template <class E> struct Gather {
    E *out;
    const E *inp;
    const int32_t *slot;
    size_t k, C;
    template <int W> __device__ void run(size_t i) const
    {
        int32_t from = slot[i / C];
        Pack<E, W> x = {};
        if (from >= 0) x = *(const Pack<E, W> *)(inp + (size_t)from / k * C + i % C);
        *(Pack<E, W> *)(out + i) = x;
    }
};

template <class E> struct Combine {
    E *out;
    const E *inp;
    const int32_t *row;
    size_t k, C;
    template <int W> __device__ void run(size_t i) const
    {
        float sum[W] = {}, x[W];
        for (size_t j = 0; j < k; j++) {
            int32_t from = row[i / C * k + j];
            if (from < 0) continue;
            load<W>(x, inp + (size_t)from * C + i % C);
            for (int w = 0; w < W; w++) sum[w] += x[w];
        }
        store<W>(out + i, sum);
    }
};

template <class E>
void experts_gather(Dev *dev, X *out, const X *inp, const int32_t *slot, size_t R, size_t k, size_t C)
{
    elements<WIDE<E>>(dev_cuda(dev), R * C, C % WIDE<E> == 0 && aligned(out, inp),
                      Gather<E>{ops_as<E>(out), ops_as<E>(inp), slot, k, C});
}

template <class E>
void experts_combine(Dev *dev, X *out, const X *inp, const int32_t *row, size_t N, size_t k, size_t C)
{
    elements<WIDE<E>>(dev_cuda(dev), N * C, C % WIDE<E> == 0 && aligned(out, inp),
                      Combine<E>{ops_as<E>(out), ops_as<E>(inp), row, k, C});
}

struct Pick {
    float *out;
    const float *inp;
    const int32_t *index;
    template <int W> __device__ void run(size_t i) const
    {
        out[i] = index[i] < 0 ? 0 : inp[index[i]];
    }
};

void experts_pick(Dev *dev, float *out, const float *inp, const int32_t *index, size_t n)
{
    elements<1>(dev_cuda(dev), n, false, Pick{out, inp, index});
}

// ---- SwiGLU times the weight of the slot

template <class E> struct WeightedSwiglu {
    E *out;
    const E *gate_up;
    const float *weight;
    const int32_t *slot;
    size_t F;
    template <int W> __device__ void run(size_t i) const
    {
        size_t r = i / F;
        const E *gate = gate_up + i + r * F;
        float g[W] = {}, u[W] = {}, weigh = !slot ? weight[r] : slot[r] < 0 ? 0 : weight[slot[r]];
        if (!slot || slot[r] >= 0) load<W>(g, gate), load<W>(u, gate + F);
        for (int k = 0; k < W; k++) u[k] = weigh * (g[k] / (1 + expf(-g[k])) * u[k]);
        store<W>(out + i, u);
    }
};

// A block a row: the gradient of its weight is the sum over the row.
template <class E, int W>
__global__ void experts_swiglu_backward_kernel(E *dgate_up, float *dgate, const E *dout, const E *gate_up,
                                               const float *weight, const int32_t *slot, size_t F)
{
    size_t r = blockIdx.x;
    int32_t from = slot ? slot[r] : (int32_t)r;
    float weigh = from < 0 ? 0 : weight[from], sum = 0;
    E *dg = dgate_up + r * 2 * F;
    for (size_t f = threadIdx.x * W; f < F; f += (size_t)blockDim.x * W) {
        float g[W] = {}, u[W] = {}, d[W] = {};
        if (from >= 0) {
            load<W>(g, gate_up + r * 2 * F + f), load<W>(u, gate_up + r * 2 * F + F + f);
            load<W>(d, dout + r * F + f);
        }
        for (int k = 0; k < W; k++) {
            float s = 1 / (1 + expf(-g[k])), up = u[k], dy = weigh * d[k];
            sum += d[k] * (g[k] * s * up);
            u[k] = dy * g[k] * s;
            g[k] = dy * up * s * (1 + g[k] * (1 - s));
        }
        store<W>(dg + f, g), store<W>(dg + F + f, u);
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0 && from >= 0) dgate[from] = sum;
}

template <class E>
void experts_swiglu_forward(Dev *dev, X *out, const X *gate_up, const float *gate, const int32_t *slot, size_t R,
                            size_t F)
{
    elements<WIDE<E>>(dev_cuda(dev), R * F, F % WIDE<E> == 0 && aligned(out, gate_up),
                      WeightedSwiglu<E>{ops_as<E>(out), ops_as<E>(gate_up), gate, slot, F});
}

template <class E>
void experts_swiglu_backward(Dev *dev, X *dgate_up, float *dgate, const X *dout, const X *gate_up, const float *gate,
                             const int32_t *slot, size_t R, size_t F)
{
    DevCuda *d = dev_cuda(dev);
    constexpr int W = WIDE<E>;
    bool wide = F % W == 0 && aligned(dgate_up, dout, gate_up);
    if (R == 0) return;
    if (wide)
        LAUNCH((experts_swiglu_backward_kernel<E, W>), (unsigned)R, (unsigned)d->threads, 0, d->stream,
               ops_as<E>(dgate_up), dgate, ops_as<E>(dout), ops_as<E>(gate_up), gate, slot, F);
    else
        LAUNCH((experts_swiglu_backward_kernel<E, 1>), (unsigned)R, (unsigned)d->threads, 0, d->stream,
               ops_as<E>(dgate_up), dgate, ops_as<E>(dout), ops_as<E>(gate_up), gate, slot, F);
}

// ---- products. A block's tile is a product of A (rows, k) and B (k, cols); either may lie transposed: TA: as
// (k, rows); TB: as (cols, k).

template <class A, class B, class O> struct Tile {
    const A *a; // its first element, likewise b and out
    const B *b;
    O *out;
    size_t rows, cols, k; // that are left of the matrices
    size_t lda, ldb, ldo;
    bool add;  // to what is in `out`
    bool wide; // all rows begin at multiples of 16 bytes and are as long
    bool tf32; // fp32 operands are rounded
};

// x rounded to TF32, to nearest, ties to even.
__device__ inline float rounded_tf32(float x)
{
    uint32_t u = __float_as_uint(x);
    return isnan(x) ? x : __uint_as_float((u + 0xfffu + (u >> 13 & 1)) & ~0x1fffu);
}

// Does the tile go through tensor cores? And its sizes: TILE rows and columns, DEPTH terms at a time.
template <class A, class B> constexpr bool TENSOR = sizeof(A) == 2 && sizeof(B) == 2;
template <class A, class B> constexpr int TILE = TENSOR<A, B> ? 128 : 64;
template <class A, class B> constexpr int DEPTH = TENSOR<A, B> ? 32 : 16;
enum { THREADS = 256 };

// A tile of an operand in shared memory: HIGH rows of WIDTH numbers, each 16 bytes longer for the banks.
template <class S, int HIGH, int WIDTH> struct Operand {
    static constexpr int LD = WIDTH + (int)(16 / sizeof(S)), SIZE = HIGH * LD;
};

// The block copies (high, width) numbers of the array, where there are any; the others become zero.
template <class S, int HIGH, int WIDTH, class T>
__device__ inline void load_operand(S *tile, const T *from, size_t ld, size_t high, size_t width, bool wide)
{
    typedef Operand<S, HIGH, WIDTH> Place;
    constexpr int V = (int)(16 / sizeof(S)), PIECES = WIDTH / V;
    for (int i = (int)threadIdx.x; i < HIGH * PIECES; i += THREADS) {
        size_t row = (size_t)(i / PIECES), col = (size_t)(i % PIECES * V);
        S *to = tile + row * Place::LD + col;
        const T *at = from + row * ld + col;
        if constexpr (sizeof(S) == sizeof(T)) {
            if (wide) {
                bool there = row < high && col < width;
                cp_async16(to, there ? at : from, there ? 16 : 0);
                continue;
            }
        }
        for (size_t v = 0; v < V; v++) to[v] = row < high && col + v < width ? S(at[v]) : S(0.0f);
    }
}

__device__ inline void mma(float *c, const uint32_t *a, const uint32_t *b, __nv_bfloat16)
{
    mma_m16n8k16_bf16(c, a, b, c);
}
__device__ inline void mma(float *c, const uint32_t *a, const uint32_t *b, __half)
{
    mma_m16n8k16_fp16(c, a, b, c);
}

// out = sum, or += ; W neighbours
template <int W, class O> __device__ inline void put(O *to, const float *sum, bool add)
{
    float x[W] = {};
    if (add) load<W>(x, to);
    for (int k = 0; k < W; k++) x[k] += sum[k];
    store<W>(to, x);
}

// 8 warps, in 2 rows of 4: each has (64, 32) of the tile.
template <class E, bool TA, bool TB> struct TensorSum {
    static constexpr int SIDE = TILE<E, E>, D = DEPTH<E, E>;
    typedef Operand<E, TA ? D : SIDE, TA ? SIDE : D> PlaceA;
    typedef Operand<E, TB ? SIDE : D, TB ? D : SIDE> PlaceB;
    float sum[4][4][4] = {};

    __device__ void add(const E *a, const E *b, bool)
    {
        int lane = (int)threadIdx.x % LANES, warp = (int)threadIdx.x / LANES, row = warp / 4 * 64, col = warp % 4 * 32;
#pragma unroll
        for (int k = 0; k < D; k += 16) {
            uint32_t x[4][4], y[2][4];
#pragma unroll
            for (int m = 0; m < 4; m++) {
                int at = row + 16 * m;
                const E *turned = a + (k + lane % 8 + lane / 16 * 8) * PlaceA::LD + at + lane / 8 % 2 * 8;
                if (TA) ldmatrix_x4_trans(x[m], turned);
                else ldmatrix_x4(x[m], a + (at + lane % 16) * PlaceA::LD + k + lane / 16 * 8);
            }
#pragma unroll
            for (int n = 0; n < 2; n++) {
                int at = col + 16 * n;
                if (TB) ldmatrix_x4(y[n], b + (at + lane % 8 + lane / 16 * 8) * PlaceB::LD + k + lane / 8 % 2 * 8);
                else ldmatrix_x4_trans(y[n], b + (k + lane % 16) * PlaceB::LD + at + lane / 16 * 8);
            }
#pragma unroll
            for (int m = 0; m < 4; m++)
#pragma unroll
                for (int n = 0; n < 4; n++) mma(sum[m][n], x[m], y[n / 2] + n % 2 * 2, E());
        }
    }

    template <class T> __device__ void store_to(const T &t) const
    {
        int lane = (int)threadIdx.x % LANES, warp = (int)threadIdx.x / LANES;
#pragma unroll
        for (int i = 0; i < 32; i++) { // tile (m, n), and which half of its rows
            int m = i / 8, n = i / 2 % 4, half = i % 2;
            size_t row = (size_t)(warp / 4 * 64 + 16 * m + lane / 4 + 8 * half);
            size_t col = (size_t)(warp % 4 * 32 + 8 * n + lane % 4 * 2);
            if (row >= t.rows || col >= t.cols) continue;
            auto *to = t.out + row * t.ldo + col;
            if (t.wide) put<2>(to, sum[m][n] + 2 * half, t.add);
            else {
                put<1>(to, sum[m][n] + 2 * half, t.add);
                if (col + 1 < t.cols) put<1>(to + 1, sum[m][n] + 2 * half + 1, t.add);
            }
        }
    }
};

// 16 x 16 threads; thread (y, x) has rows y + 16 i and columns x + 16 j.
template <class A, class B, bool TA, bool TB> struct PlainSum {
    static constexpr int SIDE = TILE<A, B>, D = DEPTH<A, B>;
    typedef Operand<float, TA ? D : SIDE, TA ? SIDE : D> PlaceA;
    typedef Operand<float, TB ? SIDE : D, TB ? D : SIDE> PlaceB;
    float sum[4][4] = {};

    __device__ void add(const float *a, const float *b, bool tf32)
    {
        int y = (int)threadIdx.x / 16, x = (int)threadIdx.x % 16;
        for (int k = 0; k < D; k++) {
            float left[4], right[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                left[i] = TA ? a[k * PlaceA::LD + y + 16 * i] : a[(y + 16 * i) * PlaceA::LD + k];
                right[i] = TB ? b[(x + 16 * i) * PlaceB::LD + k] : b[k * PlaceB::LD + x + 16 * i];
                if (tf32) left[i] = rounded_tf32(left[i]), right[i] = rounded_tf32(right[i]);
            }
#pragma unroll
            for (int i = 0; i < 16; i++) sum[i / 4][i % 4] = fmaf(left[i / 4], right[i % 4], sum[i / 4][i % 4]);
        }
    }

    template <class T> __device__ void store_to(const T &t) const
    {
#pragma unroll
        for (int i = 0; i < 16; i++) {
            size_t row = threadIdx.x / 16 + (size_t)(16 * (i / 4)), col = threadIdx.x % 16 + (size_t)(16 * (i % 4));
            if (row < t.rows && col < t.cols) put<1>(t.out + row * t.ldo + col, &sum[i / 4][i % 4], t.add);
        }
    }
};

template <bool TA, bool TB, class A, class B, class O> __device__ inline void multiply(const Tile<A, B, O> &t)
{
    typedef std::conditional_t<TENSOR<A, B>, TensorSum<A, TA, TB>, PlainSum<A, B, TA, TB>> Sum;
    typedef std::conditional_t<TENSOR<A, B>, A, float> S;
    constexpr int SIDE = Sum::SIDE, D = Sum::D;
    SHARED16(S, a, [2][Sum::PlaceA::SIZE]);
    SHARED16(S, b, [2][Sum::PlaceB::SIZE]);
    auto fetch = [&](int to, size_t k0) {
        size_t left = t.k - k0;
        load_operand<S, TA ? D : SIDE, TA ? SIDE : D>(a[to], t.a + k0 * (TA ? t.lda : 1), t.lda, TA ? left : t.rows,
                                                      TA ? t.rows : left, t.wide);
        load_operand<S, TB ? SIDE : D, TB ? D : SIDE>(b[to], t.b + k0 * (TB ? 1 : t.ldb), t.ldb, TB ? t.cols : left,
                                                      TB ? left : t.cols, t.wide);
        cp_async_commit();
    };
    Sum sum;
    if (t.k > 0) fetch(0, 0);
    int now = 0;
    for (size_t k0 = 0; k0 < t.k; k0 += D, now ^= 1) {
        cp_async_wait<0>();
        __syncthreads(); // this tile is complete, and the other buffer free
        if (t.k - k0 > D) fetch(now ^ 1, k0 + D);
        sum.add(a[now], b[now], t.tf32);
    }
    sum.store_to(t);
}

// An operand of one matrix for each expert, or of rows.
template <class A, class B, class O> struct Products {
    const A *a;
    const B *b;
    O *out;
    const int32_t *offset; // NULL: one expert with all rows
    size_t E, R, stride, sources; // as DevExperts
    bool add, wide, tf32;
};

// out rows (W) = a rows (K) b_e. Block (x, y): tile x of rows, tile y of columns.
template <bool TB, class A, class B, class O>
__global__ void __launch_bounds__(THREADS, 2) experts_rows_kernel(Products<A, B, O> p, size_t K, size_t W)
{
    constexpr size_t SIDE = TILE<A, B>;
    size_t g = 0, groups = p.sources * p.E, first = blockIdx.x * SIDE, end = p.R, col = blockIdx.y * SIDE;
    if (p.offset) {
        for (size_t above = groups + 1; above - g > 1;) {
            size_t middle = (g + above) / 2;
            if ((size_t)p.offset[middle] / SIDE + middle <= blockIdx.x) g = middle;
            else above = middle;
        }
        size_t begin = (size_t)p.offset[g];
        first = begin + (blockIdx.x - begin / SIDE - g) * SIDE;
        end = g < groups ? (size_t)p.offset[g + 1] : p.R;
    }
    if (first >= end) return;
    bool none = p.offset && g == groups; // of no expert: a sum without terms
    const B *b = p.b + (none ? 0 : g % p.E * p.stride);
    multiply<false, TB>(Tile<A, B, O>{p.a + first * K, b + (TB ? col * K : col), p.out + first * W + col, end - first,
                                      W - col, none ? 0 : K, K, TB ? K : W, W, p.add, p.wide, p.tf32});
}

// out_e (H, W) = the sum over its rows of a (H) times b (W). Block (x, y, z): tile (x, y) of expert z, or without
// experts of range z of the rows.
template <class A, class B>
__global__ void __launch_bounds__(THREADS, 2) experts_sum_kernel(Products<A, B, float> p, size_t H, size_t W)
{
    constexpr size_t SIDE = TILE<A, B>;
    size_t e = blockIdx.z, row = blockIdx.x * SIDE, col = blockIdx.y * SIDE;
    size_t begin = p.offset ? (size_t)p.offset[e] : e * p.R / gridDim.z;
    size_t end = p.offset ? (size_t)p.offset[e + 1] : (e + 1) * p.R / gridDim.z;
    if (begin == end && p.add) return;
    multiply<true, false>(Tile<A, B, float>{p.a + begin * H + row, p.b + begin * W + col,
                                            p.out + e * p.stride + row * W + col, H - row, W - col, end - begin, H, W,
                                            W, p.add, p.wide, p.tf32});
}

template <class... P> bool wide_rows(size_t C, size_t OC, size_t stride, const P *...p)
{
    return C % 8 == 0 && OC % 8 == 0 && stride % 8 == 0 && aligned(p...);
}

template <bool TB, class A, class B, class O>
void launch_rows(DevCuda *d, const Products<A, B, O> &p, size_t K, size_t W)
{
    size_t side = (size_t)TILE<A, B>;
    size_t tiles = p.offset ? p.R / side + p.sources * p.E + 1 : (p.R + side - 1) / side;
    if (p.R == 0) return;
    LAUNCH((experts_rows_kernel<TB, A, B, O>), dim3((unsigned)tiles, (unsigned)((W + side - 1) / side)),
           (unsigned)THREADS, 0, d->stream, p, K, W);
}

template <class A, class B>
void launch_sum(DevCuda *d, const Products<A, B, float> &p, size_t H, size_t W, size_t ranges)
{
    size_t side = (size_t)TILE<A, B>;
    LAUNCH((experts_sum_kernel<A, B>),
           dim3((unsigned)((H + side - 1) / side), (unsigned)((W + side - 1) / side), (unsigned)ranges),
           (unsigned)THREADS, 0, d->stream, p, H, W);
}

template <class E>
void experts_forward(Dev *dev, X *out, const X *inp, const X *weight, size_t C, size_t OC, DevExperts x)
{
    bool wide = wide_rows(C, OC, x.stride, out, inp, weight);
    launch_rows<true>(dev_cuda(dev), Products<E, E, E>{ops_as<E>(inp), ops_as<E>(weight), ops_as<E>(out), x.offset, x.E,
                                                       x.R, x.stride, x.sources, false, wide, dev->tf32}, C, OC);
}

template <class E>
void experts_backward_input(Dev *dev, X *dinp, const X *dout, const X *weight, size_t C, size_t OC, DevExperts x)
{
    bool wide = wide_rows(C, OC, x.stride, dinp, dout, weight);
    launch_rows<false>(dev_cuda(dev), Products<E, E, E>{ops_as<E>(dout), ops_as<E>(weight), ops_as<E>(dinp), x.offset,
                                                        x.E, x.R, x.stride, x.sources, false, wide, dev->tf32}, OC, C);
}

template <class E>
void experts_backward_weight(Dev *dev, float *dweight, const X *dout, const X *inp, size_t C, size_t OC, DevExperts x)
{
    bool wide = wide_rows(C, OC, x.stride, dout, inp, dweight);
    for (size_t i = 0; i < x.sources; i++)
        launch_sum(dev_cuda(dev), Products<E, E, float>{ops_as<E>(dout), ops_as<E>(inp), dweight, x.offset + i * x.E,
                                                        x.E, x.R, x.stride, 1, true, wide, dev->tf32}, OC, C, x.E);
}

// The router's matrix is small, so its gradient is summed over several ranges of rows, and then over the ranges.
template <class E>
void router_backward(Dev *dev, X *dinp, float *dweight, const float *dlogits, const X *inp, const X *weight, size_t N,
                     size_t C, size_t n_experts)
{
    DevCuda *d = dev_cuda(dev);
    size_t n = n_experts * C, ranges = N / 1024 < 1 ? 1 : N / 1024 < 64 ? N / 1024 : 64;
    launch_rows<false>(d, Products<float, E, E>{dlogits, ops_as<E>(weight), ops_as<E>(dinp), nullptr, 1, N, 0, 1, true,
                                                false, false}, n_experts, C);
    float *part = (float *)dev_cuda_scratch(d, ranges * n * sizeof *part);
    launch_sum(d, Products<float, E, float>{dlogits, ops_as<E>(inp), part, nullptr, 1, N, n, 1, false, false, false},
               n_experts, C, ranges);
    sums_columns(d, dweight, part, ranges, n, n, nullptr);
}

} // namespace

template <class E> void experts_cuda_fill(Dev *dev)
{
    dev->router_backward = router_backward<E>;
    dev->route_forward = route_forward;
    dev->route_backward = route_backward;
    dev->experts_count = experts_count;
    dev->experts_sort = experts_sort;
    dev->experts_gather = experts_gather<E>;
    dev->experts_combine = experts_combine<E>;
    dev->experts_pick = experts_pick;
    dev->experts_forward = experts_forward<E>;
    dev->experts_backward_input = experts_backward_input<E>;
    dev->experts_backward_weight = experts_backward_weight<E>;
    dev->experts_swiglu_forward = experts_swiglu_forward<E>;
    dev->experts_swiglu_backward = experts_swiglu_backward<E>;
}
DEV_CUDA_FILL(experts)
