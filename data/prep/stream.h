// stream: the bytes of a file from its beginning to its end, unpacked on the way (gzip, zstd).
#ifndef STREAM_H
#define STREAM_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct Stream Stream;

// Opens a file that is asked for read_bytes (at least 1) at a time; "-" is standard input. Its first bytes say how it
// is packed, whatever its name; a name that ends in .gz or .zst (in upper or lower case) says that it must be. Dies
// when the file cannot be opened, and when its first bytes are those of a format that is not unpacked here.
Stream *stream_open(const char *path, size_t read_bytes);
// Up to n (at least 1) bytes of content; 0 only at the end. Members and frames that follow each other are read as
// one content. Dies, with the file and the offset in the packed bytes, on damage and when the file ends too early.
size_t stream_read(Stream *s, void *out, size_t n);
void stream_close(Stream *s); // NULL is allowed

#ifdef __cplusplus
}
#endif
#endif
