// table: every entry of the CUDA device's op table against the CPU's, in all three storage types, by dev_check, whose
// bounds are derived; and each again by itself, which must give the same bytes. Builds with nvcc unmodified.
//
// usage: table [TYPE [OP]]     fp32, tf32, bf16, fp16, fp8; only the ops whose cases begin so. -v: the table as well
//
// Sizes are multiples of nothing, or of 16 bytes, so that both ways of moving memory are taken; more rows than a block
// has threads; documents, dropout, grouped heads, cached keys, pieces of sequences; outputs on top of inputs, gradients
// that are not zero before, NULL wherever dev.h allows it. A table entry without a case fails.
// tf32: products and attention alone.
// fp8: its products alone, with scales that are current, delayed but unknown, known, and too small for the tensor.
#include "compare.h"
#include "src/check/dev_check.h"
#include "ops/dev_cpu.h"
#include "ops/dev_cuda.h"
#include "ops/activation.h"
#include "narrow/narrow.h"
#include "base/rng.h"

#include <cstring>

// What a case works with. All its arrays are looked at when it is over, and freed.
struct Env {
    Dev *dev, *cuda; // the table under test; the device itself, for memory
    uint64_t next;   // number of the array: its random numbers
    int site;        // of products
    struct Block {
        void *p;
        size_t bytes;
    };
    std::vector<Block> blocks;

    void *device(const void *from, size_t bytes, size_t skew = 0) // skew: bytes after a multiple of 256
    {
        char *p = (char *)gpu_alloc(bytes + skew + 1);
        blocks.push_back({p, bytes + skew});
        cuda->to_device(cuda, p + skew, from, bytes);
        return p + skew;
    }
    std::vector<float> normal(size_t n, float scale = 1)
    {
        std::vector<float> v(n);
        Rng rng = rng_make(3, "dev_cuda", (uint32_t)next++);
        for (size_t i = 0; i < n; i++) v[i] = scale * (float)rng_normal(rng, i);
        return v;
    }
    float *f(size_t n, float scale = 1) { return (float *)device(normal(n, scale).data(), n * 4); }
    float *positive(size_t n)
    {
        std::vector<float> v = normal(n);
        for (float &x : v) x = fabsf(x);
        return (float *)device(v.data(), n * 4);
    }
    X *x(size_t n, float scale = 1, size_t skew = 0)
    {
        float *wide = f(n, scale);
        X *p = (X *)device(std::vector<char>(n * cuda->x_bytes).data(), n * cuda->x_bytes, skew * cuda->x_bytes);
        cuda->to_x(cuda, p, wide, n);
        return p;
    }
    void *out(size_t bytes) { return device(std::vector<unsigned char>(bytes, 0xff).data(), bytes); } // NaN
    float *out_f(size_t n) { return (float *)out(n * 4); }
    X *out_x(size_t n) { return (X *)out(n * cuda->x_bytes); }
    int32_t *i(const std::vector<int32_t> &v) { return (int32_t *)device(v.data(), v.size() * 4); }
    int32_t *ints(size_t n, int low, int high)
    {
        std::vector<int32_t> v(n);
        Rng rng = rng_make(3, "dev_cuda", (uint32_t)next++);
        for (size_t k = 0; k < n; k++) v[k] = low + (int32_t)rng_below(rng, k, (uint64_t)(high - low));
        return i(v);
    }
};

// ---- matmul: N, C, OC
typedef const size_t Sizes[3];
static Sizes ANY[] = {{7, 13, 19}, {33, 40, 24}, {300, 16, 48}, {1, 64, 8}};
static Sizes SIXTEENS[] = {{7, 16, 48}, {33, 48, 16}, {300, 16, 48}, {1, 64, 16}}; // for fp8
struct SizesOf {
    Sizes *first;
    Sizes *begin() const { return first; }
    Sizes *end() const { return first + 4; }
};
static SizesOf matmuls(const Env &e)
{
    return {e.site < 0 ? ANY : SIXTEENS};
}

static void matmul_forward(Env &e)
{
    for (auto &s : matmuls(e))
        for (int bias = 0; bias < 2; bias++) {
            X *inp = e.x(s[0] * s[1]), *weight = e.x(s[2] * s[1]), *b = bias ? e.x(s[2]) : nullptr;
            e.dev->matmul_forward(e.dev, e.out_x(s[0] * s[2]), inp, weight, b, s[0], s[1], s[2], e.site);
        }
    X *inp = e.x(9 * 16, 1, 1), *weight = e.x(32 * 16, 1, 3), *b = e.x(32, 1, 5); // that begin anywhere
    e.dev->matmul_forward(e.dev, e.out_x(9 * 32), inp, weight, b, 9, 16, 32, e.site);
}
static void matmul_gelu_forward(Env &e)
{
    for (auto &s : matmuls(e))
        for (int keep = 0; keep < 2; keep++) {
            X *inp = e.x(s[0] * s[1]), *weight = e.x(s[2] * s[1], 0.3f), *b = keep ? e.x(s[2]) : nullptr;
            X *pre = keep ? e.out_x(s[0] * s[2]) : nullptr;
            e.dev->matmul_gelu_forward(e.dev, e.out_x(s[0] * s[2]), pre, inp, weight, b, s[0], s[1], s[2], e.site);
        }
}
static void matmul_backward_input(Env &e)
{
    for (auto &s : matmuls(e)) {
        X *dout = e.x(s[0] * s[2]), *weight = e.x(s[2] * s[1]);
        e.dev->matmul_backward_input(e.dev, e.out_x(s[0] * s[1]), dout, weight, s[0], s[1], s[2], e.site);
    }
}
static void matmul_gelu_backward_input(Env &e)
{
    for (auto &s : matmuls(e)) {
        X *dout = e.x(s[0] * s[2]), *weight = e.x(s[2] * s[1]), *pre = e.x(s[0] * s[1]);
        e.dev->matmul_gelu_backward_input(e.dev, e.out_x(s[0] * s[1]), dout, weight, pre, s[0], s[1], s[2], e.site);
    }
}
static void matmul_backward_weight(Env &e)
{
    for (auto &s : matmuls(e))
        for (int bias = 0; bias < 2; bias++) {
            X *dout = e.x(s[0] * s[2]), *inp = e.x(s[0] * s[1]);
            float *db = bias ? e.f(s[2]) : nullptr;
            e.dev->matmul_backward_weight(e.dev, e.f(s[2] * s[1]), db, dout, inp, s[0], s[1], s[2], e.site);
        }
}
static std::vector<DevRange> halves(size_t K)
{
    return {{0, K / 2}, {K / 2, K}};
}
static void matmul_parts_forward(Env &e)
{
    for (auto &s : matmuls(e)) {
        std::vector<DevRange> range = halves(s[1]);
        X *inp = e.x(s[0] * s[1]), *weight = e.x(s[2] * s[1]), *b = e.x(s[2]);
        e.dev->matmul_parts_forward(e.dev, e.out_x(s[0] * s[2]), inp, weight, b, s[0], s[1], s[2],
                                    {range.data(), 2, 1}, e.site);
    }
}
static void matmul_parts_backward_input(Env &e)
{
    for (auto &s : matmuls(e)) {
        std::vector<DevRange> range = halves(s[2]);
        X *dout = e.x(s[0] * s[2]), *weight = e.x(s[2] * s[1]);
        e.dev->matmul_parts_backward_input(e.dev, e.out_x(s[0] * s[1]), dout, weight, s[0], s[1], s[2],
                                           {range.data(), 2, 1}, e.site);
    }
}

// ---- element by element
static void swiglu_forward(Env &e)
{
    e.dev->swiglu_forward(e.dev, e.out_x(7 * 11), e.x(7 * 22, 3), 7, 11);
    e.dev->swiglu_forward(e.dev, e.out_x(9 * 40), e.x(9 * 80, 3), 9, 40);
}
static void swiglu_backward(Env &e)
{
    e.dev->swiglu_backward(e.dev, e.out_x(7 * 22), e.x(7 * 11), e.x(7 * 22, 3), 7, 11);
    e.dev->swiglu_backward(e.dev, e.out_x(9 * 80), e.x(9 * 40), e.x(9 * 80, 3), 9, 40);
}
#define KIND(name, function) name,
static void act_forward(Env &e)
{
    for (ActKind kind : {ACTIVATIONS(KIND)}) {
        e.dev->act_forward(e.dev, e.out_x(1003), e.x(1003, 3), 1003, kind);
        e.dev->act_forward(e.dev, e.out_x(64), e.x(64, 3, 1), 64, kind);
    }
}
static void act_backward(Env &e)
{
    for (ActKind kind : {ACTIVATIONS(KIND)}) {
        X *pre = e.x(1003, 3), *dout = e.x(1003), *odd = e.x(64, 3, 1);
        e.dev->act_backward(e.dev, e.out_x(1003), dout, pre, 1003, kind);
        e.dev->act_backward(e.dev, dout, dout, pre, 1003, kind);
        e.dev->act_backward(e.dev, e.out_x(64), odd, pre, 64, kind);
    }
}
static void add(Env &e)
{
    X *a = e.x(1003), *b = e.x(1003), *c = e.x(50, 1, 1);
    e.dev->add(e.dev, e.out_x(1003), a, b, 1003);
    e.dev->add(e.dev, a, a, b, 1003);
    e.dev->add(e.dev, c, b, c, 50);
}
static void dropout(Env &e)
{
    const uint64_t firsts[] = {0, 4, 3, ((uint64_t)5 << 32) + 1};
    for (uint64_t first : firsts) {
        X *x = e.x(999), *y = e.x(77, 1, 1);
        Dropout drop = {};
        drop.p = 0.3f, drop.rng = rng_make(9, "drop", 4), drop.first = first;
        e.dev->dropout(e.dev, e.out_x(999), x, 999, drop);
        e.dev->dropout(e.dev, x, x, 999, drop);
        e.dev->dropout(e.dev, y, y, 77, drop);
        drop.row = e.i({7, 0, 100000, 3}); // rows of a longer array
        for (size_t width : {13, 40}) {
            drop.width = width;
            e.dev->dropout(e.dev, e.out_x(4 * width), x, 4 * width, drop);
        }
    }
}
static void copy(Env &e)
{
    for (size_t width : {13, 40}) {
        X *inp = e.x(7 * 48), *out = e.x(7 * 56);
        e.dev->copy(e.dev, out, inp, 7, width, 56, 48);
        e.dev->copy(e.dev, e.out_x(7 * width), inp, 7, width, width, 47);
        e.dev->copy(e.dev, e.out_x(width), inp, 1, width, width, width);
    }
}
static void accumulate(Env &e)
{
    e.dev->accumulate(e.dev, e.f(1003), e.f(1003), 1003);
    e.dev->accumulate(e.dev, e.f(100) + 1, e.f(100) + 2, 97);
}
static void subtract(Env &e)
{
    float *a = e.f(1003), *b = e.f(1003);
    e.dev->subtract(e.dev, e.out_f(1003), a, b, 1003);
    e.dev->subtract(e.dev, e.out_f(1003), a, nullptr, 1003);
    e.dev->subtract(e.dev, a + 1, a + 1, b, 900);
}
static void to_x(Env &e)
{
    e.dev->to_x(e.dev, e.out_x(1003), e.f(1003, 100), 1003);
    std::vector<float> odd = {NAN, INFINITY, -INFINITY, 0, -0.0f, 1e30f, 1e-8f, -3e-6f, 65504, 65520, 1e-40f};
    e.dev->to_x(e.dev, e.out_x(odd.size()), (float *)e.device(odd.data(), odd.size() * 4), odd.size());
}
static void from_x(Env &e)
{
    std::vector<float> host(1003);
    X *x = e.x(1003);
    e.cuda->from_x(e.cuda, host.data(), x, 1003); // to the host: what the check cannot read with to_host
    e.dev->from_x(e.dev, e.out_f(1003), x, 1003);
    e.device(host.data(), 1003 * 4);
}
static void memory(Env &e)
{
    std::vector<float> v = e.normal(1003), back(1003);
    float *p = e.out_f(1003), *q = e.out_f(1003);
    e.cuda->to_device(e.cuda, p, v.data(), 1003 * 4);
    e.dev->to_device(e.dev, q, p, 1003 * 4); // from one place of the device to another
    e.dev->to_host(e.dev, back.data(), q, 1003 * 4);
    EXPECT(memcmp(back.data(), v.data(), 1003 * 4) == 0);
    e.dev->zero(e.dev, q + 1, 1001 * 4);
    e.cuda->to_host(e.cuda, back.data(), q, 1003 * 4);
    EXPECT(back[0] == v[0] && back[1] == 0 && back[1001] == 0 && back[1002] == v[1002]);
}

// ---- rows
static Dev *reference; // of the pair under test
static void embed_forward(Env &e)
{
    for (size_t C : {13, 48}) {
        int32_t *token = e.ints(21, -1, 17), *pos = e.ints(21, 0, 9);
        X *wte = e.x(17 * C), *wpe = e.x(9 * C);
        e.dev->embed_forward(e.dev, e.out_x(21 * C), token, pos, wte, wpe, 21, C);
        e.dev->embed_forward(e.dev, e.out_x(21 * C), token, pos, wte, nullptr, 21, C);
        Dev *every[] = {e.dev, e.cuda, reference};
        const X *tokens = (const X *)e.f(17 * C), *positions = (const X *)e.f(9 * C);
        for (Dev *dev : every) dev->embed_fp32 = e.dev->x_type != X_FP32;
        e.dev->embed_forward(e.dev, e.out_x(21 * C), token, pos, tokens, positions, 21, C);
        for (Dev *dev : every) dev->embed_fp32 = false;
    }
}
static void embed_backward(Env &e)
{
    for (size_t C : {13, 48}) // most rows are few tokens, and some of other buckets of 1024
        for (int high : {3, 17, 5000}) {
            size_t N = 301;
            int32_t *token = e.ints(N, -1, high), *pos = e.ints(N, 0, 2100);
            X *dout = e.x(N * C);
            e.dev->embed_backward(e.dev, e.f((size_t)high * C), e.f(2100 * C), dout, token, pos, N, C, (size_t)high);
            e.dev->embed_backward(e.dev, e.f((size_t)high * C), nullptr, dout, token, nullptr, N, C, (size_t)high);
        }
}
static void norm_forward(Env &e)
{
    for (NormKind kind : {NORM_LAYERNORM, NORM_RMSNORM})
        for (size_t C : {37, 300, 96}) {
            size_t N = 11;
            X *a = e.x(N * C, 3), *b = e.x(N * C), *w = e.x(C), *bias = kind == NORM_LAYERNORM ? e.x(C) : nullptr;
            e.dev->norm_forward(e.dev, e.out_x(N * C), e.out_x(N * C), e.out_f(N), e.out_f(N), a, b, w, bias, N, C,
                                kind, 1e-5f);
            e.dev->norm_forward(e.dev, e.out_x(N * C), nullptr, e.out_f(N), e.out_f(N), a, nullptr, w, nullptr, N, C,
                                kind, 1e-5f);
        }
}
static void norm_backward(Env &e)
{
    for (NormKind kind : {NORM_LAYERNORM, NORM_RMSNORM})
        for (size_t C : {37, 300, 96}) {
            size_t N = 45;
            X *inp = e.x(N * C, 3), *dout = e.x(N * C), *skip = e.x(N * C), *w = e.x(C);
            float *mean = e.out_f(N), *rstd = e.out_f(N);
            e.cuda->norm_forward(e.cuda, e.out_x(N * C), nullptr, mean, rstd, inp, nullptr, w, nullptr, N, C, kind,
                                 1e-5f);
            float *db = kind == NORM_LAYERNORM ? e.f(C) : nullptr;
            e.dev->norm_backward(e.dev, e.out_x(N * C), e.f(C), db, dout, skip, inp, mean, rstd, w, N, C, kind);
            e.dev->norm_backward(e.dev, e.out_x(N * C), e.f(C), nullptr, dout, nullptr, inp, mean, rstd, w, N, C, kind);
            e.dev->norm_backward(e.dev, skip, e.f(C), db, dout, skip, inp, mean, rstd, w, N, C, kind);
        }
}
static void head_norm_forward(Env &e)
{
    for (size_t D : {10, 64, 1037}) { // the last one: all heads as one vector
        size_t N = 9, heads = D < 100 ? 3 : 1, ld = heads * D + 5;
        X *x = e.x(N * ld, 2), *w = e.x(D);
        e.dev->head_norm_forward(e.dev, e.out_x(N * ld), e.out_f(N * heads), x, w, N, heads, D, ld, 1e-5f);
        e.dev->head_norm_forward(e.dev, x, e.out_f(N * heads), x, w, N, heads, D, ld, 1e-5f);
    }
}
static void head_norm_backward(Env &e)
{
    for (size_t D : {10, 64, 13001}) { // the last one: one vector, for whose sums a block asks for more than 48 KiB
        size_t N = D < 100 ? 61 : 5, heads = D < 100 ? 3 : 1, ld = heads * D + 5;
        X *x = e.x(N * ld, 2), *dout = e.x(N * ld), *w = e.x(D);
        float *rstd = e.out_f(N * heads);
        e.cuda->head_norm_forward(e.cuda, e.out_x(N * ld), rstd, x, w, N, heads, D, ld, 1e-5f);
        e.dev->head_norm_backward(e.dev, e.out_x(N * ld), e.f(D), dout, x, rstd, w, N, heads, D, ld);
        e.dev->head_norm_backward(e.dev, dout, e.f(D), dout, x, rstd, w, N, heads, D, ld);
    }
}
template <class F> static void rope_case(Env &e, F run)
{
    const size_t shapes[][3] = {{10, 3, 41}, {64, 2, 160}, {16, 1, 16}};
    for (auto &s : shapes)
        for (int kind = ROPE_NONE; kind <= ROPE_LLAMA3; kind++)
            run(e.x(7 * s[2]), e.ints(7, 0, 100000), s[1], s[0], s[2], Rope{500, (RopeKind)kind, 4, 300, 1, 8});
}
static void rope_forward(Env &e)
{
    rope_case(e, [&](X *x, const int32_t *pos, size_t heads, size_t D, size_t ld, Rope rope) {
        e.dev->rope_forward(e.dev, x, pos, 7, heads, D, ld, rope);
    });
}
static void rope_backward(Env &e)
{
    rope_case(e, [&](X *x, const int32_t *pos, size_t heads, size_t D, size_t ld, Rope rope) {
        e.dev->rope_backward(e.dev, x, pos, 7, heads, D, ld, rope);
    });
}
static void compress(Env &e)
{
    for (size_t w : {19, 512, 300}) {
        size_t N = 7, groups = (w + DEV_GROUP - 1) / DEV_GROUP;
        std::vector<float> v = e.normal(N * w);
        v[3] = NAN, v[w + 5] = INFINITY; // two groups come back as NaN, one as zeros
        for (size_t i = 2 * w; i < 3 * w; i++) v[i] = 0;
        X *x = e.out_x(N * w);
        e.cuda->to_x(e.cuda, x, (float *)e.device(v.data(), N * w * 4), N * w);
        e.dev->compress(e.dev, (int8_t *)e.out(N * w), e.out_f(N * groups), x, N, w);
    }
}
static void decompress(Env &e)
{
    for (size_t w : {19, 512, 300}) {
        size_t N = 7, groups = (w + DEV_GROUP - 1) / DEV_GROUP;
        std::vector<int8_t> q(N * w);
        for (size_t i = 0; i < N * w; i++) q[i] = (int8_t)(i * 37 % 255 - 127);
        e.dev->decompress(e.dev, e.out_x(N * w), (int8_t *)e.device(q.data(), N * w), e.positive(N * groups), N, w);
    }
}

// ---- attention
struct Shape {
    size_t B, Tq, Tk, H, G, D;
    bool documents, drop;
    size_t window = 0;
};
static const Shape SHAPES[] = {
    {2, 23, 23, 6, 2, 10, false, false}, {1, 150, 150, 2, 1, 64, true, false},  {1, 70, 70, 2, 2, 128, false, true},
    {2, 40, 40, 4, 1, 32, true, true},   {1, 75, 75, 1, 1, 18, true, true},     {1, 70, 70, 2, 1, 80, true, true},
    {1, 20, 20, 1, 1, 136, false, false},  {1, 75, 75, 2, 1, 18, true, false, 9},
    {1, 150, 150, 2, 1, 64, false, true, 70},
};
static AttnShape attn_shape(Env &e, const Shape &s)
{
    AttnShape a = {};
    a.B = s.B, a.Tq = s.Tq, a.Tk = s.Tk, a.H = s.H, a.G = s.G, a.D = s.D, a.q_start = s.Tk - s.Tq;
    a.window = s.window;
    bool packed = s.Tq == s.Tk;
    if (packed && s.D == 32) a.T = s.Tq, a.blocks = 4; // an order that the CPU keeps
    a.ldkv = packed ? (s.H + 2 * s.G) * s.D : 2 * s.G * s.D, a.ldq = packed ? a.ldkv : s.H * s.D;
    if (s.documents) {
        std::vector<int32_t> first(s.B * s.Tq);
        for (size_t i = 0; i < first.size(); i++)
            first[i] = i % s.Tq < 5 ? 0 : i % s.Tq < 29 ? 5 : (int32_t)(i % s.Tq / 29 * 29);
        a.first = e.i(first);
    }
    if (s.drop) a.drop.p = 0.3f, a.drop.rng = rng_make(5, "attention", 9), a.drop.first = 11;
    return a;
}
static void attention_forward(Env &e)
{
    std::vector<Shape> shapes(SHAPES, SHAPES + sizeof SHAPES / sizeof *SHAPES);
    shapes.push_back({2, 3, 40, 4, 2, 32, false, false}); // a cache
    shapes.push_back({1, 1, 75, 2, 1, 64, false, false}); // one query
    shapes.push_back({1, 20, 75, 2, 1, 64, false, false});
    shapes.push_back({1, 20, 75, 2, 1, 64, false, false, 30});
    for (auto &s : shapes) {
        AttnShape a = attn_shape(e, s);
        X *kv = e.x(a.B * a.Tk * a.ldkv), *q = s.Tq == s.Tk ? kv : e.x(a.B * a.Tq * a.ldq);
        size_t skip = s.Tq == s.Tk ? s.H * s.D : 0, bytes = e.cuda->x_bytes, n = s.B * s.Tq * s.H;
        X *k = (X *)((char *)kv + skip * bytes), *v = (X *)((char *)k + s.G * s.D * bytes);
        e.dev->attention_forward(e.dev, e.out_x(n * s.D), e.out_f(n), q, k, v, a);
        if (s.documents) e.dev->attention_forward(e.dev, e.out_x(n * s.D), nullptr, q, k, v, a); // without lse
    }
}
static void attention_backward(Env &e)
{
    for (auto &s : SHAPES) {
        AttnShape a = attn_shape(e, s);
        size_t n = s.B * s.Tq * s.H, bytes = e.cuda->x_bytes, k0 = s.H * s.D * bytes, v0 = k0 + s.G * s.D * bytes;
        X *q = e.x(a.B * a.Tk * a.ldkv), *dq = e.out_x(a.B * a.Tk * a.ldkv), *out = e.out_x(n * s.D);
        X *k = (X *)((char *)q + k0), *v = (X *)((char *)q + v0);
        float *lse = e.out_f(n);
        e.cuda->attention_forward(e.cuda, out, lse, q, k, v, a);
        e.dev->attention_backward(e.dev, dq, (X *)((char *)dq + k0), (X *)((char *)dq + v0), e.x(n * s.D), out, lse, q,
                                  k, v, a);
    }
}
// Rank `rank`'s queries and rank `owner`'s keys of two ranks, each with two runs of `half` tokens: one from the front
// of the sequence, one from its end. In the large case a piece is more than two tiles of the tensor cores' kernels.
static AttnShape piece(Env &e, int rank, int owner, bool more, bool large = false, size_t window = 0)
{
    AttnShape a = {};
    size_t half = large ? 75 : 12;
    a.window = window;
    a.B = large ? 1 : 2, a.Tq = a.Tk = 2 * half, a.T = 4 * half;
    a.H = large ? 2 : 4, a.G = a.H / 2, a.D = large ? 40 : 16;
    a.ldq = a.H * a.D, a.ldkv = a.G * a.D;
    a.q_start = (size_t)rank * half, a.q_cut = half, a.q_jump = 2 * (size_t)(1 - rank) * half;
    a.k_start = (size_t)owner * half, a.k_cut = half, a.k_jump = 2 * (size_t)(1 - owner) * half;
    if (!more) return a;
    a.drop.p = 0.3f, a.drop.rng = rng_make(5, "attention", 9), a.drop.first = 11;
    std::vector<int32_t> first(a.B * a.Tq);
    for (size_t i = 0; i < first.size(); i++) {
        size_t t = i % a.Tq, pos = a.q_start + t + (t >= half ? a.q_jump : 0);
        first[i] = (int32_t)(pos < half / 2 ? 0 : pos < 5 * half / 2 ? half / 2 : 5 * half / 2);
    }
    a.first = e.i(first);
    return a;
}
static void attention_part_forward(Env &e)
{
    for (int i = 0; i < 18; i++) {
        AttnShape a = i < 10 ? piece(e, i & 1, i >> 1 & 1, i >= 4 && i != 8, i >= 8)
                             : piece(e, i & 1, i >> 1 & 1, i >= 14, i >= 16, i < 14 ? 7 : 90);
        size_t n = a.B * a.Tq * a.H;
        X *q = e.x(n * a.D), *k = e.x(n * a.D / 2), *v = e.x(n * a.D / 2);
        e.dev->attention_part_forward(e.dev, e.out_f(n * a.D), e.out_f(n), q, k, v, a);
    }
}
static void attention_part_backward(Env &e)
{
    for (int i = 0; i < 18; i++) {
        AttnShape a = i < 10 ? piece(e, i & 1, i >> 1 & 1, i >= 4 && i != 8, i >= 8)
                             : piece(e, i & 1, i >> 1 & 1, i >= 14, i >= 16, i < 14 ? 7 : 90);
        size_t n = a.B * a.Tq * a.H, n_q = n * a.D, n_kv = n_q / 2;
        X *q = e.x(n_q), *k = e.x(n_kv), *v = e.x(n_kv), *dout = e.x(n_q), *out = e.x(n_q, 0.3f);
        std::vector<float> lse = e.normal(n);
        for (float &x : lse) x += 5; // of all keys: no less than that of these
        float *stat = (float *)e.device(lse.data(), lse.size() * 4);
        e.dev->attention_part_backward(e.dev, e.out_f(n_q), e.out_f(n_kv), e.out_f(n_kv), dout, out, stat, q, k, v, a);
    }
}
static void attention_merge(Env &e)
{
    size_t B = 2, T = 9, H = 3, D = 10, n = B * T * H * D;
    std::vector<float> a = e.normal(B * H * T, 5), b = e.normal(B * H * T, 5);
    for (size_t i = 0; i < a.size(); i++) {
        if (i % 5 == 1) a[i] = -INFINITY;
        if (i % 5 == 3) b[i] = -INFINITY;
    }
    a[0] = NAN, b[2] = NAN;
    e.dev->attention_merge(e.dev, e.f(n), (float *)e.device(a.data(), a.size() * 4), e.f(n),
                           (float *)e.device(b.data(), b.size() * 4), B, T, H, D);
}

// ---- mixture of experts
static void router_forward(Env &e)
{
    for (auto &s : ANY) {
        X *inp = e.x(s[0] * s[1]), *weight = e.x(s[2] * s[1]);
        e.dev->router_forward(e.dev, e.out_f(s[0] * s[2]), inp, weight, s[0], s[1], s[2]);
    }
}
static void router_backward(Env &e)
{
    for (size_t N : {7, 150, 2100}) { // 2100: several ranges of rows
        size_t C = N == 2100 ? 19 : 80, E = N == 150 ? 70 : 9;
        e.dev->router_backward(e.dev, e.x(N * C), e.f(E * C), e.f(N * E), e.x(N * C), e.x(E * C), N, C, E);
    }
}
static const DevRouter ROUTERS[] = { // E, k, groups, best, sigmoid, renorm, scale
    {8, 2, 0, 0, false, false, 1}, {37, 4, 0, 0, false, true, 2.5f},  {70, 6, 7, 3, false, false, 16},
    {64, 8, 8, 4, true, true, 2.5f}, {5, 5, 0, 0, true, false, 1}, {1, 1, 0, 0, false, true, 1},
};
static void route_forward(Env &e)
{
    for (auto &r : ROUTERS)
        for (int odd = 0; odd < 2; odd++) {
            size_t N = 45;
            std::vector<float> z = e.normal(N * r.E, 2);
            for (size_t i = 0; odd && i < z.size(); i++) z[i] = i % 11 == 7 ? NAN : roundf(z[i]); // ties
            float *logits = (float *)e.device(z.data(), z.size() * 4), *bias = odd ? nullptr : e.f(r.E, 0.3f);
            e.dev->route_forward(e.dev, (int32_t *)e.out(N * r.k * 4), e.out_f(N * r.k), logits, bias, N, r);
        }
}
// k different experts of each of N tokens, never the last one; and their weights, of which many are equal.
struct Slots {
    size_t N, T, k, E, cap;
    bool by_gate;
    int32_t *choice, *offset, *row, *slot;
    float *gate;
};
static Slots slots(Env &e, Slots s)
{
    std::vector<int32_t> choice(s.N * s.k);
    std::vector<float> gate = e.normal(s.N * s.k);
    Rng rng = rng_make(3, "slots", (uint32_t)e.next++);
    for (size_t n = 0; n < s.N; n++) {
        size_t first = rng_below(rng, n, s.E - 1);
        for (size_t j = 0; j < s.k; j++) choice[n * s.k + j] = (int32_t)((first + j) % (s.E - 1));
    }
    for (size_t i = 0; i < gate.size(); i++) gate[i] = i % 13 == 5 ? NAN : roundf(4 * gate[i]) / 4;
    s.choice = e.i(choice), s.gate = (float *)e.device(gate.data(), gate.size() * 4);
    s.offset = (int32_t *)e.out((s.E + 1) * 4), s.row = (int32_t *)e.out(s.N * s.k * 4);
    s.slot = (int32_t *)e.out(s.N * s.k * 4);
    return s;
}
static const Slots SLOTS[] = {
    {60, 20, 2, 5, 0, false, nullptr, nullptr, nullptr, nullptr, nullptr},
    {60, 20, 3, 7, 4, false, nullptr, nullptr, nullptr, nullptr, nullptr},
    {700, 350, 1, 300, 1, true, nullptr, nullptr, nullptr, nullptr, nullptr},
    {256, 128, 2, 9, 20, true, nullptr, nullptr, nullptr, nullptr, nullptr},
};
static Slots sorted(Env &e, const Slots &from)
{
    Slots s = slots(e, from);
    e.cuda->experts_sort(e.cuda, s.offset, s.row, s.slot, s.choice, s.gate, s.N, s.T, s.k, s.E, s.cap, s.by_gate);
    return s;
}
static void experts_sort(Env &e)
{
    std::vector<Slots> all(SLOTS, SLOTS + sizeof SLOTS / sizeof *SLOTS);
    all.push_back({4200, 2100, 2, 6, 0, false, nullptr, nullptr, nullptr, nullptr, nullptr}); // more than 32 blocks
    for (auto &from : all) {
        Slots s = slots(e, from);
        e.dev->experts_sort(e.dev, s.offset, s.row, s.slot, s.choice, s.gate, s.N, s.T, s.k, s.E, s.cap, s.by_gate);
    }
}
static void experts_count(Env &e)
{
    for (auto &from : SLOTS) {
        Slots s = sorted(e, from);
        float *count = e.out_f(s.N / s.T * (s.E + 1)), *all = e.out_f(s.N / s.T * (s.E + 1));
        e.dev->experts_count(e.dev, count, s.choice, s.row, s.N, s.T, s.k, s.E);
        e.dev->experts_count(e.dev, all, s.choice, nullptr, s.N, s.T, s.k, s.E);
    }
}
static void experts_gather(Env &e)
{
    for (auto &from : SLOTS)
        for (size_t C : {13, 48}) {
            Slots s = sorted(e, from);
            e.dev->experts_gather(e.dev, e.out_x(s.N * s.k * C), e.x(s.N * C), s.slot, s.N * s.k, s.k, C);
        }
}
static void experts_combine(Env &e)
{
    for (auto &from : SLOTS)
        for (size_t C : {13, 48}) {
            Slots s = sorted(e, from);
            e.dev->experts_combine(e.dev, e.out_x(s.N * C), e.x(s.N * s.k * C), s.row, s.N, s.k, C);
        }
}
static void experts_pick(Env &e)
{
    for (int32_t n : {1, 300}) {
        std::vector<int32_t> index;
        for (int32_t i = 0; i < n; i++) index.push_back(i % 7 == 3 ? -1 : i * 31 % 200);
        e.dev->experts_pick(e.dev, e.out_f((size_t)n), e.f(200), e.i(index), (size_t)n);
    }
}
static void experts_swiglu_forward(Env &e)
{
    for (size_t F : {13, 48}) {
        Slots s = sorted(e, SLOTS[1]);
        size_t R = s.N * s.k;
        e.dev->experts_swiglu_forward(e.dev, e.out_x(R * F), e.x(R * 2 * F), e.f(R), s.slot, R, F);
    }
}
static void experts_swiglu_backward(Env &e)
{
    for (size_t F : {13, 48, 600}) {
        Slots s = sorted(e, SLOTS[1]);
        size_t R = s.N * s.k;
        X *dout = e.x(R * F), *gate_up = e.x(R * 2 * F);
        e.dev->experts_swiglu_backward(e.dev, e.out_x(R * 2 * F), e.f(R), dout, gate_up, e.f(R), s.slot, R, F);
    }
}
static void route_backward(Env &e)
{
    for (auto &r : ROUTERS)
        for (int more = 0; more < 2; more++) {
            size_t N = 46, T = 23;
            float *logits = e.f(N * r.E, 2), *dgate = e.f(N * r.k), *even = more ? e.f(2 * r.E) : nullptr;
            int32_t *choice = (int32_t *)e.out(N * r.k * 4);
            e.cuda->route_forward(e.cuda, choice, e.out_f(N * r.k), logits, nullptr, N, r);
            e.dev->route_backward(e.dev, e.out_f(N * r.E), dgate, logits, choice, even, 0.5f, more ? 0.1f : 0, N, T, r);
        }
}
// Experts without rows, with fewer than a tile has, with more; rows without an expert, which fill tiles of their own;
// the rows of three sources for three experts, and of two for one. Rows that are no multiples of 16 bytes, and arrays
// that begin anywhere.
template <class F> static void products(Env &e, F run)
{
    const std::vector<int32_t> offsets[] = {{0, 0, 40, 49, 190, 190}, {0, 137}, {0, 0, 0}, {0, 128, 192},
                                            {0, 5, 5, 75, 75, 75, 203, 205, 205, 230}, {0, 3, 71}};
    const size_t sizes[][3] = {{13, 19, 0}, {40, 136, 0}, {136, 40, 0}, {16, 24, 1}}, sources[] = {1, 1, 1, 1, 3, 2};
    for (auto &offset : offsets)
        for (auto &s : sizes) {
            if (s[0] == 136 && offset.size() != 6) continue; // one list will do
            size_t from = sources[&offset - offsets], n_experts = (offset.size() - 1) / from;
            size_t C = s[0], OC = s[1], skew = s[2], tail = offset.back() == 0 ? 140 : 9;
            DevExperts x = {e.i(offset), n_experts, (size_t)offset.back() + tail, C * OC + 8, from, {}};
            X *weight = e.x(n_experts * x.stride, 1, skew), *inp = e.x(x.R * C, 1, skew);
            run(x, C, OC, inp, e.x(x.R * OC, 1, skew), weight);
        }
}
static void experts_forward(Env &e)
{
    products(e, [&](DevExperts x, size_t C, size_t OC, X *inp, X *, X *weight) {
        e.dev->experts_forward(e.dev, e.out_x(x.R * OC), inp, weight, C, OC, x);
    });
}
static void experts_backward_input(Env &e)
{
    products(e, [&](DevExperts x, size_t C, size_t OC, X *, X *dout, X *weight) {
        e.dev->experts_backward_input(e.dev, e.out_x(x.R * C), dout, weight, C, OC, x);
    });
}
static void experts_backward_weight(Env &e)
{
    products(e, [&](DevExperts x, size_t C, size_t OC, X *inp, X *dout, X *) {
        e.dev->experts_backward_weight(e.dev, e.f(x.E * x.stride), dout, inp, C, OC, x);
    });
}

// ---- losses: N, V
static const size_t LOSSES[][2] = {{9, 31}, {5, 1031}, {4, 512}};

static void softmax_xent(Env &e)
{
    for (auto &s : LOSSES) {
        X *z = e.x(s[0] * s[1], 3), *odd = e.x(s[0] * s[1], 3, 1);
        int32_t *y = e.ints(s[0], -1, (int)s[1]);
        e.dev->softmax_xent(e.dev, e.out_f(s[0]), e.out_x(s[0] * s[1]), z, y, s[0], s[1], 0.125f, 0);
        e.dev->softmax_xent(e.dev, e.out_f(s[0]), nullptr, z, y, s[0], s[1], 0.125f, 0);
        e.dev->softmax_xent(e.dev, e.out_f(s[0]), z, z, y, s[0], s[1], 0.125f, 0);
        e.dev->softmax_xent(e.dev, e.out_f(s[0]), e.out_x(s[0] * s[1]), odd, y, s[0], s[1], 0.125f, 0);
        e.dev->softmax_xent(e.dev, e.out_f(s[0]), e.out_x(s[0] * s[1]), odd, y, s[0], s[1], 0.125f, 2.5f);
        e.dev->softmax_xent(e.dev, e.out_f(s[0]), odd, odd, y, s[0], s[1], 0.125f, 2.5f);
    }
    std::vector<float> masked = e.normal(64); // forbidden words, and a row that is broken
    for (size_t i = 0; i < 20; i++) masked[i] = -INFINITY;
    masked[40] = NAN;
    X *z = e.out_x(64);
    e.cuda->to_x(e.cuda, z, (float *)e.device(masked.data(), 256), 64);
    float *loss = e.out_f(2), back[2];
    e.cuda->softmax_xent(e.cuda, loss, nullptr, z, e.i({31, 2}), 2, 32, 1, 0);
    e.cuda->to_host(e.cuda, back, loss, sizeof back);
    EXPECT(std::isfinite(back[0]) && std::isnan(back[1]));
}
static void xent_max(Env &e)
{
    for (auto &s : LOSSES) e.dev->xent_max(e.dev, e.out_f(s[0]), e.x(s[0] * s[1], 3), s[0], s[1]);
}
static void xent_sum(Env &e)
{
    for (auto &s : LOSSES) {
        X *z = e.x(s[0] * s[1], 3);
        float *top = e.out_f(s[0]);
        int32_t *y = e.ints(s[0], -1, (int)s[1] + 3); // some are another rank's
        std::vector<DevRange> range = halves(s[1]);
        e.cuda->xent_max(e.cuda, top, z, s[0], s[1]);
        for (float cap : {0.0f, 2.5f})
            e.dev->xent_sum(e.dev, e.out_f(s[0]), e.out_f(s[0]), z, y, top, s[0], s[1], {range.data(), 2, 1}, cap);
    }
}
static void xent_loss(Env &e)
{
    for (auto &s : LOSSES)
        for (float cap : {0.0f, 2.5f}) {
            X *z = e.x(s[0] * s[1], 3);
            float *top = e.out_f(s[0]), *total = e.out_f(s[0]), *hit = e.out_f(s[0]);
            int32_t *y = e.ints(s[0], -1, (int)s[1] + 3);
            std::vector<DevRange> range = halves(s[1]);
            e.cuda->xent_max(e.cuda, top, z, s[0], s[1]);
            e.cuda->xent_sum(e.cuda, total, hit, z, y, top, s[0], s[1], {range.data(), 2, 1}, cap);
            e.dev->xent_loss(e.dev, e.out_f(s[0]), nullptr, z, y, top, total, hit, s[0], s[1], 0.125f, cap);
            e.dev->xent_loss(e.dev, e.out_f(s[0]), z, z, y, top, total, hit, s[0], s[1], 0.125f, cap);
        }
}

// ---- optimizers
static Update update(int step)
{
    Update u = {};
    u.lr = 1e-2f, u.beta1 = 0.9f, u.beta2 = 0.95f, u.eps = 1e-8f, u.weight_decay = 0.1f, u.grad_scale = 0.37f;
    u.step = step;
    return u;
}
static void sum_squares(Env &e)
{
    for (size_t n : {0, 1, 1003, 30007}) {
        double sum = e.dev->sum_squares(e.dev, e.f(n), n);
        e.device(&sum, sizeof sum);
    }
}
static void sum_squares_exact(Env &e)
{
    for (size_t n : {0, 1, 1003, 9007}) {
        std::vector<float> v = e.normal(n);
        for (size_t i = 0; i < n; i++) v[i] *= (float)ldexp(1, (int)(i % 200) - 140); // subnormal numbers too
        ExactSum sum = {};
        sum.word[0] = 5, sum.word[12] = 0xffffffff;
        float *x = (float *)e.device(v.data(), n * 4);
        e.dev->sum_squares_exact(e.dev, &sum, x, n);
        e.device(&sum, sizeof sum);
        ExactSum bad = {};
        if (n > 7) v[7] = NAN;
        e.dev->sum_squares_exact(e.dev, &bad, (float *)e.device(v.data(), n * 4), n);
        EXPECT(std::isnan(formats_sum_value(&bad)) == (n > 7));
    }
}
static void clip_units(Env &e)
{
    e.dev->clip_units(e.dev, e.f(13 * 210), e.f(13 * 210, 0.1f), 13, 210, 1, 1e-3f);
    e.dev->clip_units(e.dev, e.f(9007), e.f(9007), 1, 9007, 0.01f, 1e-3f);
    e.dev->clip_units(e.dev, e.f(907), e.f(907), 1, 907, 100, 1e-3f); // within the limit
}
static void updates(Env &e)
{
    for (int step = 1; step < 6; step += 4) {
        Update u = update(step);
        for (OptimName rule : {OPTIM_ADAMW, OPTIM_ADAM}) {
            e.dev->update(e.dev, rule, e.f(1003), e.f(1003), e.positive(1003), e.f(1003), 1003, u);
            e.dev->update(e.dev, rule, e.f(1003) + 1, e.f(1003), e.positive(1003), e.f(1003), 1001, u); // aligned alike no more
        }
        e.dev->update(e.dev, OPTIM_SGD, e.f(1003), nullptr, nullptr, e.f(1003), 1003, u);
        for (OptimName rule : {OPTIM_MOMENTUM, OPTIM_LION})
            e.dev->update(e.dev, rule, e.f(1003), e.f(1003), nullptr, e.f(1003), 1003, u);
    }
}
static void adamw8bit(Env &e)
{
    size_t n = 2 * UPDATE_BLOCK + 7;
    std::vector<uint8_t> codes(n);
    for (size_t i = 0; i < n; i++) codes[i] = (uint8_t)(i * 7);
    uint8_t *m = (uint8_t *)e.device(codes.data(), n), *v = (uint8_t *)e.device(codes.data(), n);
    e.dev->adamw8bit(e.dev, e.f(n), m, e.positive(3), v, e.positive(3), e.f(n), n, update(3));
    std::vector<uint8_t> none(n);
    std::vector<float> zero(3);
    m = (uint8_t *)e.device(none.data(), n), v = (uint8_t *)e.device(none.data(), n); // the first step
    float *m_scale = (float *)e.device(zero.data(), 12), *v_scale = (float *)e.device(zero.data(), 12);
    e.dev->adamw8bit(e.dev, e.f(n), m, m_scale, v, v_scale, e.f(n), n, update(1));
}
static void adafactor(Env &e)
{
    e.dev->adafactor(e.dev, e.f(31 * 59), e.positive(31), e.positive(59), e.f(31 * 59), 31, 59, update(3));
    e.dev->adafactor(e.dev, e.f(150 * 20), e.positive(150), e.positive(20), e.f(150 * 20), 150, 20, update(1));
    e.dev->adafactor(e.dev, e.f(1003), e.positive(1003), nullptr, e.f(1003), 1, 1003, update(3));
}
static void muon(Env &e)
{
    const size_t shapes[][2] = {{20, 50}, {50, 20}, {24, 24}};
    for (auto &s : shapes) {
        size_t n = s[0] * s[1], k = s[0] < s[1] ? s[0] : s[1];
        e.dev->muon(e.dev, e.f(n), e.f(n), nullptr, e.f(n), e.out_f(n + 2 * k * k), s[0], s[1], update(3));
        Update careful = update(3);
        careful.cautious = true;
        e.dev->muon(e.dev, e.f(n), e.f(n), e.positive(s[0]), e.f(n), e.out_f(n + 2 * k * k), s[0], s[1], careful);
    }
}

// Nothing to do: no launch of no block, nothing written.
static void empty(Env &e)
{
    X *x = e.x(16);
    float *f = e.f(16);
    int32_t *i = e.ints(16, 0, 2);
    e.cuda->add(e.cuda, x, x, x, 0);
    e.cuda->matmul_forward(e.cuda, x, x, x, nullptr, 0, 4, 4, -1);
    e.cuda->matmul_backward_weight(e.cuda, f, f, x, x, 0, 4, 4, -1);
    e.cuda->embed_backward(e.cuda, f, f, x, i, i, 0, 4, 2);
    e.cuda->norm_forward(e.cuda, x, x, f, f, x, x, x, x, 0, 4, NORM_LAYERNORM, 1e-5f);
    e.cuda->norm_backward(e.cuda, x, f, f, x, x, x, f, f, x, 0, 4, NORM_LAYERNORM);
    e.cuda->softmax_xent(e.cuda, f, x, x, i, 0, 4, 1, 0);
    e.cuda->update(e.cuda, OPTIM_ADAMW, f, f, f, f, 0, update(1));
    e.cuda->accumulate(e.cuda, f, f, 0);
    e.cuda->copy(e.cuda, x, x, 0, 4, 4, 4);
    e.cuda->zero(e.cuda, f, 0);
    e.cuda->clip_units(e.cuda, f, f, 0, 4, 1, 1);
    AttnShape none = piece(e, 0, 0, false);
    none.B = 0;
    e.cuda->attention_part_forward(e.cuda, f, f, x, x, x, none);
    e.cuda->attention_part_backward(e.cuda, f, f, f, x, x, f, x, x, x, none);
    e.cuda->router_backward(e.cuda, x, f, f, x, x, 0, 4, 4);
    e.cuda->route_forward(e.cuda, i, f, f, f, 0, ROUTERS[0]);
    e.cuda->route_backward(e.cuda, f, f, f, i, f, 1, 1, 0, 4, ROUTERS[0]);
    e.cuda->experts_count(e.cuda, f, i, i, 0, 4, 2, 4);
    e.cuda->experts_sort(e.cuda, i, i, i, i, f, 0, 4, 2, 4, 1, true);
    e.cuda->experts_swiglu_backward(e.cuda, x, f, x, x, f, i, 0, 4);
    e.cuda->experts_forward(e.cuda, x, x, x, 4, 4, {i, 1, 0, 16, 1, {}});
    e.cuda->experts_pick(e.cuda, f, f, i, 0);
}

static const struct Case {
    const char *name;
    void (*run)(Env &);
} cases[] = {
#define CASE(name) {#name, name}
    CASE(matmul_forward), CASE(matmul_gelu_forward), CASE(matmul_backward_input), CASE(matmul_gelu_backward_input),
    CASE(matmul_backward_weight), CASE(matmul_parts_forward), CASE(matmul_parts_backward_input), CASE(swiglu_forward),
    CASE(swiglu_backward), CASE(act_forward), CASE(act_backward), CASE(add), CASE(copy), CASE(dropout), CASE(accumulate), CASE(subtract),
    CASE(to_x), CASE(from_x), CASE(memory), CASE(embed_forward), CASE(embed_backward), CASE(norm_forward), CASE(norm_backward),
    CASE(head_norm_forward), CASE(head_norm_backward), CASE(rope_forward), CASE(rope_backward), CASE(compress),
    CASE(decompress), CASE(attention_forward), CASE(attention_backward), CASE(attention_part_forward),
    CASE(attention_part_backward), CASE(attention_merge), CASE(softmax_xent), CASE(xent_max), CASE(xent_sum),
    CASE(xent_loss), CASE(sum_squares), CASE(sum_squares_exact), CASE(clip_units), {"update", updates},
    CASE(adamw8bit), CASE(adafactor), CASE(muon), CASE(router_forward), CASE(router_backward),
    CASE(route_forward), CASE(route_backward), CASE(experts_count), CASE(experts_sort), CASE(experts_gather),
    CASE(experts_combine), CASE(experts_pick), CASE(experts_swiglu_forward), CASE(experts_swiglu_backward),
    CASE(experts_forward), CASE(experts_backward_input), CASE(experts_backward_weight), CASE(empty),
};

// The bytes of all arrays after a case.
static std::vector<unsigned char> run_case(const Case &c, Dev *dev, Dev *cuda, int site)
{
    Env e = {dev, cuda, 0, site, {}};
    std::vector<unsigned char> bytes;
    c.run(e);
    for (auto &b : e.blocks) {
        size_t at = bytes.size();
        bytes.resize(at + b.bytes);
        cuda->to_host(cuda, bytes.data() + at, b.p, b.bytes);
        gpu_release(b.p);
    }
    return bytes;
}

// A case on both devices, and on one again.
static void run_twice(const Case &c, const char *type, Dev *both, Dev *cuda, int site)
{
    const DevCheckRow *rows;
    int before = failures;
    std::vector<unsigned char> first = run_case(c, both, cuda, site), again = run_case(c, cuda, cuda, site);
    size_t differ = 0, n = first.size();
    while (differ < n && first[differ] == again[differ]) differ++;
    if (n != again.size() || differ < n)
        failures++, printf("  %s: byte %zu of %zu differs the second time\n", c.name, differ, n);
    for (size_t i = 0, n_rows = dev_check_rows(both, &rows); i < n_rows; i++)
        if (strcmp(rows[i].op, c.name) == 0 && !(rows[i].worst <= 1))
            printf("  %s: %.3g times the bound: %s\n", c.name, rows[i].worst, rows[i].where), failures++;
    printf("%s %s %s\n", failures == before ? "ok" : "not ok", type, c.name);
}

static void end_pair(Dev *both, Dev *cuda, Dev *ref, Dev *cpu, bool table)
{
    if (dev_check_worst(both) > 1) failures++; // of an op that another case has called
    if (table) dev_check_print(both, stdout);
    dev_check_free(both);
    if (ref != cpu) narrow_free(ref);
    dev_cpu_free(cpu);
    dev_cuda_free(cuda);
}

static const char *const names[] = {"fp32", "bf16", "fp16"}; // by XType

static void run_type(XType type, const char *only, bool table)
{
    DevCudaOptions options = {};
    options.x_type = type, options.threads = 64;
    Dev *cuda = dev_cuda_create(options), *cpu = dev_cpu_create(1), *ref = cpu;
    if (type != X_FP32) {
        NarrowOptions narrow = {};
        narrow.x_type = type;
        ref = narrow_create(cpu, narrow);
    }
    reference = ref;
    Dev *both = dev_check_create(cuda, ref);
    const DevCheckRow *rows;
    for (auto &c : cases)
        if (strncmp(c.name, only, strlen(only)) == 0) run_twice(c, names[type], both, cuda, -1);
    size_t entries = (sizeof(Dev) - offsetof(Dev, matmul_forward)) / sizeof(void (*)());
    size_t n_rows = dev_check_rows(both, &rows);
    if (!*only && n_rows != entries)
        failures++, printf("not ok %s: %zu of %zu entries have a case\n", names[type], n_rows, entries);
    end_pair(both, cuda, ref, cpu, table);
}

// Operands rounded to TF32: the emulation rounds as the CPU does, so the bounds are those of fp32 sums.
static void run_tf32(const char *only, bool table)
{
    DevCudaOptions options = {};
    options.x_type = X_FP32, options.threads = 64, options.tf32 = true;
    Dev *cuda = dev_cuda_create(options), *cpu = dev_cpu_create(1);
    cpu->tf32 = true;
    Dev *both = dev_check_create(cuda, cpu);
    for (auto &c : cases)
        for (const char *kind :
             {"matmul", "experts_forward", "experts_backward", "router", "muon", "attention_forward"})
            if (!strncmp(c.name, kind, strlen(kind)) && !strncmp(c.name, only, strlen(only)))
                run_twice(c, "tf32", both, cuda, -1);
    end_pair(both, cuda, cpu, cpu, table);
}

// Products in 8 bits. Delayed scales: the first step has no history; the second has, and the third one's, made too
// small here, saturates what is larger.
static void run_fp8(Fp8Scaling scaling, const char *only, bool table)
{
    DevCudaOptions options = {};
    options.x_type = X_BF16, options.threads = 64, options.fp8 = true, options.scaling = scaling, options.history = 3;
    NarrowOptions narrow = {};
    narrow.x_type = X_BF16, narrow.fp8 = true, narrow.scaling = scaling, narrow.history = 3;
    Dev *cuda = dev_cuda_create(options), *cpu = dev_cpu_create(1), *ref = narrow_create(cpu, narrow);
    Dev *both = dev_check_create(cuda, ref);
    Params params = {};
    int site = params_add(&params, 1, "layers.0.attn.q.weight", 2, 16, 16, 0, 1, true, 0);
    fp8_set_sites(cuda->fp8, &params, nullptr);
    for (int step = 0; step < (scaling == FP8_CURRENT ? 1 : 3); step++) {
        fp8_step_begin(cuda->fp8);
        for (auto &c : cases)
            if (!strncmp(c.name, "matmul", 6) && !strncmp(c.name, only, strlen(only)))
                run_twice(c, scaling == FP8_CURRENT ? "fp8" : "fp8, delayed", both, cuda, site);
        EXPECT(fp8_step_end(cuda->fp8));
        size_t n;
        float *amax = fp8_state(cuda->fp8, &n);
        for (size_t i = 0; step == 1 && i < n; i++) amax[i] *= 0.1f;
    }
    // Something that is not finite is noted, and the step is not good.
    Env e = {both, cuda, 0, site, {}};
    std::vector<float> bad(7 * 16, 1.0f);
    bad[20] = INFINITY;
    X *x = e.out_x(7 * 16), *weight = e.x(48 * 16);
    cuda->to_x(cuda, x, (float *)e.device(bad.data(), bad.size() * 4), bad.size());
    e.dev->matmul_forward(e.dev, e.out_x(7 * 48), x, weight, nullptr, 7, 16, 48, site);
    EXPECT(!fp8_step_end(cuda->fp8));
    for (auto &b : e.blocks) gpu_release(b.p);
    end_pair(both, cuda, ref, cpu, table);
    params_free(&params);
}

int main(int argc, char **argv)
{
    bool table = argc > 1 && strcmp(argv[argc - 1], "-v") == 0;
    if (table) argc--;
    const char *only = argc > 2 ? argv[2] : "";
    for (int t = 0; t < 3; t++)
        if (argc < 2 || strcmp(argv[1], names[t]) == 0) run_type((XType)t, only, table);
    if (argc < 2 || strcmp(argv[1], "tf32") == 0) run_tf32(only, table);
    if (argc < 2 || strcmp(argv[1], "fp8") == 0) run_fp8(FP8_CURRENT, only, table), run_fp8(FP8_DELAYED, only, table);
    return failures != 0;
}
