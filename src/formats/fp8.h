// fp8: which matmuls run in fp8, and with what scales.
//
// E4M3 reaches from 2^-9 to 448, E5M2 from 2^-16 to 57344: too short for tensors as they come. So each
// tensor that enters a matmul is multiplied by a scale of its own that puts its largest element at the
// format's largest number (Micikevicius et al., arXiv 2209.05433). A tensor here is (site, role): the site
// is the weight's row in the parameter table, the role says whether it is the weight, the input or the
// gradient of the output.
#ifndef FP8_H
#define FP8_H
#include "base/config.h"
#include "formats/formats.h"
#include "base/params.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { FP8_INP, FP8_WEIGHT, FP8_DOUT, FP8_ROLES } Fp8Role;

typedef struct Fp8 {
    Fp8Scaling scaling;
    int history;  // steps
    int n_sites;  // rows of the parameter table
    bool *on;     // by site: runs in fp8
    float *amax;  // (n_sites, FP8_ROLES, history) newest first; 0: no entry. All that outlives a step.
    float *now;   // (n_sites, FP8_ROLES) largest magnitude of the step so far
    bool bad;     // something in this step was not finite
    const Params *params; // for names
    // A GPU has a copy of the scales, and records there the amax of its tensors (casts.cu).
    void (*fetch)(struct Fp8 *fp8, void *arg); // copies those records to `now` and `bad`; NULL: no such copy
    void *fetch_arg;
    long changes; // how often the host has changed what is known: the copy is renewed
} Fp8;

// No site runs in fp8 until fp8_set_sites.
Fp8 *fp8_create(Fp8Scaling scaling, int history);
void fp8_free(Fp8 *fp8);
// Matrices of the blocks ("layers.*") run in fp8; embedding and head never do. `keep` names exceptions: words
// divided by commas, each a part of a row's name ("layers.0.,ffn.down"); NULL or "": none; dies when a word
// fits no matrix of a block. q stands for q, k, v, and gate for gate and up: they are one matmul. `params`
// must outlive fp8.
void fp8_set_sites(Fp8 *fp8, const Params *params, const char *keep);

bool fp8_runs(const Fp8 *fp8, int site); // false for -1
// E4M3 for inp and weight, E5M2 for dout.
Format fp8_format(Fp8Role role);
// The scale of a tensor whose largest magnitude is amax; notes amax. Delayed scales do not change between
// step_end and step_end, so forward, recomputation and backward quantise alike. Where nothing is known yet,
// the current scale.
float fp8_scale(Fp8 *fp8, int site, Fp8Role role, float amax);
// The same in two halves, for a device that finds amax itself: the magnitude that a delayed scale follows from (0: not
// known, take the tensor's own amax); and the scale for a magnitude.
float fp8_known(const Fp8 *fp8, int site, Fp8Role role);
float fp8_scale_for(Fp8Role role, float amax);
// Records a magnitude of the current step; one that is not finite makes the step bad.
void fp8_note(Fp8 *fp8, int site, Fp8Role role, float amax);
// Copies to `now` and `bad` what a GPU has recorded so far. fp8_step_end calls it too.
void fp8_collect(Fp8 *fp8);
// Makes `to` what `from` is, so that two devices quantise alike (dev_check.h).
void fp8_copy(Fp8 *to, const Fp8 *from);
// Around the micro-batches of a training step. begin clears what an evaluation since the last step has recorded.
void fp8_step_begin(Fp8 *fp8);
// Moves the step's amax into the history. False when some amax was not finite: a saturating cast hides it, so
// skip the update; the whole history then stays as it was.
bool fp8_step_end(Fp8 *fp8);
// The state that a checkpoint keeps: *n floats, to be saved and written back as they are, between two steps.
float *fp8_state(Fp8 *fp8, size_t *n);

#ifdef __cplusplus
}
#endif
#endif
