// test_base: the room base: accounting of memory, the words of errors, the table of parameters, random numbers.
#include "test/test.h"

#include "base/mem.h"
#include "expect_die.h"
#include "base/check.h"
#include "base/params.h"
#include "base/rng.h"

#include <jansson.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>

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

TEST(test_dies)
{
    expect_dies("latecomer: 12345 bytes of activations asked for after the warm-up step", {
        Mem mem = {0};
        mem_alloc(&mem, MEM_PARAMS, 8, "weights");
        mem_seal(&mem);
        mem_alloc(&mem, MEM_ACTS, 12345, "latecomer");
    });
    expect_dies("left for moments (optimizer)", {
        Mem mem = {0};
        mem_alloc(&mem, MEM_OPTIM, SIZE_MAX - 100, "moments");
    });
    expect_dies("mem_free", {
        Mem mem = {0};
        int not_ours;
        mem_free(&mem, &not_ours);
    });
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
    expect_dies("left for grads (gradients)", {
        Mem mem = {.raw_alloc = failing_alloc, .raw_free = free};
        mem_alloc(&mem, MEM_GRADS, 1, "grads");
    });
}

TEST(test_tag_names)
{
    for (int a = 0; a < MEM_TAGS; a++) {
        assert_non_null(mem_tag_name((MemTag)a));
        for (int b = 0; b < a; b++) assert_string_not_equal(mem_tag_name((MemTag)a), mem_tag_name((MemTag)b));
    }
}

// ---- check: what die() prints, whatever the message holds.

static int die_with(void *arg)
{
    die("x: %s: no good", (char *)arg);
}

static int die_usage_with(void *arg)
{
    die_usage("x: %s: no good", (char *)arg);
}

static int warn_of(void *arg)
{
    check_warn("x: %s: no good", (char *)arg);
    return 3;
}

TEST(test_one_line)
{
    char plain[] = "caf\xC3\xA9";
    assert_true(ends_with_error(die_with, plain, 1, "error: x: caf\xC3\xA9: no good [test_base.c:", true));
    assert_true(ends_with_error(die_usage_with, plain, 2, "error: x: caf\xC3\xA9: no good", true));
}

// Messages quote what files say. A file must not be able to write a line of its own, nor to command the terminal.
TEST(test_no_control)
{
    char hostile[] = "a\nerror: b\r\x1B[2J\x7F\tc";
    assert_true(ends_with_error(die_with, hostile, 1, "x: a?error: b??[2J?\tc: no good", true));
    assert_true(ends_with_error(die_usage_with, hostile, 2, "x: a?error: b??[2J?\tc: no good", true));
    char text[200];
    Child c = child_begin();
    if (c.pid == 0) exit(warn_of(hostile));
    assert_int_equal(child_end(c, text, sizeof text), 3);
    assert_string_equal(text, "warning: x: a?error: b??[2J?\tc: no good\n");
}

static void *fail_together(void *barrier)
{
    pthread_barrier_wait(barrier);
    die("thread: no good");
}

static int die_in_threads(void *arg)
{
    pthread_barrier_t barrier;
    pthread_t thread[8];
    (void)arg;
    pthread_barrier_init(&barrier, NULL, 8);
    for (int i = 0; i < 8; i++)
        if (pthread_create(&thread[i], NULL, fail_together, &barrier)) return 98;
    for (int i = 0; i < 8; i++) pthread_join(thread[i], NULL);
    return 97;
}

// Several threads fail at once, as they do without memory: one line, and the end.
TEST(test_threads)
{
    for (int i = 0; i < 20; i++) expect_die(die_in_threads, NULL, "error: thread: no good");
}

#ifndef __has_feature
#define __has_feature(what) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
enum { SANITIZED = 1 }; // its allocator ends the program itself
#else
enum { SANITIZED = 0 };
#endif

static int die_without_memory(void *arg)
{
    json_malloc_t allocate;
    json_free_t release;
    (void)arg;
    json_get_alloc_funcs(&allocate, &release);
    return allocate(SIZE_MAX / 2) != NULL;
}

TEST(test_json_without_memory)
{
    if (SANITIZED) skip();
    expect_die(die_without_memory, NULL, "memory: no room for 9223372036854775807 bytes of a JSON text");
}

// A rank names itself in a job of several, whichever launcher started it; a process alone does not.
TEST(test_ranks)
{
    const char *name[][2] = {{"PMI_RANK", "PMI_SIZE"}, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                             {"RANK", "WORLD_SIZE"}, {"SLURM_PROCID", "SLURM_NTASKS"}};
    char text[300];
    for (int i = 0; i < 4; i++) unsetenv(name[i][0]), unsetenv(name[i][1]);
    for (int i = 0; i < 4; i++)
        for (int size = 1; size <= 3; size++) {
            char number[12];
            snprintf(number, sizeof number, "%d", size);
            setenv(name[i][0], "0", 1);
            setenv(name[i][1], number, 1);
            assert_int_equal(run_child(die_with, "a", text, sizeof text), 1);
            assert_true((strstr(text, "rank 0") != NULL) == (size > 1));
            unsetenv(name[i][1]); // a rank of nothing
            assert_int_equal(run_child(die_with, "a", text, sizeof text), 1);
            assert_null(strstr(text, "rank 0"));
            unsetenv(name[i][0]);
        }
}

// Ranks that share a voice: the first one prints, whichever it is; each ends with its own status.
TEST(test_one_voice)
{
    char text[300];
    for (int first = 0; first < 2; first++) {
        int *voice = mmap(NULL, sizeof *voice, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        assert_true(voice != MAP_FAILED);
        check_share_voice(voice);
        setenv("PMI_SIZE", "2", 1);
        setenv("PMI_RANK", first ? "1" : "0", 1);
        assert_int_equal(run_child(die_with, "a", text, sizeof text), 1);
        assert_non_null(strstr(text, first ? "rank 1: error: x: a" : "rank 0: error: x: a"));
        setenv("PMI_RANK", first ? "0" : "1", 1);
        assert_int_equal(run_child(die_usage_with, "b", text, sizeof text), 2);
        assert_string_equal(text, "");
        check_share_voice(NULL);
        munmap(voice, sizeof *voice);
    }
    unsetenv("PMI_RANK"), unsetenv("PMI_SIZE");
}

// ---- params: the layout (order, offsets, unit ranges), names that are unique, and an initialisation
// in which every element depends only on (seed, tensor name, index).

enum { ROWS = 7 };

// A model in small: an embedding, two blocks of a matrix and a vector, a final norm and a head. Sizes are odd
// on purpose.
static Params small_table(void)
{
    Params params = {0};
    params_add(&params, 0, "embed.tokens.weight", 2, 33, 7, 0, 0.02f, true, 0);
    for (int i = 0; i < 2; i++) {
        char name[PARAM_NAME];
        snprintf(name, sizeof name, "layers.%d.attn.q.weight", i);
        params_add(&params, 1 + i, name, 2, 7, 5, 0, 0.5f, true, 0);
        snprintf(name, sizeof name, "layers.%d.attn_norm.weight", i);
        params_add(&params, 1 + i, name, 1, 7, 99, 1, 0, false, -1); // dim1 of a vector is not looked at
    }
    params_add(&params, 3, "final_norm.bias", 1, 7, 1, 0, 0, false, -1);
    params_add(&params, 3, "head.weight", 2, 33, 7, 0.25f, 0.02f, true, 1);
    return params;
}

TEST(test_layout)
{
    Params params = small_table();
    assert_int_equal(params.n_rows, ROWS);
    assert_int_equal(params.n_units, 4);
    size_t offset = 0;
    for (int i = 0; i < params.n_rows; i++) {
        const Param *row = &params.row[i];
        assert_int_equal(params_place(&params, row),
                         row->unit == 0 ? PARAM_OF_EMBEDDING : row->unit == 3 ? PARAM_OF_HEAD : PARAM_OF_BLOCK);
        assert_int_equal(row->offset, offset); // back to back
        assert_int_equal(row->n_elems, row->dim[0] * row->dim[1]);
        if (row->ndim == 1) assert_int_equal(row->dim[1], 1);
        offset += row->n_elems;
    }
    assert_int_equal(params.n_elems, offset);
    assert_int_equal(params.n_elems, 33 * 7 + 2 * (7 * 5 + 7) + 7 + 33 * 7);
    const Param *head = &params.row[ROWS - 1];
    params.no_embedding = params.no_head = true; // a stage of blocks alone
    assert_int_equal(params_place(&params, &params.row[0]), PARAM_OF_BLOCK);
    assert_int_equal(params_place(&params, head), PARAM_OF_BLOCK);
    assert_string_equal(head->name, "head.weight");
    assert_true(head->decay && head->cut == 1 && head->unit == 3 && head->ndim == 2);
    assert_true(head->init_mean == 0.25f && head->init_std == 0.02f);
    assert_true(!params.row[2].decay && params.row[2].cut == -1 && params.row[2].unit == 1);
    params_free(&params);
    assert_int_equal(params.n_rows, 0);
    assert_int_equal(params.n_elems, 0);
}

TEST(test_find)
{
    Params params = small_table();
    for (int i = 0; i < params.n_rows; i++) assert_int_equal(params_find(&params, params.row[i].name), i);
    assert_int_equal(params_find(&params, "layers.2.attn.q.weight"), -1);
    assert_int_equal(params_find(&params, "head"), -1);
    assert_int_equal(params_find(&params, ""), -1);
    params_free(&params);
    assert_int_equal(params_find(&params, "head.weight"), -1);
}

// The units' ranges follow one another and cover the buffer.
TEST(test_unit_ranges)
{
    Params params = small_table();
    size_t expected = 0, begin, end;
    for (int unit = 0; unit < params.n_units; unit++) {
        params_unit_range(&params, unit, &begin, &end);
        assert_int_equal(begin, expected);
        size_t n = 0;
        for (int i = 0; i < params.n_rows; i++) n += params.row[i].unit == unit ? params.row[i].n_elems : 0;
        assert_int_equal(end - begin, n);
        expected = end;
    }
    assert_int_equal(expected, params.n_elems);
    params_free(&params);
}

// Work grows with the rows, not with their square: the limit is 10 s of this process' own time, and the square of
// 200,000 takes minutes. The signal ends the program.
TEST(test_many_units)
{
    enum { UNITS = 20000, ROWS_EACH = 10 };
    struct itimerval limit = {.it_value.tv_sec = 10};
    assert_int_equal(setitimer(ITIMER_VIRTUAL, &limit, NULL), 0);
    Params params = {0};
    for (int i = 0; i < UNITS * ROWS_EACH; i++) {
        char name[PARAM_NAME];
        snprintf(name, sizeof name, "layers.%d.row%d", i / ROWS_EACH, i % ROWS_EACH);
        params_add(&params, i / ROWS_EACH, name, 1, 3, 1, 0, 0, false, -1);
    }
    for (int u = 0; u < UNITS; u++) {
        size_t begin, end;
        params_unit_range(&params, u, &begin, &end);
        assert_int_equal(begin, 3 * ROWS_EACH * (size_t)u);
        assert_int_equal(end - begin, 3 * ROWS_EACH);
    }
    params_free(&params);
    limit.it_value.tv_sec = 0;
    assert_int_equal(setitimer(ITIMER_VIRTUAL, &limit, NULL), 0);
}

TEST(test_params_dies)
{
    expect_dies("strcmp(params->row[i].name, name)", {
        Params params = small_table();
        params_add(&params, 3, "head.weight", 2, 1, 1, 0, 0, true, -1);
    });
    expect_dies("unit >=", {
        Params params = small_table();
        params_add(&params, 1, "layers.0.late", 2, 1, 1, 0, 0, true, -1);
    });
    expect_dies("PARAM_NAME", {
        Params params = {0};
        char name[PARAM_NAME + 1];
        memset(name, 'a', PARAM_NAME);
        name[PARAM_NAME] = 0;
        params_add(&params, 0, name, 1, 1, 1, 0, 0, true, -1);
    });
    expect_dies("ndim", {
        Params params = {0};
        params_add(&params, 0, "cube", 3, 2, 2, 0, 0, true, -1);
    });
    expect_dies("broken invariant", {
        Params params = small_table();
        size_t begin, end;
        params_unit_range(&params, params.n_units, &begin, &end);
    });
}

// Element i of a tensor is init_mean + init_std * rng_normal((seed, name, 0), i), rounded once; std 0 gives
// the constant.
TEST(test_init_formula)
{
    Params params = small_table();
    float *flat = zeroed(params.n_elems * sizeof *flat);
    for (size_t i = 0; i < params.n_elems; i++) flat[i] = NAN; // whatever init leaves out stays NaN
    params_init(&params, 42, flat);
    for (int r = 0; r < params.n_rows; r++) {
        const Param *row = &params.row[r];
        Rng rng = rng_make(42, row->name, 0);
        for (size_t i = 0; i < row->n_elems; i++) {
            double expected = row->init_mean;
            if (row->init_std != 0) expected += row->init_std * rng_normal(rng, i);
            assert_true(flat[row->offset + i] == (float)expected);
        }
    }
    Params one = {0}; // a deviation of 1 is one too
    params_add(&one, 0, "one.weight", 2, 3, 5, 2, 1, true, 0);
    params_init(&one, 42, flat);
    for (size_t i = 0; i < 15; i++) assert_true(flat[i] == (float)(2 + rng_normal(rng_make(42, "one.weight", 0), i)));
    params_free(&one);
    free(flat);
    params_free(&params);
}

// The same names in another order, among other tensors: each tensor gets the same bits. Another seed: other
// bits.
TEST(test_init_ignores_order)
{
    Params a = {0}, b = {0};
    params_add(&a, 0, "x.weight", 2, 9, 11, 0, 0.02f, true, 0);
    params_add(&a, 0, "y.weight", 2, 3, 5, 0, 0.02f, true, 0);
    params_add(&b, 0, "other.bias", 1, 13, 1, 0, 0.02f, false, -1);
    params_add(&b, 0, "y.weight", 2, 3, 5, 0, 0.02f, true, 0);
    params_add(&b, 2, "x.weight", 2, 9, 11, 0, 0.02f, true, 0);
    float *fa = calloc(a.n_elems, sizeof *fa), *fb = calloc(b.n_elems, sizeof *fb), *other;
    other = calloc(a.n_elems, sizeof *other);
    assert_non_null(fa);
    assert_non_null(fb);
    assert_non_null(other);
    params_init(&a, 1, fa);
    params_init(&b, 1, fb);
    params_init(&a, 2, other);
    static const char *const names[] = {"x.weight", "y.weight"};
    for (size_t n = 0; n < 2; n++) {
        const Param *ra = &a.row[params_find(&a, names[n])], *rb = &b.row[params_find(&b, names[n])];
        assert_int_equal(ra->n_elems, rb->n_elems);
        assert_memory_equal(fa + ra->offset, fb + rb->offset, ra->n_elems * sizeof *fa);
        assert_memory_not_equal(fa + ra->offset, other + ra->offset, ra->n_elems * sizeof *fa);
    }
    assert_memory_not_equal(fa, fa + a.row[1].offset, 15 * sizeof *fa); // tensors differ from each other
    free(fa);
    free(fb);
    free(other);
    params_free(&a);
    params_free(&b);
}

// Mean and standard deviation of n draws, within 6 standard errors: s / sqrt(n), and s^2 sqrt(2/n) for the
// variance.
TEST(test_init_moments)
{
    enum { N = 200 * 300 };
    Params params = {0};
    params_add(&params, 0, "w", 2, 200, 300, 0.5f, 0.02f, true, 0);
    float *w = zeroed(N * sizeof *w);
    params_init(&params, 3, w);
    double sum = 0, squares = 0;
    for (size_t i = 0; i < N; i++) {
        sum += w[i] - 0.5;
        squares += (w[i] - 0.5) * (w[i] - 0.5);
    }
    assert_true(fabs(sum / N) <= 6 * 0.02 / sqrt(N));
    assert_true(fabs(squares / N - 0.02 * 0.02) <= 6 * 0.02 * 0.02 * sqrt(2.0 / N));
    free(w);
    params_free(&params);
}

// ---- rng: Philox's published vectors, the map from (seed, name, step, index) to key and counter, the
// distributions against bounds derived from their own variances, and rng_permute as a bijection.

// Known answers of philox4x32 with 10 rounds, from the Random123 distribution (tests/kat_vectors). The
// counter's words are c0, c1 = index; c2 = step; c3 = name; the key's are k0, k1 = seed, low word first.
TEST(test_known_answers)
{
    static const struct {
        uint32_t counter[4], key[2], out[4];
        double normal; // sqrt(-2 ln u) cos(2 pi v) of these words, computed apart in Python
    } row[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}, -0.39766753844418223},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}, -1.4784526040750408},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}, 0.6586447690473304},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        Rng rng = {.seed = (uint64_t)row[i].key[1] << 32 | row[i].key[0], .step = row[i].counter[2],
                   .name = row[i].counter[3]};
        uint32_t out[4];
        rng_words(rng, (uint64_t)row[i].counter[1] << 32 | row[i].counter[0], out);
        assert_memory_equal(out, row[i].out, sizeof out);
        // The first two words are rng_u64, low word first; its top 53 bits are rng_uniform.
        uint64_t index = (uint64_t)row[i].counter[1] << 32 | row[i].counter[0];
        uint64_t bits = (uint64_t)row[i].out[1] << 32 | row[i].out[0];
        assert_true(rng_u64(rng, index) == bits);
        assert_true(rng_uniform(rng, index) == ldexp((double)(bits >> 11), -53));
        // log, sqrt, cos and the angle err by about an ulp each; the angle's (< 2 pi) counts absolutely: 16 u
        // is ample.
        assert_true(fabs(rng_normal(rng, index) - row[i].normal) <= 16 * 0x1p-53 * 2);
    }
}

// Many counters at once are the same words: any number of them, also where the counter's upper half changes.
TEST(test_many)
{
    Rng rng = rng_make(0x123456789abcdef0u, "many", 3);
    static const uint64_t from[] = {0, 5, 0xfffffff9u, UINT64_MAX - 200};
    for (size_t f = 0; f < 4; f++)
        for (size_t n = 0; n < 70; n++) {
            uint32_t out[4 * 70 + 1] = {0}, one[4];
            rng_words_many(rng, from[f], n, out);
            for (size_t i = 0; i < n; i++) {
                rng_words(rng, from[f] + i, one);
                assert_memory_equal(out + 4 * i, one, sizeof one);
            }
            assert_int_equal(out[4 * n], 0); // and nothing behind them
        }
}

// The hash of the name is FNV-1a, 32 bits (its published values for "", "a" and "foobar"): checkpoints'
// random streams depend on it, so it may never change.
TEST(test_make)
{
    assert_true(rng_make(1, "", 0).name == 0x811c9dc5u);
    assert_true(rng_make(1, "a", 0).name == 0xe40c292cu);
    assert_true(rng_make(1, "foobar", 0).name == 0xbf9cf968u);
    Rng rng = rng_make(0x123456789abcdef0u, "a", 77);
    assert_true(rng.seed == 0x123456789abcdef0u && rng.step == 77);
}

// Each of the four arguments changes the number.
TEST(test_arguments_matter)
{
    uint64_t base = rng_u64(rng_make(1, "data", 0), 0);
    assert_true(base == rng_u64(rng_make(1, "data", 0), 0));
    assert_true(base != rng_u64(rng_make(2, "data", 0), 0));
    assert_true(base != rng_u64(rng_make(1ull << 32 | 1, "data", 0), 0));
    assert_true(base != rng_u64(rng_make(1, "datb", 0), 0));
    assert_true(base != rng_u64(rng_make(1, "data", 1), 0));
    assert_true(base != rng_u64(rng_make(1, "data", 0), 1));
    assert_true(base != rng_u64(rng_make(1, "data", 0), 1ull << 32));
}

// The mean of n independent draws of variance s^2 is within 6 s / sqrt(n) of the truth but for 2e-9 of all
// seeds.
static void assert_mean(double sum, double n, double mean, double variance)
{
    double diff = fabs(sum / n - mean), bound = 6 * sqrt(variance / n);
    assert_true(diff <= bound);
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Kolmogorov-Smirnov: P(sqrt(n) sup|F_n - F| > t) <= 2 exp(-2 t^2) (Massart); t = 3.2 gives 2.6e-9. x holds
// F(draw).
static void assert_uniform(double *x, size_t n)
{
    qsort(x, n, sizeof *x, compare_doubles);
    double worst = 0;
    for (size_t i = 0; i < n; i++) {
        double above = (double)(i + 1) / (double)n - x[i], below = x[i] - (double)i / (double)n;
        worst = fmax(worst, fmax(above, below));
    }
    assert_true(worst * sqrt((double)n) <= 3.2);
}

enum { DRAWS = 100000 };

TEST(test_uniform)
{
    Rng rng = rng_make(1, "uniform", 0);
    double *x = malloc(DRAWS * sizeof *x), sum = 0, product = 0;
    assert_non_null(x);
    for (size_t i = 0; i < DRAWS; i++) {
        x[i] = rng_uniform(rng, i);
        assert_true(x[i] >= 0 && x[i] < 1);
        sum += x[i];
        // Neighbours are uncorrelated: their product has mean 0 and variance 1/144.
        if (i) product += (x[i] - 0.5) * (x[i - 1] - 0.5);
    }
    assert_mean(sum, DRAWS, 0.5, 1.0 / 12);
    assert_mean(product, DRAWS - 1, 0, 1.0 / 144);
    assert_uniform(x, DRAWS);
    free(x);
}

// Every bit of the 64 is set half of the time.
TEST(test_bits)
{
    Rng rng = rng_make(2, "bits", 0);
    double ones[64] = {0};
    for (size_t i = 0; i < DRAWS; i++) {
        uint64_t bits = rng_u64(rng, i);
        for (int b = 0; b < 64; b++) ones[b] += bits >> b & 1;
    }
    for (int b = 0; b < 64; b++) assert_mean(ones[b], DRAWS, 0.5, 0.25);
}

// Moments of the standard normal: E x = 0, E x^2 = 1 (variance 2), E x^3 = 0 (15), E x^4 = 3 (96); then its
// whole shape.
TEST(test_normal)
{
    Rng rng = rng_make(3, "normal", 9);
    double *x = malloc(DRAWS * sizeof *x), moment[4] = {0};
    assert_non_null(x);
    for (size_t i = 0; i < DRAWS; i++) {
        double z = rng_normal(rng, i);
        assert_true(isfinite(z));
        moment[0] += z, moment[1] += z * z, moment[2] += z * z * z, moment[3] += z * z * z * z;
        x[i] = 0.5 * erfc(-z / sqrt(2));
    }
    assert_mean(moment[0], DRAWS, 0, 1);
    assert_mean(moment[1], DRAWS, 1, 2);
    assert_mean(moment[2], DRAWS, 0, 15);
    assert_mean(moment[3], DRAWS, 3, 96);
    assert_uniform(x, DRAWS);
    free(x);
}

TEST(test_below)
{
    Rng rng = rng_make(4, "below", 0);
    enum { SIDES = 7 };
    double seen[SIDES] = {0};
    for (size_t i = 0; i < DRAWS; i++) {
        uint64_t side = rng_below(rng, i, SIDES);
        assert_true(side < SIDES);
        seen[side]++;
    }
    for (int s = 0; s < SIDES; s++) assert_mean(seen[s], DRAWS, 1.0 / SIDES, 1.0 / SIDES * (1 - 1.0 / SIDES));
    for (size_t i = 0; i < 100; i++) assert_true(rng_below(rng, i, 1) == 0);
    uint64_t most = 0; // the whole range is reached: 64 draws all in the lower half have chance 2^-64
    for (size_t i = 0; i < 64; i++) {
        uint64_t drawn = rng_below(rng, i, UINT64_MAX);
        if (drawn > most) most = drawn;
    }
    assert_true(most > UINT64_MAX / 2);
}

// Every value of [0, n) is hit exactly once.
TEST(test_permute_is_a_bijection)
{
    static const uint64_t sizes[] = {1, 2, 3, 4, 5, 7, 16, 17, 63, 64, 65, 1000, 4097};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        uint64_t n = sizes[s];
        for (uint32_t step = 0; step < 3; step++) {
            Rng rng = rng_make(5, "epoch", step);
            unsigned char *hit = zeroed(n * 1);
            for (uint64_t i = 0; i < n; i++) {
                uint64_t image = rng_permute(rng, i, n);
                assert_true(image < n);
                assert_int_equal(hit[image], 0);
                hit[image] = 1;
            }
            free(hit);
        }
    }
}

// Sizes too large to list: images stay in range and a sample of them has no repetition (it would break the
// bijection).
TEST(test_permute_large)
{
    static const uint64_t sizes[] = {65537, 1000000007, (1ull << 32) + 1, 1ull << 62, (1ull << 62) + 1,
                                     UINT64_MAX};
    enum { SAMPLE = 2000 };
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        double *image = malloc(SAMPLE * sizeof *image), sum = 0;
        uint64_t *exact = malloc(SAMPLE * sizeof *exact);
        assert_non_null(image);
        assert_non_null(exact);
        for (size_t i = 0; i < SAMPLE; i++) {
            exact[i] = rng_permute(rng_make(6, "epoch", 0), i, sizes[s]);
            assert_true(exact[i] < sizes[s]);
            image[i] = (double)exact[i] / (double)sizes[s];
            sum += image[i];
            for (size_t j = 0; j < i; j++) assert_true(exact[j] != exact[i]);
        }
        assert_mean(sum, SAMPLE, 0.5, 1.0 / 12); // the first indices spread over the whole range
        assert_uniform(image, SAMPLE);
        free(image);
        free(exact);
    }
}

// An epoch's order is neither the identity nor the last epoch's: of n values, the number left in place by a
// random permutation has mean 1 and variance 1, so 10 has a chance below 1e-6.
TEST(test_permute_differs_by_epoch)
{
    enum { N = 1000 };
    int same_as_index = 0, same_as_other = 0;
    for (uint64_t i = 0; i < N; i++) {
        uint64_t a = rng_permute(rng_make(7, "epoch", 0), i, N);
        uint64_t b = rng_permute(rng_make(7, "epoch", 1), i, N);
        same_as_index += a == i;
        same_as_other += a == b;
    }
    assert_true(same_as_index < 10);
    assert_true(same_as_other < 10);
}

// Images computed apart, by a Python version of Philox and the network: the order of a run's data may never
// change.
TEST(test_permute_known_answers)
{
    static const uint64_t small[] = {450, 284, 296, 41}, large[] = {410876919372, 374121262799, 47148423955};
    Rng first = rng_make(7, "epoch", 0), second = rng_make(7, "epoch", 1);
    for (uint64_t i = 0; i < 4; i++) assert_true(rng_permute(first, i, 1000) == small[i]);
    for (uint64_t i = 0; i < 3; i++) assert_true(rng_permute(second, i, 1000000000000) == large[i]);
}

TESTS(NULL, NULL)
