// test_svg: pictures number by number: where a value stands, ticks and what is written at them, a curve's points,
// its smoothed twin, and labels that make room for each other.

#include "test/test.h"

#include "tools/svg.h"

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

TESTS(NULL, NULL)
