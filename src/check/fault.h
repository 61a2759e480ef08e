// fault: failures that are injected on purpose, for tests and exercises.
//
//   --run.fault='kill:rank=2,step=30'    several with ';' between them
//
//   kill     rank, step, signal=9        that signal, before the update      exit    rank, step, status=0
//   hang     rank, step                  never comes back
//   nan      rank, step, tensor=NAME     an element of a weight (of=gradient: of its gradient) becomes NaN; index=0
//   flip     rank, step, tensor=NAME     after the update a bit of a weight is flipped; index=0, bit=20
//   enospc   step, bytes=65536, steps=1  rank 0's files cannot grow beyond so many bytes while checkpoints are saved
//   slowdisk step, seconds=5, steps=1    rank 0's checkpoints take so much longer
//   spike    step, steps=1               the tokens that these updates would train on are random
#ifndef FAULT_H
#define FAULT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    FAULT_KILL, FAULT_EXIT, FAULT_HANG, FAULT_NAN, FAULT_FLIP, FAULT_ENOSPC, FAULT_SLOWDISK, FAULT_SPIKE, FAULT_KINDS
} FaultKind;

enum { FAULT_MAX = 8, FAULT_NAME = 64 };

typedef struct {
    FaultKind kind;
    long rank, step, steps; // updates count from 1; the fault is there for `steps` of them
    long signal, status, index, bit, bytes;
    double seconds;
    char tensor[FAULT_NAME], of[FAULT_NAME];
} Fault;

typedef struct {
    int n;
    Fault fault[FAULT_MAX];
} Faults;

// Reads the text above; "": none. Dies naming the word that is wrong.
Faults fault_parse(const char *text);
// The first fault of that kind for this rank that is there at this update, or NULL.
const Fault *fault_at(const Faults *faults, FaultKind kind, long rank, long step);

// kill, exit, hang: does it.
void fault_end_process(const Fault *fault);
// Flips a bit of 32-bit number `index`.
void fault_flip(void *numbers, long index, long bit);
// Random tokens below n_vocab in place of a sample's n + 1: inputs and targets. A function of the sample.
void fault_poison(int32_t *token, int32_t *target, size_t n, int64_t sample, int32_t n_vocab);
// From here on files cannot grow beyond so many bytes (EFBIG, where a full disk has ENOSPC); 0: they can again.
void fault_limit_files(long bytes);

#ifdef __cplusplus
}
#endif
#endif
