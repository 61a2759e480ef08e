// test_plan_guides: the table of build/plan guides: every row computes, and verdicts follow from values.
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

TESTS(program_set_up, temp_dir_remove)
