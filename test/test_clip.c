// test_clip: the global norm and its order of summation, the factor, adaptive clipping over a whole table by rows and
// by tensors, and the order of the two kinds of clipping in an optimizer's step. The op on one matrix: test_ops
// (optim_rows.h).
#include "optim_case.h"

#include "train/grads.h"

#include <math.h>

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

TESTS(NULL, NULL)
