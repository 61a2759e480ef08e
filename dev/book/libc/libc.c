// libc: the part of the C library that the book's tools need, for WebAssembly without a system.
//
// Memory is never given back: a tool computes once in a fresh instance of its module. Messages know %s %d %ld %zu %c and
// %%, and %g as a whole number. A tool that dies calls book_die, which the page defines.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void book_die(const char *message) __attribute__((import_module("env"), import_name("book_die"), noreturn));

extern unsigned char __heap_base;
static uintptr_t top;

void *malloc(size_t n)
{
    if (!top) top = (uintptr_t)&__heap_base;
    uintptr_t at = (top + 15) & ~(uintptr_t)15, end = at + 16 + (uintptr_t)n, have = __builtin_wasm_memory_size(0) * (uintptr_t)65536;
    if (end > have && __builtin_wasm_memory_grow(0, (end - have + 65535) / 65536) == (uintptr_t)-1) book_die("out of memory");
    *(size_t *)at = n;
    top = end;
    return (void *)(at + 16);
}

void *calloc(size_t n, size_t size)
{
    return memset(malloc(n * size), 0, n * size);
}

void *realloc(void *old, size_t n)
{
    size_t had = old ? *(size_t *)((uintptr_t)old - 16) : 0;
    void *p = malloc(n);
    return old ? memcpy(p, old, had < n ? had : n) : p;
}

void free(void *p)
{
    (void)p;
}

void *memcpy(void *to, const void *from, size_t n)
{
    unsigned char *t = to;
    const unsigned char *f = from;
    for (size_t i = 0; i < n; i++) t[i] = f[i];
    return to;
}

void *memset(void *to, int value, size_t n)
{
    unsigned char *t = to;
    for (size_t i = 0; i < n; i++) t[i] = (unsigned char)value;
    return to;
}

size_t strlen(const char *s)
{
    size_t n = 0;
    while (s[n]) n++;
    return n;
}

char *strcat(char *to, const char *from)
{
    memcpy(to + strlen(to), from, strlen(from) + 1);
    return to;
}

int strcmp(const char *a, const char *b)
{
    while (*a && *a == *b) a++, b++;
    return (unsigned char)*a - (unsigned char)*b;
}

static char *put_number(char *at, unsigned long long n)
{
    char digit[24];
    int k = 0;
    do digit[k++] = (char)('0' + n % 10);
    while (n /= 10);
    while (k) *at++ = digit[--k];
    return at;
}

int vsnprintf(char *out, size_t n, const char *format, va_list args)
{
    size_t length = 0;
    for (const char *f = format; *f; f++) {
        char text[64], *end = text;
        const char *from = text;
        if (*f != '%') *end++ = *f;
        else {
            int wide = 0;
            for (f++; *f == 'l' || *f == 'z'; f++) wide = *f; // z: 64 bits
            if (*f == 's') from = va_arg(args, const char *), end = (char *)from + strlen(from);
            else if (*f == 'c') *end++ = (char)va_arg(args, int);
            else if (*f == 'd' || *f == 'u') {
                long long value = wide == 'z' ? (long long)va_arg(args, size_t) : wide ? va_arg(args, long) : va_arg(args, int);
                if (*f == 'd' && value < 0) *end++ = '-', value = -value;
                end = put_number(end, (unsigned long long)value);
            } else if (*f == 'g') {
                double value = va_arg(args, double);
                if (value < 0) *end++ = '-', value = -value;
                end = put_number(end, (unsigned long long)value);
            } else *end++ = *f;
        }
        for (; from < end; from++, length++)
            if (length + 1 < n) out[length] = *from;
    }
    if (n) out[length < n ? length : n - 1] = 0;
    return (int)length;
}

int snprintf(char *out, size_t n, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(out, n, format, args);
    va_end(args);
    return length;
}

// check.h's, for all that is linked.
void check_die(const char *file, int line, const char *format, ...)
{
    (void)file, (void)line;
    char message[600];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    book_die(message);
}
