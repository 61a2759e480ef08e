// ddp: data parallelism: every rank has the whole model and its share of the samples.
//
// Each step, rank d of N computes the gradients of its samples, the gradients are added over the ranks, and every
// rank makes the same update. Weights start equal (they are a function of the seed) and stay equal, bit for bit.
#ifndef DDP_H
#define DDP_H
#include "comm/comm.h"
#include "net/model.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    Comm *group;   // the ranks with the same weights
    Comm *experts; // those of them with the same experts, where ranks divide them; NULL: all have all
    Model *model;
    bool overlap;        // false: the naive twin, one all_reduce after backward
    size_t bucket;       // elements of gradient that are added at a time, at least
    bool last;           // this micro-batch is the last of the step
    size_t begin, end;   // in the flat order: from begin on gradients are complete; from end on they are being added
    CommRequest *request; // (units of the table)
    Comm **over;          // and the ranks of each
    int n_requests;
    X *narrow;            // (n_elems) gradients on their way in the storage type; NULL: they go in fp32
} Ddp;

// Adds gradients over `group` in buckets of bucket_bytes or the next unit border after; sets the model's hooks. The
// group may be NULL in a plan. narrow: gradients are rounded to the storage type before they are sent, which halves
// their bytes; sums are then in fp32, and rounded once. It allocates nothing but its buffer.
Ddp *ddp_create(Model *model, Comm *group, Comm *experts, bool overlap, size_t bucket_bytes, bool narrow);
void ddp_free(Ddp *ddp);
// Before each micro-batch; `last`: the one after which gradients are added. Without communication until then.
void ddp_micro(Ddp *ddp, bool last);
// After model_step_finish: every rank's model->grads is the sum over the ranks.
void ddp_finish(Ddp *ddp);

// Rank's share of n samples: [*begin, *begin + the returned number). n must be a multiple of size.
size_t ddp_share(size_t n, int rank, int size, size_t *begin);
// Sums over the ranks, the same bits on each. (What an int64 counts: valid tokens; a double: losses.)
int64_t ddp_sum_int(Comm *group, int64_t x);
double ddp_sum(Comm *group, double x);

#ifdef __cplusplus
}
#endif
#endif
