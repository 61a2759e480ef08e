// out_file: a file that takes its name when it is whole.
//
// It is written as NAME.tmp and renamed: who reads NAME sees the old one or the new. All of these die with one line
// when they cannot.
#ifndef OUT_FILE_H
#define OUT_FILE_H
#include <stdio.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct OutFile {
    FILE *f;     // to write to
    char *path;  // the name; of a symbolic link what it points to
    char *aside; // NULL: path is a device or a pipe, which is written to as it is
    struct OutFile *next; // of those that are open
} OutFile;

// Begins. /dev/stdout, /dev/stderr and /dev/fd/N are added to, whatever they are. A file that is being written already,
// by another process or by this one under any of its names, is refused.
OutFile *out_file_open(const char *path);
// The file has its name, and is on the disk. Frees.
void out_file_commit(OutFile *out);
// Nothing has happened. Frees.
void out_file_drop(OutFile *out);

// Dies when path (or what it links to) lies in the folder `input`, or in one inside it: a later run would read it as
// input; and when the input is the file that path is written to aside. A file that is its own input is fine.
void out_file_apart(const char *path, const char *input);

#ifdef __cplusplus
}
#endif
#endif
