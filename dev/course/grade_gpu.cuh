// grade_gpu: what the graders of the CUDA assignments add to grade.h.
//
// GPU_TEST is a TEST whose body runs once in each of several orders of blocks and threads, each time in a process of
// its own. Answers run in the emulation (dev/cuda_on_cpu/README.md), best in its checker build. What the emulation
// reports ends the test, with its line, what that kind of report means, and the order in which it came.
#ifndef GRADE_GPU_H
#define GRADE_GPU_H
#include "base/gpu.h"
#include "dev/course/grade.h"

#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#define GPU_TEST(function, points, title)                                                                              \
    static void function##_body();                                                                                     \
    TEST(function, points, title) { gpu_every_order(function##_body); }                                                \
    static void function##_body()

// What a kind of report means, for somebody who has not read the emulation's page.
inline const char *gpu_meaning(const std::string &kind)
{
    static const char *const meanings[][2] = {
        {"race", "two threads use the same memory and nothing orders them: is a __syncthreads missing, or do two "
                 "threads write the same element?"},
        {"uninitialised", "memory is read that nobody has written: is a __syncthreads missing, or an element left "
                          "out?"},
        {"out-of-bounds", "an index is outside of the array: is there a test against the size?"},
        {"red-zone", "somebody wrote beside an array: is there a test against the size?"},
        {"misaligned", "an address is not a multiple of what is read there"},
        {"host-access", "the host follows a pointer to the GPU's memory: it needs cudaMemcpy"},
        {"foreign-pointer", "a kernel follows a pointer that is not to the GPU's memory: was it copied with "
                            "cudaMemcpy?"},
        {"deadlock", "threads wait for others that never come: does a loop or an if keep some of them from a barrier?"},
        {"divergent-barrier", "the threads of one block wait in two different barriers: every thread must reach every "
                              "__syncthreads"},
        {"wrong-mask", "a shuffle names lanes that do not take part: all lanes of the mask must reach it"},
        {"mixed-collectives", "the lanes of one warp wait in two different warp operations"},
        {"shuffle-source", "a shuffle reads a lane that does not take part"},
        {"timeout", "a kernel does not end"},
        {"shared-size", "more shared memory than a block has"},
        {"signal", "the kernel crashed"},
    };
    for (auto &m : meanings)
        if (kind == m[0]) return m[1];
    return "see dev/cuda_on_cpu/README.md";
}

// Ends the test with what the process said.
[[noreturn]] inline void gpu_failed(std::string said, const char *order, const char *seed)
{
    auto rest = [&](size_t at) { return said.substr(at, said.find('\n', at) - at); };
    size_t wrong = said.find("wrong: "), report = said.find("cuda_on_cpu: "), error = said.find("error: ");
    if (wrong != said.npos) fail("%s [threads in order: %s %s]", rest(wrong + 7).c_str(), order, seed);
    if (report != said.npos) {
        std::string line = rest(report + 13), kind = line.substr(0, line.find(':'));
        std::string place = line.substr(kind.size() + 2);
        size_t folders = place.find(':') == place.npos ? 0 : place.rfind('/', place.find(':')) + 1;
        size_t thread = said.find("in block (", report);
        fail("%s: %s: %s%s%s", kind.c_str(), gpu_meaning(kind), place.substr(folders).c_str(),
             thread == said.npos ? "" : ", ", thread == said.npos ? "" : rest(thread).c_str());
    }
    if (error != said.npos) fail("a call of CUDA failed: %s", rest(error + 7).c_str());
    fail("the program ended early; it said last: %s", said.substr(said.size() < 400 ? 0 : said.size() - 400).c_str());
}

inline void gpu_every_order(void (*body)())
{
    static const char *const orders[][2] = {{"inorder", "1"}, {"reverse", "1"}, {"random", "1"}, {"random", "2"}};
    for (auto &o : orders) {
        int pipes[2], status = 0;
        fflush(nullptr);
        pid_t child = pipe(pipes) ? -1 : fork();
        if (child < 0) fail("the grader could not start a process");
        if (child == 0) {
            dup2(pipes[1], 1), dup2(pipes[1], 2), close(pipes[0]), close(pipes[1]);
            setenv("EMU_ORDER", o[0], 1), setenv("EMU_SEED", o[1], 1);
            setenv("EMU_MEMORY", "64", 1), setenv("EMU_TIMEOUT", "15", 1);
            body();
            GPU_CHECK(cudaDeviceSynchronize());
            grade_done();
        }
        close(pipes[1]);
        std::string said;
        char block[4096];
        for (ssize_t got; (got = read(pipes[0], block, sizeof block)) > 0;) said.append(block, (size_t)got);
        close(pipes[0]);
        waitpid(child, &status, 0);
        if (!grade_is_done(status)) gpu_failed(said, o[0], !strcmp(o[0], "random") ? o[1] : "");
    }
}

// ---- arrays on the GPU, of exactly this size. For the life of the test.
inline float *gpu_floats(const float *host, size_t n)
{
    float *p;
    GPU_CHECK(cudaMalloc(&p, (n ? n : 1) * sizeof *p));
    GPU_CHECK(cudaMemcpy(p, host, n * sizeof *p, cudaMemcpyHostToDevice));
    return p;
}

// What is in elements that a kernel has not written.
static const float GPU_UNTOUCHED = -7777;
inline float *gpu_untouched(size_t n) { return gpu_floats(equal_floats(n, GPU_UNTOUCHED), n); }

inline float *gpu_fetch(const float *p, size_t n)
{
    float *host = equal_floats(n, 0);
    GPU_CHECK(cudaMemcpy(host, p, n * sizeof *p, cudaMemcpyDeviceToHost));
    return host;
}

// Fails where the first element that was not written is.
inline void expect_all_written(const char *what, const float *got, size_t n, const char *because)
{
    for (size_t i = 0; i < n; i++)
        if (got[i] == GPU_UNTOUCHED) fail("%s: element %zu of %zu was never written: %s", what, i, n, because);
}
#endif
