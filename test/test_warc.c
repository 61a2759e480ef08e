// Tests of warc: records of every kind, bodies in chunks and packed, what is left out and what is an error; a file cut
// off anywhere; and the pages as documents, in the corpus reader, in a recipe and from a pipe.
#define PROGRAM "prepare"
#define _GNU_SOURCE // asprintf

#include "test/test.h"
#include <zlib.h>

#include "data/prep/corpus.h"
#include "data/web/warc.h"
#include "expect_die.h"
#include "program.h"

enum { MOST = 1 << 20 };

// ---- files in memory
typedef struct {
    char bytes[1 << 17];
    size_t n, at, step; // read: so far, and at most at a time
} File;

static size_t read_file(void *arg, void *out, size_t n)
{
    File *f = arg;
    size_t k = f->n - f->at;
    if (k > n) k = n;
    if (k > f->step) k = f->step;
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

static size_t pack(const char *text, size_t n, int window, char *out, size_t room)
{
    z_stream z = {.next_in = (Bytef *)(uintptr_t)text, .avail_in = (uInt)n, .next_out = (Bytef *)out,
                  .avail_out = (uInt)room};
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, window, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return room - z.avail_out;
}

static const char *put(const char *name, const void *bytes, size_t n)
{
    char *path = in_dir(name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    return path;
}

// ---- records
#define OK "HTTP/1.1 200 OK\r\n"
#define PAGE OK "Content-Type: text/html\r\n"
#define PLAIN OK "Content-Type: text/plain\r\n"
#define CHUNKED PLAIN "Transfer-Encoding: chunked\r\n\r\n"
#define R10 "WARC/1.0", "response", ""
static const struct {
    const char *version, *type, *fields, *block; // CR LF is written as such; \1: NUL
    WarcKind kind;
    const char *body, *charset; // of BAD: a part of why
} rows[] = {
    {"WARC/1.0", "warcinfo", "", "software: x", WARC_OTHER, 0, 0},
    {"WARC/1.1", "response", "", OK "Content-Type: text/html; charset=UTF-8\r\n\r\n<p>x", WARC_HTML, "<p>x", "UTF-8"},
    {"WARC/1.0", "Response", "", "HTTP/2 200\r\ncontent-type :TEXT/PLAIN;charset=\"koi8-r\"; x=y\r\n\r\na\r\n\r\nb",
     WARC_TEXT,
     "a\r\n\r\nb", "koi8-r"},
    {"WARC/0.18", "response", "", "HTTP/1.0 200 OK\nX: y\nContent-Type: application/xhtml+xml\n\nbody\n", WARC_HTML,
     "body\n", ""},
    {"WARC/0.17", "response", "X: WARC-Type: no\r\n  Content-Length: 1\r\n",
     OK "Content-Type:\r\n\ttext/plain;\r\n charset=latin1\r\n\r\nfolded",
     WARC_TEXT, "folded", "latin1"},
    {R10, OK "X-Content-Type: image/png\r\nContent-Type: text/plain\r\nContent-Type: image/png\r\n\r\nthe first",
     WARC_TEXT, "the first", ""},
    {"WARC/1.0", "response", "WARC-Identified-Payload-Type: text/html\r\n", OK "\r\nno type", WARC_HTML, "no type", ""},
    {"WARC/1.0", "response", "WARC-Identified-Payload-Type: text/html\r\n", OK "Content-Type: image/png\r\n\r\nPNG",
     WARC_OTHER, 0, 0},
    {R10, OK "\r\nneither says a type", WARC_OTHER, 0, 0},
    {R10, PAGE, WARC_HTML, "", ""},
    {R10, "HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\n\r\n200", WARC_OTHER, 0, 0},
    {R10, "HTTP/1.1 2000\r\nContent-Type: text/html\r\n\r\n", WARC_OTHER, 0, 0},
    {R10, "20240101 dns", WARC_OTHER, 0, 0},
    {R10, "", WARC_OTHER, 0, 0},
    {"WARC/1.0", "request", "", "GET / HTTP/1.1\r\n\r\n", WARC_OTHER, 0, 0},
    {"WARC/1.0", "conversion", "Content-Type: text/plain\r\n", "WARC/1.0\r\n\r\ntext", WARC_TEXT,
     "WARC/1.0\r\n\r\ntext", "utf-8"},
    {"WARC/1.0", "conversion", "", "", WARC_TEXT, "", "utf-8"},
    // Chunks
    {R10, CHUNKED "3\r\none\r\n0a;name=value\r\n\r\ntwo\r\nthr\r\n2 \r\nee\r\n0\r\nX: a trailer\r\n\r\n", WARC_TEXT,
     "one\r\ntwo\r\nthree", ""},
    {R10, PLAIN "Transfer-Encoding: gzip, Chunked\r\n\r\njoined already", WARC_TEXT,
     "joined already", ""},
    {R10, CHUNKED "face the wall", WARC_TEXT,
     "face the wall", ""},
    {R10, CHUNKED "3\r\none\r\n5\r\ntw", WARC_BAD,
     "its body does not end with the last of its chunks", 0},
    {R10, CHUNKED "3\r\none\r\nzzz\r\n", WARC_BAD,
     "its body does not end with the last of its chunks", 0},
    {R10, CHUNKED "ffffffffffffffff\r\none", WARC_BAD, "chunks", 0},
    {"WARC/1.0", "response", "WARC-Truncated: length\r\n", CHUNKED "3\r\none\r\n5\r\ntw", WARC_TEXT, "onetw", ""},
    // Packing
    {R10, PAGE "Content-Encoding: br\r\n\r\nx", WARC_BAD, "none of gzip and deflate", 0},
    {R10, PAGE "Content-Encoding: gzip\r\n\r\n<p>not packed", WARC_HTML, "<p>not packed", ""},
    {R10, PAGE "Content-Encoding: deflate\r\n\r\n<p>not packed", WARC_HTML, "<p>not packed", ""},
    {R10, PAGE "X-Crawl-Content-Encoding: br\r\nContent-Encoding: identity\r\n\r\n<p>x", WARC_HTML,
     "<p>x", ""},
    {R10, PAGE "Content-Encoding: gzip\r\n\r\n\x1F\x8B\x08 damaged", WARC_BAD, "its packed body", 0},
};
enum { ROWS = sizeof rows / sizeof *rows };

static void expect_record(const WarcRecord *got, size_t i)
{
    if (got->kind != rows[i].kind) fail_msg("row %zu: kind %d, expected %d", i, (int)got->kind, (int)rows[i].kind);
    assert_int_equal(got->number, i + 1);
    if (got->kind == WARC_BAD && !strstr(got->why, rows[i].body)) fail_msg("row %zu: %s", i, got->why);
    if (got->kind != WARC_HTML && got->kind != WARC_TEXT) return;
    assert_string_equal(got->charset, rows[i].charset);
    if (got->n_bytes != strlen(rows[i].body) || memcmp(got->body, rows[i].body, got->n_bytes) != 0)
        fail_msg("row %zu: '%.*s', expected '%s'", i, (int)got->n_bytes, got->body, rows[i].body);
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
        Warc *w = warc_open("x", read_file, &f, steps[s], MOST);
        WarcRecord record;
        for (size_t i = 0; i < ROWS; i++) {
            assert_true(warc_next(w, &record));
            expect_record(&record, i);
            assert_int_equal(record.offset, at[i]);
        }
        assert_false(warc_next(w, &record));
        warc_close(w);
    }
}

// A body packed in a way, its chunks too, cut short or not. Returns the record, whose body is w's.
static WarcRecord packed_page(const char *coding, int window, size_t n_text, size_t cut, bool truncated, size_t most,
    Warc **w)
{
    static File f;
    static char text[1 << 15], body[1 << 15], block[1 << 16];
    for (size_t i = 0; i < n_text; i++) text[i] = (char)('a' + (i * i + i / 7) % 26);
    size_t half = window == 31 ? n_text / 2 : 0, n = half ? pack(text, half, window, body,
        sizeof body) : 0; // two members
    n += pack(text + half, n_text - half, window, body + n, sizeof body - n);
    n -= cut;
    int head = sprintf(block, PLAIN "Transfer-Encoding: chunked\r\nContent-Encoding: %s\r\n\r\n%zx\r\n", coding, n);
    memcpy(block + head, body, n);
    n += (size_t)head;
    n += (size_t)sprintf(block + n, "\r\n0\r\n\r\n");
    f = (File){.step = 1000};
    add_record(&f, "WARC/1.0", "response", truncated ? "WARC-Truncated: length\r\n" : "", block, n);
    *w = warc_open("x", read_file, &f, 1000, most);
    WarcRecord record;
    assert_true(warc_next(*w, &record));
    if (record.kind == WARC_TEXT) assert_memory_equal(record.body, text, record.n_bytes);
    return record;
}

TEST(test_packed)
{
    const struct {
        const char *coding;
        int window;
    } way[] = {{"gzip", 31}, {"X-GZIP", 31}, {"deflate", 15}, {"deflate", -15}};
    const size_t sizes[] = {1, 2, 1000, 30000};
    Warc *w;
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 4; k++) {
            WarcRecord r = packed_page(way[i].coding, way[i].window, sizes[k], 0, false, MOST, &w);
            assert_true(r.kind == WARC_TEXT && r.n_bytes == sizes[k]);
            warc_close(w);
        }
    WarcRecord r = packed_page("gzip", 31, 30000, 30, false, MOST, &w);
    assert_int_equal(r.kind, WARC_BAD);
    assert_string_equal(r.why, "its packed body ends too early");
    warc_close(w);
    r = packed_page("gzip", 31, 30000, 30, true, MOST, &w);
    assert_true(r.kind == WARC_TEXT && r.n_bytes > 15000 && r.n_bytes < 30000);
    warc_close(w);
    // The bound is that of the unpacked body too.
    r = packed_page("gzip", 31, 30000, 0, false, 29999, &w);
    assert_int_equal(r.kind, WARC_LONG);
    warc_close(w);
    r = packed_page("gzip", 31, 30000, 0, false, 30000, &w);
    assert_int_equal(r.kind, WARC_TEXT);
    warc_close(w);
}

// ---- damage
static int read_all(void *arg)
{
    Warc *w = warc_open("x", read_file, arg, 100, 50);
    WarcRecord record;
    while (warc_next(w, &record)) {}
    warc_close(w);
    return 0;
}

TEST(test_damaged)
{
    const struct {
        const char *text, *words;
    } bad[] = {
        {"<html>", "x: byte 0 of the unpacked file: no record begins here (\"WARC/1.0\") (fetch it again)"},
        {"WARC/", "no record begins here"},
        {"WARC/2.0\r\nWARC-Type: response\r\nContent-Length: 0\r\n\r\n", "a version of WARC that is not read here"},
        {"WARC/0.9 512 response\r\nContent-Length: 0\r\n\r\n", "a version of WARC that is not read here"},
        {"WARC/1.0\r\nWARC-Type: response\r\n\r\n", "a record without Content-Length"},
        {"WARC/1.0\r\nWARC-Type: response\r\nContent-Length: -1\r\n\r\n", "whose Content-Length is not a number"},
        {"WARC/1.0\r\nWARC-Type: response\r\nContent-Length:\r\n\r\n", "whose Content-Length is not a number"},
        {"WARC/1.0\r\nWARC-Type: response\r\nContent-Length: 99999999999999999999\r\n\r\n",
         "whose Content-Length is not a number"},
        {"WARC/1.0\r\nWARC-Type: response\r\nContent-Length: 7", "the file ends inside the header of a record"},
        {"WARC/1.0\r\nWARC-Type: response\r\nContent-Length: 7\r\n\r\nHTTP/1", "the file ends inside a record"},
        {"WARC/1.0\r\nWARC-Type: request\r\nContent-Length: 7\r\n\r\nGET /", "the file ends inside a record"},
        {"WARC/1.0\r\nWARC-Type: response\r\nContent-Length: 999999999999999999\r\n\r\nHTTP/1",
         "the file ends inside a record"},
        {"\r\nWARC/1.0\r\nWARC-Type: request\r\nContent-Length: 3\r\n\r\nGET / longer than it says\r\n",
         "x: byte 56 of the unpacked file: no record begins here"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        static File f;
        f = (File){.step = 10};
        add(&f, bad[i].text, strlen(bad[i].text));
        expect_die(read_all, &f, bad[i].words);
    }
    static File f;
    f = (File){.step = 1 << 16};
    add(&f, "WARC/1.0\r\n", 10);
    while (f.n < sizeof f.bytes - 100) add(&f, "X: a field of forty bytes, many of them\r\n", 41);
    expect_die(read_all, &f, "the file ends inside the header of a record");
}

static size_t endless(void *arg, void *out, size_t n)
{
    memset(out, 'a', n);
    if (!*(int *)arg) memcpy(out, "WARC/1.0\n", 9);
    *(int *)arg = 1;
    return n;
}

static int read_endless(void *arg)
{
    WarcRecord record;
    return warc_next(warc_open("x", endless, arg, 1000, 50), &record);
}

TEST(test_endless_header)
{
    int begun = 0;
    expect_die(read_endless, &begun, "the header of a record is longer than 1 MiB");
}

// Cut off anywhere, a file is an error or ends between two records; the records before are the same.
static int count_records(void *arg)
{
    File *f = arg;
    Warc *w = warc_open("x", read_file, f, 100, MOST);
    WarcRecord record;
    int n = 0;
    while (warc_next(w, &record)) expect_record(&record, (size_t)n++);
    warc_close(w);
    return n;
}

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
        int status = run_child(count_records, &f, said, sizeof said);
        if (n == 0) assert_int_equal(status, 0);
        else if (expected >= 0) assert_int_equal(status, expected);
        else assert_true(status == 1 && strncmp(said, "error: x: byte ", 15) == 0);
    }
}

// ---- documents
#define HTML "Content-Type: text/html\r\n\r\n"
#define WORDS " and seventeen words more that make a paragraph of it by the rule that counts them, one, two, three."

// Records of a small crawl: four pages with text, and what is left out. gzip: each a member.
static const char *put_crawl(const char *name, bool gzip)
{
    static File f, packed;
    const struct {
        const char *type, *block;
    } record[] = {{"warcinfo", "software: x"},
                  {"request", "GET / HTTP/1.0"},
                  {"response", OK HTML "<title>T</title><p>caf\xE9" WORDS "<script>no</script><nav>no</nav>"},
                  {"response", OK "Content-Type: text/plain; charset=utf-8\r\n\r\nplain \xFF<p>"},
                  {"response", OK HTML "<nav>menu</nav>"},
                  {"response", OK HTML "<p>too long to be read, by its record" WORDS WORDS WORDS WORDS WORDS WORDS},
                  {"response", OK "Content-Encoding: br\r\n" HTML "x"},
                  {"conversion", "text of WET\n"},
                  {"response", OK "Content-Type: text/html; charset=euc-kr\r\n\r\n<p>\xC7\xD1\xB1\xB9\xBE\xEE" WORDS},
                  {"response", "HTTP/1.1 500\r\n" HTML "no"}};
    f = packed = (File){0};
    for (size_t i = 0; i < sizeof record / sizeof *record; i++) {
        size_t from = f.n;
        add_record(&f, "WARC/1.0", record[i].type, "", record[i].block, strlen(record[i].block));
        packed.n += pack(f.bytes + from, f.n - from, 31, packed.bytes + packed.n, sizeof packed.bytes - packed.n);
    }
    return gzip ? put(name, packed.bytes, packed.n) : put(name, f.bytes, f.n);
}

TEST(test_corpus)
{
    const char *want[] = {"caf\xC3\xA9" WORDS, "plain \xEF\xBF\xBD<p>", "text of WET\n",
        "\xED\x95\x9C\xEA\xB5\xAD\xEC\x96\xB4" WORDS};
    const uint64_t line[] = {3, 4, 8, 9};
    const char *named[] = {put_crawl("a.WARC.gz", true), put_crawl("b.wet", false), put_crawl("crawl", true)};
    char log[4000] = "";
    FILE *f = fmemopen(log, sizeof log, "w");
    CorpusReader *r = corpus_open(named, 3, (CorpusOptions){.max_bytes = 400, .log = f, .read_bytes = 10,
        .separator = "and", .raise = "it"});
    CorpusRecord doc;
    for (int i = 0; i < 12; i++) {
        assert_true(corpus_next(r, &doc));
        assert_int_equal(doc.n_bytes, strlen(want[i % 4]));
        assert_memory_equal(doc.text, want[i % 4], doc.n_bytes);
        assert_true(doc.index == (uint64_t)i % 4 && doc.line == line[i % 4] && !doc.json);
    }
    assert_false(corpus_next(r, &doc));
    CorpusCounts c = corpus_counts(r);
    assert_true(c.documents == 12 && c.no_page == 9 && c.too_long == 3 && c.bad_pages == 3 && c.empty == 3 &&
        c.bad_utf8 == 3);
    size_t n;
    const CorpusFile *file = corpus_files(r, &n); // known by the unpacked bytes
    assert_true(n == 3 && file[0].hash[0] == file[1].hash[0] && file[0].n_bytes == file[1].n_bytes &&
        file[0].n_bytes > 500);
    corpus_close(r);
    fclose(f);
    assert_non_null(strstr(log, "a.WARC.gz:6: left out: the record is longer than 400 bytes (raise it)\n"));
    assert_non_null(strstr(log, "b.wet:7: left out: its content encoding is none of gzip and deflate\n"));
    assert_false(corpus_any_fields(named, 3, (CorpusOptions){0}));
    assert_int_equal(corpus_format(named[2], SOURCE_AUTO), SOURCE_WARC);
    assert_int_equal(corpus_format(named[2], SOURCE_TEXT), SOURCE_TEXT);
}

static int read_strictly(void *path)
{
    CorpusRecord doc;
    CorpusReader *r = corpus_open((const char *const[]){path}, 1, (CorpusOptions){.strict = true});
    while (corpus_next(r, &doc)) {}
    return 0;
}

TEST(test_strict)
{
    const char *path = put_crawl("s.warc.gz", true);
    expect_die(read_strictly, (void *)(uintptr_t)path, "s.warc.gz:7: its content encoding is none of gzip and deflate");
    static File f, packed;
    f = packed = (File){0};
    add_record(&f, "WARC/1.0", "response", "", OK HTML "<p>x", strlen(OK HTML "<p>x"));
    size_t n = pack(f.bytes, f.n, 31, packed.bytes, sizeof packed.bytes);
    path = put("cut.warc.gz", packed.bytes, n - 3);
    expect_die(read_strictly, (void *)(uintptr_t)path, "cut.warc.gz: byte ");
}

// WARC gives the tokens of the same texts in JSONL: by a recipe, by `prepare tokens`, and from a pipe.
TEST(test_recipe)
{
    put_crawl("in.warc.gz", true);
    const char *text[] = {"caf\xC3\xA9" WORDS, "plain \xEF\xBF\xBD<p>", "too long to be read, by its record"
        WORDS WORDS WORDS WORDS WORDS WORDS,
                          "text of WET\n", "\xED\x95\x9C\xEA\xB5\xAD\xEC\x96\xB4" WORDS};
    FILE *f = fopen(in_dir("in.jsonl"), "w");
    for (uint64_t i = 0; i < 5; i++) assert_true(corpus_write_json(f, text[i], strlen(text[i]), "x", i));
    assert_int_equal(fclose(f), 0);
    const char *name[] = {"in.jsonl", "in.warc.gz"};
    char command[1500];
    for (int i = 0; i < 2; i++) {
        snprintf(command, sizeof command, "[recipe]\nout = \"out%d\"\n[source.a]\npath = \"%s\"\n[tokenizer]\n"
                 "vocab = 300\n[shards]\nval = 0\n", i, name[i]);
        put("r.toml", command, strlen(command));
        if (run("r.toml") != 0) fail_msg("%s", output);
    }
    if (run("tokens --input in.jsonl --vocab 300 --out t0")) fail_msg("%s", output);
    if (run("tokens --input in.warc.gz --vocab 300 --out t1")) fail_msg("%s", output);
    says("in.warc.gz: 1 files, 5 documents");
    says("3 records without a page, 1 bad pages left out, 1 empty documents left out");
    if (run("tokens --input - --format warc --vocab 300 --out t2 <in.warc.gz")) fail_msg("%s", output);
    const char *same[][2] = {{"out0/shards/a/train", "out1/shards/a/train"}, {"t0/train", "t1/train"},
                             {"t0/val", "t1/val"}, {"t0/train", "t2/train"}, {"t0/val", "t2/val"}};
    for (int i = 0; i < 5; i++) {
        snprintf(command, sizeof command, "cd '%s' && cmp %s_000000.bin %s_000000.bin", dir, same[i][0], same[i][1]);
        assert_int_equal(system(command), 0);
    }
    const char *wrong[] = {"field = \"x\"\n", "line = \"\"\n"};
    for (int i = 0; i < 2; i++) {
        snprintf(command, sizeof command, "[recipe]\nout = \"out2\"\n[source.a]\npath = \"in.warc.gz\"\n%s", wrong[i]);
        put("s.toml", command, strlen(command));
        expect_run("s.toml", 1, " has no effect: ");
    }
}

TESTS(program_set_up, temp_dir_remove)
