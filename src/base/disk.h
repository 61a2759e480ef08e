// disk: files that survive a crash.
//
// write() may be short, rename() is atomic but not durable, and a failed fsync must never be tried again:
// these few calls get that right once. All return false with errno set; none prints. Nothing here follows
// a symbolic link in order to delete.
#ifndef DISK_H
#define DISK_H
#include <stdbool.h>
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

// Writes all n bytes: goes on after short writes and EINTR.
bool disk_write(int fd, const void *data, size_t n_bytes);
// Creates or truncates path, writes, fsyncs, closes.
bool disk_write_file(const char *path, const void *data, size_t n_bytes);
// The same to path.tmp, then renames it over path and fsyncs the directory: readers see the old file or
// the new. A device or a pipe is written to as it is.
bool disk_replace_file(const char *path, const void *data, size_t n_bytes);
// The whole file, with a 0 byte behind it, or NULL (errno EFBIG when it holds more than max_bytes).
// free() it.
char *disk_read_file(const char *path, size_t *n_bytes, size_t max_bytes);
// Is there a device, a pipe or a socket of that name (or behind that link)? Nothing may be renamed over it.
bool disk_is_special(const char *path);
// Makes the entries of a directory durable; disk_sync_parent does so for the directory that holds path.
bool disk_sync_dir(const char *path);
bool disk_sync_parent(const char *path);
// Deletes a directory that holds plain files only. True when it is gone, or was never there.
bool disk_remove_dir(const char *path);

#ifdef __cplusplus
}
#endif
#endif
