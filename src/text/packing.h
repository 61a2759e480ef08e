// packing: several documents in one row: the attention mask, the positions, and which document goes to which row.
//
// A document is what starts with an end-of-text token. A token sees its own document only, positions count from the
// document's start, and each token's target is what follows it in its document, or end-of-text after the last.
#ifndef PACKING_H
#define PACKING_H
#include <stddef.h>
#include <stdint.h>

#include "tokenizer/tokenizer.h"
#ifdef __cplusplus
extern "C" {
#endif

// For rows cut from a stream of documents, token (B, T):
//   first (B, T)   index in its row of the first token of a token's document: AttnShape.first
//   pos (B, T)     t - first: the position within the document
// A row that begins inside a document counts from its own start. eot: the end-of-text id (below 0: there is none, a
// row is one document).
// target (B, T) is changed in one case: end-of-text after end-of-text. Rows are padded with end-of-text tokens, each of
// which looks like an empty document; predicting padding must not count in the loss, so its target becomes -1. Each of
// pos, first and target may be NULL.
void packing_positions(const int32_t *token, size_t B, size_t T, int32_t eot, int32_t *pos, int32_t *first,
                       int32_t *target);

// ---- whole documents into rows

// Tokens begin .. begin + length - 1 of a document stand at column `column` of row `row`.
typedef struct {
    size_t document, begin, length, row, column;
} PackedPiece;

typedef struct {
    size_t T, n_rows, n_pieces;
    size_t n_tokens;     // of all documents; the rest of n_rows * T is padding
    size_t n_cut;        // documents in more than one piece: those longer than T
    PackedPiece *piece;  // (n_pieces) by row, then column
    size_t *row_begin;   // (n_rows + 1) first piece of a row
} Packing;

// Rows of T tokens for n documents of length[i] tokens (end-of-text included). Only documents longer than T are split,
// every T tokens. Best fit decreasing (Ding et al., arXiv 2404.10830): within each group of `window` documents (0: one
// group), the longest piece first, each into the row where it leaves the least room. A row holds documents of one
// group. The same lengths give the same packing.
Packing packing_make(const size_t *length, size_t n, size_t T, size_t window);
void packing_free(Packing *packing);
// The fraction of tokens that are not padding: 0 to 1 (1 when there are no rows).
double packing_efficiency(const Packing *packing);

// ---- screen.c: training text that is judged while it is read
//
// Documents of a sequence that repeat themselves, or are full of broken characters, count no loss. What is judged is the
// part of a document that lies in the sequence: from an end-of-text token, or the sequence's start, to before the next.
// It is rejected when
//     repeat:  4-grams that occurred earlier in the part / its 4-grams                > max_repeat
//     broken:  bytes of U+FFFD, which stands for text that was not UTF-8 / its bytes  > max_broken
// A part with fewer than 4 tokens repeats nothing; one without bytes of text is not broken.

typedef struct Screen Screen;

// For sequences of at most T tokens. Bounds from 0 to 1; 1: that rule is off. t may be NULL where max_broken is 1: then
// a sequence is one part. t is used until screen_free.
Screen *screen_new(double max_repeat, double max_broken, size_t T, const Tokenizer *t);
void screen_free(Screen *s); // NULL is allowed
// Sets the targets (n) of the rejected parts of token (n) to -1. Returns how many of these were not -1 before. The result
// depends on the tokens alone.
size_t screen_sequence(Screen *s, const int32_t *token, size_t n, int32_t *target);
// The two shares of a part of n tokens.
double screen_repeat(Screen *s, const int32_t *token, size_t n);
double screen_broken(const Screen *s, const int32_t *token, size_t n);

#ifdef __cplusplus
}
#endif
#endif
