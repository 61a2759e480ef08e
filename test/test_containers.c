// test_containers: documents in containers: Parquet (every encoding, codec and kind of page, files of another writer)
// and WARC (records of every kind, files cut off anywhere); what is refused, damage of every byte; and the rows and
// pages as documents, in the corpus reader and in a recipe.
#include "test/test.h"
#define PROGRAM "prepare"

#include "data/prep/parquet.h"
#include "expect_die.h"
#include "parquet_file.h"
#include "program.h"
#include "corpus_case.h"
#include "data/web/warc.h"
#include "gzip.h"

#include <xxhash.h>

OWNER(Parquet, parquet_close)

enum { ROWS = 500, PAGE = 1 << 20 };
static const int codec[] = {FILE_NONE, FILE_SNAPPY, FILE_GZIP, FILE_ZSTD},
    encoding[] = {FILE_PLAIN, FILE_DELTA_LENGTH, FILE_DELTA, FILE_DICTIONARY};
static char *rows[ROWS];
#define ROW (const char *const *)rows

// Rows with common beginnings, runs of one text, empty ones and, unless `all`, nulls; lengths from 0 to 3000.
static void make_rows(bool all)
{
    for (size_t i = 0; i < ROWS; i++) {
        size_t n = i % 50 == 7 ? 3000 : i % 9 * 5;
        free(rows[i]);
        rows[i] = NULL;
        if (!all && (i % 13 == 4 || (i > 200 && i < 240))) continue;
        rows[i] = zeroed(n + 40);
        if (i > 300 && i < 340) strcpy(rows[i], "twenty times the same");
        else if (i % 17) snprintf(rows[i], 40, "page %zu of %zu:", i / 20, i);
        for (size_t k = strlen(rows[i]); i % 17 && k < n; k++) rows[i][k] = (char)('a' + (i * k) % 26);
    }
}

static const char *put_rows(const char *name, const char *const *row, size_t n, FileOptions options)
{
    Out o = parquet_file(row, n, options);
    const char *path = put_bytes(name, o.bytes, o.n);
    free(o.bytes);
    return path;
}

static void expect_rows(const char *path, const char *column, const char *const *want, size_t n)
{
    OWN(Parquet) *p = parquet_open(path, column, PAGE, "max_page");
    ParquetRow row;
    uint64_t offset = 4;
    for (size_t i = 0; i < n; i++) {
        assert_true(parquet_next(p, &row));
        assert_true(row.offset >= offset);
        offset = row.offset;
        if (!want[i]) {
            assert_null(row.text);
            assert_int_equal(row.n_bytes, 0);
            continue;
        }
        assert_non_null(row.text);
        if (row.n_bytes != strlen(want[i]) || memcmp(row.text, want[i], row.n_bytes) != 0)
            fail_msg("%s: row %zu: '%.*s', expected '%s'", path, i, (int)row.n_bytes, row.text, want[i]);
    }
    assert_false(parquet_next(p, &row));
    assert_false(parquet_next(p, &row));
}

TEST(test_grid)
{
    const size_t size[][2] = {{0, 0}, {1, 90}, {33, 0}, {129, 200}};
    for (unsigned i = 0; i < 4 * 4 * 4 * 16; i++) {
        FileOptions f = {.codec = codec[i & 3], .encoding = encoding[i >> 2 & 3], .page_rows = size[i >> 4 & 3][0],
                         .group_rows = size[i >> 4 & 3][1], .v2 = i >> 6 & 1, .required = i >> 7 & 1,
                         .grouped = i >> 8 & 1, .crc = i >> 9 & 1};
        make_rows(f.required && !f.grouped);
        expect_rows(put_rows("grid", ROW, ROWS, f), f.grouped ? "meta.text" : "text", ROW, ROWS);
    }
    expect_rows(put_rows("none", NULL, 0, (FileOptions){0}), "text", NULL, 0);
    const char *nulls[20] = {NULL};
    for (int e = 0; e < 4; e++)
        for (int v2 = 0; v2 < 2; v2++)
            expect_rows(put_rows("nulls", nulls, 20, (FileOptions){.encoding = encoding[e], .v2 = v2, .codec = 6}),
                        "text", nulls, 20);
}

// Bytes written as hexadecimal digits.
static const char *put_hex(const char *name, const char *hex)
{
    uint8_t bytes[1000];
    size_t n = strlen(hex) / 2;
    assert_true(n <= sizeof bytes);
    for (size_t i = 0; i < n; i++) {
        unsigned byte;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
        bytes[i] = (uint8_t)byte;
    }
    return put_bytes(name, bytes, n);
}

// Written by pyarrow 26.0.1: dictionary, snappy, pages of version 1; and DELTA_BYTE_ARRAY in a page of version 2.
static const char dictionary_file[] =
    "504152311504153615384c150815001200001b18030000006f6e6501073c74776f0000000005000000c3a974c3a9150015141518"
    "2c150c1510150615061c0000000a2402000000033b020364031504192c35001806736368656d61150200150c2502180474657874"
    "25004c1c000000160c191c191c26001c150c1935000610191804746578741502160c168c01169201265c2608292c150415001502"
    "00150015101502003c161c19061926020a000000168c01160c2608169201002820706172717565742d6370702d6172726f772076"
    "657273696f6e2032362e302e31191c1c0000009600000050415231";
static const char delta_file[] =
    "504152311506156015605c150c1502150c150e15041500121c000000033b8001040500000000000080010405060503000000830b"
    "000000000000000000006f6e6574776f74776fc3a974c3a91504192c35001806736368656d61150200150c250218047465787425"
    "004c1c000000160c191c191c26001c150c1925060e191804746578741500160c1690011690012608491c1500150e1502003c161c"
    "19061926020a000000169001160c2608169001002820706172717565742d6370702d6172726f772076657273696f6e2032362e30"
    "2e31191c1c0000008c00000050415231";

TEST(test_other_writer)
{
    const char *want[] = {"one", "two", NULL, "", "two", "\xC3\xA9t\xC3\xA9"};
    expect_rows(put_hex("dictionary", dictionary_file), "text", want, 6);
    expect_rows(put_hex("delta", delta_file), "text", want, 6);
    assert_true(parquet_is(in_dir("delta")));
    assert_false(parquet_is(put_bytes("short", "PAR1", 4)));
    assert_false(parquet_is(dir));
}

// ---- what is refused

static void read_all(const char *path, const char *column, size_t max_page)
{
    ParquetRow row;
    OWN(Parquet) *p = parquet_open(path, column, max_page, "max_page");
    while (parquet_next(p, &row)) {}
}

static void refuse(const char *path, const char *column, const char *words)
{
    expect_dies(words, read_all(path, column, PAGE));
}

TEST(test_refused)
{
    const char *row[] = {"one", "two", NULL, "three"};
    struct { FileOptions f; const char *column, *words; } list[] = {
        {{0}, "body", "no column 'body' (columns of strings, to be chosen with 'field': text)"},
        {{.grouped = true}, "text", "no column 'text' (columns of strings, to be chosen with 'field': meta.text)"},
        {{0}, "id", "column 'id' holds INT64, not strings (columns of strings, to be chosen with 'field': text)"},
        {{.type = 7}, "text", "column 'text' holds FIXED_LEN_BYTE_ARRAY, not strings (columns of strings, to be chosen "
                              "with 'field': none)"},
        {{.list = true}, "texts", "column 'texts' is in a list, so a row has many texts"},
        {{.list = true}, "texts.text", "column 'texts.text' is in a list"},
        {{.codec = 4}, "text", "compressed by brotli, which is not read here (write it again with snappy, gzip or"},
        {{.codec = 7}, "text", "compressed by LZ4_RAW"},
        {{.codec = 99}, "text", "compressed by a later one than this program knows"},
        {{.encoding = 9}, "text", "a page in the encoding BYTE_STREAM_SPLIT, which is not read here"},
        {{.level_encoding = 4}, "text", "levels in the encoding BIT_PACKED, which is not read here"},
        {{.encrypted_footer = true}, "text", "encrypted, which is not read here (decrypt it first)"},
        {{.encrypted_column = true}, "text", "the column is encrypted, which is not read here"},
        {{.elsewhere = true}, "text", "its columns are in other files"},
        {{.encoding = FILE_DICTIONARY, .skew = 1}, "text", "the values of a page are fewer or longer than the page"},
        {{.encoding = FILE_DELTA, .skew = 1}, "text", "the values of a page are fewer or longer than the page"},
        {{.more = 1}, "text", "the pages have fewer values than the chunk"},
        {{.more = -1}, "text", "the pages have more values than the chunk"}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        refuse(put_rows("f", row, 4, list[i].f), list[i].column, list[i].words);
    refuse(put_bytes("f", "PAR1", 4), "text", "f: byte 4: damaged Parquet: too short");
    refuse(put_bytes("f", "PARE\0\0\0\0\0\0\0\0PARE", 16), "text", "f: encrypted");
    refuse(put_bytes("f", "text\0\0\0\0\0\0\0\0PAR1", 16), "text", "f: byte 0: not Parquet, it does not begin with");
    refuse(put_bytes("f", "PAR1\0\0\0\0\0\0\0\0PAR2", 16), "text", "f: byte 12: damaged Parquet: it does not end with");
    refuse(put_bytes("f", "PAR1\0\0\0\0\5\0\0\0PAR1", 16), "text", "f: byte 8: damaged Parquet: a footer of this");
    refuse("-", "text", "-: Parquet is read from its end, so not from a pipe (save it as a file)");
    refuse(dir, "text", "Parquet is read from its end, so not from a pipe");
    refuse(in_dir("nothing"), "text", "nothing: cannot read: ");
}

// A page is as large as it says and no larger than is allowed; its checksum is right.
TEST(test_pages)
{
    static char text[100001];
    memset(text, 'a', sizeof text - 1);
    const char *row[] = {text};
    for (int c = 0; c < 4; c++) {
        const char *path = put_rows("f", row, 1, (FileOptions){.codec = codec[c], .required = true, .v2 = true});
        expect_dies(": a page of 100004 bytes, above 100003 (raise max_p", read_all(path, "text", 100003));
        read_all(path, "text", 100004);
        Out o = parquet_file(row, 1, (FileOptions){.codec = codec[c], .required = true, .crc = true});
        o.bytes[44]++; // in the page
        refuse(put_bytes("f", o.bytes, o.n), "text", "damaged Parquet: the checksum of a page is wrong (fetch it");
        free(o.bytes);
        // The size that the header says, a zigzag varint in bytes 7 to 9, is one more and one less than what it holds.
        for (int more = -1; more <= 1; more += 2) {
            o = parquet_file(row, 1, (FileOptions){.codec = codec[c], .required = true});
            assert_int_equal(o.bytes[7], 128 | (200008 & 127));
            o.bytes[7] = (uint8_t)(o.bytes[7] + 2 * more);
            refuse(put_bytes("f", o.bytes, o.n), "text",
                   c ? "a page cannot be unpacked to the size that its header says"
                     : "a page is not packed, but has two sizes");
            free(o.bytes);
        }
    }
}

// Every beginning of a file is refused, whatever of it is missing; a changed byte gives an error in one line or a text.
TEST(test_damage)
{
    const char *row[] = {"one", "two", NULL, "", "two", "three hundred", "three thousand", "three", "two"};
    char words[2000];
    for (int e = 0; e < 4; e++) {
        Out o = parquet_file(row, 9, (FileOptions){.encoding = encoding[e], .page_rows = 5, .v2 = e & 1});
        for (size_t n = 0; n < o.n; n += 1 + (n > 20) * 6) refuse(put_bytes("f", o.bytes, n), "text", "f: byte ");
        for (size_t i = 0; i < o.n; i++) {
            uint8_t was = o.bytes[i];
            o.bytes[i] = e & 2 ? 255 : (uint8_t)(was + 1);
            Child child = child_begin();
            if (!child.pid) read_all(put_bytes("f", o.bytes, o.n), "text", PAGE), exit(0);
            int status = child_end(child, words, sizeof words);
            const char *end = strchr(words, '\n');
            bool one_line = status == 1 && strncmp(words, "error: ", 7) == 0 && end && !end[1];
            if (!one_line && (status != 0 || *words)) fail_msg("byte %zu: status %d: %s", i, status, words);
            o.bytes[i] = was;
        }
        free(o.bytes);
    }
}

// ---- as documents

TEST(test_corpus)
{
    const char *row[] = {"one", NULL, "  \n", "tw\xFF", "", "12345678901", "three\nlines\n"};
    static const char want[] = "[0 1 4:one][1 4 4:tw\xEF\xBF\xBD][2 6 50:12345678901][3 7 50:three\nlines\n]";
    Out o = parquet_file(row, 7, (FileOptions){.codec = FILE_SNAPPY, .page_rows = 4});
    const char *named[] = {put_bytes("A.Parquet", o.bytes, o.n), put_bytes("table", o.bytes, o.n)};
    XXH128_hash_t h = XXH3_128bits(o.bytes, o.n);
    char log[2000] = "";
    FILE *f = fmemopen(log, sizeof log, "w");
    OWN(CorpusReader) *r = corpus_open(named, 2, (CorpusOptions){.max_bytes = 12, .log = f, .read_bytes = 10});
    char twice[400];
    sprintf(twice, "%s%s utf8=2 nul=0 bom=0 bad=0 empty=6 long=0", want, want);
    assert_string_equal(dump(r), twice);
    assert_int_equal(corpus_counts(r).bytes_in, 2 * o.n);
    size_t n_files;
    const CorpusFile *file = corpus_files(r, &n_files);
    assert_int_equal(n_files, 2);
    assert_true(file[1].n_bytes == o.n && file[1].hash[0] == h.high64 && file[1].hash[1] == h.low64);
    // What is too long is left out, in the log with its row.
    assert_string_equal(read_it(named[0], (CorpusOptions){.max_bytes = 10, .log = f, .raise = "it"}),
                        "[0 1 4:one][1 4 4:tw\xEF\xBF\xBD] utf8=1 nul=0 bom=0 bad=0 empty=3 long=2");
    fclose(f);
    assert_non_null(strstr(log, "A.Parquet:6: left out: the row is longer than 10 bytes (raise it)\n"));
    assert_non_null(strstr(log, "A.Parquet:7: left out: "));
    expect_dies("A.Parquet:1: the row is longer than 2 bytes",
                read_it(named[0], (CorpusOptions){.max_bytes = 2, .strict = true}));
    assert_true(corpus_count_fields(named, 2, (CorpusOptions){0}, NULL));
    assert_false(corpus_count_fields(named, 2, (CorpusOptions){.format = SOURCE_TEXT}, NULL));
    assert_int_equal(corpus_format(put_bytes("table.jsonl", o.bytes, o.n), SOURCE_AUTO), SOURCE_JSONL);
    free(o.bytes);
}

// A recipe with a source in Parquet gives the tokens of the same texts in JSONL; so does `prepare tokens`.
TEST(test_recipe)
{
    make_rows(false);
    put_rows("rows.parquet", ROW, ROWS, (FileOptions){.codec = FILE_ZSTD, .grouped = true,
             .encoding = FILE_DICTIONARY, .page_rows = 40, .group_rows = 150});
    same_tokens(ROW, ROWS, "path = \"rows.parquet\"\nfield = \"meta.text\"\n",
                "--input rows.parquet --field meta.text", 0);
    put_text("s.toml", "[recipe]\nout = \"out2\"\n[source.a]\npath = \"rows.parquet\"\nformat = parquet\n"
                       "line = \"\"\n");
    expect_run("s.toml", 1, "[source.a]: line has no effect: ");
    expect_run("tokens --input rows.parquet --out t2", 1,
               "error: rows.parquet: no column 'text' (columns of strings, to be chosen with 'field': meta.text)");
    expect_run("tokens --input - --format parquet --out t2 <rows.parquet", 1,
               "error: -: Parquet is read from its end, so not from a pipe (save it as a file)");
}

static int tear_down(void **state)
{
    for (size_t i = 0; i < ROWS; i++) free(rows[i]);
    return temp_dir_remove(state);
}

// ---- warc: records of every kind, what is left out and what is an error; a file cut off anywhere; pages (HTML), which
// are refused; and the texts as documents, in the corpus reader, in a recipe and from a pipe.

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
} cases[] = {
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
enum { WARC_ROWS = sizeof cases / sizeof *cases };

static void expect_record(const WarcRecord *got, size_t i)
{
    if (got->kind != cases[i].kind) fail_msg("row %zu: kind %d, expected %d", i, (int)got->kind, (int)cases[i].kind);
    assert_int_equal(got->number, i + 1);
    if (got->kind != WARC_TEXT) return;
    if (got->n_bytes != strlen(cases[i].text) || memcmp(got->text, cases[i].text, got->n_bytes) != 0)
        fail_msg("row %zu: '%.*s', expected '%s'", i, (int)got->n_bytes, got->text, cases[i].text);
}

TEST(test_records)
{
    static File f;
    size_t at[WARC_ROWS];
    for (size_t i = 0; i < WARC_ROWS; i++) {
        at[i] = f.n;
        add_record(&f, cases[i].version, cases[i].type, cases[i].fields, cases[i].block, strlen(cases[i].block));
        if (i % 3 == 1) f.n -= 4; // records with no empty lines between them, and with more
        if (i % 3 == 2) add(&f, "\n\r\n", 3);
    }
    const size_t steps[] = {1, 2, 7, 4096, 1 << 20};
    for (size_t s = 0; s < 5; s++) {
        f.at = 0;
        f.step = steps[s];
        OWN(Warc) *w = warc_open("x", read_file, &f, steps[s], MOST);
        WarcRecord record;
        for (size_t i = 0; i < WARC_ROWS; i++) {
            assert_true(warc_next(w, &record));
            expect_record(&record, i);
            assert_int_equal(record.offset, at[i]);
        }
        assert_false(warc_next(w, &record));
    }
}

// ---- damage
// The records, all of them as written in the table where `same`; returns their number.
static int warc_read_all(File *f, size_t most, bool same)
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
        expect_dies(bad[i].words, warc_read_all(&f, 50, false));
    }
    static File f;
    f = (File){.step = 1000};
    add_record(&f, "WARC/1.0", "conversion", "", "text", 4);
    add_record(&f, "WARC/1.0", "Response", "", "HTTP/1.1 200 OK\r\n\r\n<p>x", 24);
    expect_dies("x: byte 62 of the unpacked file: it holds pages (HTML), not their text (take the text out with "
                "trafilatura or resiliparse, and give it as JSONL; or read the crawl's WET files)",
                warc_read_all(&f, 50, false));
    f = (File){.step = 1 << 16};
    add(&f, "WARC/1.0\r\n", 10);
    while (f.n < sizeof f.bytes - 100) add(&f, "X: a field of forty bytes, many of them\r\n", 41);
    expect_dies("the file ends inside the header of a record", warc_read_all(&f, 50, false));
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
        add_record(&whole, cases[i].version, cases[i].type, cases[i].fields, cases[i].block, strlen(cases[i].block));
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
        if (!child.pid) exit(warc_read_all(&f, MOST, true));
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

TEST(test_warc_corpus)
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
TEST(test_warc_recipe)
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

TESTS(program_set_up, tear_down)
