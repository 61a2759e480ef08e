// test_zero: every stage of ZeRO on 1 to 4 ranks (threads) against one rank: loss, all gradients, weights and optimizer
// state, bit for bit on a deterministic device, otherwise within the bound for another order of sums. Bytes held and
// bytes sent against the formulas.
// deeper: each switch with each, not every other pair of them
#include "deeper.h"
#include "dev/check/comm_threads.h"
#include "replica_run.h"

static const ModelShape wide = { // matrices of several blocks of 2048, the last one partial
    .layers = 2, .channels = 60, .heads = 4, .kv_heads = 4, .head_size = 15, .ffn = 100, .vocab = 101, .context = 10,
    .norm = NORM_LAYERNORM, .norm_eps = 1e-5f, .bias = true};
static const ModelShape uneven = { // blocks of two sizes, the first a small one
    .layers = 5, .channels = 10, .heads = 4, .kv_heads = 2, .head_size = 6, .ffn = 30, .vocab = 31, .context = 10,
    .norm = NORM_RMSNORM, .norm_eps = 1e-5f, .rotary.theta = 1e4f, .swiglu = true, .rope = true,
    .experts = {.n = 3, .k = 2, .ffn = 50, .dense = 1, .every = 2, .renorm = true, .scale = 1}};
static const ModelShape *const families[] = {&gpt, &llama, &wide}; // tied, and not

// Every stage on 2, 3 and 4 ranks, in one micro-batch and in several: the bits of one rank, where a rank's samples are
// a whole subtree of the sum over all (8, 4), and where not (3, 6).
TEST(test_deterministic_stages_are_one_rank)
{
    const size_t shares[] = {8, 8, 4, 3, 6, 3};
    for (int i = 0; i < 2 * 6; i++) {
        int f = i % 2, ranks = 2 + i / 2 % 3;
        size_t share = shares[i / 2];
        Case c = {.ranks = 1, .shape = families[f], .samples = share * (size_t)ranks, .micro = 1, .deterministic = true,
                  .overlap = true, .reshard = true, .optim = i == 2 ? OPTIM_SGD : OPTIM_ADAMW, .dropout = 0.2f,
                  .clip = 0.5f, .steps = STEPS};
        Outcome one = run(c);
        assert_true(one.norm > 1 && one.loss > 0); // the clip is at work
        c.ranks = ranks;
        for (int k = 0; k < 4 * 2; k++) {
            if (!deeper() && (k + k / 4 + i / 2) % 2) continue;
            c.stage = k % 4, c.micro = share / (k < 4 ? 1 : share % 4 ? 3 : 4);
            Outcome r = run(c);
            if (r.loss != one.loss || r.norm != one.norm || !same_weights(&r, &one) ||
                memcmp(r.grads, one.grads, one.n * sizeof *one.grads))
                fail_msg("family %d, %d ranks, stage %d, micro %zu: other bits: loss %.17g, one rank %.17g; "
                         "norm %.17g, %.17g; weights %g apart, gradients %g", f, c.ranks, c.stage, c.micro, r.loss,
                         one.loss, r.norm, one.norm, apart(r.weights, one.weights, one.n),
                         apart(r.grads, one.grads, one.n));
            release(&r);
        }
        release(&one);
    }
}

// Hybrid sharding, rows of 2 or 4 of 4, 6 and 8 ranks: the bits of one rank, also where the shares are dealt (3), and
// with state in a store.
TEST(test_copies_are_one_rank)
{
    static const struct {
        int ranks, shard;
        size_t share, micro;
    } row[] = {{4, 2, 2, 1}, {6, 2, 4, 2}, {8, 4, 2, 2}, {8, 2, 1, 1}, {4, 2, 3, 3}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        Case c = {.ranks = 1, .shape = families[i % 2], .samples = row[i].share * (size_t)row[i].ranks, .micro = 1,
                  .deterministic = true, .overlap = true, .reshard = true,
                  .optim = i == 1 ? OPTIM_ADAMW8BIT : OPTIM_ADAMW, .dropout = 0.2f, .clip = 0.5f, .steps = STEPS};
        Outcome one = run(c);
        assert_true(one.norm > 1);
        c.ranks = row[i].ranks, c.shard = row[i].shard, c.micro = row[i].micro;
        for (c.stage = 1; c.stage <= 3; c.stage++) {
            c.offload = i == 2 ? OFFLOAD_CPU : OFFLOAD_NONE, c.deeper = (int)i % 3 - 1, c.keep = 300 * i;
            Outcome r = run(c);
            if (r.loss != one.loss || r.norm != one.norm || !same_weights(&r, &one))
                fail_msg("row %zu, stage %d: other bits: norm %.17g, %.17g; weights %g apart", i, c.stage, r.norm,
                         one.norm, apart(r.weights, one.weights, one.n));
            release(&r);
        }
        release(&one);
    }
}

// Fast mode: within the bound of one rank, the same bits with and without overlap; the sum over the copies is sent once
// a step, in fp32, of what a rank owns, whatever the micro-batches; and memory is that of the row.
TEST(test_copies_add_once)
{
    for (int i = 0; i < 2 * 3 * 2; i++) {
        int f = i % 2;
        Case c = {.ranks = 1, .shape = families[f], .samples = SAMPLES, .optim = OPTIM_SGD, .dropout = 0.2f,
                  .clip = 1e9f, .reshard = true, .steps = 1};
        double bound = fast_bound(c);
        Outcome one = run(c);
        c.ranks = i / 6 ? 8 : 4, c.shard = 2, c.stage = 1 + i / 2 % 3, c.micro = 3;
        size_t P = one.n, copies = (size_t)c.ranks / 2, held = 0, sent = 0, row = 0;
        Outcome naive = run(c);
        c.overlap = true;
        Outcome r = run(c);
        assert_true(same_weights(&r, &naive));
        double diff = apart(r.grads, one.grads, P);
        if (!(diff <= bound)) fail_msg("case %d: gradients %g apart, bound %g, norm %g", i, diff, bound, one.norm);
        assert_true(fabs(r.norm - one.norm) <= bound + fast_terms(&c) * FLT_EPSILON * one.norm);
        for (int k = 0; k < c.ranks; k++) {
            held += r.tag[k][MEM_OPTIM] + r.tag[k][MEM_GRADS];
            sent += r.copies[k][COMM_ALL_REDUCE].sent;
            row += r.count[k][COMM_REDUCE_SCATTER].sent;
        }
        assert_int_equal(held, 4 * P * (c.stage > 1 ? copies : (size_t)c.ranks)); // SGD has no state
        assert_int_equal(sent, 2 * (copies - 1) * P * 4);
        assert_int_equal(row, copies * P * 4 * (c.stage > 1 ? SAMPLES / (size_t)c.ranks / 3 : 1));
        release(&r), release(&naive), release(&one);
    }
}

// Every optimizer, whatever it allows the cut to be.
TEST(test_every_optimizer)
{
    for (int o = 0; o < OPTIM_NAMES; o++)
        for (int agc = 0; agc < 2; agc++) {
            Case c = {.ranks = 1, .shape = families[1 + (o + 1) % 2], .samples = 8, .micro = 2, .deterministic = true,
                      .overlap = true, .reshard = true, .optim = (OptimName)o, .clip = 0.5f,
                      .agc = agc ? 0.02f : 0, .steps = STEPS};
            if (agc && o % 3) continue;
            Outcome one = run(c);
            c.ranks = 4;
            for (c.stage = 1; c.stage <= 3; c.stage += 2) {
                Outcome r = run(c);
                if (!same_weights(&r, &one))
                    fail_msg("%s, stage %d: weights %g apart", optim_kind(c.optim)->name, c.stage,
                             apart(r.weights, one.weights, one.n));
                release(&r);
            }
            release(&one);
        }
}

// Fast mode: 1 to 4 ranks, all stages, with and without overlap, resharding and accumulation. SGD: gradients.
TEST(test_fast_stages_are_close)
{
    for (int f = 0; f < 2; f++) {
        Case c = {.ranks = 1, .shape = families[f], .samples = SAMPLES, .optim = OPTIM_SGD, .dropout = 0.2f,
                  .steps = 1};
        double bound = fast_bound(c), size = 0;
        Outcome one = run(c);
        for (size_t i = 0; i < one.n; i++) size += (double)one.weights[i] * one.weights[i];
        size = sqrt(size); // of all weights
        assert_true(bound < 0.1 * one.norm);
        for (c.ranks = 2; c.ranks <= 4; c.ranks++)
            for (int i = 0; i < 3 * 2 * 2 * 2; i++) {
                if (!deeper() && (i / 3 + i / 6 + i / 12 + c.ranks) % 2) continue;
                c.stage = 1 + i % 3, c.overlap = i / 3 % 2, c.reshard = i / 6 % 2, c.micro = i / 12 % 2 * 2;
                Outcome r = run(c);
                double diff = apart(r.grads, one.grads, one.n);
                if (!(diff <= bound))
                    fail_msg("%d ranks, stage %d, overlap %d, reshard %d, micro %zu: gradients %g apart, bound %g, "
                             "norm %g", c.ranks, c.stage, c.overlap, c.reshard, c.micro, diff, bound, one.norm);
                assert_true(fabs(r.loss - one.loss) <= fast_terms(&c) * FLT_EPSILON * one.loss);
                assert_true(fabs(r.norm - one.norm) <= bound + fast_terms(&c) * FLT_EPSILON * one.norm);
                // the step of SGD adds lr times what the gradients differ by, and rounds a few times
                double moved = 0.01 * bound + 4 * FLT_EPSILON * (size + 0.01 * one.norm);
                assert_true(apart(r.weights, one.weights, one.n) <= moved);
                release(&r);
            }
        release(&one);
    }
}

// What does not change an order of sums changes no bit, on the same ranks: overlap, resharding, recomputation, and in
// stages 2 and 3 the same sums of micro-batches.
TEST(test_switches_keep_bits)
{
    for (int f = 0; f < 2; f++) {
        Case c = {.ranks = 3, .shape = families[f], .samples = 12, .micro = 2, .stage = 2, .optim = OPTIM_ADAMW,
                  .clip = 0.5f, .steps = STEPS};
        Outcome first = run(c);
        for (int i = 0; i < 8; i++) {
            c.stage = 2 + (i > 1), c.overlap = i % 2, c.reshard = i / 2 % 2;
            c.recompute = (RecomputePolicy){.mode = i < 4 ? RECOMPUTE_NONE : RECOMPUTE_EVERY, .every = (size_t)i - 4};
            Outcome r = run(c);
            assert_true(same_weights(&r, &first));
            release(&r);
        }
        release(&first);
    }
}

// Elements of the slots of a model's units, where blocks take turns in some and units smaller than `keep` have their
// own. *kept: elements of these units.
static size_t slots_of(const ModelShape *shape, int turns, size_t keep, size_t *kept)
{
    Params params;
    Unit *unit;
    size_t most[8] = {0}, all = 0;
    model_describe(shape, &params, &unit);
    *kept = 0;
    for (int u = 0; u < params.n_units; u++) {
        size_t begin, end, *slot = &most[u % turns];
        params_unit_range(&params, u, &begin, &end);
        if (end - begin < keep) *kept += end - begin;
        if (u == 0 || u == params.n_units - 1 || end - begin < keep) all += end - begin;
        else if (end - begin > *slot) *slot = end - begin;
    }
    for (int i = 0; i < turns; i++) all += most[i];
    free(unit);
    params_free(&params);
    return all;
}

// However many units are gathered ahead and however many stay: the same bits, the slots that the chapter says, and of
// units that stay one gather a step.
TEST(test_prefetch_and_keep)
{
    static const struct {
        int deeper;
        size_t keep;
        bool overlap;
        size_t segment;
        OffloadMode offload;
    } row[] = {{-1, 0, true, 0, OFFLOAD_NONE}, {-1, 4700, false, 0, OFFLOAD_NONE}, {1, 100, true, 0, OFFLOAD_NONE},
               {2, 4700, true, 0, OFFLOAD_CPU}, {5, 315, true, 0, OFFLOAD_DISK}, {0, 500, false, 0, OFFLOAD_NONE},
               {-1, 500, true, 3, OFFLOAD_CPU}, {1, 0, true, 3, OFFLOAD_NONE}, {2, 10000, true, 2, OFFLOAD_CPU}};
    for (size_t i = 0; i < 2 * sizeof row / sizeof *row; i++) {
        size_t k = i / 2, kept, unused;
        Case c = {.ranks = 3, .shape = i % 2 ? &uneven : &gpt, .samples = 12, .micro = 2, .stage = 3, .reshard = true,
                  .optim = OPTIM_ADAMW, .clip = 0.5f, .steps = STEPS};
        Outcome plain = run(c);
        c.deeper = row[k].deeper, c.keep = row[k].keep, c.overlap = row[k].overlap, c.offload = row[k].offload;
        c.recompute = (RecomputePolicy){.mode = row[k].segment ? RECOMPUTE_EVERY : RECOMPUTE_NONE,
                                        .every = row[k].segment};
        Outcome r = run(c);
        if (!same_weights(&r, &plain))
            fail_msg("row %zu: other bits: weights %g apart", k, apart(r.weights, plain.weights, r.n));
        size_t room = slots_of(c.shape, c.deeper + 2, c.keep, &kept) + slots_of(c.shape, 2, 0, &unused), gathered = 0;
        for (int rank = 0; rank < c.ranks; rank++) {
            assert_int_equal(r.tag[rank][MEM_COMM], 4 * room);
            gathered += r.count[rank][COMM_ALL_GATHER].sent;
        }
        size_t once = 4 * STEPS * (size_t)(c.ranks - 1), micros = 2;
        if (!row[k].segment) assert_int_equal(gathered, once * (2 * micros * (r.n - kept) + kept));
        release(&r), release(&plain);
    }
}

// 16-bit storage: the master weights are a shard, gathered are the 16-bit ones. With a lookup in fp32 (of a tied and an
// untied model with learned positions) the embedding of the master weights too.
TEST(test_narrow_weights)
{
    const ModelShape *const shape[] = {&gpt, &llama, &gpt, &wide};
    double stored = 0;
    for (int i = 0; i < 4; i++) {
        Case c = {.ranks = 1, .shape = shape[i], .samples = 16, .micro = 2, .deterministic = true, .overlap = true,
                  .reshard = true, .x_type = i % 2 ? X_FP16 : X_BF16, .optim = OPTIM_ADAMW, .clip = 0.5f,
                  .steps = STEPS, .embed_fp32 = i >= 2};
        Outcome one = run(c);
        if (i == 0) stored = one.loss;
        assert_true(i != 2 || one.loss != stored);
        for (c.ranks = 2; c.ranks <= 4; c.ranks += 2)
            for (c.stage = 0; c.stage <= 3; c.stage++) {
                Outcome r = run(c);
                assert_true(r.loss == one.loss && same_weights(&r, &one));
                release(&r);
            }
        release(&one);
    }
}

// Gradients that travel in 16 bits (test_ddp has stage 0, and why the bound holds): half the bytes.
TEST(test_narrow_reduction)
{
    for (int i = 0; i < 2 * 3; i++)
        check_narrow_reduction((Case){.ranks = 2, .shape = families[i % 2], .samples = SAMPLES, .micro = 4,
                                      .stage = 1 + i / 2, .overlap = true, .reshard = true, .x_type = X_BF16,
                                      .optim = OPTIM_SGD, .steps = 1});
}

// State in a store, and with it the master weights of 16-bit storage: no bit changes, and the door holds two units.
TEST(test_offload_keeps_bits)
{
    for (int i = 0; i < 6; i++) {
        Case c = {.ranks = 1, .shape = families[i % 2], .samples = 8, .micro = 2, .deterministic = true,
                  .reshard = true, .overlap = true, .x_type = i < 4 ? X_FP32 : X_BF16,
                  .optim = i == 2 ? OPTIM_NORMUON : i == 3 ? OPTIM_ADAMW8BIT : OPTIM_ADAMW, .clip = 0.5f,
                  .agc = i == 1 ? 0.02f : 0, .steps = STEPS};
        Outcome one = run(c);
        for (int j = 0; j < 6; j++) {
            c.ranks = j < 2 ? 1 : 2, c.stage = j < 2 ? 0 : j - 2, c.offload = j % 2 ? OFFLOAD_DISK : OFFLOAD_CPU;
            Outcome r = run(c);
            if (!same_weights(&r, &one))
                fail_msg("case %d, %d ranks, stage %d, offload %d: weights %g apart", i, c.ranks, c.stage, c.offload,
                         apart(r.weights, one.weights, one.n));
            assert_true(c.optim == OPTIM_NORMUON || r.tag[0][MEM_OPTIM] < one.tag[0][MEM_OPTIM] + 3 * OFFLOAD_BLOCK);
            release(&r);
        }
        release(&one);
    }
}

// The host updates what is in its memory: the bits of the device's update, in either mode. Device memory has no state.
// Gradients come down once a step, in 4 bytes, and new weights go up, but in stage 3, where units read the store.
TEST(test_host_updates_keep_bits)
{
    static const OptimName names[] = {OPTIM_ADAMW, OPTIM_ADAM, OPTIM_LION, OPTIM_MOMENTUM, OPTIM_SGD};
    static const XType types[] = {X_FP32, X_BF16, X_FP16};
    for (int i = 0; i < 2 * 5; i += deeper() ? 1 : 3) {
        Case c = {.ranks = 1, .shape = families[i % 2], .samples = 8, .micro = 1, .deterministic = i < 5,
                  .reshard = true, .overlap = true, .x_type = types[i % 3], .optim = names[i % 5], .clip = 0.5f,
                  .steps = STEPS};
        for (int j = 0; j < 7; j++) { // one rank; two in each stage; two copies of what two have, in stages 1 and 3
            c.ranks = !j ? 1 : j < 5 ? 2 : 4, c.shard = j < 5 ? 0 : 2;
            c.stage = !j ? 0 : j < 5 ? j - 1 : j == 5 ? 1 : 3;
            c.offload = OFFLOAD_NONE, c.host = c.halves = false;
            Outcome device = run(c);
            c.offload = OFFLOAD_CPU, c.host = true, c.halves = j % 2;
            Outcome host = run(c);
            if (host.norm != device.norm || !same_weights(&host, &device))
                fail_msg("case %d, %d ranks, stage %d: weights %g apart", i, c.ranks, c.stage,
                         apart(host.weights, device.weights, device.n));
            size_t down = 0, up = 0, all = STEPS * device.n * (size_t)(j < 5 && c.stage ? 1 : j < 5 ? c.ranks : 2);
            for (int r = 0; r < c.ranks; r++) {
                down += host.down[r], up += host.up[r];
                assert_int_equal(host.tag[r][MEM_OPTIM], 0);
            }
            assert_int_equal(down, 4 * all);
            assert_int_equal(up, c.stage == 3 ? 0 : (c.x_type == X_FP32 ? 4 : 2) * all);
            release(&host), release(&device);
        }
    }
}

typedef struct {
    Case c;
    uint64_t reads[2];
} Reads;

static void count_reads(Comm *world, void *arg)
{
    Reads *all = arg;
    Replica r;
    replica_open(&r, world, &all->c);
    for (size_t i = 0; i < 2; i++) one_step(r.model, r.zero, r.deal, r.control, &all->c, all->c.samples / 4, i);
    zero_end(r.zero);
    all->reads[world->rank] = offload_count(r.zero->store).reads;
    replica_close(&r);
}

// Reading ahead changes when weights are read from their store, not how often.
TEST(test_overlap_reads_as_often)
{
    for (int i = 0; i < 4; i++) {
        Reads r[2];
        for (int k = 0; k < 2; k++) {
            r[k].c = (Case){.ranks = 2, .shape = families[i % 2], .samples = 8, .stage = 3, .reshard = i / 2,
                            .overlap = k, .deeper = i - 1, .offload = OFFLOAD_CPU, .optim = OPTIM_SGD, .steps = 1};
            comm_threads_run(2, count_reads, &r[k]);
        }
        for (int rank = 0; rank < 2; rank++) assert_int_equal(r[0].reads[rank], r[1].reads[rank]);
    }
}

// Bytes by tag: the shards of all ranks add up to one rank's, and no rank has more than its cut says.
TEST(test_memory)
{
    for (int f = 0; f < 2; f++)
        for (int ranks = 2; ranks <= 4; ranks++)
            for (int stage = 0; stage <= 3; stage++) {
                Case c = {.ranks = ranks, .shape = families[f], .samples = SAMPLES, .stage = stage, .overlap = true,
                          .reshard = true, .optim = OPTIM_ADAMW, .steps = 1};
                Outcome r = run(c);
                size_t P = r.n, shards = 0;
                for (int k = 0; k < ranks; k++) {
                    size_t own = stage ? r.shard[k] : P;
                    assert_int_equal(r.tag[k][MEM_PARAMS], 4 * (stage < 3 ? P : own));
                    assert_int_equal(r.tag[k][MEM_GRADS], 4 * (stage < 2 ? P : own));
                    assert_int_equal(r.tag[k][MEM_OPTIM], 8 * (stage < 1 ? P : own));
                    // uneven by at most one element a unit: 1/N, and the padding that is not there
                    assert_true(!stage || (own * (size_t)ranks <= P + (size_t)ranks * (c.shape->layers + 2) &&
                                           own * (size_t)ranks + (size_t)ranks * (c.shape->layers + 2) >= P));
                    shards += r.shard[k];
                }
                assert_true(!stage || shards == P);
                release(&r);
            }
}

// Elements sent, over all ranks: P (N - 1) for a reduce_scatter or an all_gather of everything.
TEST(test_traffic)
{
    for (int i = 0; i < 2 * 3 * 3 * 2 * 2; i++) {
        int f = i % 2, ranks = 2 + i / 2 % 3, stage = 1 + i / 6 % 3;
        bool keep = i / 18 % 2;
        size_t micro = i / 36 % 2 ? 3 : 0, micros = micro ? SAMPLES / (size_t)ranks / micro : 1;
        if (micro && SAMPLES / (size_t)ranks % micro) continue;
        if (!deeper() && (i + i / 2 + i / 18 + i / 36) % 2) continue;
        Case c = {.ranks = ranks, .shape = families[f], .samples = SAMPLES, .micro = micro, .stage = stage,
                  .overlap = true, .reshard = !keep, .optim = OPTIM_ADAMW, .steps = STEPS};
        Outcome r = run(c);
        size_t reduced = 0, gathered = 0, each = r.n * (size_t)(ranks - 1) * 4 * STEPS;
        for (int k = 0; k < ranks; k++) {
            reduced += r.count[k][COMM_REDUCE_SCATTER].sent;
            gathered += r.count[k][COMM_ALL_GATHER].sent;
            assert_int_equal(r.count[k][COMM_ALL_REDUCE].calls, 0);
        }
        assert_int_equal(reduced, each * (stage == 1 ? 1 : micros));
        assert_int_equal(gathered, stage < 3 || keep ? each : 2 * each * micros);
        release(&r);
    }
}

// What overlaps is started early: while a unit runs the next one's weights are on their way, and behind its backward
// its gradient is. The naive twin has neither. (What that saves is for the benchmark to say.)
typedef struct {
    Zero *zero;
    UnitHooks inner;
    int early_weights, early_grads, late_weights;
} Spy;

static int in_slot(const ZeroSlot *slots, int n, int unit)
{
    for (int i = 0; i < n; i++)
        if (slots[i].unit == unit) return 1;
    return 0;
}

static void spy_before(void *self, int unit, UnitPass pass)
{
    Spy *s = self;
    int next = unit + (pass == PASS_FORWARD ? 1 : -1);
    const Zero *z = s->zero;
    int way = next - unit;
    s->inner.before(s->inner.self, unit, pass);
    for (int k = 0; k < z->set.prefetch; k++, next += way)
        if (next >= 0 && next < z->model->n_units) s->early_weights += in_slot(z->weights, z->n_weights, next);
    if (pass == PASS_FORWARD && unit > 1) s->late_weights += in_slot(z->weights, z->n_weights, unit - 1);
}

static void spy_after(void *self, int unit, UnitPass pass)
{
    Spy *s = self;
    s->inner.after(s->inner.self, unit, pass);
    if (pass == PASS_BACKWARD) s->early_grads += in_slot(s->zero->grads, s->zero->n_slots, unit);
}

static void play_spied(Comm *world, void *arg)
{
    const Case *c = arg;
    Replica r;
    replica_open(&r, world, c);
    Spy spy = {.zero = r.zero, .inner = r.model->hooks};
    r.model->hooks = (UnitHooks){.self = &spy, .before = spy_before, .after = spy_after};
    one_step(r.model, r.zero, r.deal, r.control, c, c->samples / 2, 0);
    zero_end(r.zero);
    int n = r.model->n_units, early = 0;
    for (int k = 1; k <= r.zero->set.prefetch; k++) early += 2 * (n - k); // so many units have one k ahead
    // back, a tied head has had the embedding gathered anew
    assert_int_equal(spy.early_weights, c->overlap ? early : c->shape->tie * r.zero->set.prefetch);
    assert_int_equal(spy.early_grads, c->overlap ? n : 0);
    assert_int_equal(spy.late_weights, 0); // gone behind the unit
    replica_close(&r);
}

TEST(test_overlap_starts_early)
{
    for (int i = 0; i < 2 * 2 * 3; i++) {
        Case c = {.ranks = 2, .shape = families[i / 2 % 2], .samples = 4, .stage = 3, .reshard = true, .overlap = i % 2,
                  .deeper = i / 4 - 1, .optim = OPTIM_SGD, .steps = 1};
        comm_threads_run(2, play_spied, &c);
    }
}

// May a border between two ranks stand at this element of a unit?
static bool legal_border(const Params *params, OptimCut kind, size_t at)
{
    for (int r = 0; r < params->n_rows; r++) {
        const Param *row = &params->row[r];
        if (at <= row->offset || at >= row->offset + row->n_elems) continue;
        return kind == OPTIM_ELEMENT || (kind == OPTIM_BLOCK && (at - row->offset) % UPDATE_BLOCK == 0);
    }
    return true;
}

// All cuts of all ranks, played here: every element once, in order, each border the legal one nearest to equal shares
// (of two, the lower one).
static void cuts_of(const Params *params, OptimName name, bool agc, int size, int u)
{
    OptimCut kind = agc ? OPTIM_TENSOR : optim_kind(name)->cut;
    size_t begin, next, end, even, counts[7];
    params_unit_range(params, u, &begin, &end);
    comm_even(counts, end - begin, size);
    next = even = begin;
    for (int rank = 0; rank < size; rank++) {
        ZeroCut cut = zero_cut(params, zero_where(optim_kind(name), agc, 1), 1, rank, size);
        assert_int_equal(cut.begin[u], next);
        assert_int_equal(cut.at[u + 1] - cut.at[u], cut.count[u * size + rank]);
        next += cut.count[u * size + rank];
        zero_cut_free(&cut);
        even += counts[rank];
        size_t nearest = even, far = 0;
        while (!legal_border(params, kind, nearest)) nearest = far % 2 ? even + far / 2 + 1 : even - far / 2 - 1, far++;
        assert_int_equal(next, nearest);
    }
    assert_int_equal(next, end);
}

TEST(test_cuts)
{
    for (int i = 0; i < 3 * OPTIM_NAMES * 2; i++) {
        Params params;
        Unit *unit;
        model_describe(families[i % 3], &params, &unit);
        for (int size = 1; size <= 7; size += 2)
            for (int u = 0; u < params.n_units; u++)
                cuts_of(&params, (OptimName)(i / 3 % OPTIM_NAMES), i / (3 * OPTIM_NAMES), size, u);
        free(unit);
        params_free(&params);
    }
}

TESTS(NULL, NULL)
