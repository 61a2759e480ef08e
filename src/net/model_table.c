// model_table: the tensors of a shape: every row of the parameter table with its role, and the list of units.
//
// The invariant: each row is written here once, together with its role in its unit, and everything else follows from
// the table. The same lines describe a rank's part of every layer: a divided shape says what this rank holds, and a row
// says where that lies in the whole tensor. A stage of a pipeline has only the rows of its own units, under their names
// in the whole model. So a head that is tied to another stage's embedding has no row here; it reads a copy, which norm,
// optimizer, sharding and checkpoints never see.
//
// Order of rows within a block: the tensors that one matmul reads are neighbours (q, k, v; gate, up), weights before
// their biases. Initialisation is GPT-2's: normal(0, 0.02), the two projections into the residual stream divided by
// sqrt(2 layers), so that the variance of the stream does not grow with depth; norms 1, biases 0. With model.zero_init
// those two are 0: every block begins as the identity.
#include "net/model.h"

#include "base/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct {
    Params *params;
    Unit *unit;
    const char *prefix;
    int in; // unit of the table
} Builder;

// This rank's part of a divided axis.
typedef struct {
    size_t n, first, whole; // elements; index of the first of them; elements of the whole axis
    bool owned;             // see Param
    ParamSum sum;
} Span;

static Param *add(Builder b, UnitRole role, const char *name, size_t dim0, size_t dim1, float mean, float std)
{
    char full[PARAM_NAME];
    snprintf(full, sizeof full, "%s%s", b.prefix, name);
    int row = params_add(b.params, b.in, full, dim1 ? 2 : 1, dim0, dim1, mean, std, dim1 != 0, -1);
    if (role < UNIT_ROLES) b.unit->row[role] = row;
    return &b.params->row[row];
}

// A tensor that every rank has whole.
static void add_copy(Builder b, const ModelShape *s, UnitRole role, const char *name, size_t dim0, size_t dim1,
                     float mean, float std, ParamSum sum)
{
    Param *row = add(b, role, name, dim0, dim1, mean, std);
    row->owned = s->cut.rank == 0;
    row->sum = s->cut.size > 1 ? sum : PARAM_COMPLETE;
}

// A tensor whose axis `cut` is cut into spans; `other`: the other axis, 0 for a vector.
static void add_cut(Builder b, UnitRole role, const char *name, Span span, size_t other, int cut, float std)
{
    Param *row = add(b, role, name, cut == 1 ? other : span.n, cut == 1 ? span.n : other, 0, std);
    row->cut = cut;
    row->whole[cut] = span.whole;
    row->first = span.first;
    row->owned = span.owned;
    row->sum = span.sum;
}

// `n` of `whole` things of `size` elements each.
static Span span_of(const ModelShape *s, size_t n, size_t whole, size_t size)
{
    if (s->cut.size <= 1) return (Span){.n = n * size, .whole = n * size, .owned = true};
    return (Span){.n = n * size, .first = unit_cut_first(whole, s->cut.rank, s->cut.size) * size, .whole = whole * size,
                  .owned = true};
}

// Key/value heads. When several ranks hold the same ones, the first rank owns them, and each has only the gradient from
// its own query heads.
static Span span_of_kv(const ModelShape *s)
{
    Span span = span_of(s, s->kv_heads, s->cut.kv_heads, s->head_size);
    int copies = unit_cut_copies(s);
    if (copies == 1) return span;
    span.owned = s->cut.rank % copies == 0;
    span.sum = PARAM_SUM_NEIGHBOURS;
    return span;
}

static void add_norm(Builder b, const ModelShape *s, UnitRole w_role, UnitRole b_role, const char *w, const char *bias)
{
    ParamSum sum = s->cut.rows > 1 ? PARAM_SUM_ALL : PARAM_COMPLETE; // each rank norms its own rows
    add_copy(b, s, w_role, w, s->channels, 0, 1, 0, sum);
    if (s->norm == NORM_LAYERNORM && s->bias) add_copy(b, s, b_role, bias, s->channels, 0, 0, 0, sum);
}

// Of a projection into the residual stream.
static float std_out(const ModelShape *s)
{
    return s->zero_init ? 0 : 0.02f / sqrtf(2.0f * (float)s->layers);
}

// The rows of a feed-forward network, or of one expert, under names that begin with `prefix`.
static void describe_ffn(Builder b, const ModelShape *s, const char *prefix, Span ffn, UnitRole in, UnitRole down)
{
    size_t C = s->channels;
    float std = 0.02f;
    bool bias = s->bias && in == W_FFN_IN;
    const UnitRole none = UNIT_ROLES;
    char name[PARAM_NAME];
#define NAME(end) (snprintf(name, sizeof name, "%s." end, prefix), name)
    if (s->swiglu) add_cut(b, in, NAME("gate.weight"), ffn, C, 0, std);
    add_cut(b, s->swiglu ? none : in, NAME("up.weight"), ffn, C, 0, std);
    if (bias && s->swiglu) add_cut(b, B_FFN_IN, NAME("gate.bias"), ffn, 0, 0, 0);
    if (bias) add_cut(b, s->swiglu ? none : B_FFN_IN, NAME("up.bias"), ffn, 0, 0, 0);
    add_cut(b, down, NAME("down.weight"), ffn, C, 1, std_out(s));
    if (bias) add_copy(b, s, B_FFN_DOWN, NAME("down.bias"), C, 0, 0, 0, PARAM_COMPLETE);
#undef NAME
}

// The router's matrix, the expert that all tokens use, and the others, each with its three matrices. None has a bias.
static void describe_experts(Builder b, const ModelShape *s)
{
    const ModelExperts *x = &s->experts;
    add_copy(b, s, W_ROUTER, "router.weight", x->n, s->channels, 0, 0.02f, PARAM_COMPLETE);
    if (x->shared) describe_ffn(b, s, "shared", span_of(s, x->shared, s->cut.shared, 1), W_FFN_IN, W_FFN_DOWN);
    size_t own = unit_own_experts(x), first = own * (size_t)x->rank;
    int from = b.params->n_rows;
    b.in += b.unit->apart;
    for (size_t e = 0; e < own; e++) {
        char prefix[32];
        snprintf(prefix, sizeof prefix, "experts.%zu", first + e);
        describe_ffn(b, s, prefix, span_of(s, x->ffn, s->cut.expert, 1), e ? UNIT_ROLES : W_EXPERTS_IN,
                     e ? UNIT_ROLES : W_EXPERTS_DOWN);
    }
    for (int i = from; i < b.params->n_rows; i++) b.params->row[i].expert = b.unit->apart;
}

static void describe_block(Builder b, const ModelShape *s)
{
    size_t C = s->channels;
    Span heads = span_of(s, s->heads, s->cut.heads, s->head_size), kv = span_of_kv(s);
    float std = 0.02f;
    const UnitRole none = UNIT_ROLES;
    add_norm(b, s, W_ATTN_NORM, B_ATTN_NORM, "attn_norm.weight", "attn_norm.bias");
    add_cut(b, W_QKV, "attn.q.weight", heads, C, 0, std);
    add_cut(b, none, "attn.k.weight", kv, C, 0, std);
    add_cut(b, none, "attn.v.weight", kv, C, 0, std);
    if (s->bias) {
        add_cut(b, B_QKV, "attn.q.bias", heads, 0, 0, 0);
        add_cut(b, none, "attn.k.bias", kv, 0, 0, 0);
        add_cut(b, none, "attn.v.bias", kv, 0, 0, 0);
    }
    if (s->qk_norm) { // of a head, one weight for all: each rank has the gradient from its own heads
        bool whole = s->qk_norm == QK_NORM_WHOLE;
        check(!whole || s->cut.size <= 1);
        size_t q = whole ? heads.n : s->head_size, k = whole ? kv.n : s->head_size;
        add_copy(b, s, W_Q_NORM, "attn.q_norm.weight", q, 0, 1, 0, PARAM_SUM_ALL);
        add_copy(b, s, W_K_NORM, "attn.k_norm.weight", k, 0, 1, 0, PARAM_SUM_ALL);
    }
    add_cut(b, W_ATTN_OUT, "attn.out.weight", heads, C, 1, std_out(s));
    if (s->bias) add_copy(b, s, B_ATTN_OUT, "attn.out.bias", C, 0, 0, 0, PARAM_COMPLETE);
    add_norm(b, s, W_FFN_NORM, B_FFN_NORM, "ffn_norm.weight", "ffn_norm.bias");
    if (b.unit->kind == &unit_experts) describe_experts(b, s);
    else describe_ffn(b, s, "ffn", span_of(s, s->ffn, s->cut.ffn, 1), W_FFN_IN, W_FFN_DOWN);
}

static int units_of(const ModelPiece *piece)
{
    return (int)piece->layers + piece->embedding + piece->head;
}

int model_chunk_units(const ModelStage *stage, int chunk, int *n_units)
{
    int at = 0;
    for (int c = 0; c < stage->n_chunks; c++)
        if (stage->chunk[c].first < stage->chunk[chunk].first) at += units_of(&stage->chunk[c]);
    *n_units = units_of(&stage->chunk[chunk]);
    return at;
}

// A unit of a list that stands at `index` there and at `place` in the whole network.
static void place_unit(Unit *unit, const ModelShape *s, int index, int place)
{
    *unit = (Unit){.index = index, .place = place};
    unit->kind = place == 0 ? &unit_embedding : place == (int)s->layers + 1 ? &unit_head
                                                             : unit_kind_of(s, (size_t)place - 1);
    unit->apart = unit->kind == &unit_experts && s->experts.ranks > 1;
    for (int r = 0; r < UNIT_ROLES; r++) unit->row[r] = UNIT_ABSENT;
}

static Unit *list_units(const ModelShape *s, const ModelStage *stage, int *n_units)
{
    int n = 0;
    for (int c = 0; c < stage->n_chunks; c++) n += units_of(&stage->chunk[c]);
    Unit *unit = calloc((size_t)n, sizeof *unit);
    if (!unit) die("model: no memory for %d units", n);
    for (int c = 0; c < stage->n_chunks; c++) {
        const ModelPiece *p = &stage->chunk[c];
        int count, at = model_chunk_units(stage, c, &count);
        for (int i = 0; i < count; i++) place_unit(&unit[at + i], s, at + i, (int)p->first + i + !p->embedding);
    }
    for (int i = 1; i < n; i++) { // unit[0] may be a block, with none before it
        const Unit *last = &unit[i - 1];
        unit[i].home = last->home + 1 + last->apart;
        memcpy(unit[i].before, last->before, sizeof last->before);
        if (unit_is_block(last->kind)) unit[i].before[unit_window(s, (size_t)last->place - 1) > 0]++;
    }
    *n_units = n;
    return unit;
}

void model_describe_stage(const ModelShape *s, const ModelStage *stage, Params *params, Unit **units)
{
    ModelStage all = {.n_chunks = 1, .chunk = {{.layers = s->layers, .embedding = true, .head = true}}};
    int n;
    Unit *unit = list_units(s, stage ? stage : &all, &n);
    *params = (Params){.ep = s->experts.ranks, .no_embedding = unit[0].kind != &unit_embedding, .no_head = unit[n - 1].kind != &unit_head};
    Span vocab = span_of(s, s->vocab, s->cut.vocab, 1);
    for (int i = 0; i < n; i++) {
        char prefix[32] = "";
        if (unit[i].kind == &unit_embedding) {
            Builder b = {params, &unit[i], "embed.", unit[i].home};
            add_cut(b, W_TOKENS, "tokens.weight", vocab, s->channels, 0, 0.02f);
            if (!s->rope)
                add_copy(b, s, W_POSITIONS, "positions.weight", s->context, s->channels, 0, 0.02f, PARAM_COMPLETE);
        } else if (unit_is_block(unit[i].kind)) {
            snprintf(prefix, sizeof prefix, "layers.%d.", unit[i].place - 1);
            describe_block((Builder){params, &unit[i], prefix, unit[i].home}, s);
        } else {
            Builder b = {params, &unit[i], prefix, unit[i].home};
            add_norm(b, s, W_FINAL_NORM, B_FINAL_NORM, "final_norm.weight", "final_norm.bias");
            if (!s->tie) add_cut(b, W_HEAD, "head.weight", vocab, s->channels, 0, 0.02f);
            else unit[i].row[W_HEAD] = params->no_embedding ? UNIT_TIED : unit[0].row[W_TOKENS];
        }
    }
    if (s->mup_base) mup_apply(s, params);
    *units = unit;
}

void model_describe(const ModelShape *s, Params *params, Unit **units)
{
    model_describe_stage(s, NULL, params, units);
}

double model_layer_params(const ModelShape *s, size_t layer)
{
    const ModelExperts *x = &s->experts;
    double C = (double)s->channels, D = (double)s->head_size, H = (double)s->heads, G = (double)s->kv_heads;
    double attn = C * D * (2 * H + 2 * G), width = (double)s->ffn, router = 0;
    if (unit_has_experts(s, layer)) width = (double)(x->shared + x->k * x->ffn), router = (double)x->n * C;
    return attn + width * C * (s->swiglu ? 3 : 2) + router;
}

double model_matmul_params(const ModelShape *s)
{
    double sum = (double)s->vocab * (double)s->channels;
    for (size_t l = 0; l < s->layers; l++) sum += model_layer_params(s, l);
    return sum;
}

double model_flops_per_token(const ModelShape *s, size_t T)
{
    double keys = 0;
    for (size_t l = 0; l < s->layers; l++) keys += unit_window_keys(s, l, T);
    return 6 * model_matmul_params(s) + 6 * (double)s->heads * (double)s->head_size * keys;
}
