// cp: context parallelism: the tokens of a sequence divided over ranks (cp_chunks.c), and ring attention (Liu et al.,
// arXiv 2310.01889). Each of N ranks keeps its queries, and blocks of keys and values go around a ring. In step j
// rank r has the block of rank r - j; it sends it on and receives the next one while it computes:
//
//   start receive of block r - j - 1, start send of block r - j;  O, lse <- merge with attention(Q, block);  wait
//
// Backward sends K and V around once more. dQ is summed on its own rank. The sums dK and dV of a block go around the
// ring one step after the block, each rank adds its part, and the last send returns them to the owner. P and dS need
// the lse and rowsum(dO * O) of the whole row, which this rank has.
//
// Gather (Llama 3): all K and V at once, N times the memory, the same bytes; dK, dV by reduce_scatter.
//
// Deterministic mode: with `blocks` all sums of attention have the order of a tree over ranks (Fold); doc/cp.md says
// why.
//
// The invariant: a block's buffer belongs to its send and receive until both are waited for. The computation of step j
// reads only the block of step j, in forward and backward (a typical bug is a stale block in backward).
#include "parallel/parts.h"

#include "base/check.h"

#include <stdlib.h>

enum { MAX_SLOTS = 32, TAG_KV = 0, TAG_DKV = 1 };

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
    CommRequest send, recv, send_dkv, recv_dkv; // CP_GATHER uses recv and recv_dkv only
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

// Parts of a sum over the ranks: each joins as it arrives or, with `blocks`, as a leaf of a tree over their owners.
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

static float *fold_room(const Fold *f);                    // memory for the next part
static void fold_add(Fold *f, float *part, int owner);     // the owner's part joins
static const float *fold_root(const Fold *f);              // the sum of all

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
        if (cp_has_work(cp->set, c.T, rank, size, owner, s.window)) {
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

// Rows of fp32 into rows of X, ld elements apart.
static void store(const Cp *cp, X *out, const float *in, size_t rows, size_t width, size_t ld)
{
    if (ld == width) cp->dev->to_x(cp->dev, out, in, rows * width);
    else
        for (size_t r = 0; r < rows; r++) cp->dev->to_x(cp->dev, (X *)at(cp, out, r * ld), in + r * width, width);
}

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
        if (cp_has_work(cp->set, c.T, rank, size, owner, s.window)) {
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

// ---- sums of parts: in the order of arrival, or in a tree over the owners of the blocks

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
