// What the targets of tokenizers share: a small one to start from, and what must hold of one that was read.
#ifndef TOKENIZE_H
#define TOKENIZE_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

static const char use_text[] = "the cat  and\tthe hat\n\xFF\xC3\xA9 123 <|endoftext|> that's \xE2\x96\x81 a e\xCC\x81";

// Special tokens stand for no text and are not made from it, ids are ids, and decode(encode(x)) == x where that is
// promised.
static inline void use_tokenizer(Tokenizer *t)
{
    const Vocab *v = tokenizer_vocab(t);
    TokenIds ids = {0};
    size_t at = 0, n, n_text = sizeof use_text - 1;
    bool changed = v->has_unk || v->chars || v->nfc;
    tokenizer_encode(t, use_text, n_text, &ids);
    for (size_t i = 0; i < ids.n; i++) {
        fuzz_check(ids.id[i] >= 0 && ids.id[i] < tokenizer_vocab_size(t));
        bool unknown = v->has_unk && ids.id[i] == v->unk;
        fuzz_check(unknown || !v->special[ids.id[i]]);
        const char *bytes = tokenizer_decode(t, ids.id[i], &n);
        fuzz_check(changed || (at + n <= n_text && !memcmp(use_text + at, bytes, n)));
        at += n;
    }
    fuzz_check(changed || at == n_text);
    fuzz_check(tokenizer_eot(t) < tokenizer_vocab_size(t) && tokenizer_bos(t) < tokenizer_vocab_size(t));
    token_ids_free(&ids);
}

// Writes it and reads it again: the same ids, the same tokens at the ends.
static inline void use_again(Tokenizer *t)
{
    TokenIds before = {0}, after = {0};
    tokenizer_save(t, fuzz_dir());
    fuzz_must_take();
    Tokenizer *again = tokenizer_load(fuzz_dir());
    fuzz_check(tokenizer_vocab_size(again) == tokenizer_vocab_size(t) && tokenizer_eot(again) == tokenizer_eot(t));
    fuzz_check(tokenizer_bos(again) == tokenizer_bos(t));
    tokenizer_encode(t, use_text, sizeof use_text - 1, &before);
    tokenizer_encode(again, use_text, sizeof use_text - 1, &after);
    fuzz_check(after.n == before.n && (!after.n || !memcmp(after.id, before.id, after.n * sizeof *after.id)));
    token_ids_free(&before);
    token_ids_free(&after);
    tokenizer_free(again);
}

// Removes what an input before has left, and would be read with this one.
static inline void clean_folder(void)
{
    static const char *const name[] = {"tokenizer.json", "tokenizer.model", "tokenizer_config.json"};
    char path[300];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", fuzz_dir(), name[i]);
        unlink(path);
    }
}
#endif
