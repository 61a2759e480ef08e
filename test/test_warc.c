// Tests of warc: records of every kind, what is left out and what is an error; a file cut off anywhere; pages (HTML),
// which are refused; and the texts as documents, in the corpus reader, in a recipe and from a pipe.
#define PROGRAM "prepare"

#include "test/test.h"

#include "data/web/warc.h"
#include "expect_die.h"
#include "program.h"
#include "gzip.h"
#include "corpus_case.h"

OWNER(Warc, warc_close)

enum { MOST = 1 << 20 };

// ---- files in memory
typedef struct {
    char bytes[1 << 17];
    size_t n, at, step; // read: so far, and at most at a time
} File;

static size_t read_file(void *arg, void *out, size_t n)
{
    File *f = arg;
    size_t most = n < f->step ? n : f->step, k = f->n - f->at < most ? f->n - f->at : most;
    memcpy(out, f->bytes + f->at, k);
    f->at += k;
    return k;
}

static void add(File *f, const void *bytes, size_t n)
{
    assert_true(f->n + n <= sizeof f->bytes);
    memcpy(f->bytes + f->n, bytes, n);
    f->n += n;
}

static void add_record(File *f, const char *version, const char *type, const char *fields, const char *block, size_t n)
{
    char head[2000];
    int k = snprintf(head, sizeof head, "%s\r\nWARC-Type: %s\r\n%sContent-Length: %zu\r\n\r\n", version, type, fields,
        n);
    add(f, head, (size_t)k);
    add(f, block, n);
    add(f, "\r\n\r\n", 4);
}

// ---- records
static const struct {
    const char *version, *type, *fields, *block; // CR LF is written as such
    WarcKind kind;
    const char *text;
} rows[] = {
    {"WARC/1.0", "warcinfo", "", "software: x", WARC_OTHER, 0},
    {"WARC/1.0", "conversion", "Content-Type: text/plain\r\n", "WARC/1.0\r\n\r\ntext", WARC_TEXT,
     "WARC/1.0\r\n\r\ntext"},
    {"WARC/1.1", "Conversion", "", "", WARC_TEXT, ""},
    {"WARC/0.17", "conversion", "X: WARC-Type: no\r\n  Content-Length: 1\r\n", "folded", WARC_TEXT, "folded"},
    {"WARC/0.18", "\r\n\tconversion", "X: y\nY : z\n", "line feeds\n", WARC_TEXT, "line feeds\n"},
    {"WARC/1.0", "conversion", "warc-type: request\r\n", "the first", WARC_TEXT, "the first"},
    {"WARC/1.0", "request", "", "GET / HTTP/1.1\r\n\r\n", WARC_OTHER, 0},
    {"WARC/1.0", "metadata", "", "", WARC_OTHER, 0},
    {"WARC/1.0", "revisit", "", "HTTP/1.1 200 OK\r\n\r\n", WARC_OTHER, 0},
    {"WARC/1.0", "resource", "Content-Type: image/png\r\n", "PNG", WARC_OTHER, 0},
    {"WARC/1.0", "conversion", "", "the last", WARC_TEXT, "the last"},
};
enum { ROWS = sizeof rows / sizeof *rows };

static void expect_record(const WarcRecord *got, size_t i)
{
    if (got->kind != rows[i].kind) fail_msg("row %zu: kind %d, expected %d", i, (int)got->kind, (int)rows[i].kind);
    assert_int_equal(got->number, i + 1);
    if (got->kind != WARC_TEXT) return;
    if (got->n_bytes != strlen(rows[i].text) || memcmp(got->text, rows[i].text, got->n_bytes) != 0)
        fail_msg("row %zu: '%.*s', expected '%s'", i, (int)got->n_bytes, got->text, rows[i].text);
}

TEST(test_records)
{
    static File f;
    size_t at[ROWS];
    for (size_t i = 0; i < ROWS; i++) {
        at[i] = f.n;
        add_record(&f, rows[i].version, rows[i].type, rows[i].fields, rows[i].block, strlen(rows[i].block));
        if (i % 3 == 1) f.n -= 4; // records with no empty lines between them, and with more
        if (i % 3 == 2) add(&f, "\n\r\n", 3);
    }
    const size_t steps[] = {1, 2, 7, 4096, 1 << 20};
    for (size_t s = 0; s < 5; s++) {
        f.at = 0;
        f.step = steps[s];
        OWN(Warc) *w = warc_open("x", read_file, &f, steps[s], MOST);
        WarcRecord record;
        for (size_t i = 0; i < ROWS; i++) {
            assert_true(warc_next(w, &record));
            expect_record(&record, i);
            assert_int_equal(record.offset, at[i]);
        }
        assert_false(warc_next(w, &record));
    }
}

// ---- damage
// The records, all of them as written in the table where `same`; returns their number.
static int read_all(File *f, size_t most, bool same)
{
    OWN(Warc) *w = warc_open("x", read_file, f, 100, most);
    WarcRecord record;
    int n = 0;
    for (; warc_next(w, &record); n++)
        if (same) expect_record(&record, (size_t)n);
    return n;
}

TEST(test_damaged)
{
    const struct { const char *text, *words; } bad[] = {
        {"<html>", "x: byte 0 of the unpacked file: no record begins here (\"WARC/1.0\") (fetch it again)"},
        {"WARC/", "no record begins here"},
        {"WARC/2.0\r\nWARC-Type: conversion\r\nContent-Length: 0\r\n\r\n", "a version of WARC that is not read here"},
        {"WARC/0.9 512 response\r\nContent-Length: 0\r\n\r\n", "a version of WARC that is not read here"},
        {"WARC/1.0\r\nWARC-Type: conversion\r\n\r\n", "a record without Content-Length"},
        {"WARC/1.0\r\nWARC-Type: conversion\r\nContent-Length: -1\r\n\r\n", "whose Content-Length is not a number"},
        {"WARC/1.0\r\nWARC-Type: conversion\r\nContent-Length:\r\n\r\n", "whose Content-Length is not a number"},
        {"WARC/1.0\r\nWARC-Type: conversion\r\nContent-Length: 99999999999999999999\r\n\r\n",
         "whose Content-Length is not a number"},
        {"WARC/1.0\r\nWARC-Type: conversion\r\nContent-Length: 7", "the file ends inside the header of a record"},
        {"WARC/1.0\r\nWARC-Type: conversion\r\nContent-Length: 7\r\n\r\nHTTP/1", "the file ends inside a record"},
        {"WARC/1.0\r\nWARC-Type: request\r\nContent-Length: 7\r\n\r\nGET /", "the file ends inside a record"},
        {"WARC/1.0\r\nWARC-Type: conversion\r\nContent-Length: 999999999999999999\r\n\r\nHTTP/1",
         "the file ends inside a record"},
        {"\r\nWARC/1.0\r\nWARC-Type: request\r\nContent-Length: 3\r\n\r\nGET / longer than it says\r\n",
         "x: byte 56 of the unpacked file: no record begins here"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        static File f;
        f = (File){.step = 10};
        add(&f, bad[i].text, strlen(bad[i].text));
        expect_dies(bad[i].words, read_all(&f, 50, false));
    }
    static File f;
    f = (File){.step = 1000};
    add_record(&f, "WARC/1.0", "conversion", "", "text", 4);
    add_record(&f, "WARC/1.0", "Response", "", "HTTP/1.1 200 OK\r\n\r\n<p>x", 24);
    expect_dies("x: byte 62 of the unpacked file: it holds pages (HTML), not their text (take the text out with "
                "trafilatura or resiliparse, and give it as JSONL; or read the crawl's WET files)",
                read_all(&f, 50, false));
    f = (File){.step = 1 << 16};
    add(&f, "WARC/1.0\r\n", 10);
    while (f.n < sizeof f.bytes - 100) add(&f, "X: a field of forty bytes, many of them\r\n", 41);
    expect_dies("the file ends inside the header of a record", read_all(&f, 50, false));
}

static size_t endless(void *arg, void *out, size_t n)
{
    memset(out, 'a', n);
    if (!*(int *)arg) memcpy(out, "WARC/1.0\n", 9);
    *(int *)arg = 1;
    return n;
}

TEST(test_endless_header)
{
    int begun = 0;
    WarcRecord record;
    expect_dies("the header of a record is longer than 1 MiB",
                warc_next(warc_open("x", endless, &begun, 1000, 50), &record));
}

// Cut off anywhere, a file is an error or ends between two records; the records before are the same.
TEST(test_cut_off)
{
    static File whole, f;
    size_t end[6];
    whole = (File){.step = 100};
    for (size_t i = 0; i < 6; i++) {
        add_record(&whole, rows[i].version, rows[i].type, rows[i].fields, rows[i].block, strlen(rows[i].block));
        end[i] = whole.n - 4;
    }
    char said[1000];
    for (size_t n = 0; n < whole.n; n++) {
        int expected = -1;
        for (int i = 0; i < 6; i++)
            if (n >= end[i] && n <= end[i] + 4) expected = i + 1;
        f = whole;
        f.n = n;
        Child child = child_begin();
        if (!child.pid) exit(read_all(&f, MOST, true));
        int status = child_end(child, said, sizeof said);
        if (n == 0) assert_int_equal(status, 0);
        else if (expected >= 0) assert_int_equal(status, expected);
        else assert_true(status == 1 && strncmp(said, "error: x: byte ", 15) == 0);
    }
}

// ---- documents
// Records of a small crawl: three with text, and what is left out. gzip: each a member.
static const char *put_crawl(const char *name, bool gzip)
{
    static File f, packed;
    const struct { const char *type, *block; } record[] = {
        {"warcinfo", "software: x"},
        {"conversion", "\xEF\xBB\xBF" "caf\xC3\xA9 and <p>"}, {"conversion", "plain \xFF<p>"},
        {"conversion", " \r\n"},
        {"conversion", "too long to be read, by its record, which has many more than fifty bytes of text"},
        {"metadata", "fetchTimeMs: 7"}, {"conversion", "text of WET\n"}};
    f = packed = (File){0};
    for (size_t i = 0; i < sizeof record / sizeof *record; i++) {
        size_t from = f.n;
        add_record(&f, "WARC/1.0", record[i].type, "", record[i].block, strlen(record[i].block));
        packed.n += gzip_pack(packed.bytes + packed.n, sizeof packed.bytes - packed.n, f.bytes + from, f.n - from);
    }
    return gzip ? put_bytes(name, packed.bytes, packed.n) : put_bytes(name, f.bytes, f.n);
}

TEST(test_corpus)
{
    static const char want[] = "[0 2 68:caf\xC3\xA9 and <p>][1 3 143:plain \xEF\xBF\xBD<p>][2 7 483:text of WET\n]";
    const char *named[] = {put_crawl("a.WARC.gz", true), put_crawl("b.wet", false), put_crawl("crawl", true)};
    char log[4000] = "";
    FILE *f = fmemopen(log, sizeof log, "w");
    OWN(CorpusReader) *r = corpus_open(named, 3, (CorpusOptions){.max_bytes = 50, .log = f, .read_bytes = 10,
        .separator = "and", .raise = "it"});
    char all[400];
    sprintf(all, "%s%s%s utf8=3 nul=0 bom=3 bad=0 empty=3 long=3", want, want, want);
    assert_string_equal(dump(r), all);
    assert_int_equal(corpus_counts(r).no_text, 6);
    size_t n;
    const CorpusFile *file = corpus_files(r, &n); // known by the unpacked bytes
    assert_true(n == 3 && file[0].hash[0] == file[1].hash[0] && file[0].n_bytes == file[1].n_bytes &&
        file[0].n_bytes > 400);
    fclose(f);
    assert_non_null(strstr(log, "a.WARC.gz:5: left out: the record is longer than 50 bytes (raise it)\n"));
    assert_false(corpus_count_fields(named, 3, (CorpusOptions){0}, NULL));
    assert_int_equal(corpus_format(named[2], SOURCE_AUTO), SOURCE_WARC);
    assert_int_equal(corpus_format(named[2], SOURCE_TEXT), SOURCE_TEXT);
}

// WARC gives the tokens of the same texts in JSONL: by a recipe, by `prepare tokens`, and from a pipe. Pages do not.
TEST(test_recipe)
{
    put_crawl("in.warc.gz", true);
    const char *text[] = {"caf\xC3\xA9 and <p>", "plain \xEF\xBF\xBD<p>",
                          "too long to be read, by its record, which has many more than fifty bytes of text",
                          "text of WET\n"};
    same_tokens(text, 4, "path = \"in.warc.gz\"\n", "--input in.warc.gz", 3); // one is ill-formed
    says("in.warc.gz: 1 file, 4 documents");
    says("2 records without text, 1 empty documents left out");
    expect_run("tokens --input - --format warc --vocab 300 --out t2 <in.warc.gz", 3, "");
    same_files("t0/train_000000.bin", "t2/train_000000.bin");
    same_files("t0/val_000000.bin", "t2/val_000000.bin");
    char command[1500];
    const char *wrong[] = {"field = \"x\"\n", "line = \"\"\n"};
    for (int i = 0; i < 2; i++) {
        snprintf(command, sizeof command, "[recipe]\nout = \"out2\"\n[source.a]\npath = \"in.warc.gz\"\n%s", wrong[i]);
        put_text("s.toml", command);
        expect_run("s.toml", 1, " has no effect: ");
    }
    static File pages;
    add_record(&pages, "WARC/1.0", "response", "", "HTTP/1.1 200 OK\r\n\r\n<p>x", 24);
    put_bytes("pages.warc", pages.bytes, pages.n);
    const char *refused[] = {"tokens --input pages.warc --vocab 300 --out t3",
                             "tokens --input - --format warc --vocab 300 --out t3 <pages.warc"};
    for (int i = 0; i < 2; i++) {
        expect_run(refused[i], 1, "byte 0 of the unpacked file: it holds pages (HTML), not their text (take the text "
                   "out with trafilatura or resiliparse, and give it as JSONL;");
        assert_true(strstr(output, "error: ") == output && strchr(output, '\n')[1] == 0);
    }
}

TESTS(program_set_up, temp_dir_remove)
