// Fuzzes the reader of tiktoken's rank files: base64, ranks, and the merges that have to be derived from them.
#include "tokenize.h"

void fuzz_seeds(void)
{
    char path[300];
    size_t n;
    snprintf(path, sizeof path, "%s/ranks", fuzz_dir());
    Tokenizer *t = small_tokenizer("gpt2");
    tokenizer_save_ranks(t, path);
    const char *bytes = slurp("ranks", &n);
    fuzz_seed("ranks", bytes, n);
    tokenizer_free(t);
}

void fuzz_one(const uint8_t *data, size_t n)
{
    Tokenizer *t = tokenizer_load_ranks(fuzz_file("ranks", data, n), n % 2 ? "gpt2" : "cl100k");
    use_tokenizer(t);
    use_again(t);
    tokenizer_free(t);
}
