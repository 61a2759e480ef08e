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
#endif
