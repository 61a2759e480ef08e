// phases: a clock that is in one phase at a time. See phases.h.
//
// The invariant: between two calls of phases_enter, the elapsed time is divided between the phase and communication,
// and nothing else gets any:
//
//     communication += w              w: the growth of comm_waited; 0 between steps
//     phase         += elapsed - w
//
// So the phases of a step add up to its time. Communication that is hidden behind computation does not appear, because
// nobody waited for it. A pipeline's bubble does: a stage that has nothing to do waits for a message.
//
// Rejected: begin and end at each place (two that overlap count a moment twice, and one that is forgotten shows only as
// a sum that is wrong); events of the device (they would stand in the device's queue between the kernels).
#include "train/phases.h"

#include "base/clock.h"

#include <math.h>
#include <string.h>

// Evaluation and sampling run the same units.
static void before(void *self, int unit, UnitPass pass)
{
    Phases *p = self;
    if (p->now == PHASES_FORWARD || p->now == PHASES_BACKWARD)
        phases_enter(p, pass == PASS_FORWARD ? PHASES_FORWARD : PHASES_BACKWARD);
    if (p->inner.before) p->inner.before(p->inner.self, unit, pass);
}

static void after(void *self, int unit, UnitPass pass)
{
    const Phases *p = self;
    if (p->inner.after) p->inner.after(p->inner.self, unit, pass);
}

void phases_begin(Phases *p, Model *model, const Comm *ranks)
{
    *p = (Phases){.ranks = ranks, .host = !model->dev->raw_alloc, .inner = model->hooks, .since = clock_seconds(),
                  .waited = ranks ? comm_waited(ranks) : 0};
    if (!p->host) return;
    model->hooks.self = p; // the watcher of the hooks stays
    model->hooks.before = before;
    model->hooks.after = after;
}

Phase phases_enter(Phases *p, Phase phase)
{
    double now = clock_seconds(), waited = p->ranks ? comm_waited(p->ranks) : 0;
    double w = p->now < PHASES_SAVE ? waited - p->waited : 0;
    Phase last = p->now;
    p->seconds[PHASES_COMM] += w;
    p->seconds[last] += now - p->since - w;
    p->since = now, p->waited = waited, p->now = phase;
    return last;
}

void phases_step(Phases *p)
{
    phases_enter(p, PHASES_OTHER);
    memset(p->seconds, 0, PHASES_SAVE * sizeof *p->seconds);
}

double phases_take(Phases *p, Phase phase)
{
    bool known = p->host || phase == PHASES_DATA || phase >= PHASES_SAVE;
    double ms = known ? 1e3 * p->seconds[phase] : NAN;
    p->seconds[phase] = 0;
    return ms;
}
