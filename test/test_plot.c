// plot: the picture is well-formed XML, every mark is at its value, and unusual runs give a picture too.
#include "test/test.h"

#include "record/metrics.h"
#include "expect_die.h"
#include "tags.h"
#include "temp_dir.h"

#include <ctype.h>
#include <sys/wait.h>

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

static int plot_nothing(void *picture)
{
    metrics_plot_loss(in_dir("metrics.jsonl"), picture, NULL, 0);
    return 0;
}

TEST_IN_DIR(test_errors)
{
    expect_die(plot_nothing, in_dir("loss.svg"), "cannot open");
    expect_die(plot_nothing, in_dir("loss.svg"), in_dir("metrics.jsonl"));
}

TESTS(NULL, NULL)
