// test_llmc_state: build/diff on a debug state of llm.c: each gradient is found where the format has it, and a file
// that does not fit is refused.

#include "test/test.h"

#include "base/rng.h"
#include "tools/safetensors.h"

#define PROGRAM "diff"
#include "program.h"

enum { L = 2, C = 8, V = 130, PADDED = 256, CONTEXT = 5, B = 2, T = 3, MOST = 64 };

// Ours, and where in llm.c's file they begin: floats after the loss.
typedef struct {
    char name[64];
    size_t shape[2], n, at;
    int ndim;
    float *data;
} Tensor;

static Tensor tensor[MOST];
static int n_tensors;
static size_t n_floats;

static void add(const char *name, size_t rows, size_t columns, size_t at)
{
    Tensor *t = &tensor[n_tensors++];
    snprintf(t->name, sizeof t->name, "grad.%s", name);
    t->shape[0] = rows, t->shape[1] = columns, t->ndim = columns ? 2 : 1;
    t->n = rows * (columns ? columns : 1), t->at = at;
    t->data = zeroed(t->n * sizeof *t->data);
    for (size_t i = 0; i < t->n; i++) t->data[i] = (float)rng_normal(rng_make(1, t->name, 0), i);
}

// llm.c's layout, written down a second time: kind by kind, in each layer by layer.
static void lay_out(void)
{
    size_t at = 0;
    char name[64];
    add("embed.tokens.weight", V, C, at), at += PADDED * C;
    add("embed.positions.weight", CONTEXT, C, at), at += CONTEXT * C;
    const struct { const char *name; size_t rows, columns; int stride; } block[] = {
        {"attn_norm.weight", C, 0, 1}, {"attn_norm.bias", C, 0, 1}, {"attn.q.weight", C, C, 3},
        {"attn.k.weight", C, C, 0}, {"attn.v.weight", C, C, 0}, {"attn.q.bias", C, 0, 3},
        {"attn.k.bias", C, 0, 0}, {"attn.v.bias", C, 0, 0},
        {"attn.out.weight", C, C, 1}, {"attn.out.bias", C, 0, 1}, {"ffn_norm.weight", C, 0, 1},
        {"ffn_norm.bias", C, 0, 1}, {"ffn.up.weight", 4 * C, C, 1}, {"ffn.up.bias", 4 * C, 0, 1},
        {"ffn.down.weight", C, 4 * C, 1}, {"ffn.down.bias", C, 0, 1}};
    for (size_t k = 0; k < sizeof block / sizeof *block; k += block[k].stride ? (size_t)block[k].stride : 1) {
        size_t one = block[k].rows * (block[k].columns ? block[k].columns : 1);
        for (size_t l = 0; l < L; l++)
            for (int part = 0; part < block[k].stride; part++) {
                snprintf(name, sizeof name, "layers.%zu.%s", l, block[k + (size_t)part].name);
                add(name, block[k].rows, block[k].columns, at), at += one;
            }
    }
    add("final_norm.weight", C, 0, at), at += C;
    add("final_norm.bias", C, 0, at), at += C;
    n_floats = at;
}

static void write_state(int32_t version, long more)
{
    enum { HEADER = 256 * 4, ZEROS = 2 * B * T * 4 + B * T * V * 4 + 4 };
    const int32_t header[] = {20240327, version, B, T};
    const size_t n = HEADER + ZEROS + n_floats * 4;
    FREED char *bytes = zeroed(n + 1);
    memcpy(bytes, header, sizeof header);
    for (int i = 0; i < n_tensors; i++)
        memcpy(bytes + HEADER + ZEROS + 4 * tensor[i].at, tensor[i].data, tensor[i].n * sizeof(float));
    put_bytes("state.bin", bytes, (size_t)((long)n + more));
}

static void write_ours(void)
{
    SafeTensor t[MOST];
    for (int i = 0; i < n_tensors; i++)
        t[i] = (SafeTensor){.name = tensor[i].name, .dtype = ST_F32, .ndim = tensor[i].ndim, .shape = tensor[i].shape,
                            .data = tensor[i].data};
    assert_true(safetensors_write(in_dir("ours"), t, n_tensors, NULL, 0, NULL, NULL, NULL, 0));
}

#define expect(status, text) expect_run("state.bin ours", status, text)

// One gradient after another is changed, and diff names it.
TEST(test_each_gradient_is_in_its_place)
{
    char words[200];
    write_ours();
    write_state(2, 0);
    expect(0, "llm.c's debug state, 2 x 3 tokens");
    snprintf(words, sizeof words, "identical: %d tensors, ", n_tensors);
    expect(0, words);
    for (int i = 0; i < n_tensors; i++) {
        tensor[i].data[tensor[i].n - 1] += 1;
        write_state(2, 0);
        snprintf(words, sizeof words, "DIFFERENT: first at %.60s; 1 of %d tensors", tensor[i].name, n_tensors);
        expect(1, words);
        tensor[i].data[tensor[i].n - 1] = (float)rng_normal(rng_make(1, tensor[i].name, 0), tensor[i].n - 1);
    }
}

TEST(test_what_does_not_fit_is_refused)
{
    write_ours();
    write_state(1, 0);
    expect(1, "error: state.bin: a debug state of version 1 with 2 sequences of 3 tokens (version 2 is read)");
    write_state(2, -4);
    expect(1, "error: state.bin: ends within grad.final_norm.bias");
    write_state(2, 1);
    expect(1, "error: state.bin: goes on after its gradients");
    write_state(2, -(long)(n_floats * 4) - 4);
    expect(1, "error: state.bin: ends within grad.embed.tokens.weight");
    expect_run("state.bin state.bin", 1, "the other side has neither grad.embed.tokens.weight nor weight.");
}

int main(void)
{
    lay_out();
    int failed = RUN_TESTS(program_set_up, temp_dir_remove);
    for (int i = 0; i < n_tensors; i++) free(tensor[i].data);
    return failed;
}
