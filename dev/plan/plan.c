// plan: memory, parameters and floating-point operations of a run, from its configuration alone. See plan.h.
//
// Memory is not estimated here. The plan makes the very calls by which a run gets its memory (run_allocate), with an
// allocator whose raw_alloc only counts: its table then holds every buffer, with its tag, name and size. So plan and
// run agree to the byte because they are the same code, and a buffer added to the model tomorrow is in the plan at once.
//
// Beside the sum of the buffers the plan prints the formulas that the guides teach (doc/plan.md has them), for every
// setting that changes a size. They are texts, and the printed text is the one that is evaluated (plan_evaluate).
//
// The invariant: each formula gives the sum of its buffers exactly, or the program ends. A formula in a table that
// is not checked is wrong after the next change.
//
// Rejected: a planner with arithmetic of its own, as most are. It is an opinion about the allocator, and
// the two drift apart. Formulas both as C expressions and as text: each would be written twice.
//
// The grammar of a formula:
//
//     sum     = product (("+" | "-") product)*
//     product = factor (["*"] factor)*                juxtaposed, 2 L (C + 1), or as it is written with numbers
//     factor  = number | letter | "(" sum ")"
//             | ceil(sum / sum) | floor(log2(sum)) | max(sum, sum) | min(sum, sum)
//
// A letter is a letter with the letters and digits right after it: L, Pm, P8. While it reads, it writes the same
// formula with numbers in place of letters, and with signs where products have none. Numbers are whole.
#include "dev/plan/plan.h"

#include "base/check.h"
#include "parallel/ranks.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// ---- the allocator that only counts

// The one address that it hands out, never read or written: the allocator's table is the result.
static void *no_memory(size_t n_bytes)
{
    static const char nowhere;
    (void)n_bytes;
    return (void *)(uintptr_t)&nowhere;
}

static void free_nothing(void *ptr)
{
    (void)ptr;
}

Mem plan_door(void)
{
    return (Mem){.raw_alloc = no_memory, .raw_free = free_nothing};
}

void plan_vocab(Config *cfg)
{
    if (cfg->model.vocab) return;
    const char *dir = cfg->data.tokenizer;
    if (!*dir) die("model.vocab is not known (set --model.vocab=N, or --data.tokenizer=DIR)");
    if (access(dir, R_OK))
        die("data.tokenizer: %s is not there, so the vocabulary is not known (set --model.vocab=N)", dir);
    Tokenizer *tokenizer = tokenizer_load(dir);
    config_set_derived(cfg, "model.vocab", tokenizer_vocab_size(tokenizer));
    config_resolve(cfg);
    tokenizer_free(tokenizer);
}

void plan_open(Run *run, const Config *cfg, Dev *dev, int rank)
{
    *run = (Run){.cfg = *cfg, .dev = dev, .mem = plan_door(), .replicas = ranks_join(cfg, NULL, rank)};
    run_allocate(run);
}

void plan_close(Run *run)
{
    run_free(run);
    ranks_part(&run->replicas);
}

// ---- formulas as texts

typedef struct {
    const PlanLetters *letters;
    const char *text, *at;
    char *out; // NULL: not wanted
    size_t n_out, size;
} Reader;

static size_t sum(Reader *r);

static void put(Reader *r, const char *text)
{
    if (!r->out) return;
    int n = snprintf(r->out + r->n_out, r->size - r->n_out, "%s", text);
    if (n < 0 || r->n_out + (size_t)n >= r->size) die("plan: the numbers of '%s' are too long", r->text);
    r->n_out += (size_t)n;
}

static void put_number(Reader *r, size_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%zu", value);
    put(r, text);
}

static void skip_spaces(Reader *r)
{
    while (*r->at == ' ') r->at++;
}

// Takes `word` if it comes next, and writes it as `shown`.
static bool takes(Reader *r, const char *word, const char *shown)
{
    skip_spaces(r);
    if (strncmp(r->at, word, strlen(word))) return false;
    r->at += strlen(word);
    put(r, shown);
    return true;
}

static void needs(Reader *r, const char *word, const char *shown)
{
    if (!takes(r, word, shown)) die("plan: '%s' is no formula at '%s', which should be '%s'", r->text, r->at, word);
}

static size_t letter(Reader *r)
{
    skip_spaces(r);
    size_t n = 0;
    while (isalnum((unsigned char)r->at[n])) n++;
    for (int i = 0; n && i < r->letters->n; i++) {
        const PlanLetter *l = &r->letters->letter[i];
        if (strlen(l->name) != n || strncmp(l->name, r->at, n)) continue;
        r->at += n;
        put_number(r, l->value);
        return l->value;
    }
    die("plan: '%s' is no formula at '%s'", r->text, r->at);
}

static size_t factor(Reader *r)
{
    size_t a, b;
    if (takes(r, "(", "(")) {
        a = sum(r);
        needs(r, ")", ")");
        return a;
    }
    if (takes(r, "ceil(", "ceil(")) {
        a = sum(r);
        needs(r, "/", " / ");
        b = sum(r);
        needs(r, ")", ")");
        if (!b) die("plan: '%s' divides by 0", r->text);
        return (a + b - 1) / b;
    }
    if (takes(r, "floor(log2(", "floor(log2(")) {
        a = sum(r);
        needs(r, ")", ")");
        needs(r, ")", ")");
        for (b = 0; a > 1; a /= 2) b++;
        return b;
    }
    bool max = takes(r, "max(", "max(");
    if (max || takes(r, "min(", "min(")) {
        a = sum(r);
        needs(r, ",", ", ");
        b = sum(r);
        needs(r, ")", ")");
        return max == (a > b) ? a : b;
    }
    if (!isdigit((unsigned char)*r->at)) return letter(r);
    char *end;
    a = strtoull(r->at, &end, 10);
    r->at = end;
    put_number(r, a);
    return a;
}

static size_t product(Reader *r)
{
    size_t value = factor(r);
    for (;;) {
        bool sign = takes(r, "*", " * ");
        if (!sign && *r->at != '(' && !isalnum((unsigned char)*r->at)) return value;
        if (!sign) put(r, " * ");
        value *= factor(r);
    }
}

static size_t sum(Reader *r)
{
    size_t value = product(r);
    for (;;) {
        if (takes(r, "+", " + ")) value += product(r);
        else if (takes(r, "-", " - ")) value -= product(r);
        else return value;
    }
}

size_t plan_evaluate(const PlanLetters *letters, const char *text, char *numbers, size_t size)
{
    Reader r = {.letters = letters, .text = text, .at = text, .out = numbers, .size = size};
    size_t value = sum(&r);
    skip_spaces(&r);
    if (*r.at) die("plan: '%s' is no formula at '%s'", text, r.at);
    return value;
}

// ---- letters

static PlanLetter *add(PlanLetters *l, const char *name)
{
    check(l->n < PLAN_LETTERS);
    PlanLetter *letter = &l->letter[l->n++];
    snprintf(letter->name, sizeof letter->name, "%s", name);
    return letter;
}

static void size(PlanLetters *l, const char *name, size_t value, const char *means)
{
    PlanLetter *letter = add(l, name);
    letter->value = value;
    snprintf(letter->means, sizeof letter->means, "%s", means);
}

__attribute__((format(printf, 3, 4))) static void formula(PlanLetters *l, const char *name, const char *text, ...)
{
    char means[sizeof l->letter->means];
    va_list args;
    va_start(args, text);
    int n = vsnprintf(means, sizeof means, text, args);
    va_end(args);
    check(n >= 0 && n < (int)sizeof means);
    size_t value = plan_evaluate(l, means, NULL, 0); // before the letter is added, so that it cannot refer to itself
    PlanLetter *letter = add(l, name);
    letter->value = value;
    letter->is_formula = true;
    memcpy(letter->means, means, sizeof means);
}

// A block's saved activations, per token; K and E in elements, R and Z in bytes. `mark` is appended to the letters'
// names, F names the width of the feed-forward network, and experts says whether the block has some.
static void block_letters(PlanLetters *l, const ModelShape *s, RecomputePolicy policy, const char *mark, const char *F,
                          bool experts)
{
    bool selective = recompute_restores(policy.mode), attention = policy.mode == RECOMPUTE_ATTENTION;
    const char *qk = s->qk_norm ? " + (H + 2G) D" : "", *qk_groups = s->qk_norm ? " + ceil((H + 2G) D / 256)" : "";
    const char *two = s->swiglu ? "2 " : "";
    bool outputs = unit_norms_outputs(s); // which its norms read
    char name[4][8];
    for (int i = 0; i < 4; i++) snprintf(name[i], sizeof name[i], "%c%s", "KERZ"[i], mark);
    if (attention && !*mark) formula(l, "Q", "(2 H + 2 G) D"); // q, k, v and the output of attention
    formula(l, name[0], "(H + 2G) D + H D + %sC + %s%s%s", outputs ? "3 " : "", two, F, experts ? " + 2 k Fx" : "");
    formula(l, name[1], "2 C + %s%s%s", F, experts ? " + k Fx" : "", qk);
    formula(l, name[2], "4 (H + 4)%s%s", s->qk_norm == QK_NORM_HEAD ? " + 4 (H + G)" : s->qk_norm ? " + 8" : "",
            experts ? " + 4 (X + 2 k)" : "");
    if (!policy.compress) return;
    // 1 byte an element, and a scale of 4 bytes per 256
    char cheap[80], own[80];
    snprintf(cheap, sizeof cheap, " + 2 ceil(C / 256) + ceil(%s / 256)%s", F, experts ? " + ceil(k Fx / 256)" : "");
    snprintf(own, sizeof own, "ceil(%s%s / 256)%s", two, F, experts ? " + ceil(2 k Fx / 256)" : "");
    formula(l, name[3], "%s%s%s + 4 (%s%sceil(C / 256) + %s%s%s)", name[0],
            attention ? " - Q" : selective ? "" : " + ", selective ? "" : name[1],
            attention ? "" : "ceil((H + 2G) D / 256) + ceil(H D / 256) + ", outputs ? "3 " : "", own,
            selective ? "" : cheap, selective ? "" : qk_groups);
}

static void activation_letters(PlanLetters *l, const ModelShape *s, RecomputePolicy policy)
{
    block_letters(l, s, policy, "", "F", false);
    if (!s->experts.n) return;
    block_letters(l, s, policy, "x", "Fs", true);
    block_letters(l, s, policy, "m", "Fw", true); // what blocks share is as large as the largest wants it
}

// Nothing where no layer has experts.
static void expert_letters(PlanLetters *l, const ModelShape *s)
{
    const ModelExperts *x = &s->experts;
    size_t layers = 0;
    if (!x->n) return;
    for (size_t i = 0; i < s->layers; i++) layers += unit_has_experts(s, i);
    size(l, "X", x->n, "experts");
    size(l, "k", x->k, "experts_active");
    size(l, "Fx", x->ffn, "experts_ffn");
    size(l, "Fs", x->shared, "experts_shared");
    size(l, "Lx", layers, "layers with experts");
    size(l, "Fw", unit_widest_ffn(s), "width of the widest network that all tokens use");
    // rows of slots, the routing and the order of slots (experts_scratch); what layers keep from step to step
    bool state = x->balance == MOE_BALANCE_BIAS || x->balance == MOE_BALANCE_BATCH;
    formula(l, "Xs", "x N (k (C + 3 Fx)%s) + 4 (N (3 k + X) + (N + 2) (X + 1)) + 4 Lx (%sX + 1)",
            x->shared ? " + C" : "", state ? "2 " : "");
}

bool plan_has_windows(const ModelShape *s)
{
    size_t layer = 0;
    while (layer < s->layers && !unit_window(s, layer)) layer++;
    return layer < s->layers;
}

// Nothing where all layers see all keys.
static void window_letters(PlanLetters *l, const ModelShape *s)
{
    size_t layers = 0, cached = 0;
    if (!plan_has_windows(s)) return;
    for (size_t i = 0; i < s->layers; i++)
        if (unit_window(s, i)) layers++, cached = unit_window_cache(s, i);
    size(l, "w", s->window < s->context ? s->window : s->context, "window");
    size(l, "Lw", layers, "layers with it");
    formula(l, "Kw", "ceil(w (2 T - w) / T)");
    size(l, "Tw", cached, "tokens that such a layer caches");
}

// What the optimizers treat differently: matrices, matrices of blocks, large tensors.
static void optimizer_letters(PlanLetters *l, const ModelShape *s, const Params *params)
{
    size_t large = 0, blocks = 0;
    for (int r = 0; r < params->n_rows; r++) {
        size_t n = params->row[r].n_elems;
        if (n < 4096) continue;
        large += n;
        blocks += (n + 2047) / 2048;
    }
    size(l, "P8", large, "elements of tensors with 4096 or more");
    size(l, "b8", blocks, "blocks of 2048 in those");
    const char *heads = s->tie ? "" : "2 ", *n = s->swiglu ? "3" : "2"; // matrices (V, C), (F, C) or (C, F)
    const ModelExperts *x = &s->experts;
    if (x->n) formula(l, "Ph", "L C D (2H + 2G) + C (3 (L - Lx) F + Lx (3 (X Fx + Fs) + X))");
    else formula(l, "Ph", "L (C D (2H + 2G) + %s C F)", n);
    if (x->n)
        formula(l, "Rh", "L ((H + 2G) D + C) + (L - Lx) (2 F + C) + Lx (X (2 Fx + C + 1)%s)",
                x->shared ? " + 2 Fs + C" : "");
    else formula(l, "Rh", "L ((H + 2G) D + 2 C + %sF)", s->swiglu ? "2 " : "");
    formula(l, "Pm", "Ph + %sV C%s", heads, s->rope ? "" : " + T C");
    if (x->n)
        formula(l, "Qm", "L ((2H + 2G) D + 4 C) + 3 (L - Lx) (F + C) + Lx (3 X (Fx + C) + X + C%s) + %s(V + C)%s",
                x->shared ? " + 3 (Fs + C)" : "", heads, s->rope ? "" : " + T + C");
    else
        formula(l, "Qm", "L ((2H + 2G) D + 4 C + %s (F + C)) + %s(V + C)%s", n, heads, s->rope ? "" : " + T + C");
    formula(l, "W", x->n ? "max(max(H D, Fw), max(Fx, X))" : "max(H D, F)");
}

// The stage of ZeRO that takes effect.
static int stage_of(const Config *cfg)
{
    return cfg->parallel.dp > 1 ? (int)cfg->parallel.zero : 0;
}

static size_t unit_elems(const Params *params, int unit)
{
    size_t begin, end;
    params_unit_range(params, unit, &begin, &end);
    return end - begin;
}

// Whether weights are gathered into as many slots as gradients are reduced in.
static bool gathers_as_gradients(const Config *cfg)
{
    return cfg->parallel.prefetch == 1 && !cfg->parallel.keep;
}

// Blocks take turns in prefetch + 1 slots; those that stay have one each.
static size_t gathered_blocks(const Config *cfg, const Params *params)
{
    size_t turns[ZERO_PREFETCH + 1] = {0}, sum = 0;
    for (int u = 1; u + 1 < params->n_units; u++) {
        size_t n = unit_elems(params, u), *slot = &turns[u % (int)(cfg->parallel.prefetch + 1)];
        if (n < (size_t)cfg->parallel.keep) sum += n;
        else if (n > *slot) *slot = n;
    }
    for (int i = 0; i <= ZERO_PREFETCH; i++) sum += turns[i];
    return sum;
}

// What one of several ranks keeps, and what it gathers.
static void shard_letters(PlanLetters *l, const Run *run)
{
    const Params *params = &run->model->params;
    const Zero *zero = ranks_of(&run->replicas)->zero;
    size_t state = 0;
    for (int s = 0; s < run->optim.kind->n_states; s++)
        for (int u = 0; u < params->n_units; u++)
            state += safetensors_dtype_bytes(run->optim.state[s].dtype) *
                     optim_range_elems(&run->optim.state[s], params, zero->range[u].begin, zero->range[u].end);
    size_t turns[2] = {0}; // blocks that take turns in a slot of gradients
    for (int u = 1; u + 1 < params->n_units; u++)
        if (unit_elems(params, u) > turns[u % 2]) turns[u % 2] = unit_elems(params, u);
    size(l, "Ps", zero->cut.at[params->n_units], "parameters of this rank's shard");
    size(l, "Os", state, "bytes of optimizer state of these");
    size(l, "Ue", unit_elems(params, 0), "parameters of the embedding");
    size(l, "Ub", turns[0] + turns[1], "parameters of two blocks, of the largest of every second");
    size(l, "Uh", unit_elems(params, params->n_units - 1), "parameters of the head and its norm");
    if (!gathers_as_gradients(&run->cfg))
        size(l, "Ua", gathered_blocks(&run->cfg, params), "parameters of all slots in which blocks are gathered");
}

// What is in a store (offload.h).
static void store_letters(PlanLetters *l, const Run *run)
{
    const Zero *zero = ranks_of(&run->replicas)->zero;
    size_t all = 0, most = 0, weights = 0;
    for (int u = 0; u < run->model->params.n_units; u++) {
        size_t item = optim_item_bytes(&run->optim, u), own = zero->cut.at[u + 1] - zero->cut.at[u];
        all += item;
        if (item > most) most = item;
        if (own > weights) weights = own;
    }
    size(l, "Oa", all, "bytes of optimizer state that are kept elsewhere");
    size(l, "Ou", most, "the most of one unit");
    if (zero->store || zero->set.host)
        size(l, "Uw", weights * run->dev->x_bytes, "bytes of weights that this rank has of a unit, at most");
    if (zero->set.host) size(l, "Ug", weights * sizeof(float), "bytes of gradients of these");
}

// The formulas follow the settings, not what the model made of them.
static RecomputePolicy policy_of(const Config *cfg)
{
    return (RecomputePolicy){.mode = cfg->memory.recompute, .every = (size_t)cfg->memory.recompute_every,
                             .offload = cfg->memory.offload_acts != OFFLOAD_NONE,
                             .compress = cfg->memory.compress == CONFIG_COMPRESS_INT8};
}

PlanLetters plan_letters(const Run *run)
{
    const Model *m = run->model;
    const ModelShape *s = &m->shape;
    RecomputePolicy policy = policy_of(&run->cfg);
    PlanLetters l = {.n = 0};
    size_t N = m->max_batch * m->max_tokens;
    size(&l, "x", config_stores_fp32(&run->cfg) ? 4 : 2, "bytes of a weight or an activation");
    size(&l, "P", m->params.n_elems, "parameters");
    size(&l, "L", s->layers, "layers");
    size(&l, "C", s->channels, "channels");
    size(&l, "H", s->heads, "heads");
    size(&l, "G", s->kv_heads, "kv_heads");
    size(&l, "D", s->head_size, "head_size");
    size(&l, "F", s->ffn, "ffn");
    size(&l, "V", s->vocab, "vocab");
    size(&l, "T", s->context, "context");
    size(&l, "B", m->max_batch, "sequences a micro-batch");
    size(&l, "N", N, "= B T tokens a micro-batch");
    size(&l, "M", (size_t)run->cfg.batch.accum, "micro-batches a step");
    size(&l, "J", unit_head_chunk(s, N), "rows of logits at a time");
    window_letters(&l, s);
    expert_letters(&l, s);
    size_t segment = recompute_segment(policy, s->layers);
    if (segment) size(&l, "S", segment, "layers of a recomputed segment");
    activation_letters(&l, s, policy);
    optimizer_letters(&l, s, &m->params);
    if (stage_of(&run->cfg)) shard_letters(&l, run);
    if (run->optim.store.lend) store_letters(&l, run);
    if (run->saves.async)
        size(&l, "Cs", ckpt_async_bytes(&run->saves.part), "bytes that this rank writes of a checkpoint");
    return l;
}

// ---- formulas

static const char *optimizer_state(OptimName name)
{
    static const char *const moments[] = {"0", "4 P", "8 P"};
    static const char *const text[OPTIM_NAMES] = {
        [OPTIM_ADAFACTOR] = "4 (P - Pm + Qm)",          // a number for each row and column of a matrix
        [OPTIM_ADAMW8BIT] = "2 P8 + 8 b8 + 8 (P - P8)", // two bytes, and two scales a block; small tensors in fp32
        [OPTIM_MUON] = "4 Ph + 8 (P - Ph)",             // a momentum for the blocks' matrices, else AdamW
        [OPTIM_NORMUON] = "4 (Ph + Rh) + 8 (P - Ph)",   // and a number for each of their rows
    };
    const OptimKind *kind = optim_kind(name);
    return kind->cut == OPTIM_ELEMENT ? moments[kind->n_states] : text[name];
}

// The same for a shard: a formula where every element has equally much state, else the sum.
static const char *shard_state(OptimName name)
{
    const char *all = optimizer_state(name);
    return !strcmp(all, "8 P") ? "8 Ps" : !strcmp(all, "4 P") ? "4 Ps" : !strcmp(all, "0") ? "0" : "Os";
}

// Gathered weights; gradients that are being reduced; parts of trees of gradients.
static void communication(char *out, size_t n_out, const Config *cfg)
{
    static const char units[] = "(Ue + Ub + Uh)";
    int stage = stage_of(cfg);
    bool fixed = cfg->numerics.deterministic, grads = stage >= 2 && !fixed;
    bool rounded = cfg->parallel.dp > 1 && cfg->parallel.reduce_dtype == CONFIG_REDUCE_STORAGE;
    bool table = stage > 0 && !config_stores_fp32(cfg) && cfg->numerics.embed_dtype == CONFIG_EMBED_FP32;
    const char *part[3] = {"0", "", ""};
    if (rounded && !grads) part[0] = "x P";
    if (grads) part[0] = rounded ? "(4 + x) " : "4 ", part[1] = units;
    if (stage == 3) part[2] = gathers_as_gradients(cfg) ? units : "(Ue + Ua + Uh)";
    if (stage == 3 && !cfg->parallel.reshard) part[2] = "P";
    snprintf(out, n_out, "%s%s%s%s%s", part[0], part[1], *part[2] ? " + x " : "", part[2], table ? " + 4 Ue" : "");
}

static void activations(char *out, size_t n_out, const ModelShape *s, RecomputePolicy policy, bool segments)
{
    bool selective = recompute_restores(policy.mode), attention = policy.mode == RECOMPUTE_ATTENTION;
    bool experts = s->experts.n > 0;
    char kept[3][24], all[120];
    const char *mark[] = {"", "x", "m"}, *m = experts ? "m" : "";
    for (int i = 0; i < 3; i++) {
        if (policy.compress) snprintf(kept[i], sizeof kept[i], "Z%s", mark[i]);
        else if (attention) snprintf(kept[i], sizeof kept[i], "x (K%s - Q)", mark[i]);
        else if (selective) snprintf(kept[i], sizeof kept[i], "x K%s", mark[i]);
        else snprintf(kept[i], sizeof kept[i], "x (K%s + E%s)", mark[i], mark[i]);
    }
    if (policy.offload) { // one set of buffers, or those of a segment, and two inputs
        snprintf(out, n_out, segments ? "N (S (x (K%s + E%s) + R%s) + x C (S + 3) + 8)"
                                      : "N (x (K%s + E%s) + R%s + 4 x C + 8)", m, m, m);
        return;
    }
    if (!experts) snprintf(all, sizeof all, "%s (%s + R)", segments ? "S" : "L", kept[0]);
    else if (segments) snprintf(all, sizeof all, "S (%s + Rm)", kept[2]);
    else snprintf(all, sizeof all, "(L - Lx) (%s + R) + Lx (%s + Rx)", kept[0], kept[1]);
    char shared[40] = "";
    if (policy.compress) snprintf(shared, sizeof shared, " + x (K%s + E%s)", m, m);
    else if (attention) snprintf(shared, sizeof shared, " + x (E%s + Q)", m);
    else if (selective) snprintf(shared, sizeof shared, " + x E%s", m);
    snprintf(out, n_out, "N (%s%s + x C (%s) + 8)", all, shared, segments ? "ceil(L / S) + S + 1" : "L + 2");
}

// What waits for backward in host memory.
static void activations_away(char *out, size_t n_out, const ModelShape *s, RecomputePolicy policy, bool segments)
{
    char kept[2][40];
    const char *mark[] = {"", "x"};
    for (int i = 0; i < 2; i++)
        if (policy.mode == RECOMPUTE_ATTENTION) snprintf(kept[i], sizeof kept[i], "x (K%s - Q) + R%s", mark[i], mark[i]);
        else if (policy.mode == RECOMPUTE_SELECTIVE) snprintf(kept[i], sizeof kept[i], "x K%s + R%s", mark[i], mark[i]);
        else snprintf(kept[i], sizeof kept[i], "x (K%s + E%s) + R%s", mark[i], mark[i], mark[i]);
    if (!policy.offload) snprintf(out, n_out, "%s", "");
    else if (segments) snprintf(out, n_out, "N x C ceil(L / S)");
    else if (!s->experts.n) snprintf(out, n_out, "N L (%s + x C)", kept[0]);
    else snprintf(out, n_out, "N ((L - Lx) (%s) + Lx (%s) + L x C)", kept[0], kept[1]);
}

PlanMoved plan_moved(const Run *run)
{
    const Model *m = run->model;
    RecomputePolicy policy = policy_of(&run->cfg);
    PlanMoved moved = {0, 0};
    for (int c = 0; c < m->n_chunks; c++) {
        const ModelChunk *chunk = &m->chunk[c];
        size_t n = (size_t)run->cfg.batch.accum *
                   recompute_host_bytes(&m->local, m->dev, policy, m->pool.segment, chunk->piece.first,
                                        chunk->piece.layers, model_max_rows(m));
        moved.out += n, moved.in += chunk->n_late && !m->pool.segment ? 2 * n : n;
    }
    return moved;
}

static void scratch(char *out, size_t n_out, const ModelShape *s, const Config *cfg)
{
    bool documents = cfg->data.document_mask, windows = plan_has_windows(s), muon = cfg->optim.name == OPTIM_MUON ||
         cfg->optim.name == OPTIM_NORMUON;
    snprintf(out, n_out, "x (N (2 C + (2H + 2G) D + %sF%s) + J V + 2 %s G D) + N (%d + %d M)%s%s%s%s",
             s->swiglu ? "3 " : "", s->experts.n ? "w" : "", windows ? "((L - Lw) T + Lw Tw)" : "L T",
             documents ? 20 : 16, documents ? 16 : 8, muon ? " + 4 (W C + 2 min(W, C) min(W, C))" : "",
             !cfg->run.norms_every ? "" : stage_of(cfg) ? " + 4 Ps" : " + 4 P",
             cfg->numerics.deterministic ? " + 12 J + 40 C" : "", s->experts.n ? " + Xs" : "");
}

PlanFormula plan_formula(const Run *run, MemTag tag)
{
    const Config *cfg = &run->cfg;
    const ModelShape *shape = &run->model->shape;
    RecomputePolicy policy = policy_of(cfg);
    OptimName optim = cfg->optim.name;
    PlanLetters letters = plan_letters(run);
    PlanFormula f = {0};
    char *text = f.symbols;
    size_t n_text = sizeof f.symbols;
    int stage = stage_of(cfg);
    bool away = cfg->memory.offload != OFFLOAD_NONE, on_host = away && ranks_of(&run->replicas)->zero->set.host;
    const char *state = stage ? shard_state(optim) : optimizer_state(optim), *master = stage ? "4 Ps + " : "4 P + ";
    switch (tag) {
    case MEM_PARAMS:
        snprintf(text, n_text, stage < 3 ? "x P" : away ? "4096 (%ld ceil(Uw / 4096) + 1)" : "x Ps",
                 cfg->parallel.prefetch + 2);
        break;
    case MEM_GRADS:
        snprintf(text, n_text, "%s",
                 cfg->numerics.deterministic ? "4 P (2 + floor(log2(M B)))" : stage >= 2 ? "4 Ps" : "4 P");
        break;
    case MEM_OPTIM: // beside weights of 2 bytes, their fp32 master copy
        if (on_host) snprintf(text, n_text, "0");
        else if (away) snprintf(text, n_text, "4096 (2 ceil(Ou / 4096) + 1)");
        else snprintf(text, n_text, "%s%s", config_stores_fp32(cfg) ? "" : master, state);
        break;
    case MEM_HOST: {
        char acts[120];
        activations_away(acts, sizeof acts, shape, policy, recompute_segment(policy, shape->layers) > 0);
        const char *kept = cfg->memory.offload != OFFLOAD_CPU ? "" : stage < 3 ? "Oa" : "Oa + x Ps";
        const char *room = !on_host ? "" : stage == 3 || config_stores_fp32(cfg) ? "Ug" : "Ug + Uw";
        const char *part[4] = {kept, room, acts, cfg->ckpt.async ? "2 Cs" : ""};
        for (int i = 0, at = 0; i < 4; i++)
            if (*part[i]) at += snprintf(text + at, n_text - (size_t)at, "%s%s", at ? " + " : "", part[i]);
        if (!*text) snprintf(text, n_text, "0");
        break;
    }
    case MEM_ACTS: activations(text, n_text, shape, policy, recompute_segment(policy, shape->layers) > 0); break;
    case MEM_SCRATCH: scratch(text, n_text, shape, cfg); break;
    case MEM_COMM: communication(text, n_text, cfg); break;
    default: snprintf(text, n_text, "0");
    }
    f.n_bytes = plan_evaluate(&letters, text, f.numbers, sizeof f.numbers);
    return f;
}

// Whether the model is cut over ranks: its buffers are then only counted, as the guides' letters do not describe them.
static bool in_parts(const Config *cfg)
{
    return cfg->parallel.tp * cfg->parallel.cp * cfg->parallel.pp * cfg->parallel.ep > 1;
}

PlanFormula plan_checked(const Run *run, MemTag tag)
{
    if (in_parts(&run->cfg)) return (PlanFormula){.symbols = "-", .numbers = "-", .n_bytes = run->mem.tag_bytes[tag]};
    PlanFormula f = plan_formula(run, tag);
    if (f.n_bytes != run->mem.tag_bytes[tag])
        die("plan: %s: the formula %s gives %zu bytes, the buffers hold %zu (a bug in the program)", mem_tag_name(tag),
            f.symbols, f.n_bytes, run->mem.tag_bytes[tag]);
    return f;
}
