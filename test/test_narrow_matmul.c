// test_narrow_matmul: the matmuls of the narrow device in bf16, by hardware and widened, in fp16, and in fp8 with
// current and delayed scales. How results are judged: narrow_env.h. In fp8 the operands of the fp32 op are quantised by
// a search through all 256 patterns, so that the reference shares no code with the cast.
// deeper: each size with 3 and 4 threads too
#include "narrow_env.h"
#include "formats/gemm_bf16.h"
#include "train/run.h"

// ---- matmul

static void check_matmul(Env *e)
{
    size_t N = 97, C = 33, OC = 71, n = N * OC;
    Dev *dev = e->dev, *cpu = e->cpu;
    uint16_t *inp = input(e, "inp", N * C), *weight = input(e, "weight", OC * C), *bias = input(e, "bias", OC);
    uint16_t *out = output(e, n), *pre = output(e, n), *act = output(e, n);
    float *x = wide(e, inp, N * C), *w = wide(e, weight, OC * C), *b = wide(e, bias, OC), *z = room(e, n * 4);
    double *ref = room(e, n * 8), *err = room(e, n * 8);
    for (int with_bias = 0; with_bias < 2; with_bias++) {
        const X *bias_arg = with_bias ? XI(bias) : NULL;
        cpu->matmul_forward(cpu, XO(z), XI(x), XI(w), with_bias ? XI(b) : NULL, N, C, OC, -1);
        dev->matmul_forward(dev, XO(out), XI(inp), XI(weight), bias_arg, N, C, OC, -1);
        ref_matmul(ref, err, wider(e, inp, N * C), wider(e, weight, OC * C), with_bias ? wider(e, bias, OC) : NULL,
                   N, C, OC);
        if (e->exact) same_bits("matmul", out, rounded(e, z, n), N16(n));
        between(e, "matmul", out, ref, err, n);
        dev->matmul_gelu_forward(dev, XO(act), XO(pre), XI(inp), XI(weight), bias_arg, N, C, OC, -1);
        same_bits("pre", pre, out, N16(n));
        dev->act_forward(dev, XO(out), XI(pre), n, ACT_GELU);
        same_bits("gelu of the stored pre", act, out, N16(n));
        uint16_t *alone = output(e, n);
        dev->matmul_gelu_forward(dev, XO(alone), NULL, XI(inp), XI(weight), bias_arg, N, C, OC, -1);
        same_bits("gelu without pre", alone, act, N16(n));
    }
    uint16_t *dout = input(e, "dout", n), *dinp = output(e, N * C), *fed = input(e, "fed", N * C);
    double *dref = room(e, N * C * 8), *derr = room(e, N * C * 8);
    float *dz = room(e, N * C * 4), *dy = wide(e, dout, n);
    ref_matmul_back_input(dref, derr, wider(e, dout, n), wider(e, weight, OC * C), N, C, OC);
    cpu->matmul_backward_input(cpu, XO(dz), XI(dy), XI(w), N, C, OC, -1);
    dev->matmul_backward_input(dev, XO(dinp), XI(dout), XI(weight), N, C, OC, -1);
    if (e->exact) same_bits("dinp", dinp, rounded(e, dz, N * C), N16(N * C));
    between(e, "dinp", dinp, dref, derr, N * C);
    cpu->matmul_gelu_backward_input(cpu, XO(dz), XI(dy), XI(w), XI(wide(e, fed, N * C)), N, C, OC, -1);
    dev->matmul_gelu_backward_input(dev, XO(dinp), XI(dout), XI(weight), XI(fed), N, C, OC, -1);
    if (e->exact) same_bits("dpre", dinp, rounded(e, dz, N * C), N16(N * C));
    for (size_t i = 0; i < N * C; i++) {
        double slope_err, slope = ref_gelu_grad(formats_decode(e->format, fed[i]), &slope_err);
        derr[i] = derr[i] * fabs(slope) + fabs(dref[i]) * (slope_err + U * fabs(slope));
        dref[i] *= slope;
    }
    between(e, "dpre", dinp, dref, derr, N * C);

    float *dw = floats(e, "dw", OC * C), *db = floats(e, "db", OC);
    float *dw2 = copy(e, dw, OC * C * 4), *db2 = copy(e, db, OC * 4);
    double *wref = room(e, OC * C * 8), *werr = room(e, OC * C * 8), *bref = room(e, OC * 8), *berr = room(e, OC * 8);
    double *ones = room(e, N * 8);
    for (size_t i = 0; i < OC * C; i++) wref[i] = dw[i];
    for (size_t i = 0; i < OC; i++) bref[i] = db[i];
    for (size_t i = 0; i < N; i++) ones[i] = 1;
    ref_outer_sum(wref, werr, wider(e, dout, n), wider(e, inp, N * C), N, OC, C);
    ref_outer_sum(bref, berr, wider(e, dout, n), ones, N, OC, 1);
    cpu->matmul_backward_weight(cpu, dw, db, XI(dy), XI(x), N, C, OC, -1);
    dev->matmul_backward_weight(dev, dw2, db2, XI(dout), XI(inp), N, C, OC, -1);
    if (e->exact) same_bits("dweight", dw2, dw, OC * C * 4);
    near_float("dweight", dw2, wref, werr, OC * C);
    near_float("dbias", db2, bref, berr, OC);
}

TEST(test_matmul)
{
    run_check_products(check_matmul, X_BF16, PRODUCTS_WIDENED, false);
    run_check_products(check_matmul, X_BF16, PRODUCTS_AUTO, false);
    run_check_products(check_matmul, X_BF16, PRODUCTS_AUTO, true);
    run_check(check_matmul, X_FP16);
}

// Few rows take a way of their own (dev_cpu.h), where the bits of a row do not depend on how many there are.
static void check_few_rows(Env *e)
{
    size_t C = 131, OC = 37;
    for (size_t N = 1; N <= 9; N++) {
        size_t n = N * OC;
        uint16_t *inp = input(e, "inp", N * C), *weight = input(e, "weight", OC * C), *bias = input(e, "bias", OC);
        uint16_t *out = output(e, n), *alone = output(e, n);
        float *x = wide(e, inp, N * C), *w = wide(e, weight, OC * C), *b = wide(e, bias, OC), *z = room(e, n * 4);
        double *ref = room(e, n * 8), *err = room(e, n * 8);
        ref_matmul(ref, err, wider(e, inp, N * C), wider(e, weight, OC * C), wider(e, bias, OC), N, C, OC);
        e->dev->matmul_forward(e->dev, XO(out), XI(inp), XI(weight), XI(bias), N, C, OC, -1);
        between(e, "matmul of few rows", out, ref, err, n);
        e->cpu->matmul_forward(e->cpu, XO(z), XI(x), XI(w), XI(b), N, C, OC, -1);
        near_float("matmul of few rows, fp32", z, ref, err, n);
        for (size_t r = 0; r < N; r++)
            e->dev->matmul_forward(e->dev, XO(alone + r * OC), XI(inp + r * C), XI(weight), XI(bias), 1, C, OC, -1);
        if (N <= FEW_ROWS && e->dev->x_type == X_BF16) same_bits("each row alone", alone, out, N16(n));
    }
}

TEST(test_few_rows)
{
    run_check_products(check_few_rows, X_BF16, PRODUCTS_WIDENED, false);
    run_check_products(check_few_rows, X_BF16, PRODUCTS_AUTO, false);
    run_check_products(check_few_rows, X_BF16, PRODUCTS_AUTO, true);
    run_check(check_few_rows, X_FP16);
}

// ---- products by hardware against widened ones, in the same order of sums: the same bits

typedef struct {
    uint16_t *out, *pre, *alone, *dinp, *dpre, *rows, *drows;
    float *dweight, *dbias, *dexperts;
} Results;

static Results all_products(Env *e, Dev *dev, size_t N, size_t C, size_t OC)
{
    uint16_t *inp = input(e, "inp", N * C), *weight = input(e, "weight", 2 * OC * C), *bias = input(e, "bias", OC);
    uint16_t *dout = input(e, "dout", N * OC), *fed = input(e, "fed", N * C);
    Results r = {output(e, N * OC), output(e, N * OC), output(e, N * OC), output(e, N * C), output(e, N * C),
                 output(e, N * OC), output(e, N * C), floats(e, "dw", OC * C), floats(e, "db", OC),
                 floats(e, "de", 2 * OC * C)};
    int32_t offset[] = {0, (int32_t)(N / 3), (int32_t)(N - N / 4)}; // the last rows belong to no expert
    DevExperts x = {.offset = offset, .E = 2, .R = N, .stride = OC * C, .sources = 1};
    dev->matmul_gelu_forward(dev, XO(r.out), XO(r.pre), XI(inp), XI(weight), XI(bias), N, C, OC, -1);
    dev->matmul_forward(dev, XO(r.alone), XI(inp), XI(weight), NULL, N, C, OC, -1);
    dev->matmul_backward_input(dev, XO(r.dinp), XI(dout), XI(weight), N, C, OC, -1);
    dev->matmul_gelu_backward_input(dev, XO(r.dpre), XI(dout), XI(weight), XI(fed), N, C, OC, -1);
    dev->matmul_backward_weight(dev, r.dweight, r.dbias, XI(dout), XI(inp), N, C, OC, -1);
    dev->experts_forward(dev, XO(r.rows), XI(inp), XI(weight), C, OC, x);
    dev->experts_backward_input(dev, XO(r.drows), XI(dout), XI(weight), C, OC, x);
    dev->experts_backward_weight(dev, r.dexperts, XI(dout), XI(inp), C, OC, x);
    return r;
}

TEST(test_hardware_has_the_bits_of_the_widened_product)
{
    const size_t shapes[][3] = {{1, 1, 1},     {4, 7, 3},     {13, 33, 65},   {24, 64, 96},  {31, 513, 31},
                                {265, 40, 97}, {5, 1000, 700}, {300, 70, 600}, {530, 24, 1100}, {9, 1030, 520}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int threads = 1; threads <= (deeper() ? 4 : 2); threads++) {
            Env e = {.cpu = dev_cpu_create(threads), .format = FORMAT_BF16};
            e.cpu->deterministic = true;
            size_t N = shapes[i][0], C = shapes[i][1], OC = shapes[i][2];
            Dev *spec = narrow_create(e.cpu, (NarrowOptions){.x_type = X_BF16, .products = PRODUCTS_WIDENED});
            e.dev = narrow_create(e.cpu, (NarrowOptions){.x_type = X_BF16});
            assert_false(((Narrow *)spec)->hardware);
            assert_true(((Narrow *)e.dev)->hardware == gemm_bf16_runs());
            Results want = all_products(&e, spec, N, C, OC), got = all_products(&e, e.dev, N, C, OC);
            same_bits("out", got.out, want.out, N16(N * OC));
            same_bits("pre", got.pre, want.pre, N16(N * OC));
            same_bits("out without bias", got.alone, want.alone, N16(N * OC));
            same_bits("dinp", got.dinp, want.dinp, N16(N * C));
            same_bits("dpre", got.dpre, want.dpre, N16(N * C));
            same_bits("dweight", got.dweight, want.dweight, OC * C * 4);
            same_bits("dbias", got.dbias, want.dbias, OC * 4);
            same_bits("experts", got.rows, want.rows, N16(N * OC));
            same_bits("experts, dinp", got.drows, want.drows, N16(N * C));
            same_bits("experts, dweight", got.dexperts, want.dexperts, 2 * OC * C * 4);
            narrow_free(spec);
            close_env(&e);
        }
}

TEST(test_a_run_asks_for_the_products_of_its_settings)
{
    for (int products = PRODUCTS_AUTO; products <= PRODUCTS_WIDENED; products++) {
        if (products == PRODUCTS_HARDWARE && !gemm_bf16_runs()) continue;
        Config cfg = {.numerics = {.dtype = CONFIG_DTYPE_BF16, .bf16_products = (Bf16Products)products}};
        Dev *cpu = dev_cpu_create(1), *dev = run_device(&cfg, cpu);
        bool hardware = products != PRODUCTS_WIDENED && gemm_bf16_runs();
        assert_true(((Narrow *)dev)->hardware == hardware && run_bf16_products(&cfg) == hardware);
        cfg.numerics.dtype = CONFIG_DTYPE_FP32;
        assert_false(run_bf16_products(&cfg));
        run_device_free(dev, cpu);
    }
}

// Infinity and NaN reach what they should, through the bias and the rounding too; so does a sum that overflows bf16.
TEST(test_what_is_not_finite_passes)
{
    for (int deterministic = 0; deterministic < 2; deterministic++)
        for (size_t N = 4; N <= 20; N += 16) { // few rows, and more
            Env e = {.cpu = dev_cpu_create(2), .format = FORMAT_BF16};
            e.cpu->deterministic = deterministic;
            e.dev = narrow_create(e.cpu, (NarrowOptions){.x_type = X_BF16});
            size_t C = 35, OC = 9;
            uint16_t *inp = input(&e, "inp", N * C), *weight = input(&e, "weight", OC * C);
            uint16_t *bias = input(&e, "bias", OC), *out = output(&e, N * OC);
            inp[1 * C + 34] = 0x7fc0;                     // NaN: row 1
            inp[2 * C + 3] = 0xff80;                      // -infinity: row 2
            bias[5] = 0x7f80;                             // infinity: column 5
            inp[3 * C] = 0x5f80, weight[7 * C] = 0x5f80;  // 2^64 2^64 overflows: row 3, column 7
            e.dev->matmul_forward(e.dev, XO(out), XI(inp), XI(weight), XI(bias), N, C, OC, -1);
            for (size_t r = 0; r < N; r++)
                for (size_t c = 0; c < OC; c++) {
                    float x = formats_decode(FORMAT_BF16, out[r * OC + c]);
                    float minus = -formats_decode(FORMAT_BF16, weight[c * C + 3]);
                    if (r == 1) assert_true(isnan(x));
                    else if (r == 2 && c == 5) assert_true(minus > 0 ? isinf(x) : isnan(x));
                    else if (r == 2) assert_true(isinf(x) && (x > 0) == (minus > 0));
                    else if (c == 5 || (r == 3 && c == 7)) assert_true(isinf(x) && x > 0);
                    else assert_true(isfinite(x));
                }
            close_env(&e);
        }
}

// ---- fp8

// x in format f at scale s and back, by looking at every pattern: the nearest one, the even one on a tie.
static float quantised(float x, Format f, float s)
{
    float y = x * s, best = NAN;
    uint32_t best_pattern = 0;
    for (uint32_t p = 0; p < 256; p++) {
        float v = formats_decode(f, p);
        if (!isfinite(v) || signbit(v) != signbit(y)) continue;
        double d = fabs((double)v - y), nearest = fabs((double)best - y);
        bool even = d == nearest && p % 2 == 0 && best_pattern % 2 == 1;
        if (isnan(best) || d < nearest || even) best = v, best_pattern = p;
    }
    return best * (1 / s);
}

static float *quantised_all(Env *e, const uint16_t *x, size_t n, Fp8Role role, float amax)
{
    float *out = wide(e, x, n);
    Format f = fp8_format(role);
    float top = 0;
    for (size_t i = 0; i < n; i++) top = fmaxf(top, fabsf(out[i]));
    if (amax == 0) amax = top;
    float s = (f == FORMAT_E4M3 ? 448.0f : 57344.0f) / amax;
    for (size_t i = 0; i < n; i++) out[i] = quantised(out[i], f, s);
    return out;
}

static void fp8_case(Env *e, int site, float amax_inp)
{
    size_t N = 31, C = 17, OC = 23, n = N * OC;
    Dev *dev = e->dev, *cpu = e->cpu;
    uint16_t *inp = input(e, "inp", N * C), *weight = input(e, "weight", OC * C), *bias = input(e, "bias", OC);
    uint16_t *dout = input(e, "dout", n), *out = output(e, n), *pre = output(e, n), *dinp = output(e, N * C);
    bool on = site >= 0;
    float *x = on ? quantised_all(e, inp, N * C, FP8_INP, amax_inp) : wide(e, inp, N * C);
    float *w = on ? quantised_all(e, weight, OC * C, FP8_WEIGHT, 0) : wide(e, weight, OC * C);
    float *dy = on ? quantised_all(e, dout, n, FP8_DOUT, 0) : wide(e, dout, n), *z = room(e, n * 4);
    cpu->matmul_forward(cpu, XO(z), XI(x), XI(w), XI(wide(e, bias, OC)), N, C, OC, -1);
    dev->matmul_forward(dev, XO(out), XI(inp), XI(weight), XI(bias), N, C, OC, site);
    same_bits("fp8 matmul", out, rounded(e, z, n), N16(n));
    dev->matmul_gelu_forward(dev, XO(out), XO(pre), XI(inp), XI(weight), XI(bias), N, C, OC, site);
    same_bits("fp8 pre", pre, rounded(e, z, n), N16(n));
    cpu->matmul_backward_input(cpu, XO(z), XI(dy), XI(w), N, C, OC, -1);
    dev->matmul_backward_input(dev, XO(dinp), XI(dout), XI(weight), N, C, OC, site);
    same_bits("fp8 dinp", dinp, rounded(e, z, N * C), N16(N * C));
    float *dw = floats(e, "dw", OC * C), *db = floats(e, "db", OC), *dw2 = copy(e, dw, OC * C * 4);
    double *bref = room(e, OC * 8), *berr = room(e, OC * 8), *ones = room(e, N * 8);
    for (size_t i = 0; i < OC; i++) bref[i] = db[i];
    for (size_t i = 0; i < N; i++) ones[i] = 1;
    ref_outer_sum(bref, berr, wider(e, dout, n), ones, N, OC, 1);
    cpu->matmul_backward_weight(cpu, dw, NULL, XI(dy), XI(x), N, C, OC, -1);
    dev->matmul_backward_weight(dev, dw2, db, XI(dout), XI(inp), N, C, OC, site);
    same_bits("fp8 dweight", dw2, dw, OC * C * 4);
    near_float("dbias, from dout as it is stored", db, bref, berr, OC);
}

TEST(test_fp8)
{
    for (int scaling = FP8_CURRENT; scaling <= FP8_DELAYED; scaling++) {
        Env e = {.cpu = dev_cpu_create(1), .format = FORMAT_BF16, .whole = true};
        Params p = {0};
        params_add(&p, 0, "layers.0.ffn.up.weight", 2, 23, 17, 0, 1, true, 0);
        NarrowOptions o = {.x_type = X_BF16, .fp8 = true, .scaling = (Fp8Scaling)scaling, .history = 3};
        e.dev = narrow_create(e.cpu, o);
        fp8_set_sites(e.dev->fp8, &p, NULL);
        fp8_case(&e, -1, 0); // not a site: bf16
        fp8_step_begin(e.dev->fp8);
        uint16_t *small = input(&e, "inp", 31 * 17), *weight = input(&e, "weight", 23 * 17);
        uint16_t *out = output(&e, 31 * 23), eighth = 0x3e00;
        for (size_t i = 0; i < 31 * 17; i++) small[i] = (small[i] & 0x7fff) < eighth ? small[i] : eighth;
        e.dev->matmul_forward(e.dev, XO(out), XI(small), XI(weight), NULL, 31, 17, 23, 0);
        assert_true(fp8_step_end(e.dev->fp8));
        // Delayed: the scale that 1/8 asked for, so most of this step's elements saturate.
        fp8_step_begin(e.dev->fp8);
        fp8_case(&e, 0, scaling == FP8_DELAYED ? 0.125f : 0);
        assert_true(fp8_step_end(e.dev->fp8));
        fp8_step_begin(e.dev->fp8); // and now the history holds them
        fp8_case(&e, 0, 0);
        small[5] = 0xff80; // -Inf
        e.dev->matmul_forward(e.dev, XO(out), XI(small), XI(weight), NULL, 31, 17, 23, 0);
        assert_false(fp8_step_end(e.dev->fp8));
        close_env(&e);
        params_free(&p);
    }
}

// Casting to E4M3 at the tensor's own scale errs by at most 2^-4 relatively, or half the smallest denormal.
TEST(test_fp8_error_bound)
{
    Env e = {.cpu = dev_cpu_create(1), .format = FORMAT_BF16};
    Params p = {0};
    params_add(&p, 0, "layers.0.w", 2, 1, 1, 0, 1, true, 0);
    e.dev = narrow_create(e.cpu, (NarrowOptions){.x_type = X_BF16, .fp8 = true, .history = 1});
    fp8_set_sites(e.dev->fp8, &p, NULL);
    size_t n = 5000; // rows of one element times a weight of 1: the cast alone
    uint16_t *x = input(&e, "cast", n), *out = output(&e, n), one = 0x3f80;
    e.dev->matmul_forward(e.dev, XO(out), XI(x), XI(&one), NULL, n, 1, 1, 0);
    float *a = wide(&e, x, n), *b = wide(&e, out, n), top = 0;
    for (size_t i = 0; i < n; i++) top = fmaxf(top, fabsf(a[i]));
    for (size_t i = 0; i < n; i++) {
        double cast = fmax(fabs(a[i]) * 0x1p-4, 0x1p-10 * top / 448);
        assert_true(fabs(b[i] - a[i]) <= cast + 0x1p-8 * (fabs(a[i]) + cast) + 8 * U * top); // and bf16's own
    }
    close_env(&e);
    params_free(&p);
}

TESTS(NULL, NULL)
