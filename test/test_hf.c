// Tests of hf: folders written here, in GPT-2's and LLaMA's layouts, F32, F16 and BF16, one file and shards, give the
// weights that they were made of; what our blocks cannot say is refused with the key.
#include "test/test.h"

#include "expect_die.h"
#include "temp_dir.h"
#include "json_has.h"

#include "formats/formats.h"
#include "tools/safetensors.h"
#include "models/hf.h"
#include "ops/dev_cpu.h"
#include "train/run.h"

OWNER(SafeTensors, safetensors_close)

enum { L = 2, C = 6, H = 3, G = 1, D = 4, F = 10, V = 11, T = 8, E = 3, W = 5, MOST = 60 };

#define GPT2 "'model_type': 'gpt2', 'vocab_size': 11, 'n_embd': 6, 'n_layer': 2, 'n_head': 3, " \
    "'n_positions': 8, 'n_inner': 10"
#define LIKE(TYPE) "'model_type': '" TYPE "', 'vocab_size': 11, 'hidden_size': 6, 'num_hidden_layers': 2, " \
    "'num_attention_heads': 3, 'num_key_value_heads': 1, 'head_dim': 4, 'intermediate_size': 10, " \
    "'max_position_embeddings': 8, 'rms_norm_eps': 1e-6"

// ---- a folder, written from what its names and shapes are in Transformers

typedef struct {
    SafeTensor tensor[MOST];
    size_t shape[MOST][2];
    char name[MOST][100];
    int n;
} List;

// Element (i, j) of the matrix that ours calls `ours` of layer l; a number that 16 bits can hold.
static float element(const char *ours, int l, size_t i, size_t j)
{
    unsigned x = 7u * (unsigned)l + 13u * (unsigned)i + 101u * (unsigned)j;
    for (const char *c = ours; *c; c++) x = x * 31 + (unsigned char)*c;
    return (float)(int)(x % 200 - 100) / 64;
}

static void add(List *list, SafeDtype type, const char *name, int l, size_t rows, size_t cols, const float *value)
{
    Format format = type == ST_F32 ? FORMAT_FP32 : type == ST_F16 ? FORMAT_FP16 : FORMAT_BF16;
    size_t n = rows * (cols ? cols : 1), bytes = formats_bytes(format);
    char *data = zeroed(n * bytes);
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = formats_encode(format, value[i], false);
        memcpy(data + i * bytes, &bits, bytes); // little-endian
    }
    int k = list->n++;
    snprintf(list->name[k], sizeof list->name[k], name, l);
    list->shape[k][0] = rows, list->shape[k][1] = cols;
    list->tensor[k] = (SafeTensor){.name = list->name[k], .dtype = type, .ndim = cols ? 2 : 1, .shape = list->shape[k],
                                   .data = data};
}

// A linear (out, in) and perhaps its bias, as they are, or (GPT-2) transposed.
static void add_linear(List *list, SafeDtype type, const char *name, int l, size_t out, size_t in, bool turned,
                       bool bias, const char *const *ours, size_t n_ours)
{
    char full[120];
    float *w = zeroed(out * in * n_ours * sizeof *w), *b = zeroed(out * n_ours * sizeof *b);
    for (size_t k = 0; k < n_ours; k++)
        for (size_t o = 0; o < out; o++) {
            b[k * out + o] = element(ours[k], l, o, 999);
            for (size_t i = 0; i < in; i++)
                w[turned ? i * out * n_ours + k * out + o : (k * out + o) * in + i] = element(ours[k], l, o, i);
        }
    snprintf(full, sizeof full, "%s.weight", name);
    add(list, type, full, l, turned ? in : out * n_ours, turned ? out * n_ours : in, w);
    snprintf(full, sizeof full, "%s.bias", name);
    if (bias) add(list, type, full, l, out * n_ours, 0, b);
    free(w), free(b);
}

static void add_vector(List *list, SafeDtype type, const char *name, int l, size_t n, const char *ours, size_t j)
{
    float v[V * C];
    for (size_t i = 0; i < n; i++) v[i] = element(ours, l, i, j);
    add(list, type, name, l, n, 0, v);
}

#define ONE(NAME) (const char *const[]){NAME}, 1

static void make_gpt2(List *s, SafeDtype t, bool prefix)
{
    char name[100];
#define N(NAME) (snprintf(name, sizeof name, "%s%s", prefix ? "transformer." : "", NAME), name)
    add_linear(s, t, N("wte"), -1, V, C, false, false, ONE("embed.tokens"));
    add_linear(s, t, N("wpe"), -1, T, C, false, false, ONE("embed.positions"));
    for (int l = 0; l < L; l++) {
        add_vector(s, t, N("h.%d.ln_1.weight"), l, C, "attn_norm", 0);
        add_vector(s, t, N("h.%d.ln_1.bias"), l, C, "attn_norm", 999);
        add_vector(s, t, N("h.%d.ln_2.weight"), l, C, "ffn_norm", 0);
        add_vector(s, t, N("h.%d.ln_2.bias"), l, C, "ffn_norm", 999);
        add_linear(s, t, N("h.%d.attn.c_attn"), l, C, C, true, true,
                   (const char *const[]){"attn.q", "attn.k", "attn.v"}, 3);
        add_linear(s, t, N("h.%d.attn.c_proj"), l, C, C, true, true, ONE("attn.out"));
        add_linear(s, t, N("h.%d.mlp.c_fc"), l, F, C, true, true, ONE("ffn.up"));
        add_linear(s, t, N("h.%d.mlp.c_proj"), l, C, F, true, true, ONE("ffn.down"));
    }
    add_vector(s, t, N("ln_f.weight"), -1, C, "final_norm", 0);
    add_vector(s, t, N("ln_f.bias"), -1, C, "final_norm", 999);
#undef N
}

// The feed-forward of a layer with experts: Mixtral's and OLMoE's, of width F, or Qwen3-MoE's, of width W.
static void make_experts(List *s, SafeDtype t, int l, QkNorm qk)
{
    bool mixtral = qk == QK_NORM_NONE;
    static const char *const part[][3] = {
        {"gate", "gate_proj", "w1"}, {"up", "up_proj", "w3"}, {"down", "down_proj", "w2"}};
    const char *block = mixtral ? "block_sparse_moe" : "mlp";
    size_t width = qk == QK_NORM_HEAD ? W : F;
    char name[100], ours[40];
    snprintf(name, sizeof name, "model.layers.%%d.%s.gate", block);
    add_linear(s, t, name, l, E, C, false, false, ONE("router"));
    for (int e = 0; e < E; e++)
        for (int k = 0; k < 3; k++) {
            snprintf(name, sizeof name, "model.layers.%%d.%s.experts.%d.%s", block, e, part[k][1 + mixtral]);
            snprintf(ours, sizeof ours, "experts.%d.%s", e, part[k][0]);
            add_linear(s, t, name, l, k < 2 ? width : C, k < 2 ? C : width, false, false, ONE(ours));
        }
}

// experts: of which layers (bit l). Of OLMoE and OLMo-2 (qk whole) the heads are as wide together as the channels.
static void make_llama(List *s, SafeDtype t, bool tie, bool bias, QkNorm qk, int experts)
{
    bool whole = qk == QK_NORM_WHOLE;
    size_t D1 = whole ? C / H : D;
    static const char *const linear[][2] = {{"attn.q", "self_attn.q_proj"}, {"attn.k", "self_attn.k_proj"},
        {"attn.v", "self_attn.v_proj"}, {"attn.out", "self_attn.o_proj"}, {"ffn.gate", "mlp.gate_proj"},
        {"ffn.up", "mlp.up_proj"}, {"ffn.down", "mlp.down_proj"}};
    const size_t out[] = {H * D1, G * D1, G * D1, C, F, F, C}, in[] = {C, C, C, H * D1, C, C, F};
    char name[100];
    add_linear(s, t, "model.embed_tokens", -1, V, C, false, false, ONE("embed.tokens"));
    for (int l = 0; l < L; l++) {
        bool olmo2 = whole && !experts;
        const char *norms[] = {"input", "post_attention", "post_feedforward"}; // OLMo-2 has the last two
        for (int k = 0; k < 2; k++) {
            snprintf(name, sizeof name, "model.layers.%%d.%s_layernorm.weight", norms[k + olmo2]);
            add_vector(s, t, name, l, C, k ? "ffn_norm" : "attn_norm", 0);
        }
        if (experts >> l & 1) make_experts(s, t, l, qk);
        for (int k = 0; k < (experts >> l & 1 ? 4 : 7); k++) {
            snprintf(name, sizeof name, "model.layers.%%d.%s", linear[k][1]);
            add_linear(s, t, name, l, out[k], in[k], false, bias, ONE(linear[k][0]));
        }
        if (!qk) continue;
        add_vector(s, t, "model.layers.%d.self_attn.q_norm.weight", l, whole ? H * D1 : D, "attn.q_norm", 0);
        add_vector(s, t, "model.layers.%d.self_attn.k_norm.weight", l, whole ? G * D1 : D, "attn.k_norm", 0);
    }
    add_vector(s, t, "model.norm.weight", -1, C, "final_norm", 0);
    if (!tie) add_linear(s, t, "lm_head", -1, V, C, false, false, ONE("head"));
}

static void write_config(const char *keys)
{
    char text[1200];
    snprintf(text, sizeof text, "{%s}\n", keys);
    put_text("config.json", json_quoted(text));
}

static void drop(List *list)
{
    while (list->n) free((void *)(uintptr_t)list->tensor[--list->n].data);
}

// One file, or, with an index, every `shards`-th tensor in each of them.
static void write_tensors(const List *list, int shards)
{
    FILE *index = shards > 1 ? fopen(in_dir("model.safetensors.index.json"), "w") : NULL;
    if (index) fprintf(index, "{\"metadata\": {}, \"weight_map\": {");
    unlink(in_dir(index ? "model.safetensors" : "model.safetensors.index.json"));
    for (int k = 0; k < shards; k++) {
        SafeTensor part[MOST];
        char name[60] = "model.safetensors";
        int n = 0;
        if (shards > 1) snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", k + 1, shards);
        for (int i = k; i < list->n; i += shards) {
            part[n++] = list->tensor[i];
            if (index) fprintf(index, "%s\"%s\": \"%s\"", i ? ", " : "", list->tensor[i].name, name);
        }
        assert_true(safetensors_write(in_dir(name), part, n, NULL, 0, NULL, NULL, NULL, 0));
    }
    if (index) fprintf(index, "}}\n"), assert_int_equal(fclose(index), 0);
}

// ---- what is read

static Config config_of(const char *keys)
{
    Config cfg;
    write_config(keys);
    config_defaults(&cfg);
    hf_config(dir, &cfg);
    return cfg;
}

typedef struct {
    Config cfg;
    Mem mem;
    Dev *dev;
    Model *m;
} Opened;

static void open_model(Opened *o, const char *keys)
{
    *o = (Opened){.cfg = config_of(keys), .dev = dev_cpu_create(1)};
    ModelShape shape = run_shape(&o->cfg);
    o->m = model_allocate(&shape, o->dev, &o->mem, 1, T, false);
    hf_load(dir, o->m);
}

static void end_opened(Opened *o)
{
    end_model(o->m, &o->mem, o->dev);
}

static void expect_weights(const char *keys)
{
    ENDED(end_opened) Opened o;
    open_model(&o, keys);
    for (int r = 0; r < o.m->params.n_rows; r++) {
        const Param *row = &o.m->params.row[r];
        char ours[100];
        int l = -1, skip = 0;
        if (sscanf(row->name, "layers.%d.%n", &l, &skip) != 1) l = -1, skip = 0;
        snprintf(ours, sizeof ours, "%s", row->name + skip);
        char *kind = strrchr(ours, '.');
        bool bias = !strcmp(kind, ".bias");
        *kind = 0;
        for (size_t i = 0; i < row->n_elems; i++) {
            size_t out = row->ndim == 2 ? i / row->dim[1] : i, in = row->ndim == 2 ? i % row->dim[1] : bias ? 999 : 0;
            float got = o.m->weights[row->offset + i], want = element(ours, l, out, in);
            if (got != want) fail_msg("%s[%zu, %zu] is %g, not %g", row->name, out, in, got, want);
        }
    }
}

// The folder of the tensors is read, and written again: the same tensors under the same names, and these members in
// the configuration.
static void expect_back(const char *keys, const List *s, const char *class, const char *members)
{
    ENDED(end_opened) Opened o;
    char path[300];
    write_tensors(s, 1);
    expect_weights(keys);
    open_model(&o, keys);
    snprintf(path, sizeof path, "%s", in_dir("out"));
    assert_string_equal(hf_save(path, &o.cfg, o.m, NULL, FORMAT_FP32, 1 << 20), class);
    OWN(SafeTensors) *st = safetensors_open(in_dir("out/model.safetensors"), NULL, 0);
    assert_int_equal(st->n, s->n);
    for (int i = 0; i < s->n; i++) {
        const SafeTensor *t = safetensors_find(st, s->name[i]);
        if (!t) fail_msg("no tensor %s", s->name[i]);
        assert_int_equal(t->ndim, s->tensor[i].ndim);
        size_t n = s->shape[i][0] * (t->ndim == 2 ? s->shape[i][1] : 1);
        for (int d = 0; d < t->ndim; d++) assert_int_equal(t->shape[d], s->shape[i][d]);
        assert_memory_equal(t->data, s->tensor[i].data, n * sizeof(float));
    }
    OWN(json_t) *config = json_file("out/config.json");
    json_has(config, members);
    hf_save(path, &o.cfg, o.m, NULL, FORMAT_FP32, 1); // a file for each tensor; the single one would be read first
    assert_int_equal(access(in_dir("out/model.safetensors"), F_OK), -1);
}

TEST_IN_DIR(test_gpt2)
{
    for (int k = 0; k < 6; k++) {
        ENDED(drop) List s = {.n = 0};
        make_gpt2(&s, k % 3 == 0 ? ST_F32 : k % 3 == 1 ? ST_F16 : ST_BF16, k % 2);
        write_tensors(&s, k < 3 ? 1 : 3);
        expect_weights(GPT2);
        if (k == 3) // as we write it
            expect_back(GPT2, &s, "GPT2LMHeadModel", "{'model_type': 'gpt2', 'n_inner': 10, 'n_positions': 8, "
                        "'tie_word_embeddings': true, 'layer_norm_epsilon': 1e-5, 'resid_pdrop': 0}");
    }
}

TEST_IN_DIR(test_llama)
{
    for (int k = 0; k < 8; k++) {
        ENDED(drop) List s = {.n = 0};
        char keys[900];
        bool tie = k & 1, bias = k & 2, qk = !bias && k & 4;
        make_llama(&s, k % 3 == 0 ? ST_F32 : k % 3 == 1 ? ST_F16 : ST_BF16, tie, bias, qk, 0);
        write_tensors(&s, k < 4 ? 2 : 1);
        snprintf(keys, sizeof keys, "%s, \"tie_word_embeddings\": %s, \"attention_bias\": %s, \"mlp_bias\": %s",
                 qk ? LIKE("qwen3") : k % 2 ? LIKE("mistral") ", \"sliding_window\": null" : LIKE("llama"), tie ? "true" : "false",
                 bias ? "true" : "false", bias ? "true" : "false");
        expect_weights(keys);
        if (k % 3 == 0)
            expect_back(keys, &s, "LlamaForCausalLM", tie ? "{'tie_word_embeddings': true}" : "{'architectures': "
                        "['LlamaForCausalLM'], 'num_key_value_heads': 1, 'head_dim': 4, 'tie_word_embeddings': false}");
    }
}

#define QWEN3_BACK "{'num_experts': 3, 'num_experts_per_tok': 2, 'moe_intermediate_size': 5, " \
    "'intermediate_size': 10, 'decoder_sparse_step': 1, 'mlp_only_layers': [0]"
#define OLMOE_BACK "{'model_type': 'olmoe', 'num_experts': 3, 'num_experts_per_tok': 2, 'intermediate_size': 10, " \
    "'moe_intermediate_size': null, 'mlp_only_layers': null"

#define MIXTRAL LIKE("mixtral") ", 'num_local_experts': 3, 'num_experts_per_tok': 2"
#define QWEN3_MOE LIKE("qwen3_moe") ", 'num_experts': 3, 'num_experts_per_tok': 2, 'moe_intermediate_size': 5"

#define OLMOE LIKE("olmoe") ", 'head_dim': null, 'num_experts': 3, 'num_experts_per_tok': 2"

// Experts: read, and written again. Transformers' coefficient c is c k / layers with experts of ours.
TEST_IN_DIR(test_experts)
{
    static const char mixtral[] = MIXTRAL ", 'router_aux_loss_coef': 0.02";
    ENDED(drop) List s = {.n = 0}, q = {.n = 0};
    make_llama(&s, ST_F32, false, false, false, 3);
    Config cfg = config_of(mixtral);
    assert_true(cfg.model.experts == E && cfg.model.experts_active == 2 && cfg.model.experts_ffn == F);
    assert_true(cfg.model.experts_renorm && cfg.model.experts_every == 1 && cfg.model.experts_dense == 0);
    assert_true(cfg.model.rope_theta == 1e6 && cfg.moe.balance_coef == 0.02 && !cfg.model.qk_norm);
    expect_back(mixtral, &s, "MixtralForCausalLM", "{'model_type': 'mixtral', 'num_local_experts': 3, "
                "'num_experts_per_tok': 2, 'intermediate_size': 10, 'router_aux_loss_coef': 0.02}");
    make_llama(&q, ST_F32, false, false, true, 2); // layer 0 has none: by the list, or by the step
    expect_back(QWEN3_MOE ", 'mlp_only_layers': [0], 'norm_topk_prob': true", &q, "Qwen3MoeForCausalLM",
                QWEN3_BACK ", 'norm_topk_prob': true, 'router_aux_loss_coef': 0.001}");
    expect_back(QWEN3_MOE ", 'decoder_sparse_step': 2, 'router_aux_loss_coef': 0.25", &q, "Qwen3MoeForCausalLM",
                QWEN3_BACK ", 'norm_topk_prob': false, 'router_aux_loss_coef': 0.25}");
}

TEST_IN_DIR(test_olmoe)
{
    static const char *const keys[] = {OLMOE, OLMOE ", 'norm_topk_prob': true, 'router_aux_loss_coef': 0.25"};
    ENDED(drop) List s = {.n = 0};
    make_llama(&s, ST_F32, false, false, QK_NORM_WHOLE, 3);
    for (int k = 0; k < 2; k++) {
        Config cfg = config_of(keys[k]);
        assert_true(cfg.model.qk_norm == QK_NORM_WHOLE && cfg.model.experts == E && cfg.model.experts_ffn == F);
        assert_true(cfg.model.rope_theta == 1e4 && cfg.model.experts_every == 1 && cfg.model.experts_renorm == k);
        assert_true(cfg.moe.balance_coef == (k ? 0.25 : 0.01)); // k / layers is 1
        expect_back(keys[k], &s, "OlmoeForCausalLM",
                    k ? OLMOE_BACK ", 'norm_topk_prob': true, 'router_aux_loss_coef': 0.25}"
                      : OLMOE_BACK ", 'norm_topk_prob': false, 'router_aux_loss_coef': 0.01}");
    }
}

TEST_IN_DIR(test_olmo2)
{
    static const char keys[] = LIKE("olmo2") ", 'head_dim': null, 'rms_norm_eps': 1e-6";
    ENDED(drop) List s = {.n = 0};
    make_llama(&s, ST_F32, false, false, QK_NORM_WHOLE, 0);
    Config cfg = config_of(keys);
    assert_true(cfg.model.norm_place == NORM_OF_OUTPUT && cfg.model.qk_norm == QK_NORM_WHOLE && !cfg.model.experts);
    expect_back(keys, &s, "Olmo2ForCausalLM", "{'model_type': 'olmo2'}");
}

// Which layers have experts, of six.
TEST_IN_DIR(test_layers)
{
    enum { ROWS = 11 };
    const struct { const char *keys; long dense, every; } rows[ROWS] = { // every -1: refused
        {"", 0, 1}, {"'mlp_only_layers': [0, 1]", 2, 1}, {"'decoder_sparse_step': 2", 0, 2},
        {"'decoder_sparse_step': 2, 'mlp_only_layers': [1]", 2, 2}, {"'decoder_sparse_step': 3", 0, 3},
        {"'decoder_sparse_step': 5", 3, 2}, // layer 4 alone
        {"'decoder_sparse_step': 6", 5, 1}, {"'mlp_only_layers': [2]", 0, -1},
        {"'mlp_only_layers': [1, 3, 5]", 0, -1}, {"'decoder_sparse_step': 7", 0, -1},
        {"'decoder_sparse_step': 0", 0, -1}};
    for (int i = 0; i < ROWS; i++) {
        char keys[900];
        snprintf(keys, sizeof keys, QWEN3_MOE ", \"num_hidden_layers\": 6%s%s", i ? ", " : "", rows[i].keys);
        if (rows[i].every < 0) {
            expect_dies(i + 1 < ROWS ? "mlp_only_layers = " : "decoder_sparse_step = 0", config_of(keys));
            continue;
        }
        Config cfg = config_of(keys);
        if (cfg.model.experts_dense != rows[i].dense || cfg.model.experts_every != rows[i].every)
            fail_msg("%s: %ld, %ld", rows[i].keys, cfg.model.experts_dense, cfg.model.experts_every);
    }
}

TEST_IN_DIR(test_refused_experts)
{
    static const char *const rows[][2] = {
        {LIKE("mixtral"), "num_local_experts = null: a number is needed"},
        {MIXTRAL ", 'num_experts_per_tok': 4", "num_experts_per_tok = 4 of num_local_experts = 3 experts"},
        {QWEN3_MOE ", 'moe_intermediate_size': 0", "= 3 experts, each of width 0"},
        {QWEN3_MOE ", 'mlp_only_layers': ['a']", "mlp_only_layers = \"a\": a layer's number is needed"}};
    for (int i = 0; i < 4; i++) expect_dies(rows[i][1], config_of(rows[i][0]));
}

// Qwen2 has biases on q, k and v alone: the others are 0. A bias that only one block lacks is missing.
TEST_IN_DIR(test_some_biases)
{
    static const char *const others[] = {"self_attn.o_proj.bias", "mlp.gate_proj.bias", "mlp.up_proj.bias",
                                         "mlp.down_proj.bias"};
    for (int lost = 0; lost < 2; lost++) {
        ENDED(drop) List s = {.n = 0};
        List kept = {.n = 0}; // of the same data
        make_llama(&s, ST_F32, true, true, false, 0);
        for (int i = 0; i < s.n; i++) {
            bool left_out = lost && !strcmp(s.name[i], "model.layers.1.self_attn.o_proj.bias");
            for (int k = 0; k < 4 && !lost; k++) left_out |= strstr(s.name[i], others[k]) != NULL;
            if (!left_out) kept.tensor[kept.n++] = s.tensor[i];
        }
        write_tensors(&kept, 1);
        Opened o;
        char keys[] = LIKE("qwen2") ", 'tie_word_embeddings': true";
        if (lost) {
            expect_dies("no tensor model.layers.1.self_attn.o_proj.bias", open_model(&o, keys));
            continue;
        }
        open_model(&o, keys);
        const Model *m = o.m;
        for (int r = 0; r < m->params.n_rows; r++) {
            const Param *row = &m->params.row[r];
            bool zero = strstr(row->name, "ffn.") || strstr(row->name, "attn.out");
            for (size_t i = 0; i < row->n_elems && zero && strstr(row->name, ".bias"); i++)
                assert_true(m->weights[row->offset + i] == 0);
        }
        const Param *q = &m->params.row[params_find(&m->params, "layers.1.attn.q.bias")];
        assert_true(m->weights[q->offset + 2] == element("attn.q", 1, 2, 999));
        end_opened(&o);
    }
}

// What Transformers 4 and 5 write about positions, and what is left out.
TEST_IN_DIR(test_settings)
{
    const struct { const char *keys; int scaling; double theta, factor, slow, fast; long original; } rows[] = {
        {"", ROPE_NONE, 10000, 0, 1, 0, 0},
        {", 'rope_theta': 5e5", ROPE_NONE, 5e5, 0, 1, 0, 0},
        {", 'rope_parameters': {'rope_type': 'default', 'rope_theta': 7}", ROPE_NONE, 7, 0, 1, 0, 0},
        {", 'rope_theta': 9, 'rope_scaling': {'type': 'linear', 'factor': 4}", ROPE_LINEAR, 9, 4, 1, 0, 8},
        {", 'rope_scaling': {'rope_type': 'llama3', 'factor': 8, 'original_max_position_embeddings': 4, "
         "'low_freq_factor': 1.5, 'high_freq_factor': 5}", ROPE_LLAMA3, 10000, 8, 1.5, 5, 4},
        {", 'rope_scaling': {'type': 'linear', 'factor': 4}, 'rope_parameters': {'type': 'default', 'rope_theta': 7}",
         ROPE_LINEAR, 10000, 4, 1, 0, 8},
        {", 'rope_scaling': {}, 'rope_theta': 9, 'rope_parameters': {'rope_theta': 7}", ROPE_NONE, 7, 0, 1, 0, 0},
        {", 'rope_theta': 9, 'num_key_value_heads': [1, 1], 'rope_scaling': {'type': 'yarn', 'factor': 2}", ROPE_YARN,
         9, 2, 1, 32, 8}, // of the longest text
        {", 'rope_parameters': {'rope_type': 'yarn', 'rope_theta': 3, 'factor': 2, "
         "'original_max_position_embeddings': 4}", ROPE_YARN, 3, 2, 1, 32, 4},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char keys[900];
        snprintf(keys, sizeof keys, "%s%s, 'sliding_window': null", LIKE("llama"), rows[i].keys);
        Config cfg = config_of(keys);
        assert_int_equal(cfg.model.rope_scaling, rows[i].scaling);
        assert_true(cfg.model.rope_theta == rows[i].theta && cfg.model.rope_factor == rows[i].factor);
        if (rows[i].scaling) assert_int_equal(cfg.model.rope_original, rows[i].original);
        if (rows[i].fast > 0) assert_true(cfg.model.rope_slow == rows[i].slow && cfg.model.rope_fast == rows[i].fast);
        assert_true(cfg.model.layers == L && cfg.model.channels == C && cfg.model.heads == H);
        assert_true(cfg.model.kv_heads == G);
        assert_true(cfg.model.head_size == D && cfg.model.ffn == F && cfg.model.vocab == V && cfg.model.context == T);
        assert_true(cfg.model.norm_eps == 1e-6 && !cfg.model.tie && !cfg.model.bias && !cfg.model.qk_norm);
    }
    Config cfg = config_of("'model_type': 'gpt2', 'vocab_size': 9, 'n_embd': 12, 'n_layer': 1, 'n_head': 3, "
                           "'n_inner': null");
    assert_true(cfg.model.ffn == 48 && cfg.model.head_size == 4 && cfg.model.context == 1024 && cfg.model.tie);
}

#define MIX ", 'num_local_experts': 3, 'num_experts_per_tok': 2"
#define WINDOW ", 'sliding_window': 4, 'use_sliding_window': true"

// Keys that are left out have the class's default.
TEST_IN_DIR(test_left_out)
{
    const struct { const char *type, *more; double eps; long kv_heads, head_size, context; } rows[] = {
        {"llama", "", 1e-6, 32, 2, 2048}, {"mistral", "", 1e-6, 8, 2, 131072}, {"mixtral", MIX, 1e-5, 8, 2, 131072},
        {"qwen2", "", 1e-6, 32, 2, 32768}, {"qwen3", "", 1e-6, 32, 128, 32768}, {"olmo2", "", 1e-5, 32, 2, 2048},
        {"qwen3_moe", ", 'num_experts': 3, 'num_experts_per_tok': 2, 'moe_intermediate_size': 5", 1e-6, 4, 2, 32768},
        {"mistral", ", 'num_key_value_heads': null", 1e-6, 32, 2, 131072}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char keys[300];
        snprintf(keys, sizeof keys, "'model_type': '%s', 'vocab_size': 11, 'hidden_size': 64, 'num_hidden_layers': 2, "
                 "'num_attention_heads': 32, 'intermediate_size': 10%s", rows[i].type, rows[i].more);
        Config cfg = config_of(keys);
        assert_true(cfg.model.norm_eps == rows[i].eps && cfg.model.kv_heads == rows[i].kv_heads);
        assert_true(cfg.model.head_size == rows[i].head_size && cfg.model.context == rows[i].context);
    }
}

// Windows: of all layers, of a list, of Qwen's last layers; where they are switched off there are none.
TEST_IN_DIR(test_windows)
{
    const struct { const char *keys, *pattern; long window; } rows[] = {
        {LIKE("mistral"), "s", 4096}, {LIKE("mistral") ", 'sliding_window': null", "s", 0}, {LIKE("mixtral") MIX, "s", 0},
        {LIKE("llama") ", 'sliding_window': 4", "s", 0}, // its class has none
        {LIKE("mistral") ", 'sliding_window': 4", "s", 4},
        {LIKE("qwen3") ", 'sliding_window': 4", "s", 0},
        {LIKE("qwen3") ", 'sliding_window': 4, 'use_sliding_window': true", "s", 0}, // from layer 28 on
        {LIKE("qwen3") ", 'sliding_window': 4, 'use_sliding_window': true, 'max_window_layers': 1", "fs", 4},
        {LIKE("qwen2") ", 'sliding_window': 4, 'use_sliding_window': true, 'max_window_layers': 2", "s", 0},
        {LIKE("qwen3") ", 'sliding_window': 3, 'use_sliding_window': true, 'layer_types': ['sliding_attention', "
         "'full_attention']", "sf", 3}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Config cfg = config_of(rows[i].keys);
        assert_int_equal(cfg.model.window, rows[i].window);
        assert_string_equal(cfg.model.window_pattern, rows[i].pattern);
    }
}

// The same list under names that begin with `front` instead of "model.".
static void rename_tensors(List *s, const char *front)
{
    const size_t cut = strlen("model.");
    for (int i = 0; i < s->n; i++) {
        char name[sizeof s->name[i]];
        bool own = !strncmp(s->name[i], "model.", cut);
        snprintf(name, sizeof name, "%s%s", own ? front : "", s->name[i] + (own ? cut : 0));
        strcpy(s->name[i], name);
    }
}

enum { NONE, GOOD, OLD, TWICE, GONE }; // a file that is not there; ours; zeros; with a zero tensor of another; deleted

static void write_files(List *good, const List *old, int single, int shards)
{
    SafeTensor first[MOST];
    write_tensors(shards == OLD ? old : good, shards ? 2 : 1);
    int n = 0; // shard 1 has all even ones
    for (int i = 0; i < good->n; i += 2) first[n++] = good->tensor[i];
    first[n++] = old->tensor[1];
    const char *name = in_dir("model-00001-of-00002.safetensors");
    if (shards == TWICE) safetensors_write(name, first, n, NULL, 0, NULL, NULL, NULL, 0);
    if (shards == GONE) unlink(in_dir("model-00002-of-00002.safetensors"));
    const List *one = single == OLD ? old : good;
    if (single) safetensors_write(in_dir("model.safetensors"), one->tensor, one->n, NULL, 0, NULL, NULL, NULL, 0);
    else if (!shards) unlink(in_dir("model.safetensors"));
}

// As Transformers looks: the single file, else the index's shards; names with the prefix of the class, or without it.
TEST_IN_DIR(test_order)
{
    static float zeros[4096]; // more than a tensor has
    static const char keys[] = LIKE("llama") ", 'tie_word_embeddings': true";
    const struct { int single, shards; const char *front, *words; } rows[] = {
        {GOOD, NONE, "model.", NULL}, {GOOD, OLD, "model.", NULL}, {GOOD, GONE, "model.", NULL},
        {NONE, GOOD, "model.", NULL}, {NONE, GONE, "model.", "model-00002-of-00002.safetensors: cannot open"},
        {NONE, TWICE, "model.", "model.layers.0.input_layernorm.weight is another one than in "},
        {NONE, NONE, "model.", "neither model.safetensors nor model.safetensors.index.json is there, but model-0"},
        {GOOD, NONE, "", NULL}, {NONE, GOOD, "", NULL},
        {GOOD, NONE, "_orig_mod.model.", "no tensor model.embed_tokens.weight, but _orig_mod.model.embed_to"},
        {NONE, GOOD, "_orig_mod.model.", "but _orig_mod.model.embed_tokens.weight: the model is inside another"},
        {GOOD, NONE, "module.model.", "but module.model.embed_tokens.weight: "},
        {NONE, GOOD, "model.language_model.", "but model.language_model.embed_tokens.weight: "},
        {GOOD, NONE, "transformer.", "but transformer.embed_tokens.weight: "}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ENDED(drop) List s = {.n = 0};
        List old = {.n = 0}; // its data are the zeros
        Opened o;
        make_llama(&s, ST_F32, true, false, false, 0);
        rename_tensors(&s, rows[i].front);
        for (old.n = 0; old.n < s.n; old.n++) old.tensor[old.n] = s.tensor[old.n], old.tensor[old.n].data = zeros;
        memcpy(old.name, s.name, sizeof s.name), memcpy(old.shape, s.shape, sizeof s.shape);
        write_files(&s, &old, rows[i].single, rows[i].shards);
        if (rows[i].words) expect_dies(rows[i].words, open_model(&o, keys));
        else expect_weights(keys);
    }
}

// A tied head: there too, alone, or another one.
TEST_IN_DIR(test_tied)
{
    for (int k = 0; k < 3; k++) {
        ENDED(drop) List s = {.n = 0};
        Opened o;
        make_llama(&s, ST_F32, k < 2, false, false, 0);
        if (k == 0) add_linear(&s, ST_F32, "lm_head", -1, V, C, false, false, ONE("embed.tokens"));
        if (k == 1) strcpy(s.name[0], "lm_head.weight");
        write_tensors(&s, 1);
        if (k == 2) expect_dies("lm_head.weight is not model.embed_tokens.weight, and tie_word_embeddings is true",
                                open_model(&o, LIKE("llama") ", 'tie_word_embeddings': true"));
        else expect_weights(LIKE("llama") ", 'tie_word_embeddings': true");
    }
}

TEST_IN_DIR(test_refusals)
{
    const struct { const char *keys, *words; } rows[] = {
        {"'vocab_size': 3", "config.json: model_type = null: a string is needed"},
        {"'model_type': 'mamba'", "model_type = \"mamba\": not known here (gpt2, llama, mistral, qwen2, qwen3, "
         "mixtral, qwen3_moe, olmoe, olmo2)"},
        {"'model_type': ", "config.json:1: "},
        {LIKE("gemma2"), "model_type = \"gemma2\": its blocks scale the embedding"},
        {LIKE("phi3"), "model_type = \"phi3\": its q, k and v are one matrix"},
        {OLMOE ", 'clip_qkv': 8.0", "clip_qkv = 8.0: queries, keys and values are not clipped here"},
        {LIKE("qwen2_moe"), "model_type = \"qwen2_moe\": what all tokens' expert gives is multiplied by a sigmoid"},
        {LIKE("gpt_neox"), "model_type = \"gpt_neox\": its attention and feed-forward read the same input"},
        {LIKE("deepseek_v3"), "model_type = \"deepseek_v3\": its keys and values come from a smaller latent"},
        {LIKE("olmo"), "model_type = \"olmo\": not known here"},
        {GPT2 ", 'activation_function': 'relu'", "activation_function = \"relu\": only the tanh GELU"},
        {GPT2 ", 'scale_attn_by_inverse_layer_idx': true", "scale_attn_by_inverse_layer_idx = true: attention"},
        {GPT2 ", 'scale_attn_weights': false", "scale_attn_weights = false: attention"},
        {GPT2 ", 'n_head': '3'", "n_head = \"3\": a number is needed"},
        {GPT2 ", 'n_layer': 0", "config.json: n_layer: model.layers is 0, not in"},
        {LIKE("llama") ", 'rope_theta': -1", "model.rope_theta is -1"},
        {LIKE("llama") ", 'hidden_act': 'gelu'", "hidden_act = \"gelu\": only silu"},
        {LIKE("llama") ", 'mlp_bias': true", "mlp_bias = true: without attention_bias"},
        {LIKE("mistral") ", 'sliding_window': 0", "sliding_window = 0: a number of tokens, 1 or more"},
        {LIKE("qwen3") WINDOW ", 'layer_types': ['full_attention']", "layer_types"},
        {LIKE("qwen3") WINDOW ", 'layer_types': ['full_attention', 'chunked_attention']",
         "layer_types = \"chunked_attention\": not known here"},
        {LIKE("llama") ", 'rope_scaling': {'rope_type': 'dynamic', 'factor': 2}", "rope_type = \"dynamic\""},
        {LIKE("llama") ", 'rope_scaling': {'type': 'dynamic', 'factor': 2}", ": type = \"dynamic\""},
        {LIKE("llama") ", 'rope_scaling': {'type': 'linear', 'factor': 2, 'partial_rotary_factor': 0.5}",
         "partial_rotary_factor = 0.5: not known here, of RoPE"},
        {LIKE("llama") ", 'rope_scaling': {'type': 'yarn', 'factor': 2, 'truncate': false}", "truncate = false: the ends"},
        {LIKE("llama") ", 'rope_scaling': {'type': 'yarn', 'factor': 2, 'mscale': 1}", "mscale = 1: the factor of"},
        {LIKE("llama") ", 'rope_scaling': 'linear'", "rope_scaling = \"linear\": an object is needed"},
        {LIKE("llama") ", 'partial_rotary_factor': 0.5", "partial_rotary_factor = 0.5: all of a head is turned"},
        {LIKE("llama") ", 'quantization_config': {'bits': 4}", "quantization_config = {\"bits\":4}: quantised weights"},
        {LIKE("llama") ", 'num_key_value_heads': [1, 3]", "num_key_value_heads = [1,3]: one number for all layers"},
        {LIKE("mistral3") ", 'text_config': {}", "model_type = \"mistral3\": text_config is a part of it"},
        {LIKE("llama") ", 'num_key_value_heads': 0", "num_key_value_heads = 0: must divide num_attention_heads, 3"},
        {LIKE("llama") ", 'num_key_value_heads': 2", "num_key_value_heads = 2: must divide"},
        {LIKE("llama") ", 'head_dim': 0", "head_dim = 0, a feed-forward of 10"},
        {LIKE("llama") ", 'head_dim': 5", "head_dim = 5: RoPE turns pairs"},
        {LIKE("llama") ", 'intermediate_size': 0", "a feed-forward of 0"},
        {LIKE("llama") ", 'vocab_size': 0", "vocab_size = 0"},
        {LIKE("llama") ", 'num_hidden_layers': 1e9", "model.layers"},
        {LIKE("llama") ", 'hidden_size': -66", "model.channels"},
        {GPT2 ", 'n_head': 4", "model.head_size"},
        {GPT2 ", 'n_head': 0", "model.heads"},
        {LIKE("llama") ", 'tie_word_embeddings': 1", "tie_word_embeddings = 1: true or false"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) expect_dies(rows[i].words, config_of(rows[i].keys));
    Opened o;
    ENDED(drop) List s = {.n = 0};
    make_llama(&s, ST_F32, true, false, false, 0);
    write_tensors(&s, 1);
    expect_dies("no tensor lm_head.weight", open_model(&o, LIKE("llama"))); // not tied
    expect_dies("no tensor model.layers.0.self_attn.q_proj.bias",
                open_model(&o, LIKE("qwen2") ", 'tie_word_embeddings': true"));
    expect_dies("no tensor model.layers.0.self_attn.q_norm",
                open_model(&o, LIKE("qwen3") ", 'tie_word_embeddings': true"));
    expect_dies("model.layers.0.mlp.gate_proj.weight is 10 x 6, and config.json says 9 x 6",
                open_model(&o, LIKE("llama") ", 'tie_word_embeddings': true, 'intermediate_size': 9"));
    unlink(in_dir("model.safetensors"));
    expect_dies("model.safetensors", open_model(&o, LIKE("llama")));
    put_text("model.safetensors.index.json", "{\"weight_map\": {\"a\": \"../x\"}}");
    expect_dies("a shard called '../x'", open_model(&o, LIKE("llama")));
}

// A class whose name comes first, or Mixtral's, with a setting that it has not.
static void save_model(const char *setting)
{
    bool qwen = !strncmp(setting, "qwen ", 5), olmo = !strncmp(setting, "olmo ", 5);
    Config cfg = config_of(qwen ? QWEN3_MOE : olmo ? OLMOE : MIXTRAL);
    Mem mem = {0};
    char words[60];
    snprintf(words, sizeof words, "%s", setting + (qwen || olmo ? 5 : 0));
    *strchr(words, '=') = 0;
    config_set(&cfg, words, words + strlen(words) + 1, "test");
    ModelShape shape = run_shape(&cfg);
    Model *m = model_allocate(&shape, dev_cpu_create(1), &mem, 1, T, false);
    hf_save(in_dir("out"), &cfg, m, NULL, FORMAT_FP32, 1 << 20);
}

// Experts that no class has.
TEST_IN_DIR(test_refused_out)
{
    static const char *const rows[][2] = {
        {"model.experts_shared=4", "model.experts_shared: none of Mixtral's class"},
        {"model.experts_score=sigmoid", "model.experts_score: none of"},
        {"model.experts_groups=3", "model.experts_groups: none of"},
        {"model.experts_scale=2", "model.experts_scale: none of"},
        {"model.bias=true", "model.bias: none of"},
        {"moe.balance=bias", "moe.balance = bias: experts are chosen with biases"},
        {"model.experts_renorm=false", "model.experts_renorm: without qk_norm it is Mixtral's class, which divides"},
        {"model.experts_dense=1", "model.experts_dense: without qk_norm it is Mixtral's class, which has experts"},
        {"model.experts_every=2", "model.experts_every: without qk_norm"},
        {"qwen model.experts_scale=2", "model.experts_scale: none of"},
        {"olmo model.experts_dense=1", "model.experts_dense: with qk_norm = whole it is OLMoE's class, which has expe"},
        {"olmo model.experts_every=2", "model.experts_every: with qk_norm = whole"},
        {"olmo model.experts=0", "model.qk_norm = whole: only OLMoE's class has it"},
        {"olmo model.head_size=4", "model.qk_norm = whole: only OLMoE's class has it"},
        {"olmo model.window=4", "model.window: only LLaMA's family"},
        {"olmo model.norm_place=output", "model.norm_place = output: only OLMo-2's class has it"},
        {"qwen model.norm_place=output", "model.norm_place = output: only OLMo-2's class has it"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) expect_dies(rows[i][1], save_model(rows[i][0]));
}

TESTS(NULL, NULL)
