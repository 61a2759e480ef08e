// gzip: a member of gzip in memory, for tests. Include it after cmocka.
#ifndef TEST_GZIP_H
#define TEST_GZIP_H
#include <zlib.h>

// Returns its bytes.
static inline size_t gzip_pack(char *out, size_t room, const char *text, size_t n)
{
    z_stream z = {.next_in = (Bytef *)(uintptr_t)text, .avail_in = (uInt)n,
                  .next_out = (Bytef *)out, .avail_out = (uInt)room};
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return room - z.avail_out;
}
#endif
