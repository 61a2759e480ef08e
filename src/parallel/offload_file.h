// offload_file: the file of an offload store: nameless, reserved, read and written in whole blocks.
#ifndef OFFLOAD_FILE_H
#define OFFLOAD_FILE_H
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#ifdef __cplusplus
extern "C" {
#endif

enum { OFFLOAD_BLOCK = 4096 };

// How the file is reached: pread and pwrite, but for tests.
typedef struct {
    ssize_t (*read)(void *self, int fd, void *data, size_t n_bytes, off_t at);
    ssize_t (*write)(void *self, int fd, const void *data, size_t n_bytes, off_t at);
    void *self;
} OffloadIo;

typedef struct {
    int fd;
    bool direct; // O_DIRECT: past the page cache
    const char *path;
    OffloadIo io;
} OffloadFile;

// A file of n_bytes, a multiple of OFFLOAD_BLOCK, all zero. The path must not exist, and does not when this returns:
// others can neither remove nor cut the file, and it is gone with the process. Its space is reserved, so that a full
// disk is found here. `block`: OFFLOAD_BLOCK bytes to try a read with, aligned so; may be NULL where n_bytes is 0.
// io: NULL for pread and pwrite. Dies with the path and the reason.
OffloadFile offload_file_open(const char *path, size_t n_bytes, const OffloadIo *io, void *block);
void offload_file_close(OffloadFile *file);
// Whole blocks between memory (aligned to OFFLOAD_BLOCK) and the file from `at` on. False: `error` says what is wrong
// with `item`, the path, and what to try.
bool offload_file_move(const OffloadFile *file, bool write, int item, char *data, size_t n_bytes, size_t at,
                       char *error, size_t n_error);

#ifdef __cplusplus
}
#endif
#endif
