// mem: the allocator of all large memory.
//
// Every block has a tag, so that "how many bytes of what does this rank hold" is a fact and not an estimate. Training
// seals the allocator after its warm-up step: an allocation after that is a bug and stops the program.
#ifndef MEM_H
#define MEM_H
#include <stdbool.h>
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    MEM_PARAMS,  // weights
    MEM_GRADS,   // fp32 gradient accumulators
    MEM_OPTIM,   // optimizer state
    MEM_ACTS,    // activations saved by forward for backward
    MEM_COMM,    // communication buffers
    MEM_SCRATCH, // temporaries of ops, loader and sampler
    MEM_HOST,    // memory of the host that holds what was moved out of the device's (offload.h)
    MEM_TAGS
} MemTag;

// One row an allocation; `tag_bytes` counts what was asked for (not what the allocator rounds it to).
typedef struct {
    void *ptr;
    size_t n_bytes;
    MemTag tag;
    bool host; // not of raw_alloc
    char what[40];
} MemBlock;

typedef struct {
    size_t tag_bytes[MEM_TAGS], tag_peak[MEM_TAGS]; // bytes held now, and the highest so far
    size_t bytes, peak;                             // over all tags
    MemBlock *block;
    size_t n_blocks, cap_blocks;
    bool sealed;
    void *(*raw_alloc)(size_t n_bytes); // zeroed memory; NULL: 64-byte aligned host memory
    void (*raw_free)(void *ptr);
    bool device; // raw_alloc's is a device's, which the host does not read: MEM_HOST takes the host's
} Mem;

// Zeroed memory of n_bytes; dies with the tag, `what` and the size when there is none left.
void *mem_alloc(Mem *mem, MemTag tag, size_t n_bytes, const char *what);
// The same for what the host alone reads and writes, also where raw_alloc's memory is a device's.
void *mem_alloc_host(Mem *mem, MemTag tag, size_t n_bytes, const char *what);
void mem_free(Mem *mem, void *ptr); // NULL is allowed
// From here on mem_alloc dies. mem_free_all gives everything back and ends the seal.
void mem_seal(Mem *mem);
void mem_free_all(Mem *mem);
const char *mem_tag_name(MemTag tag);

#ifdef __cplusplus
}
#endif
#endif
