// tokenizer: byte-level BPE as GPT-2 does it, put together from its parts:
//
//   text --pretoken (regular expression)--> words --bpe (merges)--> ids      vocab: the tables, their files
//
// Invariant: decode(encode(x)) == x for every string of bytes, because every byte is a token, pieces cover
// the text, and a merge joins bytes without changing them.
//
// Encoding is fast because text repeats itself: the ids of a word are computed once and then found in a
// cache. The cache is bounded (CACHE_WORDS words, none over CACHE_BYTES bytes); when it is full it is emptied
// whole, and the common words are back at once. Rejected: least-recently-used lists, which cost more per hit
// than they save.
//
// Special tokens come from the caller, never from text: a document that contains the string <|endoftext|>
// must not be able to end itself. Rejected: recognising them in text, as Hugging Face's encode does by
// default.
#include "tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "bpe.h"
#include "check.h"
#include "pretoken.h"
#include "vocab.h"
#include "words.h"

enum { CACHE_WORDS = 1 << 20, CACHE_BYTES = 64 };

struct Tokenizer {
    Vocab vocab;
    Bpe bpe;
    Pretoken *pretoken;
    int32_t byte_id[256];
    Words cached;      // words already encoded
    size_t *cached_at; // where their ids start in cached_ids, (cached.n + 1) in use
    size_t cap_cached_at;
    TokenIds cached_ids;
};

struct TokenizerTrainer {
    char *pattern;
    Pretoken *pretoken;
    Words words;
    int64_t *count; // (words.n)
    size_t cap_count;
};

void token_ids_push(TokenIds *ids, int32_t id)
{
    ids->id = words_grow(ids->id, &ids->cap, ids->n + 1, sizeof *ids->id);
    ids->id[ids->n++] = id;
}

void token_ids_free(TokenIds *ids)
{
    free(ids->id);
    *ids = (TokenIds){0};
}

// Takes the tables; they must be complete.
static Tokenizer *from_vocab(Vocab vocab)
{
    Tokenizer *t = calloc(1, sizeof *t);
    if (!t) die("memory: no room for a tokenizer");
    t->vocab = vocab;
    t->bpe = bpe_index(t->vocab.merge, t->vocab.n_merges);
    t->pretoken = pretoken_new(t->vocab.pattern);
    for (int b = 0; b < 256; b++) {
        char byte = (char)b;
        t->byte_id[b] = (int32_t)words_find(&t->vocab.token, &byte, 1);
        check(t->byte_id[b] >= 0);
    }
    return t;
}

Tokenizer *tokenizer_load(const char *dir)
{
    return from_vocab(vocab_load(dir));
}

void tokenizer_save(const Tokenizer *t, const char *dir)
{
    vocab_save(&t->vocab, dir);
}

void tokenizer_free(Tokenizer *t)
{
    if (!t) return;
    vocab_free(&t->vocab);
    bpe_free(&t->bpe);
    pretoken_free(t->pretoken);
    words_free(&t->cached);
    free(t->cached_at);
    token_ids_free(&t->cached_ids);
    free(t);
}

// ---- training ----
TokenizerTrainer *tokenizer_trainer_new(const char *pattern)
{
    if (!pretoken_regex(pattern)) die("tokenizer: pattern: '%s' (use gpt2 or cl100k)", pattern);
    TokenizerTrainer *trainer = calloc(1, sizeof *trainer);
    if (!trainer || !(trainer->pattern = strdup(pattern))) die("memory: no room for a tokenizer");
    trainer->pretoken = pretoken_new(pattern);
    return trainer;
}

void tokenizer_trainer_add(TokenizerTrainer *trainer, const char *text, size_t n_bytes)
{
    const char *piece;
    size_t n;
    pretoken_begin(trainer->pretoken, text, n_bytes);
    while (pretoken_next(trainer->pretoken, &piece, &n)) {
        size_t known = trainer->words.n;
        uint32_t w = words_add(&trainer->words, piece, n);
        if (w == known) {
            trainer->count =
                words_grow(trainer->count, &trainer->cap_count, known + 1, sizeof *trainer->count);
            trainer->count[w] = 0;
        }
        trainer->count[w]++;
    }
}

Tokenizer *tokenizer_trainer_finish(TokenizerTrainer *trainer, int vocab_size)
{
    if (vocab_size < 257)
        die("tokenizer: vocabulary of %d tokens (257 or more: 256 bytes and end-of-text)", vocab_size);
    if (!trainer->words.n) die("tokenizer: no text to train on (is the input empty?)");
    Vocab vocab = vocab_new(trainer->pattern);
    size_t n_merges = (size_t)vocab_size - 257, n_longest = 1;
    int32_t byte_id[256];
    for (int b = 0; b < 256; b++) byte_id[b] = vocab_byte_id((uint8_t)b);
    for (size_t i = 0; i < trainer->words.n; i++)
        if (trainer->words.word[i].n > n_longest) n_longest = trainer->words.word[i].n;
    vocab.merge = malloc((n_merges + 1) * sizeof *vocab.merge);
    char *joined = malloc(n_longest); // a token never outgrows the word it was seen in
    if (!vocab.merge || !joined) die("memory: no room for a vocabulary of %d tokens", vocab_size);
    vocab.n_merges = bpe_train(&trainer->words, trainer->count, byte_id, 256, n_merges, vocab.merge);
    for (size_t i = 0; i < vocab.n_merges; i++) {
        Word l = vocab.token.word[vocab.merge[i].left], r = vocab.token.word[vocab.merge[i].right];
        memcpy(joined, vocab.token.bytes + l.at, l.n);
        memcpy(joined + l.n, vocab.token.bytes + r.at, r.n);
        check(words_add(&vocab.token, joined, (size_t)l.n + r.n) == 256 + i); // bpe.c says why it is new
    }
    free(joined);
    uint32_t eot = words_add(&vocab.token, TOKENIZER_EOT, strlen(TOKENIZER_EOT));
    if (eot != vocab.token.n - 1 || eot != 256 + vocab.n_merges)
        die("tokenizer: the text repeats '%s' so often that it became a word (name it as the separator)",
            TOKENIZER_EOT);
    vocab.special = calloc(vocab.token.n, sizeof *vocab.special);
    if (!vocab.special) die("memory: no room for a vocabulary of %d tokens", vocab_size);
    vocab.special[eot] = true;
    vocab.eot = (int32_t)eot;
    pretoken_free(trainer->pretoken);
    words_free(&trainer->words);
    free(trainer->count);
    free(trainer->pattern);
    free(trainer);
    return from_vocab(vocab);
}

// ---- encoding ----
// Appends the ids of one word, merging from its bytes.
static void encode_word(const Tokenizer *t, const char *word, size_t n, TokenIds *out)
{
    if (t->vocab.ignore_merges) {
        int64_t id = words_find(&t->vocab.token, word, n);
        if (id >= 0 && !t->vocab.special[id]) {
            token_ids_push(out, (int32_t)id);
            return;
        }
    }
    out->id = words_grow(out->id, &out->cap, out->n + n, sizeof *out->id);
    int32_t *ids = out->id + out->n;
    for (size_t i = 0; i < n; i++) ids[i] = t->byte_id[(uint8_t)word[i]];
    out->n += bpe_apply(&t->bpe, ids, n);
}

// The number of the word in the cache, encoding it if it is not there.
static uint32_t cache_word(Tokenizer *t, const char *word, size_t n)
{
    if (t->cached.n >= CACHE_WORDS) {
        words_clear(&t->cached);
        t->cached_ids.n = 0;
    }
    size_t known = t->cached.n;
    uint32_t w = words_add(&t->cached, word, n);
    if (w == known) {
        t->cached_at = words_grow(t->cached_at, &t->cap_cached_at, known + 2, sizeof *t->cached_at);
        t->cached_at[w] = t->cached_ids.n;
        encode_word(t, word, n, &t->cached_ids);
        t->cached_at[w + 1] = t->cached_ids.n;
    }
    return w;
}

void tokenizer_encode(Tokenizer *t, const char *text, size_t n_bytes, TokenIds *out)
{
    const char *piece;
    size_t n;
    pretoken_begin(t->pretoken, text, n_bytes);
    while (pretoken_next(t->pretoken, &piece, &n)) {
        if (n > CACHE_BYTES) {
            encode_word(t, piece, n, out);
            continue;
        }
        uint32_t w = cache_word(t, piece, n);
        const int32_t *ids = t->cached_ids.id + t->cached_at[w];
        size_t n_ids = t->cached_at[w + 1] - t->cached_at[w];
        out->id = words_grow(out->id, &out->cap, out->n + n_ids, sizeof *out->id);
        memcpy(out->id + out->n, ids, n_ids * sizeof *ids);
        out->n += n_ids;
    }
}

// ---- decoding ----
const char *tokenizer_decode(const Tokenizer *t, int32_t id, size_t *n_bytes)
{
    if (id < 0 || (size_t)id >= t->vocab.token.n)
        die("tokenizer: token %d: not in 0..%zu (was it made with another vocabulary?)", id,
            t->vocab.token.n - 1);
    *n_bytes = t->vocab.token.word[id].n;
    return t->vocab.token.bytes + t->vocab.token.word[id].at;
}

size_t tokenizer_text_bytes(const Tokenizer *t, int32_t id)
{
    size_t n_bytes;
    tokenizer_decode(t, id, &n_bytes);
    return t->vocab.special[id] ? 0 : n_bytes;
}

int tokenizer_vocab_size(const Tokenizer *t)
{
    return (int)t->vocab.token.n;
}

int32_t tokenizer_eot(const Tokenizer *t)
{
    return t->vocab.eot;
}

const char *tokenizer_pattern(const Tokenizer *t)
{
    return pretoken_regex(t->vocab.pattern) ? t->vocab.pattern : "custom";
}
