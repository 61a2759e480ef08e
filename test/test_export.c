// build/export as its user runs it: the file has what the checkpoint holds, under the right names.
#include "ckpt_flat.h"
#include "base/disk.h"
#include "tools/safetensors.h"
#include "ops/dev_cpu.h"
#include "train/run.h"

#include "test/test.h"

#define PROGRAM "export"
#include "program.h"
#include "json_has.h"

OWNER(SafeTensors, safetensors_close)

// ---- models of one block whose weights say where they come from: element i of row r is 1000 r + i

enum { F = 6, T = 4, D = 2 };

#define MODEL \
    "[model]\nlayers = 1\nchannels = 4\nheads = 2\nhead_size = 2\nffn = 6\nvocab = 5\ncontext = 4\n" \
    "norm_eps = 1e-05\n"
#define GPT2 \
    MODEL "kv_heads = 2\nnorm = \"layernorm\"\nactivation = \"gelu\"\nposition = \"learned\"\n" \
          "bias = true\ntie = true\n"
#define LLAMA_OF(QK_NORM)                                                                               \
    MODEL                                                                                               \
        "kv_heads = 1\nnorm = \"rmsnorm\"\nactivation = \"swiglu\"\nposition = \"rope\"\n# a comment\n" \
        "rope_theta = 10000  # default\nbias = false\ntie = false\nqk_norm = " QK_NORM "\n"
#define LLAMA LLAMA_OF("false")

static int shape_same(const Params *params, const Param *row, size_t dim[PARAM_DIMS])
{
    (void)params;
    memcpy(dim, row->dim, sizeof row->dim);
    return row->ndim;
}

// config NULL: GPT-2's, which the checkpoint does not say.
static void save(const char *run_name, const char *config)
{
    Config cfg;
    Mem mem = {0};
    Dev *dev = dev_cpu_create(1);
    config_defaults(&cfg);
    config_load_text(&cfg, config ? config : GPT2, "test");
    ModelShape shape = run_shape(&cfg);
    Model *m = model_allocate(&shape, dev, &mem, 1, T, false);
    const Params *p = &m->params;
    for (int r = 0; r < p->n_rows; r++)
        for (size_t i = 0; i < p->row[r].n_elems; i++) m->weights[p->row[r].offset + i] = (float)(1000 * r + (int)i);
    FREED float *zero = zeroed(p->n_elems * sizeof *zero);
    CkptState s = {.step = 12, .config = config};
    CkptArray moment = {"exp_avg", ST_F32, shape_same, zero, p->n_elems * sizeof *zero};
    assert_true(flat_save(in_dir(run_name), &s, p, m->weights, &moment, 1, 1, NULL, 0));
    end_model(m, &mem, dev);
}

// The elements of a vector are those of this row.
static void expect_row(const SafeTensors *st, const char *name, int row, size_t n)
{
    const SafeTensor *t = safetensors_find(st, name);
    if (!t) fail_msg("no tensor %s", name);
    assert_int_equal(t->n_elems, n);
    for (size_t i = 0; i < n; i++) assert_true(((const float *)t->data)[i] == (float)(1000 * row + (int)i));
}

// ---- tests

TEST(test_safetensors)
{
    save("plain", NULL);
    expect_run("plain --to safetensors --out w.safetensors", 0, "step 12, 20 tensors in w.safetensors");
    OWN(SafeTensors) *st = safetensors_open(in_dir("w.safetensors"), NULL, 0);
    assert_int_equal(st->n, 20); // no optimizer state
    assert_string_equal(safetensors_meta(st, "step"), "12");
    int order[32];
    safetensors_order(st, order);
    assert_string_equal(st->tensor[order[0]].name, "embed.tokens.weight");
    assert_string_equal(st->tensor[order[15]].name, "layers.0.ffn.up.bias");
    for (int r = 0; r < 20; r++) expect_row(st, st->tensor[order[r]].name, r, st->tensor[order[r]].n_elems);
    // The checkpoint itself, and the same bytes.
    expect_run("plain/checkpoints/step_00000012 --to safetensors --out w2.safetensors", 0, "");
    same_files("w.safetensors", "w2.safetensors");
}

// (The tensors of these classes: test_hf.)
TEST(test_classes)
{
    save("gpt2", GPT2 "qk_norm = false\n");
    expect_run("gpt2 --to hf --out gpt2_hf", 0, "step 12 for GPT2LMHeadModel in gpt2_hf");
    OWN(SafeTensors) *st = safetensors_open(in_dir("gpt2_hf/model.safetensors"), NULL, 0);
    assert_int_equal(st->n, 16); // the tied head is left out
    assert_string_equal(safetensors_meta(st, "format"), "pt");
    expect_row(st, "transformer.h.0.mlp.c_fc.bias", 15, F);
    OWN(json_t) *j = json_file("gpt2_hf/config.json");
    json_has(j, "{'model_type': 'gpt2', 'n_inner': 6, 'n_positions': 4, 'tie_word_embeddings': true, "
                "'layer_norm_epsilon': 1e-5}");
    save("llama", LLAMA);
    expect_run("llama --to hf --out llama_hf", 0, "step 12 for LlamaForCausalLM in llama_hf");
    OWN(json_t) *l = json_file("llama_hf/config.json");
    json_has(l, "{'architectures': ['LlamaForCausalLM'], 'num_key_value_heads': 1, 'head_dim': 2, "
                "'tie_word_embeddings': false, 'rope_theta': 10000}");
}

// QK-norm: LLaMA's tensors and two more a block, of a vocabulary whose tokenizer comes along.
TEST(test_qwen3)
{
    char config[900];
    snprintf(config, sizeof config, "%s[data]\ntokenizer = \"nowhere\"\n", LLAMA_OF("true"));
    save("qwen", config);
    expect_run("qwen --to hf --out qwen_hf", 0, "step 12 for Qwen3ForCausalLM in qwen_hf");
    says("its tokenizer is not at 'nowhere', so the folder has none");
    OWN(SafeTensors) *st = safetensors_open(in_dir("qwen_hf/model.safetensors"), NULL, 0);
    expect_row(st, "model.layers.0.self_attn.q_norm.weight", 5, D);
    expect_row(st, "model.layers.0.self_attn.k_norm.weight", 6, D);
    OWN(json_t) *j = json_file("qwen_hf/config.json");
    json_has(j, "{'model_type': 'qwen3', 'eos_token_id': null}");
}

// Attention that muP divides by another number than the square root of the head size.
TEST(test_mup)
{
    char config[900];
    for (int head = 0; head <= D; head++) {
        snprintf(config, sizeof config, "%s[optim]\nmup_base = 2\nmup_base_head = %d\n", LLAMA, head);
        save("mup", config);
        expect_run("mup --to hf --out mup_hf", head == 1, "");
        if (head == 1) says("optim.mup_base_head = 1");
    }
}

// Stretched positions, as Transformers names them; a way that is another theta is that theta.
TEST(test_stretched)
{
    static const struct { const char *keys, *type; double theta, factor, slow; } rows[] = {
        {"rope_scaling = \"none\"\n", "default", 10000, 0, 0},
        {"rope_scaling = \"linear\"\nrope_factor = 4\nrope_original = 2\n", "linear", 10000, 4, 0},
        {"rope_scaling = \"ntk\"\nrope_factor = 4\nrope_original = 2\n", "default", 10000, 0, 0}, // heads of one pair
        {"rope_scaling = \"yarn\"\nrope_factor = 2.5\nrope_original = 3\nrope_slow = 2\nrope_fast = 32\n",
         "yarn", 10000, 2.5, 2},
        {"rope_scaling = \"llama3\"\nrope_factor = 8\nrope_original = 1\nrope_slow = 1\nrope_fast = 4\n",
         "llama3", 10000, 8, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char config[2000];
        snprintf(config, sizeof config, "%s%s", LLAMA, rows[i].keys);
        save("stretched", config);
        expect_run("stretched --to hf --out stretched_hf", 0, "");
        json_t *j = json_file("stretched_hf/config.json"), *rope = json_object_get(j, "rope_parameters");
        assert_string_equal(json_string_value(json_object_get(rope, "rope_type")), rows[i].type);
        assert_true(fabs(json_real_value(json_object_get(rope, "rope_theta")) / rows[i].theta - 1) <= 1e-15);
        assert_true(json_real_value(json_object_get(rope, "factor")) == rows[i].factor); // 0: not there
        const char *slow = strcmp(rows[i].type, "yarn") ? "low_freq_factor" : "beta_slow";
        assert_true(json_real_value(json_object_get(rope, slow)) == rows[i].slow);
        if (rows[i].factor > 0) assert_true(json_equal(json_object_get(j, "rope_scaling"), rope));
        json_decref(j);
    }
}

TEST(test_refusals)
{
    save("plain", NULL);
    save("mixed", MODEL "kv_heads = 2\nnorm = \"rmsnorm\"\nactivation = \"gelu\"\nposition = \"learned\"\n"
                             "bias = true\ntie = true\n");
    expect_run("plain --to hf --out x", 1, "holds no settings");
    expect_run("mixed --to hf --out x", 1, "neither GPT-2's family nor LLaMA's");
    save("squares", MODEL "kv_heads = 2\nnorm = \"layernorm\"\nactivation = \"relu2\"\nposition = \"learned\"\n"
                               "bias = true\ntie = true\nqk_norm = false\n");
    expect_run("squares --to hf --out x", 1, "neither GPT-2's family nor LLaMA's");
    save("capped", GPT2 "logit_cap = 30\n");
    expect_run("capped --to hf --out x", 1,
               "model.logit_cap = 30: no class that export writes caps its logits (use --to safetensors)");
    expect_run("plain --to ggml --out x", 2, "--to ggml: unknown (hf, gguf, llm.c, safetensors or state)");
    expect_run("plain --to safetensors --out x --type BF16", 2, "");
    expect_run("plain --to hf --out x --type Q8_0", 2, "");
    expect_run("plain --to gguf --out x --type Q4_0", 2, "");
    expect_run("plain --to gguf --out x --shard 1", 2, "");
    expect_run("plain --to safetensors", 2, "");
    expect_run("plain --to safetensors --out", 2, "");
    expect_run("plain plain --to safetensors --out x", 2, "");
    expect_run("--help", 0, "");
    expect_run("nothing --to safetensors --out x", 1, "error: nothing: cannot open");
    expect_run("plain --to safetensors --out nowhere/x", 1, "cannot create: No such file");
    expect_run("plain --to safetensors --out plain", 1, ""); // a directory: nothing is left beside it
    says("cannot rename: ");
    assert_int_not_equal(access(in_dir("plain.tmp"), F_OK), 0);
    // A damaged checkpoint is not exported.
    assert_int_equal(truncate(in_dir("plain/checkpoints/step_00000012/model.safetensors"), 700), 0);
    expect_run("plain/checkpoints/step_00000012 --to safetensors --out y", 1, "model.safetensors: ");
    assert_int_not_equal(access(in_dir("y"), F_OK), 0);
}

TESTS(program_set_up, temp_dir_remove)
