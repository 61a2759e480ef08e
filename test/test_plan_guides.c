// test_plan_guides: the table of build/plan guides (guides.h): every row computes, and verdicts follow from values; and
// some of the guides' formulas against the plan's own counts, to the byte.
#define PROGRAM "plan"
#include "plan_case.h"

#include "comm/collectives.h"
#include "dev/plan/guides.h"
#include "dev/plan/plan_time.h"
#include "dev/plan/plan_traffic.h"
#include "dev/plan/sharding.h"


// a is b to the digits that the guide prints: within half of its last one.
static void printed(double a, double b, double half)
{
    if (!(fabs(a - b) <= half)) fail_msg("%.6g is printed as %.6g", a, b);
}

// "70B with Adam in mixed precision: 16 P = 1120 GB." With gradients in fp32, as sums of micro-batches need: 18 P.
TEST(test_state_of_70b)
{
    ShardingCase is = {.ranks = 1, .params = 70000000000, .stage = 0, .x_bytes = 2, .state = 12 * (size_t)70000000000};
    double held = 0;
    for (int tag = 0; tag < MEM_TAGS; tag++) held += (double)sharding_memory(&is, (MemTag)tag).all;
    printed(held / 1e9, 1260, 0);
    printed((held - 2 * 70e9) / 1e9, 1120, 0); // the guide's: 2-byte gradients
    is.ranks = 64, is.stage = 3;
    double each = 0;
    for (int tag = 0; tag < MEM_TAGS; tag++) each += (double)sharding_memory(&is, (MemTag)tag).all / 64;
    printed(each / 1e9, 19.69, 0.005); // ZeRO-3 on 64: not 17.5
}

// 1F1B: (p - 1) / (m + p - 1). Papers' (p - 1) / m is idle time over ideal time.
TEST(test_bubble)
{
    const struct {
        int p, m;
        double bubble;
    } guide[] = {{4, 8, 0.2727}, {8, 32, 0.1795}, {16, 64, 0.1899}};
    for (int i = 0; i < 3; i++) {
        PlanJob job = plan_job(&gpt2_124m, "H100", guide[i].m, 1, 1, 1, guide[i].p);
        job.shape.layers = 16;
        job.layout.recompute = plan_layout_default().recompute;
        job.machine.inside = job.machine.between = (MachineLink){.alpha = 0, .bandwidth = 1e30};
        printed(plan_time(&job, true).bubble, guide[i].bubble, 5e-5);
    }
}

// A ring's all-reduce sends 2 (N - 1) / N of the bytes from each rank: 14 GB of 7 billion gradients in 2 bytes
// become 24.5 GB on 8 ranks, and take 82 ms at NVLink's 300 GB/s.
TEST(test_ring)
{
    ShardingCase is = {.ranks = 8, .params = 7000000000, .stage = 0, .x_bytes = 2, .g_bytes = 2, .micro = 1,
                       .batch = 1};
    printed((double)sharding_traffic(&is, COMM_ALL_REDUCE).all / 8 / 1e9, 24.5, 1e-9);
    printed(1e3 * collectives_seconds(COMM_ALL_REDUCE, COMM_RING, 8, 14000000000, 0, 1 / 300e9), 81.7, 0.05);
    is.stage = 3, is.ranks = 64, is.reshard = true; // "FSDP is 1.5 times": gathers twice, reduces once
    double fsdp = (double)sharding_traffic(&is, COMM_ALL_GATHER).all;
    fsdp += (double)sharding_traffic(&is, COMM_REDUCE_SCATTER).all;
    is.stage = 0;
    printed(fsdp / (double)sharding_traffic(&is, COMM_ALL_REDUCE).all, 1.5, 0);
}

// Tensor parallelism: four all-reduces of B T C a layer and micro-batch.
TEST(test_tensor_parallel)
{
    PlanJob job = plan_job(&gpt3_175b, "A100-80", 1, 1, 8, 1, 1);
    PlanTraffic t = plan_traffic(&job);
    double stream = 2.0 * 2048 * 12288, blocks = 4.0 * 96 + 2; // and the embedding's and the head's
    printed(stream / 1e6, 50.3, 0.05);
    printed((double)t.flow[0].all, 2 * 7 * (blocks * stream + 12 * 2048), 0);
}

// ---- the table

static GuideRow row[GUIDES_ROWS];

static void are_numbers(const GuideRow *r, const GuideValues *x)
{
    assert_true(x->n >= 0 && x->n <= GUIDES_VALUES);
    for (int i = 0; i < x->n; i++)
        if (!isfinite(x->v[i])) fail_msg("%s: value %d is %g", r->id, i, x->v[i]);
}

TEST(test_rows)
{
    int n = guides_rows(row);
    assert_true(n > 150);
    for (int i = 0; i < n; i++) {
        const GuideRow *r = &row[i];
        GuideVerdict verdict = guides_verdict(r);
        are_numbers(r, &r->ours), are_numbers(r, &r->other);
        for (int k = 0; k < i; k++) assert_string_not_equal(r->id, row[k].id);
        bool same = r->guide.range ? r->guide.n == 2 && r->ours.n == 1 : !r->guide.n || r->guide.n == r->ours.n;
        if (!same) fail_msg("%s: %d values beside %d", r->id, r->guide.n, r->ours.n);
        if (r->percent > 20) fail_msg("%s: a tolerance of %g%% agrees with too much", r->id, r->percent);
        if (verdict != GUIDES_AGREES && !r->why) fail_msg("%s has no reason", r->id);
        if (strchr(r->what, '|') || (r->why && strchr(r->why, '|'))) fail_msg("%s would break the table", r->id);
        // Another reading that decides nothing is superfluous.
        if (r->other.n && verdict != GUIDES_LOOSE) fail_msg("%s has a reading that it does not need", r->id);
    }
}

// Which rows are wrong and which are loose because they agree under another reading alone. A formula or a constant of
// the plan that changes flips a verdict.
TEST(test_verdicts)
{
    static const char wrong[] =
        " G0-1.2-b G0-1.3-a G0-2.1-b G0-3.3-a G0-3.4-c G0-4.2-b G0-4.4-b G0-5.4-b G0-9.1-d G0-9.2-a G1-02-d G1-02-e "
        "G1-05-b G1-09-c G1-15-b G1-15-d G1-15-e G1-21-a G1-28-c G1-28-e G1-29-b G1-29-e G1-30-b G1-33-b G1-34-d "
        "G1-34-e G1-35-a G1-38-a G2-05-b G3-07-b G3-10-b G3-23-a G3-23-b G3-23-c G3-27-b G4-4.2-b G4-6.1-b G4-6.3-a "
        "G4-7.1-a G4-9.2-c G4-9.2-d ";
    static const char loose[] = " G0-1.3-b G0-9.3-a G1-02-c G1-06-b G1-08-b G1-09-a G1-11-a G1-11-b G1-13-a G1-29-a "
                                "G3-18-a G3-31-b G4-1.2-a G4-3.1-b G4-5-a ";
    int n = guides_rows(row);
    for (int i = 0; i < n; i++) {
        char id[40];
        GuideVerdict verdict = guides_verdict(&row[i]), due = GUIDES_AGREES;
        snprintf(id, sizeof id, " %s ", row[i].id);
        if (strstr(wrong, id)) due = GUIDES_WRONG;
        else if (strstr(loose, id)) due = GUIDES_LOOSE;
        else if (!row[i].ours.n) due = GUIDES_NONE;
        else if (!row[i].guide.n) due = GUIDES_MISSING;
        if (verdict != due) fail_msg("%s: verdict %d, not %d", row[i].id, verdict, due);
    }
}

// Rows without a value of the guide agree with nothing, so their values are compared with these: formulas of papers
// worked out by hand, to the digits that stand here.
TEST(test_missing)
{
    static const struct {
        const char *id;
        double v[5];
    } due[] = {
        {"G0-1.1-a", {1.604}},        {"G0-4.1-a", {4}},           {"G0-5.1-c", {3.458}},
        {"G1-06-a", {512}},           {"G1-07-a", {75, 42.86, 8.571}},
        {"G1-12-a", {10.91}},         {"G1-30-c", {95086, 950857}}, {"G3-01-a", {1288}},
        {"G3-02-a", {10.825}},        {"G3-04-a", {0}},            {"G3-05-a", {0.9, 0.95, 1e-5}},
        {"G3-06-a", {3e-5}},          {"G3-09-a", {0.5}},          {"G3-10-a", {1, 0.8682, 0.55, 0.2318, 0.1}},
        {"G3-11-a", {0.5}},           {"G3-14-a", {1, 0.2, 0.05}}, {"G3-21-a", {5.369, 21.475, 21.475}},
        {"G3-28-a", {1}},             {"G3-29-b", {42.86, 8.571, 46.67, 17.95}},
        {"G3-30-a", {1024}},          {"G4-3.1-a", {6144}},        {"G4-4.2-a", {42.86}},
        {"G4-11-a", {28, 70}}};
    int n = guides_rows(row), found = 0;
    for (int i = 0; i < n; i++) {
        if (guides_verdict(&row[i]) != GUIDES_MISSING) continue;
        size_t k = 0;
        while (k < sizeof due / sizeof *due && strcmp(due[k].id, row[i].id)) k++;
        if (k == sizeof due / sizeof *due) fail_msg("%s has no value of its own in this test", row[i].id);
        for (int j = 0; j < row[i].ours.n; j++)
            if (!(fabs(row[i].ours.v[j] - due[k].v[j]) <= 1e-3 * fabs(due[k].v[j])))
                fail_msg("%s: value %d is %g, not %g", row[i].id, j, row[i].ours.v[j], due[k].v[j]);
        found++;
    }
    assert_int_equal(found, sizeof due / sizeof *due);
}

static GuideVerdict judged(double guide, double ours, double other)
{
    GuideRow r = {.percent = 1, .guide = {1, false, {guide}}, .ours = {1, false, {ours}}, .other = {1, false, {other}}};
    return guides_verdict(&r);
}

TEST(test_rule)
{
    assert_int_equal(judged(100, 100.9, 7), GUIDES_AGREES);
    assert_int_equal(judged(100, 101.2, 7), GUIDES_WRONG);
    assert_int_equal(judged(100, 98.8, 7), GUIDES_WRONG);
    assert_int_equal(judged(100, 7, 100.5), GUIDES_LOOSE);
    assert_int_equal(judged(0, 0, 7), GUIDES_AGREES);
    assert_int_equal(judged(0, 1e-9, 7), GUIDES_WRONG);
    assert_int_equal(judged(100, NAN, NAN), GUIDES_WRONG);
    GuideRow two = {.percent = 1, .guide = {2, true, {10, 20}}, .ours = {1, false, {20.1}}};
    assert_int_equal(guides_verdict(&two), GUIDES_AGREES);
    two.ours.v[0] = 20.3;
    assert_int_equal(guides_verdict(&two), GUIDES_WRONG);
    two.ours.v[0] = 9.8;
    assert_int_equal(guides_verdict(&two), GUIDES_WRONG);
    two.ours.v[0] = NAN;
    assert_int_equal(guides_verdict(&two), GUIDES_WRONG);
    two.guide = (GuideValues){2, false, {10, 20}}, two.ours = (GuideValues){2, false, {10, 21}}; // the second
    assert_int_equal(guides_verdict(&two), GUIDES_WRONG);
    two.guide.n = 0;
    assert_int_equal(guides_verdict(&two), GUIDES_MISSING);
    two.ours.n = 0;
    assert_int_equal(guides_verdict(&two), GUIDES_NONE);
}

static int lines(void)
{
    int n = 0;
    for (const char *c = output; *c; c++) n += *c == '\n';
    return n;
}

TEST(test_program)
{
    expect_run("guides G1-28-e", 0, "58.3, 31.7 GB");
    says("35, 4.375 GB");
    says("= held(70e9 / 32, 8, 0) / GIGA");
    says("guide is wrong: ");
    says("doc/zero.md");
    assert_int_equal(run("guides G1-28"), 0);
    assert_int_equal(lines(), 2 + 3);
    assert_int_equal(run("guides G2"), 0);
    assert_int_equal(lines(), 2 + 3);
    assert_int_equal(run("guides none"), 0);
    assert_int_equal(lines(), 2 + 3);
    assert_int_equal(run("guides wrong"), 0);
    assert_int_equal(lines(), 2 + 41);
    assert_null(strstr(output, "agrees"));
    assert_int_equal(run("guides G1-28-x"), 2);
    assert_int_equal(lines(), 1);
    says("(nearest: G1-28-a, G1-28-c, G1-28-e;");
    assert_int_equal(run("guides G1 G2"), 2);
    assert_int_equal(lines(), 1);
}

TESTS(program_set_up, temp_dir_remove)
