// test_pipeline: tables of pipelines: small schedules by hand, files, tables with planted errors, published tables
// against the papers' formulas, and the time that each takes. (Written and read again: test_fuzz.sh.)
#include "test/test.h"

#include "parallel/pipeline_table.h"
#include "expect_die.h"
#include "temp_dir.h"
#include "parallel/pipeline_check.h"
#include "parallel/pipeline_time.h"

// Every size that is tested, and tables as words.
enum { CASE_STAGES = 8, CASE_MICRO = 32, CASE_CHUNKS = 4 };

// All published tables up to 8 stages, 32 micro-batches and 4 chunks; interleaved where it is defined.
// Returns how many.
static int each_table(void (*test)(const PipelineTable *t, void *arg), void *arg)
{
    int n = 0;
    for (int k = 0; k < PIPELINE_USER; k++)
        for (int p = 1; p <= CASE_STAGES; p++)
            for (int m = 1; m <= CASE_MICRO; m++)
                for (int v = 1; v <= CASE_CHUNKS; v++) {
                    bool loops = k == PIPELINE_INTERLEAVED;
                    if (loops ? v == 1 || m % p : v != pipeline_table_chunks((PipelineSchedule)k)) continue;
                    PipelineTable *t = pipeline_table_make((PipelineSchedule)k, p, m, v);
                    test(t, arg);
                    pipeline_table_free(t);
                    n++;
                }
    return n;
}

// A stage in words: "F0a F0b B0b B0a"; without the letters where there is one chunk.
static const char *words(const PipelineTable *t, int stage, char *out, size_t n_out)
{
    size_t n = 0;
    out[0] = 0;
    for (int i = 0; i < t->n[stage] && n + 1 < n_out; i++) {
        const PipelineAction *a = &t->action[stage][i];
        char chunk[2] = {t->v > 1 ? (char)('a' + a->chunk) : 0, 0};
        n += (size_t)snprintf(out + n, n_out - n, "%s%s%d%s", i ? " " : "", pipeline_table_op(a->op), a->micro,
                              chunk);
    }
    return out;
}

// ---- by hand

static void stage_is(const PipelineTable *t, int stage, const char *expected)
{
    char text[1024];
    assert_string_equal(words(t, stage, text, sizeof text), expected);
}

TEST(test_by_hand)
{
    static const struct {
        PipelineSchedule schedule;
        int p, m, v, stage;
        const char *words;
    } rows[] = {
        {PIPELINE_GPIPE, 2, 3, 0, 0, "F0 F1 F2 B0 B1 B2"}, {PIPELINE_GPIPE, 2, 3, 0, 1, "F0 F1 F2 B0 B1 B2"},
        {PIPELINE_1F1B, 2, 3, 0, 0, "F0 F1 B0 F2 B1 B2"}, {PIPELINE_1F1B, 2, 3, 0, 1, "F0 B0 F1 B1 F2 B2"},
        // fewer micro-batches than stages
        {PIPELINE_1F1B, 4, 2, 0, 0, "F0 F1 B0 B1"}, {PIPELINE_1F1B, 4, 2, 0, 2, "F0 F1 B0 B1"},
        {PIPELINE_1F1B, 4, 2, 0, 3, "F0 B0 F1 B1"},
        {PIPELINE_INTERLEAVED, 2, 4, 2, 0, "F0a F1a F0b F1b F2a B0b F3a B1b F2b B0a F3b B1a B2b B3b B2a B3a"},
        {PIPELINE_INTERLEAVED, 2, 4, 2, 1, "F0a F1a F0b B0b F1b B1b F2a B0a F3a B1a F2b B2b F3b B3b B2a B3a"},
        {PIPELINE_ZB_H1, 2, 3, 0, 0, "F0 F1 B0 W0 F2 B1 W1 B2 W2"},
        {PIPELINE_ZB_H1, 2, 3, 0, 1, "F0 B0 F1 B1 W0 F2 B2 W1 W2"},
        {PIPELINE_ZB_V, 2, 3, 0, 0, "F0a F1a F2a F0b B0b W0b F1b B1b B0a W1b W0a F2b B2b B1a W2b B2a W1a W2a"},
        {PIPELINE_ZB_V, 2, 3, 0, 1, "F0a F0b F1a F1b B0b B0a W0b W0a F2a F2b B1b B1a B2b B2a W1b W1a W2b W2a"},
        // The building block has F0a F0b B0b B0a at 0 4 5 13 on stage 0 and at 2 3 7 12 on stage 1.
        {PIPELINE_V_HALF, 2, 3, 0, 0, "F0a F0b B0b F1a W0b F1b B1b F2a B0a W1b W0a F2b B2b B1a W2b B2a W1a W2a"},
        {PIPELINE_V_HALF, 2, 3, 0, 1, "F0a F0b B0b F1a F1b B0a W0b B1b W0a F2a F2b B1a W1b B2b B2a W1a W2b W2a"},
        {PIPELINE_V_MIN, 2, 3, 0, 0, "F0a F0b B0b F1a W0b B0a W0a F1b B1b F2a W1b B1a W1a F2b B2b W2b B2a W2a"},
        {PIPELINE_V_MIN, 2, 3, 0, 1, "F0a F0b B0b B0a F1a F1b W0b W0a B1b B1a F2a F2b W1b W1a B2b B2a W2b W2a"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        PipelineTable *t = pipeline_table_make(rows[i].schedule, rows[i].p, rows[i].m, rows[i].v);
        stage_is(t, rows[i].stage, rows[i].words);
        pipeline_table_free(t);
    }
}

// ---- refusals

typedef struct {
    PipelineSchedule schedule;
    int p, m, v;
    const char *words;
} Refusal;

static int make(void *arg)
{
    const Refusal *r = arg;
    pipeline_table_free(pipeline_table_make(r->schedule, r->p, r->m, r->v));
    return 0;
}

TEST(test_refusals)
{
    Refusal refusal[] = {
        {PIPELINE_GPIPE, 65, 1, 0, "65 stages (1 to 64)"}, {PIPELINE_GPIPE, 0, 1, 0, "0 stages"},
        {PIPELINE_1F1B, 4, 1025, 0, "1025 micro-batches (1 to 1024)"},
        {PIPELINE_1F1B, 4, 8, 2, "1f1b: 2 chunks a stage (it has 1"},
        {PIPELINE_ZB_V, 4, 8, 3, "zb-v: 3 chunks a stage (it has 2"},
        {PIPELINE_INTERLEAVED, 4, 8, 1, "take 2 or more, or the schedule 1f1b"},
        {PIPELINE_INTERLEAVED, 4, 8, 17, "17 chunks a stage (1 to 16)"},
        {PIPELINE_INTERLEAVED, 4, 3, 2, "3 micro-batches on 4 stages: fewer than stages"},
        {PIPELINE_INTERLEAVED, 4, 10, 2, "take 8 or 12 micro-batches"},
    };
    for (size_t i = 0; i < sizeof refusal / sizeof *refusal; i++) expect_die(make, &refusal[i], refusal[i].words);
    Refusal most = {PIPELINE_ZB_V, 64, 1024, 0, ""};
    assert_int_equal(make(&most), 0);
}

// ---- files

// As a person writes it: comments, blanks, Windows line ends, any order of lines, gaps between slots.
TEST(test_by_a_person)
{
    put_text("table.csv", "# mine\r\n\r\nstage, slot, action, micro, chunk\r\n"
        "1,10,F,0,0\r\n 1 , 20 , B , 0 , 0\r\n0,900,B,0,0\n0,5,F,0,0");
    PipelineTable *t = pipeline_table_read(in_dir("table.csv"));
    assert_true(t->p == 2 && t->m == 1 && t->v == 1 && !t->split);
    stage_is(t, 0, "F0 B0");
    stage_is(t, 1, "F0 B0");
    assert_true(t->action[0][1].slot == 900 && t->action[1][0].slot == 10);
    pipeline_table_free(t);
    put_text("table.csv", "stage,slot,action,micro,chunk\n0,0,F,0,0\n0,1,B,0,0\n0,2,W,0,0\n1,0,F,0,0\n1,1,B,0,0\n");
    t = pipeline_table_read(in_dir("table.csv")); // one W anywhere: it splits, and the checker will miss the other
    assert_true(t->split);
    pipeline_table_free(t);
}

TEST(test_bad_files)
{
#define H "stage,slot,action,micro,chunk\n"
#define HP "stage,slot,action,micro,chunk,piece\n"
    const char *const bad[][2] = {
        {"", "no action in it"}, {H, "no action in it"},
        {"0,0,F,0,0\n", "table.csv:1: '0,0,F,0,0' (the first line is stage,slot,action,micro,chunk"},
        {"stage,slot,op,micro,chunk\n", "table.csv:1: 'stage,slot,op"}, {H "0,0,F,0\n", "table.csv:2: 4 fields (5:"},
        {H "0,0,F,0,0,0\n", "table.csv:2: 6 fields (5:"},
        {H "0,0,F,0,0,0,0,0,0\n", "table.csv:2: 7 fields or more (5:"},
        {H "\n# x\n0,0,f,0,0\n", "table.csv:4: action: 'f' (F, B or W)"},
        {H "0,0,FB,0,0\n", "table.csv:2: action: 'FB'"},
        {H "-1,0,F,0,0\n", "table.csv:2: stage: '-1' (a whole number from 0 to 63)"},
        {H "64,0,F,0,0\n", "table.csv:2: stage: '64'"}, {H "0,,F,0,0\n", "table.csv:2: slot: ''"},
        {H "0,0.5,F,0,0\n", "table.csv:2: slot: '0.5'"},
        {H "0,99999999999999999999,F,0,0\n", "table.csv:2: slot: '9999"},
        {H "0,0,F,1024,0\n", "table.csv:2: micro: '1024' (a whole number from 0 to 1023)"},
        {H "0,0,F,0,16\n", "table.csv:2: chunk: '16' (a whole number from 0 to 15)"},
        {H "0,3,F,0,0\n0,3,B,0,0\n", "table.csv:3: slot 3 of stage 0 is taken by line 2"},
        {H "0,0,F,0,0\n2,0,F,0,0\n", "no action of stage 1, but line 3 is of stage 2"},
        {HP "0,0,F,0,0\n", "table.csv:2: 5 fields (6:"},
        {HP "0,0,F,0,0,0\n0,1,F,0,1,2\n", "table.csv:3: piece: 2 (1 stages with 2 chunks hold pieces 0 to 1)"},
        {HP "0,0,F,0,0,0\n0,1,F,0,1,0\n", "table.csv:3: piece: 0 is also chunk 0 of stage 0"},
        {HP "0,0,F,0,0,0\n0,1,B,0,0,1\n0,2,F,0,1,1\n",
         "table.csv:3: piece: 1, but stage 0 has piece 0 as its chunk 0"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put_text("table.csv", bad[i][0]);
        expect_dies(bad[i][1], pipeline_table_free(pipeline_table_read(in_dir("table.csv"))));
    }
    unlink(in_dir("table.csv"));
    expect_dies("cannot be read", pipeline_table_free(pipeline_table_read(in_dir("table.csv"))));
}

// ---- pipeline check: all published tables of up to 8 stages, 32 micro-batches and 4 chunks hold, with
// the activations and sends of the papers' formulas; tables with planted errors are refused with the right reason;
// peaks in bytes.

// By the papers' text. In a V: of the stage that holds most.
static int expected_peak(const PipelineTable *t, int s)
{
    int p = t->p, m = t->m, v = t->v, n = m * v;
    if (t->schedule == PIPELINE_1F1B) n = p - s;
    if (t->schedule == PIPELINE_ZB_H1) n = p;
    if (t->schedule == PIPELINE_ZB_V) n = 2 * p;
    if (t->schedule == PIPELINE_V_HALF) n = 2 * ((p + 2) / 2);
    if (t->schedule == PIPELINE_V_MIN) n = 2 * ((p + 4) / 3);
    if (t->schedule == PIPELINE_INTERLEAVED) n = p * (v - 1) + 2 * (p - s) - 1;
    return n < m * v ? n : m * v;
}

static void holds(const PipelineTable *t, void *arg)
{
    char why[1024] = "";
    PipelineProof proof;
    (void)arg;
    int all_sent = 0, most = 0;
    if (!pipeline_check(t, &proof, why, sizeof why)) fail_msg("%s: %s", pipeline_table_name(t->schedule), why);
    for (int s = 0; s < t->p; s++) {
        int held = t->split ? proof.held[s] : proof.active[s];
        if (held > most) most = held;
        if (!pipeline_table_is_vee(t->schedule)) assert_int_equal(held, expected_peak(t, s));
        assert_true(t->split ? proof.active[s] <= proof.held[s] : proof.active[s] == proof.held[s]);
        if (t->schedule == PIPELINE_ZB_H1) // F to B alone: as 1f1b
            assert_int_equal(proof.active[s], t->m < t->p - s ? t->m : t->p - s);
        all_sent += proof.sent[s];
    }
    if (pipeline_table_is_vee(t->schedule)) assert_int_equal(most, expected_peak(t, 0));
    // Every border between two pieces is crossed twice a micro-batch; the bottom of the V is no border
    // between stages.
    int borders = t->p * t->v - 1;
    if (t->p == 1) borders = 0;
    else if (pipeline_table_is_vee(t->schedule)) borders--;
    assert_int_equal(all_sent, 2 * t->m * borders);
}

TEST(test_all)
{
    int n = 0;
    for (int v = 2; v <= CASE_CHUNKS; v++)
        for (int p = 1; p <= CASE_STAGES; p++) n += CASE_MICRO / p;
    assert_int_equal(each_table(holds, NULL), 6 * CASE_STAGES * CASE_MICRO + n);
}

// The V schedules, whose orders come from a search for the shortest pause: every number of stages.
TEST(test_vees)
{
    for (int k = PIPELINE_ZB_V; k <= PIPELINE_V_MIN; k++)
        for (int p = CASE_STAGES + 1; p <= PIPELINE_MAX_STAGES; p++) {
            const int micro[] = {1, 3, p / 2 + 1, p};
            for (int i = 0; i < 4; i++) {
                PipelineTable *t = pipeline_table_make((PipelineSchedule)k, p, micro[i], 0);
                holds(t, NULL);
                pipeline_table_free(t);
            }
        }
}

// What the engine has room for: chunks have slots of their own, so the sum of their peaks counts. In the Vs it is the
// peak of both together, or one more.
TEST(test_slots)
{
    const size_t first[2] = {1, 0}, second[2] = {0, 1}, both[2] = {1, 1};
    for (int k = PIPELINE_ZB_V; k <= PIPELINE_V_MIN; k++)
        for (int p = 2; p <= 16; p++) {
            PipelineTable *t = pipeline_table_make((PipelineSchedule)k, p, 4 * p, 0);
            size_t slots = 0, most = 0;
            for (int s = 0; s < p; s++) {
                size_t sum = pipeline_check_peak(t, s, first, first) + pipeline_check_peak(t, s, second, second);
                size_t held = pipeline_check_peak(t, s, both, both);
                if (sum > slots) slots = sum;
                if (held > most) most = held;
            }
            assert_true(slots <= most + (k != PIPELINE_ZB_V));
            pipeline_table_free(t);
        }
}

// ---- wrong tables

static int find(const PipelineTable *t, int stage, PipelineOp op, int micro, int chunk)
{
    int *index = pipeline_table_index(t), i = index[pipeline_table_key(t, stage, op, micro, chunk)];
    free(index);
    assert_true(i >= 0);
    return i;
}

static void drop_action(PipelineTable *t, int stage, PipelineOp op, int micro, int chunk)
{
    int i = find(t, stage, op, micro, chunk);
    memmove(t->action[stage] + i, t->action[stage] + i + 1, (size_t)(t->n[stage] - i - 1) * sizeof **t->action);
    t->n[stage]--;
}

static void swap(PipelineTable *t, int stage, int i, int j)
{
    PipelineAction a = t->action[stage][i], b = t->action[stage][j];
    t->action[stage][i] = b, t->action[stage][j] = a;
    t->action[stage][i].slot = a.slot, t->action[stage][j].slot = b.slot;
}

// second NULL: the reason is all that is said.
static void refuse(PipelineTable *t, const char *reason, const char *second)
{
    char why[1024] = "";
    PipelineProof proof;
    assert_false(pipeline_check(t, &proof, why, sizeof why));
    if (second ? !strstr(why, reason) || !strstr(why, second) : strcmp(why, reason))
        fail_msg("expected '%s' and '%s', got '%s'", reason, second ? second : "nothing else", why);
    assert_null(strchr(why, '\n'));
    pipeline_table_free(t);
}

static PipelineTable *of(PipelineSchedule schedule)
{
    return pipeline_table_make(schedule, 4, 8, 0);
}

TEST(test_counts)
{
    PipelineTable *t = of(PIPELINE_1F1B); // F twice
    pipeline_table_add(t, 2, PIPELINE_F, 3, 0);
    refuse(t, "stage 2 slot 16: F of micro-batch 3, chunk 0: a second time; the first is in slot 5", "");
    t = of(PIPELINE_GPIPE); // B dropped
    drop_action(t, 3, PIPELINE_B, 7, 0);
    refuse(t, "stage 3: no B of micro-batch 7, chunk 0", "");
    t = of(PIPELINE_ZB_H1); // W dropped
    drop_action(t, 3, PIPELINE_W, 4, 0);
    refuse(t, "stage 3: no W of micro-batch 4, chunk 0", "");
    t = of(PIPELINE_ZB_V); // the W of one chunk done for the other
    t->action[1][find(t, 1, PIPELINE_W, 3, 0)].chunk = 1;
    refuse(t, "stage 1 slot", "W of micro-batch 3, chunk 1: a second time");
    t = of(PIPELINE_1F1B); // W where B has it already
    pipeline_table_add(t, 1, PIPELINE_W, 0, 0);
    refuse(t, "stage 1 slot 16: W of micro-batch 0, chunk 0: but B includes W", "");
    t = of(PIPELINE_1F1B);
    t->action[0][3].micro = 8;
    refuse(t, "stage 0 slot 3: F of micro-batch 8, chunk 0: there is no such micro-batch", "");
    t = of(PIPELINE_INTERLEAVED);
    t->action[3][5].chunk = 2;
    refuse(t, "stage 3 slot 5: ", "there is no such chunk");
    t = of(PIPELINE_ZB_V); // two stages with the same layers
    t->piece[2][1] = t->piece[1][1];
    refuse(t, "piece 5 of the model is on no stage (4 stages with 2 chunks hold pieces 0 to 7, each once)", "");
}

TEST(test_orders)
{
    PipelineTable *t = of(PIPELINE_1F1B); // B before its F
    swap(t, 3, 0, 1);
    refuse(t, "stage 3 slot 0: B of micro-batch 0, chunk 0: before its F, which is in slot 1", "");
    t = of(PIPELINE_ZB_H1); // W before its B
    swap(t, 0, find(t, 0, PIPELINE_B, 2, 0), find(t, 0, PIPELINE_W, 2, 0));
    refuse(t, "W of micro-batch 2, chunk 0: before its B", "");
    t = of(PIPELINE_INTERLEAVED); // chunks swapped in the backward of all stages
    for (int s = 0; s < t->p; s++)
        for (int i = 0; i < t->n[s]; i++)
            if (t->action[s][i].op == PIPELINE_B) t->action[s][i].chunk = 1 - t->action[s][i].chunk;
    refuse(t, "B of micro-batch 0, chunk 0", "waits for"); // the last layers' gradient is wanted before it is made
    t = of(PIPELINE_ZB_V); // the V's order with the loop's places
    for (int s = 0; s < t->p; s++) t->piece[s][1] = t->p + s;
    refuse(t, "waits for", "a circle");
    t = pipeline_table_new(PIPELINE_USER, 2, 2, 1, false); // each stage is right alone, and they wait for each other
    const PipelineOp op[2][4] = {{PIPELINE_F, PIPELINE_B, PIPELINE_F, PIPELINE_B},
                                 {PIPELINE_F, PIPELINE_F, PIPELINE_B, PIPELINE_B}};
    const int micro[2][4] = {{0, 0, 1, 1}, {0, 1, 0, 1}};
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < 4; i++) pipeline_table_add(t, s, op[s][i], micro[s][i], 0);
    refuse(t, "stage 0 slot 1 (B of micro-batch 0, chunk 0) waits for stage 1 slot 2 (B of micro-batch 0, chunk 0); "
              "stage 1 slot 1 (F of micro-batch 1, chunk 0) waits for stage 0 slot 2", "a circle, nothing moves");
    t = pipeline_table_new(PIPELINE_USER, 1, 1, 2, false); // a stage that waits for itself
    pipeline_table_add(t, 0, PIPELINE_F, 0, 1), pipeline_table_add(t, 0, PIPELINE_F, 0, 0);
    pipeline_table_add(t, 0, PIPELINE_B, 0, 1), pipeline_table_add(t, 0, PIPELINE_B, 0, 0);
    refuse(t, "stage 0 slot 0 (F of micro-batch 0, chunk 1) waits for stage 0 slot 1 (F of micro-batch 0, chunk 0), "
              "which comes later there", NULL);
}

// ---- bytes

static size_t peak(PipelineSchedule schedule, int p, int m, int stage, const size_t full[2], const size_t kept[2])
{
    PipelineTable *t = pipeline_table_make(schedule, p, m, 0);
    size_t n = pipeline_check_peak(t, stage, full, kept);
    pipeline_table_free(t);
    return n;
}

TEST(test_bytes)
{
    const size_t full[2] = {10, 3}, kept[2] = {4, 1}, more[2] = {12, 0};
    assert_int_equal(peak(PIPELINE_ZB_V, 1, 1, 0, full, kept), 13);  // F0a 10, F0b 13, B0b 11, ...
    assert_int_equal(peak(PIPELINE_ZB_H1, 2, 2, 1, full, kept), 14); // F0 10, B0 4, F1 14, B1 8, ...
    assert_int_equal(peak(PIPELINE_ZB_H1, 2, 2, 1, full, more), 24); // F0 10, B0 12, F1 22, B1 24, ...
    assert_int_equal(peak(PIPELINE_1F1B, 2, 3, 0, full, more), 20);  // no W: nothing is kept
}

// ---- pipeline time: small timelines by hand; every timeline is valid, and no action could begin
// earlier; lengths and bubbles are those of the papers, to the bit; a stage that waits for ever is named.

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

TEST(test_time_by_hand)
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

TESTS(temp_dir_make, temp_dir_remove)
