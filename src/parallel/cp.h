// cp: context parallelism: one sequence over several ranks, with ring attention.
//
// A sequence of T tokens is cut into 2 N chunks, and each of N ranks has two of them. All of the network except
// attention works on single tokens, and needs only the rank's own. Attention needs the keys and values of all earlier
// tokens, which arrive around a ring while the rank computes (cp_forward, cp_backward).
//
// Positions, `first` of documents and dropout's element numbers are those of the whole sequence on every rank, so RoPE,
// packed rows and dropout masks do not depend on how it was divided.
#ifndef CP_H
#define CP_H
#include "comm/comm.h"
#include "base/config.h"
#include "base/mem.h"
#include "net/linear.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    CpAssign assign;
    CpWay way;
    int blocks; // 0: sums as blocks arrive. Else AttnShape.blocks: the bits do not depend on the number of ranks
} CpSettings;

// ---- who has what: pure functions of (rank, size)

// Dies when T cannot be divided like this, or the order of `blocks` cannot be kept.
void cp_check(CpSettings set, size_t T, int size);
// Number of the rank's chunk, half 0 or 1, of T / (2 size) tokens each; the first one comes first in the sequence.
size_t cp_chunk(CpAssign assign, int rank, int size, int half);
// The position in the sequence of the rank's token i (of T / size); ascending in i.
size_t cp_position(CpAssign assign, size_t T, int rank, int size, size_t i);
// The inverse: the rank that has the token at a position, and the token's index there.
int cp_rank(CpAssign assign, size_t T, int size, size_t position, size_t *i);
// out (B, T / size) = the rank's tokens of in (B, T); elements of n_bytes. For tokens, targets, positions, `first`.
void cp_cut(void *out, const void *in, size_t n_bytes, size_t B, CpAssign assign, size_t T, int rank, int size);
// Query-key pairs of causal attention between the rank's queries and the owner's keys, of one sequence and head.
uint64_t cp_work(CpAssign assign, size_t T, int rank, int size, int owner);
// Whether there are any, with a window of so many positions (0: none).
bool cp_has_work(CpSettings set, size_t T, int rank, int size, int owner, size_t window);

// ---- attention

typedef struct Cp {
    CpSettings set;
    Comm *comm; // the ranks of one sequence, two at least
    int rank, size;
    Dev *dev;   // in host memory
    Mem *mem;
    size_t B, T, H, G, D;  // most sequences of a call; most tokens of a whole sequence
    int n_slots;
    size_t n_slot;         // floats of a slot
    char *kv;              // ring: blocks in use and on the way; gather: one for each rank
    float *slots, *dkv;
    int32_t *row;          // (B, T / size): where the rank's rows stand in B whole sequences of row_T tokens
    size_t row_T;
    bool ordered;          // cp_keep_order: with room for one whole sequence, row by row
    X *whole[3];
    float *stat[2], *unused;
} Cp;
typedef struct Parts Parts; // parts.h

// Buffers for calls with at most B sequences come from mem (MEM_COMM, cp_memory bytes). Dies as cp_check does. Of comm
// (two ranks at least) nothing but rank, size and `ordered` is read before the first call. free() it; the buffers are
// the allocator's.
Cp *cp_create(Comm *comm, Dev *dev, Mem *mem, CpSettings set, size_t B, size_t T, size_t H, size_t G, size_t D);
// Bytes that one rank's Cp holds, and those that one rank sends (as many as it receives) in cp_forward or cp_backward
// of B sequences.
size_t cp_memory(CpSettings set, int size, size_t x_bytes, size_t B, size_t T, size_t H, size_t G, size_t D);
size_t cp_bytes(int size, size_t x_bytes, size_t B, size_t T, size_t G, size_t D, bool backward);

// As attention_forward and attention_backward of dev.h, of this rank's tokens: Tq = Tk = T / size rows a sequence (T:
// that of cp_create, or a shorter one that cp_check takes) in the order of cp_position, `first` (B, T / size) in
// positions of the whole sequence, gradients of this rank's rows. Collective. lse may be NULL.
void cp_forward(Cp *cp, X *out, float *lse, const X *q, const X *k, const X *v, AttnShape shape);
void cp_backward(Cp *cp, X *dq, X *dk, X *dv, const X *dout, const X *out, const float *lse, const X *q, const X *k,
                 const X *v, AttnShape shape);

// ---- other parts of a unit that need the positions of its rows

// The value of `blocks` with which sequences of T tokens give the same bits on any number of ranks: a power of two that
// divides T, at most 16, which 8 ranks can share; 0: T is odd.
int cp_blocks(size_t T);
// For Dropout.row: where this rank's rows of B sequences of T tokens stand, (sequence T) + position.
const int32_t *cp_rows(Cp *cp, size_t T);

// From here on gradients of weights have the bits of one rank too, on a deterministic device: rank 0 computes every sum
// over tokens, over all rows of the sequence in their order, and the other ranks add nothing. The memory for it comes
// from mem (MEM_COMM). `shape`: this rank's part.
void cp_keep_order(Cp *cp, const ModelShape *shape);
// The functions below are collective where cp->ordered; N is the rank's rows of one sequence. Rank 0's `to` = all
// ranks' rows, N of each, of n_bytes and `stride` bytes apart, in the order of the sequence. True on rank 0.
bool cp_collect(Cp *cp, void *to, const void *rows, size_t N, size_t n_bytes, size_t stride);
// Of the head, chunk by chunk: from row n0 on so many rows, `chunk` at most. dlogits (n, V) of rows [n0, n0 + n) and
// their inputs (n, C) join the gradient; dlogits is lost.
size_t cp_head_rows(const Cp *cp, size_t n0, size_t N, size_t chunk);
void cp_head_backward_weight(const Cp *cp, float *dweight, X *dlogits, const X *inp, size_t n0, size_t n, size_t chunk,
                             size_t N, size_t C, size_t V, int site);
// Sum of B sequences' token losses (B, N), in double, in the order of the sequence: on rank 0 of all ranks', else 0.
double cp_sum_losses(Cp *cp, const float *loss, size_t B, size_t N);

// Replaces the entries of *linear that cp changes. parts->cp is set.
void cp_fill(Parts *parts, Linear *linear);

#ifdef __cplusplus
}
#endif
#endif
