// Fuzzes encoding: any bytes give ids that decode to the same bytes, in one piece or cut into texts.
#include "tokenize.h"

static Tokenizer *tokenizer[2];

void fuzz_begin(void)
{
    tokenizer[0] = small_tokenizer("gpt2");
    tokenizer[1] = small_tokenizer("cl100k");
}

void fuzz_seeds(void)
{
    const char *text[] = {"The cat's hat, 1234  \n\n and\tthe rat!",
                          "caf\xC3\xA9 \xE2\x80\xA8 \xF0\x9F\x98\x80 \xFF\xFE\xC0\x80",
                          "<|endoftext|>'ll'VE'\xC5\xBF   x\r\n\r\n  y  ",
                          "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
    for (int i = 0; i < 4; i++) fuzz_seed((char[]){'t', (char)('0' + i), 0}, text[i], strlen(text[i]));
}

void fuzz_one(const uint8_t *data, size_t n)
{
    for (int k = 0; k < 2; k++) {
        TokenIds ids = {0}, twice = {0};
        size_t at = 0, n_bytes;
        tokenizer_encode(tokenizer[k], (const char *)data, n, &ids);
        for (size_t i = 0; i < ids.n; i++) {
            const char *bytes = tokenizer_decode(tokenizer[k], ids.id[i], &n_bytes);
            fuzz_check(ids.id[i] != tokenizer_eot(tokenizer[k]));
            fuzz_check(at + n_bytes <= n && !memcmp(data + at, bytes, n_bytes));
            at += n_bytes;
        }
        fuzz_check(at == n);
        const TokenizerText texts[2] = {{(const char *)data, n}, {(const char *)data, n / 2}};
        size_t end[2];
        tokenizer_encode_texts(tokenizer[k], texts, 2, 1, &twice, end);
        fuzz_check(end[0] == ids.n && (!ids.n || !memcmp(twice.id, ids.id, ids.n * sizeof *ids.id)));
        token_ids_free(&ids);
        token_ids_free(&twice);
    }
}
