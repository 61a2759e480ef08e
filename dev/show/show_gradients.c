// show_gradients: how far the gradients of one dump are from those of another, in norm.
//
// build/diff tests whether each element is within a bound. But a rounded gradient may have elements near 0 that
// are off by many times their size, and still be as good as any: what counts is the norm of the error relative
// to the norm of the gradient. The last line has the largest error of a matrix (vectors do not count, because a
// bias on which the loss does not depend has a gradient of rounding error alone), the share of all elements that
// became 0, and the error of the mean loss in nats.
#include "dev/show/show.h"
#include "base/check.h"
#include "dev/check/diff.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    double difference, norm; // sums of squares
    double sum_a, sum_b;
    size_t lost, n;
} Distance;

static Distance distance(const SafeTensor *a, const SafeTensor *b)
{
    Distance d = {.n = a->n_elems};
    const float *x = a->data, *y = b->data;
    for (size_t i = 0; i < d.n; i++) {
        double e = (double)x[i] - y[i];
        d.difference += e * e;
        d.norm += (double)y[i] * y[i];
        d.sum_a += x[i];
        d.sum_b += y[i];
        d.lost += x[i] == 0 && y[i] != 0;
    }
    return d;
}

static const SafeTensor *same_tensor(const DiffSide *side, const SafeTensor *a)
{
    const DiffTensor *found = diff_side_find(side, a->name);
    if (!found) die("%s: no tensor %s (are both dumps of one model?)", side->path, a->name);
    const SafeTensor *b = &found->t;
    if (a->dtype != ST_F32 || b->dtype != ST_F32) die("%s: %s: not F32, as dumps are", side->path, a->name);
    if (found->n_missing) die("%s: %s: %zu elements are in no file", side->path, a->name, found->n_missing);
    if (a->ndim != b->ndim || memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape))
        die("%s: %s: not of the same shape in both dumps", side->path, a->name);
    return b;
}

static const char help[] =
    "usage: show gradients A B\n"
    "  A B    two runs that have dumped the same update (run.dump), or the dumps; B is the reference\n"
    "  error  |a - b| / |b| of each gradient\n"
    "  zero   share of its elements that are 0 in A and not in B: too small for A's number format\n"
    "  exit   0, or 1 when they cannot be compared (a tensor missing in one, different shapes)\n";

int show_gradients(int argc, char **argv)
{
    check_help(argc, argv, help);
    if (argc != 3 || argv[1][0] == '-') die_usage("gradients: name two dumps (gradients A B; try --help)");
    char path_a[1000], path_b[1000];
    diff_side_resolve(argv[1], argv[2], path_a, path_b);
    DiffSide a = diff_side_open(path_a), b = diff_side_open(path_b);
    double worst = 0, loss = NAN;
    size_t lost = 0, n = 0;
    printf("%-36s %10s %8s\n", "gradient of", "error", "zero");
    for (int i = 0; i < a.n; i++) {
        const SafeTensor *t = &a.tensor[i].t;
        if (strcmp(t->name, "loss") && strncmp(t->name, "grad.", 5)) continue;
        if (a.tensor[i].n_missing) die("%s: %s: %zu elements are in no file", a.path, t->name, a.tensor[i].n_missing);
        Distance d = distance(t, same_tensor(&b, t));
        if (!strcmp(t->name, "loss")) {
            loss = (d.sum_a - d.sum_b) / (double)d.n;
            continue;
        }
        double error = sqrt(d.difference / d.norm);
        printf("%-36s %10.2e %7.2f%%\n", t->name + 5, error, 100 * (double)d.lost / (double)d.n);
        if (t->ndim == 2 && !(error <= worst)) worst = error; // NaN counts
        lost += d.lost;
        n += d.n;
    }
    if (!n) die("%s: no gradients (make it with --run.dump)", a.path);
    printf("worst matrix %.3e, zero %.3f%%, loss %+.3e\n", worst, 100 * (double)lost / (double)n, loss);
    diff_side_close(&a);
    diff_side_close(&b);
    return 0;
}
