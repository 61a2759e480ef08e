// stdlib.h and the other headers here: what the code of the book's tools needs of the C library, for WebAssembly. See libc.c.
#ifndef BOOK_STDLIB_H
#define BOOK_STDLIB_H
#include <stddef.h>
void *malloc(size_t n);
void *calloc(size_t n, size_t size);
void *realloc(void *old, size_t n);
void free(void *p);
void abort(void) __attribute__((noreturn));
int abs(int n);
double strtod(const char *s, char **end);
long strtol(const char *s, char **end, int base);
void qsort(void *base, size_t n, size_t size, int (*order)(const void *, const void *));
#endif
