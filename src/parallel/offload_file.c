// offload_file: the file of an offload store. See offload_file.h.
//
// The file loses its name as soon as it is open. It holds nothing that anyone would look for after the run, a crash
// leaves nothing behind, and no other program can remove, cut or overwrite it by its name. Its blocks are reserved
// before the first step: "no space left on device" comes at the start of a run and not in its middle.
//
// O_DIRECT where the file system can (ext4, XFS, most of them): else every byte would also lie in the page cache, in
// the memory that was to be spared, and be copied once more. It asks for addresses, offsets and lengths in whole
// blocks; 4096 bytes suit every disk. Where the flag is refused, when the file is opened or at the first read, the
// pages are dropped behind each transfer by posix_fadvise, which also starts to write those that are dirty.
//
// The invariant: a transfer that returns true has moved every byte. Short reads and writes go on where they ended;
// under O_DIRECT from the last whole block.
//
// Rejected: fsync (the file does not outlive the process, so there is no one to be durable for; a later read of what
// was written is all that counts); a name for the eyes of `ls` (then a crash leaves gigabytes).
#define _GNU_SOURCE // O_DIRECT, fallocate
#include "parallel/offload_file.h"

#include "base/check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static ssize_t plain_read(void *self, int fd, void *data, size_t n_bytes, off_t at)
{
    (void)self;
    return pread(fd, data, n_bytes, at);
}

static ssize_t plain_write(void *self, int fd, const void *data, size_t n_bytes, off_t at)
{
    (void)self;
    return pwrite(fd, data, n_bytes, at);
}

bool offload_file_move(const OffloadFile *f, bool write, int item, char *data, size_t n_bytes, size_t at,
                       char *error, size_t n_error)
{
    for (size_t n = 0; n < n_bytes;) {
        size_t part = n_bytes - n < (size_t)1 << 30 ? n_bytes - n : (size_t)1 << 30; // Linux moves 2 GiB at most
        ssize_t got = write ? f->io.write(f->io.self, f->fd, data + n, part, (off_t)(at + n))
                            : f->io.read(f->io.self, f->fd, data + n, part, (off_t)(at + n));
        if (got < 0 && errno == EINTR) continue;
        if (got > 0 && f->direct) got -= got % OFFLOAD_BLOCK; // go on from a whole block
        if (got > 0) {
            n += (size_t)got;
            continue;
        }
        if (got == 0 && !write)
            snprintf(error, n_error, "offload: %s: item %d ends at byte %zu of the file and not at %zu: the file was "
                                     "cut short while in use (by something else; start the run again)",
                     f->path, item, at + n, at + n_bytes);
        else
            snprintf(error, n_error, "offload: %s: item %d cannot be %s at byte %zu of the file: %s (%s, put run.dir "
                                     "on another, or set memory.offload=cpu)", f->path, item,
                     write ? "written" : "read", at + n, got ? strerror(errno) : "nothing was taken",
                     write ? "make room on that disk" : "look after that disk");
        return false;
    }
#ifdef POSIX_FADV_DONTNEED
    if (!f->direct) posix_fadvise(f->fd, (off_t)at, (off_t)n_bytes, POSIX_FADV_DONTNEED); // starts to write dirty pages
#endif
    return true;
}

// Space for n bytes, so that a full disk is found here. File systems that cannot reserve find it when they write.
static bool reserve(int fd, size_t n_bytes)
{
    if (n_bytes == 0) return true;
#ifdef __linux__
    int failed;
    do failed = fallocate(fd, 0, 0, (off_t)n_bytes);
    while (failed && errno == EINTR);
    if (!failed) return true;
    if (errno != EOPNOTSUPP) return false;
#endif
    return ftruncate(fd, (off_t)n_bytes) == 0;
}

OffloadFile offload_file_open(const char *path, size_t n_bytes, const OffloadIo *io, void *block)
{
    int flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC;
    OffloadFile f = {.fd = -1, .path = path, .io = {plain_read, plain_write, NULL}};
    if (io) f.io = *io;
#ifdef O_DIRECT
    f.fd = open(path, flags | O_DIRECT, 0600);
    f.direct = f.fd >= 0;
    if (f.fd < 0 && errno == EINVAL) unlink(path); // some file systems make it first and refuse it then
#endif
    if (f.fd < 0) f.fd = open(path, flags, 0600);
    if (f.fd < 0)
        die("offload: %s: cannot be made: %s (%s)", path, strerror(errno),
            errno == EEXIST ? "remove it; the store needs a file of its own"
                            : "choose another run.dir, or set memory.offload=cpu");
    if (unlink(path) < 0) die("offload: %s: cannot be unlinked: %s (choose another run.dir)", path, strerror(errno));
    if (!reserve(f.fd, n_bytes))
        die("offload: %s: no room for %zu bytes: %s (make room on that disk, put run.dir on another, or set "
            "memory.offload=cpu)", path, n_bytes, strerror(errno));
#ifdef O_DIRECT
    // Some file systems take the flag and refuse the reads.
    if (f.direct && n_bytes && f.io.read(f.io.self, f.fd, block, OFFLOAD_BLOCK, 0) < 0 && errno == EINVAL) {
        f.direct = false;
        if (fcntl(f.fd, F_SETFL, 0) < 0) die("offload: %s: fcntl: %s", path, strerror(errno));
    }
#endif
    return f;
}

void offload_file_close(OffloadFile *f)
{
    if (f->fd >= 0) close(f->fd);
    f->fd = -1;
}
