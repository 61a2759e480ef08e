// stdio.h: see stdlib.h. Files are declared only: what reads or writes them is not linked.
#ifndef BOOK_STDIO_H
#define BOOK_STDIO_H
#include <stdarg.h>
#include <stddef.h>
typedef struct BookFile FILE;
extern FILE *stdout, *stderr;
int snprintf(char *out, size_t n, const char *format, ...);
int vsnprintf(char *out, size_t n, const char *format, va_list args);
int fprintf(FILE *f, const char *format, ...);
int printf(const char *format, ...);
int fputs(const char *s, FILE *f);
int fputc(int c, FILE *f);
int ferror(FILE *f);
int fclose(FILE *f);
FILE *fopen(const char *path, const char *mode);
char *fgets(char *s, int n, FILE *f);
FILE *open_memstream(char **text, size_t *n);
#endif
