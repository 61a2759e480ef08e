// Fuzzes the reader of recipes: sources, and the table of keys.
#include "fuzz.h"

#include <string.h>

#include "data/prep/recipe.h"

void fuzz_seeds(void)
{
    fuzz_seed_file("scripts/recipes/stories.toml");
    fuzz_seed_file("scripts/recipes/web.toml");
    static const char all[] =
        "[recipe]\nout = \"o\"\nseed = 3\nthreads = 2\nunit = 0.5\n[source.a]\npath = a\nweight = 2\n"
        "[filter]\nrules = \"gopher\"\n"
        "set = \"gopher.words.min=60\"\n[dedup]\nexact = true\nnear = true\nthreshold = 0.7\n"
        "[contamination]\nevaluation = e\n"
        "ngram = 8\n[tokenizer]\nvocab = 1_000\npattern = cl100k\n[shards]\nval = 0.1\ndtype = uint32\ntokens = 1000\n";
    fuzz_seed("all", all, sizeof all - 1);
}

void fuzz_one(const uint8_t *data, size_t n)
{
    char option[] = "--shards.val=0.25", *options[] = {option};
    Recipe *r = recipe_load(fuzz_file("x.toml", data, n), options, 1);
    fuzz_check(r->sources.n > 0 && *r->recipe_out && r->shards_val == 0.25);
    fuzz_check(r->shards_tokens >= 1 && r->tokenizer_vocab >= 257 && r->dedup_threshold > 0);
    for (size_t i = 0; i < r->sources.n; i++) { // names become folders
        const char *name = r->sources.source[i].name;
        fuzz_check(*name && !strchr(name, '/') && !strchr(name, '.'));
    }
    recipe_free(r);
}
