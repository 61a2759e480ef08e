// check: die() and its kin. See check.h for the contract.
#include "check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The launcher's rank: Hydra, Open MPI, torchrun and SLURM in that order; NULL when there is none.
static const char *launcher_rank(void)
{
    const char *names[] = {"PMI_RANK", "OMPI_COMM_WORLD_RANK", "RANK", "SLURM_PROCID"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i])) return getenv(names[i]);
    return NULL;
}

void check_die(const char *file, int line, const char *fmt, ...)
{
    char message[2048];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    const char *base = strrchr(file, '/') ? strrchr(file, '/') + 1 : file, *rank = launcher_rank();
    fflush(stdout);
    if (rank) fprintf(stderr, "error: %s [%s:%d, rank %s]\n", message, base, line, rank);
    else fprintf(stderr, "error: %s [%s:%d]\n", message, base, line);
    exit(1);
}

void check_die_usage(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fprintf(stderr, "error: ");
    vfprintf(stderr, fmt, args);
    fprintf(stderr, "\n");
    va_end(args);
    exit(2);
}
