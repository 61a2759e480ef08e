// Tests of gguf: a model written for llama.cpp holds the keys, names, order and bytes that llama.cpp's converter gives
// (stated here a second time), and comes back bit for bit; blocks of 4 and 8 bits are read as they are defined; a
// hostile file is refused with what is wrong.
#define _GNU_SOURCE // memmem
#include "test/test.h"

#include "expect_die.h"
#include "temp_dir.h"

#include "formats/formats.h"
#include "models/gguf_model.h"
#include "ops/dev_cpu.h"
#include "train/run.h"

OWNER(Gguf, gguf_close)
OWNER(Tokenizer, tokenizer_free)

enum { L = 2, C = 12, H = 3, G = 1, D = 4, F = 64, V = 270, T = 8 };

#define ROTARY "norm=rmsnorm activation=swiglu position=rope bias=false kv_heads=1 "
#define EXPERTS "experts=3 experts_active=1 experts_ffn=32 "
static const char
    llama[] = ROTARY "tie=false",
    biased[] = "norm=rmsnorm activation=swiglu position=rope bias=true kv_heads=1 tie=true",
    qwen[] = ROTARY "tie=true qk_norm=true", gpt2[] = "kv_heads=3 bias=true tie=true",
    scaled[] = ROTARY "rope_scaling=llama3 rope_factor=8 rope_original=8192 rope_slow=1 rope_fast=4 rope_theta=1e8",
    yarn[] = ROTARY "rope_scaling=yarn rope_factor=2.5 rope_original=4 rope_slow=2 rope_fast=20",
    mixtral[] = ROTARY "tie=false experts=3 experts_active=2 experts_ffn=64",
    qwen_moe[] = ROTARY "tie=true qk_norm=true " EXPERTS,
    olmoe[] = ROTARY "kv_heads=3 tie=false qk_norm=whole experts_renorm=false " EXPERTS,
    olmoe_ffn[] = ROTARY "kv_heads=3 tie=false qk_norm=whole experts_renorm=false ffn=32 " EXPERTS,
    olmo2[] = ROTARY "tie=false qk_norm=whole norm_place=output";

// ---- a model whose numbers are all different

typedef struct {
    Config cfg;
    Mem mem;
    Dev *dev;
    Model *m;
    Gguf *g; // its file, open
} Made;

static void make(Made *made, const char *settings)
{
    static const char sizes[] = "layers=2 channels=12 heads=3 head_size=4 ffn=64 vocab=270 context=8 ";
    char all[600], name[80], *rest = NULL;
    *made = (Made){.dev = dev_cpu_create(1)};
    config_defaults(&made->cfg);
    snprintf(all, sizeof all, "%s%s", sizes, settings);
    for (char *s = strtok_r(all, " ", &rest); s; s = strtok_r(NULL, " ", &rest)) {
        snprintf(name, sizeof name, "model.%.*s", (int)strcspn(s, "="), s);
        config_set(&made->cfg, name, strchr(s, '=') + 1, "test");
    }
    ModelShape shape = run_shape(&made->cfg);
    made->m = model_allocate(&shape, made->dev, &made->mem, 1, T, false);
    for (size_t i = 0; i < made->m->params.n_elems; i++) made->m->weights[i] = (float)(i + 1) / 1024;
}

static void drop(Made *made)
{
    if (made->g) gguf_close(made->g);
    end_model(made->m, &made->mem, made->dev);
}

static Tokenizer *learn(void)
{
    static const char text[] = "the theme of the thesis, then the other theory: there they are. ";
    TokenizerTrainer *trainer = tokenizer_trainer_new("gpt2");
    for (int i = 0; i < 5; i++) tokenizer_trainer_add(trainer, text, sizeof text - 1);
    return tokenizer_trainer_finish(trainer, 262);
}

static void save(Made *made, const char *settings, GgufType type)
{
    OWN(Tokenizer) *t = learn();
    make(made, settings);
    gguf_model_save(in_dir("m.gguf"), "a name", &made->cfg, made->m, t, type);
    made->g = gguf_open(in_dir("m.gguf"));
}

// ---- what is written

static float ours(const Model *m, const char *name, size_t row, size_t col)
{
    int r = params_find(&m->params, name);
    if (r < 0) fail_msg("no %s", name);
    const Param *p = &m->params.row[r];
    return m->weights[p->offset + row * (p->ndim == 2 ? p->dim[1] : 1) + col];
}

// A tensor of the file, one of ours: (rows, cols), its row i is our row of(i).
static void expect_tensor(const Gguf *g, const Model *m, const char *theirs, const char *name, size_t rows, size_t cols,
                          bool turned)
{
    const GgufTensor *t = gguf_tensor(g, theirs);
    if (!t) fail_msg("no %s", theirs);
    assert_int_equal(t->ndim, cols ? 2 : 1);
    assert_int_equal(t->dim[0], cols ? cols : rows);
    assert_int_equal(t->dim[1], cols ? rows : 1);
    assert_int_equal((uintptr_t)t->data % 4, 0);
    for (size_t i = 0; i < rows; i++) {
        // Rows 0 1 2 3 of a head of 4 are those of the halves' elements 0, 0, 1, 1.
        static const size_t halves[] = {0, 2, 1, 3};
        size_t from = turned ? i / D * D + halves[i % D] : i;
        for (size_t j = 0; j < (cols ? cols : 1); j++)
            if (((const float *)t->data)[i * (cols ? cols : 1) + j] != ours(m, name, from, j))
                fail_msg("%s: row %zu is not row %zu of %s", theirs, i, from, name);
    }
}

// The key, behind an architecture's name unless that is empty, has this value.
static void expect_key(const Gguf *g, const char *architecture, const char *key, double value)
{
    char name[80];
    snprintf(name, sizeof name, "%s%s%s", architecture, *architecture ? "." : "", key);
    assert_non_null(gguf_find(g, name));
    if (fabs(gguf_number(g, name, -1) - value) > 1e-7 * fabs(value))
        fail_msg("%s is %.9g, not %.9g", name, gguf_number(g, name, -1), value);
}

TEST_IN_DIR(test_llama)
{
    static const char *const rows[][2] = {{"attn_q.weight", "attn.q.weight"}, {"attn_k.weight", "attn.k.weight"},
        {"attn_v.weight", "attn.v.weight"}, {"attn_output.weight", "attn.out.weight"},
        {"ffn_gate.weight", "ffn.gate.weight"}, {"ffn_up.weight", "ffn.up.weight"},
        {"ffn_down.weight", "ffn.down.weight"}, {"attn_norm.weight", "attn_norm.weight"},
        {"ffn_norm.weight", "ffn_norm.weight"}};
    static const size_t n[][2] = {{H * D, C}, {G * D, C}, {G * D, C}, {C, H * D}, {F, C}, {F, C}, {C, F}, {C}, {C}};
    for (int kind = 0; kind < 4; kind++) { // llama, llama with biases, qwen3, olmo2
        ENDED(drop) Made made;
        save(&made, kind == 0 ? llama : kind == 1 ? biased : kind == 2 ? qwen : olmo2, GGUF_F32);
        const Gguf *g = made.g;
        for (int l = 0; l < L; l++)
            for (size_t k = 0; k < 9; k++) {
                char theirs[60], name[60];
                const char *after[] = {"post_attention_norm.weight", "post_ffw_norm.weight"};
                snprintf(theirs, sizeof theirs, "blk.%d.%s", l, kind == 3 && k >= 7 ? after[k - 7] : rows[k][0]);
                snprintf(name, sizeof name, "layers.%d.%s", l, rows[k][1]);
                expect_tensor(g, made.m, theirs, name, n[k][0], n[k][1], kind < 2 && k < 2);
            }
        expect_tensor(g, made.m, "token_embd.weight", "embed.tokens.weight", V, C, false);
        expect_tensor(g, made.m, "output_norm.weight", "final_norm.weight", C, 0, false);
        if (kind == 0 || kind == 3) expect_tensor(g, made.m, "output.weight", "head.weight", V, C, false);
        else assert_null(gguf_tensor(g, "output.weight"));
        if (kind == 1) expect_tensor(g, made.m, "blk.1.attn_q.bias", "layers.1.attn.q.bias", H * D, 0, true);
        if (kind == 1) expect_tensor(g, made.m, "blk.1.ffn_up.bias", "layers.1.ffn.up.bias", F, 0, false);
        const size_t n_q = kind == 3 ? H * D : D;
        if (kind > 1) expect_tensor(g, made.m, "blk.1.attn_q_norm.weight", "layers.1.attn.q_norm.weight", n_q, 0, 0);
        static const struct { const char *key; double value; } keys[] = {
            {"context_length", T}, {"embedding_length", C}, {"block_count", L}, {"feed_forward_length", F},
            {"attention.head_count", H}, {"attention.head_count_kv", G}, {"attention.key_length", D},
            {"attention.value_length", D}, {"rope.dimension_count", D}, {"rope.freq_base", 10000}, {"vocab_size", V},
            {"attention.layer_norm_rms_epsilon", 1e-5}};
        const char *architecture = kind == 3 ? "olmo2" : kind == 2 ? "qwen3" : "llama";
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) expect_key(g, architecture, keys[i].key, keys[i].value);
    }
}

// One tensor of three dimensions for a matrix of all experts; the router stays F32.
TEST_IN_DIR(test_experts)
{
    static const char *const part[][2] = {{"blk.1.ffn_gate_exps.weight", "gate"}, {"blk.1.ffn_up_exps.weight", "up"},
                                          {"blk.1.ffn_down_exps.weight", "down"}};
    for (int kind = 0; kind < 3; kind++) { // llama, qwen3moe, olmoe
        const size_t E = 3, W = kind ? 32 : 64;
        ENDED(drop) Made made;
        save(&made, kind == 2 ? olmoe : kind ? qwen_moe : mixtral, GGUF_BF16);
        const Gguf *g = made.g;
        expect_tensor(g, made.m, "blk.1.ffn_gate_inp.weight", "layers.1.router.weight", E, C, false);
        assert_null(gguf_tensor(g, "blk.1.ffn_up.weight"));
        for (int k = 0; k < 3; k++) {
            const GgufTensor *t = gguf_tensor(g, part[k][0]);
            if (!t) fail_msg("no %s", part[k][0]);
            size_t in = k < 2 ? C : W, out = k < 2 ? W : C;
            assert_true(t->ndim == 3 && t->dim[0] == in && t->dim[1] == out && t->dim[2] == E && t->type == GGUF_BF16);
            for (size_t i = 0; i < E * out * in; i++) {
                char name[60];
                snprintf(name, sizeof name, "layers.1.experts.%zu.%s.weight", i / (out * in), part[k][1]);
                uint32_t bits = formats_encode(FORMAT_BF16, ours(made.m, name, i / in % out, i % in), false);
                assert_int_equal(((const uint16_t *)t->data)[i], bits);
            }
        }
        if (kind == 2)
            expect_tensor(g, made.m, "blk.1.attn_k_norm.weight", "layers.1.attn.k_norm.weight", H * D, 0, false);
        static const char *const arch[] = {"llama", "qwen3moe", "olmoe"};
        expect_key(g, arch[kind], "expert_count", E);
        expect_key(g, arch[kind], "expert_used_count", kind ? 1 : 2);
        expect_key(g, arch[kind], "expert_feed_forward_length", (double)W);
        expect_key(g, arch[kind], "feed_forward_length", kind == 2 ? (double)W : F);
    }
}

// q, k and v are one tensor, nothing is transposed, positions and vectors stay F32.
TEST_IN_DIR(test_gpt2)
{
    ENDED(drop) Made made;
    save(&made, gpt2, GGUF_BF16);
    const Gguf *g = made.g;
    const GgufTensor *t = gguf_tensor(g, "blk.1.attn_qkv.weight");
    assert_true(t && t->dim[0] == C && t->dim[1] == 3 * C && t->type == GGUF_BF16);
    static const char *const part[] = {"layers.1.attn.q.weight", "layers.1.attn.k.weight", "layers.1.attn.v.weight"};
    for (size_t i = 0; i < 3 * C * C; i++)
        assert_int_equal(((const uint16_t *)t->data)[i],
                         formats_encode(FORMAT_BF16, ours(made.m, part[i / (C * C)], i / C % C, i % C), false));
    expect_tensor(g, made.m, "position_embd.weight", "embed.positions.weight", T, C, false);
    expect_tensor(g, made.m, "blk.0.attn_norm.bias", "layers.0.attn_norm.bias", C, 0, false);
    assert_int_equal(gguf_tensor(g, "blk.0.ffn_up.weight")->dim[1], F);
    expect_key(g, "", "gpt2.attention.layer_norm_epsilon", 1e-5);
    expect_key(g, "", "general.file_type", 32);
}

// The tokens as GPT-2's alphabet spells them, filled up to the embedding's rows.
TEST_IN_DIR(test_tokenizer)
{
    ENDED(drop) Made model;
    save(&model, llama, GGUF_F32);
    const Gguf *g = model.g;
    OWN(Tokenizer) *made = learn(), *back = gguf_model_tokenizer(g);
    int n = tokenizer_vocab_size(made);
    assert_int_equal(n, 262);
    const GgufKey *tokens = gguf_array(g, "tokenizer.ggml.tokens", GGUF_STRING);
    const GgufKey *types = gguf_array(g, "tokenizer.ggml.token_type", GGUF_I32);
    assert_int_equal(tokens->n, V), assert_int_equal(types->n, V);
    const char *at = tokens->data;
    for (int i = 0; i < V; i++) {
        GgufText t = gguf_next(&at);
        int32_t type;
        memcpy(&type, types->data + 4 * i, 4);
        assert_int_equal(type, i < n - 1 ? 1 : i == n - 1 ? 3 : 5);
        if (i == n - 1) assert_memory_equal(t.bytes, "<|endoftext|>", t.n);
        if (i == 262) assert_memory_equal(t.bytes, "[PAD262]", t.n);
        if (i == 0) assert_memory_equal(t.bytes, "!", 1);
    }
    expect_key(g, "", "tokenizer.ggml.bos_token_id", n - 1), expect_key(g, "", "tokenizer.ggml.eos_token_id", n - 1);
    expect_key(g, "", "tokenizer.ggml.add_bos_token", 1);
    assert_int_equal(tokenizer_vocab_size(back), n), assert_int_equal(tokenizer_eot(back), n - 1);
    ENDED(token_ids_free) TokenIds a = {0}, b = {0};
    static const char text[] = "then the other\n caf\xc3\xa9 \xff 123 <|endoftext|>";
    tokenizer_encode(made, text, sizeof text, &a), tokenizer_encode(back, text, sizeof text, &b);
    same_bytes(a.id, a.n * sizeof *a.id, b.id, b.n * sizeof *a.id);
}

// ---- there and back

// What m.gguf holds.
static void open_model(Made *made)
{
    *made = (Made){.dev = dev_cpu_create(1), .g = gguf_open(in_dir("m.gguf"))};
    config_defaults(&made->cfg);
    gguf_model_config(made->g, &made->cfg);
    ModelShape shape = run_shape(&made->cfg);
    made->m = model_allocate(&shape, made->dev, &made->mem, 1, T, false);
    gguf_model_load(made->g, made->m);
    OWN(Tokenizer) *t = gguf_model_tokenizer(made->g);
}

static void expect_back(const char *settings, GgufType type, double bound)
{
    ENDED(drop) Made made, back;
    save(&made, settings, type);
    open_model(&back);
    ModelShape a = run_shape(&made.cfg), b = run_shape(&back.cfg);
    assert_memory_equal(&a.rotary, &b.rotary, sizeof a.rotary);
    assert_true(a.tie == b.tie && a.bias == b.bias && a.qk_norm == b.qk_norm && a.rope == b.rope && a.norm == b.norm);
    assert_true(a.norm_place == b.norm_place && a.swiglu == b.swiglu && a.norm_eps == b.norm_eps && a.heads == b.heads);
    assert_true(a.experts.n == b.experts.n && a.experts.k == b.experts.k && a.experts.ffn == b.experts.ffn);
    assert_true(a.experts.renorm == b.experts.renorm && a.kv_heads == b.kv_heads && a.ffn == b.ffn);
    assert_true(a.vocab == b.vocab && a.context == b.context);
    assert_int_equal(back.m->params.n_elems, made.m->params.n_elems);
    for (size_t i = 0; i < made.m->params.n_elems; i++) {
        double x = made.m->weights[i], error = fabs(x - back.m->weights[i]);
        if (error > bound * fabs(x)) fail_msg("element %zu is %g and was %g", i, back.m->weights[i], x);
    }
}

TEST_IN_DIR(test_back)
{
    const char *const all[] = {llama, biased, qwen, gpt2, scaled, yarn, mixtral, qwen_moe, olmoe_ffn, olmo2};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) expect_back(all[i], GGUF_F32, 0);
    expect_back(llama, GGUF_BF16, 1.0 / 256), expect_back(gpt2, GGUF_F16, 1.0 / 2048);
    // Only ffn.down has rows of whole blocks; the others are F16. It begins behind V C = 3240 elements, and elements
    // count up, so in a block none is below the largest / 1.01. x is off by at most half of d, the largest / 254, and
    // by what d, as fp16, is off: 2^-11. Together 1.01 / 254 + 1.01 / 2048 < 1 / 223.
    expect_back(llama, GGUF_Q8_0, 1.0 / 223);
}

// ---- blocks of few bits, as their definitions have them

static void put(FILE *f, const void *data, size_t n)
{
    assert_int_equal(fwrite(data, 1, n, f), n);
}

static void put_u32(FILE *f, uint32_t x) { put(f, &x, 4); }
static void put_u64(FILE *f, uint64_t x) { put(f, &x, 8); }
static void put_string(FILE *f, const char *s) { put_u64(f, strlen(s)), put(f, s, strlen(s)); }

// A key alone: `n` numbers of layers, where n is not 1 as an array.
static void write_numbers(const char *key, size_t n, const uint32_t *number)
{
    FILE *f = fopen(in_dir("b.gguf"), "wb");
    put(f, "GGUF", 4), put_u32(f, 2), put_u64(f, 0), put_u64(f, 1), put_string(f, key);
    if (n != 1) put_u32(f, GGUF_ARRAY);
    put_u32(f, GGUF_U32);
    if (n != 1) put_u64(f, n);
    put(f, number, 4 * n);
    assert_int_equal(fclose(f), 0);
}

// A number for each layer is one number where they are the same. The file is of version 2.
TEST_IN_DIR(test_numbers)
{
    static const char key[] = "llama.attention.head_count_kv";
    write_numbers(key, 3, (uint32_t[]){4, 4, 4});
    Gguf *g = gguf_open(in_dir("b.gguf"));
    assert_true(gguf_number(g, key, 0) == 4);
    gguf_close(g);
    const struct { const char *key, *words; size_t n; } bad[] = {
        {key, "head_count_kv: 4, and 2 for layer 2: one for all", 3}, {key, "head_count_kv: a number is needed", 0},
        {"split.count", "split.count = 4: one of so many files (make one of them: llama-gguf-split --merge)", 1}};
    for (int i = 0; i < 3; i++) {
        Config cfg;
        write_numbers(bad[i].key, bad[i].n, (uint32_t[]){4, 4, 2});
        g = gguf_open(in_dir("b.gguf"));
        if (i < 2) expect_dies(bad[i].words, gguf_number(g, key, 0));
        else expect_dies(bad[i].words, gguf_model_config(g, &cfg));
        gguf_close(g);
    }
}

// One tensor of `rows` rows of 32 numbers.
static void write_blocks(uint32_t type, const void *data, size_t n, uint64_t rows, uint64_t offset)
{
    FILE *f = fopen(in_dir("b.gguf"), "wb");
    put(f, "GGUF", 4), put_u32(f, 3), put_u64(f, 1), put_u64(f, 1);
    put_string(f, "general.alignment"), put_u32(f, GGUF_U32), put_u32(f, 64);
    put_string(f, "w"), put_u32(f, 2), put_u64(f, 32), put_u64(f, rows), put_u32(f, type), put_u64(f, offset);
    while (ftell(f) % 64) put(f, "", 1);
    put(f, data, n);
    assert_int_equal(fclose(f), 0);
}

static void read_block(float *x, GgufType type, const void *data, size_t n)
{
    write_blocks(type, data, n, 1, 0);
    OWN(Gguf) *g = gguf_open(in_dir("b.gguf"));
    gguf_to_float(x, gguf_tensor(g, "w"));
}

TEST_IN_DIR(test_blocks)
{
    uint8_t block[34] = {0x00, 0x38}, wide[20] = {0x00, 0x38, 0x00, 0xc0}; // fp16 0.5; 0.5, -2
    float x[32];
    for (int i = 0; i < 32; i++) block[2 + i] = (uint8_t)(int8_t)(i - 16);
    read_block(x, GGUF_Q8_0, block, 34);
    for (int i = 0; i < 32; i++) assert_true(x[i] == 0.5f * (float)(i - 16));
    for (int i = 0; i < 16; i++) block[2 + i] = (uint8_t)(i | (15 - i) << 4); // low halves 0..15, high ones 15..0
    read_block(x, GGUF_Q4_0, block, 18);
    for (int i = 0; i < 32; i++) assert_true(x[i] == 0.5f * (float)((i < 16 ? i : 31 - i) - 8));
    memcpy(wide + 4, block + 2, 16);
    read_block(x, GGUF_Q4_1, wide, 20);
    for (int i = 0; i < 32; i++) assert_true(x[i] == 0.5f * (float)(i < 16 ? i : 31 - i) - 2);
    // Written: the largest becomes 127.
    float in[32];
    for (int i = 0; i < 32; i++) in[i] = (float)(i - 20) / 20;
    gguf_from_float(block, GGUF_Q8_0, in, 32);
    const int8_t *got = (const int8_t *)block + 2;
    assert_true(got[0] == -127 && got[20] == 0 && got[30] == 64); // 0.5 x 127 = 63.5
    assert_int_equal(block[0] | block[1] << 8, formats_encode(FORMAT_FP16, 1.0f / 127, false));
}

// ---- what is refused

// Writes n bytes over m.gguf, `skip` bytes behind the text that is found there.
static void patch(const char *text, long skip, const void *bytes, size_t n)
{
    size_t size;
    FREED char *all = take_file("m.gguf", &size);
    char *at = memmem(all, size, text, strlen(text));
    assert_non_null(at);
    memcpy(at + strlen(text) + skip, bytes, n);
    put_bytes("m.gguf", all, size);
}

static void expect_refused(const char *settings, const char *text, long skip, const void *bytes, size_t n,
                           const char *words)
{
    ENDED(drop) Made made;
    Made back;
    save(&made, settings, GGUF_F32);
    patch(text, skip, bytes, n);
    expect_dies(words, open_model(&back));
}

TEST_IN_DIR(test_refused_experts)
{
    uint32_t five = 5;
    expect_refused(mixtral, "llama.expert_count", 4, &five, 4, "blk.1.ffn_up_exps.weight has another shape than the "
                   "keys say: 5 x 64 x 12");
    expect_refused(mixtral, "llama.expert_used_count", 4, &five, 4, "llama.expert_used_count = 5 of 3 experts");
    expect_refused(mixtral, "blk.0.ffn_gate_inp", 0, ".weighs", 7, "no tensor blk.0.ffn_gate_inp.weight");
    expect_refused(qwen_moe, "qwen3moe.expert_feed_forward_length", 4, &five, 4, "up_exps.weight has another shape");
    expect_refused(qwen_moe, "qwen3moe.expert_count", 0, &(uint32_t){77}, 4, "expert_count: a value of type 77");
    static const struct { const char *settings, *other, *words; } rows[] = {
        {qwen_moe, "experts_dense=1", "model.experts_dense: llama.cpp's qwen3moe has experts in all"},
        {qwen_moe, "experts_every=2", "model.experts_every: llama.cpp's"},
        {qwen_moe, "experts_renorm=false", "model.experts_renorm: llama.cpp's qwen3moe has experts in all"},
        {olmoe, "experts_renorm=true", "model.experts_renorm: llama.cpp's olmoe has experts in all layers, and"},
        {olmoe, "tie=true", "model.tie: llama.cpp's olmoe has a head of its own"},
        {olmoe, "kv_heads=1", "model.kv_heads: llama.cpp's olmoe"}};
    expect_refused(qwen_moe, "general.quantization_version", -28, "qwen3moe.attention.clamp_kqv", 28,
                   "qwen3moe.attention.clamp_kqv = 2: queries, keys and values are not clipped");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char all[300];
        Made made;
        snprintf(all, sizeof all, "%s %s", rows[i].settings, rows[i].other);
        expect_dies(rows[i].words, save(&made, all, GGUF_F32));
    }
}

TEST_IN_DIR(test_refusals)
{
    static const uint8_t zeros[64];
    write_blocks(12, zeros, 34, 1, 0);
    expect_dies("tensor w is of type 12, Q4_K (F32, F16, BF16, Q8_0, Q4_0 and Q4_1 are read)",
                gguf_open(in_dir("b.gguf")));
    write_blocks(99, zeros, 34, 1, 0);
    expect_dies("is of type 99 (", gguf_open(in_dir("b.gguf")));
    write_blocks(GGUF_Q8_0, zeros, 33, 1, 0);
    expect_dies("34 bytes at 0 of the data", gguf_open(in_dir("b.gguf")));
    write_blocks(GGUF_Q8_0, zeros, 34, 1, 64);
    expect_dies("34 bytes at 64 of the data", gguf_open(in_dir("b.gguf")));
    write_blocks(GGUF_Q8_0, zeros, 34, UINT64_MAX / 16, 0);
    expect_dies("dimension 1 is", gguf_open(in_dir("b.gguf")));
    write_blocks(GGUF_Q8_0, zeros, 34, 0, 0);
    expect_dies("dimension 1 is 0", gguf_open(in_dir("b.gguf")));
    uint64_t huge = UINT64_MAX;
    uint32_t one = 1, big = 3u << 24, none = 77, seven = 7;
    expect_refused(llama, "GGUF", 0, &one, 4, "GGUF version 1 (2 and 3 are read");
    expect_refused(llama, "GGUF", 0, &big, 4, "big-endian");
    expect_refused(llama, "GGUF", 4, &huge, 8, "18446744073709551615 tensors");
    expect_refused(llama, "GGUF", 12, &huge, 8, "18446744073709551615 keys");
    expect_refused(llama, "GGUF", 20, &huge, 8, "a key of 18446744073709551615 bytes");
    expect_refused(llama, "llama.block_count", 0, &none, 4, "key llama.block_count: a value of type 77");
    expect_refused(llama, "tokenizer.ggml.tokens", 8, &huge, 8, "18446744073709551615 elements");
    expect_refused(llama, "llama.block_count", 4, &none, 4, "no tensor blk.76.ffn_up.weight");
    expect_refused(llama, "llama.attention.head_count_kv", 4, &seven, 4, "attention.head_count = 3 heads of 4, head_count_kv = 7, ");
    expect_refused(llama, "llama.feed_forward_length", 4, &seven, 4, "blk.1.ffn_up.weight has another shape");
    expect_refused(llama, "llama.rope.dimension_count", 4, &one, 4, "all of a head is turned");
    expect_refused(llama, "general.architecture", 4 + 8, "mamba", 5, "general.architecture = mamba: not known here");
    expect_refused(llama, "tokenizer.ggml.pre", 4 + 8, "gpt-9", 5, "tokenizer.ggml.pre = gpt-9: not known here");
    expect_refused(llama, "tokenizer.ggml.model", 4 + 8, "bert", 4, "tokenizer.ggml.model = bert: not known here (gpt");
    expect_refused(llama, "blk.0.attn_q", 0, ".weighs", 7, "no tensor blk.0.attn_q.weight");
    // Two tensors of one place. The offset stands behind the name, the number of dimensions, one of them, and the type.
    expect_refused(llama, "output_norm.weight", 4 + 8 + 4, &(uint64_t){0}, 8, "overlap (damaged?)");
}

// Every file that is cut short is refused, wherever it is.
TEST_IN_DIR(test_cut)
{
    ENDED(drop) Made made;
    Made back;
    save(&made, llama, GGUF_F32);
    size_t size;
    FREED char *all = take_file("m.gguf", &size);
    for (size_t n = 0; n < size; n += n < 600 ? 7 : 1999) {
        put_bytes("m.gguf", all, n);
        expect_dies("m.gguf: ", open_model(&back));
    }
}

TESTS(NULL, NULL)
