// Fuzzes the reader of tokenizer.json: vocabulary, merges, added tokens, and the regular expression of other people.
#include "tokenize.h"

void fuzz_seeds(void)
{
    const char *patterns[] = {"gpt2", "cl100k"};
    for (int i = 0; i < 2; i++) {
        Tokenizer *t = small_tokenizer(patterns[i]);
        size_t n;
        tokenizer_save(t, fuzz_dir());
        const char *bytes = slurp("tokenizer.json", &n);
        fuzz_seed(patterns[i], bytes, n);
        tokenizer_free(t);
    }
}

void fuzz_one(const uint8_t *data, size_t n)
{
    fuzz_file("tokenizer.json", data, n);
    Tokenizer *t = tokenizer_load(fuzz_dir());
    use_tokenizer(t);
    use_again(t);
    tokenizer_free(t);
}
