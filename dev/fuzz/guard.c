// Not a parser: does what the guard (fuzz.c) must see, one thing for each first byte. test/test_fuzz.sh looks whether
// it does.
#include "fuzz.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"

static void guard_seeds(void)
{
    fuzz_seed("fine", "k", 1);
}

static void spin(void)
{
    while (fuzz_seconds_left() > 0) {}
}

static void guard_one(const uint8_t *data, size_t n)
{
    static void *map;
    unsigned char resident;
    char *volatile held = malloc(100);
    switch (n ? data[0] : 0) {
    case 'd': // refused, with memory, two files and a mapping in hand: as it should be
        if (map && mincore(map, 4096, &resident) == 0) abort(); // the one of the refusal before
        map = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (map == MAP_FAILED) abort();
        die("x: refused: %d %d", open("/dev/null", O_RDONLY) < 0, fopen("/dev/null", "r") == NULL);
    case 'l': held = malloc(50); break; // leaks the first
    case 'm': free(held), held = malloc((size_t)1 << 30); break;
    case 'g': // grows step by step
        for (size_t i = 1; i < 300; i++) held = realloc(held, i << 20);
        break;
    case 'f': if (open("/dev/null", O_RDONLY) < 0) abort(); break;
    case 'a': if (mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED) abort(); break;
    case 'e': exit(3);
    case '2':
        fputs("error: a line before the line\n", stderr);
        die("x: no");
    case 't':
        fputs("error: \x1B[2J\n", stderr);
        exit(1);
    case 'q': exit(1); // without a word
    case 's': spin(); break;
    case 'w': fuzz_must_take(), die("x: no");
    case 'c': fuzz_check(n > 1000000); break;
    case 'z': raise(SIGSEGV); break;
    default: break;
    }
    free(held);
}

FUZZ(guard, NULL)
