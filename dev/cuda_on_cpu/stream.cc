// stream: the host's interface: streams, events, copies, launches, device properties.
//
// Every asynchronous call makes an operation with the operations it must come after (`after`): the one before it
// in its stream, what cudaStreamWaitEvent asked for, and the rules of the legacy default stream (it comes after all
// that is in the blocking streams, and they after it). What may run is what has all of these done; EMU_STREAMS chooses
// among the legal orders:
//
//     now     at the call: the order of the program text, which hides a missing event
//     late    not before the host waits for it, and then nothing that need not run: shows a missing event or wait
//     random  at every call a few that may run, by the seed
//
// The invariant: an operation runs once, after all of its `after`, and before any wait that covers it returns.
// A copy from pageable host memory is taken at the call (CUDA stages it), from pinned memory when the operation runs;
// into pageable memory the call waits, into pinned memory it does not.
// Rejected: a thread per stream (not deterministic, and lateness would be luck).
#include "machine.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <unistd.h>

namespace emu {

struct Operation {
    std::function<void()> run;
    std::vector<std::shared_ptr<Operation>> after;
    bool done;
    const char *what;
};
using OpRef = std::shared_ptr<Operation>;
struct Stream {
    OpRef last;
    bool blocking, dead;
};
struct Event {
    OpRef record;
    double time;
};

namespace {
struct Runtime {
    Stream legacy; // the default stream
    std::vector<Stream *> streams;
    std::vector<OpRef> pending; // in the order of the calls
    OpRef ordered;              // the last operation of a library that keeps the order of its calls
    bool stuck, given_up;       // none of them ends; is run any more
    FILE *log;                  // EMU_LOG
    int ranges;                 // that are open
    cudaError_t error;
    int device; // the current one
    std::map<const void *, size_t> dynamic_limit;
};
} // namespace

static Runtime &runtime()
{
    static Runtime *r;
    if (r) return *r;
    r = new Runtime{};
    r->legacy.blocking = true;
    r->streams.push_back(&r->legacy);
    const char *path = getenv("EMU_LOG"), *rank = getenv("PMI_RANK");
    if (path && *path) r->log = fopen(format("%s.%s", path, rank ? rank : "0").c_str(), "w");
    if (path && *path && !r->log) report("settings", {"EMU_LOG", 0}, "EMU_LOG=%s: cannot be written", path);
    return *r;
}

// A line for what the host has asked for: the stream's number, and what.
static void log_call(const Stream *stream, const char *what)
{
    Runtime &r = runtime();
    if (!r.log) return;
    fprintf(r.log, "%d %s\n", (int)(std::find(r.streams.begin(), r.streams.end(), stream) - r.streams.begin()), what);
    fflush(r.log);
}

int log_range(const char *name)
{
    Runtime &r = runtime();
    if (!name && !r.ranges) return -1;
    if (r.log) fprintf(r.log, name ? "begin %s\n" : "end\n", name);
    return name ? r.ranges++ : --r.ranges;
}

static cudaError_t fail(cudaError_t error)
{
    if (error != cudaSuccess) runtime().error = error;
    return error;
}

// Runs an operation and, before it, what it must come after.
static void complete(OpRef op)
{
    std::vector<OpRef> stack = {op};
    while (!stack.empty()) {
        OpRef top = stack.back();
        if (top->done) {
            stack.pop_back();
            continue;
        }
        size_t depth = stack.size();
        for (const OpRef &before : top->after)
            if (!before->done) stack.push_back(before);
        if (stack.size() > depth) continue;
        stack.pop_back();
        memory_open(true);
        top->run();
        memory_open(false);
        top->done = true;
        top->after.clear();
        top->run = nullptr;
    }
}

static void forget_done()
{
    auto &p = runtime().pending;
    p.erase(std::remove_if(p.begin(), p.end(), [](const OpRef &op) { return op->done; }), p.end());
}

static void complete_all()
{
    Runtime &r = runtime();
    while (!r.pending.empty()) {
        size_t n = r.pending.size(), which = 0;
        if (machine().set.streams == StreamMode::late) which = n - 1; // its predecessors come along, the others later
        if (machine().set.streams == StreamMode::random) which = random_below((unsigned)n);
        complete(r.pending[which]);
        forget_done();
    }
}

// At each call of the host some of what may run does.
static void some_run()
{
    Runtime &r = runtime();
    if (machine().set.streams != StreamMode::random || r.stuck) return;
    while (!r.pending.empty() && random_below(3) == 0) {
        complete(r.pending[random_below((unsigned)r.pending.size())]);
        forget_done();
    }
}

static Stream *stream_of(Stream *s, Site site)
{
    Runtime &r = runtime();
    if (thread_now()) report("nested-launch", site, "a kernel calls the host's interface");
    if (!s) return &r.legacy;
    if (std::find(r.streams.begin(), r.streams.end(), s) == r.streams.end() || s->dead)
        report("bad-handle", site, "stream %p does not exist", (void *)s);
    return s;
}

static OpRef enqueue(std::vector<Stream *> streams, const char *what, Site site, std::function<void()> run,
                     bool in_order = false)
{
    Runtime &r = runtime();
    OpRef op = std::make_shared<Operation>();
    op->run = std::move(run);
    op->done = false;
    op->what = what;
    auto after = [&](OpRef last) { if (last && !last->done) op->after.push_back(last); };
    for (Stream *&stream : streams) {
        stream = stream_of(stream, site);
        after(stream->last);
        if (stream == &r.legacy) {
            for (Stream *s : r.streams)
                if (s->blocking && s != stream) after(s->last);
        } else if (stream->blocking) {
            after(r.legacy.last);
        }
    }
    if (in_order) {
        after(r.ordered);
        r.ordered = op;
    }
    for (Stream *stream : streams) {
        log_call(stream, what);
        stream->last = op;
    }
    r.pending.push_back(op);
    if (machine().set.streams != StreamMode::now) some_run();
    else if (!r.stuck) complete(op);
    forget_done();
    return op;
}

static OpRef enqueue(Stream *stream, const char *what, Site site, std::function<void()> run)
{
    return enqueue(std::vector<Stream *>{stream}, what, site, std::move(run));
}

void stream_library_call(const std::vector<Stream *> &streams, const char *what, Site site, bool in_order,
                         std::function<void()> run)
{
    auto unless_stuck = [run] {
        while (runtime().stuck) sleep(1);
        if (!runtime().given_up) run();
    };
    enqueue(streams, what, site, in_order ? std::function<void()>(unless_stuck) : std::move(run), in_order);
}

void stream_stuck(bool on)
{
    runtime().given_up = runtime().given_up || (runtime().stuck && !on);
    runtime().stuck = on;
}

void stream_library_flush()
{
    if (runtime().ordered) complete(runtime().ordered);
    forget_done();
}

static void drain(Stream *stream)
{
    if (stream->last) complete(stream->last);
    forget_done();
}

void memory_released()
{
    Runtime &r = runtime();
    forget_done();
    if (!r.pending.empty())
        fprintf(stderr,
                "cuda_on_cpu: warning: the program ends with %zu operations that nobody waited for and that did "
                "not run (the first: %s)\n",
                r.pending.size(), r.pending[0]->what);
    else memory_check_zones();
}

// ---- launches
cudaError_t launch(const char *name, Site site, const void *kernel, void (*invoke)(const void *, void *),
                   const void *args, size_t args_bytes, dim3 grid, dim3 block, size_t dynamic, cudaStream_t stream,
                   bool cooperative)
{
    if (thread_now()) report("nested-launch", site, "kernel %s is launched by a kernel", name);
    machine(); // settings first: a wrong one should not wait for the first operation
    if (!machine().set.image) return fail(cudaErrorNoKernelImageForDevice);
    size_t threads = (size_t)block.x * block.y * block.z;
    if (!threads || threads > MAX_THREADS || block.x > 1024 || block.y > 1024 || block.z > 64)
        return fail(cudaErrorInvalidValue); // before CUDA 13: cudaErrorInvalidConfiguration
    if (!grid.x || !grid.y || !grid.z || grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535)
        return fail(cudaErrorInvalidValue); // before CUDA 13: cudaErrorInvalidConfiguration
    auto limit = runtime().dynamic_limit.find(kernel);
    if (dynamic > (limit == runtime().dynamic_limit.end() ? (size_t)SHARED_STATIC : limit->second))
        return fail(cudaErrorInvalidValue);
    if (args_bytes > 4096)
        report("arguments", site, "kernel %s has %zu bytes of parameters (at most 4096)", name, args_bytes);
    size_t blocks = (size_t)grid.x * grid.y * grid.z;
    if (cooperative &&
        blocks > SM_COUNT * std::min<size_t>(SM_BLOCKS, SM_THREADS / ((threads + WARP - 1) / WARP * WARP)))
        return fail(cudaErrorCooperativeLaunchTooLarge);
    Launch l = {};
    l.name = name;
    l.site = site;
    l.grid = grid;
    l.block = block;
    l.dynamic = dynamic;
    l.invoke = invoke;
    l.kernel = kernel;
    l.args.assign((const char *)args, (const char *)args + args_bytes);
    l.cooperative = cooperative;
    l.opted = limit != runtime().dynamic_limit.end();
    enqueue(stream, name, site, [l]() mutable {
        run_launch(&l);
    });
    return cudaSuccess;
}

// ---- copies
static bool is_device_side(const void *p, cudaMemcpyKind kind, bool dst, Site site)
{
    bool device = memory_is_device(p);
    bool want = dst ? kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice
                    : kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (kind != cudaMemcpyDefault && want != device)
        report("copy-direction", site, "the %s, %p, is %s memory and the copy's kind says %s",
               dst ? "destination" : "source", p, device ? "device" : "host", want ? "device" : "host");
    return device;
}

static cudaError_t copy(void *dst, const void *src, size_t n, cudaMemcpyKind kind, Stream *stream, bool async,
                        Site site)
{
    if (n == 0) return cudaSuccess;
    bool to_device = is_device_side(dst, kind, true, site), from_device = is_device_side(src, kind, false, site);
    if (to_device) memory_need(dst, n, "copy: destination", site);
    if (from_device) memory_need(src, n, "copy: source", site);
    std::shared_ptr<std::vector<char>> staged;
    if (!from_device && !(async && memory_is_pinned(src)))
        staged = std::make_shared<std::vector<char>>((const char *)src, (const char *)src + n);
    OpRef op = enqueue(stream, "a copy", site, [=] {
        memmove(dst, staged ? staged->data() : src, n);
        if (to_device && machine().hooks.host_write) machine().hooks.host_write(dst, n);
    });
    // The host may go on only when nothing of it is in use any more.
    if (!to_device && !(async && memory_is_pinned(dst))) complete(op);
    forget_done();
    return cudaSuccess;
}

static cudaError_t set(void *dst, int value, size_t n, Stream *stream, Site site)
{
    if (n == 0) return cudaSuccess;
    memory_need(dst, n, "cudaMemset", site);
    enqueue(stream, "cudaMemset", site, [=] {
        memset(dst, value, n);
        if (machine().hooks.host_write) machine().hooks.host_write(dst, n);
    });
    return cudaSuccess;
}

} // namespace emu

using namespace emu;

cudaError_t cudaMemcpy(void *dst, const void *src, size_t n, cudaMemcpyKind kind, const char *file, int line)
{
    return copy(dst, src, n, kind, nullptr, false, {file, line});
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t n, cudaMemcpyKind kind, cudaStream_t s,
                            const char *file, int line)
{
    return copy(dst, src, n, kind, s, true, {file, line});
}

cudaError_t cudaMemset(void *dst, int value, size_t n, const char *file, int line)
{
    return set(dst, value, n, nullptr, {file, line});
}

cudaError_t cudaMemsetAsync(void *dst, int value, size_t n, cudaStream_t s, const char *file, int line)
{
    return set(dst, value, n, s, {file, line});
}

// ---- streams and events
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    *stream = new Stream{nullptr, flags != cudaStreamNonBlocking, false};
    runtime().streams.push_back(*stream);
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream, const char *file, int line)
{
    Stream *s = stream_of(stream, {file, line});
    auto &all = runtime().streams;
    drain(s); // CUDA lets the work finish later; nobody can tell
    all.erase(std::find(all.begin(), all.end(), s));
    delete s;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream, const char *file, int line)
{
    drain(stream_of(stream, {file, line}));
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream, const char *file, int line)
{
    Stream *s = stream_of(stream, {file, line});
    some_run();
    bool ends = !runtime().stuck && random_below(4) == 0; // a loop over queries does
    if (s->last && !s->last->done && ends) drain(s);
    return s->last && !s->last->done ? cudaErrorNotReady : cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned, const char *file, int line)
{
    OpRef record = event->record;
    if (!record || record->done) return cudaSuccess; // an event that was never recorded is nothing to wait for
    Stream *s = stream_of(stream, {file, line});
    OpRef op = std::make_shared<Operation>();
    op->run = [] {};
    op->what = "cudaStreamWaitEvent";
    log_call(s, op->what);
    op->done = false;
    op->after.push_back(record);
    if (s->last) op->after.push_back(s->last);
    s->last = op;
    runtime().pending.push_back(op);
    some_run();
    return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, void (*function)(void *), void *data, const char *file, int line)
{
    enqueue(stream, "a host function", {file, line}, [=] { function(data); });
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
    *event = new Event{nullptr, 0};
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    if (event->record) complete(event->record); // its operation writes the time into the event
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream, const char *file, int line)
{
    event->record = enqueue(stream, "cudaEventRecord", {file, line}, [event] {
        auto now = std::chrono::steady_clock::now().time_since_epoch();
        event->time = std::chrono::duration<double, std::milli>(now).count();
    });
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    if (event->record) complete(event->record);
    forget_done();
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    some_run();
    bool ends = !runtime().stuck && random_below(4) == 0;
    if (event->record && !event->record->done && ends) return cudaEventSynchronize(event);
    return event->record && !event->record->done ? cudaErrorNotReady : cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    if (!from->record || !to->record) return fail(cudaErrorInvalidResourceHandle);
    if (!from->record->done || !to->record->done) return fail(cudaErrorNotReady);
    *ms = (float)(to->time - from->time);
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(const char *file, int line)
{
    stream_of(nullptr, {file, line});
    complete_all();
    return cudaSuccess;
}

// ---- the device
cudaError_t cudaGetDeviceCount(int *count)
{
    *count = machine().set.gpus;
    return *count ? cudaSuccess : fail(cudaErrorNoDevice);
}

static bool is_device(int device)
{
    return device >= 0 && device < machine().set.gpus;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = runtime().device;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    if (!is_device(device)) return fail(cudaErrorInvalidDevice);
    runtime().device = device;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *prop, int device)
{
    if (!is_device(device)) return fail(cudaErrorInvalidDevice);
    *prop = {};
    snprintf(prop->name, sizeof prop->name, "CUDA on the CPU");
    snprintf(prop->uuid.bytes, sizeof prop->uuid.bytes, "emulated %d", machine().set.first + device);
    size_t unused;
    cudaMemGetInfo(&unused, &prop->totalGlobalMem);
    prop->sharedMemPerBlock = SHARED_STATIC;
    prop->sharedMemPerBlockOptin = SHARED_MAX;
    prop->sharedMemPerMultiprocessor = SHARED_MAX + 1024;
    prop->major = machine().set.capability / 10;
    prop->minor = machine().set.capability % 10;
    prop->multiProcessorCount = SM_COUNT;
    prop->warpSize = WARP;
    prop->maxThreadsPerBlock = MAX_THREADS;
    prop->maxThreadsPerMultiProcessor = SM_THREADS;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device)
{
    if (!is_device(device)) return fail(cudaErrorInvalidDevice);
    switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = MAX_THREADS; return cudaSuccess;
    case cudaDevAttrWarpSize: *value = WARP; return cudaSuccess;
    case cudaDevAttrMultiProcessorCount: *value = SM_COUNT; return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor: *value = machine().set.capability / 10; return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor: *value = machine().set.capability % 10; return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = SHARED_MAX; return cudaSuccess;
    }
    return fail(cudaErrorInvalidValue);
}

cudaError_t emu_func_set_attribute(const void *kernel, cudaFuncAttribute attribute, int value)
{
    if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) return cudaSuccess;
    if (value < 0 || (unsigned)value > SHARED_MAX) return fail(cudaErrorInvalidValue);
    runtime().dynamic_limit[kernel] = (size_t)value;
    return cudaSuccess;
}

// ---- errors
cudaError_t cudaGetLastError()
{
    cudaError_t error = runtime().error;
    runtime().error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError()
{
    return runtime().error;
}

static const struct {
    cudaError_t error;
    const char *name, *text;
} ERRORS[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice",
     "no kernel image is available for execution on the device"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorCooperativeLaunchTooLarge, "cudaErrorCooperativeLaunchTooLarge",
     "too many blocks in cooperative launch"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
};

const char *cudaGetErrorName(cudaError_t error)
{
    for (auto &e : ERRORS)
        if (e.error == error) return e.name;
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error)
{
    for (auto &e : ERRORS)
        if (e.error == error) return e.text;
    return "unrecognized error code";
}
