// folder: the folder that a preparation writes to: made, locked, its files replaced together.
#ifndef FOLDER_H
#define FOLDER_H
#include <stdbool.h>
#ifdef __cplusplus
extern "C" {
#endif

// `option` is what the user calls the folder: "--out", "recipe.out". All of these die with one line.
// Makes the folder, and those above it.
void folder_make(const char *path, const char *option);
// Refuses an output folder that lies in a folder of input: the next run would read it. Nothing there is not refused.
// folder_inside: does it? The folder itself, or one in it; false for an input that is no folder.
bool folder_inside(const char *out, const char *input);
void folder_check_outside(const char *input, const char *out, const char *option);
// Locks the folder itself against a second preparation; no file is left. close() gives the lock back, as the end of the
// process does.
int folder_lock(const char *path);

// ---- all files at once
// An empty folder in the folder, for the files that are to come. free() the name.
char *folder_begin(const char *path);
// Dies when folder_replace could not remove something that is old by its name (a folder), or may not. Touches nothing.
void folder_check_old(const char *path, bool (*is_old)(const char *name));
// Removes the files that are old by their names, and moves the new ones, which have such names too, to their place.
// Killed before, the old files are all there; killed in it, the folder is marked as unfinished.
void folder_replace(const char *path, bool (*is_old)(const char *name));
// Dies when the folder of a file (or of a pattern) is marked so; folder_check: when this folder is.
void folder_check(const char *path);
void folder_check_file(const char *path);

#ifdef __cplusplus
}
#endif
#endif
