// out_file: a file that takes its name when it is whole. See out_file.h.
//
// The invariant: at every moment NAME is what it was before, or complete. What is no plain file is never renamed over:
// of /dev/null there is only one. NAME.tmp is locked (flock) while it is written, so two programs that were given one
// name do not write into each other; the lock goes with the process, so what a killed one left does not stand in the
// way. A program that dies removes what it has aside; one that is killed leaves it, and the next run takes it over.
//
// /dev/stdout and its like are where they lead, even to a plain file: what is there already (>>) stays, and what else
// is printed follows. Any other name of the file behind standard output or standard error is a mistake: one of the two
// texts would be lost.
//
// Rejected: a name of its own for each process (what was killed stays for ever, and of two programs the slower one
// wins in silence).
#include "base/out_file.h"

#include "base/check.h"
#include "base/disk.h"
#include "base/folder.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- those that are open
static OutFile *opened;
static pid_t owner; // a child that ends does not remove what its parent writes

static void remove_asides(void)
{
    for (OutFile *out = opened; out && owner == getpid(); out = out->next)
        if (out->aside) unlink(out->aside);
}

static void remember(OutFile *out)
{
    if (!owner && atexit(remove_asides) != 0) die("%s: no memory", out->path);
    if (owner != getpid()) opened = NULL; // those of a parent
    owner = getpid();
    out->next = opened;
    opened = out;
}

static void forget(const OutFile *out)
{
    OutFile **at = &opened;
    while (*at && *at != out) at = &(*at)->next;
    if (*at) *at = out->next;
}

// ---- opening
static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_dev == b->st_dev;
}

// Opens path.tmp and locks it. -1: somebody renamed or removed it meanwhile.
static int open_aside(const char *aside, const char *path)
{
    struct stat mine, there;
    int fd = open(aside, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0 && errno == ELOOP && unlink(aside) == 0) return -1; // what it points to is not ours to write
    if (fd < 0) die("%s: cannot write: %s", aside, strerror(errno));
    if (flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
        die("%s: is being written already (by another program, or it was given twice)", path);
    if (fstat(fd, &mine) || stat(aside, &there) || !same_file(&mine, &there)) {
        close(fd);
        return -1;
    }
    if (ftruncate(fd, 0)) die("%s: cannot write: %s", aside, strerror(errno));
    return fd;
}

// The descriptor that a name of /dev or /proc stands for: 1 of /dev/stdout; -1 of any other name.
static int descriptor(const char *path)
{
    static const char *const name[] = {"/dev/stdin", "/dev/stdout", "/dev/stderr"};
    static const char *const folder[] = {"/dev/fd/", "/proc/self/fd/"};
    for (int fd = 0; fd < 3; fd++)
        if (!strcmp(path, name[fd])) return fd;
    for (int i = 0; i < 2; i++) {
        size_t n = strlen(folder[i]);
        if (!strncmp(path, folder[i], n) && isdigit((unsigned char)path[n])) return atoi(path + n);
    }
    return -1;
}

static void refuse_streams(const char *path, const struct stat *info)
{
    struct stat stream;
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++)
        if (fstat(fd, &stream) == 0 && same_file(&stream, info))
            die("%s: is where standard %s goes too (give another name)", path,
                fd == STDOUT_FILENO ? "output" : "error");
}

OutFile *out_file_open(const char *path)
{
    if (!*path) die("an output file has an empty name (is a variable of the shell not set?)");
    OutFile *out = calloc(1, sizeof *out);
    struct stat info;
    bool link = lstat(path, &info) == 0 && S_ISLNK(info.st_mode), there = stat(path, &info) == 0;
    if (link && !there) die("%s: is a link to nowhere (remove it, or write elsewhere)", path);
    if (there && S_ISDIR(info.st_mode)) die("%s: is a folder (give the name of a file)", path);
    int own = descriptor(path); // shared, so that both go on where the other one stopped
    bool plain = own < 0 && (!there || S_ISREG(info.st_mode));
    if (there && plain) refuse_streams(path, &info);
    if (out) out->path = link && plain ? realpath(path, NULL) : strdup(path);
    if (!out || !out->path) die("%s: cannot write: %s", path, strerror(errno));
    if (!plain) {
        out->f = own < 0 ? fopen(path, "wb") : fdopen(dup(own), "wb");
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
    remember(out);
    out->f = fdopen(fd, "wb");
    if (!out->f) die("%s: cannot write: %s", out->aside, strerror(errno));
    return out;
}

static void out_file_free(OutFile *out)
{
    forget(out);
    free(out->path);
    free(out->aside);
    free(out);
}

void out_file_commit(OutFile *out)
{
    bool ok = !ferror(out->f) && fflush(out->f) == 0;
    if (ok && out->aside) ok = fsync(fileno(out->f)) == 0 && rename(out->aside, out->path) == 0;
    if (ok) forget(out); // from here on NAME.tmp may be somebody else's
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
    char *real = realpath(path, NULL), aside[PATH_MAX]; // NULL: not there yet
    const char *name = real ? real : path, *slash = strrchr(name, '/');
    char *parent = slash ? strndup(name, (size_t)(slash - name) + 1) : strdup(".");
    struct stat in, there;
    if (!parent) die("%s: no memory", path);
    if (folder_inside(parent, input))
        die("%s: lies in the input folder %s, and would be read next time (write it elsewhere)", path, input);
    if (snprintf(aside, sizeof aside, "%s.tmp", name) < PATH_MAX && stat(input, &in) == 0 && stat(aside, &there) == 0 &&
        same_file(&in, &there))
        die("%s: would be written as %s.tmp first, which is the input (write it elsewhere)", path, path);
    free(parent);
    free(real);
}
