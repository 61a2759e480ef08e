// corpus_case: what a corpus reader gives, as one text. Include it after cmocka.
#ifndef TEST_CORPUS_CASE_H
#define TEST_CORPUS_CASE_H
#include "data/prep/corpus.h"

OWNER(CorpusReader, corpus_close)

// "[index line offset:text]" a document that is still to come, then the counts: in a static buffer.
static inline const char *dump(CorpusReader *r)
{
    static char text[1 << 16];
    CorpusRecord doc;
    char *at = text;
    while (corpus_next(r, &doc)) {
        assert_true(at - text + doc.n_bytes + 300 < sizeof text);
        at += sprintf(at, "[%d %d %d:", (int)doc.index, (int)doc.line, (int)doc.offset);
        memcpy(at, doc.text, doc.n_bytes);
        at = stpcpy(at + doc.n_bytes, "]");
    }
    CorpusCounts c = corpus_counts(r);
    sprintf(at, " utf8=%d nul=%d bom=%d bad=%d empty=%d long=%d", (int)c.bad_utf8, (int)c.nul, (int)c.bom,
            (int)c.bad_lines, (int)c.empty, (int)c.too_long);
    return text;
}

static inline const char *read_it(const char *path, CorpusOptions options)
{
    OWN(CorpusReader) *r = corpus_open(&path, 1, options);
    return dump(r);
}

#ifdef PROGRAM // prepare
// A source of these texts (its keys in a recipe, and the options of `prepare tokens`) gives the tokens that they give
// as lines of JSON. NULL: no text.
static inline void same_tokens(const char *const *text, size_t n, const char *keys, const char *options, int status)
{
    const char *source[] = {"path = \"in.jsonl\"\n", keys};
    char words[600];
    FILE *f = fopen(in_dir("in.jsonl"), "w");
    for (uint64_t i = 0; i < n; i++)
        if (text[i]) assert_true(corpus_write_json(f, text[i], strlen(text[i]), "x", i));
    assert_int_equal(fclose(f), 0);
    for (int i = 0; i < 2; i++) {
        snprintf(words, sizeof words, "[recipe]\nout = \"out%d\"\nunit = 0.01\n[source.a]\n%s[dedup]\nexact = true"
                 "\n[tokenizer]\nvocab = 300\n[shards]\nval = 0.5\n", i, source[i]);
        put_text("r.toml", words);
        expect_run("r.toml", i ? status : 0, "");
    }
    same_files("out0/shards/a/train_000000.bin", "out1/shards/a/train_000000.bin");
    same_files("out0/shards/a/val_000000.bin", "out1/shards/a/val_000000.bin");
    expect_run("tokens --vocab 300 --out t0 --input in.jsonl", 0, "");
    snprintf(words, sizeof words, "tokens --vocab 300 --out t1 %s", options);
    expect_run(words, status, "");
    same_files("t0/train_000000.bin", "t1/train_000000.bin");
    same_files("t0/val_000000.bin", "t1/val_000000.bin");
}
#endif
#endif
