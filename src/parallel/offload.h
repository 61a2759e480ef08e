// offload: a store for state that does not fit into device memory, used item by item.
//
// Items are ranges of bytes, one per unit (its optimizer state, its weights), in host memory or in a file. A few slots
// of device memory, each as large as the largest item, hold the items in use. While the caller works on one item, the
// next one is read and the last one is written back (double buffering). For all items in turn, with any number of
// slots:
//
//     for (int i = 0; i < n; i++) {
//         void *state = offload_wait(o, i);      // reads it now if it was not fetched
//         if (i + 1 < n) offload_fetch(o, i + 1);
//         work(state);
//         offload_release(o, i, true);           // true: it was changed
//     }
//
// One thread makes all calls. Errors of the store die with one line; those of the background thread at the next call.
#ifndef OFFLOAD_H
#define OFFLOAD_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ops/dev.h"
#include "base/config.h"
#include "base/mem.h"
#include "train/optim.h"

#include <sys/types.h>
#ifdef __cplusplus
extern "C" {
#endif

enum { OFFLOAD_MAX_SLOTS = 16, OFFLOAD_BLOCK = 4096 };

// How the file is reached: pread and pwrite, but for tests.
typedef struct {
    ssize_t (*read)(void *self, int fd, void *data, size_t n_bytes, off_t at);
    ssize_t (*write)(void *self, int fd, const void *data, size_t n_bytes, off_t at);
    void *self;
} OffloadIo;

typedef struct {
    OffloadMode mode;    // OFFLOAD_CPU: host memory, or OFFLOAD_DISK: a file
    const char *path;    // of the file. It must not exist, and offload_create takes its name away: others cannot remove
                         // or cut it, and it is gone with the process. NULL: no file and no thread, for a plan; only
                         // offload_free and offload_describe may follow
    const size_t *sizes; // (n_items) bytes of each; 0 is allowed
    int n_items, n_slots; // 0 slots: items are only lent in place (OFFLOAD_CPU)
    Mem *mem;            // where the slots come from, with
    MemTag tag;          // this tag
    Mem *host;           // where host memory comes from, tag MEM_HOST; NULL: mem. A GPU's hands out pinned memory
    Dev *dev;            // copies between host memory and the slots (to_device, to_host); NULL: slots are host memory
    const char *what;    // name of the buffers in the allocator's table; NULL: "offload"
    const OffloadIo *io; // NULL: pread and pwrite. Called by the store's own thread, and by the caller's in
                         // offload_create, offload_read and offload_write
} OffloadSettings;

// Since creation. Bytes are those of items, without the padding of the file.
typedef struct {
    uint64_t reads, writes, bytes_read, bytes_written;
    double read_seconds, write_seconds; // the store was busy, copies between slots and host memory included
    double waited_seconds;              // the caller stood still for it
} OffloadCount;

typedef struct Offload Offload;

// All items are zero. Dies when the file cannot be made, or when the disk has no space for it: its blocks are reserved
// here, not in the middle of a run. Nothing is allocated later. Call offload_free before mem_free_all; it discards what
// was not flushed. offload_free(NULL) is allowed.
Offload *offload_create(const OffloadSettings *set);
void offload_free(Offload *o);

// A prefetch: starts to read the item, if a slot is free or will be when it has been written back. Never waits. True:
// the item is in a slot, or is being read.
bool offload_fetch(Offload *o, int item);
// The item's bytes in device memory, aligned to OFFLOAD_BLOCK, the caller's until offload_release. Waits for the read,
// and starts it if there was no fetch; it may take the slot of an item that was fetched and not yet waited for. Waiting
// for an item twice gives the same pointer, and needs two releases. At most n_slots items may be in use at a time.
void *offload_wait(Offload *o, int item);
// dirty: the bytes were changed, and are written back in the background.
void offload_release(Offload *o, int item, bool dirty);
// The store in the form that the optimizer uses (optim.h); an empty one for NULL.
OptimStore offload_lender(Offload *o);
// The same for a host that works on the items itself (OFFLOAD_CPU): each is lent where the store keeps it. No slot is
// taken, nothing is copied or counted. Of an item that is lent here no slot may be in use.
OptimStore offload_lender_in_place(Offload *o);
// Waits until all released items are in the store. It is no fsync: the store does not outlive the process.
void offload_flush(Offload *o);

// Bytes [at, at + n_bytes) of an item, for checkpoints and first values: host memory, at once, without lending. The
// item must not be lent, and a slot must be free or only fetched ahead. Flushes first. Not counted.
void offload_read(Offload *o, int item, size_t at, void *host_dst, size_t n_bytes);
void offload_write(Offload *o, int item, size_t at, const void *host_src, size_t n_bytes);

// From now on what is written gets a checksum (XXH3, 64 bits), and is compared with it when it is read again: a torn
// or overwritten file is an error that names file and offset. Flushes first.
void offload_set_checked(Offload *o, bool checked);

OffloadCount offload_count(Offload *o);
// The fraction of the store's time for which the caller did not wait, 0 to 1; 0 when there was none.
double offload_hidden(const OffloadCount *count);
// Bytes that offload_create asks for with set->tag: n_slots times the largest item, in whole blocks, + OFFLOAD_BLOCK
// to align them; 0 for no slots.
size_t offload_slot_bytes(const size_t *sizes, int n_items, int n_slots);
// Bytes it asks for with tag MEM_HOST: OFFLOAD_CPU the sum of sizes; OFFLOAD_DISK none without a dev, and with one as
// many as offload_slot_bytes.
size_t offload_host_bytes(const OffloadSettings *set);
// For a log: "3 items, 1.5 MiB, in a file with O_DIRECT, 2 slots of 0.6 MiB".
void offload_describe(const Offload *o, char *text, size_t n_text);

#ifdef __cplusplus
}
#endif
#endif
