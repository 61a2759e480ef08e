// The reader on good and bad files, and the writer's bytes.
#include "base/check.h"
#include "base/disk.h"
#include "tools/safetensors.h"

#include "test/test.h"
#include <errno.h>

#include "expect_die.h"
#include "temp_dir.h"

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

TESTS(temp_dir_make, temp_dir_remove)
