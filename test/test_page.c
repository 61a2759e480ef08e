// page: report.html is the template with a run's own data in it: which lines it has, that none of their bytes leave the
// JSON, and that it stays small. test_page.sh looks at what its script shows, in a browser.
#include "test/test.h"

#include "base/disk.h"
#include "base/words.h"
#include "record/metrics.h"
#include "temp_dir.h"

#include <errno.h>
#include <jansson.h>

// ---- reading a page

static char *page;   // the text of the last one
static json_t *data; // what its script reads

static void forget(void)
{
    free(page), page = NULL;
    json_decref(data), data = NULL;
}

static void make(void)
{
    static const char *const never[] = {"href", "src=", "@import", "fetch", "XMLHttp", "import(", "<img", "<link",
                                        "<iframe", "innerHTML", "eval(", "insertAdjacent", "document.write"};
    size_t n, length;
    forget();
    assert_true(page_write(dir, NULL));
    page = take_file("report.html", &n);
    assert_true(strlen(page) == n && words_utf8_invalid(page, n, 0, &length) == n);
    char *begin = strstr(page, "id=\"data\">"), *end = begin ? strchr(begin, '<') : NULL;
    assert_true(end && !strncmp(end, "</script>", 9)); // no "<" before it
    begin = strchr(begin, '>') + 1;
    data = json_loadb(begin, (size_t)(end - begin), JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(data);
    memset(begin, ' ', (size_t)(end - begin)); // the template remains: it loads nothing, and writes only text
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        if (strstr(page, never[i])) fail_msg("the page has %s", never[i]);
    assert_true(strstr(page, "default-src 'none'") && count_of(page, "<script") == 2 && count_of(page, "</body>") == 1);
}

static void make_of(const char *metrics)
{
    put_text("metrics.jsonl", metrics);
    make();
}

static int tear_down(void **state)
{
    forget();
    return temp_dir_remove(state);
}

static const json_t *line(size_t i)
{
    return json_array_get(json_object_get(data, "lines"), i);
}

static size_t n_lines(void)
{
    return json_array_size(json_object_get(data, "lines"));
}

static double number_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static bool has_step(const char *event, double step)
{
    for (size_t i = 0; i < n_lines(); i++)
        if (!strcmp(text_of(line(i), "event"), event) && number_of(line(i), "step") == step) return true;
    return false;
}

// last, count, bad, sum, timed of a key of all train lines
static double total(const char *key, size_t which)
{
    const json_t *totals = json_object_get(data, "totals");
    for (size_t i = 0; i < json_array_size(totals); i++)
        if (!strcmp(json_string_value(json_array_get(json_array_get(totals, i), 0)), key))
            return json_number_value(json_array_get(json_array_get(totals, i), 1 + which));
    return NAN;
}
enum { LAST, COUNT, BAD, SUM, TIMED };

#define TRAIN(STEP, REST) "{\"event\":\"train\",\"step\":" STEP ",\"loss\":" REST "}\n"

// ---- lines

// They stand as they are, in the order of the file. A step that no integer of JSON can hold is no step; a last line
// without its newline counts, a cut one does not.
TEST_WITH(test_lines, temp_dir_make, tear_down)
{
    make_of("{\"event\":\"start\",\"step\":0,\"name\":\"r\",\"steps\":6}\n" TRAIN("1", "3,\"dt_ms\":10,\"tok_s\":1000")
            TRAIN("2e300", "2") "{\"event\":\"val\",\"step\":1,\"val_loss\":2.5}\n"
            TRAIN("2", "null,\"loss_nan\":true,\"dt_ms\":30,\"tok_s\":200")
            "{\"event\":\"new\",\"step\":2,\"deep\":{\"a\":[1]}}\n"
            "[1]\n7\n\n\xff\n{\"event\":\"train\",\"event\":\"val\",\"step\":1}\n" TRAIN("3", "2.75"));
    assert_int_equal(n_lines(), 6);
    assert_true(number_of(data, "bad") == 6);
    char *deep = json_dumps(line(4), JSON_COMPACT);
    assert_string_equal(deep, "{\"event\":\"new\",\"step\":2,\"deep\":{\"a\":[1]}}");
    free(deep);
    assert_true(has_step("train", 3) && number_of(line(2), "val_loss") == 2.5);
    assert_true(total("loss", LAST) == 2.75 && total("loss", COUNT) == 2 && total("loss", BAD) == 1);
    assert_true(total("loss", SUM) == 5.75 && total("tok_s", TIMED) == 16000 && total("dt_ms", SUM) == 40);
    assert_true(number_of(json_object_get(data, "counts"), "train") == 3);
    make_of(TRAIN("1", "3") "{\"event\":\"train\",\"step\":2,\"loss\":2.75}");
    assert_int_equal(n_lines(), 2);
    make_of(TRAIN("1", "3") "{\"event\":\"train\",\"step\":2,\"lo");
    assert_true(n_lines() == 1 && number_of(data, "bad") == 1);
    char *text = PRINTED(f, fprintf(f, TRAIN("1", "3") "{\"event\":\"train\",\"step\":2,\"x\":\"%070000d\"}\n", 1));
    make_of(text); // a line longer than any that a run writes
    assert_true(n_lines() == 1 && number_of(data, "bad") == 1);
    free(text);
}

// Names, samples, keys, settings and folders come from anywhere: make() sees that nothing leaves the JSON.
TEST_WITH(test_hostile, temp_dir_make, tear_down)
{
    static const char bad[] = "</title></script><!--<script>alert(1)</script>]]>&\"'\\\x01\x7f\xed\xa0\x80\xff";
    Metrics *m = metrics_open(in_dir("metrics.jsonl"), 0, 0);
    metrics_write(m, &(MetricsRow){.event = METRICS_START, .name = bad, .text = bad});
    metrics_write(m, &(MetricsRow){.event = METRICS_SAMPLE, .step = 1, .text = bad});
    metrics_close(m);
    FILE *f = fopen(in_dir("metrics.jsonl"), "a");
    fputs("{\"event\":\"train\",\"step\":2,\"</script><script>alert(4)\":7,\"loss\":2}\n"
          "{\"event\":\"<b>\",\"step\":2}\n", f);
    fclose(f);
    put_text("config.toml", formatted("[run]\nname = \"%s\"\n[<p>]\nq = \"\n", bad));
    put_text("trace.json", "{\"traceEvents\":[{\"ph\":\"X\",\"name\":\"</script>\"}]}");
    make();
    assert_int_equal(n_lines(), 4);
    assert_true(!strncmp(text_of(line(0), "name"), "</title></script><!--<script>", 29));
    assert_true(total("</script><script>alert(4)", LAST) == 7 && has_step("<b>", 2));
    const char *config = text_of(data, "config");
    assert_true(strstr(config, "name = \"</title></script>") && strstr(config, "\xef\xbf\xbd"));
    const json_t *spans = json_object_get(json_object_get(data, "trace"), "traceEvents");
    assert_string_equal(text_of(json_array_get(spans, 0), "name"), "</script>");
}

// A run of 30,000 lines: the page is small, has the lines of all spikes, the first and the last, and exact totals.
TEST_WITH(test_long, temp_dir_make, tear_down)
{
    enum { N = 30000, LOW = 777, BAD_LOSS = 999, NORM = 12345, SLOW = 15001, HIGH = 24321 };
    static const int spike[] = {1, LOW, BAD_LOSS, NORM, SLOW, HIGH, N};
    FILE *f = fopen(in_dir("metrics.jsonl"), "w");
    double sum = 0, loss;
    for (int i = 1; i <= N; i++) {
        loss = i == HIGH ? 99 : i == LOW ? 0.125 : 2 + 0.25 * ((i * 7) % 5);
        sum += i == BAD_LOSS ? 0 : loss;
        fprintf(f, "{\"event\":\"train\",\"step\":%d,\"tokens\":%d,\"loss\":%s,\"lr\":0.001,\"grad_norm\":%.9g,"
                "\"dt_ms\":%.6f,\"tok_s\":7891.123,\"mfu\":0.123456,\"ppl\":7.123456,\"samples_s\":12.3456,"
                "\"data_ms\":0.123,\"forward_ms\":2.125,\"backward_ms\":4.125,\"optim_ms\":1.5,\"t\":%d}\n",
                i, 8 * i, i == BAD_LOSS ? "null" : formatted("%.3f", loss), i == NORM ? 50 : 0.5 + i % 97 / 97.0,
                i == SLOW ? 900 : 8.123456, 1700000000 + i);
        if (i % 10 == 0) fprintf(f, "{\"event\":\"val\",\"step\":%d,\"val_loss\":%s}\n", i, i == 20000 ? "0.25" : "3");
    }
    fclose(f);
    make();
    assert_true(strlen(page) < 2000000 && n_lines() > PAGE_GROUPS && n_lines() < 6 * PAGE_GROUPS);
    for (size_t i = 0; i < sizeof spike / sizeof *spike; i++)
        if (!has_step("train", spike[i])) fail_msg("step %d is not there", spike[i]);
    assert_true(has_step("val", 10) && has_step("val", 20000) && has_step("val", N));
    for (size_t i = 1; i < n_lines(); i++) assert_true(number_of(line(i), "step") >= number_of(line(i - 1), "step"));
    assert_true(total("loss", COUNT) == N - 1 && total("loss", BAD) == 1 && total("loss", LAST) == loss);
    assert_true(fabs(total("loss", SUM) - sum) <= 1e-9 * sum && total("dt_ms", COUNT) == N);
    // The means of the groups, of equal numbers of steps but for the last, have the mean of all.
    const json_t *means = json_object_get(data, "means");
    double of_means = 0;
    int k = 0, next = 1;
    while (strcmp(json_string_value(json_array_get(json_array_get(json_object_get(data, "totals"), k), 0)), "lr")) k++;
    for (size_t i = 0; i < json_array_size(means); i++) {
        const json_t *group = json_array_get(means, i);
        int from = (int)json_number_value(json_array_get(group, 0));
        int to = (int)json_number_value(json_array_get(group, 1));
        assert_true(from == next && to >= from);
        of_means += json_number_value(json_array_get(group, 2 + (size_t)k)) * (to + 1 - from);
        next = to + 1;
    }
    assert_true(next == N + 1 && fabs(of_means - 0.001 * N) < 1e-9 * N);
}

// As many lines as there are groups are all there; so are some more, as two of a group are its lowest and its highest.
TEST_WITH(test_pairs, temp_dir_make, tear_down)
{
    for (int n = PAGE_GROUPS; n <= PAGE_GROUPS + 1; n++) {
        char *text = PRINTED(f, for (int i = 1; i <= n; i++) fprintf(f, TRAIN("%d", "%d"), i, i));
        make_of(text);
        free(text);
        assert_int_equal(n_lines(), n);
        const json_t *means = json_object_get(data, "means"), *first = json_array_get(means, 0);
        assert_int_equal(json_array_size(means), n == PAGE_GROUPS ? 0 : PAGE_GROUPS / 2 + 1);
        if (first) assert_true(json_number_value(json_array_get(first, 3)) == 1.5); // of step, loss
    }
}

// Of other lines the newest stay: of each kind so many that no other kind takes their place. A long text is cut.
TEST_WITH(test_others, temp_dir_make, tear_down)
{
    enum { N = 20000, BYTES = 6000 };
    static const char *const event[] = {"sample", "save", "warn", "pace", "set", "experts"};
    static const int least[] = {2000, 300, 1000, 1, 5000, N}, most[] = {N - 1, 1000, 7000, 40, N - 1, N};
    char *two_bytes = calloc(1, 2 * BYTES + 10);
    two_bytes[0] = 'x'; // so that no border between characters is at BYTES
    for (int i = 0; i < BYTES; i++) memcpy(two_bytes + 1 + 2 * i, "é", 2);
    FILE *f = fopen(in_dir("metrics.jsonl"), "w");
    fputs("{\"event\":\"start\",\"step\":0,\"name\":\"r\"}\n", f);
    for (int i = 1; i <= N; i++)
        for (int k = 0; k < 6; k++)
            fprintf(f, "{\"event\":\"%s\",\"step\":%d,\"text\":\"%s\"}\n", event[k], i,
                    i == N && k == 0 ? two_bytes : "the same words");
    fclose(f);
    make();
    assert_true(has_step("start", 0) && strlen(page) < 8000000);
    const json_t *last = line(n_lines() - 6), *counts = json_object_get(data, "counts");
    for (int k = 0; k < 6; k++) {
        int n = 0;
        for (size_t i = 0; i < n_lines(); i++) n += !strcmp(text_of(line(i), "event"), event[k]);
        if (n < least[k] || n > most[k]) fail_msg("%d lines of %s", n, event[k]);
        assert_true(has_step(event[k], N) && number_of(counts, k == 2 ? "other" : event[k]) == N);
    }
    assert_true(number_of(last, "step") == N && count_of(text_of(last, "text"), "é") == (BYTES - 1) / 2);
    assert_string_equal(text_of(last, "text") + strlen(text_of(last, "text")) - 6, "é ...");
    free(two_bytes);
}

// ---- files

TEST_WITH(test_files, temp_dir_make, tear_down)
{
    char a[10];
    make(); // no file at all
    assert_true(n_lines() == 0 && number_of(data, "bad") == 0 && json_is_null(json_object_get(data, "trace")));
    assert_string_equal(text_of(data, "config"), "");
    assert_string_equal(text_of(data, "dir"), dir);
    put_text("trace.json", "{\"traceEvents\":[");
    DiskLock lock = disk_lock_take(dir);
    make_of(TRAIN("1", "3"));
    assert_true(json_is_true(json_object_get(data, "running")) && json_is_null(json_object_get(data, "trace")));
    disk_lock_release(lock);
    put_text("lock", "host, process 1, since then\n"); // a killed run leaves it
    make();
    assert_true(json_is_false(json_object_get(data, "running")));
    const json_t *lr = json_object_get(json_object_get(data, "settings"), "optim.lr");
    assert_true(!strcmp(json_string_value(json_array_get(lr, 0)), "1e-3") && json_is_true(json_array_get(lr, 1)));
    assert_false(page_write(dir, in_dir("missing/a.html")));
    assert_int_equal(errno, ENOENT);
    assert_int_equal(unlink(in_dir("report.html")), 0);
    put_text("elsewhere.html", "x");
    assert_int_equal(symlink("elsewhere.html", in_dir("report.html")), 0);
    make();
    assert_true(readlink(in_dir("report.html"), a, sizeof a) > 0); // a link is followed
    assert_true(page_write(dir, in_dir("b.html")));
    assert_int_equal(access(in_dir("b.html"), R_OK), 0);
}

TESTS(NULL, NULL)
