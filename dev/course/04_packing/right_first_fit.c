// First fit decreasing, sorted by insertion, documents from the right end of a row, padding in front.
#include "rows.h"

#include <stdlib.h>

size_t pack_documents(Rows rows, const int32_t *const *doc, const size_t *length, size_t n, size_t T)
{
    size_t *order = malloc((n + 1) * sizeof *order), *room = malloc((n + 1) * sizeof *room), n_rows = 0;
    for (size_t i = 0, k; i < n; i++) {
        for (k = i; k > 0 && length[order[k - 1]] < length[i]; k--) order[k] = order[k - 1];
        order[k] = i;
    }
    for (size_t k = 0, r; k < n; k++) {
        size_t i = order[k];
        for (r = 0; r < n_rows && room[r] < length[i];) r++;
        if (r == n_rows) {
            room[n_rows++] = T;
            for (size_t t = r * T; t < r * T + T; t++)
                rows.token[t] = 0, rows.target[t] = -1, rows.document[t] = -1, rows.position[t] = 0;
        }
        int32_t next = -1;
        for (size_t j = length[i]; j-- > 0;) {
            size_t at = r * T + --room[r];
            rows.token[at] = doc[i][j], rows.target[at] = next, rows.document[at] = (int32_t)i;
            rows.position[at] = (int32_t)j;
            next = doc[i][j];
        }
    }
    free(order), free(room);
    return n_rows;
}
