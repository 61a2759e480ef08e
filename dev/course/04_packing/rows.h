// rows: whole documents packed into rows of T tokens.
#ifndef ROWS_H
#define ROWS_H
#include <stddef.h>
#include <stdint.h>

// Row r, column t of each array is element r T + t; there is room for n rows.
typedef struct {
    int32_t *token;    // 0 where there is no document
    int32_t *target;   // the next token of the document; -1 (no loss) after its last one and where there is no document
    int32_t *document; // the number of the document, 0 to n - 1; -1 where there is none
    int32_t *position; // in the document, from 0; 0 where there is none
} Rows;

// Puts n documents into rows and returns how many rows are used: the first ones, none of them empty. Document i has the
// tokens doc[i][0] .. doc[i][length[i] - 1]; lengths are 1 to T. Each document stands once, uncut and in order, in one
// row; in which one, and which documents share it, is up to you, but
//   - no two rows could be joined: the tokens of any two are more than T together,
//   - there are at most 11/9 m + 4 rows, where m is the fewest possible number.
// Best fit decreasing has both properties. Writes all elements of the rows that are used.
size_t pack_documents(Rows rows, const int32_t *const *doc, const size_t *length, size_t n, size_t T);
#endif
