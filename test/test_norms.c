// test_norms: norms.csv of two updates, against norms computed here; its bytes; a resumed run that appends.
#include "optim_case.h"

#include "expect_die.h"
#include "train/grads.h"
#include "temp_dir.h"

#include <math.h>
#include <sys/stat.h>

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

static int open_nowhere(void *arg)
{
    Case *c = arg;
    Norms norms = grads_norms_create(&c->model, case_params(), c->n);
    grads_norms_open(&norms, "/nowhere/at/all");
    return 0;
}

// A full disk, in place of the file that grads_norms_open opened.
static int write_nothing(void *arg)
{
    Case *c = arg;
    Norms norms = grads_norms_create(&c->model, case_params(), c->n);
    grads_norms_open(&norms, dir);
    fclose(norms.file);
    norms.file = fopen("/dev/full", "w");
    grads_norms_begin(&norms);
    grads_norms_write(&norms, c->dev, 1, 1);
    return 0;
}

TEST_IN_DIR(test_errors)
{
    Case c;
    case_open(&c, OPTIM_SGD, 1);
    expect_die(open_nowhere, &c, "norms: cannot open /nowhere/at/all/norms.csv: No such file");
    if (access("/dev/full", W_OK) == 0) expect_die(write_nothing, &c, "(is the disk full?)");
    case_close(&c);
}

TESTS(NULL, NULL)
