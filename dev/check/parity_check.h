// parity_check: whether a run on some layout has one rank's losses, norms and gradients.
#ifndef PARITY_CHECK_H
#define PARITY_CHECK_H
#include <stdbool.h>
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct ParityReference ParityReference;

typedef struct {
    bool agrees, equal; // equal: all bits
    int n_tensors;
    double worst;       // largest |g - g1| / bound of a tensor, in norms
    char where[80];     // that tensor
    char why[200];      // where it does not agree: the first thing that is wrong
} ParityVerdict;

// The run of one rank in run_dir, whose resolved configuration is `config`; its last update must have been dumped.
// exact: of a run in 16 bits, the same in fp32 (NULL else).
ParityReference *parity_check_open(const char *name, const char *run_dir, const char *config,
                                   const ParityReference *exact);
const char *parity_check_name(const ParityReference *reference);
void parity_check_close(ParityReference *reference);
// to_the_bit: every difference is wrong. Else within the bound of dev/parity.c.
ParityVerdict parity_check(ParityReference *reference, const char *run_dir, bool to_the_bit);

#ifdef __cplusplus
}
#endif
#endif
