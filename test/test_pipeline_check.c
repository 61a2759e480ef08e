// pipeline_check: all published tables of up to 8 stages, 32 micro-batches and 4 chunks hold, with the
// activations and sends of the papers' formulas; tables with planted errors are refused with the right reason;
// peaks in bytes.
#include "parallel/pipeline_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/test.h"

#include "pipeline_case.h"

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

TESTS(NULL, NULL)
