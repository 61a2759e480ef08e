// weights: how other formats name and lay out the tensors of a model.
#include "models/weights.h"

#include "base/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Names without .weight or .bias; NULL where a family has no such part. In the blocks of GPT-2's class, names with a
// dot in them are matrices, all transposed.
static const struct {
    const char *ours, *gpt2, *llama, *gguf;
} names[] = {
    {"embed.tokens", "wte", "model.embed_tokens", "token_embd"},
    {"embed.positions", "wpe", NULL, "position_embd"},
    {"final_norm", "ln_f", "model.norm", "output_norm"},
    {"head", "lm_head", "lm_head", "output"},
    {"attn_norm", "ln_1", "input_layernorm", "attn_norm"},
    {"ffn_norm", "ln_2", "post_attention_layernorm", "ffn_norm"},
    {"attn.q", "attn.c_attn", "self_attn.q_proj", "attn_q"},
    {"attn.k", "attn.c_attn", "self_attn.k_proj", "attn_k"},
    {"attn.v", "attn.c_attn", "self_attn.v_proj", "attn_v"},
    {"attn.out", "attn.c_proj", "self_attn.o_proj", "attn_output"},
    {"attn.q_norm", NULL, "self_attn.q_norm", "attn_q_norm"},
    {"attn.k_norm", NULL, "self_attn.k_norm", "attn_k_norm"},
    {"ffn.up", "mlp.c_fc", "mlp.up_proj", "ffn_up"},
    {"ffn.gate", NULL, "mlp.gate_proj", "ffn_gate"},
    {"ffn.down", "mlp.c_proj", "mlp.down_proj", "ffn_down"},
    {"router", NULL, "mlp.gate", "ffn_gate_inp"},
};

// Of an expert's matrices. Mixtral's class has "block_sparse_moe." where the others have "mlp.".
static const struct {
    const char *ours, *llama, *mixtral, *gguf;
} expert_names[] = {
    {"gate", "gate_proj", "w1", "ffn_gate_exps"},
    {"up", "up_proj", "w3", "ffn_up_exps"},
    {"down", "down_proj", "w2", "ffn_down_exps"},
};

static const char *const layer_prefix[WEIGHTS_STYLES] = {"transformer.h", "model.layers", "model.layers", "blk", "blk",
                                                         "blk"};

// The name, without .weight, of a matrix of an expert: `name` (n) is gate, up or down.
static const char *name_expert(char out[64], const char *name, size_t n, int expert, WeightsStyle style)
{
    for (size_t i = 0; i < sizeof expert_names / sizeof *expert_names; i++) {
        if (strlen(expert_names[i].ours) != n || memcmp(expert_names[i].ours, name, n)) continue;
        if (style > WEIGHTS_MIXTRAL) return expert_names[i].gguf;
        bool mixtral = style == WEIGHTS_MIXTRAL;
        snprintf(out, 64, "%s.experts.%d.%s", mixtral ? "block_sparse_moe" : "mlp", expert,
                 mixtral ? expert_names[i].mixtral : expert_names[i].llama);
        return out;
    }
    return NULL;
}

// Starts a tensor of theirs with a row of ours; parts that follow are added by add_part.
static Weight make(const Model *m, const Param *row, WeightsStyle style)
{
    Weight w = {.ndim = row->ndim};
    const char *name = row->name, *kind = strrchr(row->name, '.'), *theirs = NULL; // .weight or .bias
    char buf[64];
    int layer = -1, expert = -1, skip = 0;
    if (sscanf(name, "layers.%d.%n", &layer, &skip) == 1) name += skip;
    if (sscanf(name, "experts.%d.%n", &expert, &skip) == 1) name += skip;
    size_t n = (size_t)(kind - name);
    for (size_t i = 0; i < sizeof names / sizeof *names && expert < 0; i++)
        if (strlen(names[i].ours) == n && !memcmp(names[i].ours, name, n))
            theirs = style == WEIGHTS_GPT2 ? names[i].gpt2 : style <= WEIGHTS_MIXTRAL ? names[i].llama : names[i].gguf;
    if (expert >= 0) theirs = name_expert(buf, name, n, expert, style);
    check(theirs);
    bool gguf = style > WEIGHTS_MIXTRAL, outputs = !unit_norms_inputs(&m->shape);
    if (outputs && !strncmp(name, "attn_norm.", 10)) theirs = gguf ? "post_attention_norm" : "post_attention_layernorm";
    if (outputs && !strncmp(name, "ffn_norm.", 9)) theirs = gguf ? "post_ffw_norm" : "post_feedforward_layernorm";
    if (style == WEIGHTS_MIXTRAL && !strcmp(theirs, "mlp.gate")) theirs = "block_sparse_moe.gate";
    if (gguf && expert >= 0) w.ndim = 3;
    bool qk = !strncmp(name, "attn.q.", 7) || !strncmp(name, "attn.k.", 7);
    if (style == WEIGHTS_GGUF_GPT2 && (qk || !strncmp(name, "attn.v.", 7))) theirs = "attn_qkv";
    if (layer >= 0) snprintf(w.name, sizeof w.name, "%s.%d.%s%s", layer_prefix[style], layer, theirs, kind);
    else snprintf(w.name, sizeof w.name, "%s%s%s", style == WEIGHTS_GPT2 && strcmp(theirs, "lm_head") ? "transformer."
                  : "", theirs, kind);
    w.transposed = style == WEIGHTS_GPT2 && layer >= 0 && strchr(theirs, '.') && row->ndim == 2;
    w.pairs = style == WEIGHTS_GGUF_LLAMA && qk ? m->shape.head_size : 0;
    return w;
}

static void add_part(Weight *w, const Param *row)
{
    if (!w->parts) w->first = row;
    if (w->parts == 1) w->step = (int)(row - w->first);
    check(row == w->first + w->parts * w->step);
    w->parts++;
    int out = w->transposed ? 1 : 0;
    w->dim[out] += row->dim[0];
    w->dim[1 - out] = row->ndim == 2 ? row->dim[1] : 1;
}

size_t weights_elems(const Weight *w)
{
    return w->dim[0] * w->dim[1];
}

void weights_shape(const Weight *w, size_t shape[3])
{
    bool experts = w->ndim == 3;
    shape[0] = experts ? (size_t)w->parts : w->dim[0];
    shape[1] = experts ? w->dim[0] / (size_t)w->parts : w->dim[1];
    shape[2] = experts ? w->dim[1] : 1;
}

const Weight *weights_find(const Weights *w, const char *name)
{
    for (int i = 0; i < w->n; i++)
        if (!strcmp(w->weight[i].name, name)) return &w->weight[i];
    return NULL;
}

Weights weights_table(const Model *m, WeightsStyle style)
{
    Weights w = {.weight = calloc((size_t)m->params.n_rows, sizeof *w.weight)};
    if (!w.weight) die("models: no memory for a table of %d tensors", m->params.n_rows);
    for (int i = 0; i < m->params.n_rows; i++) {
        const Param *row = &m->params.row[i];
        Weight new = make(m, row, style), *same = NULL;
        for (int k = w.n - 1; k >= 0 && k > w.n - 8; k--) // parts of one tensor are near each other
            if (!strcmp(w.weight[k].name, new.name)) same = &w.weight[k];
        if (!same) *(same = &w.weight[w.n++]) = new;
        add_part(same, row);
    }
    return w;
}

void weights_free(Weights *w)
{
    free(w->weight);
    *w = (Weights){0};
}

// Copies between a part's row `o` (n_in elements) and its place in theirs, which has `ld` outputs.
static void copy_row(const Weight *w, float *ours, float *theirs, size_t at, size_t n_in, size_t ld, bool outward)
{
    size_t step = w->transposed ? ld : 1;
    float *place = w->transposed ? theirs + at : theirs + at * n_in;
    for (size_t i = 0; i < n_in; i++) {
        if (outward) place[i * step] = ours[i];
        else ours[i] = place[i * step];
    }
}

static void copy(const Model *m, const Weight *w, float *theirs, bool outward)
{
    size_t ld = w->dim[w->transposed ? 1 : 0], n_in = w->dim[w->transposed ? 0 : 1], at = 0, D = w->pairs;
    for (int p = 0; p < w->parts; p++) {
        const Param *part = w->first + p * w->step;
        float *ours = m->weights + part->offset;
        for (size_t o = 0; o < part->dim[0]; o++) {
            size_t half = D ? o % D / (D / 2) : 0, j = D ? o % D % (D / 2) : 0;
            copy_row(w, ours + o * n_in, theirs, at + (D ? o / D * D + 2 * j + half : o), n_in, ld, outward);
        }
        at += part->dim[0];
    }
}

void weights_gather(const Model *m, const Weight *w, float *theirs)
{
    copy(m, w, theirs, true);
}

// Whether it is a bias that others leave out, and no block has one of its kind. Where there are any, q, k and v have
// them.
static bool is_left_out(const Weights *w, const bool *found, int missing)
{
    const char *ours = strchr(w->weight[missing].first->name, '.');
    if (strstr(ours, ".attn.q.") || strstr(ours, ".attn.k.") || strstr(ours, ".attn.v.")) return false;
    const char *end = strrchr(w->weight[missing].name, '.'), *kind = end;
    while (kind > w->weight[missing].name && !(kind[-1] >= '0' && kind[-1] <= '9')) kind--; // ".self_attn.o_proj.bias"
    for (int i = 0; i < w->n; i++) {
        size_t n = strlen(w->weight[i].name), k = strlen(kind);
        if (found[i] && n > k && !strcmp(w->weight[i].name + n - k, kind)) return false;
    }
    return !strcmp(end, ".bias");
}

void weights_load(Model *m, WeightsStyle style, WeightsSource source)
{
    Weights w = weights_table(m, style);
    size_t most = 0;
    for (int i = 0; i < w.n; i++)
        if (weights_elems(&w.weight[i]) > most) most = weights_elems(&w.weight[i]);
    float *theirs = malloc(most * sizeof *theirs);
    bool *found = calloc((size_t)m->params.n_rows, sizeof *found);
    if (!theirs || !found) die("%s: no memory for a tensor of %zu elements", source.path, most);
    for (int i = 0; i < w.n; i++)
        if ((found[i] = source.read(source.self, &w.weight[i], theirs))) copy(m, &w.weight[i], theirs, false);
    for (int i = 0; i < w.n; i++) {
        if (found[i]) continue;
        if (style == WEIGHTS_GPT2 || style == WEIGHTS_GGUF_GPT2 || !is_left_out(&w, found, i))
            die("%s: no tensor %s", source.path, w.weight[i].name);
        for (int p = 0; p < w.weight[i].parts; p++) {
            const Param *part = w.weight[i].first + p * w.weight[i].step;
            memset(m->weights + part->offset, 0, part->n_elems * sizeof *m->weights);
        }
    }
    free(theirs);
    free(found);
    weights_free(&w);
    model_weights_changed(m);
}

// Dies where no class with experts has what a model's experts are.
static void check_experts(const ModelShape *s, const char *path)
{
    const ModelExperts *x = &s->experts;
    const char *key = x->shared ? "experts_shared" : x->sigmoid ? "experts_score" : x->groups ? "experts_groups" :
        x->scale != 1 ? "experts_scale" : s->bias ? "bias" : NULL;
    if (key)
        die("%s: model.%s: none of Mixtral's class, Qwen3-MoE's and OLMoE's can express it (use --to safetensors)",
            path, key);
    if (x->balance == MOE_BALANCE_BIAS)
        die("%s: moe.balance = bias: experts are chosen with biases, which none of Mixtral's class, Qwen3-MoE's and "
            "OLMoE's has (use --to safetensors)", path);
    bool whole = s->qk_norm == QK_NORM_WHOLE, divides = !s->qk_norm && !x->renorm;
    if (divides || (s->qk_norm != QK_NORM_HEAD && (x->dense || x->every > 1)))
        die("%s: model.%s: %s it is %s class, which %s (use --to safetensors)", path,
            divides ? "experts_renorm" : x->dense ? "experts_dense" : "experts_every",
            whole ? "with qk_norm = whole" : "without qk_norm", whole ? "OLMoE's" : "Mixtral's",
            divides ? "divides the weights of experts by their sum" : "has experts in all layers");
}

WeightsStyle weights_hf_style(const ModelShape *s)
{
    return !s->rope ? WEIGHTS_GPT2 : s->experts.n && !s->qk_norm ? WEIGHTS_MIXTRAL : WEIGHTS_LLAMA;
}

WeightsFamily weights_family(const ModelShape *s, const char *path)
{
    bool llama = s->norm == NORM_RMSNORM && s->swiglu && s->rope;
    bool gpt2 = s->norm == NORM_LAYERNORM && !s->swiglu && s->act == ACT_GELU && !s->rope && s->bias &&
                s->kv_heads == s->heads && s->head_size * s->heads == s->channels;
    if ((!llama && !gpt2) || (s->qk_norm && (!llama || s->bias)))
        die("%s: neither GPT-2's family nor LLaMA's nor Qwen3's can express this model (norm, activation, position, "
            "bias and qk_norm must be one family's; use --to safetensors)", path);
    if (s->logit_cap > 0)
        die("%s: model.logit_cap = %g: no class that export writes caps its logits (use --to safetensors)", path,
            (double)s->logit_cap);
    if (s->mup_base && s->mup_base_head && s->mup_base_head != s->head_size)
        die("%s: optim.mup_base_head = %zu: its attention is scaled as other programs cannot say (use --to "
            "safetensors)", path, s->mup_base_head);
    bool whole = s->qk_norm == QK_NORM_WHOLE, outputs = unit_norms_outputs(s);
    if (outputs && (unit_norms_inputs(s) || !whole || s->experts.n))
        die("%s: model.norm_place = output: only OLMo-2's class has it, with qk_norm = whole and without experts (use "
            "--to safetensors)", path);
    if (whole && ((!s->experts.n && !outputs) || s->head_size * s->heads != s->channels))
        die("%s: model.qk_norm = whole: only OLMoE's class has it, with experts, and OLMo-2's, with norm_place = output, "
            "both with heads as wide together as the channels (use --to safetensors)", path);
    if (s->experts.n) check_experts(s, path);
    if (s->experts.n) return whole ? WEIGHTS_IS_OLMOE : s->qk_norm ? WEIGHTS_IS_QWEN3_MOE : WEIGHTS_IS_MIXTRAL;
    return gpt2 ? WEIGHTS_IS_GPT2 : outputs ? WEIGHTS_IS_OLMO2 : s->qk_norm ? WEIGHTS_IS_QWEN3 : WEIGHTS_IS_LLAMA;
}
