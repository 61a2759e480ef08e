// cp: context parallelism: the tokens of a sequence divided over ranks, and ring attention (Liu et al., arXiv
// 2310.01889). Each of N ranks keeps its queries, and blocks of keys and values go around a ring. In step j rank r has
// the block of rank r - j; it sends it on and receives the next one while it computes:
//
//   start receive of block r - j - 1, start send of block r - j;  O, lse <- merge with attention(Q, block);  wait
//
// Backward sends K and V around once more. dQ is summed on its own rank. The sums dK and dV of a block go around the
// ring one step after the block, each rank adds its part, and the last send returns them to the owner. P and dS need
// the lse and rowsum(dO * O) of the whole row, which this rank has.
//
// Which tokens a rank has: T tokens are 2 N chunks; with zig-zag rank r has r and 2 N - 1 - r (Brandon et al., arXiv
// 2311.09431, and Llama 3, arXiv 2407.21783, balance likewise), so every step of the ring has the same work on every
// rank. A rank's tokens are in ascending order, so within its own the causal mask is a plain triangle.
//
// Gather (Llama 3): all K and V at once, N times the memory, the same bytes; dK, dV by reduce_scatter.
//
// Deterministic mode: with `blocks` all sums of attention have the order of a tree over ranks (Fold), and cp_keep_order
// has rank 0 compute the gradients of weights from the rows of all ranks. doc/cp.md says why.
//
// The invariant: a block's buffer belongs to its send and receive until both are waited for. The computation of step j
// reads only the block of step j, in forward and backward (a typical bug is a stale block in backward). A collected row
// goes to its position in the sequence (cp_collect), whatever the order of arrival.
#include "parallel/parts.h"

#include "base/check.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_SLOTS = 32, MAX_BLOCKS = 16, TAG_KV = 0, TAG_DKV = 1, TAG_ROWS = 2 };

// ---- which rank has which tokens

void cp_check(CpSettings set, size_t T, int size)
{
    size_t N = (size_t)size, rest = T % (2 * N);
    if (T == 0 || rest)
        die("cp: %zu tokens in 2 x %d equal chunks, two for each rank (%zu tokens would do)", T, size,
            T - rest ? T - rest : 2 * N);
    if (set.blocks && (set.blocks < 0 || set.blocks % (2 * size) || set.blocks & (set.blocks - 1)))
        die("cp: the same bits as one rank over %d ranks: %d blocks of the sequence (a power of two of ranks, half as "
            "many as blocks at most)", size, set.blocks);
    if (set.blocks && T < (size_t)set.blocks)
        die("cp: the same bits as one rank: %zu tokens in %d blocks (as many tokens as blocks at least)", T,
            set.blocks);
    if (set.blocks && set.assign != CP_ZIGZAG && size > 1)
        die("cp: the same bits as one rank with contiguous chunks over %d ranks (zig-zag, or no fixed order of sums)",
            size);
}

size_t cp_chunk(CpAssign assign, int rank, int size, int half)
{
    if (assign == CP_CONTIGUOUS) return 2 * (size_t)rank + (size_t)half;
    return (size_t)(half ? 2 * size - 1 - rank : rank);
}

size_t cp_position(CpAssign assign, size_t T, int rank, int size, size_t i)
{
    size_t length = T / (2 * (size_t)size);
    return cp_chunk(assign, rank, size, i >= length) * length + i % length;
}

int cp_rank(CpAssign assign, size_t T, int size, size_t position, size_t *i)
{
    size_t length = T / (2 * (size_t)size), chunk = position / length, N = (size_t)size;
    bool second = assign == CP_CONTIGUOUS ? chunk % 2 : chunk >= N;
    *i = second * length + position % length;
    return (int)(assign == CP_CONTIGUOUS ? chunk / 2 : second ? 2 * N - 1 - chunk : chunk);
}

void cp_cut(void *out, const void *in, size_t n_bytes, size_t B, CpAssign assign, size_t T, int rank, int size)
{
    size_t length = T / (2 * (size_t)size) * n_bytes;
    for (size_t b = 0; b < B; b++)
        for (int half = 0; half < 2; half++)
            memcpy((char *)out + (2 * b + (size_t)half) * length,
                   (const char *)in + b * T * n_bytes + cp_chunk(assign, rank, size, half) * length, length);
}

uint64_t cp_work(CpAssign assign, size_t T, int rank, int size, int owner)
{
    uint64_t n = T / (2 * (size_t)size), pairs = 0;
    for (int half = 0; half < 2; half++)
        for (int other = 0; other < 2; other++) {
            size_t queries = cp_chunk(assign, rank, size, half), keys = cp_chunk(assign, owner, size, other);
            pairs += keys < queries ? n * n : keys == queries ? n * (n + 1) / 2 : 0;
        }
    return pairs;
}

// Whether the rank has work with the owner's keys. Two positions of chunks a > c are (a - c - 1) n + 1 apart at least.
// With `blocks` every part must arrive in the tree, an empty one too.
static bool has_work(CpSettings set, size_t T, int rank, int size, int owner, size_t window)
{
    if (!window || set.blocks) return cp_work(set.assign, T, rank, size, owner) > 0;
    size_t n = T / (2 * (size_t)size);
    bool any = false;
    for (int i = 0; i < 4; i++) {
        size_t a = cp_chunk(set.assign, rank, size, i % 2), c = cp_chunk(set.assign, owner, size, i / 2);
        any |= a == c || (a > c && (a - c - 1) * n + 1 < window);
    }
    return any;
}

// ---- buffers

static int levels(int size)
{
    int n = 0;
    while (1 << n < size) n++;
    return n;
}

// The most partial results that wait at once: one sum and the next part; in a tree at most one branch per level on
// either side of the first leaf, and the next part.
static int slots_of(CpSettings set, int size)
{
    int tree = 2 * levels(size) + 1;
    return !set.blocks ? 2 : tree < size ? tree : size;
}

static size_t slot_floats(size_t B, size_t rows, size_t H, size_t D)
{
    return (B * rows * H * (D + 1) + 15) / 16 * 16;
}

// Blocks of K and V, and of dK and dV, that a rank holds.
static int kv_blocks(CpSettings set, int size)
{
    return set.way == CP_GATHER ? size : 2;
}

static int dkv_blocks(CpSettings set, int size)
{
    return set.way == CP_GATHER ? size : set.blocks ? slots_of(set, size) + 2 : 4;
}

size_t cp_memory(CpSettings set, int size, size_t x_bytes, size_t B, size_t T, size_t H, size_t G, size_t D)
{
    size_t rows = T / (size_t)size, kv = 2 * B * rows * G * D;
    return (size_t)kv_blocks(set, size) * kv * x_bytes + (size_t)dkv_blocks(set, size) * kv * sizeof(float) +
           (size_t)slots_of(set, size) * slot_floats(B, rows, H, D) * sizeof(float) + B * rows * sizeof(int32_t);
}

size_t cp_bytes(int size, size_t x_bytes, size_t B, size_t T, size_t G, size_t D, bool backward)
{
    size_t kv = 2 * B * (T / (size_t)size) * G * D;
    return (size_t)(size - 1) * kv * (x_bytes + (backward ? sizeof(float) : 0));
}

Cp *cp_create(Comm *comm, Dev *dev, Mem *mem, CpSettings set, size_t B, size_t T, size_t H, size_t G, size_t D)
{
    int size = comm->size;
    cp_check(set, T, size);
    check(size > 1 && (!set.blocks || set.way != CP_GATHER || comm->ordered));
    Cp *cp = calloc(1, sizeof *cp);
    if (!cp) die("cp: no memory");
    size_t rows = T / (size_t)size, kv = 2 * B * rows * G * D;
    *cp = (Cp){.set = set, .comm = comm, .rank = comm->rank, .size = size, .dev = dev, .mem = mem, .B = B,
               .T = T, .H = H, .G = G, .D = D, .n_slots = slots_of(set, size), .n_slot = slot_floats(B, rows, H, D)};
    size_t n_kv = (size_t)kv_blocks(set, size), n_dkv = (size_t)dkv_blocks(set, size), n = (size_t)cp->n_slots;
    check(cp->n_slots <= MAX_SLOTS);
    cp->row = mem_alloc(mem, MEM_COMM, B * rows * sizeof *cp->row, "places of rows");
    cp->kv = mem_alloc(mem, MEM_COMM, n_kv * kv * dev->x_bytes, "keys and values of other ranks");
    cp->dkv = mem_alloc(mem, MEM_COMM, n_dkv * kv * sizeof(float), "gradients of keys and values");
    cp->slots = mem_alloc(mem, MEM_COMM, n * cp->n_slot * sizeof(float), "partial attention");
    return cp;
}

// ---- sums of parts: in the order of arrival, or in a tree over the owners of the blocks

typedef struct {
    float *at;
    int first, n; // owners first .. first + n - 1
} Branch;

typedef struct {
    const Cp *cp;
    float *slots;
    size_t n_slot, n_out;
    AttnShape s;
    bool softmax;
    int n;
    Branch branch[MAX_SLOTS];
} Fold;

// Memory for the next part.
static float *fold_room(const Fold *f)
{
    for (int i = 0; i < f->cp->n_slots; i++) {
        float *slot = f->slots + (size_t)i * f->n_slot;
        bool used = false;
        for (int k = 0; k < f->n; k++) used |= f->branch[k].at == slot;
        if (!used) return slot;
    }
    check(!"room for a part");
    return NULL;
}

static void fold_join(const Fold *f, float *a, float *b)
{
    Dev *dev = f->cp->dev;
    if (f->softmax) dev->attention_merge(dev, a, a + f->n_out, b, b + f->n_out, f->s.B, f->s.Tq, f->s.H, f->s.D);
    else dev->accumulate(dev, a, b, f->n_out);
}

static void fold_add(Fold *f, float *part, int owner)
{
    Branch new = {.at = part, .first = owner, .n = 1};
    bool tree = f->cp->set.blocks > 0;
    for (int k = 0; k < f->n;) {
        Branch *old = &f->branch[k];
        if (tree && (old->n != new.n || old->first != (new.first ^ new.n))) {
            k++;
            continue;
        }
        bool behind = tree && old->first > new.first; // the old branch is the right operand
        fold_join(f, behind ? new.at : old->at, behind ? old->at : new.at);
        new = (Branch){.at = behind ? new.at : old->at, .first = behind ? new.first : old->first, .n = 2 * new.n};
        f->branch[k] = f->branch[--f->n];
        k = tree ? 0 : f->n;
    }
    f->branch[f->n++] = new;
}

static const float *fold_root(const Fold *f)
{
    check(f->n == 1);
    return f->branch[0].at;
}

// ---- blocks in flight

static const X *at(const Cp *cp, const X *x, size_t i)
{
    return (const X *)((const char *)x + i * cp->dev->x_bytes);
}

// One call of forward or backward.
typedef struct {
    Cp *cp;
    AttnShape s;
    const X *q, *k, *v; // this rank's
    size_t T, n_kv;     // tokens of a whole sequence; elements of K of a block, and of V
    CommRequest send, recv, send_dkv, recv_dkv; // gather: recv
} Call;

static int neighbour(const Cp *cp, int distance)
{
    return (cp->rank + distance + cp->size) % cp->size;
}

static X *kv_block(const Call *c, int i)
{
    return (X *)(c->cp->kv + (size_t)i * 2 * c->n_kv * c->cp->dev->x_bytes);
}

static void move_messages(void *comm)
{
    comm_progress(comm);
}

static Call call_begin(Cp *cp, const X *q, const X *k, const X *v, AttnShape s)
{
    size_t rows = s.Tq, width = s.G * s.D, T = rows * (size_t)cp->size;
    check(s.B <= cp->B && T <= cp->T && s.Tk == rows && s.H == cp->H && s.G == cp->G && s.D == cp->D && !s.q_start);
    check(T % (2 * (size_t)cp->size) == 0 && T >= (size_t)cp->set.blocks);
    Call c = {.cp = cp, .s = s, .q = q, .k = k, .v = v, .T = T, .n_kv = s.B * rows * width};
    cp->dev->meanwhile = move_messages, cp->dev->meanwhile_arg = cp->comm;
    bool gather = cp->set.way == CP_GATHER;
    X *own = kv_block(&c, gather ? cp->rank : 0);
    cp->dev->copy(cp->dev, own, k, s.B * rows, width, width, s.ldkv);
    cp->dev->copy(cp->dev, (X *)at(cp, own, c.n_kv), v, s.B * rows, width, width, s.ldkv);
    if (gather) {
        size_t counts[cp->size];
        for (int r = 0; r < cp->size; r++) counts[r] = 2 * c.n_kv;
        c.recv = comm_all_gather(cp->comm, cp->kv, own, counts, comm_type_of(cp->dev->x_type));
    }
    return c;
}

// Before the computation of step j: starts to send and receive for the block of step j + 1.
static void start_next(Call *c, int j)
{
    Cp *cp = c->cp;
    if (cp->set.way == CP_GATHER || j + 1 >= cp->size) return;
    CommType type = comm_type_of(cp->dev->x_type);
    c->recv = comm_recv(cp->comm, kv_block(c, (j + 1) % 2), 2 * c->n_kv, type, neighbour(cp, -1), TAG_KV);
    c->send = comm_send(cp->comm, kv_block(c, j % 2), 2 * c->n_kv, type, neighbour(cp, 1), TAG_KV);
}

// After the computation of step j: waits for the block of step j + 1.
static void finish_next(Call *c)
{
    comm_wait(c->cp->comm, &c->recv);
    comm_wait(c->cp->comm, &c->send);
}

// This rank's queries and the owner's keys.
static AttnShape pieces(const Call *c, int owner)
{
    const Cp *cp = c->cp;
    int rank = cp->rank, size = cp->size;
    size_t length = c->T / (2 * (size_t)size), q[2], k[2];
    for (int half = 0; half < 2; half++) {
        q[half] = cp_chunk(cp->set.assign, rank, size, half);
        k[half] = cp_chunk(cp->set.assign, owner, size, half);
    }
    AttnShape s = c->s;
    s.T = c->T, s.blocks = cp->set.blocks;
    s.q_start = q[0] * length, s.q_cut = length, s.q_jump = (q[1] - q[0] - 1) * length;
    s.k_start = k[0] * length, s.k_cut = length, s.k_jump = (k[1] - k[0] - 1) * length;
    if (owner != rank) s.ldkv = s.G * s.D;
    return s;
}

// Step j's keys and values.
static void keys_of_step(const Call *c, int j, int owner, const X **k, const X **v)
{
    *k = c->k, *v = c->v;
    if (owner == c->cp->rank) return;
    *k = kv_block(c, c->cp->set.way == CP_GATHER ? owner : j % 2);
    *v = at(c->cp, *k, c->n_kv);
}

// Rows of fp32 into rows of X, ld elements apart.
static void store(const Cp *cp, X *out, const float *in, size_t rows, size_t width, size_t ld)
{
    if (ld == width) cp->dev->to_x(cp->dev, out, in, rows * width);
    else
        for (size_t r = 0; r < rows; r++) cp->dev->to_x(cp->dev, (X *)at(cp, out, r * ld), in + r * width, width);
}

// ---- forward

static void part_forward(const Call *c, int j, int owner, float *part)
{
    const Cp *cp = c->cp;
    AttnShape s = pieces(c, owner);
    const X *k, *v;
    keys_of_step(c, j, owner, &k, &v);
    cp->dev->attention_part_forward(cp->dev, part, part + s.B * s.Tq * s.H * s.D, c->q, k, v, s);
}

void cp_forward(Cp *cp, X *out, float *lse, const X *q, const X *k, const X *v, AttnShape s)
{
    int size = cp->size, rank = cp->rank;
    Call c = call_begin(cp, q, k, v, s);
    Fold sum = {.cp = cp, .slots = cp->slots, .n_slot = cp->n_slot, .n_out = s.B * s.Tq * s.H * s.D, .s = s,
                .softmax = true};
    for (int j = 0; j < size; j++) {
        int owner = neighbour(cp, -j);
        start_next(&c, j);
        if (has_work(cp->set, c.T, rank, size, owner, s.window)) {
            float *part = fold_room(&sum);
            part_forward(&c, j, owner, part);
            fold_add(&sum, part, owner);
        }
        finish_next(&c);
    }
    cp->dev->meanwhile = NULL;
    const float *root = fold_root(&sum);
    cp->dev->to_x(cp->dev, out, root, sum.n_out);
    if (lse) cp->dev->subtract(cp->dev, lse, root + sum.n_out, NULL, s.B * s.H * s.Tq);
}

// ---- backward

// dq of the owner's keys; dkv: dK (n_kv) and dV (n_kv) of this rank's queries.
static void part_backward(const Call *c, int j, int owner, float *dq, float *dkv, const X *dout, const X *out,
                          const float *lse)
{
    const Cp *cp = c->cp;
    AttnShape s = pieces(c, owner);
    const X *k, *v;
    keys_of_step(c, j, owner, &k, &v);
    cp->dev->attention_part_backward(cp->dev, dq, dkv, dkv + c->n_kv, dout, out, lse, c->q, k, v, s);
}

// Buffers in which dK and dV of all ranks' queries for this rank's keys are summed. Around the ring: the own sum, two
// sums that are received and sent in turn, and the part under computation. Sent directly (fold): slots, and two parts
// that are sent in turn.
typedef struct {
    float *own, *travel[2], *part;
    Fold fold;
    float *arriving;
} Home;

static Home home_begin(Cp *cp, size_t n)
{
    Home h = {.own = cp->dkv, .travel = {cp->dkv + n, cp->dkv + 2 * n}, .part = cp->dkv + 3 * n};
    if (cp->set.way == CP_GATHER) h.own = cp->dkv + (size_t)cp->rank * n;
    else if (cp->set.blocks) {
        float *behind = cp->dkv + (size_t)cp->n_slots * n;
        h.fold = (Fold){.cp = cp, .slots = cp->dkv, .n_slot = n, .n_out = n};
        h.travel[0] = behind, h.travel[1] = behind + n;
    }
    return h;
}

// Where step j's part is to be written.
static float *home_room(Home *h, const Cp *cp, int j, int owner, size_t n)
{
    if (cp->set.way == CP_GATHER) return cp->dkv + (size_t)owner * n;
    if (cp->set.blocks) return j ? h->travel[j % 2] : fold_room(&h->fold);
    return j == 0 ? h->own : j == 1 ? h->travel[1] : h->part;
}

// The sum for the block of this step arrives from the left neighbour; this rank adds its part and sends the sum on.
static void travel_on(Call *c, Home *h, int j, size_t n)
{
    Cp *cp = c->cp;
    comm_wait(cp->comm, &c->recv_dkv);
    if (j > 1) cp->dev->accumulate(cp->dev, h->travel[j % 2], h->part, n);
    comm_wait(cp->comm, &c->send_dkv); // of step j - 1: the other buffer is free
    c->recv_dkv = comm_recv(cp->comm, h->travel[(j + 1) % 2], n, COMM_FP32, neighbour(cp, -1), TAG_DKV);
    c->send_dkv = comm_send(cp->comm, h->travel[j % 2], n, COMM_FP32, neighbour(cp, 1), TAG_DKV);
}

static void arrived(Call *c, Home *h, int from)
{
    comm_wait(c->cp->comm, &c->recv_dkv);
    comm_wait(c->cp->comm, &c->send_dkv);
    if (h->arriving) fold_add(&h->fold, h->arriving, from);
    h->arriving = NULL;
}

// Sends the part to its owner, and receives the part of rank + j for this rank's keys.
static void send_home(Call *c, Home *h, int j, int owner, float *part, size_t n)
{
    Cp *cp = c->cp;
    arrived(c, h, neighbour(cp, j - 1));
    h->arriving = fold_room(&h->fold);
    c->recv_dkv = comm_recv(cp->comm, h->arriving, n, COMM_FP32, neighbour(cp, j), TAG_DKV);
    c->send_dkv = comm_send(cp->comm, part, n, COMM_FP32, owner, TAG_DKV);
}

static const float *home_end(Call *c, Home *h, size_t n)
{
    Cp *cp = c->cp;
    int size = cp->size;
    if (cp->set.way == CP_GATHER) {
        size_t counts[size];
        for (int r = 0; r < size; r++) counts[r] = n;
        c->recv_dkv = comm_reduce_scatter(cp->comm, h->own, cp->dkv, counts, COMM_FP32, COMM_SUM);
        comm_wait(cp->comm, &c->recv_dkv);
        return h->own;
    }
    if (cp->set.blocks) {
        arrived(c, h, neighbour(cp, size - 1));
        return fold_root(&h->fold);
    }
    comm_wait(cp->comm, &c->recv_dkv);
    comm_wait(cp->comm, &c->send_dkv);
    cp->dev->accumulate(cp->dev, h->own, h->travel[size % 2], n);
    return h->own;
}

void cp_backward(Cp *cp, X *dq, X *dk, X *dv, const X *dout, const X *out, const float *lse, const X *q, const X *k,
                 const X *v, AttnShape s)
{
    int size = cp->size, rank = cp->rank;
    Call c = call_begin(cp, q, k, v, s);
    size_t n = 2 * c.n_kv, width = s.H * s.D;
    Fold sum = {.cp = cp, .slots = cp->slots, .n_slot = cp->n_slot, .n_out = s.B * s.Tq * width, .s = s};
    Home home = home_begin(cp, n);
    for (int j = 0; j < size; j++) {
        int owner = neighbour(cp, -j);
        start_next(&c, j);
        float *dkv = home_room(&home, cp, j, owner, n);
        if (has_work(cp->set, c.T, rank, size, owner, s.window)) {
            float *part = fold_room(&sum);
            part_backward(&c, j, owner, part, dkv, dout, out, lse);
            fold_add(&sum, part, owner);
        } else {
            cp->dev->zero(cp->dev, dkv, n * sizeof *dkv);
        }
        if (cp->set.way == CP_RING && cp->set.blocks) {
            if (j) send_home(&c, &home, j, owner, dkv, n);
            else fold_add(&home.fold, dkv, rank);
        } else if (cp->set.way == CP_RING && j) {
            travel_on(&c, &home, j, n);
        }
        finish_next(&c);
    }
    cp->dev->meanwhile = NULL;
    const float *dkv = home_end(&c, &home, n);
    store(cp, dq, fold_root(&sum), s.B * s.Tq, width, s.ldq);
    store(cp, dk, dkv, s.B * s.Tk, s.G * s.D, s.ldkv);
    store(cp, dv, dkv + c.n_kv, s.B * s.Tk, s.G * s.D, s.ldkv);
}

// ---- where rows stand

int cp_blocks(size_t T)
{
    int n = 1;
    while (n < MAX_BLOCKS && T % (2 * (size_t)n) == 0) n *= 2;
    return n > 1 ? n : 0;
}

const int32_t *cp_rows(Cp *cp, size_t T)
{
    size_t rows = T / (size_t)cp->size;
    check(T <= cp->T && cp->B * T <= INT32_MAX);
    if (cp->row_T == T) return cp->row;
    int32_t *row = malloc(cp->B * rows * sizeof *row);
    if (!row) die("cp: no memory for the places of %zu rows", cp->B * rows);
    for (size_t b = 0; b < cp->B; b++)
        for (size_t i = 0; i < rows; i++)
            row[b * rows + i] = (int32_t)(b * T + cp_position(cp->set.assign, T, cp->rank, cp->size, i));
    cp->dev->to_device(cp->dev, cp->row, row, cp->B * rows * sizeof *row);
    free(row);
    cp->row_T = T;
    return cp->row;
}

// ---- room

static size_t largest(size_t a, size_t b)
{
    return a > b ? a : b;
}

// Widest row of activations, and floats of statistics of a row.
static size_t widest(const ModelShape *s)
{
    size_t qkv = (s->heads + 2 * s->kv_heads) * s->head_size;
    return largest(largest(s->channels, qkv), s->ffn * (s->swiglu ? 2 : 1));
}

static size_t unused_floats(const ModelShape *s)
{
    return largest(2 * s->channels, s->qk_norm == QK_NORM_WHOLE ? s->heads * s->head_size : s->head_size);
}

static size_t whole_bytes(size_t x_bytes, size_t T, const ModelShape *s)
{
    return (T * widest(s) * x_bytes + 63) / 64 * 64;
}

static size_t stat_floats(size_t T, const ModelShape *s)
{
    return (T * s->heads + 15) / 16 * 16;
}

void cp_keep_order(Cp *cp, const ModelShape *s)
{
    size_t n_bytes = whole_bytes(cp->dev->x_bytes, cp->T, s), n_stat = stat_floats(cp->T, s);
    check(cp->set.blocks && cp->dev->deterministic && !cp->ordered);
    cp->ordered = true;
    char *whole = mem_alloc(cp->mem, MEM_COMM, 3 * n_bytes, "rows of a whole sequence");
    float *stat = mem_alloc(cp->mem, MEM_COMM, (2 * n_stat + unused_floats(s)) * sizeof *stat, "statistics of rows");
    if (!whole || !stat) return; // an allocator that only counts
    for (int i = 0; i < 3; i++) cp->whole[i] = (X *)(whole + (size_t)i * n_bytes);
    for (int i = 0; i < 2; i++) cp->stat[i] = stat + (size_t)i * n_stat;
    cp->unused = stat + 2 * n_stat;
}

// ---- rows to rank 0

// Copies rows of n_bytes, `stride` bytes apart, to rows without gaps. With gaps the elements are of type X.
static void close_up(const Cp *cp, void *to, const void *from, size_t rows, size_t n_bytes, size_t stride)
{
    size_t x = cp->dev->x_bytes;
    if (stride == n_bytes) cp->dev->to_device(cp->dev, to, from, rows * n_bytes);
    else cp->dev->copy(cp->dev, (X *)to, (const X *)from, rows, n_bytes / x, n_bytes / x, stride / x);
}

static void send_bytes(const Cp *cp, const void *from, size_t n)
{
    CommRequest request = comm_send(cp->comm, from, n, COMM_BYTE, 0, TAG_ROWS);
    comm_wait(cp->comm, &request);
}

static void receive_bytes(const Cp *cp, void *to, size_t n, int owner)
{
    CommRequest request = comm_recv(cp->comm, to, n, COMM_BYTE, owner, TAG_ROWS);
    comm_wait(cp->comm, &request);
}

bool cp_collect(Cp *cp, void *to, const void *rows, size_t N, size_t n_bytes, size_t stride)
{
    size_t half = N / 2 * n_bytes;
    if (cp->rank > 0) {
        if (stride != n_bytes) close_up(cp, cp->whole[2], rows, N, n_bytes, stride);
        const char *from = stride != n_bytes ? (const char *)cp->whole[2] : rows;
        for (size_t k = 0; k < 2; k++) send_bytes(cp, from + k * half, half);
        return false;
    }
    for (int r = 0; r < cp->size; r++)
        for (int k = 0; k < 2; k++) {
            char *place = (char *)to + cp_chunk(cp->set.assign, r, cp->size, k) * half;
            if (r) receive_bytes(cp, place, half, r);
            else close_up(cp, place, (const char *)rows + (size_t)k * (N / 2) * stride, N / 2, n_bytes, stride);
        }
    return true;
}

// Rows without gaps, `width` of X or of 4 bytes each.
static bool collect_x(Cp *cp, X *to, const X *rows, size_t N, size_t width)
{
    return cp_collect(cp, to, rows, N, width * cp->dev->x_bytes, width * cp->dev->x_bytes);
}

static bool collect_4(Cp *cp, void *to, const void *rows, size_t N, size_t width)
{
    return cp_collect(cp, to, rows, N, 4 * width, 4 * width);
}

// ---- the head, a few rows at a time

size_t cp_head_rows(const Cp *cp, size_t n0, size_t N, size_t chunk)
{
    size_t end = cp->ordered && n0 < N / 2 ? N / 2 : N;
    return end - n0 < chunk ? end - n0 : chunk;
}

// On rank 0, between its own two chunks: the rows of all other ranks, which lie between them.
static void head_of_others(const Cp *cp, float *dweight, X *dlogits, size_t chunk, size_t N, size_t C, size_t V,
                           int site)
{
    Dev *dev = cp->dev;
    for (size_t k = 1; k + 1 < 2 * (size_t)cp->size; k++) {
        size_t own;
        int owner = cp_rank(CP_ZIGZAG, 2 * (size_t)cp->size, cp->size, k, &own); // of single tokens: of chunks
        for (size_t i = 0, rows; i < N / 2; i += rows) {
            rows = cp_head_rows(cp, i, N, chunk);
            receive_bytes(cp, dlogits, rows * V * dev->x_bytes, owner);
            receive_bytes(cp, cp->whole[1], rows * C * dev->x_bytes, owner);
            dev->matmul_backward_weight(dev, dweight, NULL, dlogits, cp->whole[1], rows, C, V, site);
        }
    }
}

void cp_head_backward_weight(const Cp *cp, float *dweight, X *dlogits, const X *inp, size_t n0, size_t n, size_t chunk,
                             size_t N, size_t C, size_t V, int site)
{
    Dev *dev = cp->dev;
    if (cp->ordered && cp->rank > 0) {
        send_bytes(cp, dlogits, n * V * dev->x_bytes);
        send_bytes(cp, inp, n * C * dev->x_bytes);
        return;
    }
    dev->matmul_backward_weight(dev, dweight, NULL, dlogits, inp, n, C, V, site);
    if (cp->ordered && n0 + n == N / 2) head_of_others(cp, dweight, dlogits, chunk, N, C, V, site);
}

double cp_sum_losses(Cp *cp, const float *loss, size_t B, size_t N)
{
    double sum = 0;
    size_t T = N * (size_t)cp->size;
    float *all = malloc(T * sizeof *all);
    if (!all) die("cp: no memory for %zu losses", T);
    for (size_t b = 0; b < B; b++) {
        if (!collect_4(cp, cp->stat[0], loss + b * N, N, 1)) continue;
        cp->dev->to_host(cp->dev, all, cp->stat[0], T * sizeof *all);
        for (size_t t = 0; t < T; t++) sum += all[t];
    }
    free(all);
    return sum;
}

// ---- entries of the table

static Cp *cp_of(const UnitContext *ctx)
{
    return ((const Parts *)ctx->linear->parts)->cp;
}

// The table without cp: the local entries.
static const Linear *alone(const UnitContext *ctx)
{
    return &((const Parts *)ctx->linear->parts)->under_cp;
}

// Sampling: every rank has the whole sequence, in its cache.
static void attention_forward(const UnitContext *ctx, X *out, float *lse, const X *q, const X *k, const X *v,
                              AttnShape s)
{
    if (ctx->cache) alone(ctx)->attention_forward(ctx, out, lse, q, k, v, s);
    else cp_forward(cp_of(ctx), out, lse, q, k, v, s);
}

static void attention_backward(const UnitContext *ctx, X *dq, X *dk, X *dv, const X *dout, const X *out,
                               const float *lse, const X *q, const X *k, const X *v, AttnShape s)
{
    cp_backward(cp_of(ctx), dq, dk, dv, dout, out, lse, q, k, v, s);
}

// The mask of a row is that of its position in the whole sequence.
static Dropout dropout(const UnitContext *ctx, const Unit *unit, const Batch *batch, const char *site)
{
    Cp *cp = cp_of(ctx);
    size_t C = ctx->shape->channels, T = batch->T * (size_t)cp->size;
    Dropout drop = unit_dropout(unit, batch, site, T * C);
    if (drop.p > 0) drop.row = cp_rows(cp, T), drop.width = C;
    return drop;
}

// ---- the same, of gradients that rank 0 adds in the order of the sequence

static void backward_weight(const UnitContext *ctx, const LinearMatrix *m, const X *dout, const X *inp, size_t N)
{
    Cp *cp = cp_of(ctx);
    collect_x(cp, cp->whole[0], dout, N, m->is.out);
    if (!collect_x(cp, cp->whole[1], inp, N, m->is.in)) return;
    alone(ctx)->backward_weight(ctx, m, cp->whole[0], cp->whole[1], N * (size_t)cp->size);
}

static void embed_backward(const UnitContext *ctx, float *dwte, float *dwpe, const X *dout, const Batch *batch)
{
    Cp *cp = cp_of(ctx);
    size_t N = batch->N;
    collect_x(cp, cp->whole[0], dout, N, ctx->shape->channels);
    collect_4(cp, cp->stat[0], batch->token, N, 1);
    if (!collect_4(cp, cp->stat[1], batch->pos, N, 1)) return;
    Batch whole = *batch;
    whole.N *= (size_t)cp->size;
    whole.token = (const int32_t *)cp->stat[0], whole.pos = (const int32_t *)cp->stat[1];
    alone(ctx)->embed_backward(ctx, dwte, dwpe, cp->whole[0], &whole);
}

static void head_norm_backward(const UnitContext *ctx, const LinearNorm *norm, X *dinp, const X *inp,
                               const float *rstd, size_t N, size_t heads, size_t D, size_t ld)
{
    Cp *cp = cp_of(ctx);
    Dev *dev = ctx->dev;
    size_t n_bytes = heads * D * dev->x_bytes, stride = ld * dev->x_bytes;
    cp_collect(cp, cp->whole[0], dinp, N, n_bytes, stride);
    cp_collect(cp, cp->whole[1], inp, N, n_bytes, stride);
    bool all = collect_4(cp, cp->stat[0], rstd, N, heads);
    LinearNorm own = *norm;
    own.dweight = cp->unused;
    alone(ctx)->head_norm_backward(ctx, &own, dinp, inp, rstd, N, heads, D, ld);
    if (all)
        alone(ctx)->head_norm_backward(ctx, norm, cp->whole[0], cp->whole[1], cp->stat[0], N * (size_t)cp->size, heads,
                                       D, heads * D);
}

// `rows`: of the stream, which other ranks of a tensor-parallel group may share. Rank 0 sums over all of the sequence.
static void norm_backward(const UnitContext *ctx, const LinearNorm *norm, X *dinp, X *dout, const X *dresid,
                          const X *inp, const float *mean, const float *rstd, size_t rows)
{
    Cp *cp = cp_of(ctx);
    const ModelCut *cut = &ctx->shape->cut;
    size_t C = ctx->shape->channels, shared = unit_sharers(ctx->shape), N = rows * shared;
    size_t T = N * (size_t)cp->size;
    const void *own[] = {dout, inp, mean, rstd};
    void *whole[] = {cp->whole[0], cp->whole[1], cp->stat[0], cp->stat[1]};
    bool all = false;
    for (int i = 0; i < 4; i++) {
        size_t n_bytes = i < 2 ? C * ctx->dev->x_bytes : sizeof(float);
        all = cp_collect(cp, whole[i], ctx->linear->gather_bytes(ctx, cp->whole[2], own[i], rows, n_bytes), N, n_bytes,
                         n_bytes);
    }
    LinearNorm unused = *norm;
    unused.dweight = cp->unused, unused.dbias = norm->dbias ? cp->unused + C : NULL;
    linear_norm_parts(ctx, &unused, dinp, dout, dresid, inp, mean, rstd, rows, 1);
    if (!all || (shared > 1 && cut->rank)) return;
    linear_norm_parts(ctx, norm, cp->whole[2], cp->whole[0], NULL, cp->whole[1], cp->stat[0], cp->stat[1], T,
                      linear_parts(T, 1));
}

// ---- experts: what couples the tokens of a sequence

// Slots of whole sequences (B, T, k) on the host, from this rank's; 4 bytes each.
static void gather_slots(const UnitContext *ctx, char *whole, const void *own, const Batch *batch)
{
    Cp *cp = cp_of(ctx);
    size_t each = ctx->shape->experts.k * 4, n_bytes = batch->N * each, n = (size_t)cp->size, counts[n];
    char *mine = malloc(n_bytes * (n + 1)), *all = mine + n_bytes;
    if (!mine) die("cp: no memory for the experts of %zu tokens", batch->N * n);
    ctx->dev->to_host(ctx->dev, mine, own, n_bytes);
    for (size_t r = 0; r < n; r++) counts[r] = n_bytes;
    CommRequest request = comm_all_gather(comm_host(cp->comm), all, mine, counts, COMM_BYTE);
    comm_wait(comm_host(cp->comm), &request);
    for (size_t r = 0; r < n; r++)
        for (size_t i = 0; i < batch->N; i++) {
            size_t at = cp_position(cp->set.assign, batch->T * n, (int)r, cp->size, i % batch->T);
            memcpy(whole + (i / batch->T * batch->T * n + at) * each, all + r * n_bytes + i * each, each);
        }
    free(mine);
}

static void slots_whole(const UnitContext *ctx, int32_t *choice, float *gate, const int32_t *own_choice,
                        const float *own_gate, const Batch *batch)
{
    size_t n_bytes = batch->N * (size_t)cp_of(ctx)->size * ctx->shape->experts.k * 4;
    char *whole = malloc(n_bytes);
    if (!whole) die("cp: no memory for %zu bytes of experts' slots", n_bytes);
    gather_slots(ctx, whole, own_choice, batch);
    ctx->dev->to_device(ctx->dev, choice, whole, n_bytes);
    gather_slots(ctx, whole, own_gate, batch);
    ctx->dev->to_device(ctx->dev, gate, whole, n_bytes);
    free(whole);
}

static void slots_own(const UnitContext *ctx, int32_t *own_row, const int32_t *row, const Batch *batch)
{
    Cp *cp = cp_of(ctx);
    size_t k = ctx->shape->experts.k, R = batch->N * k, n = (size_t)cp->size;
    int32_t *own = malloc(R * (n + 1) * sizeof *own), *whole = own + R;
    if (!own) die("cp: no memory for the experts of %zu tokens", batch->N * n);
    ctx->dev->to_host(ctx->dev, whole, row, R * n * sizeof *whole);
    for (size_t i = 0; i < batch->N; i++) {
        size_t at = cp_position(cp->set.assign, batch->T * n, cp->rank, cp->size, i % batch->T);
        memcpy(own + i * k, whole + (i / batch->T * batch->T * n + at) * k, k * sizeof *own);
    }
    ctx->dev->to_device(ctx->dev, own_row, own, R * sizeof *own);
    free(own);
}

static bool rows_whole(const UnitContext *ctx, void *to, const void *rows, size_t N, size_t n_bytes)
{
    return cp_collect(cp_of(ctx), to, rows, N, n_bytes, n_bytes);
}

static size_t head_rows(const UnitContext *ctx, size_t n0, size_t N, size_t chunk)
{
    return cp_head_rows(cp_of(ctx), n0, N, chunk);
}

static void head_backward_weight(const UnitContext *ctx, const LinearMatrix *m, X *dlogits, const X *inp, size_t n0,
                                 size_t n, size_t chunk, size_t N)
{
    cp_head_backward_weight(cp_of(ctx), m->dweight, dlogits, inp, n0, n, chunk, N, m->is.in, m->is.out, m->site);
}

static double sum_losses(const UnitContext *ctx, const float *loss, size_t B, size_t T)
{
    return cp_sum_losses(cp_of(ctx), loss, B, T);
}

void cp_fill(Parts *parts, Linear *linear)
{
    parts->under_cp = *linear;
    linear->attention_forward = attention_forward;
    linear->attention_backward = attention_backward;
    linear->dropout = dropout;
    linear->slots_whole = slots_whole;
    linear->slots_own = slots_own;
    if (!parts->cp->ordered) return;
    linear->rows_whole = rows_whole;
    linear->backward_weight = backward_weight;
    linear->embed_backward = embed_backward;
    linear->head_norm_backward = head_norm_backward;
    linear->norm_backward = norm_backward;
    linear->head_rows = head_rows;
    linear->head_backward_weight = head_backward_weight;
    linear->sum_losses = sum_losses;
}
