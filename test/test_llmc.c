// Tests of llmc: the bytes of a model file of llm.c, stated here a second time, and the way back.

#include "test/test.h"

#include "expect_die.h"
#include "temp_dir.h"

#include "formats/formats.h"
#include "models/llmc.h"
#include "ops/dev_cpu.h"
#include "train/run.h"

OWNER(Model, model_free)

enum { L = 2, C = 6, H = 3, V = 130, PADDED = 256, T = 5, HEADER = 256 };
enum {
    BLOCK = 4 * C + 3 * C * C + 3 * C + C * C + C + 4 * C * C + 4 * C + 4 * C * C + C,
    N = PADDED * C + T * C + L * BLOCK + 2 * C
};

static Dev *dev;
static Mem mem;

static Model *make(Config *cfg)
{
    static const char *const settings[][2] = {{"layers", "2"}, {"channels", "6"}, {"heads", "3"}, {"kv_heads", "3"},
        {"head_size", "2"}, {"ffn", "24"}, {"vocab", "130"}, {"context", "5"}};
    config_defaults(cfg);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        char name[80];
        snprintf(name, sizeof name, "model.%s", settings[i][0]);
        config_set(cfg, name, settings[i][1], "test");
    }
    ModelShape shape = run_shape(cfg);
    Model *m = model_allocate(&shape, dev, &mem, 1, T, false);
    for (size_t i = 0; i < m->params.n_elems; i++) m->weights[i] = (float)(i % 251) / 64; // bf16 holds them
    return m;
}

// llm.c's order: ParameterTensors of train_gpt2.c; every kind for all layers.
static const float *expected(const Model *m)
{
    static float all[N];
    static const char *const kinds[][3] = {
        {"embed.tokens.weight"}, {"embed.positions.weight"}, {"attn_norm.weight"}, {"attn_norm.bias"},
        {"attn.q.weight", "attn.k.weight", "attn.v.weight"}, {"attn.q.bias", "attn.k.bias", "attn.v.bias"},
        {"attn.out.weight"}, {"attn.out.bias"}, {"ffn_norm.weight"}, {"ffn_norm.bias"}, {"ffn.up.weight"},
        {"ffn.up.bias"}, {"ffn.down.weight"}, {"ffn.down.bias"}, {"final_norm.weight"}, {"final_norm.bias"}};
    size_t at = 0;
    memset(all, 0, sizeof all);
    for (int k = 0; k < 16; k++)
        for (int l = 0; l < (k < 2 || k > 13 ? 1 : L); l++)
            for (int p = 0; p < 3 && kinds[k][p]; p++) {
                char name[80];
                if (k < 2 || k > 13) snprintf(name, sizeof name, "%s", kinds[k][p]);
                else snprintf(name, sizeof name, "layers.%d.%s", l, kinds[k][p]);
                int r = params_find(&m->params, name);
                assert_true(r >= 0);
                const Param *row = &m->params.row[r];
                memcpy(all + at, m->weights + row->offset, row->n_elems * sizeof *all);
                at += k ? row->n_elems : PADDED * C;
            }
    assert_int_equal(at, N);
    return all;
}

static Config config_of_file(void)
{
    Config cfg;
    config_defaults(&cfg);
    llmc_config(in_dir("m.bin"), &cfg);
    return cfg;
}

TEST_IN_DIR(test_bytes)
{
    Config cfg;
    OWN(Model) *m = make(&cfg);
    for (int bf16 = 0; bf16 < 2; bf16++) {
        const float *want = expected(m);
        llmc_save(in_dir("m.bin"), m, bf16);
        assert_true(llmc_is_file(in_dir("m.bin")));
        size_t n, bytes = bf16 ? 2 : 4;
        FREED char *file = take_file("m.bin", &n);
        const int32_t head[] = {20240326, bf16 ? 5 : 3, T, V, L, H, C, PADDED, 0};
        assert_memory_equal(file, head, sizeof head);
        assert_int_equal(n, 4 * HEADER + N * bytes);
        for (size_t i = 0; i < N; i++) {
            const char *at = file + 4 * HEADER + i * bytes;
            float got = bf16 ? formats_decode(FORMAT_BF16, *(const uint16_t *)at) : *(const float *)at;
            if (got != want[i]) fail_msg("element %zu is %g, not %g", i, got, want[i]);
        }
        Config back = config_of_file();
        ModelShape shape = run_shape(&back);
        OWN(Model) *again = model_allocate(&shape, dev, &mem, 1, T, false);
        llmc_load(in_dir("m.bin"), again);
        assert_int_equal(again->params.n_elems, m->params.n_elems);
        assert_memory_equal(again->weights, m->weights, m->params.n_elems * sizeof *m->weights);
    }
}

TEST_IN_DIR(test_refusals)
{
    static const struct { int at; int32_t value; const char *words; } rows[] = {
        {1, 4, "version 4 of llm.c's model files"}, {2, 6, "and its header says"}, {4, 0, "header number 4 is 0"},
        {6, 1 << 30, "header number 6 is 1073741824"}, {5, 4, "6 channels in 4 heads"}, {7, 129, "130 in 129 rows"},
        {0, 1, "version 3 of"}};
    Config cfg;
    OWN(Model) *m = make(&cfg);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t n;
        llmc_save(in_dir("m.bin"), m, false);
        FREED char *bytes = take_file("m.bin", &n);
        memcpy(bytes + 4 * rows[i].at, &rows[i].value, 4);
        put_bytes("m.bin", bytes, n);
        expect_dies(rows[i].words, config_of_file());
    }
    assert_int_equal(truncate(in_dir("m.bin"), 100), 0);
    expect_dies("shorter than its header", config_of_file());
    const char *words = "llm.c's files hold GPT-2 with a tied head";
    expect_dies(words, m->shape.tie = false, llmc_save(in_dir("other.bin"), m, false));
    expect_dies(words, m->shape.ffn = 25, llmc_save(in_dir("other.bin"), m, false));
}

int main(void)
{
    dev = dev_cpu_create(1);
    int failed = RUN_TESTS(NULL, NULL);
    mem_free_all(&mem);
    dev_cpu_free(dev);
    return failed;
}
