// pipeline_draw and build/show pipeline: the grid, letter by letter; every mark of the picture is at its time;
// the trace has the shape that Perfetto opens; the program's summary, files and refusals.
#include "src/check/pipeline_draw.h"

#include <jansson.h>

#include "test/test.h"

#define PROGRAM "show"
#define PART "pipeline"
#include "program.h"

static PipelineTimeline play(PipelineSchedule schedule, int p, int m, int v, const PipelineTimes *times)
{
    char why[256];
    PipelineTable *t = pipeline_table_make(schedule, p, m, v);
    PipelineTimeline line;
    assert_true(pipeline_time_run(&line, t, times, why, sizeof why));
    pipeline_table_free(t);
    return line;
}

static void draws(PipelineTimeline line, const char *expected)
{
    char *text = PRINTED(f, pipeline_draw_text(&line, f));
    assert_string_equal(text, expected);
    assert_int_equal(strcspn(text, "\n"), pipeline_draw_columns(&line));
    free(text);
    pipeline_time_free(&line);
}

TEST(test_text)
{
    draws(play(PIPELINE_1F1B, 2, 3, 0, &(PipelineTimes){1, 1, 1, 0, 0}),
          "stage 0   |F0 F1       B0--- F2 B1---    B2--- |\n"
          "stage 1   |   F0 B0--- F1 B1--- F2 B2---       |\n");
    draws(play(PIPELINE_1F1B, 2, 2, 0, &(PipelineTimes){2, 2, 1, 0, 0}), // the unit is 1: no action is so short
          "stage 0   |F0--- F1---          B0------       B1------ |\n"
          "stage 1   |      F0--- B0------ F1--- B1------          |\n");
    draws(play(PIPELINE_ZB_V, 1, 1, 0, &(PipelineTimes){1, 1, 1, 0, 0}), "stage 0   |F0a F0b B0b B0a W0b W0a |\n");
    draws(play(PIPELINE_ZB_H1, 1, 1, 0, &(PipelineTimes){1, 2, 0, 0, 0}), "stage 0   |F0 B0--- |\n"); // W takes no time
    // A chunk of three lasts 1/3 and 2/3, which no sum of doubles hits; the drawing is that of 1 and 2.
    PipelineTimeline thirds = play(PIPELINE_INTERLEAVED, 3, 6, 3, &(PipelineTimes){1.0 / 3, 1.0 / 3, 1.0 / 3, 0, 0});
    PipelineTimeline whole = play(PIPELINE_INTERLEAVED, 3, 6, 3, &(PipelineTimes){1, 1, 1, 0, 0});
    char *text = PRINTED(f, pipeline_draw_text(&whole, f));
    draws(thirds, text);
    free(text);
    pipeline_time_free(&whole);
}

// Times of no common unit, as a run has them: rounded to the shortest action, in order, nothing lost.
TEST(test_measured)
{
    PipelineSpan span[3] = {{0, {PIPELINE_F, 0, 0, 0}, 5.01, 6.07, 0}, {0, {PIPELINE_F, 1, 0, 1}, 6.08, 7.131, 0},
                            {0, {PIPELINE_B, 0, 0, 2}, 9.2, 11.3007, 0}};
    PipelineTimeline line = {.p = 1, .span = span, .begin = {0, 3}};
    char *text = PRINTED(f, pipeline_draw_text(&line, f));
    assert_string_equal(text, "stage 0   |F0 F1       B0--- |\n");
    free(text);
}

TEST(test_picture)
{
    PipelineTimeline line = play(PIPELINE_ZB_V, 2, 4, 0, &(PipelineTimes){1, 2, 1, 0, 0});
    pipeline_draw_svg(&(PipelineDrawing){"a<b", NULL, &line}, 1, "ms", in_dir("one.svg"));
    char *text = take_file("one.svg", NULL);
    assert_int_equal(count_of(text, "<rect"), 1 + 6 + (int)line.begin[2]); // page, legend, actions
    assert_int_equal(count_of(text, "a&lt;b"), 1);
    // The actions in the order of their spans: 864 pixels are the whole length, the first one stands at 76.
    const char *at = text;
    for (int skip = 0; skip < 7; skip++) at = strstr(at, "<rect") + 5;
    double scale = 864 / pipeline_time_length(&line);
    for (size_t i = 0; i < line.begin[2]; i++) {
        double x, y, w;
        at = strstr(at, "<rect") + 5;
        assert_int_equal(sscanf(at, " x=\"%lf\" y=\"%lf\" width=\"%lf\"", &x, &y, &w), 3);
        assert_true(fabs(x - (76 + line.span[i].start * scale)) <= 0.005001); // two decimals
        assert_true(fabs(w + 0.8 - (line.span[i].end - line.span[i].start) * scale) <= 0.005001); // 0.8: a gap
        assert_true(fabs(y - (66 + 28 + 1 + 20 * line.span[i].stage)) <= 0.05);
    }
    free(text);
    pipeline_time_free(&line);
}

static double real_of(const json_t *event, const char *key)
{
    const json_t *value = json_object_get(event, key);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

TEST(test_trace)
{
    PipelineTimeline line = play(PIPELINE_ZB_V, 2, 4, 0, &(PipelineTimes){0.33305, 2, 1, 0, 0}); // 333.050 us
    size_t n, spans = line.begin[2], k = 0, names = 0;
    pipeline_draw_trace(&line, 1000, in_dir("trace.json"));
    char *text = take_file("trace.json", &n);
    json_error_t error;
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error), *event;
    assert_non_null(root);
    assert_string_equal(json_string_value(json_object_get(root, "displayTimeUnit")), "ms");
    size_t i;
    json_array_foreach(json_object_get(root, "traceEvents"), i, event) {
        const char *ph = json_string_value(json_object_get(event, "ph"));
        assert_true(json_is_integer(json_object_get(event, "pid")) && json_is_integer(json_object_get(event, "tid")));
        const json_t *args = json_object_get(event, "args");
        if (!strcmp(ph, "M")) {
            names += !strcmp(json_string_value(json_object_get(event, "name")), "thread_name");
            assert_non_null(json_string_value(json_object_get(args, "name")));
            continue;
        }
        assert_string_equal(ph, "X"); // a complete event: ts and dur, microseconds
        assert_true(k < spans);
        const PipelineSpan *s = &line.span[k++];
        char *name = formatted("%s%d", pipeline_table_op(s->action.op), s->action.micro);
        const char *got[] = {json_string_value(json_object_get(event, "name")),
                             json_string_value(json_object_get(event, "cat"))};
        assert_true(!strcmp(got[0], name) && !strcmp(got[1], pipeline_table_op(s->action.op)));
        assert_int_equal(json_integer_value(json_object_get(event, "tid")), s->stage);
        assert_true(fabs(real_of(event, "ts") - 1000 * s->start) <= 0.000501); // whole nanoseconds
        assert_true(fabs(real_of(event, "dur") - 1000 * (s->end - s->start)) <= 0.000501);
        assert_true(real_of(args, "micro") == s->action.micro && real_of(args, "chunk") == s->action.chunk);
    }
    assert_true(k == spans && names == 2);
    json_decref(root);
    free(text);
    pipeline_time_free(&line);
}

// ---- the program

TEST(test_program)
{
    expect_run("1f1b --stages 4 --micro 8", 0,
               "\n1f1b: 4 stages, 8 micro-batches, 1 chunk: length 33 (formula 33), bubble 0.2727 (formula "
               "0.2727), between a stage's first and last action 0.2727, activations 4 (formula 4)\n");
    says("stage 3   |         F0 B0--- F1 B1---");
    expect_run("interleaved --stages 4 --micro 8 --chunks 4 --times 1,1,1", 0,
               "length 26.25 (formula 26.25), bubble 0.08571 (formula 0.08571)"); // 3 / (32 + 3)
    expect_run("zb-v --stages 4 --micro 8 --check --csv v.csv", 0,
               "proved: 192 actions, each once, in an order that ends\n");
    says("    3  3,4                48        8        8       16   0.0588");
    says("first and last action 0, activations 4 (formula 4)");
    assert_int_equal(run("zb-v --stages 2 --micro 3 --csv mine.csv >a && sed -i /formula/d a"), 0);
    assert_int_equal(run("mine.csv --stages 2 --micro 3 --svg b.svg --trace b.json >b"), 0);
    assert_int_equal(run("compare --stages 4 --micro 6"), 0); // 6 is no multiple of 4: interleaved is left out
    says("| zb-h1 | 1 | 21 | 0.1429 | 0.1429 | 0.1429 | 4 | 4 | 36 |");
    assert_true(!strstr(output, "interleaved"));
    expect_run("gpipe --stages 8 --micro 500", 0, "columns wide: --svg FILE draws it");
    char *a = take_file("a", NULL), *b = take_file("b", NULL);
    assert_memory_equal(a, b, strlen(a)); // the same grid from the file
    assert_non_null(strstr(b, "mine.csv: 2 stages, 3 micro-batches, 2 chunks: length 9.5, bubble"));
    free(a), free(b);
}

// The summary's formulas against what was simulated, wherever there is one; where there is none, none is said.
TEST(test_program_formulas)
{
    const struct {
        const char *schedule;
        int p, m;
        bool known; // the length; what is held always is
    } is[] = {
        {"gpipe", 3, 5, true},   {"1f1b", 5, 3, true},    {"interleaved", 3, 9, true}, {"zb-h1", 4, 6, true},
        {"zb-h1", 4, 3, false},  {"zb-v", 5, 5, true},    {"zb-v", 5, 4, false},       {"v-half", 6, 4, true},
        {"v-half", 6, 3, false}, {"v-half", 2, 8, false}, {"v-half", 7, 9, true},      {"v-min", 4, 1, true},
        {"v-min", 6, 1, false},  {"v-min", 6, 9, true},   {"v-min", 7, 9, true},       {"v-min", 1, 9, false},
    };
    for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
        double x = 0, formula = -1;
        char *arguments = formatted("%s --stages %d --micro %d", is[i].schedule, is[i].p, is[i].m);
        expect_run(arguments, 0, "bubble ");
        for (int k = 0; k < 3; k++) {
            static const char *const what[] = {": length ", ", bubble ", ", activations "};
            bool known = sscanf(strstr(output, what[k]) + strlen(what[k]), "%lf (formula %lf)", &x, &formula) == 2;
            if (known != (is[i].known || k == 2) || (known && x != formula)) fail_msg("%s: %s", arguments, output);
        }
    }
    assert_int_equal(run("v-half --stages 4 --micro 8 --times 1,2,1 >/dev/null"), 0); // not where B takes longer
    assert_int_equal(run("v-half --stages 4 --micro 8 --times 1,2,1 | sed -n '/length.*formula.*bubble/p'"), 0);
    assert_string_equal(output, "");
}

// By hand, gpipe with an exchange as long as F: the first micro-batch's F on stage 0 and its B on stage 1 are waited
// for, and the last B's exchange; the others run beside the next F or B.
TEST(test_program_exchange)
{
    expect_run("exchange --stages 2 --micro 2 --exchange 1", 0, "| gpipe | 2 | 9 | 15 | 12 | 3 | 50% |");
    says("| v-min | 2 |");
    assert_int_equal(run("exchange --stages 4 --micro 6 --exchange 0.5 --times 1,1,1"), 0); // 6 is no multiple of 4
    assert_true(!strstr(output, "interleaved"));
    assert_int_equal(run("v-min --stages 4 --micro 8 --exchange 1"), 0); // the formulas are for none
    says("length 56, bubble 0.5714, ");
}

TEST(test_program_refuses)
{
    const struct {
        const char *arguments;
        int status;
        const char *words;
    } bad[] = {
        {"", 2, "which schedule? (try --help)"}, {"1f1b", 2, "1f1b needs --stages and --micro"},
        {"2f2b --stages 2 --micro 2", 2, "no schedule '2f2b'"},
        {"1f1b --stages 65 --micro 2", 2, "--stages 65 (1 to 64)"}, {"1f1b --stages 2x --micro 2", 2, "--stages 2x"},
        {"1f1b --stages 2 --micros 2", 2, "no option '--micros'"},
        {"1f1b --stages 2 --micro", 2, "--micro: unknown, or without a value"},
        {"1f1b --stages 2 --micro 2 --times 1,1", 2, "--times 1,1 ("},
        {"1f1b --stages 2 --micro 2 --times 1,1,1,0,5", 2, "--times 1,1,1,0,5 ("},
        {"1f1b --stages 2 --micro 2 --times 1,-1,1", 2, "--times 1,-1,1 ("},
        {"1f1b --stages 2 --micro 2 --times 1,1,1x", 2, "--times 1,1,1x ("},
        {"1f1b --stages 2 --micro 2 --times 0,1,1", 2, "F and B above 0"},
        {"exchange --stages 2 --micro 2", 2, "exchange needs --stages, --micro and --exchange"},
        {"exchange --stages 2 --micro 2 --exchange 0", 2, "--exchange 0 (a time above 0)"},
        {"exchange --stages 2 --micro 2 --exchange 1x", 2, "--exchange 1x (a time above 0)"},
        {"exchange --stages 2 --micro 2 --exchange 1 --check", 2, "are for one schedule"},
        {"interleaved --stages 4 --micro 6", 1, "take 4 or 8 micro-batches"},
        {"none.csv", 1, "none.csv: cannot be read"}, {"v.csv --micro 9", 1, "v.csv: the table has 8, not --micro 9"},
        {"wrong.csv", 1, "wrong.csv: stage 0 slot 0: B of micro-batch 0, chunk 0: before its F, which is in slot 1"},
        {"1f1b --stages 2 --micro 2 --svg no/such.svg", 1, "no/such.svg"},
    };
    put_text("wrong.csv", "stage,slot,action,micro,chunk\n0,0,B,0,0\n0,1,F,0,0\n");
    assert_int_equal(run("zb-v --stages 4 --micro 8 --csv v.csv"), 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        expect_run(bad[i].arguments, bad[i].status, bad[i].words);
        says("error: ");
    }
}

TESTS(program_set_up, temp_dir_remove)
