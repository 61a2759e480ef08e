// compare: what the tests of kernels share: arrays on both sides, numbers to fill them with, and a check that counts.
#ifndef COMPARE_H
#define COMPARE_H
#include "base/gpu.h"

#include <cmath>
#include <vector>

[[maybe_unused]] static int failures;
[[maybe_unused]] static const double U = ldexp(1, -24); // unit roundoff of fp32
#define EXPECT(condition)                                                                                \
    do {                                                                                                 \
        if (!(condition)) {                                                                              \
            if (failures++ < 10) printf("  %s:%d: %s\n", __FILE__, __LINE__, #condition);                \
        }                                                                                                \
    } while (0)

template <class T> struct Array {
    std::vector<T> host;
    T *device;
    explicit Array(size_t n) : host(n), device(nullptr) { GPU_CHECK(cudaMalloc(&device, n * sizeof(T))); }
    Array(const Array &) = delete;
    ~Array() { GPU_CHECK(cudaFree(device)); }
    void up() { GPU_CHECK(cudaMemcpy(device, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice)); }
    void down() { GPU_CHECK(cudaMemcpy(host.data(), device, host.size() * sizeof(T), cudaMemcpyDeviceToHost)); }
    T operator[](size_t i) const { return host[i]; }
};

static inline float uniform(float low, float high) // the same numbers everywhere
{
    static uint32_t state = 12345;
    state = state * 1664525u + 1013904223u;
    return low + (high - low) * (float)(state >> 8) * (1.0f / 16777216.0f);
}
#endif
