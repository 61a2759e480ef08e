// test_plan_show: build/plan's plans about machines, from outside: their output as text, explained and as JSON; the
// configuration that a layout writes is one that train and plan take; every kind of nonsense ends in one line.
// deeper: the searches for plan approach and for plan published, whose rows test_plan_guides judges
#include "test/test.h"
#define PROGRAM "plan"

#include "plan_case.h"
#include "expect_die.h"
#include "dev/plan/plan_show.h"

#include <glob.h>
#include <jansson.h>

TEST(test_time)
{
#define JOB "time llama3-8b --gpus 64 --tp 2 --zero 1 --batch 512 --tokens 1e12 --json "
    json_t *a = json_of(JOB "--price 2"), *b = json_of(JOB "--price=4 --explain");
    double step = number(a, "step", "step"), mfu = number(a, "step", "MFU");
    near(number(a, "run", "days without failures"), 1e12 / (512 * 8192.0 / step) / 86400, 1e-9);
    near(number(a, "run", "cost"), 2 * number(a, "run", "accelerator hours"), 1e-9);
    assert_true(mfu > 20 && mfu < 70);
    assert_true(number(b, "step", "step") == step); // twice the price, twice the cost; nothing else
    assert_non_null(json_object_get(json_object_get(b, "run"), "cost: formula"));
    json_decref(a), json_decref(b);
    expect_run("time llama3-8b --gpus 64 --tp 2 --zero 1 --batch 512 --explain", 0, "| attention, fused |");
    says("batch / (dp micro) = 512 / (32 * 1)");
    expect_run("time tiny --model.vocab=4096 --gpu cpu", 0, "1 cpu");
    // In TF32 weights, activations and what is sent have 4 bytes, weights no copy, and the peak is half.
    expect_run("time gpt2-124m --gpu A100 --numerics.dtype=tf32 --explain", 0, "* 1.56e+14)");
    says("28 bytes a parameter");
    expect_run("traffic gpt2-124m --gpu A100 --gpus 8 --zero 1 --numerics.dtype=tf32", 0, "N = 8: 4 x 1 P (N - 1) / N");
}

TEST(test_traffic)
{
    json_t *root = json_of("traffic llama3-8b --gpus 64 --tp 2 --pp 2 --batch 512 --json");
    json_t *flows = json_object_get(json_object_get(root, "layout"), "flows");
    const char *const groups[] = {"tp", "tp", "tp", "pp", "dp"};
    assert_int_equal(json_array_size(flows), 5);
    double sum = 0;
    for (size_t i = 0; i < 5; i++) {
        json_t *flow = json_array_get(flows, i);
        assert_string_equal(json_string_value(json_object_get(flow, "group")), groups[i]);
        sum += json_number_value(json_object_get(flow, "bytes, all ranks"));
    }
    assert_true(sum == number(root, "what hides", "all bytes"));
    json_decref(root);
    assert_true(number_of("traffic llama3-8b --gpus 64 --batch 512 --zero 1 --link eth10 --json", "what hides",
                          "dp, exposed") > 1000);
}

// What layout writes is a configuration: the plan of memory takes it, and it says what the search said.
TEST(test_layout_writes)
{
    json_t *root = json_of("layout gpt2-124m --gpus 8 --gpu A100-40 --write best.toml --json");
    json_t *best = json_array_get(json_object_get(root, "best"), 0);
    int dp, zero;
    long micro;
    assert_int_equal(sscanf(json_string_value(json_object_get(best, "layout")),
                            "dp %d tp 1 pp 1 v 1 cp 1 zero %d micro %ld", &dp, &zero, &micro), 3);
    assert_int_equal(dp, 8);
    json_decref(root);
    char *written = take_file("best.toml", NULL);
    char *expected = formatted("\nmicro = %ld  # plan layout", micro);
    assert_true(strstr(written, expected) && strstr(written, "dtype = \"bf16\""));
    free(written);
    assert_int_equal(run("memory best.toml --ranks 8 --json"), 0);
    static const char *const paragraph[] = {
        "The model's weights, gradients and optimizer are 3143 GB", "stays within the node", "idle for", "MFU",
        "The next that is cut otherwise"};
    expect_run("layout gpt3-175b --gpus 1024 --gpu A100-80 --pp 4 --vpp 1 --recompute selective", 0, "");
    for (int i = 0; i < 5; i++) says(paragraph[i]);
    // The layout in the file is the job of the next plan, and the run's; its predicted step is that of the search.
    json_t *searched = json_of("layout llama3-70b --gpus 256 --tp 8 --pp 4 --write cut.toml --json");
    assert_true(number(searched, "step", "step") == number_of("time cut.toml --gpus 256 --json", "step", "step"));
    json_decref(searched);
    assert_int_equal(run("memory cut.toml --ranks 256 --json >memory.json"), 0);
}

// Numbers by hand. Two of budget, parameters and tokens say the third, one the others with 20 tokens a parameter.
// LLaMA-3 8B has 94 times the optimum's; half the MFU doubles hours. GPT-3's batch grows: 300,002,277,376 tokens.
TEST(test_numbers)
{
    const double qkvo = 6.0 * 12 * 768 * 64 * 48, ffn = 6.0 * 12 * 2 * 768 * 3072, head = 6.0 * 50257 * 768;
    const double token = qkvo + ffn + head + 6.0 * 12 * 768 * 1024;
    const struct {
        const char *arguments, *section, *key;
        double value, by;
    } row[] = {
        {"flops gpt2-124m", "FLOPs of a token", "q, k, v and output matrices", qkvo, 0},
        {"flops gpt2-124m", "FLOPs of a token", "a token", token, 0},
        {"flops gpt2-124m", "FLOPs of the run", "a step", token * 524288, 0},
        {"scaling --flops 5.76e23", "fit", "parameters", 7e10, 0.1},
        {"scaling --flops 5.76e23 --served 1e13", "served", "saved", 28.6, 0.01},
        {"scaling --params 70e9 --tokens 1.4e12", "this model", "tokens a parameter", 20, 1e-6},
        {"scaling --params 70e9", "this model", "tokens", 1.4e12, 1e-6},
        {"scaling --tokens 1.4e12", "this model", "parameters", 70e9, 1e-6},
        {"scaling --flops 5.88e23 --params 70e9", "this model", "tokens", 1.4e12, 1e-6},
        {"scaling --flops 5.88e23 --tokens 1.4e12", "this model", "parameters", 70e9, 1e-6},
        {"scaling --params 8e9 --tokens 15e12", "this model", "times optimal", 93.75, 0},
        {"time llama2-7b --gpus 4 --pp 4 --batch 8 --micro 1", "step", "bubble", 300.0 / 11, 0.03},
        // ZeRO-3 in a micro-batch: weights twice in 2 bytes, gradients once in 4, of each of 6738415616 parameters 7/8.
        {"traffic llama2-7b --gpus 8 --zero 3 --batch 8 --micro 1", "what hides", "all bytes",
         8 * 7.0 / 8 * 6738415616.0 * (2 * 2 + 4), 0},
        {"flops gpt3-175b", "FLOPs of the run", "the run", 3.1856436854416886e23, 1e-9}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        near(number_of(formatted("%s --json", row[i].arguments), row[i].section, row[i].key), row[i].value, row[i].by);
    for (int mfu = 25; mfu <= 50; mfu += 25) {
        double hours = 6 * 8e9 * 15e12 / (mfu / 100.0 * 312e12) / 3600; // and a cloud's price is its table's
        expect_run(formatted("scaling --params 8e9 --tokens 15e12 --gpu A100 --mfu 0.%d --price aws", mfu), 0,
                   formatted("| 7.2e+23 | %.4g | %.4g |", hours, 3.97 * hours));
    }
}

// What teachers ask, each answered by one command (doc/guide_answers.md).
TEST(test_questions)
{
    expect_run("time llama2-7b --gpus 4 --pp 4 --batch 8 --micro 1 --explain", 0,
               "(p - 1) / (v m + p - 1) = 3 / 11 = 27.3%");
    expect_run("time llama2-7b --gpus 8 --pp 4 --batch 16 --micro 1 --vpp 2 --zero 1 --explain", 0,
               "= 3 / 19 = 15.8%"); // m = 16 / 2
    json_t *root = json_of("layout llama2-7b --gpus 8 --gpu A100-80 --json");
    const char *best = json_string_value(json_object_get(json_array_get(json_object_get(root, "best"), 0), "layout"));
    assert_non_null(strstr(best, "micro 4 recompute selective"));
    json_decref(root);
    root = json_of("layout llama2-7b --gpus 512 --tp 1 --pp 1 --tokens 2e12 --json");
    double hours = number(root, "run", "accelerator hours");
    near(number(root, "run", "cost"), 3.5 * hours, 1e-9);
    assert_true(hours > number(root, "run", "FLOPs") / 989.4e12 / 3600); // slower than the peak
    json_decref(root);
}

TEST(test_tables)
{
    expect_run("machines", 0, "| H100 | 989 | 794.5 |");
    expect_run("noise", 0, "| 32768 | 4098 | 3632 | 3641 |");
    if (deeper()) expect_run("published", 0, "median error");
    if (deeper()) expect_run("approach", 0, "| 16 A100-80 | llama2-70b | 16 | none fits | - | - |");
    // G0-9.1: 6 * 7e9 * 2e12 at 0.45 of 256 * 312 TFLOP/s are 27.0 days
    expect_run("scaling --params 7e9 --tokens 2e12 --gpus 256 --gpu A100-80 --mfu 0.45 --price 1.99", 0,
               "| 1.662e+05 | 3.307e+05 | 27.05 |");
    assert_int_equal(run("recipe"), 0);
    const char *const all[] = {"| gpt2-124m | 1.244e+08 |", "| gpt3-175b | 1.746e+11 |", "| llama3-405b | 4.059e+11 |",
                               "| llama2-7b |", "| mistral-7b |", "| mixtral-8x7b | 4.67e+10 |"};
    for (int i = 0; i < 6; i++) says(all[i]);
    assert_int_equal(run("recipe gpt3-175b >one.toml"), 0);
    expect_run("params one.toml | tail -n 4", 0, "174604259328");
    json_t *root = json_of("cluster gpt2-1.5b --gpus 64 --days 3 --tokens 1e11 --json");
    assert_int_equal(json_array_size(json_object_get(root, "cluster")), 3); // 1, 8, 64
    json_decref(root);
}

// A model for a text: larger with more time, on a faster machine; the same for the same. By hand: 5 minutes of which 0.9
// train, at 0.4 of 180 GFLOP/s, are 1.944e13 FLOP, sqrt(that / 24) = 900 thousand parameters. 3 layers of 128 have
// 3 (4 128^2 + 3 128 384) + 128 1024 = 770 thousand, 4 of 192 two million.
TEST(test_model_for_a_text)
{
    expect_run("for --bytes 1115394 --minutes 5 --peak 180", 0, "FLOP           1.94e+13");
    says("vocabulary     1024"), says("parameters     7.7e+05"), says("layers         3           of 128 channels");
    says("tokens         4.21e+06"), says("dropout        0.1"), says("batch          4096"), says("learning rate  0.003");
    says("settings       --run.minutes=5 --model.layers=3 --model.channels=128 --model.heads=2 --model.dropout=0.1 "
         "--batch.tokens=4096 --batch.micro=16 --optim.lr=0.003 --optim.matrix_lr=4\n");
    expect_run("params text --model.layers=3 --model.channels=128 --model.heads=2 --model.vocab=1024 | tail -n 4", 0,
               "770048  with weight decay");
    expect_run("for --bytes 1115394 --minutes 60 --peak 180", 0, "layers         5           of 256 channels");
    says("dropout        0.2");
    expect_run("for --bytes 1e9 --minutes 5 --peak 180", 0, "vocabulary     4096");
    says("dropout        0 "), says("of 128 channels");
    expect_run("for --bytes 100 --minutes 0.05 --peak 1", 0, "layers         1           of 64 channels");
    says("vocabulary     512"), says("batch          2048");
    expect_run("for --bytes 1e6", 1, "plan for: give --bytes N (of the text) and --minutes M");
    expect_run("for tiny --bytes 1e6 --minutes 1", 1, "plan for takes no configuration");
    expect_run("for --bytes 0 --minutes 1", 2, "--bytes: 0: not a number of 1 or more");
    expect_run("for --bytes 1e6 --minutes 1 --zero 1", 1, "--zero: has no effect on plan for");
}

// Every preset can be planned: its memory, which checks all formulas, its operations and its schedule.
TEST(test_presets)
{
    static const char *const plan[][2] = {{"memory", "parameters"}, {"flops", "the run"}, {"schedule", "last step"}};
    glob_t found;
    assert_int_equal(glob("scripts/presets/*.toml", 0, NULL, &found), 0);
    assert_true(found.gl_pathc > 20);
    for (size_t i = 0; i < 3 * found.gl_pathc; i++) {
        const char *name = strrchr(found.gl_pathv[i / 3], '/') + 1;
        char *arguments = formatted("%s %.*s --model.vocab=4096 --run.steps=1000", plan[i % 3][0],
                                    (int)(strstr(name, ".toml") - name), name);
        expect_run(arguments, 0, plan[i % 3][1]);
    }
    globfree(&found);
    // GPT-3's ramp: 375 million tokens of warm-up at 7,028 steps, and not 7,028 full batches.
    expect_run("schedule gpt3-175b", 0, "32768 to 3145728 tokens over the first 12000000000 tokens");
    says("111355 steps, 300000935936 tokens");
}

// What a model is and costs in all does not depend on how it is cut; what a rank holds does.
TEST(test_cut)
{
    static const char *const plan[] = {"flops", "params", "recompute"};
    static const char *const cut[] = {
        "--parallel.tp=2", "--parallel.pp=2", "--parallel.cp=2", "--parallel.tp=2 --parallel.sp=true --parallel.pp=2",
        "--parallel.pp=2 --parallel.schedule=interleaved --parallel.chunks=2 --parallel.zero=1",
    };
    for (int i = 0; i < 3; i++) {
        char whole[sizeof output];
        expect_run(formatted("%s tiny --model.vocab=512 --batch.micro=2", plan[i]), 0, "");
        memcpy(whole, output, sizeof whole);
        for (int k = 0; k < (int)(sizeof cut / sizeof *cut); k++) {
            char *arguments = formatted("%s tiny --model.vocab=512 --batch.micro=2 %s", plan[i], cut[k]);
            if (run(arguments) || strcmp(output, whole)) fail_msg("%s: %s", arguments, output);
        }
    }
    expect_run("memory tiny --model.vocab=512 --parallel.tp=2", 0, "rank         parameters"); // two of them
}

TEST(test_explained)
{
    expect_run("flops gpt2-124m --explain", 0, "6 L C D (2H + 2G) = 6 * 12 * 768 * 64 * (2 * 12 + 2 * 12)");
    json_t *root = json_of("params tiny --model.vocab=512 --json");
    size_t n = json_array_size(json_object_get(root, "tensors"));
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += json_number_value(json_object_get(json_array_get(json_object_get(root, "tensors"), i), "elements"));
    assert_true(n > 20 && sum == number(root, "totals", "parameters"));
    json_decref(root);
    expect_run("cluster gpt2-124m --gpus 8 --explain", 0, "h of one accelerator / 8");
    says("Daly's: near sqrt(2 * save 30 *");
    expect_run("cluster tiny --model.vocab=512 --gpus 1 --mtbf 0.002 --save 0.1 --restart 3 --interval 0.8 "
               "--explain", 0, "--interval; Young's would be sqrt(2 * save 0.1 * 7.2) = 1.2");
    says("= 0.5891, of steps"); // 0.8 / (10.2 (e^(0.9 / 7.2) - 1))
}

static double total_with(const char *mode, long micro)
{
    char *arguments = formatted("memory gpt2-124m --memory.recompute=%s --batch.micro=%ld --json", mode, micro);
    return number_of(arguments, "0", "total");
}

// The largest micro-batch fits into 92% of the accelerator's memory, and the next divisor of the batch's 512 does not.
TEST(test_fits)
{
    static const char *const mode[] = {"none", "selective", "full"};
    for (int i = 0; i < 3; i++) {
        double own = 0, GB;
        long micro = 0;
        assert_int_equal(run("memory gpt2-124m --gpu A10G"), 0);
        char *row = formatted("\n| %s |", mode[i]), *at = strstr(output, row);
        if (!at || sscanf(at + strlen(row), "%lf | yes | %ld | %lf", &own, &micro, &GB) != 3) fail_msg("%s", output);
        double total = total_with(mode[i], micro);
        assert_true(fabs(own - total_with(mode[i], 4) / 1e9) <= 0.0005 && fabs(GB - total / 1e9) <= 0.0005);
        assert_true(total <= 0.92 * 24e9 && total_with(mode[i], 2 * micro) > 0.92 * 24e9);
    }
    expect_run("memory llama2-7b --gpu A10G", 0, "| no | none | |");
    json_t *root = json_of("memory gpt2-124m --parallel.pp=2 --json"); // the fullest rank is not the last
    char *row = formatted("\n| none | %.3f |", number(root, "0", "total") / 1e9);
    assert_true(number(root, "0", "total") > number(root, "1", "total"));
    expect_run("memory gpt2-124m --parallel.pp=2 --gpu A10G", 0, row);
    json_decref(root);
}

// A file's links take the place of the table's. Two nodes of 8 sum P = 497759232 bytes: 2 7/8 P / 4e9 in each and
// 2 1/2 P/8 / 2e7 between them, in s, 2 ms and 14 us for the messages. A part of a data sheet's rate is not taken.
TEST(test_links)
{
    static const char *const no_links[] = {"", "[1]", "{\"within\": {\"alpha\": 1e-6, \"bandwidth\": 4e9}}",
                                           "{\"inside\": {\"alpha\": 1e-6}}",
                                           "{\"between\": {\"alpha\": 1e-6, \"bandwidth\": -1}}"};
    put_text("both", "{\"inside\": {\"alpha\": 1e-6, \"bandwidth\": 4e9}, "
                      "\"between\": {\"alpha\": 1e-3, \"bandwidth\": 2e7}}");
    put_text("one", "{\"inside\": {\"alpha\": 1e-6, \"bandwidth\": 4e9}}");
    expect_run("traffic gpt2-124m --gpus 16 --links both", 0, "measured inside, measured between");
    says("| 497759232 | 14932776960 | 3331 | hierarchical |");
    expect_run("time gpt2-124m --gpus 16 --links one --link hdr", 0, "measured inside, hdr between");
    expect_run("time gpt2-124m --gpus 16 --links both --link hdr", 1,
               "--link hdr: --links has a link between hosts too");
    for (size_t i = 0; i < sizeof no_links / sizeof *no_links; i++) {
        put_text("none", no_links[i]);
        if (run("time gpt2-124m --gpus 16 --links none") != 1) fail_msg("%s: %s", no_links[i], output);
        says("error: --links none: ");
        assert_ptr_equal(strchr(output, '\n'), output + strlen(output) - 1);
    }
}

// What is refused: the words of the line, and the exit status.
static const struct {
    const char *arguments, *words;
    int status;
} wrong[] = {
    {"time llama3-8b --gpus 0", "--gpus: 0", 2}, {"time llama3-8b --gpus 1.5", "--gpus: 1.5", 2},
    {"time gpt2-124m --gpus 6 --tp 3 --model.heads=8", "--tp 3: the model has 8 heads", 1},
    {"time llama3-8b --gpus 6 --tp 4", "--gpus 6: is not a multiple", 1},
    {"time llama3-8b --gpus 8 --dp 3", "--gpus 8", 1}, {"time llama3-8b --gpu H1000", "did you mean H100?", 1},
    {"time llama3-8b --gpu", "'--gpu': takes NAME", 2}, {"time llama3-8b --price -3", "--price: -3", 1},
    {"time llama3-8b --price cheap", "'cheap' is no number", 1},
    {"time llama3-8b --tokens nan", "--tokens: nan: not a number", 2},
    {"time llama3-8b --gps 3", "did you mean --gpus?", 2},
    {"time llama3-8b --json=yes", "takes no value", 2}, {"time llama3-8b --zero 4", "--zero: 4", 1},
    {"time llama3-8b --overlap some", "--overlap: 'some'", 1},
    {"time llama3-8b --attention slow", "--attention: 'slow'", 1},
    {"time llama3-8b --recompute half", "--recompute: 'half'", 1},
    {"time llama3-8b --schedule best", "--schedule: 'best'", 1},
    {"time llama3-8b --links no/such", "--links no/such: ", 1}, {"time llama3-8b --link string", "--link: 'string'", 1},
    {"time llama3-8b --sp --no-sp", "choose one", 1}, {"time llama3-8b --model.channel=3", "model.channel", 1},
    {"time llama3-405b", "memory: ", 1}, {"time", "no configuration", 1},
    {"memory gpt2-124m --batch.tokens=4096 --gpu A10 --json", "--gpu: not with --json", 2},
    {"recompute gpt2-124m --json", "--json: only for plan memory", 2},
    {"params gpt2-124m --explain", "--explain: only for plan memory, flops", 2},
    {"flops gpt2-124m --gpu A10G", "--gpu: only for plan memory", 2},
    {"flops gpt2-124m --parallel.tp=5", "parallel.tp = 5 does not divide model.heads = 12", 1},
    {"layout llama3-405b --gpus 8", "does not fit into memory", 1},
    {"layout gpt2-124m --gpus 8 --write /no/such/file", "/no/such/file", 1},
    {"cluster gpt2-124m --days 0", "--days: 0", 2},
    {"cluster gpt2-124m --days 1e9", "not a number from 0.001 to 36525", 2},
    {"cluster gpt2-124m --seed 1e30", "--seed: 1e30: not a whole number from 0 to 1000000000", 2},
    {"scaling", "no budget", 1}, {"scaling --flops -1", "--flops: -1", 2},
    {"scaling --flops 1e23 --tp 8", "--tp: has no effect on plan scaling", 1},
    {"scaling tiny --flops 1e23", "tiny: plan scaling takes no configuration", 1},
    {"scaling --flops 1e23 --params 1e9 --tokens 1e9", "give two of them", 1},
    {"scaling --flops 1e23 --mfu 40", "--mfu: 40", 2},
    {"scaling --flops 1e23 --loss 2", "--loss: has no effect without --served", 1},
    {"scaling --flops 1e23 --price gcp --gpu V100", "a cloud with a price for V100", 1},
    {"time llama3-8b --served 1e12", "--served: has no effect on plan time", 1},
    {"traffic llama3-8b --price 2", "--price: has no effect on plan traffic", 1},
    {"time llama3-8b --write a.toml", "--write: has no effect on plan time", 1},
    {"approach --gpu H100", "--gpu: has no effect on plan approach", 1},
    {"scaling --flops 1e23 --served 1e12 --loss 1.5", "--loss: 1.5", 1}, {"recipe gpt5", "'gpt5' is none", 1},
    {"flops tiny --data.tokenizer=", "model.vocab is not known", 1},
    {"flops tiny --data.tokenizer=no/such/folder", "no/such/folder is not there", 1},
    {"recipe a b", "takes one name", 2}, {"machines all", "takes no argument", 2},
    {"tim llama3-8b", "tim: not a plan", 2},
};

TEST(test_nonsense)
{
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        expect_run(wrong[i].arguments, wrong[i].status, wrong[i].words);
        char *line = strstr(output, "error: ");
        if (!line || strchr(line, '\n') != line + strlen(line) - 1)
            fail_msg("%s: not one line: %s", wrong[i].arguments, output);
    }
}

// ---- report: text, formulas and JSON of the same results; numbers that JSON cannot have; a full disk.

static char *text_of(bool json, bool explain)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, &(size_t){0});
    Report *r = report_begin(out, json, explain);
    report_section(r, "first");
    report_value(r, "tokens", 1234567890123, "", NULL);
    report_value(r, "share", 0.125, "%", "%d / %d", 1, 8);
    report_value(r, "none", NAN, "s", NULL);
    report_text(r, "words", "a \"%s\"", "quote");
    report_table(r, "rows", "name|bytes");
    report_row(r, "%s|%.0f", "x", 0x1p53 - 1);
    report_row(r, "%s|%.0f", "y", NAN);
    report_end(r);
    assert_int_equal(fclose(out), 0);
    return text;
}

static void has(const char *text, const char *words)
{
    if (!strstr(text, words)) fail_msg("'%s' is not in:\n%s", words, text);
}

TEST(test_text)
{
    char *plain = text_of(false, false), *explained = text_of(false, true);
    const char *const words[] = {"first\n", "1234567890123", "0.125 %", "a \"quote\"", "| name | bytes |\n|---|---|\n",
                                 "| x | 9007199254740991 |\n", "| y | - |\n"};
    for (int i = 0; i < 7; i++) has(plain, words[i]), has(explained, words[i]);
    has(explained, "      = 1 / 8\n");
    assert_null(strstr(plain, "1 / 8"));
    free(plain), free(explained);
}

TEST(test_json)
{
    char *text = text_of(true, true);
    json_error_t error;
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    if (!root) fail_msg("%s in %s", error.text, text);
    char *got = json_dumps(root, JSON_COMPACT);
    assert_string_equal(got, "{\"first\":{\"tokens\":1234567890123,\"share\":0.125,\"share: formula\":\"1 / 8\","
                             "\"none\":null,\"words\":\"a \\\"quote\\\"\",\"rows\":[{\"name\":\"x\",\"bytes\":"
                             "9007199254740991},{\"name\":\"y\",\"bytes\":null}]}}");
    json_decref(root);
    free(got), free(text);
}

TEST(test_full_disk)
{
    expect_dies("cannot write", {
        Report *r = report_begin(fopen("/dev/full", "w"), true, false);
        report_value(r, "a", 1, "", NULL);
        report_end(r);
    });
}

TESTS(program_set_up, temp_dir_remove)
