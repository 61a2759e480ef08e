// fuzz: what the fuzzing targets of this folder share. See doc/fuzz.md.
//
// A target is two functions and a line FUZZ in a file of this folder. All of them are one program with a link for each
// target, whose name chooses. Linked with drive.c it mutates the target's seeds; linked with clang's libFuzzer it is one
// of those. Both call LLVMFuzzerInitialize and LLVMFuzzerTestOneInput, which are in fuzz.c.
#ifndef FUZZ_H
#define FUZZ_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// ---- what a target defines
typedef struct {
    const char *name;
    // Called once before seeds and inputs, or NULL: what is made here outlives the inputs.
    void (*begin)(void);
    // Gives good inputs, by fuzz_seed: the writers of the program are at hand.
    void (*seeds)(void);
    // Gives one input to the parser and frees what it made of it. The parser may die(), with status 1 and one line; then
    // what it held is freed by the guard, and this does not come back.
    void (*one)(const uint8_t *data, size_t n);
} FuzzTarget;

void fuzz_target(FuzzTarget target);
#define FUZZ(name, begin)                                                                                              \
    __attribute__((constructor)) static void list_##name(void)                                                         \
    {                                                                                                                  \
        fuzz_target((FuzzTarget){#name, begin, name##_seeds, name##_one});                                             \
    }

// ---- what it may call
// So many bytes more than usual may be allocated for this input.
void fuzz_allow(size_t n_bytes);
// From here on the parser must not refuse: it is about to read what it has written itself.
void fuzz_must_take(void);
void fuzz_seed(const char *name, const void *data, size_t n);
void fuzz_seed_texts(const char *const *text, int n);
// Adds the file as a seed; a file that is not there is passed over.
void fuzz_seed_file(const char *path);
// Writes a file in a scratch folder of this process, in memory where there is /dev/shm, and returns its path, which
// stays valid. `name` is one of a few.
const char *fuzz_file(const char *name, const void *data, size_t n);
const char *fuzz_dir(void); // the scratch folder
// Cuts the input in two at the first "\n----\n": the first part is [0, result), the second [*second, n).
size_t fuzz_cut(const uint8_t *data, size_t n, size_t *second);
double fuzz_seconds_left(void); // of processor time, for this input
// What must hold whatever the input is. Like assert, and in every build.
#define fuzz_check(cond) ((cond) ? (void)0 : fuzz_fail(#cond))
__attribute__((noreturn)) void fuzz_fail(const char *what);

// ---- what drives it
// Chooses the target that the program's name says.
int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
// Calls `add` for each seed of the target.
void fuzz_each_seed(void (*add)(void *arg, const char *name, const void *data, size_t n), void *arg);
// How many inputs the parser took and how many it refused.
void fuzz_counts(uint64_t *taken, uint64_t *refused);

#endif
