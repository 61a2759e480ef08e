// The rows are the trainer's; its targets are not: it also trains to predict the end-of-text after a document.
#include "rows.h"

#include "text/packing.h"

#include <string.h>

size_t pack_documents(Rows rows, const int32_t *const *doc, const size_t *length, size_t n, size_t T)
{
    Packing p = packing_make(length, n, T, 0);
    size_t size = p.n_rows * T, n_rows = p.n_rows;
    memset(rows.token, 0, size * sizeof *rows.token);
    memset(rows.position, 0, size * sizeof *rows.position);
    memset(rows.target, -1, size * sizeof *rows.target);
    memset(rows.document, -1, size * sizeof *rows.document);
    for (size_t k = 0; k < p.n_pieces; k++)
        for (size_t j = 0; j < p.piece[k].length; j++) {
            size_t i = p.piece[k].document, at = p.piece[k].row * T + p.piece[k].column + j;
            rows.token[at] = doc[i][j];
            if (j + 1 < length[i]) rows.target[at] = doc[i][j + 1];
            rows.document[at] = (int32_t)i;
            rows.position[at] = (int32_t)j;
        }
    packing_free(&p);
    return n_rows;
}
