// build/export as its user runs it: the file has what the checkpoint holds, under the right names.
#include "ckpt_flat.h"
#include "base/disk.h"
#include "base/safetensors.h"

#include "test/test.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROGRAM "export"
#include "program.h"

OWNER(json_t, json_decref)
OWNER(SafeTensors, safetensors_close)

// ---- models of one block whose weights say where they come from: element i of row r is 1000 r + i

enum { V = 5, T = 4, C = 4, F = 6, H = 2, G = 1, D = 2 };

static void add_matrix(Params *p, const char *name, size_t out, size_t in)
{
    params_add(p, 0, name, 2, out, in, 0, 0, true, 0);
}
static void add_vector(Params *p, const char *name, size_t n)
{
    params_add(p, 0, name, 1, n, 0, 0, 0, false, -1);
}

static void add_linear(Params *p, const char *name, size_t out, size_t in, bool bias)
{
    char full[80];
    snprintf(full, sizeof full, "%s.weight", name);
    add_matrix(p, full, out, in);
    snprintf(full, sizeof full, "%s.bias", name);
    if (bias) add_vector(p, full, out);
}

typedef enum { GPT, LLAMA_LIKE, QWEN_LIKE } Family;

static Params describe(Family family)
{
    Params p = {0};
    bool llama = family != GPT;
    size_t kv = llama ? G * D : H * D;
    add_matrix(&p, "embed.tokens.weight", V, C);
    if (!llama) add_matrix(&p, "embed.positions.weight", T, C);
    add_vector(&p, "layers.0.attn_norm.weight", C);
    if (!llama) add_vector(&p, "layers.0.attn_norm.bias", C);
    add_linear(&p, "layers.0.attn.q", H * D, C, !llama);
    add_linear(&p, "layers.0.attn.k", kv, C, !llama);
    add_linear(&p, "layers.0.attn.v", kv, C, !llama);
    if (family == QWEN_LIKE) add_vector(&p, "layers.0.attn.q_norm.weight", D);
    if (family == QWEN_LIKE) add_vector(&p, "layers.0.attn.k_norm.weight", D);
    add_linear(&p, "layers.0.attn.out", C, H * D, !llama);
    add_vector(&p, "layers.0.ffn_norm.weight", C);
    if (!llama) add_vector(&p, "layers.0.ffn_norm.bias", C);
    if (llama) add_linear(&p, "layers.0.ffn.gate", F, C, false);
    add_linear(&p, "layers.0.ffn.up", F, C, !llama);
    add_linear(&p, "layers.0.ffn.down", C, F, !llama);
    add_vector(&p, "final_norm.weight", C);
    if (!llama) add_vector(&p, "final_norm.bias", C);
    if (llama) add_matrix(&p, "head.weight", V, C);
    return p;
}

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

static void save(const char *run_name, Family family, const char *config)
{
    char path[400], error[512];
    ENDED(params_free) Params p = describe(family);
    FREED float *w = malloc(p.n_elems * sizeof *w), *zero = calloc(p.n_elems, sizeof *zero);
    assert_non_null(w);
    for (int r = 0; r < p.n_rows; r++)
        for (size_t i = 0; i < p.row[r].n_elems; i++) w[p.row[r].offset + i] = (float)(1000 * r + (int)i);
    CkptState s = {.step = 12, .config = config};
    snprintf(path, sizeof path, "%s/%s", dir, run_name);
    CkptArray moment = {"exp_avg", ST_F32, shape_same, zero, p.n_elems * sizeof *zero};
    assert_true(flat_save(path, &s, &p, w, &moment, 1, 1, error, sizeof error));
}

static SafeTensors *open_file(const char *name)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return safetensors_open(path, NULL, 0);
}

static float element(const SafeTensors *st, const char *name, size_t dim0, size_t dim1, size_t i)
{
    const SafeTensor *t = safetensors_find(st, name);
    if (!t) {
        fail_msg("no tensor %s", name);
        return 0;
    }
    assert_int_equal(t->ndim, dim1 ? 2 : 1);
    assert_int_equal(t->shape[0], dim0);
    if (dim1) assert_int_equal(t->shape[1], dim1);
    return ((const float *)t->data)[i];
}

static json_t *open_json(const char *name)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    json_t *j = json_load_file(path, 0, NULL);
    assert_non_null(j);
    return j;
}

// ---- tests

TEST(test_safetensors)
{
    save("plain", GPT, NULL);
    expect_run("plain --to safetensors --out w.safetensors", 0, "step 12, 20 tensors in w.safetensors");
    ENDED(params_free) Params p = describe(GPT);
    OWN(SafeTensors) *st = open_file("w.safetensors");
    assert_int_equal(st->n, p.n_rows); // no optimizer state
    assert_string_equal(safetensors_meta(st, "step"), "12");
    int order[32];
    safetensors_order(st, order);
    for (int r = 0; r < p.n_rows; r++) {
        const Param *row = &p.row[r];
        assert_string_equal(st->tensor[order[r]].name, row->name);
        for (size_t i = 0; i < row->n_elems; i++)
            assert_true(element(st, row->name, row->dim[0], row->ndim == 2 ? row->dim[1] : 0, i) ==
                        (float)(1000 * r + (int)i));
    }
    // The checkpoint itself, and the same bytes.
    expect_run("plain/checkpoints/step_00000012 --to safetensors --out w2.safetensors", 0, "");
    char command[700];
    snprintf(command, sizeof command, "cmp '%s/w.safetensors' '%s/w2.safetensors'", dir, dir);
    assert_int_equal(system(command), 0);
}

// Rows of describe(GPT): 4 q.weight, 5 q.bias, 6 and 7 k, 8 and 9 v, 10 and 11 out, 14 and 15 up, 16
// and 17 down.
TEST(test_gpt2)
{
    save("gpt2", GPT, GPT2 "qk_norm = false\n");
    expect_run("gpt2 --to hf --out gpt2_hf", 0, "step 12 for GPT2LMHeadModel in gpt2_hf");
    OWN(SafeTensors) *st = open_file("gpt2_hf/model.safetensors");
    assert_int_equal(st->n, 16); // the tied head is left out
    assert_string_equal(safetensors_meta(st, "format"), "pt");
    for (size_t in = 0; in < C; in++)
        for (size_t out = 0; out < 3 * H * D; out++) { // Conv1D: (in, out), and q, k, v side by side
            size_t row = 4 + 2 * (out / (H * D)), from = out % (H * D);
            assert_true(element(st, "transformer.h.0.attn.c_attn.weight", C, 3 * C, in * 3 * C + out) ==
                        (float)(1000 * row + from * C + in));
            assert_true(element(st, "transformer.h.0.attn.c_attn.bias", 3 * C, 0, out) ==
                        (float)(1000 * (row + 1) + from));
        }
    for (size_t c = 0; c < C; c++)
        for (size_t f = 0; f < F; f++) {
            assert_true(element(st, "transformer.h.0.mlp.c_fc.weight", C, F, c * F + f) ==
                        (float)(14000 + f * C + c));
            assert_true(element(st, "transformer.h.0.mlp.c_proj.weight", F, C, f * C + c) ==
                        (float)(16000 + c * F + f));
        }
    assert_true(element(st, "transformer.h.0.attn.c_proj.weight", C, C, 1) == 10000 + C);
    assert_true(element(st, "transformer.h.0.attn.c_proj.bias", C, 0, 3) == 11003);
    assert_true(element(st, "transformer.h.0.mlp.c_fc.bias", F, 0, 5) == 15005);
    assert_true(element(st, "transformer.h.0.mlp.c_proj.bias", C, 0, 3) == 17003);
    static const struct { const char *name; size_t rows; int row; } same[] = {
        {"transformer.wte.weight", V, 0}, {"transformer.wpe.weight", T, 1},
        {"transformer.h.0.ln_1.weight", 0, 2}, {"transformer.h.0.ln_1.bias", 0, 3},
        {"transformer.h.0.ln_2.weight", 0, 12}, {"transformer.h.0.ln_2.bias", 0, 13},
        {"transformer.ln_f.weight", 0, 18}, {"transformer.ln_f.bias", 0, 19}};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        assert_true(element(st, same[i].name, same[i].rows ? same[i].rows : C, same[i].rows ? C : 0, 3) ==
                    (float)(1000 * same[i].row + 3));
    OWN(json_t) *j = open_json("gpt2_hf/config.json");
    assert_string_equal(json_string_value(json_object_get(j, "model_type")), "gpt2");
    assert_int_equal(json_integer_value(json_object_get(j, "n_inner")), F);
    assert_int_equal(json_integer_value(json_object_get(j, "n_positions")), T);
    assert_true(json_is_true(json_object_get(j, "tie_word_embeddings")));
    assert_true(json_real_value(json_object_get(j, "layer_norm_epsilon")) == 1e-5);
    assert_true(json_real_value(json_object_get(j, "resid_pdrop")) == 0);
}

TEST(test_llama)
{
    save("llama", LLAMA_LIKE, LLAMA);
    expect_run("llama --to hf --out llama_hf", 0, "step 12 for LlamaForCausalLM in llama_hf");
    OWN(SafeTensors) *st = open_file("llama_hf/model.safetensors");
    static const struct {
        const char *name;
        size_t dim0, dim1;
    } rows[] = {// in the order of describe(LLAMA_LIKE)
                {"model.embed_tokens.weight", V, C},
                {"model.layers.0.input_layernorm.weight", C, 0},
                {"model.layers.0.self_attn.q_proj.weight", H * D, C},
                {"model.layers.0.self_attn.k_proj.weight", G * D, C},
                {"model.layers.0.self_attn.v_proj.weight", G * D, C},
                {"model.layers.0.self_attn.o_proj.weight", C, H * D},
                {"model.layers.0.post_attention_layernorm.weight", C, 0},
                {"model.layers.0.mlp.gate_proj.weight", F, C},
                {"model.layers.0.mlp.up_proj.weight", F, C},
                {"model.layers.0.mlp.down_proj.weight", C, F},
                {"model.norm.weight", C, 0},
                {"lm_head.weight", V, C}};
    assert_int_equal(st->n, sizeof rows / sizeof *rows);
    for (int r = 0; r < st->n; r++)
        for (size_t i = 0; i < rows[r].dim0 * (rows[r].dim1 ? rows[r].dim1 : 1); i++)
            assert_true(element(st, rows[r].name, rows[r].dim0, rows[r].dim1, i) ==
                        (float)(1000 * r + (int)i));
    OWN(json_t) *j = open_json("llama_hf/config.json");
    assert_string_equal(json_string_value(json_array_get(json_object_get(j, "architectures"), 0)),
                        "LlamaForCausalLM");
    assert_int_equal(json_integer_value(json_object_get(j, "num_key_value_heads")), G);
    assert_int_equal(json_integer_value(json_object_get(j, "head_dim")), D);
    assert_true(json_is_false(json_object_get(j, "tie_word_embeddings")));
    assert_true(json_real_value(json_object_get(j, "rope_theta")) == 10000);
}

// QK-norm: LLaMA's tensors and two more a block, of a vocabulary whose tokenizer comes along.
TEST(test_qwen3)
{
    char config[900];
    snprintf(config, sizeof config, "%s[data]\ntokenizer = \"nowhere\"\n", LLAMA_OF("true"));
    save("qwen", QWEN_LIKE, config);
    expect_run("qwen --to hf --out qwen_hf", 0, "step 12 for Qwen3ForCausalLM in qwen_hf");
    says("its tokenizer is not at 'nowhere', so the folder has none");
    OWN(SafeTensors) *st = open_file("qwen_hf/model.safetensors");
    for (size_t i = 0; i < D; i++) { // rows 5 and 6 of describe
        assert_true(element(st, "model.layers.0.self_attn.q_norm.weight", D, 0, i) == (float)(5000 + (int)i));
        assert_true(element(st, "model.layers.0.self_attn.k_norm.weight", D, 0, i) == (float)(6000 + (int)i));
    }
    OWN(json_t) *j = open_json("qwen_hf/config.json");
    assert_string_equal(json_string_value(json_object_get(j, "model_type")), "qwen3");
    assert_true(json_is_null(json_object_get(j, "eos_token_id")));
}

// Attention that muP divides by another number than the square root of the head size.
TEST(test_mup)
{
    char config[900];
    for (int head = 0; head <= D; head++) {
        snprintf(config, sizeof config, "%s[optim]\nmup_base = 2\nmup_base_head = %d\n", LLAMA, head);
        save("mup", LLAMA_LIKE, config);
        expect_run("mup --to hf --out mup_hf", head == 1, "");
        if (head == 1) says("optim.mup_base_head = 1");
    }
}

// Stretched positions, as Transformers names them; a way that is another theta is that theta.
TEST(test_stretched)
{
    static const struct {
        const char *keys, *type;
        double theta, factor, slow;
    } rows[] = {
        {"rope_scaling = \"none\"\n", "default", 10000, 0, 0},
        {"rope_scaling = \"linear\"\nrope_factor = 4\nrope_original = 2\n", "linear", 10000, 4, 0},
        {"rope_scaling = \"ntk\"\nrope_factor = 4\nrope_original = 2\n", "default", 10000, 0, 0}, // heads of one pair
        {"rope_scaling = \"yarn\"\nrope_factor = 2.5\nrope_original = 3\nrope_slow = 2\nrope_fast = 32\n", "yarn", 10000,
         2.5, 2},
        {"rope_scaling = \"llama3\"\nrope_factor = 8\nrope_original = 1\nrope_slow = 1\nrope_fast = 4\n", "llama3", 10000,
         8, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char config[2000];
        snprintf(config, sizeof config, "%s%s", LLAMA, rows[i].keys);
        save("stretched", LLAMA_LIKE, config);
        expect_run("stretched --to hf --out stretched_hf", 0, "");
        json_t *j = open_json("stretched_hf/config.json"), *rope = json_object_get(j, "rope_parameters");
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
    save("plain", GPT, NULL);
    save("mixed", GPT, MODEL "kv_heads = 2\nnorm = \"rmsnorm\"\nactivation = \"gelu\"\nposition = \"learned\"\n"
                             "bias = true\ntie = true\n");
    expect_run("plain --to hf --out x", 1, "holds no settings");
    expect_run("mixed --to hf --out x", 1, "neither GPT-2's family nor LLaMA's");
    save("squares", GPT, MODEL "kv_heads = 2\nnorm = \"layernorm\"\nactivation = \"relu2\"\nposition = \"learned\"\n"
                               "bias = true\ntie = true\nqk_norm = false\n");
    expect_run("squares --to hf --out x", 1, "neither GPT-2's family nor LLaMA's");
    save("capped", GPT, GPT2 "logit_cap = 30\n");
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
