// test_config: the table, values, the command line, precedence, and derived values.
#include "config_run.h"
#include "base/words.h"

#include <ctype.h>
#include <glob.h>

// ---- the table

TEST(test_table_is_sound)
{
    int n_keys;
    const ConfigKey *table = config_table(&n_keys);
    char text[CONFIG_TEXT], again[CONFIG_TEXT], why[512];
    config_defaults(&cfg);
    for (int i = 0; i < n_keys; i++) {
        const ConfigKey *key = &table[i];
        int section = (int)strcspn(key->name, "."), needed = -1;
        assert_int_equal(config_table_find(key->name), i); // unique
        for (int j = 0; j + 1 < i; j++)                     // the rows of a section stand together
            if (!strncmp(table[j].name, key->name, (size_t)section + 1))
                assert_true(!strncmp(table[i - 1].name, key->name, (size_t)section + 1));
        config_table_has_effect(key, &cfg, &needed);
        if (*key->needs) assert_true(needed >= 0);
        assert_true(*key->help && !strchr(key->help, '|') && strlen(key->help) < 300);
        if (!key->def) continue;
        config_table_format(key, &cfg, text, sizeof text);
        assert_true(config_table_parse(key, &cfg, text, false, why, sizeof why));
        config_table_format(key, &cfg, again, sizeof again);
        assert_string_equal(text, again);
    }
}

// Two rows must not share bytes of the struct: set each to something else, and nothing but that row may change.
TEST(test_rows_do_not_overlap)
{
    int n_keys;
    const ConfigKey *table = config_table(&n_keys);
    char before[CONFIG_MAX_KEYS][CONFIG_TEXT], after[CONFIG_TEXT];
    config_defaults(&cfg);
    for (int i = 0; i < n_keys; i++) {
        int choice = 0;
        char *member = (char *)&cfg + table[i].offset;
        for (int j = 0; j < n_keys; j++) config_table_format(&table[j], &cfg, before[j], CONFIG_TEXT);
        switch (table[i].type) {
        case CONFIG_INTEGER: *(long *)member += 1; break;
        case CONFIG_NUMBER: *(double *)member += 1; break;
        case CONFIG_BOOL: *(bool *)member = !*(bool *)member; break;
        case CONFIG_STRING: memset(member, 'x', CONFIG_TEXT - 1); break;
        case CONFIG_CHOICE: choice = *(int *)member, *(int *)member = choice != 1; break;
        }
        for (int j = 0; j < n_keys; j++) {
            config_table_format(&table[j], &cfg, after, sizeof after);
            if ((j == i) == !strcmp(before[j], after)) fail_msg("%s changes %s", table[i].name, table[j].name);
        }
        if (table[i].type == CONFIG_CHOICE) *(int *)member = choice;
    }
}

// The first names of a choice, in the table's order, have these values.
static const struct { const char *key; int value[10]; } choices[] = {
    {"model.norm", {NORM_LAYERNORM, NORM_RMSNORM}},
    {"model.activation", {ACT_GELU, ACT_SWIGLU, ACT_RELU2}},
    {"model.position", {CONFIG_POSITION_LEARNED, CONFIG_POSITION_ROPE}},
    {"optim.schedule", {SCHEDULE_COSINE, SCHEDULE_LINEAR, SCHEDULE_INVSQRT, SCHEDULE_CONSTANT, SCHEDULE_WSD}},
    {"optim.wsd_shape", {SCHEDULE_SHAPE_LINEAR, SCHEDULE_SHAPE_COSINE, SCHEDULE_SHAPE_EXPONENTIAL,
        SCHEDULE_SHAPE_SQRT}},
    {"optim.name", {OPTIM_ADAMW, OPTIM_ADAM, OPTIM_SGD, OPTIM_MOMENTUM, OPTIM_ADAFACTOR, OPTIM_LION, OPTIM_ADAMW8BIT,
        OPTIM_MUON, OPTIM_NORMUON}},
    {"optim.ramp_lr", {CONFIG_RAMP_LR_NONE, CONFIG_RAMP_LR_SQRT}}, {"optim.agc_unit", {CLIP_ROW, CLIP_TENSOR}},
    {"numerics.dtype", {CONFIG_DTYPE_FP32, CONFIG_DTYPE_BF16, CONFIG_DTYPE_FP16, CONFIG_DTYPE_FP8, CONFIG_DTYPE_TF32}},
    {"numerics.bf16_products", {PRODUCTS_AUTO, PRODUCTS_HARDWARE, PRODUCTS_WIDENED}},
    {"numerics.fp8_scaling", {FP8_CURRENT, FP8_DELAYED}},
    {"memory.recompute", {RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_ATTENTION, RECOMPUTE_SQRT, RECOMPUTE_EVERY,
        RECOMPUTE_FULL}},
    {"memory.compress", {CONFIG_COMPRESS_NONE, CONFIG_COMPRESS_INT8}},
    {"memory.offload", {OFFLOAD_NONE, OFFLOAD_CPU, OFFLOAD_DISK}},
    {"memory.offload_update", {OFFLOAD_NONE, OFFLOAD_CPU}},
    {"model.rope_scaling", {ROPE_NONE, ROPE_LINEAR, ROPE_NTK, ROPE_YARN, ROPE_LLAMA3}},
    {"data.packing", {CONFIG_PACKING_CUT, CONFIG_PACKING_BEST_FIT}}, {"parallel.cp_assign", {CP_ZIGZAG, CP_CONTIGUOUS}},
    {"parallel.cp_way", {CP_RING, CP_GATHER}},
    {"parallel.schedule", {PIPELINE_GPIPE, PIPELINE_1F1B, PIPELINE_INTERLEAVED, PIPELINE_ZB_H1, PIPELINE_ZB_V,
        PIPELINE_V_HALF, PIPELINE_V_MIN, PIPELINE_USER}},
    {"numerics.embed_dtype", {CONFIG_EMBED_STORAGE, CONFIG_EMBED_FP32}},
    {"parallel.reduce_dtype", {CONFIG_REDUCE_FP32, CONFIG_REDUCE_STORAGE}},
    {"comm.backend", {CONFIG_BACKEND_AUTO, CONFIG_BACKEND_NCCL, CONFIG_BACKEND_STAGED}},
    {"comm.all_reduce", {COMM_NATIVE, COMM_RING, COMM_TREE, COMM_HALVING, COMM_HIERARCHICAL}},
    {"monitor.on_spike", {MONITOR_ACCEPT, MONITOR_WARN, MONITOR_COOL, MONITOR_SKIP, MONITOR_ROLLBACK}},
    {"monitor.on_not_finite", {CONFIG_NOT_FINITE_SKIP, CONFIG_NOT_FINITE_ROLLBACK}},
};

TEST(test_choices_match_the_enums)
{
    int n_keys;
    const ConfigKey *table = config_table(&n_keys);
    config_defaults(&cfg);
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        const ConfigKey *key = &table[config_table_find(choices[i].key)];
        char *rest = formatted("%s", key->allowed);
        for (const int *value = choices[i].value; rest && (value == choices[i].value || *value); value++) {
            config_set(&cfg, key->name, strsep(&rest, "|"), "test");
            int got = *(const int *)((const char *)&cfg + key->offset);
            if (got != *value) fail_msg("%s: value %d, not %d", key->name, got, *value);
        }
    }
}

TEST(test_edit_distance_and_nearest)
{
    int n_keys;
    const ConfigKey *table = config_table(&n_keys);
    assert_int_equal(words_distance("kitten", "sitting", 1000), 3);
    assert_int_equal(words_distance("", "abc", 1000), 3);
    assert_int_equal(words_distance("abc", "", 1000), 3);
    assert_int_equal(words_distance("same", "same", 1000), 0);
    const struct { const char *wrong, *right; } rows[] = {
        {"optim.lrr", "optim.lr"}, {"optim.learning", NULL}, {"model.layer", "model.layers"},
        {"optim.steps", "run.steps"}, {"modell.layers", "model.layers"}, {"zzzzzzzz.qqqqqqqqq", NULL},
        {"lr", "optim.lr"}, {"model.rope_thetta", "model.rope_theta"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int near = config_table_nearest(rows[i].wrong);
        if (!rows[i].right) assert_int_equal(near, -1);
        else assert_string_equal(near < 0 ? "none" : table[near].name, rows[i].right);
    }
}

TEST(test_values)
{
    const struct { const char *key, *text, *stored; } rows[] = { // stored NULL: refused
        {"run.steps", "1_000", "1000"}, {"run.steps", "+7", "7"}, {"run.steps", "0", "0"},
        {"run.steps", "9007199254740992", "9007199254740992"}, {"run.steps", "9223372036854775808", NULL},
        {"run.steps", "9007199254740993", NULL}, {"run.seed", "9223372036854775807", NULL},
        {"batch.tokens", "9223372036854775807", NULL}, {"run.steps", "", NULL}, {"run.steps", "-1", NULL},
        {"run.steps", "1.0", NULL}, {"run.steps", "1e3", NULL}, {"run.steps", "0x10", NULL}, {"run.steps", "1_", NULL},
        {"run.steps", "_1", NULL}, {"run.steps", " 1", NULL}, {"run.steps", "1 ", NULL}, {"optim.lr", "6e-4", "0.0006"},
        {"optim.lr", "1", "1"}, {"optim.lr", "1_0.5", "10.5"}, {"optim.lr", "nan", NULL}, {"optim.lr", "inf", NULL},
        {"optim.lr", "1e999", NULL}, {"optim.lr", "1e", NULL}, {"optim.lr", "-1e-9", NULL}, {"optim.lr", "0.1", "0.1"},
        {"optim.lr", "3.3333333333333335e-05", "3.3333333333333335e-05"}, {"optim.beta1", "0", "0"},
        {"optim.beta1", "1", NULL}, {"optim.beta1", "0.999999999", NULL}, {"optim.beta1", "0.9999999", "0.9999999"},
        {"optim.eps", "0", NULL}, {"optim.eps", "1", "1"}, {"sample.top_p", "0", NULL}, {"sample.top_p", "1.0", "1"},
        {"model.rope_theta", "5e5", "500000"}, {"model.norm", "rmsnorm", "rmsnorm"}, {"model.norm", "RMSNorm", NULL},
        {"model.norm", "layernorm|rmsnorm", NULL}, {"model.bias", "true", "true"}, {"model.bias", "1", NULL},
        {"model.layers", "0", NULL}, {"batch.accum", "4", NULL}, {"sample.prompt", "a \"b\" # c", "a \"b\" # c"},
        {"sample.prompt", "", ""},
    };
    int n_keys;
    const ConfigKey *table = config_table(&n_keys);
    char text[CONFIG_TEXT], before[CONFIG_TEXT], why[512];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const ConfigKey *key = &table[config_table_find(rows[i].key)];
        config_defaults(&cfg);
        config_table_format(key, &cfg, before, sizeof before);
        why[0] = 0;
        bool taken = config_table_parse(key, &cfg, rows[i].text, false, why, sizeof why);
        if (taken != (rows[i].stored != NULL))
            fail_msg("%s = '%s': taken %d: %s", key->name, rows[i].text, taken, why);
        config_table_format(key, &cfg, text, sizeof text);
        assert_string_equal(text, taken ? rows[i].stored : before);
        assert_true(taken || strstr(why, key->name)); // the reason names the key
    }
    char longest[CONFIG_TEXT + 1];
    memset(longest, 'x', sizeof longest);
    longest[CONFIG_TEXT] = 0;
    const ConfigKey *prompt = &table[config_table_find("sample.prompt")];
    assert_false(config_table_parse(prompt, &cfg, longest, false, why, sizeof why));
    longest[CONFIG_TEXT - 1] = 0;
    assert_true(config_table_parse(prompt, &cfg, longest, false, why, sizeof why));
    assert_string_equal(cfg.sample.prompt, longest);
}

// ---- command line

// On so many ranks (0: no launcher) tiny with these words is refused in one line that has the message. NULL: nothing is
// refused.
typedef struct {
    int ranks;
    const char *words, *message;
} Refusal;

static void check_refusals(const Refusal *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char *words = formatted("tiny|%s", rows[i].words);
        launched = rows[i].ranks;
        run_words(words);
        const char *want = rows[i].message ? rows[i].message : "", *end = strchr(outcome.err, '\n');
        if (outcome.status != (*want != 0) || !strstr(outcome.err, want) || (*want ? !end || end[1] : *outcome.err))
            fail_msg("%d ranks, %s: status %d:\n%s\nand not\n%s", rows[i].ranks, words, outcome.status,
                     outcome.err, want);
    }
    launched = 0;
}

TEST(test_command_line_errors)
{
    const struct { const char *words; int status; const char *message; } rows[] = {
        {"", 2, "usage: train [FILE.toml or preset] [--section.key=value ...]"},
        {"tiny|x.toml", 2, "error: x.toml: a second file after tiny"},
        {"tiny|--run.steps|4", 2, "error: --run.steps 4: a value is joined with = (write --run.steps=4)"},
        {"tiny|run.steps=4", 2, "error: run.steps=4: no file; a setting begins with two dashes (write --run.steps=4)"},
        {"tiny|steps=4", 2, "error: steps=4: no file; a setting begins with two dashes (write --run.steps=4)"},
        {"tinny", 1, "error: tinny: no such file, and no preset of that name (did you mean tiny?)"},
        {"tiny|--run.steps", 2, "error: --run.steps: no value (write --run.steps=VALUE)"},
        {"tiny|-x", 2, "error: -x: unknown option"},
        {"nothing.toml", 1,
         "error: nothing.toml: no such file, and no preset of that name (presets: bench-gpt2-1.5b, "},
        {"src", 1, "error: src: no such file, and no preset of that name"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        run_words(rows[i].words);
        if (outcome.status != rows[i].status || strncmp(outcome.err, rows[i].message, strlen(rows[i].message)))
            fail_msg("%s:\n%s\nand not\n%s", rows[i].words, outcome.err, rows[i].message);
    }
    const Refusal settings[] = {
        {0, "--model.position=rope|--model.rope_scaling=yarn",
         "model.rope_scaling needs model.rope_original, the context of training, or"},
        {0, "--model.position=rope|--model.rope_scaling=ntk|--model.rope_factor=0.5",
         "model.rope_factor 0.5 is below 1"},
        {0, "--model.position=rope|--model.rope_scaling=linear|--model.rope_original=65",
         "model.rope_original 65 is longer than model.context 64"},
        {0, "--model.position=rope|--model.rope_scaling=linear|--model.rope_factor=200",
         "model.rope_factor 200 leaves nothing of model.context 64"},
        {0, "--model.position=rope|--model.rope_scaling=llama3|--model.rope_factor=2|--model.rope_slow=4",
         "model.rope_slow 4 is not less than model.rope_fast 4"},
        {0, "--model.window=8|--model.window_pattern=sfg",
         "model.window_pattern 'sfg' is not made of the letters s (sliding) and f (full)"},
        {0, "--model.window=8|--model.window_pattern=", "model.window_pattern '' is not made of"},
        {0, "--model.window=8|--model.window_pattern=ffffffffs",
         "model.window_pattern 'ffffffffs' gives none of the 4 layers a window (set"},
        {0, "--model.window_pattern=sf",
         "model.window_pattern has no effect when model.window is 0 (it needs model.window>0)"},
        {0, "--optim.lrr=3", "unknown key 'optim.lrr' (did you mean optim.lr?)"},
        {0, "--q.zzzzzzz=3", "unknown key 'q.zzzzzzz' (--help lists the keys)"},
        {0, "--optim.lr=fast", "optim.lr must be a number, not 'fast'"},
        {0, "--run.name=caf\xE9", "run.name is not UTF-8: byte 0xE9 after 'caf'"},
        {0, "--run.steps=9007199254740992", "run.steps 9007199254740992 * batch.tokens 1024: more than 2^53 tokens"},
        {0, "--optim.beta2=0.99999999", "optim.beta2 is 0.99999999, rounded to 32 bits, not in [0, 1)"},
        {0, "--optim.lr=-1", "optim.lr is -1, not >= 0 (peak learning rate)"},
        {0, "--model.norm=rms", "model.norm must be layernorm or rmsnorm, not 'rms'"},
        {0, "--model.rope_theta=5e5",
         "model.rope_theta has no effect when model.position is learned (it needs model.position=rope)"},
        {0, "--numerics.amax_history=4",
         "numerics.amax_history has no effect when numerics.dtype is fp32 (it needs numerics.dtype=fp8)"},
        {0, "--numerics.loss_scale=1024", "numerics.loss_scale has no effect when numerics.dtype is fp32"},
        {0, "--numerics.loss_growth=10|--numerics.dtype=bf16", "numerics.loss_growth has no effect when"},
        {0, "--numerics.fp8_keep=layers.0.|--numerics.dtype=fp16", "numerics.fp8_keep has no effect when"},
        {0, "--numerics.dtype=fp64", "numerics.dtype must be fp32, bf16, fp16, fp8 or tf32, not 'fp64'"},
        {0, "--batch.ramp_tokens=1000", "batch.ramp_tokens has no effect when batch.ramp_from is 0"},
        {0, "--memory.recompute_every=3", "memory.recompute_every has no effect when memory.recompute is none"},
        {0, "--optim.momentum=0.9", "optim.momentum has no effect when optim.name is adamw"},
        {0, "--optim.name=muon|--optim.momentum_start=0.8", "optim.momentum_start has no effect when"},
        {0, "--optim.name=muon|--optim.row_beta2=0.9", "optim.row_beta2 has no effect when optim.name is muon"},
        {0, "--optim.name=lion|--optim.cautious_decay=true", "optim.cautious_decay has no effect when"},
        {0, "--model.dropout=1", "model.dropout is 1, not in [0, 1)"},
        {0, "--model.position=rope|--model.rope_factor=2",
         "model.rope_factor has no effect when model.rope_scaling is none"},
        {0, "--model.position=rope|--model.rope_scaling=linear|--model.rope_factor=2|--model.rope_slow=2",
         "model.rope_slow has no effect when model.rope_scaling is linear"},
        {0, "--run.minutes=3", "run.minutes has no effect when run.steps is 100"},
        {0, "--sample.temperature=0|--sample.top_k=4", "sample.top_k has no effect when"},
        {0, "--optim.schedule=constant|--optim.min_lr=0", "optim.min_lr has no effect when"},
        {0, "--run.steps=0", "run.steps and run.minutes are both 0"},
        {0, "--run.name=", "run.name '' is not the name of a directory"},
        {0, "--run.name=a/b", "run.name 'a/b' is not the name of a directory"},
        {0, "--run.name=a\nb", "run.name 'a?b' is not the name of a directory"},
        {0, "--run.name=..", "run.name '..' is not the name of a directory"}, {0, "--run.dir=", "run.dir is empty"},
        {0, "--model.heads=3", "model.channels 64 is not a multiple of model.heads 3"},
        {0, "--model.kv_heads=3", "model.heads 4 is not a multiple of model.kv_heads 3"},
        {0, "--model.position=rope|--model.head_size=9", "model.head_size 9 is odd, but model.position=rope"},
        {0, "--batch.tokens=1100",
         "batch.tokens 1100 is not a multiple of batch.micro 16 * model.context 64 = 1024 (nearest: 1024)"},
        {0, "--optim.min_lr=1", "optim.min_lr 1 is not between 0 and optim.lr 0.003"},
        {0, "--optim.decay_steps=10", "optim.decay_steps 10 is not after the warm-up of 10"},
        {0, "--eval.stride=65", "eval.stride 65 is larger than model.context 64"},
        {0, "--model.preset=tinny", "model.preset: no preset 'tinny' (presets: bench-gpt2-1.5b, "},
    };
    check_refusals(settings, sizeof settings / sizeof *settings);
    assert_true(!strncmp(outcome.err, "error: command line: model.preset:", 34));
}

TEST(test_help_lists_every_key)
{
    int n_keys;
    const ConfigKey *table = config_table(&n_keys);
    run_words("tiny|--no.such=1|--help");
    assert_int_equal(outcome.status, 0);
    assert_string_equal(outcome.err, "");
    for (int i = 0; i < n_keys; i++) {
        char *line = formatted(table[i].def ? "\n  --%s=" : "\n  %s ", table[i].name);
        if (!strstr(outcome.out, line)) fail_msg("--help lacks %s", table[i].name);
    }
}

TEST_IN_DIR(test_precedence)
{
    const char text[] = "[run]\nsteps = 7\n[model]\nlayers = 5\npreset = \"tiny-llama\"\n[optim]\nlr = 0.5\n";
    put_bytes("a.toml", text, sizeof text - 1);
    // The argument stands before the file, and still wins.
    char *argv[] = {"train", "--model.channels=32", "--optim.lr=0.25", "--optim.lr=0.125", in_dir("a.toml"),
                    "--sample.prompt=\"Once\" = #1"};
    config_defaults(&cfg);
    config_parse(&cfg, 6, argv);
    config_resolve(&cfg);
    assert_true(cfg.run.steps == 7 && cfg.model.layers == 5);                        // file; file over preset (4)
    assert_int_equal(cfg.model.channels, 32);                                        // command line over preset (64)
    assert_true(cfg.model.kv_heads == 2 && cfg.model.norm == NORM_RMSNORM);          // preset over default
    assert_int_equal(cfg.batch.micro, 8); // default: only [model] is taken from the preset
    assert_true(cfg.optim.lr == 0.125);   // the last one on the command line
    assert_string_equal(cfg.sample.prompt, "\"Once\" = #1"); // literally
    static const struct { const char *key; ConfigSource source; } from[] = {
        {"model.kv_heads", CONFIG_PRESET}, {"model.layers", CONFIG_FILE}, {"model.head_size", CONFIG_DERIVED}};
    for (int i = 0; i < 3; i++) assert_int_equal(cfg.origin[config_table_find(from[i].key)].source, from[i].source);
    assert_true(config_is_set(&cfg, "model.kv_heads"));
    assert_false(config_is_set(&cfg, "model.head_size") || config_is_set(&cfg, "batch.micro"));
}

// What a file's key depends on may be switched off on the command line, but not in the same file.
TEST_IN_DIR(test_switching_off_a_condition)
{
    for (int same_file = 0; same_file < 2; same_file++) {
        put_text("a.toml", formatted("[run]\nsteps = 7\n[model]\nposition = \"%s\"\nrope_theta = 5e5\n",
                                     same_file ? "learned" : "rope"));
        run_words(formatted("%s%s", in_dir("a.toml"), same_file ? "" : "|--model.position=learned"));
        assert_int_equal(outcome.status, same_file);
        const char *want = "a.toml:5: model.rope_theta has no effect when model.position is learned";
        if (same_file ? !strstr(outcome.err, want) : *outcome.err) fail_msg("%s", outcome.err);
    }
}

// ---- derived values

// Settings, and what comes of them; the first of them sets nothing that is derived, the last all of it.
TEST(test_derived_values)
{
    static const char *const set[4][2] = {{"run.steps", "300"}, {"model.channels", "96"}, {"model.heads", "6"},
                                          {"model.context", "32"}};
    const struct {
        const char *key, *value;
        double derived;
    } rows[] = {{"model.kv_heads", "2", 6}, {"model.head_size", "24", 16}, {"model.ffn", "100", 384},
                {"optim.decay_steps", "200", 300}, {"optim.min_lr", "0", 0.05}, {"eval.stride", "16", 32}};
    for (int own = 0; own < 2; own++) {
        set_all(set, 4);
        config_set(&cfg, "optim.lr", "0.5", "test");
        for (int i = 0; i < 6 && own; i++) config_set(&cfg, rows[i].key, rows[i].value, "test");
        config_resolve(&cfg);
        for (int i = 0; i < 6; i++) {
            char text[CONFIG_TEXT];
            config_table_format(&config_table(&(int){0})[config_table_find(rows[i].key)], &cfg, text, sizeof text);
            if (strtod(text, NULL) != (own ? strtod(rows[i].value, NULL) : rows[i].derived))
                fail_msg("%s is %s", rows[i].key, text);
        }
    }
    // SwiGLU: 8/3 C up to a multiple of 64. 96: 256 exactly; 97 would be 258.67, so 320; 4096: 10922.67, so 10944.
    const struct { const char *channels; long ffn; } widths[] = {{"96", 256}, {"97", 320}, {"4096", 10944}, {"1", 64}};
    for (int i = 0; i < 4; i++) {
        SET({"run.steps", "1"}, {"model.activation", "swiglu"}, {"model.heads", "1"},
            {"model.channels", widths[i].channels});
        config_resolve(&cfg);
        assert_int_equal(cfg.model.ffn, widths[i].ffn);
    }
}

// Of the context in training, that of this run and the factor between them, two give the third; also a second time. Or
// both: a factor of one's own, and the context that it is meant for.
TEST(test_rope)
{
    const struct { const char *kind, *original, *given; double factor; long from; double fast; } rows[] = {
        {"linear", "16", NULL, 4, 16, 0}, {"linear", "64", NULL, 1, 64, 0}, {"ntk", NULL, "8", 8, 8, 0},
        {"ntk", NULL, "1", 1, 64, 0}, {"yarn", NULL, "3", 3, 21, 32}, {"llama3", "32", NULL, 2, 32, 4},
        {"linear", "32", "3", 3, 32, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        SET({"run.steps", "1"}, {"model.context", "64"}, {"batch.tokens", "512"}, {"model.position", "rope"},
            {"model.rope_scaling", rows[i].kind});
        if (rows[i].original) config_set(&cfg, "model.rope_original", rows[i].original, "test");
        if (rows[i].given) config_set(&cfg, "model.rope_factor", rows[i].given, "test");
        for (int again = 0; again < 2; again++) {
            config_resolve(&cfg);
            assert_true(cfg.model.rope_factor == rows[i].factor && cfg.model.rope_original == rows[i].from);
            assert_true(cfg.model.rope_fast == rows[i].fast);
        }
    }
}

// When the decay of a schedule ends.
TEST(test_decay)
{
    const char *const schedules[] = {"cosine", "wsd", "constant", "invsqrt"};
    for (int i = 0; i < 4; i++) {
        SET({"run.steps", "300"}, {"optim.schedule", schedules[i]});
        config_resolve(&cfg);
        assert_int_equal(cfg.optim.decay_steps, i < 2 ? 300 : 0);
        assert_int_equal(cfg.optim.wsd_decay, 0);
    }
}

// The launcher's number of ranks divides the batch, also when the configuration is resolved again. A rank's share may
// be less than the default micro-batch of 8; with a pipeline it has one for each stage, where stages divide the share.
TEST(test_ranks)
{
    const struct {
        int ranks;
        const char *tokens, *micro, *pp; // micro NULL: not set
        long dp, got, accum;
    } rows[] = {{1, "1_024", "4", "1", 1, 4, 8}, {4, "1_024", "4", "1", 4, 4, 2}, {4, "256", NULL, "1", 4, 2, 1},
                {4, "256", NULL, "2", 2, 2, 2}, {3, "256", NULL, "3", 1, 8, 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        SET({"run.steps", "9"}, {"model.context", "32"}, {"batch.tokens", rows[i].tokens}, {"parallel.pp", rows[i].pp});
        if (rows[i].micro) config_set(&cfg, "batch.micro", rows[i].micro, "test");
        config_set_derived(&cfg, "parallel.ranks", rows[i].ranks);
        for (int again = 0; again < 2; again++) {
            config_resolve(&cfg);
            assert_true(cfg.parallel.dp == rows[i].dp && cfg.batch.micro == rows[i].got);
            assert_int_equal(cfg.batch.accum, rows[i].accum);
        }
        assert_false(config_is_set(&cfg, "parallel.dp"));
    }
}

// What does not work on several ranks is refused there, and only there.
#define EXPERTS "--model.activation=swiglu|--model.bias=false|--model.experts=6|--parallel.ep="

TEST(test_refused_on_ranks)
{
    const Refusal rows[] = {
        {3, "--parallel.tp=2", "parallel.tp 2 * cp 1 * pp 1 = 2 ranks hold one copy of the model, but the job has 3 "
                               "(start a multiple: mpiexec -n 4)"},
        {6, "--parallel.cp=2|--parallel.pp=2", "parallel.tp 1 * cp 2 * pp 2 = 4 ranks hold one copy of the model, but "
                                               "the job has 6 (start a multiple: mpiexec -n 8)"},
        {4, "--parallel.cp=2|--parallel.pp=2", NULL},
        {2, "--batch.micro=16", "batch.tokens 1024 is not a multiple of 2 ranks * batch.micro 16 * model.context 64 = "
                                "2048 (nearest: 2048)"},
        {2, "--batch.micro=8|--batch.tokens=1280", "batch.micro 8 * model.context 64 = 1024 (nearest: 1024)"},
        {2, "--numerics.dtype=bf16|--parallel.reduce_dtype=storage|--numerics.deterministic=true",
         "parallel.reduce_dtype=storage rounds each rank's sum"},
        {1, "--numerics.dtype=bf16|--parallel.reduce_dtype=storage|--numerics.deterministic=true", NULL},
        {2, "--numerics.dtype=bf16|--parallel.reduce_dtype=storage", NULL},
        {2, "--run.noise_every=5|--batch.micro=4", NULL},
        {2, "--run.noise_every=5|--batch.micro=8", "run.noise_every: measures with 1 micro-batches and with all of a "
                                                   "step, batch.accum is 1"},
        {2, "--run.noise_every=5|--parallel.pp=2|--parallel.schedule=interleaved|--batch.micro=8",
         "run.noise_every: measures with 2 micro-batches and with all of a step, batch.accum is 2"},
        {2, "--run.noise_every=5|--parallel.pp=2|--parallel.schedule=user|--batch.micro=4",
         "run.noise_every: parallel.table is a schedule for one number of micro-batches"},
        {2, "--run.norms_every=5|--parallel.zero=1", NULL},
        {2, "--run.norms_every=5|--parallel.zero=3|--memory.offload=cpu", "sends away in stage 3 of ZeRO"},
        {2, "--run.norms_every=5|--parallel.zero=2|--memory.offload=cpu", NULL},
        {2, "--parallel.tp=2|--model.qk_norm=whole", "model.qk_norm = whole with parallel.tp = 2: its mean of squares"},
        {2, "--parallel.tp=2|--model.qk_norm=true", NULL}, {2, "--parallel.cp=2|--model.qk_norm=whole", NULL},
        {2, "--parallel.tp=2|--optim.name=muon", NULL}, {2, "--parallel.tp=2|--optim.agc=0.01", NULL},
        {2, "--optim.name=muon", NULL}, {2, "--optim.agc=0.01", NULL}, {4, "--parallel.pp=2|--parallel.zero=3", NULL},
        {2, "--parallel.zero=2", NULL}, {4, "--parallel.zero=2|--parallel.shard=2|--batch.micro=1", NULL},
        {4, "--parallel.zero=2|--parallel.shard=4|--batch.micro=1", NULL},
        {4, "--parallel.shard=2", "parallel.shard has no effect when parallel.zero is 0"},
        {4, "--parallel.zero=1|--parallel.shard=1",
         "parallel.shard = 1 cuts nothing of parallel.dp * cp = 4 ranks (try --parallel.zero=0, where each rank has "
         "everything)"},
        {4, "--parallel.zero=3|--parallel.shard=3",
         "parallel.shard = 3 does not divide parallel.dp * cp = 4 ranks (try 0, for all of them)"},
        {4, "--parallel.zero=3|--parallel.tp=2|--parallel.shard=4",
         "parallel.shard = 4 does not divide parallel.dp * cp = 2 ranks"},
        {6, "--batch.tokens=768|--batch.micro=1|--parallel.zero=1|--parallel.shard=2|" EXPERTS "3",
         "parallel.ep = 3 does not divide parallel.shard = 2, the ranks that have everything once (try 3)"},
        {6, "--batch.tokens=768|--batch.micro=1|--parallel.zero=1|--parallel.shard=3", NULL},
        {2, "--parallel.pp=2|--batch.ramp_from=256|--batch.micro=1", NULL},
        {2, "--parallel.pp=2|--parallel.schedule=interleaved|--batch.micro=16", "a step has 1 micro-batches, which go"},
        {2, "--parallel.pp=2|--batch.ramp_from=256|--batch.micro=1|--parallel.schedule=user",
         "batch.ramp_from: parallel.table is a schedule for one number of micro-batches"},
        {2, "--parallel.cp=2|--model.context=62|--batch.tokens=992", "parallel.cp = 2: a sequence is cut into 2 cp = 4 "
                                                                    "chunks, which does not divide model.context = 62"},
        {1, "--model.context=62|--batch.tokens=992", NULL},
        {1, "--memory.offload_acts=cpu|--memory.compress=int8", "memory.offload_acts=cpu with memory.compress=int8"},
        {1, "--memory.offload=cpu|--run.norms_every=5|--numerics.dtype=bf16",
         "run.norms_every: reads the fp32 weights"},
        {1, "--memory.offload=cpu|--run.norms_every=5", NULL},
        {1, "--memory.offload=cpu|--memory.offload_update=cpu|--run.norms_every=5", "with memory.offload_update=cpu"},
        {1, "--memory.offload=cpu|--memory.offload_update=cpu|--optim.name=muon", "muon needs others too"},
        {1, "--memory.offload=cpu|--memory.offload_update=cpu|--optim.name=adamw8bit", "adamw8bit needs others too"},
        {1, "--memory.offload=cpu|--memory.offload_update=cpu|--optim.agc=0.01", "optim.agc needs others too"},
        {1, "--memory.offload=cpu|--memory.offload_update=cpu|--optim.name=lion|--numerics.dtype=bf16", NULL},
        {1, "--memory.offload=cpu|--numerics.dtype=bf16", NULL},
        {1, "--numerics.embed_dtype=fp32|--numerics.dtype=bf16", NULL},
        {1, "--numerics.embed_dtype=fp32|--numerics.dtype=fp16|--memory.offload=disk",
         "numerics.embed_dtype=fp32: reads the fp32 weights, which memory.offload sends away"},
        {1, "--numerics.embed_dtype=fp32|--numerics.dtype=fp8|--model.position=rope", "every bit would stay the same"},
    };
    check_refusals(rows, sizeof rows / sizeof *rows);
}

// Deterministic mode: every axis is a power of two, and with several replicas their sequences in each step are.
#define FIXED "--numerics.deterministic=true|"

TEST(test_powers_of_two)
{
    const Refusal rows[] = {
        {3, FIXED "--batch.tokens=768",
         "numerics.deterministic with parallel.dp = 3, which is no power of two (try mpiexec -n 2)"},
        {6, FIXED "--batch.tokens=768|--parallel.tp=2",
         "numerics.deterministic with parallel.dp = 3, which is no power of two (try mpiexec -n 4)"},
        {3, FIXED "--parallel.tp=3",
         "numerics.deterministic with parallel.tp = 3, which is no power of two (try --parallel.tp=2)"},
        {6, FIXED "--parallel.cp=6|--model.context=96|--batch.tokens=1536",
         "numerics.deterministic with parallel.cp = 6, which is no power of two (try --parallel.cp=4)"},
        {3, FIXED "--parallel.pp=3", "parallel.pp = 3, which is no power of two (try --parallel.pp=2)"},
        {6, FIXED "--batch.tokens=768|" EXPERTS "3", "parallel.ep = 3, which is no power of two (try --parallel.ep=2)"},
        {6, FIXED "--batch.tokens=768|--parallel.zero=1|--parallel.shard=3",
         "parallel.shard = 3, which is no power of two (try --parallel.shard=2)"},
        {2, FIXED "--batch.tokens=768",
         "numerics.deterministic with batch.tokens = 768, of which each of parallel.dp = 2 ranks has 6 sequences, no "
         "power of two (try --batch.tokens=512 --batch.micro=4)"},
        {2, FIXED "--batch.micro=1|--batch.ramp_from=256|--batch.ramp_tokens=2048",
         "numerics.deterministic with batch.ramp_from = 256: the batch grows by batch.ramp_by = 256, and each of "
         "parallel.dp = 2 ranks will have 6 sequences, no power of two (try --batch.ramp_from=512 and no ramp_by)"},
        {2, FIXED "--parallel.tp=2|--numerics.dtype=bf16", "numerics.deterministic with parallel.tp = 2 and a numerics.dtype "
         "of 16 bits: what its ranks send each other is rounded"},
        {4, FIXED "--parallel.tp=4|--model.kv_heads=2", "numerics.deterministic with parallel.tp = 4 and model.kv_heads = 2: "
         "ranks that share a head add their own queries first, so bits depend on how many there are (try --parallel.tp=2)"},
        {2, FIXED "--parallel.tp=2|--numerics.dtype=tf32", NULL},
        {1, FIXED "--numerics.dtype=fp8", "numerics.deterministic with numerics.dtype=fp8: a scale is of the rows"},
        {1, FIXED "--batch.tokens=768|--batch.micro=4", NULL},
        // the micro-batch of a file among ranks: what divides the first batch of a ramp, and what it grows by
        {3, "--batch.tokens=3072|--batch.ramp_from=1152|--batch.ramp_by=384", NULL},
        {2, FIXED "--batch.tokens=768|--batch.micro=4|--parallel.tp=2", NULL},
        {2, FIXED "--batch.tokens=768|--parallel.pp=2|--batch.micro=1|--batch.ramp_from=256|--batch.ramp_tokens=2048",
         NULL},
        {2, FIXED "--batch.micro=4|--batch.ramp_from=512|--batch.ramp_tokens=2048", NULL},
        {2, FIXED "--batch.tokens=128", NULL}, {4, FIXED "--batch.tokens=256|" EXPERTS "2", NULL},
        {8, FIXED "--parallel.zero=3|--parallel.shard=4", NULL}, {8, FIXED "--parallel.tp=2|--parallel.cp=2", NULL},
        {3, "--batch.tokens=768", NULL}, {2, "--batch.tokens=768", NULL},
        {2, "--batch.micro=1|--batch.ramp_from=256|--batch.ramp_tokens=2048", NULL},
        {3, "--batch.tokens=768|" EXPERTS "3", NULL},
    };
    check_refusals(rows, sizeof rows / sizeof *rows);
}

// With run.minutes the program finds the number of steps later, and resolves again.
TEST(test_resolving_again)
{
    SET({"run.minutes", "2.5"});
    config_resolve(&cfg);
    assert_true(cfg.run.steps == 0 && cfg.optim.decay_steps == 0);
    config_set_derived(&cfg, "run.steps", 730);
    config_set_derived(&cfg, "model.vocab", 4096);
    config_resolve(&cfg);
    assert_true(cfg.optim.decay_steps == 730 && cfg.model.vocab == 4096 && !config_is_set(&cfg, "run.steps"));
    config_set(&cfg, "model.channels", "256", "test"); // what was derived follows
    config_resolve(&cfg);
    assert_true(cfg.model.head_size == 64 && cfg.model.ffn == 1024);
}

// ---- the code agrees with the table

// Does text read the member, as in cfg.batch.tokens or config->batch.tokens?
static bool reads_member(const char *text, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = strstr(text, name); at; at = strstr(at + 1, name)) {
        bool starts = at > text && (at[-1] == '.' || at[-1] == '>');
        if (starts && !isalnum((unsigned char)at[n]) && at[n] != '_') return true;
    }
    return false;
}

TEST(test_every_key_is_read)
{
    int n_keys, n_unread = 0;
    const ConfigKey *table = config_table(&n_keys);
    bool read[CONFIG_MAX_KEYS] = {false};
    glob_t found;
    assert_int_equal(glob("src/*/*.c", 0, NULL, &found), 0);
    assert_true(glob("train*.c*", GLOB_APPEND, NULL, &found) != GLOB_ABORTED);
    for (size_t f = 0; f < found.gl_pathc; f++) {
        if (!strncmp(found.gl_pathv[f], "src/base/config", 15)) continue;
        char *text = whole_file(found.gl_pathv[f], NULL);
        for (int i = 0; text && i < n_keys; i++) read[i] = read[i] || reads_member(text, table[i].name);
        free(text);
    }
    globfree(&found);
    for (int i = 0; i < n_keys; i++) {
        bool own = !strcmp(table[i].name, "model.preset") || !table[i].def; // read by config_resolve; for people
        if (read[i] || own) continue;
        print_error("nothing outside src/base/config*.c reads cfg.%s\n", table[i].name);
        n_unread++;
    }
    assert_int_equal(n_unread, 0);
}

TESTS(forget_the_launcher, NULL)
