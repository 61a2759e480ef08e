// nccl: what programs may rely on of NCCL's calls: every collective, in place and not, of every type and operation,
// messages in groups, splits. Each rank computes by itself what every other rank holds, so it knows each result;
// sums of integers and whole-number floats are compared with MPI's own as well. Run under mpiexec; builds with nvcc
// and NVIDIA's NCCL.
#include "base/gpu.h"

#include <cstring>
#include <mpi.h>
#include <nccl.h>
#include <vector>

static int failures, rank, ranks;
static ncclComm_t comm;
#define EXPECT(condition)                                                                                \
    do {                                                                                                 \
        if (!(condition)) {                                                                              \
            printf("not ok rank %d: %s:%d: %s\n", rank, __FILE__, __LINE__, #condition);                 \
            failures++;                                                                                  \
        }                                                                                                \
    } while (0)
#define NCCL(call)                                                                                       \
    do {                                                                                                 \
        ncclResult_t result = (call);                                                                    \
        if (result != ncclSuccess) {                                                                     \
            printf("not ok rank %d: %s:%d: %s: %s\n", rank, __FILE__, __LINE__, #call, ncclGetErrorString(result)); \
            failures++;                                                                                  \
        }                                                                                                \
    } while (0)

// ---- numbers: what rank r holds at i is whole and small, so that most results are exact
template <class T> struct Type; // NCCL's and MPI's names for it
template <> struct Type<int8_t> {
    static ncclDataType_t nccl() { return ncclInt8; }
    static MPI_Datatype mpi() { return MPI_INT8_T; }
};
template <> struct Type<uint8_t> {
    static ncclDataType_t nccl() { return ncclUint8; }
    static MPI_Datatype mpi() { return MPI_UINT8_T; }
};
template <> struct Type<int32_t> {
    static ncclDataType_t nccl() { return ncclInt32; }
    static MPI_Datatype mpi() { return MPI_INT32_T; }
};
template <> struct Type<uint32_t> {
    static ncclDataType_t nccl() { return ncclUint32; }
    static MPI_Datatype mpi() { return MPI_UINT32_T; }
};
template <> struct Type<int64_t> {
    static ncclDataType_t nccl() { return ncclInt64; }
    static MPI_Datatype mpi() { return MPI_INT64_T; }
};
template <> struct Type<uint64_t> {
    static ncclDataType_t nccl() { return ncclUint64; }
    static MPI_Datatype mpi() { return MPI_UINT64_T; }
};
template <> struct Type<float> {
    static ncclDataType_t nccl() { return ncclFloat32; }
    static MPI_Datatype mpi() { return MPI_FLOAT; }
};
template <> struct Type<double> {
    static ncclDataType_t nccl() { return ncclFloat64; }
    static MPI_Datatype mpi() { return MPI_DOUBLE; }
};
template <> struct Type<__half> {
    static ncclDataType_t nccl() { return ncclFloat16; }
    static MPI_Datatype mpi() { return MPI_DATATYPE_NULL; }
};
template <> struct Type<__nv_bfloat16> {
    static ncclDataType_t nccl() { return ncclBfloat16; }
    static MPI_Datatype mpi() { return MPI_DATATYPE_NULL; }
};

template <class T> static T value(int r, size_t i) { return (T)(int)((i * 7 + (size_t)r * 5) % 11 + 1); }

// The result of `op` over n ranks at i, in the order of the ranks.
template <class T> static T expected(ncclRedOp_t op, int n, size_t i)
{
    auto at = [&](int r) {
        return op == ncclAvg && !std::is_integral<T>::value ? (T)(value<T>(r, i) * (T)(1.0 / n)) : value<T>(r, i);
    };
    T v = at(0);
    for (int r = 1; r < n; r++) {
        T x = at(r);
        if (op == ncclProd) v = (T)(v * x);
        else if (op == ncclMax) v = v < x ? x : v;
        else if (op == ncclMin) v = x < v ? x : v;
        else v = (T)(v + x);
    }
    return op == ncclAvg && std::is_integral<T>::value ? (T)((int)v / n) : v;
}

template <class T> struct Buffer { // device memory
    T *p;
    size_t n;
    explicit Buffer(size_t count) : p(nullptr), n(count) { GPU_CHECK(cudaMalloc(&p, n * sizeof(T))); }
    Buffer(const Buffer &) = delete;
    ~Buffer() { GPU_CHECK(cudaFree(p)); }
    void fill(int r, size_t from, size_t count, size_t first) // value(r, first...) at from
    {
        std::vector<T> host(count);
        for (size_t i = 0; i < count; i++) host[i] = value<T>(r, first + i);
        GPU_CHECK(cudaMemcpy(p + from, host.data(), count * sizeof(T), cudaMemcpyHostToDevice));
    }
    std::vector<T> get(size_t count)
    {
        std::vector<T> host(count);
        GPU_CHECK(cudaMemcpy(host.data(), p, count * sizeof(T), cudaMemcpyDeviceToHost));
        return host;
    }
};

template <class T> static bool same(const std::vector<T> &a, const std::vector<T> &b)
{
    return a.size() == b.size() && !memcmp((const void *)a.data(), (const void *)b.data(), a.size() * sizeof(T));
}

template <class T> static void test_reductions(bool in_place)
{
    const size_t n = 37;
    size_t all = n * (size_t)ranks, mine = n * (size_t)rank;
    ncclDataType_t type = Type<T>::nccl();
    for (ncclRedOp_t op : {ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg}) {
        std::vector<T> want(n), want_all(all);
        for (size_t i = 0; i < n; i++) want[i] = expected<T>(op, ranks, i);
        for (size_t i = 0; i < all; i++) want_all[i] = expected<T>(op, ranks, i);
        Buffer<T> in(all), other(all);
        T *out = in_place ? in.p : other.p;

        in.fill(rank, 0, n, 0);
        NCCL(ncclAllReduce(in.p, out, n, type, op, comm, nullptr));
        EXPECT(same((in_place ? in : other).get(n), want));
        MPI_Op theirs = op == ncclSum ? MPI_SUM : op == ncclProd ? MPI_PROD : op == ncclMax ? MPI_MAX : MPI_MIN;
        if (Type<T>::mpi() != MPI_DATATYPE_NULL && op != ncclAvg) { // all exact, so the order does not matter
            std::vector<T> x(n), sum(n);
            for (size_t i = 0; i < n; i++) x[i] = value<T>(rank, i);
            MPI_Allreduce(x.data(), sum.data(), (int)n, Type<T>::mpi(), theirs, MPI_COMM_WORLD);
            EXPECT(same((in_place ? in : other).get(n), sum));
        }

        int root = ranks - 1;
        in.fill(rank, 0, n, 0);
        NCCL(ncclReduce(in.p, rank == root ? out : nullptr, n, type, op, root, comm, nullptr));
        if (rank == root) EXPECT(same((in_place ? in : other).get(n), want));

        in.fill(rank, 0, all, 0);
        T *part = in_place ? in.p + mine : other.p;
        NCCL(ncclReduceScatter(in.p, part, n, type, op, comm, nullptr));
        std::vector<T> got(n);
        GPU_CHECK(cudaMemcpy(got.data(), part, n * sizeof(T), cudaMemcpyDeviceToHost));
        EXPECT(same(got, std::vector<T>(want_all.begin() + (ptrdiff_t)mine, want_all.begin() + (ptrdiff_t)(mine + n))));
    }
}

template <class T> static void test_moves(bool in_place)
{
    const size_t n = 29;
    size_t all = n * (size_t)ranks, mine = n * (size_t)rank;
    ncclDataType_t type = Type<T>::nccl();
    Buffer<T> in(all), out(all);
    std::vector<T> want(all);
    for (size_t i = 0; i < all; i++) want[i] = value<T>((int)(i / n), i % n);

    T *recv = in_place ? in.p : out.p, *send = in_place ? in.p + mine : in.p;
    in.fill(rank, in_place ? mine : 0, n, 0);
    NCCL(ncclAllGather(send, recv, n, type, comm, nullptr));
    EXPECT(same((in_place ? in : out).get(all), want));

    for (int root = 0; root < ranks; root++) {
        in.fill(rank, 0, n, 0);
        NCCL(ncclBroadcast(in_place || rank == root ? in.p : nullptr, recv, n, type, root, comm, nullptr));
        want.resize(n);
        for (size_t i = 0; i < n; i++) want[i] = value<T>(root, i);
        EXPECT(same((in_place ? in : out).get(n), want));
    }

    // A ring: to the next, from the one before; with both ends in one process when there is one rank.
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    in.fill(rank, 0, n, 0);
    NCCL(ncclGroupStart());
    NCCL(ncclSend(in.p, n, type, next, comm, nullptr));
    NCCL(ncclRecv(out.p, n, type, before, comm, nullptr));
    NCCL(ncclGroupEnd());
    for (size_t i = 0; i < n; i++) want[i] = value<T>(before, i);
    EXPECT(same(out.get(n), want));
}

// 0.1, 1e8, ... : the sum depends on the order, and must be that of the ranks, rounded after each addition.
template <class T> static void test_order()
{
#ifndef __CUDACC__ // NVIDIA's order is its own
    const float parts[] = {1e4f, 0.37f, -1e4f, 3.1f, 7.7f};
    Buffer<T> x(1);
    T mine = (T)parts[rank % 5], sum = (T)parts[0];
    for (int r = 1; r < ranks; r++) sum = (T)(sum + (T)parts[r % 5]);
    GPU_CHECK(cudaMemcpy(x.p, &mine, sizeof mine, cudaMemcpyHostToDevice));
    NCCL(ncclAllReduce(x.p, x.p, 1, Type<T>::nccl(), ncclSum, comm, nullptr));
    EXPECT(same(x.get(1), {sum}));
#endif
}

static void test_eight_bits()
{
    Buffer<uint8_t> x((size_t)ranks);
    std::vector<uint8_t> host((size_t)ranks, (uint8_t)(rank * 31 + 3));
    GPU_CHECK(cudaMemcpy(x.p, host.data(), host.size(), cudaMemcpyHostToDevice));
    NCCL(ncclAllGather(x.p + rank, x.p, 1, ncclFloat8e4m3, comm, nullptr));
    for (int r = 0; r < ranks; r++) host[(size_t)r] = (uint8_t)(r * 31 + 3);
    EXPECT(same(x.get((size_t)ranks), host));
#ifndef __CUDACC__
    EXPECT(ncclAllReduce(x.p, x.p, 1, ncclFloat8e5m2, ncclSum, comm, nullptr) == ncclInvalidArgument);
    EXPECT(strstr(ncclGetLastError(comm), "moved here"));
#endif
}

// ---- groups, splits, streams
static void test_group_of_everything()
{
    const size_t n = 11;
    Buffer<float> a(n), b(n), c(n), d(n);
    a.fill(rank, 0, n, 0);
    b.fill(rank, 0, n, 3);
    cudaStream_t one, two;
    GPU_CHECK(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
    GPU_CHECK(cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking));
    NCCL(ncclGroupStart());
    NCCL(ncclAllReduce(a.p, a.p, n, ncclFloat, ncclSum, comm, one));
    NCCL(ncclGroupStart()); // nested: the outer end counts
    NCCL(ncclBroadcast(b.p, b.p, n, ncclFloat, 0, comm, one));
    for (int r = 0; r < ranks; r++) { // to all ranks, the peer's number first in what it gets
        NCCL(ncclSend(c.p + r, 1, ncclFloat, r, comm, two));
        NCCL(ncclRecv(d.p + r, 1, ncclFloat, r, comm, two));
    }
    NCCL(ncclGroupEnd());
    c.fill(rank, 0, n, 0); // before the outer end nothing has run
    GPU_CHECK(cudaDeviceSynchronize()); // these streams do not wait for the default one
    NCCL(ncclGroupEnd());
    GPU_CHECK(cudaStreamSynchronize(two)); // the group is over in both streams
    std::vector<float> sum(n), sent(n);
    for (size_t i = 0; i < n; i++) sum[i] = expected<float>(ncclSum, ranks, i), sent[i] = value<float>(0, i + 3);
    EXPECT(same(a.get(n), sum));
    EXPECT(same(b.get(n), sent));
    std::vector<float> got = d.get((size_t)ranks);
    for (int r = 0; r < ranks; r++) EXPECT(got[(size_t)r] == value<float>(r, (size_t)rank));
    GPU_CHECK(cudaStreamDestroy(one));
    GPU_CHECK(cudaStreamDestroy(two));
}

static void test_split()
{
    ncclComm_t half, none, turned;
    int n, r;
    NCCL(ncclCommSplit(comm, rank % 2, rank, &half, nullptr));
    NCCL(ncclCommCount(half, &n));
    NCCL(ncclCommUserRank(half, &r));
    EXPECT(n == (ranks + 1 - rank % 2) / 2 && r == rank / 2);
    Buffer<int> x(1);
    GPU_CHECK(cudaMemcpy(x.p, &rank, sizeof rank, cudaMemcpyHostToDevice));
    NCCL(ncclAllReduce(x.p, x.p, 1, ncclInt, ncclSum, half, nullptr));
    int sum = 0;
    for (int i = rank % 2; i < ranks; i += 2) sum += i;
    EXPECT(x.get(1)[0] == sum);

    NCCL(ncclCommSplit(comm, rank == 0 ? NCCL_SPLIT_NOCOLOR : 3, 0, &none, nullptr));
    EXPECT((none == nullptr) == (rank == 0));
    NCCL(ncclCommSplit(comm, 0, -rank, &turned, nullptr)); // the other way round
    NCCL(ncclCommUserRank(turned, &r));
    EXPECT(r == ranks - 1 - rank);
    GPU_CHECK(cudaMemcpy(x.p, &rank, sizeof rank, cudaMemcpyHostToDevice));
    NCCL(ncclBroadcast(x.p, x.p, 1, ncclInt, 0, turned, nullptr));
    EXPECT(x.get(1)[0] == ranks - 1);
    NCCL(ncclCommFinalize(turned));
    NCCL(ncclCommDestroy(turned));
    if (none) NCCL(ncclCommDestroy(none));
    NCCL(ncclCommDestroy(half));
}

__global__ static void times(float *x, int n, float by)
{
    int i = (int)threadIdx.x;
    if (i < n) x[i] *= by;
}

// A kernel before and one after in the same stream; another stream waits by an event.
static void test_order_in_streams()
{
    const size_t n = 8;
    Buffer<float> x(n), y(n);
    x.fill(rank, 0, n, 0);
    GPU_CHECK(cudaDeviceSynchronize());
    cudaStream_t work, talk;
    cudaEvent_t ready, done;
    GPU_CHECK(cudaStreamCreateWithFlags(&work, cudaStreamNonBlocking));
    GPU_CHECK(cudaStreamCreateWithFlags(&talk, cudaStreamNonBlocking));
    GPU_CHECK(cudaEventCreate(&ready));
    GPU_CHECK(cudaEventCreate(&done));
    LAUNCH(times, 1, 32, 0, work, x.p, (int)n, 2.0f);
    GPU_CHECK(cudaEventRecord(ready, work));
    GPU_CHECK(cudaStreamWaitEvent(talk, ready, 0));
    NCCL(ncclAllReduce(x.p, y.p, n, ncclFloat, ncclSum, comm, talk));
    GPU_CHECK(cudaEventRecord(done, talk));
    GPU_CHECK(cudaStreamWaitEvent(work, done, 0));
    LAUNCH(times, 1, 32, 0, work, y.p, (int)n, 3.0f);
    GPU_CHECK(cudaStreamSynchronize(work));
    std::vector<float> want(n);
    for (size_t i = 0; i < n; i++) want[i] = 6 * expected<float>(ncclSum, ranks, i);
    EXPECT(same(y.get(n), want));

    // Rank r waits for its streams in an order of its own: the calls still run in theirs.
    Buffer<int> a(1), b(1);
    GPU_CHECK(cudaMemcpy(a.p, &rank, sizeof rank, cudaMemcpyHostToDevice));
    GPU_CHECK(cudaMemcpy(b.p, &rank, sizeof rank, cudaMemcpyHostToDevice));
    GPU_CHECK(cudaDeviceSynchronize());
    NCCL(ncclAllReduce(a.p, a.p, 1, ncclInt, ncclSum, comm, work));
    NCCL(ncclAllReduce(b.p, b.p, 1, ncclInt, ncclMax, comm, talk));
    GPU_CHECK(cudaStreamSynchronize(rank % 2 ? talk : work));
    GPU_CHECK(cudaStreamSynchronize(rank % 2 ? work : talk));
    EXPECT(a.get(1)[0] == ranks * (ranks - 1) / 2 && b.get(1)[0] == ranks - 1);
    GPU_CHECK(cudaEventDestroy(ready));
    GPU_CHECK(cudaEventDestroy(done));
    GPU_CHECK(cudaStreamDestroy(work));
    GPU_CHECK(cudaStreamDestroy(talk));
}

static void test_errors()
{
    Buffer<float> x(4);
    ncclUniqueId id;
    ncclComm_t none;
    NCCL(ncclGetUniqueId(&id));
    EXPECT(ncclCommInitRank(&none, 2, id, 2) == ncclInvalidArgument);
    EXPECT(ncclBroadcast(x.p, x.p, 1, ncclFloat, ranks, comm, nullptr) == ncclInvalidArgument);
    EXPECT(ncclAllReduce(x.p, x.p, 1, (ncclDataType_t)99, ncclSum, comm, nullptr) == ncclInvalidArgument);
    EXPECT(!strcmp(ncclGetErrorString(ncclInvalidUsage), "invalid usage"));
    EXPECT(ncclGroupEnd() == ncclInvalidUsage);
#ifndef __CUDACC__
    EXPECT(ncclCommInitAll(&none, 2, nullptr) == ncclInvalidUsage);
    EXPECT(strstr(ncclGetLastError(nullptr), "one device"));
    NCCL(ncclAllReduce(x.p, x.p, 0, ncclFloat, ncclSum, comm, nullptr)); // nothing to add
    if (rank == 0) { // alone
        ncclComm_t alone;
        NCCL(ncclCommInitAll(&alone, 1, nullptr));
        NCCL(ncclAllReduce(x.p, x.p, 1, ncclFloat, ncclMax, alone, nullptr));
        NCCL(ncclCommAbort(alone));
    }
#endif
}

template <class T> static void test_type()
{
    for (bool in_place : {false, true}) test_reductions<T>(in_place), test_moves<T>(in_place);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int devices;
    GPU_CHECK(cudaGetDeviceCount(&devices));
    GPU_CHECK(cudaSetDevice(rank % devices));
    ncclUniqueId id;
    if (rank == 0) NCCL(ncclGetUniqueId(&id));
    MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
    NCCL(ncclCommInitRank(&comm, ranks, id, rank));
    test_type<int8_t>(), test_type<uint8_t>(), test_type<int32_t>(), test_type<uint32_t>(), test_type<int64_t>();
    test_type<uint64_t>(), test_type<float>(), test_type<double>(), test_type<__half>(), test_type<__nv_bfloat16>();
    test_order<float>(), test_order<__half>(), test_order<__nv_bfloat16>();
    test_eight_bits();
    test_group_of_everything();
    test_split();
    test_order_in_streams();
    test_errors();
    NCCL(ncclCommDestroy(comm));
    if (!failures) printf("ok rank %d of %d\n", rank, ranks);
    MPI_Finalize();
    return failures != 0;
}
