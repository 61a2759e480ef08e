// cp: context parallelism: one sequence over several ranks, with ring attention. Layer 3.
//
// A sequence of T tokens is cut into 2 N chunks, and each of N ranks has two of them. Everything in the network but
// attention works on tokens one by one and needs no more than its own; attention needs the keys and values of all
// earlier tokens, which come around a ring while the rank computes (cp_forward, cp_backward).
//
// Positions, `first` of documents and dropout's element numbers are those of the whole sequence on every rank, so RoPE,
// packed rows and dropout masks do not know how it was cut.
#ifndef CP_H
#define CP_H
#include "comm.h"
#include "dev.h"
#include "mem.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

// Rank r of N has chunks r and 2N - 1 - r (zig-zag), or 2r and 2r + 1 (contiguous, the naive twin).
typedef enum { CP_ZIGZAG, CP_CONTIGUOUS } CpAssign;
// Keys and values come block by block from the left neighbour, or all at once.
typedef enum { CP_RING, CP_GATHER } CpWay;

typedef struct {
    CpAssign assign;
    CpWay way;
    int blocks; // 0: sums as blocks arrive. Else AttnShape.blocks: the bits do not depend on the number of ranks
} CpSettings;

// ---- who has what: pure functions of (rank, size)

// Dies with one sentence when T cannot be cut so, or `blocks` not be kept.
void cp_check(CpSettings set, size_t T, int size);
// Number of the rank's chunk, half 0 or 1, of T / (2 size) tokens each; the first one comes first in the sequence.
size_t cp_chunk(CpAssign assign, int rank, int size, int half);
// Where the rank's token i, of T / size, stands in the sequence; ascending in i.
size_t cp_position(CpAssign assign, size_t T, int rank, int size, size_t i);
// The way back: whose token stands there, and which of its tokens it is.
int cp_rank(CpAssign assign, size_t T, int size, size_t position, size_t *i);
// out (B, T / size) = the rank's tokens of in (B, T); elements of n_bytes. For tokens, targets, positions, `first`.
void cp_cut(void *out, const void *in, size_t n_bytes, size_t B, CpAssign assign, size_t T, int rank, int size);
// Query-key pairs of causal attention between the rank's queries and the owner's keys, of one sequence and head.
uint64_t cp_work(CpAssign assign, size_t T, int rank, int size, int owner);

// ---- attention

typedef struct {
    CpSettings set;
    Comm *comm; // the ranks of one sequence
    Dev *dev;   // in host memory
    Mem *mem;
    size_t B, T, H, G, D;  // most sequences of a call; tokens of a whole sequence
    int n_slots;
    size_t n_slot, n_dkv;  // floats of a slot; of dK and dV of one rank's keys
    size_t kv_bytes;       // of K and V of one rank's tokens
    char *kv;              // ring: blocks in use and on the way; gather: one for each rank
    float *slots, *dkv;
} Cp;

// Buffers for calls with at most B sequences come from mem (MEM_COMM, cp_memory bytes). Dies as cp_check does.
Cp *cp_create(Comm *comm, Dev *dev, Mem *mem, CpSettings set, size_t B, size_t T, size_t H, size_t G, size_t D);
void cp_free(Cp *cp);
// Bytes that one rank's Cp holds, and those that one rank sends (as many as it receives) in cp_forward or cp_backward
// of B sequences.
size_t cp_memory(CpSettings set, int size, size_t x_bytes, size_t B, size_t T, size_t H, size_t G, size_t D);
size_t cp_bytes(int size, size_t x_bytes, size_t B, size_t T, size_t G, size_t D, bool backward);

// As attention_forward and attention_backward of dev.h, of this rank's tokens: Tq = Tk = T / size rows a sequence in
// the order of cp_position, `first` (B, T / size) in positions of the whole sequence, gradients of this rank's rows.
// Collective. lse may be NULL.
void cp_forward(Cp *cp, X *out, float *lse, const X *q, const X *k, const X *v, AttnShape shape);
void cp_backward(Cp *cp, X *dq, X *dk, X *dv, const X *dout, const X *out, const float *lse, const X *q, const X *k,
                 const X *v, AttnShape shape);

#ifdef __cplusplus
}
#endif
#endif
