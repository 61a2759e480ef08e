// Tests of the files of dataset: files of nanoGPT and Megatron, written here byte by byte, and what is refused.

#include "test/test.h"
#include <fcntl.h>

#include "expect_die.h"
#include "temp_dir.h"
#include "dataset_case.h"

static void expect_tokens(const char *name, int vocab, const int32_t *want, int64_t n)
{
    int32_t got[64];
    OWN(Dataset) *ds = dataset_open(in_dir(name), vocab);
    assert_int_equal(dataset_tokens(ds), n);
    dataset_span(ds, 0, n, got);
    assert_memory_equal(got, want, (size_t)n * sizeof *got);
}

// nanoGPT: numbers and nothing else; EOT (here 258) behind each document. A pattern takes all its files.
TEST(test_raw)
{
    const int32_t want[] = {1, 2, 258, 3, 258, 1, 2, 258, 3, 258};
    put_bytes("raw.bin", "\1\0\2\0\2\1\3\0\2\1", 10);
    expect_tokens("raw.bin:uint16", 259, want, 5);
    put_bytes("raw2.bin", "\1\0\2\0\2\1\3\0\2\1", 10);
    expect_tokens("raw*.bin:uint16", 259, want, 10);
    const int32_t wide[] = {131073, 16908291};
    put_bytes("raw.bin", "\1\0\2\0\3\0\2\1", 8);
    expect_tokens("raw.bin:uint32", 16908292, wide, 2);
    expect_dies("raw.bin: 8 bytes, shorter than a shard's header", dataset_open(in_dir("raw.bin"), 259));
    put_bytes("raw.bin", "\1\0\2\0\3", 5);
    expect_dies("raw.bin: 5 bytes, not a multiple of 2", dataset_open(in_dir("raw.bin:uint16"), 259));
    put_bytes("raw.bin", "\1\0\2\0\3\1", 6);
    expect_dies("raw.bin: offset 4: token 259, but the vocabulary has 259",
                dataset_open(in_dir("raw.bin:uint16"), 259));
    put_tokens("s.bin", 259, DATASET_AUTO, want, 5);
    expect_tokens("s.bin", 259, want, 5);
    expect_dies("s.bin: has the header of a shard (leave :uint16 off)", dataset_open(in_dir("s.bin:uint16"), 259));
    uint16_t many[600] = {0};
    put_bytes("raw.bin", many, sizeof many);
    expect_dies("add :uint16 to its name", dataset_open(in_dir("raw.bin"), 259));
    expect_dies("no such file", dataset_open(in_dir("raw.bin:uint64"), 259));
    put_bytes("raw.bin", "\x93NUMPY\1\0\x02\0{}", 12);
    expect_dies("raw.bin: has the header of np.save (write the array with array.tofile",
                dataset_open(in_dir("raw.bin:uint16"), 259));
}

// An index of three sequences, two documents.
static size_t megatron_index(uint8_t *out, uint8_t type, const int32_t length[3], int bytes)
{
    const uint64_t version = 1, n = 3, n_documents = 3;
    const int64_t begin[3] = {0, (int64_t)length[0] * bytes, (int64_t)(length[0] + length[1]) * bytes};
    const int64_t document[3] = {0, 2, 3};
    memcpy(out, "MMIDIDX\0\0", 9);
    memcpy(out + 9, &version, 8);
    out[17] = type;
    memcpy(out + 18, &n, 8);
    memcpy(out + 26, &n_documents, 8);
    memcpy(out + 34, length, 12);
    memcpy(out + 46, begin, 24);
    memcpy(out + 70, document, 24);
    return 94;
}

TEST(test_megatron)
{
    const int32_t length[3] = {2, 0, 3}, want[5] = {7, 300, 5, 6, 299};
    const uint16_t narrow[5] = {7, 300, 5, 6, 299};
    uint8_t idx[100] = {0}, bad[100];
    size_t n = megatron_index(idx, 8, length, 2);
    put_bytes("m.idx", idx, n);
    put_bytes("m.bin", narrow, sizeof narrow);
    expect_tokens("m.idx", 301, want, 5);
    put_bytes("m.idx", idx, n + 3); // with modes, a byte a sequence
    expect_tokens("m.idx", 301, want, 5);
    put_bytes("m.bin", narrow, sizeof narrow - 2);
    expect_dies("m.bin: 8 bytes, but", dataset_open(in_dir("m.idx"), 301));
    const int32_t wide[5] = {7, 300, 5, 6, 299};
    put_bytes("m.bin", wide, sizeof wide);
    n = megatron_index(idx, 4, length, 4);
    put_bytes("m.idx", idx, n);
    expect_tokens("m.idx", 301, want, 5);
    for (size_t cut = 0; cut < n; cut += 7) { // cut off anywhere
        put_bytes("m.idx", idx, cut);
        expect_dies("m.idx: ", dataset_open(in_dir("m.idx"), 301));
    }
    const struct { size_t at; uint8_t value; const char *words; } changes[] = {
        {0, 'X', "not an index of Megatron"},     {9, 2, "version 2"},
        {17, 7, "type 7 of a token"},             {18, 4, "4 sequences and 3 documents"},
        {25, 0x80, "sequences and 3 documents"},  {33, 0x80, "documents (cut off or damaged?)"},
        {34, 3, "sequence 1 begins at byte 8, not 12"}, {54, 9, "offset 54: sequence 1 begins at byte 9"},
        {42, 4, "20 bytes, but"},                 {37, 0x80, "sequence 0"}};
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        memcpy(bad, idx, n);
        bad[changes[i].at] = changes[i].value;
        put_bytes("m.idx", bad, n);
        expect_dies(changes[i].words, dataset_open(in_dir("m.idx"), 301));
    }
    put_bytes("m.idx", idx, n);
    int32_t negative[5] = {7, -1, 5, 6, 299};
    put_bytes("m.bin", negative, sizeof negative);
    expect_dies("m.bin: offset 4: token 4294967295", dataset_open(in_dir("m.idx"), 301));
    unlink(in_dir("m.bin"));
    expect_dies("m.bin: No such file", dataset_open(in_dir("m.idx"), 301));
}

// The file changes under an open dataset: a line with the offset, not SIGBUS and not a wrong token.
TEST(test_changes_while_open)
{
    const uint16_t good[5] = {1, 2, 3, 4, 5};
    put_bytes("raw.bin", good, sizeof good);
    const struct timespec long_ago[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}}; // a clock moves in steps
    assert_int_equal(utimensat(AT_FDCWD, in_dir("raw.bin"), long_ago, 0), 0);
    OWN(Dataset) *ds = dataset_open(in_dir("raw.bin:uint16"), 10);
    int32_t got[5];
    dataset_span(ds, 0, 5, got);
    assert_int_equal(truncate(in_dir("raw.bin"), 6), 0);
    expect_dies("raw.bin: offset 0: the file has 6 bytes, it had 10 when the run began", dataset_span(ds, 0, 5, got));
    const uint16_t other[5] = {5, 4, 3, 2, 1}; // tokens too, but not those
    put_bytes("raw.bin", other, sizeof other);
    expect_dies("raw.bin: offset 0: somebody wrote to the file during the run", dataset_span(ds, 0, 5, got));
    put_bytes("raw.bin", good, sizeof good);
    OWN(Dataset) *again = dataset_open(in_dir("raw.bin:uint16"), 10);
    assert_int_equal(rename(in_dir("raw.bin"), in_dir("moved.bin")), 0); // who has it open has it
    put_bytes("raw.bin", other, sizeof other);
    dataset_span(again, 0, 5, got);
    assert_int_equal(got[0], 1);
}

// A pipe under the name of a token file is refused; it is not waited for until somebody writes.
TEST(test_pipe)
{
    unlink(in_dir("s.bin"));
    assert_int_equal(mkfifo(in_dir("s.bin"), 0600), 0);
    alarm(10); // waiting forever would be the failure
    expect_dies("s.bin: not a file", dataset_open(in_dir("s.bin"), 10));
    expect_dies("s.bin: not a file", dataset_open(in_dir("s.bin:uint16"), 10));
    alarm(0);
}

TESTS(temp_dir_make, temp_dir_remove)
