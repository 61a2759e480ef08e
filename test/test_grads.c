// test_grads: what train/grads.c does with a step's gradients: norms and their order of summation, clipping by norm and
// by rows and tensors, norms.csv, and the scale of the loss. (The op on one matrix: test_ops, optim_rows.h.)
#include "test/test.h"

#include "optim_case.h"
#include "train/grads.h"
#include "expect_die.h"
#include "temp_dir.h"

TEST(test_norm)
{
    double norms[3];
    for (int threads = 1; threads <= 3; threads++) {
        Case c;
        case_open(&c, OPTIM_SGD, threads);
        case_fill(&c, 1);
        const Params *p = &c.model.params;
        double in_order = 0, exact = 0;
        for (int r = 0; r < p->n_rows; r++)
            in_order += c.dev->sum_squares(c.dev, c.model.grads + p->row[r].offset, p->row[r].n_elems);
        for (size_t i = 0; i < c.n; i++) exact += (double)c.model.grads[i] * c.model.grads[i];
        norms[threads - 1] = grads_norm(c.dev, p, c.model.grads, 0.25);
        assert_true(norms[threads - 1] == 0.25 * sqrt(in_order)); // the order that ranks can make too
        // spans of 1024 squares are added in floats: gam(1025) of the sum, half of that in its root
        assert_true(fabs(norms[threads - 1] - 0.25 * sqrt(exact)) <= gam(1025) * 0.25 * sqrt(exact));
        const float bad[] = {NAN, INFINITY, -INFINITY};
        for (int i = 0; i < 3; i++) {
            float *at = &c.model.grads[c.n - 1], was = *at;
            *at = bad[i];
            assert_false(isfinite(grads_norm(c.dev, p, c.model.grads, 0.25)));
            *at = was;
        }
        case_close(&c);
    }
    assert_true(norms[0] == norms[1] && norms[0] == norms[2]);
}

TEST(test_factor)
{
    assert_true(grads_clip_factor(8, 2) == 0.25);
    assert_true(grads_clip_factor(2, 2) == 1 && grads_clip_factor(1, 2) == 1 && grads_clip_factor(0, 2) == 1);
    assert_true(grads_clip_factor(1e30, 0) == 1); // 0: off
}

TEST(test_classifier)
{
    Params p = case_params(), tied = {0}, first = {0};
    params_add(&tied, 0, "embed.tokens.weight", 2, 7, 5, 0, 0, true, 0);
    params_add(&tied, 1, "final_norm.weight", 1, 5, 0, 0, 0, false, -1);
    params_add(&first, 0, "embed.tokens.weight", 2, 9, 5, 0, 0, true, 0);
    assert_string_equal(p.row[grads_clip_classifier(&p, false)].name, "head.weight");
    assert_int_equal(grads_clip_classifier(&tied, true), 0);
    assert_int_equal(grads_clip_classifier(&first, false), -1); // a pipeline's first stage: the last has the head
    params_free(&p), params_free(&tied), params_free(&first);
}

// Every element of every row against the formula in double. Weights of every third matrix row and of one bias are zero,
// so that the least norm counts.
static void expect_agc(bool tie, ClipUnit unit, double lambda, double scale)
{
    Case c;
    Params params = case_params();
    if (tie) params.n_rows--, params.n_elems -= 45; // without the head, which is the last
    case_begin(&c, params, 2, *case_settings(OPTIM_SGD));
    case_fill(&c, 1);
    const Params *p = &c.model.params;
    int clipped = 0, kept = 0;
    for (int r = 0; r < p->n_rows; r++) {
        const Param *row = &p->row[r];
        bool zero = !strcmp(row->name, "layers.0.wide.bias");
        for (size_t i = 0; i < row->n_elems; i++)
            if (zero || (row->ndim == 2 && i / row->dim[1] % 3 == 1)) c.model.weights[row->offset + i] = 0;
    }
    float *before = zeroed(c.n * sizeof *before);
    memcpy(before, c.model.grads, c.n * sizeof *before);
    grads_clip_agc_range(c.dev, p, tie, c.model.weights, c.model.grads, 0, p->n_elems, scale, lambda, unit, NULL);
    for (int r = 0; r < p->n_rows; r++) {
        const Param *row = &p->row[r];
        bool exempt = !strcmp(row->name, tie ? "embed.tokens.weight" : "head.weight");
        size_t width = row->ndim == 2 && unit == CLIP_ROW ? row->dim[1] : row->n_elems;
        for (size_t u = row->offset; u < row->offset + row->n_elems; u += width) {
            double g = 0, w = 0;
            for (size_t i = u; i < u + width; i++) {
                g += scale * before[i] * scale * before[i];
                w += (double)c.model.weights[i] * c.model.weights[i];
            }
            double ratio = exempt || g == 0 ? 1 : fmin(1, lambda * fmax(sqrt(w), 1e-3) / sqrt(g));
            *(ratio < 1 ? &clipped : &kept) += 1;
            double bound = ratio < 1 ? gam(1025) + 8 * U : 0; // as for the norm, and a few roundings
            for (size_t i = u; i < u + width; i++) {
                double want = ratio * before[i], got = c.model.grads[i];
                if (!(fabs(got - want) <= bound * fabs(before[i])))
                    fail_msg("%s[%zu]: %.9g, not %.9g", row->name, i - row->offset, got, want);
            }
        }
    }
    if (!clipped || !kept) fail_msg("lambda %g, scale %g: %d clipped, %d kept", lambda, scale, clipped, kept);
    free(before);
    case_close(&c);
}

TEST(test_agc)
{
    for (int tie = 0; tie < 2; tie++)
        for (int unit = 0; unit < 2; unit++) {
            expect_agc(tie, (ClipUnit)unit, 0.5, 1);
            expect_agc(tie, (ClipUnit)unit, 0.01, 1);
            expect_agc(tie, (ClipUnit)unit, 0.5, 1.0 / 64); // a scaled loss: little but zero weights is over
        }
}

// Ranges of two rows, each given as a piece of memory of its own, get the bits of one call for all.
TEST(test_agc_by_ranges)
{
    for (int unit = 0; unit < 2; unit++) {
        Case whole, parts;
        case_open(&whole, OPTIM_SGD, 1), case_open(&parts, OPTIM_SGD, 1);
        case_fill(&whole, 1), case_fill(&parts, 1);
        const Params *p = &whole.model.params;
        grads_clip_agc_range(whole.dev, p, false, whole.model.weights, whole.model.grads, 0, whole.n, 1, 0.5,
                             (ClipUnit)unit, NULL);
        for (int r = 0; r < p->n_rows; r += 2) {
            const Param *last = &p->row[r + 1 < p->n_rows ? r + 1 : r];
            size_t begin = p->row[r].offset, end = last->offset + last->n_elems, bytes = (end - begin) * sizeof(float);
            float *w = zeroed(bytes), *g = zeroed(bytes);
            memcpy(w, parts.model.weights + begin, bytes);
            memcpy(g, parts.model.grads + begin, bytes);
            grads_clip_agc_range(parts.dev, p, false, w, g, begin, end, 1, 0.5, (ClipUnit)unit, NULL);
            memcpy(parts.model.grads + begin, g, bytes);
            free(w), free(g);
        }
        assert_memory_equal(parts.model.grads, whole.model.grads, whole.n * sizeof(float));
        case_close(&whole), case_close(&parts);
    }
}

// With sgd, lr 1 and no decay, the update is the gradient that is left: adaptive clipping first, then the global one by
// the norm of what that left. The norm that is returned is of neither.
TEST(test_step)
{
    Case c, by_hand;
    case_open(&c, OPTIM_SGD, 2);
    case_open(&by_hand, OPTIM_SGD, 1);
    const double scale = 0.25;
    for (uint32_t step = 1; step <= 2; step++) { // the second: global clipping has nothing left to do
        float clip = step == 1 ? 0.125f : 1e6f;
        c.optim.set.weight_decay = 0;
        c.optim.set.agc = 0.02f;
        c.optim.set.agc_unit = CLIP_ROW;
        c.optim.set.clip = clip;
        c.optim.grad_scale = scale;
        case_fill(&c, step);
        case_fill(&by_hand, step);
        const Params *p = &c.model.params;
        float *g = by_hand.model.grads;
        double raw = grads_norm(by_hand.dev, p, g, scale);
        grads_clip_agc_range(by_hand.dev, p, false, by_hand.model.weights, g, 0, p->n_elems, scale, 0.02f,
                             CLIP_ROW, NULL);
        double left = grads_norm(by_hand.dev, p, g, scale);
        assert_true(left < raw && (step == 1 ? left > clip : left < clip));
        float by = (float)(scale * grads_clip_factor(left, clip));
        by_hand.optim.step++;
        by_hand.optim.set.weight_decay = 0;
        optim_update(&by_hand.optim, &by_hand.model, 1, by, 0, c.n);
        assert_true(optim_step(&c.optim, &c.model, 1) == raw);
        expect_same(&c, &by_hand);
    }
    case_close(&c);
    case_close(&by_hand);
}

// ---- norms: norms.csv of two updates, against norms computed here; its bytes; a resumed run that appends.

static double norm_of(const float *x, const float *minus, const Param *row)
{
    double sum = 0;
    for (size_t i = row->offset; i < row->offset + row->n_elems; i++) {
        double d = x[i] - (minus ? minus[i] : 0);
        sum += d * d;
    }
    return sqrt(sum);
}

// Six digits are printed: half a unit in the sixth is at most 5e-6 of the number. The sums err by far less.
static bool near(double got, double want)
{
    return fabs(got - want) <= 5.1e-6 * fabs(want);
}

static void expect_line(FILE *file, long step, const Param *row, double weight, double grad, double update)
{
    char line[300], name[100];
    double got[4];
    long at;
    assert_non_null(fgets(line, sizeof line, file));
    assert_int_equal(sscanf(line, "%ld,%99[^,],%lf,%lf,%lf,%lf", &at, name, &got[0], &got[1], &got[2], &got[3]), 6);
    assert_int_equal(at, step);
    assert_string_equal(name, row->name);
    const double want[] = {weight, grad, update, update / weight};
    for (int i = 0; i < 4; i++)
        if (!near(got[i], want[i])) fail_msg("%s, step %ld, column %d: %g, not %g", name, step, i, got[i], want[i]);
}

// In parts that cut tensors, as ranks have them.
static void add_parts(Norms *norms, const Case *c, bool updated)
{
    size_t border[] = {0, 17, 18, 4000, c->n};
    for (int i = 0; i + 1 < (int)(sizeof border / sizeof *border); i++)
        grads_norms_add(norms, &c->model, (NormsPart){.begin = border[i], .end = border[i + 1], .at = border[i],
                        .weight = c->model.weights + border[i], .grad = updated ? NULL : c->model.grads + border[i]});
}

TEST_IN_DIR(test_two_steps)
{
    char line[200];
    Case c;
    case_open(&c, OPTIM_ADAMW, 2);
    size_t scratch = c.mem.tag_bytes[MEM_SCRATCH];
    c.optim.set.clip = 0.5f;
    c.optim.grad_scale = 0.25;
    enum { ROWS = 11 };
    static double want[2][ROWS][3];
    float *before = zeroed(c.n * sizeof *before);
    const Params *p = &c.model.params;
    assert_int_equal(p->n_rows, ROWS);
    for (int step = 0; step < 2; step++) { // opened twice: a run and its resume
        Norms norms = grads_norms_create(&c.model, case_params(), c.n);
        grads_norms_open(&norms, dir);
        scratch += c.n * sizeof(float);
        assert_int_equal(c.mem.tag_bytes[MEM_SCRATCH], scratch);
        case_fill(&c, (uint32_t)step + 1);
        memcpy(before, c.model.weights, c.n * sizeof *before);
        for (int r = 0; r < ROWS; r++) {
            want[step][r][0] = norm_of(before, NULL, &p->row[r]);
            want[step][r][1] = 0.25 * norm_of(c.model.grads, NULL, &p->row[r]);
        }
        grads_norms_begin(&norms);
        add_parts(&norms, &c, false);
        optim_step(&c.optim, &c.model, 0.01);
        add_parts(&norms, &c, true);
        grads_norms_write(&norms, c.dev, c.optim.grad_scale, 10 * step + 3);
        for (int r = 0; r < ROWS; r++) want[step][r][2] = norm_of(c.model.weights, before, &p->row[r]);
        grads_norms_close(&norms);
    }
    FILE *file = fopen(in_dir("norms.csv"), "r");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    assert_string_equal(line, "step,tensor,weight,grad,update,update/weight\n");
    for (int step = 0; step < 2; step++)
        for (int r = 0; r < ROWS; r++)
            expect_line(file, 10 * step + 3, &p->row[r], want[step][r][0], want[step][r][1], want[step][r][2]);
    assert_null(fgets(line, sizeof line, file));
    fclose(file);
    free(before);
    case_close(&c);
}

TEST_IN_DIR(test_errors)
{
    Case c;
    case_open(&c, OPTIM_SGD, 1);
    expect_dies("norms: cannot open /nowhere/at/all/norms.csv: No such file", {
        Norms norms = grads_norms_create(&c.model, case_params(), c.n);
        grads_norms_open(&norms, "/nowhere/at/all");
    });
    // A full disk, in place of the file that grads_norms_open opened.
    if (access("/dev/full", W_OK) == 0) expect_dies("(is the disk full?)", {
        Norms norms = grads_norms_create(&c.model, case_params(), c.n);
        grads_norms_open(&norms, dir);
        fclose(norms.file);
        norms.file = fopen("/dev/full", "w");
        grads_norms_begin(&norms);
        grads_norms_write(&norms, c.dev, 1, 1);
    });
    case_close(&c);
}

// ---- scaler: the loss scale at the edges of its state machine.  Every expected number follows from the rule in
// grads.c; all are powers of two, so all comparisons are exact.

static void good(LossScaler *s, int steps)
{
    for (int i = 0; i < steps; i++) assert_true(grads_scaler_update(s, true));
}

TEST(test_overflow_at_step_0)
{
    LossScaler s = grads_scaler_create(65536, 3);
    assert_false(grads_scaler_update(&s, false));
    assert_true(s.scale == 32768 && s.good_steps == 0);
    good(&s, 2);
    assert_true(s.scale == 32768 && s.good_steps == 2);
    good(&s, 1); // the third finite step in a row
    assert_true(s.scale == 65536 && s.good_steps == 0);
}

TEST(test_grows_every_interval)
{
    LossScaler s = grads_scaler_create(1, 5);
    for (int k = 1; k <= 6; k++) {
        good(&s, 4);
        assert_true(s.scale == ldexpf(1, k - 1));
        good(&s, 1);
        assert_true(s.scale == ldexpf(1, k));
    }
    LossScaler each = grads_scaler_create(1, 1);
    good(&each, 3);
    assert_true(each.scale == 8);
}

// The step on which growth is due overflows: no growth, and the count starts again.
TEST(test_overflow_when_growth_is_due)
{
    LossScaler s = grads_scaler_create(1024, 4);
    good(&s, 3);
    assert_false(grads_scaler_update(&s, false));
    assert_true(s.scale == 512 && s.good_steps == 0);
    good(&s, 3);
    assert_true(s.scale == 512);
    good(&s, 1);
    assert_true(s.scale == 1024);
}

// scale and good_steps are all there is: a run that is stopped at any step and given them back goes on alike.
TEST(test_resume_mid_interval)
{
    enum { STEPS = 40 };
    const char *finite = "yyynyyyyyyynnyyyyyyyyyynyyyyyyyyyyyyynyy";
    for (int stop = 0; stop < STEPS; stop++) {
        LossScaler whole = grads_scaler_create(256, 4), first = grads_scaler_create(256, 4);
        for (int i = 0; i < STEPS; i++) {
            if (i == stop) {
                LossScaler resumed = grads_scaler_create(256, 4);
                resumed.scale = first.scale;
                resumed.good_steps = first.good_steps;
                first = resumed;
            }
            assert_int_equal(grads_scaler_update(&whole, finite[i] == 'y'),
                             grads_scaler_update(&first, finite[i] == 'y'));
            assert_true(whole.scale == first.scale && whole.good_steps == first.good_steps);
        }
    }
}

TEST(test_repeated_overflow_reaches_the_minimum)
{
    LossScaler s = grads_scaler_create(65536, 2000);
    for (int k = 15; k >= 0; k--) { // 2^16 down to 2^0
        assert_false(grads_scaler_update(&s, false));
        assert_true(s.scale == ldexpf(1, k));
    }
    LossScaler at_the_end = s;
    expect_dies("overflow even at the smallest scale, 1 ",
                for (int i = 0; i < 100; i++) grads_scaler_update(&at_the_end, false));
    good(&s, 2000); // and it comes back
    assert_true(s.scale == 2);
}

TEST(test_stops_at_the_maximum)
{
    LossScaler s = grads_scaler_create(0x1p23f, 1);
    good(&s, 5);
    assert_true(s.scale == 0x1p24f && s.good_steps == 0);
    assert_false(grads_scaler_update(&s, false));
    assert_true(s.scale == 0x1p23f);
}

// interval 0: nothing moves; an overflow is skipped and no error however often.
TEST(test_fixed_scale)
{
    LossScaler s = grads_scaler_create(128, 0), none = grads_scaler_none();
    for (int i = 0; i < 100; i++) {
        assert_int_equal(grads_scaler_update(&s, i % 3 != 0), i % 3 != 0);
        assert_false(grads_scaler_update(&none, false));
    }
    assert_true(s.scale == 128 && s.good_steps == 0 && none.scale == 1);
}

TEST(test_bad_settings)
{
    float scales[] = {0, -2, 0.5f, 3, 1000, 0x1p25f, NAN, INFINITY};
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++)
        expect_dies("is not a power of two", grads_scaler_create(scales[i], 10));
    expect_dies("interval -1 is negative", grads_scaler_create(2, -1));
}

TESTS(NULL, NULL)
