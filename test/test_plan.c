// test_plan: the plan's bytes against what the allocator counts when the buffers are really made, for every
// switch of the model, and for every precision with every optimizer and every recomputation; the formulas against the
// same, and the parser of formulas; and the account as JSON.
//
// (test_account.sh and test_dump.sh do the same from outside: build/plan against runs' account.json.)
// deeper: every number format with every optimizer and every recomputation, not one in eleven

#include "test/test.h"

#include "src/check/account.h"
#include "expect_die.h"
#include "narrow/narrow.h"
#include "dev/plan/plan.h"
#include "parallel/ranks.h"
#include "temp_dir.h"

#include <jansson.h>
#include <omp.h>

#define GPT "--model.layers=3", "--model.channels=24", "--model.heads=4", "--model.context=10", "--batch.tokens=60", \
            "--batch.micro=2"
#define LLAMA GPT, "--model.norm=rmsnorm", "--model.activation=swiglu", "--model.position=rope", "--model.bias=false", \
              "--model.tie=false"

// Every switch that changes a size, both ways in either family; 37 and 70000 tokens: one chunk of logits, and several.
static const char *const cases[][18] = {
    {GPT, "--model.vocab=37"}, {GPT, "--model.vocab=37", "--model.tie=false", "--model.kv_heads=2", "--batch.micro=6"},
    {GPT, "--model.vocab=37", "--model.bias=false", "--model.qk_norm=true", "--model.head_size=10"},
    {GPT, "--model.vocab=70000", "--model.activation=swiglu", "--batch.micro=30", "--batch.tokens=600"},
    {GPT, "--model.vocab=37", "--model.activation=relu2", "--batch.micro=3"}, {LLAMA, "--model.vocab=37"},
    {LLAMA, "--model.vocab=37", "--model.kv_heads=1", "--model.qk_norm=true"},
    {LLAMA, "--model.vocab=37", "--model.kv_heads=2", "--model.qk_norm=whole"},
    {LLAMA, "--model.vocab=37", "--model.tie=true", "--model.kv_heads=2", "--batch.micro=3", "--model.ffn=7"},
    {LLAMA, "--model.vocab=37", "--model.qk_norm=whole", "--model.norm_place=output"},
    {GPT, "--model.vocab=37", "--model.norm_place=output", "--batch.micro=3"},
    {LLAMA, "--model.vocab=37", "--model.bias=true", "--batch.micro=1", "--model.layers=1"},
    {LLAMA, "--model.vocab=37", "--model.window=3", "--model.window_pattern=sf"},
    {LLAMA, "--model.vocab=37", "--model.window=3", "--model.context=480", "--batch.tokens=960", "--batch.micro=2",
     "--model.window_pattern=ssf"}, // the cache of two layers is shorter
};
enum { N_CASES = sizeof cases / sizeof *cases };

static Config cfg; // large: not on the stack
static Run planned, real;

static void configure(const char *const *options)
{
    config_defaults(&cfg);
    config_set(&cfg, "run.steps", "4", "test");
    for (int i = 0; i < 18 && options[i]; i++) {
        const char *equals = strchr(options[i], '=');
        config_set(&cfg, formatted("%.*s", (int)(equals - options[i] - 2), options[i] + 2), equals + 1, "test");
    }
    config_resolve(&cfg);
}

// ---- memory

static void assert_formula(MemTag tag, const Mem *held)
{
    PlanFormula f = plan_formula(&planned, tag);
    assert_int_equal(planned.mem.tag_bytes[tag], held->tag_bytes[tag]);
    assert_int_equal(planned.mem.tag_peak[tag], held->tag_peak[tag]);
    assert_int_equal(f.n_bytes, held->tag_bytes[tag]);
    assert_true(strlen(f.symbols) < sizeof f.symbols - 1); // not cut off
    PlanLetters none = {.n = 0};
    assert_int_equal(plan_evaluate(&none, f.symbols[0] == '0' ? "0" : f.numbers, NULL, 0), f.n_bytes);
}

static void run_one_step(void)
{
    size_t B = (size_t)cfg.batch.micro, T = (size_t)cfg.model.context, n = (size_t)cfg.batch.tokens;
    for (size_t i = 0; i < n; i++) {
        real.data.token[i] = (int32_t)(i * 7 % (size_t)cfg.model.vocab);
        real.data.target[i] = (int32_t)((i + 1) * 7 % (size_t)cfg.model.vocab);
    }
    for (long micro = 0; micro < cfg.batch.accum; micro++) {
        size_t at = (size_t)micro * B * T;
        model_set_batch(real.model, real.data.token + at, NULL, real.data.target + at, B, T);
        if (real.data.first) model_set_documents(real.model, real.data.first + at);
        model_forward_backward(real.model, 1 / (float)n);
    }
    model_step_finish(real.model);
}

// A planned run and a real one, whose buffers are asked for by run_allocate and which makes an update behind a sealed
// door.
static void compare(Dev *dev, Replicas replicas)
{
    plan_open(&planned, &cfg, dev, 0);
    real = (Run){.cfg = cfg, .dev = dev, .replicas = replicas};
    run_allocate(&real);
    params_init(&real.model->params, 1, real.model->weights);
    model_weights_changed(real.model);
    if (cfg.numerics.dtype == CONFIG_DTYPE_FP8) fp8_set_sites(dev->fp8, &real.model->params, "");
    mem_seal(&real.mem);
    run_one_step();
    assert_true(isfinite(optim_step(&real.optim, real.model, 1e-3)));
    for (int tag = 0; tag < MEM_TAGS; tag++) assert_formula((MemTag)tag, &real.mem);
    assert_true(planned.mem.bytes == real.mem.bytes && planned.mem.peak == real.mem.peak);
    assert_true(real.mem.tag_bytes[MEM_ACTS] > 0);
    PlanMoved moved = plan_moved(&planned);
    assert_int_equal(moved.out, real.model->pool.bytes_out);
    assert_int_equal(moved.in, real.model->pool.bytes_in);
    plan_close(&planned);
    run_free(&real);
    ranks_part(&real.replicas);
}

TEST(test_plan_is_the_run)
{
    Dev *dev = dev_cpu_create(1);
    for (int i = 0; i < N_CASES; i++) {
        configure(cases[i]);
        compare(dev, replicas_alone(NULL));
    }
    dev_cpu_free(dev);
}

// Every numerics.dtype with every optim.name and every memory.recompute; compression, document masks, deterministic
// sums, the family, tied heads and grouped queries change with the count, at different paces, so that each meets all.
TEST(test_every_combination)
{
    static const char *const options[18] = {"--model.vocab=400", "--model.channels=40", "--model.heads=4",
                                            "--model.context=6", "--model.layers=5", "--batch.micro=2",
                                            "--batch.tokens=36"};
    static const char *const llama[] = {"model.norm=rmsnorm", "model.activation=swiglu", "model.position=rope",
                                        "model.bias=false", "model.qk_norm=true"};
    for (int i = 0; i < 5 * OPTIM_NAMES * 6; i += deeper() ? 1 : 11) {
        int d = i % 5, name = i / 5 % OPTIM_NAMES, m = i / (5 * OPTIM_NAMES);
        bool is_llama = (i / 3) % 2, compress = (i / 5) % 2, documents = (i / 7) % 2, fixed = (i / 11) % 2;
        configure(options);
        cfg.numerics.dtype = d, cfg.optim.name = name, cfg.memory.recompute = m;
        for (int k = 0; is_llama && k < 5; k++) {
            char *key = formatted("%.*s", (int)(strchr(llama[k], '=') - llama[k]), llama[k]);
            config_set(&cfg, key, strchr(llama[k], '=') + 1, "test");
        }
        cfg.model.ffn = i % 3 ? 600 : 24; // one group of 256 in the largest row, and several
        cfg.model.tie = (i / 13) % 2;
        cfg.model.kv_heads = i % 5 ? 2 : 4;
        cfg.memory.compress = compress ? CONFIG_COMPRESS_INT8 : CONFIG_COMPRESS_NONE;
        cfg.memory.offload_acts = !compress && (i / 2) % 2 ? OFFLOAD_CPU : OFFLOAD_NONE;
        cfg.data.document_mask = documents;
        cfg.numerics.deterministic = fixed;
        Dev *cpu = dev_cpu_create(1), *dev = run_device(&cfg, cpu);
        compare(dev, fixed ? ranks_join(&cfg, NULL, 0) : replicas_alone(NULL));
        run_device_free(dev, cpu);
    }
}

// ---- formulas

TEST(test_formulas_are_read_as_written)
{
    const PlanLetters l = {
        .n = 3, .letter = {{.name = "L", .value = 7}, {.name = "P8", .value = 11}, {.name = "P", .value = 5}}};
    static const struct {
        const char *text, *numbers;
        size_t value;
    } good[] = {
        {"2 L (L + 1)", "2 * 7 * (7 + 1)", 112}, {"2L + 3 P8 P", "2 * 7 + 3 * 11 * 5", 179},
        {"P8 - P - 1 + L L", "11 - 5 - 1 + 7 * 7", 54}, {"3 ceil(L / 2)", "3 * ceil(7 / 2)", 12},
        {"ceil(2 P / 5) L", "ceil(2 * 5 / 5) * 7", 14},
        {"floor(log2(1)) + floor(log2(L)) + 10 floor(log2(L + 1))",
         "floor(log2(1)) + floor(log2(7)) + 10 * floor(log2(7 + 1))", 32},
        {"max(L, P) + 100 min(L, P) + max(3, 3)", "max(7, 5) + 100 * min(7, 5) + max(3, 3)", 510},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        char numbers[80];
        assert_int_equal(plan_evaluate(&l, good[i].text, numbers, sizeof numbers), good[i].value);
        assert_string_equal(numbers, good[i].numbers);
    }
}

TEST(test_a_byte_is_noticed)
{
    // A planned run whose buffers are not what its formula says.
    expect_dies("plan: activations: the formula N ", {
        Dev *dev = dev_cpu_create(1);
        configure(cases[0]);
        plan_open(&planned, &cfg, dev, 0);
        plan_checked(&planned, MEM_ACTS);
        mem_alloc(&planned.mem, MEM_ACTS, 1, "one byte");
        plan_checked(&planned, MEM_ACTS);
    });
}

// ---- account

TEST_IN_DIR(test_account_is_the_counters)
{
    char *path = in_dir("account.json");
    Mem mem = {0};
    mem_alloc(&mem, MEM_GRADS, 1000, "a");
    mem_alloc(&mem, MEM_SCRATCH, 7, "b");
    void *gone = mem_alloc(&mem, MEM_SCRATCH, 500, "c");
    mem_free(&mem, gone);
    Comm dp = {.count = {[COMM_ALL_GATHER] = {.calls = 3, .payload = 5, .sent = (size_t)1 << 40, .received = 9,
                                              .waited = 0.25}}};
    Comm control = {.count = {[COMM_ALL_REDUCE] = {.calls = 1, .sent = 8}}};
    Mesh mesh = {.group = {[MESH_REPLICAS] = &dp}};
    AccountRank rank[2] = {account_rank(&mem, NULL, NULL), account_rank(&mem, &mesh, &control)};
    rank[1].bytes[MEM_COMM] = 77;
    account_write(rank, 2, path);
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    char *got = json_dumps(root, JSON_COMPACT);
#define STATE "\"parameters\":0,\"gradients\":1000,\"optimizer\":0,\"activations\":0,"
#define REST "\"scratch\":7,\"host\":0,\"total\":1007,\"peak\":1507}"
    assert_string_equal(got, "{\"memory\":{\"0\":{" STATE "\"communication\":0," REST ",\"1\":{" STATE
                             "\"communication\":77," REST "},\"traffic\":{\"0\":{},\"1\":{\"dp\":{\"all_gather\":{"
                             "\"calls\":3,\"payload\":5,\"sent\":1099511627776,\"received\":9,\"waited\":0.25}},"
                             "\"control\":{\"all_reduce\":{\"calls\":1,\"payload\":0,\"sent\":8,\"received\":0,"
                             "\"waited\":0.0}}}}}");
    free(got);
    json_decref(root);
    mem_free_all(&mem);
}

int main(void)
{
    omp_set_num_threads(1); // hundreds of tiny models: waiting for a second thread would be most of the time
    return RUN_TESTS(NULL, NULL);
}
