// apart: calls between two processes: that of the tests, which judges, and that of the answer, which computes.
#ifndef APART_H
#define APART_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A function that one process has and the other one calls. course.sh writes the table from the header of the assignment.
// A block has the arguments of a call and its result. Bit w of the masks is about its w-th 8 bytes.
typedef struct {
    void (*run)(void *block); // NULL in the process that calls
    void *function;           // there: sends the call
    size_t block;
    uint64_t pointers, constants; // what is a pointer; what is a pointer to const
} ApartCall;
// A struct by value: each of its words may be a pointer.
#define APART_WORDS(Block, a)                                                                                          \
    (sizeof(((Block *)0)->a) < 8 ? 0 : (((uint64_t)1 << sizeof(((Block *)0)->a) / 8) - 1) << offsetof(Block, a) / 8)
extern const ApartCall apart_call_table[];
extern const int apart_calls;

void apart_call(int call, void *block);
// In the process of the tests, before its first call. become() ends this process and runs the answer's program.
void apart_begin(void (*become)(void));
#endif
