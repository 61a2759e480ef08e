// Tests of the program prepare and of corpus: commands run in child processes, their files read back.
#define _GNU_SOURCE

#include "test/test.h"

#define main prepare_main
#include "../data/prepare.c"
#undef main

#include "expect_die.h"
#include "temp_dir.h"
#include "json_has.h"

OWNER(Dataset, dataset_close)
OWNER(Tokenizer, tokenizer_free)

// A command line: words separated by spaces, @ stands for the test's folder (whose own name may have spaces); stdout
// goes to @/stdout.
static int run_words(void *arg)
{
    static char line[1 << 14];
    char *argv[64], *o = line;
    int argc = 0;
    for (const char *p = arg; *p; p++) {
        if ((size_t)(o - line) + strlen(dir) + 2 > sizeof line || argc == 63) return 98;
        if (*p == ' ') continue;
        if (p == (char *)arg || p[-1] == ' ') argv[argc++] = o;
        o += sprintf(o, *p == '@' ? "%s" : "%.1s", *p == '@' ? dir : p);
        if (p[1] == ' ' || !p[1]) *o++ = 0;
    }
    argv[argc] = NULL;
    if (!freopen(in_dir("stdout"), "wb", stdout)) return 99;
    return prepare_main(argc, argv);
}

static void expect_ok(const char *words)
{
    char text[8192];
    int status = run_child(run_words, (void *)words, text, sizeof text);
    if (status != 0) fail_msg("%s: status %d: %s", words, status, text);
}

// The error is the last line (progress may stand before it) and the exit status is as given.
#define expect_error(command, status, words) assert_true(ends_with_error(run_words, command, status, words, false))

// The text of a part, with eot as '#', must be `want`.
static void expect_part(const char *out, const char *pattern, const char *want)
{
    OWN(Tokenizer) *t = tokenizer_load(in_dir(out));
    char glob[1000], text[4096];
    snprintf(glob, sizeof glob, "%s/%s", in_dir(out), pattern);
    OWN(Dataset) *ds = dataset_open(glob, tokenizer_vocab_size(t));
    size_t o = 0;
    for (int64_t i = 0; i < dataset_tokens(ds); i++) {
        int32_t id;
        size_t n;
        dataset_span(ds, i, 1, &id);
        const char *bytes = tokenizer_decode(t, id, &n);
        assert_true(o + n < sizeof text);
        if (id == tokenizer_eot(t)) text[o++] = '#';
        else memcpy(text + o, bytes, n), o += n;
    }
    text[o] = 0;
    assert_string_equal(text, want);
}

// The command makes these parts; val NULL: there is no such file.
static void makes(const char *words, const char *out, const char *train, const char *val)
{
    char path[300];
    expect_ok(words);
    expect_part(out, "train_*.bin", train);
    snprintf(path, sizeof path, "%s/val_000000.bin", out);
    if (val) expect_part(out, "val_*.bin", val);
    else assert_int_equal(access(in_dir(path), F_OK), -1);
}

static const char prose[] = "the cat sat. the hat sat. the cat and the hat sat. ";

// One document is cut at byte floor(n (1 - part)), and documents start with end-of-text.
TEST_IN_DIR(test_one_document)
{
    char text[201] = "", train[210], val[30];
    for (int i = 0; i < 4; i++) memcpy(text + i * 50, prose, 50);
    put_text("in.txt", text);
    snprintf(train, sizeof train, "#%.180s", text);
    snprintf(val, sizeof val, "#%s", text + 180);
    makes("prepare tokens --input @/in.txt --out @/new/out --vocab 270 --val 0.1", "new/out", train, val);
    OWN(json_t) *m = json_file("new/out/manifest.json");
    OWN(Dataset) *ds = dataset_open(in_dir("new/out/val_000000.bin"), 270);
    char members[200];
    json_has(m, "{'vocab_size': 270}");
    json_has(json_object_get(m, "train"), "{'bytes': 180}");
    json_has(json_array_get(json_object_get(m, "sources"), 0), "{'bytes': 200}");
    snprintf(members, sizeof members, "{'bytes': 20, 'tokens': %d}", (int)dataset_tokens(ds));
    json_has(json_object_get(m, "val"), members);
    assert_true(json_is_real(json_object_get(json_object_get(m, "val"), "bytes_per_token")));
    // The same again, byte for byte; and the tokenizer saw the training part only.
    expect_ok("prepare tokens --input @/in.txt --out @/again --vocab 270 --val 0.1");
    char command[1024];
    snprintf(command, sizeof command, "diff -r '%s' '%s'", in_dir("new/out"), in_dir("again"));
    assert_int_equal(system(command), 0);
    memset(text + 180, 'q', 20);
    put_text("in.txt", text);
    expect_ok("prepare tokens --input @/in.txt --out @/other --vocab 270 --val 0.1");
    same_files("other/tokenizer.json", "again/tokenizer.json");
    put_text("in.txt", "aaaaaaa\xF0\x9F\x98\x80z"); // 12 * 0.75 = 9 is inside the four bytes at 7..10: not there
    makes("prepare tokens --input @/in.txt --out @/out --vocab 257 --val 0.25", "out", "#aaaaaaa",
          "#\xF0\x9F\x98\x80z");
}

// Documents from separators and from the files of a folder; the cut goes to a border when one is near.
TEST_IN_DIR(test_documents)
{
    put_text("in.txt", "one one<|endoftext|>two<|endoftext|>\n \n<|endoftext|>three");
    static const char *const row[][3] = { // options, and the parts
        {"--val 0", "#one one#two#three"},
        {"--val=0.4", "#one one#two", "#three"},          // 15 bytes: cut 9, border 10
        {"--val 0.1", "#one one#two#thr", "#ee"},         // cut 13: no border near
        {"--val 0 --separator e<|endoftext|>", "#one on#two<|endoftext|>\n \n<|endoftext|>three"}}; // no old part stays
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char command[200];
        snprintf(command, sizeof command, "prepare tokens --input @/in.txt --out @/a --vocab 257 %s", row[i][0]);
        makes(command, "a", row[i][1], row[i][2]);
    }
    assert_int_equal(mkdir(in_dir("folder"), 0777), 0);
    put_text("folder/b.txt", "bee");
    put_text("folder/empty", "");
    makes("prepare tokens --input @/folder @/in.txt --out @/b --vocab 257 --val 0", "b", "#bee#one one#two#three", NULL);
}

// A split given by files, a tokenizer that exists, several shards, uint32.
TEST_IN_DIR(test_given)
{
    put_text("train.txt", prose);
    put_text("val.txt", "the mat");
    expect_ok("prepare train-tokenizer --input @/train.txt --out @/tok --vocab 262 --pattern cl100k");
    char want[100];
    snprintf(want, sizeof want, "#%s", prose);
    makes("prepare tokens --train @/train.txt --val-file @/val.txt --out @/a --tokenizer @/tok --dtype uint32 "
          "--shard-tokens 10", "a", want, "#the mat");
    OWN(Dataset) *ds = dataset_open(in_dir("a/train_000001.bin"), 262);
    assert_int_equal(dataset_tokens(ds), 10);
    struct stat st;
    assert_int_equal(stat(in_dir("a/train_000000.bin"), &st), 0);
    assert_int_equal(st.st_size, 1024 + 4 * 10);
    // Fewer shards the next time: the others must go.
    expect_ok("prepare tokens --train @/train.txt --val-file @/val.txt --out @/a --tokenizer @/tok");
    assert_int_equal(access(in_dir("a/train_000001.bin"), F_OK), -1);
    expect_part("a", "train_*.bin", want);
}

TEST_IN_DIR(test_encode_decode)
{
    put_text("in.txt", "aaabdaaabac");
    expect_ok("prepare train-tokenizer --input @/in.txt --out @/tok --vocab 261"); // ids: see test_tokenizer.c
    put_text("x.txt", "aaabd ac<|endoftext|>ab");
    expect_ok("prepare encode --tokenizer @/tok @/x.txt");
    has_text("stdout", "258 67 220 259 27 91 68 77 67 78 69 83 68 87 83 91 29 257\n");
    expect_ok("prepare encode @/x.txt --special --tokenizer=@/tok");
    has_text("stdout", "258 67 220 259 260 257\n");
    put_text("ids", "258 67\n220\t259 260 257\n");
    expect_ok("prepare decode --tokenizer @/tok @/ids");
    has_text("stdout", "aaabd ac<|endoftext|>ab");
    put_text("empty", "");
    expect_ok("prepare encode --tokenizer @/tok @/empty");
    has_text("stdout", "\n");
    expect_ok("prepare decode --tokenizer @/tok @/empty");
    has_text("stdout", "");
    expect_ok("prepare --help");
}

// A tokenizer of n tokens, made as a file: the single bytes of `from` and n - 257 two-letter tokens.
static void make_wide_tokenizer(int n)
{
    OWN(json_t) *j = json_file("tok/tokenizer.json");
    json_t *vocab = json_object_get(json_object_get(j, "model"), "vocab");
    json_t *added = json_array_get(json_object_get(j, "added_tokens"), 0);
    json_object_del(vocab, TOKENIZER_EOT);
    for (int i = 256; i < n - 1; i++) {
        char name[16];
        snprintf(name, sizeof name, "z%d", i);
        json_object_set_new(vocab, name, json_integer(i));
    }
    json_object_set_new(json_object_get(j, "model"), "merges", json_array());
    json_object_set_new(added, "id", json_integer(n - 1));
    assert_int_equal(json_dump_file(j, in_dir("tok/tokenizer.json"), 0), 0);
}

TEST_IN_DIR(test_wide_vocabulary)
{
    put_text("in.txt", prose);
    expect_ok("prepare train-tokenizer --input @/in.txt --out @/tok --vocab 257");
    make_wide_tokenizer(65535);
    expect_ok("prepare tokens --input @/in.txt --out @/a --tokenizer @/tok --dtype uint16");
    make_wide_tokenizer(65536);
    expect_error("prepare tokens --input @/in.txt --out @/a --tokenizer @/tok --dtype uint16", 1,
                 "a vocabulary of 65536 tokens does not fit in uint16");
    expect_ok("prepare tokens --input @/in.txt --out @/a --tokenizer @/tok --val 0");
    struct stat st;
    assert_int_equal(stat(in_dir("a/train_000000.bin"), &st), 0);
    assert_int_equal(st.st_size, 1024 + 4 * (sizeof prose - 1 + 1)); // one token a byte, and end-of-text
}

// What is known to be wrong is said before the first byte of input is read.
TEST_IN_DIR(test_errors_at_once)
{
    const struct { const char *command, *words; } rows[] = {
        {"prepare tokens --out @/o --input @/in.txt --tokenizer @/nope", "nope: no tokenizer.json"},
        {"prepare tokens --out @/o --input @/in.txt --dtype uint16 --vocab 70000",
         "--dtype: a vocabulary of 70000 tokens does not fit in uint16"},
        {"prepare tokens --out @/o --input @/in.txt @/no", "/no: cannot read: No such file"},
        {"prepare tokens --out @/o --train @/in.txt --val-file @/no", "/no: cannot read: No such file"},
        {"prepare tokens --out @/o --input @/in.txt --pattern gpt3",
         "--pattern: 'gpt3' (gpt2, smollm, cl100k, llama3 or qwen2)"},
        {"prepare tokens --out @/o --input @/in.txt --shard-tokens 0", "--shard-tokens: '0'"},
        {"prepare tokens --out @/o --input @/in.txt --threads -1", "--threads: '-1'"},
        {"prepare train-tokenizer --out @/o --input @/in.txt @/no", "/no: cannot read: No such file"},
    };
    put_text("in.txt", prose);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect_die(run_words, (void *)rows[i].command, rows[i].words);
}

TEST_IN_DIR(test_errors)
{
    put_text("in.txt", prose);
    put_text("empty", " \n");
    assert_int_equal(mkdir(in_dir("folder"), 0777), 0);
    expect_error("prepare", 2, "no command");
    expect_error("prepare token", 2, "'token': not a command");
    expect_error("prepare tokens --inptu x", 2, "'--inptu': no such option");
    expect_error("prepare tokens --out", 2, "'--out': takes DIR");
    expect_error("prepare tokens @/in.txt", 2, "what is it?");
    expect_error("prepare tokens --out @/o", 2, "give --out and either");
    expect_error("prepare tokens --out @/o --train @/in.txt", 2, "give --out and either");
    expect_error("prepare encode @/in.txt", 2, "which tokenizer? (--tokenizer");
    expect_error("prepare tokens --out @/o --input @/in.txt --tokenizer @/t --vocab 300", 2,
                 "prepare tokens: --vocab has no effect beside --tokenizer");
    expect_error("prepare tokens --out @/o --input @/in.txt --pattern=gpt2 --tokenizer @/t", 2,
                 "--pattern has no effect beside --tokenizer");
    expect_error("prepare tokens --out @/o --train @/in.txt --val-file @/in.txt --val 0.1", 2,
                 "--val has no effect beside --val-file");
    expect_error("prepare train-tokenizer --out @/o --input @/in.txt --separator x --separator-line y", 2,
                 "prepare train-tokenizer: --separator has no effect beside --separator-line");
    expect_error("prepare tokens --out @/o --input @/empty", 3, "/empty: no text in it: 1 file, 0 bad lines");
    expect_error("prepare tokens --out @/o --input @/folder", 1, "/folder: no file in it");
    assert_int_equal(symlink("folder", in_dir("link")), 0);
    expect_error("prepare tokens --out @/link/o --input @/folder", 1, "lies in the input folder");
    expect_error("prepare tokens --out @/folders --input @/folder", 1, "no file in it");
    expect_error("prepare tokens --out @/in.txt --input @/in.txt", 1, "/in.txt: not a folder");
    expect_error("prepare tokens --out @/in.txt/x --input @/in.txt", 1, "/in.txt/x: Not a directory");
    expect_error("prepare tokens --out /proc/x --input @/in.txt", 1, "/proc/x:");
    expect_error("prepare tokens --out @/o --input @/in.txt --vocab 256", 1, "--vocab: '256' (a whole number from 257");
    expect_error("prepare tokens --out @/o --input @/in.txt --val 1", 1, "--val: '1'");
    expect_error("prepare tokens --out @/o --input @/in.txt --val nan", 1, "--val: 'nan'");
    expect_error("prepare tokens --out @/o --input @/in.txt --val 0.999", 1, "leaves nothing on one side");
    expect_error("prepare tokens --out @/o --input @/in.txt --dtype int8", 1, "--dtype: 'int8'");
    expect_error("prepare encode --tokenizer @/folder @/in.txt", 1, "no tokenizer.json");
}

TESTS(NULL, NULL)
