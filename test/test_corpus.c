// test_corpus: the corpus reader (formats, separators, UTF-8, packed files, whatever the size of a read) and manifests;
// the store of documents and the shards of their tokens, also when the disk fails.
#define _GNU_SOURCE
#include "test/test.h"
#include <xxhash.h>
#include <zstd.h>

#include "expect_die.h"
#include "base/rng.h"
#include "temp_dir.h"
#include "gzip.h"
#include "corpus_case.h"
#include "base/words.h"
#include "data/prep/corpus.h"
#include "data/prep/shards.h"

#include <dirent.h>
#include <errno.h>
#include <xxhash.h>
#include <zstd.h>

// What corpus_next gives beside the text: lines of JSON, and files with the XXH3 of their content.
TEST(test_lines_and_files)
{
    const char text[] = "{\"id\": 1, \"text\": \"a\\u0000\"}\r\n  \n{\"text\": \"\\u0000\xFF\", \"x\": \"y\"}";
    const char *path[] = {put_bytes("a.jsonl", text, sizeof text - 1), put_text("b.txt", ""),
                          put_text("c.txt", "\xEF\xBB\xBF" "c")};
    const char *line[] = {"{\"id\": 1, \"text\": \"a\\u0000\"}\r",
                          "{\"text\": \"\\u0000\xEF\xBF\xBD\", \"x\": \"y\"}", NULL};
    const char *words[] = {"a\xEF\xBF\xBD", "\xEF\xBF\xBD\xEF\xBF\xBD", "c"};
    for (size_t reads = 1; reads < 100; reads *= 7) {
        OWN(CorpusReader) *r = corpus_open(path, 3, (CorpusOptions){.read_bytes = reads});
        CorpusRecord doc;
        size_t n_files;
        for (int i = 0; i < 3; i++) {
            assert_true(corpus_next(r, &doc));
            same_bytes(doc.text, doc.n_bytes, words[i], strlen(words[i]));
            assert_int_equal(doc.line, i == 1 ? 3 : 1);
            if (!line[i]) assert_null(doc.json);
            else {
                same_bytes(doc.json, doc.n_json, line[i], strlen(line[i]));
            }
            const CorpusFile *file = corpus_files(r, &n_files);
            assert_int_equal(n_files, i < 2 ? 0 : 2);
            assert_string_equal(file[n_files].path, doc.path);
        }
        assert_false(corpus_next(r, &doc));
        const CorpusFile *file = corpus_files(r, &n_files);
        assert_int_equal(n_files, 3);
        XXH128_hash_t h = XXH3_128bits(text, sizeof text - 1), empty = XXH3_128bits("", 0);
        assert_int_equal(file[0].n_bytes, sizeof text - 1);
        assert_true(file[0].hash[0] == h.high64 && file[0].hash[1] == h.low64);
        assert_true(file[1].n_bytes == 0 && file[1].hash[0] == empty.high64 && file[1].hash[1] == empty.low64);
        assert_int_equal(file[2].n_bytes, 4);
    }
}

// The dump of a file is `want` for every size of a read.
static void expect(const char *path, CorpusOptions options, const char *want)
{
    const size_t sizes[] = {1, 2, 7, 4096, 1 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        options.read_bytes = sizes[i];
        const char *got = read_it(path, options);
        if (strcmp(got, want)) fail_msg("%s, reads of %zu: got %s, expected %s", path, sizes[i], got, want);
    }
}

#define TEXT(...) (CorpusOptions) { .format = SOURCE_TEXT, __VA_ARGS__ }
#define NONE " utf8=0 nul=0 bom=0 bad=0 empty=0 long=0"

TEST(test_text)
{
    expect(put_text("a.txt", "one\n\ntwo"), TEXT(), "[0 1 0:one\n\ntwo]" NONE);
    expect(put_text("e.txt", ""), TEXT(), NONE);
    expect(put_text("s.txt", "ab<|x|>cd<|x<|x|>\n<|x|>ef"), TEXT(.separator = "<|x|>"),
           "[0 1 0:ab][1 1 7:cd<|x][2 2 23:ef] utf8=0 nul=0 bom=0 bad=0 empty=1 long=0");
    expect(put_text("l.txt", "---\na---\n---x\n---\r\nb\n---"), TEXT(.line = "---"),
           "[0 2 4:a---\n---x\n][1 5 19:b\n]" NONE);
    expect(put_text("b.txt", "\n\na\nb\r\n\r\nc\n\n"), TEXT(.line = ""), "[0 3 2:a\nb\r\n][1 6 9:c\n]" NONE);
    expect(put_text("bom.txt", "\xEF\xBB\xBF" "a\xEF\xBB\xBF"), TEXT(),
           "[0 1 3:a\xEF\xBB\xBF] utf8=0 nul=0 bom=1 bad=0 empty=0 long=0");
    expect(put_bytes("nul.txt", "a\0b", 3), TEXT(),
           "[0 1 0:a\xEF\xBF\xBD" "b] utf8=0 nul=1 bom=0 bad=0 empty=0 long=0");
    expect(put_text("t.txt", "12345|123|12345"), TEXT(.separator = "|", .max_bytes = 5),
           "[0 1 0:12345][1 1 6:123][2 1 10:12345]" NONE);
}

// A text one byte too long is an error for any size of a read, with its file, line and number; the same with bytes that
// are too many only as U+FFFD.
TEST(test_long_text)
{
    const struct { const char *bytes; CorpusOptions options; const char *want; } row[] = {
        {"a\nb|123456|", TEXT(.separator = "|", .max_bytes = 5), "l.txt:2: document 2 is longer than 5 bytes"},
        {"a\nb|123456", TEXT(.separator = "|", .max_bytes = 5, .raise = "--max"), "If it is, raise --max)"},
        {"a\n\nb\n3456\n\n", TEXT(.line = "", .max_bytes = 6), "l.txt:3: document 2 is longer than 6 bytes"},
        {"123456", TEXT(.max_bytes = 5), "l.txt:1: document 1 is longer than 5 bytes"},
        {"\xFF\xFF", TEXT(.max_bytes = 5), "l.txt:1: document 1 is longer than 5 bytes"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        for (size_t bytes = 1; bytes < 5000; bytes = 3 * bytes + 1) {
            CorpusOptions options = row[i].options;
            options.read_bytes = bytes;
            expect_dies(row[i].want, read_it(put_text("l.txt", row[i].bytes), options));
        }
    size_t n;
    FREED char *text = corpus_read(put_text("l.txt", "12345"), &n, (CorpusOptions){.max_bytes = 5});
    assert_int_equal(n, 5);
    expect_dies("l.txt: longer than 5 bytes (raise --max)",
                corpus_read(put_text("l.txt", "123456"), &n, (CorpusOptions){.max_bytes = 5, .raise = "--max"}));
}

// {"text":"a","a":[[],[],...]}: n empty lists.
static const char *put_lists(size_t n)
{
    FREED char *bytes = zeroed(3 * n + 64);
    char *at = stpcpy(bytes, "{\"text\":\"a\",\"a\":[0");
    for (size_t i = 0; i < n; i++) at = stpcpy(at, ",[]");
    strcpy(at, "]}\n{\"text\":\"b\"}");
    return put_text("lists.jsonl", bytes);
}

// A line whose parsed tree would need a hundred times its bytes is left out; brackets in a string count nothing.
TEST(test_many_values)
{
    enum { MANY = 1 << 20 };
    FREED char *bytes = zeroed(2 * MANY + 64);
    char *at = stpcpy(bytes, "{\"text\":\"a\",\"b\":\"");
    memset(at, '[', 2 * MANY);
    strcpy(at + 2 * MANY, "\"}");
    assert_string_equal(read_it(put_text("brackets.jsonl", bytes), (CorpusOptions){0}), "[0 1 0:a]" NONE);
    assert_string_equal(read_it(put_lists(MANY), (CorpusOptions){0}),
                        "[0 2 3145749:b] utf8=0 nul=0 bom=0 bad=1 empty=0 long=0");
    assert_string_equal(read_it(put_lists(MANY / 4), (CorpusOptions){0}), "[0 1 0:a][1 2 786453:b]" NONE);
}

// Bytes, and how many U+FFFD they become: the maximal subparts of the Unicode Standard, section 3.9.
TEST(test_utf8)
{
    const struct { const char *bytes, *want; int count; } row[] = {
#define R "\xEF\xBF\xBD"
        {"\x80", R, 1},
        {"\xC0\xAF", R R, 2}, // overlong /
        {"\xE0\x9F\xBF", R R R, 3}, // overlong
        {"\xF0\x8F\xBF\xBF", R R R R, 4}, // overlong
        {"\xED\xA0\x80", R R R, 3}, // a surrogate
        {"\xED\x9F\xBF", "\xED\x9F\xBF", 0}, // U+D7FF is fine
        {"\xF4\x8F\xBF\xBF", "\xF4\x8F\xBF\xBF", 0}, // U+10FFFF
        {"\xF4\x90\x80\x80", R R R R, 4}, // above it
        {"\xF5\x80", R R, 2},
        {"\xE2\x82" "a", R "a", 1}, // a euro sign cut short
        {"\xF0\x9F\x98", R, 1}, // at the end of the file
        {"\xF0\x9F\xF0\x9F\x98\x80", R "\xF0\x9F\x98\x80", 1},
        {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF" "A", R R R R "A", 4}, // the standard's table 3-11
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char bytes[64], want[200];
        sprintf(bytes, "x%s", row[i].bytes);
        sprintf(want, "[0 1 0:x%s] utf8=%d nul=0 bom=0 bad=0 empty=0 long=0", row[i].want, row[i].count);
        expect(put_text("u.txt", bytes), TEXT(), want);
        // In two documents, and with the separator right behind the broken sequence.
        sprintf(bytes, "x%s|y", row[i].bytes);
        sprintf(want, "[0 1 0:x%s][1 1 %zu:y] utf8=%d nul=0 bom=0 bad=0 empty=0 long=0", row[i].want,
                strlen(row[i].bytes) + 2, row[i].count);
        expect(put_text("u.txt", bytes), TEXT(.separator = "|"), want);
    }
}

TEST(test_jsonl)
{
    const char text[] = "{\"text\": \"a\\nb\", \"id\": 123456789012345678901234567890}\n\n"
                        "nonsense\n[1]\n{\"body\": \"x\"}\n{\"text\": 5}\n{\"text\":\"a\",\"text\":\"b\"}\n"
                        "{\"text\": \" \"}\n{\"text\": \"c\\u0000\xFF\"}\r\n{\"text\": \"d\"}";
    expect(put_text("e.jsonl", "{\"text\":\"\"}\n{\"text\":\"a\"}\n\n"), (CorpusOptions){0},
           "[0 2 12:a] utf8=0 nul=0 bom=0 bad=0 empty=1 long=0");
    char *path = put_bytes("j.jsonl", text, sizeof text - 1);
    expect(path, (CorpusOptions){0},
           "[0 1 0:a\nb][1 9 133:c\xEF\xBF\xBD\xEF\xBF\xBD][2 10 155:d] utf8=1 nul=1 bom=0 bad=5 empty=1 long=0");
    expect(path, (CorpusOptions){.field = "body"}, "[0 5 69:x] utf8=1 nul=0 bom=0 bad=8 empty=0 long=0");
    expect(put_text("long.jsonl", "{\"text\": \"0123456789\"}\n{\"text\":\"a\"}\n"), (CorpusOptions){.max_bytes = 12},
           "[0 2 23:a] utf8=0 nul=0 bom=0 bad=0 empty=0 long=1");
    // Each FF becomes three bytes: then the text is longer than 20.
    expect(put_text("long.jsonl", "{\"text\":\"\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\"}\n{\"text\":\"a\"}"),
           (CorpusOptions){.max_bytes = 20}, "[0 2 21:a] utf8=9 nul=0 bom=0 bad=0 empty=0 long=1");
    path = put_text("bad.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\n");
    expect_dies("bad.jsonl:2: not JSON", read_it(path, (CorpusOptions){.strict = true}));
    FREED char *said = PRINTED(log, read_it(path, (CorpusOptions){.log = log}));
    assert_non_null(strstr(said, "bad.jsonl:2: left out: not JSON"));
}

// What Python's json writes and JSON does not have: half a surrogate pair is mended and counted, numbers that no double
// holds cost nothing, and what is no JSON for another reason still is not.
TEST(test_nearly_json)
{
    const char *good[][2] = {
        {"{\"text\": \"half \\ud83d in it.\"}", "half \xEF\xBF\xBD in it."},
        {"{\"text\": \"\\uDE00\\ud83d\\ude00\\uD83D\"}", "\xEF\xBF\xBD\xF0\x9F\x98\x80\xEF\xBF\xBD"},
        {"{\"text\": \"\\ud83d\\ud83d\\ude00 \\\\ud83d \\\\\\ud83d\\n\"}",
         "\xEF\xBF\xBD\xF0\x9F\x98\x80 \\ud83d \\\xEF\xBF\xBD\n"},
        {"{\"a\\ud83d\": [NaN,Infinity, -Infinity], \"b\":1e999, \"c\":\t-1E+400, \"text\": \"a NaN, [NaN\"}",
         "a NaN, [NaN"},
        {"{\"x\": \"\\\" \\\\\", \"y\":NaN, \"text\": \"[1e999, \\\",NaN\"}", "[1e999, \",NaN"}};
    const int surrogates[] = {1, 2, 2, 1, 0};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        char want[200];
        sprintf(want, "[0 1 0:%s] utf8=%d nul=0 bom=0 bad=0 empty=0 long=0", good[i][1], surrogates[i]);
        expect(put_text("n.jsonl", good[i][0]), (CorpusOptions){0}, want);
    }
    char many[500] = "{\"n\": ", want[200];
    memset(many + 6, '9', 400);
    strcpy(many + 406, ", \"text\": \"a\"}");
    expect(put_text("n.jsonl", many), (CorpusOptions){0}, "[0 1 0:a]" NONE);
    const char *bad[] = {"{\"text\": NaN}", "{\"text\": \"a\", NaN: 1}", "{\"text\": \"a\", \"b\": 1NaN}",
                         "{\"text\": \"a\", \"b\": NaN1}", "{\"text\": \"a\", \"b\": 1e999x}",
                         "{\"text\": \"a\", \"b\": nan}", "{\"text\": \"a\", \"b\": +1e999}",
                         "{\"text\": \"a\", \"b\": 01e999}", "{\"text\": \"a\", \"b\": 1.e999}",
                         "{\"text\": \"a\", \"b\": .1e999}",
                         "{\"text\": \"\\ud83\"}", "{\"text\": \"\\ud83d}", "NaN", "1e999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        sprintf(want, " utf8=%d nul=0 bom=0 bad=1 empty=0 long=0", i == 11);
        expect(put_text("n.jsonl", bad[i]), (CorpusOptions){0}, want);
    }
    // The line comes along with its numbers, and with the half pair replaced.
    const char *raw = "{\"a\": NaN, \"text\": \"\xFF\\ud83d\"}", *path = put_text("n.jsonl", raw);
    OWN(CorpusReader) *r = corpus_open(&path, 1, (CorpusOptions){0});
    CorpusRecord doc;
    assert_true(corpus_next(r, &doc));
    const char *line = "{\"a\": NaN, \"text\": \"\xEF\xBF\xBD\\ufffd\"}";
    same_bytes(doc.json, doc.n_json, line, strlen(line));
}

TEST(test_folder)
{
    assert_int_equal(mkdir(in_dir("tree"), 0777), 0);
    assert_int_equal(mkdir(in_dir("tree/b"), 0777), 0);
    put_text("tree/c.txt", "c");
    put_text("tree/B.jsonl", "{\"text\":\"B\"}");
    put_text("tree/b/z.txt", "z");
    put_text("tree/b/a.txt", "a");
    put_text("tree/.hidden", "h");
    assert_int_equal(symlink(".", in_dir("tree/loop")), 0);
    expect(in_dir("tree"), (CorpusOptions){0}, "[0 1 0:B][0 1 0:a][0 1 0:z][0 1 0:c]" NONE);
    // A link to a folder and one to nothing are not followed, and counted; one to a file is a file.
    assert_int_equal(symlink("nowhere", in_dir("tree/b/gone")), 0);
    assert_int_equal(symlink("c.txt", in_dir("tree/d.txt")), 0);
    const char *tree = in_dir("tree");
    OWN(CorpusReader) *r = corpus_open(&tree, 1, (CorpusOptions){0});
    dump(r);
    CorpusCounts counts = corpus_counts(r);
    FREED char *said = PRINTED(f, corpus_print(&counts, f));
    assert_string_equal(said, "5 files, 5 documents, 5 bytes of text (16 read)\n"
                              "2 links to folders or to nothing, or devices, left out\n");
    assert_int_equal(mkdir(in_dir("hollow"), 0777), 0);
    assert_int_equal(symlink("nowhere", in_dir("hollow/gone")), 0);
    tree = in_dir("hollow");
    expect_dies("hollow: no file in it", corpus_open(&tree, 1, (CorpusOptions){0}));
}

// ---- packed files

// A text that is refused, whatever is read at a time.
static void refuse(const char *path, const char *words)
{
    expect_dies(words, read_it(path, TEXT(.read_bytes = 5)));
    expect_dies(words, read_it(path, TEXT()));
}

// A frame in the format of zstd 0.7, which some builds of the library know when they see its first four bytes at once:
// refused, whatever is read at a time. Frames to skip are skipped.
TEST(test_frames)
{
    uint8_t packed[256] = "\x50\x2A\x4D\x18\x03\0\0\0...";
    size_t n = 11 + ZSTD_compress(packed + 11, sizeof packed - 11, "abc", 3, 3);
    expect(put_bytes("skip.zst", packed, n), TEXT(), "[0 1 0:abc]" NONE);
    refuse(put_bytes("old.zst", "\x27\xB5\x2F\xFD\x60\0\0\0\0\0", 10),
           "old.zst: byte 0: not zstd, as its name says (unpacked already?");
    memcpy(packed + n, "\x27\xB5\x2F\xFD\x60\0\0\0\0\0", 10); // behind a good frame
    char words[100];
    sprintf(words, "two.zst: byte %zu: damaged zstd data: no frame begins here", n);
    refuse(put_bytes("two.zst", packed, n + 10), words);
}

// A window of 512 MiB; and a dictionary in the first frame, as it is or packed, which the other frames need.
TEST(test_windows_and_dictionaries)
{
    char packed[2048], text[300], want[400];
    for (int i = 0; i < 300; i++) text[i] = "the cat sat on a mat and on a hat\n"[(i * 11 + i / 30) % 34];
    text[0] = 'x', text[299] = 'y';
    sprintf(want, "[0 1 0:%.300s]" NONE, text);
    ZSTD_CCtx *z = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(z, ZSTD_c_windowLog, 29);
    ZSTD_outBuffer to = {packed, sizeof packed, 0};
    ZSTD_inBuffer half = {text, 150, 0}, rest = {text + 150, 150, 0};
    ZSTD_compressStream2(z, &to, &half, ZSTD_e_continue);
    assert_int_equal(ZSTD_compressStream2(z, &to, &rest, ZSTD_e_end), 0);
    expect(put_bytes("long.zst", packed, to.pos), TEXT(), want);
    for (int is_packed = 0; is_packed < 2; is_packed++) {
        memcpy(packed, "\x5D\x2A\x4D\x18", 4);
        size_t n = is_packed ? ZSTD_compress(packed + 8, 1000, text, 300, 3) : 300;
        if (!is_packed) memcpy(packed + 8, text, n);
        for (int i = 0; i < 4; i++) packed[4 + i] = (char)(n >> 8 * i);
        n += 8;
        n += ZSTD_compress_usingDict(z, packed + n, sizeof packed - n, text, 300, text, 300, 3);
        expect(put_bytes("with.zst", packed, n), TEXT(), want);
        expect(put_bytes("with.zst", packed, n), TEXT(.read_bytes = 5), want);
        refuse(put_bytes("with.zst", packed, 100 / (size_t)(is_packed + 1)), "with.zst: its zstd dictionary ends too early");
    }
    ZSTD_freeCCtx(z);
}

TEST(test_packed)
{
    char packed[8192], text[3000], want[3200];
    for (int i = 0; i < 2000; i++) text[i] = "the cat sat on a mat\n"[(i * 7 + i / 50) % 21];
    text[0] = 'x', text[1999] = 'y';
    sprintf(want, "[0 1 0:%.2000s]" NONE, text);
    for (int kind = 0; kind < 2; kind++) { // gzip, zstd: two members or frames
        const char *name = kind ? "p.txt.zst" : "p.txt.gz";
        size_t half = kind ? ZSTD_compress(packed, sizeof packed, text, 900, 3)
                           : gzip_pack(packed, sizeof packed, text, 900);
        size_t n = half + (kind ? ZSTD_compress(packed + half, sizeof packed - half, text + 900, 1100, 3)
                                : gzip_pack(packed + half, sizeof packed - half, text + 900, 1100));
        expect(put_bytes(name, packed, n), TEXT(), want);
        // Every end but those of a member is too early; the offset is the size of the file.
        for (size_t cut = 0; cut < n; cut += cut < half ? half / 5 + 1 : (n - half) / 5 + 1) {
            if (cut == half) continue;
            char words[100];
            if (cut == 0) sprintf(words, "%s: byte 0: the file is empty", name);
            else sprintf(words, "%s: byte %zu: the %s data end too early", name, cut, kind ? "zstd" : "gzip");
            refuse(put_bytes(name, packed, cut), words);
        }
        packed[n] = 'x'; // not padding
        refuse(put_bytes(name, packed, n + 1), kind ? "damaged" : "end too early");
        packed[half / 2] = (char)~packed[half / 2];
        packed[half / 2 + 1] = (char)~packed[half / 2 + 1];
        refuse(put_bytes(name, packed, n), "damaged");
    }
    size_t n = gzip_pack(packed, sizeof packed, "abc", 3);
    memset(packed + n, 0, 20);
    expect(put_bytes("zero.gz", packed, n + 20), TEXT(), "[0 1 0:abc]" NONE);
    // Whatever the name is, or none.
    const char *other[] = {"u.txt.GZ", "u.txt", "U.Gz"};
    for (int i = 0; i < 3; i++) expect(put_bytes(other[i], packed, n), TEXT(), "[0 1 0:abc]" NONE);
    n = ZSTD_compress(packed, sizeof packed, "{\"text\":\"x\"}", 12, 3);
    expect(put_bytes("u.JSONL", packed, n), (CorpusOptions){0}, "[0 1 0:x]" NONE);
    expect(put_bytes("u.Jsonl.ZST", packed, n), (CorpusOptions){0}, "[0 1 0:x]" NONE);
    expect(put_bytes("u.gz", packed, n), TEXT(), "[0 1 0:{\"text\":\"x\"}]" NONE);
    refuse(put_text("plain.gz", "plain text"), "plain.gz: byte");
    refuse(in_dir("missing"), "missing: cannot read");
}

// Formats that would be read as ill-formed text.
TEST(test_foreign)
{
    const struct { const char *bytes; size_t n; const char *words; } row[] = {
        {"BZh91AY&SY\x12\x34", 12, "f: byte 0: a file of bzip2, which is not read here (unpack it first: bzip2"},
        {"\xFD" "7zXZ\0\0\x04", 8, "f: byte 0: a file of xz, which is not read here (unpack it first: xz -dc"},
        {"\x04\x22\x4D\x18\x64", 5, "f: byte 0: a file of LZ4, which is not read here (unpack it first: lz4 -dc"},
        {"PK\3\4\x14\0", 6, "f: byte 0: a file of zip, which is not read here (unpack it first: unzip -p"},
        {"7z\xBC\xAF\x27\x1C", 6, "f: byte 0: a file of 7z, "}, {"%PDF-1", 6, "f: byte 0: a PDF"},
        {"\x93NUMPY", 6, "f: byte 0: an array of NumPy, "}, {"ARROW1", 6, "f: byte 0: a table of Arrow, "},
        {"\xFF\xFF\xFF\xFF\x10", 5, "f: byte 0: a table of Arrow, "},
        {"version https://git-lfs.github.com", 34, "f: byte 0: a pointer of Git LFS, not the file"},
        {" <!docType HTML>", 16, "f: byte 0: a page of HTML, where text is read"},
        {"<?xml?><Error><Code>AccessDenied", 32, "f: byte 0: an error of a store of files, saved instead"},
        {"a\0b\0c\0d\0e\0f\0g\0h\0", 16, "f: byte 0: UTF-16LE, where UTF-8 is read"},
        {"\0a\0b\0c\0d\0e\0f\0g\0h", 16, "f: byte 0: UTF-16BE, "},
        {"PAR1\x15\0", 6, "f: byte 0: a Parquet file, read as text or JSONL"},
        {"\xFF\xFE" "a\0b\0", 6, "f: byte 0: UTF-16, where UTF-8 is read (convert it first: iconv -f UTF-16"},
        {"\xFE\xFF\0a", 4, "f: byte 0: UTF-16, "}, {"\xFF\xFE\0\0a\0\0\0", 8, "f: byte 0: UTF-32, "},
        {"\0\0\xFE\xFF\0\0\0a", 8, "f: byte 0: UTF-32, "}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) refuse(put_bytes("f", row[i].bytes, row[i].n), row[i].words);
    char packed[200], tar[300] = "name"; // what they begin with is looked for in the content too
    size_t n = gzip_pack(packed, sizeof packed, "\xFF\xFE" "a\0", 4);
    refuse(put_bytes("f", packed, n), "f: byte 0: UTF-16, ");
    memcpy(tar + 257, "ustar", 5);
    refuse(put_bytes("f", packed, gzip_pack(packed, sizeof packed, tar, sizeof tar)), "f: byte 0: a file of tar, ");
    refuse(put_text("f.br", "\x1B\x2F\xF8\x25\xC2\x92"), "f.br: byte 0: a file of brotli, ");
    refuse(put_text("f.gz", "<html>\n<body>x"), "f.gz: byte 0: a page of HTML, ");
    refuse(put_text("f.parquet", "version https://git-lfs"), "f.parquet: byte 0: a pointer of Git LFS");
    expect_dies("f.TSV.gz: a table of CSV (make lines", read_it(put_text("f.TSV.gz", ""), (CorpusOptions){0}));
    expect(put_text("f.csv", "a,b"), TEXT(), "[0 1 0:a,b]" NONE);
    expect(put_text("f.br", "text"), TEXT(), "[0 1 0:text]" NONE);
    expect(put_text("f.html", "<html>"), TEXT(), "[0 1 0:<html>]" NONE);
    expect_dies("f.json: a JSON array, not lines of JSON (make them: jq",
                read_it(put_text("f.json", " [\n{\"text\": \"a\"},\n{\"text\": \"b\"}]"), (CorpusOptions){0}));
    expect_dies("f.json: a JSON array", read_it(put_text("f.json", "[ {\"text\": \"a\"}]"), (CorpusOptions){0}));
    expect(put_text("f", "PK\3"), TEXT(), "[0 1 0:PK\3]" NONE);
    expect(put_text("f", "BZh is a word"), TEXT(), "[0 1 0:BZh is a word]" NONE);
}

// Random bytes with a taste for structure: the same documents for any size of a read.
TEST(test_random)
{
    const char *piece[] = {"\n", "\r\n", "--", "\xF0\x9F", "\x80", "{\"text\": \"", "\"}", "a",
                           "\\u00e9", "{", "[1]", "\xEF\xBB\xBF"};
    for (uint64_t round = 0; round < 120; round++) {
        Rng rng = rng_make(round, "corpus", 0);
        uint64_t drawn = 0;
        char bytes[600];
        size_t n = 0, length = rng_below(rng, drawn++, 500);
        while (n < length) {
            uint64_t k = rng_below(rng, drawn++, 14);
            if (k >= 12) bytes[n++] = (char)rng_below(rng, drawn++, 256);
            else n += strlen(strcpy(bytes + n, piece[k]));
        }
        const char *names[] = {"f.txt", "f.jsonl"};
        const char *path = put_bytes(names[round % 2], bytes, n);
        CorpusOptions options = {.max_bytes = round % 6 == 3 ? 20 : 0}; // of JSONL: a longer text is an error
        if (round % 4 == 0) options.separator = "--";
        if (round % 4 == 2) options.line = round % 8 == 2 ? "" : "a";
        options.read_bytes = 1;
        FREED char *one = strdup(read_it(path, options));
        size_t length_bad;
        assert_true(words_utf8_invalid(one, strlen(one), 0, &length_bad) == strlen(one));
        for (size_t r = 2; r < 1000; r = r * 3 + 1) {
            options.read_bytes = r;
            if (strcmp(one, read_it(path, options))) fail_msg("round %d: reads of 1 and %zu differ", (int)round, r);
        }
    }
}

// ---- manifests
TEST(test_sources)
{
    const char good[] = "# two\n[source.books]\npath = \"b ; c.txt\" # quoted\nweight = 2.5\nline = \"\"\n"
                        "[source.web]\npath=/data/web\nformat = jsonl\nfield='body'\n";
    ENDED(sources_free) Sources s = sources_read(put_bytes("m.toml", good, sizeof good - 1));
    assert_true(s.n == 2 && s.source[0].weight == 2.5 && s.source[1].weight == 1);
    assert_string_equal(s.source[0].name, "books");
    assert_string_equal(s.source[0].path, in_dir("b ; c.txt"));
    assert_true(!*s.source[0].line && !s.source[0].separator && s.source[1].format == SOURCE_JSONL);
    assert_string_equal(s.source[1].path, "/data/web");
    assert_string_equal(s.source[1].field, "body");
    const char *bad[][2] = {{"", "no source in it"}, {"path = a\n", ":1: key 'path' before"},
                            {"[source.a]\nweight = 1\n", "[source.a] has no path"},
                            {"[source.a]\npath = a\nweight = 0\n", ":3: weight: 0"},
                            {"[source.a]\npath = a\nweight = nan\n", ":3: weight: nan"},
                            {"[source.a]\npath = a\npath = b\n", ":3: path is already set on line 2"},
                            {"[source.a]\npath = a\n[source.a]\n", ":3: the source 'a' is there twice"},
                            {"[source.a]\nfoo = a\n", ":2: unknown key 'foo'"}, {"[a]\n", ":1: [a]: not a section"},
                            {"[source.a]\npath = a b\n", ":2: text behind"},
                            {"[source.a]\nformat = x\n", ":2: format: x"},
                            {"[source.a]\npath = \"a\n", ":2: the string has no closing"}, {"x\n", ":1: x: neither"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect_dies(bad[i][1], sources_read(put_text("bad.toml", bad[i][0])));
}

// ---- corpus store: Tests of the store of documents: what is read back, where it is split, and what happens when the
// disk fails; and of the shards that hold the documents' tokens.

OWNER(CorpusStore, corpus_store_close)
OWNER(Dataset, dataset_close)

// How many names in the directory have these letters.
static int files_of(const char *letters)
{
    int n = 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) n += strstr(e->d_name, letters) != NULL;
    closedir(d);
    return n;
}

// Documents come back as they were, in any order; a disk that fails is told.
TEST(test_store)
{
    enum { N = 300 };
    static char text[1 << 16], back[1 << 16];
    for (size_t i = 0; i < sizeof text; i++) text[i] = (char)(i * 2654435761u >> 11);
    int fd = dup(STDIN_FILENO); // the number that the store's file gets
    close(fd);
    OWN(CorpusStore) *s = corpus_store_open(dir);
    for (size_t i = 0; i < N; i++) corpus_store_add(s, text + i, i * i % 60000);
    corpus_store_finish(s);
    uint64_t bytes = 0;
    assert_int_equal(corpus_store_count(s), N);
    for (size_t k = 0; k < N; k++) {
        size_t i = k * 77 % N;
        assert_int_equal(corpus_store_size(s, i), i * i % 60000);
        assert_true(corpus_store_read(s, i, back));
        assert_memory_equal(back, text + i, i * i % 60000);
        bytes += i * i % 60000;
    }
    assert_int_equal(corpus_store_bytes(s), bytes);
    assert_int_equal(files_of("corpus_"), 0); // nothing to be seen
    assert_int_equal(ftruncate(fd, (off_t)bytes - 1), 0);
    assert_true(corpus_store_read(s, N - 2, back));
    errno = 0;
    assert_false(corpus_store_read(s, N - 1, back));
    assert_int_equal(errno, EIO);
}

// The split of documents of given sizes: where the last part begins, in documents and in bytes.
static int split(const double *row) // fraction, sizes, 0
{
    OWN(CorpusStore) *s = corpus_store_open(dir);
    char text[1000];
    memset(text, 'x', sizeof text);
    for (const double *size = row + 1; *size; size++) corpus_store_add(s, text, (size_t)*size);
    corpus_store_finish(s);
    size_t from = corpus_store_split(s, row[0]);
    int bytes = 0;
    for (size_t i = 0; i < from; i++) bytes += (int)corpus_store_size(s, i);
    int n = (int)corpus_store_count(s);
    return (int)from * 1000000 + n * 10000 + bytes;
}

TEST(test_split)
{
    const struct {
        double row[6]; // as split's
        int from, n, bytes;
    } want[] = {
        {{0, 10, 20}, 2, 2, 30},
        {{0.25, 40}, 1, 2, 30},            // through the only document
        {{0.5, 10, 10, 10, 10}, 2, 4, 20}, // at a border
        {{0.5, 26, 30}, 1, 2, 26},         // cut 28, border 2 before it
        {{0.5, 30, 26}, 1, 2, 30},         // and 2 behind
        {{0.1, 50, 50}, 2, 3, 90},         // no border near: the second becomes two
        {{0.4, 50, 50}, 1, 2, 50},         // cut 60, border 10 before: the part of 40 grows by a quarter
        {{0.25, 60, 40, 12}, 2, 4, 84},    // cut 84, borders at 60 and 100: the part of 28 would change by 24 or 16
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        assert_int_equal(split(want[i].row), want[i].from * 1000000 + want[i].n * 10000 + want[i].bytes);
    const double nothing[] = {0.999, 5, 0}, none[] = {0.5, 0};
    expect_dies("leaves nothing on one side", split(nothing));
    expect_dies("leaves nothing on one side", split(none));
    expect_dies("missing: no temporary file: No such file or directory", corpus_store_open(in_dir("missing")));
}

// Tokens added in pieces come back as one sequence; every file but the last is full; no old file stays behind them.
TEST(test_shards)
{
    int32_t id[100], back[100];
    for (int i = 0; i < 100; i++) id[i] = i * 7 % 300;
    const struct { int n, most, files; } row[] = {
        {100, 9, 12}, {100, 100, 1}, {99, 33, 3}, {3, 1, 3}, {1, 50, 1}, {0, 5, 0}};
    for (size_t r = 0; r < sizeof row / sizeof *row; r++) {
        Shards *s = shards_open(dir, "part", 300, DATASET_AUTO, row[r].most);
        for (int at = 0, piece = 1; at < row[r].n; at += piece, piece = piece * 2 % 31 + 1) {
            if (piece > row[r].n - at) piece = row[r].n - at;
            shards_add(s, id + at, (size_t)piece);
        }
        assert_int_equal(shards_tokens(s), row[r].n);
        assert_int_equal(shards_close(s), row[r].files);
        assert_int_equal(files_of("part_"), row[r].files);
        if (!row[r].n) continue;
        OWN(Dataset) *ds = dataset_open(in_dir("part_*.bin"), 300);
        assert_int_equal(dataset_tokens(ds), row[r].n);
        dataset_span(ds, 0, row[r].n, back);
        assert_memory_equal(back, id, (size_t)row[r].n * sizeof *id);
    }
}

TESTS(temp_dir_make, temp_dir_remove)
