// disk: files that survive a crash, and who may write them.
//
// write() may be short, rename() is atomic but not durable, and a failed fsync must never be retried. These calls
// handle that in one place. No call follows a symbolic link in order to delete.
#ifndef DISK_H
#define DISK_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#ifdef __cplusplus
extern "C" {
#endif

// ---- files and directories. All return false (NULL) with errno set; none prints.

// Writes all n bytes: continues after short writes and EINTR.
bool disk_write(int fd, const void *data, size_t n_bytes);
// Creates or truncates path, writes, fsyncs, closes.
bool disk_write_file(const char *path, const void *data, size_t n_bytes);
// The same to path.tmp, then renames it over path and fsyncs the directory: readers see the old file or
// the new one. A device or a pipe is written to directly.
bool disk_replace_file(const char *path, const void *data, size_t n_bytes);
// The whole file, with a 0 byte after it, or NULL (errno EFBIG when it holds more than max_bytes). free() it.
char *disk_read_file(const char *path, size_t *n_bytes, size_t max_bytes);
// n_bytes from `at` on; false, with errno (EIO: the file ends before), when they cannot be had. From any thread.
bool disk_read_at(int fd, void *out, size_t n_bytes, uint64_t at);
// True when path (or the target of a link of that name) is a device, a pipe or a socket: no file may be renamed over
// it.
bool disk_is_special(const char *path);
// Makes the entries of a directory durable; disk_sync_parent does so for the directory that holds path.
bool disk_sync_dir(const char *path);
bool disk_sync_parent(const char *path);
// Deletes a directory that holds plain files only. True when it is gone, or was never there.
bool disk_remove_dir(const char *path);

// ---- a file that takes its name when it is complete: written as NAME.tmp and renamed. From here to the locks every
// function dies with one line when it fails.

typedef struct DiskOut {
    FILE *f;     // to write to
    char *path;  // the name; for a symbolic link the name of its target
    char *aside; // NAME.tmp; NULL: path is a device or a pipe, which is written to directly
    struct DiskOut *next; // list of the open ones
} DiskOut;

// Opens. /dev/stdout, /dev/stderr and /dev/fd/N are appended to, whatever they are. A file that is already being
// written, by another process or by this one under any of its names, is refused. Not thread-safe.
DiskOut *disk_out_open(const char *path);
// Fsyncs the file, gives it its name, and frees `out`.
void disk_out_commit(DiskOut *out);
// Whether an output folder is the input folder, or lies in it; false for an input that is no folder.
bool disk_folder_inside(const char *out, const char *input);
// Dies when path (or its target) lies in the folder `input` or below it, where a later run would read it as input; and
// when the input is the NAME.tmp of path. A file may be its own input.
void disk_out_apart(const char *path, const char *input);

// ---- one run at a time in a directory

// The folder itself is locked, so that a run goes on alone when its file `lock` is deleted; and the file, because some
// network file systems lock only files. -1: none.
typedef struct {
    int dir, file;
} DiskLock;

// Makes DIR/lock if it is missing, locks it and DIR, and writes the owner to it: host, process, start. Dies at once
// when another process has the lock, and names that process. The kernel releases the lock of a process that ended,
// however it ended, so such a lock can be taken at once.
DiskLock disk_lock_take(const char *dir);
// Whether some process has the lock of DIR, this one included.
bool disk_lock_held(const char *dir);
// Empties the file and releases the lock. A file of -1 is allowed.
void disk_lock_release(DiskLock lock);

// Dies when one of these names in DIR (the last: NULL) is a link, a pipe or a device: a run's files are opened by name, and
// would be written through a link into a file of somebody else's, or wait for a pipe's reader for ever.
void disk_refuse_links(const char *dir, const char *const *name);

#ifdef __cplusplus
}
#endif
#endif
