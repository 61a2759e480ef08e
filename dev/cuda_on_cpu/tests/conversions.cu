// conversions: checksums of the conversions to and from bf16, fp16 and fp8 over many floats and all patterns. Host code
// alone, so that it runs wherever nvcc is installed, GPU or not: the toolkit's checksums are those in the table.
//
// usage: conversions [STEP]      every STEP-th of the 2^32 floats (1021); 1: all of them, without the comparison
#include "base/gpu.h"

#include <cmath>
#include <cstring>

static uint64_t mix(uint64_t sum, uint32_t v)
{
    return (sum ^ v) * 0x100000001b3u;
}
static uint32_t bits_of(float v)
{
    uint32_t u;
    memcpy(&u, &v, 4);
    return std::isnan(v) ? 0x7fc00000u : u;
}
template <class T, class U> static uint32_t pattern(T v)
{
    U u;
    static_assert(sizeof u == sizeof v, "the pattern has the number's size");
    memcpy(&u, &v, sizeof u);
    return u;
}
template <class T, class U> static uint64_t narrow(uint64_t step)
{
    uint64_t sum = 0xcbf29ce484222325u;
    for (uint64_t u = 0; u < 1ull << 32; u += step) {
        uint32_t word = (uint32_t)u;
        float v;
        memcpy(&v, &word, 4);
        sum = mix(sum, pattern<T, U>(T(v)));
    }
    return sum;
}
template <class T, class U> static uint64_t widen()
{
    uint64_t sum = 0xcbf29ce484222325u;
    for (uint32_t u = 0; u < 1u << 8 * sizeof(U); u++) {
        U word = (U)u;
        T v;
        memcpy((void *)&v, &word, sizeof v);
        sum = mix(sum, bits_of((float)v));
    }
    return sum;
}

int main(int argc, char **argv)
{
    uint64_t step = argc > 1 ? strtoull(argv[1], nullptr, 10) : 1021;
    if (step == 0) return 2;
    const struct { const char *name; uint64_t narrow, widen, want_narrow, want_widen; } rows[] = {
        {"bf16", narrow<__nv_bfloat16, uint16_t>(step), widen<__nv_bfloat16, uint16_t>(),
         0x3b6705ce81af4068u, 0xae864f38855e2325u},
        {"fp16", narrow<__half, uint16_t>(step), widen<__half, uint16_t>(),
         0x8832a0dd8b26fe1cu, 0xa29fcd307f1d2325u},
        {"e4m3", narrow<__nv_fp8_e4m3, uint8_t>(step), widen<__nv_fp8_e4m3, uint8_t>(),
         0x3b57146aeb2dec20u, 0x08993af4628bb725u},
        {"e5m2", narrow<__nv_fp8_e5m2, uint8_t>(step), widen<__nv_fp8_e5m2, uint8_t>(),
         0x50e63fa0ce5d6861u, 0x00cee2838e6bb725u},
    };
    int bad = 0;
    for (auto &r : rows) {
        bool good = step != 1021 || (r.narrow == r.want_narrow && r.widen == r.want_widen);
        bad += !good;
        printf("%s %s %016llx %016llx\n", good ? "ok" : "not ok", r.name, (unsigned long long)r.narrow,
               (unsigned long long)r.widen);
    }
    return bad != 0;
}
