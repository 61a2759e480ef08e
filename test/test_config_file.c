// test_config_file: syntax of files and its errors, the written file, the start-up table, presets.
#include "config_run.h"

#include <glob.h>
#include <math.h>

#include "net/model.h"
#include "train/run.h"
#include "train/schedule.h"

// ---- files

TEST_IN_DIR(test_file_syntax)
{
    const char text[] = "\xEF\xBB\xBF# a comment = [not a key]\r\n"
                        "run.seed = 5            # a dotted key before any section\r\n"
                        "\r\n"
                        "[ model ]   # spaces and a comment\r\n"
                        "layers=3\r\n"
                        "\t  channels  =  1_92   # indented\r\n"
                        "norm = rmsnorm\r\n"
                        "activation = \"swiglu\"\r\n"
                        "bias = false#tight\r\n"
                        "[sample]\r\n"
                        "prompt = \"a ; b # c = \\\"d\\\" \\\\ \\t\\u00e9\\u4E2D\\n\" # end\r\n"
                        "[data]\r\n"
                        "train = 'C:\\literal\\'\r\n"
                        "[optim]\r\n"
                        "lr=1e-2"; // no newline at the end
    put_bytes("a.toml", text, sizeof text - 1);
    load_file(in_dir("a.toml"));
    assert_true(cfg.run.seed == 5 && cfg.model.layers == 3 && cfg.model.channels == 192 && !cfg.model.bias);
    assert_true(cfg.model.norm == NORM_RMSNORM && cfg.model.activation == ACT_SWIGLU);
    assert_string_equal(cfg.sample.prompt, "a ; b # c = \"d\" \\ \t\xC3\xA9\xE4\xB8\xAD\n");
    assert_string_equal(cfg.data.train, "C:\\literal\\");
    assert_true(cfg.optim.lr == 1e-2);
    assert_true(config_is_set(&cfg, "model.layers"));
    assert_false(config_is_set(&cfg, "model.heads"));
}

// inih cuts lines at 200 bytes by itself; a value may be longer.
TEST_IN_DIR(test_file_long_line)
{
    char text[600], value[CONFIG_TEXT];
    memset(value, 'v', sizeof value - 1);
    value[sizeof value - 1] = 0;
    int n = snprintf(text, sizeof text, "[data]\nval = \"%s\" # %0200d\ntrain = \"t\"\n", value, 0);
    put_bytes("a.toml", text, (size_t)n);
    load_file(in_dir("a.toml"));
    assert_string_equal(cfg.data.val, value);
    assert_string_equal(cfg.data.train, "t");
    // The marks below a line that is wrong end where their memory does.
    memset(text, 0x78, sizeof text);
    memcpy(text, "[run]\n", 6);
    put_bytes("a.toml", text, sizeof text);
    run_words(in_dir("a.toml"));
    const char *marks = strstr(outcome.err, "    ^");
    assert_true(outcome.status == 1 && marks);
    assert_int_equal(strspn(marks, " ^~"), 4 + 511);
}

TEST_IN_DIR(test_file_errors)
{
    // lines before it, the wrong line, the marks below it, what is said of it
    const struct { const char *before, *line, *marks, *words; } rows[] = {
        {"[run]\n\n\n[optim]\n", "lrr = 3e-4", "^~~", "unknown key 'optim.lrr' (did you mean optim.lr?)"},
        {"[optim]\n", "\tlr = fast # so", "\t     ^~~~", "optim.lr must be a number, not 'fast'"},
        {"", "[modell]", " ^~~~~~", "unknown section [modell] (did you mean [model]?)"},
        {"[model]\nlayers = 4\n\n", "layers = 5", "^~~~~~", "model.layers is already set on line 2"},
        {"", "layers = 4", "^~~~~~", "key 'layers' before any [section]"},
        {"[model]\n", "layers = \"4\"", "         ^~~", "model.layers must be an integer, not \"4\""},
        {"[model]\n", "layers = 0", "         ^", "model.layers is 0, not in [1, 100000] (transformer blocks)"},
        {"[model]\n", "norm = rms", "       ^~~", "model.norm must be layernorm or rmsnorm, not 'rms'"},
        {"[run]\n", "name = \"abc", "       ^~~~", "the string has no closing \""},
        {"[run]\n", "name = \"a\" b", "           ^", "text after the string (\\\" is a quote inside)"},
        {"[run]\n", "name = \"\xC3\xA9\\q\"", "         ^~",
         "unknown escape (known: \\\" \\\\ \\b \\t \\n \\f \\r \\uXXXX)"},
        {"[run]\n", "name = \"\\u0000\"", "        ^~~~~~", "\\u0000 cannot stand in a string"},
        {"[run]\n", "name = \"\\u12\"", "        ^~", "unknown escape (known: \\\" \\\\ \\b \\t \\n \\f \\r \\uXXXX)"},
        {"[run]\n", "name = a b", "       ^~~", "a string with spaces or quotes needs \"quotes\""},
        {"[run]\n", "name =", "      ^", "no value after = (write \"\" for an empty string)"},
        {"[run]\n", "name", "^~~~", "neither [section], nor key = value, nor # comment"},
        {"[run]\n", "steps: 4", "^~~~~~~~", "neither [section], nor key = value, nor # comment"},
        {"", "[run", "^~~~", "a section without its closing ]"}, {"", "[run] x", "      ^", "text after [section]"},
        {"[run]\n", "steps = [4]", "        ^~~", "arrays and tables are no values here"},
        {"[run]\n", "= 4", "^", "'' is not a key"}, {"[run]\n", "; steps = 4", "^~~~~~~", "'; steps' is not a key"},
        {"[batch]\n", "accum = 4", "        ^",
         "batch.accum cannot be set, it is derived (gradient accumulation: tokens / (parallel.dp * micro * "
         "model.context))"},
    };
    char *path = strdup(in_dir("a.toml"));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        put_text("a.toml", formatted("%s%s\n", rows[i].before, rows[i].line));
        run_words(path);
        char *expected = formatted("error: %s:%d: %s\n    %s\n    %s\n", path, 1 + count_of(rows[i].before, "\n"),
                                   rows[i].words, rows[i].line, rows[i].marks);
        assert_string_equal(outcome.err, expected);
        assert_int_equal(outcome.status, 1);
    }
    put_bytes("a.toml", "[run]\nste\0ps = 4\n", 16);
    run_words(path);
    assert_int_equal(outcome.status, 1);
    assert_non_null(strstr(outcome.err, ":2: a NUL byte: this is not a text file"));
    put_text("a.toml", "[run]\rsteps = 4\r"); // one line, of which a reader of LF would see the first word alone
    run_words(path);
    assert_int_equal(outcome.status, 1);
    assert_non_null(strstr(outcome.err, ":1: a carriage return inside of a line (save the file"));
    free(path);
}

// ---- written and printed

static void assert_same_values(const Config *a, const Config *b, const char *what)
{
    int n_keys;
    const ConfigKey *table = config_table(&n_keys);
    char x[CONFIG_TEXT], y[CONFIG_TEXT];
    for (int i = 0; i < n_keys; i++) {
        int needed;
        if (!strcmp(table[i].name, "model.preset") || !config_table_has_effect(&table[i], a, &needed)) continue;
        config_table_format(&table[i], a, x, sizeof x);
        config_table_format(&table[i], b, y, sizeof y);
        if (strcmp(x, y)) fail_msg("%s: %s is %s, and was %s", what, table[i].name, y, x);
    }
}

// A setting that is gone is passed over where it had no effect, and in a checkpoint's text always.
TEST_IN_DIR(test_settings_that_are_gone)
{
    const char *const off = "[run]\ntensorboard = false\n[monitor]\nratio_low = 1.7\non_ratio_low = \"none\"\nwindow = 9\n";
    const char *const on = "[monitor]\nwindow = 9\non_ratio_low = \"warn\"\n";
    put_bytes("a.toml", off, strlen(off));
    load_file(in_dir("a.toml"));
    assert_int_equal(cfg.monitor.window, 9);
    put_bytes("a.toml", on, strlen(on));
    run_words(in_dir("a.toml"));
    assert_int_equal(outcome.status, 1);
    assert_non_null(strstr(outcome.err, "a.toml:3: 'monitor.on_ratio_low' is gone (monitor.rules=loss:1.5:warn)"));
    config_defaults(&cfg);
    config_load_text(&cfg, on, "a checkpoint");
    assert_int_equal(cfg.monitor.window, 9);
    run_words("tiny|--run.tensorboard=true");
    assert_non_null(strstr(outcome.err, "'run.tensorboard' is gone (scripts/tensorboard.py"));
}

TEST_IN_DIR(test_written_file_reads_back)
{
    static Config again;
    SET({"run.minutes", "0.1"}, {"model.preset", "llama3-8b"}, {"batch.tokens", "65536"}, {"batch.micro", "4"},
        {"optim.lr", "0.0003"}, {"sample.prompt", "\"a\" \\ #;'\n\t\x01 \xC3\xA9 \\n"}, {"data.train", "a b/*.bin"},
        {"optim.eps", "1.2345678901234567e-9"}, {"model.tie", "true"}, {"run.name", "x y"});
    config_resolve(&cfg);
    config_set_derived(&cfg, "run.steps", 33);
    config_resolve(&cfg);
    config_write(&cfg, in_dir("a.toml"));
    config_defaults(&again);
    config_load_file(&again, in_dir("a.toml"));
    assert_true(again.run.minutes == 0.1 && again.run.steps == 0); // a length that was derived is derived again
    config_set_derived(&again, "run.steps", 33);
    config_resolve(&again);
    assert_same_values(&cfg, &again, "written and read");
    assert_true(cfg.optim.min_lr == again.optim.min_lr && cfg.optim.eps == again.optim.eps);
    assert_string_equal(again.sample.prompt, "\"a\" \\ #;'\n\t\x01 \xC3\xA9 \\n");
    assert_int_equal(again.model.kv_heads, 8);
    assert_string_equal(again.model.preset, ""); // the file does not depend on another
}

TEST(test_print)
{
    run_words("tiny|--run.name=a 'b|--run.steps=3|--print|run.dir,run.name,run.steps");
    assert_int_equal(outcome.status, 0);
    assert_string_equal(outcome.out, "runs\na 'b\n3\n");
    run_words("--print|run.name|tiny|--parallel.tp=2"); // needs two ranks, which a script starts later
    assert_int_equal(outcome.status, 0);
    const char *const wrong[] = {"tiny|--print", "tiny|--print|run.nam", "tiny|--optim.lrr=3|--print|run.name",
                                 "text|--run.minutes=2|--run.steps=3|--print|run.name"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        run_words(wrong[i]);
        assert_true(outcome.status == 1 || outcome.status == 2);
        assert_string_equal(outcome.out, "");
    }
}

TEST(test_first_lines)
{
    run_words("tiny|--optim.lr=3e-4|--sample.prompt=a\nb");
    assert_int_equal(outcome.status, 0);
    assert_string_equal(outcome.err, "");
    const char *const shown[] = {"\nmodel     ", " channels=64 ", "derived: kv_heads=4 head_size=16", " lr=0.0003",
                                 " min_lr=3e-05", "prompt=\"a b\""};
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
        if (!strstr(outcome.out, shown[i])) fail_msg("no %s in\n%s", shown[i], outcome.out);
    assert_null(strstr(outcome.out, "wsd"));        // a default
    assert_null(strstr(outcome.out, "rope_theta")); // without effect
    int lines = 0;
    for (const char *line = outcome.out, *end; (end = strchr(line, '\n')); line = end + 1, lines++)
        assert_true(end - line <= 70);
    assert_true(lines < 20);
}

// ---- presets

static double header_number(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    return at ? strtod(at + strlen(name), NULL) : -1;
}

// The arithmetic at the top of a preset, which is of papers, is what the settings below it give.
static void check_arithmetic(const char *path, const char *text)
{
    if (!cfg.model.vocab) config_set_derived(&cfg, "model.vocab", (long)header_number(text, "with a vocabulary of "));
    ModelShape shape = run_shape(&cfg);
    Params all;
    Unit *unit;
    model_describe(&shape, &all, &unit);
    double params = (double)all.n_elems, E = (double)cfg.model.experts, k = (double)cfg.model.experts_active;
    double expert = 3 * (double)cfg.model.channels * (double)cfg.model.experts_ffn; // in every layer
    double active = params - (E > 0 ? (double)cfg.model.layers * (E - k) * expert : 0);
    free(unit);
    params_free(&all);
    Ramp ramp = schedule_ramp_make(cfg.batch.ramp_from, cfg.batch.tokens, cfg.batch.ramp_by,
                                   cfg.batch.ramp_tokens, cfg.model.context, false);
    double tokens = (double)schedule_ramp_at(&ramp, cfg.run.steps).before * (double)cfg.model.context;
    double flops = header_number(text, "# FLOPs: ");
    if (header_number(text, "# parameters: ") != params) fail_msg("%s: parameters are %.0f", path, params);
    if (header_number(text, "# tokens: ") != tokens) fail_msg("%s: tokens are %.0f", path, tokens);
    // Three digits stand there: at most half a unit of the third, 0.5%.
    if (!(fabs(flops / (6 * active * tokens) - 1) <= 0.005)) fail_msg("%s: FLOPs are %g", path, 6 * active * tokens);
    if (E > 0 && header_number(text, "# active: ") != active) fail_msg("%s: %.0f are active", path, active);
}

TEST(test_presets)
{
    glob_t found;
    assert_int_equal(glob("scripts/presets/*.toml", 0, NULL, &found), 0);
    assert_true(found.gl_pathc >= 28);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        char *path = found.gl_pathv[i], *text = whole_file(path, NULL), name[100];
        assert_non_null(text);
        load_file(path);
        config_resolve(&cfg);
        bool tuned_by_hand = strstr(path, "/stories.toml") || strstr(path, "/text.toml");
        if (!tuned_by_hand || strstr(text, "# parameters: ")) check_arithmetic(path, text);
        free(text);
        load_file(strstr(path, "presets/")); // by name, in both spellings
        snprintf(name, sizeof name, "%.*s", (int)strlen(path) - 21, path + 16);
        load_file(name);
        if (!strncmp(name, "bench-", 6)) continue;
        SET({"run.steps", "1"}, {"batch.tokens", "67108864"}, {"batch.micro", "1"}, {"model.preset", name});
        config_resolve(&cfg);
    }
    globfree(&found);
}

// From another directory, presets are found above the program itself.
TEST_IN_DIR(test_presets_from_elsewhere)
{
    char before[4096];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(dir), 0);
    run_words("tiny");
    assert_int_equal(chdir(before), 0);
    assert_string_equal(outcome.err, "");
    assert_int_equal(outcome.status, 0);
}

TESTS(forget_the_launcher, NULL)
