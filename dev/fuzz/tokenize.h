// What the targets of tokenizers share: a small one to start from, and what must hold of one that was read.
#ifndef TOKENIZE_H
#define TOKENIZE_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "text/tokenizer.h"

static inline Tokenizer *small_tokenizer(const char *pattern)
{
    static const char text[] =
        "the cat and the hat; the rat sat on the mat, and that was that. Caf\xC3\xA9 1234 5678 !!";
    TokenizerTrainer *trainer = tokenizer_trainer_new(pattern);
    tokenizer_trainer_add(trainer, text, sizeof text - 1);
    return tokenizer_trainer_finish(trainer, 275);
}

// The content of a file of the scratch folder; static.
static inline const char *slurp(const char *name, size_t *n)
{
    static char bytes[1 << 16];
    char path[300];
    snprintf(path, sizeof path, "%s/%s", fuzz_dir(), name);
    FILE *f = fopen(path, "rb");
    *n = f ? fread(bytes, 1, sizeof bytes, f) : 0;
    if (f) fclose(f);
    return bytes;
}

// decode(encode(x)) == x, special tokens stand for no text, and ids are ids.
static inline void use_tokenizer(Tokenizer *t)
{
    static const char text[] = "the cat  and\tthe hat\n\xFF\xC3\xA9 123 <|endoftext|> that's";
    TokenIds ids = {0};
    size_t at = 0, n;
    tokenizer_encode(t, text, sizeof text - 1, &ids);
    for (size_t i = 0; i < ids.n; i++) {
        fuzz_check(ids.id[i] >= 0 && ids.id[i] < tokenizer_vocab_size(t));
        const char *bytes = tokenizer_decode(t, ids.id[i], &n);
        fuzz_check(at + n <= sizeof text - 1 && !memcmp(text + at, bytes, n));
        at += n;
    }
    fuzz_check(at == sizeof text - 1);
    fuzz_check(tokenizer_eot(t) < tokenizer_vocab_size(t));
    token_ids_free(&ids);
}

// Writes it and reads it again.
static inline void use_again(Tokenizer *t)
{
    int vocab = tokenizer_vocab_size(t);
    int32_t eot = tokenizer_eot(t);
    tokenizer_save(t, fuzz_dir());
    fuzz_must_take();
    Tokenizer *again = tokenizer_load(fuzz_dir());
    fuzz_check(tokenizer_vocab_size(again) == vocab && tokenizer_eot(again) == eot);
    tokenizer_free(again);
}
#endif
