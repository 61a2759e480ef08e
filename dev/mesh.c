// mesh: draws the mesh of a job: which rank stands where, and in which groups.
//
//     build/mesh 16 --pp 2 --tp 2 --cp 2 --ep 2      dp is what is left
#include "check.h"
#include "mesh.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int number(const char *text)
{
    char *end;
    long n = strtol(text, &end, 10);
    if (end == text || *end || n < 1 || n > 4096) die_usage("mesh: '%s' (1 to 4096)", text);
    return (int)n;
}

int main(int argc, char **argv)
{
    const char *key[] = {"--pp", "--cp", "--ep", "--tp"};
    int size[] = {1, 1, 1, 1};
    if (argc < 2 || argc % 2) die_usage("usage: mesh RANKS [--pp N] [--cp N] [--ep N] [--tp N]");
    for (int i = 2; i < argc; i += 2) {
        int k = 0;
        while (k < 4 && strcmp(argv[i], key[k])) k++;
        if (k == 4) die_usage("mesh: no option '%s' (--pp, --cp, --ep, --tp)", argv[i]);
        size[k] = number(argv[i + 1]);
    }
    mesh_print(mesh_shape(number(argv[1]), size[0], size[1], size[2], size[3]), stdout);
    return 0;
}
