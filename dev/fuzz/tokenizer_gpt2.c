// Fuzzes the reader of GPT-2's two files: vocab.json, a line of four dashes, merges.txt.
#include "tokenize.h"

void fuzz_seeds(void)
{
    static char both[1 << 16];
    size_t n_vocab, n_merges;
    Tokenizer *t = small_tokenizer("gpt2");
    tokenizer_save_gpt2(t, fuzz_dir());
    memcpy(both, slurp("vocab.json", &n_vocab), sizeof both / 2);
    memcpy(both + n_vocab, "\n----\n", 6);
    const char *merges = slurp("merges.txt", &n_merges);
    memcpy(both + n_vocab + 6, merges, n_merges);
    fuzz_seed("both", both, n_vocab + 6 + n_merges);
    tokenizer_free(t);
}

void fuzz_one(const uint8_t *data, size_t n)
{
    size_t second, first = fuzz_cut(data, n, &second);
    clean_folder();
    fuzz_file("vocab.json", data, first);
    fuzz_file("merges.txt", data + second, n - second);
    Tokenizer *t = tokenizer_load(fuzz_dir());
    use_tokenizer(t);
    use_again(t);
    tokenizer_free(t);
}
