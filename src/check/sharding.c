// sharding: the tables with which guides to data parallelism begin, beside what was counted. See sharding.h.
//
// Memory of a rank in bytes: x a weight's (4; 2 in bf16 and fp16), k the optimizer's for a parameter (8 for AdamW in
// fp32; 12 beside 2-byte weights, whose fp32 copy it then holds):
//
//     stage    weights    gradients    optimizer     fp32, AdamW       bf16, AdamW
//     0        x P        4 P          k P           16 P              18 P
//     1        x P        4 P          k P / N       8 P + 8 P / N     6 P + 12 P / N
//     2        x P        4 P / N      k P / N       4 P + 12 P / N    2 P + 16 P / N
//     3        x P / N    4 P / N      k P / N       16 P / N          18 P / N
//
// The ZeRO paper has 16 for mixed precision: its gradients are 2 bytes, ours are always sums in 4.
//
// Hybrid sharding: S of the N ranks cut everything, and there are C = N / S copies of it. Then S stands for N above,
// and in the sum over all ranks everything is there C times; each range is added over its copies in fp32: all_reduce
// 2 P / S elements a step, times (C - 1) / C.
//
// Where ep ranks divide the experts, Px of a rank's P elements are theirs. N / ep ranks have the same ones, so in these
// parts of the formulas N / ep stands for N: a rank holds (P - Px) / N + Px ep / N, and sends what N / ep ranks would.
//
// The invariant: shards are not padded (zero_cut.c), so over all ranks the bytes add up to these formulas exactly,
// however uneven the cut: N P for what every rank has, P for what is sharded, and (N - 1) for (N - 1) / N. A difference
// in the table has another cause, which the lines below the table name.
//
// Rejected: formulas for one rank, with P / N rounded up. Which rank has one element more depends on the unit.
#include "src/check/sharding.h"

#include "base/check.h"

#include <stdlib.h>
#include <string.h>

// Which unit each slot holds (1 + it), as in zero.c; elements of blocks that were gathered.
typedef struct {
    ShardingChunk chunk;
    size_t in[2 + ZERO_PREFETCH + 1], elems;
} Slots;

static bool is_block(const ShardingChunk *c, size_t unit)
{
    return !(c->embedding && unit == c->first) && !(c->head && unit == c->first + c->n - 1);
}

static void bring(Slots *s, size_t unit)
{
    const ShardingChunk *c = &s->chunk;
    size_t slot = 2 + unit % c->slots, elems = is_block(c, unit) ? c->block[unit - c->first - c->embedding] : 0;
    if (!c->apart && (unit == 0 || unit == c->units - 1)) slot = unit > 0;
    if (((c->apart || is_block(c, unit)) && !elems) || s->in[slot] == unit + 1) return;
    s->in[slot] = unit + 1;
    s->elems += elems;
}

static void leave(Slots *s, size_t unit)
{
    for (size_t slot = 0; slot < 2 + s->chunk.slots; slot++)
        if (s->in[slot] == unit + 1) s->in[slot] = 0;
}

size_t sharding_ranks(const ShardingCase *is)
{
    return is->shard ? is->shard : is->ranks;
}

// C: how often what is cut is there.
static size_t copies(const ShardingCase *is)
{
    return is->ranks / sharding_ranks(is);
}

size_t sharding_streamed(const ShardingCase *is, size_t n)
{
    return n < is->keep ? 0 : n;
}

size_t sharding_again(ShardingChunk c, size_t segment)
{
    Slots s = {.chunk = c};
    size_t end = c.first + c.n, blocks = c.n - c.embedding - c.head, before = c.first + c.embedding;
    if (!segment) return 0;
    for (size_t u = c.first; u < end; u++) {
        for (size_t k = 0; k <= c.ahead && u + k < end; k++) bring(&s, u + k);
        leave(&s, u);
    }
    for (size_t u = end; u-- > c.first;) {
        size_t k = u + 1 - before; // of the blocks, from 1
        if (is_block(&c, u) && k < blocks && k % segment == 0) // a segment's last block; the last segment has just run
            for (size_t v = u + 1 - segment; v <= u; v++) bring(&s, v);
        for (size_t v = 0; v <= c.ahead && u - c.first >= v; v++) bring(&s, u - v);
        leave(&s, u);
    }
    for (size_t k = 0; k < blocks; k++) s.elems -= 2 * c.block[k];
    return s.elems;
}

static size_t elems_of(const Params *params, int unit)
{
    size_t begin, end;
    params_unit_range(params, unit, &begin, &end);
    return end - begin;
}

// What the model's chunks and a pipeline's table add to the formulas.
static void add_stage(ShardingCase *is, const Run *run)
{
    const Config *cfg = &run->cfg;
    const Model *m = run->model;
    size_t begin, end, block[m->n_units], experts[m->n_units], ahead = (size_t)cfg->parallel.prefetch;
    bool overlap = cfg->parallel.overlap && cfg->parallel.pp == 1;
    bool split = ranks_of(&run->replicas)->table && ranks_of(&run->replicas)->table->split;
    for (int c = 0; c < m->n_chunks; c++) {
        const ModelPiece *piece = &m->chunk[c].piece;
        ShardingChunk chunk = {.first = (size_t)m->chunk[c].first, .n = (size_t)m->chunk[c].n_units,
                               .units = (size_t)m->n_units, .slots = ahead + 1, .ahead = overlap ? ahead : 0,
                               .embedding = piece->embedding, .head = piece->head};
        for (size_t k = 0; k < piece->layers; k++) {
            const Unit *unit = &m->unit[chunk.first + piece->embedding + k];
            size_t own = elems_of(&m->params, unit->home);
            size_t apart = unit->apart ? elems_of(&m->params, unit->home + 1) : 0;
            is->experts += apart;
            if (split) is->later += own, is->experts_later += apart;
            block[k] = sharding_streamed(is, own), experts[k] = sharding_streamed(is, apart);
        }
        if (is->stage < 3 || is->deterministic) continue;
        chunk.block = block;
        is->again += sharding_again(chunk, m->pool.segment);
        chunk.block = experts, chunk.apart = true;
        is->experts_again += sharding_again(chunk, m->pool.segment);
        for (size_t k = 0; split && recompute_restores(m->pool.policy.mode) && k < piece->layers; k++)
            is->again += block[k], is->experts_again += experts[k]; // W computes the norms' outputs again
    }
    for (int u = 0; u < m->params.n_units; u++) {
        size_t n = elems_of(&m->params, u), stays = n - sharding_streamed(is, n);
        *(params_unit_expert(&m->params, u) ? &is->experts_kept : &is->kept) += stays;
    }
    params_unit_range(&m->params, 0, &begin, &end);
    if (m->shape.tie && m->params.no_head && !m->params.no_embedding) is->tied = end - begin;
}

ShardingCase sharding_case(const Run *run)
{
    const Config *cfg = &run->cfg;
    const Model *m = run->model;
    const MeshShape *mesh = &ranks_of(&run->replicas)->shape;
    bool narrow = m->dev->x_type != X_FP32;
    bool grows = run->ramp.tokens > 0; // not in a plan, which is of the full batch
    long sequences = grows ? (long)schedule_ramp_at(&run->ramp, run->first_step).sequences
                           : cfg->batch.tokens / cfg->model.context;
    long small = cfg->parallel.dp * cfg->batch.micro * config_micro_grain(cfg);
    bool measures = cfg->run.noise_every == 1 && sequences > small; // in the first step
    ShardingCase is = {
        .ranks = (size_t)(mesh->dp * mesh->cp), .shard = mesh_hybrid(*mesh) ? (size_t)mesh->shard : 0,
        .params = m->params.n_elems, .ep = (size_t)mesh->ep,
        .stage = mesh->dp * mesh->cp > 1 ? (int)cfg->parallel.zero : 0,
        .reshard = cfg->parallel.reshard, .deterministic = cfg->numerics.deterministic, .x_bytes = m->dev->x_bytes,
        .g_bytes = cfg->parallel.reduce_dtype == CONFIG_REDUCE_STORAGE ? m->dev->x_bytes : sizeof(float),
        .state = run->optim.whole.table ? 0 // by whole tensors, in no proportion to this rank's part
                                        : optim_state_bytes(cfg->optim.name, &m->params) +
                                              (narrow ? 4 : 0) * m->params.n_elems,
        .stored = cfg->memory.offload != OFFLOAD_NONE, .host = ranks_of(&run->replicas)->zero->set.host != NULL,
        .micro = (size_t)(sequences / cfg->parallel.dp / cfg->batch.micro), .batch = (size_t)cfg->batch.micro,
        .more = measures ? (size_t)config_micro_grain(cfg) : 0,
    };
    if (is.stage == 3 && is.reshard) is.keep = (size_t)cfg->parallel.keep;
    size_t begin;
    if (m->dev->embed_fp32 && !m->params.no_embedding && is.stage > 0) params_unit_range(&m->params, 0, &begin, &is.embed);
    add_stage(&is, run);
    return is;
}

// Of so many bytes of all parameters, which ranks cut from a stage on.
static ShardingFormula cut_from(const ShardingCase *is, size_t bytes, int sharded_from)
{
    if (!bytes) return (ShardingFormula){.text = "0"};
    bool sharded = is->stage >= sharded_from, apart = sharded && is->experts;
    ShardingFormula f = {.all = sharded ? bytes * copies(is) : bytes * is->ranks};
    double each = (double)bytes / (double)is->params;
    char N = copies(is) > 1 ? 'S' : 'N';
    if (apart) f.all += copies(is) * (is->ep - 1) * (size_t)(each * (double)is->experts);
    if (apart) snprintf(f.text, sizeof f.text, "%.4g (P + %zu Px) / %c", each, is->ep - 1, N);
    else if (sharded) snprintf(f.text, sizeof f.text, "%.4g P / %c", each, N);
    else snprintf(f.text, sizeof f.text, "%.4g P", each);
    return f;
}

ShardingFormula sharding_memory(const ShardingCase *is, MemTag tag)
{
    bool slots = is->stored && (tag == MEM_OPTIM || (tag == MEM_PARAMS && is->stage == 3));
    if (tag == MEM_PARAMS && !slots) return cut_from(is, is->x_bytes * is->params, 3);
    if (tag == MEM_GRADS) return cut_from(is, 4 * is->params, 2);
    return cut_from(is, tag == MEM_OPTIM && !slots ? is->state : 0, 1);
}

// Traffic, in elements that a rank sends in a step of M micro-batches, times (N - 1) / N:
//
//     0: all_reduce 2 P         1: reduce_scatter P + all_gather P        2: reduce_scatter M P + all_gather P
//     3: reduce_scatter M P + all_gather 2 M P; without reshard all_gather P; with parallel.keep all_gather
//        2 M (P - Pk) + Pk, where Pk are in units that stay gathered
//
// With numerics.embed_dtype=fp32 stages 1 to 3 gather the embedding, E elements, once more a step: 4 E bytes.
// run.noise_every runs a few micro-batches of the step apart: M counts these twice, and stages 0 and 1 reduce twice.
// Gradients travel in 4 bytes (x with parallel.reduce_dtype=storage), weights in x. A deterministic device reduces once
// a step, and gathers a unit for each sequence's backward: (1 + B) M P.
//
// How often a step gathers P, but for the elements that it gathers once; and elements besides.
static size_t gathers(const ShardingCase *is, size_t *again, size_t *kept)
{
    size_t micro = is->micro + is->more;
    bool anew = is->stage == 3 && is->reshard;
    *again = anew ? micro * is->again + sharding_streamed(is, is->tied) : 0;
    *kept = anew ? is->kept : 0;
    return !anew ? 1 : micro * (is->deterministic ? 1 + is->batch : 2);
}

ShardingFormula sharding_traffic(const ShardingCase *is, CommKind kind)
{
    size_t times = 0, bytes = is->g_bytes; // how often P is exchanged, in how many bytes an element
    size_t micro = is->micro + is->more, reductions = 1 + (is->more > 0), C = copies(is), S = sharding_ranks(is);
    bool once = is->stage == 1 || is->deterministic; // gradients are reduced once a step
    const char *P = is->experts ? "(P - Px)" : "P";
    ShardingFormula f = {.text = "0"};
    if (C > 1 && kind == COMM_ALL_REDUCE) { // over the copies
        f.all = (C - 1) * 4 * 2 * reductions * (is->params - is->experts);
        snprintf(f.text, sizeof f.text, "4 x %zu %s / S (C - 1) / C", 2 * reductions, P);
        return f;
    }
    if (kind == COMM_ALL_REDUCE && is->stage == 0) times = 2 * reductions;
    if (kind == COMM_REDUCE_SCATTER && is->stage > 0) times = once ? reductions : micro;
    size_t again = 0, kept = 0; // elements besides; of units that are gathered once
    if (kind == COMM_ALL_GATHER && is->stage > 0) times = gathers(is, &again, &kept), bytes = is->x_bytes;
    if (!times || S == 1) return f;
    if (kind == COMM_REDUCE_SCATTER && !once) again = micro * is->later + reductions * is->tied;
    bool more = again > 0;
    size_t elems = times * (is->params - is->experts - kept) + kept + again;
    size_t table = kind == COMM_ALL_GATHER ? is->embed : 0;
    f.all = C * (S - 1) * (bytes * elems + 4 * table);
    char N = C > 1 ? 'S' : 'N', sum[64];
    if (kept)
        snprintf(sum, sizeof sum, "%zu x (%zu (%s - Pk) + Pk%s)", bytes, times, P, more ? " + again" : "");
    else snprintf(sum, sizeof sum, more ? "%zu x (%zu %s + again)" : "%zu x %zu %s", bytes, times, P);
    if (table) snprintf(f.text, sizeof f.text, "(%s + 4 E) (%c - 1) / %c", sum, N, N);
    else snprintf(f.text, sizeof f.text, "%s (%c - 1) / %c", sum, N, N);
    return f;
}

ShardingCase sharding_experts(const ShardingCase *is)
{
    ShardingCase one = *is;
    one.ranks = is->ep > 1 ? is->ranks / is->ep : is->ranks, one.shard = is->shard / (is->ep > 1 ? is->ep : 1);
    one.params = is->experts, one.experts = one.tied = one.embed = 0;
    one.kept = is->experts_kept, one.again = is->experts_again, one.later = is->experts_later;
    return one;
}

ShardingMoved sharding_update_moved(const Run *run)
{
    const Ranks *r = ranks_of(&run->replicas);
    const Zero *z = r ? r->zero : NULL;
    if (!z || !z->state) return (ShardingMoved){0, 0};
    size_t own = z->cut.at[z->cut.n_units], x = run->model->dev->x_bytes, items = z->store ? x * own : 0;
    if (z->set.host) return (ShardingMoved){sizeof(float) * own, z->store ? 0 : x * own};
    for (int u = 0; u < z->cut.n_units; u++) items += optim_item_bytes(&run->optim, u);
    return (ShardingMoved){items, run->cfg.optim.agc > 0 ? 2 * items : items}; // clipping reads them too
}

static void row(FILE *out, const char *name, const ShardingFormula *f, size_t held, size_t first)
{
    fprintf(out, "  %-15s %-24s %18zu %18zu %18lld %18zu\n", name, f->text, f->all, held, (long long)(held - f->all),
            first);
}

static void print_memory(const ShardingCase *is, const AccountRank *rank, FILE *out)
{
    ShardingFormula whole = {.all = 0};
    size_t all = 0, first = 0;
    double each = 0, shared = 0; // bytes a parameter: on every rank, and once in all
    fprintf(out, "  %-15s %-24s %18s %18s %18s %18s\n", "bytes held", "formula, a rank", "all ranks", "counted",
            "difference", "rank 0");
    for (int tag = 0; tag < MEM_TAGS; tag++) {
        ShardingFormula f = sharding_memory(is, (MemTag)tag);
        size_t held = 0;
        for (size_t r = 0; r < is->ranks; r++) held += rank[r].bytes[tag];
        if (!held) continue;
        if (!f.all) {
            fprintf(out, "  %-15s %-24s %18s %18zu %18s %18zu\n", mem_tag_name((MemTag)tag), "-", "-", held, "-",
                    rank[0].bytes[tag]);
            continue;
        }
        row(out, mem_tag_name((MemTag)tag), &f, held, rank[0].bytes[tag]);
        double bytes = (double)f.all / (double)is->params;
        bool cut = strchr(f.text, '/');
        *(cut ? &shared : &each) += bytes / (double)(cut ? copies(is) : is->ranks);
        whole.all += f.all, all += held, first += rank[0].bytes[tag];
    }
    char N = copies(is) > 1 ? 'S' : 'N';
    if (shared > 0 && each > 0) snprintf(whole.text, sizeof whole.text, "%.4g P + %.4g P / %c", each, shared, N);
    else if (shared > 0) snprintf(whole.text, sizeof whole.text, "%.4g P / %c", shared, N);
    else snprintf(whole.text, sizeof whole.text, "%.4g P", each);
    row(out, "model state", &whole, all, first);
}

static size_t sent_by_all(const AccountRank *rank, size_t ranks, int group, int kind)
{
    size_t sent = 0;
    for (size_t r = 0; r < ranks; r++) sent += rank[r].count[group][kind].sent;
    return sent;
}

static void print_copies(const ShardingCase *is, const AccountRank *rank, FILE *out)
{
    ShardingCase experts = sharding_experts(is);
    ShardingFormula f = sharding_traffic(is, COMM_ALL_REDUCE);
    if (is->experts) f.all += is->ep * sharding_traffic(&experts, COMM_ALL_REDUCE).all;
    row(out, "copies", &f, sent_by_all(rank, is->ranks, ACCOUNT_COPIES, COMM_ALL_REDUCE),
        rank[0].count[ACCOUNT_COPIES][COMM_ALL_REDUCE].sent);
}

static void print_traffic(const ShardingCase *is, const AccountRank *rank, FILE *out)
{
    fprintf(out, "  %-15s %-24s %18s %18s %18s %18s\n", "bytes sent", "formula, a rank", "all ranks", "counted",
            "difference", "rank 0");
    for (int k = 0; k < COMM_KINDS; k++) {
        ShardingFormula f = sharding_traffic(is, (CommKind)k);
        size_t sent = sent_by_all(rank, is->ranks, ACCOUNT_DP, k);
        if (copies(is) > 1 && k == COMM_ALL_REDUCE) print_copies(is, rank, out);
        else if (sent || f.all) row(out, comm_kind_name((CommKind)k), &f, sent, rank[0].count[ACCOUNT_DP][k].sent);
    }
    ShardingCase experts = sharding_experts(is);
    for (int k = 0; is->experts && k < COMM_KINDS; k++) {
        ShardingFormula f = sharding_traffic(&experts, (CommKind)k);
        size_t sent = sent_by_all(rank, is->ranks, ACCOUNT_EXPERTS, k);
        f.all *= is->ep;
        if (k == 0) fprintf(out, "  experts\n");
        if (copies(is) > 1 && k == COMM_ALL_REDUCE) continue; // in the row of copies
        if (sent || f.all) row(out, comm_kind_name((CommKind)k), &f, sent, rank[0].count[ACCOUNT_EXPERTS][k].sent);
    }
    size_t numbers = 0;
    for (int k = 0; k < COMM_KINDS; k++) numbers += rank[0].count[ACCOUNT_CONTROL][k].sent;
    fprintf(out, "  %-15s %-24s %18s %18s %18s %18zu\n", "control", "- loss, counts, norm", "-", "-", "-", numbers);
}

size_t sharding_gathered(const ShardingCase *is, size_t n)
{
    size_t again, kept, times = gathers(is, &again, &kept);
    return times * (n - kept) + kept + again;
}

// In a store (memory.offload) state, in stage 3 the weights too, leave the device's memory, and have no row. An update
// moves there and back what they have a parameter, and the gaps between arrays; where the host makes the update, 4 of
// gradients out and in stages 0 to 2 x of new weights in. In stage 3 every gather reads the weights from the store.
//
// A store's: `update` of all ranks, and in stage 3 what is gathered from it.
static void print_moved(const ShardingCase *is, const AccountRank *rank, FILE *out)
{
    ShardingCase experts = sharding_experts(is);
    size_t moved[2] = {0, 0}, wanted[2] = {0, 0};
    for (size_t r = 0; r < is->ranks; r++)
        for (int in = 0; in < 2; in++) moved[in] += rank[r].moved[in], wanted[in] += rank[r].update[in];
    if (is->stage == 3) {
        size_t n = sharding_gathered(is, is->params - is->experts);
        if (is->experts) n += is->ep * sharding_gathered(&experts, is->experts);
        wanted[1] += copies(is) * is->x_bytes * n;
    }
    for (int in = 0; in < 2; in++) {
        bool gathered = in && is->stage == 3;
        ShardingFormula f = cut_from(is, (in ? is->x_bytes : sizeof(float)) * is->params, 1); // where the host updates
        if (!is->host) snprintf(f.text, sizeof f.text, "what is stored%s", gathered ? ", gathers" : "");
        else if (gathered) snprintf(f.text, sizeof f.text, "gathers");
        f.all = wanted[in];
        row(out, in ? "from a store" : "to a store", &f, moved[in], rank[0].moved[in]);
    }
}

static void print_acts(const ShardingCase *is, const AccountRank *rank, FILE *out)
{
    size_t moved[2] = {0, 0};
    for (size_t r = 0; r < is->ranks; r++)
        for (int in = 0; in < 2; in++) moved[in] += rank[r].acts[in];
    if (moved[0])
        fprintf(out, "  memory.offload_acts: %zu bytes of activations to host memory, %zu back, all ranks\n", moved[0],
                moved[1]);
}

void sharding_print(const ShardingCase *is, const AccountRank *rank, FILE *out)
{
    fprintf(out, "account: stage %d, N = %zu ranks, P = %zu parameters, M = %zu micro-batches of %zu sequences each\n",
            is->stage, is->ranks, is->params, is->micro, is->batch);
    if (copies(is) > 1)
        fprintf(out, "  S = %zu ranks cut what is cut; C = %zu of N have the same shard\n", is->shard, copies(is));
    print_memory(is, rank, out);
    if (is->experts)
        fprintf(out, "  Px = %zu of them are experts that %zu ranks divide; in experts' rows P is Px, and N is %zu\n",
                is->experts, is->ep, is->ranks / is->ep);
    if (is->kept + is->experts_kept)
        fprintf(out, "  Pk = %zu of them are in units that stay gathered for a step (parallel.keep)\n",
                is->kept + is->experts_kept);
    if (is->ranks > 1) print_traffic(is, rank, out);
    if (is->stored) print_moved(is, rank, out);
    print_acts(is, rank, out);
    if (is->deterministic)
        fprintf(out, "  numerics.deterministic: gradients are whole on every rank, beside the parts of their tree\n");
    if (is->stored)
        fprintf(out, "  memory.offload: the device has %s of the optimizer's state%s; the rest is in a store\n",
                is->host ? "nothing" : "two slots", is->stage == 3 ? ", and slots of the weights" : "");
    if (is->stage > 1)
        fprintf(out, "  communication: room for weights and gradients of a few units on their way\n");
}

// ---- run.account: after the first step what every rank holds and has sent, into account.json and beside the formulas

// Bytes that left the device's memory for a store, and that came from it, since the stores were made.
static void moved_so_far(const Run *run, size_t moved[2])
{
    const Zero *z = ranks_of(&run->replicas)->zero;
    Offload *const store[] = {z->state, z->store};
    moved[0] = run->optim.host.down, moved[1] = run->optim.host.up;
    for (int i = 0; i < 2; i++) {
        if (!store[i]) continue;
        offload_flush(store[i]); // what its thread still writes
        OffloadCount c = offload_count(store[i]);
        moved[0] += c.bytes_written, moved[1] += c.bytes_read;
    }
}

// The same of activations (recompute.h).
static void acts_so_far(const Run *run, size_t moved[2])
{
    moved[0] = run->model->pool.bytes_out, moved[1] = run->model->pool.bytes_in;
}

// `before`: what had moved when the step began, and of activations.
static void write_account(Run *run, const size_t before[4])
{
    const Ranks *r = ranks_of(&run->replicas);
    const int size = run->replicas.size;
    char path[700], *text, *line, *rest;
    size_t n_text, counts[size];
    AccountRank mine = account_rank(&run->mem, &r->mesh, r->control);
    ShardingMoved update = sharding_update_moved(run);
    mine.update[0] = update.out, mine.update[1] = update.in;
    moved_so_far(run, mine.moved);
    acts_so_far(run, mine.acts);
    for (int in = 0; in < 2; in++) mine.moved[in] -= before[in], mine.acts[in] -= before[2 + in];
    account_add(&mine, ACCOUNT_CONTROL, r->replicas);
    account_add(&mine, ACCOUNT_CONTROL, r->parts);
    if (r->ep) account_add(&mine, ACCOUNT_CONTROL, r->ep);
    // ranks that share a key/value head are neighbours of a tp group
    if (run->model->parts.neighbours) account_add(&mine, ACCOUNT_TP, run->model->parts.neighbours);
    AccountRank *all = calloc((size_t)size, sizeof *all);
    if (!all) die("account: no memory for %d ranks", size);
    for (int i = 0; i < size; i++) counts[i] = sizeof mine;
    CommRequest request = comm_all_gather(r->control, all, &mine, counts, COMM_BYTE);
    comm_wait(r->control, &request);
    snprintf(path, sizeof path, "%s/account.json", run->dir);
    if (run->replicas.rank == 0) {
        account_write(all, size, path);
        FILE *out = open_memstream(&text, &n_text);
        if (!out) die("account: no memory for the table");
        ShardingCase is = sharding_case(run);
        AccountRank replica[is.ranks];
        int member[size];
        int n = mesh_members(r->shape, 0, MESH_REPLICAS, member);
        for (int i = 0; i < n; i++) replica[i] = all[member[i]];
        sharding_print(&is, replica, out);
        account_print_traffic(all, size, out);
        if (fclose(out) || !text) die("account: no memory for the table");
        for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
            progress_note(run->progress, "%s", line);
        free(text);
    }
    free(all);
}

static void account_before(void *self, Run *run, long step)
{
    if (step == run->first_step) comm_reset_counts(comm_root(run->replicas.world));
    if (step == run->first_step) moved_so_far(run, self), acts_so_far(run, (size_t *)self + 2);
}

static void account_updated(void *self, Run *run, long step)
{
    if (step == run->first_step) write_account(run, self);
}

Observer sharding_account(void)
{
    size_t *before = calloc(4, sizeof *before);
    if (!before) die("account: no memory for four counts");
    return (Observer){.self = before, .before = account_before, .updated = account_updated, .free = free};
}
