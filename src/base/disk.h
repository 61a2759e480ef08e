// disk: files that survive a crash, and who may write them.
//
// write() may be short, rename() is atomic but not durable, and a failed fsync must never be tried again: these calls
// get that right once. Nothing here follows a symbolic link in order to delete.
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

// Writes all n bytes: goes on after short writes and EINTR.
bool disk_write(int fd, const void *data, size_t n_bytes);
// Creates or truncates path, writes, fsyncs, closes.
bool disk_write_file(const char *path, const void *data, size_t n_bytes);
// The same to path.tmp, then renames it over path and fsyncs the directory: readers see the old file or
// the new. A device or a pipe is written to as it is.
bool disk_replace_file(const char *path, const void *data, size_t n_bytes);
// The whole file, with a 0 byte after it, or NULL (errno EFBIG when it holds more than max_bytes). free() it.
char *disk_read_file(const char *path, size_t *n_bytes, size_t max_bytes);
// n_bytes from `at` on; false, with errno (EIO: the file ends before), when they cannot be had. From any thread.
bool disk_read_at(int fd, void *out, size_t n_bytes, uint64_t at);
// Is there a device, a pipe or a socket of that name (or where that link leads)? Nothing may be renamed over it.
bool disk_is_special(const char *path);
// Makes the entries of a directory durable; disk_sync_parent does so for the directory that holds path.
bool disk_sync_dir(const char *path);
bool disk_sync_parent(const char *path);
// Deletes a directory that holds plain files only. True when it is gone, or was never there.
bool disk_remove_dir(const char *path);

// ---- a file that takes its name when it is whole: written as NAME.tmp and renamed. All of what follows here dies with
// one line when it cannot.

typedef struct DiskOut {
    FILE *f;     // to write to
    char *path;  // the name; of a symbolic link what it points to
    char *aside; // NULL: path is a device or a pipe, which is written to as it is
    struct DiskOut *next; // of those that are open
} DiskOut;

// Begins. /dev/stdout, /dev/stderr and /dev/fd/N are added to, whatever they are. A file that is being written already,
// by another process or by this one under any of its names, is refused. One thread at a time.
DiskOut *disk_out_open(const char *path);
// The file has its name, and is on the disk. Frees.
void disk_out_commit(DiskOut *out);
// Dies when path (or what it links to) lies in the folder `input`, or in one inside it: a later run would read it as
// input; and when the input is the file that path is written to aside. A file that is its own input is fine.
void disk_out_apart(const char *path, const char *input);

// ---- one run at a time in a directory

// Takes DIR/lock, which exists (DIR does too) from then on and says who has it: host, process, start. A handle for
// disk_lock_release. Dies at once when another process has it, naming that one. The kernel gives the lock of a process
// that ended back, whatever ended it, so a lock that was left is taken over.
int disk_lock_take(const char *dir);
// Empties the file and gives the lock back. -1 is allowed.
void disk_lock_release(int lock);

// ---- the folder that a preparation writes to: made, locked, its files replaced together

// `option` is what the user calls the folder: "--out", "recipe.out". Makes the folder, and those above it.
void disk_folder_make(const char *path, const char *option);
// Whether an output folder is the input folder, or lies in it; false for an input that is no folder.
bool disk_folder_inside(const char *out, const char *input);
// Refuses such an output folder: the next run would read it. Nothing there is not refused.
void disk_folder_check_outside(const char *input, const char *out, const char *option);
// Locks the folder itself against a second preparation; no file is left. close() gives the lock back, as the end of the
// process does.
int disk_folder_lock(const char *path);
// An empty folder in the folder, for the files that are to come. free() the name.
char *disk_folder_begin(const char *path);
// Dies when disk_folder_replace could not remove something that is old by its name (a folder), or may not. Touches
// nothing.
void disk_folder_check_old(const char *path, bool (*is_old)(const char *name));
// Removes the files that are old by their names, and moves the new ones, which have such names too, to their place.
// Killed before, the old files are all there; killed in it, the folder is marked as unfinished.
void disk_folder_replace(const char *path, bool (*is_old)(const char *name));
// Dies when this folder is marked so; disk_folder_check_file: the folder of a file (or of a pattern).
void disk_folder_check(const char *path);
void disk_folder_check_file(const char *path);

#ifdef __cplusplus
}
#endif
#endif
