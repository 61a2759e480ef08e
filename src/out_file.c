// out_file: a file that takes its name when it is whole. See out_file.h.
//
// The invariant: at every moment NAME is what it was before, or complete. What is no plain file is never renamed over:
// of /dev/null there is only one. NAME.tmp is locked (flock) while it is written, so two programs that were given one
// name do not write into each other; the lock goes with the process, so what a killed one left does not stand in the
// way.
//
// Rejected: a name of its own for each process (what was killed stays for ever, and of two programs the slower one
// wins in silence).
#include "out_file.h"

#include "check.h"
#include "disk.h"
#include "folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

// Opens path.tmp and locks it. -1: somebody renamed or removed it meanwhile.
static int open_aside(const char *aside, const char *path)
{
    struct stat opened, there;
    int fd = open(aside, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0 && errno == ELOOP && unlink(aside) == 0) return -1; // what it points to is not ours to write
    if (fd < 0) die("%s: cannot write: %s", aside, strerror(errno));
    if (flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
        die("%s: is being written already (by another program, or it was given twice)", path);
    if (fstat(fd, &opened) || stat(aside, &there) || opened.st_ino != there.st_ino || opened.st_dev != there.st_dev) {
        close(fd);
        return -1;
    }
    if (ftruncate(fd, 0)) die("%s: cannot write: %s", aside, strerror(errno));
    return fd;
}

OutFile *out_file_open(const char *path)
{
    OutFile *out = calloc(1, sizeof *out);
    struct stat info;
    bool link = lstat(path, &info) == 0 && S_ISLNK(info.st_mode), there = stat(path, &info) == 0;
    if (link && !there) die("%s: is a link to nowhere (remove it, or write elsewhere)", path);
    if (there && S_ISDIR(info.st_mode)) die("%s: is a folder (give the name of a file)", path);
    bool plain = !there || S_ISREG(info.st_mode); // /dev/stdout is a link, whose end may have no name
    if (out) out->path = link && plain ? realpath(path, NULL) : strdup(path);
    if (!out || !out->path) die("%s: cannot write: %s", path, strerror(errno));
    if (!plain) {
        out->f = fopen(path, "wb");
        if (!out->f) die("%s: cannot write: %s", path, strerror(errno));
        return out;
    }
    size_t n = strlen(out->path);
    out->aside = malloc(n + 5);
    if (!out->aside) die("%s: no memory", path);
    memcpy(out->aside, out->path, n);
    memcpy(out->aside + n, ".tmp", 5);
    int fd = -1;
    for (int i = 0; i < 100 && fd < 0; i++) fd = open_aside(out->aside, path);
    if (fd < 0) die("%s: somebody else writes and removes it (one program at a time)", out->aside);
    out->f = fdopen(fd, "wb");
    if (!out->f) die("%s: cannot write: %s", out->aside, strerror(errno));
    return out;
}

static void out_file_free(OutFile *out)
{
    free(out->path);
    free(out->aside);
    free(out);
}

void out_file_commit(OutFile *out)
{
    bool ok = !ferror(out->f) && fflush(out->f) == 0;
    if (ok && out->aside) ok = fsync(fileno(out->f)) == 0 && rename(out->aside, out->path) == 0;
    int why = errno; // fclose gives the lock up, so the rename is before it
    if (fclose(out->f) && ok) ok = false, why = errno;
    if (!ok) die("%s: cannot write: %s (is the disk full?)", out->path, strerror(why));
    if (out->aside && !disk_sync_parent(out->path)) die("%s: cannot fsync its folder: %s", out->path, strerror(errno));
    out_file_free(out);
}

void out_file_drop(OutFile *out)
{
    if (out->aside) unlink(out->aside);
    fclose(out->f);
    out_file_free(out);
}

void out_file_apart(const char *path, const char *input)
{
    const char *slash = strrchr(path, '/');
    char *parent = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    if (!parent) die("%s: no memory", path);
    if (folder_inside(parent, input))
        die("%s: lies in the input folder %s, and would be read next time (write it elsewhere)", path, input);
    free(parent);
}
