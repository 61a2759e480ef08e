// tensorboard: checksums and records against known bytes; files of a new and of a resumed run; numbers that are not
// finite. dev/reference/check_tensorboard.py reads a run's files with TensorBoard's own reader.
#include "test/test.h"

#include "expect_die.h"
#include "record/tensorboard.h"
#include "temp_dir.h"

#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void assert_bytes(const unsigned char *data, size_t n, const char *hex)
{
    assert_int_equal(2 * n, strlen(hex));
    for (size_t i = 0; i < n; i++) {
        unsigned byte;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
        assert_int_equal(data[i], byte);
    }
}

TEST(test_checksum)
{
    assert_int_equal(tensorboard_crc("123456789", 9), 0xE3069283); // the check value of CRC-32C
    assert_int_equal(tensorboard_crc("", 0), 0);
    const uint32_t masked[][2] = {{0, 0xA282EAD8}, {0x8000, 0xA282EAD9}, {1, 0xA284EAD8}}; // bits 15 to 0, 0 to 17
    for (int i = 0; i < 3; i++) assert_int_equal(tensorboard_mask(masked[i][0]), masked[i][1]);
}

// As written by protoc's encoder and TensorFlow's record format.
TEST(test_known_bytes)
{
    unsigned char out[600];
    assert_bytes(out, tensorboard_version(out, 1700000000),
                 "1800000000000000a37f4b220900000040fc54d9411a0d627261696e2e4576656e743a32eced8f9d");
    TensorBoardScalar loss = {"train/loss", 3.25};
    assert_bytes(out, tensorboard_event(out, 1700000000, 300, &loss, 1),
                 "2100000000000000017becf60900000040fc54d94110ac022a130a110a0a747261696e2f6c6f737315000050408eed0661");
}

// The varint at *at, which moves behind it.
static uint64_t varint(const unsigned char **at)
{
    uint64_t x = 0;
    for (int shift = 0;; shift += 7) {
        x |= (uint64_t)(**at & 127) << shift;
        if (!(*(*at)++ & 128)) return x;
    }
}

// Many scalars, a step beyond 32 bits, long tags: the lengths agree, and each float is there.
TEST(test_event)
{
    enum { N = 40 };
    static unsigned char out[64 + 128 * N];
    TensorBoardScalar scalar[N];
    for (int i = 0; i < N; i++) {
        memset(scalar[i].tag, 'a' + i % 26, sizeof scalar[i].tag); // one without its 0 is cut
        scalar[i].value = i == 3 ? NAN : i == 4 ? INFINITY : i / 8.0;
    }
    size_t n = tensorboard_event(out, 5, (int64_t)1 << 40, scalar, N);
    assert_int_equal(out[0] | out[1] << 8, n - 16);
    const unsigned char *at = out + 12 + 9; // after wall_time
    assert_int_equal(*at++, 2 << 3);
    assert_int_equal(varint(&at), (uint64_t)1 << 40);
    assert_int_equal(*at++, 5 << 3 | 2);
    uint64_t length = varint(&at);
    assert_ptr_equal(at + length, out + n - 4);
    for (int i = 0; i < N; i++) {
        float x;
        assert_int_equal(*at++, 1 << 3 | 2);
        assert_int_equal(varint(&at), 2 + 64 + 5);
        assert_int_equal(*at++, 1 << 3 | 2);
        assert_int_equal(varint(&at), 64);
        at += 64;
        assert_int_equal(*at++, 2 << 3 | 5);
        memcpy(&x, at, 4);
        at += 4;
        assert_true(i == 3 ? isnan(x) : x == (float)scalar[i].value);
    }
}

static size_t files(glob_t *found)
{
    assert_int_equal(glob(in_dir("events.out.tfevents.*"), 0, NULL, found), 0);
    return found->gl_pathc;
}

TEST_IN_DIR(test_files)
{
    unsigned char want[600];
    TensorBoardScalar scalar = {"lr", 0.5};
    TensorBoard *b = tensorboard_open(dir, 0);
    tensorboard_write(b, 1, 1700000000, &scalar, 1);
    glob_t found;
    assert_int_equal(files(&found), 1);
    size_t n, record = tensorboard_event(want, 1700000000, 1, &scalar, 1);
    char *have = whole_file(found.gl_pathv[0], &n);
    assert_int_equal(n, tensorboard_version(want + record, 0) + record); // at once, not when it is closed
    assert_memory_equal(have + n - record, want, record);
    tensorboard_close(b);
    tensorboard_close(NULL);
    globfree(&found);

    // The same second, the same process: another file, with the mark of a restart before step 8.
    b = tensorboard_open(dir, 7);
    tensorboard_close(b);
    assert_int_equal(files(&found), 2);
    free(have);
    have = whole_file(found.gl_pathv[1], &n);
    size_t version = tensorboard_version(want, 0);
    record = tensorboard_restart(want, 0, 8);
    assert_int_equal(n, version + record);
    assert_memory_equal(have + version + 12 + 9, want + 12 + 9, record - 12 - 9 - 4); // all but the time
    assert_memory_equal(want + 12 + 9, "\x10\x08\x3a\x02\x08\x01", 6); // step 8, session_log {status: START}
    free(have);
    globfree(&found);
}

static int open_nowhere(void *arg)
{
    tensorboard_open(arg, 0);
    return 0;
}

TEST_IN_DIR(test_refused)
{
    expect_die(open_nowhere, in_dir("missing"), "tensorboard: cannot make");
}

TESTS(NULL, NULL)
