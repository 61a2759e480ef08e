// test_narrow: every op of the narrow device except the matmuls, for bf16 and fp16, is the fp32 op on widened
// inputs, rounded. How that is checked: narrow_env.h. The matmuls: test_narrow_matmul.
#include "narrow_env.h"

// ---- element-wise

static void check_elementwise(Env *e)
{
    size_t n = 40003, F = 101, N = 67;
    Dev *dev = e->dev, *cpu = e->cpu;
    uint16_t *a = input(e, "a", n), *b = input(e, "b", n), *out = output(e, n);
    float *x = wide(e, a, n), *y = wide(e, b, n), *z = room(e, n * sizeof *z);
    cpu->add(cpu, XO(z), XI(x), XI(y), n);
    dev->add(dev, XO(out), XI(a), XI(b), n);
    same_bits("add", out, rounded(e, z, n), N16(n));
    uint16_t *in_place = copy(e, a, N16(n));
    dev->add(dev, XO(in_place), XI(in_place), XI(b), n);
    same_bits("add in place", in_place, out, N16(n));

    dev->copy(dev, XO(out), XI(a), 1, n, n, n); // the same bits
    assert_memory_equal(out, a, n * 2);

    Dropout drop = {.p = 0.3f, .rng = rng_make(3, "drop", 5), .first = 7};
    cpu->dropout(cpu, XO(z), XI(x), n, drop);
    dev->dropout(dev, XO(out), XI(a), n, drop);
    same_bits("dropout", out, rounded(e, z, n), N16(n));

    cpu->act_forward(cpu, XO(z), XI(x), n, ACT_GELU);
    dev->act_forward(dev, XO(out), XI(a), n, ACT_GELU);
    same_bits("gelu", out, rounded(e, z, n), N16(n));

    cpu->act_forward(cpu, XO(z), XI(x), n, ACT_RELU2);
    dev->act_forward(dev, XO(out), XI(a), n, ACT_RELU2);
    same_bits("relu2", out, rounded(e, z, n), N16(n));
    cpu->act_backward(cpu, XO(z), XI(y), XI(x), n, ACT_RELU2);
    dev->act_backward(dev, XO(out), XI(b), XI(a), n, ACT_RELU2);
    same_bits("relu2 back", out, rounded(e, z, n), N16(n));

    cpu->swiglu_forward(cpu, XO(z), XI(x), N, F);
    dev->swiglu_forward(dev, XO(out), XI(a), N, F);
    same_bits("swiglu", out, rounded(e, z, N * F), N16(N * F));
    cpu->swiglu_backward(cpu, XO(z), XI(y), XI(x), N, F);
    dev->swiglu_backward(dev, XO(out), XI(b), XI(a), N, F);
    same_bits("swiglu back", out, rounded(e, z, N * 2 * F), N16(N * 2 * F));
}

static void check_conversions(Env *e)
{
    size_t n = 30011, w = 700, N = 21;
    Dev *dev = e->dev, *cpu = e->cpu;
    float *x = floats(e, "x", n), *back = room(e, n * sizeof *back);
    uint16_t *out = output(e, n), *want = rounded(e, x, n);
    dev->to_x(dev, XO(out), x, n);
    same_bits("to_x", out, want, N16(n));
    dev->from_x(dev, back, XI(out), n);
    same_bits("from_x", back, wide(e, want, n), n * sizeof *back);
    size_t groups = (w + DEV_GROUP - 1) / DEV_GROUP;
    int8_t *q = room(e, N * w), *q_want = room(e, N * w);
    float *s = room(e, N * groups * sizeof *s), *s_want = room(e, N * groups * sizeof *s);
    cpu->compress(cpu, q_want, s_want, XI(wide(e, want, N * w)), N, w);
    dev->compress(dev, q, s, XI(want), N, w);
    same_bits("compress", q, q_want, N * w);
    same_bits("compress' scales", s, s_want, N * groups * sizeof *s);
    cpu->decompress(cpu, XO(back), q, s, N, w);
    dev->decompress(dev, XO(out), q, s, N, w);
    same_bits("decompress", out, rounded(e, back, N * w), N16(N * w));
}

static void check_embedding(Env *e)
{
    size_t N = 301, C = 95, V = 17, T = 101;
    Dev *dev = e->dev, *cpu = e->cpu;
    uint16_t *wte = input(e, "wte", V * C), *wpe = input(e, "wpe", T * C), *dout = input(e, "dout", N * C);
    int32_t *token = ints(e, "token", N, 0, (int)V), *pos = ints(e, "pos", N, 0, (int)T);
    uint16_t *out = output(e, N * C);
    float *t = wide(e, wte, V * C), *p = wide(e, wpe, T * C), *z = room(e, N * C * sizeof *z);
    for (int with_pos = 0; with_pos < 2; with_pos++) {
        cpu->embed_forward(cpu, XO(z), token, pos, XI(t), with_pos ? XI(p) : NULL, N, C);
        dev->embed_forward(dev, XO(out), token, pos, XI(wte), with_pos ? XI(wpe) : NULL, N, C);
        same_bits("embed", out, rounded(e, z, N * C), N16(N * C));
        float *dt = floats(e, "dt", V * C), *dp = floats(e, "dp", T * C);
        float *dt2 = copy(e, dt, V * C * sizeof *dt), *dp2 = copy(e, dp, T * C * sizeof *dp);
        cpu->embed_backward(cpu, dt, with_pos ? dp : NULL, XI(wide(e, dout, N * C)), token, pos, N, C, V);
        dev->embed_backward(dev, dt2, with_pos ? dp2 : NULL, XI(dout), token, pos, N, C, V);
        same_bits("embed back, tokens", dt2, dt, V * C * sizeof *dt); // rows in order, chunks or not
        same_bits("embed back, positions", dp2, dp, T * C * sizeof *dp);
    }
}

// A table in fp32: one rounding, of the sum. Without positions that is the rounding of the stored table, bit for bit.
static void check_wide_embedding(Env *e)
{
    size_t N = 301, C = 95, V = 17, T = 101, n = N * C, beyond = 0;
    Dev *dev = e->dev;
    float *wte = floats(e, "wte", V * C), *wpe = floats(e, "wpe", T * C), *sum = room(e, n * sizeof *sum);
    uint16_t *narrow[] = {rounded(e, wte, V * C), rounded(e, wpe, T * C)}, *out = output(e, n), *stored = output(e, n);
    int32_t *token = ints(e, "token", N, -1, (int)V), *pos = ints(e, "pos", N, 0, (int)T);
    double u = e->format == FORMAT_BF16 ? 0x1p-8 : 0x1p-11;
    for (int with_pos = 0; with_pos < 2; with_pos++) {
        dev->embed_fp32 = true;
        dev->embed_forward(dev, XO(out), token, pos, XI(wte), with_pos ? XI(wpe) : NULL, N, C);
        dev->embed_fp32 = false;
        dev->embed_forward(dev, XO(stored), token, pos, XI(narrow[0]), with_pos ? XI(narrow[1]) : NULL, N, C);
        for (size_t i = 0; i < n; i++) {
            int32_t t = token[i / C];
            sum[i] = t < 0 ? 0 : wte[(size_t)t * C + i % C] + (with_pos ? wpe[(size_t)pos[i / C] * C + i % C] : 0);
        }
        same_bits("embed from fp32", out, rounded(e, sum, n), N16(n));
        if (!with_pos) same_bits("embed from fp32, no positions", out, stored, N16(n));
    }
    float *got = wide(e, stored, n);
    for (size_t i = 0; i < n; i++) beyond += fabs((double)got[i] - sum[i]) > u * fabs((double)sum[i]) + 0x1p-24;
    assert_true(beyond > n / 100); // three roundings: where token and position cancel, more than one of the sum
}

// ---- norms

static void norm_case(Env *e, NormKind kind, bool resid)
{
    size_t N = 131, C = 59, n = N * C;
    Dev *dev = e->dev, *cpu = e->cpu;
    uint16_t *a = input(e, "a", n), *b = input(e, "b", n);
    uint16_t *weight = input(e, "weight", C), *bias = input(e, "bias", C);
    uint16_t *out = output(e, n), *sum = output(e, n), *dinp = output(e, n), *dout = input(e, "dout", n);
    float *w = wide(e, weight, C), *s = wide(e, bias, C), *z = room(e, n * sizeof *z);
    float *mean = room(e, N * sizeof *mean), *rstd = room(e, N * sizeof *rstd);
    float *mean2 = room(e, N * sizeof *mean), *rstd2 = room(e, N * sizeof *rstd);
    cpu->add(cpu, XO(z), XI(wide(e, a, n)), XI(wide(e, b, n)), n);
    uint16_t *stored = rounded(e, z, n); // the norm is of the sum as it is stored
    float *x = wide(e, stored, n);
    cpu->norm_forward(cpu, XO(z), NULL, mean, rstd, XI(x), NULL, XI(w), XI(s), N, C, kind, 1e-5f);
    dev->norm_forward(dev, XO(out), XO(sum), mean2, rstd2, XI(a), XI(b), XI(weight), XI(bias), N, C, kind, 1e-5f);
    same_bits("norm's sum", sum, stored, N16(n));
    same_bits("norm", out, rounded(e, z, n), N16(n));
    same_bits("mean", mean2, mean, N * sizeof *mean);
    same_bits("rstd", rstd2, rstd, N * sizeof *rstd);
    uint16_t *alone = output(e, n); // from the stored sum: the same bits, so recomputation is exact
    dev->norm_forward(dev, XO(alone), NULL, mean2, rstd2, XI(sum), NULL, XI(weight), XI(bias), N, C, kind, 1e-5f);
    same_bits("norm alone", alone, out, N16(n));

    for (size_t r = 0; r < N; r++) { // exact moments, rounded to float: what the bound of ref_norm_back is for
        RefMoments m = ref_moments(wider(e, stored + r * C, C), C, kind, 1e-5);
        mean[r] = (float)m.mean, rstd[r] = (float)m.rstd;
    }
    float *dw = floats(e, "dw", C), *db = floats(e, "db", C), *dw2 = copy(e, dw, C * 4), *db2 = copy(e, db, C * 4);
    double *dw_ref = room(e, C * 8), *dw_err = room(e, C * 8), *dx_ref = room(e, n * 8), *dx_err = room(e, n * 8);
    double *db_ref = room(e, C * 8), *db_err = room(e, C * 8), *ones = room(e, N * 8);
    for (size_t c = 0; c < C; c++) dw_ref[c] = dw[c], db_ref[c] = db[c];
    for (size_t r = 0; r < N; r++) ones[r] = 1;
    ref_outer_sum(db_ref, db_err, wider(e, dout, n), ones, N, C, 1);
    ref_norm_back(dx_ref, dx_err, dw_ref, dw_err, wider(e, dout, n), wider(e, stored, n), wider(e, weight, C), N, C,
                  kind, 1e-5);
    cpu->norm_backward(cpu, XO(z), dw, db, XI(wide(e, dout, n)), resid ? XI(wide(e, b, n)) : NULL, XI(x), mean, rstd,
                       XI(w), N, C, kind);
    if (resid) memcpy(dinp, b, N16(n)); // dresid is dinp
    forget_scratch(e);
    dev->norm_backward(dev, XO(dinp), dw2, db2, XI(dout), resid ? XI(dinp) : NULL, XI(sum), mean, rstd, XI(weight),
                       N, C, kind);
    same_bits("norm back", dinp, rounded(e, z, n), N16(n));
    if (e->whole) same_bits("norm back, weight", dw2, dw, C * sizeof *dw);
    if (e->whole) same_bits("norm back, bias", db2, db, C * sizeof *db);
    near_float("norm back, weight", dw2, dw_ref, dw_err, C);
    near_float("norm back, bias", db2, db_ref, db_err, C);
}

static void check_norm(Env *e)
{
    for (int kind = NORM_LAYERNORM; kind <= NORM_RMSNORM; kind++)
        for (int resid = 0; resid < 2; resid++) norm_case(e, (NormKind)kind, resid);
}

// Rows of `used` elements, ld apart; what lies between must not be touched.
static uint16_t *packed(Env *e, const uint16_t *x, size_t N, size_t used, size_t ld)
{
    uint16_t *out = room(e, N16(N * used));
    for (size_t r = 0; r < N; r++) memcpy(out + r * used, x + r * ld, N16(used));
    return out;
}

static void untouched(const uint16_t *x, const uint16_t *before, size_t N, size_t used, size_t ld)
{
    for (size_t r = 0; r < N; r++) assert_memory_equal(x + r * ld + used, before + r * ld + used, N16(ld - used));
}

static void check_heads(Env *e)
{
    size_t N = 71, heads = 5, D = 16, ld = 130, used = heads * D, n = N * ld, m = N * used;
    Dev *dev = e->dev, *cpu = e->cpu;
    uint16_t *inp = input(e, "inp", n), *weight = input(e, "weight", D), *dout = input(e, "dout", n);
    uint16_t *before = output(e, n), *out = output(e, n);
    float *x = wide(e, inp, n), *w = wide(e, weight, D), *z = wide(e, before, n);
    float *rstd = room(e, N * heads * 4), *rstd2 = room(e, N * heads * 4);
    cpu->head_norm_forward(cpu, XO(z), rstd, XI(x), XI(w), N, heads, D, ld, 1e-5f);
    dev->head_norm_forward(dev, XO(out), rstd2, XI(inp), XI(weight), N, heads, D, ld, 1e-5f);
    same_bits("head norm", packed(e, out, N, used, ld), packed(e, rounded(e, z, n), N, used, ld), N16(m));
    same_bits("head norm's rstd", rstd2, rstd, N * heads * 4);
    untouched(out, before, N, used, ld);

    float *dw = floats(e, "dw", D), *dw2 = copy(e, dw, D * 4), *dz = wide(e, dout, n);
    cpu->head_norm_backward(cpu, XO(dz), dw, XI(dz), XI(x), rstd, XI(w), N, heads, D, ld);
    uint16_t *in_place = copy(e, dout, N16(n));
    forget_scratch(e);
    dev->head_norm_backward(dev, XO(in_place), dw2, XI(in_place), XI(inp), rstd, XI(weight), N, heads, D, ld);
    same_bits("head norm back", packed(e, in_place, N, used, ld), packed(e, rounded(e, dz, n), N, used, ld), N16(m));
    untouched(in_place, dout, N, used, ld);
    if (e->whole) same_bits("head norm back, weight", dw2, dw, D * 4);
    // Both are sums of the same N heads products in fp32, of at most 5 times 5 each.
    double bound = 2 * gam(N * heads + 3) * (double)(N * heads) * 25;
    for (size_t d = 0; d < D; d++) assert_true(fabs(dw2[d] - dw[d]) <= bound);

    int32_t *pos = ints(e, "pos", N, 0, 100000);
    for (int forward = 0; forward < 2; forward++) {
        float *y = wide(e, inp, n);
        uint16_t *x16 = copy(e, inp, N16(n));
        (forward ? cpu->rope_forward : cpu->rope_backward)(cpu, XO(y), pos, N, heads, D, ld, (Rope){.theta = 1e4f});
        (forward ? dev->rope_forward : dev->rope_backward)(dev, XO(x16), pos, N, heads, D, ld, (Rope){.theta = 1e4f});
        same_bits("rope", x16, rounded(e, y, n), N16(n));
    }
}

// ---- attention: packed q, k, v, and with a cache of keys

static void check_attention(Env *e)
{
    Dev *dev = e->dev, *cpu = e->cpu;
    AttnShape s = {.B = 3, .Tq = 37, .Tk = 37, .H = 4, .G = 2, .D = 8, .ldq = 64, .ldkv = 64};
    size_t N = s.B * s.Tq, hd = s.H * s.D, gd = s.G * s.D, n = N * s.ldq, n_lse = s.B * s.H * s.Tq;
    uint16_t *qkv = input(e, "qkv", n), *out = output(e, N * hd), *dout = input(e, "dout", N * hd);
    float *x = wide(e, qkv, n), *y = room(e, N * hd * 4), *lse = room(e, n_lse * 4), *lse2 = room(e, n_lse * 4);
    int32_t *first = room(e, N * sizeof *first);
    for (size_t i = 0; i < N; i++) { // two documents a row, cut elsewhere in each
        int32_t start = 20 + (int32_t)(i / s.Tq);
        first[i] = (int32_t)(i % s.Tq) < start ? 0 : start;
    }
    for (int variant = 0; variant < 4; variant++) {
        s.first = variant & 1 ? first : NULL;
        s.drop = (Dropout){.p = variant & 2 ? 0.25f : 0, .rng = rng_make(9, "attn", 1), .first = 5};
        cpu->attention_forward(cpu, XO(y), lse, XI(x), XI(x + hd), XI(x + hd + gd), s);
        dev->attention_forward(dev, XO(out), lse2, XI(qkv), XI(qkv + hd), XI(qkv + hd + gd), s);
        same_bits("attention", out, rounded(e, y, N * hd), N16(N * hd));
        same_bits("lse", lse2, lse, n_lse * 4);
        float *dx = room(e, n * 4);
        uint16_t *dqkv = output(e, n);
        forget_scratch(e);
        cpu->attention_backward(cpu, XO(dx), XO(dx + hd), XO(dx + hd + gd), XI(wide(e, dout, N * hd)),
                                XI(wide(e, out, N * hd)), lse, XI(x), XI(x + hd), XI(x + hd + gd), s);
        dev->attention_backward(dev, XO(dqkv), XO(dqkv + hd), XO(dqkv + hd + gd), XI(dout), XI(out), lse, XI(qkv),
                                XI(qkv + hd), XI(qkv + hd + gd), s);
        same_bits("attention back", dqkv, rounded(e, dx, n), N16(n));
    }
    AttnShape cached = {.B = 1, .Tq = 3, .Tk = 40, .H = 4, .G = 2, .D = 8, .ldq = 64, .ldkv = 16, .q_start = 37};
    uint16_t *k = input(e, "k", 40 * 16), *v = input(e, "v", 40 * 16);
    cpu->attention_forward(cpu, XO(y), NULL, XI(x), XI(wide(e, k, 640)), XI(wide(e, v, 640)), cached);
    dev->attention_forward(dev, XO(out), NULL, XI(qkv), XI(k), XI(v), cached);
    same_bits("attention with a cache", out, rounded(e, y, 3 * hd), N16(3 * hd));
}

// Each sequence's queries see the keys of another one: what of it is not X is fp32, and computed by the inner device.
static void check_attention_of_pieces(Env *e)
{
    Dev *dev = e->dev, *cpu = e->cpu;
    AttnShape s = {.B = 3, .Tq = 23, .Tk = 31, .H = 4, .G = 2, .D = 8, .ldq = 40, .ldkv = 24, .q_start = 31, .T = 54};
    size_t hd = s.H * s.D, gd = s.G * s.D, n_q = s.B * s.Tq * s.ldq, n_kv = s.B * s.Tk * s.ldkv, n = s.B * s.Tq * hd;
    size_t n_lse = s.B * s.H * s.Tq, m = s.B * s.Tk * gd;
    uint16_t *q = input(e, "q", n_q), *k = input(e, "k", n_kv), *v = input(e, "v", n_kv), *out = input(e, "out", n);
    uint16_t *dout = input(e, "dout", n);
    float *x = wide(e, q, n_q), *keys = wide(e, k, n_kv), *values = wide(e, v, n_kv), *want = room(e, n * 4);
    float *got = room(e, n * 4), *lse = room(e, n_lse * 4), *lse2 = room(e, n_lse * 4);
    cpu->attention_part_forward(cpu, want, lse, XI(x), XI(keys), XI(values), s);
    dev->attention_part_forward(dev, got, lse2, XI(q), XI(k), XI(v), s);
    same_bits("pieces", got, want, n * 4);
    same_bits("pieces, lse", lse2, lse, n_lse * 4);
    float *back[2][3];
    for (int i = 0; i < 6; i++) back[i / 3][i % 3] = floats(e, "added to or not", i % 3 ? m : n);
    float **want_back = back[0], **got_back = back[1];
    cpu->attention_part_backward(cpu, want_back[0], want_back[1], want_back[2], XI(wide(e, dout, n)),
                                 XI(wide(e, out, n)), lse, XI(x), XI(keys), XI(values), s);
    forget_scratch(e);
    dev->attention_part_backward(dev, got_back[0], got_back[1], got_back[2], XI(dout), XI(out), lse, XI(q), XI(k),
                                 XI(v), s);
    for (int i = 0; i < 3; i++) same_bits("pieces back", got_back[i], want_back[i], (i ? m : n) * 4);
}

// The three steps of the loss over a cut vocabulary; a target of V or more is another rank's.
static void check_cut_loss_of(Env *e, float cap)
{
    size_t N = 67, V = 131, n = N * V;
    Dev *dev = e->dev, *cpu = e->cpu;
    uint16_t *logits = input(e, "logits", n), *out = output(e, n);
    int32_t *target = ints(e, "target", N, -1, (int)(V + 40));
    float *z = wide(e, logits, n), *want[4], *got[4]; // top, total, hit, loss
    DevParts parts = {.range = (DevRange[]){{0, 64}, {64, V}}, .n = 2, .each = 1};
    for (int i = 0; i < 4; i++) want[i] = room(e, N * 4), got[i] = room(e, N * 4);
    cpu->xent_max(cpu, want[0], XI(z), N, V);
    dev->xent_max(dev, got[0], XI(logits), N, V);
    cpu->xent_sum(cpu, want[1], want[2], XI(z), target, want[0], N, V, parts, cap);
    dev->xent_sum(dev, got[1], got[2], XI(logits), target, want[0], N, V, parts, cap);
    dev->xent_loss(dev, got[3], NULL, XI(logits), target, want[0], want[1], want[2], N, V, 0, cap);
    cpu->xent_loss(cpu, want[3], XO(z), XI(z), target, want[0], want[1], want[2], N, V, 0.125f, cap);
    same_bits("cut loss alone", got[3], want[3], N * 4);
    forget_scratch(e);
    dev->xent_loss(dev, got[3], XO(out), XI(logits), target, want[0], want[1], want[2], N, V, 0.125f, cap);
    for (int i = 0; i < 4; i++) same_bits("cut loss", got[i], want[i], N * 4);
    same_bits("dlogits of a cut loss", out, rounded(e, z, n), N16(n));
}

static void check_loss_of(Env *e, float cap)
{
    size_t N = 67, V = 131, n = N * V;
    Dev *dev = e->dev, *cpu = e->cpu;
    uint16_t *logits = input(e, "logits", n), *out = output(e, n);
    int32_t *target = ints(e, "target", N, -1, (int)V);
    float *z = wide(e, logits, n), *loss = room(e, N * 4), *loss2 = room(e, N * 4);
    dev->softmax_xent(dev, loss2, NULL, XI(logits), target, N, V, 0, cap);
    cpu->softmax_xent(cpu, loss, NULL, XI(z), target, N, V, 0, cap);
    same_bits("loss alone", loss2, loss, N * 4);
    cpu->softmax_xent(cpu, loss, XO(z), XI(z), target, N, V, 0.125f, cap);
    dev->softmax_xent(dev, loss2, XO(out), XI(logits), target, N, V, 0.125f, cap);
    same_bits("loss", loss2, loss, N * 4);
    same_bits("dlogits", out, rounded(e, z, n), N16(n));
    dev->softmax_xent(dev, loss2, XO(logits), XI(logits), target, N, V, 0.125f, cap);
    same_bits("dlogits in place", logits, out, N16(n));
}

static void check_cut_loss(Env *e)
{
    check_cut_loss_of(e, 0);
    check_cut_loss_of(e, 2);
}

static void check_loss(Env *e)
{
    check_loss_of(e, 0);
    check_loss_of(e, 2);
}

// ---- all of it

BOTH_TYPES(test_elementwise, check_elementwise)
BOTH_TYPES(test_conversions, check_conversions)
BOTH_TYPES(test_embedding, check_embedding)
BOTH_TYPES(test_wide_embedding, check_wide_embedding)
BOTH_TYPES(test_norm, check_norm)
BOTH_TYPES(test_heads, check_heads)

TEST(test_attention)
{
    run_check_products(check_attention, X_BF16, PRODUCTS_WIDENED, false);
    run_check_products(check_attention, X_BF16, PRODUCTS_AUTO, true);
    run_check(check_attention, X_FP16);
}

BOTH_TYPES(test_loss, check_loss)
BOTH_TYPES(test_attention_of_pieces, check_attention_of_pieces)
BOTH_TYPES(test_cut_loss, check_cut_loss)

// Overflow becomes infinity in fp16 (the loss scaler must see it), and NaN stays NaN.
TEST(test_overflow_and_nan)
{
    Env e = {.cpu = dev_cpu_create(1), .format = FORMAT_FP16};
    e.dev = narrow_create(e.cpu, (NarrowOptions){.x_type = X_FP16});
    float a[4] = {60000, -60000, NAN, 1}, b[4] = {10000, -10000, 1, 1}, x[4];
    uint16_t *out = output(&e, 4);
    e.dev->add(e.dev, XO(out), XI(rounded(&e, a, 4)), XI(rounded(&e, b, 4)), 4);
    e.dev->from_x(e.dev, x, XI(out), 4);
    assert_true(x[0] == INFINITY && x[1] == -INFINITY && isnan(x[2]) && x[3] == 2);
    Narrow *n = (Narrow *)e.dev;
    assert_true(narrow_amax(n, XI(out), 2) == INFINITY && isnan(narrow_amax(n, XI(out), 4)));
    assert_true(narrow_amax(n, XI(out + 3), 1) == 2 && narrow_amax(n, XI(out), 0) == 0);
    close_env(&e);
}

// The router adds into fp32 sums of stored numbers; what goes by rows has the bits of the fp32 op, rounded.
static void check_experts(Env *e)
{
    size_t N = 23, C = 19, E = 5, K = 2, R = N * K, F = 16;
    Dev *dev = e->dev, *cpu = e->cpu;
    uint16_t *inp = input(e, "inp", N * C), *weight = input(e, "weight", E * C), *dinp = input(e, "dinp", N * C);
    float *dz = floats(e, "dz", N * E), *logits = floats(e, "logits", N * E), *dw = floats(e, "dw", E * C);
    double *ref = room(e, N * E * 8), *err = room(e, N * E * 8), *turned = room(e, N * E * 8);
    ref_matmul(ref, err, wider(e, inp, N * C), wider(e, weight, E * C), NULL, N, C, E);
    dev->router_forward(dev, logits, XI(inp), XI(weight), N, C, E);
    near_float("logits", logits, ref, err, N * E);
    double *x_ref = wider(e, dinp, N * C), *x_err = room(e, N * C * 8), *w_ref = room(e, E * C * 8);
    double *w_err = room(e, E * C * 8), *dz_wide = room(e, N * E * 8);
    for (size_t i = 0; i < E * C; i++) w_ref[i] = dw[i];
    for (size_t i = 0; i < N * E; i++) turned[i % E * N + i / E] = dz_wide[i] = dz[i];
    ref_outer_sum(x_ref, x_err, turned, wider(e, weight, E * C), E, N, C);
    ref_outer_sum(w_ref, w_err, dz_wide, wider(e, inp, N * C), N, E, C);
    dev->router_backward(dev, XO(dinp), dw, dz, XI(inp), XI(weight), N, C, E);
    between(e, "router dinp", dinp, x_ref, x_err, N * C);
    near_float("router dweight", dw, w_ref, w_err, E * C);

    int32_t *choice = ints(e, "choice", R, 0, (int)E), *offset = room(e, (E + 1) * 4), *row = room(e, R * 4);
    int32_t *slot = room(e, R * 4);
    float *gate = floats(e, "gate", R), *dgate = floats(e, "dgate", R), *dgate2 = copy(e, dgate, R * 4);
    cpu->experts_sort(cpu, offset, row, slot, choice, gate, N, N, K, E, 8, true);
    assert_true((size_t)offset[E] < R); // some are dropped
    uint16_t *gate_up = input(e, "gate_up", R * 2 * F), *dout = input(e, "dout", R * F), *out = output(e, R * 2 * F);
    float *g = wide(e, gate_up, R * 2 * F), *dy = wide(e, dout, R * F), *y = room(e, R * 2 * F * 4);
    cpu->experts_swiglu_forward(cpu, XO(y), XI(g), gate, slot, R, F);
    dev->experts_swiglu_forward(dev, XO(out), XI(gate_up), gate, slot, R, F);
    same_bits("experts swiglu", out, rounded(e, y, R * F), N16(R * F));
    cpu->experts_swiglu_backward(cpu, XO(y), dgate, XI(dy), XI(g), gate, slot, R, F);
    dev->experts_swiglu_backward(dev, XO(out), dgate2, XI(dout), XI(gate_up), gate, slot, R, F);
    same_bits("experts dgate_up", out, rounded(e, y, R * 2 * F), N16(R * 2 * F));
    same_bits("experts dgate", dgate2, dgate, R * 4);
    cpu->experts_combine(cpu, XO(y), XI(dy), row, N, K, F);
    dev->experts_combine(dev, XO(out), XI(dout), row, N, K, F);
    same_bits("experts combine", out, rounded(e, y, N * F), N16(N * F));
}

BOTH_TYPES(test_experts, check_experts)

// An entry taken over from the fp32 device would read bf16 as fp32. Those that read fp32 or bytes only are taken over.
TEST(test_which_entries_are_the_inner_ones)
{
#define AT(entry) offsetof(Dev, entry)
    static const size_t shared[] = {
        AT(sum_squares), AT(sum_squares_exact), AT(update), AT(adamw8bit), AT(adafactor),
        AT(accumulate), AT(subtract), AT(clip_units), AT(to_device), AT(to_host), AT(zero), AT(copy),
        AT(attention_merge), AT(route_forward), AT(route_backward), AT(experts_count), AT(experts_sort),
        AT(experts_pick)};
#undef AT
    Dev *cpu = dev_cpu_create(1), *dev = narrow_create(cpu, (NarrowOptions){.x_type = X_BF16});
    for (size_t slot = offsetof(Dev, matmul_forward); slot < sizeof(Dev); slot += sizeof(void (*)(void))) {
        void *inner, *outer;
        memcpy(&inner, (char *)cpu + slot, sizeof inner);
        memcpy(&outer, (char *)dev + slot, sizeof outer);
        bool same = false;
        for (size_t i = 0; i < sizeof shared / sizeof *shared; i++) same |= shared[i] == slot;
        if (!outer || (outer == inner) != same) fail_msg("the entry at offset %zu of Dev is another device's", slot);
    }
    assert_int_equal(dev->x_bytes, 2);
    assert_string_equal(dev->name, "cpu bf16");
    assert_null(dev->fp8);
    narrow_free(dev);
    dev_cpu_free(cpu);
}

// fp32 state goes through untouched.
TEST(test_fp32_ops_pass_through)
{
    enum { N = 1000 };
    Env e = {.cpu = dev_cpu_create(1), .format = FORMAT_BF16};
    e.dev = narrow_create(e.cpu, (NarrowOptions){.x_type = X_BF16});
    float *w[2], *m[2], *v[2], *g[2];
    Update u = {.lr = 1e-3f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .grad_scale = 0.5f, .step = 1};
    for (int i = 0; i < 2; i++) {
        w[i] = floats(&e, "w", N), m[i] = floats(&e, "m", N), v[i] = room(&e, N * 4), g[i] = floats(&e, "g", N);
        Dev *dev = i ? e.dev : e.cpu;
        dev->update(dev, OPTIM_ADAMW, w[i], m[i], v[i], g[i], N, u);
    }
    same_bits("adamw", w[1], w[0], N * 4);
    same_bits("adamw's moment", m[1], m[0], N * 4);
    assert_true(e.dev->sum_squares(e.dev, w[1], N) == e.cpu->sum_squares(e.cpu, w[0], N));
    close_env(&e);
}

TESTS(NULL, NULL)
