// trained: a model as a run, a checkpoint or a file of other programs holds it, ready to write text or to be measured.
#ifndef TRAINED_H
#define TRAINED_H
#include "base/config.h"
#include "base/mem.h"
#include "net/model.h"
#include "tokenizer/tokenizer.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef enum { TRAINED_CKPT, TRAINED_HF, TRAINED_GGUF, TRAINED_LLMC } TrainedKind;

typedef struct {
    TrainedKind kind;
    Config cfg; // the settings of the run that it comes from; of other programs' files, the [model] section
    Mem mem;
    Dev *dev, *cpu; // dev: the CPU itself, or in 2-byte types what stores them over it (run_device)
    Model *model;
    Tokenizer *tokenizer; // NULL: there is none where the settings say (trained_tokenizer)
    char *dir;  // the checkpoint, the folder, or the file
    long step;  // updates that it has had; 0: not known
} Trained;

typedef struct {
    const char *tokenizer; // its folder; NULL: the one that the run was trained with, or that the folder or file has
    size_t B, T;           // buffers hold B sequences (0: the run's batch.micro) of T tokens (0: its context)
    int threads;           // 0: one a core
    ConfigDtype dtype;     // of weights and activations, whatever the run's numerics.dtype; 0: fp32
} TrainedOptions;

// `path`: a run, which stands for its newest sound checkpoint, a checkpoint, a folder of Transformers (hf.h), a GGUF
// file (gguf_model.h) or a model file of llm.c (llmc.h). Dies with one line when anything is damaged or does not fit.
// Writes nothing.
Trained *trained_open(const char *path, TrainedOptions options);
Tokenizer *trained_tokenizer(Trained *trained); // dies when there is none
// Dies where a weight is NaN or infinite: other programs refuse such a file, or write nothing sensible with it.
void trained_must_be_finite(const Trained *t);
void trained_close(Trained *trained); // NULL is allowed

#ifdef __cplusplus
}
#endif
#endif
