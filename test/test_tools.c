// test_tools: files, options and tensors: what is there before, during and after a write, links, pipes, two writers,
// what a killed writer leaves; safetensors, good and bad; and command lines that are read by a table.
#include "test/test.h"

#include "base/disk.h"
#include "tools/disk_folder.h"
#include "expect_die.h"
#include "temp_dir.h"
#include "base/check.h"
#include "tools/safetensors.h"
#include "tools/options.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static void write_mine(const char *path)
{
    DiskOut *out = disk_out_open(path);
    fputs("mine\n", out->f);
    disk_out_commit(out);
}

// The type of what has this name in the directory: S_IFREG, S_IFLNK, ...; 0: nothing.
static mode_t there(const char *name)
{
    struct stat info;
    return lstat(in_dir(name), &info) == 0 ? info.st_mode & S_IFMT : 0;
}

// A child that begins an output and ends without it.
static void begin_and_leave(const char *path)
{
    int status;
    pid_t child = fork(); // no child of expect_die.h, which leaves without what is done at exit
    if (child == 0) fputs("half", disk_out_open(path)->f), exit(1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
}

// ---- what the next calls of read, pread and write do, a letter each; then they are the system's again
//   i: interrupted (EINTR)   2: at most two bytes   0: none, and errno is of an earlier call   x: fails (ENXIO)
static const char *acts = "";

static ssize_t act(long number, int fd, intptr_t data, size_t n, off_t at)
{
    char now = *acts ? *acts++ : 'n';
    if (now == 'i' || now == 'x' || now == '0') {
        errno = now == 'x' ? ENXIO : EINTR;
        return now == '0' ? 0 : -1;
    }
    return syscall(number, fd, data, now == '2' && n > 2 ? 2 : n, at);
}
ssize_t read(int fd, void *data, size_t n) { return act(SYS_read, fd, (intptr_t)data, n, 0); }
ssize_t pread(int fd, void *data, size_t n, off_t at) { return act(SYS_pread64, fd, (intptr_t)data, n, at); }
ssize_t write(int fd, const void *data, size_t n) { return act(SYS_write, fd, (intptr_t)data, n, 0); }

static void reads(const char *actions, const char *text)
{
    size_t n;
    acts = actions;
    FREED char *got = disk_read_file(in_dir("a"), &n, 1000);
    assert_string_equal(got, text);
}

TEST_IN_DIR(test_short_calls)
{
    char got[7] = "";
    size_t n = 99;
    put_text("a", "abcdef");
    reads("i2i2i2", "abcdef");
    reads("i20", "ab"); // the file has become shorter
    acts = "2x";
    assert_null(disk_read_file(in_dir("a"), &n, 1000));
    assert_true(errno == ENXIO && n == 99);
    int fd = open(in_dir("a"), O_RDWR);
    acts = "i2i";
    assert_true(disk_read_at(fd, got, 4, 1));
    assert_string_equal(got, "bcde"); // no more than was asked for
    assert_false(disk_read_at(fd, got, 5, 2)); // it ends before
    acts = "i2i2i";
    assert_true(disk_write(fd, "ghijkl", 6));
    reads("", "ghijkl");
    for (int i = 0; i < 2; i++) {
        acts = i ? "2x" : "20";
        assert_true(!disk_read_at(fd, got, 5, 1) && errno == (i ? ENXIO : EIO));
        acts = i ? "2x" : "20";
        assert_true(!disk_write(fd, "mnop", 4) && errno == (i ? ENXIO : EIO));
    }
    close(fd);
}

TEST_IN_DIR(test_whole_or_not)
{
    put_text("a", "old\n");
    DiskOut *out = disk_out_open(in_dir("a"));
    fputs("new\n", out->f);
    fflush(out->f);
    has_text("a", "old\n");
    disk_out_commit(out);
    has_text("a", "new\n");
    begin_and_leave(in_dir("a"));
    has_text("a", "new\n");
    write_mine(in_dir("b")); // was not there
    has_text("b", "mine\n");
    out = disk_out_open(in_dir("c"));
    begin_and_leave(in_dir("a"));
    has_text("a", "new\n");
    assert_true(there("c.tmp")); // what its parent writes is not the child's
    disk_out_commit(out);
    expect_dies("an output file has an empty name", write_mine(""));
    assert_false(there("a.tmp") || there("b.tmp"));
}

// A whole file in the place of another, which whoever has it open still reads.
TEST_IN_DIR(test_replace)
{
    char got[9] = "";
    put_text("a", "long old");
    int fd = open(in_dir("a"), O_RDONLY);
    assert_true(disk_replace_file(in_dir("a"), "new", 3));
    has_text("a", "new");
    assert_true(read(fd, got, 8) == 8 && !strcmp(got, "long old"));
    close(fd);
    assert_true(disk_replace_file(in_dir("b"), "first", 5)); // was not there
    has_text("b", "first");
    assert_false(disk_replace_file(dir, "new", 3)); // a folder
    assert_true(disk_is_special("/dev/null") && !disk_is_special(dir) && !disk_is_special(in_dir("a")));
    assert_false(disk_is_special(in_dir("nothing")));
}

TEST_IN_DIR(test_links)
{
    put_text("a", "old\n");
    assert_int_equal(symlink("a", in_dir("link")), 0);
    write_mine(in_dir("link"));
    assert_int_equal(there("link"), S_IFLNK);
    has_text("a", "mine\n");
    assert_int_equal(symlink("nowhere", in_dir("broken")), 0);
    expect_dies("broken: is a link to nowhere (remove it, or write elsewhere)", write_mine(in_dir("broken")));
    put_text("victim", "safe\n"); // a link in the place of the file aside
    assert_int_equal(symlink("victim", in_dir("b.tmp")), 0);
    write_mine(in_dir("b"));
    has_text("victim", "safe\n");
    has_text("b", "mine\n");
}

TEST_IN_DIR(test_no_plain_file)
{
    assert_int_equal(mkfifo(in_dir("pipe"), 0600), 0);
    int reader = open(in_dir("pipe"), O_RDONLY | O_NONBLOCK);
    write_mine(in_dir("pipe"));
    char got[6] = "";
    assert_int_equal(read(reader, got, 5), 5);
    assert_string_equal(got, "mine\n");
    assert_true(disk_replace_file(in_dir("pipe"), "again", 5));
    assert_int_equal(read(reader, got, 5), 5);
    assert_string_equal(got, "again");
    close(reader);
    assert_int_equal(there("pipe"), S_IFIFO);
    assert_false(there("pipe.tmp"));
    int ends[2]; // a link whose end has no name
    assert_int_equal(pipe(ends), 0);
    char link[40];
    snprintf(link, sizeof link, "/dev/fd/%d", ends[1]);
    write_mine(link);
    assert_int_equal(read(ends[0], got, 5), 5);
    assert_string_equal(got, "mine\n");
    close(ends[0]), close(ends[1]);
    expect_dies(": is a folder (give the name of a file)", write_mine(dir));
    expect_dies("/dev/full: cannot write: No space left on device (is the disk full?)", write_mine("/dev/full"));
}

// Standard output as the shell has opened it, to the file `out`: what is in the file stays, and what is printed beside.
static void print_and_write(const char *name, int append)
{
    dup2(open(in_dir("out"), O_WRONLY | (append ? O_APPEND : O_TRUNC)), STDOUT_FILENO);
    printf("one ");
    fflush(stdout);
    DiskOut *out = disk_out_open(name);
    fputs("two ", out->f);
    disk_out_commit(out);
    printf("three");
    fflush(stdout);
}

TEST_IN_DIR(test_standard_output)
{
    char said[400];
    const char *const name[] = {"/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"};
    for (int i = 0; i < 6; i++) {
        put_text("out", "old ");
        Child child = child_begin();
        if (!child.pid) print_and_write(name[i / 2], i % 2), exit(0);
        assert_int_equal(child_end(child, said, sizeof said), 0);
        has_text("out", i % 2 ? "old one two three" : "one two three");
    }
    expect_dies("out: is where standard output goes too (give another name)", print_and_write(in_dir("out"), 0));
}

// Two programs with one name: the second is told; one that was killed does not stand in the way.
TEST_IN_DIR(test_two_writers)
{
    put_text("a", "old\n");
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t writer = fork();
    if (writer == 0) {
        DiskOut *out = disk_out_open(in_dir("a"));
        fputs("half", out->f);
        fflush(out->f);
        if (write(ready[1], "x", 1) == 1) pause();
        _exit(1);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    expect_dies("a: is being written already (by another program, or it was given twice)", write_mine(in_dir("a")));
    kill(writer, SIGKILL);
    waitpid(writer, NULL, 0);
    assert_true(there("a.tmp"));
    has_text("a", "old\n");
    write_mine(in_dir("a"));
    has_text("a", "mine\n");
    DiskOut *first = disk_out_open(in_dir("b"));
    expect_dies("b: is being written already", write_mine(in_dir("b")));
    disk_out_commit(first);
    close(ready[0]), close(ready[1]);
}

TEST_IN_DIR(test_apart)
{
    char beside[400];
    assert_int_equal(mkdir(in_dir("inner"), 0700), 0);
    expect_dies("lies in the input folder", disk_out_apart(in_dir("a"), dir));
    expect_dies("lies in the input folder", disk_out_apart(in_dir("inner/a"), dir));
    snprintf(beside, sizeof beside, "%s-beside", dir);
    disk_out_apart(beside, dir);
    put_text("a", "old\n");
    disk_out_apart(in_dir("a"), in_dir("a")); // a file that is input itself
    put_text("b.tmp", "the input\n");
    expect_dies("b.tmp first, which is the input (write it elsewhere)", disk_out_apart(in_dir("b"), in_dir("b.tmp")));
    char link[420];
    snprintf(link, sizeof link, "%s-link", dir);
    assert_int_equal(symlink(in_dir("a"), link), 0);
    expect_dies("lies in the input folder", disk_out_apart(link, dir));
    unlink(link);
    unlink(in_dir("b.tmp"));
}

TEST_IN_DIR(test_folder)
{
    disk_folder_make(in_dir("a/b//c"), "--out");
    assert_int_equal(there("a/b/c"), S_IFDIR);
    disk_folder_make(in_dir("a/b"), "--out"); // is there
    put_text("file", "x");
    expect_dies("--out: an empty name", disk_folder_make("", "--out"));
    expect_dies("file: not a folder (--out is the folder to write to)", disk_folder_make(in_dir("file"), "--out"));
    expect_dies("file/a: Not a directory (--out is the folder to write to)",
                disk_folder_make(in_dir("file/a"), "--out"));
    char name[PATH_MAX + 1]; // dir/./././.: one character more than there is room for
    size_t n = (size_t)snprintf(name, sizeof name, "%s", dir);
    for (; n < PATH_MAX; n++) name[n] = (PATH_MAX - n) % 2 ? '.' : '/';
    name[n] = 0;
    if (name[strlen(dir)] == '.') name[strlen(dir)] = '/';
    expect_dies(dir, disk_folder_make(name, "--out"));
    name[n - 1] = 0;
    disk_folder_make(name, "--out");
}

static bool is_text(const char *name)
{
    return strstr(name, ".txt") != NULL;
}

// New files in the place of old ones of their kind; others stay.
TEST_IN_DIR(test_folder_replaced)
{
    put_text("a.txt", "old"), put_text("b.txt", "old"), put_text("other", "stays");
    FREED char *fresh = disk_folder_begin(dir);
    assert_true(there("a.txt") && there("new.tmp"));
    put_text("new.tmp/a.txt", "new"), put_text("new.tmp/c.txt", "new");
    disk_folder_check_old(dir, is_text);
    disk_folder_replace(dir, is_text);
    has_text("a.txt", "new"), has_text("c.txt", "new"), has_text("other", "stays");
    assert_false(there("b.txt") || there("new.tmp") || there("unfinished"));
    disk_folder_check(dir);
    disk_folder_check_file(in_dir("a.txt"));
}

// ---- safetensors: The reader on good and bad files, and the writer's bytes.

OWNER(SafeTensors, safetensors_close)

#define file in_dir("x.safetensors")

// Header length, header, n_data bytes 0, 1, 2, ...
static void put_file(const char *header, uint64_t n_header, size_t n_data)
{
    size_t n = strlen(header);
    unsigned char *bytes = zeroed(8 + n + n_data + 1);
    memcpy(bytes, &n_header, 8);
    memcpy(bytes + 8, header, n);
    for (size_t i = 0; i < n_data; i++) bytes[8 + n + i] = (unsigned char)i;
    assert_true(disk_write_file(file, bytes, 8 + n + n_data));
    free(bytes);
}

// ---- the table: a header, the bytes of data behind it, and what the reader must say (NULL: accepted)

#define T(name, dtype, shape, begin, end) \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"

static const struct {
    const char *header;
    size_t n_data;
    const char *reason;
} rows[] = {
    // accepted
    {"{}", 0, NULL},
    {"{}      ", 0, NULL},
    {"  {}", 0, NULL}, // the reference implementation accepts leading blanks
    {"{" T("a", "F32", "[2,3]", 0, 24) "}", 24, NULL},
    {"{\"__metadata__\":{}," T("a", "F32", "[2,3]", 0, 24) "}", 24, NULL},
    {"{\"__metadata__\":{\"format\":\"pt\",\"k\":\"\"}}", 0, NULL},
    {"{\"__metadata__\":null}", 0, NULL},
    {"{" T("scalar", "F64", "[]", 0, 8) "}", 8, NULL},
    {"{" T("empty", "F32", "[0]", 0, 0) "}", 0, NULL},
    {"{" T("empty", "F32", "[4,0,9]", 0, 0) "}", 0, NULL},
    {"{" T("b", "U8", "[1]", 4, 5) "," T("a", "F32", "[1]", 0, 4) "}", 5, NULL},
    {"{" T("a", "U8", "[2]", 0, 2) "," T("e", "I64", "[0]", 2, 2) "," T("b", "U8", "[2]", 2, 4) "}", 4, NULL},
    {"{" T("a", "BOOL", "[1]", 0, 1) "," T("b", "I8", "[1]", 1, 2) "," T("c", "I16", "[1]", 2, 4) ","
     T("d", "U16", "[1]", 4, 6) "," T("e", "F16", "[1]", 6, 8) "," T("f", "BF16", "[1]", 8, 10) ","
     T("g", "I32", "[1]", 10, 14) "," T("h", "U32", "[1]", 14, 18) "," T("i", "I64", "[1]", 18, 26) ","
     T("j", "U64", "[1]", 26, 34) "}", 34, NULL},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"note\":7}}", 1, NULL},
    {"{" T("caf\\u00e9 \xc3\xa9", "U8", "[1,1,1,1,1,1,1,1,1,1]", 0, 1) "}", 1, NULL},
    // refused: the header is not what it must be
    {"", 0, "JSON"},
    {"[]", 0, "not a JSON object"},
    {"7", 0, "JSON"},
    {"{", 0, "JSON"},
    {"{} x", 0, "JSON"},
    {"{\"a\":\"\xff\"}", 0, "JSON"},
    {"{" T("a", "U8", "[1]", 0, 1) ",}", 1, "JSON"},
    {"{" T("a", "U8", "[1]", 0, 1) "," T("a", "U8", "[1]", 0, 1) "}", 1, "duplicate"},
    {"{" T("a", "U8", "[1]", 0, 1) "," T("a", "U8", "[1]", 1, 2) "}", 2, "duplicate"},
    {"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "duplicate"},
    {"{\"__metadata__\":{\"a\":1}}", 0, "not a string"},
    {"{\"__metadata__\":{\"a\":null}}", 0, "not a string"},
    {"{\"__metadata__\":[]}", 0, "not a JSON object"},
    {"{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0, "duplicate"},
    // refused: a tensor's entry
    {"{\"a\":7}", 0, "tensor a: not a JSON object"},
    {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "tensor a: no dtype"},
    {"{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, "tensor a: no shape"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "tensor a: data_offsets"},
    {"{" T("a", "F31", "[1]", 0, 4) "}", 4, "unknown dtype F31"},
    {"{" T("a", "f32", "[1]", 0, 4) "}", 4, "unknown dtype f32"},
    {"{" T("a", "U8", "[1.0]", 0, 1) "}", 1, "dimension 0"},
    {"{" T("a", "U8", "[1,-1]", 0, 1) "}", 1, "dimension 1"},
    {"{" T("a", "U8", "[\"1\"]", 0, 1) "}", 1, "dimension 0"},
    {"{" T("a", "U8", "1", 0, 1) "}", 1, "no shape"},
    {"{" T("a", "U8", "[18446744073709551616]", 0, 1) "}", 1, "JSON"}, // 2^64
    {"{" T("a", "U8", "[4294967296,4294967296]", 0, 0) "}", 0, "overflows"},
    {"{" T("a", "F32", "[4611686018427387904]", 0, 0) "}", 0, "overflows"}, // 2^62 * 4 = 2^64
    {"{" T("a", "F32", "[4611686018427387904,4,0]", 0, 0) "}", 0, "overflows"},
    {"{" T("a", "U8", "[1]", 1, 0) "}", 1, "do not hold"},
    {"{" T("a", "U8", "[1]", -1, 0) "}", 1, "not [begin, end]"},
    {"{" T("a", "U8", "[1]", 0, 1.0) "}", 1, "not [begin, end]"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,2]}}", 1, "not [begin, end]"},
    {"{" T("a", "F32", "[2]", 0, 7) "}", 7, "do not hold the 8 bytes"},
    {"{" T("a", "F32", "[2]", 0, 9) "}", 9, "do not hold the 8 bytes"},
    // refused: the data is not covered exactly
    {"{}", 1, "1 bytes behind the last tensor"},
    {"{" T("a", "U8", "[1]", 0, 1) "}", 2, "1 bytes behind the last tensor"},
    {"{" T("a", "U8", "[4]", 0, 4) "}", 3, "truncated file?"},
    {"{" T("a", "U8", "[9223372036854775807]", 0, 9223372036854775807) "}", 8, "truncated file?"},
    {"{" T("a", "U8", "[1]", 1, 2) "}", 2, "tensor a: begins at byte 1"},
    {"{" T("a", "U8", "[2]", 0, 2) "," T("b", "U8", "[2]", 3, 5) "}", 5, "tensor b: begins at byte 3"},
    {"{" T("a", "U8", "[2]", 0, 2) "," T("b", "U8", "[2]", 1, 3) "}", 3, "tensor b: begins at byte 1"},
    {"{" T("a", "U8", "[2]", 0, 2) "," T("b", "U8", "[2]", 0, 2) "}", 2, "tensor b: begins at byte 0"},
    {"{" T("a", "U8", "[2]", 0, 2) "," T("e", "U8", "[0]", 3, 3) "}", 2, "tensor e: begins at byte 3"},
};

TEST(test_table)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char error[512] = "";
        put_file(rows[i].header, strlen(rows[i].header), rows[i].n_data);
        OWN(SafeTensors) *st = safetensors_open(file, error, sizeof error);
        if (!st != (rows[i].reason != NULL) || (!st && !strstr(error, rows[i].reason)))
            fail_msg("row %zu: %s: expected %s, got %s", i, rows[i].header,
                     rows[i].reason ? rows[i].reason : "accept", st ? "accept" : error);
        if (!st) assert_non_null(strstr(error, file)); // every message names the file
    }
}

// What the table cannot say: the eight bytes of the header length, and files shorter than they promise.
TEST(test_header_length)
{
    const char *header = "{" T("a", "U8", "[4]", 0, 4) "}";
    const struct { uint64_t n_header; const char *reason; } lengths[] = {
        {100000001, "at most 100000000"}, {UINT64_MAX, "at most 100000000"}, {100000000, "truncated file?"},
        {1000, "truncated file?"}, {strlen(header) + 5, "truncated file?"}, {0, "JSON"}, {1, "JSON"}};
    char error[512];
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        put_file(header, lengths[i].n_header, 4);
        assert_null(safetensors_open(file, error, sizeof error));
        assert_non_null(strstr(error, lengths[i].reason));
    }
    // Every truncation of a good file, the empty file among them, and one byte too many.
    size_t whole = 8 + strlen(header) + 4;
    for (size_t n = 0; n <= whole + 1; n++) {
        put_file(header, strlen(header), 5);
        assert_int_equal(truncate(file, (off_t)n), 0);
        OWN(SafeTensors) *st = safetensors_open(file, error, sizeof error);
        assert_int_equal(st != NULL, n == whole);
    }
    assert_null(safetensors_open("/nowhere/x", error, sizeof error));
    assert_non_null(strstr(error, "/nowhere/x: cannot open: No such file"));
    assert_null(safetensors_open(dir, error, sizeof error));
    assert_non_null(strstr(error, "not a regular file"));
}

// Deep nesting and long lists end in a message, not in a crash.
TEST(test_hostile_json)
{
    static char text[100001], error[512];
    for (const char *c = "[{"; *c; c++) {
        memset(text, *c, sizeof text - 1);
        put_file(text, sizeof text - 1, 0);
        assert_null(safetensors_open(file, error, sizeof error));
    }
}

TEST(test_values)
{
    const char *header = "{\"__metadata__\":{\"k\":\"v\"}," T("b", "U16", "[1,2]", 3, 7) ","
                         T("a", "U8", "[3]", 0, 3) "}   ";
    put_file(header, strlen(header), 7);
    OWN(SafeTensors) *st = safetensors_open(file, NULL, 0);
    assert_int_equal(st->n, 2);
    assert_string_equal(st->tensor[0].name, "a"); // file order, not the header's
    const SafeTensor *b = safetensors_find(st, "b");
    assert_ptr_equal(b, &st->tensor[1]);
    assert_true(b->dtype == ST_U16 && b->ndim == 2 && b->shape[0] == 1 && b->shape[1] == 2);
    assert_true(b->n_elems == 2 && b->n_bytes == 4);
    assert_memory_equal(b->data, "\3\4\5\6", 4);
    assert_null(safetensors_find(st, "c"));
    assert_string_equal(safetensors_meta(st, "k"), "v");
    assert_null(safetensors_meta(st, "format"));
}

// ---- the writer

TEST(test_round_trip)
{
    uint32_t f32[6] = {0, 0x80000000, 0x7fc00001, 0x7f800000, 1, 0x3f800000}; // zeros, NaN payload, inf, denormal
    int64_t i64[2] = {INT64_MIN, 7};
    uint8_t u8[3] = {1, 2, 255};
    double f64 = 0.1;
    SafeTensor given[] = {
        {.name = "layers.2", .dtype = ST_F32, .ndim = 2, .shape = (size_t[]){2, 3}, .data = f32},
        {.name = "layers.10", .dtype = ST_U8, .ndim = 1, .shape = (size_t[]){3}, .data = u8},
        {.name = "counts", .dtype = ST_I64, .ndim = 1, .shape = (size_t[]){2}, .data = i64},
        {.name = "scalar", .dtype = ST_F64, .ndim = 0, .data = &f64},
        {.name = "none \"\xc3\xa9\"", .dtype = ST_F32, .ndim = 2, .shape = (size_t[]){0, 5}}};
    SafeMeta meta[] = {{"step", "12"}, {"note", "a\nb"}};
    char hash[ST_HASH], again[ST_HASH];
    size_t n_bytes = 0;
    assert_true(safetensors_write(file, given, 5, meta, 2, hash, &n_bytes, NULL, 0));
    OWN(SafeTensors) *st = safetensors_open(file, NULL, 0);
    assert_int_equal(st->n, 5);
    for (int i = 0; i < 5; i++) {
        const SafeTensor *t = safetensors_find(st, given[i].name);
        assert_non_null(t);
        assert_int_equal(t->dtype, given[i].dtype);
        assert_int_equal(t->ndim, given[i].ndim);
        for (int d = 0; d < t->ndim; d++) assert_int_equal(t->shape[d], given[i].shape[d]);
        if (t->n_bytes) assert_memory_equal(t->data, given[i].data, t->n_bytes);
        assert_int_equal((uintptr_t)t->data % safetensors_dtype_bytes(t->dtype), 0);
    }
    assert_string_equal(safetensors_meta(st, "format"), "pt");
    assert_string_equal(safetensors_meta(st, "step"), "12");
    assert_string_equal(safetensors_meta(st, "note"), "a\nb");
    // "order" remembers the order in which they were given; the file is sorted by dtype, then name.
    int order[5];
    const char *sorted[] = {"counts", "scalar", "layers.2", "none \"\xc3\xa9\"", "layers.10"};
    safetensors_order(st, order);
    for (int i = 0; i < 5; i++) {
        assert_string_equal(st->tensor[i].name, sorted[i]);
        assert_string_equal(st->tensor[order[i]].name, given[i].name);
    }
    // The hash and size are those of the file.
    safetensors_hash(again, st->map, st->n_bytes);
    assert_string_equal(hash, again);
    assert_int_equal(n_bytes, st->n_bytes);
}

// The whole file, byte for byte, written out by hand: the format does not drift.
TEST(test_exact_bytes)
{
    float x[2] = {1, -2};
    SafeTensor t = {.name = "w", .dtype = ST_F32, .ndim = 1, .shape = (size_t[]){2}, .data = x};
    static const char expected[] =
        "\x58\0\0\0\0\0\0\0"
        "{\"__metadata__\":{\"format\":\"pt\"},\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}"
        "   \0\0\x80\x3f\0\0\0\xc0";
    assert_true(safetensors_write(file, &t, 1, NULL, 0, NULL, NULL, NULL, 0));
    has_bytes("x.safetensors", expected, sizeof expected - 1);
}

TEST(test_write_errors)
{
    float x[2] = {1, 2};
    SafeTensor t[2] = {{.name = "w", .dtype = ST_F32, .ndim = 1, .shape = (size_t[]){1}, .data = x},
                       {.name = "w", .dtype = ST_F32, .ndim = 1, .shape = (size_t[]){1}, .data = x + 1}};
    SafeMeta format = {"format", "np"};
    char error[512];
    const struct { const char *path, *name; int n, n_meta; const char *words; } row[] = {
        {file, "w", 2, 0, "tensor w: the name stands twice"},
        {file, "w", 1, 1, "metadata"},
        {file, "\xff", 1, 0, ""},
        {file, "__metadata__", 1, 0, ""},
        {in_dir("x.safetensors/below"), "w", 1, 0, "cannot create: Not a directory"}, // not even root may write there
        {"/dev/full", "w", 1, 0, "/dev/full: cannot write: No space left on device"},
    };
    assert_true(safetensors_write(file, t, 1, NULL, 0, NULL, NULL, error, sizeof error));
    for (size_t i = 0; i < sizeof row / sizeof *row - (access("/dev/full", W_OK) != 0); i++) {
        t[0].name = row[i].name;
        assert_false(safetensors_write(row[i].path, t, row[i].n, &format, row[i].n_meta, NULL, NULL, error, 512));
        if (!strstr(error, row[i].words)) fail_msg("'%s', not '%s'", error, row[i].words);
    }
}

// Without a buffer for the message, the reader dies: one line, status 1.
TEST(test_dies)
{
    put_file("{}", 2, 1);
    expect_dies("x.safetensors: 1 bytes behind the last tensor", safetensors_open(file, NULL, 0));
}

// ---- options: a command line that is read by a table: each kind of value and its limits, what is neither option nor
// value, the options of some commands only, the help, and what is refused with which words.

enum { FIRST = 1, SECOND = 2 }; // two commands

static struct {
    bool quiet;
    const char *out;
    OptionList list, words;
    int steps, any, one;
    size_t bytes;
    double rate, share;
} got;

static Option row[] = {
    OPTION(SWITCH, "--quiet", NULL, "prints less", &got.quiet),
    OPTION(TEXT, "--out", "PATH", "where to", &got.out),
    OPTION_HEAD("--input--"),
    OPTION(LIST, "--skip", "NAME", "leaves one out", &got.list),
    OPTION(WORDS, "--from", "FILE...", "reads them", &got.words),
    OPTION(INT, "--steps", "N", "how many", &got.steps, .least = 2, .most = 10, .where = FIRST),
    OPTION(INT, "--any", "N", NULL, &got.any, .where = FIRST | SECOND),
    OPTION(INT, "--one", "N", "at most", &got.one, .most = 1),
    OPTION(SIZE, "--bytes", "N", "a long name of its value", &got.bytes, .least = 3, .where = SECOND),
    OPTION(NUMBER, "--rate", "RATE", "of the rest", &got.rate, .least = 0.5),
    OPTION(NUMBER, "--share", "A_NUMBER_OF_MANY_WORDS", "that is too wide to align by", &got.share, .least = -0.5,
           .most = 0.75),
};
static OptionSet set;
static char *word[20]; // argv
static int n_words;

// Reads a line of words; the rest of them is in word[1] and up.
static size_t read_line(const char *line)
{
    static char copy[300];
    n_words = 0;
    word[n_words++] = "program";
    snprintf(copy, sizeof copy, "%s", line);
    for (char *w = strtok(copy, " "); w; w = strtok(NULL, " ")) word[n_words++] = w;
    return options_read(&set, n_words, word);
}

static int set_up(void **state)
{
    free(got.list.word), free(got.words.word);
    memset(&got, 0, sizeof got);
    set = (OptionSet){.program = "try", .usage = "usage: try\n", .row = row, .n = sizeof row / sizeof *row};
    for (size_t i = 0; i < set.n; i++) row[i].given = false;
    return temp_dir_make(state);
}

static int tear_down(void **state)
{
    free(got.list.word), free(got.words.word);
    memset(&got, 0, sizeof got);
    return temp_dir_remove(state);
}

static void expect_words(const OptionList *list, const char *want) // one after another
{
    char got_words[100] = "";
    for (size_t i = 0; i < list->n; i++) strcat(strcat(got_words, list->word[i]), " ");
    assert_string_equal(got_words, want);
}

// Reads the line; these words are left of it.
static void leaves(const char *line, const char *want)
{
    OptionList rest = {.n = read_line(line), .word = (const char **)(word + 1)};
    expect_words(&rest, want);
}

TEST_WITH(test_kinds, set_up, tear_down)
{
    leaves("a --out x --quiet b --skip=p --steps 7 - --skip q --rate 1e3 --share=-0.25", "a b - ");
    assert_true(got.quiet && got.steps == 7 && got.any == 0 && got.rate == 1000 && got.share == -0.25);
    expect_words(&got.list, "p q ");
    expect_words(&got.words, "");
    assert_true(options_given(&set, "--steps") && options_given(&set, "--quiet") && options_given(&set, "--out"));
    assert_false(options_given(&set, "--any") || options_given(&set, "--from") || options_given(&set, "--nope"));
    static const char *const out[][2] = {{"--out x", "x"}, {"--out --quiet", "--quiet"}, // whatever it looks like
                                         {"--out=a=b", "a=b"}, {"--out=", ""}};
    for (int i = 0; i < 4; i++) {
        leaves(out[i][0], "");
        assert_string_equal(got.out, out[i][1]);
    }
}

// Words after an option that takes several are its values, up to the next option.
TEST_WITH(test_words, set_up, tear_down)
{
    leaves("a --from b c - --quiet d --from=e f --skip g h", "a d h ");
    expect_words(&got.words, "b c - e f ");
    expect_words(&got.list, "g ");
}

static int read_it(void *line)
{
    read_line(line);
    return 0;
}

// The line ends with status 2 and "error: try: " and these words.
static void refused(const char *line, const char *words)
{
    char *copy = formatted("%s", line);
    if (!ends_with_error(read_it, copy, 2, formatted("error: try: %s", words), true)) fail_msg("%s", line);
}

TEST_WITH(test_limits, set_up, tear_down)
{
    read_line("--steps 9 --any 0 --bytes 3 --rate 0.5 --share -0.5");
    assert_true(got.steps == 9 && got.any == 0 && got.bytes == 3 && got.rate == 0.5 && got.share == -0.5);
    read_line("--steps 2 --steps=10 --any 2147483647 --one 1 --bytes 18446744073709551615 --rate 1e308 --share 0.75");
    assert_true(got.steps == 10 && got.any == INT_MAX && got.bytes == SIZE_MAX && got.rate == 1e308);
    assert_true(got.share == 0.75 && got.one == 1);
    static const struct {
        const char *option, *limits, *bad[10];
    } rows[] = {
        {"--steps", "a whole number from 2 to 10",
         {"1", "11", "-3", "+3", "3x", "x", "3.0", ":", "99999999999999999999999", "4294967299"}},
        {"--any", "a whole number from 0 to 2147483647", {"2147483648"}},
        {"--bytes", "a whole number of 3 or more", {"2", "18446744073709551616"}},
        {"--rate", "a number of 0.5 or more", {"0.25", "nan", "inf", "1e999", "1x", "x"}},
        {"--one", "a whole number from 0 to 1", {"2"}}, {"--share", "a number from -0.5 to 0.75", {"0.875", "nan"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int k = 0; k < 10 && rows[i].bad[k]; k++) {
            char *line = formatted("%s %s", rows[i].option, rows[i].bad[k]);
            refused(line, formatted("%s: %s: not %s (try --help)", rows[i].option, rows[i].bad[k], rows[i].limits));
        }
    refused("--steps=", "--steps: : not a whole number from 2 to 10 (try --help)");
}

TEST_WITH(test_refused, set_up, tear_down)
{
    static const char *const rows[][2] = {
        {"--nope", "--nope: no such option (did you mean --one? try --help)"},
        {"--step 3", "--step: no such option (did you mean --steps? try --help)"}, // no abbreviations
        {"--stepss 3", "--stepss: no such option (did you mean --steps? try --help)"},
        {"--input-- 3", "--input--: no such option (try --help)"}, // a heading of the help is none
        {"-x", "-x: no such option (try --help)"}, {"--quiet=1", "'--quiet=1': takes no value"},
        {"--out", "'--out': takes PATH (try --help)"}, {"a --out x --steps", "'--steps': takes N (try --help)"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) refused(rows[i][0], rows[i][1]);
    set.quote = "'", set.missing = "needs a value";
    refused("--nowhere=3", "'--nowhere=3': no such option (try --help)");
    refused("--out", "--out: needs a value (try --help)");
}

// A command takes the options that name it, and those that name none.
TEST_WITH(test_where, set_up, tear_down)
{
    set.where = FIRST;
    read_line("--steps 3 --any 4 --rate 5");
    assert_true(got.steps == 3 && got.any == 4 && got.rate == 5 && options_given(&set, "--steps"));
    refused("--bytes 6", "--bytes: no such option (try --help)");
    set.where = SECOND;
    read_line("--bytes 6 --any 7");
    assert_true(got.bytes == 6 && got.any == 7 && !options_given(&set, "--steps"));
    refused("--steps 3", "--steps: no such option (try --help)");
}

static int print_it(void *line)
{
    if (!freopen(in_dir("out"), "w", stdout)) return 98;
    if (!line) return options_print(&set), 0;
    read_line(line);
    return 97;
}

// What a call writes to stdout.
static void expect_printed(char *line, const char *want)
{
    char errors[2000];
    assert_int_equal(run_child(print_it, line, errors, sizeof errors), 0);
    char *text = take_file("out", NULL);
    assert_string_equal(text, want);
    free(text);
}

TEST_WITH(test_help, set_up, tear_down)
{
#define OF_ALL "  --quiet        prints less\n  --out PATH     where to\n--input--\n  --skip NAME    leaves one out\n" \
    "  --from FILE... reads them\n  --steps N      how many\n--any N\n  --one N        at most\n"
#define ALL OF_ALL "  --bytes N      a long name of its value\n  --rate RATE    of the rest\n" \
    "  --share A_NUMBER_OF_MANY_WORDS that is too wide to align by\n"
    expect_printed(NULL, ALL);
    expect_printed((char[]){"--nope --help"}, "usage: try\n" ALL); // whatever else is wrong
    expect_printed((char[]){"--steps 1 -h"}, "usage: try\n" ALL);
    set.where = FIRST;
    set.n = 9;
    expect_printed(NULL, OF_ALL);
}

typedef struct {
    const char *text;
    long long least, most;
} Count;

static int count_it(void *arg)
{
    const Count *c = arg;
    return (int)options_count("try", "n", c->text, c->least, c->most);
}

TEST_WITH(test_count, set_up, tear_down)
{
    assert_int_equal(options_count("try", "n", "-1", -1, 5), -1);
    assert_int_equal(options_count("try", "n", "5", -1, 5), 5);
    assert_true(options_count("try", "n", "9223372036854775807", -1, LLONG_MAX) == LLONG_MAX);
    const Count bad[] = {{"-2", -1, 5}, {"6", -1, 5}, {"", -1, 5}, {"x", -1, 5}, {"3x", -1, 5}, {"3 ", -1, 5},
                         {"9223372036854775808", 0, LLONG_MAX}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char *words = formatted("try: --n: '%s' (a whole number from %lld to %lld)", bad[i].text, bad[i].least,
                                bad[i].most);
        expect_die(count_it, (void *)&bad[i], words);
    }
}

TESTS(temp_dir_make, temp_dir_remove)
