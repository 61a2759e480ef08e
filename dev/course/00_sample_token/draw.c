#include "draw.h"

#include <math.h>
#include <stdlib.h>

typedef struct {
    double logit, p;
    size_t token;
} Entry;

static int largest_first(const void *a, const void *b)
{
    double x = ((const Entry *)a)->logit, y = ((const Entry *)b)->logit;
    return (x < y) - (x > y);
}

size_t draw_token(const float *logits, size_t V, double temperature, size_t top_k, double top_p, double u)
{
    //[
    //+ (void)logits, (void)temperature, (void)top_k, (void)top_p, (void)u, (void)largest_first; // write this
    //+ return V;
    Entry *e = malloc(V * sizeof *e);
    for (size_t v = 0; v < V; v++) e[v] = (Entry){logits[v], 0, v};
    qsort(e, V, sizeof *e, largest_first);
    size_t n = temperature == 0 ? 1 : top_k && top_k < V ? top_k : V, kept = 0;
    double sum = 0, mass = 0;
    for (size_t i = 0; i < n; i++) {
        e[i].p = i == 0 ? 1 : exp((e[i].logit - e[0].logit) / temperature);
        sum += e[i].p;
    }
    while (kept < n && e[kept].p > 0 && (kept == 0 || top_p == 1 || mass < top_p * sum)) mass += e[kept++].p;
    size_t i = 0;
    for (double left = u * mass; i + 1 < kept && left >= e[i].p; i++) left -= e[i].p;
    size_t token = e[i].token;
    free(e);
    return token;
    //]
}
