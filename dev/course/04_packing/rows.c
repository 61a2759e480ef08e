#include "rows.h"

#include <stdlib.h>

typedef struct {
    size_t length, document;
} Entry;

static int longest_first(const void *a, const void *b)
{
    size_t x = ((const Entry *)a)->length, y = ((const Entry *)b)->length;
    return (x < y) - (x > y);
}

size_t pack_documents(Rows rows, const int32_t *const *doc, const size_t *length, size_t n, size_t T)
{
    //[
    //+ (void)rows, (void)doc, (void)length, (void)n, (void)T, (void)longest_first; // write this
    //+ return 0;
    Entry *order = malloc(n * sizeof *order + 1);
    size_t *used = calloc(n + 1, sizeof *used), n_rows = 0; // used[r]: tokens in row r
    for (size_t i = 0; i < n; i++) order[i] = (Entry){length[i], i};
    qsort(order, n, sizeof *order, longest_first);
    for (size_t k = 0; k < n; k++) {
        size_t best = n_rows, l = order[k].length, i = order[k].document;
        for (size_t r = 0; r < n_rows; r++)
            if (used[r] + l <= T && (best == n_rows || used[r] > used[best])) best = r;
        size_t at = best * T + used[best];
        for (size_t j = 0; j < l; j++) {
            rows.token[at + j] = doc[i][j];
            rows.target[at + j] = j + 1 < l ? doc[i][j + 1] : -1;
            rows.document[at + j] = (int32_t)i;
            rows.position[at + j] = (int32_t)j;
        }
        used[best] += l;
        if (best == n_rows) n_rows++;
    }
    for (size_t r = 0; r < n_rows; r++)
        for (size_t i = r * T + used[r]; i < (r + 1) * T; i++) {
            rows.token[i] = rows.position[i] = 0;
            rows.target[i] = rows.document[i] = -1;
        }
    free(order);
    free(used);
    return n_rows;
    //]
}
