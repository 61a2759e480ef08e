// override: an op from a shared library in place of a device's own (numerics.override; doc/override.md).
//
// A library is one file in C, or in CUDA, that includes this header, defines a function with the name and type of an
// entry of ops/dev.h, and says OVERRIDE(name, "fp32 ..."). scripts/override.sh compiles it.
#ifndef OVERRIDE_H
#define OVERRIDE_H
#ifdef __cplusplus
#include <type_traits>

#include "ops/dev_cuda.h"
#else
#include "ops/dev.h"
#endif
#ifdef __cplusplus
extern "C" {
#endif
struct Replicas; // train/replicas.h

// What the file that includes this is compiled for. The library and the program must agree.
#ifndef __cplusplus
#define OVERRIDE_TARGET "the CPU"
#elif defined __CUDACC__
#define OVERRIDE_TARGET "a GPU"
#elif defined __SANITIZE_THREAD__
#define OVERRIDE_TARGET "the emulation's checker"
#else
#define OVERRIDE_TARGET "the emulation"
#endif

typedef struct {
    int version; // DEV_VERSION
    const char *target;
    const char *types; // of X, that the function takes: some of "fp32 bf16 fp16"
} Override;

// In a library, after the function `op`; it does not compile when the function has another type than the entry.
#ifdef __cplusplus
#define OVERRIDE(op, types)                                                                                       \
    static_assert(std::is_same<decltype(&op), decltype(Dev::op)>::value, #op " has not the type that ops/dev.h says"); \
    extern "C" const Override op##_override = {DEV_VERSION, OVERRIDE_TARGET, types}
#else
#define OVERRIDE(op, types)                                                                                       \
    _Static_assert(_Generic(&op, __typeof__(((Dev *)0)->op): 1, default: 0),                                      \
                   #op " has not the type that ops/dev.h says");                                                  \
    const Override op##_override = {DEV_VERSION, OVERRIDE_TARGET, types}
#endif

// Puts the functions that `list` names (OP:FILE,OP:FILE; empty: none) into the table of `dev`, which is the device of a
// program that was compiled for `target`. Dies with one line when that cannot be done.
void override_apply(Dev *dev, const char *list, const char *target);
// Whether numerics.check (both: dev_check.h) has seen each op of `list` called, on some rank; says which it has not.
// Collective.
bool override_judged(const Dev *both, const char *list, struct Replicas *all);

#ifdef __cplusplus
}
#endif
#endif
