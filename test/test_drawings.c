// drawings: what build/show collectives, mesh, tp, zero and draw draw is well-formed and has the right
// marks, counted by hand for small groups. (The programs check their data themselves before they draw.)
// deeper: the time lines of two real ranks

#include "test/test.h"

#include "tags.h"

#define PROGRAM "show"
#define PART "collectives"
#include "program.h"

static char *picture(const char *arguments)
{
    assert_int_equal(run(formatted("%s x.svg", arguments)), 0);
    char *text = take_file("x.svg", NULL);
    assert_int_equal(unlink(in_dir("x.svg")), 0);
    check_tags(text);
    assert_true(!strstr(text, "nan") && !strstr(text, "inf"));
    return text;
}

// A text, and how often a picture has it.
typedef struct {
    const char *text;
    int times;
} Said;

static void check_said(const char *picture, const Said *said)
{
    for (; said->text; said++)
        if (count_of(picture, said->text) != said->times)
            fail_msg("%s: %d times, should be %d", said->text, count_of(picture, said->text), said->times);
}

// What the picture of these arguments says.
static void draws(const char *arguments, const Said *said)
{
    char *text = picture(arguments);
    assert_true(strlen(text) < 60000);
    check_said(text, said);
    free(text);
}
#define DRAWS(arguments, ...) draws(arguments, (const Said[]){__VA_ARGS__, {NULL, 0}})

TEST(test_collectives)
{
    // Four ranks with four shards each, one row more than steps. Shards that are whole after each step, and messages:
    // ring     0 0 4 8 12 16, 4 a step;   halving  0 4 8 16, 4 a step;   tree  0 4 8 16, 2 1 1 2;
    // direct   0 0 4 8 12 16, 4 a step
    static const struct {
        const char *draw;
        int rows, whole, messages;
    } CASE[] = {{"draw ring 4", 7, 40, 24}, {"draw halving 4", 5, 28, 16}, {"draw tree 4", 5, 28, 6},
                {"draw direct 4", 7, 40, 24},
                {"draw hierarchical 4", 5, 28, 16}, {"draw ring,halving 4", 12, 68, 40}};
    part = "collectives";
    for (size_t i = 0; i < sizeof CASE / sizeof *CASE; i++)
        DRAWS(CASE[i].draw, {"class=\"whole\"", CASE[i].whole}, {"class=\"arrow\"", CASE[i].messages},
              {"class=\"part\"", CASE[i].rows * 16 - CASE[i].whole});
    free(picture("draw halving 7")); // three of them lend their vector first
    free(picture("draw tree 8"));
    free(picture("draw ring 2"));
}

TEST(test_mesh)
{
    // RANKS, options, frames of tp groups, links of cp and pp, links of dp in the last stage
    static const struct {
        const char *draw;
        int tp, cp, pp, dp, ranks, ep;
    } CASE[] = {{"16 --pp 2 --cp 2 --tp 2 --svg", 8, 8, 8, 4, 16, 1}, {"12 --pp 3 --tp 2 --svg", 6, 0, 8, 2, 12, 1},
                {"4 --ep 2 --svg", 4, 0, 0, 3, 4, 2}, {"1 --svg", 1, 0, 0, 0, 1, 1}};
    part = "mesh";
    for (size_t i = 0; i < sizeof CASE / sizeof *CASE; i++)
        DRAWS(CASE[i].draw, {"class=\"tp\"", CASE[i].tp}, {"class=\"cp\"", CASE[i].cp}, {"class=\"pp\"", CASE[i].pp},
              {"class=\"dp\"", CASE[i].dp},
              // each rank: one part of the model and two chunks of the sequence; and one box of each in the legend
              {"fill=\"#2563a8\"/>", CASE[i].ranks + 1}, {"fill=\"#d1571b\"/>", 2 * CASE[i].ranks + 1},
              {"fill=\"#2f7d4f\"/>", CASE[i].ep > 1 ? CASE[i].ranks + 1 : 0}); // and one part of the experts
}

// A drawing of every rank: each tensor of a block once a panel, whole and what the rank has of it; and the stream
// thrice.
TEST(test_tp)
{
    part = "tp";
    for (int ranks = 2; ranks <= 4; ranks *= 2) {
        char *command = formatted("tiny %d --svg", ranks);
        DRAWS(command, {"fill=\"none\" stroke=\"#b8c0c8\"/>", 2 * ranks * (8 + 3)}, // two panels
              {"opacity=\"0.35\"", 2 * ranks * 2}, {"opacity=\"0.9\"", 2 * ranks * 6}); // two norms, whole
    }
}

// The time line of real ranks. A model of 8 units: 8 forwards (the head's too) and 8 backwards a step.
TEST(test_timeline)
{
    part = "zero";
    if (!deeper()) skip();
    for (int stage = 0; stage <= 3; stage += 3) {
        char command[1200];
        snprintf(command, sizeof command,
                 "cd '%s' && export OMP_NUM_THREADS=1 && launcher=$(command -v mpiexec.mpich || command -v mpiexec || "
                 "ls /usr/lib64/mpich/bin/mpiexec) && timeout 300 $launcher -n 2 '%s' zero timeline %d t.svg </dev/null",
                 dir, program, stage);
        assert_int_equal(system(command), 0);
        char *text = take_file("t.svg", NULL);
        check_tags(text);
        // Forward, backward and update of the naive twin, of the overlapped step, and in the legend. Network: in stage
        // 0 the naive step has one call, the overlapped one for each of 6 blocks, the head with the block below; in
        // stage 3 gradients of 8 units, and weights of 8 units, forward and again backward.
        check_said(text, (Said[]){{"fill=\"#2563a8\"/>", 2 * 8 + 1}, {"fill=\"#2f7d4f\"/>", 2 * 8 + 1},
                                  {"fill=\"#66727f\"/>", 2 * 1 + 1},
                                  {"fill=\"#d1571b\"/>", stage ? 2 * 8 + 1 : 1 + 7 + 1},
                                  {"fill=\"#7c52a8\"/>", stage ? 2 * 2 * 8 + 1 : 0}, {NULL, 0}});
        free(text);
    }
}

// A GPT block calls 8 ops forward (norm, qkv, attention, out, norm, up, down, add) and 11 backward (four matrices have
// two each, two norms, attention). Lives: the input and the output; 12 saved buffers; scratch 4, 1, 1, 1; the
// gradient of the stream 3. A LLaMA block has RoPE and SwiGLU apart, and no means: 10 and 13 ops, two buffers fewer;
// the gradients of qkv and of SwiGLU's two are rewritten in place.
TEST(test_block)
{
    part = "draw";
    DRAWS("block tiny", {"rotate(-90)", 19}, {"opacity=\"0.28\"", 1 + 1 + 12 + 7 + 3}, {"l6 11h-12z", 6 + 1},
          {">3 C</text>", 2}, {">4 C</text>", 3}, {">forward</text>", 1}, {">backward</text>", 1});
    DRAWS("block tiny-llama", {"rotate(-90)", 23}, {">rope_backward</text>", 1}, {">swiglu_forward</text>", 1},
          {">mean1</text>", 0}, {">rstd1</text>", 1}, {"l6 11h-12z", 6 + 1});
}

// Rows in 16 bits and in fp32 (each of the two words also heads its half): weights, streams, activations, temporary,
// logits; statistics, losses, gradients, master weights, two moments. Gradients are added to by the head, the
// norms, four matrices and the embedding: 8 columns, and the legend.
TEST(test_casts)
{
    part = "draw";
    DRAWS("casts tiny --numerics.dtype=bf16", {">bf16</text>", 5 + 1}, {">fp32</text>", 6 + 1}, {">adamw</text>", 1},
          {"l6 11h-12z", 1 + 1 + 2 + 4 + 1 + 1});
    DRAWS("casts tiny --numerics.dtype=fp16", {">fp16</text>", 5 + 1}, {">bf16</text>", 0});
}

// 4 weights, 4 gradients, 8 of AdamW; in 16 bits 2 weights more. 8-bit AdamW: 10 + 2 and two scales for 2048.
TEST(test_state)
{
    part = "draw";
    DRAWS("state gpt2-124m", {">16 bytes</text>", 1}, {">18 bytes</text>", 2}, {">12.01 bytes</text>", 1},
          {">14 bytes</text>", 1}, {">10 bytes</text>", 1}, {">master weights</text>", 7}, {">exp_avg</text>", 4});
}

// Of 12 blocks: inputs that a block has to itself (none, selective, attention, full: all; every 2: six; sqrt, segments
// of 4: three); q, k, v and attention in two modes, products of the feed-forward network and the sum in three, what is
// cheap in one. Each has a box in the legend, which has no white edge.
TEST(test_recompute)
{
    part = "draw";
    DRAWS("recompute gpt2-124m", {"#1f2933\" stroke=\"#ffffff\"", 12 * 4 + 6 + 3}, {"#2f7d4f\" stroke=\"#ffffff\"", 48},
          {"#2563a8\" stroke=\"#ffffff\"", 72}, {"#d1571b\" stroke=\"#ffffff\"", 36}, {">2444 MB, 100%</text>", 1},
          {">+15.2% operations</text>", 1}, {">2 sets of buffers</text>", 1}, {">4 sets of buffers</text>", 1});
}

// T = 1024, blocks of 60, tiles of 256: 4 blocks have 1 tile, 4 have 2, 4 have 3, 6 have 4. Needed: (T + 1) / 2 T;
// (300 301 / 2 + 724 300) / T^2; documents of 380, 320 and 324 tokens.
TEST(test_tiles)
{
    part = "draw";
    DRAWS("tiles", {">48 tiles, 52.9% of T x T computed, 50.0% needed</text>", 1},
          {" computed, 25.0% needed</text>", 1}, {" computed, 16.8% needed</text>", 1});
}

// 32 slots of 16 tokens: each is a row or dropped, and with a capacity of 1 an expert has at most 4 rows.
TEST(test_experts)
{
    part = "draw";
    for (int capacity = 0; capacity < 2; capacity++) {
        char *text = picture(capacity ? "experts tiny-moe --moe.capacity=1" : "experts tiny-moe --moe.capacity=0");
        int dropped = count_of(text, ">x</text>"), rows = count_of(text, "width=\"26.0\"");
        assert_int_equal(rows + dropped, 32);
        assert_int_equal(count_of(text, "<line"), 32);
        assert_int_equal(count_of(text, " rows of at most 4</text>"), capacity ? 8 : 0);
        assert_true(capacity ? dropped > 0 : dropped == 0);
        for (int n = 5; n <= 16 && capacity; n++) {
            assert_int_equal(count_of(text, formatted(": %d rows", n)), 0);
        }
        free(text);
    }
}

// layers.0.ffn.up.weight has 16384 elements. Its block has 49984, of which each of 8 ranks has 6248, and up begins at
// element 16896: ranks 2 to 5 read 18744 - 16896, twice 6248, and 33280 - 31240. Of the two tp ranks each has half of
// it, and of their replicas each a part.
TEST(test_slices)
{
    part = "draw";
    DRAWS("slices tiny", {">1848 elements</text>", 1}, {">6248 elements</text>", 2}, {">2040 elements</text>", 1},
          {">model_00000: 3984 elements</text>", 1}, {">model_00001: 3984 elements</text>", 1},
          {">model_00002: 4208 elements</text>", 1}, {">model_00003: 4208 elements</text>", 1});
    DRAWS("slices tiny --from ranks=1 --to ranks=4,tp=4", // column-parallel: a rank reads 64 rows
          {">model_00000: 16384 elements</text>", 1}, {">4096 elements</text>", 4}, {"height=\"65.00\" fill", 4});
    DRAWS("slices tiny --to ranks=2", {">16384 elements</text>", 2}); // of replicas each writes a half and reads all
}

TEST(test_refused)
{
    static const struct {
        const char *program, *arguments;
        int status;
    } rows[] = {
        {"collectives", "draw mpi 4 x.svg", 2}, {"collectives", "draw ring 9 x.svg", 2},
        {"collectives", "draw ring 4 /nowhere/x.svg", 1}, {"mesh", "128 --svg x.svg", 2},
        {"tp", "tiny 3 --svg x.svg", 1}, // four heads
        {"tp", "tiny 1", 2}, {"zero", "timeline 4 x.svg", 2},
        {"draw", "block tiny-moe x.svg", 1}, // ops that the trace does not know
        {"draw", "block tiny --model.dropout=0.1 --nothing x.svg", 2}, {"draw", "blocks tiny x.svg", 2},
        {"draw", "block tiny", 2}, {"draw", "block tiny /nowhere/x.svg", 1},
        {"draw", "casts tiny x.svg", 1}, // all is fp32
        {"draw", "recompute llama3-70b x.svg", 1}, // 80 layers
        {"draw", "tiles tiny x.svg", 2}, {"draw", "experts tiny x.svg", 1},
        {"draw", "experts qwen3-30b-a3b x.svg", 1}, // 128
        {"draw", "slices tiny --tensor nothing x.svg", 1}, {"draw", "slices tiny --from ranks=x x.svg", 2},
        {"draw", "slices tiny --to tp x.svg", 2},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        part = rows[i].program;
        expect_run(rows[i].arguments, rows[i].status, "");
    }
}

TESTS(program_set_up, temp_dir_remove)
