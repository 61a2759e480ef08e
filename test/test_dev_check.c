// test_dev_check: the device that compares two others accepts two correct ones, and names the op and the element of a
// wrong one: one bug at a time in a device that is otherwise the CPU's.
//
// The correct devices are OpenBLAS against our own product in ascending order (gemm.h), one thread against two. The
// CUDA device goes through the same check in test_dev_cuda.sh, with every op.
#include "test/test.h"

#include "src/check/dev_check.h"

#include "ops/dev_cpu.h"
#include "narrow/narrow.h"
#include "base/rng.h"

enum { N = 14, C = 24, OC = 10, V = 33, H = 4, G = 2, D = 6, QKV = (H + 2 * G) * D, ROOM = 4096 };
enum { E = 8, K = 2, SLOTS = N * K }; // experts

// Random inputs, filled anew for each run.
typedef struct {
    float a[ROOM], b[ROOM], c[ROOM], d[ROOM], out[ROOM], more[ROOM], stat[ROOM], other[ROOM];
    int32_t token[N], pos[N], target[N], first[N], choice[SLOTS], row[SLOTS], slot[SLOTS], offset[E + 1];
} Data;

static void fill(Data *data)
{
    float *array[] = {data->a, data->b, data->c, data->d, data->out, data->more, data->stat, data->other};
    for (uint32_t k = 0; k < 8; k++)
        for (size_t i = 0; i < ROOM; i++) array[k][i] = (float)rng_normal(rng_make(4, "check", k), i);
    for (int i = 0; i < N; i++) {
        data->token[i] = i * 5 % 7, data->pos[i] = i, data->target[i] = i == 3 ? -1 : i * 11 % V;
        data->first[i] = i < 6 ? 0 : 6;
    }
}

static X *x_of(Dev *dev, float *room, const float *from, size_t n) // in place where X is fp32
{
    dev->to_x(dev, (X *)room, from, n);
    return (X *)room;
}

// Mixture of experts: a layer of C channels, F = OC / 2.
static void use_experts(Dev *dev, Data *data, const X *a, const X *b, X *c, X *out)
{
    DevRouter r = {.E = E, .k = K, .groups = 4, .best = 2, .sigmoid = true, .renorm = true, .scale = 2};
    DevExperts x = {data->offset, E, SLOTS, OC * C, 1, {0}};
    float *logits = data->stat, *gate = logits + N * E, *dgate = gate + SLOTS, *count = dgate + SLOTS;
    dev->router_forward(dev, logits, a, b, N, C, E);
    dev->route_forward(dev, data->choice, gate, logits, data->other, N, r);
    dev->experts_sort(dev, data->offset, data->row, data->slot, data->choice, gate, N, N / 2, K, E, 2, true);
    dev->experts_count(dev, count, data->choice, data->row, N, N / 2, K, E);
    dev->experts_gather(dev, c, a, data->slot, SLOTS, K, C);
    dev->experts_pick(dev, dgate, gate, data->slot, SLOTS);
    dev->experts_forward(dev, out, c, b, C, OC, x);
    dev->experts_swiglu_forward(dev, c, out, gate, data->slot, SLOTS, OC / 2);
    dev->experts_swiglu_backward(dev, c, dgate, b, out, gate, data->slot, SLOTS, OC / 2);
    dev->experts_backward_weight(dev, data->more, c, a, C, OC, x);
    dev->experts_backward_input(dev, out, c, b, C, OC, x);
    dev->experts_combine(dev, c, out, data->row, N, K, C);
    dev->route_backward(dev, data->more, dgate, logits, data->choice, data->other, 0.5f, 0.1f, N, N / 2, r);
    dev->router_backward(dev, c, data->other, data->more, a, b, N, C, E);
}

// A pass through the ops that the bugs below are in, and some others.
static void use(Dev *dev, Data *data)
{
    fill(data);
    X *a = x_of(dev, data->a, data->a, ROOM), *b = x_of(dev, data->b, data->b, ROOM), *out = (X *)data->out;
    X *c = x_of(dev, data->c, data->c, C), *d = x_of(dev, data->d, data->d, ROOM);
    AttnShape s = {.B = 1, .Tq = N, .Tk = N, .H = H, .G = G, .D = D, .ldq = QKV, .ldkv = QKV, .first = data->first,
                   .window = 4};
    Dropout drop = {.p = 0.25f, .rng = rng_make(7, "drop", 1), .first = 5};
    Update u = {.lr = 0.01f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f, .grad_scale = 1,
                .step = 2};
    size_t k0 = H * D * dev->x_bytes, v0 = (H + G) * D * dev->x_bytes;
    X *k = (X *)((char *)a + k0), *v = (X *)((char *)a + v0);
    dev->matmul_forward(dev, out, a, b, c, N, C, OC, -1);
    dev->matmul_gelu_forward(dev, out, d, a, b, c, N, C, OC, -1);
    dev->matmul_backward_weight(dev, data->more, data->stat, d, a, N, C, OC, -1);
    dev->norm_forward(dev, out, d, data->stat, data->other, a, b, c, c, N, C, NORM_LAYERNORM, 1e-5f);
    dev->norm_backward(dev, out, data->more, data->more + C, b, NULL, d, data->stat, data->other, c, N, C,
                       NORM_LAYERNORM);
    dev->rope_forward(dev, d, data->pos, N, H, D, H * D + 3, (Rope){.theta = 10000});
    dev->attention_forward(dev, out, data->stat, a, k, v, s);
    dev->attention_backward(dev, d, (X *)((char *)d + k0), (X *)((char *)d + v0), b, out, data->stat, a, k, v, s);
    dev->dropout(dev, out, a, ROOM / 2, drop);
    dev->embed_backward(dev, data->more, data->other, a, data->token, data->pos, N, C, 7);
    dev->softmax_xent(dev, data->stat, out, b, data->target, N, V, 0.5f, 2);
    for (int i = 0; i < ROOM; i++) data->stat[i] = fabsf(data->stat[i]);
    dev->update(dev, OPTIM_ADAMW, data->more, data->other, data->stat, data->more + 2000, 1000, u);
    use_experts(dev, data, a, b, d, out);
    dev->zero(dev, data->stat, 100);
    assert_true(dev->sum_squares(dev, data->other, 1000) > 0);
}

typedef struct {
    Dev *dev, *ref, *inner;
} Pair;

static Pair pair_make(XType type)
{
    Pair p = {.dev = dev_cpu_create(2), .ref = dev_cpu_create(1)};
    p.dev->deterministic = true; // other products than the reference's
    if (type == X_FP32) return p;
    p.inner = p.dev;
    p.dev = narrow_create(p.inner, (NarrowOptions){.x_type = type});
    return p;
}

static Dev *reference(Pair *p, XType type)
{
    return type == X_FP32 ? p->ref : narrow_create(p->ref, (NarrowOptions){.x_type = type});
}

static void pair_free(Pair *p, Dev *ref)
{
    if (ref != p->ref) narrow_free(ref);
    if (p->inner) narrow_free(p->dev);
    dev_cpu_free(p->inner ? p->inner : p->dev);
    dev_cpu_free(p->ref);
}

static const DevCheckRow *row_of(const Dev *check, const char *op)
{
    const DevCheckRow *row;
    size_t n = dev_check_rows(check, &row);
    for (size_t i = 0; i < n; i++)
        if (strcmp(row[i].op, op) == 0) return &row[i];
    fail_msg("no row for %s", op);
    return NULL;
}

TEST(test_two_right_devices_agree)
{
    Data *data = malloc(sizeof *data);
    for (XType type = X_FP32; type <= X_FP16; type++) {
        Pair p = pair_make(type);
        Dev *ref = reference(&p, type), *check = dev_check_create(p.dev, ref);
        use(check, data), use(check, data);
        if (!(dev_check_worst(check) <= 1)) dev_check_print(check, stderr);
        assert_true(dev_check_worst(check) <= 1);
        assert_int_equal(row_of(check, "update")->calls, 2);
        free(PRINTED(none, assert_true(dev_check_print(check, none))));
        dev_check_free(check);
        pair_free(&p, ref);
    }
    free(data);
}

// ---- bugs. Each calls the right op with something wrong; `right` is the device without the bug.
#pragma GCC diagnostic ignored "-Wunused-parameter"
static Dev *right;
static bool second; // of two bugs of an op

static void no_bias(Dev *dev, X *out, const X *inp, const X *weight, const X *bias, size_t n, size_t c, size_t oc,
                    int site)
{
    right->matmul_forward(right, out, inp, weight, NULL, n, c, oc, site);
}
static void gelu_of_gelu(Dev *dev, X *out, X *pre, const X *inp, const X *weight, const X *bias, size_t n, size_t c,
                         size_t oc, int site)
{
    right->matmul_gelu_forward(right, out, pre, inp, weight, bias, n, c, oc, site);
    right->act_forward(right, out, out, n * oc, ACT_GELU);
}
static void rows_lost(Dev *dev, float *dweight, float *dbias, const X *dout, const X *inp, size_t n, size_t c,
                      size_t oc, int site)
{
    right->matmul_backward_weight(right, dweight, dbias, dout, inp, n - 1, c, oc, site);
}
static void other_eps(Dev *dev, X *out, X *sum, float *mean, float *rstd, const X *a, const X *b, const X *weight,
                      const X *bias, size_t n, size_t c, NormKind kind, float eps)
{
    right->norm_forward(right, out, sum, mean, rstd, a, b, weight, bias, n, c, kind, 1e3f * eps);
}
static void no_mean(Dev *dev, X *dinp, float *dweight, float *dbias, const X *dout, const X *dresid, const X *inp,
                    const float *mean, const float *rstd, const X *weight, size_t n, size_t c, NormKind kind)
{
    right->norm_backward(right, dinp, dweight, dbias, dout, dresid, inp, mean, rstd, weight, n, c, NORM_RMSNORM);
}
static void turned_back(Dev *dev, X *x, const int32_t *pos, size_t n, size_t heads, size_t d, size_t ld, Rope rope)
{
    right->rope_backward(right, x, pos, n, heads, d, ld, rope);
}
static void documents_mixed(Dev *dev, X *out, float *lse, const X *q, const X *k, const X *v, AttnShape s)
{
    s.first = NULL;
    right->attention_forward(right, out, lse, q, k, v, s);
}
static void scaled_twice(Dev *dev, X *dq, X *dk, X *dv, const X *dout, const X *out, const float *lse, const X *q,
                         const X *k, const X *v, AttnShape s)
{
    s.scale = 0.5f / sqrtf((float)s.D);
    right->attention_backward(right, dq, dk, dv, dout, out, lse, q, k, v, s);
}
static void other_mask(Dev *dev, X *out, const X *inp, size_t n, Dropout drop)
{
    drop.first++;
    right->dropout(right, out, inp, n, drop);
}
static void last_row_twice(Dev *dev, float *dwte, float *dwpe, const X *dout, const int32_t *token, const int32_t *pos,
                           size_t n, size_t c, size_t v)
{
    right->embed_backward(right, dwte, dwpe, dout, token, pos, n, c, v);
    right->embed_backward(right, dwte, NULL, dout, token, pos, 1, c, v);
}
static void two_losses(Dev *dev, float *loss, X *dlogits, const X *logits, const int32_t *target, size_t n, size_t v,
                       float scale, float cap)
{
    right->softmax_xent(right, loss, dlogits, logits, target, n, v, scale, cap);
    loss[second ? n - 1 : 3] = second ? NAN : 1e-6f; // 3: the row whose target is not counted
}
static void first_step_again(Dev *dev, OptimName rule, float *weight, float *m, float *v, float *grad, size_t n, Update u)
{
    u.step = 1;
    right->update(right, rule, weight, m, v, grad, n, u);
}
static void not_all(Dev *dev, void *dst, size_t n_bytes)
{
    right->zero(right, dst, n_bytes - 1);
}
static double a_little_more(Dev *dev, const float *x, size_t n)
{
    return right->sum_squares(right, x, n) * (1 + 1e-3);
}

static void scaled_logits(Dev *dev, float *logits, const X *inp, const X *weight, size_t n, size_t c, size_t e)
{
    right->router_forward(right, logits, inp, weight, n, c, e);
    for (size_t i = 0; i < n * e; i++) logits[i] *= 1.001f;
}
static void no_gradient(Dev *dev, X *dinp, float *dweight, const float *dlogits, const X *inp, const X *weight,
                        size_t n, size_t c, size_t e)
{
    X *spare = malloc(n * c * right->x_bytes); // of the rows, so that only the weight gets its own
    memcpy(spare, dinp, n * c * right->x_bytes);
    right->router_backward(right, spare, dweight, dlogits, inp, weight, n, c, e);
    free(spare);
}
static void unbiased(Dev *dev, int32_t *choice, float *gate, const float *logits, const float *bias, size_t n,
                     DevRouter r)
{
    r.renorm = !second; // or not divided
    right->route_forward(right, choice, gate, logits, second ? bias : NULL, n, r);
}
static void no_z_loss(Dev *dev, float *dlogits, const float *dgate, const float *logits, const int32_t *choice,
                      const float *even, float even_scale, float z, size_t n, size_t t, DevRouter r)
{
    right->route_backward(right, dlogits, dgate, logits, choice, even, even_scale, 0, n, t, r);
}
static void none_dropped(Dev *dev, float *count, const int32_t *choice, const int32_t *row, size_t n, size_t t,
                         size_t k, size_t e)
{
    right->experts_count(right, count, choice, NULL, n, t, k, e);
}
static void first_come(Dev *dev, int32_t *offset, int32_t *row, int32_t *slot, const int32_t *choice, const float *gate,
                       size_t n, size_t t, size_t k, size_t e, size_t cap, bool by_gate)
{
    right->experts_sort(right, offset, row, slot, choice, gate, n, t, k, e, cap, false);
}
static void slot_as_token(Dev *dev, X *out, const X *inp, const int32_t *slot, size_t r, size_t k, size_t c)
{
    int32_t one[SLOTS];
    for (size_t i = 0; i < r; i++) one[i] = slot[i] % N;
    right->experts_gather(right, out, inp, one, r, 1, c);
}
static void none_is_first(Dev *dev, float *out, const float *inp, const int32_t *index, size_t n)
{
    for (size_t i = 0; i < n; i++) out[i] = inp[index[i] < 0 ? 0 : index[i]];
}
static void first_choice(Dev *dev, X *out, const X *inp, const int32_t *row, size_t n, size_t k, size_t c)
{
    int32_t one[N];
    for (size_t i = 0; i < n; i++) one[i] = row[i * k];
    right->experts_combine(right, out, inp, one, n, 1, c);
}
static void next_expert(Dev *dev, X *out, const X *inp, const X *weight, size_t c, size_t oc, DevExperts x)
{
    int32_t offset[E + 1];
    for (size_t e = 0; e <= E; e++) offset[e] = x.offset[e] - (e > 0 && e < E && x.offset[e] > x.offset[e - 1]);
    x.offset = offset;
    right->experts_forward(right, out, inp, weight, c, oc, x);
}
static void next_expert_back(Dev *dev, X *dinp, const X *dout, const X *weight, size_t c, size_t oc, DevExperts x)
{
    x.E--; // the rows of the last one
    right->experts_backward_input(right, dinp, dout, weight, c, oc, x);
}
static void row_lost(Dev *dev, float *dweight, const X *dout, const X *inp, size_t c, size_t oc, DevExperts x)
{
    int32_t offset[E + 1];
    memcpy(offset, x.offset, sizeof offset);
    offset[E]--;
    x.offset = offset;
    right->experts_backward_weight(right, dweight, dout, inp, c, oc, x);
}
static void unweighted(Dev *dev, X *out, const X *gate_up, const float *gate, const int32_t *slot, size_t r, size_t f)
{
    right->swiglu_forward(right, out, gate_up, r, f);
}
static void gate_kept(Dev *dev, X *dgate_up, float *dgate, const X *dout, const X *gate_up, const float *gate,
                      const int32_t *slot, size_t r, size_t f)
{
    float spare[SLOTS];
    memcpy(spare, dgate, sizeof spare);
    right->experts_swiglu_backward(right, dgate_up, spare, dout, gate_up, gate, slot, r, f);
}

#define BUG(op, name, array) {#op, offsetof(Dev, op), (void (*)(void))name, array}
static const struct Bug {
    const char *op;
    size_t slot;
    void (*with)(void);
    const char *array; // where it is seen first
} bugs[] = {
    BUG(matmul_forward, no_bias, "out["), BUG(matmul_gelu_forward, gelu_of_gelu, "out"),
    BUG(matmul_backward_weight, rows_lost, "d"), BUG(norm_forward, other_eps, ""), BUG(norm_backward, no_mean, "d"),
    BUG(rope_forward, turned_back, "x["), BUG(attention_forward, documents_mixed, ""),
    BUG(attention_backward, scaled_twice, "d"), BUG(dropout, other_mask, "out["),
    BUG(embed_backward, last_row_twice, "dwte["), BUG(softmax_xent, two_losses, "loss[3]"),
    BUG(softmax_xent, two_losses, "loss[13]"), BUG(update, first_step_again, ""), BUG(zero, not_all, "bytes[99]"),
    BUG(sum_squares, a_little_more, "sum["), BUG(router_forward, scaled_logits, "logits["),
    BUG(router_backward, no_gradient, "dinp["), BUG(route_forward, unbiased, "choice["),
    BUG(route_forward, unbiased, "gate["), BUG(route_backward, no_z_loss, "dlogits["),
    BUG(experts_count, none_dropped, "count["), BUG(experts_sort, first_come, ""),
    BUG(experts_gather, slot_as_token, "out["), BUG(experts_combine, first_choice, "out["),
    BUG(experts_pick, none_is_first, "out["), BUG(experts_forward, next_expert, "out["),
    BUG(experts_backward_input, next_expert_back, "dinp["), BUG(experts_backward_weight, row_lost, "dweight["),
    BUG(experts_swiglu_forward, unweighted, "out["), BUG(experts_swiglu_backward, gate_kept, "dgate["),
};

TEST(test_a_wrong_device_is_found_and_named)
{
    Data *data = malloc(sizeof *data);
    for (XType type = X_FP32; type <= X_FP16; type++)
        for (size_t i = 0; i < sizeof bugs / sizeof *bugs; i++) {
            Pair p = pair_make(type), other = pair_make(type);
            right = other.dev, second = i && bugs[i].with == bugs[i - 1].with;
            memcpy((char *)p.dev + bugs[i].slot, &bugs[i].with, sizeof bugs[i].with);
            Dev *ref = reference(&p, type), *check = dev_check_create(p.dev, ref);
            use(check, data);
            const DevCheckRow *rows;
            size_t n = dev_check_rows(check, &rows);
            for (size_t r = 0; r < n; r++)
                if (strcmp(rows[r].op, bugs[i].op) != 0 && !(rows[r].worst <= 1))
                    fail_msg("bug in %s: %s is blamed: %s", bugs[i].op, rows[r].op, rows[r].where);
            const DevCheckRow *row = row_of(check, bugs[i].op);
            if (!(row->worst > 1)) fail_msg("bug %zu in %s is not seen: %g", i, row->op, row->worst);
            if (strncmp(row->where, bugs[i].array, strlen(bugs[i].array)) != 0)
                fail_msg("%s: seen at %s, not at %s", row->op, row->where, bugs[i].array);
            free(PRINTED(none, assert_false(dev_check_print(check, none))));
            dev_check_free(check);
            pair_free(&p, ref);
            pair_free(&other, other.ref);
        }
    free(data);
}

// Two keys that fp32 cannot tell apart may be chosen in either order; others may not, and equal logits only in one.
TEST(test_choices_within_rounding)
{
    const float up = nextafterf(1, 2), bias[8] = {0, 1e-6f}, near[8] = {1, up, 0, 0.5f}, far[8] = {1, 1.001f, 0, 0.5f};
    const float equal[8] = {1, 1, 0, 0.5f}, groups[8] = {1, 0, up, -1, 2}; // groups: worth 1, a little more, 2, 0
    const DevRouter plain = {.E = 4, .k = 2, .scale = 1}, sigmoid = {.E = 4, .k = 2, .sigmoid = true, .scale = 1};
    const DevRouter grouped = {.E = 8, .k = 3, .groups = 4, .best = 2, .scale = 1};
    const struct {
        int32_t choice[3];
        const float *logits, *bias;
        bool right;
    } rows[] = {
        {{0, 1}, near, NULL, true}, {{1, 0}, near, NULL, true}, {{0, 1}, far, NULL, false}, {{1, 0}, far, NULL, true},
        {{0, 1}, equal, NULL, true}, {{1, 0}, equal, NULL, false}, {{1, 0}, equal, bias, true},
        {{0, 3}, equal, NULL, false}, {{0, 0}, equal, NULL, false}, {{0, 4}, equal, NULL, false},
        {{4, 0, 1}, groups, NULL, true}, {{4, 2, 5}, groups, NULL, true}, {{4, 2, 0}, groups, NULL, false},
        {{4, 5, 6}, groups, NULL, false},
    };
    for (size_t i = 0; i < 2 * sizeof rows / sizeof *rows; i++) {
        const typeof(*rows) *row = &rows[i / 2];
        DevRouter r = row->logits == groups ? grouped : i % 2 ? sigmoid : plain;
        if (dev_check_route_choice(row->choice, row->logits, row->bias, r) != row->right) fail_msg("row %zu", i / 2);
    }
}

TESTS(NULL, NULL)
