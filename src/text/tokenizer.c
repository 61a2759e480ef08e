// tokenizer: byte-level BPE as GPT-2 does it, put together from its parts:
//
//   text --pretoken (regular expression)--> words --bpe (merges)--> ids      vocab: the tables, their files
//
// Invariant: decode(encode(x)) == x for every string of bytes, because every byte is a token, pieces cover
// the text, and a merge joins bytes without changing them.
//
// Encoding is fast because text repeats itself: the ids of a word are computed once and then found in a cache
// (word_cache.c). A long word that is not cached is split into parts, which may be (split.c).
//
// Threads share a text in blocks, split where pretoken_cut allows. Each thread has its own expression and cache (or
// table of counts), so none waits for another, and the results are joined in the order of the blocks. Training uses
// only the sums of the counts, so it does not matter which thread counted a word. Rejected: one table for all threads,
// whose locks cost more than the counting; one text per thread, which leaves a corpus in one file to one thread.
//
// Special tokens come from the caller, never from text: the string <|endoftext|> inside a document must not end the
// document. Rejected: recognising them in text, as Hugging Face's encode does by default.
#include "text/tokenizer.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "text/bpe.h"
#include "base/check.h"
#include "base/disk.h"
#include "text/pretoken.h"
#include "text/split.h"
#include "text/vocab.h"
#include "text/word_cache.h"
#include "base/words.h"

enum { BLOCK_BYTES = 1 << 17, LOOK_AHEAD = 16, LONG_WORD = 16 };

// What a thread needs to encode.
typedef struct {
    Pretoken *pretoken;
    WordCache cache;
} Encoder;

struct Tokenizer {
    Vocab vocab;
    Bpe bpe;
    Splits splits;
    int32_t byte_id[256];
    Encoder *encoder; // (n_encoders), one a thread
    size_t n_encoders, cap_encoders;
};

// What a thread has counted.
typedef struct {
    Pretoken *pretoken;
    Words words;
    int64_t *count; // (words.n)
    size_t cap_count;
} Counter;

struct TokenizerTrainer {
    char *pattern;
    Counter *counter; // (n_counters), one a thread
    size_t n_counters, cap_counters;
};

// A part of a text that one thread works on.
typedef struct {
    const char *bytes; // (n)
    size_t n, text;    // of text number `text`
    TokenIds ids;
} Block;

typedef struct {
    Block *block;
    size_t n, cap;
} Blocks;

static Blocks cut_blocks(const Pretoken *p, const TokenizerText *text, size_t n_texts)
{
    Blocks all = {0};
    for (size_t i = 0; i < n_texts; i++) {
        for (size_t at = 0, end; at < text[i].n; at = end) {
            size_t left = text[i].n - at;
            end = left <= BLOCK_BYTES ? text[i].n : at + pretoken_cut(p, text[i].bytes + at, left, BLOCK_BYTES);
            all.block = words_grow(all.block, &all.cap, all.n + 1, sizeof *all.block);
            all.block[all.n++] = (Block){.bytes = text[i].bytes + at, .n = end - at, .text = i};
        }
    }
    return all;
}

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

static void add_encoders(Tokenizer *t, size_t n)
{
    t->encoder = words_grow(t->encoder, &t->cap_encoders, n, sizeof *t->encoder);
    while (t->n_encoders < n) t->encoder[t->n_encoders++] = (Encoder){.pretoken = pretoken_new(t->vocab.pattern)};
}

Tokenizer *tokenizer_new(Vocab vocab)
{
    Tokenizer *t = calloc(1, sizeof *t);
    if (!t) die("memory: no room for a tokenizer");
    t->vocab = vocab;
    t->bpe = bpe_index(t->vocab.merge, t->vocab.n_merges);
    t->splits = split_make(&t->vocab.token, t->vocab.merge, t->vocab.n_merges);
    add_encoders(t, 1);
    for (int b = 0; b < 256; b++) {
        char byte = (char)b;
        t->byte_id[b] = (int32_t)words_find(&t->vocab.token, &byte, 1);
        if (t->byte_id[b] < 0) die("tokenizer: byte 0x%02X has no token (not a byte-level tokenizer?)", b);
    }
    return t;
}

Tokenizer *tokenizer_load(const char *dir)
{
    disk_folder_check(dir);
    return tokenizer_new(vocab_load(dir));
}

Tokenizer *tokenizer_load_ranks(const char *path, const char *pattern)
{
    if (!pretoken_regex(pattern)) die("tokenizer: pattern: '%s' (use " PRETOKEN_NAMES ")", pattern);
    return tokenizer_new(vocab_load_ranks(path, pattern));
}

const Vocab *tokenizer_vocab(const Tokenizer *t)
{
    return &t->vocab;
}

void tokenizer_save(const Tokenizer *t, const char *dir)
{
    vocab_save(&t->vocab, dir);
}

void tokenizer_save_gpt2(const Tokenizer *t, const char *dir)
{
    vocab_save_gpt2(&t->vocab, dir);
}

void tokenizer_save_ranks(const Tokenizer *t, const char *path)
{
    vocab_save_ranks(&t->vocab, path);
}

void tokenizer_free(Tokenizer *t)
{
    if (!t) return;
    vocab_free(&t->vocab);
    bpe_free(&t->bpe);
    split_free(&t->splits);
    for (size_t i = 0; i < t->n_encoders; i++) {
        pretoken_free(t->encoder[i].pretoken);
        word_cache_free(&t->encoder[i].cache);
    }
    free(t->encoder);
    free(t);
}

// ---- training ----
static void add_counters(TokenizerTrainer *t, size_t n)
{
    t->counter = words_grow(t->counter, &t->cap_counters, n, sizeof *t->counter);
    while (t->n_counters < n) t->counter[t->n_counters++] = (Counter){.pretoken = pretoken_new(t->pattern)};
}

TokenizerTrainer *tokenizer_trainer_new(const char *pattern)
{
    if (!pretoken_regex(pattern)) die("tokenizer: pattern: '%s' (use " PRETOKEN_NAMES ")", pattern);
    TokenizerTrainer *trainer = calloc(1, sizeof *trainer);
    if (!trainer || !(trainer->pattern = strdup(pattern))) die("memory: no room for a tokenizer");
    add_counters(trainer, 1);
    return trainer;
}

static void count_word(Counter *c, const char *word, size_t n, int64_t times)
{
    size_t known = c->words.n;
    uint32_t w = words_add(&c->words, word, n);
    if (w == known) {
        c->count = words_grow(c->count, &c->cap_count, known + 1, sizeof *c->count);
        c->count[w] = 0;
    }
    c->count[w] += times;
}

static void count_text(Counter *c, const char *text, size_t n_bytes)
{
    const char *piece;
    size_t n;
    pretoken_begin(c->pretoken, text, n_bytes);
    while (pretoken_next(c->pretoken, &piece, &n)) count_word(c, piece, n, 1);
}

static void free_counter(Counter *c)
{
    pretoken_free(c->pretoken);
    words_free(&c->words);
    free(c->count);
}

void tokenizer_trainer_add(TokenizerTrainer *trainer, const char *text, size_t n_bytes)
{
    count_text(&trainer->counter[0], text, n_bytes);
}

void tokenizer_trainer_add_texts(TokenizerTrainer *trainer, const TokenizerText *text, size_t n_texts, int n_threads)
{
    check(n_threads > 0);
    add_counters(trainer, (size_t)n_threads);
    Blocks all = cut_blocks(trainer->counter[0].pretoken, text, n_texts);
#pragma omp parallel for schedule(dynamic) num_threads(n_threads)
    for (size_t i = 0; i < all.n; i++)
        count_text(&trainer->counter[omp_get_thread_num()], all.block[i].bytes, all.block[i].n);
    free(all.block);
}

// Moves all counts into the first table.
static void join_counters(TokenizerTrainer *trainer)
{
    Counter *sum = &trainer->counter[0];
    while (trainer->n_counters > 1) {
        Counter *c = &trainer->counter[--trainer->n_counters];
        for (size_t i = 0; i < c->words.n; i++)
            count_word(sum, c->words.bytes + c->words.word[i].at, c->words.word[i].n, c->count[i]);
        free_counter(c);
    }
}

Tokenizer *tokenizer_trainer_finish(TokenizerTrainer *trainer, int vocab_size)
{
    if (vocab_size < 257)
        die("tokenizer: vocabulary of %d tokens (257 or more: 256 bytes and end-of-text)", vocab_size);
    join_counters(trainer);
    Counter *all = &trainer->counter[0];
    if (!all->words.n) die("tokenizer: no text to train on (is the input empty?)");
    Vocab vocab = vocab_new(trainer->pattern);
    size_t n_merges = (size_t)vocab_size - 257, n_longest = 1;
    int32_t byte_id[256];
    for (int b = 0; b < 256; b++) byte_id[b] = vocab_byte_id((uint8_t)b);
    for (size_t i = 0; i < all->words.n; i++)
        if (all->words.word[i].n > n_longest) n_longest = all->words.word[i].n;
    vocab.merge = malloc((n_merges + 1) * sizeof *vocab.merge);
    char *joined = malloc(n_longest); // a token never outgrows the word it was seen in
    if (!vocab.merge || !joined) die("memory: no room for a vocabulary of %d tokens", vocab_size);
    vocab.n_merges = bpe_train(&all->words, all->count, byte_id, 256, n_merges, vocab.merge);
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
    free_counter(all);
    free(trainer->counter);
    free(trainer->pattern);
    free(trainer);
    return tokenizer_new(vocab);
}

// ---- encoding ----
// Appends the ids of one word, merging from its bytes.
static void merge_word(const Tokenizer *t, const char *word, size_t n, TokenIds *out)
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

static void encode_parts(const Tokenizer *t, Encoder *e, const char *word, size_t n, TokenIds *out);

// Whether a word that is not cached is encoded in parts. (Not with ignore_merges: there a part that is a token would be
// encoded as that token, which the merges of the whole word may not reach.)
static bool falls_apart(const Tokenizer *t, const char *word, size_t n)
{
    return n >= LONG_WORD && !t->vocab.ignore_merges && split_next(&t->splits, word, n, 0) < n;
}

// Appends the ids of words that have been looked at.
static void encode_words(const Tokenizer *t, Encoder *e, WordLook *look, size_t n, TokenIds *out)
{
    for (size_t i = 0; i < n; i++) word_cache_look_again(&e->cache, &look[i]);
    for (size_t i = 0; i < n; i++) {
        if (word_cache_get(&e->cache, &look[i], out)) continue;
        size_t known = out->n;
        if (falls_apart(t, look[i].bytes, look[i].n)) {
            encode_parts(t, e, look[i].bytes, look[i].n, out);
            if (look[i].n > WORD_LINE_BYTES) continue; // too long for a cache line; its parts are cached
        } else {
            merge_word(t, look[i].bytes, look[i].n, out);
        }
        word_cache_put(&e->cache, &look[i], out->id + known, out->n - known);
    }
}

// A word with split points: the cache treats each part as a word of its own.
static void encode_parts(const Tokenizer *t, Encoder *e, const char *word, size_t n, TokenIds *out)
{
    WordLook look[LOOK_AHEAD];
    size_t n_looks = 0;
    for (size_t at = 0, end; at < n; at = end) {
        end = split_next(&t->splits, word, n, at);
        word_cache_look(&e->cache, &look[n_looks++], word + at, end - at, n - at);
        if (n_looks < LOOK_AHEAD && end < n) continue;
        encode_words(t, e, look, n_looks, out);
        n_looks = 0;
    }
}

static void encode_text(const Tokenizer *t, Encoder *e, const char *text, size_t n_bytes, TokenIds *out)
{
    const char *piece, *end = text + n_bytes;
    WordLook look[LOOK_AHEAD];
    size_t n, n_looks;
    pretoken_begin(e->pretoken, text, n_bytes);
    do {
        for (n_looks = 0; n_looks < LOOK_AHEAD && pretoken_next(e->pretoken, &piece, &n); n_looks++)
            word_cache_look(&e->cache, &look[n_looks], piece, n, (size_t)(end - piece));
        encode_words(t, e, look, n_looks, out);
    } while (n_looks);
}

void tokenizer_encode(Tokenizer *t, const char *text, size_t n_bytes, TokenIds *out)
{
    encode_text(t, &t->encoder[0], text, n_bytes, out);
}

void tokenizer_encode_texts(Tokenizer *t, const TokenizerText *text, size_t n_texts, int n_threads, TokenIds *out,
                            size_t *end)
{
    check(n_threads > 0);
    if (n_threads == 1) { // nothing to put together
        for (size_t i = 0; i < n_texts; i++) {
            encode_text(t, &t->encoder[0], text[i].bytes, text[i].n, out);
            if (end) end[i] = out->n;
        }
        return;
    }
    add_encoders(t, (size_t)n_threads);
    Blocks all = cut_blocks(t->encoder[0].pretoken, text, n_texts);
#pragma omp parallel for schedule(dynamic) num_threads(n_threads)
    for (size_t i = 0; i < all.n; i++) {
        Block *b = &all.block[i];
        encode_text(t, &t->encoder[omp_get_thread_num()], b->bytes, b->n, &b->ids);
    }
    for (size_t i = 0, b = 0; i < n_texts; i++) {
        for (; b < all.n && all.block[b].text == i; b++) {
            TokenIds *ids = &all.block[b].ids;
            out->id = words_grow(out->id, &out->cap, out->n + ids->n, sizeof *out->id);
            if (ids->n) memcpy(out->id + out->n, ids->id, ids->n * sizeof *ids->id);
            out->n += ids->n;
            token_ids_free(ids);
        }
        if (end) end[i] = out->n;
    }
    free(all.block);
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
