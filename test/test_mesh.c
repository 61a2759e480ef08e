// test_mesh: every rank of many meshes, in one process: ranks and coordinates are inverse to each other, groups are
// disjoint, of the right sizes and members, and every gradient is added over the right ranks; the drawing; the
// refusals; and how a model is cut over tensor-parallel ranks and experts.
#include "test/test.h"

#include "dev/check/comm_threads.h"
#include "dev/draw/mesh_print.h"
#include "base/check.h"
#include "parallel/mesh.h"
#include "expect_die.h"
#include "base/rng.h"
#include "parallel/parts.h"
#include "net/experts.h"
#include "parallel/ep.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64 };

static void each_shape(void (*test)(MeshShape s))
{
    for (int dp = 1; dp <= 6; dp++)
        for (int pp = 1; pp <= 3; pp++)
            for (int cp = 1; cp <= 2; cp++)
                for (int tp = 1; tp <= 4; tp++)
                    for (int ep = 1; ep <= dp * cp; ep++) {
                        if (dp * cp % ep || dp * pp * cp * tp > MOST) continue;
                        MeshShape s = mesh_shape(dp * pp * cp * tp, pp, cp, ep, tp);
                        assert_true(s.dp == dp && s.pp == pp && s.cp == cp && s.ep == ep && s.tp == tp);
                        test(s);
                        for (s.shard = 2; s.shard < dp * cp; s.shard++)
                            if (dp * cp % s.shard == 0 && s.shard % ep == 0) test(s);
                    }
}

// The order of the ranks, counted out: tp runs fastest, then cp, pp, dp.
static void counts_through(MeshShape s)
{
    int rank = 0;
    for (int dp = 0; dp < s.dp; dp++)
        for (int pp = 0; pp < s.pp; pp++)
            for (int cp = 0; cp < s.cp; cp++)
                for (int tp = 0; tp < s.tp; tp++, rank++) {
                    MeshPlace p = mesh_place(s, rank);
                    assert_true(p.dp == dp && p.pp == pp && p.cp == cp && p.tp == tp);
                    assert_int_equal(mesh_rank(s, p), rank);
                }
    assert_int_equal(rank, mesh_size(s));
}

TEST(test_order)
{
    each_shape(counts_through);
}

// Each group, by its definition and not by the table: the coordinates in which two members may differ.
static bool same_group(MeshShape s, MeshGroup group, MeshPlace a, MeshPlace b)
{
    bool dp = a.dp == b.dp, pp = a.pp == b.pp, cp = a.cp == b.cp, tp = a.tp == b.tp;
    int qa = a.dp * s.cp + a.cp, qb = b.dp * s.cp + b.cp;
    bool row = s.shard && qa / s.shard == qb / s.shard, column = s.shard && qa % s.shard == qb % s.shard;
    bool end_a = a.pp == 0 || a.pp == s.pp - 1, end_b = b.pp == 0 || b.pp == s.pp - 1;
    switch (group) {
    case MESH_TP: return dp && pp && cp;
    case MESH_CP: return dp && pp && tp;
    case MESH_PP: return dp && cp && tp;
    case MESH_DP: return pp && cp && tp;
    case MESH_EP: return pp && tp && qa / s.ep == qb / s.ep;
    case MESH_REPLICAS: return pp && tp;
    case MESH_EXPERT_REPLICAS: return pp && tp && qa % s.ep == qb % s.ep;
    case MESH_SHARDS: return pp && tp && row;
    case MESH_EXPERT_SHARDS: return pp && tp && row && qa % s.ep == qb % s.ep;
    case MESH_COPIES: return pp && tp && column;
    case MESH_MODEL: return dp && cp;
    case MESH_ENDS: return dp && cp && tp && end_a && end_b;
    default: return false;
    }
}

static void groups_are_right(MeshShape s)
{
    const int size[MESH_GROUPS] = {
        [MESH_TP] = s.tp, [MESH_CP] = s.cp, [MESH_PP] = s.pp, [MESH_DP] = s.dp, [MESH_EP] = s.ep,
        [MESH_REPLICAS] = s.dp * s.cp, [MESH_EXPERT_REPLICAS] = s.dp * s.cp / s.ep, [MESH_MODEL] = s.pp * s.tp,
        [MESH_ENDS] = s.pp == 1 ? 1 : 2,
        [MESH_SHARDS] = s.shard, [MESH_EXPERT_SHARDS] = s.shard / s.ep,
        [MESH_COPIES] = s.shard ? s.dp * s.cp / s.shard : 0,
    };
    for (int g = 0; g < MESH_GROUPS; g++)
        for (int r = 0; r < mesh_size(s); r++) {
            MeshPlace a = mesh_place(s, r);
            bool none = g == MESH_ENDS && a.pp != 0 && a.pp != s.pp - 1;
            int members[MOST], n = mesh_members(s, r, (MeshGroup)g, members), k = 0;
            assert_int_equal(n, none ? 0 : size[g]);
            assert_int_equal(mesh_members(s, r, (MeshGroup)g, NULL), n);
            for (int q = 0; q < mesh_size(s); q++) { // ascending, complete, nobody else
                if (!same_group(s, (MeshGroup)g, a, mesh_place(s, q))) continue;
                assert_true(k < n);
                assert_int_equal(members[k++], q);
            }
            assert_int_equal(k, n);
        }
}

TEST(test_groups)
{
    each_shape(groups_are_right);
}

// Every expert weight and every ordinary weight of a (pp, tp) place is covered once: the ranks of an expert group hold
// EP different parts, and their replica groups together are all ranks of MESH_REPLICAS.
static void experts_cover(MeshShape s)
{
    for (int r = 0; r < mesh_size(s); r++) {
        int part[MOST], replicas[MOST], seen[MOST] = {0};
        int n = mesh_members(s, r, MESH_EP, part);
        for (int i = 0; i < n; i++) {
            assert_int_equal(mesh_replica(s, mesh_place(s, part[i])) % s.ep, i);
            int k = mesh_members(s, part[i], MESH_EXPERT_REPLICAS, replicas);
            for (int j = 0; j < k; j++) seen[replicas[j]]++;
        }
        int all[MOST], total = mesh_members(s, r, MESH_REPLICAS, all);
        assert_int_equal(total, s.dp * s.cp);
        for (int i = 0; i < total; i++) assert_int_equal(seen[all[i]], 1);
    }
}

TEST(test_experts)
{
    each_shape(experts_cover);
}

// ---- the groups as communicators, on threads

static const MeshShape SHAPES[] = {{2, 2, 1, 1, 2, 0}, {2, 1, 2, 2, 2, 0}, {2, 1, 2, 4, 1, 0}, {1, 2, 4, 2, 1, 0},
                                   {4, 1, 1, 2, 1, 0}, {1, 3, 2, 1, 1, 0}, {1, 1, 1, 1, 1, 0}, {4, 1, 2, 2, 1, 4}};

static void split(Comm *world, void *arg)
{
    static const char *const name[MESH_GROUPS] = {"tp", "cp", "pp", "dp", "ep", "replicas", "expert_replicas", "model",
                                                  "ends", "shards", "expert_shards", "copies"};
    Mesh mesh = mesh_create(world, *(const MeshShape *)arg);
    for (int g = 0; g < MESH_GROUPS; g++) {
        int members[MOST], n = mesh_members(mesh.shape, world->rank, (MeshGroup)g, members);
        Comm *group = mesh.group[g];
        check(!group == !n);
        if (!group) continue;
        check(group->size == n && members[group->rank] == world->rank);
        check(!strcmp(group->name, name[g]));
        int sum = world->rank, want = 0;
        CommRequest q = comm_all_reduce(group, &sum, &sum, 1, COMM_INT32, COMM_SUM);
        comm_wait(group, &q);
        for (int i = 0; i < n; i++) want += members[i];
        check(sum == want);
    }
}

TEST(test_create)
{
    for (size_t i = 0; i < sizeof SHAPES / sizeof *SHAPES; i++) {
        MeshShape s = SHAPES[i];
        comm_threads_run(mesh_size(s), split, &s);
    }
}

// ---- drawing and refusing

// Rows of a replica line up, whatever the sizes.
static void lines_up(MeshShape s)
{
    char *drawn = NULL;
    size_t size = 0, width = 0;
    FILE *f = open_memstream(&drawn, &size);
    mesh_print(s, f);
    fclose(f);
    for (char *line = strtok(drawn, "\n"); line; line = strtok(NULL, "\n")) {
        if (line[strlen(line) - 1] != '|') continue;
        if (!width) width = strlen(line);
        assert_int_equal(strlen(line), width);
    }
    free(drawn);
}

TEST(test_print)
{
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    mesh_print(mesh_shape(8, 2, 1, 2, 2), out);
    fclose(out);
    const char *want = "8 ranks = dp 2 x pp 2 x cp 1 x tp 2, ep 2 within dp x cp\n"
                       "rank = ((dp*2 + pp)*1 + cp)*2 + tp\n"
                       "\n"
                       "dp 0   experts: part 0 of 2\n"
                       "       | cp 0    |\n"
                       "pp 0   |   0   1 |\n"
                       "pp 1   |   2   3 |\n"
                       "\n"
                       "dp 1   experts: part 1 of 2\n"
                       "       | cp 0    |\n"
                       "pp 0   |   4   5 |\n"
                       "pp 1   |   6   7 |\n"
                       "\n"
                       "tp               {0 1} {2 3} {4 5} {6 7}  (4 of 2)\n"
                       "cp               {0} {1} {2} {3} {4} {5} {6} {7}  (8 of 1)\n"
                       "pp               {0 2} {1 3} {4 6} {5 7}  (4 of 2)\n"
                       "dp               {0 4} {1 5} {2 6} {3 7}  (4 of 2)\n"
                       "ep               {0 4} {1 5} {2 6} {3 7}  (4 of 2)\n"
                       "replicas         {0 4} {1 5} {2 6} {3 7}  (4 of 2)\n"
                       "expert_replicas  {0} {1} {2} {3} {4} {5} {6} {7}  (8 of 1)\n"
                       "model            {0 1 2 3} {4 5 6 7}  (2 of 4)\n"
                       "ends             {0 2} {1 3} {4 6} {5 7}  (4 of 2)\n";
    assert_string_equal(text, want);
    free(text);
    out = open_memstream(&text, &n);
    mesh_print(mesh_shape(8, 1, 2, 4, 1), out); // groups of two whole sequences
    fclose(out);
    assert_non_null(strstr(text, "dp 3   experts: parts 2 3 of 4"));
    assert_non_null(strstr(text, "ep               {0 1 2 3} {4 5 6 7}  (2 of 4)"));
    assert_non_null(strstr(text, "expert_replicas  {0 4} {1 5} {2 6} {3 7}  (4 of 2)"));
    free(text);
    out = open_memstream(&text, &n);
    MeshShape hybrid = mesh_shape(8, 2, 1, 1, 1);
    hybrid.shard = 2;
    mesh_print(hybrid, out);
    fclose(out);
    assert_non_null(strstr(text, "shards           {0 2} {1 3} {4 6} {5 7}  (4 of 2)"));
    assert_non_null(strstr(text, "copies           {0 4} {1 5} {2 6} {3 7}  (4 of 2)"));
    free(text);
    each_shape(lines_up);
}

TEST(test_refusals)
{
    const struct { int world, pp, cp, ep, tp; const char *words; } rows[] = {
        {6, 1, 1, 1, 4, "6 ranks are not a multiple of pp x cp x tp = 1 x 1 x 4 = 4 (start a multiple of 4 ranks)"},
        {12, 2, 2, 1, 2, "12 ranks are not a multiple of pp x cp x tp = 2 x 2 x 2 = 8"},
        {16, 1, 2, 3, 2, "parallel.ep = 3 does not divide dp x cp = 4 x 2 = 8"},
        {4, 0, 1, 1, 1, "parallel.pp = 0 on 4 ranks (1 to 4)"},
        {4, 1, 1, 1, 5, "parallel.tp = 5 on 4 ranks (1 to 4)"},
        {4, 1, -2, 1, 1, "parallel.cp = -2 on 4 ranks"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect_dies(rows[i].words, mesh_shape(rows[i].world, rows[i].pp, rows[i].cp, rows[i].ep, rows[i].tp));
    expect_dies("parallel.tp = 4 does not divide model.heads = 6 (what does: 1, 2, 3, 6)", {
        mesh_must_divide("model.heads", 6, "parallel.tp", 3);
        mesh_must_divide("model.heads", 6, "parallel.tp", 4);
    });
}

// ---- tp: how a model is cut over ranks: activations of tensor-parallel ranks against the formula, the vocabulary,
// rows of divided experts, and what is refused. (Bits, bytes sent: test_layouts; rounding: test_dump.)

enum { T = 8 };

static const ModelShape gpt = { // a vocabulary that no number of ranks divides
    .layers = 2, .channels = 12, .heads = 4, .kv_heads = 4, .head_size = 4, .ffn = 24, .vocab = 31, .context = T,
    .norm = NORM_LAYERNORM, .norm_eps = 1e-5f, .bias = true, .tie = true};
static const ModelShape llama = { // 4 ranks: two of them to a key/value head
    .layers = 2, .channels = 10, .heads = 4, .kv_heads = 2, .head_size = 6, .ffn = 20, .vocab = 33, .context = T,
    .norm = NORM_RMSNORM, .norm_eps = 1e-5f, .rotary.theta = 1e4f, .swiglu = true, .rope = true, .qk_norm = true};
static const ModelShape *const families[] = {&gpt, &llama};

// The streams, what joins them, and the statistics of norms are of N / p rows.
TEST(test_activations_shrink)
{
    const RecomputeMode modes[] = {RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL};
    for (int k = 0; k < 24; k++) {
        const ModelShape *s = families[k / 2 % 2];
        RecomputePolicy policy = {.mode = modes[k / 4 % 3], .compress = k >= 12};
        Comm tp = {.size = 2 + 2 * (k % 2), .rank = 1}; // nothing is sent
        size_t held[2], N = 2 * T, R = N / (size_t)tp.size, L = s->layers;
        for (int sequence = 0; sequence < 2; sequence++) {
            Dev *dev = dev_cpu_create(1);
            Mem mem = {0};
            PartsSettings parts = {.tp = &tp, .sequence = sequence};
            ModelOptions options = {.parts = parts_make(parts), .sequences = 8, .recompute = policy};
            Model *m = model_allocate_with(s, dev, &mem, 2, T, true, options);
            ModelShape part = tp_shape(s, 1, tp.size, sequence);
            held[sequence] = mem.tag_bytes[MEM_ACTS];
            assert_int_equal(held[sequence], recompute_bytes(&part, dev, policy, 2, T));
            end_model(m, &mem, dev);
        }
        if (policy.mode == RECOMPUTE_NONE && !policy.compress)
            assert_int_equal(held[0] - held[1], (N - R) * 4 * (s->channels * (L + 1 + L) + 2 * (2 * L + 1)));
        assert_true(held[1] < held[0]);
    }
}

// ---- who has what

TEST(test_vocabulary_is_cut_whole)
{
    ModelShape s = gpt;
    for (s.vocab = 8; s.vocab < 70; s.vocab++)
        for (int size = 1; size <= 8; size++) {
            size_t next = 0;
            for (int r = 0; r < size; r++) {
                ModelShape part = tp_shape(&s, r, size, false);
                assert_int_equal(unit_cut_first(s.vocab, r, size), next);
                assert_true(part.vocab >= 1 && part.vocab <= (s.vocab + (size_t)size - 1) / (size_t)size);
                int32_t token[2] = {(int32_t)next, (int32_t)(next + part.vocab)}, target[3] = {token[0], token[1], -1};
                if (size > 1) {
                    tp_localise(&part, token, target, 2);
                    tp_localise(&part, NULL, target + 2, 1);
                    assert_true(token[0] == 0 && token[1] == -1 && target[0] == 0 && target[2] == -1);
                    assert_int_equal(target[1], part.vocab);
                }
                next += part.vocab;
            }
            assert_int_equal(next, s.vocab);
        }
}

TEST(test_tp_refusals)
{
    ModelShape s = gpt;
    tp_check(&s, 4, true, T);
    tp_check(&llama, 4, true, T); // two ranks to a key/value head
    s.heads = s.kv_heads = 6;
    expect_dies("model.heads", tp_check(&s, 4, false, T));
    s = gpt, s.ffn = 18;
    expect_dies("model.ffn", tp_check(&s, 4, false, T));
    s = llama, s.experts = (ModelExperts){.n = 4, .k = 2, .ffn = 26, .every = 1};
    expect_dies("model.experts_ffn", tp_check(&s, 4, false, T));
    s.experts.ffn = 24, s.experts.shared = 6;
    expect_dies("model.experts_shared", tp_check(&s, 4, false, T));
    s = gpt, s.heads = 12, s.kv_heads = 6;
    expect_dies("model.kv_heads = 6, parallel.tp = 4: neither divides the other", tp_check(&s, 4, false, T));
    s = gpt, s.vocab = 3;
    expect_dies("model.vocab = 3, parallel.tp = 4: every rank needs a token", tp_check(&s, 4, false, T));
    expect_dies("parallel.sp: rows of 10 tokens cannot be shared by parallel.tp = 4 ranks",
                tp_check(&gpt, 4, true, 10));
}

// ---- ep: how many rows the experts of a rank may get, where ranks divide them, and what is refused. (Bits,
// with ranks that get no rows: test_layouts.)

// Rows per token: those of all ranks, each of which may want every expert that one has; or as many as `room` says.
TEST(test_room)
{
    ModelExperts x = {.n = 8, .k = 2};
    assert_int_equal(experts_rows(&x), 2);
    x.ranks = 4;
    assert_int_equal(experts_rows(&x), 8); // 4 ranks, 2 experts here
    x.ranks = 8;
    assert_int_equal(experts_rows(&x), 8); // 8 ranks, 1 expert here
    x.room = 1.5;
    assert_int_equal(experts_rows(&x), 3);
    x.room = 100;
    assert_int_equal(experts_rows(&x), 8);
}

TEST(test_refused)
{
    expect_dies("model.experts = 5", ep_shape(&(ModelShape){.experts = {.n = 5, .k = 2, .ffn = 9, .every = 1}}, 0, 2));
}

TESTS(NULL, NULL)
