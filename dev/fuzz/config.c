// Fuzzes the reader of configurations. What it takes is written, and read again with the same values.
#include "fuzz.h"

#include <stdio.h>
#include <string.h>

#include "base/config.h"

void fuzz_seeds(void)
{
    fuzz_seed_file("scripts/presets/tiny.toml");
    fuzz_seed_file("scripts/presets/tiny-llama.toml");
    fuzz_seed_file("scripts/presets/stories.toml");
    fuzz_seed_file("scripts/presets/llama3-8b.toml");
    static const char all[] = "# comment\n[run]\nname = \"a\\tb \\u00e9\"\nsteps = 1_000\n[model]\npreset = tiny\n"
                              "dropout = 1e-1\n[optim]\nname = 'adamw'\n[numerics]\ndeterministic = true\n";
    fuzz_seed("values", all, sizeof all - 1);
}

void fuzz_one(const uint8_t *data, size_t n)
{
    static Config cfg, again;
    char out[300];
    config_defaults(&cfg);
    config_load_file(&cfg, fuzz_file("x.toml", data, n));
    config_resolve(&cfg);
    snprintf(out, sizeof out, "%s/out.toml", fuzz_dir());
    config_write(&cfg, out);
    fuzz_must_take();
    config_defaults(&again);
    config_load_file(&again, out);
    config_resolve(&again);
    fuzz_check(again.model.layers == cfg.model.layers && again.model.ffn == cfg.model.ffn);
    fuzz_check(again.run.steps == cfg.run.steps && again.optim.lr == cfg.optim.lr);
    fuzz_check(!strcmp(again.run.name, cfg.run.name));
}
