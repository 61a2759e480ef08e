// string.h: see stdlib.h.
#ifndef BOOK_STRING_H
#define BOOK_STRING_H
#include <stddef.h>
void *memcpy(void *to, const void *from, size_t n);
void *memset(void *to, int value, size_t n);
int strcmp(const char *a, const char *b);
int strncmp(const char *a, const char *b, size_t n);
char *strcat(char *to, const char *from);
size_t strlen(const char *s);
char *strchr(const char *s, int c);
size_t strspn(const char *s, const char *among);
size_t strcspn(const char *s, const char *among);
char *strtok_r(char *s, const char *among, char **rest);
char *strrchr(const char *s, int c);
char *strstr(const char *s, const char *what);
int memcmp(const void *a, const void *b, size_t n);
void *memmove(void *to, const void *from, size_t n);
char *strerror(int error);
#endif
