// mem: the allocator of all large memory. See mem.h.
//
// The invariant: tag_bytes is the sum of n_bytes over the rows of `block` with that tag, at every moment.
// The table is searched linearly: a run has a few dozen large blocks, never thousands.
#include "base/mem.h"

#include "base/check.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const char *const tag_names[MEM_TAGS] = {
    [MEM_PARAMS] = "parameters", [MEM_GRADS] = "gradients", [MEM_OPTIM] = "optimizer",
    [MEM_ACTS] = "activations", [MEM_COMM] = "communication", [MEM_SCRATCH] = "scratch",
    [MEM_HOST] = "host",
};

const char *mem_tag_name(MemTag tag)
{
    return tag_names[tag];
}

// Aligned to 64 bytes for SIMD. From 4 MiB on aligned to 2 MiB and marked for huge pages, which need fewer TLB entries.
static void *host_alloc(size_t n_bytes)
{
    size_t huge = 2u << 20, align = n_bytes >= 2 * huge ? huge : 64;
    if (n_bytes > SIZE_MAX - align) return NULL;
    size_t rounded = (n_bytes + align - 1) / align * align;
    void *ptr = aligned_alloc(align, rounded);
    if (!ptr) return NULL;
#ifdef MADV_HUGEPAGE
    if (align == huge) madvise(ptr, rounded, MADV_HUGEPAGE);
#endif
    memset(ptr, 0, rounded);
    return ptr;
}

static void *take(Mem *mem, MemTag tag, size_t n_bytes, const char *what, bool host)
{
    if (mem->sealed)
        die("memory: %s: %zu bytes of %s asked for after the warm-up step; allocate it at the start",
            what, n_bytes, mem_tag_name(tag));
    void *(*alloc)(size_t) = mem->raw_alloc && !host ? mem->raw_alloc : host_alloc;
    void *ptr = alloc(n_bytes ? n_bytes : 1);
    if (!ptr)
        die("memory: no %.1f MiB left for %s (%s), %.1f MiB held so far (try a smaller batch.micro or model)",
            n_bytes / 1048576.0, what, mem_tag_name(tag), mem->bytes / 1048576.0);
    if (mem->n_blocks == mem->cap_blocks) {
        mem->cap_blocks = mem->cap_blocks ? 2 * mem->cap_blocks : 32;
        mem->block = realloc(mem->block, mem->cap_blocks * sizeof *mem->block);
        if (!mem->block) die("memory: no room for the table of %zu blocks", mem->cap_blocks);
    }
    MemBlock *row = &mem->block[mem->n_blocks++];
    *row = (MemBlock){.ptr = ptr, .n_bytes = n_bytes, .tag = tag, .host = host};
    snprintf(row->what, sizeof row->what, "%s", what);
    mem->tag_bytes[tag] += n_bytes;
    mem->bytes += n_bytes;
    if (mem->tag_bytes[tag] > mem->tag_peak[tag]) mem->tag_peak[tag] = mem->tag_bytes[tag];
    if (mem->bytes > mem->peak) mem->peak = mem->bytes;
    return ptr;
}

void *mem_alloc(Mem *mem, MemTag tag, size_t n_bytes, const char *what)
{
    return take(mem, tag, n_bytes, what, mem->device && tag == MEM_HOST);
}

void *mem_alloc_host(Mem *mem, MemTag tag, size_t n_bytes, const char *what)
{
    return take(mem, tag, n_bytes, what, mem->device);
}

void mem_free(Mem *mem, void *ptr)
{
    if (!ptr) return;
    for (size_t i = 0; i < mem->n_blocks; i++) {
        if (mem->block[i].ptr != ptr) continue;
        MemTag tag = mem->block[i].tag;
        mem->tag_bytes[tag] -= mem->block[i].n_bytes;
        mem->bytes -= mem->block[i].n_bytes;
        void (*release)(void *) = mem->raw_free && !mem->block[i].host ? mem->raw_free : free;
        mem->block[i] = mem->block[--mem->n_blocks];
        release(ptr);
        return;
    }
    die("memory: mem_free of %p, which this allocator did not hand out", ptr);
}

void mem_seal(Mem *mem)
{
    mem->sealed = true;
}

void mem_free_all(Mem *mem)
{
    while (mem->n_blocks) mem_free(mem, mem->block[mem->n_blocks - 1].ptr);
    free(mem->block);
    mem->block = NULL;
    mem->cap_blocks = 0;
    mem->sealed = false;
}
