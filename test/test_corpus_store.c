// Tests of the store of documents: what is read back, where it is split, and what happens when the disk fails; and of
// the shards that hold the documents' tokens.
#define _GNU_SOURCE

#include "test/test.h"
#include <errno.h>

#include "data/prep/corpus.h"
#include "expect_die.h"
#include "data/prep/shards.h"
#include "temp_dir.h"

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
