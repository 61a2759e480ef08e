// twice: the same update by two commands, from the same state, for build/diff.
#ifndef TWICE_H
#define TWICE_H
#include <stdbool.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    const char *a, *b; // commands of the shell that train, to which options can be added: "mpiexec -n 2 build/train tiny"
    char dir[400];     // a folder of its own, with the runs `base`, `a` and `b` and what they print
    long base;         // B's run has saved its state after each update up to here
} Twice;

// Makes the folder in $TMPDIR or /tmp.
Twice twice_begin(const char *a, const char *b);
// B alone, up to the state after `updates`, saved after each one.
void twice_base(Twice *twice, long updates);
// Both dump `update` (from 1), and begin with the state of B's run after the one before; paths of the two runs. Dies
// with what the command printed last when one fails.
void twice_run(Twice *twice, long update, char path_a[1000], char path_b[1000]);
void twice_end(Twice *twice, bool keep); // removes the folder

#ifdef __cplusplus
}
#endif
#endif
