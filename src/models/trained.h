// trained: a model as a run, a checkpoint or a folder of Transformers holds it, ready to write text or to be measured.
#ifndef TRAINED_H
#define TRAINED_H
#include "base/config.h"
#include "base/mem.h"
#include "net/model.h"
#include "text/tokenizer.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    Config cfg; // the settings of the run that it comes from; of a folder of Transformers, the [model] section
    Mem mem;
    Dev *dev;   // the CPU; weights and arithmetic are fp32, whatever the run's numerics.dtype
    Model *model;
    Tokenizer *tokenizer;
    char *dir;  // the checkpoint, or the folder
    long step;  // updates that it has had; 0: not known
} Trained;

// `path`: a run, which stands for its newest sound checkpoint, a checkpoint, or a folder of Transformers (hf.h).
// tokenizer: its folder; NULL: the one that the run was trained with, or that folder. Buffers hold B sequences (0: the
// run's batch.micro) of T tokens (0: its context). threads 0: one a core. Dies with one line when anything is missing,
// damaged or does not fit. Writes nothing.
Trained *trained_open(const char *path, const char *tokenizer, size_t B, size_t T, int threads);
void trained_close(Trained *trained); // NULL is allowed

#ifdef __cplusplus
}
#endif
#endif
