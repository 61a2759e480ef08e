// drive: mutates a target's seeds, where there is no libFuzzer (and in `make test`, which must not need clang).
//
//   build/fuzz/NAME [-runs=N] [-seed=S] [-max_len=N] [-seeds=FOLDER] [FILE...]
//
// Blind mutation: it does not see which lines of the parser an input reaches. So it finds less than libFuzzer does in
// the same number of inputs, and what it finds is in the messages, sizes and offsets near a good file: where our
// readers have most to check. Same seed, same inputs. The input at which the program ends badly is written to
// crash-NAME.
//
// With FILEs, these alone are tried: that is how a crash is looked at again. -seeds writes the seeds to a folder.
#include "fuzz.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/rng.h"

enum { MAX_SEEDS = 256 };

typedef struct {
    uint8_t *bytes;
    size_t n;
} Input;

typedef struct {
    Input seed[MAX_SEEDS], input;
    size_t n, max_len;
    const char *folder, *name;
} Drive;

static Drive *running; // for the handler of signals alone

static void save_input(void)
{
    char path[256];
    snprintf(path, sizeof path, "crash-%s", running->name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd >= 0 && write(fd, running->input.bytes, running->input.n) >= 0) close(fd);
    snprintf(path, sizeof path, "the input is in crash-%s\n", running->name);
    if (write(STDERR_FILENO, path, strlen(path)) < 0) {}
}

static void on_signal(int number)
{
    save_input();
    signal(number, SIG_DFL);
    raise(number);
}

void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

static void catch_the_end(Drive *d)
{
    running = d;
    const int fatal[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++) signal(fatal[i], on_signal);
    if (__sanitizer_set_death_callback) __sanitizer_set_death_callback(save_input);
}

static void add_seed(void *arg, const char *name, const void *data, size_t n)
{
    Drive *d = arg;
    if (d->folder) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", d->folder, name);
        FILE *f = fopen(path, "wb");
        if (!f || fwrite(data, 1, n, f) != n || fclose(f) != 0) exit(1);
    }
    if (d->n == MAX_SEEDS || n > d->max_len) return;
    d->seed[d->n] = (Input){malloc(n + 1), n};
    memcpy(d->seed[d->n++].bytes, data, n);
}

static uint64_t draw(Rng rng, uint64_t *at, uint64_t below)
{
    return rng_below(rng, (*at)++, below);
}

// Moves the tail at `at` by `by` bytes, as far as there is room. Returns where the gap ends.
static size_t open_gap(Input *in, size_t max_len, size_t at, size_t by)
{
    if (by > max_len - in->n) by = max_len - in->n;
    memmove(in->bytes + at + by, in->bytes + at, in->n - at);
    in->n += by;
    return at + by;
}

static void put_number(Rng rng, uint64_t *at, Input *in)
{
    static const uint64_t numbers[] = {0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000,
                                       0xFFFFFFFF, 100000000, 0x7FFFFFFFFFFFFFFF, 0x8000000000000000, UINT64_MAX};
    static const char *const words[] = {"0", "-1", "1e999", "2147483648", "4294967296", "9223372036854775807",
                                        "18446744073709551616", "null", "\"", "../../x", "[[", "\\u0000", "\xff", "{}"};
    uint8_t bytes[32];
    size_t width = (size_t)1 << draw(rng, at, 4), where = in->n ? draw(rng, at, in->n) : 0;
    uint64_t x = numbers[draw(rng, at, sizeof numbers / sizeof *numbers)];
    memcpy(bytes, &x, 8);
    if (draw(rng, at, 2)) {
        const char *word = words[draw(rng, at, sizeof words / sizeof *words)];
        width = strlen(word);
        memcpy(bytes, word, width);
    }
    if (where + width <= in->n) memcpy(in->bytes + where, bytes, width);
}

static void mutate(Drive *d, Rng rng)
{
    uint64_t at = 0;
    Input *in = &d->input;
    const Input *from = &d->seed[draw(rng, &at, d->n)];
    memcpy(in->bytes, from->bytes, in->n = from->n);
    for (uint64_t k = 1 + draw(rng, &at, 4); k; k--) {
        size_t where = in->n ? draw(rng, &at, in->n) : 0, span = 1 + draw(rng, &at, draw(rng, &at, 4) ? 8 : 256);
        size_t end;
        switch (draw(rng, &at, 8)) {
        case 0: if (in->n) in->bytes[where] ^= (uint8_t)(1u << draw(rng, &at, 8)); break;
        case 1: if (in->n) in->bytes[where] = (uint8_t)draw(rng, &at, 256); break;
        case 2: put_number(rng, &at, in); break;
        case 3: // the next digit is another one
            while (where < in->n && (in->bytes[where] < '0' || in->bytes[where] > '9')) where++;
            if (where < in->n) in->bytes[where] = (uint8_t)('0' + draw(rng, &at, 10));
            break;
        case 4: // a stretch goes
            if (span > in->n - where) span = in->n - where;
            memmove(in->bytes + where, in->bytes + where + span, in->n - where - span);
            in->n -= span;
            break;
        case 5: // bytes come in
            for (end = open_gap(in, d->max_len, where, span); where < end; where++)
                in->bytes[where] = draw(rng, &at, 4) ? (uint8_t)" \n\"=0,:{}[]|"[draw(rng, &at, 12)]
                                                     : (uint8_t)draw(rng, &at, 256);
            break;
        case 6: { // a stretch of a seed comes in
            const Input *other = &d->seed[draw(rng, &at, d->n)];
            size_t start = other->n ? draw(rng, &at, other->n) : 0;
            if (span > other->n - start) span = other->n - start;
            end = open_gap(in, d->max_len, where, span);
            memcpy(in->bytes + where, other->bytes + start, end - where);
            break;
        }
        default: in->n = draw(rng, &at, 4) ? in->n : where; // cut off
        }
    }
}

// Each input has a block of its own, so that a sanitizer sees its end.
static void try(Drive *d)
{
    uint8_t *bytes = malloc(d->input.n ? d->input.n : 1);
    if (!bytes) exit(1);
    memcpy(bytes, d->input.bytes, d->input.n);
    LLVMFuzzerTestOneInput(bytes, d->input.n);
    free(bytes);
}

static int try_file(Drive *d, const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) {
        perror(path);
        return 1;
    }
    d->input.n = fread(d->input.bytes, 1, d->max_len, f);
    fclose(f);
    try(d);
    return 0;
}

static double processor_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv)
{
    static Drive d = {.max_len = 1 << 18};
    unsigned long long runs = 1000, seed = 1, value;
    int status = 0, files = 0;
    d.name = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
    for (int i = 1; i < argc; i++) {
        if (sscanf(argv[i], "-runs=%llu", &runs) == 1 || sscanf(argv[i], "-seed=%llu", &seed) == 1) continue;
        if (sscanf(argv[i], "-max_len=%llu", &value) == 1) d.max_len = value;
        else if (!strncmp(argv[i], "-seeds=", 7)) d.folder = argv[i] + 7;
        else files++;
    }
    if (!(d.input.bytes = malloc(d.max_len + 1))) return 1;
    LLVMFuzzerInitialize(&argc, &argv);
    catch_the_end(&d);
    fuzz_each_seed(add_seed, &d);
    if (d.folder || !d.n) return d.folder ? 0 : 1;
    for (int i = 1; i < argc && files; i++)
        if (argv[i][0] != '-') status |= try_file(&d, argv[i]);
    if (files) return status;
    double start = processor_seconds();
    for (size_t i = 0; i < d.n; i++) { // the seeds themselves
        memcpy(d.input.bytes, d.seed[i].bytes, d.input.n = d.seed[i].n);
        try(&d);
    }
    for (unsigned long long r = 0; r < runs; r++) {
        mutate(&d, rng_make(seed + (r >> 32), d.name, (uint32_t)r));
        try(&d);
    }
    uint64_t taken, refused;
    fuzz_counts(&taken, &refused);
    printf("%-12s %zu seeds, %llu inputs: %llu taken, %llu refused, %.0f a second of processor time\n", d.name, d.n,
           (unsigned long long)(taken + refused), (unsigned long long)taken, (unsigned long long)refused,
           (double)(taken + refused) / (processor_seconds() - start));
    return 0;
}
