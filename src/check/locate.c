// locate: finds the tensor and the rank in which a NaN or infinity first appeared. See observers.h.
//
// One NaN in one gradient is in every gradient after the ranks have added them, and in every weight one update later.
// When the norm is not finite, the origin is no longer visible. So each unit's output is checked after its forward, and
// each unit's gradient after its backward, both before anything is sent: this hook runs before those of ddp.c and
// zero.c.
//
//     order of events    weights of the table | outputs and gradients in the order in which units ran in this step
//
// The first event of each rank is compared over the ranks: the earliest wins, then the lowest rank. A weight that is
// not finite explains everything after it, so it comes first.
//
// What it costs: one look at each number that was just written, an integer compare of its exponent: for a block of
// width C about 1 part in 12 C of its operations, and nothing is allocated or sent while numbers are finite.
//
// On a device apart from the host (a GPU) one look is one wait for the device; there losses, weights and the gradients
// of a whole unit are looked at, and a unit's rows only when it is not finite; outputs are not.
//
// Looking only reads. A run with it and one without are the same, bit for bit.
//
// Rejected: running the step again to look (a memory error is not there the second time); feenableexcept (threads
// and libraries raise invalid operations on purpose).
#include "src/check/observers.h"

#include "base/check.h"
#include "formats/formats.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool locate_finite_x(const Dev *dev, const X *x, size_t n)
{
    if (dev->x_type == X_FP32) return formats_finite((const float *)x, n);
    const char *at = (const char *)x;
    uint16_t mask = dev->x_type == X_BF16 ? 0x7f80 : 0x7c00, bad = 0;
    for (size_t i = 0; i < n; i++) {
        uint16_t bits;
        memcpy(&bits, at + 2 * i, sizeof bits);
        bad |= (bits & mask) == mask;
    }
    return !bad;
}

// The same of memory that the host does not read; a number whose square a float cannot hold is not finite here, as in
// grads_norm.
static bool finite_on(Dev *dev, const float *x, size_t n)
{
    return dev->raw_alloc ? isfinite(dev->sum_squares(dev, x, n)) : formats_finite(x, n);
}

static void note(Locate *l, const char *what, const char *name)
{
    l->found = l->calls;
    snprintf(l->what, sizeof l->what, "%s%s", what, name);
}

static void look_at_output(Locate *l, int unit)
{
    const Model *m = l->model;
    const size_t N = m->batch.B * m->batch.T;
    char name[32];
    if (m->n_chunks > 1 || m->n_units != (int)m->shape.layers + 2) return; // a stage: gradients and weights say enough
    if (unit == m->n_units - 1) {
        if (!finite_on(m->dev, m->loss, N)) note(l, "the losses", "");
        return;
    }
    if (m->dev->raw_alloc) return;
    if (locate_finite_x(m->dev, m->acts.stream[unit + 1], N / m->acts.sharers * m->local.channels)) return;
    if (unit) snprintf(name, sizeof name, "block %d", unit - 1);
    else snprintf(name, sizeof name, "the embedding");
    note(l, "the output of ", name);
}

// unit: of the table.
static void look_at_gradient(Locate *l, int unit)
{
    const Model *m = l->model;
    const Params *p = &m->params;
    size_t begin, end;
    params_unit_range(p, unit, &begin, &end);
    bool once = m->dev->raw_alloc && m->unit_grad[unit]; // one wait for all rows
    if (once && finite_on(m->dev, m->unit_grad[unit], end - begin)) return;
    for (int i = 0; i < p->n_rows; i++) {
        const Param *row = &p->row[i];
        if (row->unit != unit || !m->unit_grad[unit]) continue;
        if (finite_on(m->dev, m->unit_grad[unit] + (row->offset - m->unit_begin[unit]), row->n_elems)) continue;
        note(l, "the gradient of ", row->name);
        return;
    }
}

static void before(void *self, int unit, UnitPass pass)
{
    const Locate *l = self;
    if (l->inner.before) l->inner.before(l->inner.self, unit, pass);
}

static void after(void *self, int unit, UnitPass pass)
{
    Locate *l = self;
    if (l->found < 0) {
        if (pass == PASS_FORWARD) look_at_output(l, unit);
        const Unit *u = &l->model->unit[unit];
        if (pass >= PASS_BACKWARD) look_at_gradient(l, u->home);
        if (pass == PASS_BACKWARD && u->apart && l->found < 0) look_at_gradient(l, u->home + 1);
    }
    l->calls++;
    if (l->inner.after) l->inner.after(l->inner.self, unit, pass);
}

void locate_begin(Locate *l, Model *model)
{
    *l = (Locate){.model = model, .inner = model->hooks, .found = -1};
    model->hooks = (UnitHooks){.self = l, .before = before, .after = after};
}

void locate_step(Locate *l)
{
    l->calls = 0;
    l->found = -1;
}

// Weights that units read, where a rank has them whole.
static int bad_weight(const Locate *l)
{
    const Model *m = l->model;
    for (int i = 0; i < m->params.n_rows && m->x_weights && !m->shard.x_weights; i++) {
        const Param *row = &m->params.row[i];
        const char *at = (const char *)m->x_weights + row->offset * m->dev->x_bytes;
        bool apart = m->dev->raw_alloc != NULL, whole = m->weights && !m->shard.weights;
        bool finite = !apart ? locate_finite_x(m->dev, (const X *)at, row->n_elems)
                             : !whole || finite_on(m->dev, m->weights + row->offset, row->n_elems);
        if (!finite) return i;
    }
    return -1;
}

bool locate_first(Locate *l, Comm *ranks, char text[LOCATE_TEXT])
{
    const int size = ranks ? ranks->size : 1, rank = ranks ? ranks->rank : 0, weight = bad_weight(l);
    const int64_t LATE = INT32_MAX, rows = l->model->params.n_rows;
    int64_t event = l->found >= 0 ? rows + l->found : LATE, key, first;
    if (weight >= 0) {
        event = weight;
        snprintf(l->what, sizeof l->what, "weight %s", l->model->params.row[weight].name);
    }
    key = first = -(event * size + rank);
    if (size > 1) {
        CommRequest q = comm_all_reduce(ranks, &first, &key, 1, COMM_INT64, COMM_MAX);
        comm_wait(ranks, &q);
    }
    if (-first / size >= LATE) return false;
    int who = (int)(-first % size);
    memset(text, 0, LOCATE_TEXT);
    if (size == 1) {
        snprintf(text, LOCATE_TEXT, "%s", l->what);
        return true;
    }
    if (rank == who) snprintf(text, LOCATE_TEXT, "rank %d: %.*s", rank, LOCATE_TEXT - 32, l->what);
    CommRequest q = comm_broadcast(ranks, text, LOCATE_TEXT, COMM_BYTE, who);
    comm_wait(ranks, &q);
    return true;
}

static void before_step(void *self, Run *run, long step)
{
    (void)run, (void)step;
    locate_step(self);
}

static void explain(void *self, Run *run, char *text, size_t n)
{
    char first[LOCATE_TEXT];
    if (locate_first(self, run->replicas.world, first)) snprintf(text, n, ", first in %s", first);
    else snprintf(text, n, ", though every rank's own numbers were finite: their sum overflows");
}

Observer locate_observer(Model *model)
{
    Locate *locate = malloc(sizeof *locate);
    if (!locate) die("run: no memory for an observer");
    locate_begin(locate, model);
    return (Observer){.self = locate, .before = before_step, .explain = explain, .free = free};
}
