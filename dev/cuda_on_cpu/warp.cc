// warp: what warp collectives compute once all their lanes have come, and asynchronous copies.
//
// Each finish function sees all lanes' arguments at once (Lanes), so it reads like the definition in the PTX
// manual rather than like code for one lane. A lane that a shuffle reads but that does not take part has no defined
// value: the result is NaN bits, or with EMU_STRICT=2 a report.
// mma adds the 16 products in order of k, in fp32. A GPU keeps products exact and adds them in another order and
// with another rounding: compare with a tolerance. EMU_MMA64=1 sums in double and rounds once.
// An asynchronous copy lands at the wait and not before: until then its destination holds NaN bits, the latest moment
// that CUDA allows. So code that reads too early is wrong here every time.
#include "machine.h"

namespace emu {

// ---- shuffles
static void finish_shuffle(Lanes *l)
{
    for (int i = 0; i < (int)WARP; i++) {
        if (!(l->mask >> i & 1)) continue;
        Shuffle *s = (Shuffle *)l->arg[i];
        int first = i & ~(s->width - 1), last = first + s->width - 1, from = i;
        switch (s->kind) {
        case Shuffle::INDEX: from = first + (s->lane & (s->width - 1)); break;
        case Shuffle::UP: from = i - s->lane < first ? i : i - s->lane; break;
        case Shuffle::DOWN: from = i + s->lane > last ? i : i + s->lane; break;
        case Shuffle::XOR: from = (i ^ s->lane) > last ? i : i ^ s->lane; break;
        }
        if (l->mask >> from & 1) s->result = ((Shuffle *)l->arg[from])->value;
        else if (machine().set.strict >= 2)
            report("shuffle-source", l->site, "%s: lane %d reads lane %d, which does not take part (lanes %08x do)",
                   l->op, i, from, l->mask);
        else s->result = ~0ull;
    }
}

uint64_t shuffle(unsigned mask, Shuffle s, const char *op, Site site)
{
    if (s.width < 1 || s.width > 32 || s.width & (s.width - 1))
        report("wrong-mask", site, "%s with width %d (a power of two up to 32)", op, s.width);
    collective(mask, op, &s, finish_shuffle, site);
    return s.result;
}

// ---- votes, matches, reductions
namespace {
struct Vote { int kind, predicate; unsigned result; };
struct Match { uint64_t value; unsigned result; int all; };
struct Reduce { int kind; int64_t value, result; };
} // namespace

static void finish_vote(Lanes *l)
{
    unsigned ballot = 0;
    for (unsigned i = 0; i < WARP; i++)
        if (l->mask >> i & 1 && ((Vote *)l->arg[i])->predicate) ballot |= 1u << i;
    for (unsigned i = 0; i < WARP; i++) {
        if (!(l->mask >> i & 1)) continue;
        Vote *v = (Vote *)l->arg[i];
        v->result = v->kind == 0 ? ballot == l->mask : v->kind == 1 ? ballot != 0 : ballot;
    }
}

unsigned vote(unsigned mask, int kind, int predicate, const char *op, Site site)
{
    Vote v = {kind, predicate, 0};
    collective(mask, op, &v, finish_vote, site);
    return v.result;
}

static void finish_match(Lanes *l)
{
    for (unsigned i = 0; i < WARP; i++) {
        if (!(l->mask >> i & 1)) continue;
        Match *m = (Match *)l->arg[i];
        m->result = 0;
        for (unsigned j = 0; j < WARP; j++)
            if (l->mask >> j & 1 && ((Match *)l->arg[j])->value == m->value) m->result |= 1u << j;
        m->all = m->result == l->mask;
    }
}

unsigned match_any(unsigned mask, uint64_t value, const char *op, Site site)
{
    Match m = {value, 0, 0};
    collective(mask, op, &m, finish_match, site);
    return m.result;
}

unsigned match_all(unsigned mask, uint64_t value, int *all, Site site)
{
    Match m = {value, 0, 0};
    collective(mask, "__match_all_sync", &m, finish_match, site);
    *all = m.all;
    return m.all ? m.result : 0;
}

static int64_t combine(int kind, int64_t a, int64_t b)
{
    switch (kind) {
    case REDUCE_ADD: return a + b;
    case REDUCE_MIN: return a < b ? a : b;
    case REDUCE_MAX: return a > b ? a : b;
    case REDUCE_AND: return a & b;
    case REDUCE_OR: return a | b;
    default: return a ^ b;
    }
}

static void finish_reduce(Lanes *l)
{
    int64_t total = 0;
    bool first = true;
    for (unsigned i = 0; i < WARP; i++) {
        if (!(l->mask >> i & 1)) continue;
        Reduce *r = (Reduce *)l->arg[i];
        total = first ? r->value : combine(r->kind, total, r->value);
        first = false;
    }
    for (unsigned i = 0; i < WARP; i++)
        if (l->mask >> i & 1) ((Reduce *)l->arg[i])->result = total;
}

int64_t reduce(unsigned mask, int kind, int64_t value, const char *op, Site site)
{
    Reduce r = {kind, value, 0};
    collective(mask, op, &r, finish_reduce, site);
    return r.result;
}

// ---- tensor cores
namespace {
struct Mma { float *d; const uint32_t *a, *b; const float *c; bool bf16; };
struct Ldmatrix { uint32_t *out; int matrices; const void *row; bool transposed; };
} // namespace

static float half_of(uint32_t word, int right, bool bf16)
{
    uint32_t pattern = right ? word >> 16 : word & 0xffff;
    return bf16 ? formats_decode(FORMAT_BF16, pattern) : formats_decode(FORMAT_FP16, pattern);
}

static void need_whole_warp(Lanes *l)
{
    if (l->mask != ~0u)
        report("wrong-mask", l->site, "%s needs all 32 lanes, and only %08x take part", l->op, l->mask);
}

static void finish_mma(Lanes *l)
{
    need_whole_warp(l);
    float a[16][16], b[16][8], d[16][8];
    for (int i = 0; i < 32; i++) {
        const Mma *m = (const Mma *)l->arg[i];
        int g = i / 4, t = i % 4 * 2;
        for (int h = 0; h < 2; h++) {
            for (int r = 0; r < 4; r++) a[g + r % 2 * 8][t + r / 2 * 8 + h] = half_of(m->a[r], h, m->bf16);
            for (int r = 0; r < 2; r++) b[t + r * 8 + h][g] = half_of(m->b[r], h, m->bf16);
            for (int r = 0; r < 2; r++) d[g + r * 8][t + h] = m->c[r * 2 + h];
        }
    }
    for (int row = 0; row < 16; row++) // each sum in order of k
        if (machine().set.wide) {
            for (int column = 0; column < 8; column++) {
                double exact = d[row][column];
                for (int k = 0; k < 16; k++) exact += (double)a[row][k] * b[k][column];
                d[row][column] = (float)exact;
            }
        } else {
            for (int k = 0; k < 16; k++)
                for (int column = 0; column < 8; column++) d[row][column] += a[row][k] * b[k][column];
        }
    for (int i = 0; i < 32; i++) {
        const Mma *m = (const Mma *)l->arg[i];
        for (int r = 0; r < 4; r++) m->d[r] = d[i / 4 + r / 2 * 8][i % 4 * 2 + r % 2];
    }
}

void mma(float *d, const uint32_t *a, const uint32_t *b, const float *c, bool bf16, Site site)
{
    Mma m = {d, a, b, c, bf16};
    collective(~0u, bf16 ? "mma_m16n8k16_bf16" : "mma_m16n8k16_fp16", &m, finish_mma, site);
}

static void finish_ldmatrix(Lanes *l)
{
    need_whole_warp(l);
    uint16_t matrix[4][8][8];
    int matrices = ((Ldmatrix *)l->arg[0])->matrices;
    for (int i = 0; i < matrices * 8; i++) memcpy(matrix[i / 8][i % 8], ((Ldmatrix *)l->arg[i])->row, 16);
    for (int i = 0; i < 32; i++) {
        Ldmatrix *m = (Ldmatrix *)l->arg[i];
        for (int k = 0; k < matrices; k++) {
            int row = i / 4, column = i % 4 * 2;
            uint32_t left = m->transposed ? matrix[k][column][row] : matrix[k][row][column];
            uint32_t right = m->transposed ? matrix[k][column + 1][row] : matrix[k][row][column + 1];
            m->out[k] = left | right << 16;
        }
    }
}

static void need_aligned(const void *p, const char *what, Site site, unsigned to = 16)
{
    if ((uintptr_t)p % to)
        report("misaligned", site, "%s: %p is not a multiple of %u (%s)", what, p, to, memory_describe(p).c_str());
}

void ldmatrix(uint32_t *out, int matrices, const void *row, bool transposed, Site site)
{
    if ((int)lane() < matrices * 8) {
        need_aligned(row, "ldmatrix", site);
        memory_need(row, 16, "ldmatrix", site);
        if (memory_is_device(row))
            report("foreign-pointer", site, "ldmatrix reads shared memory; %p is device memory", row);
        if (machine().hooks.access) machine().hooks.access(row, 16, false, site);
    }
    Ldmatrix m = {out, matrices, row, transposed};
    collective(~0u, transposed ? "ldmatrix_trans" : "ldmatrix", &m, finish_ldmatrix, site);
}

// ---- asynchronous copies
void copy_async(void *dst, const void *src, unsigned bytes, unsigned from_src, Site site)
{
    Thread *t = thread_now();
    if (!t) report("host", site, "cp_async is called by the host");
    need_aligned(dst, "cp_async: destination", site, bytes);
    need_aligned(src, "cp_async: source", site, bytes);
    if (from_src > bytes)
        report("out-of-bounds", site, "cp_async of %u bytes from the source (at most %u)", from_src, bytes);
    memory_need(dst, bytes, "cp_async: destination", site);
    if (memory_is_device(dst))
        report("foreign-pointer", site, "cp_async writes shared memory; %p is device memory", dst);
    if (from_src) memory_need(src, from_src, "cp_async: source", site);
    if (from_src && !memory_is_device(src))
        report("foreign-pointer", site, "cp_async reads device memory; %p is shared", src);
    if (machine().hooks.access) {
        machine().hooks.access(dst, bytes, true, site);
        machine().hooks.forget(dst, bytes);
    }
    memset(dst, 0xff, bytes);
    t->copies.push_back({dst, src, bytes, from_src, t->group, site});
}

void copy_commit()
{
    thread_now()->group++;
}

void copy_wait(unsigned newest)
{
    Thread *t = thread_now();
    size_t landed = 0;
    // A copy that is not committed belongs to no group, and no wait is for it.
    while (landed < t->copies.size() && t->copies[landed].group + newest < t->group) {
        const Copy &c = t->copies[landed++];
        if (machine().hooks.access) {
            if (c.from_src) machine().hooks.access(c.src, c.from_src, false, c.site);
            machine().hooks.access(c.dst, c.bytes, true, c.site);
        }
        memcpy(c.dst, c.src, c.from_src);
        memset((char *)c.dst + c.from_src, 0, c.bytes - c.from_src);
    }
    t->copies.erase(t->copies.begin(), t->copies.begin() + (long)landed);
}

} // namespace emu
