// curves: two loss curves, and whether their distance is that of rounding.
//
// Training amplifies differences: two runs that differ in one rounding part by a factor that grows with every step,
// until they are as far apart as two runs with other seeds. How fast depends on the model, the data and the learning
// rate, so it cannot be derived; but it can be measured, by a third run C that is B with another order of sums (another
// cut into micro-batches, another number of threads). With the largest differences so far,
//
//     M(t) = max over s <= t of |A(s) - B(s)|,    R(t) = max over s <= t of |C(s) - B(s)|
//
// the parting is rounding where M(t) <= 16 max(R(t), one ULP of the loss). M and R are each one draw of a random
// number: two runs that only round exceed each other by some factor, and 16 is chosen, not derived. Largest so far, and
// not each step's own, because a difference crosses 0 now and then.
//
// So it shows only an error that begins larger than rounding or grows faster. The dump of one update shows far more.
#include "dev/check/curves.h"

#include "base/check.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put(Curve *c, long step, double loss)
{
    if (step < 1) return;
    if (step > c->n) { // steps ascend; a run that went on after a kill has some of them twice: the last ones count
        c->loss = realloc(c->loss, (size_t)step * sizeof *c->loss);
        if (!c->loss) die("%s: no memory for %ld losses", c->run, step);
        while (c->n < step) c->loss[c->n++] = NAN;
    }
    c->loss[step - 1] = loss;
}

Curve curves_read(const char *run)
{
    Curve c = {.n = 0};
    char path[1100];
    snprintf(c.run, sizeof c.run, "%s", run);
    snprintf(path, sizeof path, "%s/metrics.jsonl", run);
    FILE *f = fopen(path, "r");
    if (!f) die("%s: cannot open: %s (--curves compares runs)", path, strerror(errno));
    char *line = NULL;
    size_t cap = 0;
    while (getline(&line, &cap, f) > 0) {
        json_t *o = json_loads(line, 0, NULL);
        const char *event = json_string_value(json_object_get(o, "event"));
        const json_t *loss = json_object_get(o, "loss");
        if (event && !strcmp(event, "train") && json_is_number(loss))
            put(&c, (long)json_integer_value(json_object_get(o, "step")), json_number_value(loss));
        json_decref(o);
    }
    free(line);
    fclose(f);
    if (!c.n) die("%s: no losses of training steps in it", path);
    return c;
}

void curves_free(Curve *c)
{
    free(c->loss);
}

Curves curves_compare(const Curve *a, const Curve *b, const Curve *c)
{
    Curves r = {.both = a->n < b->n ? a->n : b->n};
    double most = 0, rounding = 0;
    if (c && c->n < r.both) r.both = c->n;
    for (long i = 0; i < r.both; i++) {
        double gap = fabs(a->loss[i] - b->loss[i]), other = c ? fabs(c->loss[i] - b->loss[i]) : 0;
        if (isnan(a->loss[i]) && isnan(b->loss[i])) continue; // not logged by either
        if (!(gap == 0) && !r.first) r.first = i + 1;
        most = gap > most || isnan(gap) ? gap : most;
        rounding = fmax(rounding, fmax(other, ldexp(fabs(b->loss[i]), -23)));
        double part = most / (CURVES_FACTOR * rounding);
        if (!(part <= r.largest)) r.largest = part;
        if (c && !(part <= 1) && !r.out) r.out = i + 1;
    }
    return r;
}
