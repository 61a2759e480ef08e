// tokenizer: BPE as GPT-2 and SentencePiece do it, put together from its parts:
//
//   text --added tokens, pretoken (regular expression)--> words --bpe (merges)--> ids    vocab: the tables, their files
//
// Invariant: decode(encode(x)) == x for every string of bytes where every byte is a token, because pieces cover the
// text, and a merge joins bytes without changing them. Exceptions, as the file of a tokenizer wants them: unknown
// tokens, form C, and SentencePiece's spaces (below).
//
// Merging starts from the tokens of a word's bytes. In SentencePiece's kind (Vocab.chars) a text is one word and starts
// from the tokens of its characters; a character without one becomes its bytes, or the unknown token. Before that a
// space is put before the text, and U+2581, which stands for a space in such vocabularies, becomes one. Splitting the
// text where no merge crosses (split.c) gives back words, so the cache works as for other kinds.
//
// Added tokens are found first, as Hugging Face does it: from left to right, the longest of those that begin at a
// place; then, in what is between these, those whose file says "normalized". What is left is cut and encoded piece by
// piece. Where the file asks for form C (nfc.c), each part between those of the first round is normalized.
//
// Encoding is fast because text repeats itself: the ids of a word are computed once and then found in a cache
// (word_cache.c). A long word that is not cached is split into parts, which may be (split.c).
//
// Special tokens come from the caller, never from text: the string <|endoftext|> inside a document must not end the
// document. Rejected: recognising them in text, as Hugging Face's encode does by default (its encode_special_tokens).
#define _GNU_SOURCE // qsort_r
#include "tokenizer/tokenizer.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tokenizer/bpe.h"
#include "base/check.h"
#include "tools/disk_folder.h"
#include "tokenizer/pretoken.h"
#include "tokenizer/word_cache.h"
#include "base/words.h"

enum { BLOCK_BYTES = 1 << 17, LOOK_AHEAD = 16, LONG_WORD = 16 };

// What a thread needs to encode.
typedef struct {
    Pretoken *pretoken; // NULL: a text is one word
    WordCache cache;
    char *copy; // SentencePiece: a text with its spaces
    size_t cap_copy;
    NfcRoom normal; // a text in form C
} Encoder;

enum { NONE = -1 };

struct Tokenizer {
    Vocab vocab;
    Bpe bpe;
    Splits splits;
    char byte[256];        // each byte, to be pointed to
    int32_t byte_id[256];  // the token of each byte, or NONE
    int32_t ascii_id[128]; // SentencePiece: the token of a character, or NONE
    bool whole;            // every byte has a token
    bool splits_words;     // the ids of a word are those of its parts
    int32_t *added;        // (n_added), the longest first
    size_t n_added;
    bool begins_added[256]; // some added token begins with this byte
    Nfc *nfc;               // NULL: text stays as it is
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
    int64_t least;    // the fewest times that a merged pair is seen
    Counter *counter; // (n_counters), one a thread
    size_t n_counters, cap_counters;
    const char *special; // names with commas between them, n_special of them
    int n_special;
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
            end = left <= BLOCK_BYTES || !p ? text[i].n : at + pretoken_cut(p, text[i].bytes + at, left, BLOCK_BYTES);
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
    while (t->n_encoders < n)
        t->encoder[t->n_encoders++] = (Encoder){.pretoken = *t->vocab.pattern ? pretoken_new(t->vocab.pattern) : NULL};
}

// ---- building ----
static int longest_first(const void *a, const void *b, void *vocab)
{
    const Vocab *v = vocab;
    uint32_t n = v->token.word[*(const int32_t *)a].n, m = v->token.word[*(const int32_t *)b].n;
    return (n < m) - (n > m);
}

// What is found in a text of form C must be in form C. (Hugging Face looks for the form C of the token instead.)
static void check_normal(const Tokenizer *t, int32_t id)
{
    Word w = t->vocab.token.word[id];
    const char *bytes = t->vocab.token.bytes + w.at;
    size_t n = w.n;
    const char *form = nfc_normalize(t->nfc, &t->encoder[0].normal, bytes, &n);
    if (n != w.n || memcmp(form, bytes, n) != 0)
        die("tokenizer: added token '%.*s' is normalized, and not in form C (not supported: ids would differ)",
            (int)w.n, bytes);
}

static void list_added(Tokenizer *t)
{
    const Vocab *v = &t->vocab;
    size_t n = 0;
    for (size_t i = 0; v->added && i < v->token.n; i++) n += v->added[i] > 0;
    if (!n) return;
    t->added = malloc(n * sizeof *t->added);
    if (!t->added) die("memory: no room for a tokenizer");
    for (size_t i = 0; i < v->token.n; i++) {
        if (!v->added[i]) continue;
        if (t->nfc && v->added[i] == 2) check_normal(t, (int32_t)i);
        t->added[t->n_added++] = (int32_t)i;
        t->begins_added[(uint8_t)v->token.bytes[v->token.word[i].at]] = true;
    }
    qsort_r(t->added, n, sizeof *t->added, longest_first, &t->vocab);
}

Tokenizer *tokenizer_new(Vocab vocab)
{
    Tokenizer *t = calloc(1, sizeof *t);
    if (!t) die("memory: no room for a tokenizer");
    const Vocab *v = &t->vocab;
    t->vocab = vocab;
    t->bpe = bpe_index(v->merge, v->n_merges);
    t->splits = split_make(&v->token, v->merge, v->n_merges);
    t->whole = true;
    for (int b = 0; b < 256; b++) {
        char byte = t->byte[b] = (char)b, name[8];
        snprintf(name, sizeof name, "<0x%02X>", b);
        int64_t id = vocab_find(v, &byte, 1);
        if (b < 128) t->ascii_id[b] = (int32_t)id;
        if (v->chars) id = v->byte_fallback ? words_find(&v->token, name, 6) : NONE;
        t->byte_id[b] = (int32_t)id;
        t->whole &= id >= 0;
    }
    // With ignore_merges a part that is a token would be encoded as that token, which the merges of the whole word may
    // not reach. Unknown tokens of neighbours in two parts may have to be one.
    t->splits_words = !v->ignore_merges && (t->whole || !v->fuse_unk);
    if (v->nfc) t->nfc = nfc_new();
    add_encoders(t, 1);
    list_added(t);
    return t;
}

Tokenizer *tokenizer_load(const char *dir)
{
    struct stat st;
    if (stat(dir, &st) != 0 || S_ISDIR(st.st_mode)) disk_folder_check(dir);
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

void tokenizer_free(Tokenizer *t)
{
    if (!t) return;
    vocab_free(&t->vocab);
    bpe_free(&t->bpe);
    split_free(&t->splits);
    for (size_t i = 0; i < t->n_encoders; i++) {
        pretoken_free(t->encoder[i].pretoken);
        word_cache_free(&t->encoder[i].cache);
        free(t->encoder[i].copy);
        nfc_free_room(&t->encoder[i].normal);
    }
    nfc_free(t->nfc);
    free(t->added);
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
    trainer->least = 1;
    add_counters(trainer, 1);
    return trainer;
}

void tokenizer_trainer_min_frequency(TokenizerTrainer *trainer, int64_t least)
{
    trainer->least = least;
}

void tokenizer_trainer_special(TokenizerTrainer *trainer, const char *names)
{
    trainer->special = names;
    trainer->n_special = 1;
    for (const char *at = names; *at; at++) trainer->n_special += *at == ',';
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

size_t tokenizer_trainer_words(TokenizerTrainer *trainer)
{
    join_counters(trainer);
    return trainer->counter[0].words.n;
}

TokenizerText tokenizer_trainer_word(const TokenizerTrainer *trainer, size_t i, int64_t *times)
{
    const Counter *c = &trainer->counter[0];
    *times = c->count[i];
    return (TokenizerText){c->words.bytes + c->words.word[i].at, c->words.word[i].n};
}

void tokenizer_trainer_add_word(TokenizerTrainer *trainer, TokenizerText word, int64_t times)
{
    count_word(&trainer->counter[0], word.bytes, word.n, times);
}

Tokenizer *tokenizer_trainer_finish(TokenizerTrainer *trainer, int vocab_size)
{
    const int least = 257 + trainer->n_special;
    if (vocab_size < least)
        die("tokenizer: vocabulary of %d tokens (%d or more: 256 bytes, end-of-text%s)", vocab_size, least,
            trainer->n_special ? " and the other special tokens" : "");
    join_counters(trainer);
    Counter *all = &trainer->counter[0];
    if (!all->words.n) die("tokenizer: no text to train on (is the input empty?)");
    Vocab vocab = vocab_new(trainer->pattern);
    size_t n_merges = (size_t)(vocab_size - least), n_longest = 1;
    int32_t byte_id[256];
    for (int b = 0; b < 256; b++) byte_id[b] = vocab_byte_id((uint8_t)b);
    for (size_t i = 0; i < all->words.n; i++)
        if (all->words.word[i].n > n_longest) n_longest = all->words.word[i].n;
    vocab.merge = malloc((n_merges + 1) * sizeof *vocab.merge);
    char *joined = malloc(n_longest); // a token never outgrows the word it was seen in
    if (!vocab.merge || !joined) die("memory: no room for a vocabulary of %d tokens", vocab_size);
    vocab.n_merges = bpe_train(&all->words, all->count, byte_id, 256, n_merges, trainer->least, vocab.merge);
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
    const char *at = trainer->special;
    for (int i = 0; i < trainer->n_special; i++) {
        size_t n = strcspn(at, ","), known = vocab.token.n;
        if (!n || words_add(&vocab.token, at, n) != known)
            die("--special-tokens: '%.*s' is %s (names with commas between them)", (int)n, at, n ? "a token already" : "empty");
        at += n + 1;
    }
    vocab.special = calloc(vocab.token.n, sizeof *vocab.special);
    if (!vocab.special) die("memory: no room for a vocabulary of %d tokens", vocab_size);
    for (size_t i = eot; i < vocab.token.n; i++) vocab.special[i] = true;
    vocab.eot = vocab.bos = (int32_t)eot;
    vocab.has_bos = true;
    tokenizer_trainer_free(trainer);
    return tokenizer_new(vocab);
}

void tokenizer_trainer_free(TokenizerTrainer *trainer)
{
    for (size_t i = 0; i < trainer->n_counters; i++) free_counter(&trainer->counter[i]);
    free(trainer->counter);
    free(trainer->pattern);
    free(trainer);
}

// ---- encoding ----
//
// Threads share a text in blocks, split where pretoken_cut allows. Each thread has its own expression and cache (or
// table of counts), so none waits for another, and the results are joined in the order of the blocks. Training uses
// only the sums of the counts, so it does not matter which thread counted a word. Rejected: one table for all threads,
// whose locks cost more than the counting; one text per thread, which leaves a corpus in one file to one thread.

// Appends the unknown token for n bytes at `word`; ids (k) are the word's so far, of which the last one is unknown or
// not.
static size_t put_unknown(const Tokenizer *t, const char *word, size_t n, int32_t *ids, size_t k)
{
    const Vocab *v = &t->vocab;
    if (!v->has_unk && n == 1)
        die("tokenizer: byte 0x%02X of the text has no token, and there is no unknown token", (uint8_t)*word);
    if (!v->has_unk) die("tokenizer: '%.*s' of the text has no token, and there is no unknown token", (int)n, word);
    if (!k || !v->fuse_unk || ids[k - 1] != v->unk) ids[k++] = v->unk;
    return k;
}

// The tokens of the characters of a word, or of their bytes; returns how many: at most n, and for a space that has no
// token as U+2581 3.
static size_t put_characters(const Tokenizer *t, const char *word, size_t n, int32_t *ids)
{
    size_t k = 0;
    bool valid;
    for (size_t at = 0, length; at < n; at += length) {
        int64_t id = NONE;
        length = 1;
        if ((uint8_t)word[at] < 128) id = t->ascii_id[(uint8_t)word[at]];
        else {
            length = words_utf8_length(word + at, n - at, &valid);
            if (valid) id = vocab_find(&t->vocab, word + at, length);
        }
        const char *bytes = word[at] == ' ' ? SPACE_SIGN : word + at;
        size_t n_bytes = word[at] == ' ' ? 3 : length;
        if (id >= 0) ids[k++] = (int32_t)id;
        else if (!t->whole) k = put_unknown(t, bytes, n_bytes, ids, k);
        else for (size_t i = 0; i < n_bytes; i++) ids[k++] = t->byte_id[(uint8_t)bytes[i]];
    }
    return k;
}

// The tokens from which merging starts; returns how many.
static size_t put_symbols(const Tokenizer *t, const char *word, size_t n, int32_t *ids)
{
    if (t->vocab.chars) return put_characters(t, word, n, ids);
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        int32_t id = t->byte_id[(uint8_t)word[i]];
        if (id >= 0) ids[k++] = id;
        else k = put_unknown(t, word + i, 1, ids, k);
    }
    return k;
}

// Appends the ids of one word.
static void merge_word(const Tokenizer *t, const char *word, size_t n, TokenIds *out)
{
    if (t->vocab.ignore_merges) {
        int64_t id = vocab_find(&t->vocab, word, n);
        if (id >= 0) {
            token_ids_push(out, (int32_t)id);
            return;
        }
    }
    bool spaceless = t->vocab.chars && t->ascii_id[' '] == NONE;
    out->id = words_grow(out->id, &out->cap, out->n + (spaceless ? 3 * n : n), sizeof *out->id);
    int32_t *ids = out->id + out->n;
    out->n += bpe_apply(&t->bpe, ids, put_symbols(t, word, n, ids));
}

static void encode_parts(const Tokenizer *t, Encoder *e, const char *word, size_t n, TokenIds *out);

// Whether a word that is not cached is encoded in parts.
static bool falls_apart(const Tokenizer *t, const char *word, size_t n)
{
    return n >= LONG_WORD && t->splits_words && split_next(&t->splits, word, n, 0) < n;
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

// Text without added tokens.
static void encode_plain(const Tokenizer *t, Encoder *e, const char *text, size_t n_bytes, TokenIds *out)
{
    const char *piece, *end = text + n_bytes;
    WordLook look[LOOK_AHEAD];
    size_t n, n_looks;
    if (!e->pretoken) {
        word_cache_look(&e->cache, look, text, n_bytes, n_bytes);
        encode_words(t, e, look, 1, out);
        return;
    }
    pretoken_begin(e->pretoken, text, n_bytes);
    do {
        for (n_looks = 0; n_looks < LOOK_AHEAD && pretoken_next(e->pretoken, &piece, &n); n_looks++)
            word_cache_look(&e->cache, &look[n_looks], piece, n, (size_t)(end - piece));
        encode_words(t, e, look, n_looks, out);
    } while (n_looks);
}

// Whether a space is put before a text. first: it is the beginning of a document.
static bool wants_prefix(const Vocab *v, const char *text, size_t n, bool first)
{
    if (!n || !v->prefix || (v->prefix_once && !first)) return false;
    bool has_one = *text == ' ' || (n >= 3 && memcmp(text, SPACE_SIGN, 3) == 0);
    return v->prefix == VOCAB_PREFIX || !has_one;
}

// SentencePiece's spaces: writes the text with them to e->copy; returns its bytes.
static size_t space_text(const Vocab *v, Encoder *e, const char *text, size_t n, bool first)
{
    size_t k = 0;
    e->copy = words_grow(e->copy, &e->cap_copy, n + 1, 1);
    while (v->squeeze && n && *text == ' ') text++, n--;
    if (wants_prefix(v, text, n, first)) e->copy[k++] = ' ';
    for (size_t i = 0; i < n; i++) {
        bool sign = n - i >= 3 && memcmp(text + i, SPACE_SIGN, 3) == 0;
        if (v->squeeze && text[i] == ' ' && i && text[i - 1] == ' ') continue;
        e->copy[k++] = sign ? ' ' : text[i];
        i += sign ? 2 : 0;
    }
    while (v->squeeze && k && e->copy[k - 1] == ' ') k--;
    return k;
}

static void encode_segment(const Tokenizer *t, Encoder *e, const char *text, size_t n, bool first, TokenIds *out)
{
    if (t->vocab.chars) {
        n = space_text(&t->vocab, e, text, n, first);
        text = e->copy;
    }
    if (n) encode_plain(t, e, text, n, out);
}

// The added token at text (n bytes) that is found in this round, or NONE.
static int32_t added_at(const Tokenizer *t, const char *text, size_t n, int round)
{
    for (size_t i = 0; i < t->n_added; i++) {
        Word w = t->vocab.token.word[t->added[i]];
        bool asked = t->vocab.added[t->added[i]] == round && w.n <= n;
        if (asked && memcmp(t->vocab.token.bytes + w.at, text, w.n) == 0) return t->added[i];
    }
    return NONE;
}

// Rounds 1 and 2 look for added tokens; before the second a text gets its form C.
static void encode_round(const Tokenizer *t, Encoder *e, const char *text, size_t n, bool first, int round,
                         TokenIds *out)
{
    if (round > 2) {
        encode_segment(t, e, text, n, first, out);
        return;
    }
    if (round == 2 && t->nfc) text = nfc_normalize(t->nfc, &e->normal, text, &n);
    size_t from = 0;
    for (size_t at = 0; at < n; at++) {
        int32_t id = t->begins_added[(uint8_t)text[at]] ? added_at(t, text + at, n - at, round) : NONE;
        if (id == NONE) continue;
        if (at > from) encode_round(t, e, text + from, at - from, first && !from, round + 1, out);
        token_ids_push(out, id);
        from = at + t->vocab.token.word[id].n;
        at = from - 1;
    }
    if (n > from) encode_round(t, e, text + from, n - from, first && !from, round + 1, out);
}

static void encode_text(const Tokenizer *t, Encoder *e, const char *text, size_t n, TokenIds *out)
{
    if (t->n_added) {
        encode_round(t, e, text, n, true, 1, out);
        return;
    }
    if (t->nfc) text = nfc_normalize(t->nfc, &e->normal, text, &n);
    encode_segment(t, e, text, n, true, out);
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
    // A cut may fall into an added token, and SentencePiece treats the beginning of a text in a way of its own.
    Blocks all = cut_blocks(t->n_added || t->vocab.chars ? NULL : t->encoder[0].pretoken, text, n_texts);
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
static void check_id(const Tokenizer *t, int32_t id)
{
    if (id < 0 || (size_t)id >= t->vocab.token.n)
        die("tokenizer: token %d: not in 0..%zu (was it made with another vocabulary?)", id, t->vocab.token.n - 1);
}

const char *tokenizer_decode(const Tokenizer *t, int32_t id, size_t *n_bytes)
{
    check_id(t, id);
    int byte = vocab_byte_of(&t->vocab, id);
    *n_bytes = byte >= 0 ? 1 : t->vocab.token.word[id].n;
    return byte >= 0 ? &t->byte[byte] : t->vocab.token.bytes + t->vocab.token.word[id].at;
}

const char *tokenizer_decode_first(const Tokenizer *t, int32_t id, size_t *n_bytes)
{
    const char *bytes = tokenizer_decode(t, id, n_bytes);
    if (!t->vocab.prefix || *bytes != ' ' || tokenizer_is_special(t, id)) return bytes;
    --*n_bytes;
    return bytes + 1;
}

bool tokenizer_is_special(const Tokenizer *t, int32_t id)
{
    check_id(t, id);
    return t->vocab.special[id];
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

// ---- where texts begin and end ----
int32_t tokenizer_eot(const Tokenizer *t)
{
    return t->vocab.eot;
}

int32_t tokenizer_bos(const Tokenizer *t)
{
    return t->vocab.has_bos ? t->vocab.bos : NONE;
}

bool tokenizer_ends(const Tokenizer *t, int32_t id)
{
    return id == t->vocab.eot || (t->vocab.has_eos && id == t->vocab.eos);
}

int32_t tokenizer_need_eot(const Tokenizer *t, const char *path)
{
    if (t->vocab.eot < 0)
        die("%s: no token separates documents: neither " TOKENIZER_EOT " nor <|end_of_text|> is special, and no "
            "tokenizer_config.json names an eos_token (name one: --eot, or tokenizer.eot in a recipe)", path);
    return t->vocab.eot;
}

void tokenizer_set_eot(Tokenizer *t, const char *token, const char *path)
{
    Vocab *v = &t->vocab;
    char some[400] = "";
    int64_t id = token ? vocab_find_special(v, token) : tokenizer_need_eot(t, path);
    for (size_t i = 0, n = 0; id < 0 && i < v->token.n; i++) {
        Word w = v->token.word[i];
        if (v->special[i] && n + w.n + 3 < sizeof some)
            n += (size_t)sprintf(some + n, "%s%.*s", n ? ", " : "", (int)w.n, v->token.bytes + w.at);
    }
    if (id < 0)
        die("%s: '%s' is not one of its special tokens (%s)", path, token, *some ? some : "it has none");
    v->eot = v->bos = (int32_t)id;
    v->has_bos = true;
}

void tokenizer_set_chat(Tokenizer *t, const char *jinja, int32_t end)
{
    char *copy = strdup(jinja);
    if (!copy) die("memory: no room for a chat template");
    free(t->vocab.chat);
    t->vocab.chat = copy;
    t->vocab.has_eos = true, t->vocab.eos = end;
}

const char *tokenizer_pattern(const Tokenizer *t)
{
    return !*t->vocab.pattern ? "none" : pretoken_regex(t->vocab.pattern) ? t->vocab.pattern : "custom";
}
