// gguf_tokenizer: the tokenizer in llama.cpp's file.
//
//   tokenizer.ggml.model      gpt2: BPE on bytes, in GPT-2's spelling; llama: SentencePiece's BPE on characters
//   tokenizer.ggml.pre        of gpt2: the name of the expression that cuts text into words
//   tokenizer.ggml.tokens, token_type    1 normal, 2 unknown, 3 control, 4 added, 5 unused, 6 byte
//   tokenizer.ggml.merges     of gpt2: "left right", by rank
//   tokenizer.ggml.scores     of llama: the pair whose token has the highest score is merged first
//   (no normalization: where a tokenizer.json asks for form C, llama.cpp leaves text as it is, and so do we)
//   bos_token_id, eos_token_id, unknown_token_id, add_bos_token, add_space_prefix, remove_extra_whitespaces
#include "models/gguf_model.h"

#include "base/check.h"
#include "tokenizer/vocab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NORMAL = 1, UNKNOWN, CONTROL, ADDED, UNUSED, BYTE };
enum { MOST_TOKENS = 1 << 26, MOST_TEXT = 4096 };

// llama.cpp's names of the expressions, and ours. The first of several is the one that is written.
static const char *const expressions[][2] = {{"gpt-2", "gpt2"}, {"olmo", "gpt2"}, {"smollm", "smollm"},
                                             {"dbrx", "llama3"}, {"llama-bpe", "llama3"}, {"qwen2", "qwen2"},
                                             {"dbrx", "cl100k"}}; // cuts every text as llama3 does
enum { EXPRESSIONS = sizeof expressions / sizeof *expressions };

// ---- reading

static char *pattern_of(const Gguf *g, bool *ignore_merges)
{
    char *pre = gguf_string(g, "tokenizer.ggml.pre");
    const char *name = NULL;
    for (int i = 0; i < EXPRESSIONS && pre && !name; i++)
        if (!strcmp(pre, expressions[i][0])) name = expressions[i][1];
    if (!name)
        die("%s: tokenizer.ggml.pre = %.60s: not known here (gpt-2, olmo, smollm, llama-bpe, dbrx, qwen2; or try "
            "--tokenizer DIR)", g->path, pre ? pre : "none");
    *ignore_merges = !strcmp(pre, "llama-bpe");
    free(pre);
    return strdup(name);
}

static void add_token(const Gguf *g, Vocab *v, GgufText t, int type, size_t n)
{
    size_t id = v->token.n;
    char bytes[MOST_TEXT];
    long k = (long)t.n;
    if (!t.n || t.n > sizeof bytes || memchr(t.bytes, 0, t.n))
        die("%s: token %zu: %zu bytes, or a 0 in it (1 to %d are read)", g->path, id, t.n, MOST_TEXT);
    if (type < NORMAL || type > BYTE) die("%s: token %zu is of type %d, which GGUF has not", g->path, id, type);
    if (type == NORMAL && (k = vocab_unspell(v, t.bytes, t.n, bytes)) <= 0)
        die("%s: token %zu, '%.*s': a character outside of GPT-2's spelling of bytes", g->path, id, (int)t.n, t.bytes);
    if (words_add(&v->token, type == NORMAL ? bytes : t.bytes, (size_t)k) != id)
        die("%s: token %zu, '%.*s', is there twice", g->path, id, (int)t.n, t.bytes);
    v->special[id] = type == UNKNOWN || type == CONTROL || type == UNUSED;
    if (type == ADDED && !v->added && !(v->added = calloc(n, sizeof *v->added))) die("%s: no memory", g->path);
    if (type == ADDED) v->added[id] = 1;
    if ((vocab_byte_of(v, (int32_t)id) >= 0) != (type == BYTE))
        die("%s: token %zu, '%.*s': a byte, and not its name, or the reverse", g->path, id, (int)t.n, t.bytes);
}

// Unused tokens at the end only fill the embedding's rows, and are left out.
static void read_tokens(const Gguf *g, Vocab *v)
{
    const GgufKey *tokens = gguf_array(g, "tokenizer.ggml.tokens", GGUF_STRING);
    const GgufKey *types = gguf_find(g, "tokenizer.ggml.token_type")
                               ? gguf_array(g, "tokenizer.ggml.token_type", GGUF_I32) : NULL;
    size_t n = tokens->n;
    if (!n || n > MOST_TOKENS || (types && types->n != n))
        die("%s: %zu tokens, and %zu types of tokens", g->path, n, types ? types->n : 0);
    int32_t *type = malloc(n * sizeof *type);
    v->special = calloc(n, sizeof *v->special);
    if (!type || !v->special) die("%s: no memory for %zu tokens", g->path, n);
    for (size_t i = 0; i < n; i++) type[i] = NORMAL;
    if (types) memcpy(type, types->data, n * sizeof *type);
    while (n > 1 && type[n - 1] == UNUSED) n--;
    const char *at = tokens->data;
    for (size_t i = 0; i < n; i++) add_token(g, v, gguf_next(&at), type[i], n);
    free(type);
}

static void read_merges(const Gguf *g, Vocab *v)
{
    const GgufKey *merges = gguf_array(g, "tokenizer.ggml.merges", GGUF_STRING);
    const char *at = merges->data;
    size_t cap = 0;
    for (size_t i = 0; i < merges->n; i++) {
        GgufText t = gguf_next(&at);
        const char *space = t.n ? memchr(t.bytes + 1, ' ', t.n - 1) : NULL;
        if (!space || t.n > MOST_TEXT) die("%s: merge %zu is not two tokens with a space between", g->path, i);
        vocab_add_merge(v, &cap, t.bytes, (size_t)(space - t.bytes), space + 1, (size_t)(t.bytes + t.n - space - 1),
                        g->path, i);
    }
}

static void read_characters(const Gguf *g, Vocab *v)
{
    const GgufKey *scores = gguf_array(g, "tokenizer.ggml.scores", GGUF_FLOAT);
    if (scores->n < v->token.n) die("%s: %zu tokens, and %zu scores", g->path, v->token.n, scores->n);
    float *score = malloc(v->token.n * sizeof *score);
    if (!score) die("%s: no memory for %zu scores", g->path, v->token.n);
    memcpy(score, scores->data, v->token.n * sizeof *score);
    v->byte_fallback = vocab_has_bytes(v, g->path);
    v->prefix = gguf_number(g, "tokenizer.ggml.add_space_prefix", 1) != 0 ? VOCAB_PREFIX : VOCAB_NO_PREFIX;
    v->squeeze = gguf_number(g, "tokenizer.ggml.remove_extra_whitespaces", 0) != 0;
    v->fuse_unk = true;
    vocab_merge_by_score(v, score, g->path);
    free(score);
}

// A token's id under a key; false: there is no such key.
static bool read_id(const Gguf *g, const Vocab *v, const char *key, int32_t *id)
{
    char name[80];
    snprintf(name, sizeof name, "tokenizer.ggml.%s", key);
    double x = gguf_number(g, name, -1);
    if (x < 0) return false;
    if (!(x < (double)v->token.n)) die("%s: %s = %g, and there are %zu tokens", g->path, name, x, v->token.n);
    *id = (int32_t)x;
    return true;
}

Tokenizer *gguf_model_tokenizer(const Gguf *g)
{
    char *kind = gguf_string(g, "tokenizer.ggml.model");
    Vocab v = {.eot = -1, .chars = kind && !strcmp(kind, "llama")};
    if (!v.chars && (!kind || strcmp(kind, "gpt2")))
        die("%s: tokenizer.ggml.model = %.40s: not known here (gpt2, llama; or try --tokenizer DIR)", g->path,
            kind ? kind : "none");
    free(kind);
    if (!(v.pattern = v.chars ? strdup("") : pattern_of(g, &v.ignore_merges))) die("%s: no memory", g->path);
    read_tokens(g, &v);
    if (v.chars) read_characters(g, &v);
    else read_merges(g, &v);
    bool begins = gguf_number(g, "tokenizer.ggml.add_bos_token", v.chars || v.ignore_merges) != 0;
    v.has_bos = read_id(g, &v, "bos_token_id", &v.bos) && begins;
    v.has_eos = read_id(g, &v, "eos_token_id", &v.eos);
    v.chat = gguf_string(g, "tokenizer.chat_template"); // NULL: none
    v.has_unk = read_id(g, &v, "unknown_token_id", &v.unk) && v.chars;
    vocab_find_eot(&v);
    return tokenizer_new(v);
}

// ---- writing

static const char *expression_of(const Vocab *v, const char *path)
{
    if (v->ignore_merges && !strcmp(v->pattern, "llama3")) return "llama-bpe";
    for (int i = 0; i < EXPRESSIONS && !v->ignore_merges; i++)
        if (!strcmp(v->pattern, expressions[i][1])) return expressions[i][0];
    die("%s: llama.cpp has no name for the pattern of this tokenizer: %.60s%s", path, v->pattern,
        v->ignore_merges ? ", with whole words not merged" : "");
}

// Rows of the embedding that no token has are filled.
static void put_tokens(GgufOut *out, const Vocab *v, size_t V, const char *path)
{
    char *text = NULL;
    int32_t *type = malloc(V * sizeof *type);
    if (!type) die("%s: no memory for %zu tokens", path, V);
    gguf_put_array(out, "tokenizer.ggml.tokens", GGUF_STRING, NULL, V);
    for (size_t i = 0, cap = 0; i < V; i++) {
        bool token = i < v->token.n;
        Word w = token ? v->token.word[i] : (Word){0};
        text = words_grow(text, &cap, 3 * (size_t)w.n + 32, 1);
        type[i] = !token ? UNUSED : v->added && v->added[i] ? ADDED : v->has_unk && v->unk == (int32_t)i ? UNKNOWN
                  : v->special[i] ? CONTROL : vocab_byte_of(v, (int32_t)i) >= 0 ? BYTE : NORMAL;
        if (!token) sprintf(text, "[PAD%zu]", i);
        else if (type[i] == NORMAL) vocab_spell(v, v->token.bytes + w.at, w.n, text);
        else memcpy(text, v->token.bytes + w.at, w.n), text[w.n] = 0;
        gguf_add_string(out, text, strlen(text));
    }
    gguf_put_array(out, "tokenizer.ggml.token_type", GGUF_I32, type, V);
    free(type);
    free(text);
}

static void put_merges(GgufOut *out, const Vocab *v)
{
    char *text = NULL;
    gguf_put_array(out, "tokenizer.ggml.merges", GGUF_STRING, NULL, v->n_merges);
    for (size_t i = 0, cap = 0; i < v->n_merges; i++) {
        Word l = v->token.word[v->merge[i].left], r = v->token.word[v->merge[i].right];
        text = words_grow(text, &cap, 3 * ((size_t)l.n + r.n) + 2, 1);
        vocab_spell(v, v->token.bytes + l.at, l.n, text);
        char *end = stpcpy(text + strlen(text), " ");
        vocab_spell(v, v->token.bytes + r.at, r.n, end);
        gguf_add_string(out, text, strlen(text));
    }
    free(text);
}

// A token's score is minus the rank of the first merge that makes it; characters have the lowest.
static void put_scores(GgufOut *out, const Vocab *v, size_t V, const char *path)
{
    float *score = malloc(V * sizeof *score);
    if (!score) die("%s: no memory for %zu scores", path, V);
    for (size_t i = 0; i < V; i++) score[i] = i < v->token.n && !v->special[i] ? -(float)v->n_merges : 0;
    for (size_t i = v->n_merges; i-- > 0;) score[v->merge[i].result] = -(float)i;
    gguf_put_array(out, "tokenizer.ggml.scores", GGUF_FLOAT, score, V);
    gguf_put_number(out, "tokenizer.ggml.add_space_prefix", GGUF_BOOL, v->prefix != VOCAB_NO_PREFIX);
    gguf_put_number(out, "tokenizer.ggml.remove_extra_whitespaces", GGUF_BOOL, v->squeeze);
    free(score);
}

void gguf_model_put_tokenizer(GgufOut *out, const Tokenizer *t, size_t V, const char *path)
{
    const Vocab *v = tokenizer_vocab(t);
    int32_t bos = tokenizer_bos(t), eos = v->has_eos ? v->eos : tokenizer_eot(t);
    gguf_put_string(out, "tokenizer.ggml.model", v->chars ? "llama" : "gpt2");
    gguf_put_string(out, "tokenizer.ggml.pre", v->chars ? "default" : expression_of(v, path));
    put_tokens(out, v, V, path);
    if (v->chars) put_scores(out, v, V, path);
    else put_merges(out, v);
    if (bos >= 0) gguf_put_number(out, "tokenizer.ggml.bos_token_id", GGUF_U32, bos);
    if (eos >= 0) gguf_put_number(out, "tokenizer.ggml.eos_token_id", GGUF_U32, eos);
    if (v->chat) gguf_put_string(out, "tokenizer.chat_template", v->chat);
    if (v->has_unk) gguf_put_number(out, "tokenizer.ggml.unknown_token_id", GGUF_U32, v->unk);
    gguf_put_number(out, "tokenizer.ggml.add_bos_token", GGUF_BOOL, bos >= 0);
}
