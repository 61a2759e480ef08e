// mem: the allocator of all large memory.
//
// Every block has a tag, so the bytes that this rank holds of each kind (weights, gradients, activations, ...) are
// counted, not estimated. Training seals the allocator after its first step: a later allocation is a bug and dies.
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
    MEM_HOST,    // host memory that holds what was offloaded from the device (offload.h)
    MEM_TAGS
} MemTag;

// One row per allocation. `tag_bytes` counts the bytes requested, before rounding.
typedef struct {
    void *ptr;
    size_t n_bytes;
    MemTag tag;
    bool host; // host memory, although raw_alloc is set
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
    bool device; // what raw_alloc gives, if there is one, the host cannot read: MEM_HOST then takes host memory
} Mem;

// Zeroed memory of n_bytes; dies with the tag, `what` and the size when there is none left.
void *mem_alloc(Mem *mem, MemTag tag, size_t n_bytes, const char *what);
// The same for memory that only the host reads and writes: host memory, also where raw_alloc gives device memory.
void *mem_alloc_host(Mem *mem, MemTag tag, size_t n_bytes, const char *what);
void mem_free(Mem *mem, void *ptr); // NULL is allowed
// After mem_seal every mem_alloc dies. mem_free_all frees everything and removes the seal.
void mem_seal(Mem *mem);
void mem_free_all(Mem *mem);
const char *mem_tag_name(MemTag tag);

#ifdef __cplusplus
}
#endif
#endif
