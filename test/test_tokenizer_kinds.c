// Tests of tokenizers from elsewhere: unknown tokens, added tokens, SentencePiece's characters and spaces, its model
// files, and which tokens begin and end a text. Vocabularies are small and written here, so every id is known by hand;
// dev/reference/check_tokenizer_kinds.py compares larger ones with the libraries that made them.

#include "test/test.h"

#include "expect_die.h"
#include "temp_dir.h"
#include "tokenizer_case.h"

static void expect_text(const Tokenizer *t, const int32_t *id, size_t n, const char *want)
{
    char text[256];
    size_t at = 0, k;
    for (size_t i = 0; i < n; i++) {
        const char *bytes = (i ? tokenizer_decode : tokenizer_decode_first)(t, id[i], &k);
        memcpy(text + at, bytes, k);
        at += k;
    }
    text[at] = 0;
    assert_string_equal(text, want);
}

#define TEXT(t, want, ...)                                              \
    do {                                                                \
        const int32_t id[] = {__VA_ARGS__};                             \
        expect_text(t, id, sizeof id / sizeof *id, want);               \
    } while (0)

// JSON with ' in place of ".
static void put_json(const char *name, const char *json)
{
    FREED char *quoted = strdup(json);
    for (char *c = quoted; *c; c++)
        if (*c == '\'') *c = '"';
    put_text(name, quoted);
}

static Tokenizer *load_text(const char *json)
{
    put_json("tokenizer.json", json);
    return tokenizer_load(dir);
}

// ---- byte-level

#define BYTES "'pre_tokenizer': {'type': 'ByteLevel', 'add_prefix_space': false}, "
#define MODEL(more, vocab, merges) \
    "'model': {'type': 'BPE', " more "'vocab': {" vocab "}, 'merges': [" merges "]}}"
#define ADDED(id, content, more) "{'id': " #id ", 'content': '" content "'" more "}"
#define SPECIAL ", 'special': true"
#define RAW ", 'normalized': false"

#define FEW "'[UNK]': 0, '[BOS]': 1, 'a': 2, 'b': 3, 'ab': 4, '\u0120': 5, '\u0120a': 6"
#define FEW_MERGES "['a', 'b'], ['\u0120', 'a']"
#define FEW_ADDED "'added_tokens': [" ADDED(0, "[UNK]", SPECIAL) ", " ADDED(1, "[BOS]", SPECIAL) "], "

#define FEW_OF(more, merges) "{" FEW_ADDED BYTES MODEL(more, FEW, merges)

TEST_IN_DIR(test_unknown)
{
    TWICE(t, load_text(FEW_OF("'unk_token': '[UNK]', ", FEW_MERGES))) {
        IDS(t, "ab aab", 4, 6, 4);
        IDS(t, "abc\xC3\xA9 c b", 4, 0, 0, 0, 5, 0, 5, 3);
        IDS(t, "[UNK][BOS]", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0); // text stays text
        assert_int_equal(tokenizer_text_bytes(t, 0), 0);
        assert_int_equal(tokenizer_eot(t), -1);
    }
    TWICE(t, load_text(FEW_OF("'unk_token': '[UNK]', 'fuse_unk': true, ", FEW_MERGES))) {
        IDS(t, "abc\xC3\xA9 c b", 4, 0, 5, 0, 5, 3); // one for each word
        IDS(t, "cacaca", 0, 2, 0, 2, 0, 2);
    }
    OWN(Tokenizer) *t = load_text(FEW_OF("", FEW_MERGES));
    TokenIds ids = {0};
    IDS(t, "ab a", 4, 6);
    expect_dies("byte 0x63 of the text has no token", tokenizer_encode(t, "abc", 3, &ids));
    expect_dies("'<unk>' is not in the vocabulary", load_text(FEW_OF("'unk_token': '<unk>', ", FEW_MERGES)));
}

// a, ab and "  " are added; "  " is a token of the model too, of two other tokens.
#define MORE "'a': 0, 'b': 1, 'c': 2, '\u0120': 3, '\u0120\u0120': 4, '<e>': 5"
TEST_IN_DIR(test_added)
{
    TWICE(t, load_text("{'added_tokens': [" ADDED(5, "<e>", SPECIAL) ", " ADDED(6, "ca", RAW) ", "
                       ADDED(7, "cab", RAW) ", " ADDED(8, "  ", "") ", " ADDED(9, "bc", "") "], "
                       BYTES MODEL("'unk_token': null, ", MORE, "['\u0120', '\u0120']"))) {
        IDS(t, "abca", 0, 1, 6);       // ca is found first, bc in what is left
        IDS(t, "cabcab", 7, 7);        // the longest
        IDS(t, "abcabbc", 0, 1, 7, 9);
        IDS(t, "a  b   c", 0, 8, 1, 8, 3, 2); // the added one
        IDS(t, "ca", 6);
        IDS(t, "", );
        assert_int_equal(tokenizer_vocab_size(t), 10);
        assert_int_equal(tokenizer_text_bytes(t, 8), 2);
        assert_int_equal(tokenizer_text_bytes(t, 4), 2);
        assert_false(tokenizer_is_special(t, 8));
        ENDED(token_ids_free) TokenIds ids = {0};
        tokenizer_encode_texts(t, (TokenizerText[]){{"cab", 3}, {"a bc", 4}}, 2, 2, &ids, NULL);
        assert_int_equal(ids.n, 4);
        assert_memory_equal(ids.id, ((int32_t[]){7, 0, 3, 9}), 16);
    }
    enum { N = 400000 };
    FREED char *text = zeroed(N); // threads would cut it after the b of "b a"
    for (size_t i = 0; i < N; i++) text[i] = "b a"[i % 3];
    OWN(Tokenizer) *t = load_text("{'added_tokens': [" ADDED(5, "<e>", SPECIAL) ", " ADDED(6, "b a", RAW) "], "
                                  BYTES MODEL("", MORE, ""));
    ENDED(token_ids_free) TokenIds ids = {0};
    tokenizer_encode_texts(t, &(TokenizerText){text, N - 1}, 1, 2, &ids, NULL);
    assert_int_equal(ids.n, N / 3);
    for (size_t i = 0; i < ids.n; i++) assert_int_equal(ids.id[i], 6);
    static const char *const key[] = {"lstrip", "rstrip", "single_word"};
    char json[600], words[80];
    for (int i = 0; i < 3; i++) {
        snprintf(json, sizeof json, "{'added_tokens': [{'id': 5, 'content': '<e>', '%s': true}], " BYTES
                 MODEL("", MORE, ""), key[i]);
        snprintf(words, sizeof words, "added token '<e>' is not special and has %s", key[i]);
        expect_dies(words, load_text(json));
    }
}

// ---- files of people who mean harm, or of programs that mean something else

#define ANY(more) "{" FEW_ADDED more BYTES MODEL("", FEW, FEW_MERGES)
#define ONE(first, more) "{" first BYTES MODEL(more, "'a': 0", "")
#define VOCAB(vocab) "{" BYTES MODEL("", vocab, "")

TEST_IN_DIR(test_hostile)
{
    static const struct { const char *json, *words; } row[] = {
        {FEW_OF("", FEW_MERGES ", ['a', 'b']"), "merges 0 and 2 join the same tokens"},
        {FEW_OF("", "['a', 'x']"), "merge 0: 'a' and 'x' do not join to a token"},
        {FEW_OF("", "['b', 'a']"), "merge 0: 'b' and 'a' do not join to a token"},
        {FEW_OF("", "['ab', '']"), "merge 0: 'ab' and '' do not join to a token"},
        {FEW_OF("", "'a b ab'"), "merge 0: 'a' and 'b ab' do not join to a token"},
        {FEW_OF("", "5"), "model.merges[0] is neither"},
        {VOCAB("'a': 0, 'b': 2"), "token 'b': its id, 2, is not one of 0..1 (ids must have no holes)"},
        {VOCAB("'a': 0, 'b': -1"), "token 'b': its id, -1, is not one of 0..1"},
        {VOCAB("'a': 0, 'b': 2147483648"), "token 'b': its id, 2147483648, is not"},
        {VOCAB("'a': 0, 'b': 4294967297"), "token 'b': its id, 4294967297, is not one of 0..1"},
        {VOCAB("'a': 0, 'b': 9223372036854775808"), "too big integer"},
        {VOCAB("'a': 0, 'b': 1.0"), "token 'b': its id, 1.0, is not one of 0..1"},
        {VOCAB("'a': 0, 'b': 0"), "id 0 belongs to both 'a' and 'b'"},
        {VOCAB("'a': 0, 'a': 1"), "duplicate object key"},
        {VOCAB("'a': 0, '\\ud800': 1"), "invalid Unicode '\\uD800'"},
        {VOCAB("'a': 0, '\\udc00\\ud800': 1"), "invalid Unicode '\\uDC00'"},
        {VOCAB("'a': 0, 'b\\u0000': 1"), "NUL byte in object key"},
        {VOCAB(""), "no tokens in it"},
        {ONE("'added_tokens': {'a': 1}, ", ""), "added_tokens is not a list"},
        {ONE("'added_tokens': ['a'], ", ""), "added_tokens[0] has no content"},
        {ONE("'added_tokens': [" ADDED(0, "a", ", 'special': 'true'") "], ", ""), "special = \"true\": neither"},
        {ONE("'added_tokens': [" ADDED(1, "b", SPECIAL) ", " ADDED(1, "b", SPECIAL) "], ", ""), "no token has id 2"},
        {ONE("", "'unk_token': 5, "), "unk_token = 5: a string is needed"},
        {VOCAB("'a b': 0"), "outside the byte-level alphabet"}, {VOCAB("'\u4F60': 0"), "outside the byte-level"},
        {FEW_OF("", "['a']"), "merges[0]"}, {"{'model': {'vocab': {}, 'merges': 7}}", "model is not BPE with vocab"},
        {ONE("", "'end_of_word_suffix': '</w>', "), "end_of_word_suffix = \"</w>\""},
        {ONE("", "'byte_fallback': true, "), "byte_fallback = true"},
        {"{'model': {'type': 'Unigram'}}", "model is Unigram (only BPE is supported"},
        {"{'pre_tokenizer': {'type': 'Whitespace'}, " MODEL("", "'a': 0", ""), ": not ByteLevel without"},
        {"{'pre_tokenizer': {'type': 'Metaspace'}, " MODEL("", "'a': 0", ""), "is not Metaspace with U+2581 alone"},
        {"{'pre_tokenizer': {'type': 'ByteLevel', 'add_prefix_space': true}, " MODEL("", "'a': 0", ""), "prefix space"},
        {ONE("'added_tokens': [" ADDED(3, "<x>", SPECIAL) "], ", ""), "ids must have no holes"},
        {ONE("", "'ignore_merges': 1, "), "ignore_merges = 1: neither true nor false"},
        {ONE("", "'dropout': 0.1, "), "dropout = 0.1"},
        {ANY("'version': '2.0', "), "version = \"2.0\": 1.0 is read"},
        {ANY("'post_processor': {'type': 'x'}, "), "post_processor x is not known here"},
        {ANY("'post_processor': {'type': 'BertProcessing', 'cls': [5]}, "), "post_processor begins with ''"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) expect_dies(row[i].words, load_text(row[i].json));
    static char deep[100001];
    memset(deep, '[', sizeof deep - 1);
    expect_dies("maximum parsing depth", load_text(deep));
    OWN(Tokenizer)
        *t = load_text(ANY("'post_processor': {'type': 'RobertaProcessing', 'cls': ['[BOS]', 1]}, ")),
        *u = load_text("{'version': '1.0', " FEW_ADDED BYTES MODEL("'dropout': 0.0, ", FEW, FEW_MERGES));
    assert_int_equal(tokenizer_bos(t), 1);
    IDS(u, "ab", 4);
    assert_int_equal(unlink(in_dir("tokenizer.json")), 0);
    put_json("vocab.json", "{'a': 0, 'b': 1, 'ab': 2}");
    put_text("merges.txt", "#version: 0.2\na b\na b\n");
    expect_dies("merges 0 and 1 join the same tokens", tokenizer_load(dir));
}

// ---- form C

// é is one token of two bytes, the letter e and the accent's bytes CC and 81 are tokens too. <e> and <f> are added.
#define ACCENT "'e': 0, '\u00C3': 1, '\u00A9': 2, '\u00C3\u00A9': 3, '\u00CC': 4, '\u0123': 5, " \
    "'\u0120': 6"
#define NORMAL(kind, more) \
    "{'normalizer': " kind ", 'added_tokens': [" ADDED(7, "<e>", RAW) ", " ADDED(8, "\u00E9\u00E9", "") more "], " \
    BYTES MODEL("", ACCENT, "['\u00C3', '\u00A9']")

TEST_IN_DIR(test_form_c)
{
    OWN(Tokenizer) *plain = load_text(NORMAL("null", "")), *raw;
    IDS(plain, "e\u0301\u00E9", 0, 4, 5, 3);
    TWICE(t, load_text(NORMAL("{'type': 'NFC'}", ""))) {
        IDS(t, "e\u0301 \u00E9", 3, 6, 3);
        IDS(t, "e\u0301\u00E9 e", 8, 6, 0);         // found in the form C
        IDS(t, "e<e>\u0301e\u0301", 0, 7, 4, 5, 3); // each side has a form C of its own
        IDS(t, "\u0301", 4, 5);
        TEXT(t, "e\u0301\u00E9", 0, 4, 5, 3);        // decoding leaves the bytes
        expect_dies("cannot say which tokens are added or unknown, or NFC", vocab_save_gpt2(tokenizer_vocab(t), dir));
    }
    expect_dies("added token 'e\u0301' is normalized, and not in form C",
                load_text(NORMAL("{'type': 'NFC'}", ", " ADDED(9, "e\u0301", ""))));
    expect_dies("normalizer NFKC is not NFC, or [Prepend", load_text(NORMAL("{'type': 'NFKC'}", "")));
    raw = load_text(NORMAL("{'type': 'NFC'}", ", " ADDED(9, "e\u0301", RAW)));
    IDS(raw, "ee\u0301", 0, 9);
}

// A text in blocks for threads has the ids of the whole.
TEST_IN_DIR(test_form_c_threads)
{
    enum { N = 300000, BYTES_EACH = 5 };
    FREED char *text = zeroed(N * BYTES_EACH + 1);
    for (size_t i = 0; i < N; i++) strcpy(text + i * BYTES_EACH, "ee\u0301 ");
    OWN(Tokenizer) *t = load_text("{'normalizer': {'type': 'NFC'}, 'added_tokens': [], "
                                  BYTES MODEL("", ACCENT, "['\u00C3', '\u00A9']"));
    ENDED(token_ids_free) TokenIds ids = {0};
    tokenizer_encode_texts(t, &(TokenizerText){text, N * BYTES_EACH}, 1, 2, &ids, NULL);
    assert_int_equal(ids.n, 3 * N);
    for (size_t i = 0; i < ids.n; i++) assert_int_equal(ids.id[i], ((int32_t[]){0, 3, 6})[i % 3]);
}

// Splits in a row, and an empty list of normalizers.
#define SPLIT(regex, more) "{'type': 'Split', 'pattern': {'Regex': '" regex "'}, 'behavior': 'Isolated'" more "}, "
#define ROW(steps, regex) "{'normalizer': {'type': 'Sequence', 'normalizers': []}, " \
    "'pre_tokenizer': {'type': 'Sequence', 'pretokenizers': [" steps \
    "{'type': 'ByteLevel', 'add_prefix_space': false, 'use_regex': " regex "}]}, " \
    MODEL("", "'a': 0, 'b': 1, 'ab': 2, 'aa': 3, 'aab': 4", "['a', 'b'], ['a', 'a'], ['aa', 'b']")
TEST_IN_DIR(test_in_a_row)
{
    TWICE(t, load_text(ROW(SPLIT("b", "") SPLIT("a{1,2}", ""), "false"))) IDS(t, "aaabab", 3, 0, 1, 0, 1);
    TWICE(t, load_text(ROW(SPLIT("b", ""), "true"))) IDS(t, "aaab", 3, 0, 1);
    TWICE(t, load_text(ROW("", "true"))) assert_string_equal(tokenizer_pattern(t), "gpt2");
    static const char *const bad[][2] = {
        {ROW("", "false"), "has no pattern"}, {ROW(SPLIT("b", ", 'invert': true"), "false"), "pre_tokenizer 0, Split,"},
        {ROW(SPLIT("a", "") "{'type': 'Digits'}, ", "true"), "pre_tokenizer 1, Digits, is not Split by Regex, Iso"},
        {ROW(SPLIT("a", "") "{'type': 'Punctuation'}, ", "true"), "pre_tokenizer 1, Punctuation, is not Split"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) expect_dies(bad[i][1], load_text(bad[i][0]));
    put_text("tokenizer.json", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n");
    expect_dies("tokenizer.json: a pointer of Git LFS, not the file itself (git lfs pull)", tokenizer_load(dir));
    put_text("tokenizer.json", "<!DOCTYPE html>");
    expect_dies("tokenizer.json: a page of a web site, not the file itself", tokenizer_load(dir));
    put_text("tokenizer.json", "\xEF\xBB\xBF{}");
    expect_dies("tokenizer.json: begins with a byte order mark", tokenizer_load(dir));
}

// What Transformers takes from the files beside a tokenizer, and what ours cannot follow.
TEST_IN_DIR(test_files_beside)
{
#define DECODER(more) "{'added_tokens_decoder': {'9': {'content': '<x>'" more "}}}"
    static const struct { const char *json, *name, *text, *words; } rows[] = {
        {ANY(""), "tokenizer_config.json", DECODER(SPECIAL), NULL}, // never made from text
        {ANY(""), "tokenizer_config.json", DECODER(", 'special': false"), "9 = {\"content\":\"<x>\",\"sp"},
        {ANY(""), "tokenizer_config.json", "{'add_prefix_space': true}", "add_prefix_space = true: not supported"},
        {ANY("'truncation': {'max_length': 5}, 'padding': {'pad_id': 0}, "), "tokenizer_config.json", "{}", NULL},
        {ANY("'post_processor': {'type': 'TemplateProcessing', 'single': '[BOS] $A'}, "), "tokenizer_config.json", "{}",
         "post_processor.single = \"[BOS] $A\": a list is needed"},
        {ANY("'post_processor': {'type': 'TemplateProcessing', 'single': [{'SpecialToken': {'id': '[BOS]'}}], "
             "'special_tokens': {'[BOS]': {'ids': [2]}}}, "), "tokenizer_config.json", "{}", "[BOS] = 2: post_proc"},
        {NULL, "tokenizer_config.json", "{'tokenizer_class': 'GPT2TokenizerFast'}", NULL},
        {NULL, "tokenizer_config.json", "{'tokenizer_class': 'Qwen2Tokenizer'}", "tokenizer_class = \"Qwen2Token"},
        {NULL, "added_tokens.json", "{'<x>': 3}", "added_tokens.json: tokens beside vocab.json (write"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        put_json("vocab.json", "{'a': 0, 'b': 1, 'ab': 2}");
        put_text("merges.txt", "#version: 0.2\r\na b\r\n");
        put_json(rows[i].name, rows[i].text);
        if (rows[i].json) put_json("tokenizer.json", rows[i].json); // it comes first
        else unlink(in_dir("tokenizer.json"));
        if (rows[i].words) expect_dies(rows[i].words, tokenizer_load(dir));
        else {
            OWN(Tokenizer) *t = tokenizer_load(dir);
            IDS(t, "ab", rows[i].json ? 4 : 2);
        }
    }
}

// ---- where a text begins and ends

#define ENDS "'<|endoftext|>': 2, '<s>': 3, '</s>': 4"
#define SMALL(first, post)                                                                 \
    "{'added_tokens': [" first ADDED(3, "<s>", SPECIAL) ", " ADDED(4, "</s>", SPECIAL) "], " \
    "'post_processor': " post ", " BYTES MODEL("", "'a': 0, 'b': 1, " ENDS, "")
#define GPT2 ADDED(2, "<|endoftext|>", SPECIAL) ", "
#define STARTS(token) "{'type': 'TemplateProcessing', 'single': [{'SpecialToken': {'id': '" token "'}}]}"
#define BEGIN STARTS("<s>")

TEST_IN_DIR(test_ends)
{
    static const struct {
        const char *json, *config;
        int32_t eot, bos, also; // also: ends a text, as eot does
    } row[] = {
        {SMALL(GPT2, "null"), NULL, 2, 2, 2},
        {SMALL(GPT2, "null"), "{}", 2, -1, 2},
        {SMALL(GPT2, "null"), "{'bos_token': null, 'eos_token': '</s>'}", 2, -1, 4}, // as Qwen
        {SMALL(GPT2, "null"), "{'bos_token': '<|endoftext|>', 'add_bos_token': false}", 2, 2, 2}, // as GPT-2
        {SMALL(GPT2, "null"), "{'bos_token': '<s>', 'eos_token': '</s>'}", 2, -1, 4}, // SmolLM2's chat model
        {SMALL("", "null"), NULL, -1, -1, -1},
        {SMALL("", "null"), "{'eos_token': {'content': '</s>'}}", 4, -1, 4},
        {SMALL("", "null"), "{'eos_token': '</s>', 'bos_token': '<s>'}", 4, -1, 4},
        {SMALL("", "null"), "{'eos_token': '</s>', 'bos_token': '<s>', 'add_bos_token': true, "
                            "'model_max_length': 1000000000000000019884624838656}", 4, 3, 4},
        {SMALL("", BEGIN), "{'eos_token': '</s>'}", 4, 3, 4},
        {SMALL("", BEGIN), "{'eos_token': '</s>', 'add_bos_token': false}", 4, -1, 4},
        {SMALL(GPT2, "{'type': 'Sequence', 'processors': [{'type': 'ByteLevel'}, " BEGIN "]}"), NULL, 2, 3, 2},
        {SMALL(GPT2, "null"), "{'document_token': '</s>', 'bos_token': '</s>'}", 4, 4, 4},
        {SMALL(GPT2, "null"), "{'eos_token': 'a', 'bos_token': 'nothing'}", 2, -1, 2}, // no special tokens
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        unlink(in_dir("tokenizer_config.json"));
        if (row[i].config) put_json("tokenizer_config.json", row[i].config);
        TWICE(t, load_text(row[i].json)) {
            if (tokenizer_eot(t) != row[i].eot || tokenizer_bos(t) != row[i].bos)
                fail_msg("row %zu, round %d: eot %d, bos %d", i, last != NULL, tokenizer_eot(t), tokenizer_bos(t));
            for (int32_t id = 0; id < 5; id++)
                assert_int_equal(tokenizer_ends(t, id), id == row[i].eot || id == row[i].also);
        }
    }
    unlink(in_dir("tokenizer_config.json"));
    put_json("special_tokens_map.json", "{'eos_token': '</s>'}");
    OWN(Tokenizer) *t = load_text(SMALL("", "null"));
    assert_int_equal(tokenizer_eot(t), 4);
    expect_dies("post_processor begins with 'a', which is no special token", load_text(SMALL("", STARTS("a"))));
}

TEST_IN_DIR(test_set_eot)
{
    Tokenizer *made = load_text(SMALL("", "null"));
    expect_dies("folder: 'a' is not one of its special tokens (<s>, </s>)", tokenizer_set_eot(made, "a", "folder"));
    expect_dies("folder: no token separates documents", tokenizer_set_eot(made, NULL, "folder"));
    tokenizer_set_eot(made, "<s>", "folder");
    TWICE(t, made) assert_true(tokenizer_eot(t) == 3 && tokenizer_bos(t) == 3);
}

// ---- SentencePiece

// Ids 0 to 2: <unk>, <s>, </s>; 3 to 258: the bytes; from 259 on the pieces.
enum { PIECES = 259 };
#define B(byte) (3 + (byte))
static const char *const pieces[] = {"\u2581",   "a",          "b",            "c",      "ab",
                                     "\u2581a",  "\u2581ab",   "\u2581\u2581", "\u00E9", "bc"};
enum { SP = PIECES, A, BB, C, AB, _A, _AB, __, E, BC, N_PIECES = BC + 1 };
static const char merges[] = "['a', 'b'], ['\u2581', 'a'], ['\u2581', 'ab'], ['\u2581a', 'b'], "
                             "['\u2581', '\u2581'], ['b', 'c']";

static char *llama_json(const char *head, const char *more)
{
    static char text[20000];
    char *at = text + sprintf(text, "{'added_tokens': [" ADDED(0, "<unk>", SPECIAL) ", " ADDED(1, "<s>", SPECIAL) ", "
                              ADDED(2, "</s>", SPECIAL) "%s], %s, 'model': {'type': 'BPE', "
                              "'unk_token': '<unk>', 'fuse_unk': true, 'byte_fallback': true, "
                              "'vocab': {'<unk>': 0, '<s>': 1, '</s>': 2", more, head);
    for (int b = 0; b < 256; b++) at += sprintf(at, ", '<0x%02X>': %d", b, B(b));
    for (int i = 0; i < N_PIECES - PIECES; i++) at += sprintf(at, ", '%s': %d", pieces[i], PIECES + i);
    sprintf(at, "}, 'merges': [%s]}}", merges);
    return text;
}

#define REPLACE "{'type': 'Replace', 'pattern': {'String': ' '}, 'content': '\u2581'}"
#define PREPEND "{'type': 'Prepend', 'prepend': '\u2581'}"
#define LLAMA "'normalizer': {'type': 'Sequence', 'normalizers': [" PREPEND ", " REPLACE "]}, " \
              "'pre_tokenizer': null, 'post_processor': " BEGIN

TEST_IN_DIR(test_characters)
{
    TWICE(t, load_text(llama_json(LLAMA, ""))) {
        IDS(t, "ab", _AB);
        IDS(t, "ab ab", _AB, _AB);
        IDS(t, " a  b", SP, _A, __, BB); // a space before the space
        IDS(t, "\u00E9\u00EA", SP, E, B(0xC3), B(0xAA));
        IDS(t, "a\u2581\xFF\x00", _A, SP, B(0xFF), B(0)); // U+2581 is a space; bytes that are no text are bytes
        IDS(t, "<0x41>", SP, B('<'), B('0'), B('x'), B('4'), B('1'), B('>'));
        IDS(t, "abcabc bcabcab", _AB, C, AB, C, SP, BC, AB, C, AB); // longer than a word that is kept whole
        IDS(t, "<s>", SP, B('<'), B('s'), B('>'));
        IDS(t, "", );
        TEXT(t, "ab ab", _AB, _AB);
        TEXT(t, " a\u00E9\n", __, A, E, B('\n'));
        TEXT(t, "<s> a", 1, _A);
        assert_int_equal(tokenizer_bos(t), 1);
        assert_int_equal(tokenizer_text_bytes(t, _AB), 3);
        assert_int_equal(tokenizer_text_bytes(t, B(65)), 1);
        assert_string_equal(tokenizer_pattern(t), "none");
    }
    char *json = llama_json(LLAMA, ""), *byte = strstr(json, "<0x7F>");
    byte[1] = 'x';
    expect_dies("255 of 256 bytes have a token, and <0x7F> is missing", load_text(json));
    expect_dies("added token 'x' is not special and normalized, with a normalizer",
                load_text(llama_json(LLAMA, ", {'id': 269, 'content': 'x'}")));
    json = llama_json(LLAMA, "");
    memcpy(strstr(json, "'a', 'b'], ['\u2581'"), "'<0x41>'", 8);
    expect_dies("tokenizer.json", load_text(json)); // a merge of a byte's name
}

TEST_IN_DIR(test_metaspace)
{
#define METASPACE(more) "'pre_tokenizer': {'type': 'Metaspace', 'replacement': '\u2581'" more "}"
    static const struct { const char *name; int32_t a, x_a; } scheme[] = { // ids of "a", and behind <x>
        {"always", _A, _A}, {"first", _A, A}, {"never", A, A}};
    for (int k = 0; k < 6; k++) {
        bool split = k >= 3;
        int32_t a = scheme[k % 3].a, x_a = scheme[k % 3].x_a;
        char head[200];
        snprintf(head, sizeof head, METASPACE(", 'prepend_scheme': '%s', 'split': %s"), scheme[k % 3].name,
                 split ? "true" : "false");
        TWICE(t, load_text(llama_json(head, ", {'id': 269, 'content': '<x>', 'normalized': false}"))) {
            IDS(t, "a", a);
            IDS(t, " ab", _AB); // there is one
            if (split) IDS(t, "\u2581  a", SP, SP, _A);
            else IDS(t, "\u2581  a", __, _A); // no merge of two and one; the left pair first
            IDS(t, "a<x>a", a, 269, x_a);
            IDS(t, "<x>a", 269, x_a);
            assert_string_equal(tokenizer_pattern(t), split ? "custom" : "none");
        }
    }
    expect_dies("not Metaspace with U+2581 alone", load_text(llama_json(METASPACE(", 'prepend_scheme': 'last'"), "")));
    expect_dies("duplicate object key", load_text(llama_json(LLAMA ", " METASPACE(""), "")));
}

// ---- SentencePiece's model file

typedef struct {
    char bytes[16384];
    size_t n;
} Proto;

static void put(Proto *p, const void *bytes, size_t n)
{
    assert_true(p->n + n <= sizeof p->bytes);
    memcpy(p->bytes + p->n, bytes, n);
    p->n += n;
}

static void put_varint(Proto *p, uint64_t value)
{
    for (; value >= 128; value >>= 7) put(p, &(char){(char)(value | 128)}, 1);
    put(p, &(char){(char)value}, 1);
}

static void put_number(Proto *p, int field, uint64_t value)
{
    put_varint(p, (uint64_t)field << 3);
    put_varint(p, value);
}

static void put_field(Proto *p, int field, const void *bytes, size_t n)
{
    put_varint(p, (uint64_t)field << 3 | 2);
    put_varint(p, n);
    put(p, bytes, n);
}

static void put_piece(Proto *p, const char *piece, float score, int type)
{
    Proto m = {0};
    put_field(&m, 1, piece, strlen(piece));
    put_varint(&m, 2 << 3 | 5);
    put(&m, &score, 4);
    if (type != 1) put_number(&m, 3, (uint64_t)type);
    put_field(p, 1, m.bytes, m.n);
}

// The pieces above, with scores in the order of the merges. prefix, squeeze: of normalizer_spec; -1: not written.
static Proto model(int type, bool bytes, int prefix, int squeeze)
{
    Proto p = {0}, trainer = {0}, normalizer = {0};
    put_piece(&p, "<unk>", 0, 2);
    put_piece(&p, "<s>", 0, 3);
    put_piece(&p, "</s>", 0, 3);
    for (int b = 0; b < 256; b++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", b);
        put_piece(&p, bytes ? name : (snprintf(name, sizeof name, "%c%c", 'A' + b / 16, 'A' + b % 16), name),
                  bytes ? 0 : -1000.f - (float)b, bytes ? 6 : 3);
    }
    static const float score[] = {-90, -91, -92, -93, -1, -2, -3, -4, -94, -5};
    for (int i = 0; i < N_PIECES - PIECES; i++) put_piece(&p, pieces[i], score[i], 1);
    if (type) put_number(&trainer, 3, (uint64_t)type);
    put_number(&trainer, 43, UINT64_MAX); // pad_id: -1, in ten bytes
    if (bytes) put_number(&trainer, 35, 1);
    put_field(&p, 2, trainer.bytes, trainer.n);
    put_field(&normalizer, 1, "identity", 8);
    if (prefix >= 0) put_number(&normalizer, 3, (uint64_t)prefix);
    if (squeeze >= 0) put_number(&normalizer, 4, (uint64_t)squeeze);
    put_field(&p, 3, normalizer.bytes, normalizer.n);
    return p;
}

static Tokenizer *load_model(Proto p)
{
    unlink(in_dir("tokenizer.json"));
    put_bytes("tokenizer.model", p.bytes, p.n);
    return tokenizer_load(dir);
}

TEST_IN_DIR(test_model)
{
    TWICE(t, load_model(model(2, true, -1, 0))) { // then as tokenizer.json, which comes first
        IDS(t, "abc ab", _AB, C, _AB);
        IDS(t, " a  b", SP, _A, __, BB);
        IDS(t, "\u00E9\u00EA", SP, E, B(0xC3), B(0xAA));
        IDS(t, "bcabc", SP, BC, AB, C); // ab before bc
        assert_int_equal(tokenizer_eot(t), 2);
        assert_int_equal(tokenizer_bos(t), 1);
    }
    put_json("tokenizer_config.json", "{'add_bos_token': false}");
    OWN(Tokenizer) *without = tokenizer_load(in_dir("tokenizer.model"));
    assert_int_equal(tokenizer_bos(without), -1);
    assert_int_equal(unlink(in_dir("tokenizer_config.json")), 0);
    TWICE(t, load_model(model(2, true, -1, -1))) { // the defaults: a prefix, and spaces squeezed
        IDS(t, "  ab   a  ", _AB, _A);
        IDS(t, "   ", );
        IDS(t, "a \u2581", _A); // the sign is a space, but only at the end
        IDS(t, "\u2581a", SP, _A);
    }
    TWICE(t, load_model(model(2, false, 0, 0))) {
        IDS(t, "abxxy a zab", AB, 0, _A, SP, 0, AB); // neighbours that are unknown are one
        IDS(t, "abcabcabcabcabcxyxyxyxy", AB, C, AB, C, AB, C, AB, C, AB, C, 0);
    }
}

// User-defined pieces: the longest at each place, and no merge crosses them.
TEST_IN_DIR(test_user_defined)
{
    Proto p = model(2, true, 0, 0);
    put_piece(&p, "<x>", 0, 4);   // 269; all have the same score, which says nothing
    put_piece(&p, "<x>a", 0, 4);  // 270
    put_piece(&p, "cab", 0, 4);   // 271
    TWICE(t, load_model(p)) {
        IDS(t, "ab<x>ab", AB, 270, BB);
        IDS(t, "<x>b<x", 269, BB, B('<'), B('x'));
        IDS(t, "abcab ab", AB, 271, _AB);
        TEXT(t, "<x>ab", 270, BB);
        assert_int_equal(tokenizer_text_bytes(t, 269), 3);
    }
}

// A control piece is no space, whatever it looks like; a file of another kind would spell it like the piece of a space.
TEST_IN_DIR(test_spelled_alike)
{
    Proto p = model(2, true, 0, 0);
    put_piece(&p, "\u2581", 0, 3);
    OWN(Tokenizer) *t = load_model(p);
    IDS(t, "a b", A, SP, BB);
    expect_dies("tokens 259 and 269 are both spelled '\u2581'", tokenizer_save(t, dir));
}

static Proto with_piece(const char *piece, float score, int type)
{
    Proto p = {0}, rest = model(2, true, 1, 0);
    put_piece(&p, piece, score, type);
    put(&p, rest.bytes, rest.n);
    return p;
}

// The model with one field more in the message `message`: a text, or (NULL) a number.
static Proto with_field(int message, int field, const char *text, uint64_t number)
{
    Proto p = model(2, true, 1, 0), more = {0};
    if (text) put_field(&more, field, text, strlen(text));
    else put_number(&more, field, number);
    put_field(&p, message, more.bytes, more.n);
    return p;
}

static void expect_refused(Proto p, const char *words)
{
    put_bytes("tokenizer.model", p.bytes, p.n);
    expect_dies(words, tokenizer_load(in_dir("tokenizer.model")));
}

TEST_IN_DIR(test_model_errors)
{
    expect_refused(model(0, true, 1, 0), "a model of type Unigram (only BPE");
    expect_refused(model(1, true, 1, 0), "a model of type Unigram (only BPE");
    expect_refused(model(4, true, 1, 0), "a model of type char (only BPE");
    expect_refused(with_piece("<x>", 0, 4), "piece 0 is user-defined, with add_dummy_prefix (not supported together");
    expect_refused(with_piece("\u2581\u2581", 0, 4), "piece 0, '\u2581\u2581', is user-defined and has a space");
    expect_refused(with_piece("x y", 0, 4), "piece 0, 'x y', is user-defined and has a space");
    expect_refused(with_piece("x", 0, 5), "piece 0, 'x', is unused");
    expect_refused(with_piece("x", 0, 9), "piece 0, 'x', is of an unknown type");
    expect_refused(with_piece("<u>", 0, 2), "pieces 0 and 1 are both unknown");
    expect_refused(with_piece("ab", 0, 1), "piece 264, 'ab', is there twice");
    expect_refused(with_piece("", 0, 1), "piece 0 is empty");
    expect_refused(with_piece("a\xFF", 0, 1), "or not text");
    expect_refused(with_piece("xa", 0, 1), "piece 0, 'xa': its character 'x' has no piece");
    expect_refused(with_piece("ca", -4, 1), "have the same score, -4");
    expect_refused(with_piece("ca", NAN, 1), "its score is not a number");
    expect_refused(with_piece("x", 0, 6), "piece 0, 'x': a byte, and not its name");
    expect_refused(with_piece("<0x41>", 0, 1), "the name of a byte, and not a byte");
}

// Fields that are refused, and bytes that are no fields.
TEST_IN_DIR(test_model_fields)
{
    expect_refused(with_field(3, 2, "table", 0), "normalizer '' with a table of characters");
    expect_refused(with_field(5, 2, "table", 0), "denormalizer '' with a table of characters");
    expect_refused(with_field(3, 5, NULL, 0), "spaces are not escaped");
    expect_refused(with_field(2, 24, NULL, 1), "spaces are suffixes");
    expect_refused(with_field(2, 3, NULL, ((uint64_t)1 << 32) + 2), "a model of type ?"); // BPE in its low half
    Proto p = model(2, true, 0, 1);
    put_piece(&p, "<x>", 0, 4);
    expect_refused(p, "piece 269 is user-defined, with remove_extra_whitespaces");
    static const struct { const char *bytes; size_t n; const char *words; } raw[] = {
        {"", 0, "a model of type Unigram"},
        {"\x08\x05", 2, "field 1 holds a number, not bytes"},
        {"\x10\x05", 2, "field 2 holds a number, not bytes"},
        {"\x0A\x05\x0A\x01" "a\x10\x07", 7, "byte 5: field 2 holds a number, not 4 bytes"},
        {"\x0A\x03\x1A\x01" "a", 5, "field 3 holds bytes, not a number"},
        {"\x00\x05", 2, "byte 0: field 0, which protobuf has not"},
        {"\x80\x80\x80\x80\x10\x05", 6, "byte 0: field 536870912, which protobuf has not"},
        {"\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 11, "byte 10: a number of more than 10 bytes"},
        {"\xFF\xFF\xFF\xFF", 4, "byte 4: cut short"},
        {"\x0A\x7F" "ab", 4, "byte 0: a field of 127 bytes, and 2 are left"},
        {"\x0B", 1, "byte 0: not a field of protobuf"}, // a group
    };
    for (size_t i = 0; i < sizeof raw / sizeof *raw; i++) {
        p.n = 0;
        put(&p, raw[i].bytes, raw[i].n);
        expect_refused(p, raw[i].words);
    }
    p = model(2, true, 1, 0);
    for (size_t n = p.n; n > 0; n -= n < 40 ? 1 : 37) { // cut anywhere: taken or refused in a line
        put_bytes("tokenizer.model", p.bytes, n - 1);
        char text[8192];
        Child c = child_begin();
        if (!c.pid) exit(tokenizer_load(in_dir("tokenizer.model")) == NULL);
        assert_in_range(child_end(c, text, sizeof text), 0, 1);
    }
    put_text("x.txt", "");
    expect_dies("not a tokenizer by its name", tokenizer_load(in_dir("x.txt")));
}

TESTS(NULL, NULL)
