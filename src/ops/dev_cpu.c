// dev_cpu: the CPU device: chooses OpenBLAS' kernels and tries whether it has room, creates the op table, fills it from
// the files that hold the ops, and measures the peak that they are compared with.
//
// The invariant: every entry is filled, and none gives different bits for different thread counts. OpenBLAS is held
// to one thread; all parallelism is OpenMP's, over tiles and rows that are cut by shape (see matmul.c).
//
// OpenBLAS chooses its kernels when it is loaded, by the processor's name; 0.3.21 takes AVX-512 machines that it does
// not know by name for Haswell (AVX2) and runs at half speed. OPENBLAS_CORETYPE overrides the choice but is read at
// load time, so the program executes itself again once, with the variable set. Container images and clusters also
// preset the variable to an old kernel set that runs everywhere; that is overridden too, and reported.
// PRETRAIN_BLAS=keep leaves the choice alone; PRETRAIN_BLAS=ours marks the restart.
//
// The same restart makes idle OpenMP threads sleep (OMP_WAIT_POLICY=passive) after a short while of spinning
// (GOMP_SPINCOUNT, some tens of microseconds) unless the user chose otherwise. The default is to spin at every
// barrier: as soon as anything else runs on the machine, the spinning thread occupies the core that the thread it waits
// for needs, and a run becomes many times slower. Sleeping at once costs small models a tenth of their speed, in system
// calls at hundreds of barriers per step.
//
// And it starts OpenBLAS with one thread (OPENBLAS_NUM_THREADS=1): from the moment it is loaded each other one asks for
// a buffer of 128 MiB of addresses, for ever where there is none (ulimit -v), and exit() and fork() wait for it.
//
// The measured peak is the yardstick of every MFU in this project: the machine's own best sgemm rate over the shapes of
// the model at hand, with the library's own threading and nothing else running, not a data sheet's number.
#include "ops/dev_cpu.h"

#include "base/check.h"
#include "base/stop.h"
#include "base/clock.h"

#include <cblas.h>
#include <omp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

// OpenBLAS' own calls; not in every cblas.h.
char *openblas_get_corename(void);
int openblas_get_num_threads(void);
void openblas_set_num_threads(int threads);

// ---- OpenBLAS

const char *dev_cpu_blas(void)
{
    return openblas_get_corename();
}

const char *dev_cpu_blas_reason(void)
{
    const char *mode = getenv("PRETRAIN_BLAS");
    if (mode && !strcmp(mode, "ours"))
        return "for AVX-512; PRETRAIN_BLAS=keep: its own choice";
    return getenv("OPENBLAS_CORETYPE") ? "from OPENBLAS_CORETYPE" : "OpenBLAS' own choice";
}

#if defined(__x86_64__)
static const char *wanted_kernel(void)
{
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512dq") ||
        !__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512vl")) return NULL;
    const char *now = dev_cpu_blas(), *good[] = {"SkylakeX", "Cooperlake", "SapphireRapids"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!strcasecmp(now, good[i])) return NULL;
    return __builtin_cpu_supports("avx512bf16") ? "SAPPHIRERAPIDS" : "SKYLAKEX";
}
#else
static const char *wanted_kernel(void)
{
    return NULL; // OpenBLAS recognises Arm and POWER processors
}
#endif

void dev_cpu_choose_blas(char **argv)
{
    if (getenv("PRETRAIN_BLAS")) return; // already restarted, or the user's choice is kept
    const char *kernel = wanted_kernel();
    bool waits = !getenv("OMP_WAIT_POLICY") && !getenv("GOMP_SPINCOUNT");
    if (!kernel && !waits && openblas_get_num_threads() == 1) return;
    int failed = setenv("OPENBLAS_NUM_THREADS", "1", 1) | (kernel ? setenv("OPENBLAS_CORETYPE", kernel, 1) : 0);
    if (waits) failed |= setenv("OMP_WAIT_POLICY", "passive", 1) | setenv("GOMP_SPINCOUNT", "3000", 1);
    failed |= setenv("PRETRAIN_BLAS", kernel ? "ours" : "waits", 1);
    if (failed) die("memory: no room in the environment"); // without the last one it would restart for ever
    stop_as_started();
    execv("/proc/self/exe", argv);
    unsetenv("PRETRAIN_BLAS"); // could not restart (no /proc): continue with OpenBLAS' choice
}

// Best time of one product, over as many tries as fit into `seconds` (three at least).
static double best_time(MatmulShape s, double seconds)
{
    float *a = malloc(s.M * s.K * sizeof *a), *b = malloc(s.N * s.K * sizeof *b), *c = malloc(s.M * s.N * sizeof *c);
    if (!a || !b || !c) die("sgemm peak: no memory for %zu x %zu x %zu", s.M, s.N, s.K);
    for (size_t i = 0; i < s.M * s.K; i++) a[i] = (float)(i % 7) - 3;
    for (size_t i = 0; i < s.N * s.K; i++) b[i] = (float)(i % 5) - 2;
    double best = 1e30, begin = clock_seconds();
    for (int i = 0; i < 3 || (clock_seconds() - begin < seconds && i < 1000); i++) {
        double t = clock_seconds();
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)s.M, (int)s.N, (int)s.K, 1, a, (int)s.K, b, (int)s.K,
                    0, c, (int)s.N);
        t = clock_seconds() - t;
        if (t < best) best = t;
    }
    free(a), free(b), free(c);
    return best;
}

double dev_cpu_peak(const MatmulShape *shape, size_t n, int threads, double seconds)
{
    double flops = 0, time = 0;
    openblas_set_num_threads(threads);
    for (size_t i = 0; i < n; i++) {
        flops += 2.0 * (double)shape[i].M * (double)shape[i].N * (double)shape[i].K;
        time += best_time(shape[i], seconds / (double)n);
    }
    openblas_set_num_threads(1);
    return flops / time / 1e9;
}

// ---- room for OpenBLAS

// OpenBLAS works in buffers of 128 MiB of addresses, one for each of its threads and for each product that runs at the
// same time. Where a buffer cannot be had (ulimit -v) it asks again for ever, silently; where a thread cannot be
// created (ulimit -u) a product waits for that thread for ever. So both are tried before a run begins: a buffer is asked
// for only when an mmap of its size has just succeeded. All are held at once and then given back; OpenBLAS keeps them,
// and asks for no more. (A time limit on the first product would be wrong on a slow machine.)
enum { MOST = 128, BYTES = (128 << 20) + 4096 }; // buffers; of each: OpenBLAS 0.3.21 on x86-64

// OpenBLAS' own calls; a library that does not export them takes its buffers later.
void *blas_memory_alloc(int position);
void blas_memory_free(void *buffer);
#pragma weak blas_memory_alloc
#pragma weak blas_memory_free

static void hold_buffers(int threads, int n)
{
    static int held;
    void *buffer[MOST];
    for (int i = 0; i < n; i++) {
        void *room = i < held ? NULL : mmap(NULL, BYTES, PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (room == MAP_FAILED)
            die("memory: OpenBLAS needs %d buffers of %d MiB for %d thread%s, and can have %d (try fewer threads, or a "
                "higher ulimit -v)", n, BYTES >> 20, threads, threads > 1 ? "s" : "", i);
        if (room) munmap(room, BYTES);
        buffer[i] = blas_memory_alloc(0);
    }
    for (int i = 0; i < n; i++) blas_memory_free(buffer[i]);
    if (n > held) held = n;
}

static void *wait_at(void *gate)
{
    pthread_mutex_lock(gate);
    pthread_mutex_unlock(gate);
    return NULL;
}

static void try_threads(int n)
{
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    pthread_t thread[2 * MOST];
    int made = 0, error = 0;
    pthread_mutex_lock(&gate);
    while (made < n && made < 2 * MOST && !(error = pthread_create(&thread[made], NULL, wait_at, &gate))) made++;
    pthread_mutex_unlock(&gate);
    for (int i = 0; i < made; i++) pthread_join(thread[i], NULL);
    if (error)
        die("threads: %s after %d of %d more (try fewer threads, or a higher ulimit -u or -v)", strerror(error), made,
            n);
}

void dev_cpu_blas_room(int threads, bool peak)
{
    if (threads <= 0) threads = omp_get_num_procs();
    int n = peak ? 2 * threads - 1 : threads; // those that OpenBLAS starts keep theirs
    try_threads(n - 1);
    if (blas_memory_alloc) hold_buffers(threads, n < MOST ? n : MOST);
}

// ---- the device

typedef struct {
    float *scratch;
    size_t n_scratch; // floats
} CpuState;

float *dev_cpu_scratch(Dev *dev, size_t n_floats)
{
    CpuState *state = (CpuState *)dev->state;
    if (n_floats > state->n_scratch) {
        free(state->scratch);
        size_t n_bytes = (n_floats * sizeof(float) + 63) / 64 * 64;
        state->scratch = (float *)aligned_alloc(64, n_bytes);
        if (!state->scratch) die("cpu: no memory for %zu bytes of scratch", n_bytes);
        state->n_scratch = n_floats;
    }
    return state->scratch;
}

// Every entry that a device must fill.
#define OP(entry) {#entry, offsetof(Dev, entry)}
static const DevOp OPS[] = {
    OP(matmul_forward), OP(matmul_gelu_forward), OP(matmul_backward_input), OP(matmul_gelu_backward_input),
    OP(matmul_parts_forward), OP(matmul_parts_backward_input), OP(xent_max), OP(xent_sum), OP(xent_loss),
    OP(matmul_backward_weight), OP(swiglu_forward), OP(swiglu_backward), OP(add), OP(embed_forward), OP(embed_backward),
    OP(norm_forward), OP(norm_backward), OP(head_norm_forward), OP(head_norm_backward), OP(rope_forward),
    OP(rope_backward), OP(attention_forward), OP(attention_backward), OP(softmax_xent), OP(sum_squares),
    OP(sum_squares_exact), OP(update),
    OP(attention_part_forward), OP(attention_part_backward), OP(attention_merge),
    OP(adamw8bit), OP(adafactor), OP(muon),
    OP(to_device), OP(to_host), OP(zero), OP(copy), OP(dropout), OP(to_x), OP(from_x),
    OP(act_forward), OP(act_backward), OP(compress), OP(decompress), OP(accumulate), OP(subtract),
    OP(clip_units),
    OP(router_forward), OP(router_backward), OP(route_forward), OP(route_backward), OP(experts_count), OP(experts_sort),
    OP(experts_gather), OP(experts_combine), OP(experts_pick), OP(experts_forward), OP(experts_backward_input),
    OP(experts_backward_weight), OP(experts_swiglu_forward), OP(experts_swiglu_backward),
};
#undef OP

const DevOp *dev_ops(size_t *n)
{
    *n = sizeof OPS / sizeof *OPS;
    return OPS;
}

void dev_check_complete(const Dev *dev)
{
    for (size_t i = 0; i < sizeof OPS / sizeof *OPS; i++) {
        void (*entry)(void);
        memcpy(&entry, (const char *)dev + OPS[i].at, sizeof entry);
        if (!entry) die("device %s has no op '%s'", dev->name, OPS[i].name);
    }
}

Dev *dev_cpu_create(int threads)
{
    Dev *dev = (Dev *)calloc(1, sizeof *dev);
    if (dev) dev->state = calloc(1, sizeof(CpuState));
    if (!dev || !dev->state) die("cpu: no memory for the device");
    dev->name = "cpu";
    dev->x_type = X_FP32;
    dev->x_bytes = sizeof(float);
    dev->threads = threads > 0 ? threads : omp_get_num_procs();
    openblas_set_num_threads(1);
    elements_cpu_fill(dev);
    matmul_cpu_fill(dev);
    attention_cpu_fill(dev);
    norm_cpu_fill(dev);
    embed_cpu_fill(dev);
    loss_cpu_fill(dev);
    experts_cpu_fill(dev);
    updates_cpu_fill(dev);
    updates_matrix_cpu_fill(dev);
    dev_check_complete(dev);
    return dev;
}

void dev_cpu_free(Dev *dev)
{
    if (!dev) return;
    free(((CpuState *)dev->state)->scratch);
    free(dev->state);
    free(dev);
}
