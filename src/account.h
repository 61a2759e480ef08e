// account: what a run holds in memory, as JSON. Layer 0.
//
// The plan (build/plan memory --json) and the run (account.json) write the same object with the same keys,
// so that the two can be compared by a program.
#ifndef ACCOUNT_H
#define ACCOUNT_H
#include "mem.h"

#include <stdio.h>
#ifdef __cplusplus
extern "C" {
#endif

// {"parameters": BYTES, ..., "scratch": BYTES, "total": BYTES, "peak": BYTES} and a newline: the bytes held
// by tag, their sum, and the highest sum so far.
void account_print(const Mem *mem, FILE *out);
// Writes {"memory": that object} to path; dies when that fails.
void account_write(const Mem *mem, const char *path);

#ifdef __cplusplus
}
#endif
#endif
