// tokenizers: targets about tokenizers: what reads them, what they make of any bytes, and of benchmarks' questions.
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/words.h"
#include "tokenizer/tokenizer.h"
#include "eval/tasks.h"

static Tokenizer *small_tokenizer(const char *pattern)
{
    static const char text[] =
        "the cat and the hat; the rat sat on the mat, and that was that. Caf\xC3\xA9 1234 5678 !!";
    TokenizerTrainer *trainer = tokenizer_trainer_new(pattern);
    tokenizer_trainer_add(trainer, text, sizeof text - 1);
    return tokenizer_trainer_finish(trainer, 275);
}

// The content of a file of the scratch folder; static.
static const char *slurp(const char *name, size_t *n)
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
static void use_tokenizer(Tokenizer *t)
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

// Also written and read again: the same ids, the same tokens at the ends. Frees it.
static void use(Tokenizer *t)
{
    use_tokenizer(t);
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
    tokenizer_free(t);
}

// Removes what an input before has left, and would be read with this one.
static void clean_folder(void)
{
    static const char *const name[] = {"tokenizer.json", "tokenizer.model", "tokenizer_config.json"};
    char path[300];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", fuzz_dir(), name[i]);
        unlink(path);
    }
}

// ---- tokenizer_json: the reader of tokenizer.json: vocabulary, merges, added tokens, SentencePiece's spaces, and the regular
// expression of other people. After a line of four dashes: tokenizer_config.json.
#define UNKNOWN "{\"id\": 0, \"content\": \"<unk>\", \"special\": true}, {\"id\": 1, \"content\": \"<s>\", \"special\": true}"
#define MODEL "\"model\": {\"type\": \"BPE\", \"unk_token\": \"<unk>\", \"fuse_unk\": true, \"byte_fallback\": true, "
#define SPACES "{\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"\u2581\"}"

static void tokenizer_json_seeds(void)
{
    const char *patterns[] = {"gpt2", "cl100k", "smollm"};
    for (int i = 0; i < 3; i++) {
        Tokenizer *t = small_tokenizer(patterns[i]);
        size_t n;
        tokenizer_save(t, fuzz_dir());
        const char *bytes = slurp("tokenizer.json", &n);
        fuzz_seed(patterns[i], bytes, n);
        tokenizer_free(t);
    }
    static const char *const other[] = {
        "{\"added_tokens\": [" UNKNOWN ", {\"id\": 7, \"content\": \"hat\", \"normalized\": false}], \"normalizer\": "
        "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Prepend\", \"prepend\": \"\u2581\"}, " SPACES "]}, "
        "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\"}}]}, "
        MODEL "\"vocab\": {\"<unk>\": 0, \"<s>\": 1, \"\u2581\": 2, \"t\": 3, \"h\": 4, \"th\": 5, \"\u2581th\": 6}, "
        "\"merges\": [[\"t\", \"h\"], \"\u2581 th\"]}}\n----\n{\"eos_token\": \"<s>\", \"bos_token\": \"<s>\"}",
        "{\"added_tokens\": [" UNKNOWN "], \"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"\u2581\", "
        "\"prepend_scheme\": \"first\", \"split\": true}, "
        MODEL "\"vocab\": {\"<unk>\": 0, \"<s>\": 1, \"a\": 2, \"t\": 3, \"at\": 4}, \"merges\": [\"a t\"]}}",
        "{\"added_tokens\": [" UNKNOWN ", {\"id\": 6, \"content\": \"e\u0301\", \"normalized\": false}], "
        "\"normalizer\": {\"type\": \"NFC\"}, \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false}, "
        "\"model\": {\"unk_token\": \"<unk>\", \"vocab\": {\"<unk>\": 0, \"<s>\": 1, \"\u00C3\": 2, \"\u00A9\": 3, "
        "\"\u00C3\u00A9\": 4, \"e\": 5}, \"merges\": [\"\u00C3 \u00A9\"]}}",
        "{\"added_tokens\": [" UNKNOWN ", {\"id\": 5, \"content\": \"  \"}, {\"id\": 6, \"content\": \"cat  and\"}], "
        "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false}, \"model\": {\"unk_token\": \"<unk>\", "
        "\"vocab\": {\"<unk>\": 0, \"<s>\": 1, \"a\": 2, \"t\": 3, \"at\": 4}, \"merges\": [\"a t\"]}}"};
    fuzz_seed_texts(other, 4);
}

static void tokenizer_json_one(const uint8_t *data, size_t n)
{
    size_t second, first = fuzz_cut(data, n, &second);
    clean_folder();
    fuzz_file("tokenizer.json", data, first);
    if (second < n) fuzz_file("tokenizer_config.json", data + second, n - second);
    Tokenizer *t = tokenizer_load(fuzz_dir());
    use(t);
}

FUZZ(tokenizer_json, NULL)

// ---- tokenizer_gpt2: the reader of GPT-2's two files: vocab.json, a line of four dashes, merges.txt.
static void tokenizer_gpt2_seeds(void)
{
    static char both[1 << 16];
    size_t n_vocab, n_merges;
    Tokenizer *t = small_tokenizer("gpt2");
    vocab_save_gpt2(tokenizer_vocab(t), fuzz_dir());
    memcpy(both, slurp("vocab.json", &n_vocab), sizeof both / 2);
    memcpy(both + n_vocab, "\n----\n", 6);
    const char *merges = slurp("merges.txt", &n_merges);
    memcpy(both + n_vocab + 6, merges, n_merges);
    fuzz_seed("both", both, n_vocab + 6 + n_merges);
    tokenizer_free(t);
}

static void tokenizer_gpt2_one(const uint8_t *data, size_t n)
{
    size_t second, first = fuzz_cut(data, n, &second);
    clean_folder();
    fuzz_file("vocab.json", data, first);
    fuzz_file("merges.txt", data + second, n - second);
    Tokenizer *t = tokenizer_load(fuzz_dir());
    use(t);
}

FUZZ(tokenizer_gpt2, NULL)

// ---- tokenizer_ranks: the reader of tiktoken's rank files: base64, ranks, and the merges that have to be derived from them.
static void tokenizer_ranks_seeds(void)
{
    char path[300];
    snprintf(path, sizeof path, "%s/ranks", fuzz_dir());
    Tokenizer *t = small_tokenizer("gpt2");
    vocab_save_ranks(tokenizer_vocab(t), path);
    fuzz_seed_file(path);
    tokenizer_free(t);
}

static void tokenizer_ranks_one(const uint8_t *data, size_t n)
{
    Tokenizer *t = tokenizer_load_ranks(fuzz_file("ranks", data, n), n % 2 ? "gpt2" : "cl100k");
    use(t);
}

FUZZ(tokenizer_ranks, NULL)

// ---- tokenizer_model: the reader of SentencePiece's model files.
typedef struct {
    char bytes[16384];
    size_t n;
} Proto;

static void put(Proto *p, int field, int kind, const void *bytes, size_t n)
{
    p->bytes[p->n++] = (char)(field << 3 | kind);
    if (kind == 2) p->bytes[p->n++] = (char)n; // short ones only
    memcpy(p->bytes + p->n, bytes, n);
    p->n += n;
}

static void put_piece(Proto *p, const char *piece, float score, char type)
{
    Proto m = {0};
    put(&m, 1, 2, piece, strlen(piece));
    put(&m, 2, 5, &score, 4);
    put(&m, 3, 0, &type, 1);
    put(p, 1, 2, m.bytes, m.n);
}

// flags: 1: bytes have pieces; 2: no prefix; 4: spaces are kept; 8: two pieces are user-defined.
static void model_seed(int flags)
{
    static const char *const pieces[] = {"\u2581", "t", "h", "a", "c", "at", "th", "\u2581th", "cat", "\u2581\u2581"};
    Proto p = {0}, trainer = {0}, normalizer = {0};
    put_piece(&p, "<unk>", 0, 2);
    put_piece(&p, "<s>", 0, 3);
    put_piece(&p, "</s>", 0, 3);
    for (int b = 0; b < 256 && flags & 1; b++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", b);
        put_piece(&p, name, 0, 6);
    }
    for (int i = 0; i < 10; i++) put_piece(&p, pieces[i], -(float)i, 1);
    if (flags & 8) put_piece(&p, "<x>", 0, 4), put_piece(&p, "hat", 0, 4);
    put(&trainer, 3, 0, "\x02", 1);
    if (flags & 1) put(&trainer, 35, 0, "", 0); // of two bytes: below
    if (flags & 1) memcpy(trainer.bytes + trainer.n - 1, "\x98\x02\x01", 3), trainer.n += 2;
    put(&p, 2, 2, trainer.bytes, trainer.n);
    put(&normalizer, 1, 2, "identity", 8);
    put(&normalizer, 3, 0, flags & 2 ? "\x00" : "\x01", 1);
    put(&normalizer, 4, 0, flags & 4 ? "\x00" : "\x01", 1);
    put(&p, 3, 2, normalizer.bytes, normalizer.n);
    fuzz_seed((char[]){'m', (char)('a' + flags), 0}, p.bytes, p.n);
}

static void tokenizer_model_seeds(void)
{
    const int flags[] = {0, 1, 2, 4, 5, 6, 15};
    for (int i = 0; i < 7; i++) model_seed(flags[i]);
}

static void tokenizer_model_one(const uint8_t *data, size_t n)
{
    clean_folder();
    Tokenizer *t = tokenizer_load(fuzz_file("tokenizer.model", data, n));
    use(t);
}

FUZZ(tokenizer_model, NULL)

// ---- encode: encoding: any bytes give ids that decode to the same bytes, in one piece or cut into texts.
static Tokenizer *tokenizer[2];

static void make_tokenizers(void)
{
    tokenizer[0] = small_tokenizer("gpt2");
    tokenizer[1] = small_tokenizer("cl100k");
}

static void encode_seeds(void)
{
    const char *text[] = {"The cat's hat, 1234  \n\n and\tthe rat!",
                          "caf\xC3\xA9 \xE2\x80\xA8 \xF0\x9F\x98\x80 \xFF\xFE\xC0\x80",
                          "<|endoftext|>'ll'VE'\xC5\xBF   x\r\n\r\n  y  ",
                          "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
    fuzz_seed_texts(text, 4);
}

static void encode_one(const uint8_t *data, size_t n)
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

FUZZ(encode, make_tokenizers)

// ---- utf8: the reading of UTF-8 against the table of well-formed sequences, written out (The Unicode Standard, table
// 3-7).
static void utf8_seeds(void)
{
    fuzz_seed("good", "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80 b", 13);
    fuzz_seed("bad", "\xC0\x80\xED\xA0\x80\xF4\x90\x80\x80\xE2\x82 \xF0\x9F\x98", 16);
}

static bool between(uint8_t c, uint8_t low, uint8_t high)
{
    return c >= low && c <= high;
}

// The length of the well-formed character at s, or 0.
static size_t well_formed(const uint8_t *s, size_t n)
{
    uint8_t c = s[0];
    if (c < 0x80) return 1;
    uint8_t low = c == 0xE0 ? 0xA0 : c == 0xF0 ? 0x90 : 0x80, high = c == 0xED ? 0x9F : c == 0xF4 ? 0x8F : 0xBF;
    size_t length = between(c, 0xC2, 0xDF) ? 2 : between(c, 0xE0, 0xEF) ? 3 : between(c, 0xF0, 0xF4) ? 4 : 0;
    if (!length || n < length || !between(s[1], low, high)) return 0;
    for (size_t i = 2; i < length; i++)
        if (!between(s[i], 0x80, 0xBF)) return 0;
    return length;
}

static void utf8_one(const uint8_t *data, size_t n)
{
    const char *s = (const char *)data;
    size_t first_bad = n, length, at = 0;
    while (at < n) {
        bool valid;
        size_t k = words_utf8_length(s + at, n - at, &valid), expected = well_formed(data + at, n - at);
        fuzz_check(k >= 1 && k <= 4 && k <= n - at);
        fuzz_check(valid == (expected > 0) && (!valid || k == expected) && (valid || k <= 3));
        if (valid) fuzz_check(words_utf8_code(s + at, k) <= 0x10FFFF);
        if (!valid && first_bad == n) first_bad = at;
        at += k;
    }
    fuzz_check(words_utf8_invalid(s, n, 0, &length) == first_bad);
    for (size_t i = 0; i <= first_bad; i++) { // what is before the first fault is well-formed
        size_t border = words_utf8_border(s, first_bad, i);
        fuzz_check(border <= i && i - border <= 3);
        fuzz_check(words_utf8_invalid(s, border, 0, &length) == border);
    }
}

FUZZ(utf8, NULL)

// ---- tasks: the readers of benchmark tasks: datasets and requests as JSON lines, llm.c's file of tokens.
enum { CONTEXT = 16 };

#define REQUEST(ID, IDX, ENDING) "{'request_type': 'loglikelihood', 'doc_id': " ID ", 'idx': " IDX ", 'label': 1, " \
    "'request': {'context': 'Q', 'continuation': '" ENDING "'}}\n"

static void tasks_seeds(void)
{
    static const char *const text[] = {
        "{'activity_label': 'A', 'ctx_a': '[header] b [title] c', 'ctx_b': 'he', 'endings': ['d', '[e] f'], "
        "'label': '1'}\n",
        "{'goal': 'g', 'sol1': 'a', 'sol2': 'b', 'label': 0}\n{'goal': 'h', 'sol1': 'a', 'sol2': 'b', "
        "'label': '1'}\n",
        "{'sentence': 'a _ b', 'option1': 'x', 'option2': 'y', 'answer': '2'}",
        "{'question': 'q', 'choices': {'text': ['a', 'b'], 'label': ['A', 'B']}, 'answerKey': 'B'}\n\n",
        "{'question_stem': 'q', 'choices': {'text': ['a', 'b'], 'label': ['1', '2']}, 'answerKey': '2'}",
        "{'passage': 'p', 'question': 'q', 'answer': true}",
        "{'text': 'one two'}\n{'text': '\\u00e9'}",
        "{'question': 'q', 'subject': 's_t', 'choices': ['a', 'b', 'c'], 'answer': 2}",
        REQUEST("0", "0", " a") REQUEST("0", "1", " b") REQUEST("1000000", "0", " a") REQUEST("1000000", "1", " b")};
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        char json[600];
        size_t n = (size_t)snprintf(json, sizeof json, "%s", text[i]);
        for (size_t k = 0; k < n; k++)
            if (json[k] == '\'') json[k] = '"';
        fuzz_seed((char[]){'t', (char)('0' + i), 0}, json, n);
    }
    const int32_t head[4] = {20240522, 1, 2, 26};
    const uint16_t token[] = {65535, 26, 0, 1, 2, 3, 10, 11, 12, 1, 13, 1, 14,
                              65535, 26, 1, 0, 2, 1, 20, 2, 21, 22, 2, 23, 24};
    char bytes[1024 + sizeof token] = {0};
    memcpy(bytes, head, sizeof head);
    memcpy(bytes + 1024, token, sizeof token);
    fuzz_seed("llmc", bytes, sizeof bytes);
}

static void tasks_one(const uint8_t *data, size_t n)
{
    char name[400];
    const char *path = fuzz_file("x.jsonl", data, n);
    snprintf(name, sizeof name, "%s%s", n % 3 == 0 ? "mmlu_full=" : "x=", path);
    Tasks *t = tasks_open(name, (TasksOptions){.shots = n % 4 == 0, .from = n % 4 ? NULL : path, .limit = n % 5});
    size_t vocab = (size_t)tokenizer_vocab_size(tokenizer[0]);
    tasks_encode(t, tokenizer[0], vocab, CONTEXT, n % 2);
    fuzz_check(t->n > 0 && (n % 5 == 0 || t->n <= n % 5));
    for (size_t i = 0; i < t->n; i++) {
        TasksItem *item = &t->item[i];
        fuzz_check(item->n > 0 && (item->n == 1) == (t->item[0].n == 1) && (item->n == 1 || item->gold < item->n));
        for (size_t k = 0; k < item->n; k++) {
            TasksChoice *c = &item->choice[k];
            fuzz_check(c->n >= 2 && c->n <= CONTEXT + 1 && c->scored >= 1 && c->scored < c->n);
            for (size_t j = 0; j < c->n; j++) fuzz_check(c->token[j] >= 0 && (size_t)c->token[j] < vocab);
            c->loglik = -(double)c->scored;
            if (item->plain) item->plain[k].loglik = -1;
        }
    }
    TasksResult r = tasks_result(t);
    fuzz_check(r.acc[TASKS_SUM] >= 0 && r.acc[TASKS_SUM] <= 1);
    tasks_free(t);
}

FUZZ(tasks, make_tokenizers)
