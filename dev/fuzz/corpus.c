// Fuzzes the reader of documents, text and JSONL: valid UTF-8 comes out, and the same whatever a read returns.
//
// The first byte chooses the options, the rest is the file.
#include "fuzz.h"

#include <string.h>
#include <xxhash.h>

#include "data/prep/corpus.h"
#include "base/words.h"

void fuzz_seeds(void)
{
    static const char *const text[] = {
        "\x01{\"text\": \"one\"}\n{\"text\": \"tw\\u00f6 \\ud83d\\ude00\", \"id\": 1e99}\n"
        "\n{\"text\": 3}\nnot JSON\r\n{\"text\":\"\\u0000\"}",
        "\x02one\n\ntwo\r\n\r\nthree\n\n\n", "\x03one\n***\ntwo\r\n***\r\n***\nthree***\n***",
        "\x04\xEF\xBB\xBFone<|endoftext|>tw\xFFo\xE2\x82<|endoftext|><|endoftext|> \n<|endoftext|>three",
        "\024a long text that is cut after so many bytes, in the middle of \xE2\x82\xAC or elsewhere\n\n\xE2\x82\xAC",
        "\x01{\"text\": \"half \\ud83d\", \"n\": [NaN, -Infinity, 1e999, \"\\\"NaN\"]}\n{\"n\":NaN,\"text\":\"\\\\udc00\"}",
        "\021{\"text\": \"a line that is too long to be read, of which nothing is kept at all\"}\n"
        "{\"text\": \"ok\"}\n"};
    for (int i = 0; i < 7; i++) fuzz_seed((char[]){'t', (char)('0' + i), 0}, text[i], strlen(text[i]));
}

typedef struct {
    uint64_t hash;
    CorpusCounts counts;
} Result;

static Result read_all(const char *path, CorpusOptions options)
{
    CorpusReader *r = corpus_open(&path, 1, options);
    CorpusRecord doc;
    Result out = {0};
    uint64_t documents = 0;
    while (corpus_next(r, &doc)) {
        size_t length;
        fuzz_check(doc.n_bytes > 0 && doc.n_bytes <= options.max_bytes);
        fuzz_check(words_utf8_invalid(doc.text, doc.n_bytes, 0, &length) == doc.n_bytes);
        fuzz_check(!memchr(doc.text, 0, doc.n_bytes));
        fuzz_check(doc.index == documents++);
        const uint64_t about[] = {out.hash, XXH3_64bits(doc.text, doc.n_bytes), doc.n_bytes, doc.line, doc.offset,
                                  doc.json ? XXH3_64bits(doc.json, doc.n_json) : 0};
        out.hash = XXH3_64bits(about, sizeof about);
    }
    out.counts = corpus_counts(r);
    fuzz_check(out.counts.documents == documents);
    corpus_close(r);
    return out;
}

void fuzz_one(const uint8_t *data, size_t n)
{
    static const char *const separators[] = {"<|endoftext|>", "\n\n", "aa"};
    if (!n) return;
    int kind = data[0] & 7;
    CorpusOptions o = {.format = kind <= 1 ? SOURCE_JSONL : SOURCE_TEXT, .max_bytes = data[0] & 16 ? 40 : 1 << 20};
    if (kind == 2) o.line = "";
    if (kind == 3) o.line = "***";
    if (kind >= 4 && kind < 7) o.separator = separators[kind - 4];
    const char *path = fuzz_file("x", data + 1, n - 1);
    fuzz_allow(1 << 27); // a zstd window, if it says that it is such a file
    o.read_bytes = 1 << 16;
    Result whole = read_all(path, o);
    bool may_be_packed = n > 4 && (data[1] == 0x1F || data[1] == 0x28 || data[1] >> 4 == 5);
    fuzz_check(whole.counts.bytes_in == n - 1 || may_be_packed);
    o.read_bytes = 1 + (data[0] >> 5);
    Result pieces = read_all(path, o);
    fuzz_check(whole.hash == pieces.hash && !memcmp(&whole.counts, &pieces.counts, sizeof whole.counts));
}
