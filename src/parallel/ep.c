// ep: the rows of slots on their way to the experts and back (GShard, Lepikhin et al., arXiv 2006.16668, section 3.2;
// uneven as in MegaBlocks, Gale et al., arXiv 2211.15841).
//
//   sorted by expert, a rank's rows for rank p are neighbours: offset[p own] .. offset[(p + 1) own], own = E / ep
//   counts      all_to_all of E numbers        how many rows of rank s are for each expert that this one has
//   dispatch    all_to_all of rows, uneven     they lie by source, of a source by expert
//   combine     the same, back                 each row comes to the place that it left
//
// A row has C elements. A token of a layer sends k rows and gets k back in forward, and as many in backward; of these
// 1 / ep stay on the rank when experts are equally loaded. So a rank sends 4 N k C (ep - 1) / ep elements a layer and
// micro-batch, and numbers beside: E counts, and in either direction a weight for each row.
//
// Experts' gradients need no exchange within the group: an expert has met all tokens of the group's ranks that chose it.
// They are added over the ranks with the same experts (MESH_EXPERT_REPLICAS), and are not divided by anything: weights
// of tokens are those of the global batch (ddp.c).
//
// The invariant: all ranks of a group make the same calls in the same order, also where one has no row to send. Rows
// are never sorted again: the products take the rows of each source as they came (DevExperts.sources). So a gradient
// adds the sources in the order of ranks, whatever the numbers of rows.
//
// Rejected: sorting what came by expert (a second pass over all rows, for products that are as fast without);
// fixed numbers of rows for each expert, as GShard has them (drops tokens, or sends padding).
#include "parallel/parts.h"

#include "base/check.h"
#include "parallel/mesh.h"

#include <stdlib.h>

enum { AT_ONCE = 2 }; // rows and their weights

struct Ep {
    Comm *group;
    size_t experts, own;       // of a layer, of this rank
    int32_t *offset, *number;  // on the host: (experts + 1) of the device's; (experts) rows of each expert or source
    size_t *to, *from, *bytes; // (size) rows to each rank, and from it; (2 size) the same in bytes
    size_t came;
    CommRequest pending[AT_ONCE];
    int n_pending;
};

ModelShape ep_shape(const ModelShape *whole, int rank, int size)
{
    ModelShape s = *whole;
    mesh_must_divide("model.experts", s.experts.n, "parallel.ep", size);
    s.experts.rank = rank, s.experts.ranks = size;
    return s;
}

Ep *ep_create(Comm *group, const ModelShape *part)
{
    const ModelExperts *x = &part->experts;
    Ep *ep = calloc(1, sizeof *ep);
    size_t n = (size_t)group->size;
    check(group->size == x->ranks && group->rank == x->rank && group->size > 1);
    if (!ep) die("ep: no memory");
    *ep = (Ep){.group = group, .experts = x->n, .own = unit_own_experts(x),
               .offset = calloc(x->n + 1, sizeof *ep->offset), .number = calloc(x->n, sizeof *ep->number),
               .to = calloc(n, sizeof *ep->to), .from = calloc(n, sizeof *ep->from),
               .bytes = calloc(2 * n, sizeof *ep->bytes)};
    if (!ep->offset || !ep->number || !ep->to || !ep->from || !ep->bytes) die("ep: no memory for %zu experts", x->n);
    return ep;
}

void ep_free(Ep *ep)
{
    free(ep->offset);
    free(ep->number);
    free(ep->to);
    free(ep->from);
    free(ep->bytes);
    free(ep);
}

static Ep *ep_of(const UnitContext *ctx)
{
    const Parts *parts = ctx->linear->parts;
    return parts->ep;
}

// Every rank's numbers of rows for this rank's experts, by source: all have E / ep of them.
static void exchange_numbers(Ep *ep)
{
    size_t n = (size_t)ep->group->size, each[n];
    int32_t *mine = ep->offset; // differences, in place of the offsets
    for (size_t e = 0; e < ep->experts; e++) mine[e] = ep->offset[e + 1] - ep->offset[e];
    for (size_t r = 0; r < n; r++) each[r] = ep->own;
    Comm *host = comm_host(ep->group);
    CommRequest request = comm_all_to_all(host, ep->number, mine, each, each, COMM_INT32);
    comm_wait(host, &request);
    for (size_t r = 0; r < n; r++) {
        ep->to[r] = ep->from[r] = 0;
        for (size_t e = 0; e < ep->own; e++) {
            ep->to[r] += (size_t)mine[r * ep->own + e];
            ep->from[r] += (size_t)ep->number[r * ep->own + e];
        }
    }
}

static size_t meet(const UnitContext *ctx, int32_t *there, const int32_t *offset, size_t room)
{
    Ep *ep = ep_of(ctx);
    ctx->dev->to_host(ctx->dev, ep->offset, offset, (ep->experts + 1) * sizeof *ep->offset);
    exchange_numbers(ep);
    ep->came = 0;
    ep->offset[0] = 0;
    for (size_t i = 0; i < ep->experts; i++) {
        ep->came += (size_t)ep->number[i];
        ep->offset[i + 1] = (int32_t)ep->came;
    }
    if (ep->came > room)
        die("moe.room: the experts of expert-parallel rank %d of %d get %zu rows of a micro-batch, and there is room for "
            "%zu (try a larger moe.room, or 0 for all that can come)", ep->group->rank, ep->group->size, ep->came, room);
    ctx->dev->to_device(ctx->dev, there, ep->offset, (ep->experts + 1) * sizeof *there);
    return ep->came;
}

static size_t came(const UnitContext *ctx)
{
    return ep_of(ctx)->came;
}

static void send_rows(const UnitContext *ctx, void *to, const void *from, size_t n_bytes, bool back)
{
    Ep *ep = ep_of(ctx);
    size_t n = (size_t)ep->group->size, *out = ep->bytes, *in = ep->bytes + n;
    check(ep->n_pending < AT_ONCE);
    for (size_t r = 0; r < n; r++) {
        out[r] = (back ? ep->from[r] : ep->to[r]) * n_bytes;
        in[r] = (back ? ep->to[r] : ep->from[r]) * n_bytes;
    }
    ep->pending[ep->n_pending++] = comm_all_to_all(ep->group, to, from, out, in, COMM_BYTE);
}

static void wait_rows(const UnitContext *ctx)
{
    Ep *ep = ep_of(ctx);
    for (int i = 0; i < ep->n_pending; i++) comm_wait(ep->group, &ep->pending[i]);
    ep->n_pending = 0;
}

void ep_fill(Parts *parts, Linear *linear)
{
    (void)parts;
    linear->experts_meet = meet;
    linear->experts_came = came;
    linear->experts_send = send_rows;
    linear->experts_wait = wait_rows;
}
