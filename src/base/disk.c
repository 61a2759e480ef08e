// disk: files that survive a crash. See disk.h.
//
// The invariant: when a function returns true, what it wrote is on the disk, not only in the page cache.
//
// The order that makes a replaced file safe (Pillai et al., "All file systems are not created equal",
// OSDI 2014):
//   write path.tmp, fsync it, close it, rename it over path, fsync the directory.
// Without the first fsync the rename may reach the disk before the bytes; without the last one a power
// loss may bring the old name back. A failed fsync is final: the kernel may have dropped the dirty pages,
// and a second fsync on the same file would then report success for bytes that are gone.
//
// Rejected: stdio (a buffered error shows up late, and fwrite gives up on EINTR), O_DIRECT (nothing to
// gain: every file is written once, in order).
#include "base/disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool disk_write(int fd, const void *data, size_t n_bytes)
{
    const char *p = data;
    while (n_bytes) {
        size_t chunk = n_bytes < ((size_t)1 << 30) ? n_bytes
                                                   : (size_t)1 << 30; // Linux writes 2 GiB at most
        ssize_t n = write(fd, p, chunk);
        if (n < 0 && errno == EINTR) continue;
        if (n == 0) errno = EIO;
        if (n <= 0) return false;
        p += n;
        n_bytes -= (size_t)n;
    }
    return true;
}

// Closes fd and keeps the errno of what went wrong before.
static bool close_after(int fd, bool ok)
{
    int saved = errno;
    if (close(fd) < 0 && ok) return false;
    if (!ok) errno = saved;
    return ok;
}

bool disk_write_file(const char *path, const void *data, size_t n_bytes)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) return false;
    return close_after(fd, disk_write(fd, data, n_bytes) && fsync(fd) == 0);
}

bool disk_is_special(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
}

bool disk_replace_file(const char *path, const void *data, size_t n_bytes)
{
    char tmp[PATH_MAX];
    if (disk_is_special(path)) {
        int fd = open(path, O_WRONLY | O_CLOEXEC);
        return fd >= 0 && close_after(fd, disk_write(fd, data, n_bytes));
    }
    if ((size_t)snprintf(tmp, sizeof tmp, "%s.tmp", path) >= sizeof tmp) {
        errno = ENAMETOOLONG;
        return false;
    }
    unlink(tmp); // a left-over may be a link: what it points to is not ours to write
    if (disk_write_file(tmp, data, n_bytes) && rename(tmp, path) == 0) return disk_sync_parent(path);
    int saved = errno;
    unlink(tmp);
    errno = saved;
    return false;
}

char *disk_read_file(const char *path, size_t *n_bytes, size_t max_bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a pipe is refused below, not waited for
    if (fd < 0) return NULL;
    struct stat st;
    char *text = NULL;
    if (fstat(fd, &st) < 0) goto fail;
    if (!S_ISREG(st.st_mode)) errno = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
    else if ((size_t)st.st_size > max_bytes) errno = EFBIG;
    else text = malloc((size_t)st.st_size + 1);
    if (!text) goto fail;
    size_t got = 0;
    while (got < (size_t)st.st_size) {
        ssize_t n = read(fd, text + got, (size_t)st.st_size - got);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) goto fail;
        if (n == 0) break; // it shrank: the caller's own checks see a short file
        got += (size_t)n;
    }
    text[got] = 0;
    *n_bytes = got;
    close(fd);
    return text;
fail:
    free(text);
    close_after(fd, false);
    return NULL;
}

bool disk_sync_dir(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return false;
    return close_after(fd, fsync(fd) == 0 ||
                               errno == EINVAL); // EINVAL: this file system cannot, and need not
}

bool disk_sync_parent(const char *path)
{
    char parent[PATH_MAX];
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--; // a/b/ -> a/b
    while (n > 0 && path[n - 1] != '/') n--; // a/b  -> a/
    if (n == 0) return disk_sync_dir(".");
    if (n >= sizeof parent) {
        errno = ENAMETOOLONG;
        return false;
    }
    memcpy(parent, path, n);
    parent[n] = 0;
    return disk_sync_dir(parent);
}

bool disk_remove_dir(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return errno == ENOENT;
    DIR *dir = fdopendir(fd);
    if (!dir) return close_after(fd, false);
    bool ok = true;
    for (struct dirent *e; ok && (e = readdir(dir));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..")) ok = unlinkat(fd, e->d_name, 0) == 0;
    int saved = errno;
    closedir(dir);
    errno = saved;
    return ok && rmdir(path) == 0;
}
