// disk: files that survive a crash, and locks that keep two programs from writing one file or folder. See disk.h.
//
// The invariant: when a function returns true, what it wrote is on the disk, not only in the page cache; and at every
// moment NAME is either the old file or the complete new one.
//
// The order that makes a replaced file safe (Pillai et al., "All file systems are not created equal", OSDI 2014):
//   write NAME.tmp, fsync it, rename it over NAME, fsync the directory.
// Without the first fsync the rename may reach the disk before the bytes; without the last one a power loss may bring
// the old name back. A failed fsync is final: the kernel may have dropped the dirty pages, and a second fsync on the
// same file would then report success for bytes that are gone. Only a plain file is ever replaced: a rename over
// /dev/null would remove the device.
//
// disk_replace_file writes bytes that are in memory; DiskOut is for a file that is written piece by piece. Its NAME.tmp
// is locked (flock) while it is written, so two programs that were given one name do not write into each other. A
// program that dies removes its NAME.tmp; one that is killed leaves it, and the next run reuses it. /dev/stdout,
// /dev/stderr and /dev/fd/N are written through the open descriptor, even where that is a plain file: what the file
// holds (>>) stays, and other output follows. Any other name of the file that standard output or standard error goes to
// is refused: one of the two texts would be lost.
//
// Rejected: stdio for durable files (a buffered error shows up late, and fwrite gives up on EINTR); a NAME.tmp of its
// own for each process (a killed process leaves it for ever, and of two programs the slower one silently wins);
// O_EXCL (stale after every kill); fcntl locks (any close of the file by the same process drops them).
#include "base/disk.h"

#include "base/check.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
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

// Closes fd and keeps the errno of an earlier failure.
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
    unlink(tmp); // a left-over may be a link, and its target is not ours to write
    if (disk_write_file(tmp, data, n_bytes) && rename(tmp, path) == 0) return disk_sync_parent(path);
    int saved = errno;
    unlink(tmp);
    errno = saved;
    return false;
}

bool disk_read_at(int fd, void *out, size_t n_bytes, uint64_t at)
{
    for (size_t got = 0; got < n_bytes;) {
        ssize_t n = pread(fd, (char *)out + got, n_bytes - got, (off_t)(at + got));
        if (n < 0 && errno == EINTR) continue;
        if (n == 0) errno = EIO;
        if (n <= 0) return false;
        got += (size_t)n;
    }
    return true;
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
        if (n == 0) break; // the file shrank: the caller's own checks see a short file
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
                               errno == EINVAL); // EINVAL: this file system cannot sync a directory, nor needs to
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

// ---- a file that takes its name when it is whole
static DiskOut *opened; // the files that are not committed yet
static pid_t owner; // the process that opened them: a child that ends must not remove its parent's files

static void remove_asides(void)
{
    for (DiskOut *out = opened; out && owner == getpid(); out = out->next)
        if (out->aside) unlink(out->aside);
}

static void remember(DiskOut *out)
{
    if (!owner && atexit(remove_asides) != 0) die("%s: no memory", out->path);
    if (owner != getpid()) opened = NULL; // the list is a parent's
    owner = getpid();
    out->next = opened;
    opened = out;
}

static void forget(const DiskOut *out)
{
    DiskOut **at = &opened;
    while (*at && *at != out) at = &(*at)->next;
    if (*at) *at = out->next;
}

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_dev == b->st_dev;
}

// Opens path.tmp and locks it. -1: another process renamed or removed it meanwhile.
static int open_aside(const char *aside, const char *path)
{
    struct stat mine, there;
    int fd = open(aside, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0 && errno == ELOOP && unlink(aside) == 0) return -1; // a link's target is not ours to write
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

DiskOut *disk_out_open(const char *path)
{
    if (!*path) die("an output file has an empty name (is a variable of the shell not set?)");
    DiskOut *out = calloc(1, sizeof *out);
    struct stat info;
    bool link = lstat(path, &info) == 0 && S_ISLNK(info.st_mode), there = stat(path, &info) == 0;
    if (link && !there) die("%s: is a link to nowhere (remove it, or write elsewhere)", path);
    if (there && S_ISDIR(info.st_mode)) die("%s: is a folder (give the name of a file)", path);
    int own = descriptor(path); // one shared file position, so that each writer continues where the other one stopped
    bool plain = own < 0 && (!there || S_ISREG(info.st_mode));
    if (there && plain) refuse_streams(path, &info);
    if (out) out->path = link && plain ? realpath(path, NULL) : strdup(path);
    if (!out || !out->path) die("%s: cannot write: %s", path, strerror(errno));
    if (!plain) {
        out->f = own < 0 ? fopen(path, "wb") : fdopen(dup(own), "wb");
        if (!out->f) die("%s: cannot write: %s", path, strerror(errno));
        return out;
    }
    out->aside = malloc(strlen(out->path) + 5);
    if (!out->aside) die("%s: no memory", path);
    sprintf(out->aside, "%s.tmp", out->path);
    int fd = -1;
    for (int i = 0; i < 100 && fd < 0; i++) fd = open_aside(out->aside, path);
    if (fd < 0) die("%s: somebody else writes and removes it (one program at a time)", out->aside);
    remember(out);
    out->f = fdopen(fd, "wb");
    if (!out->f) die("%s: cannot write: %s", out->aside, strerror(errno));
    return out;
}

void disk_out_commit(DiskOut *out)
{
    bool ok = !ferror(out->f) && fflush(out->f) == 0;
    if (ok && out->aside) ok = fsync(fileno(out->f)) == 0 && rename(out->aside, out->path) == 0;
    if (ok) forget(out); // from here on NAME.tmp may belong to another process
    int why = errno; // the rename comes before fclose, which releases the lock
    if (fclose(out->f) && ok) ok = false, why = errno;
    if (!ok) die("%s: cannot write: %s (is the disk full?)", out->path, strerror(why));
    if (out->aside && !disk_sync_parent(out->path)) die("%s: cannot fsync its folder: %s", out->path, strerror(errno));
    free(out->path);
    free(out->aside);
    free(out);
}

bool disk_folder_inside(const char *out, const char *input)
{
    char in_path[PATH_MAX], out_path[PATH_MAX];
    struct stat st;
    if (stat(input, &st) != 0 || !S_ISDIR(st.st_mode) || !realpath(input, in_path) || !realpath(out, out_path))
        return false;
    size_t n = strlen(in_path);
    return strncmp(out_path, in_path, n) == 0 && (n == 1 || out_path[n] == '/' || !out_path[n]);
}

void disk_out_apart(const char *path, const char *input)
{
    char *real = realpath(path, NULL), aside[PATH_MAX]; // NULL: not there yet
    const char *name = real ? real : path, *slash = strrchr(name, '/');
    char *parent = slash ? strndup(name, (size_t)(slash - name) + 1) : strdup(".");
    struct stat in, there;
    if (!parent) die("%s: no memory", path);
    if (disk_folder_inside(parent, input))
        die("%s: lies in the input folder %s, and would be read next time (write it elsewhere)", path, input);
    if (snprintf(aside, sizeof aside, "%s.tmp", name) < PATH_MAX && stat(input, &in) == 0 && stat(aside, &there) == 0 &&
        same_file(&in, &there))
        die("%s: would be written as %s.tmp first, which is the input (write it elsewhere)", path, path);
    free(parent);
    free(real);
}

// ---- one run at a time
//
// Locks are flock's. Such a lock belongs to the open file and ends with the process, so it is never stale, and no
// process number in a file has to be trusted. The lock file of a run is never removed: a process that removed it could
// remove a file that another process has just locked, and a third would then lock a new file of the same name. Should
// a person remove it, the folder, which is locked too, is still taken. The words in the file serve the error message
// only, except on a file system without flock (some network file systems). There the words decide: the lock is refused
// when they name a live process of this host, or another host. After a run was killed on another host, a person has to
// empty the file.

enum { WORDS = 200 };

// "node1, process 4211, since 2026-03-04 05:06:07"
static void words_of(char *text, size_t n)
{
    char host[65] = "", start[32];
    time_t now = time(NULL);
    struct tm at;
    gethostname(host, sizeof host);
    strftime(start, sizeof start, "%Y-%m-%d %H:%M:%S", localtime_r(&now, &at));
    snprintf(text, n, "%s, process %ld, since %s\n", host, (long)getpid(), start);
}

static void read_words(int fd, char text[WORDS])
{
    ssize_t n = pread(fd, text, WORDS - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < 0x20) *c = '?';
}

// Without flock: whether the words name a process that may still run.
static bool may_live(const char *text)
{
    char host[65] = "", theirs[65]; // Linux: 64 characters at most
    long process = 0;
    gethostname(host, sizeof host);
    if (sscanf(text, "%64[^,], process %ld", theirs, &process) != 2) return false;
    return strcmp(host, theirs) || (process > 0 && (kill((pid_t)process, 0) == 0 || errno == EPERM));
}

DiskLock disk_lock_take(const char *dir)
{
    char path[700], text[WORDS];
    if (snprintf(path, sizeof path, "%s/lock", dir) >= (int)sizeof path) die("lock: path too long: %s", dir);
    DiskLock lock = {.dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC),
                     .file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666)};
    if (lock.file < 0) die("%s: %s (another --run.dir?)", path, strerror(errno));
    bool taken = flock(lock.dir, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK;
    if (taken || flock(lock.file, LOCK_EX | LOCK_NB)) {
        bool unknown = !taken && errno != EWOULDBLOCK;
        read_words(lock.file, text);
        taken = !unknown || may_live(text);
    }
    if (taken)
        die("%s: another run is in this directory: %s (end it, or try another --run.name)", path,
            text[0] ? text : "it has not said which");
    words_of(text, sizeof text);
    if (ftruncate(lock.file, 0) || pwrite(lock.file, text, strlen(text), 0) != (ssize_t)strlen(text))
        die("%s: %s (is the disk full?)", path, strerror(errno));
    return lock;
}

// Trying the lock takes it for a moment, in which a run that starts would be refused. So only a directory whose file
// names an owner is tried: that of a run that is going on, or was killed.
bool disk_lock_held(const char *dir)
{
    char path[700], text[WORDS];
    snprintf(path, sizeof path, "%s/lock", dir);
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0) return false;
    read_words(file, text);
    bool held = text[0] && flock(file, LOCK_SH | LOCK_NB) && errno == EWOULDBLOCK;
    close(file);
    return held;
}

void disk_lock_release(DiskLock lock)
{
    if (lock.file < 0) return;
    if (ftruncate(lock.file, 0)) die("lock: cannot be emptied: %s", strerror(errno));
    close(lock.file);
    if (lock.dir >= 0) close(lock.dir);
}

void disk_refuse_links(const char *dir, const char *const *name)
{
    char path[PATH_MAX];
    struct stat own;
    for (; *name; name++) {
        if (snprintf(path, PATH_MAX, "%s/%s", dir, *name) >= PATH_MAX) die("%s: the name is too long", dir);
        if (lstat(path, &own) || S_ISREG(own.st_mode) || S_ISDIR(own.st_mode)) continue;
        die("%s: a %s, where a run writes a plain file (move it away, or use another run.name)", path,
            S_ISLNK(own.st_mode) ? "symbolic link" : S_ISFIFO(own.st_mode) ? "pipe" : "device or socket");
    }
}
