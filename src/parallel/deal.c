// deal: which sequences of a step a rank has in deterministic mode, and the sum over the ranks where their number is no
// power of two.
//
// The gradient of a step is one tree over its S sequences, which does not depend on ranks: a binary counter's
// (model_run.c). R ranks have n = S / R sequences each. A rank can add before it sends where its sequences form whole
// subtrees. So they are dealt by the bits of n: for each bit k of n, from the highest on, every rank in turn gets the
// next 2^k sequences. S = 12, R = 4, n = 3 = 2 + 1:
//
//     rank              0        1        2        3        0   1   2    3
//     sequences         0 1      2 3      4 5      6 7      8   9   10   11
//     sum of 2^k        slot 0   1        2        3        4   5   6    7
//
// The block of bit k begins at a multiple of 2^(k + 1), so its sums are nodes of the tree, and the rank's own counter
// (tree_add) has just these: part[k] for each bit k of n. All ranks have the same bits, so neither the model nor its
// memory changes. For n a power of two there is one block, the ranks' shares are neighbours as ever, and `ordered` groups
// finish the tree (ddp.c, zero.c). Else, for each unit:
//
//     all_to_all      for each bit of n: every rank gets all ranks' sums of the elements that it owns
//     additions       in the tree, on the device: two neighbours of 2^k make one of 2^(k + 1); at the end the
//                     remaining ones, from the smallest to the largest
//     all_gather      without ZeRO: the sums, to all
//
// A rank sends b P (N - 1) / N elements for b bits instead of P (N - 1) / N, and the gather's. Ranks that share
// sequences (cp, a power of two of them) have their sums on the first of them, zeros on the others: in the tree over
// dp cp ranks these pairs come first, and adding zero changes nothing. Experts that ep ranks divide have a sum for each
// of them (model.h), joined before: if ep is a power of two it is a node again, of ep 2^k sequences.
//
// The invariant: the order of additions depends on n and the number of ranks alone, so that all ranks make the same,
// and the result is a function of the S sequences.
//
// Rejected: neighbouring sequences for every rank, with a counter that begins at its first one. Its subtrees differ
// from rank to rank, up to two of each size, which take up to twice the memory, and a source of experts would need a
// counter of its own. A tree that halves S while it is even: a share of 2^j ranks is always a subtree of it, but the
// share of 3 ranks with 8 sequences each is then none.
#include "parallel/deal.h"

#include "base/check.h"

#include <stdlib.h>

size_t deal_sequence(size_t i, size_t n, int rank, int ranks)
{
    size_t block = 1, before = 0; // of this rank's, in blocks of higher bits
    while (block <= n / 2) block *= 2;
    for (; !(n & block) || i >= before + block; block /= 2) before += n & block;
    return before * (size_t)ranks + block * (size_t)rank + (i - before);
}

size_t deal_additions(size_t n, int ranks, size_t (*pair)[2])
{
    struct {
        size_t slot, block;
    } node[2 + 8 * sizeof n]; // from the left, ever smaller
    size_t block = 1, slot = 0, n_pairs = 0, depth = 0;
    while (block <= n / 2) block *= 2;
    for (; block; block /= 2)
        for (int r = 0; r < ranks && n & block; r++, slot++) {
            node[depth].slot = slot, node[depth++].block = block;
            for (; depth > 1 && node[depth - 2].block == node[depth - 1].block; depth--) {
                pair[n_pairs][0] = node[depth - 2].slot, pair[n_pairs++][1] = node[depth - 1].slot;
                node[depth - 2].block *= 2;
            }
        }
    for (; depth > 1; depth--) pair[n_pairs][0] = node[depth - 2].slot, pair[n_pairs++][1] = node[depth - 1].slot;
    return n_pairs;
}

// The ranks that have the same tensors of a unit.
static int ranks_of_unit(const Deal *d, int unit)
{
    bool divided = params_unit_expert(&d->model->params, unit) && d->cut.size > 1;
    return d->cut.size / (divided ? d->model->params.ep : 1);
}

static size_t own_elems(const Deal *d, int unit)
{
    return d->cut.at[unit + 1] - d->cut.at[unit];
}

static void join_unit(Deal *d, int unit, size_t n)
{
    Model *m = d->model;
    int ranks = ranks_of_unit(d, unit);
    Comm *group = ranks < d->cut.size ? d->experts : d->group;
    const size_t *counts = d->cut.count + (size_t)unit * (size_t)d->cut.size, own = own_elems(d, unit);
    size_t from[ranks], pair[(size_t)ranks * MODEL_MAX_LEVELS][2], sums = 0, begin = m->unit_begin[unit];
    for (int r = 0; r < ranks; r++) from[r] = own;
    for (int k = m->n_levels - 1; k >= 0; k--) {
        if (!(n >> k & 1)) continue;
        CommRequest request = comm_all_to_all(group, d->room + sums * own, m->part[k] + begin, counts, from, COMM_FP32);
        comm_wait(group, &request);
        sums += (size_t)ranks;
    }
    size_t n_pairs = deal_additions(n, ranks, pair);
    for (size_t j = 0; j < n_pairs; j++)
        m->dev->accumulate(m->dev, d->room + pair[j][0] * own, d->room + pair[j][1] * own, own);
    float *sum = m->grads + d->cut.begin[unit];
    m->dev->accumulate(m->dev, sum, d->room, own);
    if (!d->whole) return;
    CommRequest request = comm_all_gather(group, m->grads + begin, sum, counts, COMM_FP32);
    comm_wait(group, &request);
}

// The sum of all ranks' losses, on the first; 0 on the others.
static double join_losses(Deal *d, size_t n, const double *part_loss)
{
    size_t ranks = (size_t)d->control->size, counts[ranks], pair[ranks * MODEL_MAX_LEVELS][2], sums = 0;
    double loss[ranks * MODEL_MAX_LEVELS];
    for (size_t r = 0; r < ranks; r++) counts[r] = 1;
    for (int k = d->model->n_levels - 1; k >= 0; k--) {
        if (!(n >> k & 1)) continue;
        CommRequest request = comm_all_gather(d->control, loss + sums, &part_loss[k], counts, COMM_FP64);
        comm_wait(d->control, &request);
        sums += ranks;
    }
    size_t n_pairs = deal_additions(n, (int)ranks, pair);
    for (size_t j = 0; j < n_pairs; j++) loss[pair[j][0]] += loss[pair[j][1]];
    return d->control->rank == 0 ? loss[0] : 0;
}

static double join(void *self, size_t n, const double *part_loss)
{
    Deal *d = self;
    d->joined = true;
    for (int u = d->model->params.n_units - 1; u >= 0; u--) join_unit(d, u, n);
    return join_losses(d, n, part_loss);
}

bool deal_joined(Deal *d)
{
    bool joined = d->joined;
    d->joined = false;
    return joined;
}

Deal *deal_create(Model *model, ZeroCut cut, ZeroGroups group, bool whole)
{
    Deal *d = calloc(1, sizeof *d);
    size_t most = 0;
    if (!d) die("deal: no memory");
    *d = (Deal){.model = model, .cut = cut, .group = group.dp, .experts = group.experts, .control = group.control,
                .whole = whole};
    for (int u = 0; u < model->params.n_units; u++) {
        size_t n = (size_t)ranks_of_unit(d, u) * own_elems(d, u);
        if (n > most) most = n;
    }
    d->n_room = (size_t)model->n_levels * most;
    d->room = mem_alloc(model->mem, MEM_COMM, d->n_room * sizeof(float), "parts of other ranks' gradients");
    model->join = (ModelJoin){.self = d, .parts = join};
    return d;
}

void deal_free(Deal *d)
{
    zero_cut_free(&d->cut);
    free(d);
}
