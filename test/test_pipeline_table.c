// pipeline_table: small schedules against ones written by hand; sizes that are refused; files as a person writes them,
// and every kind of invalid line. (Written and read again: test_fuzz.sh.)
#include "parallel/pipeline_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "test/test.h"

#include "expect_die.h"
#include "pipeline_case.h"
#include "temp_dir.h"

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

static int read_file(void *arg)
{
    pipeline_table_free(pipeline_table_read(arg));
    return 0;
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
        expect_die(read_file, in_dir("table.csv"), bad[i][1]);
    }
    unlink(in_dir("table.csv"));
    expect_die(read_file, in_dir("table.csv"), "cannot be read");
}

TESTS(temp_dir_make, temp_dir_remove)
