// No sorting: a token is kept by the tokens above it, and u runs through the tokens from the last to the first.
#include "draw.h"

#include <math.h>
#include <stdlib.h>

size_t draw_token(const float *logits, size_t V, double temperature, size_t top_k, double top_p, double u)
{
    double *p = calloc(V, sizeof *p), top = -INFINITY, sum = 0, mass = 0;
    char *keep = calloc(V, 1);
    for (size_t v = 0; v < V; v++) top = logits[v] > top ? logits[v] : top;
    for (size_t v = 0; v < V; v++) {
        size_t above = 0; // of equal logits the one with the lower number is above
        for (size_t w = 0; w < V; w++) above += logits[w] > logits[v] || (logits[w] == logits[v] && w < v);
        if (above >= (temperature == 0 ? 1 : top_k ? top_k : V)) continue;
        sum += p[v] = logits[v] == top ? 1 : exp((logits[v] - top) / temperature);
    }
    for (size_t v = 0; v < V; v++) {
        double before = 0;
        for (size_t w = 0; w < V; w++)
            before += logits[w] > logits[v] || (logits[w] == logits[v] && w < v) ? p[w] / sum : 0;
        keep[v] = p[v] > 0 && (top_p == 1 || before < top_p);
        mass += keep[v] ? p[v] : 0;
    }
    size_t token = V;
    u *= mass;
    for (size_t v = V; v-- > 0;) {
        if (!keep[v]) continue;
        token = v;
        if (u < p[v]) break;
        u -= p[v];
    }
    free(p), free(keep);
    return token;
}
