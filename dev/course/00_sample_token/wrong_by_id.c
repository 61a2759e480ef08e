// says: -inf, 1, -inf, 0|which has probability 0|is none
// In the order of the tokens with `u <= sum`, so that u = 0 gives the first token whatever its probability.
#include "draw.h"

#include <math.h>
#include <stdlib.h>

size_t draw_token(const float *logits, size_t V, double temperature, size_t top_k, double top_p, double u)
{
    double *p = malloc(V * sizeof *p), top = -INFINITY, sum = 0, kept = 0;
    for (size_t v = 0; v < V; v++) top = fmax(top, logits[v]);
    for (size_t v = 0; v < V; v++) {
        size_t above = 0;
        for (size_t w = 0; w < V; w++) above += logits[w] > logits[v];
        p[v] = temperature == 0 ? logits[v] == top : exp((logits[v] - top) / temperature);
        if (top_k && above >= top_k) p[v] = 0;
        sum += p[v];
    }
    for (size_t v = 0; v < V; v++) {
        double before = 0;
        for (size_t w = 0; w < V; w++) before += logits[w] > logits[v] ? fabs(p[w]) : 0;
        if (top_p < 1 && before >= top_p * sum) p[v] = -p[v];
    }
    for (size_t v = 0; v < V; v++) kept += p[v] > 0 ? p[v] : 0;
    double end = 0;
    size_t v = 0;
    for (; v < V; v++) {
        end += p[v] > 0 ? p[v] : 0;
        if (u * kept <= end) break;
    }
    free(p);
    return v;
}
