// test_experts: mixture of experts: the order of slots and rows, ties, NaN, capacity, the same bits as the dense ops
// have; and blocks with experts in a model, by what must be equal to the bit. Bounds, thread counts and derivatives are
// in test_ops.
#include "fixture.h"
#include "narrow/narrow.h"
#include "experts_ref.h"
#include "step_run.h"
#include "net/experts.h"
#include "train/loads.h"

#include <sys/mman.h>

#define XI(x) ((const X *)(x))
#define XO(x) ((X *)(x))

// The CPU's devices: fp32, the same deterministic, bf16, fp16; with scratch for a few rows only where `small`.
typedef struct {
    Dev *dev, *cpu;
} Device;
enum { DEVICES = 4 };

static Device device_make(int which, size_t chunk)
{
    Device d = {.cpu = dev_cpu_create(2)};
    d.cpu->deterministic = which == 1;
    d.dev = d.cpu;
    if (which > 1)
        d.dev = narrow_create(d.cpu, (NarrowOptions){.x_type = which == 2 ? X_BF16 : X_FP16, .chunk_floats = chunk});
    return d;
}

static void device_free(Device d)
{
    if (d.dev != d.cpu) narrow_free(d.dev);
    dev_cpu_free(d.cpu);
}

static X *normal(Dev *dev, const char *name, size_t n)
{
    float *x = zeroed(n * sizeof *x);
    X *out = zeroed(n * dev->x_bytes);
    for (size_t i = 0; i < n; i++) x[i] = (float)rng_normal(rng_make(3, name, 0), i);
    dev->to_x(dev, out, x, n);
    free(x);
    return out;
}

static X *at(Dev *dev, const void *x, size_t i)
{
    return (X *)((char *)x + i * dev->x_bytes);
}

static void zeros(Dev *dev, const X *x, size_t n)
{
    for (size_t i = 0; i < n * dev->x_bytes; i++) assert_int_equal(((const char *)x)[i], 0);
}

// ---- slots and rows

typedef struct {
    size_t N, T, k, E;
    int32_t *choice, *offset, *row, *slot;
    float *gate;
} Slots;

static Slots slots_make(Dev *dev, size_t N, size_t T, size_t k, size_t E, size_t cap, bool by_gate)
{
    size_t R = N * k;
    Slots s = {N, T, k, E, zeroed(R * 4), zeroed((E + 1) * 4), zeroed(R * 4), zeroed(R * 4), zeroed(R * 4)};
    ref_random_choice(s.choice, N, k, E);
    for (size_t i = 0; i < R; i++) s.gate[i] = (float)rng_below(rng_make(3, "gate", 0), i, 9) / 8;
    dev->experts_sort(dev, s.offset, s.row, s.slot, s.choice, s.gate, N, T, k, E, cap, by_gate);
    return s;
}

static void slots_free(Slots s)
{
    free(s.choice), free(s.offset), free(s.row), free(s.slot), free(s.gate);
}

TEST(test_every_slot_has_one_row)
{
    Device d = device_make(0, 0);
    for (int way = 0; way < 3; way++) {
        Slots s = slots_make(d.dev, 120, 40, 3, 7, way ? 11 : 0, way == 2);
        size_t R = s.N * s.k, held = 0;
        for (size_t e = 0; e < s.E; e++)
            for (int32_t r = s.offset[e]; r < s.offset[e + 1]; r++) {
                assert_in_range(s.slot[r], 0, (int)R - 1);
                assert_int_equal(s.choice[s.slot[r]], e);
                assert_int_equal(s.row[s.slot[r]], r);
                assert_true(r == s.offset[e] || s.slot[r - 1] < s.slot[r]); // stable
                held++;
            }
        assert_int_equal(s.offset[0], 0);
        assert_int_equal(s.offset[s.E], held);
        for (size_t r = held; r < R; r++) assert_int_equal(s.slot[r], -1);
        size_t dropped = 0;
        for (size_t i = 0; i < R; i++) dropped += s.row[i] < 0;
        assert_int_equal(held + dropped, R);
        assert_true(way ? dropped > 0 : dropped == 0);
        assert_int_equal(s.offset[s.E], s.offset[s.E - 1]); // nobody chose the last one
        slots_free(s);
    }
    device_free(d);
}

// Six tokens of one choice, three of each expert; in sequences of six or of three.
TEST(test_capacity)
{
    Device d = device_make(0, 0);
    static const int32_t choice[6] = {1, 0, 1, 1, 0, 0};
    static const float gate[6] = {0.5f, 0.25f, 0.75f, 0.5f, 0.25f, 0.25f}, broken[6] = {NAN, NAN, 0.1f, 0.2f, -1, NAN};
    static const struct {
        size_t T, cap;
        bool by_gate;
        const float *gate;
        int32_t row[6];
    } cases[] = {
        {6, 2, false, gate, {2, 0, 3, -1, 1, -1}}, {6, 2, true, gate, {2, 0, 3, -1, 1, -1}},
        {6, 1, true, gate, {-1, 0, 1, -1, -1, -1}}, {3, 1, false, gate, {2, 0, -1, 3, 1, -1}},
        {3, 1, true, gate, {-1, 0, 2, 3, 1, -1}}, {6, 3, true, gate, {3, 0, 4, 5, 1, 2}},
        {6, 2, true, broken, {-1, 0, 2, 3, 1, -1}}, {6, 0, true, broken, {3, 0, 4, 5, 1, 2}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int32_t offset[3], row[6], slot[6];
        d.dev->experts_sort(d.dev, offset, row, slot, choice, cases[i].gate, 6, cases[i].T, 1, 2, cases[i].cap,
                            cases[i].by_gate);
        for (size_t j = 0; j < 6; j++)
            if (row[j] != cases[i].row[j])
                fail_msg("case %zu: token %zu has row %d, not %d", i, j, row[j], cases[i].row[j]);
    }
    device_free(d);
}

// Rows that say themselves which slots are dropped; and rows without slots, each of which has the weight of its number.
TEST(test_rows_given)
{
    enum { ROWS = 6, MANY = 400, F = 6 };
    static const int32_t choice[ROWS] = {1, 0, 1, 1, 0, 0}, want[ROWS] = {2, -1, -1, 3, 0, 1};
    static const float gate[ROWS] = {0.5f, 0.25f, 0.75f, 1, 2, 3};
    Device d = device_make(0, 0);
    int32_t offset[3], row[ROWS] = {5, -1, -1, 0, 0, 0}, slot[ROWS];
    d.dev->experts_sort(d.dev, offset, row, slot, choice, gate, ROWS, ROWS, 1, 2, DEV_ROWS_GIVEN, true);
    assert_memory_equal(row, want, sizeof row);
    assert_true(offset[1] == 2 && offset[2] == 4);
    static float wide[MANY * 2 * F], weight[MANY], out[2][MANY * F], dx[2][MANY * 2 * F], dgate[2][MANY];
    static int32_t same[MANY];
    for (size_t i = 0; i < MANY * 2 * F; i++) wide[i] = 1.0078125f * (float)(i % 7) - 3;
    for (size_t i = 0; i < MANY; i++) same[i] = (int32_t)i, weight[i] = 0.25f * (float)(i % 11);
    for (int which = 0; which < DEVICES; which++) {
        Device e = device_make(which, 64); // several pieces
        for (int i = 0; i < 2; i++) {
            memset(out[i], 0, sizeof out[i]), memset(dx[i], 0, sizeof dx[i]);
            e.dev->experts_swiglu_forward(e.dev, (X *)out[i], (X *)wide, weight, i ? NULL : same, MANY, F);
            e.dev->experts_swiglu_backward(e.dev, (X *)dx[i], dgate[i], (X *)wide, (X *)wide, weight, i ? NULL : same,
                                           MANY, F);
        }
        size_t held = 0; // of 16 bits every other number is 0, the same in gate and up
        for (size_t i = 0; i < MANY * F; i++) held += out[0][i] != 0;
        assert_true(held > MANY);
        assert_memory_equal(out[0], out[1], sizeof out[0]);
        assert_memory_equal(dx[0], dx[1], sizeof dx[0]);
        assert_memory_equal(dgate[0], dgate[1], sizeof dgate[0]);
        device_free(e);
    }
    device_free(d);
}

// Each token's rows, there and back, are k times the token; k is a power of two, so that this is exact.
TEST(test_there_and_back)
{
    for (int which = 0; which < DEVICES; which++)
        for (size_t k = 1; k <= 4; k *= 2) {
            Device d = device_make(which, 0);
            size_t C = 300, R = 50 * k;
            Slots s = slots_make(d.dev, 50, 25, k, 6, 0, false);
            X *x = normal(d.dev, "x", 50 * C), *rows = zeroed(R * C * d.dev->x_bytes), *y = zeroed(50 * C * d.dev->x_bytes);
            d.dev->experts_gather(d.dev, rows, x, s.slot, R, k, C);
            d.dev->experts_combine(d.dev, y, rows, s.row, 50, k, C);
            for (size_t times = k; times > 1; times /= 2) d.dev->add(d.dev, x, x, x, 50 * C);
            assert_memory_equal(x, y, 50 * C * d.dev->x_bytes);
            free(x), free(rows), free(y);
            slots_free(s);
            device_free(d);
        }
}

// Row 512 of 2^22 elements begins at element 2^31. Of the rows before it no page is touched.
TEST(test_far_rows)
{
    enum { FAR = 512, C = 1 << 22 };
    size_t n_bytes = (FAR + 1) * sizeof(float) * C, last = (size_t)FAR * C;
    float *rows = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_ptr_not_equal(rows, MAP_FAILED);
    Device d = device_make(0, 0);
    float *out = zeroed(C * sizeof *out);
    int32_t far = FAR;
    for (size_t c = 0; c < C; c++) rows[last + c] = (float)c;
    d.dev->experts_gather(d.dev, XO(out), XI(rows), &far, 1, 1, C);
    assert_memory_equal(out, rows + last, C * sizeof *out);
    memset(out, 0xff, C * sizeof *out);
    d.dev->experts_combine(d.dev, XO(out), XI(rows), &far, 1, 1, C);
    assert_memory_equal(out, rows + last, C * sizeof *out);
    free(out);
    device_free(d);
    assert_int_equal(munmap(rows, n_bytes), 0);
}

// Rows of no expert are zeros and give nothing; the weight of a dropped slot gets no gradient.
TEST(test_dropped_slots)
{
    enum { N = 60, K = 2, R = N * K, F = 16 };
    for (int which = 0; which < DEVICES; which++) {
        Device d = device_make(which, 600);
        Dev *dev = d.dev;
        Slots s = slots_make(dev, N, 20, K, 5, 6, true);
        size_t held = (size_t)s.offset[5], left = R - held;
        X *x = normal(dev, "x", N * F), *gate_up = normal(dev, "gate_up", R * 2 * F);
        X *rows = zeroed(R * F * dev->x_bytes), *d_gate_up = zeroed(R * 2 * F * dev->x_bytes);
        float dgate[R];
        assert_true(left > 0);
        dev->experts_gather(dev, rows, x, s.slot, R, K, F);
        zeros(dev, at(dev, rows, held * F), left * F);
        dev->experts_swiglu_forward(dev, rows, gate_up, s.gate, s.slot, R, F);
        zeros(dev, at(dev, rows, held * F), left * F);
        for (size_t i = 0; i < R; i++) dgate[i] = 7.5f;
        dev->experts_swiglu_backward(dev, d_gate_up, dgate, rows, gate_up, s.gate, s.slot, R, F);
        zeros(dev, at(dev, d_gate_up, held * 2 * F), left * 2 * F);
        for (size_t i = 0; i < R; i++) assert_true((dgate[i] == 7.5f) == (s.row[i] < 0));
        for (size_t i = 0; i < K; i++) s.row[i] = -1; // the first token has no expert at all
        dev->experts_combine(dev, x, rows, s.row, N, K, F);
        zeros(dev, x, F);
        free(x), free(rows), free(gate_up), free(d_gate_up);
        slots_free(s);
        device_free(d);
    }
}

// ---- the choice

static void chooses(DevRouter r, const float *logits, const float *bias, const int32_t *want)
{
    Device d = device_make(0, 0);
    int32_t choice[8];
    float gate[8];
    d.dev->route_forward(d.dev, choice, gate, logits, bias, 1, r);
    for (size_t j = 0; j < r.k; j++)
        if (choice[j] != want[j]) fail_msg("choice %zu is expert %d, not %d", j, choice[j], want[j]);
    assert_true(dev_check_route_choice(choice, logits, bias, r));
    device_free(d);
}

#define CHOOSES(r, logits, bias, ...) chooses(r, logits, bias, (const int32_t[]){__VA_ARGS__})

TEST(test_ties)
{
    DevRouter r = {.E = 6, .k = 3, .scale = 1}, s = {.E = 6, .k = 3, .scale = 1, .sigmoid = true};
    static const float same[6] = {1, 1, 1, 1, 1, 1}, two[6] = {0, 2, 1, 2, 1, 1}, bias[6] = {0, 0, 0, 0, 9, 0};
    for (int sigmoid = 0; sigmoid < 2; sigmoid++) {
        CHOOSES(sigmoid ? s : r, same, NULL, 0, 1, 2);
        CHOOSES(sigmoid ? s : r, two, NULL, 1, 3, 2);
        CHOOSES(sigmoid ? s : r, same, bias, 4, 0, 1);
    }
    r.groups = s.groups = 3, r.best = s.best = 2;
    CHOOSES(r, same, NULL, 0, 1, 2);
    CHOOSES(r, two, NULL, 1, 3, 2); // of groups (0, 2), (1, 2), (1, 1)
    static const float pairs[6] = {3, -9, 2, 2.5f, 2, 2.4f};
    CHOOSES(r, pairs, NULL, 0, 3, 2); // softmax: the best of each group are 3, 2.5, 2.4
    CHOOSES(s, pairs, NULL, 3, 5, 2); // sigmoid: the sums are 0.95, 1.80, 1.80
}

TEST(test_nan_logits)
{
    DevRouter r = {.E = 6, .k = 3, .scale = 1}, s = {.E = 6, .k = 3, .scale = 1, .sigmoid = true};
    const float one[6] = {1, 2, NAN, 4, 5, 6}, all[6] = {NAN, NAN, NAN, NAN, NAN, NAN};
    const float first[6] = {NAN, -INFINITY, NAN, NAN, 1, NAN}, high[6] = {1, INFINITY, 0, INFINITY, 2, 3};
    CHOOSES(r, one, NULL, 0, 1, 2);
    CHOOSES(s, one, NULL, 5, 4, 3);
    CHOOSES(s, first, NULL, 4, 1, 0);
    CHOOSES(s, all, NULL, 0, 1, 2);
    CHOOSES(s, high, NULL, 1, 3, 5);
    CHOOSES(r, high, NULL, 0, 1, 2); // inf - inf
    r.groups = s.groups = 2, r.best = s.best = 1;
    CHOOSES(r, all, NULL, 0, 1, 2);
    CHOOSES(s, one, NULL, 5, 4, 3);
}

// What was added to choose is not in the weights.
TEST(test_weights)
{
    Device d = device_make(0, 0);
    static const float logits[4] = {0, 0, 0, 0}, bias[4] = {0, 5, 0, 6};
    for (int i = 0; i < 4; i++) {
        DevRouter r = {.E = 4, .k = 2, .scale = 4, .sigmoid = i & 1, .renorm = i & 2};
        int32_t choice[2];
        float gate[2], want = i == 0 ? 1 : 2; // 4 / 4; 4 / 2, whether of sigmoid or of two
        d.dev->route_forward(d.dev, choice, gate, logits, bias, 1, r);
        assert_int_equal(choice[0], 3);
        assert_int_equal(choice[1], 1);
        assert_true(gate[0] == want && gate[1] == want);
    }
    device_free(d);
}

// Sigmoids of -200: no weight and no gradient is NaN or infinite.
TEST(test_least_scores)
{
    Device d = device_make(0, 0);
    static const float logits[4] = {-200, -200, -200, -200}, dgate[2] = {1, -2}, even[4] = {1, 2, 3, 4};
    DevRouter r = {.E = 4, .k = 2, .scale = 4, .sigmoid = true, .renorm = true};
    int32_t choice[2];
    float gate[2], dlogits[4];
    d.dev->route_forward(d.dev, choice, gate, logits, NULL, 1, r);
    assert_true(gate[0] >= 0 && gate[0] < 1e-6 && gate[1] == gate[0]);
    d.dev->route_backward(d.dev, dlogits, dgate, logits, choice, even, 0.01f, 0, 1, 1, r);
    for (int e = 0; e < 4; e++) assert_true(isfinite(dlogits[e]));
    device_free(d);
}

// ---- the bits of the dense ops

// Rows of each expert against the dense op on these rows. Experts without rows, and one with all; several sources; sums
// in parts.
static void same_as_dense(Dev *dev, DevExperts x, size_t C, size_t OC)
{
    static const DevRange halves[2][4] = {{{0, 30}, {60, 70}, {30, 60}, {70, 97}},
                                          {{0, 7}, {9, 100}, {7, 9}, {100, 130}}};
    const DevParts parts[2] = {{halves[0], 2, 2}, {halves[1], 2, 2}}; // of C and of OC
    size_t bytes = dev->x_bytes, n_w = x.E * x.stride, groups = x.sources * x.E, held = (size_t)x.offset[groups];
    X *inp = normal(dev, "inp", x.R * C), *dout = normal(dev, "dout", x.R * OC), *weight = normal(dev, "weight", n_w);
    X *out = zeroed(x.R * OC * bytes), *dinp = zeroed(x.R * C * bytes), *want = zeroed(x.R * (C > OC ? C : OC) * bytes);
    float *dw = zeroed(n_w * 4), *dw_want = zeroed(n_w * 4);
    for (size_t i = 0; i < n_w; i++) dw[i] = dw_want[i] = (float)rng_normal(rng_make(3, "dw", 0), i);
    bool in_parts = x.parts.n > 0;
    if (in_parts) x.parts = parts[0];
    dev->experts_forward(dev, out, inp, weight, C, OC, x);
    if (in_parts) x.parts = parts[1];
    dev->experts_backward_input(dev, dinp, dout, weight, C, OC, x);
    dev->experts_backward_weight(dev, dw, dout, inp, C, OC, x);
    for (size_t g = 0; g < groups; g++) { // of an expert the rows of source 0 first
        size_t r = (size_t)x.offset[g], n = (size_t)x.offset[g + 1] - r, e = g % x.E;
        X *w = at(dev, weight, e * x.stride), *a = at(dev, inp, r * C), *dy = at(dev, dout, r * OC);
        if (!n) continue;
        if (in_parts) dev->matmul_parts_forward(dev, want, a, w, NULL, n, C, OC, parts[0], -1);
        else dev->matmul_forward(dev, want, a, w, NULL, n, C, OC, -1);
        assert_memory_equal(want, at(dev, out, r * OC), n * OC * bytes);
        if (in_parts) dev->matmul_parts_backward_input(dev, want, dy, w, n, C, OC, parts[1], -1);
        else dev->matmul_backward_input(dev, want, dy, w, n, C, OC, -1);
        assert_memory_equal(want, at(dev, dinp, r * C), n * C * bytes);
        dev->matmul_backward_weight(dev, dw_want + e * x.stride, NULL, dy, a, n, C, OC, -1);
    }
    assert_memory_equal(dw, dw_want, n_w * 4); // the gaps between weights too
    zeros(dev, at(dev, out, held * OC), (x.R - held) * OC);
    zeros(dev, at(dev, dinp, held * C), (x.R - held) * C);
    free(inp), free(dout), free(weight), free(out), free(dinp), free(want), free(dw), free(dw_want);
}

TEST(test_products_are_dense)
{
    enum { C = 97, OC = 130 };
    static const int32_t some[] = {0, 0, 40, 40, 49, 200, 200}, one[] = {0, 300}, none[] = {0, 0, 0};
    static const int32_t three[] = {0, 9, 9, 100, 100, 120, 170};
    for (int which = 0; which < DEVICES; which++)
        for (size_t chunk = 0; chunk <= 3000; chunk += 3000) {
            Device d = device_make(which, chunk);
            same_as_dense(d.dev, (DevExperts){some, 6, 230, C * OC + 3, 1, {0}}, C, OC);
            same_as_dense(d.dev, (DevExperts){one, 1, 300, C * OC, 1, {0}}, C, OC);
            same_as_dense(d.dev, (DevExperts){none, 2, 20, C * OC, 1, {0}}, C, OC);
            same_as_dense(d.dev, (DevExperts){three, 2, 180, C * OC + 1, 3, {0}}, C, OC);
            same_as_dense(d.dev, (DevExperts){some, 6, 230, C * OC + 3, 1, {.n = 2}}, C, OC);
            device_free(d);
        }
}

TEST(test_pick)
{
    static const int32_t index[] = {2, -1, 0, 2};
    const float from[] = {3, 5, 7};
    for (int which = 0; which < DEVICES; which++) {
        Device d = device_make(which, 0);
        float to[] = {NAN, NAN, NAN, NAN, 9};
        d.dev->experts_pick(d.dev, to, from, index, 4);
        assert_true(to[0] == 7 && to[1] == 0 && to[2] == 3 && to[3] == 7 && to[4] == 9);
        device_free(d);
    }
}

TEST(test_swiglu_is_dense)
{
    enum { R = 45, F = 77 };
    for (int which = 0; which < DEVICES; which++) {
        Device d = device_make(which, 600);
        Dev *dev = d.dev;
        size_t bytes = dev->x_bytes;
        X *gate_up = normal(dev, "gate_up", R * 2 * F), *dout = normal(dev, "dout", R * F);
        X *a = zeroed(R * 2 * F * bytes), *b = zeroed(R * 2 * F * bytes);
        int32_t slot[R];
        float ones[R], dgate[R];
        for (int i = 0; i < R; i++) ones[i] = 1, slot[i] = i * 7 % R;
        dev->swiglu_forward(dev, a, gate_up, R, F);
        dev->experts_swiglu_forward(dev, b, gate_up, ones, slot, R, F);
        assert_memory_equal(a, b, R * F * bytes);
        dev->swiglu_backward(dev, a, dout, gate_up, R, F);
        dev->experts_swiglu_backward(dev, b, dgate, dout, gate_up, ones, slot, R, F);
        assert_memory_equal(a, b, R * 2 * F * bytes);
        free(gate_up), free(dout), free(a), free(b);
        device_free(d);
    }
}

// ---- a deterministic device: the bits of a row do not depend on the other rows, and the sum over rows not on where it
// is cut

TEST(test_rows_by_themselves)
{
    enum { N = 200, C = 97, OC = 130, E = 33, FEW = 3 };
    Device d = device_make(1, 0);
    Dev *dev = d.dev;
    static const int32_t all[] = {0, 0, N}, few[] = {0, 0, FEW}, rest[] = {0, 0, N - FEW};
    float *inp = (float *)normal(dev, "inp", N * C), *dout = (float *)normal(dev, "dout", N * OC);
    float *weight = (float *)normal(dev, "weight", 2 * C * OC), *dz = (float *)normal(dev, "dz", N * E);
    static float a[N * OC], b[N * OC], w[2][2 * C * OC], z[2][E * C];
    DevExperts x = {all, 2, N, C * OC, 1, {0}}, y = {few, 2, FEW, C * OC, 1, {0}};
    DevExperts last = {rest, 2, N - FEW, C * OC, 1, {0}};
    dev->experts_forward(dev, XO(a), XI(inp), XI(weight), C, OC, x);
    dev->experts_forward(dev, XO(b), XI(inp), XI(weight), C, OC, y);
    assert_memory_equal(a, b, FEW * OC * 4);
    dev->experts_backward_input(dev, XO(a), XI(dout), XI(weight), C, OC, x);
    dev->experts_backward_input(dev, XO(b), XI(dout), XI(weight), C, OC, y);
    assert_memory_equal(a, b, FEW * C * 4);
    dev->experts_backward_weight(dev, w[0], XI(dout), XI(inp), C, OC, x);
    dev->experts_backward_weight(dev, w[1], XI(dout), XI(inp), C, OC, y);
    dev->experts_backward_weight(dev, w[1], XI(dout + FEW * OC), XI(inp + FEW * C), C, OC, last);
    assert_memory_equal(w[0], w[1], sizeof w[0]);
    dev->router_forward(dev, a, XI(inp), XI(weight), N, C, E);
    dev->router_forward(dev, b, XI(inp), XI(weight), FEW, C, E);
    assert_memory_equal(a, b, FEW * E * 4);
    memcpy(a, inp, N * C * 4), memcpy(b, inp, N * C * 4);
    dev->router_backward(dev, XO(a), z[0], dz, XI(inp), XI(weight), N, C, E);
    dev->router_backward(dev, XO(b), z[1], dz, XI(inp), XI(weight), FEW, C, E);
    dev->router_backward(dev, XO(b + FEW * C), z[1], dz + FEW * E, XI(inp + FEW * C), XI(weight), N - FEW, C, E);
    assert_memory_equal(a, b, N * C * 4);
    assert_memory_equal(z[0], z[1], sizeof z[0]);
    free(inp), free(dout), free(weight), free(dz);
    device_free(d);
}

// ---- experts model: blocks with experts in a model, by what must be equal to the bit: one expert and the dense layer;
// equal experts and the dense layer; the loads that are counted, whatever runs again; and what capacity, bias and
// shares change. (Values and gradients against PyTorch: test_model.)

static Model *make(const ModelShape *shape, Dev *dev, Mem *mem, ModelOptions options)
{
    Model *m = model_allocate_with(shape, dev, mem, B, T, true, options);
    params_init(&m->params, 1, m->weights);
    make_weights_lively(m);
    return m;
}

static float *row_of(const Model *m, float *flat, const char *name)
{
    int i = params_find(&m->params, name);
    if (i < 0) fail_msg("no tensor %s", name);
    return flat + m->params.row[i].offset;
}

// The dense model's tensors in a model with experts: each expert gets the matrices of the one network.
static void copy_dense(Model *to, const Model *from)
{
    for (int i = 0; i < to->params.n_rows; i++) {
        const Param *row = &to->params.row[i];
        char name[PARAM_NAME], *at, *end;
        snprintf(name, sizeof name, "%s", row->name);
        if (strstr(name, "router")) continue;
        if ((at = strstr(name, "experts.")) && (end = strchr(at + 8, '.'))) {
            char rest[PARAM_NAME];
            snprintf(rest, sizeof rest, "%s", end);
            snprintf(at, sizeof name - (size_t)(at - name), "ffn%s", rest);
        }
        memcpy(to->weights + row->offset, row_of(from, from->weights, name), row->n_elems * sizeof(float));
    }
    model_weights_changed(to);
}

static void run(Model *m, float *logits, double *loss)
{
    Step step = {.dropout = 0.1f, .step = 3, .documents = true};
    *loss = run_batch(m, &step, 0, B, T);
    model_step_finish(m);
    model_logits(m, logits);
}

static const ModelExperts ONE = {.n = 1, .k = 1, .every = 1, .renorm = true, .scale = 1};

// n: experts, 0: none. Both kinds of network are F wide. A deterministic device adds 21 columns in one part, 96 in 8.
static ModelShape with_experts(const ModelExperts *experts, size_t n, size_t F)
{
    ModelShape s = llama;
    s.layers = 3, s.ffn = F, s.experts = *experts;
    s.experts.n = n, s.experts.ffn = F;
    return s;
}

// Same bits: logits, loss, and all gradients; an expert's gradient times `times` is the dense one.
static void expect_dense(const ModelExperts *experts, size_t F, bool deterministic, bool zero_router, float times)
{
    float logits[2][N * 31];
    double loss[2];
    Mem mem[2];
    memset(mem, 0, sizeof mem);
    Dev *dev = dev_cpu_create(2);
    dev->deterministic = deterministic;
    ModelShape shape[2] = {with_experts(experts, 0, F), with_experts(experts, experts->n, F)};
    Model *dense = make(&shape[0], dev, &mem[0], (ModelOptions){0});
    Model *m = make(&shape[1], dev, &mem[1], (ModelOptions){0});
    copy_dense(m, dense);
    for (int i = 0; zero_router && i < m->params.n_rows; i++)
        if (strstr(m->params.row[i].name, "router"))
            memset(m->weights + m->params.row[i].offset, 0, m->params.row[i].n_elems * sizeof(float));
    run(dense, logits[0], &loss[0]);
    run(m, logits[1], &loss[1]);
    assert_true(loss[0] == loss[1] && loss[0] > 1);
    assert_memory_equal(logits[0], logits[1], sizeof logits[0]);
    for (int i = 0; i < dense->params.n_rows; i++) {
        const Param *row = &dense->params.row[i];
        const char *ffn = strstr(row->name, "ffn.");
        char name[PARAM_NAME];
        snprintf(name, sizeof name, "%.*s", ffn ? (int)(ffn - row->name) : (int)sizeof name - 1, row->name);
        if (ffn) snprintf(name + strlen(name), sizeof name - strlen(name), "experts.0.%s", ffn + 4);
        const float *want = dense->grads + row->offset, *got = row_of(m, m->grads, name);
        for (size_t j = 0; j < row->n_elems; j++)
            if (got[j] * (ffn ? times : 1) != want[j])
                fail_msg("gradient of %s[%zu]: %.9g, dense %.9g", name, j, got[j], want[j]);
    }
    model_free(dense), model_free(m);
    mem_free_all(&mem[0]), mem_free_all(&mem[1]);
    dev_cpu_free(dev);
}

TEST(test_one_expert_is_the_dense_layer)
{
    for (int i = 0; i < 4; i++) {
        bool deterministic = i % 2;
        size_t F = i < 2 ? 21 : 96;
        expect_dense(&ONE, F, deterministic, false, 1);
        ModelExperts sigmoid = ONE;
        sigmoid.sigmoid = true; // its weight, divided by itself, is 1
        expect_dense(&sigmoid, F, deterministic, false, 1);
    }
}

// Scores that are all equal choose the first two experts, each with weight 1/2 (renormalised or scaled): halves of
// equal outputs add up to the whole without rounding, and each has half of the gradient.
TEST(test_equal_experts_are_the_dense_layer)
{
    for (int i = 0; i < 4; i++) {
        bool deterministic = i % 2;
        size_t F = i < 2 ? 21 : 96;
        ModelExperts four = ONE;
        four.n = 4, four.k = 2;
        expect_dense(&four, F, deterministic, true, 2);
        four.renorm = false, four.scale = 2; // 2 * 1/4
        expect_dense(&four, F, deterministic, true, 2);
        four.balance = MOE_BALANCE_SEQUENCE, four.balance_coef = 1; // acts on the router alone, whose input has no part
        expect_dense(&four, F, deterministic, true, 2);
    }
}

// ---- what is counted

static void counts_of(Model *m, float count[5][6])
{
    for (int u = 0; u < m->n_units; u++)
        if (m->unit[u].kind == &unit_experts)
            memcpy(count[m->unit[u].place - 1], m->experts[u].count, 6 * sizeof(float));
}

// Each slot of a step once, whatever is recomputed and evaluated; drops of 2 of 5 experts at capacity 1.2.
TEST(test_loads_count_each_slot_once)
{
    const RecomputePolicy policy[] = {{.mode = RECOMPUTE_NONE}, {.mode = RECOMPUTE_SELECTIVE}, {.mode = RECOMPUTE_FULL},
                                      {.mode = RECOMPUTE_EVERY, .every = 2}};
    float first[5][6] = {{0}};
    for (int i = 0; i < 8; i++) {
        float count[5][6] = {{0}};
        Mem mem = {0};
        Dev *dev = dev_cpu_create(2);
        dev->deterministic = i >= 4;
        Model *m = make(&moe, dev, &mem, (ModelOptions){.recompute = policy[i % 4], .sequences = 5});
        Step step = {.step = 3};
        run_batch(m, &step, 0, B, T);
        model_evaluate(m);
        run_batch(m, &step, 3, 2, T);
        counts_of(m, i ? count : first);
        for (int l = 0; l < 5; l++) {
            double sum = 0;
            for (int e = 0; e < 5; e++) sum += i ? count[l][e] : first[l][e];
            assert_true(sum == (l > 0 && l % 2 == 0 ? 5 * T * 2 : 0));
        }
        assert_true(first[2][5] > 0 && first[2][5] < 5 * T);
        if (i) assert_memory_equal(count, first, sizeof count);
        end_model(m, &mem, dev);
    }
}

// 1.1 times a load of 20 is 22 slots, though 1.1 in binary is a little more than 1.1.
TEST(test_capacity_is_rounded_up_once)
{
    assert_int_equal(experts_capacity(&(ModelExperts){.n = 5, .k = 2, .capacity = 1.1}, 50), 22);
    assert_int_equal(experts_capacity(&(ModelExperts){.n = 8, .k = 2, .capacity = 1.25}, 128), 40);
    assert_int_equal(experts_capacity(&(ModelExperts){.n = 5, .k = 2, .capacity = 1.2}, 10), 5); // 4.8
    assert_int_equal(experts_capacity(&(ModelExperts){.n = 5, .k = 2}, 10), 0);
}

// Capacity acts in training alone.
TEST(test_evaluation_drops_nothing)
{
    double loss[2], trained[2];
    for (int i = 0; i < 2; i++) {
        ModelShape s = moe;
        s.experts.capacity = i ? 0.6f : 0;
        Mem mem = {0};
        Dev *dev = dev_cpu_create(2);
        Model *m = make(&s, dev, &mem, (ModelOptions){0});
        Step step = {.step = 3};
        trained[i] = run_batch(m, &step, 0, B, T);
        loss[i] = model_evaluate(m);
        end_model(m, &mem, dev);
    }
    assert_true(loss[0] == loss[1] && trained[0] == loss[0] && trained[1] != loss[0]);
}

// ---- loads over a step

TEST(test_loads_move_biases)
{
    ModelShape s = moe;
    s.experts.balance = MOE_BALANCE_BIAS, s.experts.bias_rate = 0.25f;
    Mem mem = {0};
    Dev *dev = dev_cpu_create(2);
    Model *m = make(&s, dev, &mem, (ModelOptions){0});
    Replicas alone = {.size = 1};
    Loads loads = loads_create(&s);
    loads_tell(&loads, m);
    const float slots[6] = {10, 40, 20, 20, 10, 7}; // 20 is even; 7 were dropped
    memcpy(m->experts[3].count, slots, sizeof slots);
    loads_step(&loads, m, &alone, false); // a skipped update: read, and no more
    assert_true(loads.state[2 * 2 * 5] == 0 && m->experts[3].count[1] == 0);
    memcpy(m->experts[3].count, slots, sizeof slots);
    loads_step(&loads, m, &alone, true);
    const double bias[5] = {0.25, -0.25, 0, 0, 0.25}, share[5] = {0.1, 0.4, 0.2, 0.2, 0.1};
    for (int e = 0; e < 5; e++) {
        assert_true(loads.state[2 * 2 * 5 + e] == bias[e] && m->experts[3].bias[e] == (float)bias[e]);
        assert_true(loads.state[2 * 2 * 5 + 5 + e] == share[e]);
        assert_true(loads.state[e] == 0); // a layer without experts
    }
    LoadFigures f = loads_figures(&loads, 2);
    assert_true(f.slots == 100 && f.most == 2 && f.least == 0.5 && f.dropped == 0.07);
    assert_true(fabs(f.entropy - (0.2 * log(10) + 0.4 * log(2.5) + 0.4 * log(5)) / log(5)) < 1e-12);
    assert_true(fabs(f.nats - f.entropy * log(5)) < 1e-12 && f.idle == 0);
    assert_true(f.bias[0] == -0.25 && f.bias[1] == 0.25);
    assert_true(isnan(f.largest)); // nobody watched
    assert_true(loads_figures(&loads, 1).slots == 0);
    loads_free(&loads);
    end_model(m, &mem, dev);
}

// ---- what the metrics have of every token

// The means that loads_watch makes, from the routers' outputs as they are after forward: largest weight, balance loss,
// mean square of log sum exp. In 2^-20, so equal for micro-batches of 1 and of 6 sequences.
static void expect_sums(MoeBalance balance, bool sigmoid)
{
    LoadFigures got[2];
    double want[3] = {0, 0, 0};
    for (size_t each = 1; each <= 6; each += 5) {
        ModelShape s = moe;
        s.experts.balance = balance, s.experts.sigmoid = sigmoid, s.experts.z_coef = 0.5f, s.experts.balance_coef = 2;
        Mem mem = {0};
        Dev *dev = dev_cpu_create(2);
        dev->deterministic = true;
        Model *m = model_allocate_with(&s, dev, &mem, 6, T, true, (ModelOptions){.sequences = 6});
        params_init(&m->params, 1, m->weights);
        make_weights_lively(m);
        Replicas alone = {.size = 1};
        Loads loads = loads_create(&s);
        for (size_t e = 0; e < 5; e++) loads.state[(2 * 2 + 1) * 5 + e] = 0.1 * (double)e; // f of layer 2 for `batch`
        loads_tell(&loads, m);
        loads_watch(&loads, m, true);
        Step step = {.step = 3};
        for (size_t b = 0; b < 6; b += each) run_batch(m, &step, each == 1 ? 5 - b : b, each, T); // in another order
        for (size_t n = 0; each == 6 && n < 6 * T; n++) { // unit 3 is layer 2; its buffers are still there
            BufferList list = m->unit[3].kind->saved(dev, &m->local, 6, T);
            void *saved[UNIT_MAX_SAVED];
            model_saved_at(&m->acts, 3, 0, saved);
            const float *z = NULL, *g = NULL;
            const int32_t *choice = NULL;
            for (int i = 0; i < list.n; i++) {
                if (!strcmp(list.name[i], "router")) z = (const float *)saved[i] + n * 5;
                if (!strcmp(list.name[i], "gate")) g = (const float *)saved[i] + n * 2;
                if (!strcmp(list.name[i], "choice")) choice = (const int32_t *)saved[i] + n / T * T * 2;
            }
            double sum = 0, exps = 0, mean = 0;
            for (size_t e = 0; e < 5; e++) exps += exp(z[e]), sum += sigmoid ? 1 / (1 + exp(-z[e])) : exp(z[e]);
            for (size_t e = 0; e < 5; e++) {
                double f = 0.1 * (double)e;
                if (balance == MOE_BALANCE_SEQUENCE) f = 0;
                for (size_t i = 0; balance == MOE_BALANCE_SEQUENCE && i < T * 2; i++) f += choice[i] == (int)e;
                if (balance == MOE_BALANCE_SEQUENCE) f /= T * 2;
                mean += 5 * f * (sigmoid ? 1 / (1 + exp(-z[e])) : exp(z[e])) / sum;
            }
            want[0] += fmax(g[0], g[1]) / (6 * T), want[1] += 2 * mean / (6 * T);
            want[2] += 0.5 * log(exps) * log(exps) / (6 * T);
        }
        loads_step(&loads, m, &alone, true);
        got[each == 6] = loads_figures(&loads, 2);
        assert_true(loads.own[2 * EXPERTS_SUMS] == 0); // begins again
        loads_watch(&loads, m, false);
        model_step_finish(m);
        run_batch(m, &step, 0, 6, T);
        assert_true(loads.own[2 * EXPERTS_SUMS] == 0);
        loads_free(&loads);
        end_model(m, &mem, dev);
    }
    assert_true(got[0].largest == got[1].largest && got[0].z == got[1].z && got[0].balance == got[1].balance);
    bool none = balance == MOE_BALANCE_BIAS;
    if (!(fabs(got[1].largest - want[0]) < 1e-6 && fabs(got[1].z - want[2]) < 1e-6 * (1 + want[2]) &&
          fabs(got[1].balance - (none ? 0 : want[1])) < 2e-6))
        fail_msg("%g %g %g, not %g %g %g", got[1].largest, got[1].balance, got[1].z, want[0], want[1], want[2]);
}

TEST(test_sums_over_tokens)
{
    expect_sums(MOE_BALANCE_SEQUENCE, false);
    expect_sums(MOE_BALANCE_SEQUENCE, true);
    expect_sums(MOE_BALANCE_BATCH, false);
    expect_sums(MOE_BALANCE_BIAS, true);
}

// Loads of one layer with 5 experts, of which a token uses 2, over some steps; the words of the last.
static bool judged(Loads *loads, const double count[5], int times, long steps, double least, char text[LOADS_TEXT])
{
    bool warned = false;
    for (int i = 0; i < times; i++) {
        memcpy(loads->count + 2 * 6, count, 5 * sizeof *count);
        warned = loads_judge(loads, 2, steps, least, text);
        if (i + 1 < times) assert_false(warned);
    }
    return warned;
}

TEST(test_idle_experts_are_reported_once)
{
    const double even[5] = {20, 20, 20, 20, 20}, two_idle[5] = {40, 0, 30, 30, 0}, one_idle[5] = {25, 25, 25, 25, 0};
    const double low[5] = {49, 1, 48, 1, 1};
    char text[LOADS_TEXT] = "";
    Loads loads = loads_create(&moe);
    assert_false(judged(&loads, even, 9, 3, 0.5, text));
    assert_true(judged(&loads, two_idle, 3, 3, 0.2, text));
    assert_string_equal(text, "experts of layers.2: for 3 steps no token has used 2 of them: 1 4");
    assert_false(judged(&loads, two_idle, 9, 3, 0.2, text)); // known
    assert_false(judged(&loads, one_idle, 9, 3, 0.2, text)); // 4 still is
    assert_true(judged(&loads, two_idle, 3, 3, 0.2, text));  // 1 is again
    assert_false(judged(&loads, even, 9, 3, 0.5, text));
    assert_false(judged(&loads, low, 9, 3, 0.02, text));     // H = 0.837 of ln 2 .. ln 5: 0.157
    assert_true(judged(&loads, low, 3, 3, 0.2, text));
    assert_non_null(strstr(text, "as low as if 2.3 of 5 were used evenly"));
    assert_false(judged(&loads, low, 9, 3, 0.2, text));
    assert_false(judged(&loads, two_idle, 2, 0, 0.9, text)); // off
    assert_false(loads_judge(&loads, 1, 1, 0.9, text));      // a layer without experts
    loads_free(&loads);
}

// ---- what balances

static double distance_of(ModelShape shape, float bias, float load)
{
    Mem mem = {0};
    Dev *dev = dev_cpu_create(2);
    Model *m = make(&shape, dev, &mem, (ModelOptions){0});
    for (int u = 0; u < m->n_units; u++) {
        if (m->unit[u].kind != &unit_experts) continue;
        if (m->experts[u].bias) m->experts[u].bias[4] = bias;
        if (m->experts[u].load) m->experts[u].load[4] = load;
    }
    Step step = {.step = 3};
    run_batch(m, &step, 0, B, T);
    float count[5][6] = {{0}};
    counts_of(m, count);
    double of_expert = count[2][4], norm = 0;
    const float *router = row_of(m, m->grads, "layers.2.router.weight");
    for (size_t i = 0; i < 5 * 10; i++) norm += router[i] * router[i];
    end_model(m, &mem, dev);
    return of_expert + (load > 0 ? norm : 0);
}

// A large bias makes every token choose the expert, a very small one none; and only where moe.balance asks for it.
TEST(test_bias_moves_the_choice)
{
    ModelShape s = moe;
    s.experts.balance = MOE_BALANCE_BIAS;
    assert_true(distance_of(s, 10, 0) == B * T);
    assert_true(distance_of(s, -10, 0) == 0);
    double even = distance_of(s, 0, 0);
    assert_true(even > 0 && even < B * T);
}

TEST(test_shares_of_the_batch_are_read)
{
    ModelShape s = moe;
    s.experts.balance = MOE_BALANCE_BATCH;
    assert_true(distance_of(s, 0, 0.9f) != distance_of(s, 0, 0.1f));
    s.experts.balance_coef = 0;
    assert_true(distance_of(s, 0, 0.9f) == distance_of(s, 0, 0.1f));
}

TESTS(NULL, NULL)
