// test_packing: document starts and positions; the packer against a naive twin and against what holds for every
// packing; the program's table; and packed datasets. (That documents of a row do not see each other:
// test_unit, and test_attention.)
#include "test/test.h"
#define PROGRAM "show"
#define PART "packing"

#include "text/dataset.h"
#include "text/packing.h"
#include "base/rng.h"
#include "program.h"
#include "temp_dir.h"
#include "dataset_case.h"
#include "base/check.h"

#include <fcntl.h>

// One row of a packing as the model wants it, made from the pieces alone: what rows are compared with.
// T each: tokens, positions, document starts, targets (padding: end-of-text tokens, each a document of its own, with
// target -1). Document i is stream[start[i]] and the tokens after it.
static void packing_fill(const Packing *p, size_t row, const int32_t *stream, const size_t *start,
                                const size_t *length, int32_t eot, int32_t *token, int32_t *pos, int32_t *first,
                                int32_t *target)
{
    check(row < p->n_rows);
    size_t t = 0;
    for (size_t i = p->row_begin[row]; i < p->row_begin[row + 1]; i++) {
        const PackedPiece *piece = &p->piece[i];
        const int32_t *from = stream + start[piece->document];
        for (size_t j = 0; j < piece->length; j++, t++) {
            size_t at = piece->begin + j;
            token[t] = from[at];
            target[t] = at + 1 < length[piece->document] ? from[at + 1] : eot;
            pos[t] = (int32_t)j;
            first[t] = (int32_t)piece->column;
        }
    }
    for (; t < p->T; t++) token[t] = eot, target[t] = -1, pos[t] = 0, first[t] = (int32_t)t;
}

static void *room(size_t n, size_t size)
{
    void *ptr = calloc(n ? n : 1, size);
    if (!ptr) fail_msg("no memory");
    return ptr;
}

// ---- positions

enum { EOT = 0, T0 = 8 };

TEST(test_positions)
{
    const int32_t token[2 * T0] = {EOT, 5, 6, EOT, 7, EOT, 8, 9,     // three documents, the last goes on
                                   4, 4, EOT, 3, EOT, EOT, EOT, EOT}; // goes on, one, padding
    const int32_t next[2 * T0] = {5, 6, EOT, 7, EOT, 8, 9, 4, 4, EOT, 3, EOT, EOT, EOT, EOT, EOT};
    const int32_t pos[2 * T0] = {0, 1, 2, 0, 1, 0, 1, 2, 0, 1, 0, 1, 0, 0, 0, 0};
    const int32_t first[2 * T0] = {0, 0, 0, 3, 3, 5, 5, 5, 0, 0, 2, 2, 4, 5, 6, 7};
    const int32_t target[2 * T0] = {5, 6, EOT, 7, EOT, 8, 9, 4, 4, EOT, 3, EOT, -1, -1, -1, -1};
    int32_t got[3][2 * T0];
    memcpy(got[2], next, sizeof next);
    packing_positions(token, 2, T0, EOT, got[0], got[1], got[2]);
    assert_memory_equal(got[0], pos, sizeof pos);
    assert_memory_equal(got[1], first, sizeof first);
    assert_memory_equal(got[2], target, sizeof target); // what a document ends with is learned, padding is not

    memcpy(got[2], next, sizeof next);
    packing_positions(token, 2, T0, -1, got[0], got[1], got[2]); // no end-of-text: rows are documents
    for (int i = 0; i < 2 * T0; i++) assert_true(got[0][i] == i % T0 && got[1][i] == 0 && got[2][i] == next[i]);
    int32_t alone[2 * T0];
    packing_positions(token, 2, T0, EOT, alone, NULL, NULL);
    assert_memory_equal(alone, pos, sizeof pos);
    packing_positions(token, 2, T0, EOT, NULL, alone, NULL);
    assert_memory_equal(alone, first, sizeof first);
}

// ---- the packer

typedef struct {
    size_t n, T, window;
    size_t *length, *start; // of documents in the stream
    int32_t *stream;        // token j of document i: 1 + a number that no other token has; its first token is EOT
} Corpus;

static Corpus corpus_make(const size_t *length, size_t n, size_t T, size_t window)
{
    Corpus c = {.n = n, .T = T, .window = window, .length = room(n, sizeof *length), .start = room(n, sizeof *length)};
    size_t total = 0;
    for (size_t i = 0; i < n; total += length[i++]) c.length[i] = length[i], c.start[i] = total;
    c.stream = room(total, sizeof *c.stream);
    for (size_t j = 0; j < total; j++) c.stream[j] = (int32_t)(1 + j);
    for (size_t i = 0; i < n; i++)
        if (length[i]) c.stream[c.start[i]] = EOT;
    return c;
}

static void corpus_free(Corpus *c)
{
    free(c->length), free(c->start), free(c->stream);
}

// Every token once, with its own successor as its target; positions and starts of its piece; padding behind.
static void check_rows(const Corpus *c, const Packing *p)
{
    size_t T = c->T, total = 0, n_cut = 0;
    for (size_t i = 0; i < c->n; i++) total += c->length[i], n_cut += c->length[i] > T;
    unsigned char *seen = room(total, 1);
    int32_t *row[4], *expected = room(T, sizeof *expected);
    for (int i = 0; i < 4; i++) row[i] = room(T, sizeof *row[i]);
    assert_int_equal(p->n_tokens, total);
    assert_int_equal(p->n_cut, n_cut);
    assert_int_equal(p->row_begin[0], 0);
    assert_int_equal(p->row_begin[p->n_rows], p->n_pieces);
    for (size_t r = 0; r < p->n_rows; r++) {
        size_t t = 0;
        assert_true(p->row_begin[r] < p->row_begin[r + 1]); // no empty row
        packing_fill(p, r, c->stream, c->start, c->length, EOT, row[0], row[1], row[2], row[3]);
        for (size_t i = p->row_begin[r]; i < p->row_begin[r + 1]; i++) {
            PackedPiece piece = p->piece[i];
            size_t from = c->start[piece.document] + piece.begin, length = c->length[piece.document];
            assert_true(piece.row == r && piece.column == t && t + piece.length <= T && piece.length > 0);
            assert_true(piece.begin % T == 0 && (piece.length == T || piece.begin + piece.length == length));
            if (c->window) // rows do not mix windows
                assert_int_equal(piece.document / c->window, p->piece[p->row_begin[r]].document / c->window);
            for (size_t j = 0; j < piece.length; j++, t++) {
                assert_int_equal(seen[from + j]++, 0);
                assert_int_equal(row[0][t], c->stream[from + j]);
                assert_int_equal(row[3][t], piece.begin + j + 1 < length ? c->stream[from + j + 1] : EOT);
                assert_true(row[1][t] == (int32_t)j && row[2][t] == (int32_t)piece.column);
            }
        }
        for (size_t k = t; k < T; k++)
            assert_true(row[0][k] == EOT && row[1][k] == 0 && row[2][k] == (int32_t)k && row[3][k] == -1);
        if (n_cut) continue; // otherwise the tokens alone say where documents start
        packing_positions(row[0], 1, T, EOT, NULL, expected, NULL);
        assert_memory_equal(expected, row[2], T * sizeof *expected);
    }
    for (size_t j = 0; j < total; j++) assert_int_equal(seen[j], 1);
    assert_true(packing_efficiency(p) == (p->n_rows ? (double)total / (double)(p->n_rows * T) : 1));
    for (int i = 0; i < 4; i++) free(row[i]);
    free(seen), free(expected);
}

// Best fit decreasing by looking through everything. Rows of equal room are alike, so the rooms left are what counts:
// count[x] rows with room x. Returns the number of rows.
static size_t naive_rows(const Corpus *c, size_t *count)
{
    size_t n_rows = 0, window = c->window ? c->window : c->n;
    for (size_t from = 0; from < c->n; from += window) {
        size_t to = from + window < c->n ? from + window : c->n, *open = room(c->T + 1, sizeof *open);
        for (size_t want = c->T; want > 0; want--)
            for (size_t i = from; i < to; i++) {
                size_t pieces = want == c->T ? c->length[i] / c->T : c->length[i] % c->T == want;
                for (; pieces > 0; pieces--) {
                    size_t least = want;
                    while (least <= c->T && !open[least]) least++;
                    if (least <= c->T) open[least]--;
                    else n_rows++, least = c->T;
                    open[least - want]++;
                }
            }
        for (size_t x = 0; x <= c->T; x++) count[x] += open[x];
        free(open);
    }
    return n_rows;
}

static void check_packing(const size_t *length, size_t n, size_t T, size_t window, size_t n_rows)
{
    Corpus c = corpus_make(length, n, T, window);
    Packing p = packing_make(length, n, T, window);
    size_t *count = room(T + 1, sizeof *count);
    check_rows(&c, &p);
    assert_int_equal(p.n_rows, naive_rows(&c, count));
    for (size_t r = 0; r < p.n_rows; r++) {
        PackedPiece last = p.piece[p.row_begin[r + 1] - 1];
        assert_true(count[T - last.column - last.length]-- > 0);
    }
    if (n_rows) assert_int_equal(p.n_rows, n_rows);
    packing_free(&p);
    corpus_free(&c);
    free(count);
}

TEST(test_packer_by_hand)
{
    check_packing((size_t[]){0}, 0, 7, 0, 0);
    check_packing((size_t[]){0, 3, 0}, 3, 7, 0, 1);           // empty documents take no place
    check_packing((size_t[]){7, 8, 21, 1}, 4, 7, 0, 6);       // exactly T, one more, three times T
    check_packing((size_t[]){4, 6, 6, 4, 6, 4}, 6, 10, 0, 3); // all pairs
    check_packing((size_t[]){4, 6, 6, 4, 6, 4}, 6, 10, 3, 4); // 4 6 6 | 4 6 4: one pair a window, and one left over
    check_packing((size_t[]){5, 6, 3, 2, 4}, 5, 10, 0, 2);    // 6 4 | 5 3 2: first fit would do it, too
    check_packing((size_t[]){7, 6, 3, 4}, 4, 10, 0, 2);       // 7 3 | 6 4
    check_packing((size_t[]){1, 1, 1}, 3, 1, 0, 3);
    check_packing((size_t[]){64, 63, 1, 65, 129, 127}, 6, 128, 0, 4); // around the words of the bit set
    check_packing((size_t[]){64, 136, 64, 64, 64}, 5, 200, 0, 2);     // rooms of exactly 64 and 128
    check_packing((size_t[]){40, 50, 30, 30, 40, 10}, 6, 100, 0, 2);  // 50 40 10 | 40 30 30
}

// Equal lengths keep the order of their documents, so that the same text always gives the same rows.
TEST(test_equal_lengths_in_order)
{
    const size_t length[] = {4, 4, 4, 8, 4, 4};
    const size_t document[] = {3, 0, 1, 2, 4, 5}, row[] = {0, 1, 1, 2, 2, 3};
    Packing p = packing_make(length, 6, 8, 0);
    assert_int_equal(p.n_pieces, 6);
    for (size_t i = 0; i < 6; i++) assert_true(p.piece[i].document == document[i] && p.piece[i].row == row[i]);
    packing_free(&p);
}

TEST(test_packer_on_random_lengths)
{
    const size_t Ts[] = {1, 2, 63, 64, 65, 200}, windows[] = {0, 1, 7, 64};
    for (uint32_t i = 0; i < 6; i++)
        for (uint32_t j = 0; j < 4; j++) {
            size_t length[300];
            for (size_t k = 0; k < 300; k++) // many short ones, a few beyond T
                length[k] = (size_t)((double)Ts[i] * 0.3 * -log(1 - rng_uniform(rng_make(1, "length", i), k)));
            check_packing(length, 300, Ts[i], windows[j], 0);
        }
}

// Rows that are full by construction, cut at random: best fit decreasing needs at most 11/9 of them and 4. (And as a
// matter of fact far fewer; a packer that fails to look for a fit is beyond the bound.)
TEST(test_bound)
{
    enum { ROWS = 200, T = 100 };
    size_t length[ROWS * T], n = 0;
    for (size_t r = 0; r < ROWS; r++)
        for (size_t at = 0, w; at < T; at += w) {
            w = 1 + rng_below(rng_make(2, "cut", 0), n, 60);
            if (w > T - at) w = T - at;
            length[n++] = w;
        }
    Packing p = packing_make(length, n, T, 0);
    assert_true(p.n_rows >= ROWS && 9 * p.n_rows <= 11 * ROWS + 36);
    assert_true(packing_efficiency(&p) >= 9.0 / 11 - 0.02 && packing_efficiency(&p) <= 1);
    packing_free(&p);
}

// ---- the program

static void write_tokens(const char *name, const int32_t *token, size_t n)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    DatasetWriter *w = dataset_writer_open(path, 100, DATASET_U16);
    dataset_writer_append(w, token, n);
    dataset_writer_finish(w);
}

static void printed(const char *line)
{
    if (!strstr(output, line)) fail_msg("not '%s' but: %s", line, output);
}

// Documents of 3, 5, 2 and 6 tokens in rows of 8. Cut: 8 | 8, no document but the third ends up on an edge; its keys:
// 6 + 15 | 3 + 21. Packed: 6 2 | 5 3, the same.
TEST(test_program)
{
    const int32_t even[16] = {9, 1, 1, 9, 1, 1, 1, 1, 9, 1, 9, 1, 1, 1, 1, 1};
    write_tokens("even.bin", even, 16);
    assert_int_equal(run("even.bin 8"), 0);
    printed("4 documents, 16 tokens, 4.0 a document\n");
    printed("| cut, one document          |        2 | 100.00 % |     0.00 % |        4.5 |    1.000 |");
    printed("| cut, documents masked      |        2 | 100.00 % |     0.00 % |        2.8 |    0.625 |");
    printed("| packed, all at once        |        2 | 100.00 % |     0.00 % |        2.8 |    0.625 |");
    // Rows of 7: 3 4' | 1' 2 4'' | 2'': two documents cut; keys 6 + 10 | 1 + 3 + 10 | 3. Packed: 6 | 5 2 | 3.
    assert_int_equal(run("even.bin 7 0 2"), 0);
    printed("| cut, documents masked      |        3 | 100.00 % |    50.00 % |        2.1 |    0.516 |");
    printed("| packed, all at once        |        3 |  76.19 % |     0.00 % |        3.1 |    0.781 |");
    printed("| packed, 2 at a time        |        4 |  57.14 % |     0.00 % |");
    assert_int_equal(run("even.bin"), 2);
    assert_int_equal(run("even.bin 0"), 1);
    printed("error: packing: T: 0 (a whole number, at least 1)");
    assert_int_equal(run("none.bin 8"), 1);
}

// ---- dataset rows: Tests of packed datasets: an epoch's rows hold every document once, whole where it fits; each
// token has the target that follows it in its document; and what is prefetched is what is then read.

enum { END = 0, T = 16, DOCS = 400, MOST = 50, ROOM = DOCS * MOST }; // documents of 1 to MOST tokens

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
            text->stream[text->n] = k ? base + (int32_t)text->n : END;
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
    dataset_pack(ds, T, END);
    assert_int_equal(dataset_windows(ds, T), p.n_rows);
    int empty = 0, long_ones = 0;
    for (size_t r = 0; r < p.n_rows; r++) {
        static int wanted[ROOM + 1];
        memset(wanted, 0, sizeof wanted);
        Row want, got = read_row(ds, (int64_t)r, false);
        packing_fill(&p, r, text.stream, text.start, text.length, END, want.token, want.pos, want.first, want.target);
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
    dataset_pack(ds, T, END);
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
                if (x == END) {
                    if (row.target[t] > 0) assert_int_equal(text.stream[row.target[t] - 2], END);
                    continue;
                }
                assert_int_equal(seen[x - 1]++, 0);
                bool last = x == (int32_t)text.n || text.stream[x] == END;
                assert_int_equal(row.target[t], last ? END : x + 1);
                ends += last;
            }
        }
        for (size_t i = 0; i < text.n; i++) assert_int_equal(seen[i], text.stream[i] != END);
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
    dataset_pack(ds, T, END);
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
    for (int i = 0; i < MANY; i++) stream[i] = i % 2 ? 1 + i / 2 : END;
    put_tokens("b_0.bin", MANY, DATASET_AUTO, stream, MANY);
    OWN(Dataset) *ds = dataset_open(in_dir("b_0.bin"), MANY);
    dataset_pack(ds, T, END);
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

TESTS(program_set_up, temp_dir_remove)
