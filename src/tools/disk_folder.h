// disk_folder: the output folder of a data preparation: made, locked, its files replaced together.
#ifndef DISK_FOLDER_H
#define DISK_FOLDER_H
#include <stdbool.h>
#ifdef __cplusplus
extern "C" {
#endif

// `option` is what the user calls the folder: "--out", "recipe.out". Makes the folder, and those above it.
void disk_folder_make(const char *path, const char *option);
// Dies on an output folder that is the input folder or lies in it (disk_folder_inside), which the next run would read as
// input. An output folder that does not exist is fine.
void disk_folder_check_outside(const char *input, const char *out, const char *option);
// Locks the folder itself against a second preparation; there is no lock file. close() or the end of the process
// releases the lock.
int disk_folder_lock(const char *path);
// Makes a lock of that kind one that several processes hold (lock: its descriptor, of the first process; -1: of one
// more). A second preparation is locked out until the last of them ends. Returns the descriptor.
int disk_folder_join(const char *path, int lock);
// Makes an empty folder inside it, for the new files. free() the returned name.
char *disk_folder_begin(const char *path);
// Dies when disk_folder_replace could not remove a file whose name is_old() accepts (a folder, or no permission).
// Changes nothing.
void disk_folder_check_old(const char *path, bool (*is_old)(const char *name));
// Removes the files whose names is_old() accepts, and moves the new ones (with names of the same kind) to their place.
// A kill before the call leaves all old files; a kill during it leaves a folder marked as unfinished.
void disk_folder_replace(const char *path, bool (*is_old)(const char *name));
// Dies when this folder is marked as unfinished; disk_folder_check_file: the folder of a file (or of a pattern).
void disk_folder_check(const char *path);
void disk_folder_check_file(const char *path);

#ifdef __cplusplus
}
#endif
#endif
