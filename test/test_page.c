// page: report.html is well-formed and loads nothing, shows the numbers of the run's files, lets no text of them become
// HTML or script, and stays small. dev/reference/check_page.py looks at it in a browser.
#include "test/test.h"

#include "base/config.h"
#include "base/disk.h"
#include "base/words.h"
#include "record/page.h"
#include "tags.h"
#include "temp_dir.h"
#include "record/metrics.h"

#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- reading a page

static char *page; // the text of the last one
static json_t *data; // its numbers

static void forget(void)
{
    free(page), page = NULL;
    json_decref(data), data = NULL;
}

static bool has(const char *what)
{
    return strstr(page, what) != NULL;
}

// Nothing that makes a browser fetch something, and no script but ours.
static void check_alone(void)
{
    static const char *const never[] = {"href", "@import", "url(", "fetch", "XMLHttp", "import(", "<img", "<link",
                                        "<iframe", "innerHTML", "eval(", "nan,", "inf,"};
    static const char names[] = "http://www.w3.org/2000/svg"; // a name, which is not loaded
    for (size_t i = 0; i < sizeof never / sizeof *never; i++) {
        const char *at = strstr(page, never[i]);
        if (at && !strncmp(at, "url(#", 5)) at = strstr(at + 1, never[i]);
        if (at) print_message("the page has %.60s\n", at);
        assert_null(at);
    }
    assert_int_equal(count_of(page, "http"), count_of(page, names) + count_of(page, "http-equiv"));
    assert_int_equal(count_of(page, "<script"), 2);
    assert_true(has("default-src 'none'"));
}

static void make(void)
{
    forget();
    assert_true(page_write(dir, NULL));
    page = take_file("report.html", NULL);
    assert_true(!strncmp(page, "<!DOCTYPE html>", 15));
    check_tags(page + 15);
    check_alone();
    const char *json = strstr(page, "id=\"data\">");
    assert_non_null(json);
    data = json_loadb(strchr(json, '>') + 1, (size_t)(strstr(json, "</script>") - strchr(json, '>') - 1), 0, NULL);
    assert_non_null(data);
}

static void make_of(const char *metrics)
{
    put_text("metrics.jsonl", metrics);
    make();
}

static void append(const char *metrics)
{
    FILE *f = fopen(in_dir("metrics.jsonl"), "a");
    fputs(metrics, f);
    fclose(f);
}

// The page has all of these.
static void shows_all(const char *const *what)
{
    for (; *what; what++)
        if (!has(*what)) fail_msg("the page lacks %s", *what);
}
#define SHOWS(...) shows_all((const char *const[]){__VA_ARGS__, NULL})

static double in_series(const char *key, int part, size_t i)
{
    const json_t *s = json_object_get(json_object_get(data, "series"), key);
    const json_t *value = json_array_get(json_array_get(s, (size_t)part), i);
    return json_is_null(value) ? NAN : json_number_value(value);
}

static size_t points(const char *key)
{
    return json_array_size(json_array_get(json_object_get(json_object_get(data, "series"), key), 0));
}

static int tear_down(void **state)
{
    forget();
    return temp_dir_remove(state);
}

// ---- runs

static void write_train(Metrics *m, int64_t step, double loss)
{
    metrics_write(m, &(MetricsRow){.event = METRICS_TRAIN, .step = step, .tokens = 64 * step, .loss = loss, .lr = 1e-3,
                                   .grad_norm = 0.5, .dt_ms = 8, .tok_s = 8000, .mfu = 0.25, .ppl = exp(loss),
                                   .samples_s = 125, .data_ms = 0.5, .forward_ms = 2, .backward_ms = 4, .comm_ms = 0.25,
                                   .optim_ms = 1, .save_ms = step == 2 ? 6 : 0});
}

static Metrics *begin(const char *name, int64_t steps)
{
    Metrics *m = metrics_open(in_dir("metrics.jsonl"), 0, 0);
    metrics_write(m, &(MetricsRow){.event = METRICS_START, .name = name, .text = "GPT, 2 layers", .params = 123456,
                                   .steps = steps, .batch_tokens = 64, .floor_loss = 1.5,
                                   .mem = {[MEM_PARAMS] = 4000000, [MEM_ACTS] = 12000000}});
    return m;
}

TEST_WITH(test_numbers, temp_dir_make, tear_down)
{
    static Config cfg;
    Metrics *m = begin("a run", 3);
    for (int i = 1; i <= 3; i++) write_train(m, i, 4 - 0.5 * i);
    metrics_write(m, &(MetricsRow){.event = METRICS_SAMPLE, .step = 3, .text = "Once upon"});
    metrics_write(m, &(MetricsRow){.event = METRICS_SAVE, .step = 3, .text = "checkpoints/step_00000003"});
    metrics_write(m, &(MetricsRow){.event = METRICS_END, .step = 3, .tokens = 192, .val_loss = 3, .val_bpb = 1.25,
                                   .floor_loss = 1.5, .seconds = 0.024, .val_ppl = exp(3)});
    metrics_close(m);
    config_defaults(&cfg);
    config_set(&cfg, "optim.lr", "0.002", "command line");
    config_set(&cfg, "optim.warmup", "50", "command line"); // the default
    config_set(&cfg, "data.train", "a \"b\" # c", "x.toml:3");
    config_write(&cfg, in_dir("config.toml"));
    make();
    for (size_t i = 0; i < 3; i++) {
        assert_true(in_series("loss", 0, i) == (double)i + 1 && in_series("loss", 1, i) == 3.5 - 0.5 * (double)i);
        assert_true(in_series("tok_s", 1, i) == 8000);
    }
    assert_int_equal(points("loss"), 3);
    assert_true(in_series("val_loss", 0, 0) == 3 && in_series("val_loss", 1, 0) == 3);
    assert_true(json_number_value(json_object_get(data, "floor")) == 1.5);
    SHOWS("<title>a run</title>", "class=\"state finished\"", "GPT, 2 layers", "Once upon", "checkpoints/step_00000003",
          "<tr><td>val_bpb</td><td class=\"n\">1.25</td><td class=\"n\">3</td>", "a \\&quot;b\\&quot; # c",
          ">3.0000<", ">100.0%<small>validation", // validation loss; above the floor
          // phases: mean of a step, share; what lies between steps: 6 ms over 3 steps
          "<td>forward</td><td class=\"n\">2.000</td><td class=\"n\">25.0%</td>",
          "<td>communication, waited for</td><td class=\"n\">0.250</td><td class=\"n\">3.1%</td>",
          "<td>other</td><td class=\"n\">0.250</td>", "<td>saving, between steps</td><td class=\"n\">2.000</td>",
          "<td>activations</td><td class=\"n\">12.00</td><td class=\"n\">75.0%</td>");
    const char *changed = strstr(page, "Changed from the default"), *rest = strstr(page, "At their default");
    const char *lr = strstr(page, "<code>optim.lr</code></td><td><code>0.002</code></td><td class=\"muted\">1e-3</td>");
    const char *warmup = strstr(page, "<code>optim.warmup</code>");
    assert_true(changed && changed < lr && lr < rest && rest < warmup);
    assert_false(has("Other measurements")); // all have a place of their own
    static const char *const none[] = {"step", "t", "tokens", "seconds", "floor_loss", "event"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) assert_int_equal(points(none[i]), 0);
}

// eval.sets are curves of the loss chart, eval.tasks have charts of their own; neither is an event.
TEST_WITH(test_named, temp_dir_make, tear_down)
{
    Metrics *m = begin("r", 8);
    write_train(m, 1, 3);
    for (int step = 4; step <= 8; step += 4) {
        metrics_write(m, &(MetricsRow){.event = METRICS_SET, .step = step, .name = "books", .val_loss = 4 - step / 8.0,
                                       .val_bpb = 1.5});
        metrics_write(m, &(MetricsRow){.event = METRICS_TASK, .step = step, .name = "piqa", .items = 30, .acc = 0.5,
                                       .acc_norm = NAN, .perplexity = NAN});
    }
    metrics_close(m);
    make();
    assert_int_equal(points("val_loss books"), 2);
    assert_true(in_series("val_loss books", 0, 1) == 8 && in_series("val_loss books", 1, 1) == 3);
    assert_int_equal(points("acc piqa"), 2);
    assert_int_equal(points("acc_norm piqa") + points("perplexity piqa"), 0);
    SHOWS("data-keys=\"loss,val_loss,val_loss books\"", "data-keys=\"acc piqa\"",
          "<tr><td>acc piqa</td><td class=\"n\">0.5</td><td class=\"n\">8</td>");
    assert_false(has("<td>set</td>") || has("<td>task</td>") || has("Other measurements"));
}

#define TRAIN(STEP, REST) "{\"event\":\"train\",\"step\":" STEP ",\"loss\":" REST "}\n"

// A step that no integer of JSON can hold is no step. 10 ms at 1,000 tokens a second and 30 ms at 200 are 16 tokens in
// 40 ms. A last line without its newline counts.
TEST_WITH(test_lines, temp_dir_make, tear_down)
{
    make_of(TRAIN("1", "3") TRAIN("2e300", "2"));
    assert_int_equal(points("loss"), 1);
    SHOWS("1 line of metrics.jsonl could not be read");
    make_of(TRAIN("1", "3,\"dt_ms\":10,\"tok_s\":1000,\"mfu\":0.5")
            TRAIN("2", "3,\"dt_ms\":30,\"tok_s\":200,\"mfu\":0.1"));
    SHOWS("<dd>400<small>tokens a second", "<dd>20.0%<small>of the peak");
    make_of(TRAIN("1", "3") "{\"event\":\"train\",\"step\":2,\"loss\":2.75}");
    assert_int_equal(points("loss"), 2);
    assert_true(in_series("loss", 1, 1) == 2.75);
}

// A duration where the page says "time of training", and a count as that of its tokens.
TEST_WITH(test_words, temp_dir_make, tear_down)
{
    const struct {
        double seconds, tokens;
        const char *time, *count;
    } rows[] = {{0.4, 999, "0 s", "999"},        {59.6, 5, "1 min 00 s", "5"},      {3599.7, 5, "1 h 00 min", "5"},
                {59, 1000, "59 s", "1k"},        {60, 1234567, "1 min 00 s", "1.23M"}, {3599, 5, "59 min 59 s", "5"},
                {7325, 5, "2 h 02 min", "5"},    {86400, 5, "1 d 00 h", "5"},       {90000, 5, "1 d 01 h", "5"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        make_of(formatted("{\"event\":\"val\",\"step\":1,\"tokens\":%.0f,\"val_loss\":2,\"seconds\":%.1f}\n",
                          rows[i].tokens, rows[i].seconds));
        SHOWS(formatted("<dt>time of training</dt><dd>%s</dd>", rows[i].time),
              formatted("<dt>tokens seen</dt><dd>%s<", rows[i].count));
    }
}

// 50 s for 10 of 100 steps: 90 steps take 450 s. Resumed at step 4 at 1030: 20 s for 6 steps. Back at 8: 4 s for 2.
TEST_WITH(test_time_left, temp_dir_make, tear_down)
{
#define BEGUN "{\"event\":\"start\",\"step\":0,\"steps\":100,\"t\":1000}\n"
    DiskLock lock = disk_lock_take(dir);
    make_of(BEGUN TRAIN("10", "2,\"t\":1050"));
    SHOWS("about <b>7 min 30 s</b> left", "step <b>10</b> of <b>100</b>, 10.0%", "style=\"width:10.00%\"");
    make_of(BEGUN "{\"event\":\"resume\",\"step\":4,\"steps\":100,\"t\":1030}\n" TRAIN("10", "2,\"t\":1050"));
    SHOWS("about <b>5 min 00 s</b> left");
    make_of(BEGUN "{\"event\":\"rollback\",\"step\":8,\"t\":1046}\n" TRAIN("10", "2,\"t\":1050"));
    SHOWS("about <b>3 min 00 s</b> left");
    make_of(BEGUN); // no step yet
    assert_false(has("</b> left"));
    disk_lock_release(lock);
}

TEST_WITH(test_samples, temp_dir_make, tear_down)
{
    enum { N = 60, SHOWN = 24, BYTES = 6000 };
    Metrics *m = begin("r", N);
    write_train(m, 1, 2);
    char *two_bytes = calloc(1, 2 * BYTES + 10);
    two_bytes[0] = 'x'; // so that no border between characters is at BYTES
    for (int i = 0; i < BYTES; i++) memcpy(two_bytes + 1 + 2 * i, "é", 2);
    for (int i = 1; i <= N; i++)
        metrics_write(m, &(MetricsRow){.event = METRICS_SAMPLE, .step = i, .text = i == N ? two_bytes : "short"});
    metrics_close(m);
    make();
    assert_true(has("24 of 60, the newest first"));
    assert_int_equal(count_of(page, "<summary>step "), SHOWN);
    assert_int_equal(count_of(page, "<details open><summary>step 60</summary>"), 1);
    assert_int_equal(count_of(page, "<summary>step 1</summary>"), 1);
    assert_int_equal(count_of(page, "<pre>short</pre>"), SHOWN - 1);
    assert_int_equal(count_of(page, "é"), (BYTES - 1) / 2);
    assert_int_equal(count_of(page, " ...</pre>"), 1);
    free(two_bytes);
}

TEST_WITH(test_events, temp_dir_make, tear_down)
{
    Metrics *m = begin("r", 400);
    for (int i = 1; i <= 300; i++) metrics_write(m, &(MetricsRow){.event = METRICS_WARN, .step = i, .text = "slow"});
    for (int i = 1; i <= 80; i++) metrics_write(m, &(MetricsRow){.event = METRICS_SAVE, .step = i, .text = "at"});
    metrics_close(m);
    make();
    assert_true(has("The newest 50 saves of 80 and 200 other events of 301;"));
    assert_int_equal(count_of(page, "<td>warn</td>"), 200);
    assert_int_equal(count_of(page, "<tr class=\"bad\">"), 200);
    assert_int_equal(count_of(page, "<td>save</td>"), 50);
    assert_true(has("<td class=\"n\">300</td>") && has("<td class=\"n\">101</td>") && !has("<td class=\"n\">100</td>"));
    assert_true(strstr(page, "<td class=\"n\">300</td>") < strstr(page, "<td class=\"n\">299</td>"));
}

// Two layers of three experts over 5 steps, and of 300 over 200; the worst of the layers is in the charts.
static void write_experts(Metrics *m, int64_t step, const char *name, const char *text, double most, double entropy)
{
    metrics_write(m, &(MetricsRow){.event = METRICS_EXPERTS, .step = step, .name = name, .text = text, .load_max = most,
                                   .load_min = 0.25, .entropy = entropy, .idle = 1, .dropped = 0.125, .z_loss = 0.5,
                                   .balance_loss = NAN, .bias_min = -0.5, .bias_max = 0.25});
}

TEST_WITH(test_experts, temp_dir_make, tear_down)
{
    Metrics *m = begin("r", 5);
    write_train(m, 1, 2);
    for (int i = 1; i <= 5; i++) {
        write_experts(m, i, "layers.0", i < 3 ? "10 20 30" : "0 60 0", 1.5, 0.9);
        write_experts(m, i, "layers.<1>", "10 10 40", 2.5, i < 5 ? 0.875 : 0.95);
    }
    metrics_close(m);
    make();
    assert_true(has("<section id=\"experts\">") && !has("Other measurements") && !has("<td>experts</td>"));
    assert_int_equal(points("experts.load_max"), 5);
    assert_int_equal(points("experts.gate_max"), 0); // 0 and NAN are not written
    assert_int_equal(points("experts.balance_loss"), 0);
    assert_true(in_series("experts.load_max", 1, 0) == 2.5 && in_series("experts.entropy", 1, 0) == 0.875);
    assert_true(in_series("experts.entropy", 1, 4) == 0.9 && in_series("experts.entropy", 0, 4) == 5);
    assert_true(in_series("experts.idle", 1, 0) == 2 && in_series("experts.bias_min", 1, 0) == -0.5);
    SHOWS("<tr><td>layers.&lt;1&gt;</td><td class=\"n\">2.5</td><td class=\"n\">0.25</td><td class=\"n\">1</td>"
          "<td class=\"n\">0.95</td><td class=\"n\">0.125</td><td class=\"n\"></td><td class=\"n\"></td>"
          "<td class=\"n\">0.5</td>");
    // Steps 1 and 2 are 10 20 30 of a mean of 20: all between half and twice; then the second has three times the mean.
    assert_true(has("<path class=\"l0\" d=\"M2 0h3v1h-3zM2 2h3v1h-3z\"></path><path class=\"l1\" d=\"\"></path>"
                    "<path class=\"l2\" d=\"M0 0h2v1h-2zM0 1h2v1h-2zM0 2h2v1h-2z\"></path>"
                    "<path class=\"l3\" d=\"M2 1h3v1h-3z\"></path><path class=\"l4\" d=\"\"></path>"));
    assert_int_equal(count_of(page, "class=\"map\""), 2);

    char text[300 * 4 + 10] = "";
    for (int e = 0; e < 300; e++) strcat(text, e == 299 ? "99 " : e == 5 ? "0 " : "2 ");
    m = begin("r", 200);
    write_train(m, 1, 2);
    for (int i = 1; i <= 200; i++)
        for (int l = 0; l < 20; l++) {
            write_experts(m, i, formatted("layers.%d", l), text, 2, 0.5);
        }
    metrics_close(m);
    make();
    assert_int_equal(points("experts.idle"), 200);
    assert_int_equal(count_of(page, "class=\"map\""), 12);
    assert_int_equal(count_of(page, "viewBox=\"0 0 25 60\""), 12); // 8 lines a column, 5 experts a row
    assert_int_equal(count_of(page, "<path class=\"l0\" d=\"M0 1h25v1h-25z\"></path>"), 12); // expert 5
    assert_int_equal(count_of(page, "<path class=\"l4\" d=\"M0 59h25v1h-25z\"></path>"), 12);
    assert_true(has("Neighbours share a row"));
}

// F0 on stage 0 from 100 to 110 us, B0 on stage 1 from 110 to 130: half of two stages' 30 us is idle.
TEST_WITH(test_pipeline, temp_dir_make, tear_down)
{
    put_text("metrics.jsonl", TRAIN("1", "3"));
    put_text("trace.json", "{\"traceEvents\":["
                      "{\"ph\":\"X\",\"name\":\"F0\",\"ts\":100,\"dur\":10,\"tid\":0,\"args\":{\"micro\":0}},"
                      "{\"ph\":\"X\",\"name\":\"B3\",\"ts\":110,\"dur\":20,\"tid\":1,\"args\":{\"micro\":3}}]}");
    make();
    SHOWS("0.030 ms; ", "micro-batch; 50.0% of the stages' time is idle", "viewBox=\"0 0 1000 52\"",
          "<rect class=\"F\" x=\"60.00\" y=\"2\" width=\"312.73\" height=\"20\"><title>F0: 0.010 ms<",
          "<rect class=\"B\" x=\"373.33\" y=\"26\" width=\"626.07\" height=\"20\"><title>B3: 0.020 ms<",
          "<text class=\"in\" x=\"686.67\" y=\"40\">3</text>");
    enum { MOST = 4000 }; // more than that are not drawn
    char *text = malloc(MOST * 60), *at = text + sprintf(text, "{\"traceEvents\":[");
    assert_non_null(text);
    for (int i = 0; i < MOST + 2; i++)
        at += sprintf(at, "%s{\"ph\":\"X\",\"name\":\"F\",\"ts\":%d,\"dur\":1}", i ? "," : "", i);
    strcpy(at, "]}");
    put_text("trace.json", text);
    free(text);
    make();
    assert_int_equal(count_of(page, "<rect class=\"F\""), MOST);
    put_text("trace.json", "{\"traceEvents\":[]}");
    make();
    assert_false(has("stages' time"));
}

TEST_WITH(test_settings, temp_dir_make, tear_down)
{
    put_text("metrics.jsonl", TRAIN("1", "3"));
    put_text("config.toml", "# All settings of this run, resolved; after a value, where it came from.\n\n[run]\n"
                       "name = \"a # \\\"b\\\"\"  # x.toml:3\nsteps = 0.0\nseed = 1336  # command line\n"
                       "# trace = 7  # no effect: needs parallel.pp>1\n[optim]\nmin_lr = 0.1  # derived: lr / 10\n"
                       "[parallel]\n# dp = 2  # derived\n[new]\nkey = 5\n");
    make();
    SHOWS("Changed from the default: 3", "Derived from others: 2", "At their default: 1",
          "<code>a # \\&quot;b\\&quot;</code></td><td class=\"muted\">run</td><td class=\"muted\">x.toml:3</td>",
          "<code>run.seed</code></td><td><code>1336</code></td><td class=\"muted\">1337</td>"
          "<td class=\"muted\">command line</td>", "<code>parallel.dp</code></td><td><code>2</code></td>",
          "<code>new.key</code></td><td><code>5</code></td>", "not a setting of this version",
          "<code>run.steps</code></td><td><code>0.0</code></td><td class=\"muted\">0</td><td class=\"muted\"></td>");
    assert_false(has("run.trace"));
    put_text("config.toml", "[run]\nname = \"run\"\n"); // the first row of the table
    make();
    assert_true(has("At their default: 1") && !has("Changed from the default"));
}

// Names, samples, keys, settings and folders come from anywhere.
TEST_WITH(test_hostile, temp_dir_make, tear_down)
{
    Metrics *m = begin("</title><script>alert(1)</script>\"'&\xff\xc3", 9);
    write_train(m, 1, 3);
    const char *sample = "</pre></script><img src=x onerror=alert(2)>\x01\x7f\xed\xa0\x80 &amp; \"quotes\" '";
    metrics_write(m, &(MetricsRow){.event = METRICS_SAMPLE, .step = 1, .text = sample});
    metrics_write(m, &(MetricsRow){.event = METRICS_WARN, .step = 1, .text = "</td><script>alert(3)</script>"});
    metrics_close(m);
    append("{\"event\":\"train\",\"step\":2,\"</script><script>alert(4)\":7,\"\\\"\\\\,x\":1,\"loss\":2}\n"
           "{\"event\":\"<b>new</b>\",\"step\":2,\"text\":\"<i>\"}\n"
           "{\"event\":\"val\",\"step\":2,\"val_loss\":2,\"val_<u>_loss\":2.5}\n"
           "{\"event\":\"train\",\"step\":3,\"loss\":\"<s>\"}\n[1]\n7\n\n\xff\n");
    put_text("config.toml", "[run]\nname = \"</code><script>alert(5)</script>\"  # <b>\"'\nx<y>z = 3\nbad\xff = \""
             "\xc3\n[<p>]\nq = \"\n");
    put_text("trace.json", "{\"traceEvents\":[{\"ph\":\"X\",\"name\":\"<b>\",\"ts\":0,\"dur\":1,\"tid\":0},"
                      "{\"ph\":\"X\",\"name\":\"\",\"ts\":0,\"dur\":1,\"tid\":0},"
                      "{\"ph\":\"X\",\"name\":\"F<u>\",\"ts\":0,\"dur\":1,\"tid\":9999999},"
                      "{\"ph\":\"X\",\"name\":\"F<u>\",\"ts\":\"<\",\"dur\":1e9,\"tid\":1}]}");
    make(); // check_tags and check_alone
    assert_true(has("&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&amp;\xef\xbf\xbd"));
    assert_true(has("&lt;/pre&gt;&lt;/script&gt;&lt;img s"));
    assert_int_equal(points("</script><script>alert(4)"), 1);
    assert_int_equal(points("val_<u>_loss"), 1);
    assert_true(has("stage 1") && !has("stage 2"));
    assert_true(has("4 lines of metrics.jsonl could not be read"));
    size_t length, n = strlen(page);
    assert_int_equal(words_utf8_invalid(page, n, 0, &length), n);
}

TEST_WITH(test_not_finite_and_cut, temp_dir_make, tear_down)
{
    Metrics *m = begin("r", 9);
    const double loss[] = {3, NAN, INFINITY, 2.5};
    for (int i = 0; i < 4; i++) write_train(m, i + 1, loss[i]);
    metrics_close(m);
    append("{\"event\":\"train\",\"step\":5,\"lo");
    make();
    assert_int_equal(points("loss"), 4);
    for (size_t i = 0; i < 4; i++)
        assert_true(isfinite(loss[i]) ? in_series("loss", 1, i) == loss[i] : isnan(in_series("loss", 1, i)));
    SHOWS("The training loss of 2 steps was not finite.", "1 line of metrics.jsonl could not be read",
          "step <b>4</b> of <b>9</b>");
    assert_int_equal(points("loss_inf"), 0); // a flag
    make_of(TRAIN("1", "null,\"loss_nan\":true"));
    SHOWS("The training loss of 1 step was not finite.");
}

TEST_WITH(test_few, temp_dir_make, tear_down)
{
    make(); // no file
    SHOWS("class=\"state empty\"", "No training step yet.");
    make_of("");
    SHOWS("class=\"state empty\"");
    Metrics *m = begin("one", 1);
    make();
    SHOWS("class=\"state failed\"", "No training step yet.");
    metrics_close(m);
    make_of(TRAIN("1", "3,\"tokens\":8,\"dt_ms\":4,\"tok_s\":2000"));
    SHOWS("This run has not recorded its phases.", "<b>4.000 ms</b>",
          "style=\"width:0.00%\""); // of an unknown number of steps
    assert_false(has("Memory of rank 0"));
    make_of(TRAIN("1", "3,\"dt_ms\":4,\"data_ms\":1,\"save_ms\":2"));
    SHOWS("<td>saving, between steps</td><td class=\"n\">2.000</td><td class=\"n\">50.0%</td>");
}

// Two numbers a bucket: the second is there too, and so is their mean.
TEST_WITH(test_pairs, temp_dir_make, tear_down)
{
    for (int n = PAGE_BUCKETS; n <= PAGE_BUCKETS + 2; n += 2) {
        char *text = PRINTED(f, for (int i = 1; i <= n; i++) fprintf(f, TRAIN("%d", "%d"), i, i));
        make_of(text);
        free(text);
        assert_int_equal(points("loss"), n);
        if (n == PAGE_BUCKETS) assert_true(isnan(in_series("loss", 2, 0)) || in_series("loss", 2, 0) == 0); // no means
    }
    for (size_t i = 0; i < PAGE_BUCKETS + 2; i++) assert_true(in_series("loss", 1, i) == (double)i + 1);
    for (size_t i = 0; i < PAGE_BUCKETS / 2 + 1; i++) // steps 1 and 2: 1.5
        assert_true(in_series("loss", 2, i) == 2 * (double)i + 1.5 && in_series("loss", 3, i) == 2 * (double)i + 1.5);
}

TEST_WITH(test_states, temp_dir_make, tear_down)
{
    Metrics *m = begin("r", 4);
    for (int i = 1; i <= 2; i++) write_train(m, i, 3);
    DiskLock lock = disk_lock_take(dir);
    make();
    SHOWS("class=\"state running\"", "data-state=\"running\"", "style=\"width:50.00%\"");
    disk_lock_release(lock);
    make();
    assert_true(has("class=\"state failed\""));
    put_text("lock", "host, process 1, since then\n"); // a killed run leaves it
    make();
    assert_true(has("class=\"state failed\""));
    metrics_write(m, &(MetricsRow){.event = METRICS_END, .step = 2, .val_loss = NAN, .val_bpb = NAN, .val_ppl = NAN});
    make();
    assert_true(has("class=\"state stopped\""));
    assert_int_equal(points("val_loss"), 0); // it was not evaluated
    metrics_close(m);
}

TEST_WITH(test_resumed, temp_dir_make, tear_down)
{
    make_of(TRAIN("2", "3") TRAIN("3", "3")
            "{\"event\":\"resume\",\"step\":3,\"name\":\"r\",\"steps\":6,\"mem_parameters\":1000000}\n"
            TRAIN("4", "2") TRAIN("5", "2") "{\"event\":\"skip\",\"step\":5,\"text\":\"loss 9\"}\n");
    assert_int_equal(points("loss"), 4);
    char *marks = json_dumps(json_object_get(data, "marks"), JSON_COMPACT);
    assert_true(!strncmp(marks, "[[3,\"resume\"", 12) && count_of(marks, "],[") == 1);
    free(marks);
    SHOWS("<td>parameters</td><td class=\"n\">1.00</td><td class=\"n\">100.0%</td>");
    assert_false(has("<td>activations</td>"));
}

// A run of 30,000 lines: the page is small, and what is kept is a choice of the file's own numbers, with all extremes.
TEST_WITH(test_long, temp_dir_make, tear_down)
{
    enum { N = 30000 };
    FILE *f = fopen(in_dir("metrics.jsonl"), "w");
    double total = 0;
    for (int i = 1; i <= N; i++) {
        double loss = i == 24321 ? 99 : i == 777 ? 0.125 : 2 + 0.25 * ((i * 7) % 5);
        total += loss;
        fprintf(f, "{\"event\":\"train\",\"step\":%d,\"tokens\":%d,\"loss\":%.9g,\"lr\":0.001,\"grad_norm\":%.9g,"
                "\"dt_ms\":8.123456,\"tok_s\":7891.123,\"mfu\":0.123456,\"ppl\":7.123456,\"samples_s\":12.3456,"
                "\"data_ms\":0.123,\"forward_ms\":2.125,\"backward_ms\":4.125,\"optim_ms\":1.5,\"t\":%d}\n",
                i, 8 * i, i == 999 ? 0.5 : loss, 0.5 + i % 97 / 97.0, 1700000000 + i);
    }
    fclose(f);
    make();
    assert_true(strlen(page) < 2000000);
    size_t n = points("loss");
    assert_true(n <= 2 * PAGE_BUCKETS && n >= PAGE_BUCKETS / 2);
    double low = INFINITY, high = -INFINITY, before = 0;
    for (size_t i = 0; i < n; i++) {
        double step = in_series("loss", 0, i), value = in_series("loss", 1, i);
        assert_true(step > before && step <= N);
        before = step;
        if (step == 24321) assert_true(value == 99);
        else if (step == 777) assert_true(value == 0.125);
        else if (step != 999) assert_true(value == 2 + 0.25 * (double)(((long)step * 7) % 5));
        low = fmin(low, value), high = fmax(high, value);
    }
    assert_true(low == 0.125 && high == 99);
    assert_true(json_number_value(json_object_get(json_object_get(data, "last"), "loss")) == 2 + 0.25 * ((N * 7) % 5));
    // The means of the buckets, of equal numbers of steps but for the last, have the mean of all.
    const json_t *mean = json_array_get(json_object_get(json_object_get(data, "series"), "loss"), 3);
    size_t buckets = json_array_size(mean), stride = (size_t)in_series("loss", 2, 1) - (size_t)in_series("loss", 2, 0);
    double sum = 0;
    for (size_t i = 0; i < buckets; i++)
        sum += in_series("loss", 3, i) * (double)(i + 1 < buckets ? stride : N - stride * (buckets - 1));
    double off = 2 + 0.25 * ((999 * 7) % 5) - 0.5; // step 999
    assert_true(in_series("loss", 2, 0) == (1 + (double)stride) / 2);
    assert_true(fabs(sum - (total - off)) <= 5e-6 * total); // means of 6 digits
    PageRun run = page_read(in_dir("metrics.jsonl"));
    const PageSeries *s = page_find(&run, "loss");
    assert_true(s && s->count == N && s->last_step == N && s->low == 0.125 && s->low_step == 777 && s->high == 99);
    assert_true(fabs(s->sum - (total - off)) <= 1e-16 * N * total); // sums of N numbers
    page_free(&run);
}

TEST_WITH(test_files, temp_dir_make, tear_down)
{
    char a[10];
    put_text("metrics.jsonl", TRAIN("1", "3"));
    assert_false(page_write(dir, in_dir("missing/a.html")));
    assert_int_equal(errno, ENOENT);
    put_text("elsewhere.html", "x");
    assert_int_equal(symlink("elsewhere.html", in_dir("report.html")), 0);
    make();
    assert_true(readlink(in_dir("report.html"), a, sizeof a) > 0); // a link is followed
    assert_true(page_write(dir, in_dir("b.html")));
    assert_int_equal(access(in_dir("b.html"), R_OK), 0);
}

TESTS(NULL, NULL)
