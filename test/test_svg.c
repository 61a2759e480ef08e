// test_svg: pictures number by number: where a value stands, ticks and what is written at them, a curve's points, its
// smoothed twin, labels that make room for each other; the numbers of known loss curves; and the plot of a run: well-
// formed XML, every mark at its value.
#include "test/test.h"

#include "tools/svg.h"
#include "dev/draw/curve.h"
#include "record/metrics.h"
#include "expect_die.h"
#include "tags.h"
#include "temp_dir.h"

#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/wait.h>

static char *text;
static size_t n_text;
static FILE *begin(void)
{
    FILE *f = open_memstream(&text, &n_text);
    assert_non_null(f);
    return f;
}

static void expect(FILE *f, const char *want)
{
    assert_int_equal(fclose(f), 0);
    assert_string_equal(text, want);
    free(text);
}

static const SvgPanel panel = {.x = 10, .y = 20, .w = 100, .h = 50, .x1 = 200, .y0 = 1, .y1 = 3};

TEST(test_places)
{
    assert_true(svg_px(&panel, 0) == 10 && svg_px(&panel, 50) == 35 && svg_px(&panel, 200) == 110);
    assert_true(svg_py(&panel, 3) == 20 && svg_py(&panel, 2) == 45 && svg_py(&panel, 1) == 70);
    const struct { double v; const char *want; } rows[] = {
        {0, "0"}, {999, "999"}, {1000, "1k"}, {1234, "1.23k"}, {1e6, "1M"}, {2.5e9, "2.5B"}, {1e12, "1T"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char out[32];
        svg_count(out, rows[i].v);
        assert_string_equal(out, rows[i].want);
    }
}

// The texts of a frame that are anchored so, one after another: "Y:TEXT " or, for those below, "X:TEXT ".
static void expect_ticks(const SvgPanel *p, int x_ticks, int y_ticks, const char *anchor, const char *want)
{
    char got[600] = "";
    FILE *f = begin();
    svg_frame(f, p, x_ticks, y_ticks, "along", "up");
    fclose(f);
    char *mark = formatted("text-anchor=\"%s\" font-size=\"12\"", anchor);
    for (char *at = text; (at = strstr(at, "<text "));) {
        double x, y;
        char *end = strchr(at, '>') + 1;
        assert_int_equal(sscanf(at, "<text x=\"%lf\" y=\"%lf\"", &x, &y), 2);
        if (strstr(at, mark) && strstr(at, mark) < end)
            snprintf(got + strlen(got), sizeof got - strlen(got), "%g:%.*s ", *anchor == 'e' ? y : x,
                     (int)strcspn(end, "<"), end);
        at = end;
    }
    assert_string_equal(got, want);
    free(text);
}

TEST(test_ticks)
{
    static const struct {
        double y0, y1;
        int x_ticks, y_ticks;
        const char *anchor, *want;
    } rows[] = {
        {1, 3, 4, 2, "middle", "10:0 35:50 60:100 85:150 110:200 "},
        {1, 3, 4, 2, "end", "74:1 49:2 24:3 104:along "}, // 4 below the line
        {0, 3, 2, 3, "end", "74:0 57.3:1 40.7:2 24:3 104:along "},
        {0.5, 1, 2, 3, "end", "64:0.6 44:0.8 24:1.0 104:along "}, // steps of 0.2, the first that is in the panel
        {0, 4e-4, 2, 2, "end", "74:0 49:2e-4 24:4e-4 104:along "},
        {0, 3, 2, 2, "end", "74:0 40.7:2 104:along "}, // just between two steps, the larger one
        {0, 7, 2, 2, "end", "74:0 38.3:5 104:along "}, {0, 15, 2, 2, "end", "74:0 40.7:10 104:along "},
        {0, 0.04, 2, 2, "end", "74:0 49:0.02 24:0.04 104:along "},
        {0, 3e5, 2, 3, "end", "74:0 57.3:100000 40.7:200000 24:300000 104:along "},
        {0, 3e6, 2, 3, "end", "74:0 57.3:1e+06 40.7:2e+06 24:3e+06 104:along "},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        SvgPanel p = panel;
        p.y0 = rows[i].y0, p.y1 = rows[i].y1;
        expect_ticks(&p, rows[i].x_ticks, rows[i].y_ticks, rows[i].anchor, rows[i].want);
    }
}

TEST(test_lines_and_texts)
{
    FILE *f = begin();
    svg_line(f, 1, 2, 3.25, 4, "red", 1.5, "3 4");
    svg_text(f, 1, 2.75, "start", 11.5, "red", true, "a&\"\x01\xC3\xA9");
    expect(f, "<line x1=\"1.0\" y1=\"2.0\" x2=\"3.2\" y2=\"4.0\" stroke=\"red\" stroke-width=\"1.5\" "
              "stroke-dasharray=\"3 4\"/>\n<text x=\"1.0\" y=\"2.8\" text-anchor=\"start\" font-size=\"11.5\" "
              "fill=\"red\" font-weight=\"600\">a&amp;&quot;\xC3\xA9</text>\n");
}

static void expect_path(const double (*point)[2], size_t n, double width, const char *want)
{
    char all[600];
    SvgPanel p = panel;
    SvgSeries s = svg_series(n);
    p.w = width;
    for (size_t i = 0; i < n; i++) s.x[i] = point[i][0], s.y[i] = point[i][1];
    s.n = n;
    FILE *f = begin();
    svg_curve(f, &p, "c", &s, "red", 1, 0.5);
    snprintf(all, sizeof all,
             "<path clip-path=\"url(#c)\" fill=\"none\" stroke=\"red\" stroke-width=\"1\" stroke-opacity=\"0.5\" "
             "stroke-linejoin=\"round\" d=\"%s\"/>\n", want);
    expect(f, all);
    svg_series_free(&s);
}

TEST(test_curve)
{
    // A gap where there is no number and where x goes back; what is far outside is drawn a little outside.
    expect_path((const double[][2]){{0, 1}, {2, 3}, {4, NAN}, {6, 2}, {8, 1}, {2, 3}, {4, 2}}, 7, 100,
                "M10.0 70.0L11.0 20.0M13.0 45.0L14.0 70.0M11.0 20.0L12.0 45.0");
    expect_path((const double[][2]){{0, 1e9}, {2, -1e9}, {4, INFINITY}}, 3, 100, "M10.0 -180.0L11.0 270.0");
    // More than two points a column: each column from its highest to its lowest, once where there is one point.
    expect_path((const double[][2]){{0, 2}, {20, 1}, {90, 3}, {100, 2}, {199, 1}}, 5, 2,
                "M10.0 20.0L10.0 70.0L11.0 45.0L11.0 70.0");
    expect_path((const double[][2]){{0, 2}, {20, 1}, {90, 3}, {99, NAN}, {100, 2}}, 5, 2,
                "M10.0 20.0L10.0 70.0L11.0 45.0");
    expect_path((const double[][2]){{0, 2}, {20, 1}, {90, 3}, {100, 2}}, 4, 2, // two a column: each is drawn
                "M10.0 45.0L10.2 70.0L10.9 20.0L11.0 45.0");
    FILE *f = begin();
    svg_clip(f, &panel, "c");
    expect(f, "<clipPath id=\"c\"><rect x=\"10.0\" y=\"20.0\" width=\"104.0\" height=\"50.0\"/></clipPath>\n");
}

TEST(test_series)
{
    enum { N = 160 }; // means over up to 2 points on each side
    SvgSeries s = svg_series(N);
    assert_int_equal(s.n, 0);
    s.n = N;
    for (int i = 0; i < N; i++) s.x[i] = 2 * i, s.y[i] = i == 80 ? 25 : 0;
    SvgSeries smooth = svg_smooth(&s);
    assert_int_equal(smooth.n, N);
    const double twice[] = {1, 2, 3, 4, 5, 4, 3, 2, 1};
    for (int i = 0; i < N; i++) {
        assert_true(smooth.x[i] == 2 * i);
        double want = i >= 76 && i <= 84 ? twice[i - 76] : 0;
        assert_true(fabs(smooth.y[i] - want) < 1e-12);
    }
    svg_series_free(&smooth);
    // At the start the window is narrower, and the first point stays; no number stays none, and the others go on.
    for (int i = 0; i < N; i++) s.y[i] = i == 0 ? 9 : i == 50 ? NAN : i == 51 ? 4 : 0;
    smooth = svg_smooth(&s);
    assert_true(smooth.y[0] == 9 && fabs(smooth.y[1] - (9 + 3 + 1.8) / 3) < 1e-12);
    assert_true(isnan(smooth.y[50]) && fabs(smooth.y[48] - (0 + 0 + 0 + 1) / 4.0) < 1e-12 && smooth.y[N - 1] == 0);
    svg_series_free(&smooth);

    double low = NAN, high = NAN;
    svg_range(&s, 102, &low, &high); // from the point at 102 on, which is 4
    svg_range(&s, 1000, &low, &high);
    assert_true(low == 0 && high == 4 && svg_last(&s) == 0);
    s.y[N - 1] = NAN, s.y[N - 2] = 7;
    assert_true(svg_last(&s) == 7);
    s.n = 0;
    assert_true(isnan(svg_last(&s)));
    svg_series_free(&s);
}

// Labels stand beside the end of their curve, from the top; those of near values half as far up as down.
TEST(test_labels)
{
    SvgPanel p = panel;
    p.h = 200;
    SvgLabel label[3] = {{.value = 1.5, .color = "red", .head = "low", .detail = "a<b"},
                         {.value = 2.5, .color = "blue", .head = "high"},
                         {.value = 2.4, .color = "blue", .head = "mid"}};
    FILE *f = begin();
    svg_labels(f, &p, label, 3);
    fclose(f);
    assert_string_equal(label[0].head, "high");
    assert_string_equal(label[1].head, "mid");
    assert_string_equal(label[2].head, "low");
    assert_true(fabs(label[0].y - (75 - 17)) < 1e-9 && fabs(label[1].y - (75 + 17)) < 1e-9); // of 70 and 80
    assert_true(label[2].y == 170);
    const char *want = "<line x1=\"115.0\" y1=\"170.0\" x2=\"126.0\" y2=\"170.0\" stroke=\"red\" stroke-width=\"1\"/>\n"
                       "<text x=\"131.0\" y=\"172.0\" text-anchor=\"start\" font-size=\"13\" fill=\"red\" "
                       "font-weight=\"600\">low</text>\n"
                       "<text x=\"131.0\" y=\"187.0\" text-anchor=\"start\" font-size=\"11.5\" fill=\"#66727f\">"
                       "a&lt;b</text>\n";
    assert_non_null(strstr(text, want));
    assert_non_null(strstr(text, "y1=\"70.0\" x2=\"126.0\" y2=\"58.0\"")); // from the curve to its label
    free(text);
    SvgLabel far[2] = {{.value = 9}, {.value = -9}}; // beyond the panel: at its edges
    f = begin();
    svg_labels(f, &p, far, 2);
    fclose(f);
    assert_true(far[0].y == 20 && far[1].y == 220);
    free(text);
}

// ---- curve: windows, gains, spikes and plateaus of known loss curves; exact where sums are exact in binary.

enum { STEPS = 40, WINDOW = 8 };

// Loss 4, 2, 2, 2, 2 in windows of 8, with +-1/4 around it: standard deviation sqrt(8 / 7) / 4.
static MetricsLog made_log(MetricsRow *row)
{
    for (int i = 0; i < STEPS; i++)
        row[i] = (MetricsRow){.event = METRICS_TRAIN, .step = i + 1,
                          .loss = (i < WINDOW ? 4 : 2) + (i % 2 ? 0.25 : -0.25),
                              .grad_norm = i % 2 ? 1 : 2};
    return (MetricsLog){.row = row, .n_rows = STEPS};
}

TEST(test_windows)
{
    MetricsRow row[STEPS];
    MetricsLog log = made_log(row);
    Curve c = curve_read(&log, (CurveSettings){.window = WINDOW, .spike_window = WINDOW,
                                   .spike_z = 3, .plateau = 0.01});
    assert_true(c.n_steps == STEPS && c.n_windows == 5 && c.n_spikes == 0);
    for (size_t w = 0; w < 5; w++) {
        const CurveWindow *x = &c.window[w];
        assert_true(x->first == (int64_t)w * WINDOW + 1 && x->last == (int64_t)(w + 1) * WINDOW);
        assert_true(x->mean == (w ? 2 : 4) && x->norm == 1.5 && x->bad == 0);
        assert_true(fabs(x->std - sqrt(8.0 / 7) / 4) <= 1e-15); // a root and a quotient
        assert_true(w == 0 ? isnan(x->gain) : x->gain == (w == 1 ? 0.5 : 0));
        assert_true(x->still == (w >= 2));
    }
    char *text;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    curve_print(&c, "made", out);
    fclose(out);
    assert_non_null(strstr(text, "made: 40 steps, in windows of 8\n"));
    assert_non_null(strstr(text, "stands still from step 17 to 40: 3 windows, each within 1% of the one before\n"));
    assert_non_null(strstr(text, "50.00%"));
    free(text);
    curve_free(&c);
    for (int i = 3 * WINDOW; i < STEPS; i++) row[i].loss += i < 4 * WINDOW ? 0.06 : 0.132; // of 2: 3%, then 3.5% more
    c = curve_read(&log, (CurveSettings){.window = WINDOW, .spike_window = WINDOW, .spike_z = 3, .plateau = 0.01});
    for (size_t w = 1; w < 5; w++) assert_true(c.window[w].worse == (w > 2) && c.window[w].still == (w == 2));
    out = open_memstream(&text, &n);
    curve_print(&c, "made", out);
    fclose(out);
    assert_non_null(strstr(text, "rises from step 25 to 40: the mean loss is 6.60% above that of the window before\n"));
    assert_non_null(strstr(text, "stands still nowhere"));
    free(text);
    curve_free(&c);
}

// A spike of the loss, one of the norm, a NaN: each counted where it is; the mean is that of the rest.
TEST(test_spikes)
{
    MetricsRow row[STEPS];
    MetricsLog log = made_log(row);
    row[20].loss = 9, row[30].grad_norm = 400, row[35].loss = NAN;
    Curve c = curve_read(&log, (CurveSettings){.window = WINDOW, .spike_window = WINDOW,
                                   .spike_z = 3, .plateau = 0.01});
    assert_int_equal(c.n_spikes, 2);
    assert_true(c.spike_step[0] == 21 && c.spike[0].signal == MONITOR_LOSS && c.spike[0].value == 9);
    assert_true(c.spike_step[1] == 31 && c.spike[1].signal == MONITOR_GRAD_NORM && c.spike[1].value == 400);
    assert_true(c.window[2].spikes == 1 && c.window[3].spikes == 1 &&
                c.window[4].spikes == 0 && c.window[1].spikes == 0);
    assert_true(c.window[4].bad == 1 && fabs(c.window[4].mean - (16 - 2.25) / 7) <= 1e-15);
    curve_free(&c);
}

// What is left over joins the last window or is one; a file without a step; windows chosen by the run's length.
TEST(test_lengths)
{
    MetricsRow row[STEPS];
    MetricsLog log = made_log(row);
    const struct { size_t steps, window, windows, last; } rows[] = {
        {0, 8, 0, 0}, {1, 8, 1, 1}, {8, 8, 1, 8}, {12, 8, 1, 12}, {13, 8, 2, 5}, {16, 8, 2, 8}, {40, 0, 4, 10},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        log.n_rows = rows[i].steps;
        Curve c = curve_read(&log, (CurveSettings){.window = rows[i].window, .spike_z = 3, .plateau = 0.01});
        assert_int_equal(c.n_windows, rows[i].windows);
        const CurveWindow *last = &c.window[c.n_windows ? c.n_windows - 1 : 0];
        if (c.n_windows) assert_int_equal(last->last - last->first + 1, rows[i].last);
        FILE *out = fopen("/dev/null", "w");
        curve_print(&c, "", out);
        fclose(out);
        curve_free(&c);
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

TESTS(NULL, NULL)
