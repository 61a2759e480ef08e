// vocab: the files of a byte-level BPE tokenizer: tokenizer.json, vocab.json with merges.txt, tiktoken's rank files.
//
// JSON strings hold characters, tokens are bytes. So the files spell every byte as a printable character, GPT-2's
// alphabet: the 188 bytes that print in Latin-1 (0x21-0x7E, 0xA1-0xAC, 0xAE-0xFF) stand for themselves, the other 68,
// in order, are U+0100 and up; a space is U+0120. Special tokens are spelled as they are.
//
// Invariant of a loaded vocabulary: ids are 0..n-1 without a hole, every byte has a token, no two tokens have the same
// bytes, every merge joins two tokens into a third whose bytes are theirs.
//
// A feature of tokenizer.json that is not supported here (normalizers, prefix spaces, other kinds of tokens, ...) is
// refused by name, because ignoring it would give other ids than Hugging Face's. The post-processor is the exception:
// it adds tokens around a text (a start token, for example), which is the caller's task here. Rejected: reading
// tokenizer_config.json, whose keys repeat those of tokenizer.json or concern chat.
//
// A rank file has one line per token, sorted by rank: base64(bytes) SPACE rank LF. It lists no merges. tiktoken merges
// the two neighbours whose joined bytes are the token of the lowest rank; a token's rank is both its id and its place
// in the order of merging. So apply all merges of lower rank to the bytes of a token: the two tokens that remain are
// its merge. If more remain, merging could never produce the token, and the file is refused. Doing this in the order of
// ranks gives the list of merges, with the same ids (bpe.c says why merging by pair and by joined bytes agree). Saving
// is refused where a rank file cannot express the vocabulary (merges in another order than their ids, tokens without a
// merge, special tokens before others), so load(save(v)) has the tokens, merges and ids of v.
//
// Special tokens are not in a rank file; tiktoken keeps them in code. <|endoftext|> is given the id after the last one,
// as in GPT-2. cl100k_base, recognised by its pattern and size, has it one higher. The id between is unused there; here
// it becomes a special token that no text encodes to, because ids have no holes here.
#include "text/vocab.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/disk.h"
#include "text/pretoken.h"
#include "text/tokenizer.h"

enum { MAX_JSON_BYTES = 1 << 27, MAX_RANKS_BYTES = 1 << 30, CL100K_BASE_RANKS = 100256 };

static const char base64_digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

// ---- the alphabet ----
static bool prints(int byte)
{
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

// The character (a code point) that spells a byte, and back (-1: it spells none).
static int letter_of_byte(int byte)
{
    return prints(byte) ? byte : byte <= 0x20 ? 0x100 + byte : byte <= 0xA0 ? 0x121 + byte - 0x7F : 0x143;
}

static int byte_of_letter(int letter)
{
    if (letter < 0x100) return prints(letter) ? letter : -1;
    return letter <= 0x120   ? letter - 0x100
           : letter <= 0x142 ? letter - 0x121 + 0x7F
           : letter == 0x143 ? 0xAD
                             : -1;
}

int32_t vocab_byte_id(uint8_t byte)
{
    if (!prints(byte)) return 188 + letter_of_byte(byte) - 0x100;
    return byte <= 0x7E ? byte - 0x21 : byte <= 0xAC ? 94 + byte - 0xA1 : 106 + byte - 0xAE;
}

static void spell(const char *bytes, size_t n, char *spelled)
{
    for (size_t i = 0; i < n; i++) {
        int letter = letter_of_byte((uint8_t)bytes[i]);
        if (letter >= 0x80) *spelled++ = (char)(0xC0 | letter >> 6);
        *spelled++ = (char)(letter >= 0x80 ? 0x80 | (letter & 0x3F) : letter);
    }
    *spelled = 0;
}

// The inverse: writes at most n bytes, returns how many; -1 when a character is not in the alphabet.
static long unspell(const char *spelled, size_t n, char *bytes)
{
    long o = 0;
    for (size_t i = 0; i < n; i++) {
        int c = (uint8_t)spelled[i];
        if (c >= 0x80) { // the whole alphabet is below U+0800: two bytes
            if (c < 0xC2 || c > 0xC5 || i + 1 >= n) return -1;
            c = (c & 0x1F) << 6 | (spelled[++i] & 0x3F);
        }
        c = byte_of_letter(c);
        if (c < 0) return -1;
        bytes[o++] = (char)c;
    }
    return o;
}

// ---- building ----
static void *need(void *memory, const char *path)
{
    if (!memory) die("%s: no memory to read it (is it a tokenizer?)", path);
    return memory;
}

Vocab vocab_new(const char *pattern)
{
    Vocab v = {.eot = -1, .pattern = strdup(pattern)};
    char by_id[256];
    for (int b = 0; b < 256; b++) by_id[vocab_byte_id((uint8_t)b)] = (char)b;
    for (int id = 0; id < 256; id++) words_add(&v.token, &by_id[id], 1);
    if (!v.pattern) die("memory: no room for a vocabulary");
    return v;
}

void vocab_free(Vocab *v)
{
    words_free(&v->token);
    free(v->special);
    free(v->merge);
    free(v->pattern);
    *v = (Vocab){0};
}

// One token of a file, as its string and id.
typedef struct {
    const char *string;
    size_t n;
    bool special;
} Entry;

static void put_entry(Entry *entries, size_t n, json_t *id, Entry e, const char *path)
{
    if (!json_is_integer(id) || json_integer_value(id) < 0 || (size_t)json_integer_value(id) >= n)
        die("%s: token '%s': its id is not one of 0..%zu (ids must have no holes)", path, e.string, n - 1);
    Entry *at = &entries[json_integer_value(id)];
    bool same = at->string && at->n == e.n && memcmp(at->string, e.string, e.n) == 0;
    if (at->string && !same)
        die("%s: id %lld belongs to both '%s' and '%s'", path, (long long)json_integer_value(id), at->string,
            e.string);
    at->string = e.string;
    at->n = e.n;
    at->special |= e.special;
}

// Fills v->token and v->special from {string: id} and, where there is one, the list of added tokens.
static void build_tokens(Vocab *v, json_t *vocab, json_t *added, const char *path)
{
    size_t n = json_object_size(vocab), i;
    json_t *token, *id;
    const char *key;
    json_array_foreach(added, i, token)
    {
        const char *content = json_string_value(json_object_get(token, "content"));
        if (!content) die("%s: added_tokens[%zu] has no content", path, i);
        if (!json_is_true(json_object_get(token, "special")))
            die("%s: added token '%s' is not special: it would change how text is encoded (not supported)",
                path, content);
        n += !json_object_get(vocab, content);
    }
    Entry *entries = need(calloc(n + 1, sizeof *entries), path);
    json_object_foreach(vocab, key, id)
    {
        bool special = !added && (strcmp(key, TOKENIZER_EOT) == 0); // vocab.json does not say which are
                                                                    // special
        put_entry(entries, n, id, (Entry){key, strlen(key), special}, path);
    }
    json_array_foreach(added, i, token)
    {
        json_t *content = json_object_get(token, "content");
        Entry e = {json_string_value(content), json_string_length(content), true};
        put_entry(entries, n, json_object_get(token, "id"), e, path);
    }
    v->special = need(calloc(n + 1, sizeof *v->special), path);
    size_t cap = 0;
    char *bytes = NULL;
    for (i = 0; i < n; i++) {
        Entry e = entries[i];
        if (!e.string) die("%s: no token has id %zu (ids must be 0..%zu without holes)", path, i, n - 1);
        v->special[i] = e.special;
        if (!e.special) {
            bytes = words_grow(bytes, &cap, e.n + 1, 1);
            long n_bytes = unspell(e.string, e.n, bytes);
            if (n_bytes <= 0)
                die("%s: token '%s' has a character outside the byte-level alphabet (not byte-level?)", path,
                    e.string);
            e = (Entry){bytes, (size_t)n_bytes, false};
        }
        if (words_add(&v->token, e.string, e.n) != i)
            die("%s: two tokens have the same bytes, one is id %zu", path, i);
    }
    free(bytes);
    free(entries);
}

static int64_t find_token(const Vocab *v, const char *bytes, size_t n)
{
    int64_t id = words_find(&v->token, bytes, n);
    return id >= 0 && v->special && v->special[id] ? -1 : id;
}

// Adds the merge of two spelled tokens; `where` is its number, for messages.
static void add_merge(Vocab *v, size_t *cap, const char *left, size_t n_left, const char *right,
                      size_t n_right, const char *path, size_t where)
{
    char *bytes = need(malloc(n_left + n_right + 1), path);
    long a = unspell(left, n_left, bytes), b = a < 0 ? -1 : unspell(right, n_right, bytes + a);
    int64_t l = b < 0 ? -1 : find_token(v, bytes, (size_t)a),
            r = b < 0 ? -1 : find_token(v, bytes + a, (size_t)b);
    int64_t joined = b < 0 ? -1 : find_token(v, bytes, (size_t)(a + b));
    if (l < 0 || r < 0 || joined < 0)
        die("%s: merge %zu: '%.*s' and '%.*s' do not join to a token (do the files belong together?)", path,
            where, (int)n_left, left, (int)n_right, right);
    v->merge = words_grow(v->merge, cap, v->n_merges + 1, sizeof *v->merge);
    v->merge[v->n_merges++] = (BpeMerge){(int32_t)l, (int32_t)r, (int32_t)joined};
    free(bytes);
}

static void finish(Vocab *v, const char *path)
{
    for (int b = 0; b < 256; b++) {
        char byte = (char)b;
        if (find_token(v, &byte, 1) < 0)
            die("%s: byte 0x%02X has no token (not a byte-level tokenizer?)", path, b);
    }
    const char *names[] = {TOKENIZER_EOT, "<|end_of_text|>"};
    v->eot = -1;
    for (int i = 1; i >= 0; i--) {
        int64_t id = words_find(&v->token, names[i], strlen(names[i]));
        if (id >= 0 && v->special[id]) v->eot = (int32_t)id;
    }
}

// ---- reading ----
static json_t *load_json(const char *path)
{
    json_error_t error;
    size_t n;
    char *text = disk_read_file(path, &n, MAX_JSON_BYTES);
    if (!text) die("%s: %s (is it a tokenizer? at most %d MiB are read)", path, strerror(errno), MAX_JSON_BYTES >> 20);
    json_t *json = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
    free(text);
    if (!json) die("%s:%d: %s", path, error.line, error.text);
    if (!json_is_object(json)) die("%s: not a JSON object (is it a tokenizer?)", path);
    return json;
}

static void load_merges_txt(Vocab *v, const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        die("%s: %s (a tokenizer folder has tokenizer.json, or vocab.json and merges.txt)", path,
            strerror(errno));
    char *line = NULL;
    size_t cap_line = 0, cap = 0, number = 0;
    for (ssize_t n; (n = getline(&line, &cap_line, f)) >= 0;) {
        number++;
        while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r')) line[--n] = 0;
        if (n == 0 || (number == 1 && strncmp(line, "#version", 8) == 0)) continue;
        char *space = memchr(line, ' ', (size_t)n);
        if (!space) die("%s:%zu: not two tokens with a space between: '%s'", path, number, line);
        add_merge(v, &cap, line, (size_t)(space - line), space + 1, (size_t)(line + n - space - 1), path,
                  number);
    }
    if (!feof(f)) die("%s: %s", path, strerror(errno));
    fclose(f);
    free(line);
}

static void load_merges_json(Vocab *v, json_t *merges, const char *path)
{
    size_t i, cap = 0;
    json_t *m;
    json_array_foreach(merges, i, m)
    { // ["a", "b"], or "a b" as written before 2024
        json_t *l = json_array_get(m, 0), *r = json_array_get(m, 1);
        const char *s = json_string_value(m), *space = s ? strchr(s, ' ') : NULL;
        if (space)
            add_merge(v, &cap, s, (size_t)(space - s), space + 1,
                      json_string_length(m) - (size_t)(space + 1 - s), path, i);
        else if (json_is_string(l) && json_is_string(r) && json_array_size(m) == 2)
            add_merge(v, &cap, json_string_value(l), json_string_length(l), json_string_value(r),
                      json_string_length(r), path, i);
        else die("%s: model.merges[%zu] is neither [\"a\", \"b\"] nor \"a b\"", path, i);
    }
}

static bool type_is(json_t *object, const char *type)
{
    const char *s = json_string_value(json_object_get(object, "type"));
    return s && strcmp(s, type) == 0;
}

static bool is_true(json_t *object, const char *key, bool missing)
{
    json_t *value = json_object_get(object, key);
    return value ? json_is_true(value) : missing;
}

// The pattern of tokenizer.json's pre_tokenizer: ByteLevel with its own expression, or after it cut out every digit, or
// after Split without it.
static const char *read_pattern(json_t *pre, const char *path)
{
    json_t *list = json_object_get(pre, "pretokenizers"), *first = json_array_get(list, 0);
    json_t *bytes = type_is(pre, "Sequence") ? json_array_get(list, json_array_size(list) - 1) : pre;
    if (!type_is(bytes, "ByteLevel") || is_true(bytes, "add_prefix_space", true))
        die("%s: pre_tokenizer is not ByteLevel without prefix space (other kinds are not supported)", path);
    bool gpt2 = is_true(bytes, "use_regex", true), one = bytes == pre || json_array_size(list) == 1;
    if (one && !gpt2) die("%s: pre_tokenizer has no pattern (not supported)", path);
    if (one) return "gpt2";
    bool two = json_array_size(list) == 2;
    if (two && gpt2 && type_is(first, "Digits") && is_true(first, "individual_digits", false)) return "smollm";
    const char *regex = json_string_value(json_object_get(json_object_get(first, "pattern"), "Regex"));
    const char *behavior = json_string_value(json_object_get(first, "behavior"));
    if (!two || !type_is(first, "Split") || gpt2 || !regex || !behavior || strcmp(behavior, "Isolated") != 0 ||
        is_true(first, "invert", false))
        die("%s: pre_tokenizer is not [Split by Regex, Isolated; ByteLevel] or [Digits, individual; ByteLevel] (not "
            "supported)", path);
    pretoken_check(regex, path);
    return pretoken_name(regex) ? pretoken_name(regex) : regex;
}

static void refuse(json_t *object, const char *key, const char *path)
{
    json_t *value = json_object_get(object, key);
    bool empty = json_is_string(value) && json_string_length(value) == 0;
    if (value && !json_is_null(value) && !json_is_false(value) && !empty)
        die("%s: '%s' is set (not supported: ids would differ)", path, key);
}

Vocab vocab_from_json(json_t *json, const char *path)
{
    Vocab v = {.eot = -1};
    json_t *model = json_object_get(json, "model"), *vocab = json_object_get(model, "vocab");
    json_t *merges = json_object_get(model, "merges"), *added = json_object_get(json, "added_tokens");
    if (!json_is_object(vocab) || !json_is_array(merges) ||
        (json_object_get(model, "type") && !type_is(model, "BPE")))
        die("%s: model is not BPE with vocab and merges (only byte-level BPE is supported)", path);
    refuse(json, "normalizer", path);
    refuse(json, "truncation", path);
    refuse(json, "padding", path);
    refuse(model, "dropout", path);
    refuse(model, "continuing_subword_prefix", path);
    refuse(model, "end_of_word_suffix", path);
    refuse(model, "byte_fallback", path);
    v.pattern = need(strdup(read_pattern(json_object_get(json, "pre_tokenizer"), path)), path);
    v.ignore_merges = is_true(model, "ignore_merges", false);
    build_tokens(&v, vocab, added, path);
    load_merges_json(&v, merges, path);
    finish(&v, path);
    return v;
}

Vocab vocab_load(const char *dir)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    if (access(path, F_OK) == 0) {
        json_t *json = load_json(path);
        Vocab v = vocab_from_json(json, path);
        json_decref(json);
        return v;
    }
    snprintf(path, sizeof path, "%s/vocab.json", dir);
    if (access(path, F_OK) != 0)
        die("%s: no tokenizer.json and no vocab.json there (give a folder that 'prepare' wrote, or GPT-2's)",
            dir);
    Vocab v = {.eot = -1, .pattern = need(strdup("gpt2"), path)};
    json_t *json = load_json(path);
    build_tokens(&v, json, NULL, path);
    json_decref(json);
    snprintf(path, sizeof path, "%s/merges.txt", dir);
    load_merges_txt(&v, path);
    finish(&v, path);
    return v;
}

// ---- writing
// Text that grows.
typedef struct {
    char *bytes;
    size_t n, cap;
} Text;

static void append(Text *t, const char *bytes, size_t n)
{
    t->bytes = words_grow(t->bytes, &t->cap, t->n + n, 1);
    memcpy(t->bytes + t->n, bytes, n);
    t->n += n;
}

static void replace_file(const char *path, const Text *t)
{
    if (!disk_replace_file(path, t->bytes, t->n))
        die("%s: %s (does the folder exist, may you write there, is the disk full?)", path, strerror(errno));
}

static const char *token_bytes(const Vocab *v, int32_t id)
{
    return v->token.bytes + v->token.word[id].at;
}

static void save_json(json_t *json, const char *dir, const char *name) // takes `json`
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    char *text = json ? json_dumps(json, JSON_INDENT(1)) : NULL;
    if (!text) die("%s: no memory to write it", path);
    replace_file(path, &(Text){.bytes = text, .n = strlen(text)});
    free(text);
    json_decref(json);
}

static json_t *pre_tokenizer_json(const char *pattern)
{
    bool smollm = strcmp(pattern, "smollm") == 0, gpt2 = smollm || strcmp(pattern, "gpt2") == 0;
    const char *regex = pretoken_regex(pattern) ? pretoken_regex(pattern) : pattern;
    json_t *bytes = json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0,
                              "trim_offsets", 1, "use_regex", gpt2);
    if (gpt2 && !smollm) return bytes;
    json_t *first = smollm ? json_pack("{s:s, s:b}", "type", "Digits", "individual_digits", 1)
                           : json_pack("{s:s, s:{s:s}, s:s, s:b}", "type", "Split", "pattern", "Regex", regex,
                                       "behavior", "Isolated", "invert", 0);
    return json_pack("{s:s, s:[o, o]}", "type", "Sequence", "pretokenizers", first, bytes);
}

json_t *vocab_json(const Vocab *v)
{
    json_t *vocab = json_object(), *merges = json_array(), *added = json_array();
    size_t n_max = 0;
    for (size_t i = 0; i < v->token.n; i++)
        if (v->token.word[i].n > n_max) n_max = v->token.word[i].n;
    char *a = need(malloc(2 * n_max + 1), "tokenizer"), *b = need(malloc(2 * n_max + 1), "tokenizer");
    int failed = 0;
    for (size_t i = 0; i < v->token.n; i++) {
        const char *bytes = v->token.bytes + v->token.word[i].at;
        if (v->special && v->special[i]) {
            snprintf(a, n_max + 1, "%.*s", (int)v->token.word[i].n, bytes);
            failed |= json_array_append_new(added, json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id",
                                                             (int)i, "content", a, "single_word", 0, "lstrip",
                                                             0, "rstrip", 0, "normalized", 0, "special", 1));
        } else spell(bytes, v->token.word[i].n, a);
        failed |= json_object_set_new(vocab, a, json_integer((json_int_t)i));
    }
    for (size_t i = 0; i < v->n_merges; i++) {
        Word l = v->token.word[v->merge[i].left], r = v->token.word[v->merge[i].right];
        spell(v->token.bytes + l.at, l.n, a);
        spell(v->token.bytes + r.at, r.n, b);
        failed |= json_array_append_new(merges, json_pack("[s, s]", a, b));
    }
    free(a);
    free(b);
    if (failed) die("tokenizer: no memory to write it");
    json_t *model =
        json_pack("{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:o, s:o}", "type", "BPE", "dropout", "unk_token",
                  "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0, "byte_fallback", 0,
                  "ignore_merges", v->ignore_merges, "vocab", vocab, "merges", merges);
    json_t *decoder = json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 1,
                                "trim_offsets", 1, "use_regex", 1);
    return json_pack("{s:s, s:n, s:n, s:o, s:n, s:o, s:n, s:o, s:o}", "version", "1.0", "truncation", "padding",
                     "added_tokens", added, "normalizer", "pre_tokenizer", pre_tokenizer_json(v->pattern),
                     "post_processor", "decoder", decoder, "model", model);
}

void vocab_save(const Vocab *v, const char *dir)
{
    save_json(vocab_json(v), dir, "tokenizer.json");
    json_t *config = json_pack("{s:s, s:b}", "tokenizer_class", "PreTrainedTokenizerFast",
                               "clean_up_tokenization_spaces", 0);
    if (config && v->eot >= 0) {
        Word w = v->token.word[v->eot];
        json_object_set_new(config, "bos_token", json_stringn(v->token.bytes + w.at, w.n));
        json_object_set_new(config, "eos_token", json_stringn(v->token.bytes + w.at, w.n));
    }
    save_json(config, dir, "tokenizer_config.json");
}

// ---- vocab.json and merges.txt
void vocab_save_gpt2(const Vocab *v, const char *dir)
{
    if (strcmp(v->pattern, "gpt2") != 0 || v->ignore_merges)
        die("%s: vocab.json and merges.txt cannot say the pattern, which is not GPT-2's (write tokenizer.json)", dir);
    char path[4096], *spelled = malloc(2 * v->token.n_bytes + 1);
    json_t *tokens = json_object();
    if (!spelled || !tokens) die("%s: no memory to write the tokenizer", dir);
    for (size_t i = 0; i < v->token.n; i++) {
        size_t n = v->token.word[i].n;
        if (v->special[i]) memcpy(spelled, token_bytes(v, (int32_t)i), n), spelled[n] = 0;
        else spell(token_bytes(v, (int32_t)i), n, spelled);
        if (json_object_set_new(tokens, spelled, json_integer((json_int_t)i)) != 0)
            die("%s: token %zu: cannot be a key of vocab.json (is it UTF-8?)", dir, i);
    }
    char *json = json_dumps(tokens, JSON_COMPACT);
    if (!json) die("%s: no memory to write the tokenizer", dir);
    snprintf(path, sizeof path, "%s/vocab.json", dir);
    replace_file(path, &(Text){.bytes = json, .n = strlen(json)});
    Text merges = {0};
    append(&merges, "#version: 0.2\n", 14);
    for (size_t i = 0; i < v->n_merges; i++) {
        const int32_t side[2] = {v->merge[i].left, v->merge[i].right};
        for (int k = 0; k < 2; k++) {
            spell(token_bytes(v, side[k]), v->token.word[side[k]].n, spelled);
            append(&merges, spelled, strlen(spelled));
            append(&merges, k ? "\n" : " ", 1);
        }
    }
    snprintf(path, sizeof path, "%s/merges.txt", dir);
    replace_file(path, &merges);
    free(merges.bytes);
    free(json);
    free(spelled);
    json_decref(tokens);
}

// ---- base64
static void append_base64(Text *t, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i += 3) {
        uint32_t three = 0;
        for (size_t k = 0; k < 3; k++) three = three << 8 | (i + k < n ? (uint8_t)bytes[i + k] : 0);
        char four[4];
        for (int k = 0; k < 4; k++) four[k] = base64_digits[three >> (18 - 6 * k) & 63];
        for (size_t k = n - i; k < 3; k++) four[k + 1] = '=';
        append(t, four, 4);
    }
}

// Decodes n characters to at most 3n/4 bytes; -1 when they are not base64 (with padding).
static int64_t decode_base64(const char *s, size_t n, char *bytes)
{
    size_t o = 0;
    if (n % 4) return -1;
    for (size_t i = 0; i < n; i += 4) {
        uint32_t three = 0;
        int n_digits = 0;
        while (n_digits < 4 && s[i + (size_t)n_digits] != '=') {
            const char *digit = memchr(base64_digits, s[i + (size_t)n_digits], 64);
            if (!digit) return -1;
            three |= (uint32_t)(digit - base64_digits) << (18 - 6 * n_digits++);
        }
        if (n_digits < 4 && (i + 4 < n || n_digits < 2 || s[i + 3] != '=')) return -1;
        if (three & (0xFFFFFFu >> 8 * (n_digits - 1))) return -1; // bits after the last byte
        for (int k = 0; k + 1 < n_digits; k++) bytes[o++] = (char)(three >> (16 - 8 * k));
    }
    return (int64_t)o;
}

// ---- rank files
void vocab_save_ranks(const Vocab *v, const char *path)
{
    size_t n_ranks = v->token.n;
    while (n_ranks > 0 && v->special[n_ranks - 1]) n_ranks--;
    if (n_ranks != 256 + v->n_merges || v->ignore_merges)
        die("%s: %zu tokens, but 256 bytes and %zu merges: a rank file cannot say that (write tokenizer.json)", path,
            n_ranks, v->n_merges);
    for (size_t i = 1; i < v->n_merges; i++)
        if (v->merge[i].result <= v->merge[i - 1].result)
            die("%s: merge %zu makes token %d after token %d: a rank file cannot say that (write tokenizer.json)", path,
                i, v->merge[i].result, v->merge[i - 1].result);
    Text t = {0};
    for (size_t i = 0; i < n_ranks; i++) {
        char rank[24];
        check(!v->special[i]);
        append_base64(&t, token_bytes(v, (int32_t)i), v->token.word[i].n);
        append(&t, rank, (size_t)snprintf(rank, sizeof rank, " %zu\n", i));
    }
    replace_file(path, &t);
    free(t.bytes);
}

// One line, without its end: the token, which must be the next.
static void read_line(Vocab *v, const char *line, size_t n, char *bytes, const char *path)
{
    const char *space = memchr(line, ' ', n);
    size_t expected = v->token.n, rank = 0, at = space ? (size_t)(space - line) + 1 : n;
    int64_t n_bytes = space ? decode_base64(line, at - 1, bytes) : -1;
    if (n_bytes <= 0 || at == n || n - at > 9)
        die("%s:%zu: not base64, a space and a number (is it a tiktoken rank file?)", path, expected + 1);
    for (; at < n; at++) {
        if (line[at] < '0' || line[at] > '9')
            die("%s:%zu: not base64, a space and a number (is it a tiktoken rank file?)", path, expected + 1);
        rank = 10 * rank + (size_t)(line[at] - '0');
    }
    if (rank != expected)
        die("%s:%zu: rank %zu, expected %zu (ranks must be 0, 1, 2, ... in this order)", path, expected + 1, rank,
            expected);
    if (words_add(&v->token, bytes, (size_t)n_bytes) != expected)
        die("%s:%zu: the same token as an earlier line", path, expected + 1);
}

// Finds the merge that makes each token, in the order of ranks.
static void find_merges(Vocab *v, size_t n_ranks, const char *path)
{
    size_t n_longest = 1;
    int32_t byte_id[256];
    for (int b = 0; b < 256; b++) {
        char byte = (char)b;
        byte_id[b] = (int32_t)words_find(&v->token, &byte, 1);
        if (byte_id[b] < 0) die("%s: byte 0x%02X has no token (not a byte-level tokenizer?)", path, b);
    }
    for (size_t i = 0; i < n_ranks; i++)
        if (v->token.word[i].n > n_longest) n_longest = v->token.word[i].n;
    v->merge = malloc(n_ranks * sizeof *v->merge);
    int32_t *ids = malloc(n_longest * sizeof *ids);
    if (!v->merge || !ids) die("%s: no memory to read it (is it a tokenizer?)", path);
    Bpe lower = bpe_empty(v->merge, n_ranks);
    for (size_t i = 0; i < n_ranks; i++) {
        size_t n = v->token.word[i].n;
        if (n == 1) continue;
        for (size_t k = 0; k < n; k++) ids[k] = byte_id[(uint8_t)v->token.bytes[v->token.word[i].at + k]];
        size_t n_parts = bpe_apply(&lower, ids, n);
        if (n_parts != 2)
            die("%s:%zu: the token is not two tokens of lower rank joined, but %zu (it could never be used)", path,
                i + 1, n_parts);
        v->merge[v->n_merges++] = (BpeMerge){ids[0], ids[1], (int32_t)i};
        bpe_add(&lower);
    }
    bpe_free(&lower);
    free(ids);
}

// Appends a token; returns its id, the highest.
static int32_t add_special(Vocab *v, const char *name, const char *path)
{
    size_t n = v->token.n;
    if (words_add(&v->token, name, strlen(name)) != n) die("%s: holds '%s', which is not a token of text", path, name);
    return (int32_t)n;
}

Vocab vocab_load_ranks(const char *path, const char *pattern)
{
    Vocab v = {.eot = -1, .pattern = strdup(pattern)};
    size_t n_text;
    char *text = disk_read_file(path, &n_text, MAX_RANKS_BYTES);
    if (!text) die("%s: %s (is it a tiktoken rank file?)", path, strerror(errno));
    char *bytes = malloc(n_text + 1);
    if (!bytes || !v.pattern) die("%s: no memory to read it (is it a tokenizer?)", path);
    for (size_t at = 0, end; at < n_text; at = end + 1) {
        const char *stop = memchr(text + at, '\n', n_text - at);
        end = stop ? (size_t)(stop - text) : n_text;
        read_line(&v, text + at, end - at - (end > at && text[end - 1] == '\r'), bytes, path);
    }
    free(bytes);
    free(text);
    size_t n_ranks = v.token.n;
    find_merges(&v, n_ranks, path);
    if (strcmp(pattern, "cl100k") == 0 && n_ranks == CL100K_BASE_RANKS) add_special(&v, "<|unused|>", path);
    v.eot = add_special(&v, TOKENIZER_EOT, path);
    v.special = calloc(v.token.n, sizeof *v.special);
    if (!v.special) die("%s: no memory to read it (is it a tokenizer?)", path);
    for (size_t i = n_ranks; i < v.token.n; i++) v.special[i] = true;
    return v;
}
