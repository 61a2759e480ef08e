// Tests of mem: the accounting by tag (held and peak), alignment and zeroing, the sealed allocator, and the three
// ways to die.
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/test.h"

#include "expect_die.h"

// The invariant of mem.c, recounted from the rows.
static void assert_consistent(const Mem *mem)
{
    size_t tag_bytes[MEM_TAGS] = {0}, bytes = 0;
    for (size_t i = 0; i < mem->n_blocks; i++) {
        tag_bytes[mem->block[i].tag] += mem->block[i].n_bytes;
        bytes += mem->block[i].n_bytes;
    }
    assert_memory_equal(tag_bytes, mem->tag_bytes, sizeof tag_bytes);
    assert_int_equal(bytes, mem->bytes);
    for (int t = 0; t < MEM_TAGS; t++) assert_true(mem->tag_peak[t] >= mem->tag_bytes[t]);
    assert_true(mem->peak >= mem->bytes);
}

TEST(test_accounting)
{
    Mem mem = {0};
    void *weights = mem_alloc(&mem, MEM_PARAMS, 1000, "weights");
    void *acts = mem_alloc(&mem, MEM_ACTS, 333, "acts");
    void *more = mem_alloc(&mem, MEM_ACTS, 7, "more");
    assert_consistent(&mem);
    assert_int_equal(mem.tag_bytes[MEM_PARAMS], 1000); // what was asked for, not what it was rounded to
    assert_int_equal(mem.tag_bytes[MEM_ACTS], 340);
    assert_int_equal(mem.bytes, 1340);
    mem_free(&mem, acts);
    assert_consistent(&mem);
    assert_int_equal(mem.tag_bytes[MEM_ACTS], 7);
    assert_int_equal(mem.tag_peak[MEM_ACTS], 340);
    mem_free(&mem, NULL);
    assert_int_equal(mem.bytes, 1007);
    mem_free(&mem, weights);
    mem_free(&mem, more);
    assert_consistent(&mem);
    assert_int_equal(mem.bytes, 0);
    assert_int_equal(mem.n_blocks, 0);
    assert_int_equal(mem.peak, 1340);
    void *grads = mem_alloc(&mem, MEM_GRADS, 2000, "grads"); // a new high
    assert_int_equal(mem.peak, 2000);
    assert_int_equal(mem.tag_peak[MEM_GRADS], 2000);
    assert_int_equal(mem.tag_peak[MEM_ACTS], 340);
    mem_free(&mem, grads);
    mem_alloc(&mem, MEM_GRADS, 10, "few"); // peaks stay
    assert_int_equal(mem.peak, 2000);
    assert_int_equal(mem.tag_peak[MEM_GRADS], 2000);
    mem_free_all(&mem);
    assert_consistent(&mem);
}

// More rows than the table's first size, freed from the middle: rows are found by pointer.
TEST(test_many_blocks)
{
    enum { N = 100 };
    Mem mem = {0};
    void *ptr[N];
    for (size_t i = 0; i < N; i++) {
        char what[64];
        snprintf(what, sizeof what, "block %zu, with a name that is longer than its row holds", i);
        ptr[i] = mem_alloc(&mem, (MemTag)(i % MEM_TAGS), i + 1, what);
        memset(ptr[i], 0xee, i + 1);
    }
    assert_int_equal(mem.bytes, N * (N + 1) / 2);
    assert_consistent(&mem);
    for (size_t i = 0; i < N; i += 2) mem_free(&mem, ptr[i]);
    assert_consistent(&mem);
    assert_int_equal(mem.n_blocks, N / 2);
    assert_int_equal(mem.bytes, (N / 2) * (N / 2 + 1)); // the even sizes: 2 + 4 + ... + N
    mem_free_all(&mem);
    assert_int_equal(mem.bytes, 0);
}

// Zeroed and 64-byte aligned, at sizes about the borders of rounding and of huge pages.
TEST(test_zeroed_and_aligned)
{
    static const size_t sizes[] = {0, 1, 63, 64, 65, 4096, (4u << 20) - 1, 4u << 20, (4u << 20) + 1};
    Mem mem = {0};
    for (int round = 0; round < 2; round++) { // the second time the allocator hands out used memory
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            unsigned char *ptr = mem_alloc(&mem, MEM_SCRATCH, sizes[s], "zeros");
            assert_non_null(ptr);
            assert_int_equal((uintptr_t)ptr % 64, 0);
            for (size_t i = 0; i < sizes[s]; i++)
                if (ptr[i]) fail_msg("byte %zu of %zu is not zero", i, sizes[s]);
            if (sizes[s]) memset(ptr, 0xee, sizes[s]);
        }
        mem_free_all(&mem);
    }
}

static int alloc_after_seal(void *arg)
{
    (void)arg;
    Mem mem = {0};
    mem_alloc(&mem, MEM_PARAMS, 8, "weights");
    mem_seal(&mem);
    mem_alloc(&mem, MEM_ACTS, 12345, "latecomer");
    return 0;
}

static int alloc_too_much(void *arg)
{
    (void)arg;
    Mem mem = {0};
    mem_alloc(&mem, MEM_OPTIM, SIZE_MAX - 100, "moments");
    return 0;
}

static int free_unknown(void *arg)
{
    (void)arg;
    Mem mem = {0};
    int not_ours;
    mem_free(&mem, &not_ours);
    return 0;
}

TEST(test_dies)
{
    expect_die(alloc_after_seal, NULL, "latecomer: 12345 bytes of activations asked for after the warm-up step");
    expect_die(alloc_too_much, NULL, "left for moments (optimizer)");
    expect_die(free_unknown, NULL, "mem_free");
}

// Freeing behind the sealed door is allowed, and mem_free_all opens the door.
TEST(test_seal)
{
    Mem mem = {0};
    void *ptr = mem_alloc(&mem, MEM_COMM, 10, "buffer");
    mem_seal(&mem);
    assert_true(mem.sealed);
    mem_free(&mem, ptr);
    assert_int_equal(mem.bytes, 0);
    mem_free_all(&mem);
    assert_false(mem.sealed);
    mem_alloc(&mem, MEM_COMM, 10, "again");
    mem_free_all(&mem);
}

// A device's own allocator: it gets every request, and every block back.
static int device_blocks; // what the device below holds

static void *counting_alloc(size_t n_bytes)
{
    size_t *ptr = calloc(1, n_bytes + sizeof(size_t));
    if (ptr) *ptr = n_bytes;
    device_blocks++;
    return ptr;
}

static void counting_free(void *ptr)
{
    device_blocks--;
    free(ptr);
}

static void *failing_alloc(size_t n_bytes)
{
    (void)n_bytes;
    return NULL;
}

static int device_is_full(void *arg)
{
    (void)arg;
    Mem mem = {.raw_alloc = failing_alloc, .raw_free = free};
    mem_alloc(&mem, MEM_GRADS, 1, "grads");
    return 0;
}

TEST(test_raw_allocator)
{
    Mem mem = {.raw_alloc = counting_alloc, .raw_free = counting_free};
    size_t *ptr = mem_alloc(&mem, MEM_GRADS, 48, "grads");
    assert_int_equal(*ptr, 48);
    mem_free(&mem, mem_alloc(&mem, MEM_ACTS, 1, "acts"));
    assert_int_equal(device_blocks, 1);
    mem_alloc(&mem, MEM_HOST, 8, "a door without a device counts this too");
    assert_int_equal(device_blocks, 2);
    mem_free_all(&mem);
    mem.device = true;
    void *host = mem_alloc(&mem, MEM_HOST, 8, "what was moved out");
    assert_int_equal(device_blocks, 0);
    mem_free(&mem, host);
    mem_alloc(&mem, MEM_HOST, 8, "what was moved out");
    mem_alloc(&mem, MEM_ACTS, 8, "acts");
    assert_int_equal(device_blocks, 1);
    mem_free_all(&mem);
    assert_int_equal(device_blocks, 0);
    expect_die(device_is_full, NULL, "left for grads (gradients)");
}

TEST(test_tag_names)
{
    for (int a = 0; a < MEM_TAGS; a++) {
        assert_non_null(mem_tag_name((MemTag)a));
        for (int b = 0; b < a; b++) assert_string_not_equal(mem_tag_name((MemTag)a), mem_tag_name((MemTag)b));
    }
}

TESTS(NULL, NULL)
