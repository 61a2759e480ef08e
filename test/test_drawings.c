// test_drawings: what build/show collectives, mesh, tp, zero, draw and plot draw is well-formed and has the right
// marks, counted by hand for small groups. (The programs check their data themselves before they draw.)
// deeper: the time lines of two real ranks
#include "test/test.h"
#define PROGRAM "show"
#define PART "collectives"

#include "deeper.h"
#include "program.h"
#include "record/metrics.h"
#include "expect_die.h"
#include "temp_dir.h"

#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/wait.h>

// tags: enough of XML and HTML for our files. Tests only.
// Tags nest; attributes are quoted; < and & stand nowhere else. What is between <style> or <script> and its end is
// skipped: no "</" may be in it. Returns the number of elements.
static int check_tags(const char *s)
{
    char open[40][16];
    int depth = 0, elements = 0;
    for (; *s; s++) {
        if (*s == '&')
            assert_true(!strncmp(s, "&amp;", 5) || !strncmp(s, "&lt;", 4) || !strncmp(s, "&gt;", 4) ||
                        !strncmp(s, "&quot;", 6) || !strncmp(s, "&#39;", 5));
        assert_true((unsigned char)*s >= 0x20 || *s == '\n' || *s == '\t');
        if (*s != '<') continue;
        bool closing = s[1] == '/', quoted = false;
        char name[16] = "";
        s += 1 + closing;
        for (int n = 0; isalnum((unsigned char)*s) && n < 15; s++) name[n++] = *s;
        assert_true(name[0]);
        for (; *s && (quoted || *s != '>'); s++) {
            if (*s == '"') quoted = !quoted;
            assert_true(*s != '<');
        }
        assert_true(*s == '>');
        elements++;
        if (closing) {
            assert_true(depth > 0);
            assert_string_equal(open[--depth], name);
        } else if (s[-1] != '/' && strcmp(name, "meta") && strcmp(name, "input")) {
            assert_true(depth < 40);
            strcpy(open[depth++], name);
        }
        if (!closing && (!strcmp(name, "style") || !strcmp(name, "script"))) {
            s = strstr(s, "</") - 1;
            assert_true(!strncmp(s + 3, name, strlen(name)));
        }
    }
    assert_int_equal(depth, 0);
    return elements;
}

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

// ---- plot: the picture is well-formed XML, every mark is at its value, and unusual runs give a picture too.

static void write_start(Metrics *metrics, const char *name, double floor)
{
    metrics_write(metrics, &(MetricsRow){.event = METRICS_START, .name = name, .text = "GPT, 2 layers",
                                         .params = 123456, .steps = 1000, .floor_loss = floor});
}

static void write_train(Metrics *metrics, int64_t step, double loss)
{
    metrics_write(metrics, &(MetricsRow){.event = METRICS_TRAIN, .step = step, .tokens = 1000 * step, .loss = loss,
                                         .lr = 1e-3, .grad_norm = 0.5, .dt_ms = 1, .tok_s = 1e6, .mfu = 0.5});
}

static void check_xml(const char *text)
{
    assert_true(check_tags(text) > 5);
    static const char *const never[] = {"nan", "inf", "<script", "href"};
    for (int i = 0; i < 4; i++) assert_null(strstr(text, never[i]));
}

// The picture of what was written, which ends here.
static char *plot(Metrics *metrics, const char *title, double floor)
{
    metrics_close(metrics);
    metrics_plot_loss(in_dir("metrics.jsonl"), in_dir("loss.svg"), title, floor);
    char *svg = take_file("loss.svg", NULL);
    check_xml(svg);
    return svg;
}

// The number behind `key` in the element that starts at s.
static double attribute(const char *s, const char *key)
{
    const char *at = strstr(s, key);
    assert_non_null(at);
    assert_true(at < strchr(s, '>'));
    return strtod(at + strlen(key), NULL);
}

// Two tick labels of the loss axis give the map from the picture's y to the loss.
static void loss_axis(const char *svg, double *y0, double *slope)
{
    double y[2] = {0}, value[2] = {0};
    int n = 0;
    for (const char *s = svg; (s = strstr(s, "<text x=\"56.0\"")); s++) {
        if (!strstr(s, "\"end\"") || attribute(s, " y=\"") > 410) continue;
        if (strstr(s, "text-anchor=\"end\"") > strchr(s, '>')) continue; // the axis' title
        y[n > 0] = attribute(s, " y=\"") - 4; // labels stand 4 below their line
        value[n > 0] = strtod(strchr(s, '>') + 1, NULL);
        n++;
    }
    assert_true(n >= 3);
    *slope = (value[1] - value[0]) / (y[1] - y[0]);
    *y0 = y[0] - value[0] / *slope;
}

TEST_IN_DIR(test_marks_stand_at_their_values)
{
    Metrics *metrics = metrics_open(in_dir("metrics.jsonl"), 0, 0);
    write_start(metrics, "run <1> & \"2\"", 2.0);
    double val[3] = {3.1, 2.6, 2.25};
    for (int i = 1; i <= 300; i++) {
        write_train(metrics, i, 2.2 + 6 * exp(-i / 20.0));
        if (i % 100 == 0)
            metrics_write(metrics, &(MetricsRow){.event = METRICS_VAL, .step = i, .tokens = 1000 * i, .floor_loss = 2.0,
                                                 .val_loss = val[i / 100 - 1], .val_bpb = 0.8125});
    }
    char *svg = plot(metrics, NULL, 0);
    double y0, slope, pixel;
    loss_axis(svg, &y0, &slope);
    // coordinates have one decimal; the map is from such, 0.05 each, over most of the axis
    pixel = 0.15 * fabs(slope);
    int circles = 0;
    for (const char *s = svg; (s = strstr(s, "<circle")); s++) {
        double loss = (attribute(s, "cy=\"") - y0) * slope, x = attribute(s, "cx=\"");
        assert_true(fabs(loss - val[circles]) <= pixel);
        assert_true(fabs(x - (64 + 690 * (circles + 1) / 3.0)) <= 0.06);
        circles++;
    }
    assert_int_equal(circles, 3);
    const char *dashed = strstr(svg, "stroke-dasharray=\"7 5\"");
    assert_non_null(dashed);
    while (*dashed != '<') dashed--;
    assert_true(fabs((attribute(dashed, "y1=\"") - y0) * slope - 2.0) <= pixel);
    assert_true(attribute(dashed, "y1=\"") == attribute(dashed, "y2=\""));
    const char *last = strstr(svg, "stroke-width=\"2.2\""); // the smoothed curve's last point
    assert_non_null(last);
    last = strstr(strstr(last, " d=\""), "\"/>");
    while (*last != 'L') last--;
    double x, y;
    assert_int_equal(sscanf(last, "L%lf %lf", &x, &y), 2);
    assert_true(fabs(x - (64 + 690)) <= 0.06);
    assert_true(fabs((y - y0) * slope - 2.2) <= pixel);
    static const char *const words[] = {
        "run &lt;1&gt; &amp; &quot;2&quot;</text>", "entropy floor 2.000", "validation is 12.5% above",
        "validation 2.250", "0.812 bits per byte", "training 2.200", "123k parameters",
        "from 7.91 at the first step"}; // 2.2 + 6 exp(-1/20)
    for (int i = 0; i < 8; i++) assert_non_null(strstr(svg, words[i]));
    free(svg);
}

// Runs that have little or strange to show.
TEST_IN_DIR(test_odd_runs)
{
    for (int kind = 0; kind < 7; kind++) {
        Metrics *metrics = metrics_open(in_dir("metrics.jsonl"), 0, 0);
        if (kind > 0) write_start(metrics, kind == 1 ? NULL : "run", 0);
        for (int i = 1; i <= 100 && kind >= 2; i++) {
            double loss = kind == 2 ? 3.0 : kind == 3 ? NAN : kind == 4 ? (i == 50 ? INFINITY : 4.0 - 0.01 * i)
                        : kind == 5 ? (i == 1 ? 1e30 : 3) : 0.0;
            write_train(metrics, i, loss);
            if (kind == 6) break; // a single step
        }
        char *svg = plot(metrics, kind == 6 ? "titled" : NULL, kind == 2 ? 2.5 : 0);
        if (kind <= 1) assert_non_null(strstr(svg, "x=\"480.0\" y=\"300.0\" text-anchor=\"middle\"")); // of 960, 600
        if (kind <= 1) assert_non_null(strstr(svg, "no training step yet"));
        // the argument, when the file has none
        if (kind == 2) assert_non_null(strstr(svg, "entropy floor 2.500"));
        if (kind == 3) assert_non_null(strstr(svg, "100 bad steps"));
        if (kind == 4) assert_non_null(strstr(svg, "1 bad step ("));
        int pens = 0, points = 0; // how often the raw curve begins; and its points
        const char *raw = strstr(svg, "url(#loss)\" fill");
        for (const char *s = raw; raw && *s && *s != '>'; s++) pens += *s == 'M', points += *s == 'M' || *s == 'L';
        assert_int_equal(pens, kind <= 1 || kind == 3 ? 0 : kind == 4 ? 2 : 1);
        if (kind == 4) assert_int_equal(points, 99); // a gap, not a spike, at the infinity
        if (kind == 6) assert_non_null(strstr(svg, ">titled</text>"));
        if (kind != 2) assert_null(strstr(svg, "floor"));
        for (const char *s = svg; (s = strpbrk(s, "ML")); s++) { // no coordinate that a viewer cannot hold
            double x, y;
            if (sscanf(s + 1, "%lf %lf", &x, &y) == 2) assert_true(fabs(x) < 1e4 && fabs(y) < 1e4);
        }
        free(svg);
    }
}

TEST_IN_DIR(test_size_is_bounded)
{
    Metrics *metrics = metrics_open(in_dir("metrics.jsonl"), 0, 0);
    for (int i = 1; i <= 20000; i++) write_train(metrics, i, 3 + (i % 7) * 0.1 + (i == 15000));
    char *svg = plot(metrics, NULL, 0);
    assert_true(strlen(svg) < 150000); // 690 columns, at most 4 points each for raw, at most 26 bytes a pair
    // the one spike is still there: the raw curve reaches a loss of 4 and more
    double y0, slope, highest = 0;
    loss_axis(svg, &y0, &slope);
    const char *s = strstr(svg, "url(#loss)"), *end = strstr(s, "/>");
    for (; (s = strpbrk(s, "ML")) && s < end; s++) {
        double x, y;
        if (sscanf(s + 1, "%lf %lf", &x, &y) == 2) highest = fmax(highest, (y - y0) * slope);
    }
    // 0.05 from the coordinate; the slope is off by 0.1 in at least 150, and the spike within 900 of the ticks
    assert_true(fabs(highest - (3 + 15000 % 7 * 0.1 + 1)) <= (0.05 + 900 * 0.1 / 150) * fabs(slope));
    free(svg);
}

// Three runs of different lengths, constant losses 2, 3 and 4: each has a flat smoothed curve at its loss as far as
// the run goes, and a label with its name.
TEST_IN_DIR(test_overlay)
{
    const char *path[3] = {in_dir("0.jsonl"), in_dir("1.jsonl"), in_dir("2.jsonl")};
    const char *name[3] = {"one", "two & more", "three"};
    for (int k = 0; k < 3; k++) {
        Metrics *metrics = metrics_open(path[k], 0, 0);
        for (int i = 1; i <= 100 * (k + 1); i++) write_train(metrics, i, 2 + k);
        metrics_close(metrics);
    }
    metrics_plot_overlay(path, name, 3, in_dir("loss.svg"), "a <title>");
    char *svg = take_file("loss.svg", NULL);
    check_xml(svg);
    assert_non_null(strstr(svg, ">a &lt;title&gt;<"));
    assert_non_null(strstr(svg, ">one 2.000<"));
    assert_non_null(strstr(svg, ">two &amp; more 3.000<"));
    double y0, slope;
    loss_axis(svg, &y0, &slope);
    int k = 0;
    for (const char *s = svg; (s = strstr(s, "stroke-width=\"1.8\"")); s++, k++) { // the smoothed curves, in order
        const char *d = strstr(s, " d=\"M") + 5, *end = strchr(d, '"');
        double x = 0, y = 0;
        for (; d < end; d += strcspn(d, "L\"") + 1) {
            assert_int_equal(sscanf(d, "%lf %lf", &x, &y), 2);
            assert_true(fabs((y - y0) * slope - (2 + k)) <= 0.1 * fabs(slope)); // printed to 0.1, as the ticks are
        }
        assert_true(fabs(x - (64 + 690 * (k + 1) / 3.0)) <= 0.05 + 1e-9);
    }
    assert_int_equal(k, 3);
    free(svg);
}

TEST_IN_DIR(test_errors)
{
    expect_dies("cannot open", metrics_plot_loss(in_dir("metrics.jsonl"), in_dir("loss.svg"), NULL, 0));
    expect_dies(in_dir("metrics.jsonl"), metrics_plot_loss(in_dir("metrics.jsonl"), in_dir("loss.svg"), NULL, 0));
}

TESTS(program_set_up, temp_dir_remove)
