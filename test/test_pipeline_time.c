// pipeline_time: small timelines by hand; every timeline is valid, and no action
// could begin earlier; lengths and bubbles are those of the papers, to the bit; a stage that waits for ever is
// named.
#include "parallel/pipeline_time.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/test.h"

#include "pipeline_case.h"

static char why[1024];

static PipelineTimeline play(const PipelineTable *t, const PipelineTimes *times)
{
    PipelineTimeline line;
    if (!pipeline_time_run(&line, t, times, why, sizeof why)) fail_msg("%s", why);
    return line;
}

// The starts of a stage's actions.
static void starts_are(const PipelineTimeline *line, int stage, const double *expected, size_t n)
{
    assert_int_equal(line->begin[stage + 1] - line->begin[stage], n);
    for (size_t i = 0; i < n; i++) assert_true(line->span[line->begin[stage] + i].start == expected[i]);
}
#define STARTS(line, stage, ...) \
    starts_are(line, stage, (const double[]){__VA_ARGS__}, sizeof((const double[]){__VA_ARGS__}) / sizeof(double))

TEST(test_by_hand)
{
    PipelineTable *t = pipeline_table_make(PIPELINE_1F1B, 2, 3, 0); // F0 F1 B0 F2 B1 B2 over F0 B0 F1 B1 F2 B2
    PipelineTimeline line = play(t, &(PipelineTimes){1, 1, 1, 0, 0}); // B 2
    STARTS(&line, 0, 0, 1, 4, 6, 7, 10);
    STARTS(&line, 1, 1, 2, 4, 5, 7, 8);
    assert_true(pipeline_time_length(&line) == 12);
    assert_true(pipeline_time_busy(&line, 0) == 9 && pipeline_time_busy(&line, 1) == 9);
    assert_true(pipeline_time_span(&line, 0) == 12 && pipeline_time_span(&line, 1) == 9);
    assert_true(pipeline_time_bubble(&line) == 1 - 18.0 / 24);
    assert_true(pipeline_time_gaps(&line) == 1 - 9.0 / 12);
    for (size_t i = 0; i < line.begin[2]; i++) line.span[i].start += 5, line.span[i].end += 5; // as in a run's clock
    assert_true(pipeline_time_length(&line) == 12 && pipeline_time_bubble(&line) == 1 - 18.0 / 24);
    pipeline_time_free(&line);
    line = play(t, &(PipelineTimes){1, 1, 1, 0.5, 0});
    STARTS(&line, 0, 0, 1, 5, 7, 8, 12);
    STARTS(&line, 1, 1.5, 2.5, 4.5, 5.5, 8.5, 9.5);
    pipeline_time_free(&line);
    pipeline_table_free(t);
    t = pipeline_table_make(PIPELINE_ZB_H1, 2, 2, 0); // F0 F1 B0 W0 B1 W1 over F0 B0 F1 B1 W0 W1
    line = play(t, &(PipelineTimes){1, 2, 3, 0, 0});
    STARTS(&line, 0, 0, 1, 4, 6, 9, 11);
    STARTS(&line, 1, 1, 2, 4, 5, 7, 10);
    pipeline_time_free(&line);
    pipeline_table_free(t);
}

// ---- any timeline

// Start of an action by what it reads, worked out here from the pieces' definition.
static double earliest(const PipelineTable *t, const PipelineTimeline *line, const int *index, const PipelineSpan *s,
                       double p2p)
{
    const PipelineAction *a = &s->action;
    int pieces = t->p * t->v, loop = a->chunk * t->p + s->stage;
    int piece = pipeline_table_is_vee(t->schedule) && a->chunk ? pieces - 1 - s->stage : loop;
    int from = a->op == PIPELINE_F ? piece - 1 : a->op == PIPELINE_B ? piece + 1 : -1;
    double when = s == &line->span[line->begin[s->stage]] ? 0 : s[-1].end;
    if (from >= 0 && from < pieces) {
        int stage = from % t->p, chunk = from / t->p;
        if (pipeline_table_is_vee(t->schedule) && chunk) stage = pieces - 1 - from;
        int i = index[pipeline_table_key(t, stage, a->op, a->micro, chunk)];
        when = fmax(when, line->span[line->begin[stage] + (size_t)i].end + (stage == s->stage ? 0 : p2p));
    }
    if (a->op != PIPELINE_F) {
        PipelineOp first = a->op == PIPELINE_B ? PIPELINE_F : PIPELINE_B;
        int i = index[pipeline_table_key(t, s->stage, first, a->micro, a->chunk)];
        when = fmax(when, line->span[line->begin[s->stage] + (size_t)i].end);
    }
    return when;
}

// Sums of a few hundred multiples of 1/4 are exact, so == is meant.
static void is_tight(const PipelineTable *t, void *arg)
{
    (void)arg;
    const PipelineTimes times = {2, 3, 1, 0.25, 0};
    PipelineTimeline line = play(t, &times);
    int *index = pipeline_table_index(t);
    for (size_t i = 0; i < line.begin[t->p]; i++) {
        const PipelineSpan *s = &line.span[i];
        double last = s->action.op == PIPELINE_F ? 2 : s->action.op == PIPELINE_W ? 1 : t->split ? 3 : 4;
        assert_true(s->start == earliest(t, &line, index, s, times.p2p));
        assert_true(s->end == s->start + last);
    }
    free(index);
    pipeline_time_free(&line);
}

TEST(test_tight)
{
    each_table(is_tight, NULL);
}

// ---- the papers

static void as_published(const PipelineTable *t, void *arg)
{
    // Times of an action are whole, so the lengths are, and == is meant; bubbles are one division of whole
    // numbers.
    const PipelineTimes all[] = {{1, 1, 1, 0, 0}, {1, 2, 0, 0, 0}, {2, 3, 1, 0, 0}, {3, 2, 1, 0, 0},
                                 {1, 2, 2, 0, 0}, {4, 5, 4, 0, 0}, {2, 2, 2, 0, 0}};
    double p = t->p, m = t->m, v = t->v;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        double F = all[i].f, B = all[i].b, W = all[i].w, length = NAN; // of an action: a v-th of a stage's
        PipelineTimeline line = play(t, &all[i]);
        bool even = F == B && B == W;
        if (t->schedule <= PIPELINE_INTERLEAVED) length = (m * v + p - 1) * (F + B + W);
        if (t->schedule == PIPELINE_ZB_H1 && m >= p && W <= F && F <= B)
            length = m * (F + B + W) + (p - 1) * (F + B - W);
        if (t->schedule == PIPELINE_ZB_V && m >= p && even) length = 6 * F * m + (p - 1) * F;
        if (t->schedule == PIPELINE_V_HALF && 2 * m > p && p > 2 && even) length = 6 * F * m + (3 * p - 4) * F;
        if (t->schedule == PIPELINE_V_MIN && m > 1 && p > 1 && even)
            length = 6 * F * m + (4 * p - (t->p % 3 ? 5 : 3)) * F;
        if (!isnan(length)) {
            assert_true(pipeline_time_length(&line) == length);
            ++*(int *)arg;
        }
        if (t->schedule <= PIPELINE_INTERLEAVED)
            assert_true(fabs(pipeline_time_bubble(&line) - (p - 1) / (m * v + p - 1)) <= 4e-16);
        if (t->schedule == PIPELINE_ZB_H1 && even && m >= p) // a third of 1f1b's idle time, 3 (p-1) F
            assert_true(3 * (pipeline_time_length(&line) - 3 * m * F) == 3 * (p - 1) * F);
        if (t->schedule == PIPELINE_ZB_V && even && m >= 2 * p - 1) assert_true(pipeline_time_gaps(&line) == 0);
        pipeline_time_free(&line);
    }
}

TEST(test_published)
{
    int n = 0;
    each_table(as_published, &n);
    assert_true(n > 5000); // there was a formula
}

// gpipe and v-min, 2 stages, an exchange of 2 after every F and B. It holds up whoever reads the output, and nothing
// else; a stage's exchanges follow each other.
TEST(test_exchange)
{
    const PipelineTimes times = {1, 1, 0, 0, 2};
    PipelineTable *t = pipeline_table_make(PIPELINE_GPIPE, 2, 2, 0);
    PipelineTimeline line = play(t, &times);
    STARTS(&line, 0, 0, 1, 10, 12);  // F0 is exchanged until 3, F1 until 5; B0 waits for stage 1's until 10
    STARTS(&line, 1, 3, 5, 6, 8);    // F0 until 6, F1 until 8: B1 reads it
    assert_true(line.span[1].ready == 5 && line.span[3].ready == 15 && line.span[6].ready == 10);
    pipeline_time_free(&line);
    pipeline_table_free(t);
    t = pipeline_table_make(PIPELINE_V_MIN, 1, 1, 0); // F0a F0b B0b B0a W0b W0a: all pieces on one stage
    line = play(t, &(PipelineTimes){1, 1, 1, 0, 2});
    STARTS(&line, 0, 0, 3, 6, 9, 10, 11);
    pipeline_time_free(&line);
    pipeline_table_free(t);
    t = pipeline_table_make(PIPELINE_ZB_H1, 1, 1, 0); // F0 B0 W0: W runs beside B's exchange
    line = play(t, &(PipelineTimes){1, 1, 1, 0, 2});
    STARTS(&line, 0, 0, 3, 4);
    pipeline_time_free(&line);
    pipeline_table_free(t);
}

// interleaved with p-1-s instead of 2(p-1-s) forwards ahead, from the orders of F and of B of the published
// table.
static PipelineTable *less_ahead(const PipelineTable *t)
{
    PipelineTable *less = pipeline_table_new(PIPELINE_USER, t->p, t->m, t->v, false);
    for (int s = 0; s < t->p; s++) {
        int total = t->m * t->v, ahead = t->p - 1 - s + (t->v - 1) * t->p, f = 0, b = 0;
        for (int done_f = 0, done_b = 0; done_b < total;) {
            PipelineOp op = done_f < total && done_f <= ahead + done_b ? PIPELINE_F : PIPELINE_B;
            int *at = op == PIPELINE_F ? &f : &b;
            while (t->action[s][*at].op != op) ++*at;
            pipeline_table_add(less, s, op, t->action[s][*at].micro, t->action[s][*at].chunk);
            ++*at;
            if (op == PIPELINE_F) done_f++;
            else done_b++;
        }
    }
    return less;
}

static double length(const PipelineTable *t, const PipelineTimes *times)
{
    PipelineTimeline line = play(t, times);
    double l = pipeline_time_length(&line);
    pipeline_time_free(&line);
    return l;
}

// What the second forward ahead is for: nothing while messages are free, and time when they are not.
TEST(test_ahead)
{
    for (int p = 2; p <= 4; p++) {
        PipelineTable *t = pipeline_table_make(PIPELINE_INTERLEAVED, p, 4 * p, 2), *less = less_ahead(t);
        assert_true(length(t, &(PipelineTimes){1, 1, 1, 0, 0}) == length(less, &(PipelineTimes){1, 1, 1, 0, 0}));
        assert_true(length(t, &(PipelineTimes){1, 1, 1, 0.25, 0}) < length(less, &(PipelineTimes){1, 1, 1, 0.25, 0}));
        pipeline_table_free(t), pipeline_table_free(less);
    }
}

// A table that lacks what a stage waits for, or has it too late: said, not crashed on. A short buffer is cut.
TEST(test_missing)
{
#define FIRST_F "stage 1 slot 0 (F of micro-batch 0, chunk 0) waits for an action that is not in the table"
    const struct {
        bool late;
        size_t size;
        const char *words;
    } rows[] = {{false, sizeof why, FIRST_F}, {false, 20, "stage 1 slot 0 (F o"},
                {true, sizeof why, "stage 0 slot 0 (B of micro-batch 0, chunk 0) waits for stage 0 slot 1 (F of "
                                   "micro-batch 0, chunk 0), which comes later there"}};
    for (int i = 0; i < 3; i++) {
        PipelineTimeline line;
        PipelineTable *t = pipeline_table_new(PIPELINE_USER, rows[i].late ? 1 : 2, 1, 1, false);
        if (rows[i].late) pipeline_table_add(t, 0, PIPELINE_B, 0, 0), pipeline_table_add(t, 0, PIPELINE_F, 0, 0);
        else pipeline_table_add(t, 1, PIPELINE_F, 0, 0);
        assert_false(pipeline_time_run(&line, t, &(PipelineTimes){1, 1, 1, 0, 0}, why, rows[i].size));
        assert_string_equal(why, rows[i].words);
        pipeline_time_free(&line);
        pipeline_table_free(t);
    }
}

TESTS(NULL, NULL)
