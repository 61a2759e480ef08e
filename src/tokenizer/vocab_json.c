// vocab_json: tokenizer.json, the tokenizer_config.json beside it, and GPT-2's vocab.json with merges.txt.
//
// A feature of tokenizer.json that is not supported here (Unigram and other models, most normalizers, prefix spaces of
// ByteLevel, ...) is refused by name, because ignoring it would give other ids than Hugging Face's. Two kinds of text
// are known:
//
//   bytes         pre_tokenizer ByteLevel, alone or after Splits and Digits; normalizer NFC or none
//   SentencePiece normalizer [Prepend, Replace " " by U+2581] without pre_tokenizer, or pre_tokenizer Metaspace
//
// The post-processor adds tokens around a text, which is the caller's task here; its first one is bos. Of the decoder
// nothing is read, for each kind has its own.
// Truncation and padding are set by each call of Transformers, whatever the file says, and are not read.
//
// Which tokens begin and end: the first one of post_processor's TemplateProcessing, unless add_bos_token of
// tokenizer_config.json (or special_tokens_map.json) is false; else its bos_token where add_bos_token is true, or where
// bos_token is what separates documents. Without such a file a text starts with <|endoftext|>, as GPT-2's does. What
// separates documents is document_token, which no one else writes, else <|endoftext|>, <|end_of_text|> or eos_token.
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/disk.h"
#include "tokenizer/pretoken.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/vocab.h"
#include "tools/safetensors.h"

// HIDDEN bytes 0xFF before a token that is only added keep it out of searches: a token of the model may have its bytes.
enum { MAX_JSON_BYTES = 1 << 27, HIDDEN = 2 };

#define SPACE_WORDS " ?[^ ]+| "   // Metaspace with split, on text in which U+2581 is a space
#define SAVE_JSON "write a tokenizer.json: in Python, AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)"
#define DIGIT "\\p{N}"
#define SMOLLM DIGIT PRETOKEN_THEN "gpt2"

static void *need(void *memory, const char *path)
{
    if (!memory) die("%s: no memory to read it (is it a tokenizer?)", path);
    return memory;
}

// ---- tokens

// One token of a file, as its string and id.
typedef struct {
    const char *string;
    size_t n;
    bool special, listed; // listed: in the model's vocabulary
    uint8_t added;        // as in Vocab
} Entry;

void vocab_refuse(const char *path, const char *key, const json_t *value, const char *why)
{
    char *text = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;
    die("%s: %s = %.80s: %s", path, key, text ? text : "null", why);
}

static void put_entry(Entry *entries, size_t n, json_t *id, Entry e, const char *path)
{
    if (!json_is_integer(id) || json_integer_value(id) < 0 || (size_t)json_integer_value(id) >= n)
        die("%s: token '%.80s': its id, %.80s, is not one of 0..%zu (ids must have no holes)", path, e.string,
            json_dumps(id, JSON_ENCODE_ANY), n - 1);
    Entry *at = &entries[json_integer_value(id)];
    bool same = at->string && at->n == e.n && memcmp(at->string, e.string, e.n) == 0;
    if (at->string && !same)
        die("%s: id %lld belongs to both '%.80s' and '%.80s'", path, (long long)json_integer_value(id), at->string,
            e.string);
    at->string = e.string;
    at->n = e.n;
    at->special |= e.special;
    if (e.added) at->added = e.added;
    at->listed |= e.listed;
}

static bool is_true(json_t *object, const char *key, bool missing, const char *path)
{
    json_t *value = json_object_get(object, key);
    if (!value || json_is_null(value)) return missing;
    if (!json_is_boolean(value)) vocab_refuse(path, key, value, "neither true nor false");
    return json_is_true(value);
}

// How an added token is found in text, as Vocab.added; what is found otherwise than the string alone is refused.
static uint8_t check_added(const Vocab *v, json_t *token, size_t i, const char *path)
{
    static const char *const key[] = {"lstrip", "rstrip", "single_word"};
    const char *content = json_string_value(json_object_get(token, "content"));
    if (!content || !*content) die("%s: added_tokens[%zu] has no content", path, i);
    if (is_true(token, "special", false, path)) return 0;
    for (int k = 0; k < 3; k++)
        if (is_true(token, key[k], false, path))
            die("%s: added token '%.80s' is not special and has %s (not supported: ids would differ)", path, content,
                key[k]);
    if (v->chars && v->prefix != VOCAB_PREFIX_UNLESS_SPACE && is_true(token, "normalized", true, path))
        die("%s: added token '%.80s' is not special and normalized, with a normalizer (not supported: ids would "
            "differ)", path, content);
    return is_true(token, "normalized", true, path) ? 2 : 1;
}

// The tokens of {string: id} and, where there is one, of the list of added tokens, by id; *n: how many.
static Entry *list_entries(const Vocab *v, json_t *vocab, json_t *added, const char *unk, size_t *n, const char *path)
{
    json_t *token, *id;
    const char *key;
    size_t i;
    *n = json_object_size(vocab);
    if (added && !json_is_array(added) && !json_is_null(added)) die("%s: added_tokens is not a list", path);
    json_array_foreach(added, i, token) {
        check_added(v, token, i, path);
        *n += !json_object_get(vocab, json_string_value(json_object_get(token, "content")));
    }
    if (!*n) die("%s: no tokens in it", path);
    Entry *entries = need(calloc(*n + 1, sizeof *entries), path);
    json_object_foreach(vocab, key, id) { // vocab.json does not say which are special
        bool special = (!added && strcmp(key, TOKENIZER_EOT) == 0) || (*unk && strcmp(key, unk) == 0);
        put_entry(entries, *n, id, (Entry){key, strlen(key), special, true, 0}, path);
    }
    json_array_foreach(added, i, token) {
        json_t *content = json_object_get(token, "content");
        uint8_t how = check_added(v, token, i, path);
        Entry e = {json_string_value(content), json_string_length(content), !how, false, how};
        put_entry(entries, *n, json_object_get(token, "id"), e, path);
    }
    return entries;
}

// Fills v->token, v->special and v->added.
static void build_tokens(Vocab *v, json_t *vocab, json_t *added, const char *unk, const char *path)
{
    size_t n, cap = 0;
    Entry *entries = list_entries(v, vocab, added, unk, &n, path);
    char *bytes = NULL;
    v->special = need(calloc(n + 1, sizeof *v->special), path);
    for (size_t i = 0; i < n; i++) {
        Entry e = entries[i];
        if (!e.string) die("%s: no token has id %zu (ids must be 0..%zu without holes)", path, i, n - 1);
        v->special[i] = e.special;
        if (e.special) e.added = 0;
        if (e.added && !v->added) v->added = need(calloc(n + 1, sizeof *v->added), path);
        if (e.added) v->added[i] = e.added;
        if (e.listed && !e.special) {
            bytes = words_grow(bytes, &cap, e.n + 1, 1);
            long n_bytes = vocab_unspell(v, e.string, e.n, bytes);
            if (n_bytes <= 0)
                die("%s: token '%.80s' has a character outside the byte-level alphabet (not byte-level?)", path,
                    e.string);
            if (e.added && ((size_t)n_bytes != e.n || memcmp(bytes, e.string, e.n) != 0))
                die("%s: token '%.80s' is added as it is, and spelled otherwise in the vocabulary (not supported)",
                    path, e.string);
            e.string = bytes;
            e.n = (size_t)n_bytes;
        } else if (e.added) { // another token may have its bytes: hidden below
            bytes = words_grow(bytes, &cap, e.n + HIDDEN, 1);
            memset(bytes, 0xFF, HIDDEN);
            memcpy(bytes + HIDDEN, e.string, e.n);
            e.string = bytes;
            e.n += HIDDEN;
        }
        if (words_add(&v->token, e.string, e.n) != i)
            die("%s: two tokens have the same bytes, one is id %zu", path, i);
    }
    for (size_t i = 0; i < n; i++)
        if (entries[i].added && !entries[i].listed && !entries[i].special)
            v->token.word[i].at += HIDDEN, v->token.word[i].n -= HIDDEN;
    free(bytes);
    free(entries);
}

// ---- reading

json_t *vocab_read_json(const char *path, size_t flags)
{
    json_error_t error;
    size_t n;
    char *text = disk_read_file(path, &n, MAX_JSON_BYTES);
    if (!text) die("%s: %s (at most %d MiB are read)", path, strerror(errno), MAX_JSON_BYTES >> 20);
    if (safetensors_other(text)) die("%s: %s", path, safetensors_other(text));
    json_t *json = json_loadb(text, n, flags, &error);
    free(text);
    if (!json) die("%s:%d: %s", path, error.line, error.text);
    if (!json_is_object(json)) die("%s: not a JSON object", path);
    return json;
}

static void load_merges_txt(Vocab *v, const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        die("%s: %s (a tokenizer folder has tokenizer.json, or vocab.json and merges.txt)", path, strerror(errno));
    char *line = NULL;
    size_t cap_line = 0, cap = 0, number = 0;
    for (ssize_t n; (n = getline(&line, &cap_line, f)) >= 0;) {
        number++;
        while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r')) line[--n] = 0;
        if (n == 0 || (number == 1 && strncmp(line, "#version", 8) == 0)) continue;
        char *space = memchr(line, ' ', (size_t)n);
        if (!space) die("%s:%zu: not two tokens with a space between: '%.80s'", path, number, line);
        vocab_add_merge(v, &cap, line, (size_t)(space - line), space + 1, (size_t)(line + n - space - 1), path,
                        number);
    }
    if (!feof(f)) die("%s: %s", path, strerror(errno));
    fclose(f);
    free(line);
}

// Of a pair that is listed twice tokenizers keeps the last rank, llama.cpp the first.
static void refuse_twice(const Vocab *v, const char *path)
{
    Words seen = {0};
    for (size_t i = 0; i < v->n_merges; i++) {
        const int32_t pair[2] = {v->merge[i].left, v->merge[i].right};
        uint32_t first = words_add(&seen, (const char *)pair, sizeof pair);
        if (first != i)
            die("%s: merges %u and %zu join the same tokens (not supported: libraries differ)", path, first, i);
    }
    words_free(&seen);
}

static void load_merges_json(Vocab *v, json_t *merges, const char *path)
{
    size_t i, cap = 0;
    json_t *m;
    json_array_foreach(merges, i, m) { // ["a", "b"], or "a b" as written before 2024
        json_t *l = json_array_get(m, 0), *r = json_array_get(m, 1);
        const char *s = json_string_value(m), *space = s ? strchr(s, ' ') : NULL;
        if (space)
            vocab_add_merge(v, &cap, s, (size_t)(space - s), space + 1,
                            json_string_length(m) - (size_t)(space + 1 - s), path, i);
        else if (json_is_string(l) && json_is_string(r) && json_array_size(m) == 2)
            vocab_add_merge(v, &cap, json_string_value(l), json_string_length(l), json_string_value(r),
                            json_string_length(r), path, i);
        else die("%s: model.merges[%zu] is neither [\"a\", \"b\"] nor \"a b\"", path, i);
    }
}

static const char *text_of(json_t *object, const char *key)
{
    const char *s = json_string_value(json_object_get(object, key));
    return s ? s : "";
}

static bool type_is(json_t *object, const char *type)
{
    return strcmp(text_of(object, "type"), type) == 0;
}

// {"type": "Replace", "pattern": {kind: pattern}, "content": content}
static bool replaces(json_t *step, const char *kind, const char *pattern, const char *content)
{
    return type_is(step, "Replace") && strcmp(text_of(json_object_get(step, "pattern"), kind), pattern) == 0 &&
           strcmp(text_of(step, "content"), content) == 0;
}

#define BEGINNING "\\A +"
#define SEVERAL " {2,}"
#define END SPACE_SIGN "+\\z"

// What SentencePiece does to text: [Prepend] Replace; where spaces are squeezed, two steps before and one after.
static void read_normalizer(Vocab *v, json_t *json, const char *path)
{
    json_t *one = json_object_get(json, "normalizer"), *list = json_object_get(one, "normalizers");
    size_t i = 0, n = list ? json_array_size(list) : 1;
    if (n == 1 && list) one = json_array_get(list, 0);
    if (!one || json_is_null(one) || !n) return;
    if ((v->nfc = type_is(one, "NFC"))) return;
#define STEP(k) (list ? json_array_get(list, k) : one)
    if (n > 3 && replaces(STEP(0), "Regex", BEGINNING, "") && replaces(STEP(1), "Regex", SEVERAL, " ") &&
        replaces(STEP(n - 1), "Regex", END, "")) v->squeeze = true, i = 2, n--;
    if (i < n && type_is(STEP(i), "Prepend") && strcmp(text_of(STEP(i), "prepend"), SPACE_SIGN) == 0)
        v->prefix = VOCAB_PREFIX, i++;
    if (i + 1 != n || !replaces(STEP(i), "String", " ", SPACE_SIGN))
        die("%s: normalizer %.80s is not NFC, or [Prepend U+2581; Replace \" \" by U+2581] (not supported: ids would "
            "differ)", path, i < n ? text_of(STEP(i), "type") : "Sequence");
#undef STEP
    v->chars = true;
}

// The pattern of tokenizer.json's pre_tokenizer: any number of Splits and Digits, and ByteLevel, perhaps with its own
// expression. Each cuts what the one before has left.
static const char *byte_pattern(json_t *pre, const char *path)
{
    static char all[4096];
    json_t *list = json_object_get(pre, "pretokenizers");
    size_t n = type_is(pre, "Sequence") && list ? json_array_size(list) - 1 : 0;
    json_t *bytes = type_is(pre, "Sequence") ? json_array_get(list, n) : pre;
    if (!type_is(bytes, "ByteLevel") || is_true(bytes, "add_prefix_space", true, path))
        vocab_refuse(path, "pre_tokenizer", bytes, "not ByteLevel without prefix space (others are not supported)");
    *all = 0;
    for (size_t i = 0, length = 0; i < n; i++) {
        json_t *step = json_array_get(list, i);
        bool digits = type_is(step, "Digits") && is_true(step, "individual_digits", false, path);
        const char *regex = digits ? DIGIT : text_of(json_object_get(step, "pattern"), "Regex");
        bool isolated = type_is(step, "Split") && !strcmp(text_of(step, "behavior"), "Isolated");
        if (!digits && (!isolated || !*regex || is_true(step, "invert", false, path)))
            die("%s: pre_tokenizer %zu, %.80s, is not Split by Regex, Isolated, or Digits, individual (not supported: "
                "ids would differ)", path, i, text_of(step, "type"));
        pretoken_check(regex, path);
        if (pretoken_name(regex)) regex = pretoken_name(regex);
        length += (size_t)snprintf(all + length, sizeof all - length, "%s%s", i ? PRETOKEN_THEN : "", regex);
        if (length > sizeof all - 10) die("%s: pre_tokenizer: expressions of %zu bytes", path, length);
    }
    if (is_true(bytes, "use_regex", true, path)) strcat(all, n ? PRETOKEN_THEN "gpt2" : "gpt2");
    if (!*all) die("%s: pre_tokenizer has no pattern (not supported)", path);
    return strcmp(all, SMOLLM) ? all : "smollm";
}

// Sets what says how SentencePiece's text is cut; returns the pattern.
static const char *space_pattern(Vocab *v, json_t *pre, const char *path)
{
    if (!pre || json_is_null(pre)) return "";
    const char *scheme = text_of(pre, "prepend_scheme");
    bool always = strcmp(scheme, "always") == 0 || (!*scheme && is_true(pre, "add_prefix_space", true, path));
    bool first = strcmp(scheme, "first") == 0;
    if (v->chars || strcmp(text_of(pre, "replacement"), SPACE_SIGN) != 0 ||
        !(always || first || strcmp(scheme, "never") == 0 || !*scheme))
        die("%s: pre_tokenizer %.80s is not Metaspace with U+2581 alone (other kinds are not supported)", path,
            text_of(pre, "type"));
    v->chars = true;
    v->prefix = always || first ? VOCAB_PREFIX_UNLESS_SPACE : VOCAB_NO_PREFIX;
    v->prefix_once = first;
    return is_true(pre, "split", true, path) ? SPACE_WORDS : "";
}

static void refuse(json_t *object, const char *key, const char *path)
{
    json_t *value = json_object_get(object, key);
    bool empty = (json_is_string(value) && json_string_length(value) == 0) ||
                 (json_is_number(value) && json_number_value(value) == 0);
    if (value && !json_is_null(value) && !json_is_false(value) && !empty)
        vocab_refuse(path, key, value, "not supported: ids would differ");
}

static void check_model(json_t *json, json_t *model, const char *path)
{
    if (json_object_get(model, "type") && !type_is(model, "BPE"))
        die("%s: model is %.80s (only BPE is supported, not Unigram, WordPiece or WordLevel)", path,
            text_of(model, "type"));
    if (!json_is_object(json_object_get(model, "vocab")) || !json_is_array(json_object_get(model, "merges")))
        die("%s: model is not BPE with vocab and merges", path);
    json_t *version = json_object_get(json, "version"), *unk = json_object_get(model, "unk_token");
    if (version && strcmp(text_of(json, "version"), "1.0") != 0)
        vocab_refuse(path, "version", version, "1.0 is read");
    if (unk && !json_is_string(unk) && !json_is_null(unk)) vocab_refuse(path, "unk_token", unk, "a string is needed");
    refuse(model, "dropout", path);
    refuse(model, "continuing_subword_prefix", path);
    refuse(model, "end_of_word_suffix", path);
}

static void read_unknown(Vocab *v, json_t *model, const char *path)
{
    const char *name = text_of(model, "unk_token");
    if (!*name) return;
    int64_t id = vocab_find_special(v, name);
    if (id < 0) die("%s: unk_token '%.80s' is not in the vocabulary", path, name);
    v->has_unk = true;
    v->unk = (int32_t)id;
    v->fuse_unk = is_true(model, "fuse_unk", false, path);
}

// The token that post_processor puts before a text.
static void read_template(Vocab *v, json_t *post, const char *path)
{
    json_t *list = json_object_get(post, "processors"), *step;
    size_t i;
    if (!post || json_is_null(post) || type_is(post, "ByteLevel")) return;
    if (type_is(post, "Sequence")) {
        json_array_foreach(list, i, step) read_template(v, step, path);
        return;
    }
    bool pair = type_is(post, "RobertaProcessing") || type_is(post, "BertProcessing"); // "cls": [token, id]
    if (!pair && !type_is(post, "TemplateProcessing"))
        die("%s: post_processor %.80s is not known here (it says what a text begins with)", path,
            text_of(post, "type"));
    json_t *single = json_object_get(post, "single"), *cls = json_object_get(post, "cls");
    json_t *first = json_object_get(json_array_get(single, 0), "SpecialToken");
    if (!pair && !json_is_array(single)) vocab_refuse(path, "post_processor.single", single, "a list is needed");
    if (!first && !pair) return;
    const char *name = pair ? json_string_value(json_array_get(cls, 0)) : text_of(first, "id");
    int64_t id = vocab_find_special(v, name ? name : "");
    if (id < 0) die("%s: post_processor begins with '%.80s', which is no special token", path, name ? name : "");
    json_t *said = json_object_get(json_object_get(json_object_get(post, "special_tokens"), name), "ids");
    said = pair ? json_array_get(cls, 1) : json_array_get(said, 0);
    if (said && json_integer_value(said) != id) vocab_refuse(path, name, said, "post_processor has another id for it");
    v->has_bos = true;
    v->bos = (int32_t)id;
}

// The special token that a key names, by its string or as an object; -1: none.
static int64_t named(const Vocab *v, json_t *config, const char *key)
{
    json_t *value = json_object_get(config, key);
    return vocab_find_special(v, json_is_object(value) ? text_of(value, "content") : text_of(config, key));
}

// chat_template.jinja, which Transformers prefers, or the text in the configuration: one, or the one of several that is
// named "default".
static char *read_chat(json_t *config, const char *dir)
{
    char path[4096];
    size_t n, i;
    snprintf(path, sizeof path, "%s/chat_template.jinja", dir);
    char *file = disk_read_file(path, &n, 1 << 20);
    if (file || errno != ENOENT) return need(file, path);
    json_t *chat = json_object_get(config, "chat_template"), *one;
    json_array_foreach(chat, i, one)
        if (!strcmp(text_of(one, "name"), "default")) return need(strdup(text_of(one, "template")), dir);
    return json_is_string(chat) ? need(strdup(json_string_value(chat)), dir) : NULL;
}

// Tokens of the list that Transformers keeps beside a tokenizer, and adds to it. A special one is never made from text.
static void check_added_list(const Vocab *v, json_t *config, const char *path)
{
    const char *number;
    json_t *token;
    json_object_foreach(json_object_get(config, "added_tokens_decoder"), number, token) {
        char hidden[300];
        int n = snprintf(hidden, sizeof hidden, "\xFF\xFF%.200s", text_of(token, "content"));
        bool known = words_find(&v->token, hidden, (size_t)n) >= 0 ||
                     words_find(&v->token, hidden + HIDDEN, (size_t)n - HIDDEN) >= 0;
        if (!known && !is_true(token, "special", false, path))
            vocab_refuse(path, number, token, "the tokenizer itself has not this added token");
    }
}

void vocab_read_config(Vocab *v, const char *dir, const char *kind)
{
    static const char *const name[] = {"tokenizer_config.json", "special_tokens_map.json"};
    char path[4096];
    json_t *config = NULL;
    for (int i = 0; i < 2 && !config; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, name[i]);
        if (access(path, F_OK) == 0) config = vocab_read_json(path, JSON_DECODE_INT_AS_REAL); // 10^30 stands there
    }
    json_t *theirs = json_object_get(config, "tokenizer_class");
    const char *named_class = text_of(config, "tokenizer_class");
    if (kind && theirs && strncmp(named_class, kind, strlen(kind)) && strcmp(named_class, "PreTrainedTokenizerFast"))
        vocab_refuse(path, "tokenizer_class", theirs, "vocab.json is GPT-2's here (" SAVE_JSON ")");
    check_added_list(v, config, path);
    if (!v->chars && is_true(config, "add_prefix_space", false, path))
        vocab_refuse(path, "add_prefix_space", json_true(), "not supported: ids would differ");
    int64_t eos = named(v, config, "eos_token"), bos = named(v, config, "bos_token");
    if (eos >= 0) v->has_eos = true, v->eos = (int32_t)eos;
    v->eot = (int32_t)named(v, config, "document_token");
    vocab_find_eot(v);
    if (!config && v->eot >= 0 && vocab_find_special(v, TOKENIZER_EOT) == v->eot) bos = v->eot;
    if (json_is_false(json_object_get(config, "add_bos_token")) && v->bos != v->eot) v->has_bos = false;
    if (!v->has_bos && bos >= 0 && (bos == v->eot || is_true(config, "add_bos_token", false, path)))
        v->has_bos = true, v->bos = (int32_t)bos;
    v->chat = read_chat(config, dir);
    json_decref(config);
}

static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return need(slash ? strndup(path, (size_t)(slash - path)) : strdup("."), path);
}

Vocab vocab_load_json(const char *path)
{
    Vocab v = {.eot = -1};
    json_t *json = vocab_read_json(path, JSON_REJECT_DUPLICATES), *model = json_object_get(json, "model");
    json_t *pre = json_object_get(json, "pre_tokenizer");
    check_model(json, model, path);
    read_normalizer(&v, json, path);
    bool spaces = v.chars || type_is(pre, "Metaspace");
    v.pattern = need(strdup(spaces ? space_pattern(&v, pre, path) : byte_pattern(pre, path)), path);
    v.ignore_merges = is_true(model, "ignore_merges", false, path);
    if (!v.chars) refuse(model, "byte_fallback", path);
    build_tokens(&v, json_object_get(model, "vocab"), json_object_get(json, "added_tokens"),
                 text_of(model, "unk_token"), path);
    v.byte_fallback = v.chars && is_true(model, "byte_fallback", false, path) && vocab_has_bytes(&v, path);
    load_merges_json(&v, json_object_get(model, "merges"), path);
    refuse_twice(&v, path);
    read_unknown(&v, model, path);
    read_template(&v, json_object_get(json, "post_processor"), path);
    json_decref(json);
    char *dir = folder_of(path);
    vocab_read_config(&v, dir, NULL);
    free(dir);
    return v;
}

Vocab vocab_load_gpt2(const char *dir)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/vocab.json", dir);
    Vocab v = {.eot = -1, .pattern = need(strdup("gpt2"), path)};
    json_t *json = vocab_read_json(path, JSON_REJECT_DUPLICATES);
    build_tokens(&v, json, NULL, "", path);
    json_decref(json);
    snprintf(path, sizeof path, "%s/merges.txt", dir);
    load_merges_txt(&v, path);
    refuse_twice(&v, path);
    snprintf(path, sizeof path, "%s/added_tokens.json", dir);
    if (access(path, F_OK) == 0) die("%s: tokens beside vocab.json (" SAVE_JSON ")", path);
    vocab_read_config(&v, dir, "GPT2Tokenizer");
    return v;
}

// ---- writing
static void replace_file(const char *path, const char *bytes, size_t n)
{
    if (!disk_replace_file(path, bytes, n))
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
    replace_file(path, text, strlen(text));
    free(text);
    json_decref(json);
}

static json_t *byte_pre_tokenizer(const char *pattern)
{
    const char *at = strcmp(pattern, "smollm") ? pattern : SMOLLM;
    json_t *list = json_array(), *one;
    bool gpt2 = false;
    for (size_t n; *at; at += n + (at[n] != 0)) {
        n = strcspn(at, PRETOKEN_THEN);
        char *part = need(strndup(at, n), pattern);
        const char *regex = pretoken_regex(part) ? pretoken_regex(part) : part;
        if (!at[n] && !strcmp(part, "gpt2")) gpt2 = true;
        else if (!strcmp(part, DIGIT))
            json_array_append_new(list, json_pack("{s:s, s:b}", "type", "Digits", "individual_digits", 1));
        else json_array_append_new(list, json_pack("{s:s, s:{s:s}, s:s, s:b}", "type", "Split", "pattern", "Regex",
                                                   regex, "behavior", "Isolated", "invert", 0));
        free(part);
    }
    json_array_append_new(list, one = json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0,
                                                "trim_offsets", 1, "use_regex", gpt2));
    if (json_array_size(list) > 1) return json_pack("{s:s, s:o}", "type", "Sequence", "pretokenizers", list);
    json_incref(one);
    json_decref(list);
    return one;
}

// Whether the spaces are Metaspace's, and not the normalizer's.
static bool is_metaspace(const Vocab *v)
{
    return v->chars && (*v->pattern || v->prefix == VOCAB_PREFIX_UNLESS_SPACE);
}

static json_t *pre_tokenizer_json(const Vocab *v)
{
    if (!v->chars) return byte_pre_tokenizer(v->pattern);
    if (!is_metaspace(v)) return json_null();
    return json_pack("{s:s, s:s, s:s, s:b}", "type", "Metaspace", "replacement", SPACE_SIGN, "prepend_scheme",
                     !v->prefix ? "never" : v->prefix_once ? "first" : "always", "split", *v->pattern != 0);
}

static json_t *replace_json(const char *kind, const char *pattern, const char *content)
{
    return json_pack("{s:s, s:{s:s}, s:s}", "type", "Replace", "pattern", kind, pattern, "content", content);
}

static json_t *normalizer_json(const Vocab *v)
{
    if (v->nfc) return json_pack("{s:s}", "type", "NFC");
    if (!v->chars || is_metaspace(v)) return json_null();
    json_t *list = json_array();
    if (v->squeeze) {
        json_array_append_new(list, replace_json("Regex", BEGINNING, ""));
        json_array_append_new(list, replace_json("Regex", SEVERAL, " "));
    }
    if (v->prefix) json_array_append_new(list, json_pack("{s:s, s:s}", "type", "Prepend", "prepend", SPACE_SIGN));
    json_array_append_new(list, replace_json("String", " ", SPACE_SIGN));
    if (v->squeeze) json_array_append_new(list, replace_json("Regex", END, ""));
    return json_pack("{s:s, s:o}", "type", "Sequence", "normalizers", list);
}

static json_t *decoder_json(const Vocab *v)
{
    if (!v->chars)
        return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 1, "trim_offsets", 1,
                         "use_regex", 1);
    json_t *list = json_pack("[o]", replace_json("String", SPACE_SIGN, " "));
    if (v->byte_fallback) json_array_append_new(list, json_pack("{s:s}", "type", "ByteFallback"));
    json_array_append_new(list, json_pack("{s:s}", "type", "Fuse"));
    if (v->prefix)
        json_array_append_new(list, json_pack("{s:s, s:s, s:i, s:i}", "type", "Strip", "content", " ", "start", 1,
                                              "stop", 0));
    return json_pack("{s:s, s:o}", "type", "Sequence", "decoders", list);
}

static json_t *name_json(const Vocab *v, bool has, int32_t id)
{
    return has ? json_stringn(token_bytes(v, id), v->token.word[id].n) : json_null();
}

// bos, unless it is what separates documents: that one no other program puts before a text.
static json_t *post_processor_json(const Vocab *v)
{
    if (!v->has_bos || v->bos == v->eot) return json_null();
    json_t *name = name_json(v, true, v->bos), *tokens = json_object();
    json_object_set_new(tokens, json_string_value(name), json_pack("{s:O, s:[i], s:[O]}", "id", name, "ids", v->bos,
                                                                   "tokens", name));
    return json_pack("{s:s, s:[{s:{s:o, s:i}}, {s:{s:s, s:i}}], s:[{s:{s:s, s:i}}, {s:{s:s, s:i}}], s:o}", "type",
                     "TemplateProcessing", "single", "SpecialToken", "id", name, "type_id", 0, "Sequence", "id", "A",
                     "type_id", 0, "pair", "Sequence", "id", "A", "type_id", 0, "Sequence", "id", "B", "type_id", 1,
                     "special_tokens", tokens);
}

// Adds a token to the vocabulary of a file. A special token is spelled as it is, another by its bytes, and so two may
// be spelled alike.
static void put_token(json_t *vocab, const char *spelled, size_t id, const char *dir)
{
    json_t *other = json_object_get(vocab, spelled);
    if (other)
        die("%s: tokens %lld and %zu are both spelled '%.80s' (no file of this kind can hold both)", dir,
            (long long)json_integer_value(other), id, spelled);
    if (json_object_set_new(vocab, spelled, json_integer((json_int_t)id)) != 0)
        die("%s: token %zu cannot be written (is it UTF-8?), or no memory to write the tokenizer", dir, id);
}

// The vocabulary, the merges and the added tokens, which must have been made.
static void fill_tables(const Vocab *v, json_t *vocab, json_t *merges, json_t *added, const char *dir)
{
    char *a = need(malloc(3 * v->token.n_bytes + 1), dir), *b = need(malloc(3 * v->token.n_bytes + 1), dir);
    bool failed = false;
    for (size_t i = 0; i < v->token.n; i++) {
        Word w = v->token.word[i];
        bool special = v->special && v->special[i];
        int found = v->added ? v->added[i] : 0;
        if (special || found) {
            snprintf(a, w.n + 1, "%.*s", (int)w.n, v->token.bytes + w.at);
            failed |= json_array_append_new(added, json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id", (int)i,
                                                             "content", a, "single_word", 0, "lstrip", 0, "rstrip",
                                                             0, "normalized", found == 2, "special", special));
        } else vocab_spell(v, v->token.bytes + w.at, w.n, a);
        if (!found || words_find(&v->token, v->token.bytes + w.at, w.n) == (int64_t)i) // else it is only added
            put_token(vocab, a, i, dir);
    }
    for (size_t i = 0; i < v->n_merges; i++) {
        Word l = v->token.word[v->merge[i].left], r = v->token.word[v->merge[i].right];
        vocab_spell(v, v->token.bytes + l.at, l.n, a);
        vocab_spell(v, v->token.bytes + r.at, r.n, b);
        failed |= json_array_append_new(merges, json_pack("[s, s]", a, b));
    }
    free(a);
    free(b);
    if (failed) die("%s: a token cannot be written (is it UTF-8?), or no memory to write the tokenizer", dir);
}

static void save_config(const Vocab *v, const char *dir)
{
    json_t *config = json_pack("{s:s, s:b}", "tokenizer_class", "PreTrainedTokenizerFast",
                               "clean_up_tokenization_spaces", 0);
    Vocab other = *v;
    other.eot = -1;
    vocab_find_eot(&other);
    if (v->has_bos) json_object_set_new(config, "bos_token", name_json(v, true, v->bos));
    if (v->has_bos && v->bos != v->eot) json_object_set_new(config, "add_bos_token", json_true());
    if (v->has_eos || v->eot >= 0)
        json_object_set_new(config, "eos_token", name_json(v, true, v->has_eos ? v->eos : v->eot));
    if (v->has_unk) json_object_set_new(config, "unk_token", name_json(v, true, v->unk));
    if (other.eot != v->eot && v->eot >= 0)
        json_object_set_new(config, "document_token", name_json(v, true, v->eot));
    if (v->chat) json_object_set_new(config, "chat_template", json_string(v->chat));
    save_json(config, dir, "tokenizer_config.json");
}

void vocab_save(const Vocab *v, const char *dir)
{
    json_t *vocab = json_object(), *merges = json_array(), *added = json_array();
    fill_tables(v, vocab, merges, added, dir);
    json_t *model = json_pack("{s:s, s:n, s:o, s:n, s:n, s:b, s:b, s:b, s:o, s:o}", "type", "BPE", "dropout",
                              "unk_token", name_json(v, v->has_unk, v->unk), "continuing_subword_prefix",
                              "end_of_word_suffix", "fuse_unk", v->fuse_unk, "byte_fallback", v->byte_fallback,
                              "ignore_merges", v->ignore_merges, "vocab", vocab, "merges", merges);
    save_json(json_pack("{s:s, s:n, s:n, s:o, s:o, s:o, s:o, s:o, s:o}", "version", "1.0", "truncation", "padding",
                        "added_tokens", added, "normalizer", normalizer_json(v), "pre_tokenizer", pre_tokenizer_json(v),
                        "post_processor", post_processor_json(v), "decoder", decoder_json(v), "model", model),
              dir, "tokenizer.json");
    save_config(v, dir);
}

// Neither holds a pattern, or says of a token that it is special.
void vocab_save_gpt2(const Vocab *v, const char *dir)
{
    if (strcmp(v->pattern, "gpt2") != 0 || v->ignore_merges)
        die("%s: vocab.json and merges.txt cannot say the pattern, which is not GPT-2's (write tokenizer.json)", dir);
    if (v->added || v->has_unk || v->nfc)
        die("%s: vocab.json and merges.txt cannot say which tokens are added or unknown, or NFC (write tokenizer.json)",
            dir);
    char path[4096], *text;
    size_t n, i;
    json_t *vocab = json_object(), *list = json_array(), *added = json_array(), *merge;
    FILE *f = open_memstream(&text, &n);
    fill_tables(v, vocab, list, added, dir);
    char *json = json_dumps(vocab, JSON_COMPACT);
    if (!f || !json) die("%s: no memory to write the tokenizer", dir);
    snprintf(path, sizeof path, "%s/vocab.json", dir);
    replace_file(path, json, strlen(json));
    fputs("#version: 0.2\n", f);
    json_array_foreach(list, i, merge)
        fprintf(f, "%s %s\n", json_string_value(json_array_get(merge, 0)), json_string_value(json_array_get(merge, 1)));
    if (fclose(f) != 0 || !text) die("%s: no memory to write the tokenizer", dir);
    snprintf(path, sizeof path, "%s/merges.txt", dir);
    replace_file(path, text, n);
    free(text);
    free(json);
    json_decref(vocab);
    json_decref(list);
    json_decref(added);
}
