// Hostile files: deep JSON, huge ids and merges, links and pipes under the names that we read or write. They are
// refused in one line; nothing outside their folder is touched, nothing blocks, and memory stays bounded.

#include "test/test.h"

#include "ckpt/ckpt_manifest.h"
#include "base/config.h"
#include "data/prep/corpus.h"
#include "text/dataset.h"
#include "base/disk.h"
#include "expect_die.h"
#include "record/metrics.h"
#include "src/check/dump.h"
#include "tools/svg.h"
#include "temp_dir.h"
#include "tokenizer/tokenizer.h"

#include <sys/resource.h>

static int load_config(void *arg)
{
    static Config cfg;
    config_defaults(&cfg);
    config_load_file(&cfg, arg);
    return 0;
}

// ---- depth: a parser that calls itself for each level would run out of stack
enum { DEPTH = 1 << 20 };

static char *deep(const char *opening)
{
    size_t n = strlen(opening);
    char *text = zeroed(n * DEPTH + 1);
    for (size_t i = 0; i < DEPTH; i++) memcpy(text + n * i, opening, n);
    text[n * DEPTH] = 0;
    return text;
}

static int read_deep_documents(void *arg)
{
    const char *path = arg;
    CorpusReader *r = corpus_open(&path, 1, (CorpusOptions){.format = SOURCE_JSONL});
    CorpusRecord doc;
    int n = 0;
    while (corpus_next(r, &doc)) n++;
    bool as_expected = n == 1 && corpus_counts(r).bad_lines == 1;
    corpus_close(r);
    return as_expected ? 0 : 7;
}

static int read_deep_metrics(void *arg)
{
    MetricsLog log = metrics_read(arg);
    bool as_expected = log.n_rows == 0 && log.n_bad == 1;
    metrics_log_free(&log);
    return as_expected ? 0 : 7;
}

static int parse_deep_part(void *arg)
{
    Part part;
    return dump_part_parse(&part, arg) ? 7 : 0;
}

static int parse_deep_manifest(void *arg)
{
    static const char opening[] = "{\"xxh3_128\": \"00000000000000000000000000000000\",\"a\":";
    char *text = malloc(sizeof opening + DEPTH), hash[ST_HASH], error[600] = "";
    if (!text) return 8;
    size_t n = sizeof opening - 1;
    memcpy(text, opening, n);
    memcpy(text + n, arg, DEPTH);
    n += DEPTH;
    text[n] = 0;
    safetensors_hash(hash, text, n);
    memcpy(text + 14, hash, ST_HASH - 1);
    CkptVerdict verdict;
    CkptManifest *m = ckpt_manifest_parse("/nowhere", text, n, &verdict, (CkptFailure){error, sizeof error});
    ckpt_manifest_free(m);
    free(text);
    return !m && verdict == CKPT_DAMAGED && strstr(error, "not valid JSON") ? 0 : 7;
}

TEST(test_deep_json)
{
    char *array = deep("["), *object = deep("{\"a\":"), text[1024];
    put_text("tokenizer.json", array);
    expect_dies("maximum parsing depth reached", tokenizer_free(tokenizer_load(dir)));
    put_text("tokenizer.json", object);
    expect_dies("maximum parsing depth reached", tokenizer_free(tokenizer_load(dir)));
    FILE *f = fopen(in_dir("deep.jsonl"), "w");
    assert_true(f && fputs(object, f) >= 0 && fputs("\n{\"text\": \"good\"}\n", f) >= 0 && fclose(f) == 0);
    assert_int_equal(run_child(read_deep_documents, in_dir("deep.jsonl"), text, sizeof text), 0);
    put_text("metrics.jsonl", array);
    assert_int_equal(run_child(read_deep_metrics, in_dir("metrics.jsonl"), text, sizeof text), 0);
    assert_int_equal(run_child(parse_deep_part, object, text, sizeof text), 0);
    assert_int_equal(run_child(parse_deep_manifest, array, text, sizeof text), 0);
    free(array);
    free(object);
    unlink(in_dir("tokenizer.json"));
}

// ---- size: ids and lists beyond measure
TEST(test_giant_vocabulary)
{
    const char *id[] = {"2147483648", "2147483647", "4294967296", "9223372036854775807", "-1"};
    for (int i = 0; i < 5; i++) {
        char text[200];
        snprintf(text, sizeof text, "{\"a\": 0, \"b\": %s}", id[i]);
        put_text("vocab.json", text);
        put_text("merges.txt", "");
        expect_dies("is not one of 0..1", tokenizer_free(tokenizer_load(dir)));
        snprintf(text, sizeof text, "[model]\nvocab = %s\n", id[i]);
        put_text("x.toml", text);
        char said[2048];
        if (i == 1) continue; // a size, if a large one
        assert_int_equal(run_child(load_config, in_dir("x.toml"), said, sizeof said), 1);
        assert_non_null(strstr(said, "x.toml:2: model.vocab"));
    }
    unlink(in_dir("vocab.json"));
}

static long rss_before; // KiB, for the handler alone

static void measure(void)
{
    struct rusage after;
    getrusage(RUSAGE_SELF, &after);
    long grown = after.ru_maxrss - rss_before;
    if (grown <= 100 << 10) return;
    fprintf(stderr, "%ld KiB more memory\n", grown);
    _exit(9);
}

static int load_measured(void *arg)
{
    struct rusage before;
    getrusage(RUSAGE_SELF, &before);
    rss_before = before.ru_maxrss;
    atexit(measure);
    tokenizer_free(tokenizer_load(arg));
    return 0;
}

// 400,000 merges of the same two tokens, 1.6 MB: 64 MiB and 10 times the file are 80 MiB; 100 are allowed until they
// are refused.
TEST(test_giant_merges)
{
    enum { MERGES = 400000 };
    char text[4096];
    TokenizerTrainer *trainer = tokenizer_trainer_new("gpt2");
    tokenizer_trainer_add(trainer, "ab ab ab", 8);
    Tokenizer *t = tokenizer_trainer_finish(trainer, 258);
    vocab_save_gpt2(tokenizer_vocab(t), dir);
    tokenizer_free(t);
    FILE *f = fopen(in_dir("merges.txt"), "w");
    assert_non_null(f);
    for (int i = 0; i < MERGES; i++) fputs("a b\n", f);
    assert_int_equal(fclose(f), 0);
    int status = run_child(load_measured, dir, text, sizeof text);
    if (status != 1 || !strstr(text, "merges 0 and 1 join the same tokens")) fail_msg("status %d: %s", status, text);
    unlink(in_dir("vocab.json"));
}

// ---- links: what they point to is neither written nor emptied
static void draw_nothing(FILE *f, void *arg)
{
    (void)f, (void)arg;
}

TEST(test_links_are_not_followed)
{
    const char *aside[] = {"replaced.tmp", "metrics.jsonl.tmp", "loss.svg.tmp", "shard.bin.tmp"};
    char kept[64];
    size_t n;
    put_text("outside", "keep me");
    put_text("metrics.jsonl", "{\"event\":\"train\",\"step\":1,\"loss\":2.0}\n");
    for (int i = 0; i < 4; i++) assert_int_equal(symlink(in_dir("outside"), in_dir(aside[i])), 0);
    assert_true(disk_replace_file(in_dir("replaced"), "new", 3));
    metrics_close(metrics_open(in_dir("metrics.jsonl"), 1, 1));
    svg_write(in_dir("loss.svg"), 10, 10, "x", draw_nothing, NULL);
    DatasetWriter *w = dataset_writer_open(in_dir("shard.bin"), 10, DATASET_AUTO);
    dataset_writer_append(w, (int32_t[]){1, 2}, 2);
    assert_int_equal(dataset_writer_finish(w), 2);
    char *text = disk_read_file(in_dir("outside"), &n, 100);
    assert_non_null(text);
    snprintf(kept, sizeof kept, "%s", text);
    free(text);
    assert_string_equal(kept, "keep me");
    struct stat info;
    const char *written[] = {"replaced", "metrics.jsonl", "loss.svg", "shard.bin"};
    for (int i = 0; i < 4; i++) assert_true(lstat(in_dir(written[i]), &info) == 0 && S_ISREG(info.st_mode));
}

static int read_manifest(void *arg)
{
    char error[600] = "";
    size_t n;
    char *text = ckpt_manifest_load(arg, &n, (CkptFailure){error, sizeof error});
    free(text);
    return !text && strstr(error, "manifest.json: cannot read") ? 0 : 7;
}

static int read_tensors(void *arg)
{
    char error[600] = "";
    SafeTensors *st = safetensors_open(arg, error, sizeof error);
    safetensors_close(st);
    return !st && strstr(error, "not a regular file") ? 0 : 7;
}

// A pipe where a file should be: refused at once, nobody waits for its other end. A folder and a device too.
TEST(test_no_regular_files)
{
    char text[1024];
    const char *name[] = {"manifest.json", "model.safetensors"};
    for (int kind = 0; kind < 3; kind++) {
        for (int i = 0; i < 2; i++) {
            if (kind == 0) assert_int_equal(mkfifo(in_dir(name[i]), 0600), 0);
            if (kind == 1) assert_int_equal(symlink("/dev/zero", in_dir(name[i])), 0);
            if (kind == 2) assert_int_equal(symlink("/", in_dir(name[i])), 0);
        }
        alarm(10); // waiting forever would be the failure
        assert_int_equal(run_child(read_manifest, dir, text, sizeof text), 0);
        assert_int_equal(run_child(read_tensors, in_dir("model.safetensors"), text, sizeof text), 0);
        alarm(0);
        for (int i = 0; i < 2; i++) assert_int_equal(unlink(in_dir(name[i])), 0);
    }
}

// A configuration that is wrong is shown, and must not command the terminal that shows it.
TEST(test_no_control_characters)
{
    char text[2048];
    put_text("x.toml", "[run]\nname\x1B[2J = 3 \x07\x7F\n");
    assert_int_equal(run_child(load_config, in_dir("x.toml"), text, sizeof text), 1);
    assert_non_null(strstr(text, "name?[2J"));
    for (const char *c = text; *c; c++) assert_true((unsigned char)*c >= ' ' || *c == '\n');
    assert_null(strchr(text, 0x7F));
}

TESTS(temp_dir_make, temp_dir_remove)
