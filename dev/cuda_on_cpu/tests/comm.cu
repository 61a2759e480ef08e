// comm: comm_nccl and comm_staged under mpiexec: every case of test/comm_case.h on a GPU's memory, and ways to fail.
//
// usage: comm nccl|staged [ordered] [fail HOW]      HOW: device, algorithm, differ, short, async, die
//
// ordered: the caller has a stream, where its copies are, and comm is told of it. Otherwise buffers are complete
// when a call starts, and complete again when its wait is over. In the emulation's late mode nothing runs that
// is never waited for, so a missing event shows. Fresh memory is NaN.
#include "../../../test/comm_device.h"

#include "base/check.h"
#include "comm/comm.h"
#include "comm/comm_staged.h"
#include "base/gpu.h"

#include <cstring>
#include <vector>

struct Mirror { // a call in flight
    Comm *comm;
    CommRequest request;
    char *base[2]; // device memory
    char *in, *out;
    void *host_in, *host_out;
    size_t n_in, n_out; // bytes
};
static struct {
    cudaStream_t stream; // of the copies
    bool ordered;
    std::vector<Mirror> mirrors;
} test;

static char *device_bytes(size_t n)
{
    char *p;
    GPU_CHECK(cudaMalloc(&p, n ? n : 1));
    return p;
}

static void move(void *to, const void *from, size_t n, cudaMemcpyKind kind)
{
    if (n) GPU_CHECK(cudaMemcpyAsync(to, from, n, kind, test.stream));
    if (!test.ordered) GPU_CHECK(cudaStreamSynchronize(test.stream));
}

// Device memory for both sides of a call, which overlap as the host's do.
static Mirror mirror(Comm *comm, void *out, size_t n_out, const void *in, size_t n_in)
{
    char *o = (char *)out, *i = (char *)in;
    Mirror m = {comm, {}, {nullptr, nullptr}, nullptr, nullptr, i, o, n_in, n_out};
    if (i && o && o >= i && o + n_out <= i + n_in) {
        m.in = m.base[0] = device_bytes(n_in), m.out = m.in + (o - i);
        move(m.in, i, n_in, cudaMemcpyHostToDevice);
    } else {
        bool inside = i && o && i >= o && i + n_in <= o + n_out;
        if (o) m.out = m.base[0] = device_bytes(n_out);
        if (inside) m.in = m.out + (i - o);
        else if (i) m.in = m.base[1] = device_bytes(n_in);
        if (i) move(m.in, i, n_in, cudaMemcpyHostToDevice);
    }
    return m;
}

static CommRequest keep(Mirror m, CommRequest request)
{
    m.request = request;
    test.mirrors.push_back(m);
    return request;
}

static size_t sum(const size_t *counts, int n)
{
    size_t total = 0;
    for (int r = 0; r < n; r++) total += counts[r];
    return total;
}

CommRequest device_all_reduce(Comm *comm, void *out, const void *in, size_t n, CommType type, CommOp op)
{
    Mirror m = mirror(comm, out, n * comm_type_bytes(type), in, n * comm_type_bytes(type));
    return keep(m, comm_all_reduce(comm, m.out, m.in, n, type, op));
}

CommRequest device_all_gather(Comm *comm, void *out, const void *in, const size_t *counts, CommType type)
{
    size_t bytes = comm_type_bytes(type);
    Mirror m = mirror(comm, out, sum(counts, comm->size) * bytes, in, counts[comm->rank] * bytes);
    return keep(m, comm_all_gather(comm, m.out, m.in, counts, type));
}

CommRequest device_reduce_scatter(Comm *comm, void *out, const void *in, const size_t *counts, CommType type, CommOp op)
{
    size_t bytes = comm_type_bytes(type);
    Mirror m = mirror(comm, out, counts[comm->rank] * bytes, in, sum(counts, comm->size) * bytes);
    return keep(m, comm_reduce_scatter(comm, m.out, m.in, counts, type, op));
}

CommRequest device_broadcast(Comm *comm, void *buf, size_t n, CommType type, int root)
{
    Mirror m = mirror(comm, buf, n * comm_type_bytes(type), buf, n * comm_type_bytes(type));
    return keep(m, comm_broadcast(comm, m.out, n, type, root));
}

CommRequest device_all_to_all(Comm *comm, void *out, const void *in, const size_t *to, const size_t *from,
                              CommType type)
{
    size_t bytes = comm_type_bytes(type);
    Mirror m = mirror(comm, out, sum(from, comm->size) * bytes, in, sum(to, comm->size) * bytes);
    return keep(m, comm_all_to_all(comm, m.out, m.in, to, from, type));
}

CommRequest device_send(Comm *comm, const void *buf, size_t n, CommType type, int to, int tag)
{
    Mirror m = mirror(comm, nullptr, 0, buf, n * comm_type_bytes(type));
    return keep(m, comm_send(comm, m.in, n, type, to, tag));
}

CommRequest device_recv(Comm *comm, void *buf, size_t n, CommType type, int from, int tag)
{
    Mirror m = mirror(comm, buf, n * comm_type_bytes(type), nullptr, 0);
    return keep(m, comm_recv(comm, m.out, n, type, from, tag));
}

void device_wait(Comm *comm, CommRequest *request)
{
    CommRequest q = *request;
    comm_wait(comm, request);
    for (size_t k = 0; k < test.mirrors.size(); k++) {
        Mirror m = test.mirrors[k];
        if (m.request.serial != q.serial || m.request.slot != q.slot || m.comm->family != comm->family) continue;
        if (m.in) move(m.host_in, m.in, m.n_in, cudaMemcpyDeviceToHost);
        if (m.out) move(m.host_out, m.out, m.n_out, cudaMemcpyDeviceToHost);
        GPU_CHECK(cudaStreamSynchronize(test.stream));
        for (char *base : m.base) GPU_CHECK(cudaFree(base));
        test.mirrors.erase(test.mirrors.begin() + (long)k);
        return;
    }
}

void device_set_algorithm(Comm *comm, CommKind kind, CommAlgorithm algorithm)
{
    bool refused = comm->ops->direct && algorithm != COMM_DIRECT;
    comm_set_algorithm(comm, kind, refused ? COMM_NATIVE : algorithm);
}

// Two buckets are reduced while the stream continues, with kernels before, between and after.
__global__ static void times(float *x, size_t n, float by)
{
    for (size_t i = threadIdx.x; i < n; i += blockDim.x) x[i] *= by;
}

static int overlap(Comm *world)
{
    enum { N = 1000, BUCKETS = 3 };
    float *x[BUCKETS], host[N];
    CommRequest q[BUCKETS];
    int failed = 0;
    for (int b = 0; b < BUCKETS; b++) {
        x[b] = (float *)device_bytes(sizeof host);
        for (int i = 0; i < N; i++) host[i] = (float)(i % 7 + world->rank + b);
        GPU_CHECK(cudaMemcpyAsync(x[b], host, sizeof host, cudaMemcpyHostToDevice, test.stream));
        LAUNCH(times, 1, 64, 0, test.stream, x[b], (size_t)N, 2.0f);
        q[b] = comm_all_reduce(world, x[b], x[b], N, COMM_FP32, COMM_SUM);
    }
    for (int b = 0; b < BUCKETS; b++) {
        comm_wait(world, &q[b]);
        LAUNCH(times, 1, 64, 0, test.stream, x[b], (size_t)N, 3.0f);
    }
    for (int b = 0; b < BUCKETS; b++) {
        GPU_CHECK(cudaMemcpyAsync(host, x[b], sizeof host, cudaMemcpyDeviceToHost, test.stream));
        GPU_CHECK(cudaStreamSynchronize(test.stream));
        for (int i = 0; i < N; i++) {
            int want = 0;
            for (int r = 0; r < world->size; r++) want += 6 * (i % 7 + r + b);
            if (host[i] == (float)want) continue;
            printf("bucket %d, element %d: %g, not %d\n", b, i, host[i], want);
            failed++;
            break;
        }
        GPU_CHECK(cudaFree(x[b]));
    }
    return failed;
}

// The first rank does not wait for what it sends before it waits on the host for the last, which needs it first.
static int driven(Comm *world)
{
    float *x = (float *)device_bytes(64), back[16] = {0};
    Comm *host = comm_host(world);
    CommRequest q = {};
    int last = world->size - 1, failed = 0;
    for (int i = 0; i < 16; i++) back[i] = (float)i;
    if (world->rank == 0 && last) {
        GPU_CHECK(cudaMemcpyAsync(x, back, 64, cudaMemcpyHostToDevice, test.stream));
        LAUNCH(times, 1, 64, 0, test.stream, x, (size_t)16, 2.0f);
        q = comm_send(world, x, 16, COMM_FP32, last, 0);
    } else if (world->rank == last && last) {
        q = comm_recv(world, x, 16, COMM_FP32, 0, 0);
        comm_wait(world, &q);
        GPU_CHECK(cudaMemcpyAsync(back, x, 64, cudaMemcpyDeviceToHost, test.stream));
        GPU_CHECK(cudaStreamSynchronize(test.stream));
        for (int i = 0; i < 16; i++) failed += back[i] != 2.0f * (float)i;
        if (failed) printf("a message that only the host's waiting carries: %d wrong\n", failed);
    }
    CommRequest all = comm_barrier(host);
    comm_wait(host, &all);
    comm_wait(world, &q);
    GPU_CHECK(cudaFree(x));
    return failed;
}

static void fail(Comm *world, const char *how)
{
    float *x = (float *)device_bytes(64);
    bool last = world->rank == world->size - 1;
    CommRequest q;
    GPU_CHECK(cudaMemset(x, 0, 64));
    GPU_CHECK(cudaDeviceSynchronize());
    if (last && !strcmp(how, "die")) die("test: the last rank fails");
    if (!strcmp(how, "algorithm")) comm_set_algorithm(world, COMM_ALL_REDUCE, COMM_RING);
    comm_set_checked(world, !strcmp(how, "differ"));
    if (!strcmp(how, "short") && world->rank == 0) q = comm_send(world, x, 3, COMM_FP32, world->size - 1, 0);
    else if (!strcmp(how, "short") && last) q = comm_recv(world, x, 8, COMM_FP32, 0, 0);
    else q = comm_all_reduce(world, x, x, last && !strcmp(how, "differ") ? 7 : 8, COMM_FP32, COMM_SUM);
    comm_wait(world, &q);
    q = comm_all_reduce(world, x, x, 8, COMM_FP32, COMM_SUM);
    comm_wait(world, &q);
}

int main(int argc, char **argv)
{
    if (argc < 2) die_usage("comm: nccl or staged?");
    Comm *host = comm_mpi_start();
    int failed = 0, devices = 1, first = 2;
    bool nccl = !strcmp(argv[1], "nccl");
    cudaGetDeviceCount(&devices);
    int device = argc > 3 && !strcmp(argv[3], "device") ? devices : host->rank % devices; // one that is not there
    Comm *world = nccl ? comm_nccl_start(host, device) : comm_staged_start(host, device);
    GPU_CHECK(cudaStreamCreateWithFlags(&test.stream, cudaStreamNonBlocking));
    if (argc > first && !strcmp(argv[first], "ordered")) {
        comm_staged_order(world, test.stream);
        test.ordered = true, first++;
    }
    if (argc > first + 1) fail(world, argv[first + 1]);
    else {
        failed = device_cases(world);
        if (test.ordered) failed += overlap(world) + driven(world);
    }
    GPU_CHECK(cudaDeviceSynchronize());
    CommRequest q = comm_all_reduce(host, &failed, &failed, 1, COMM_INT32, COMM_SUM);
    comm_wait(host, &q);
    if (host->rank == 0) printf("%d ranks: %d failed\n", host->size, failed);
    comm_free(world);
    GPU_CHECK(cudaStreamDestroy(test.stream));
    comm_mpi_stop(host);
    return failed != 0;
}
