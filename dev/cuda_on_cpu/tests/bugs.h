// bugs: what the programs of seeded bugs share. Each is a table of Bug and `int main` from BUGS_MAIN.
//
//   PROGRAM list    prints a line NAME|KIND|BUILD|SETTINGS|KERNEL|THREAD for each bug
//   PROGRAM NAME    makes the mistake
//
// Built as BUILD and run under SETTINGS, it must give a report of this KIND that names the KERNEL and the THREAD
// ("block/thread", or only its beginning) unless they are empty, and the line that ends in a comment "@NAME" or, where
// no line does, "@KERNEL".
// KIND may also be
//
//   wrong-result    the program itself noticed, by expect()
//   nothing         no word, and exit status 0
//   prints TEXT     exit status 0, and TEXT, an extended regular expression, in the output
//   cudaError...    the program stopped at GPU_CHECK
//   error: TEXT     exit status 1, and this text in the output
#ifndef BUGS_H
#define BUGS_H
#include "base/gpu.h"

#include <cmath>
#include <cstring>
#include <vector>

struct Bug {
    const char *name, *kind, *build, *settings, *kernel, *thread;
    void (*run)();
};
#define BUGS_MAIN(bugs)                                                                                  \
    int main(int argc, char **argv)                                                                      \
    {                                                                                                    \
        if (argc != 2) return 2;                                                                         \
        bool list = !strcmp(argv[1], "list");                                                            \
        for (const Bug &b : bugs) {                                                                      \
            if (list) printf("%s|%s|%s|%s|%s|%s\n", b.name, b.kind, b.build, b.settings, b.kernel, b.thread); \
            else if (!strcmp(argv[1], b.name)) return b.run(), 0;                                        \
        }                                                                                                \
        return list ? 0 : 2;                                                                             \
    }

inline float *device_floats(size_t n, bool filled)
{
    float *x;
    GPU_CHECK(cudaMalloc(&x, n * sizeof(float)));
    std::vector<float> host(n, 1.0f);
    if (filled) GPU_CHECK(cudaMemcpy(x, host.data(), n * sizeof(float), cudaMemcpyHostToDevice));
    return x;
}
inline void expect(bool good) // of a program that checks its own result
{
    if (good) return;
    fprintf(stderr, "wrong-result\n");
    exit(3);
}
#define RUN(kernel, grid, block, ...)                                                                    \
    do {                                                                                                 \
        LAUNCH(kernel, grid, block, 0, nullptr, __VA_ARGS__);                                            \
        GPU_CHECK(cudaDeviceSynchronize());                                                              \
    } while (0)
#endif
