// Fuzzes the reader of Parquet: what it gives lies in memory that it has, twice the same, and within its bounds.
//
// The first byte chooses the column and the largest page, the rest is the file.
#include "fuzz.h"

#include <xxhash.h>

#include "data/prep/parquet.h"
#include "test/parquet_file.h"

// Rows and bytes that are read of one input: a page may say in 10 bytes that it has 2^31 rows. The largest page.
enum { MOST_ROWS = 1 << 16, MOST_BYTES = 1 << 24, PAGE = 1 << 20 };

void fuzz_seeds(void)
{
    static const char *const row[] = {"one", "two", NULL, "", "two", "three hundred", "three thousand", "three",
                                      "one", "one", "one", "one", "one", "one", "one", "one", NULL, "a longer one"};
    const int codec[] = {FILE_NONE, FILE_SNAPPY, FILE_GZIP, FILE_ZSTD};
    const int encoding[] = {FILE_PLAIN, FILE_DELTA_LENGTH, FILE_DELTA, FILE_DICTIONARY};
    for (unsigned i = 0; i < 32; i++) {
        FileOptions f = {.codec = codec[i & 3], .encoding = encoding[i >> 2 & 3], .v2 = i >> 4, .grouped = i % 5 == 0,
                         .required = i % 7 == 0, .page_rows = i % 3 * 5, .group_rows = i % 2 * 11};
        Out o = {0}, file;
        out_byte(&o, f.grouped);
        file = parquet_file(row, f.required ? 2 : sizeof row / sizeof *row, f);
        out_bytes(&o, file.bytes, file.n);
        fuzz_seed((char[]){'p', (char)('0' + i / 10), (char)('0' + i % 10), 0}, o.bytes, o.n);
        free(o.bytes);
        free(file.bytes);
    }
    static const char *many[300]; // several blocks of differences, and long runs
    for (int i = 0; i < 300; i++) many[i] = i < 200 ? row[i * i % 18] : row[i / 50];
    for (unsigned i = 0; i < 8; i++) {
        Out o = {0}, file = parquet_file(many, 300, (FileOptions){.encoding = encoding[i & 3], .v2 = i >> 2});
        out_byte(&o, 0);
        out_bytes(&o, file.bytes, file.n);
        fuzz_seed((char[]){'m', (char)('0' + i), 0}, o.bytes, o.n);
        free(o.bytes);
        free(file.bytes);
    }
}

static uint64_t read_all(const char *path, size_t n_file, int options)
{
    const size_t max_page = options & 4 ? 200 : PAGE;
    const char *column[] = {"text", "meta.text", "id", "texts"};
    Parquet *p = parquet_open(path, column[options & 3], max_page, "max_page");
    ParquetRow row;
    uint64_t about[4] = {0};
    for (size_t n = 0, n_bytes = 0; n < MOST_ROWS && n_bytes < MOST_BYTES && parquet_next(p, &row); n++) {
        fuzz_check(row.offset >= 4 && row.offset < n_file);
        fuzz_check(row.text ? row.n_bytes <= max_page : row.n_bytes == 0);
        about[1] = row.text ? XXH3_64bits(row.text, row.n_bytes) : 1;
        about[2] = row.n_bytes;
        about[3] = row.offset;
        about[0] = XXH3_64bits(about, sizeof about);
        n_bytes += row.n_bytes;
    }
    parquet_close(p);
    return about[0];
}

void fuzz_one(const uint8_t *data, size_t n)
{
    if (!n) return;
    const char *path = fuzz_file("x", data + 1, n - 1);
    uint64_t once = read_all(path, n - 1, data[0]);
    fuzz_must_take();
    fuzz_check(read_all(path, n - 1, data[0]) == once);
}
