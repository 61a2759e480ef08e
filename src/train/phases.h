// phases: where the time of a step goes: data, forward, backward, communication, optimizer, saving.
//
// One clock that is always in exactly one phase, so no moment counts twice, and the phases of a step add up to its
// time. It reads the clock twice a unit and pass, which costs a step nothing that can be measured.
#ifndef PHASES_H
#define PHASES_H
#include "comm/comm.h"
#include "net/model.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    PHASES_OTHER, // none of the others: observers, the monitor's verdict
    PHASES_DATA, PHASES_FORWARD, PHASES_BACKWARD,
    PHASES_COMM,  // waiting for other ranks in any of these; never entered
    PHASES_OPTIM,
    PHASES_SAVE, PHASES_EVAL, // between steps
    PHASES
} Phase;

typedef struct {
    const Comm *ranks;      // whose waits are communication; NULL: none
    UnitHooks inner;        // the model's hooks that were there before
    bool host;              // the host computes: forward and backward can be told apart
    Phase now;
    double since, waited;   // when it began; comm_waited then
    double seconds[PHASES]; // since phases_step or phases_take
} Phases;

// Starts the clock, in PHASES_OTHER. Installs itself before the model's other hooks, to switch between forward and
// backward; not on a device that computes on its own while the host runs ahead. The struct must not move.
void phases_begin(Phases *phases, Model *model, const Comm *ranks);
// From now on the time is that of `phase`; returns the phase before.
Phase phases_enter(Phases *phases, Phase phase);
// A step begins: PHASES_OTHER, and the phases of a step are 0.
void phases_step(Phases *phases);
// Milliseconds of a phase up to the last phases_enter, which are then forgotten. NAN where they cannot be known: of a
// device that computes on its own, the host's clock knows only what the host does: data, saving and evaluation.
double phases_take(Phases *phases, Phase phase);

#ifdef __cplusplus
}
#endif
#endif
