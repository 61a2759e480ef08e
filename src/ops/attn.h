// attn: which rows of queries are computed together, where they stand in the sequence, and which keys each
// sees.
//
// One AttnShape describes whole sequences, packed documents and pieces of a longer sequence (dev.h). All questions of
// who sees whom are answered here, for attention.c to have none.
#ifndef ATTN_H
#define ATTN_H
#include "ops/dev.h"
#ifdef __cplusplus
extern "C" {
#endif

enum { ATTENTION_ROWS = 64 }; // of queries in a block, at most

// Queries q0 .. q0 + rows - 1 of head h of sequence b, neighbours, all of one document. pos: where the first one
// stands; first: the first key of the piece that they may see.
typedef struct {
    size_t b, h, q0, rows, pos, first;
} AttnBlock;

// Blocks are cut every ATTENTION_ROWS queries from the first query of the stretch or, in it, of the document, and where
// `first` changes: does row t begin one, and which is it?
bool attn_starts_block(AttnShape s, size_t b, size_t t);
AttnBlock attn_block_at(AttnShape s, size_t b, size_t h, size_t q0);
// The first position that row t of sequence b may see.
size_t attn_first_key(AttnShape s, size_t b, size_t t);
// Keys, and queries, of the piece that stand before a position.
size_t attn_keys_before(AttnShape s, size_t pos);
size_t attn_rows_before(AttnShape s, size_t pos);
// Where block c of s.blocks begins in the sequence.
size_t attn_block_start(AttnShape s, size_t c);
// Number of keys that row r of the block sees within a tile of w keys starting at k0.
size_t attn_visible(AttnShape s, AttnBlock blk, size_t r, size_t k0, size_t w);
// What dropout multiplies the probabilities of row r and keys k0 .. k0 + n - 1 by: 0 or 1 / (1 - p).
void attn_keep_row(float *keep, AttnShape s, AttnBlock blk, size_t r, size_t k0, size_t n);

// Where the block's first row starts in q, in out and dout, in lse; and row 0 of its keys.
size_t attn_q_offset(AttnShape s, AttnBlock blk);
size_t attn_out_offset(AttnShape s, AttnBlock blk);
size_t attn_lse_offset(AttnShape s, AttnBlock blk);
size_t attn_kv_offset(AttnShape s, size_t b, size_t h);
// 1 / sqrt(D), unless the shape says otherwise.
float attn_scale_of(AttnShape s);

#ifdef __cplusplus
}
#endif
#endif
