// disk_folder: the files of a data preparation, replaced together. See disk_folder.h.
//
// A tokenizer and the shards that it made belong together: either one could be read beside the other's older version,
// and nothing in the files would show the mistake. No file system renames several files at once, so the new files are
// written to a separate folder and then moved:
//
//     out/new.tmp/...        all new files, on the disk
//     out/unfinished         made
//     out/...                the old ones removed, the new ones moved here
//     out/unfinished         removed
//
// Invariant: a folder without the mark `unfinished` holds all files of one run and no file of another. The trainer
// refuses a folder with the mark; the next run that succeeds removes it. Removing and moving take milliseconds, so the
// old files can be used until the new ones are complete; the price is that the disk holds both. A cause that would stop
// the moves in the middle of every run is looked for before the mark is made (disk_folder_check_old).
#include "tools/disk_folder.h"

#include "base/check.h"
#include "base/disk.h"

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

static void name_file(char path[PATH_MAX], const char *dir, const char *name)
{
    if (snprintf(path, PATH_MAX, "%s/%s", dir, name) >= PATH_MAX) die("%s: the name is too long", dir);
}

void disk_folder_make(const char *path, const char *option)
{
    char part[PATH_MAX];
    struct stat st;
    if (!*path) die("%s: an empty name (give the folder to write to)", option);
    if (snprintf(part, sizeof part, "%s", path) >= PATH_MAX) die("%s: the name is too long (%s)", path, option);
    for (char *p = part + 1; *p; p++) {
        if (*p != '/') continue;
        *p = 0;
        mkdir(part, 0777); // an error here shows up again below
        *p = '/';
    }
    if (mkdir(part, 0777) != 0 && errno != EEXIST)
        die("%s: %s (%s is the folder to write to)", path, strerror(errno), option);
    if (stat(part, &st) != 0 || !S_ISDIR(st.st_mode))
        die("%s: not a folder (%s is the folder to write to)", path, option);
    if (access(part, W_OK | X_OK) != 0) die("%s: %s (%s must be writable)", path, strerror(errno), option);
}

void disk_folder_check_outside(const char *input, const char *out, const char *option)
{
    if (disk_folder_inside(out, input))
        die("%s: lies in the input folder %s, and would be read next time (choose another %s)", out, input, option);
}

int disk_folder_lock(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) != 0)
        die("%s: %s", path, fd >= 0 && errno == EWOULDBLOCK ? "another preparation is at work there" : strerror(errno));
    return fd;
}

int disk_folder_join(const char *path, int lock)
{
    int fd = lock >= 0 ? lock : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || flock(fd, LOCK_SH | LOCK_NB) != 0)
        die("%s: %s", path, fd >= 0 && errno == EWOULDBLOCK ? "another preparation is at work there" : strerror(errno));
    return fd;
}

static const char aside[] = "new.tmp", mark[] = "unfinished";

char *disk_folder_begin(const char *path)
{
    char dir[PATH_MAX];
    name_file(dir, path, aside);
    if (!disk_remove_dir(dir) || mkdir(dir, 0777) != 0) // remove what a killed run left
        die("%s: %s (remove it)", dir, strerror(errno));
    char *name = strdup(dir);
    if (!name) die("memory: no room for a file name");
    return name;
}

// Walks the files whose names is_old() accepts. With `remove` it deletes them; else it dies when one cannot be deleted.
static void each_old(const char *path, bool (*is_old)(const char *name), bool remove)
{
    char old[PATH_MAX];
    struct stat st;
    DIR *list = opendir(path);
    if (!list) die("%s: %s", path, strerror(errno));
    for (struct dirent *e; (e = readdir(list));) {
        if (!is_old(e->d_name)) continue;
        name_file(old, path, e->d_name);
        if (!remove && lstat(old, &st) == 0 && S_ISDIR(st.st_mode))
            die("%s: a folder, where a file is to be written (rename or remove it)", old);
        if (remove && unlink(old) != 0) die("%s: cannot be removed: %s", old, strerror(errno));
    }
    closedir(list);
}

void disk_folder_check_old(const char *path, bool (*is_old)(const char *name))
{
    each_old(path, is_old, false);
    if (access(path, W_OK | X_OK) != 0) die("%s: %s (it must be writable)", path, strerror(errno));
}

// Fsyncs each file of the folder `dir` (to NULL), or moves it to the folder `to`.
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

void disk_folder_replace(const char *path, bool (*is_old)(const char *name))
{
    static const char words[] = "A preparation was stopped while it replaced the files of this folder: run it again.\n";
    char dir[PATH_MAX], marked[PATH_MAX];
    name_file(dir, path, aside);
    name_file(marked, path, mark);
    disk_folder_check_old(path, is_old);
    each_new(dir, NULL);
    if (!disk_write_file(marked, words, strlen(words)) || !disk_sync_dir(path)) // only its existence counts
        die("%s: %s (is the disk full?)", marked, strerror(errno));
    each_old(path, is_old, true);
    each_new(dir, path);
    if (!disk_sync_dir(path) || unlink(marked) != 0 || rmdir(dir) != 0 || !disk_sync_dir(path))
        die("%s: %s", path, strerror(errno));
}

void disk_folder_check(const char *path)
{
    char marked[PATH_MAX];
    if (snprintf(marked, sizeof marked, "%s/%s", path, mark) >= PATH_MAX) return; // nothing can be there
    if (access(marked, F_OK) == 0)
        die("%s: a preparation was stopped while it replaced the files there (run it again)", path);
}

void disk_folder_check_file(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *dir = slash ? strndup(path, (size_t)(slash - path)) : strdup("."); // "" is the root
    if (!dir) die("memory: no room for a file name");
    disk_folder_check(dir);
    free(dir);
}
