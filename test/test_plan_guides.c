// test_plan_guides: the table of build/plan guides, the runs that papers report, build/plan prepare against numbers by
// hand, and weeks of a cluster: every row computes, and verdicts follow from values.
#include "test/test.h"
#define PROGRAM "plan"

#include "plan_case.h"
#include "dev/plan/plan_show.h"

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
        GuideVerdict verdict = guides_verdict(&row[i]), due = GUIDES_AGREES;
        char *id = formatted(" %s ", row[i].id);
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
        {"G0-1.1-a", {1.604}}, {"G0-4.1-a", {4}}, {"G0-5.1-c", {3.458}}, {"G1-06-a", {512}},
        {"G1-07-a", {75, 42.86, 8.571}}, {"G1-12-a", {10.91}}, {"G1-30-c", {95086, 950857}}, {"G3-01-a", {1288}},
        {"G3-02-a", {10.825}}, {"G3-04-a", {0}}, {"G3-05-a", {0.9, 0.95, 1e-5}}, {"G3-06-a", {3e-5}},
        {"G3-09-a", {0.5}}, {"G3-10-a", {1, 0.8682, 0.55, 0.2318, 0.1}}, {"G3-11-a", {0.5}},
        {"G3-14-a", {1, 0.2, 0.05}}, {"G3-21-a", {5.369, 21.475, 21.475}}, {"G3-28-a", {1}},
        {"G3-29-b", {42.86, 8.571, 46.67, 17.95}}, {"G3-30-a", {1024}}, {"G4-3.1-a", {6144}}, {"G4-4.2-a", {42.86}},
        {"G4-11-a", {28, 70}},
    };
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

static GuideVerdict judged(GuideValues guide, double ours, double other)
{
    GuideRow r = {.percent = 1, .guide = guide, .ours = {1, false, {ours}}, .other = {1, false, {other}}};
    return guides_verdict(&r);
}

TEST(test_rule)
{
    const struct {
        GuideValues guide;
        double ours, other;
        GuideVerdict want;
    } rows[] = {
        {{1, false, {100}}, 100.9, 7, GUIDES_AGREES}, {{1, false, {100}}, 101.2, 7, GUIDES_WRONG},
        {{1, false, {100}}, 98.8, 7, GUIDES_WRONG},   {{1, false, {100}}, 7, 100.5, GUIDES_LOOSE},
        {{1, false, {0}}, 0, 7, GUIDES_AGREES},       {{1, false, {0}}, 1e-9, 7, GUIDES_WRONG},
        {{1, false, {100}}, NAN, NAN, GUIDES_WRONG},  {{2, true, {10, 20}}, 20.1, 7, GUIDES_AGREES},
        {{2, true, {10, 20}}, 20.3, 7, GUIDES_WRONG}, {{2, true, {10, 20}}, 9.8, 7, GUIDES_WRONG},
        {{2, true, {10, 20}}, NAN, 7, GUIDES_WRONG},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(judged(rows[i].guide, rows[i].ours, rows[i].other), rows[i].want);
    GuideRow two = {.percent = 1, .guide = {2, false, {10, 20}}, .ours = {2, false, {10, 21}}}; // the second
    assert_int_equal(guides_verdict(&two), GUIDES_WRONG);
    two.guide.n = 0;
    assert_int_equal(guides_verdict(&two), GUIDES_MISSING);
    two.ours.n = 0;
    assert_int_equal(guides_verdict(&two), GUIDES_NONE);
}

TEST(test_program)
{
    static const struct {
        const char *arguments;
        int status, rows; // of the table, below two of its head
        const char *words;
    } rows[] = {{"guides G1-28-e", 0, 1, "58.3, 31.7 GB"}, {"guides G1-28-e", 0, 1, "35, 4.375 GB"},
                {"guides G1-28-e", 0, 1, "= held(70e9 / 32, 8, 0) / GIGA"},
                {"guides G1-28-e", 0, 1, "guide is wrong: "},
                {"guides G1-28-e", 0, 1, "doc/zero.md"}, {"guides G1-28", 0, 3, ""}, {"guides G2", 0, 3, ""},
                {"guides none", 0, 3, ""}, {"guides wrong", 0, 41, ""},
                {"guides G1-28-x", 2, -1, "(nearest: G1-28-a, G1-28-c, G1-28-e;"}, {"guides G1 G2", 2, -1, ""}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        expect_run(rows[i].arguments, rows[i].status, rows[i].words);
        if (*rows[i].words == 0 || rows[i].rows < 0) assert_int_equal(count_of(output, "\n"), 2 + rows[i].rows);
        if (rows[i].rows == 41) assert_null(strstr(output, "agrees"));
    }
}

// ---- plan prepare: build/plan prepare against numbers worked out by hand, from a log as build/prepare prints it; a
// log that is not one, and settings that make no sense, are one line.

// 2 GB in, of which the filter leaves 1.6 and duplicates 1.2; 300 million tokens of 4 bytes of text.
static const char log_text[] =
    "rank 0: process 1 on a\nread crawl: 47%, 22.4 MB\r                        \rdocuments: 2 ranks took 100.00 s of "
    "processors, the busiest 56% of it\n"
    "exact: 2 ranks took 16.00 s of processors, the busiest 50% of it\n"
    "near: 2 ranks took 80.00 s of processors, the busiest 50% of it\n"
    "runs: 2 ranks took 60.00 s of processors, the busiest 50% of it\n"
    "shards: 2 ranks took 30.00 s of processors, the busiest 55% of it\n"
    "after             documents           bytes          tokens   most frequent\n"
    "read                 500000      2000000000      ~500000000   empty 2\n"
    "filter               400000      1600000000      ~400000000   guide.letters 40\n"
    "exact                350000      1400000000      ~350000000   removed 50000\n"
    "near                 300000      1200000000      ~300000000   removed 50000\n"
    "train                299000      1196000000       299000000\n"
    "val                    1000         4000000         1000000\n"
    "\n4 bytes a token. To train on it:\nall stages: 2 ranks took 286.00 s of processors, the busiest 53% of it\n";

static double cell(json_t *root, int row, const char *column)
{
    json_t *table = json_object_get(json_object_get(root, "corpus"), "stages, of one part");
    json_t *value = json_object_get(json_array_get(table, (size_t)row), column);
    if (!json_is_number(value)) fail_msg("row %d has no number %s:\n%s", row, column, output);
    return json_number_value(value);
}

// 300 billion tokens are k = 1000 samples, in 4 parts 250 each. 10 hosts of 10 cores, 1 GB/s, and no failures to speak
// of. Of each stage cores take work * 250 / 100 seconds.
TEST(test_by_hand)
{
    put_text("log", log_text);
    json_t *a = json_of("prepare --log log --tokens 300e9 --hosts 10 --cores 10 --io 1 --parts 4 --mtbf 1e15 --bands 9 "
                        "--price 2 --json");
    static const struct {
        double in, work, reads, writes, sent; // sent: bytes a sample
    } row[] = {{2e9, 100, 2e9, 1.6e9, 0}, {1.6e9, 16, 1.6e9, 0, 32 * 4e5}, {1.4e9, 80, 2.8e9, 0, 16 * 9 * 3.5e5},
               {1.2e9, 60, 1.2e9, 1.2e9, 0}, {1.2e9, 30, 1.2e9, 1.2e9, 0}};
    double seconds = 0, files = 0;
    for (int i = 0; i < 5; i++) {
        double cores = row[i].work * 250 / 100, disk = (row[i].reads + row[i].writes) * 250 / 10e9;
        near(cell(a, i, "TB in"), row[i].in * 250 / 1e12, 1e-9);
        near(cell(a, i, "core hours"), row[i].work * 250 / 3600, 1e-9);
        near(cell(a, i, "TB read"), row[i].reads * 250 / 1e12, 1e-9);
        near(cell(a, i, "TB written"), row[i].writes * 250 / 1e12, 1e-9);
        near(cell(a, i, "TB of messages"), row[i].sent * 250 / 1e12, 1e-9);
        near(cell(a, i, "hours, cores"), cores / 3600, 1e-9);
        near(cell(a, i, "hours, files"), disk / 3600, 1e-9);
        seconds += fmax(cores, disk), files += row[i].reads + row[i].writes;
    }
    near(number(a, "all parts", "days without failures"), 4 * seconds / 86400, 1e-9);
    near(number(a, "all parts", "files"), files * 1000 / 1e12, 1e-9);
    near(number(a, "all parts", "dollars"), 4 * seconds / 3600 * 10 * 2, 1e-9);
    near(number(a, "memory of a host", "documents"), 13 * 500000 * 250.0 / 1e9, 1e-9);
    json_decref(a);
    // A file system that is slow decides: 1 MB/s a host.
    near(number_of("prepare --log log --tokens 300e9 --hosts 10 --cores 10 --io 0.001 --mtbf 1e15 --json", "all parts",
                   "days without failures"), files * 1000 / 10e6 / 86400, 1e-9);
    // 500 million documents take 6.5 GB: more than 2, and 4 parts are enough.
    expect_run("prepare --log log --tokens 300e9 --ram 2", 0, "does not fit into 2 GB: --parts 4 would");
    expect_run("prepare --log log --tokens 300e9 --ram 2 --parts 4", 0, "fits into 2 GB");
}

// A renewal process: failures at rate 1 / M; played here with 200,000 stages.
TEST(test_failures)
{
    double t = 2, M = 3, r = 0.5, sum = 0;
    uint64_t x = 88172645463325252u;
    enum { PLAYED = 200000 };
    for (int i = 0; i < PLAYED; i++)
        for (;;) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            double fails = -M * log(((double)(x >> 11) + 0.5) / 9007199254740992.0);
            sum += fmin(fails, t);
            if (fails >= t) break;
            sum += r;
        }
    double formula = plan_prepare_expected(t, M, r, true, 0);
    assert_true(fabs(sum / PLAYED - formula) < 0.02 * formula);
    near(plan_prepare_expected(100, 50, 3, false, 2), 110, 1e-9);
    near(plan_prepare_expected(100, INFINITY, 3, true, 2), 100, 1e-9);
}

TEST(test_nonsense)
{
    static const struct {
        const char *arguments, *text, *line;
    } bad[] = {
        {"prepare --tokens 1e9", log_text, "plan prepare: no --log FILE"},
        {"prepare --log log", log_text, "plan prepare: no --tokens N"},
        {"prepare --log none --tokens 1e9", log_text, "--log: none cannot be read"},
        {"prepare --log log --tokens 1e9", "", "--log: log: has no work of documents"},
        {"prepare --log log --tokens 1e9",
         "documents: 2 ranks took 1 s of processors\nruns: 2 ranks took 1 s of processors\n"
         "shards: 2 ranks took 1 s of processors\n", "--log: log: has no table"},
        {"prepare --log log --tokens 1e9 --hosts 0", log_text, "--hosts: 0: not a whole number"},
        {"prepare --log log --tokens 1e9 --tp 2", log_text, "--tp: has no effect on plan prepare"},
        {"prepare --log log --tokens 1e9 --price aws", log_text, "--price: aws (dollars an hour of a host)"},
        {"time tiny --hosts 3", log_text, "--hosts: has no effect on plan time"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put_text("log", bad[i].text);
        assert_int_not_equal(run(bad[i].arguments), 0);
        if (!strstr(output, bad[i].line) || strchr(output, '\n') != output + strlen(output) - 1)
            fail_msg("%s: %s", bad[i].arguments, output);
    }
}

// ---- published: the plan against the runs that papers report: each within 15% of the reported number, except two that
// are named here; the median within 8%; and each of those added after the constants were fixed within 12%.

static PublishedGuess guess[100];

static int guess_all(void **state)
{
    if (published_count() > 100) return -1;
    for (int i = 0; i < published_count(); i++) guess[i] = published_guess(published_run(i));
    return program_set_up(state);
}

// Rows that miss, as doc/published.md says, and by how much at most.
static double allowed(const PublishedRun *r)
{
    if (r->held_out) return 0.12;
    return !strncmp(r->name, "LLaMA-2", 7) ? 0.25 : 0.15; // its hours
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

TEST(test_errors)
{
    double size[100];
    int n = published_count(), missed = 0, held_out = 0;
    assert_true(n >= 30 && n <= 100);
    for (int i = 0; i < n; i++) {
        const PublishedRun *r = published_run(i);
        PublishedGuess g = guess[i];
        size[i] = fabs(g.error);
        if (!(size[i] <= allowed(r)))
            fail_msg("%s on %d %s: predicted %.4g %s, reported %.4g", r->name, r->gpus, r->machine, g.predicted,
                     published_unit(r->unit), r->reported);
        missed += size[i] > 0.15;
        held_out += r->held_out;
    }
    qsort(size, (size_t)n, sizeof *size, by_size);
    assert_true(missed <= 2 && held_out >= 16);
    assert_true(size[n / 2] <= 0.08);
}

// The rows are complete, and every layout that a paper gives is one that the plan accepts.
TEST(test_published_rows)
{
    for (int i = 0; i < published_count(); i++) {
        const PublishedRun *r = published_run(i);
        char why[400];
        PublishedGuess g = guess[i];
        assert_true(r->name && strlen(r->source) > 10 && r->reported > 0 && r->batch > 0);
        assert_int_equal(plan_layout_check(&g.job, false, why, sizeof why), PLAN_LAYOUT_FITS);
        if (r->tp) assert_true(g.job.layout.tp == r->tp && g.job.layout.pp == r->pp);
        if (r->micro) assert_int_equal(g.job.layout.micro, r->micro);
        if (!r->tp || (!r->chunks && r->pp > 1) || !r->micro) assert_non_null(r->assumed); // said in the table
        assert_true(r->unit != PUBLISHED_HOURS || r->tokens > 0);
    }
}

// 174.6 and 1008 billion parameters, by the shapes of the rows.
TEST(test_sizes)
{
    for (int i = 0; i < published_count(); i++) {
        const PublishedRun *r = published_run(i);
        double named = atof(r->name + strcspn(r->name, "0123456789")), P = 0;
        PublishedGuess g = guess[i];
        if (strncmp(r->name, "GPT ", 4)) continue;
        g.job.layout = plan_layout_default();
        P = (double)plan_layout_params(&g.job, 0) / 1e9;
        if (!(fabs(P - named) <= 0.051 + 0.01 * named)) // printed with one decimal, or none
            fail_msg("%s has %.1f billion", r->name, P);
    }
}

// ---- plan cluster: simulated time is accounted for to the second; goodput against the formula; the slowest of n nodes
// against the normal distribution's maximum; the same seed gives the same weeks.

static double all(const PlanClusterResult *r)
{
    return r->useful + r->waiting + r->saving + r->again + r->restarting;
}

TEST(test_nothing_is_lost)
{
    for (uint64_t seed = 1; seed < 30; seed++) {
        PlanCluster c = plan_cluster_default();
        c.nodes = 64, c.seed = seed, c.mean = 900.0 * (double)seed, c.interval = 1500, c.save = 40, c.restart = 250;
        c.seconds = 1e6;
        PlanClusterResult r = plan_cluster(&c);
        // A sum of some thousand events, each rounded.
        if (!(fabs(all(&r) - c.seconds) <= 1e-9 * c.seconds)) fail_msg("%.9g of %.9g seconds", all(&r), c.seconds);
        assert_true(r.useful > 0 && r.waiting > 0 && r.again > 0 && r.restarting > 0 && r.failures > 0);
        PlanClusterResult same = plan_cluster(&c);
        assert_memory_equal(&r, &same, sizeof r);
    }
}

TEST(test_no_failures)
{
    PlanCluster c = plan_cluster_default();
    c.jitter = 0, c.slow_nodes = 0, c.seconds = 36300, c.interval = 3600, c.save = 30;
    PlanClusterResult r = plan_cluster(&c);
    assert_int_equal(r.checkpoints, 10);
    assert_true(fabs(r.useful - 36000) <= 1e-9 * 36000 && r.saving == 300 && r.again == 0 && r.waiting == 0);
    assert_int_equal(r.steps, 36000);
}

// Many failures: the mean is the formula's. n failures leave a relative error of about 1 / sqrt(n); four of those.
TEST(test_goodput)
{
    const double saves[] = {10, 60, 200}, means[] = {2000, 10000};
    for (int i = 0; i < 6; i++) {
        PlanCluster c = plan_cluster_default();
        c.jitter = 0, c.slow_nodes = 0, c.save = saves[i % 3], c.mean = means[i / 3], c.restart = 300;
        c.interval = plan_time_daly(c.save, c.mean), c.seconds = 4000 * c.mean, c.seed = (uint64_t)i + 9;
        PlanClusterResult r = plan_cluster(&c);
        double formula = plan_time_goodput(c.interval, c.save, c.restart, c.mean), lost = 1 - formula;
        assert_true(r.failures > 3000);
        if (!(fabs(r.goodput - formula) <= 4 / sqrt((double)r.failures) * lost))
            fail_msg("played %.5f, formula %.5f", r.goodput, formula);
    }
}

// The expected maximum of n normal numbers, by integrating 1 - Phi^n.
static double normal_maximum(double n)
{
    double sum = 0, h = 1e-3;
    for (double z = -8; z < 8; z += h) {
        double phi = 0.5 * erfc(-z / sqrt(2)), p = pow(phi, n);
        sum += h * (z >= 0 ? 1 - p : -p);
    }
    return sum;
}

TEST(test_stragglers)
{
    const int nodes[] = {8, 128, 2048};
    for (int i = 0; i < 3; i++) {
        PlanCluster c = plan_cluster_default();
        c.nodes = nodes[i], c.jitter = 0.01, c.slow_nodes = 0, c.seconds = 1;
        double expected = 1 + 0.01 * normal_maximum(nodes[i]);
        // The mean of 200 maxima, each with a deviation below one jitter: four of 0.01 / sqrt(200).
        assert_true(fabs(plan_cluster(&c).step - expected) <= 4 * 0.01 / sqrt(200));
    }
    PlanCluster c = plan_cluster_default();
    c.nodes = 100, c.jitter = 0, c.slow_nodes = 1, c.slow = 0.25, c.seconds = 1;
    assert_true(fabs(plan_cluster(&c).step - 1.25) <= 1e-12);
}

TESTS(guess_all, temp_dir_remove)
