// host_bugs: mistakes in the program around the kernels: streams, events, copies, frees. How to use it: bugs.h
#include "bugs.h"

__global__ void write_at(float *x, int i) { x[i] = 2; } // @write_at
__global__ void set_all(float *x, float to, int n)
{
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) x[i] = to;
}
__global__ void gather(float *out, const float *x, int n)
{
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) out[i] = x[n - 1 - i];
}
static void no_event(bool event)
{
    float *x = device_floats(64, true), *out = device_floats(64, true), host[64];
    cudaStream_t a, b;
    cudaEvent_t done;
    GPU_CHECK(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
    GPU_CHECK(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
    GPU_CHECK(cudaEventCreate(&done));
    LAUNCH(set_all, 1, 32, 0, a, x, 5.0f, 64);
    if (event) {
        GPU_CHECK(cudaEventRecord(done, a));
        GPU_CHECK(cudaStreamWaitEvent(b, done, 0));
    }
    LAUNCH(gather, 1, 32, 0, b, out, x, 64);
    GPU_CHECK(cudaMemcpyAsync(host, out, sizeof host, cudaMemcpyDeviceToHost, b));
    GPU_CHECK(cudaStreamSynchronize(b));
    GPU_CHECK(cudaDeviceSynchronize());
    expect(host[0] == 5);
}
static void event_recorded_too_late()
{
    float *x = device_floats(64, true), *out = device_floats(64, true), host[64];
    cudaStream_t a, b;
    cudaEvent_t done;
    GPU_CHECK(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
    GPU_CHECK(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
    GPU_CHECK(cudaEventCreate(&done));
    GPU_CHECK(cudaStreamWaitEvent(b, done, 0)); // nothing was recorded: nothing to wait for
    LAUNCH(set_all, 1, 32, 0, a, x, 5.0f, 64);
    GPU_CHECK(cudaEventRecord(done, a));
    LAUNCH(gather, 1, 32, 0, b, out, x, 64);
    GPU_CHECK(cudaMemcpyAsync(host, out, sizeof host, cudaMemcpyDeviceToHost, b));
    GPU_CHECK(cudaStreamSynchronize(b));
    GPU_CHECK(cudaDeviceSynchronize());
    expect(host[0] == 5);
}
static void pinned_read_early()
{
    float *x = device_floats(4, true), *pinned;
    GPU_CHECK(cudaMallocHost(&pinned, 16));
    memset(pinned, 0, 16);
    cudaStream_t a;
    GPU_CHECK(cudaStreamCreate(&a));
    GPU_CHECK(cudaMemcpyAsync(pinned, x, 16, cudaMemcpyDeviceToHost, a));
    float seen = pinned[0];
    GPU_CHECK(cudaStreamSynchronize(a));
    expect(seen == 1);
}
static void pinned_changed_early()
{
    float *x = device_floats(4, true), *pinned, host[4];
    GPU_CHECK(cudaMallocHost(&pinned, 16));
    for (int i = 0; i < 4; i++) pinned[i] = 7;
    cudaStream_t a;
    GPU_CHECK(cudaStreamCreate(&a));
    GPU_CHECK(cudaMemcpyAsync(x, pinned, 16, cudaMemcpyHostToDevice, a));
    pinned[0] = 8;
    GPU_CHECK(cudaStreamSynchronize(a));
    GPU_CHECK(cudaMemcpy(host, x, 16, cudaMemcpyDeviceToHost));
    expect(host[0] == 7);
}
static void never_waited()
{
    float *x = device_floats(64, true);
    cudaStream_t a;
    GPU_CHECK(cudaStreamCreate(&a));
    LAUNCH(set_all, 1, 32, 0, a, x, 5.0f, 64);
}
static int order_seen;
__global__ void order_matters(float *x)
{
    if (order_seen++ == 0) x[0] = (float)threadIdx.x; // the thread that comes first
}
static void order_dependent()
{
    float *x = device_floats(1, false), host;
    RUN(order_matters, 1, 64, x);
    GPU_CHECK(cudaMemcpy(&host, x, 4, cudaMemcpyDeviceToHost));
    expect(host == 0);
}
__global__ void nested(float *x) { LAUNCH(set_all, 1, 32, 0, nullptr, x, 1.0f, 1); } // @nested
__global__ void asserts(float *x) { assert(x[0] == 2); } // @asserts

static const Bug BUGS[] = {
    {"freed_memory", "out-of-bounds", "checker", "", "write_at", "0/0", [] {
         float *x = device_floats(8, true);
         GPU_CHECK(cudaFree(x));
         RUN(write_at, 1, 1, x, 0);
     }},
    {"freed_memory_asan", "AddressSanitizer", "asan", "", "write_at", "0/0", [] {
         float *x = device_floats(8, true);
         GPU_CHECK(cudaFree(x));
         RUN(write_at, 1, 1, x, 0);
     }},
    {"device_pointer_in_host", "host-access", "plain", "EMU_GUARD=1", "", "",
     [] { expect(device_floats(1, true)[0] == 2); }}, // @device_pointer_in_host
    {"device_pointer_in_host_checker", "host-access", "checker", "", "", "",
     [] { expect(device_floats(1, true)[0] == 2); }}, // @device_pointer_in_host_checker
    {"missing_event", "wrong-result", "plain", "EMU_STREAMS=late", "", "", [] { no_event(false); }},
    {"with_event", "nothing", "plain", "EMU_STREAMS=late", "", "", [] { no_event(true); }},
    {"event_recorded_too_late", "wrong-result", "plain", "EMU_STREAMS=late", "", "", event_recorded_too_late},
    {"pinned_read_early", "wrong-result", "plain", "EMU_STREAMS=late", "", "", pinned_read_early},
    {"pinned_changed_early", "wrong-result", "plain", "EMU_STREAMS=late", "", "", pinned_changed_early},
    {"never_waited", "prints nobody waited for", "plain", "EMU_STREAMS=late", "", "", never_waited},
    {"order_dependent", "wrong-result", "plain", "EMU_ORDER=reverse", "", "", order_dependent},
    {"nested_launch", "nested-launch", "plain", "", "nested", "0/0",
     [] { RUN(nested, 1, 1, device_floats(1, true)); }},
    {"assert", "assert", "plain", "", "asserts", "0/0", [] { RUN(asserts, 1, 1, device_floats(1, true)); }},
    {"double_free", "bad-free", "plain", "", "", "", [] {
         float *x = device_floats(8, true);
         GPU_CHECK(cudaFree(x));
         GPU_CHECK(cudaFree(x)); // @double_free
     }},
    {"free_inside", "bad-free", "plain", "", "", "",
     [] { GPU_CHECK(cudaFree(device_floats(8, true) + 1)); }}, // @free_inside
    {"copy_past_the_end", "out-of-bounds", "plain", "", "", "", [] {
         float host[16] = {};
         GPU_CHECK(cudaMemcpy(device_floats(8, true), host, sizeof host, cudaMemcpyHostToDevice)); // @copy_past_the_end
     }},
    {"copy_wrong_way", "copy-direction", "plain", "", "", "", [] {
         float host[8] = {};
         GPU_CHECK(cudaMemcpy(device_floats(8, true), host, sizeof host, cudaMemcpyDeviceToHost)); // @copy_wrong_way
     }},
    {"dead_stream", "bad-handle", "plain", "", "", "", [] {
         cudaStream_t a;
         GPU_CHECK(cudaStreamCreate(&a));
         GPU_CHECK(cudaStreamDestroy(a));
         LAUNCH(set_all, 1, 32, 0, a, device_floats(1, true), 5.0f, 1); // @dead_stream
     }},
    {"too_many_threads", "cudaErrorInvalidValue", "plain", "", "", "",
     [] { RUN(set_all, 1, 2048, device_floats(1, true), 5.0f, 1); }}, // @too_many_threads
};

BUGS_MAIN(BUGS)
