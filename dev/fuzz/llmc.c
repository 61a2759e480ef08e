// Fuzzes the reader of llm.c's model files.
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "models/llmc.h"
#include "ops/dev_cpu.h"
#include "train/run.h"

static Dev *dev;

void fuzz_begin(void)
{
    dev = dev_cpu_create(1);
}

void fuzz_seeds(void)
{
    // Context 2, V 3, one layer, one head, C 2, V padded 4: 90 numbers.
    static int32_t file[256 + 90] = {20240326, 3, 2, 3, 1, 1, 2, 4};
    fuzz_seed("fp32", file, sizeof file);
    file[1] = 5;
    fuzz_seed("bf16", file, 256 * 4 + 90 * 2);
}

void fuzz_one(const uint8_t *data, size_t n)
{
    const char *path = fuzz_file("m.bin", data, n);
    if (!llmc_is_file(path)) return;
    Config cfg;
    config_defaults(&cfg);
    llmc_config(path, &cfg);
    ModelShape s = run_shape(&cfg);
    fuzz_check(s.heads && s.channels % s.heads == 0 && s.vocab && s.layers);
    Mem mem = {0};
    Model *m = model_allocate(&s, dev, &mem, 1, 1, false);
    llmc_load(path, m);
    const int32_t token = 0;
    model_set_batch(m, &token, NULL, &token, 1, 1);
    model_evaluate(m);
    model_free(m);
    mem_free_all(&mem);
}
