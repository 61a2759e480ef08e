// Tests of packed datasets: an epoch's rows hold every document once, whole where it fits; each token has the target
// that follows it in its document; and what is prefetched is what is then read.

#include "test/test.h"
#include <fcntl.h>

#include "text/packing.h"

#include "packing_fill.h"
#include "temp_dir.h"
#include "dataset_case.h"
#include "base/rng.h"

enum { EOT = 0, T = 16, DOCS = 400, MOST = 50, ROOM = DOCS * MOST }; // documents of 1 to MOST tokens

// ---- what is announced to the system: how often each token, by its place in all files

static struct {
    const char *name;
    off_t first, n, width; // its tokens, and the bytes of one
} shard[4];
static int n_shards, announced[ROOM];

static void add_shard(const char *name, size_t n, off_t width)
{
    off_t first = n_shards ? shard[n_shards - 1].first + shard[n_shards - 1].n : 0;
    shard[n_shards].name = name, shard[n_shards].first = first;
    shard[n_shards].n = (off_t)n, shard[n_shards++].width = width;
}

#ifdef POSIX_FADV_WILLNEED
enum { ADVICE = 1 };
// In place of the system's.
int posix_fadvise(int fd, off_t offset, off_t n, int advice)
{
    struct stat file, named;
    assert_int_equal(fstat(fd, &file), 0);
    assert_true(advice == POSIX_FADV_WILLNEED && n > 0); // 0 would be all that is left of the file
    for (int i = 0; i < n_shards; i++) {
        if (stat(in_dir(shard[i].name), &named) != 0 || named.st_ino != file.st_ino) continue;
        off_t width = shard[i].width, from = offset - DATASET_HEADER_BYTES;
        assert_true(from >= 0 && from % width == 0 && n % width == 0 && from + n <= shard[i].n * width);
        for (off_t at = from / width; at < (from + n) / width; at++) announced[shard[i].first + at]++;
    }
    return 0;
}
#else
enum { ADVICE = 0 };
#endif

static void expect_announced(const int *want, size_t n)
{
    if (ADVICE) assert_memory_equal(announced, want, n * sizeof *want);
    memset(announced, 0, sizeof announced);
}

// Documents of random lengths, one in eight longer than a row and one in eight empty. A token is 1 + its place.
typedef struct {
    int32_t stream[ROOM];
    size_t length[DOCS], start[DOCS], n;
} Text;

static void make_text(Text *text, uint64_t seed, int32_t base)
{
    Rng rng = rng_make(seed, "documents", 0);
    text->n = 0;
    for (size_t i = 0; i < DOCS; i++) {
        uint64_t kind = rng_below(rng, 2 * i, 8), most = kind == 0 ? 1 : kind == 1 ? MOST : T;
        text->start[i] = text->n;
        text->length[i] = 1 + rng_below(rng, 2 * i + 1, most);
        for (size_t k = 0; k < text->length[i]; k++, text->n++)
            text->stream[text->n] = k ? base + (int32_t)text->n : EOT;
    }
}

typedef struct {
    int32_t token[T], target[T], pos[T], first[T];
} Row;

static Row read_row(const Dataset *ds, int64_t sample, bool shuffle)
{
    Row r;
    memset(&r, 0x55, sizeof r);
    dataset_ahead(ds, sample, T, 7, shuffle);
    dataset_row(ds, sample, 7, shuffle, r.token, r.target, r.pos, r.first);
    return r;
}

// In the order of the files the rows are the packer's own, over the border between two shards.
TEST(test_rows_are_the_packers)
{
    static Text text;
    make_text(&text, 1, 1);
    size_t cut = text.start[DOCS / 2] + 3; // inside a document
    put_tokens("a_0.bin", 4 * ROOM, DATASET_AUTO, text.stream, cut);
    put_tokens("a_1.bin", 4 * ROOM, DATASET_AUTO, text.stream + cut, text.n - cut);
    add_shard("a_0.bin", cut, 4), add_shard("a_1.bin", text.n - cut, 4);
    ENDED(packing_free) Packing p = packing_make(text.length, DOCS, T, 0);
    OWN(Dataset) *ds = dataset_open(in_dir("a_*.bin"), 4 * ROOM);
    dataset_pack(ds, T, EOT);
    assert_int_equal(dataset_windows(ds, T), p.n_rows);
    int empty = 0, long_ones = 0;
    for (size_t r = 0; r < p.n_rows; r++) {
        static int wanted[ROOM + 1];
        memset(wanted, 0, sizeof wanted);
        Row want, got = read_row(ds, (int64_t)r, false);
        packing_fill(&p, r, text.stream, text.start, text.length, EOT, want.token, want.pos, want.first, want.target);
        for (size_t i = p.row_begin[r]; i < p.row_begin[r + 1]; i++) {
            const PackedPiece *piece = &p.piece[i];
            long_ones += piece->begin > 0;
            size_t from = text.start[piece->document] + piece->begin; // and what follows, the last target
            for (size_t at = from; at <= from + piece->length; at++) wanted[at]++;
            if (text.length[piece->document] > 1) continue;
            want.target[piece->column] = -1; // an end-of-text before the next: nothing to learn
            empty++;
        }
        assert_memory_equal(&got, &want, sizeof want);
        expect_announced(wanted, text.n);
    }
    n_shards = 0;
    assert_true(empty > 10 && long_ones > 10);
}

// Shuffled: each epoch has every row once, in another order; and every token once, before the token that follows it.
TEST(test_epochs)
{
    static Text text;
    make_text(&text, 2, 1);
    put_tokens("b_0.bin", 4 * ROOM, DATASET_AUTO, text.stream, text.n);
    OWN(Dataset) *ds = dataset_open(in_dir("b_0.bin"), 4 * ROOM);
    dataset_pack(ds, T, EOT);
    int64_t rows = dataset_windows(ds, T);
    int32_t first_of_epoch[3];
    for (int64_t epoch = 0; epoch < 3; epoch++) {
        static int seen[ROOM];
        int ends = 0, padding = 0;
        memset(seen, 0, sizeof seen);
        for (int64_t r = 0; r < rows; r++) {
            Row row = read_row(ds, epoch * rows + r, true);
            if (r == 0) first_of_epoch[epoch] = row.token[1];
            for (int t = 0; t < T; t++) {
                int32_t x = row.token[t];
                assert_int_equal(row.pos[t], t - row.first[t]);
                if (row.target[t] == -1) padding += row.pos[t] == 0;
                if (x == EOT) {
                    if (row.target[t] > 0) assert_int_equal(text.stream[row.target[t] - 2], EOT);
                    continue;
                }
                assert_int_equal(seen[x - 1]++, 0);
                bool last = x == (int32_t)text.n || text.stream[x] == EOT;
                assert_int_equal(row.target[t], last ? EOT : x + 1);
                ends += last;
            }
        }
        for (size_t i = 0; i < text.n; i++) assert_int_equal(seen[i], text.stream[i] != EOT);
        assert_true(ends > DOCS / 2 && padding > 0);
    }
    assert_true(first_of_epoch[0] != first_of_epoch[1] || first_of_epoch[1] != first_of_epoch[2]);
}

// A mixture has rows of each source alone, in its share.
TEST(test_mixture)
{
    static Text a, b;
    make_text(&a, 3, 1);
    make_text(&b, 4, 2 * ROOM);
    put_tokens("a_0.bin", 4 * ROOM, DATASET_AUTO, a.stream, a.n);
    put_tokens("b_0.bin", 4 * ROOM, DATASET_AUTO, b.stream, b.n);
    unlink(in_dir("a_1.bin"));
    put_text("mix.toml", "[source.a]\npath = \"a_0.bin\"\nweight = 3\n[source.b]\npath = \"b_0.bin\"\nweight = 1\n");
    OWN(Dataset) *ds = dataset_open(in_dir("mix.toml"), 4 * ROOM);
    dataset_pack(ds, T, EOT);
    int n_b = 0;
    for (int64_t s = 0; s < 400; s++) {
        Row row = read_row(ds, s, true);
        int low = 0, high = 0;
        for (int t = 0; t < T; t++) {
            low += row.token[t] > 0 && row.token[t] < 2 * ROOM;
            high += row.token[t] >= 2 * ROOM;
        }
        assert_true(!low || !high);
        n_b += high > 0;
    }
    assert_true(n_b >= 95 && n_b <= 100); // 100 samples; a row of empty documents alone says nothing of its source
}

// More documents than are packed at a time: every one is there once.
TEST(test_many)
{
    enum { MANY = 300000, HALF = MANY / 2 }; // tokens; documents of two
    static int32_t stream[MANY];
    static int seen[HALF];
    for (int i = 0; i < MANY; i++) stream[i] = i % 2 ? 1 + i / 2 : EOT;
    put_tokens("b_0.bin", MANY, DATASET_AUTO, stream, MANY);
    OWN(Dataset) *ds = dataset_open(in_dir("b_0.bin"), MANY);
    dataset_pack(ds, T, EOT);
    assert_int_equal(dataset_windows(ds, T), MANY / T); // 2^17 documents of 2 tokens fill their rows
    for (int64_t r = 0; r < MANY / T; r++) {
        Row row = read_row(ds, r, true);
        for (int t = 1; t < T; t += 2) assert_int_equal(seen[row.token[t] - 1]++, 0);
    }
}

// Windows over two and three shards, over the end of the ring, and of the second source of a mixture.
TEST(test_windows_ahead)
{
    enum { N = 50 + 3 + 20, ALL = N + 40 };
    int32_t token[ALL], in[T], target[T]; // a token is its place
    for (int i = 0; i < ALL; i++) token[i] = i;
    const char *name[] = {"a_0.bin", "a_1.bin", "a_2.bin", "b_0.bin"};
    const int first[] = {0, 50, 53, N, ALL};
    for (int i = 0; i < 4; i++) {
        size_t n = (size_t)(first[i + 1] - first[i]);
        put_tokens(name[i], ALL, DATASET_U16, token + first[i], n);
        add_shard(name[i], n, 2);
    }
    put_text("mix.toml", "[source.a]\npath = \"a_*.bin\"\nweight = 1\n[source.b]\npath = \"b_0.bin\"\nweight = 1\n");
    for (int k = 0; k < 3; k++) { // in the order of the files, shuffled, a mixture
        OWN(Dataset) *ds = dataset_open(in_dir(k < 2 ? "a_*.bin" : "mix.toml"), ALL);
        int three = 0, around = 0, second = 0;
        for (int64_t sample = 0; sample < 60; sample++) {
            int wanted[ALL] = {0};
            dataset_ahead(ds, sample, T, 7, k > 0);
            dataset_window(ds, sample, T, 7, k > 0, in, target);
            for (int i = 0; i < T; i++) wanted[in[i]]++;
            wanted[target[T - 1]]++;
            expect_announced(wanted, ALL);
            three += in[0] < 50 && target[T - 1] >= 53;
            around += target[T - 1] < in[0];
            second += in[0] >= N;
        }
        assert_true(three > 0 && around > 0 && (second > 0) == (k == 2));
    }
    n_shards = 0;
}

TESTS(temp_dir_make, temp_dir_remove)
