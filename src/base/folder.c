// folder: where a preparation writes to, and how it changes what is there.
//
// A tokenizer and the shards that it made belong together: each alone is readable beside the other's predecessor, and
// nothing in them would tell. No file system renames several files at once, so they are written aside and then moved:
//
//     out/new.tmp/...        all new files, on the disk
//     out/unfinished         made
//     out/...                the old ones removed, the new ones moved here
//     out/unfinished         removed
//
// Invariant: without `unfinished` the files of a folder are those of one run, all of them. The trainer refuses a folder
// with it (folder_check), and the next run that ends well removes it. The two moves between take milliseconds, so the
// old files serve until the new ones are there; the price is that the disk holds both. What would end the moves in the
// middle, run after run, is looked for before the mark is made (folder_check_old).
//
// The lock is the kernel's, on the folder: it ends with the process, and leaves no file that could be stale.
//
// Rejected: a new folder under the old one's name (what else lies in it is not ours to move), and to require a manifest
// beside shards (those of other programs have none).
#include "base/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/disk.h"

static void name_file(char path[PATH_MAX], const char *dir, const char *name)
{
    if (snprintf(path, PATH_MAX, "%s/%s", dir, name) >= PATH_MAX) die("%s: the name is too long", dir);
}

void folder_make(const char *path, const char *option)
{
    char part[PATH_MAX];
    struct stat st;
    if (!*path) die("%s: an empty name (give the folder to write to)", option);
    if (snprintf(part, sizeof part, "%s", path) >= PATH_MAX) die("%s: the name is too long (%s)", path, option);
    for (char *p = part + 1; *p; p++) {
        if (*p != '/') continue;
        *p = 0;
        mkdir(part, 0777); // what fails here fails again below
        *p = '/';
    }
    if (mkdir(part, 0777) != 0 && errno != EEXIST)
        die("%s: %s (%s is the folder to write to)", path, strerror(errno), option);
    if (stat(part, &st) != 0 || !S_ISDIR(st.st_mode))
        die("%s: not a folder (%s is the folder to write to)", path, option);
    if (access(part, W_OK | X_OK) != 0) die("%s: %s (%s must be writable)", path, strerror(errno), option);
}

bool folder_inside(const char *out, const char *input)
{
    char in_path[PATH_MAX], out_path[PATH_MAX];
    struct stat st;
    if (stat(input, &st) != 0 || !S_ISDIR(st.st_mode) || !realpath(input, in_path) || !realpath(out, out_path))
        return false;
    size_t n = strlen(in_path);
    return strncmp(out_path, in_path, n) == 0 && (n == 1 || out_path[n] == '/' || !out_path[n]);
}

void folder_check_outside(const char *input, const char *out, const char *option)
{
    if (folder_inside(out, input))
        die("%s: lies in the input folder %s, and would be read next time (choose another %s)", out, input, option);
}

int folder_lock(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) != 0)
        die("%s: %s", path, fd >= 0 && errno == EWOULDBLOCK ? "another preparation is at work there" : strerror(errno));
    return fd;
}

// ---- all files at once
static const char aside[] = "new.tmp", mark[] = "unfinished";

char *folder_begin(const char *path)
{
    char dir[PATH_MAX];
    name_file(dir, path, aside);
    if (!disk_remove_dir(dir) || mkdir(dir, 0777) != 0) // what a killed run has left
        die("%s: %s (remove it)", dir, strerror(errno));
    char *name = strdup(dir);
    if (!name) die("memory: no room for a file name");
    return name;
}

void folder_check_old(const char *path, bool (*is_old)(const char *name))
{
    char old[PATH_MAX];
    struct stat st;
    DIR *list = opendir(path);
    if (!list) die("%s: %s", path, strerror(errno));
    for (struct dirent *e; (e = readdir(list));) {
        if (!is_old(e->d_name)) continue;
        name_file(old, path, e->d_name);
        if (lstat(old, &st) == 0 && S_ISDIR(st.st_mode))
            die("%s: a folder, where a file is to be written (rename or remove it)", old);
    }
    closedir(list);
    if (access(path, W_OK | X_OK) != 0) die("%s: %s (it must be writable)", path, strerror(errno));
}

static void remove_old(const char *path, bool (*is_old)(const char *name))
{
    char old[PATH_MAX];
    DIR *list = opendir(path);
    if (!list) die("%s: %s", path, strerror(errno));
    for (struct dirent *e; (e = readdir(list));) {
        if (!is_old(e->d_name)) continue;
        name_file(old, path, e->d_name);
        if (unlink(old) != 0) die("%s: cannot be removed: %s", old, strerror(errno));
    }
    closedir(list);
}

// Each file of the folder `aside` onto the disk (to NULL), or to a folder.
static void each_new(const char *dir, const char *to)
{
    char from[PATH_MAX], new[PATH_MAX];
    DIR *list = opendir(dir);
    if (!list) die("%s: %s", dir, strerror(errno));
    for (struct dirent *e; (e = readdir(list));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        name_file(from, dir, e->d_name);
        int fd = to ? -1 : open(from, O_RDONLY | O_CLOEXEC);
        if (!to && (fd < 0 || fsync(fd) != 0 || close(fd) != 0))
            die("%s: %s (is the disk full?)", from, strerror(errno));
        if (!to) continue;
        name_file(new, to, e->d_name);
        if (rename(from, new) != 0) die("%s: %s", new, strerror(errno));
    }
    closedir(list);
}

void folder_replace(const char *path, bool (*is_old)(const char *name))
{
    static const char words[] = "A preparation was stopped while it replaced the files of this folder: run it again.\n";
    char dir[PATH_MAX], marked[PATH_MAX];
    name_file(dir, path, aside);
    name_file(marked, path, mark);
    folder_check_old(path, is_old);
    each_new(dir, NULL);
    if (!disk_write_file(marked, words, strlen(words)) || !disk_sync_dir(path)) // that it is there is what counts
        die("%s: %s (is the disk full?)", marked, strerror(errno));
    remove_old(path, is_old);
    each_new(dir, path);
    if (!disk_sync_dir(path) || unlink(marked) != 0 || rmdir(dir) != 0 || !disk_sync_dir(path))
        die("%s: %s", path, strerror(errno));
}

void folder_check(const char *path)
{
    char marked[PATH_MAX];
    if (snprintf(marked, sizeof marked, "%s/%s", path, mark) >= PATH_MAX) return; // nothing can be there
    if (access(marked, F_OK) == 0)
        die("%s: a preparation was stopped while it replaced the files there (run it again)", path);
}

void folder_check_file(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *dir = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
    if (!dir) die("memory: no room for a file name");
    folder_check(dir);
    free(dir);
}
