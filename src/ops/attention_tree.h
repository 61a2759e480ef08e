// attention_tree: results of attention over sets of keys or queries, joined in one order.
//
// Leaves are joined as a binary counter counts: ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)). 2^k neighbours that begin
// at a multiple of 2^k are a branch, so ranks that each join their own branch and then the branches get the bits of one
// rank that joins all leaves.
#ifndef ATTENTION_TREE_H
#define ATTENTION_TREE_H
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

enum { ATTENTION_BLOCKS = 512, ATTENTION_LEAVES = 11 }; // 2^8 leaves: 9 wait, one joins, one is being made

typedef struct {
    float *at;           // ATTENTION_LEAVES of `each` floats
    size_t each, rows, D;
    size_t held, n;      // branches that wait; leaves so far
    void (*join)(float *a, const float *b, size_t rows, size_t D); // a = a with b
} AttnTree;

// Room for the next leaf; what lies behind it is free too.
float *attention_tree_leaf(AttnTree *tree);
// The leaf is filled: joins what can be joined.
void attention_tree_push(AttnTree *tree);
// All leaves, of which there must be one.
const float *attention_tree_root(AttnTree *tree);

// Joins: a += b over (rows, D).
void attention_tree_sum(float *a, const float *b, size_t rows, size_t D);
// (rows, D) of attention's output, then (rows) of its lse: merged row by row.
void attention_tree_softmax(float *a, const float *b, size_t rows, size_t D);
// One row: out (D) and lse of keys a, and of keys b -> of both, in a. lse = -inf: no keys.
void attention_tree_merge(float *a, float *lse_a, const float *b, float lse_b, size_t D);

#ifdef __cplusplus
}
#endif
#endif
